//! Calls that wait for keys: one queue per key, first in, first out.
//!
//! Owns    the tickets of one shard's keys, in the order in which they came.
//! Locks   none: whoever calls holds the mutex of the shard. A waiter in several shards is one waiter: its claim says
//!         who serves it, and what is left of it in other queues is dropped by whoever comes across it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::View;
use super::observers::ByKey;
use crate::state::claim::Claim;

/// What a parked call does once a key of its own may have what it waits for. Called by whoever has changed the key, with
/// all shards locked that the call needs.
pub trait Serve: fmt::Debug + Send + Sync {
    /// Whether `key` has it. Looks, and changes nothing.
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool;

    /// Takes it, and answers the client. Asked only when the key has it.
    fn serve(&self, view: &mut View<'_>, key: &[u8]);
}

/// A call that waits for any of some keys of a database.
#[derive(Debug)]
pub struct Waiter {
    /// The database of its keys.
    pub database: u16,
    /// The keys that it waits for.
    pub keys: Vec<Bytes>,
    /// Keys that it touches besides when it is served.
    pub also: Vec<Bytes>,
    /// Who may end its wait.
    pub claim: Arc<Claim>,
    /// What it does then.
    pub serve: Box<dyn Serve>,
}

/// The parked calls of one shard.
#[derive(Debug, Default)]
pub(super) struct Parked {
    queues: ByKey<VecDeque<Place>>,
    /// Other shards that calls here reach when they are served, and how many places say so.
    beyond: BTreeMap<usize, usize>,
}

/// A place in a queue.
#[derive(Debug)]
struct Place {
    waiter: Arc<Waiter>,
    /// The shards of the call's further keys, other than the one it waits in.
    beyond: SmallVec<[usize; 1]>,
}

impl Parked {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Other shards that serving a call of this one may reach.
    #[inline]
    pub(super) fn beyond(&self) -> impl Iterator<Item = usize> {
        self.beyond.keys().copied()
    }

    /// Whether serving a call of this shard may reach others.
    #[inline]
    pub(super) fn reaches_beyond(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// Puts a waiter at the end of a key's queue.
    pub(super) fn enter(&mut self, key: &Bytes, waiter: &Arc<Waiter>, beyond: SmallVec<[usize; 1]>) {
        for shard in &beyond {
            *self.beyond.entry(*shard).or_default() += 1;
        }
        let place = Place { waiter: Arc::clone(waiter), beyond };
        self.queues.entry(waiter.database, key).push_back(place);
    }

    /// The first waiter of a key's queue, from place `from` on, whose wait is not over; and its place.
    pub(super) fn waiting(&self, database: u16, key: &[u8], from: usize) -> Option<(usize, Arc<Waiter>)> {
        let queue = self.queues.get(database, key)?;
        let mut places = queue.iter().enumerate().skip(from);
        let (at, place) = places.find(|(_, place)| !place.waiter.claim.is_taken())?;
        Some((at, Arc::clone(&place.waiter)))
    }

    /// Tickets whose wait is over leave the front of a key's queue.
    pub(super) fn sweep(&mut self, database: u16, key: &[u8]) {
        let Some(queue) = self.queues.get_mut(database, key) else { return };
        while queue.front().is_some_and(|place| place.waiter.claim.is_taken()) {
            let place = queue.pop_front();
            forget(&mut self.beyond, place.as_ref());
        }
        if queue.is_empty() {
            self.queues.remove(database, key);
        }
    }

    /// Takes a waiter out of a key's queue, and every other whose wait is over.
    pub(super) fn leave(&mut self, database: u16, key: &[u8]) {
        let Some(queue) = self.queues.get_mut(database, key) else { return };
        queue.retain(|place| {
            let stays = !place.waiter.claim.is_taken();
            if !stays {
                forget(&mut self.beyond, Some(place));
            }
            stays
        });
        if queue.is_empty() {
            self.queues.remove(database, key);
        }
    }

    /// How many calls wait for keys here, each counted once per key.
    pub(super) fn len(&self) -> usize {
        self.queues.iter().map(|(.., queue)| queue.len()).sum()
    }

    /// The keys of a database that somebody waits for.
    pub(super) fn keys(&self, database: u16) -> Vec<Bytes> {
        let here = self.queues.iter().filter(|(other, ..)| *other == database);
        here.map(|(_, key, _)| key.clone()).collect()
    }
}

fn forget(beyond: &mut BTreeMap<usize, usize>, place: Option<&Place>) {
    for shard in place.into_iter().flat_map(|place| &place.beyond) {
        if let Some(count) = beyond.get_mut(shard) {
            *count -= 1;
            if *count == 0 {
                beyond.remove(shard);
            }
        }
    }
}
