//! Locks of a running server: they are taken and kept, and looked at.
//!
//! Public  to the agents' tools, which do the same: how a lock is taken and given back (`hold`), who holds which (`views`),
//!         and the words for it (`texts`, `terms`).

mod arguments;
mod fence;
pub(crate) mod hold;
mod hold_flags;
mod one_of;
mod run;
mod run_flags;
mod table;
pub(crate) mod terms;
pub(crate) mod texts;
mod top;
mod view_flags;
pub(crate) mod views;
mod watch;

use crate::common::Subcommand;

pub(crate) use arguments::{owner, owner_of};

pub(crate) const SUBCOMMANDS: &[Subcommand] = &[
    run_flags::RUN,
    view_flags::LS,
    view_flags::WHO,
    view_flags::MINE,
    view_flags::WAIT,
    view_flags::BREAK,
    view_flags::WATCH,
    view_flags::CLUSTER_STATUS,
    view_flags::CLUSTER_HAND_OVER,
    hold_flags::TAKE,
    hold_flags::RENEW,
    hold_flags::RELEASE,
    top::TOP,
    fence::SQL,
];
