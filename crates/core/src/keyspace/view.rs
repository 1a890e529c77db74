//! A view: the shards that one call needs, locked, at one instant. Commands and scripts reach the keyspace only through it.
//!
//! Owns    the guards, the instant, and what the call has changed.
//! Time    the instant is the later of the batch's clock reading and the time of every shard locked, and is written
//!         back to them: time never runs backwards anywhere.
//! Locks   in ascending index, all before the first look. A shard outside the view cannot be reached through it.
//! Rule    the call that finds an expired key first removes it and emits its effects before anything else.

mod expiry;
mod observe;
mod queues;
mod survey;
mod whole;

use std::sync::Arc;

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::limits::SHARDS_MAX;

use super::locked::{KeyHash, LockWait, Locked};
use super::locks::Observed;
use super::{Changes, Editor, Entry, Keyspace, LongCallGuard, Occupied, ShardState, Vacant};
use crate::journal::Mutation;
use crate::locks::history;
use crate::locks::{Breaker, EndReason};
use crate::state::channels::Channels;
use crate::state::clients::{Client, ClientId};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::types::{Seed, Typed};

pub use queues::ViewQueues;
pub use survey::EntryRef;
pub(crate) use whole::WholeKeyspace;

/// Which shards a call needs.
#[derive(Clone, Copy, Debug)]
pub enum ShardSet<'a> {
    All,
    /// The shards of these keys.
    Keys(&'a [&'a [u8]]),
    /// The shard of one key.
    One(&'a [u8]),
    /// No shard: the call uses no key.
    Nothing,
}

/// The shards one call needs, locked, at one instant.
///
/// Its own methods reach the entry of a key and the call itself. What is about locks, about waiting commands, or about all
/// keys together has a handle of its own: [`View::locks`], [`View::queues`], [`View::whole`].
#[derive(Debug)]
pub struct View<'k> {
    pub(crate) keyspace: &'k Keyspace,
    locked: Locked<'k>,
    /// Address, length and hash of the key that chose the shard, so that the command does not hash it again.
    hashed: KeyHash,
    pub(crate) changes: Changes,
    pub(crate) now: Now,
    pub(crate) database: u16,
    /// While it is a long call; ends after the shards are unlocked.
    long_call: Option<LongCallGuard>,
}

impl<'k> View<'k> {
    /// Locks the shards of `set` and selects `database`. The thread waits for the shards, also for those of a long call.
    #[inline]
    pub fn lock(keyspace: &'k Keyspace, set: ShardSet<'_>, database: u16, now: Now, events: Events) -> Self {
        let mut hashed = (0, 0, 0);
        let locked = Locked::acquire(keyspace, set, LockWait::Endless, &mut hashed);
        let locked = locked.expect("an endless wait ends with the shards locked");
        Self::at_one_instant(keyspace, locked, hashed, database, now, events)
    }

    /// Like [`View::lock`], for a thread that serves several connections: `None` while a long call holds a shard.
    #[inline]
    pub fn try_lock(
        keyspace: &'k Keyspace,
        set: ShardSet<'_>,
        database: u16,
        now: Now,
        events: Events,
    ) -> Option<Self> {
        let mut hashed = (0, 0, 0);
        let locked = Locked::acquire(keyspace, set, LockWait::Short, &mut hashed)?;
        Some(Self::at_one_instant(keyspace, locked, hashed, database, now, events))
    }

    /// Unlocks its shards and locks those of `set` instead. False while a long call holds one of these: no shard is
    /// locked then. Only for a call that has changed nothing yet.
    pub(crate) fn relock(&mut self, set: ShardSet<'_>) -> bool {
        debug_assert!(!self.changes.is_dirty, "changes are published before the shards are unlocked");
        self.locked = Locked::default();
        let is_long = self.long_call.take().is_some();
        match Locked::acquire(self.keyspace, set, LockWait::Short, &mut self.hashed) {
            Some(locked) => self.locked = locked,
            None => return false,
        }
        self.now = self.now.no_earlier_than(self.locked.advance(self.now.lock));
        if is_long {
            self.announce_long_call();
        }
        true
    }

