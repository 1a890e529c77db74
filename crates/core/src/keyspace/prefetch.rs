//! Memory that the next request of a batch needs, asked for while the request before it runs.
//!
//! Why     a lock among a hundred thousand is in no fast cache. The search waits for its word in the table, and then for its
//!         entry, each as long as for some hundred instructions.
//! Rule    nothing is changed, waited for or relied upon.

use redlatch_proto::resp::likely_key;

use super::Keyspace;

/// How far the memory of the next request of a batch has been asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lookahead {
    /// No request is known, or nothing is known about its key.
    Nothing,
    /// The word in the table of a key with this hash, in this database.
    Word(u16, u64),
    /// There are so few entries that all of them are in a cache.
    Needless,
}

impl Keyspace {
    /// Called before a request of a batch runs, with the input behind it: asks for the entry of this request, whose word was
    /// asked for at the call before, and for the word of the next request.
    #[inline]
    pub fn prefetch(&self, database: u16, rest: &[u8], lookahead: &mut Lookahead) {
        match *lookahead {
            Lookahead::Needless => return,
            Lookahead::Word(database, hash) => {
                if let Some(held) = self.cells[self.shard_of(hash)].held.try_lock() {
                    held.shard.prefetch_entry(database, hash);
                }
            }
            Lookahead::Nothing => {}
        }
        *lookahead = match likely_key(rest) {
            Some(key) => self.prefetch_word(database, self.hash(key)),
            None => Lookahead::Nothing,
        };
    }

    #[inline]
    fn prefetch_word(&self, database: u16, hash: u64) -> Lookahead {
        match self.cells[self.shard_of(hash)].held.try_lock() {
            None => Lookahead::Nothing,
            Some(held) if held.shard.prefetch_word(database, hash) => Lookahead::Word(database, hash),
            Some(_) => Lookahead::Needless,
        }
    }
}

#[cfg(test)]
mod tests {
    use redlatch_proto::clock::{LockTime, Now};

    use super::*;
    use crate::keyspace::{Layout, Lease, ShardSet, View};
    use crate::state::settings::Events;

    const NOW: Now = Now { lock: LockTime::from_millis(0), wall_offset_ms: 0 };
    const GET: &[u8] = b"*2\r\n$3\r\nGET\r\n$6\r\nlock 7\r\n";

    fn keyspace(keys: usize) -> Keyspace {
        let keyspace = Keyspace::new(Layout { shards: 1, databases: 1, seed: 7, journal: None }, || {});
        for n in 0..keys {
            let key = format!("lock {n}");
            let mut view = View::lock(&keyspace, ShardSet::One(key.as_bytes()), 0, NOW, Events::default());
            view.entry(key.as_bytes()).put(b"v", Lease::Never);
        }
        keyspace
    }

    fn after(keyspace: &Keyspace, rest: &[u8], mut lookahead: Lookahead) -> Lookahead {
        keyspace.prefetch(0, rest, &mut lookahead);
        lookahead
    }

    #[test]
    fn the_next_requests_key_is_asked_for_among_many_keys_alone() {
        let many = keyspace(1_000);
        let known = after(&many, GET, Lookahead::Nothing);
        assert_eq!(known, Lookahead::Word(0, many.hash(b"lock 7")));
        assert_eq!(after(&many, GET, known), known);
        assert_eq!(after(&many, b"PING\r\n", known), Lookahead::Nothing);
        assert_eq!(after(&keyspace(10), GET, Lookahead::Nothing), Lookahead::Needless);
    }

    #[test]
    fn a_locked_shard_is_not_waited_for() {
        let many = keyspace(1_000);
        let known = after(&many, GET, Lookahead::Nothing);
        let _view = View::lock(&many, ShardSet::One(b"lock 7"), 0, NOW, Events::default());
        assert_eq!(after(&many, GET, known), Lookahead::Nothing);
    }
}
