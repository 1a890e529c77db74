//! The intent of a request: to take a lock, to extend it, to release it, or to delete its key.
//!
//! Owns    [`Intent`], read from the commands and the known scripts of lock clients.

use bytes::Bytes;
use redlatch_proto::number;

use super::event::{Event, EventKind};
use crate::scripts::{Inputs, Known, Purpose, Sha, digest};

/// What a request does to a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// It takes the lock if it is free.
    Acquire,
    /// It deletes the key, whatever its value.
    Delete,
    /// It ends the lock on purpose, for any holder.
    End,
    /// It begins the lease anew if the owner holds the lock.
    Extend,
    /// It ends the lock if the owner holds it.
    Release,
    /// A script that is not known names the lock, and values that may be its owner.
    Script,
}

/// What a request asks for.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Intent {
    pub(super) what: What,
    /// The locks, each with the owner, if the request names one.
    pub(super) locks: Vec<(Bytes, Option<Bytes>)>,
    /// Whether it waits for the lock.
    pub(super) waits: bool,
}

impl Intent {
    /// What a request asks of locks. `None` if it asks nothing.
    pub(super) fn of(event: &Event) -> Option<Self> {
        if event.kind != EventKind::Request {
            return None;
        }
        let args = &event.args[..];
        let has = |word: &str| args.iter().any(|arg| arg.eq_ignore_ascii_case(word.as_bytes()));
        let one = |what, owner: Option<usize>| {
            let lock = (args.first()?.clone(), owner.and_then(|at| args.get(at)).cloned());
            Some(Self { what, locks: vec![lock], waits: false })
        };
        match event.command.as_deref()? {
            "SET" if has("NX") => one(What::Acquire, Some(1)),
            "SETNX" => one(What::Acquire, Some(1)),
            "DEL" | "UNLINK" => {
                let locks = args.iter().map(|key| (key.clone(), None)).collect();
                Some(Self { what: What::Delete, locks, waits: false })
            }
            "GETDEL" => one(What::Delete, None),
            "DELIFEQ" => one(What::Release, Some(1)),
            "DELEX" if has("IFEQ") => one(What::Release, Some(2)),
            "DELEX" => one(What::Delete, None),
            "LOCK.ACQUIRE" => Some(Self { waits: has("WAIT"), ..one(What::Acquire, Some(1))? }),
            "LOCK.MACQUIRE" => {
                let count = usize::try_from(number::integer(args.first()?)?).ok()?;
                let owner = args.get(count.checked_add(1)?)?;
                let locks = args[1..=count].iter().map(|key| (key.clone(), Some(owner.clone()))).collect();
                Some(Self { what: What::Acquire, locks, waits: has("WAIT") })
            }
            "LOCK.BREAK" | "FLUSHALL" | "FLUSHDB" => {
                let locks = args.first().map(|key| (key.clone(), None)).into_iter().collect();
                Some(Self { what: What::End, locks, waits: false })
            }
            "LOCK.EXTEND" => one(What::Extend, Some(1)),
            "LOCK.RELEASE" => one(What::Release, Some(1)),
            "EVAL" => Self::of_script(&digest(args.first()?), args),
            "EVALSHA" => {
                let sha = Sha::try_from(args.first()?.to_ascii_lowercase()).ok()?;
                Self::of_script(&sha, args)
            }
            _ => None,
        }
    }

    fn of_script(sha: &Sha, args: &[Bytes]) -> Option<Self> {
        let count = usize::try_from(number::integer(args.get(1)?)?).ok()?;
        let (keys, values) = args.get(2..)?.split_at_checked(count)?;
        let Some(known) = Known::find(sha) else {
            let owners = || values.iter().take(OWNERS_MAX).map(|value| Some(value.clone()));
            let locks = keys.iter().flat_map(|key| owners().map(|owner| (key.clone(), owner))).collect();
            return Some(Self { what: What::Script, locks, waits: false });
        };
        let what = match known.purpose {
            Purpose::Acquire(_) => What::Acquire,
            Purpose::Break => What::End,
            Purpose::Extend => What::Extend,
            Purpose::Release => What::Release,
            Purpose::Inspect | Purpose::Other => return None,
        };
        let [keys, values] =
            [keys, values].map(|words| words.iter().map(|word| &word[..]).collect::<Vec<_>>());
        let inputs = Inputs::new(&keys, &values);
        let lock = known.lock?;
        let owned = |at| lock.owner(inputs, at).map(Bytes::copy_from_slice);
        let keys = known.keys(inputs).enumerate();
        let locks = keys.map(|(at, key)| (Bytes::copy_from_slice(key), owned(at))).collect();
        Some(Self { what, locks, waits: false })
    }

    /// Whether it asks something of this lock.
    pub(super) fn names(&self, key: &[u8]) -> bool {
        self.locks.iter().any(|(named, _)| named == key)
    }
}

/// Values of a script that is not known which may be an owner.
const OWNERS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Option<(What, Vec<String>, bool)> {
        let mut words = line.split(' ');
        let event = Event {
            command: words.next().map(Into::into),
            args: words.map(|word| Bytes::copy_from_slice(word.as_bytes())).collect(),
            ..Event::new(EventKind::Request)
        };
        let asked = Intent::of(&event)?;
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let locks = asked
            .locks
            .iter()
            .map(|(key, owner)| format!("{}={}", text(key), owner.as_ref().map(text).unwrap_or_default()));
        Some((asked.what, locks.collect(), asked.waits))
    }

    #[test]
    fn commands_and_known_scripts_say_what_they_ask_for() {
        let lock = |what, locks: &[&str], waits| {
            Some((what, locks.iter().map(|lock| (*lock).to_owned()).collect::<Vec<_>>(), waits))
        };
        assert_eq!(asked("SET k v NX PX 5"), lock(What::Acquire, &["k=v"], false));
        assert_eq!(asked("SET k v PX 5"), None);
        assert_eq!(asked("DEL a b"), lock(What::Delete, &["a=", "b="], false));
        assert_eq!(asked("DELEX k IFEQ v"), lock(What::Release, &["k=v"], false));
        assert_eq!(asked("LOCK.ACQUIRE k me LEASE 5 WAIT 9"), lock(What::Acquire, &["k=me"], true));
        assert_eq!(asked("LOCK.MACQUIRE 2 a b me LEASE 5"), lock(What::Acquire, &["a=me", "b=me"], false));
        assert_eq!(asked("LOCK.MACQUIRE 7 a b"), None);
        let release = "EVALSHA C3F8721CBB97F72BC19E972846BD7AAF91901658 1 k me";
        assert_eq!(asked(release), lock(What::Release, &["k=me"], false));
        assert_eq!(asked("EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 9 k me"), None);
        assert_eq!(asked("EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658"), None);
        assert_eq!(asked("EVAL text 1 k me 5"), lock(What::Script, &["k=me", "k=5"], false));
        assert_eq!(asked("EVAL text 2 k"), None);
        assert_eq!(asked("GET k"), None);
    }
}
