//! What counts as a lock on a server that does not say how a key was set.
//!
//! Rule    a string is a lock by its name: its value may be any text. A hash is one by its value, a sorted set by both.
//!         Names of keys that clients keep beside their locks are none.
//! Source  the scripts of Redisson, Symfony and redis-semaphore, as `redlatch_core` knows them.

use redlatch_core::keyspace::LockValue;
use redlatch_proto::number::integer;

/// The type of a value that may be a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Hash,
    SortedSet,
    String,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::String, Self::Hash, Self::SortedSet];

    /// Its name, as TYPE has it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hash => "hash",
            Self::SortedSet => "zset",
            Self::String => "string",
        }
    }
}

/// Whether a name says that it is of a lock: a word in it ends with `lock`, `mutex` or `leader`, in any case, or with its
/// plural. `block`, `clock` and `unlock` are no locks.
pub(super) fn names_lock(key: &[u8]) -> bool {
    let name = key.to_ascii_lowercase();
    ["lock", "mutex", "leader"].iter().any(|word| {
        let mut places = name.windows(word.len()).enumerate().filter(|(_, part)| part == &word.as_bytes());
        places.any(|(at, _)| {
            let is_other = *word == "lock" && is_other_word(&name[..at]);
            !is_other && ends_word(&key[at + word.len() - 1..])
        })
    })
}

/// Whether `lock` behind this text is the end of `block`, `clock` or `unlock`.
fn is_other_word(head: &[u8]) -> bool {
    let is_unlock = |rest: &[u8]| !rest.last().is_some_and(u8::is_ascii_alphabetic);
    head.ends_with(b"b") || head.ends_with(b"c") || head.strip_suffix(b"un").is_some_and(is_unlock)
}

/// Whether a name is of a key that Redisson keeps beside a lock: the reply to an unlock, the next token, the queue of a fair
/// lock, the lease of a reader. Locks of any name have such keys.
pub(super) fn is_companion(key: &[u8]) -> bool {
    let heads = ["unlock_latch:", "lock_token:", "lock_queue:", "lock_timeout:"];
    let is_head = |rest: &[u8]| heads.iter().any(|head| rest.starts_with(head.as_bytes()));
    let lease = b":rwlock_timeout:";
    key.strip_prefix(b"redisson_").is_some_and(is_head) || key.windows(lease.len()).any(|part| part == lease)
}

/// Whether a word ends with the first letter of this text, or with an `s` behind it. The next word may begin with a letter
/// of the other case.
fn ends_word(text: &[u8]) -> bool {
    let goes_on =
        |next: &u8| next.is_ascii_alphabetic() && next.is_ascii_lowercase() == text[0].is_ascii_lowercase();
    match &text[1..] {
        [b's' | b'S', rest @ ..] => !rest.first().is_some_and(goes_on),
        rest => !rest.first().is_some_and(goes_on),
    }
}

/// Whether a value may be that of a lock.
pub(super) fn is_lock(value: &LockValue) -> bool {
    match value {
        LockValue::String(owner) => !owner.is_empty(),
        LockValue::Hash(fields) => {
            let mut owners = fields.iter().filter(|(field, _)| field != b"mode").peekable();
            owners.peek().is_some() && owners.all(|(field, holds)| is_redisson_owner(field, holds))
        }
        LockValue::SortedSet(members) => {
            !members.is_empty() && members.iter().all(|(_, score)| is_time(*score))
        }
    }
}

/// Whether a field is `client:thread` or `client:thread:write`, and its value counts holds. Redisson's clients are UUIDs.
fn is_redisson_owner(field: &[u8], holds: &[u8]) -> bool {
    let owner = field.strip_suffix(b":write").unwrap_or(field);
    let Some((client, [b':', thread @ ..])) = owner.split_at_checked(36) else { return false };
    let is_uuid = client.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let is_number = !thread.is_empty() && thread.iter().all(u8::is_ascii_digit);
    is_uuid && is_number && integer(holds).is_some_and(|holds| holds > 0)
}

/// Whether a score is a Unix time between 2001 and 2286, in seconds or in milliseconds.
fn is_time(score: f64) -> bool {
    (1e9..1e10).contains(&score) || (1e12..1e13).contains(&score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_of_a_lock_if_a_word_ends_so() {
        for name in [
            "lock:stock", "job-lock:a", "myLock", "myLockOfA", "REDLOCK", "runLock", "block:lock", "mutex",
            "leader", "leader-election", "locks:a", "lock_7",
        ] {
            assert!(names_lock(name.as_bytes()), "{name}");
        }
        for name in [
            "", "loc", "block:9", "clock", "unlock:ann", "session:1", "blocklist", "leaderboard:cache",
            "locker:1", "LOCKER", "lockout:user", "unlocked:7", "locksmith",
        ] {
            assert!(!names_lock(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn keys_that_redisson_keeps_beside_a_lock_are_none() {
        for name in [
            "redisson_unlock_latch:{myLock}:d0e1",
            "redisson_lock_token:{myLock}",
            "redisson_lock_queue:{a}",
            "redisson_lock_timeout:{a}",
            "{myLock}:285475da-9152-4c83-822a-67ee2f116a79:1:rwlock_timeout:2",
        ] {
            assert!(is_companion(name.as_bytes()), "{name}");
        }
        for name in ["", "redisson_lock", "lock_token:a", "myLock", "rwlock_timeout"] {
            assert!(!is_companion(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_hash_is_a_lock_if_its_fields_are_owners() {
        let hash = |fields: &[(&str, &str)]| {
            let text = |text: &str| text.replace("ID", "285475da-9152-4c83-822a-67ee2f116a79").into_bytes();
            is_lock(&LockValue::Hash(fields.iter().map(|(a, b)| (text(a), text(b))).collect()))
        };
        assert!(hash(&[("ID:1", "2")]));
        assert!(hash(&[("mode", "read"), ("ID:1", "1"), ("ID:22", "3")]));
        assert!(hash(&[("mode", "write"), ("ID:1:write", "1")]));
        for fields in [
            &[][..],
            &[("mode", "read")],
            &[("name", "Ann")],
            &[("product:17", "2")],
            &[("ID:1", "x")],
            &[("ID:1", "0")],
            &[("ID:1", "1"), ("age", "7")],
            &[("ID", "1")],
            &[("ID:", "1")],
            &[("ID:x", "1")],
            &[("285475da:1", "1")],
        ] {
            assert!(!hash(fields), "{fields:?}");
        }
    }

    #[test]
    fn a_sorted_set_is_a_lock_if_its_scores_are_times() {
        let set = |scores: &[f64]| {
            is_lock(&LockValue::SortedSet(scores.iter().map(|score| (b"a".to_vec(), *score)).collect()))
        };
        assert!(set(&[1_800_000_000.25]) && set(&[1_800_000_000_000.0]));
        assert!(!set(&[7.0]) && !set(&[f64::NAN]) && !set(&[]) && !set(&[1_800_000_000.0, 7.0]));
    }
}
