//! The effects of a call on the keyspace, collected until its shards are unlocked.
//!
//! Owns    the mutations of one record and the events of one call.
//! Rule    without a journal and without keyspace events, a change costs one branch.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, LockTime};

use super::ends::Ends;
use super::locks::Observed;
use super::observers::Observers;
use crate::journal::{Mutation, Mutations};
use crate::locks::{Breaker, EndReason, LockEvent};
use crate::state::channels::Channels;
use crate::state::clients::{Client, ClientId};
use crate::state::registries::Registries;
use crate::state::settings::Events;
use crate::state::tracking::{Cause, Notice, Readers, Stale};
use crate::types::Object;

/// The changes of a call so far. Small, because every call has one, and most calls have nothing to publish.
#[derive(Debug)]
pub struct Changes {
    is_recorded: bool,
    events: Events,
    pub(crate) is_dirty: bool,
    /// The earliest deadline set, in milliseconds; `u64::MAX` for none.
    pub(crate) earliest_ms: u64,
    /// The client of the call; zero: none.
    pub(crate) author: ClientId,
    /// Whether the call is part of a transaction or script.
    pub(crate) is_nested: bool,
    wants_locks: bool,
    /// Why locks end that the command removes.
    end_reason: EndReason,
    /// Bytes of the largest value written by the call.
    pub(crate) largest: usize,
    /// Whether the memory for effects is in use. Until then nobody reads it: with a journal each shard has some, all together
    /// as much as a processor's first cache, and most requests have no effect.
    has_effects: bool,
    effects: Option<Box<Effects>>,
}

/// The memory for the effects of a call, which the next call on the shard uses again. Without it, a record costs two
/// allocations more.
#[derive(Debug, Default)]
pub(crate) struct Spare(Option<Box<Effects>>);

/// The effects that are recorded and published at the end of the call.
#[derive(Debug, Default)]
struct Effects {
    mutations: Mutations,
    /// Until when the changed keys last.
    ends: Ends,
    events: Vec<KeyEvent>,
    /// Keys that may have what a command waits for, in the order of the changes.
    ready: VecDeque<(u16, Bytes)>,
    /// Cached values that the call has made out of date.
    stale: Vec<Stale>,
    /// Invalidations of the first stale values, addressed before the call changed CLIENT TRACKING.
    addressed: Addressed,
    /// Clients whose wait is over, and their answers.
    answers: Vec<(Arc<Client>, Vec<u8>)>,
    /// What the observers of locks have not seen yet, in order.
    observed: VecDeque<Observed>,
    /// Who breaks locks.
    breaker: Option<Arc<Breaker>>,
    /// Replaced and removed objects. They are dropped after the shards are unlocked.
    garbage: Vec<Object>,
}

/// Invalidations whose receivers are fixed, because the call has changed CLIENT TRACKING after their keys changed.
#[derive(Debug, Default)]
struct Addressed {
    /// The number of stale values whose invalidations are addressed.
    stale: usize,
    notices: Vec<Notice>,
    /// Whether all clients have been sent an invalidation of all keys.
    all_informed: bool,
    /// New prefixes, each with the index of the first stale value that it applies to.
    new_prefixes: BTreeMap<Bytes, usize>,
}

#[derive(Debug)]
struct KeyEvent {
    event: &'static str,
    database: u16,
    key: Bytes,
}

impl Changes {
    #[inline]
    pub(crate) fn new(is_recorded: bool, events: Events, wants_locks: bool) -> Self {
        Self {
            is_recorded,
            events,
            is_dirty: false,
            earliest_ms: u64::MAX,
            author: 0,
            is_nested: false,
            wants_locks: wants_locks || events.wants_locks(),
            end_reason: EndReason::Deleted,
            largest: 0,
            has_effects: false,
            effects: None,
        }
    }

    /// The effects, of which there is one now.
    #[inline]
    fn effects(&mut self) -> &mut Effects {
        self.has_effects = true;
        self.effects.get_or_insert_with(new_effects)
    }

