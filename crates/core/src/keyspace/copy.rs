//! The copy of a keyspace into its journal, step by step, while commands go on.
//!
//! Owns    [`CopyCursor`], the place that a copy has reached.
//! Locks   one shard for each step. Every entry is copied as it is while its shard is locked.
//! Rule    what the journal has received since the copy began makes the whole state on an empty keyspace. An edit of a
//!         key that is not copied yet changes an empty object there, which the copy of the entry replaces; if the key is
//!         removed before it is copied, its removal is recorded. The copy goes over the tables and not over the
//!         databases, because a table keeps its entries when databases are swapped. Entries that have expired are copied,
//!         too: nothing else would replace what earlier edits have made of them.

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::entry::{granted, put};
use super::{Keyspace, ShardState};
use crate::journal::{Mutation, Mutations};
use crate::sync::MutexGuard;

/// How far a copy has come. It begins at the default.
#[derive(Clone, Debug, Default)]
pub struct CopyCursor {
    shard: usize,
    table: usize,
    /// The cursor in the table.
    inner: u64,
}

/// What a step of a copy has reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Copied {
    All,
    /// A long call holds the shard: the step must be tried again later.
    Nothing,
    /// There is more to copy.
    Some,
}

impl Keyspace {
    /// Records the next entries of one shard in the journal, with their deadlines and grants: about `ENTRIES_PER_STEP`, or
    /// fewer that are large.
    pub fn copy(&self, cursor: &mut CopyCursor, now: LockTime) -> Copied {
        if cursor.shard >= self.shards() || self.journal.is_none() {
            return Copied::All;
        }
        let Some(mut held) = self.hold(cursor.shard) else { return Copied::Nothing };
        let now = held.shard.advance(now);
        let shard = cursor.shard;
        let mut mutations = cursor.step(&held);
        if cursor.shard > shard && self.keeps_places() {
            held.places.drop_late(now);
            copy_places(&held, &mut mutations);
        }
        if !mutations.is_empty() {
            // A copy changes nothing, so no reply has to wait for it.
            self.record(now, Default::default(), &mutations);
        }
        if cursor.shard >= self.shards() { Copied::All } else { Copied::Some }
    }

    /// Makes another keyspace what this one is at `now`, and calls `then` while nothing can change here.
    pub(crate) fn copy_to(&self, other: &Self, now: LockTime, then: impl FnOnce()) {
        let held: Vec<_> = (0..self.shards()).map(|index| self.hold_on(index)).collect();
        let mut replay = other.replay();
        replay.at(now);
        (0..other.databases()).for_each(|database| replay.apply(&Mutation::Clear { database }));
        entries(&held).iter().for_each(|mutation| replay.apply(mutation));
        drop(replay);
        other.raise_tokens(self.tokens());
        then();
    }

    /// Passes what makes each entry through `change`, and applies it here, without a record or an event.
    pub fn rewrite(&self, now: LockTime, mut change: impl FnMut(&mut [Mutation])) {
        let mut all = entries(&(0..self.shards()).map(|index| self.hold_on(index)).collect::<Vec<_>>());
        let mut replay = self.replay();
        replay.at(now);
        for entry in all.chunk_by_mut(|_, next| matches!(next, Mutation::Grant { .. })) {
            change(entry);
            entry.iter().for_each(|mutation| replay.apply(mutation));
        }
    }
}

/// What makes all entries of these shards in another keyspace; a grant follows its entry.
fn entries(held: &[MutexGuard<'_, ShardState>]) -> Vec<Mutation> {
    let (mut cursor, mut all) = (CopyCursor::default(), Vec::new());
    while let Some(held) = held.get(cursor.shard) {
        all.extend(cursor.step(held).to_vec());
    }
    all
}

impl CopyCursor {
    /// The mutations that make the next entries of the shard, and moves behind these.
    fn step(&mut self, held: &ShardState) -> Mutations {
        let (shard, mut mutations) = (&held.shard, Mutations::default());
        let (mut entries, mut bytes) = (0, 0);
        while self.table < shard.tables() {
            if entries >= ENTRIES_PER_STEP || bytes >= BYTES_PER_STEP {
                return mutations;
            }
            self.inner = shard.scan_table(self.table, self.inner, &mut |database, id| {
                let key = shard.key(id);
                mutations.push(&put(shard, id, database, key));
                granted(shard, id, database, key).iter().for_each(|granted| mutations.push(granted));
                entries += 1;
                bytes += shard.bytes(id);
            });
            if self.inner == 0 {
                self.table += 1;
            }
        }
        *self = Self { shard: self.shard + 1, table: 0, inner: 0 };
        mutations
    }
}

/// The places of all calls that wait in a shard, and those that nobody has come back to yet.
fn copy_places(held: &ShardState, mutations: &mut Mutations) {
    let mut push = |database, key: &Bytes, owner: &Bytes, place| {
        let (key, owner) = (&key[..], &owner[..]);
        mutations.push(&Mutation::Place { database, key, owner, place: Some(place) });
    };
    held.places.all().for_each(|(database, key, owner, place)| push(database, key, owner, place));
    for (database, key, waiter) in held.queues.locks.all() {
        if let Some(asker) = waiter.serve.asker().filter(|_| waiter.wait.keys.len() == 1) {
            push(database, key, asker.owner, waiter.wait.place);
        }
    }
}

/// Entries that one step copies: some ten microseconds.
const ENTRIES_PER_STEP: usize = 64;
/// Bytes after which a step ends.
const BYTES_PER_STEP: usize = 64 * 1024;

#[cfg(test)]
mod tests;
