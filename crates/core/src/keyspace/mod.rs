//! The keyspace: every key this server holds, spread over independent shards.
//!
//! Owns    the shards, each under its own mutex, with the queues of waiting commands and the observers of keys; the
//!         hash that spreads keys over shards; the order of journal records.
//! Knows   `clock`, `wheel`, `journal`, `state`; nothing of commands or connections.
//! Time    comes in as an argument. A shard's own time never runs backwards.
//! Locks   all shards a call needs, in ascending index, before the first access; see [`View`].
//!
//! # Rules of concurrency
//!
//! `tests/concurrency` checks them under a scheduler that tries interleavings.
//!
//! 1. A call locks the shards of all its keys at once, in ascending order. The keys of a native script include those in
//!    its text. Nothing is locked later, so that no two calls wait for each other; rule 10 has the one exception.
//! 2. A call has one instant: the latest of the clock's reading and the times of the shards it has locked. It becomes
//!    the time of these shards, so the time of a shard never runs backwards.
//! 3. The changes of a call are numbered, and its messages are in the outboxes of other clients, before the first of
//!    its shards is unlocked. So all clients see effects, records and messages in one order.
//! 4. No guard of a registry (clients, channels, scripts) is held while a shard is being locked. A registry may be
//!    locked for a look-up while a shard is locked.
//! 5. Before it reads the first shard, the ticker resets the time until which it sleeps, so that every deadline set
//!    from then on wakes it. It sets that time only after it has read every shard. No deadline is missed.
//! 6. A command that waits for keys reads them and enters their queues without unlocking in between. A write serves
//!    the queue of its key before it unlocks the shard, oldest first. A command in several queues is served by the write
//!    that takes its claim.
//! 7. If commands waiting in a shard use other shards when they are served, these shards are linked. A call that needs one
//!    of the linked shards unlocks what it has and locks the union with all of them in order. Serving one command may be
//!    what another waits for: all of it happens under these locks.
//! 8. EXEC checks its watched keys with all their shards locked, and keeps them locked until its last request is done.
//! 9. A long call (an interpreted script, EXEC that holds one, a command on large values) runs on the script thread, one
//!    at a time. It locks the shards of its keys, then marks them through [`LongCall`]. A worker never waits for a marked
//!    shard: it unlocks what it has locked, the connection registers, gives its thread back, and is woken at the end of
//!    the call. Any other thread that waits for a marked shard unlocks what it has locked, too.
//! 10. A script that asks for a key in another shard starts again with all shards if it has only read. Otherwise it locks
//!     the missing shards while it keeps its own. It waits for no call that waits for it: all others let go of theirs by
//!     rule 9.

mod arena;
mod block;
mod changes;
mod copy;
mod counts;
mod edit;
mod ends;
mod entry;
mod locked;
pub(crate) mod locks;
mod long_call;
mod memory;
mod observers;
mod places;
mod prefetch;
mod replay;
pub mod shard;
mod table;
mod view;
pub(crate) mod waiting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ahash::RandomState;
use bytes::Bytes;
use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::limits::{DATABASES_MAX, SHARDS_MAX};
use smallvec::SmallVec;

use crate::journal::{Journal, Mutations, Record};
use crate::locks::LockGroups;
use crate::locks::history::History;
use crate::state::ledger::Ledger;
use crate::state::lock_sessions::{LockSession, SessionLock};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::state::transaction::{Watch, Watching};
use crate::state::wait::{Wait, WaitEnd};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, SpinWait};
use crate::types::Seed;
use changes::Spare;
use memory::{Largest, Memory};
use observers::Observers;
use places::Places;
use waiting::Queues;

