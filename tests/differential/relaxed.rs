//! What two servers may say differently, by name; everything else they say byte for byte.

use super::draws::DRAWS;
use crate::support::reply::Reply;

/// How replies to a command may differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Relaxed {
    /// Not at all.
    Exact,
    /// The same elements in any order: hash tables, of which each server has its own.
    Unordered,
    /// Drawn by lot: of the same type and length, and each lawful by what could be drawn (`draws`).
    Drawn,
    /// A part of a walk: where it goes on is each server's own, what a whole walk of one step finds is not.
    Walked,
    /// A time, or what is left of one: both have none, or the same within so many units.
    Timed(i64),
    /// Tells about the server: of the same type.
    Own,
}

/// How far two clocks that are read one after the other may be apart, on a machine with much else to do. Leases of
/// worlds differ by more.
pub(crate) const WITHIN_MILLIS: i64 = 20_000;
const WITHIN_SECONDS: i64 = WITHIN_MILLIS / 1_000;

/// Every command that is relaxed, and how.
const RELAXED: &[(Relaxed, &[&str])] = &[
    (Relaxed::Unordered, &["HGETALL", "HKEYS", "HVALS", "KEYS", "SMEMBERS"]),
    (Relaxed::Drawn, DRAWS),
    (Relaxed::Walked, &["HSCAN", "SCAN", "SSCAN", "ZSCAN"]),
    (Relaxed::Timed(WITHIN_SECONDS), &["EXPIRETIME", "HEXPIRETIME", "HTTL", "TTL"]),
    (Relaxed::Timed(WITHIN_MILLIS), &["HPEXPIRETIME", "HPTTL", "PEXPIRETIME", "PTTL"]),
    (Relaxed::Own, &["HELLO"]),
];

/// Commands that the table does not make: they tell about the server or the connection, wait or end it, which is for
/// transcripts, or are made by `listening`, `libraries` and `scripts`.
pub(crate) const LEFT_OUT: &[&str] = &[
    "ACL", "AUTH", "CLIENT", "COMMAND", "CONFIG", "DEBUG", "FCALL", "FCALL_RO", "FUNCTION", "HELLO", "INFO",
    "LATENCY", "LOLWUT", "MEMORY", "MODULE", "MONITOR", "OBJECT FREQ", "OBJECT HELP", "OBJECT IDLETIME",
    "OBJECT REFCOUNT", "PSUBSCRIBE", "PUBSUB", "PUNSUBSCRIBE", "QUIT", "RESET", "SCRIPT", "SHUTDOWN",
    "SLOWLOG", "SPUBLISH", "SSUBSCRIBE", "SUBSCRIBE", "SUNSUBSCRIBE", "TIME", "UNSUBSCRIBE", "WAIT",
    "WAITAOF", "DISCARD", "EVAL", "EVALSHA", "EVALSHA_RO", "EVAL_RO", "EXEC", "MULTI",
];

/// Options that came after Redis 7.0, of commands that it has.
pub(crate) const NEWER_OPTIONS: &[&str] = &["IFEQ", "IFNE", "NOSCORES", "NOVALUES", "WITHSCORE"];

/// Options that Valkey does not have either.
pub(crate) const NEITHERS_OPTIONS: &[&str] = &["IFNE"];

/// What makes and looks at the values that the newer commands work on, alike in Redis and Valkey.
pub(crate) const OLDER_TOO: &[&str] = &[
    "DEL", "EXISTS", "EXPIRE", "GET", "HDEL", "HGET", "HGETALL", "HINCRBY", "HLEN", "HMGET", "HSET",
    "HSETNX", "PERSIST", "RENAME", "SET", "TYPE",
];

/// How replies to a request may differ; `name` is its command's, in capitals.
pub(crate) fn relaxed(name: &str, words: &[Vec<u8>]) -> Relaxed {
    let row = RELAXED.iter().find(|(_, names)| names.contains(&name));
    let relaxed = row.map_or(Relaxed::Exact, |(relaxed, _)| *relaxed);
    let cursor = words.get(if name == "SCAN" { 1 } else { 2 });
    // In the middle of a walk that nobody began there is nothing to agree on.
    match relaxed {
        Relaxed::Walked if cursor.is_none_or(|cursor| cursor != b"0") => Relaxed::Own,
        other => other,
    }
}

