//! What requests for locks come to, as it is counted, remembered and shown.
//!
//! Owns    [`ViewLocks::comes_to`]: commands that take, extend or release locks say there what a request has come to.
//! Rule    the counters, the history and what is known of polling clients change at once; observers see the rest at the end
//!         of the call. Where nobody looks, that costs a few branches.

use bytes::Bytes;
use tracing::Level;

use super::observers::Observed;
use super::views::{LockHolder, Shown, ViewLocks};
use crate::locks::{LateRequest, RequestEvent, RequestOutcome, RequestWait, Waited};
use crate::state::clients::Client;

/// The client that makes a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AskingClient<'c> {
    /// Its connection, whose polling is noted.
    pub client: &'c Client,
    /// How long a client polls a lock until the log says it, in milliseconds; 0: never. The setting `lock-wait-warn`.
    pub warn_ms: u64,
}

/// What a request says of itself beside its keys.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The name under which it asks; `None`: it says none.
    pub owner: Option<&'a [u8]>,
    /// The command or script, as LOCK.EXPLAIN names it.
    pub name: &'static str,
    /// Its wait, if it waits or has waited.
    pub wait: Option<RequestWait>,
}

/// What there is to see of an outcome beside itself.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    is_long_poll: bool,
    late: Option<LateRequest>,
}

impl ViewLocks<'_, '_> {
    /// A request for the lock of `key`, and perhaps of more, has come to this. If it was refused, `key` is in the way.
    ///
    /// Observers see it if one wants every event, if tracing takes spans, if a log line is due, and the beginning of a wait
    /// also if a client has asked to be told of it.
    // Always inlined: see `Call::comes_to`.
    #[inline(always)]
    pub(crate) fn comes_to<'n>(
        &mut self,
        outcome: RequestOutcome,
        (key, more): (&'n [u8], impl Iterator<Item = &'n [u8]> + Clone),
        by: AskingClient<'_>,
        asked: Asked<'_>,
    ) {
        let keys = || std::iter::once(key).chain(more.clone());
        let mut noted = Noted::default();
        match (outcome, asked.wait) {
            (RequestOutcome::Granted { again: false }, None) if by.client.polling.is_on() => {
                noted.is_long_poll = self.ends_polling(by.client, keys());
            }
            (RequestOutcome::Refused(_), None) => noted.is_long_poll = self.refused(key, by),
            (RequestOutcome::NotHeld(_), _) => {
                if !self.has_lost(key) && !self.view.wants_lock_events() {
                    return;
                }
                noted.late = self.late(key, by, asked);
            }
            (outcome, Some(wait)) => self.waited(key, wait, outcome),
            _ => {}
        }
        if self.is_seen(outcome, asked, noted) {
            self.show(outcome, keys().map(Bytes::copy_from_slice).collect(), by, asked, noted);
        }
    }

    /// Whether an observer may want to see an outcome.
    #[inline(always)]
    fn is_seen(&self, outcome: RequestOutcome, asked: Asked<'_>, noted: Noted) -> bool {
        self.view.wants_lock_events()
            || tracing::level_enabled!(Level::DEBUG)
            || noted.is_long_poll
            || asked.wait.is_some_and(|wait| wait.is_reported || wait.is_traced)
            || (outcome == RequestOutcome::Waits && self.view.keyspace.tells_contended())
    }

    #[cold]
    fn show(
        &mut self,
        outcome: RequestOutcome,
        keys: Box<[Bytes]>,
        by: AskingClient<'_>,
        asked: Asked<'_>,
        noted: Noted,
    ) {
        let Noted { is_long_poll, late } = noted;
        self.view.changes.observe(Observed::Request(RequestEvent {
            outcome,
            database: self.view.database,
            keys,
            owner: asked.owner.map(Bytes::copy_from_slice),
            client: by.client.id,
            is_nested: self.view.changes.is_nested,
            wait: asked.wait,
            is_long_poll,
            late,
        }));
    }

    /// Counts a refusal. Returns whether the client has polled the lock for long now, as `lock-wait-warn` has it.
    #[inline(always)]
    fn refused(&mut self, key: &[u8], by: AskingClient<'_>) -> bool {
        let (hash, now) = (self.view.key_hash(key), self.view.now().lock);
        self.view.shard_state(key).shard.count_refused(key);
        by.client.polling.note(hash, now, by.warn_ms)
    }

    /// A client that has polled has got locks, all at once, and polls no more. If it has polled one of them, counts how long
    /// that lock was free. Returns whether the log says that it has polled one of them for long.
    #[cold]
    fn ends_polling<'n>(&mut self, client: &Client, keys: impl Iterator<Item = &'n [u8]> + Clone) -> bool {
        let now = self.view.now().lock;
        for key in keys.clone() {
            let place = self.view.key_hash(key);
            if client.polling.is_of(place, now) {
                self.view.shard_state(key).shard.count_handover(place);
            }
        }
        let polled = client.polling.reported().0;
        client.polling.end() && keys.into_iter().any(|key| self.view.key_hash(key) == polled)
    }

    /// Counts a wait that has ended now. The beginning of a wait is counted nowhere.
    #[cold]
    fn waited(&mut self, key: &[u8], wait: RequestWait, outcome: RequestOutcome) {
        let (now, place) = (self.view.now().lock, self.view.key_hash(key));
        let shard = &mut self.view.shard_state(key).shard;
        let how = match outcome {
            RequestOutcome::Waits => return,
            RequestOutcome::Granted { .. } => Waited::Granted,
            RequestOutcome::Abandoned => Waited::Abandoned,
            _ => Waited::Refused,
        };
        shard.count_wait(now.millis_since(wait.since), how);
        match outcome {
            RequestOutcome::Granted { again: false } => shard.count_handover(place),
            _ if how == Waited::Refused => shard.count_refused(key),
            _ => {}
        }
    }

    /// Notes in the history that a request for a lock which was lost has come too late, unless its owner holds the lock
    /// again. Returns how the lock was lost, if this is the first such request.
    #[cold]
    fn late(&mut self, key: &[u8], by: AskingClient<'_>, asked: Asked<'_>) -> Option<LateRequest> {
        let (place, now) = (self.view.key_hash(key), self.view.now().lock);
        let holds = |holder: &LockHolder| match asked.owner {
            Some(owner) => holder.owner.as_deref() == Some(owner),
            None => holder.client == by.client.id,
        };
        if self.held(key, Shown::First(usize::MAX)).is_some_and(|held| held.holders.iter().any(holds)) {
            return None;
        }
        let history = self.view.shard_state(key).shard.history();
        let past = history.note_late((place, key), (by.client.id, asked.owner), (asked.name, now))?;
        Some(LateRequest { reason: past.reason, renewals: past.renewals })
    }
}
