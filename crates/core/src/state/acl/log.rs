//! ACL LOG: denied commands and failed authentications, newest first.
//!
//! Owns    the entries and their numbers.
//! Rule    the size of an entry is bounded. A repeated event within a minute is counted and not logged again.
//! Source  Redis 7.0 `acl.c`, `addACLLogEntry`; numbers and times of entries as Redis 7.2 has them.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

use redlatch_proto::clock::LockTime;
use redlatch_proto::limits::ACL_LOG_BYTES_MAX;

/// What kind of permission was missing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    Auth,
    /// The certificate of a client names no user that is on.
    Certificate,
    Channel,
    Command,
    Key,
}

impl Reason {
    /// Its name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Certificate => "tls-cert",
            Self::Channel => "channel",
            Self::Command => "command",
            Self::Key => "key",
        }
    }
}

/// Where a command was denied.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Context {
    Script,
    /// In a transaction, while it is queued or run.
    Transaction,
    Request,
}

impl Context {
    /// Its name in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Script => "lua",
            Self::Transaction => "multi",
            Self::Request => "toplevel",
        }
    }
}

/// One line of the log.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its number. It rises with every entry and is never reused.
    pub id: u64,
    pub count: u64,
    pub reason: Reason,
    pub context: Context,
    /// The command, key or channel.
    pub object: Bytes,
    pub username: Bytes,
    /// The client, as CLIENT LIST shows it.
    pub client: String,
    /// When it first happened, in milliseconds since the Unix epoch.
    pub created_unix_ms: u64,
    /// When it last happened, in milliseconds since the Unix epoch.
    pub updated_unix_ms: u64,
    /// When it last happened, in lock time.
    pub updated: LockTime,
}

impl Entry {
    fn is_repeated_by(&self, other: &Self) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && other.updated.millis_since(self.updated) <= GROUPING_MS_MAX
            && self.object == other.object
            && self.username == other.username
    }
}

/// Milliseconds within which a repeated event adds to its entry.
const GROUPING_MS_MAX: u64 = 60_000;
/// How many of the newest entries are searched for a repeated event.
const GROUPING_ENTRIES_MAX: usize = 10;

#[derive(Debug, Default)]
pub struct Log(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    entries: VecDeque<Entry>,
    next_id: u64,
}

impl Log {
    /// Notes an entry under the next number, and forgets the oldest beyond `len_max`.
    pub fn push(&self, entry: Entry, len_max: usize) {
        let mut log = self.0.lock();
        let alike =
            log.entries.iter().take(GROUPING_ENTRIES_MAX).position(|known| known.is_repeated_by(&entry));
        let known = alike.and_then(|at| log.entries.remove(at));
        let entry = match known {
            Some(known) => Entry {
                id: known.id,
                count: known.count.saturating_add(1),
                created_unix_ms: known.created_unix_ms,
                ..entry
            },
            None => {
                let id = log.next_id;
                log.next_id = id.saturating_add(1);
                Entry { id, ..entry }
            }
        };
        log.entries.push_front(entry);
        log.entries.truncate(len_max);
    }

    /// Up to `count` entries, newest first.
    pub fn newest(&self, count: usize) -> Vec<Entry> {
        self.0.lock().entries.iter().take(count).cloned().collect()
    }

    /// Forgets all; numbers go on.
    pub fn reset(&self) {
        self.0.lock().entries.clear();
    }
}

/// The part of a client's name or key that an entry stores.
pub fn kept(name: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&name[..name.len().min(ACL_LOG_BYTES_MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(object: &str, at_ms: u64) -> Entry {
        Entry {
            id: 0,
            count: 1,
            reason: Reason::Key,
            context: Context::Request,
            object: kept(object.as_bytes()),
            username: Bytes::from_static(b"me"),
            client: String::new(),
            created_unix_ms: at_ms,
            updated_unix_ms: at_ms,
            updated: LockTime::from_millis(at_ms),
        }
    }

    fn seen(log: &Log) -> Vec<(u64, u64, Bytes)> {
        log.newest(99).into_iter().map(|entry| (entry.id, entry.count, entry.object)).collect()
    }

    #[test]
    fn a_repeated_event_within_a_minute_is_one_entry_and_the_newest() {
        let log = Log::default();
        for (object, at_ms) in [("a", 1), ("b", 2), ("a", 60_001), ("a", 120_002)] {
            log.push(entry(object, at_ms), 9);
        }
        let [a, b] = ["a", "b"].map(|name| Bytes::from(name.as_bytes()));
        assert_eq!(seen(&log), [(2, 1, a.clone()), (0, 2, a), (1, 1, b)]);
        assert_eq!(log.newest(2)[1].created_unix_ms, 1);
    }

    #[test]
    fn the_log_is_as_long_as_it_may_be_and_its_names_too() {
        let log = Log::default();
        for at_ms in 0..9 {
            log.push(entry(&format!("{at_ms}"), at_ms), 3);
        }
        assert_eq!(seen(&log).len(), 3);
        log.push(entry("x", 10), 0);
        assert!(seen(&log).is_empty());
        assert_eq!(kept(&[b'x'; 5000]).len(), ACL_LOG_BYTES_MAX);
    }
}
