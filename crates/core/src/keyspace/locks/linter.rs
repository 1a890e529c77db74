//! The observer that notes for LOCK.LINT what clients do wrong.
//!
//! Owns    what of each event is a mistake; the findings are in `locks::lint`.
//! Rule    nothing is noted unless the setting `lock-lint` is on.

use std::sync::Arc;

use redlatch_proto::clock::LockTime;

use super::observers::LockObserver;
use crate::keyspace::View;
use crate::locks::lint::Held;
use crate::locks::{
    Before, EndReason, HolderRequest, LockChange, LockEvent, LockLint, RequestEvent, RequestOutcome, Rule,
};
use crate::state::clients::ClientId;
use crate::state::registries::Registries;

/// Sees the mistakes in what happens to locks.
#[derive(Debug)]
pub(crate) struct Linter(pub Arc<LockLint>);

impl LockObserver for Linter {
    fn see(&self, event: &LockEvent, view: &mut View<'_>, registries: &Registries) {
        if !view.lints_locks() {
            return;
        }
        let noting = Noting { lint: &self.0, registries, now: view.now().lock };
        match &event.change {
            LockChange::Granted => noting.granted(event, view),
            LockChange::Renewed(before) => noting.renewed(event, before),
            LockChange::Ended(reason, _) => noting.ended(event, *reason, view.key_hash(&event.key)),
        }
    }

    fn asked(&self, event: &RequestEvent, view: &mut View<'_>, registries: &Registries) {
        if !view.lints_locks() {
            return;
        }
        let noting = Noting { lint: &self.0, registries, now: view.now().lock };
        match event.outcome {
            RequestOutcome::Refused(_) if event.wait.is_none() && !event.is_nested => {
                noting.refused(event, view);
            }
            RequestOutcome::NotHeld(asked) => noting.not_held(event, asked),
            _ => {}
        }
    }
}

/// Notes the mistakes of one event.
struct Noting<'n> {
    lint: &'n LockLint,
    registries: &'n Registries,
    now: LockTime,
}

impl Noting<'_> {
    fn note(&self, rule: Rule, key: &[u8], client: ClientId) {
        if let Some(client) = self.registries.clients.get(client) {
            self.lint.note(rule, key, Some(&client), self.now);
        }
    }

    fn granted(&self, event: &LockEvent, view: &mut View<'_>) {
        let LockEvent { key, client, token, .. } = event;
        // The call may have set the lease after it took the lock.
        let held = view.locks().grant_of(key).filter(|grant| grant.token == *token);
        let is_endless = held.is_some_and(|grant| grant.lease_ms.is_none() && !grant.is_native);
        // Nobody is known who has it: it was read from another server, or its owner got it without a request.
        if *client == 0 {
            if *token == 0 && is_endless {
                self.lint.note(Rule::NoLease, key, None, self.now);
            }
            return;
        }
        if is_endless {
            self.note(Rule::NoLease, key, *client);
        }
        if let Some(owner) = &event.owner
            && view.locks().past(key).iter().any(|past| past.is_of(owner) && past.holder != *client)
        {
            self.note(Rule::SharedValue, key, *client);
        }
        let until = event.lease_ms.map(|millis| self.now + millis);
        let lock = Held { key: view.key_hash(key), with: event.with, until };
        if event.with != 0 && self.lint.taken(*client, lock, self.now) {
            self.note(Rule::OppositeOrders, key, *client);
        }
    }

    fn renewed(&self, event: &LockEvent, before: &Before) {
        let author = if event.author == 0 { event.client } else { event.author };
        // Another client has asked under the same name, and has the same grant now; or it has attached to the session.
        let attaches = before.session.is_some() && before.session == event.session;
        if before.client != event.client && before.client != 0 {
            if !attaches {
                self.note(Rule::SharedValue, &event.key, event.client);
            }
            return;
        }
        if let (Some(lease_ms), Some(until), Some(_)) = (before.lease_ms, before.deadline, event.lease_ms)
            && until.time().millis_since(self.now).saturating_mul(3) < lease_ms
        {
            self.note(Rule::LateRenewal, &event.key, author);
        }
    }

    fn ended(&self, event: &LockEvent, reason: EndReason, hash: u64) {
        self.lint.released(event.client, hash);
        let is_foreign = event.author != 0 && event.author != event.client;
        match reason {
            // A script may have compared the value.
            EndReason::Deleted if is_foreign && !event.is_nested => {
                self.note(Rule::ForeignDelete, &event.key, event.author);
            }
            // One finding for all locks.
            EndReason::Flushed if is_foreign => self.note(Rule::ForeignDelete, b"*", event.author),
            _ => {}
        }
    }

    fn refused(&self, event: &RequestEvent, view: &mut View<'_>) {
        let (key, hash) = (event.key(), view.key_hash(event.key()));
        let client = self.registries.clients.get(event.client);
        let polls = client.and_then(|client| client.polling.polls(hash, self.now));
        let is_fast = polls.is_some_and(|polls| {
            polls.mean_ms < FAST_POLLING_MS && polls.refusals.is_multiple_of(FAST_REFUSALS)
        });
        if is_fast {
            self.note(Rule::FastPolling, key, event.client);
        }
        let hold = event.owner.as_ref().and_then(|owner| view.locks().hold_of(key, owner));
        if hold.is_some_and(|hold| ![0, event.client].contains(&hold.client)) {
            self.note(Rule::SharedValue, key, event.client);
        }
    }

    fn not_held(&self, event: &RequestEvent, asked: HolderRequest) {
        let Some(late) = event.late else { return };
        self.note(Rule::Late, event.key(), event.client);
        if asked == HolderRequest::Release && late.reason == EndReason::Expired && late.renewals == 0 {
            self.note(Rule::ShortLease, event.key(), event.client);
        }
    }
}

/// A client whose refusals are closer together polls too fast: 20 a second.
const FAST_POLLING_MS: u32 = 50;
/// After that many refusals a client is said to poll too fast, and again after as many more.
const FAST_REFUSALS: u32 = 20;
