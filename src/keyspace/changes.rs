//! What a call has done to the keyspace, gathered until its shards are let go.
//!
//! Owns    the mutations of one record and the events of one call.
//! Rule    with no journal and no events asked for, each change costs one branch.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::observers::Observers;
use crate::clock::Deadline;
use crate::journal::Mutation;
use crate::state::audience::Audience;
use crate::state::channels::Channels;
use crate::state::clients::ClientId;
use crate::state::settings::Events;
use crate::state::tracking::{Cause, Notice, Readers, Stale};
use crate::types::Object;

/// What a call has done so far. Small, for it is made for every call: most do nothing that anybody is to be told of.
#[derive(Debug)]
pub struct Changes {
    is_recorded: bool,
    events: Events,
    /// Whether anything was changed at all.
    pub(super) is_dirty: bool,
    /// The earliest deadline set, in milliseconds; `u64::MAX` for none.
    pub(super) earliest_ms: u64,
    /// Bytes of the largest value that it has left.
    pub(super) largest: usize,
    aftermath: Option<Box<Aftermath>>,
}

/// What is left to do when a call is over, and whom to tell.
#[derive(Debug, Default)]
struct Aftermath {
    mutations: Vec<Mutation>,
    happened: Vec<Happened>,
    /// Keys that may have what somebody waits for, in the order in which they came to have it.
    ready: VecDeque<(u16, Bytes)>,
    /// Copies that are out of date.
    stale: Vec<Stale>,
    /// What is to be told of the first of these, settled before their readers wanted to be told otherwise.
    settled: Settled,
    /// Objects that are no more: dropped when the shards are let go.
    garbage: Vec<Object>,
}

/// What is to be told of copies that went out of date before something was changed about who is told.
#[derive(Debug, Default)]
struct Settled {
    /// How many.
    stale: usize,
    notices: Vec<Notice>,
    /// Whether everybody knows that all keys are out of date.
    know: bool,
    /// Prefixes that somebody listens to only for what has come behind a place.
    young: BTreeMap<Bytes, usize>,
}

#[derive(Debug)]
struct Happened {
    event: &'static str,
    database: u16,
    key: Bytes,
}

impl Changes {
    #[inline]
    pub(super) fn new(is_recorded: bool, events: Events) -> Self {
        Self { is_recorded, events, is_dirty: false, earliest_ms: u64::MAX, largest: 0, aftermath: None }
    }

    #[cold]
    fn aftermath(&mut self) -> &mut Aftermath {
        self.aftermath.get_or_insert_default()
    }

    /// From now on these events are asked for.
    pub(super) fn attend(&mut self, events: Events) {
        self.events = events;
    }

    /// Records an effect; `mutation` is built only when somebody listens.
    #[inline]
    pub(super) fn record(&mut self, mutation: impl FnOnce() -> Mutation) {
        self.is_dirty = true;
        if self.is_recorded {
            self.aftermath().mutations.push(mutation());
        }
    }

    #[inline]
    pub(super) fn arm(&mut self, deadline: Option<Deadline>) {
        if let Some(deadline) = deadline {
            self.earliest_ms = self.earliest_ms.min(deadline.as_millis());
        }
    }

    /// A value takes that many bytes from now on.
    #[inline]
    pub(super) fn grew_to(&mut self, bytes: usize) {
        self.largest = self.largest.max(bytes);
    }

    /// An event of the keyspace: its class's letter in `notify-keyspace-events`, its name, its key.
    #[inline]
    pub fn event(&mut self, class: u8, event: &'static str, database: u16, key: &[u8]) {
        if !self.events.is_empty() && self.events.has(class) {
            self.aftermath().happened.push(Happened { event, database, key: Bytes::copy_from_slice(key) });
        }
    }

    /// A key has changed, or is over: those who watch it or keep a copy are to know.
    #[inline]
    pub(super) fn touched(&mut self, observers: &mut Observers, database: u16, key: &[u8], cause: Cause) {
        if !observers.is_empty() || self.events.wants_names() {
            self.touch(observers, database, key, cause);
        }
    }

    #[cold]
    fn touch(&mut self, observers: &mut Observers, database: u16, key: &[u8], cause: Cause) {
        match observers.touch(database, key) {
            Some((key, readers)) => self.aftermath().stale.push(Stale::Key { key, readers, cause }),
            None if self.events.wants_names() => {
                let (key, readers) = (Bytes::copy_from_slice(key), Readers::new());
                self.aftermath().stale.push(Stale::Key { key, readers, cause });
            }
            None => {}
        }
    }