    /// The effects, if there are any.
    #[inline]
    fn some_effects(&self) -> Option<&Effects> {
        if self.has_effects { self.effects.as_deref() } else { None }
    }

    /// The effects, if there are any.
    #[inline]
    fn some_effects_mut(&mut self) -> Option<&mut Effects> {
        if self.has_effects { self.effects.as_deref_mut() } else { None }
    }

    /// Uses memory of an earlier call, once there is an effect.
    #[inline]
    pub(crate) fn take_spare(&mut self, spare: &mut Spare) {
        self.effects = spare.0.take();
    }

    /// Gives memory back for the next call on the shard. Everything has been recorded and published.
    #[inline]
    pub(crate) fn keep_spare(&mut self, spare: &mut Spare) {
        if self.some_effects().is_some_and(|effects| !effects.is_small()) {
            return;
        }
        if let Some(effects) = self.some_effects_mut() {
            effects.mutations.clear();
            effects.ends = Ends::default();
        }
        spare.0 = self.effects.take();
    }

    /// Which keyspace events are published, and whether LOCK.LINT is on.
    pub(crate) fn events(&self) -> Events {
        self.events
    }

    /// Sets which keyspace events are published.
    pub(crate) fn set_events(&mut self, events: Events) {
        self.events = events;
        self.wants_locks |= events.wants_locks();
    }

    /// Records an effect. `mutation` is called only if there is a journal.
    #[inline]
    pub(crate) fn record<B: AsRef<[u8]>>(&mut self, mutation: impl FnOnce() -> Mutation<B>) {
        self.is_dirty = true;
        if self.is_recorded {
            self.effects().mutations.push(&mutation());
        }
    }

