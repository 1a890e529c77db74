//! The commands, one folder per family: rows, parsing, behaviour.
//!
//! Owns    the command table, and the [`Call`] that a command works in.
//! Knows   the keyspace through a view, the server's state, scripts; nothing of sockets or threads.
//! Rule    a handler parses, then acts, then answers. It has no effect before all arguments are parsed.

// Arithmetic here works on numbers that clients choose.
#![warn(clippy::arithmetic_side_effects)]

mod admin;
mod args;
mod call;
mod connection;
mod expiry;
mod extension;
mod hash;
pub mod help;
mod key;
mod key_specs;
mod list;
mod lock;
pub(crate) mod peers;
mod pubsub;
pub(crate) mod quarantine;
mod redact;
pub mod row;
mod scan;
mod script;
mod set;
mod shared;
mod slots;
mod sorted_set;
mod stream;
mod string;
pub mod table;
mod transaction;

pub(crate) use admin::acl_check::{check, check_in_exec};
pub(crate) use admin::debug::check_protected;
pub use admin::families::{Family, FamilyKind, Sample, Value, families};
pub(crate) use admin::monitor::{Source, show};
pub(crate) use admin::pause::may_write;
pub use args::Args;
pub(crate) use call::is_repeated;
pub use call::{Call, Caller, Outcome};
pub(crate) use connection::certificate::log_in;
pub(crate) use connection::login_of;
pub(crate) use connection::tracking::end as end_tracking;
pub use extension::Extension;
pub(crate) use lock::session::end as end_lock_session;
pub(crate) use lock::wait::refuse_circle;
pub(crate) use lock::watch::watch_locks;
pub use peers::{Move, Peers};
pub(crate) use pubsub::{has_many_patterns, leave_all};
pub use redact::redacted;
pub(crate) use script::{asks_further, busy_now, runs_natively};
pub use shared::{Pause, Shared};
pub(crate) use slots::common_slot;
pub use table::{Command, Keys, table};
pub use transaction::EXEC;
pub(crate) use transaction::discard_all;

/// The rows of every family of the core, in the order of the documentation.
pub(crate) const FAMILIES: &[&[row::Row]] = &[
    connection::ROWS,
    connection::client::ROWS,
    string::ROWS,
    string::compare::ROWS,
    string::bytes::ROWS,
    string::increx::ROWS,
    string::number::ROWS,
    hash::ROWS,
    hash::scan::ROWS,
    list::ROWS,
    list::search::ROWS,
    list::moves::ROWS,
    list::blocking::ROWS,
    lock::ROWS,
    lock::explain::ROWS,
    lock::history::ROWS,
    lock::lint::ROWS,
    lock::holders::ROWS,
    lock::session::ROWS,
    sorted_set::ROWS,
    sorted_set::range::ROWS,
    sorted_set::pop::ROWS,
    sorted_set::intersection::ROWS,
    stream::ROWS,
    set::ROWS,
    set::random::ROWS,
    key::ROWS,
    key::scan::ROWS,
    key::database::ROWS,
    key::object::ROWS,
    key::expire::ROWS,
    transaction::ROWS,
    script::ROWS,
    script::function::ROWS,
    pubsub::ROWS,
    admin::command::ROWS,
    admin::config::ROWS,
    admin::acl::ROWS,
    admin::info::ROWS,
    admin::latency::ROWS,
    admin::monitor::ROWS,
    admin::cluster::ROWS,
    admin::sentinel::ROWS,
    admin::ROWS,
    admin::persistence::ROWS,
    admin::debug::ROWS,
];
