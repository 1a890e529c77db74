//! The terms of a lock, on which the server, the clients of all languages and the program agree.
//!
//! Owns    the limits of a request, the names of kinds, the reasons for which a lock ends or a client gives it up, and how
//!         long a call of a client may take.
//! Rule    nothing else defines them. What the clients in Python, Node, Go and Java need is generated from here, by
//!         `tests/repository/readme/terms.rs`.

use std::time::Duration;

/// Bytes of the longest owner. The shortest has one.
pub const OWNER_BYTES_MAX: usize = 1024;
/// Bytes of all fields and values of META, of one holder.
pub const META_BYTES_MAX: usize = 4096;
/// Fields of META, of one holder.
pub const META_FIELDS_MAX: usize = 64;
/// Permits of the largest semaphore: as many as an `int` of every language can count.
pub const PERMITS_MAX: u32 = i32::MAX as u32;
/// The highest PRIORITY of a request. The lowest, and the default, is 0.
pub const PRIORITY_MAX: u8 = 9;
/// Bytes of the longest REASON of LOCK.BREAK.
pub const REASON_BYTES_MAX: usize = 256;
/// Locks that one LOCK.MACQUIRE may ask for.
pub const KEYS_MAX: usize = 1_000;
/// The longest wait, lease and delay that the server accepts, in milliseconds: about two thousand years.
pub const MILLIS_MAX: u64 = 1 << 46;
/// The longest lease that clients ask for, in milliseconds: ten years.
pub const LEASE_MS_MAX: u64 = 10 * 365 * 86_400_000;

const _: () = assert!(LEASE_MS_MAX <= MILLIS_MAX, "the server accepts each lease that clients ask for");

/// The lease of a lock that names none: in clients, and the default of the setting `lock-lease`.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// How long a call of a client may take beside its wait, unless the user says otherwise: connecting, all tries and the pauses
/// between them together.
pub const BUDGET_DEFAULT: Duration = Duration::from_secs(5);
/// How long a client waits for one answer, after the end of the wait for a lock if there is one.
pub const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long one request of a client waits for a lock at most. A longer wait asks again.
pub const WAIT_MAX: Duration = Duration::from_secs(60 * 60);

/// The names of the kinds of locks. All but the first, in upper case, are the words that ask for them.
pub const KINDS: [&str; 4] = ["exclusive", "reentrant", "shared", "permits"];

/// Why a lock has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndReason {
    /// LOCK.BREAK, or a script that forces the lock open.
    Broken,
    /// Its key was deleted or overwritten by another client than its holder.
    Deleted,
    /// Its lease has ended.
    Expired,
    /// FLUSHDB or FLUSHALL.
    Flushed,
    /// Its slot moved to another node, where it goes on.
    Moved,
    /// Its holder has ended it.
    Released,
    /// The connection of its session has ended.
    Session,
    /// LOCK.TRANSFER: another owner has it since the same instant.
    Transferred,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::Broken,
        Self::Deleted,
        Self::Expired,
        Self::Flushed,
        Self::Moved,
        Self::Released,
        Self::Session,
        Self::Transferred,
    ];

    /// Its name in replies and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Flushed => "flushed",
            Self::Moved => "moved",
            Self::Released => "released",
            Self::Session => "session",
            Self::Transferred => "transferred",
        }
    }

    /// The reason of that name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name().as_bytes() == name)
    }

    /// What has happened, as clients tell it to people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Broken => "it was broken by an operator",
            Self::Deleted => "its key was deleted or overwritten",
            Self::Expired => "its lease has ended",
            Self::Flushed => "all keys were removed",
            Self::Moved => "its slot has moved to another node, where it goes on",
            Self::Released => "it was released",
            Self::Session => "its session has ended",
            Self::Transferred => "it was handed over to another owner",
        }
    }

    /// Whether its holder has lost the lock, and is told so: not of its own release, nor where the lock goes on elsewhere.
    pub const fn is_loss(self) -> bool {
        !matches!(self, Self::Moved | Self::Released)
    }
}

/// Why a client gives up a lock of which the server has not said that it has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum GivenUp {
    /// The process is a child of the one that took the lock.
    Forked,
    /// The server does not know the lock, and has told no reason.
    NotHeld,
    /// No renewal has succeeded in time. The server may still count the lock as held.
    Unrenewed,
}

impl GivenUp {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::Forked, Self::NotHeld, Self::Unrenewed];

    /// Its name in the interfaces of clients.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forked => "forked",
            Self::NotHeld => "not-held",
            Self::Unrenewed => "unrenewed",
        }
    }

    /// What has happened, as clients tell it to people.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Forked => "it belongs to the process that took it, which has made this one by a fork",
            Self::NotHeld => "the server no longer knows it",
            Self::Unrenewed => "no renewal has succeeded in time",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_name_of_its_own() {
        let given_up = GivenUp::ALL.map(GivenUp::name);
        let names = EndReason::ALL.map(EndReason::name).into_iter().chain(given_up);
        let different: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(different.len(), EndReason::ALL.len() + given_up.len());
        for reason in EndReason::ALL {
            assert_eq!(EndReason::named(reason.name().as_bytes()), Some(reason));
        }
        assert_eq!(EndReason::named(b"Broken"), None);
    }
}