    /// Like [`Changes::record`], for a change that may have none, or that another effect announces.
    #[inline]
    pub(crate) fn record_some<'m>(&mut self, mutation: impl FnOnce() -> Option<Mutation<&'m [u8]>>) {
        if self.is_recorded
            && let Some(mutation) = mutation()
        {
            self.is_dirty = true;
            self.effects().mutations.push(&mutation);
        }
    }

    /// Whether there is a journal.
    #[inline]
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The ends of the changed keys, if there is a journal.
    #[inline]
    pub(super) fn ends(&mut self) -> Option<&mut Ends> {
        self.is_recorded.then(|| &mut self.effects().ends)
    }

    #[inline]
    pub(crate) fn arm(&mut self, deadline: Option<Deadline>) {
        if let Some(deadline) = deadline {
            self.earliest_ms = self.earliest_ms.min(deadline.as_millis());
        }
    }

    /// Notes the size of a value that was written.
    #[inline]
    pub(crate) fn grew_to(&mut self, bytes: usize) {
        self.largest = self.largest.max(bytes);
    }

    /// An event of the keyspace: its class's letter in `notify-keyspace-events`, its name, its key.
    #[inline]
    pub fn event(&mut self, class: u8, event: &'static str, database: u16, key: &[u8]) {
        if !self.events.is_empty() && self.events.has(class) {
            self.effects().events.push(KeyEvent { event, database, key: Bytes::copy_from_slice(key) });
        }
    }

    /// A key has changed or expired: its watches are broken and cached values invalidated.
    #[inline]
    pub(crate) fn touched(&mut self, observers: &mut Observers, database: u16, key: &[u8], cause: Cause) {
        if !observers.is_empty() || self.events.wants_names() {
            self.touch(observers, database, key, cause);
        }
    }

    #[cold]
    fn touch(&mut self, observers: &mut Observers, database: u16, key: &[u8], cause: Cause) {
        match observers.touch(database, key) {
            Some((key, readers)) => self.effects().stale.push(Stale::Key { key, readers, cause }),
            None if self.events.wants_names() => {
                let (key, readers) = (Bytes::copy_from_slice(key), Readers::new());
                self.effects().stale.push(Stale::Key { key, readers, cause });
            }
            None => {}
        }
    }

    /// A key is no longer tracked because of the limit: its cached values are invalidated.
    pub(crate) fn untracked(&mut self, key: Bytes, readers: Readers) {
        self.effects().stale.push(Stale::Key { key, readers, cause: Cause::Limit });
    }

    /// Notes a key that may have what a command waits for.
    pub(crate) fn ready(&mut self, database: u16, key: Bytes) {
        self.is_dirty = true;
        self.effects().ready.push_back((database, key));
    }

    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.some_effects().is_some_and(|effects| !effects.ready.is_empty())
    }

    pub(crate) fn next_ready(&mut self) -> Option<(u16, Bytes)> {
        self.some_effects_mut()?.ready.pop_front()
    }

    /// Whether every event of every lock is wanted.
    #[inline]
    pub(crate) fn wants_locks(&self) -> bool {
        self.wants_locks
    }

    /// Notes what has happened to a lock, for its observers.
    pub(crate) fn lock_event(&mut self, event: LockEvent) {
        let event = LockEvent { author: self.author, is_nested: self.is_nested, ..event };
        self.observe(Observed::Change(event));
    }

    /// How many things the observers of locks have not seen.
    pub(super) fn observed(&self) -> usize {
        self.some_effects().map_or(0, |effects| effects.observed.len())
    }

    /// One request has taken all locks whose events were noted after the first `seen`. `has_choice`: it has named others.
    pub(super) fn taken_at_once(&mut self, seen: usize, has_choice: bool) {
        let Some(effects) = self.some_effects_mut() else { return };
        let mut with = has_choice.then_some(0);
        for observed in effects.observed.iter_mut().skip(seen) {
            if let Observed::Change(event) = observed {
                event.with = *with.get_or_insert(event.with);
            }
        }
    }

    /// Notes something for the observers of locks.
    pub(super) fn observe(&mut self, observed: Observed) {
        self.effects().observed.push_back(observed);
    }

    /// Whether the observers of locks have something to see.
    #[inline]
    pub(crate) fn has_observed(&self) -> bool {
        self.some_effects().is_some_and(|effects| !effects.observed.is_empty())
    }

    /// The next thing that the observers of locks have not seen.
    pub(super) fn next_observed(&mut self) -> Option<Observed> {
        self.some_effects_mut()?.observed.pop_front()
    }

    /// A command begins: locks that it removes end for this reason, if it names no other.
    #[inline]
    pub(crate) fn begin(&mut self, reason: EndReason) {
        self.end_reason = reason;
    }

    /// Why locks end that the command removes.
    #[inline]
    pub(crate) fn end_reason(&self) -> EndReason {
        self.end_reason
    }

    /// Sets who breaks the locks that end as [`EndReason::Broken`] from now on.
    pub(crate) fn set_breaker(&mut self, breaker: Breaker) {
        self.effects().breaker = Some(Arc::new(breaker));
    }

    /// Who has broken a lock that ends now for this reason.
    pub(crate) fn breaker(&self, reason: EndReason) -> Option<Arc<Breaker>> {
        self.some_effects()?.breaker.clone().filter(|_| reason == EndReason::Broken)
    }

    /// Notes that a key which was no lock has expired, if every event is wanted.
    #[inline]
    pub(crate) fn key_expired(&mut self, key: &[u8]) {
        if self.wants_locks {
            self.observe(Observed::Expiry(Bytes::copy_from_slice(key)));
        }
    }

    /// A whole database was flushed: every cached value is invalidated. `tracked` keys were tracked until then.
    pub(crate) fn flush(&mut self, tracked: usize) {
        self.effects().stale.push(Stale::All { tracked });
    }

    /// Keeps an object until the shards are unlocked, and drops it then.
    #[inline]
    pub(crate) fn discard(&mut self, object: Option<Object>) {
        if let Some(object) = object {
            self.effects().garbage.push(object);
        }
    }

    /// The recorded effects, if there are any, and the ends of the changed keys: see [`Record`](crate::journal::Record).
    pub(crate) fn recorded(&self) -> Option<((LockTime, LockTime), &Mutations)> {
        let Effects { mutations, ends, .. } = self.some_effects()?;
        (!mutations.is_empty()).then(|| (ends.latest(), mutations))
    }

    /// Answers the client, whose wait is over, once the changes are recorded: the answer waits for the journal like a reply.
    pub(crate) fn answer(&mut self, client: &Arc<Client>, answer: Vec<u8>) {
        self.effects().answers.push((Arc::clone(client), answer));
    }

    /// Answers calls that have waited, publishes events, then sends invalidations. Each event goes to the key's channel, then
    /// to the event's, as in Redis.
    #[inline]
    pub(crate) fn publish(&mut self, registries: &Registries) {
        let (author, events) = (self.author, self.events);
        if let Some(effects) = self.some_effects_mut() {
            effects.answers.drain(..).for_each(|(client, answer)| client.answer(&answer));
            if !effects.events.is_empty() {
                effects.publish_events(events, &registries.channels);
            }
            if !effects.stale.is_empty() {
                effects.send_invalidations(registries, author);
            }
        }
    }

    /// Publishes the events so far, before the call that has caused them publishes a message.
    #[inline]
    pub(crate) fn publish_events(&mut self, channels: &Channels) {
        let events = self.events;
        if let Some(effects) = self.some_effects_mut() {
            effects.publish_events(events, channels);
        }
    }

    /// Calls `change`, which changes CLIENT TRACKING and returns prefixes that no client had before. Values that are stale
    /// already are invalidated according to the previous state.
    pub(crate) fn change_tracking(&mut self, registries: &Registries, change: impl FnOnce() -> Vec<Bytes>) {
        let author = self.author;
        if let Some(effects) = self.some_effects_mut() {
            effects.address(registries, author);
        }
        let prefixes = change();
        if let Some(effects) = self.some_effects_mut() {
            let Addressed { new_prefixes, stale, .. } = &mut effects.addressed;
            new_prefixes.extend(prefixes.into_iter().map(|prefix| (prefix, *stale)));
        }
    }
}

