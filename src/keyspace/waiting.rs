//! The queues of commands that wait for keys: first in, first out.
//!
//! Owns    the queues of one shard, and which other shards their commands use when they are served. A key has two queues:
//!         of commands that wait for its value, and of commands that wait for its lock.
//! Locks   none: the caller holds the mutex of the shard. A command that waits for several keys is in several
//!         queues with one [`Wait`]. Its claim decides which queue serves it.
//! Rule    numbers of waits rise in the order in which they begin, but for those that go on at an earlier place. Two commands
//!         are in the same order in every queue that they share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::View;
use super::observers::ByKey;
use crate::clock::LockTime;
use crate::state::clients::Client;
use crate::state::log_limiter::LineBudget;
use crate::state::wait::{Wait, WaitEnd, WaitFor};
use crate::types::lock::LockKind;

/// How a waiting command is served when one of its keys may have what it waits for. Called by the write that changed the
/// key, with all shards locked that the command needs.
pub trait Serve: fmt::Debug + Send + Sync {
    /// Whether `key` has what the command waits for. Changes nothing.
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool;

    /// Takes it, and answers the client. Called only when [`Serve::is_ready`] and after the claim was taken.
    fn serve(&self, view: &mut View<'_>, key: &[u8]);

    /// The wait has ended without [`Serve::serve`]. Returns the encoded answer if it has timed out; `None`: that of its
    /// [`Wait`].
    fn end_unserved(&self, _view: &mut View<'_>, _how: WaitEnd) -> Option<Vec<u8>> {
        None
    }

    /// The connection has ended before it has read the answer: gives back what [`Serve::serve`] took, if nobody knows of it.
    fn give_back(&self, _view: &mut View<'_>) {}

    /// The wait is over. Called once, with no shard locked, if the command waited for a lock. `lines` says whether the log
    /// has room for a line about it.
    fn ended(&self, _how: WaitEnd, _now: LockTime, _lines: &LineBudget) {}

    /// The log says that it has waited for long: it will say how the wait ends, too.
    fn report(&self) {}

    /// Who asks, if the command waits for a lock.
    fn asker(&self) -> Option<Asker<'_>> {
        None
    }
}

/// A request for a lock that waits.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'w> {
    /// Under which name it asks.
    pub owner: &'w Bytes,
    /// The kind of lock that it asks for.
    pub kind: LockKind,
    /// How many permits it asks for.
    pub permits: u32,
    pub client: &'w Arc<Client>,
    /// Since when.
    pub since: LockTime,
}

/// A command that waits for keys, as their queues hold it.
#[derive(Debug)]
pub struct Waiter {
    /// Its keys, its timeout and its claim.
    pub wait: Arc<Wait>,
    /// Other keys that it uses when it is served.
    pub also: Vec<Bytes>,
    pub serve: Box<dyn Serve>,
}

/// The queues of one shard.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// Commands that wait for the value of a key: BLPOP and similar. One that does not find what it waits for is passed over.
    pub(crate) values: WaitQueues,
    /// Commands that wait for the lock of a key. One that cannot be served keeps all behind it waiting.
    pub(crate) locks: WaitQueues,
}

impl Queues {
    pub(crate) fn of(&mut self, kind: WaitFor) -> &mut WaitQueues {
        match kind {
            WaitFor::Values => &mut self.values,
            WaitFor::Locks => &mut self.locks,
        }
    }

    /// Other shards that may be needed to serve a command queued here.
    #[inline]
    pub(crate) fn other_shards(&self) -> impl Iterator<Item = usize> {
        [&self.values, &self.locks].into_iter().flat_map(|queues| queues.other_shards.keys().copied())
    }

    /// Whether other shards may be needed to serve a command queued here.
    #[inline]
    pub(crate) fn need_other_shards(&self) -> bool {
        !self.values.other_shards.is_empty() || !self.locks.other_shards.is_empty()
    }

    /// How many entries all queues have together.
    pub(crate) fn len(&self) -> usize {
        self.values.len() + self.locks.len()
    }