    /// A key is remembered no more, for want of room: those who keep a copy are to know.
    pub(super) fn given_up(&mut self, key: Bytes, readers: Readers) {
        self.aftermath().stale.push(Stale::Key { key, readers, cause: Cause::Room });
    }

    /// A key may have what somebody waits for.
    pub(super) fn ready(&mut self, database: u16, key: Bytes) {
        self.aftermath().ready.push_back((database, key));
    }

    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        self.aftermath.as_ref().is_some_and(|aftermath| !aftermath.ready.is_empty())
    }

    pub(super) fn next_ready(&mut self) -> Option<(u16, Bytes)> {
        self.aftermath.as_mut()?.ready.pop_front()
    }

    /// A whole database is gone: every copy of anything may be out of date, `tracked` keys among them of which somebody
    /// keeps one.
    pub(super) fn flush(&mut self, tracked: usize) {
        self.aftermath().stale.push(Stale::All { tracked });
    }

    /// An object is no more.
    #[inline]
    pub(super) fn discard(&mut self, object: Option<Object>) {
        if let Some(object) = object {
            self.aftermath().garbage.push(object);
        }
    }

    /// The effects gathered, if somebody listens and there are any.
    pub(super) fn mutations(&self) -> Option<&[Mutation]> {
        let mutations = &self.aftermath.as_ref()?.mutations;
        (!mutations.is_empty()).then_some(mutations)
    }

    /// Tells everybody concerned: events to the key's channel, then to the event's, as Redis does; then who keeps copies.
    #[inline]
    pub(super) fn tell(&mut self, audience: &Audience, author: ClientId) {
        if let Some(aftermath) = &mut self.aftermath {
            aftermath.tell_events(self.events, &audience.channels);
            if !aftermath.stale.is_empty() {
                aftermath.tell_readers(audience, author);
            }
        }
    }

    /// Tells of the events so far: before the call that has caused them says something itself.
    #[inline]
    pub(super) fn tell_events(&mut self, channels: &Channels) {
        if let Some(aftermath) = &mut self.aftermath {
            aftermath.tell_events(self.events, channels);
        }
    }

    /// What somebody wants to be told changes: `change` is made, and returns prefixes that nobody has listened to before. Of
    /// what is out of date so far, those are told who would have been.
    pub(super) fn retune(
        &mut self,
        audience: &Audience,
        author: ClientId,
        change: impl FnOnce() -> Vec<Bytes>,
    ) {
        if let Some(aftermath) = &mut self.aftermath {
            aftermath.settle(audience, author);
        }
        let young = change();
        if let Some(aftermath) = &mut self.aftermath {
            let Settled { young: all, stale: since, .. } = &mut aftermath.settled;
            all.extend(young.into_iter().map(|prefix| (prefix, *since)));
        }
    }
}

impl Aftermath {
    #[cold]
    fn tell_events(&mut self, events: Events, channels: &Channels) {
        for Happened { event, database, key } in self.happened.drain(..) {
            if events.has(b'K') {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), &key].concat();
                channels.publish(&channel, event.as_bytes());
            }
            if events.has(b'E') {
                channels.publish(format!("__keyevent@{database}__:{event}").as_bytes(), &key);
            }
        }
    }

    /// Who is told of what is out of date so far, is who is to be told now.
    fn settle(&mut self, audience: &Audience, author: ClientId) {
        let Audience { clients, tracking, .. } = audience;
        let open = &self.stale[self.settled.stale..];
        let notices = tracking.notices(clients, open, author, &mut self.settled.know);
        self.settled.notices.extend(notices);
        self.settled.stale = self.stale.len();
    }

    #[cold]
    fn tell_readers(&mut self, audience: &Audience, author: ClientId) {
        let Audience { clients, tracking, .. } = audience;
        self.settled.notices.iter().for_each(|notice| notice.send(clients, author));
        let open = &self.stale[self.settled.stale..];
        tracking.invalidate(clients, open, author, &mut self.settled.know);
        if tracking.broadcasts() {
            tracking.broadcast(clients, &self.stale, &self.settled.young, author);
        }
    }
}
