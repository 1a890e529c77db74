//! The queues of commands that wait for keys: in the order of their places, which is that of arrival without a priority.
//!
//! Owns    the queues of one shard, and how many of its commands use several shards when they are served. A key has two
//!         queues: of commands that wait for its value, and of commands that wait for its lock.
//! Locks   none: the caller holds the mutex of the shard. A command that waits for several keys is in several
//!         queues with one [`Wait`]. Its claim decides which queue serves it.
//! Rule    a command has one place, fixed when it begins to wait. So two commands are in the same order in every queue that
//!         they share, and nothing that happens later changes it.
//! Cost    a wait takes memory and time in proportion to its keys. What is known of the command itself is kept once.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::View;
use super::observers::ByKey;
use crate::locks::{LockRequest, Mode};
use crate::state::clients::Client;
use crate::state::ledger::{Charge, Kind, Ledger};
use crate::state::wait::{Place, Wait, WaitEnd, WaitFor};
use crate::types::heap;

/// How a waiting command is served when one of its keys may have what it waits for. Called by the write that changed the
/// key, with all shards locked that the command needs.
pub trait Serve: fmt::Debug + Send + Sync {
    /// Whether `key` has what the command waits for. Changes nothing.
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool;

    /// Takes it, and answers the client. Called only when [`Serve::is_ready`] and after the claim was taken.
    fn serve(&self, view: &mut View<'_>, key: &[u8]);

    /// Whether the holder of the lock that it waits for may hand it over: it waits for that lock alone.
    fn takes_over(&self) -> bool {
        false
    }

    /// Like [`Serve::serve`], for a lock that its holder has handed over: requests that came earlier are passed over.
    fn take_over(&self, _view: &mut View<'_>) {}

    /// The wait has ended without [`Serve::serve`]. Returns the encoded answer if it has timed out; `None`: that of its
    /// [`Wait`].
    fn end_unserved(&self, _view: &mut View<'_>, _how: WaitEnd) -> Option<Vec<u8>> {
        None
    }

    /// The connection has ended before it has read the answer: gives back what [`Serve::serve`] took, if nobody knows of it.
    fn give_back(&self, _view: &mut View<'_>) {}

    /// The log says that it has waited for long: it will say how the wait ends, too.
    fn report(&self) {}

    /// Who asks, if the command waits for a lock.
    fn asker(&self) -> Option<Asker<'_>> {
        None
    }

    /// Bytes that it takes on the heap beside itself.
    fn heap_bytes(&self) -> usize;
}

/// A request for a lock that waits.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'w> {
    /// Under which name it asks.
    pub owner: &'w Bytes,
    /// What it asks for.
    pub request: &'w LockRequest,
    /// The client that waits.
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
    /// How it is served.
    pub serve: Box<dyn Serve>,
    /// The memory that it takes, with its entries in queues.
    _charge: Charge,
}

impl Waiter {
    /// A command that is about to wait. Its memory is charged to `ledger`.
    pub fn new(ledger: &Arc<Ledger>, wait: Arc<Wait>, also: Vec<Bytes>, serve: Box<dyn Serve>) -> Self {
        let charge = ledger.open(Kind::Waits);
        let keys = wait.keys.iter().chain(&also);
        let of_keys = keys.map(|key| size_of::<Bytes>() + heap::shared(key)).sum::<usize>();
        let entries = wait.keys.len() * heap::in_tree::<(Place, Arc<Self>)>();
        let own = size_of::<Self>() + size_of::<Wait>() + wait.answer.capacity() + size_of_val(&*serve);
        charge.add(own + serve.heap_bytes() + of_keys + entries);
        Self { wait, also, serve, _charge: charge }
    }

    /// How it asks for the lock of a key, if it waits for that.
    pub(crate) fn mode_of(&self, key: &[u8]) -> Option<Mode> {
        Some(self.serve.asker()?.request.mode_of(&self.wait.keys, key))
    }

    /// Whether it waits for some of its locks, whichever become free first: with ANY, of fewer locks than it names.
    pub(crate) fn has_choice(&self) -> bool {
        let any = self.serve.asker().and_then(|asker| asker.request.any());
        any.is_some_and(|any| any < self.wait.keys.len())
    }

    /// The keys that it uses together when it is served, if they are several.
    pub(crate) fn linked_keys(&self) -> impl Iterator<Item = &Bytes> {
        let keys = &self.wait.keys;
        // A command that waits for values takes the value of one key. With `also` it waits for one key alone.
        let uses_all = self.wait.kind == WaitFor::Locks || !self.also.is_empty();
        debug_assert!(self.also.is_empty() || keys.len() == 1, "it leaves all its queues at once");
        let is_linked = uses_all && keys.len() + self.also.len() > 1;
        keys.iter().chain(&self.also).take_while(move |_| is_linked)
    }
}

/// The queues of one shard.
#[derive(Debug)]
pub(crate) struct Queues {
    /// Commands that wait for the value of a key: BLPOP and similar. One that does not find what it waits for is passed over.
    pub(crate) values: WaitQueues,
    /// Commands that wait for the lock of a key. One that cannot be served keeps all behind it waiting.
    pub(crate) locks: WaitQueues,
    /// How many commands use this shard and others when they are served.
    linked: usize,
}

impl Queues {
    /// Empty queues. Their memory is charged to `ledger`.
    pub(crate) fn new(ledger: &Arc<Ledger>) -> Self {
        Self { values: WaitQueues::new(ledger), locks: WaitQueues::new(ledger), linked: 0 }
    }