    /// Announces that this call is a long one: other calls give their threads back instead of waiting for its shards. Lasts
    /// until the shards are unlocked.
    pub fn announce_long_call(&mut self) {
        if self.long_call.is_some() {
            return;
        }
        let (mut guard, databases, now) =
            (self.keyspace.long_call.begin(), self.keyspace.databases, self.now.lock);
        self.locked.each(|index, held| guard.take(index, held, databases, now));
        self.long_call = Some(guard);
    }

    /// Locks every shard instead of those it has, for a long call, and waits for them. The thread must be one that may block,
    /// unless all shards are locked already. Only for a call that has changed nothing yet, or holds all shards.
    pub fn lock_all_for_long(&mut self) {
        if !self.holds_all() {
            debug_assert!(!self.changes.is_dirty, "changes are published before the shards are unlocked");
            self.locked = Locked::default();
            self.long_call = None;
            let locked = Locked::acquire(self.keyspace, ShardSet::All, LockWait::Endless, &mut self.hashed);
            self.locked = locked.expect("an endless wait ends with the shards locked");
            self.now = self.now.no_earlier_than(self.locked.advance(self.now.lock));
        }
        self.announce_long_call();
    }

    /// Whether the shards of `set` are locked.
    #[inline]
    pub fn covers(&self, set: ShardSet<'_>) -> bool {
        let has = |key: &[u8]| self.locked.has(self.keyspace.shard_of(self.keyspace.hash(key)));
        self.holds_all()
            || match set {
                ShardSet::All => false,
                ShardSet::Keys(keys) => keys.iter().all(|key| has(key)),
                ShardSet::One(key) => has(key),
                ShardSet::Nothing => true,
            }
    }

    /// Locks the shards of `set` beside those it has, and keeps these while it waits. Only for the call on the script thread:
    /// others that meet one of its shards let go of theirs, so it waits for none that waits for it. The instant of the call
    /// moves to the latest time of its shards.
    #[cold]
    pub fn lock_further(&mut self, set: ShardSet<'_>) {
        self.announce_long_call();
        let keyspace = self.keyspace;
        let missing: Vec<usize> = match set {
            ShardSet::All => (0..keyspace.shards()).collect(),
            ShardSet::Keys(keys) => keys.iter().map(|key| keyspace.shard_of(keyspace.hash(key))).collect(),
            ShardSet::One(key) => vec![keyspace.shard_of(keyspace.hash(key))],
            ShardSet::Nothing => Vec::new(),
        };
        let (guard, now) = (self.long_call.as_mut().expect("the call is announced"), self.now.lock);
        let took = |index, held: &ShardState| guard.take(index, held, keyspace.databases, now);
        self.locked = std::mem::take(&mut self.locked).extend(keyspace, missing.into_iter(), took);
        self.now = self.now.no_earlier_than(self.locked.advance(self.now.lock));
    }

    /// Locks the shard of that index, unless a long call holds it.
    pub(super) fn try_lock_shard(
        keyspace: &'k Keyspace,
        index: usize,
        now: Now,
        events: Events,
    ) -> Option<Self> {
        let locked = Locked::shard(keyspace, index, LockWait::Short)?;
        Some(Self::at_one_instant(keyspace, locked, (0, 0, 0), 0, now, events))
    }

    #[inline]
    fn at_one_instant(
        keyspace: &'k Keyspace,
        mut locked: Locked<'k>,
        hashed: KeyHash,
        database: u16,
        now: Now,
        events: Events,
    ) -> Self {
        let instant = locked.advance(now.lock);
        let mut changes = Changes::new(keyspace.journal.is_some(), events, keyspace.shows_all_locks);
        if keyspace.journal.is_some()
            && let Some(held) = locked.first()
        {
            changes.take_spare(&mut held.spare);
        }
        let now = now.no_earlier_than(instant);
        Self { keyspace, locked, hashed, changes, now, database, long_call: None }
    }

