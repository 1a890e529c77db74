//! The commands, one file per family: rows, parsing, behaviour.
//!
//! Owns    the command table, and the [`Call`] that a command works in.
//! Knows   the keyspace through a view, the server's state, scripts; nothing of sockets or of who runs it.
//! Rule    a handler parses, then acts, then answers; it has no effect before it has parsed everything.

// Strangers' numbers arrive here.
#![warn(clippy::arithmetic_side_effects)]

mod acl;
mod acl_file;
mod acl_log;
mod args;
mod blocking;
mod browse;
mod categories;
mod client;
mod client_list;
mod client_tracking;
mod command;
mod config;
mod connection;
mod counters;
mod databases;
mod debug;
mod draws;
mod expire;
mod expiry;
mod facts;
mod functions;
mod hash_browse;
mod hash_expiry;
mod hash_leases;
mod hashes;
mod help;
mod info;
mod inside;
mod interpreter;
mod keys;
mod latency;
mod libraries;
mod list_moves;
mod list_search;
mod lists;
mod metrics;
mod metrics_table;
mod object;
mod pausing;
mod pubsub;
mod rights;
pub mod row;
mod script_cache;
mod scripting;
mod server;
mod set_algebra;
mod set_draws;
mod sets;
mod shared;
mod sorted_set_algebra;
mod sorted_set_picks;
mod sorted_set_ranges;
mod sorted_sets;
mod streams;
mod strings;
pub mod table;
mod text;
mod transactions;
mod walk;
#[cfg(feature = "lua")]
mod watchdog;

pub use args::Args;
pub(crate) use client_tracking::{end as end_tracking, remember};
pub(crate) use functions::is_function;
pub use metrics::prometheus;
pub(crate) use pausing::may_write;
pub(crate) use pubsub::leave_all;
pub(crate) use rights::{check, check_again};
pub(crate) use scripting::{busy, work_in_transaction};
pub use shared::{Pause, Shared, VERSION};
pub use table::{Command, Keys, table};
pub(crate) use transactions::{EXEC, discard_all};

use std::sync::Arc;

use crate::clock::{LockTime, Now};
use crate::error::Refusal;
use crate::keyspace::{Ticket, View};
use crate::resp::{Reply, Request};
use crate::state::session::Session;

/// One command being carried out.
#[derive(Debug)]
pub struct Call<'a, 'k> {
    /// The keyspace, as far as the command's keys reach.
    pub view: &'a mut View<'k>,
    /// The words behind the name.
    pub args: Args<'a>,
    /// Where the answer goes.
    pub reply: Reply<'a>,
    /// The instant of the command.
    pub now: Now,
    /// The connection's own state.
    pub session: &'a mut Session,
    /// The server's.
    pub shared: &'k Shared,
    /// The command itself.
    pub command: &'static Command,
}

/// How a command ended that was not refused.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// It has answered.
    Replied,
    /// It has answered, and the connection closes once that is sent.
    Close,
    /// It waits; the session's next requests wait behind it.
    Park {
        /// When it gives up; `None`: never.
        until: Option<LockTime>,
        /// What it answers then.
        answer: Vec<u8>,
        /// The keys it waits for, and what it does when one of them has what it needs; `None`: it waits for its time.
        ticket: Option<Arc<Ticket>>,
    },
    /// It may take long, and is to be carried out where a thread may be held. It has had no effect.
    Aside,
}

/// Every family's rows, in the order in which the documents list them.
pub(crate) const FAMILIES: &[&[row::Row]] = &[
    connection::ROWS,
    client::ROWS,
    strings::ROWS,
    text::ROWS,
    counters::ROWS,
    hashes::ROWS,
    hash_browse::ROWS,
    hash_expiry::ROWS,
    hash_leases::ROWS,
    lists::ROWS,
    list_search::ROWS,
    list_moves::ROWS,
    blocking::ROWS,
    sorted_sets::ROWS,
    sorted_set_ranges::ROWS,
    sorted_set_picks::ROWS,
    sorted_set_algebra::ROWS,
    streams::ROWS,
    sets::ROWS,
    set_draws::ROWS,
    set_algebra::ROWS,
    keys::ROWS,
    browse::ROWS,
    databases::ROWS,
    object::ROWS,
    expire::ROWS,
    transactions::ROWS,
    scripting::ROWS,
    functions::ROWS,
    pubsub::ROWS,
    command::ROWS,
    config::ROWS,
    acl::ROWS,
    info::ROWS,
    latency::ROWS,
    server::ROWS,
    debug::ROWS,
];

/// What a command says that only has subcommands, when none is named: the arity has refused it before.
fn container(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::Arity(call.command.name.as_str().into()))
}
