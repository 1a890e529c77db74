//! The places in the queues of locks that calls had under an earlier leader. A call that comes back under the name of its
//! owner goes on waiting there.
//!
//! Owns    the places of one shard: the journal tells of them. Only the journal of a cluster does.
//! Rule    a place is one in the order, and keeps no lock back: a lock goes to the first of those that are there.
//! Locks   none: the caller holds the mutex of the shard.

use std::collections::BTreeMap;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::observers::ByKey;
use crate::state::wait::Place;

/// How long a place is kept after another node has taken over, in milliseconds: longer than clients take to come back.
const KEPT_MS: u64 = 10_000;

/// The places of one shard that nobody has taken yet.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By the name of the owner.
    places: ByKey<BTreeMap<Bytes, Place>>,
    kept_until: LockTime,
}

impl Places {
    /// The owner has this place; `None`: none any more.
    pub(super) fn set(&mut self, (database, key): (u16, &[u8]), owner: &[u8], place: Option<Place>) {
        let Some(place) = place else {
            self.remove(database, key, owner);
            return;
        };
        // Copies, so that a place does not keep the whole journal in memory.
        let (key, owner) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(owner));
        self.places.entry(database, &key).insert(owner, place);
    }

    /// From now on, owners come back.
    pub(super) fn keep_from(&mut self, now: LockTime) {
        self.kept_until = now + KEPT_MS;
    }

    /// Takes the place of an owner.
    #[inline]
    pub(super) fn take(
        &mut self,
        (database, key): (u16, &[u8]),
        owner: &[u8],
        now: LockTime,
    ) -> Option<Place> {
        if self.places.is_empty() {
            return None;
        }
        self.drop_late(now);
        self.remove(database, key, owner)
    }

    /// Drops all places, if those who have not come back are late.
    pub(super) fn drop_late(&mut self, now: LockTime) {
        if now > self.kept_until {
            self.places = ByKey::default();
        }
    }

    /// The places: database, key, owner and place of each.
    pub(super) fn all(&self) -> impl Iterator<Item = (u16, &Bytes, &Bytes, Place)> {
        self.places.iter().flat_map(|(database, key, owners)| {
            owners.iter().map(move |(owner, place)| (database, key, owner, *place))
        })
    }

    fn remove(&mut self, database: u16, key: &[u8], owner: &[u8]) -> Option<Place> {
        let owners = self.places.get_mut(database, key)?;
        let place = owners.remove(owner);
        if owners.is_empty() {
            self.places.remove(database, key);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_taken_once_and_in_time() {
        let mut places = Places::default();
        let place = |number| Place { rank: -1, number };
        for (owner, number) in [b"a", b"b", b"c"].into_iter().zip(5..) {
            places.set((0, b"k"), owner, Some(place(number)));
        }
        places.set((0, b"k"), b"b", None);
        places.keep_from(LockTime::from_millis(100));
        let (in_time, late) = (LockTime::from_millis(100 + KEPT_MS), LockTime::from_millis(101 + KEPT_MS));
        places.drop_late(in_time);
        assert_eq!(places.all().map(|(.., place)| place).collect::<Vec<_>>(), [place(5), place(7)]);
        assert_eq!(places.take((1, b"k"), b"a", in_time), None, "another database");
        assert_eq!(places.take((0, b"k"), b"a", in_time), Some(place(5)));
        assert_eq!(places.take((0, b"k"), b"a", in_time), None);
        assert_eq!(places.take((0, b"k"), b"b", in_time), None);
        assert_eq!(places.take((0, b"k"), b"c", late), None);
    }
}