    /// The queues of its shards.
    #[inline]
    pub fn queues(&mut self) -> ViewQueues<'_, 'k> {
        ViewQueues { view: self }
    }

    /// All keys of its keyspace.
    #[inline]
    pub fn whole(&mut self) -> WholeKeyspace<'_, 'k> {
        WholeKeyspace { view: self }
    }

    /// The seed of the hash tables in this keyspace's objects.
    pub fn seed(&self) -> Seed {
        self.keyspace.seed
    }

    /// Sets the client of the call: a client may refuse invalidations of its own changes.
    pub(crate) fn on_behalf_of(&mut self, author: ClientId) {
        self.changes.author = author;
    }

    /// Serves the calls that waited for the changed keys, numbers and records all changes, informs observers and
    /// subscribers, and unlocks the shards. The view cannot be used after that.
    #[inline]
    pub fn finish(&mut self, registries: &Registries) {
        if self.changes.is_dirty {
            if self.changes.has_ready() {
                self.queues().serve_waiting();
            }
            if let Some((ends, mutations)) = self.changes.recorded() {
                self.keyspace.record(self.now.lock, ends, mutations);
            }
            if self.changes.earliest_ms != u64::MAX {
                self.keyspace.rearm(self.changes.earliest_ms);
            }
            self.note_largest();
            let memory = &self.keyspace.memory;
            if memory.is_measured() {
                self.locked.each(|_, held| memory.update(held));
            }
        }
        if self.changes.has_observed() {
            self.show_observed(registries);
        }
        self.changes.publish(registries);
        if self.changes.is_recorded()
            && let Some(held) = self.locked.first()
        {
            self.changes.keep_spare(&mut held.spare);
        }
        // Objects that were replaced are dropped with the view, after the shards are unlocked: they may be large.
        self.locked = Locked::default();
        if self.long_call.is_some() {
            self.end_long_call();
        }
    }

    /// Other calls wait for its shards again.
    #[cold]
    fn end_long_call(&mut self) {
        self.long_call = None;
    }

    /// Shows the observers of locks what the call has done to locks, and what requests have come to.
    #[cold]
    fn show_observed(&mut self, registries: &Registries) {
        let (keyspace, selected) = (self.keyspace, self.database);
        while let Some(observed) = self.changes.next_observed() {
            self.database = match &observed {
                Observed::Change(event) => event.database,
                Observed::Expiry(_) => selected,
                Observed::Request(event) => event.database,
            };
            for observer in &keyspace.lock_observers {
                match &observed {
                    Observed::Change(event) => observer.see(event, self, registries),
                    Observed::Expiry(key) => observer.key_expired(key),
                    Observed::Request(event) => observer.asked(event, self, registries),
                }
            }
        }
        self.database = selected;
    }

    /// Records the size of the largest value that was written.
    #[inline]
    pub(super) fn note_largest(&self) {
        self.keyspace.largest.update(self.changes.largest);
    }

    /// Bytes of the value under a key; zero if the key does not exist. Counts neither as a hit nor as an access.
    pub(crate) fn value_bytes(&mut self, key: &[u8]) -> usize {
        match self.entry_even_if_expired(key) {
            Entry::Occupied(occupied) => occupied.value_bytes(),
            Entry::Vacant(_) => 0,
        }
    }

    /// Sets which keyspace events are published: a request of a transaction may have changed that setting.
    pub(crate) fn set_events(&mut self, events: Events) {
        self.changes.set_events(events);
    }

    /// Publishes the events so far, with the shards still locked: a message that a transaction or a script publishes comes
    /// after the events of its earlier changes.
    pub(crate) fn publish_events(&mut self, channels: &Channels) {
        self.changes.publish_events(channels);
    }