    /// The keys of a database that have a queue.
    pub(crate) fn keys(&self, database: u16) -> impl Iterator<Item = &Bytes> {
        self.values.keys(database).chain(self.locks.keys(database))
    }
}

/// The queues of one kind.
#[derive(Debug, Default)]
pub(crate) struct WaitQueues {
    /// By the number of the wait.
    queues: ByKey<BTreeMap<u64, Queued>>,
    /// Other shards that commands queued here use when they are served, and how many queue entries name each.
    other_shards: BTreeMap<usize, usize>,
}

/// An entry of a queue.
#[derive(Debug)]
struct Queued {
    waiter: Arc<Waiter>,
    /// The shards of the command's further keys, other than the shard of this queue.
    other_shards: SmallVec<[usize; 1]>,
}

impl WaitQueues {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Puts a waiter into a key's queue, at the place of its number. Returns whether that is the end.
    pub(crate) fn enter(
        &mut self,
        key: &Bytes,
        waiter: &Arc<Waiter>,
        other_shards: SmallVec<[usize; 1]>,
    ) -> bool {
        for shard in &other_shards {
            *self.other_shards.entry(*shard).or_default() += 1;
        }
        let queued = Queued { waiter: Arc::clone(waiter), other_shards };
        let queue = self.queues.entry(waiter.wait.database, key);
        let is_last = queue.last_key_value().is_none_or(|(last, _)| *last < waiter.wait.number);
        let is_new = queue.insert(waiter.wait.number, queued).is_none();
        debug_assert!(is_new, "two waits have one number");
        is_last
    }

    /// The first waiter of a key's queue whose wait is not over and whose number is at least `from`.
    pub(crate) fn next(&self, database: u16, key: &[u8], from: u64) -> Option<Arc<Waiter>> {
        self.waiting(database, key).find(|waiter| waiter.wait.number >= from).map(Arc::clone)
    }

    /// The waiters of a key's queue whose wait is not over, first come first.
    pub(crate) fn waiting(&self, database: u16, key: &[u8]) -> impl Iterator<Item = &Arc<Waiter>> {
        let queue = self.queues.get(database, key).into_iter().flatten();
        queue.map(|(_, queued)| &queued.waiter).filter(|waiter| !waiter.wait.claim.is_taken())
    }

    /// Removes a waiter from a key's queue, and returns it if it was still there.
    pub(crate) fn leave(&mut self, database: u16, key: &[u8], number: u64) -> Option<Arc<Waiter>> {
        let queue = self.queues.get_mut(database, key)?;
        let queued = queue.remove(&number)?;
        if queue.is_empty() {
            self.queues.remove(database, key);
        }
        for shard in &queued.other_shards {
            if let Some(count) = self.other_shards.get_mut(shard) {
                *count -= 1;
                if *count == 0 {
                    self.other_shards.remove(shard);
                }
            }
        }
        Some(queued.waiter)
    }

    /// The waiters of all queues whose wait is not over: database, key and waiter of each.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u16, &Bytes, &Arc<Waiter>)> {
        let all = self.queues.iter().flat_map(|(database, key, queue)| {
            queue.values().map(move |queued| (database, key, &queued.waiter))
        });
        all.filter(|(.., waiter)| !waiter.wait.claim.is_taken())
    }

    /// How many entries the longest queue has.
    pub(crate) fn longest(&self) -> usize {
        self.queues.iter().map(|(_, _, queue)| queue.len()).max().unwrap_or(0)
    }

    /// How many entries a key's queue has.
    pub(crate) fn len_of(&self, database: u16, key: &[u8]) -> usize {
        self.queues.get(database, key).map_or(0, BTreeMap::len)
    }

    /// The keys of a database that have a queue.
    pub(crate) fn keys(&self, database: u16) -> impl Iterator<Item = &Bytes> {
        let here = self.queues.iter().filter(move |(other, ..)| *other == database);
        here.map(|(_, key, _)| key)
    }

    /// How many entries all queues have together.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(|(.., queue)| queue.len()).sum()
    }
}
