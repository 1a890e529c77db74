//! What counts as a lock on a server that does not say how a key was set.
//!
//! Rule    a string is a lock by its name: its value may be any text. A hash or a sorted set is one by its value.
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

/// Whether the name of a string says that it is a lock: it has the word `lock` (but not `block` or `clock`), `mutex` or
/// `leader`, in any case.
pub(super) fn names_lock(key: &[u8]) -> bool {
    let name = key.to_ascii_lowercase();
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    let mut locks = name.windows(4).enumerate().filter(|(_, part)| *part == b"lock");
    let is_lock = locks.any(|(at, _)| at == 0 || !b"bc".contains(&name[at - 1]));
    is_lock || has(b"mutex") || has(b"leader")
}

/// Whether a value is that of a lock; `has_lease`: whether the key has a time to live.
pub(super) fn is_lock(value: &LockValue, has_lease: bool) -> bool {
    match value {
        LockValue::String(owner) => !owner.is_empty(),
        LockValue::Hash(fields) => {
            let mut owners = fields.iter().filter(|(field, _)| field != b"mode").peekable();
            owners.peek().is_some() && owners.all(|(field, holds)| is_redisson_owner(field, holds))
        }
        LockValue::SortedSet(members) => has_lease && members.iter().all(|(_, score)| is_time(*score)),
    }
}

/// Whether a field is `client:thread` or `client:thread:write`, and its value counts holds.
fn is_redisson_owner(field: &[u8], holds: &[u8]) -> bool {
    let owner = field.strip_suffix(b":write").unwrap_or(field);
    let thread = owner.rsplit(|byte| *byte == b':').next().unwrap_or_default();
    let has_client = owner.len() > thread.len() + 1;
    let is_number = !thread.is_empty() && thread.iter().all(u8::is_ascii_digit);
    has_client && is_number && integer(holds).is_some_and(|holds| holds > 0)
}

/// Whether a score is a Unix time between 2001 and 2286, in seconds or in milliseconds.
fn is_time(score: f64) -> bool {
    (1e9..1e10).contains(&score) || (1e12..1e13).contains(&score)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_a_lock_by_its_name() {
        for name in
            ["lock:stock", "job-lock:a", "myLock", "REDLOCK", "unlock", "block:lock", "mutex", "leader"]
        {
            assert!(names_lock(name.as_bytes()), "{name}");
        }
        for name in ["", "loc", "block:9", "clock", "session:1", "blocklist"] {
            assert!(!names_lock(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_hash_is_a_lock_if_its_fields_are_owners() {
        let hash = |fields: &[(&str, &str)]| {
            let text = |text: &str| text.as_bytes().to_vec();
            is_lock(&LockValue::Hash(fields.iter().map(|(a, b)| (text(a), text(b))).collect()), true)
        };
        assert!(hash(&[("285475da:1", "2")]));
        assert!(hash(&[("mode", "read"), ("a:1", "1"), ("b:22", "3")]));
        assert!(hash(&[("mode", "write"), ("a:1:write", "1")]));
        for fields in [
            &[][..],
            &[("mode", "read")],
            &[("name", "Ann")],
            &[("clicks", "5")],
            &[("a:1", "x")],
            &[("a:1", "0")],
            &[("a:1", "1"), ("age", "7")],
            &[(":1", "1")],
            &[("1", "1")],
        ] {
            assert!(!hash(fields), "{fields:?}");
        }
    }

    #[test]
    fn a_sorted_set_is_a_lock_if_it_has_a_lease_and_its_scores_are_times() {
        let set = |score, has_lease| is_lock(&LockValue::SortedSet(vec![(b"a".to_vec(), score)]), has_lease);
        assert!(set(1_800_000_000.25, true) && set(1_800_000_000_000.0, true));
        assert!(!set(1_800_000_000.0, false) && !set(7.0, true) && !set(f64::NAN, true));
    }
}
