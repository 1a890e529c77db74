//! TEST commands: a clock, faults, namespaces, nodes and a history that tests drive. docs/testing.md is the reference.
//!
//! Rule    without the setting `enable-test-commands` they are unknown commands, and no command lists them.
//! Rule    a change that takes a while is carried out by the shell; the client waits for it as for BLPOP.

mod clock;
mod fault;
mod history;
mod namespace;
mod node;
mod slot;

use std::sync::LazyLock;

use bytes::Bytes;
use redlatch_core::commands::row::{Flags, Group, Row, Run};
use redlatch_core::commands::table::Table;
use redlatch_core::commands::{Call, Outcome};
use redlatch_core::state::wait::Pending;
use redlatch_proto::error::Refusal;

use crate::Testing;

pub use fault::parse as parse_fault;
pub use history::{moment, note_request};

const ROWS: &[Row] = &[
    history::CALLS,
    history::CHECK,
    Row::container(Group::Test, "TEST.CLOCK", SINCE, clock::ROWS).summary("Moves the clock, or shows it."),
    Row::container(Group::Test, "TEST.FAULT", SINCE, fault::ROWS).summary("Adds, lists or removes faults."),
    history::HISTORY,
    Row::container(Group::Test, "TEST.NAMESPACE", SINCE, namespace::ROWS)
        .summary("Lists namespaces, or removes one."),
    Row::container(Group::Test, "TEST.NODE", SINCE, node::ROWS)
        .summary("Lists nodes, or changes the state of one."),
    Row::container(Group::Test, "TEST.SLOT", SINCE, slot::ROWS)
        .summary("Moves a slot of a cluster to another node."),
];

/// The commands of the core, and behind them those of the test backend.
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| Table::with(ROWS));
    &TABLE
}

/// The version of redlatch that first had these commands.
const SINCE: &str = "0.1.0";

/// The flags of every TEST command.
const TEST: Flags = Flags::ADMIN
    .with(Flags::NOSCRIPT)
    .with(Flags::NO_MULTI)
    .with(Flags::UNPAUSED)
    .with(Flags::BUSY)
    .with(Flags::SUBSCRIBED);

/// Bytes of the longest pattern of keys, commands or clients.
const PATTERN_BYTES_MAX: usize = 1024;

/// The row of a TEST command or of one of its subcommands.
const fn row(name: &'static str, run: Run) -> Row {
    Row::new(Group::Test, name, SINCE, run).flags(TEST)
}

fn pattern_word(call: &mut Call<'_, '_>) -> Result<Bytes, Refusal> {
    let pattern = call.args.word()?;
    match pattern.len() > PATTERN_BYTES_MAX {
        true => Err(Refusal::said(format!("ERR a pattern has {PATTERN_BYTES_MAX} bytes at most"))),
        false => Ok(Bytes::copy_from_slice(pattern)),
    }
}

/// The test backend, which a TEST command has: without it the command is unknown.
fn testing<'k>(call: &Call<'_, 'k>) -> Result<&'k Testing, Refusal> {
    Testing::of(call.shared).ok_or_else(|| Refusal::said("ERR this server has no test backend"))
}

/// Begins a change that the shell carries out; it answers.
fn begin(call: &mut Call<'_, '_>, change: impl FnOnce(&Testing, Pending)) -> Result<Outcome, Refusal> {
    let testing = testing(call)?;
    let wait = call.session.new_wait(None, Vec::new());
    change(testing, Pending { client: call.session.client.clone(), wait: wait.clone() });
    Ok(Outcome::Park { wait, waiter: None })
}