impl Relaxed {
    /// Whether both replies are the same, as far as they have to be.
    pub(crate) fn agree(self, ours: &Reply, theirs: &Reply) -> bool {
        if ours == theirs {
            return true;
        }
        match (self, ours, theirs) {
            (_, Reply::Error(_), _) | (_, _, Reply::Error(_)) | (Self::Exact, ..) => false,
            (Self::Unordered, ..) => sorted(ours) == sorted(theirs),
            (Self::Drawn, Reply::List(a, ours), Reply::List(b, theirs)) => {
                a == b && ours.len() == theirs.len()
            }
            (Self::Drawn | Self::Own, ..) => same_type(ours, theirs),
            (Self::Walked, Reply::List(_, ours), Reply::List(_, theirs)) => match (&ours[..], &theirs[..]) {
                ([a, ours], [b, theirs]) if a == b => sorted(ours) == sorted(theirs) || !is_end(a),
                ([a, ours], [b, theirs]) => same_type(a, b) && same_type(ours, theirs),
                _ => false,
            },
            (Self::Walked, ..) => false,
            (Self::Timed(within), Reply::Int(ours), Reply::Int(theirs)) => {
                *ours > 0 && *theirs > 0 && ours.abs_diff(*theirs) <= within.unsigned_abs()
            }
            (Self::Timed(_), Reply::List(_, ours), Reply::List(_, theirs)) => {
                ours.len() == theirs.len()
                    && ours.iter().zip(theirs).all(|(ours, theirs)| self.agree(ours, theirs))
            }
            (Self::Timed(_), ..) => false,
        }
    }
}

fn is_end(cursor: &Reply) -> bool {
    matches!(cursor, Reply::Bulk(text) if text == b"0")
}

fn same_type(ours: &Reply, theirs: &Reply) -> bool {
    std::mem::discriminant(ours) == std::mem::discriminant(theirs)
}

/// The spelling of a reply, with all that is in it in an order of its own.
fn sorted(reply: &Reply) -> String {
    let (kind, mut all): (char, Vec<String>) = match reply {
        Reply::List(kind, items) => (*kind as char, items.iter().map(sorted).collect()),
        Reply::Map(pairs) => {
            ('%', pairs.iter().map(|(key, value)| format!("{} {}", sorted(key), sorted(value))).collect())
        }
        other => return other.spell(),
    };
    all.sort();
    format!("{kind}[{}]", all.join(", "))
}

mod agreeing {
    use super::*;

    fn list(items: &[i64]) -> Reply {
        Reply::List(b'*', items.iter().map(|item| Reply::Int(*item)).collect())
    }

    #[test]
    fn an_error_agrees_with_itself_only() {
        let (one, other) = (Reply::Error(b"ERR one".to_vec()), Reply::Error(b"ERR other".to_vec()));
        let all = [
            Relaxed::Exact,
            Relaxed::Unordered,
            Relaxed::Drawn,
            Relaxed::Walked,
            Relaxed::Timed(9),
            Relaxed::Own,
        ];
        for relaxed in all {
            assert!(relaxed.agree(&one, &one));
            assert!(!relaxed.agree(&one, &other), "{relaxed:?}");
            assert!(!relaxed.agree(&one, &list(&[])), "{relaxed:?}");
        }
    }

    #[test]
    fn order_is_relaxed_and_nothing_else() {
        assert!(!Relaxed::Exact.agree(&list(&[1, 2]), &list(&[2, 1])));
        assert!(Relaxed::Unordered.agree(&list(&[1, 2]), &list(&[2, 1])));
        assert!(!Relaxed::Unordered.agree(&list(&[1, 2]), &list(&[2, 2])));
        assert!(!Relaxed::Unordered.agree(&list(&[1, 2]), &list(&[1, 2, 2])));
        assert!(!Relaxed::Unordered.agree(&list(&[1]), &Reply::List(b'~', vec![Reply::Int(1)])));
    }

    #[test]
    fn draws_have_a_length_and_leases_a_tolerance() {
        assert!(Relaxed::Drawn.agree(&list(&[1, 2]), &list(&[3, 4])));
        assert!(!Relaxed::Drawn.agree(&list(&[1, 2]), &list(&[3])));
        assert!(!Relaxed::Drawn.agree(&Reply::NilBulk, &list(&[])));
        let timed = Relaxed::Timed(2);
        assert!(timed.agree(&list(&[7, -1]), &list(&[9, -1])));
        assert!(!timed.agree(&list(&[7, -1]), &list(&[10, -1])));
        assert!(!timed.agree(&list(&[7, -1]), &list(&[9, -2])));
        assert!(!timed.agree(&Reply::Int(1), &Reply::Int(-1)));
    }

    #[test]
    fn a_walk_of_one_step_finds_the_same() {
        let walk = |cursor: &str, items: &[i64]| {
            Reply::List(b'*', vec![Reply::Bulk(cursor.as_bytes().to_vec()), list(items)])
        };
        assert!(Relaxed::Walked.agree(&walk("0", &[1, 2]), &walk("0", &[2, 1])));
        assert!(!Relaxed::Walked.agree(&walk("0", &[1, 2]), &walk("0", &[1])));
        assert!(Relaxed::Walked.agree(&walk("5", &[1, 2]), &walk("9", &[3])));
        let halfway = [b"SCAN".to_vec(), b"7".to_vec()];
        assert_eq!((relaxed("SCAN", &halfway), relaxed("SCAN", &[])), (Relaxed::Own, Relaxed::Own));
    }
}