pub use changes::Changes;
pub use copy::{Copied, CopyCursor};
pub use counts::Counts;
pub use edit::Editor;
pub use entry::{Entry, Lease, Occupied, Vacant};
pub use locks::{Asked, Hold, LockObserver, LockValue, LockWaits, ViewLocks, attempt};
pub(crate) use locks::{
    AskingClient, Circle, HeldLock, Linter, LockHolder, Shown, attempt_several, first_held, is_grantable,
};
use locks::{Messages, Sessions};
pub use long_call::LongCall;
pub(crate) use long_call::LongCallGuard;
pub use prefetch::Lookahead;
pub use replay::{Replay, Replayed};
pub use shard::Form;
use shard::Shard;
pub use view::{EntryRef, ShardSet, View, ViewQueues};
pub use waiting::{Asker, Serve, Waiter};

/// Every key of one server.
pub struct Keyspace {
    cells: Box<[Cell]>,
    hasher: RandomState,
    /// The seed of the hash tables inside of objects.
    seed: Seed,
    databases: u16,
    journal: Option<Arc<dyn Journal>>,
    /// They see what happens to locks, in this order.
    lock_observers: Vec<Box<dyn LockObserver>>,
    /// Whether one of them wants every event.
    shows_all_locks: bool,
    /// Whether a client has asked to be told when somebody waits for its lock.
    tells_contended: AtomicBool,
    /// The number of the next wait.
    waits: AtomicU64,
    /// The fencing token of the latest grant.
    last_token: AtomicU64,
    /// Whether the shards record how locks were released; see [`History`].
    pub(crate) keeps_releases: Arc<AtomicBool>,
    alarm: Alarm,
    memory: Memory,
    largest: Largest,
    /// Memory that clients hold beside keys and values.
    ledger: Arc<Ledger>,
    /// Which shards are linked. Each is changed with its shard locked, and with all others of the same command.
    linked: Box<[AtomicBool]>,
    /// Whether a long call holds shards.
    pub long_call: Arc<LongCall>,
    /// Removals that wait until a long call has unlocked their shards.
    postponed: Mutex<Vec<Removal>>,
    /// The shard at which the next tick begins.
    tick_from: AtomicUsize,
    /// How often entries were looked up: what tests measure work by. In debug builds alone.
    #[cfg(debug_assertions)]
    lookups: std::sync::atomic::AtomicU64,
}

/// A shard on cache lines of its own.
#[repr(align(128))]
#[derive(Debug)]
struct Cell {
    held: Mutex<ShardState>,
}

/// What a shard's mutex guards.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ShardState {
    pub(crate) shard: Shard,
    observers: Observers,
    pub(crate) queues: Queues,
    places: Places,
    /// Memory for the effects of the next call.
    spare: Spare,
    /// Bytes in use, as last added to [`Memory`].
    reported_bytes: usize,
    hits: u64,
    misses: u64,
    expired: u64,
}

/// What a connection takes out of the shards when a wait or a watch of it ends.
#[derive(Debug)]
enum Removal {
    /// It gives back what its wait was granted.
    Grant(Arc<Waiter>),
    /// Its command leaves the queues of its keys.
    Wait(Arc<Wait>, WaitEnd),
    /// A lock of its session ends, or its delay begins.
    SessionLock(u16, Bytes, SessionLock, Arc<LockSession>),
    /// It no longer observes this key of a database.
    Watch(u16, Bytes, Arc<Watch>),
}

/// How a keyspace is laid out.
#[derive(Debug)]
pub struct Layout {
    /// Shards: a power of two, at most [`SHARDS_MAX`].
    pub shards: usize,
    /// Databases: at least one, at most [`DATABASES_MAX`].
    pub databases: u16,
    /// Seeds the hashes. Random if clients are not trusted; fixed if a run must be repeatable.
    pub seed: u64,
    pub journal: Option<Arc<dyn Journal>>,
}

impl ShardState {
    fn reset_counts(&mut self) {
        (self.hits, self.misses, self.expired) = (0, 0, 0);
        self.shard.reset_lock_counts();
    }

    /// Keys of a database, and keys with a deadline, added to those of other shards.
    fn add_size(&self, database: u16, (keys, deadlines): (usize, usize)) -> (usize, usize) {
        let shard = &self.shard;
        (keys.saturating_add(shard.len(database)), deadlines.saturating_add(shard.deadlines(database)))
    }
}

