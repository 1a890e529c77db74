//! A client that asks for a lock, extends or releases it, and what becomes of that where the lock does not change.
//!
//! Owns    the effects of a refusal, of a grant on a client that has polled, and of a request that comes too late: on the
//!         counters, on what is known of polling clients, on LOCK.LINT, LOCK.EXPLAIN and the log.
//! Rule    every command and script that takes, extends or releases a lock says so here. What changes a lock is seen as an
//!         event instead; see `locks::event`.

use redlatch_proto::clock::Now;

use super::{spans, watch};
use crate::commands::Shared;
use crate::keyspace::View;
use crate::locks::{EndReason, Rule, Unmet};
use crate::state::clients::Client;
use crate::state::session::Session;

/// The client that asks.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Asking<'c> {
    shared: &'c Shared,
    client: &'c Client,
    now: Now,
    /// Whether it asks in a transaction or script.
    is_nested: bool,
}

/// What a late request asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::commands) enum Asked {
    Extend,
    Release,
}

impl<'c> Asking<'c> {
    #[inline]
    pub(in crate::commands) fn new(shared: &'c Shared, session: &'c Session, now: Now) -> Self {
        Self { shared, client: &session.client, now, is_nested: session.is_nested }
    }

    /// The client was refused the lock of a key, for which it has asked under this name. The caller counts that.
    #[inline]
    pub(in crate::commands) fn refused(self, view: &mut View<'_>, key: &[u8], owner: Option<&[u8]>) {
        let (hash, long_ms) = (view.key_hash(key), self.shared.settings.lock_wait_warn_ms());
        if self.client.polling.note(hash, self.now.lock, long_ms) {
            watch::report_polling((self.shared, self.client, self.now), view, key, owner);
        }
        if view.wants_lock_events() {
            self.show_refusal(view, key, owner);
        }
    }

    #[cold]
    fn show_refusal(self, view: &mut View<'_>, key: &[u8], owner: Option<&[u8]>) {
        view.note_unmet(Unmet::Refused, key, owner);
        if !self.shared.settings.lints_locks() || self.is_nested {
            return;
        }
        let polls = self.client.polling.polls(view.key_hash(key), self.now.lock);
        let is_fast = polls.is_some_and(|polls| {
            polls.mean_ms < FAST_POLLING_MS && polls.refusals.is_multiple_of(FAST_REFUSALS)
        });
        if is_fast {
            self.note(Rule::FastPolling, key);
        }
        let hold = owner.and_then(|owner| view.locks().hold_of(key, owner));
        if hold.is_some_and(|hold| ![0, self.client.id].contains(&hold.client)) {
            self.note(Rule::SharedValue, key);
        }
    }

    /// The client was granted the lock of a key by a command or script of unchanged clients, under this name.
    #[inline]
    pub(in crate::commands) fn granted(self, view: &mut View<'_>, key: &[u8], owner: Option<&[u8]>) {
        self.has_got(view, [key].into_iter());
        spans::taken(view, key, owner);
    }

    /// The client has got locks, all at once, and polls no more. If it has polled one of them, counts how long that lock was
    /// free; the log says so if it says that the client has polled.
    #[inline]
    pub(in crate::commands) fn has_got<'n>(
        self,
        view: &mut View<'_>,
        keys: impl Iterator<Item = &'n [u8]> + Clone,
    ) {
        if self.client.polling.is_on() {
            self.polls_no_more(view, keys);
        }
    }

    #[cold]
    fn polls_no_more<'n>(self, view: &mut View<'_>, keys: impl Iterator<Item = &'n [u8]> + Clone) {
        keys.clone().for_each(|key| view.locks().count_polled(key, &self.client.polling));
        if self.client.polling.end() {
            keys.for_each(|key| watch::report_polled((self.shared, self.client, self.now), view, key));
        }
    }

    /// A request found that its owner, or its client if it names none, does not hold the lock. Told by LOCK.EXPLAIN, too.
    #[inline]
    pub(in crate::commands) fn late(
        self,
        view: &mut View<'_>,
        about: (&[u8], Option<&[u8]>),
        request: (Asked, &'static str),
    ) {
        if view.locks().has_lost(about.0) || view.wants_lock_events() {
            self.late_for_lost(view, about, request);
        }
    }

    #[cold]
    fn late_for_lost(
        self,
        view: &mut View<'_>,
        (key, owner): (&[u8], Option<&[u8]>),
        (asked, request): (Asked, &'static str),
    ) {
        if owner.is_some() && view.wants_lock_events() {
            let outcome = if asked == Asked::Extend { Unmet::NotExtended } else { Unmet::NotReleased };
            view.note_unmet(outcome, key, owner);
        }
        let Some(past) = view.locks().note_late(key, owner, request) else { return };
        if !self.shared.settings.lints_locks() {
            return;
        }
        self.note(Rule::Late, key);
        if asked == Asked::Release && past.reason == EndReason::Expired && past.renewals == 0 {
            self.note(Rule::ShortLease, key);
        }
    }

    fn note(self, rule: Rule, key: &[u8]) {
        self.shared.locks.lint.note(rule, key, self.client, self.now.lock);
    }
}

/// A client whose refusals are closer together polls too fast: 20 a second.
const FAST_POLLING_MS: u32 = 50;
/// After that many refusals a client is said to poll too fast, and again after as many more.
const FAST_REFUSALS: u32 = 20;