    /// Answers a client whose wait is over, at the end of the call, once its changes are recorded.
    pub fn answer(&mut self, client: &Arc<Client>, answer: Vec<u8>) {
        self.changes.answer(client, answer);
    }

    /// Whether every shard is locked, as it is for a transaction whose keys cannot be known beforehand.
    pub(crate) fn holds_all(&self) -> bool {
        self.locked.len() == self.keyspace.shards()
    }

    /// The state of the shard of a key, which must be locked.
    #[inline]
    pub(crate) fn shard_state(&mut self, key: &[u8]) -> &mut ShardState {
        let hash = self.hash(key);
        self.locked.held(self.keyspace.shard_of(hash))
    }

    /// The key's entry, occupied or vacant. A key whose deadline has passed is removed first.
    ///
    /// # Panics
    /// When the view has not locked the key's shard.
    #[inline]
    pub fn entry<'v>(&'v mut self, key: &'v [u8]) -> Entry<'v> {
        self.look(key, |_, _| {})
    }

    /// The key's entry for a command that reads the value: counts a hit or a miss, and the key counts as used.
    #[inline]
    pub fn read<'v>(&'v mut self, key: &'v [u8]) -> Option<Occupied<'v>> {
        let mut occupied = self.peek(key)?;
        occupied.touch();
        Some(occupied)
    }

    /// The key's entry for a command that asks about the key, not for its value: counts a hit or a miss, but no use.
    #[inline]
    pub fn peek<'v>(&'v mut self, key: &'v [u8]) -> Option<Occupied<'v>> {
        match self.look(key, count) {
            Entry::Occupied(occupied) => Some(occupied),
            Entry::Vacant(mut vacant) => {
                vacant.missed();
                None
            }
        }
    }

    /// The key's entry, occupied or vacant; counts a hit or a miss.
    #[inline]
    pub fn counted<'v>(&'v mut self, key: &'v [u8]) -> Entry<'v> {
        let mut entry = self.look(key, count);
        if let Entry::Vacant(vacant) = &mut entry {
            vacant.missed();
        }
        entry
    }

    /// Removes a key, and returns what makes it in another keyspace: value, deadline, holders.
    pub(crate) fn take_away(&mut self, key: &[u8]) -> Vec<Mutation> {
        self.entry(key).occupied().map_or_else(Vec::new, Occupied::take_away)
    }

    /// A command begins: locks that it removes end for this reason, if it names no other.
    #[inline]
    pub(crate) fn begin(&mut self, reason: EndReason) {
        self.changes.begin(reason);
    }

    /// Says who breaks the locks that the call breaks from now on.
    pub(crate) fn set_breaker(&mut self, breaker: Breaker) {
        self.changes.set_breaker(breaker);
    }

    /// Whether every event of locks and requests is wanted.
    #[inline]
    pub(crate) fn wants_lock_events(&self) -> bool {
        self.changes.wants_locks()
    }

    /// Whether LOCK.LINT notes what clients do wrong.
    pub(crate) fn lints_locks(&self) -> bool {
        self.changes.events().wants_locks()
    }

    /// Says whether what the call does from now on is part of a transaction or script.
    pub(crate) fn set_nested(&mut self, is_nested: bool) {
        self.changes.is_nested = is_nested;
    }

    /// The hash of a key in the selected database, for those who keep no keys.
    #[inline]
    pub fn key_hash(&self, key: &[u8]) -> u64 {
        history::place(self.hash(key), self.database)
    }

    /// The fencing token of the next grant.
    pub fn next_token(&self) -> u64 {
        self.keyspace.next_token()
    }

