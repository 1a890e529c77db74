//! Commands with random results: the servers may pick different members, but only members.
//!
//! Rule    a request that draws is sent after one that reads all members it may draw. If it removes the drawn members, a
//!         DEL follows, so that both servers hold equal data again.

use std::collections::BTreeSet;

use super::grammar::Words;
use crate::support::reply::Reply;

pub(crate) const DRAWS: &[&str] = &["RANDOMKEY", "SPOP", "SRANDMEMBER"];

/// The request that reads all members this request may draw; `None` if it names no key.
pub(crate) fn look(words: &Words) -> Option<Words> {
    let name = name(words);
    let key = words.get(1).map(Vec::as_slice);
    let spelled: Vec<&[u8]> = match (&*name, key) {
        ("RANDOMKEY", _) => vec![b"KEYS", b"*"],
        ("SPOP" | "SRANDMEMBER", Some(key)) => vec![b"SMEMBERS", key],
        _ => return None,
    };
    Some(spelled.into_iter().map(<[u8]>::to_vec).collect())
}

/// The request that makes the contents of both servers equal again.
pub(crate) fn sweep(words: &Words) -> Option<Words> {
    let key = words.get(1).filter(|_| name(words) == "SPOP")?;
    Some(vec![b"DEL".to_vec(), key.clone()])
}

/// Whether `reply` is lawful for the members read before: only members, the requested number, and each once unless
/// the count is negative.
pub(crate) fn is_lawful(words: &Words, looked: &Reply, reply: &Reply) -> bool {
    let Some(all) = members(looked) else { return matches!(reply, Reply::Error(_)) };
    let all: BTreeSet<String> = all.into_iter().collect();
    let Some(count) = words.get(2) else {
        return match reply {
            Reply::Bulk(_) => all.contains(&reply.spell()),
            _ => all.is_empty(),
        };
    };
    let Some(found) = members(reply) else { return false };
    let Some(count) = str::from_utf8(count).ok().and_then(|count| count.parse::<i64>().ok()) else {
        return false;
    };
    let distinct: BTreeSet<&String> = found.iter().collect();
    let asked = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let expected = if count < 0 && !all.is_empty() { asked } else { asked.min(all.len()) };
    found.iter().all(|member| all.contains(member))
        && found.len() == expected
        && (count < 0 || distinct.len() == found.len())
}

/// The members in a reply, spelled; `None` if the reply is no list.
fn members(reply: &Reply) -> Option<Vec<String>> {
    match reply {
        Reply::List(_, items) => Some(items.iter().map(Reply::spell).collect()),
        _ => None,
    }
}

fn name(words: &Words) -> String {
    words.first().map_or_else(String::new, |name| String::from_utf8_lossy(name).to_uppercase())
}

mod drawing {
    use super::*;

    fn words(line: &str) -> Words {
        line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
    }

    fn list(members: &str) -> Reply {
        let bulks = members.split_whitespace().map(|member| Reply::Bulk(member.into()));
        Reply::List(b'*', bulks.collect())
    }

    #[test]
    fn members_are_drawn_and_nobody_else() {
        let all = list("a b c");
        assert!(is_lawful(&words("SRANDMEMBER k"), &all, &Reply::Bulk(b"b".to_vec())));
        assert!(!is_lawful(&words("SRANDMEMBER k"), &all, &Reply::Bulk(b"d".to_vec())));
        assert!(!is_lawful(&words("SRANDMEMBER k"), &all, &Reply::NilBulk));
        assert!(is_lawful(&words("SRANDMEMBER k"), &list(""), &Reply::NilBulk));
        assert!(is_lawful(&words("srandmember k 2"), &all, &list("c a")));
        assert!(!is_lawful(&words("SRANDMEMBER k 2"), &all, &list("c d")));
    }

    #[test]
    fn as_many_as_were_asked_for_and_each_once_unless_the_count_is_negative() {
        let all = list("a b c");
        assert!(!is_lawful(&words("SPOP k 2"), &all, &list("a a")));
        assert!(!is_lawful(&words("SPOP k 2"), &all, &list("a")));
        assert!(is_lawful(&words("SPOP k 5"), &all, &list("b a c")));
        assert!(is_lawful(&words("SRANDMEMBER k -4"), &all, &list("a a b a")));
        assert!(!is_lawful(&words("SRANDMEMBER k -4"), &all, &list("a a b")));
        assert!(is_lawful(&words("SRANDMEMBER k -4"), &list(""), &list("")));
    }

    #[test]
    fn a_draw_that_removes_members_is_followed_by_del() {
        assert_eq!(sweep(&words("SPOP k 2")), Some(words("DEL k")));
        assert_eq!(sweep(&words("SRANDMEMBER k 2")), None);
        assert_eq!(look(&words("RANDOMKEY")), Some(words("KEYS *")));
    }
}
