//! What the slow log says of the locks that a slow command is about.
//!
//! Rule    an entry keeps the six fields of Redis. The locks are words behind the arguments, as Redis' own
//!         `... (3 more arguments)` is.
//! Bounds  three locks of a command, each in a word of bounded length.

use bytes::Bytes;
use redlatch_proto::log_name::LogName;
use redlatch_proto::resp::Request;

use crate::commands::Command;
use crate::commands::row::{Flags, Group};
use crate::keyspace::{Shown, View};

/// Locks of one command that are told.
const LOCKS_MAX: usize = 3;
/// Keys of a command that are looked at.
const KEYS_MAX: usize = 16;

/// Who holds the locks that a LOCK command or a script names, after it has run: a word for each. Empty for other commands.
pub(in crate::commands) fn locks(view: &mut View<'_>, command: &Command, request: Request<'_>) -> Vec<Bytes> {
    if command.row.group != Group::Lock && !command.row.flags.has(Flags::SCRIPT) {
        return Vec::new();
    }
    let now = view.now().lock;
    let keys = command.positions(request).map(|at| request.word(at)).take(KEYS_MAX);
    let held = keys.filter_map(|key| {
        let lock = view.locks().held(key, Shown::First(1))?;
        let holder = lock.holders.first()?;
        let owner = holder.owner.as_ref().map_or(&b"?"[..], |owner| &owner[..]);
        let mut word = format!("(lock {}: held by {}", LogName(key), LogName(owner));
        if let Some(token) = holder.token {
            word.push_str(&format!(", token {token}"));
        }
        if holder.client != 0 {
            word.push_str(&format!(", client {}", holder.client));
        }
        if let Some(since) = holder.since {
            word.push_str(&format!(", for {} ms", now.millis_since(since)));
        }
        word.push_str(&format!(", {} waiting)", lock.waiters));
        Some(Bytes::from(word))
    });
    held.take(LOCKS_MAX).collect()
}