    /// The object of this type under a key, for a command that only reads.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    pub fn read_as<'v, T: Typed + 'v>(&'v mut self, key: &'v [u8]) -> Result<Option<&'v T>, Refusal> {
        match self.read(key) {
            Some(occupied) => occupied.into_object().map(Some),
            None => Ok(None),
        }
    }

    /// An editor of the object of this type under a key. An empty object is inserted if the key does not exist.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    pub fn open<'v, T: Typed>(&'v mut self, key: &'v [u8]) -> Result<Editor<'v, T>, Refusal> {
        match self.entry(key) {
            Entry::Occupied(occupied) => Editor::of(occupied),
            Entry::Vacant(vacant) => Ok(Editor::new(vacant)),
        }
    }

    /// An editor of the object of this type under a key, if the key exists.
    ///
    /// # Errors
    /// [`Refusal::WrongType`] when it holds another type.
    pub fn find<'v, T: Typed>(&'v mut self, key: &'v [u8]) -> Result<Option<Editor<'v, T>>, Refusal> {
        self.entry(key).occupied().map(Editor::of).transpose()
    }

    // Always inlined: a function call costs a GET thirty instructions.
    #[inline(always)]
    fn look<'v>(&'v mut self, key: &'v [u8], count: impl FnOnce(&mut ShardState, bool)) -> Entry<'v> {
        self.keyspace.count_lookup();
        let hash = self.hash(key);
        let (database, now) = (self.database, self.now.lock);
        let held = self.locked.held(self.keyspace.shard_of(hash));
        let mut id = held.shard.find(database, hash, key);
        if let Some(found) = id
            && held.shard.is_due(found, now)
        {
            id = held.expire_elements(found, hash, now, usize::MAX, &mut self.changes);
        }
        count(held, id.is_some());
        let stamp = (now.as_millis() / 1000) as u32;
        let ShardState { shard, observers, queues, .. } = held;
        let changes = &mut self.changes;
        let place = Vacant { shard, observers, queues, changes, key, hash, database, stamp };
        match id {
            Some(id) => Entry::Occupied(Occupied { place, id }),
            None => Entry::Vacant(place),
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> u64 {
        match self.hashed {
            (address, len, hash) if address == key.as_ptr() as usize && len == key.len() => {
                debug_assert_eq!(hash, self.keyspace.hash(key), "the request is not changed while it runs");
                hash
            }
            _ => self.keyspace.hash(key),
        }
    }

    /// The entry, even if its deadline has passed.
    fn entry_even_if_expired<'v>(&'v mut self, key: &'v [u8]) -> Entry<'v> {
        let hash = self.keyspace.hash(key);
        let database = self.database;
        let held = self.locked.held(self.keyspace.shard_of(hash));
        let id = held.shard.find(database, hash, key);
        let ShardState { shard, observers, queues, .. } = held;
        let changes = &mut self.changes;
        let place = Vacant { shard, observers, queues, changes, key, hash, database, stamp: 0 };
        match id {
            Some(id) => Entry::Occupied(Occupied { place, id }),
            None => Entry::Vacant(place),
        }
    }

    /// Removes a key. Returns false if it did not exist.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        match &mut self.entry(key) {
            Entry::Occupied(occupied) => {
                occupied.remove_entry();
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    /// An event of the keyspace: its class's letter in `notify-keyspace-events`, its name, its key.
    pub fn event(&mut self, class: u8, event: &'static str, key: &[u8]) {
        self.changes.event(class, event, self.database, key);
    }

    /// Selects another database: for SELECT inside a script, COPY and the like.
    pub fn select(&mut self, database: u16) {
        self.database = database;
    }

    /// The instant of this call.
    pub fn now(&self) -> Now {
        self.now
    }

    pub fn database(&self) -> u16 {
        self.database
    }
}

/// Counts a hit or a miss.
#[inline]
fn count(held: &mut ShardState, is_here: bool) {
    held.hits += u64::from(is_here);
    held.misses += u64::from(!is_here);
}

const _: () = assert!(SHARDS_MAX <= 1 << 16, "a shard is chosen by sixteen bits of the hash");

#[cfg(test)]
mod tests;
