//! LOCK.LINT: what clients do wrong with locks.
//!
//! Owns    which requests are mistakes. The findings are in `state::lock_lint`.
//! Rule    while the setting `lock-lint` is off, a request costs one branch.

use bytes::Bytes;

use crate::clock::{Deadline, Now};
use crate::commands::row::{Flags, Group, Row, token};
use crate::commands::{Call, Outcome, Shared};
use crate::error::Refusal;
use crate::keyspace::View;
use crate::resp::Reply;
use crate::state::clients::Client;
use crate::state::ended_lock::EndReason;
use crate::state::lock_lint::{LockLint, Rule};

use super::SINCE;
use super::replies::{answer_client, number};

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Lock, "LOCK.LINT", SINCE, lint)
    .summary("Returns what clients do wrong with locks, with advice; RESET forgets it.")
    .flags(Flags::NOSCRIPT.with(Flags::DANGEROUS).with(Flags::LINEAR))
    .args(&[token("reset", "RESET").maybe()])];

fn lint(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let resets = call.args.take("RESET");
    call.args.finish()?;

    let lint = &call.shared.registries.lock_lint;
    if resets {
        lint.reset();
        call.reply.ok();
        return Ok(Outcome::Replied);
    }

    let all = lint.all();
    call.reply.array(all.len());
    for ((rule, key, id), finding) in all {
        let last = Now { lock: finding.last, ..call.now }.wall().as_millis();
        call.reply.map(6);
        pair(&mut call.reply, "rule", rule.name());
        call.reply.bulk(b"key");
        call.reply.bulk(&key);
        call.reply.bulk(b"client");
        answer_client(&mut call.reply, id, &finding.peer, &finding.names);
        call.reply.bulk(b"count");
        call.reply.integer(number(finding.count));
        call.reply.bulk(b"last");
        call.reply.integer(number(last));
        pair(&mut call.reply, "advice", rule.advice());
    }
    Ok(Outcome::Replied)
}

fn pair(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}

/// Who does something with a lock, for the rules.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct Linter<'c> {
    /// Where mistakes are noted, if they are.
    lint: Option<&'c LockLint>,
    client: &'c Client,
    now: Now,
}

/// What a late request asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::commands) enum Asked {
    Extend,
    Release,
}

impl<'c> Linter<'c> {
    #[inline]
    pub(in crate::commands) fn new(shared: &'c Shared, client: &'c Client, now: Now) -> Self {
        let lint = shared.settings.lints_locks().then_some(&*shared.registries.lock_lint);
        Self { lint, client, now }
    }

    /// For a request that has waited: `lint` says where mistakes were noted when it began to wait.
    pub(super) fn after_wait(lint: Option<&'c LockLint>, client: &'c Client, now: Now) -> Self {
        Self { lint, client, now }
    }

    /// Whether anything is to be noted.
    #[inline]
    pub(in crate::commands) fn is_on(self) -> bool {
        self.lint.is_some()
    }

    fn note(self, rule: Rule, key: &[u8]) {
        if let Some(lint) = self.lint {
            lint.note(rule, key, self.client, self.now.lock);
        }
    }

    /// The client has taken a lock under this value.
    #[cold]
    pub(in crate::commands) fn taken(self, view: &mut View<'_>, key: &[u8], value: &[u8]) {
        let Some(grant) = view.grant_of(key) else { return };
        if grant.lease_ms.is_none() && !grant.is_native {
            self.note(Rule::NoLease, key);
        }
        self.granted(view, &[Bytes::copy_from_slice(key)], value, grant.lease_ms.map(u64::from));
    }

    /// The client was granted locks under this name, all at once.
    #[cold]
    pub(in crate::commands) fn granted(
        self,
        view: &mut View<'_>,
        keys: &[Bytes],
        owner: &[u8],
        lease_ms: Option<u64>,
    ) {
        let Some(lint) = self.lint else { return };
        let client = self.client.id;
        for key in keys {
            if view.past_locks(key).iter().any(|past| past.is_of(owner) && past.holder != client) {
                self.note(Rule::SharedValue, key);
            }
        }
        let until = lease_ms.map(|millis| self.now.lock + millis);
        for key in lint.taken(client, keys, until, self.now.lock) {
            self.note(Rule::OppositeOrders, &key);
        }
    }

    /// The client asks for locks by a LOCK command under this name. If another client holds one of them under it, both get
    /// the same grant.
    #[cold]
    pub(in crate::commands) fn asks(self, view: &mut View<'_>, keys: &[Bytes], owner: &[u8]) {
        for key in keys {
            if view.hold_of(key, owner).is_some_and(|hold| ![0, self.client.id].contains(&hold.client)) {
                self.note(Rule::SharedValue, key);
            }
        }
    }

    /// The client was refused a lock for which it has asked under this value.
    #[cold]
    pub(in crate::commands) fn refused(self, view: &mut View<'_>, key: &[u8], value: &[u8]) {
        let (place, now) = (view.key_hash(key), self.now.lock);
        let is_fast = self.client.polling.polls(place, now).is_some_and(|polls| {
            polls.mean_ms < FAST_POLLING_MS && polls.refusals.is_multiple_of(FAST_REFUSALS)
        });
        if is_fast {
            self.note(Rule::FastPolling, key);
        }
        let holder = view.grant_of(key).map_or(self.client.id, |grant| grant.holder);
        let is_same = view.entry(key).string().is_ok_and(|held| held == Some(value));
        if is_same && holder != self.client.id {
            self.note(Rule::SharedValue, key);
        }
    }

    /// The client deletes a key without comparing its value.
    #[cold]
    pub(in crate::commands) fn deletes(self, view: &mut View<'_>, key: &[u8]) {
        if view.grant_of(key).is_some_and(|grant| grant.holder != self.client.id) {
            self.note(Rule::ForeignDelete, key);
        }
        self.releases(key);
    }

    /// The client releases a lock.
    #[cold]
    pub(in crate::commands) fn releases(self, key: &[u8]) {
        if let Some(lint) = self.lint {
            lint.released(self.client.id, key);
        }
    }

    /// A lock with this lease gets a new one before that end of the old one.
    #[cold]
    pub(in crate::commands) fn renews(self, key: &[u8], lease_ms: Option<u64>, until: Option<Deadline>) {
        if let (Some(lease_ms), Some(until)) = (lease_ms, until)
            && self.now.millis_until(until).saturating_mul(3) < number(lease_ms)
        {
            self.note(Rule::LateRenewal, key);
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
        if view.has_lost(about.0) {
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
        let Some(past) = view.note_late(key, owner, request) else { return };
        if !self.is_on() {
            return;
        }
        self.note(Rule::Late, key);
        if asked == Asked::Release && past.reason == EndReason::Expired && past.renewals == 0 {
            self.note(Rule::ShortLease, key);
        }
    }
}

/// A client whose refusals are closer together polls too fast: 20 a second.
const FAST_POLLING_MS: u32 = 50;
/// After that many refusals a client is said to poll too fast, and again after as many more.
const FAST_REFUSALS: u32 = 20;