/// What is left after a [`Keyspace::tick`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Due {
    /// More entries are due now: tick again soon.
    More,
    /// Nothing is due before this time; `None`: no entry has a deadline.
    Next(Option<LockTime>),
}

/// Wakes the ticker when a deadline is set that is earlier than the time until which it sleeps.
struct Alarm {
    sleeps_until_ms: AtomicU64,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// Steps of expiry work per lock of a shard: about 20 microseconds, even if a million keys expire at once.
const STEPS_PER_LOCK: u32 = 64;
/// Approximate steps of expiry work per tick: about 100 microseconds, then other work on the thread has its turn.
const STEPS_PER_TICK: u32 = 256;
/// Milliseconds until the ticker comes again after it has met a long call.
const OCCUPIED_RETRY_MS: u64 = 5;

impl Keyspace {
    /// An empty keyspace. `wake` is called with shards locked when [`Keyspace::tick`] is needed sooner than it said.
    ///
    /// # Panics
    /// When the layout is outside its bounds.
    pub fn new(layout: Layout, wake: impl Fn() + Send + Sync + 'static) -> Self {
        assert!(layout.shards.is_power_of_two() && layout.shards <= SHARDS_MAX, "{} shards", layout.shards);
        let seed = Seed::of(layout.seed);
        let (keeps_releases, ledger) = (Arc::default(), Arc::<Ledger>::default());
        let cell = || {
            let mut shard = Shard::new(usize::from(layout.databases), seed);
            shard.set_history(History::new(&keeps_releases, &ledger));
            let (places, spare) = Default::default();
            let (observers, queues) = (Observers::new(&ledger), Queues::new(&ledger));
            let (reported_bytes, hits, misses, expired) = (0, 0, 0, 0);
            let held =
                ShardState { shard, observers, queues, places, spare, reported_bytes, hits, misses, expired };
            Cell { held: Mutex::new(held) }
        };
        let [a, b, c, d] = [1_u64, 2, 3, 4]
            .map(|n| layout.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(n as u32) ^ n);
        Self {
            cells: std::iter::repeat_with(cell).take(layout.shards).collect(),
            ledger: Arc::clone(&ledger),
            hasher: RandomState::with_seeds(a, b, c, d),
            seed,
            databases: layout.databases,
            journal: layout.journal,
            lock_observers: vec![Box::new(Sessions), Box::new(Messages)],
            shows_all_locks: false,
            tells_contended: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            last_token: AtomicU64::new(0),
            alarm: Alarm { sleeps_until_ms: AtomicU64::new(u64::MAX), wake: Box::new(wake) },
            keeps_releases: Arc::clone(&keeps_releases),
            memory: Memory::default(),
            largest: Largest::default(),
            long_call: Arc::new(LongCall::new(layout.shards)),
            linked: std::iter::repeat_with(AtomicBool::default).take(layout.shards).collect(),
            postponed: Mutex::new(Vec::new()),
            tick_from: AtomicUsize::new(0),
            #[cfg(debug_assertions)]
            lookups: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The fencing token of the next grant: each is higher than all before, and the first is 1.
    #[inline]
    pub fn next_token(&self) -> u64 {
        self.last_token.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// How many tokens have been given out.
    pub fn tokens(&self) -> u64 {
        self.last_token.load(Ordering::Relaxed)
    }

    /// Keeps that many ends of locks, in all shards together.
    pub fn keep_history(&self, len: usize) {
        let of_shard = len.div_ceil(self.cells.len());
        self.cells.iter().for_each(|cell| cell.held.lock().shard.keep_history(of_shard));
    }

    /// Keeps keys whose deadline has passed, until somebody removes them: they are of another server. Releases are
    /// remembered from now on.
    pub fn keep_ended(&self) {
        self.keeps_releases.store(true, Ordering::Relaxed);
        self.cells.iter().for_each(|cell| cell.held.lock().shard.keep_ended());
    }

    /// Shows what happens to locks to one more observer.
    pub fn observe_locks(&mut self, observer: Box<dyn LockObserver>) {
        self.shows_all_locks |= observer.wants_all();
        self.lock_observers.push(observer);
    }

    /// A client wants to be told when somebody waits for a lock that it holds.
    pub(crate) fn tell_contended(&self) {
        self.tells_contended.store(true, Ordering::Relaxed);
    }

    /// Whether [`Keyspace::tell_contended`] was called.
    #[inline]
    pub(crate) fn tells_contended(&self) -> bool {
        self.tells_contended.load(Ordering::Relaxed)
    }

    /// Gives the effects of all later calls to a journal.
    pub fn set_journal(&mut self, journal: Arc<dyn Journal>) {
        self.journal = Some(journal);
    }

    /// Whether the journal receives the places of calls that wait for locks.
    fn keeps_places(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.keeps_places())
    }

    /// The seed of the hash tables inside of objects.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// The sums of the memory that clients hold beside keys and values.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// The shards that commands which wait use together with others. The caller has locked one of them, and so it sees all
    /// that are linked with it.
    fn linked_shards(&self) -> impl Iterator<Item = usize> {
        self.linked
            .iter()
            .enumerate()
            .filter(|(_, is_linked)| is_linked.load(Ordering::Relaxed))
            .map(|(at, _)| at)
    }

    pub fn databases(&self) -> u16 {
        self.databases
    }

    pub fn shards(&self) -> usize {
        self.cells.len()
    }

    /// Removes entries whose deadline has passed, a bounded number of them, beginning where the last tick ended.
    pub fn tick(&self, now: Now, events: Events, registries: &Registries) -> Due {
        // From here on every deadline set wakes the ticker, even in a shard that this tick has visited.
        self.alarm.sleeps_until_ms.store(u64::MAX, Ordering::SeqCst);
        let (mut next, mut steps) = (None::<LockTime>, 0);
        let (first, mut more, mut is_occupied) = (self.tick_from.load(Ordering::Relaxed), false, false);
        for index in (0..self.cells.len()).map(|offset| (first + offset) & (self.cells.len() - 1)) {
            if steps >= STEPS_PER_TICK {
                self.tick_from.store(index, Ordering::Relaxed);
                return Due::More;
            }
            let Some(mut view) = View::try_lock_shard(self, index, now, events) else {
                is_occupied = true;
                continue;
            };
            let mut budget = STEPS_PER_LOCK;
            let rebuilt = view.expire_due(&mut budget);
            steps = rebuilt.saturating_add(steps + STEPS_PER_LOCK - budget);
            more |= budget == 0;
            let wakeup = view.next_wakeup();
            view.finish(registries);
            next = match (next, wakeup) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        self.retry_postponed(now, events, registries);
        if more {
            return Due::More;
        }
        if is_occupied {
            let retry = now.lock + OCCUPIED_RETRY_MS;
            next = Some(next.map_or(retry, |next| next.min(retry)));
        }
        if let Some(next) = next {
            self.alarm.sleeps_until_ms.fetch_min(next.as_millis(), Ordering::SeqCst);
        }
        Due::Next(next)
    }

    /// Counts locks by these groups from now on, besides all of them together.
    pub(crate) fn group_locks(&self, groups: &LockGroups) {
        self.cells.iter().for_each(|cell| cell.held.lock().shard.group_locks(groups.clone()));
    }

    /// Sums over all shards, one after the other. Waits for no long call; see [`Counts::as_of`].
    pub fn counts(&self) -> Counts {
        let each = |sum: Counts, index| match self.hold(index) {
            Some(held) => sum.with(&Counts::of(&held)),
            None => sum.with(&self.long_call.known(index).counts),
        };
        (0..self.cells.len()).fold(Counts::default(), each)
    }

    /// Looks up the keys of a waiting command at `now`. A key that has expired is removed, which serves those that wait for
    /// it. Does nothing while a long call holds the shards.
    pub(crate) fn look_up(&self, wait: &Wait, now: Now, events: Events, registries: &Registries) {
        let keys: SmallVec<[&[u8]; 4]> = wait.keys.iter().map(|key| &key[..]).collect();
        if !wait.has_left()
            && let Some(mut view) = View::try_lock(self, ShardSet::Keys(&keys), wait.database, now, events)
        {
            for key in &keys {
                let _ = view.entry(key);
            }
            view.finish(registries);
        }
    }

    /// Removes a command from the queues of its keys, and serves those that it kept waiting. The claim of its wait has been
    /// taken. Returns what it answers if it has timed out, unless that is the answer of its [`Wait`]. While a long call holds
    /// the shards, the removal is postponed to the next tick. A command that was served is in no queue any more.
    pub fn unpark(
        &self,
        (wait, how): (&Arc<Wait>, WaitEnd),
        now: Now,
        events: Events,
        registries: &Registries,
    ) -> Option<Vec<u8>> {
        if wait.has_left() {
            return None;
        }
        let keys: SmallVec<[&[u8]; 4]> = wait.keys.iter().map(|key| &key[..]).collect();
        let Some(mut view) = View::try_lock(self, ShardSet::Keys(&keys), wait.database, now, events) else {
            self.postponed.lock().push(Removal::Wait(Arc::clone(wait), how));
            return None;
        };
        let waiter = view.queues().leave(wait);
        // Who has lost the connection may come back, also to another node.
        if let Some(waiter) = waiter.as_ref().filter(|_| how != WaitEnd::Disconnected) {
            view.queues().record_place(waiter, None);
        }
        let refusal = waiter.and_then(|waiter| waiter.serve.end_unserved(&mut view, how));
        view.finish(registries);
        refusal
    }

    /// A connection has ended before it has read the answer of its wait, and gives back what it was given. While a long call
    /// holds the shards, that is postponed to the next tick.
    pub fn give_back(&self, waiter: &Arc<Waiter>, now: Now, events: Events, registries: &Registries) {
        let keys: SmallVec<[&[u8]; 4]> = waiter.wait.keys.iter().map(|key| &key[..]).collect();
        match View::try_lock(self, ShardSet::Keys(&keys), waiter.wait.database, now, events) {
            Some(mut view) => {
                waiter.serve.give_back(&mut view);
                view.finish(registries);
            }
            None => self.postponed.lock().push(Removal::Grant(Arc::clone(waiter))),
        }
    }

    /// The connection of a session has ended: its lock ends now, or after its delay. While a long call holds the shard, that
    /// is postponed to the next tick.
    pub(crate) fn end_session_lock(
        &self,
        (database, key): (u16, Bytes),
        (lock, session): (SessionLock, &Arc<LockSession>),
        now: Now,
        events: Events,
        registries: &Registries,
    ) {
        match View::try_lock(self, ShardSet::One(&key), database, now, events) {
            Some(mut view) => {
                view.locks().end_session(&key, &lock, session);
                view.finish(registries);
            }
            None => {
                let removal = Removal::SessionLock(database, key, lock, Arc::clone(session));
                self.postponed.lock().push(removal);
            }
        }
    }

    /// Ends the watch of these keys.
    pub fn unwatch(&self, watching: Watching) {
        for (database, key) in watching.keys {
            self.unwatch_key(database, key, Arc::clone(&watching.watch));
        }
    }

    fn unwatch_key(&self, database: u16, key: Bytes, watch: Arc<Watch>) {
        match self.hold(self.shard_of(self.hash(&key))) {
            Some(mut held) => held.observers.unwatch(database, &key, &watch),
            None => self.postponed.lock().push(Removal::Watch(database, key, watch)),
        }
    }

    /// Retries postponed removals. Those whose shard a long call holds are postponed again.
    fn retry_postponed(&self, now: Now, events: Events, registries: &Registries) {
        // Unlocked before the first attempt, because an attempt may push the removal again.
        let postponed = std::mem::take(&mut *self.postponed.lock());
        for removal in postponed {
            match removal {
                Removal::Grant(waiter) => self.give_back(&waiter, now, events, registries),
                Removal::SessionLock(database, key, lock, session) => {
                    self.end_session_lock((database, key), (lock, &session), now, events, registries);
                }
                Removal::Wait(wait, how) => drop(self.unpark((&wait, how), now, events, registries)),
                Removal::Watch(database, key, watch) => self.unwatch_key(database, key, watch),
            }
        }
    }

    /// The number of waiting commands, each counted once per key.
    pub fn parked(&self) -> usize {
        self.cells.iter().map(|cell| cell.held.lock().queues.len()).sum()
    }

    /// The number of keys in a database, and of keys with a deadline. Shards are counted one after the other.
    pub fn size(&self, database: u16) -> (usize, usize) {
        (0..self.cells.len())
            .map(|index| self.hold_on(index))
            .fold((0, 0), |sum, held| held.add_size(database, sum))
    }

    /// Like [`Keyspace::size`], for a thread that serves several connections: shards that a long call holds count as they
    /// were when it took them.
    pub fn known_size(&self, database: u16) -> (usize, usize) {
        let each = |(keys, deadlines), index| match self.hold(index) {
            Some(held) => held.add_size(database, (keys, deadlines)),
            None => {
                let known = self.long_call.known(index).sizes;
                let (more_keys, more_deadlines) =
                    known.get(usize::from(database)).copied().unwrap_or_default();
                (keys + more_keys, deadlines + more_deadlines)
            }
        };
        (0..self.cells.len()).fold((0, 0), each)
    }

    /// How often entries were looked up since it began; zero in a release build. For tests.
    #[doc(hidden)]
    pub fn lookups(&self) -> u64 {
        #[cfg(debug_assertions)]
        return self.lookups.load(Ordering::Relaxed);
        #[cfg(not(debug_assertions))]
        return 0;
    }

    #[inline]
    fn count_lookup(&self) {
        #[cfg(debug_assertions)]
        self.lookups.fetch_add(1, Ordering::Relaxed);
    }

    /// Panics if an invariant of a shard is broken. For tests and simulation.
    #[doc(hidden)]
    pub fn assert_laws(&self) {
        for cell in &self.cells {
            cell.held.lock().shard.assert_laws(|key| self.hash(key));
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    /// The high bits choose the shard; the shard's tables use the low ones.
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        (hash >> 48) as usize & (self.cells.len() - 1)
    }

    /// Locks a shard; `None` while a long call holds it.
    #[inline]
    fn hold(&self, index: usize) -> Option<MutexGuard<'_, ShardState>> {
        let held = self.cells[index].held.try_lock();
        if held.is_some() { held } else { self.hold_later(index) }
    }

    /// Locks a shard that another thread holds: for microseconds, unless that is a long call.
    #[cold]
    fn hold_later(&self, index: usize) -> Option<MutexGuard<'_, ShardState>> {
        let mut wait = SpinWait::default();
        while !self.long_call.holds(index) {
            if !wait.spin() {
                wait.reset();
            }
            let held = self.cells[index].held.try_lock();
            if held.is_some() {
                return held;
            }
        }
        None
    }

    /// Locks a shard, however long that takes. Only a call on the script thread may hold other shards in this time.
    fn hold_on(&self, index: usize) -> MutexGuard<'_, ShardState> {
        self.cells[index].held.lock()
    }

    /// Appends the effects of a finished call to the journal. The shards are still locked.
    fn record(&self, now: LockTime, (lasts_until, ends_at): (LockTime, LockTime), mutations: &Mutations) {
        if let Some(journal) = &self.journal {
            journal.append(&Record { now, lasts_until, ends_at, mutations });
        }
    }

    fn rearm(&self, deadline_ms: u64) {
        if deadline_ms < self.alarm.sleeps_until_ms.load(Ordering::Relaxed)
            && deadline_ms < self.alarm.sleeps_until_ms.fetch_min(deadline_ms, Ordering::SeqCst)
        {
            (self.alarm.wake)();
        }
    }
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace")
            .field("shards", &self.cells.len())
            .field("databases", &self.databases)
            .finish()
    }
}

const _: () =
    assert!(DATABASES_MAX as usize <= shard::DATABASES_MAX, "a shard has a table for every database");