#[cold]
fn new_effects() -> Box<Effects> {
    Box::default()
}

impl Effects {
    /// Whether nothing is left but a small record.
    #[inline]
    fn is_small(&self) -> bool {
        let Self {
            mutations,
            // They go with the mutations.
            ends: _,
            events,
            ready,
            stale,
            addressed,
            answers,
            observed,
            breaker,
            garbage,
        } = self;
        events.is_empty()
            && ready.is_empty()
            && stale.is_empty()
            && addressed.stale == 0
            && addressed.new_prefixes.is_empty()
            && !addressed.all_informed
            && answers.is_empty()
            && observed.is_empty()
            && breaker.is_none()
            && garbage.is_empty()
            && mutations.capacity() <= SMALL_RECORD_BYTES
    }

    #[cold]
    fn publish_events(&mut self, events: Events, channels: &Channels) {
        for KeyEvent { event, database, key } in self.events.drain(..) {
            if events.has(b'K') {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), &key].concat();
                channels.publish(&channel, event.as_bytes());
            }
            if events.has(b'E') {
                channels.publish(format!("__keyevent@{database}__:{event}").as_bytes(), &key);
            }
        }
    }

    /// Fixes the receivers of the invalidations so far.
    fn address(&mut self, registries: &Registries, author: ClientId) {
        let Registries { clients, tracking, .. } = registries;
        let open = &self.stale[self.addressed.stale..];
        let notices = tracking.notices(clients, open, author, &mut self.addressed.all_informed);
        self.addressed.notices.extend(notices);
        self.addressed.stale = self.stale.len();
    }

    #[cold]
    fn send_invalidations(&mut self, registries: &Registries, author: ClientId) {
        let Registries { clients, tracking, .. } = registries;
        self.addressed.notices.iter().for_each(|notice| notice.send(clients, author));
        let open = &self.stale[self.addressed.stale..];
        tracking.invalidate(clients, open, author, &mut self.addressed.all_informed);
        if tracking.broadcasts() {
            tracking.broadcast(clients, &self.stale, &self.addressed.new_prefixes, author);
        }
    }
}

/// Bytes of a record whose memory is kept for the next call.
const SMALL_RECORD_BYTES: usize = 16 * 1024;
