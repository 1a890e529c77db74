//! What a call has done to the keyspace, gathered until its shards are let go.
//!
//! Owns    the mutations of one record and the events of one call.
//! Rule    with no journal and no events asked for, each change costs one branch.

use bytes::Bytes;

use crate::clock::Deadline;
use crate::journal::Mutation;
use crate::state::channels::Channels;
use crate::state::settings::Events;
use crate::types::Object;

/// What a call has done so far.
#[derive(Debug)]
pub struct Changes {
    is_recorded: bool,
    events: Events,
    pub(super) mutations: Vec<Mutation>,
    happened: Vec<Happened>,
    /// The earliest deadline set, in milliseconds; `u64::MAX` for none.
    pub(super) earliest_ms: u64,
    /// Whether anything was changed at all.
    pub(super) is_dirty: bool,
    /// Objects that are no more: dropped when the shards are let go.
    pub(super) garbage: Vec<Object>,
}

#[derive(Debug)]
struct Happened {
    event: &'static str,
    database: u16,
    key: Bytes,
}

impl Changes {
    pub(super) fn new(is_recorded: bool, events: Events) -> Self {
        Self {
            is_recorded,
            events,
            mutations: Vec::new(),
            happened: Vec::new(),
            earliest_ms: u64::MAX,
            is_dirty: false,
            garbage: Vec::new(),
        }
    }

    /// Records an effect; `mutation` is built only when somebody listens.
    #[inline]
    pub(super) fn record(&mut self, mutation: impl FnOnce() -> Mutation) {
        self.is_dirty = true;
        if self.is_recorded {
            self.mutations.push(mutation());
        }
    }

    #[inline]
    pub(super) fn arm(&mut self, deadline: Option<Deadline>) {
        if let Some(deadline) = deadline {
            self.earliest_ms = self.earliest_ms.min(deadline.as_millis());
        }
    }

    /// An event of the keyspace: its class's letter in `notify-keyspace-events`, its name, its key.
    #[inline]
    pub fn event(&mut self, class: u8, event: &'static str, database: u16, key: &[u8]) {
        if !self.events.is_empty() && self.events.has(class) {
            self.happened.push(Happened { event, database, key: Bytes::copy_from_slice(key) });
        }
    }

    /// Publishes what has happened: to the key's channel, then to the event's, as Redis does.
    #[inline]
    pub(super) fn publish(&mut self, channels: &Channels) {
        if !self.happened.is_empty() {
            self.publish_all(channels);
        }
    }

    fn publish_all(&mut self, channels: &Channels) {
        for Happened { event, database, key } in self.happened.drain(..) {
            if self.events.has(b'K') {
                let channel = [format!("__keyspace@{database}__:").as_bytes(), &key].concat();
                channels.publish(&channel, event.as_bytes());
            }
            if self.events.has(b'E') {
                channels.publish(format!("__keyevent@{database}__:{event}").as_bytes(), &key);
            }
        }
    }
}
