//! MONITOR: every command that the server executes, as a line to each client that asked for it.
//!
//! Rule    a command is shown after it was executed, a script before the commands that it calls. Of what is refused before
//!         it is executed, EXEC alone is shown. Commands for operators are never shown, and passwords are redacted. Without
//!         monitors, a command costs one load and one branch.
//! Locks   lines enter the outboxes while the shards are locked, so that all monitors see one order.
//! Source  Redis 7.0 `replication.c`: `replicationFeedMonitors`; `server.c`: `call`.

use std::io::Write as _;
use std::sync::Arc;

use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;

use crate::commands::redact::redacted;
use crate::commands::row::{Flags, Group, Row};
use crate::commands::{Call, Command, Outcome, Shared};
use crate::state::session::Session;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Server, "MONITOR", "1.0.0", monitor)
    .summary("Shows every command of every client from now on, without passwords.")
    .flags(Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE))];

fn monitor(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.session.is_nested {
        return Err(Refusal::said("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }

    // Redis does not answer a client that monitors already.
    if !call.shared.monitors.contains(call.session.client.id) {
        call.shared.monitors.join(Arc::clone(&call.session.client));
        call.reply.ok();
    }
    Ok(Outcome::Replied)
}

/// Where a command came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    Client,
    Script,
}

/// Shows a command to all monitors.
#[cold]
pub(crate) fn show(
    session: &Session,
    shared: &Shared,
    command: &Command,
    request: Request<'_>,
    source: Source,
) {
    if command.row.flags.has(Flags::ADMIN) {
        return;
    }
    let micros = shared.clock.wall_micros();
    let (secs, micros) = (micros / 1_000_000, micros % 1_000_000);
    let mut line = Vec::new();
    // Writing to a Vec cannot fail.
    let _ = match source {
        Source::Script => write!(line, "+{secs}.{micros:06} [{} lua]", session.database),
        Source::Client => {
            write!(line, "+{secs}.{micros:06} [{} {}]", session.database, session.client.address.peer)
        }
    };
    for word in redacted(command, request) {
        line.push(b' ');
        quote(&mut line, word);
    }
    line.extend_from_slice(b"\r\n");
    shared.monitors.deliver(&line);
}

/// Appends a word in double quotes: Redis' `sdscatrepr`.
fn quote(line: &mut Vec<u8>, word: &[u8]) {
    line.push(b'"');
    for byte in word {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', *byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            0x07 => line.extend_from_slice(b"\\a"),
            0x08 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(*byte),
            // Writing to a Vec cannot fail.
            byte => _ = write!(line, "\\x{byte:02x}"),
        }
    }
    line.push(b'"');
}
