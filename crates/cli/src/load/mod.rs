//! A load that knows locks: clients that take, keep and release them, and what that took.
//!
//! Owns    the plan of a load, its clients, what is measured, and the report. `redlatch load` is made of it, and so are the
//!         loads with locks of the race.
//! Knows   servers through `client`; they may be of any kind that speaks the protocol.
//! Time    the monotonic clock. Every latency is taken on the side of the client.
//! Threads each has a runtime and clients of its own; they share the ledger of locks.

mod client;
mod command;
mod draws;
mod figures;
mod flags;
mod ledger;
mod live;
mod plan;
mod plot;
mod report;
mod runner;
mod schedule;
mod session;
pub mod svg;

use crate::common::Subcommand;

pub use live::Live;
pub use plan::{Dialect, Hold, Keys, Node, Plan, rate, time};
pub use report::{Report, Times};
pub use runner::{Failure, run};

/// Compare and delete, as a client of SET NX releases. KEYS: the lock. ARGV: the owner.
pub const RELEASE: &str = redlatch_client::wire::RELEASE;

pub(crate) const SUBCOMMANDS: &[Subcommand] = &[flags::LOAD];