    pub(crate) fn of(&mut self, kind: WaitFor) -> &mut WaitQueues {
        match kind {
            WaitFor::Values => &mut self.values,
            WaitFor::Locks => &mut self.locks,
        }
    }

    /// Whether other shards may be needed to serve a command queued here.
    #[inline]
    pub(crate) fn are_linked(&self) -> bool {
        self.linked > 0
    }

    /// A command that uses this shard and others begins to wait, or waits no longer. Returns whether any is left.
    pub(crate) fn link(&mut self, begins: bool) -> bool {
        self.linked = if begins { self.linked + 1 } else { self.linked - 1 };
        self.are_linked()
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
#[derive(Debug)]
pub(crate) struct WaitQueues {
    queues: ByKey<Queue>,
    /// The memory of the queues; that of their entries is charged with the commands.
    charge: Charge,
}

/// The queue of one key.
#[derive(Debug, Default)]
struct Queue {
    waiters: BTreeMap<Place, Arc<Waiter>>,
    /// How many of them wait for other keys, too.
    several: usize,
}

/// Bytes of a queue with its key: its place in the map, and the first node of its entries.
fn queue_bytes(key: &Bytes) -> usize {
    heap::in_tree::<(Bytes, Queue)>() + heap::tree::<(Place, Arc<Waiter>)>(1) + key.len()
}

impl WaitQueues {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    fn new(ledger: &Arc<Ledger>) -> Self {
        Self { queues: ByKey::default(), charge: ledger.open(Kind::Waits) }
    }

    /// Puts a waiter into a key's queue, at its place. Returns whether that is the end.
    pub(crate) fn enter(&mut self, key: &Bytes, waiter: &Arc<Waiter>) -> bool {
        let queue = self.queues.entry(waiter.wait.database, key);
        if queue.waiters.is_empty() {
            self.charge.add(queue_bytes(key));
        }
        let is_last = queue.waiters.last_key_value().is_none_or(|(last, _)| *last < waiter.wait.place);
        let is_new = queue.waiters.insert(waiter.wait.place, Arc::clone(waiter)).is_none();
        debug_assert!(is_new, "two waits have one number");
        queue.several += usize::from(waiter.wait.keys.len() > 1);
        is_last
    }

    /// The first waiter of a key's queue whose wait is not over and whose place is behind `last`.
    pub(crate) fn next(&self, database: u16, key: &[u8], last: Place) -> Option<Arc<Waiter>> {
        self.waiting(database, key).find(|waiter| waiter.wait.place > last).map(Arc::clone)
    }

    /// The waiters of a key's queue whose wait is not over, in the order of their places.
    pub(crate) fn waiting(&self, database: u16, key: &[u8]) -> impl Iterator<Item = &Arc<Waiter>> {
        let queue = self.queues.get(database, key).into_iter().flat_map(|queue| queue.waiters.values());
        queue.filter(|waiter| !waiter.wait.claim.is_taken())
    }

    /// How many waiters of a key's queue wait for other keys, too.
    pub(crate) fn several(&self, database: u16, key: &[u8]) -> usize {
        self.queues.get(database, key).map_or(0, |queue| queue.several)
    }

    /// Removes a waiter from a key's queue, and returns it if it was still there.
    pub(crate) fn leave(&mut self, database: u16, key: &Bytes, place: Place) -> Option<Arc<Waiter>> {
        let queue = self.queues.get_mut(database, key)?;
        let waiter = queue.waiters.remove(&place)?;
        queue.several -= usize::from(waiter.wait.keys.len() > 1);
        if queue.waiters.is_empty() {
            self.queues.remove(database, key);
            self.charge.sub(queue_bytes(key));
        }
        Some(waiter)
    }

    /// The waiters of all queues whose wait is not over: database, key and waiter of each.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u16, &Bytes, &Arc<Waiter>)> {
        let all = self.queues.iter().flat_map(|(database, key, queue)| {
            queue.waiters.values().map(move |waiter| (database, key, waiter))
        });
        all.filter(|(.., waiter)| !waiter.wait.claim.is_taken())
    }

    /// How many entries the longest queue has.
    pub(crate) fn longest(&self) -> usize {
        self.queues.iter().map(|(.., queue)| queue.waiters.len()).max().unwrap_or(0)
    }

    /// How many entries a key's queue has.
    pub(crate) fn len_of(&self, database: u16, key: &[u8]) -> usize {
        self.queues.get(database, key).map_or(0, |queue| queue.waiters.len())
    }

    /// The keys of a database that have a queue.
    pub(crate) fn keys(&self, database: u16) -> impl Iterator<Item = &Bytes> {
        let here = self.queues.iter().filter(move |(other, ..)| *other == database);
        here.map(|(_, key, _)| key)
    }

    /// How many entries all queues have together.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(|(.., queue)| queue.waiters.len()).sum()
    }
}
