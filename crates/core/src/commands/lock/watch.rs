//! What the log says of locks that are waited for or held for long: `lock-wait-warn`, `lock-held-warn`.
//!
//! Owns    the lines, and how far the search for long holds has come.
//! Rule    the tick looks at requests that wait in the order in which they came, and at each once. It looks for long holds
//!         step by step, and only while `lock-held-warn` is on.
//! Rule    a client that polls is noticed by its own request, and so is a circle of requests that wait for each other. What
//!         becomes of either is seen as other observers see it.
//! Bounds  ten lines of each kind in a second; one line says how many were left out. Names are cut.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::log_name::LogName;

use crate::commands::Shared;
use crate::keyspace::{Due, HeldLock, LockHolder, LockObserver, ShardSet, Shown, View, Waiter};
use crate::locks::{RequestEvent, RequestOutcome};
use crate::state::clients::{Client, ClientId};
use crate::state::log_limiter::LineBudget;
use crate::state::registries::Registries;
use crate::state::settings;

/// What has been logged.
#[derive(Debug, Default)]
pub struct LockWatch {
    waits: LineBudget,
    ends: LineBudget,
    holds: LineBudget,
    scan: Mutex<Scan>,
}

/// The search for locks that are held for long.
#[derive(Debug, Default)]
struct Scan {
    /// The database and cursor of the next step; `None`: no pass is under way.
    place: Option<(u16, u64)>,
    /// When the next pass begins.
    next: LockTime,
    /// Whether this pass has seen a lock that may become long.
    has_later: bool,
    /// The latest grant that this pass is about.
    until: LockTime,
    /// The latest grant that earlier passes were about.
    after: Option<LockTime>,
}

/// Waiting requests that one tick looks at.
const WAITS_PER_TICK: usize = 256;
/// Holders of one lock that are looked at.
const HOLDERS_MAX: usize = 100;
/// Milliseconds between two passes over all locks, which is also how late a long hold may be noticed.
const PASS_MS: u64 = 1_000;
/// Milliseconds between two steps of a pass.
const STEP_MS: u64 = 10;
/// Shards that one step looks into.
const SHARDS_PER_STEP: usize = 64;
/// Keys of a shard that are looked at under one lock.
const KEYS_PER_LOCK: u64 = 64;

/// Logs what has become due. Returns when to call it again.
pub(crate) fn watch_locks(shared: &Shared, now: Now) -> Due {
    let watch = &shared.locks.watch;
    let Due::Next(waits) = watch_waits(shared, now) else { return Due::More };
    let holds = watch_holds(shared, now);
    if let Some(left_out) = watch.waits.take_left_out(now.lock) {
        tracing::warn!(left_out, "More requests wait for locks for long");
    }
    if let Some(left_out) = watch.ends.take_left_out(now.lock) {
        tracing::warn!(left_out, "More requests that have waited for locks for long have ended");
    }
    if let Some(left_out) = watch.holds.take_left_out(now.lock) {
        tracing::warn!(left_out, "More locks are held for long");
    }
    let lines = [&watch.waits, &watch.ends, &watch.holds].into_iter().filter_map(LineBudget::due);
    Due::Next(lines.chain(waits).chain(holds).min())
}

fn watch_waits(shared: &Shared, now: Now) -> Due {
    let long_ms = shared.settings.get(settings::LOCK_WAIT_WARN);
    if long_ms == 0 {
        return Due::Next(None);
    }
    let Some(since_ms) = now.lock.as_millis().checked_sub(long_ms) else {
        return Due::Next(Some(LockTime::from_millis(long_ms)));
    };
    let overdue = shared.locks.waits.overdue(LockTime::from_millis(since_ms), WAITS_PER_TICK);
    overdue.waiters.iter().for_each(|waiter| report_wait(shared, waiter, now));
    match overdue.next_since {
        Some(_) if overdue.waiters.len() == WAITS_PER_TICK => Due::More,
        next_since => Due::Next(next_since.map(|since| since + long_ms)),
    }
}

/// Logs that requests wait for each other's locks.
pub(super) fn report_circle(shared: &Shared, text: &str) {
    if shared.locks.watch.waits.allows(shared.clock.now().lock) {
        tracing::warn!(%text, "Requests wait for each other's locks");
    }
}

/// Logs that a request waits in the queue of a lock.
fn report_wait(shared: &Shared, waiter: &Arc<Waiter>, now: Now) {
    let (wait, Some(asker)) = (&waiter.wait, waiter.serve.asker()) else { return };
    if wait.claim.is_taken() || !shared.locks.watch.waits.allows(now.lock) {
        return;
    }
    waiter.serve.report();
    let keys: Vec<&[u8]> = wait.keys.iter().map(|key| &key[..]).collect();
    let mut line = WaitLine {
        key: keys.first().copied().unwrap_or_default(),
        owner: Some(asker.owner),
        client: asker.client,
        since: asker.since,
        how: "queued",
        position: None,
        queue: None,
    };
    let view = View::try_lock(&shared.keyspace, ShardSet::Keys(&keys), wait.database, now, shared.events());
    let Some(mut view) = view else { return line.log(&shared.registries, None, now.lock) };
    // Of several locks the first that others hold.
    let mut held = None;
    for key in &keys {
        let lock = view.locks().held(key, Shown::First(HOLDERS_MAX));
        let is_others =
            |lock: &HeldLock| lock.holders.iter().any(|holder| holder.owner.as_ref() != Some(asker.owner));
        if lock.as_ref().is_some_and(is_others) {
            (line.key, held) = (key, lock);
            break;
        }
    }
    let ahead = view.queues().lock_waiters(line.key).position(|other| other.wait.place == wait.place);
    line.position = ahead.map(|ahead| ahead.saturating_add(1));
    line.queue = Some(view.queues().lock_queue_len(line.key));
    line.log(&shared.registries, held.as_ref(), now.lock);
    view.finish(&shared.registries);
}

/// Logs what becomes of requests that have waited for long, and of clients that have polled for long.
#[derive(Debug)]
pub(in crate::commands) struct WaitLog(pub(in crate::commands) Arc<LockWatch>);

impl LockObserver for WaitLog {
    fn asked(&self, event: &RequestEvent, view: &mut View<'_>, registries: &Registries) {
        let Some(client) = registries.clients.get(event.client) else { return };
        match (event.outcome, event.wait) {
            (RequestOutcome::Waits, _) => {}
            (outcome, Some(wait)) if wait.is_reported => {
                self.log_end(event, &client, (event.key(), wait.since), ended(outcome), view);
            }
            (RequestOutcome::Refused(_), None) if event.is_long_poll => {
                self.log_polling(event, &client, view, registries);
            }
            (outcome @ RequestOutcome::Granted { .. }, None) if event.is_long_poll => {
                let (polled, since) = client.polling.reported();
                let key = event.keys.iter().find(|key| view.key_hash(key) == polled);
                key.iter().for_each(|key| {
                    self.log_end(event, &client, (key, since), ended(outcome), view);
                });
            }
            _ => {}
        }
    }
}

/// The word of the log for the end of a wait.
pub(super) fn ended(outcome: RequestOutcome) -> &'static str {
    match outcome {
        RequestOutcome::Abandoned => "disconnected",
        RequestOutcome::Granted { .. } => "granted",
        RequestOutcome::TimedOut => "timed out",
        RequestOutcome::Unblocked => "unblocked",
        RequestOutcome::NotHeld(_) | RequestOutcome::Refused(_) | RequestOutcome::Waits => "refused",
    }
}

impl WaitLog {
    fn log_polling(
        &self,
        event: &RequestEvent,
        client: &Client,
        view: &mut View<'_>,
        registries: &Registries,
    ) {
        let now = view.now().lock;
        if !self.0.waits.allows(now) {
            return client.polling.forget_report();
        }
        let (key, since) = (event.key(), client.polling.reported().1);
        let held = view.locks().held_key(key, Shown::First(HOLDERS_MAX));
        let owner = event.owner.as_ref();
        let line = WaitLine { key, owner, client, since, how: "polling", position: None, queue: None };
        line.log(registries, held.as_ref(), now);
    }

    /// Logs how a wait has ended that was logged before, with the token of a grant.
    fn log_end(
        &self,
        event: &RequestEvent,
        client: &Client,
        (key, since): (&[u8], LockTime),
        outcome: &'static str,
        view: &mut View<'_>,
    ) {
        let now = view.now().lock;
        if !self.0.ends.allows(now) {
            return;
        }
        let owner = event.owner.as_ref();
        let hold = owner.and_then(|owner| view.locks().hold_of(key, owner));
        let token = hold.filter(|_| outcome == "granted").map(|hold| hold.token);
        tracing::warn!(
            key = %LogName(key),
            owner = owner.map(|owner| display(LogName(owner))),
            client = client.id,
            peer = client.address.peer,
            waited_ms = now.millis_since(since),
            outcome,
            token,
            "A request that has waited for a lock for long has ended"
        );
    }
}

/// What a line says of a request that waits.
#[derive(Clone, Copy, Debug)]
struct WaitLine<'l> {
    key: &'l [u8],
    owner: Option<&'l Bytes>,
    client: &'l Client,
    since: LockTime,
    /// `queued` or `polling`.
    how: &'static str,
    /// Its place in the queue; the first is 1.
    position: Option<usize>,
    /// How many requests are in the queue.
    queue: Option<usize>,
}

impl WaitLine<'_> {
    fn log(self, registries: &Registries, held: Option<&HeldLock>, now: LockTime) {
        let Self { key, owner, client, since, how, position, queue } = self;
        let holder = held.and_then(|held| held.holders.first());
        let (holder_peer, holder_name) = names(registries, holder.map_or(0, |holder| holder.client));
        let name = name_of(client);
        tracing::warn!(
            key = %LogName(key),
            owner = owner.map(|owner| display(LogName(owner))),
            client = client.id,
            peer = client.address.peer,
            name = name.as_deref(),
            waited_ms = now.millis_since(since),
            how,
            position,
            queue,
            holder = holder.and_then(|holder| holder.owner.as_ref()).map(|owner| display(LogName(owner))),
            holders = held.map(|held| held.holders.len()),
            holder_client = holder.map(|holder| holder.client),
            holder_peer,
            holder_name,
            token = holder.and_then(|holder| holder.token),
            held_ms = held_ms(holder, now),
            left_ms = left_ms(holder, now),
            "A request waits for a lock for long"
        );
    }
}

fn held_ms(holder: Option<&LockHolder>, now: LockTime) -> Option<u64> {
    holder.and_then(|holder| holder.since).map(|since| now.millis_since(since))
}

fn left_ms(holder: Option<&LockHolder>, now: LockTime) -> Option<u64> {
    holder.and_then(|holder| holder.deadline).map(|deadline| deadline.time().millis_since(now))
}

/// The address and the name of a client, as far as they are known.
fn names(registries: &Registries, id: ClientId) -> (Option<String>, Option<String>) {
    let client = registries.clients.get(id);
    client.map_or((None, None), |client| (Some(client.address.peer.clone()), name_of(&client)))
}

fn name_of(client: &Client) -> Option<String> {
    let names = client.names.lock();
    (!names.name.is_empty()).then(|| LogName(names.name.as_bytes()).to_string())
}

/// Takes a step of the search for long holds, if one is due. Returns when the next one is.
///
/// A pass is about the grants that have become long since the pass before: so each is logged once, and nothing has to be
/// remembered about it.
fn watch_holds(shared: &Shared, now: Now) -> Option<LockTime> {
    let (mut scan, long_ms) = (shared.locks.watch.scan.lock(), shared.settings.get(settings::LOCK_HELD_WARN));
    if long_ms == 0 {
        *scan = Scan::default();
        return None;
    }
    let (mut database, mut cursor) = match scan.place {
        Some(place) => place,
        None if now.lock < scan.next => return Some(scan.next),
        None => {
            scan.next = now.lock + PASS_MS;
            let Some(until_ms) = now.lock.as_millis().checked_sub(long_ms) else { return Some(scan.next) };
            (scan.until, scan.has_later) = (LockTime::from_millis(until_ms), false);
            (0, 0)
        }
    };
    let since = (scan.after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Included(scan.until));
    let mut has_later = scan.has_later;
    let mut is_meant = |time: LockTime| {
        has_later |= time > scan.until;
        since.contains(&time)
    };
    for _ in 0..SHARDS_PER_STEP {
        let step = View::try_lock(&shared.keyspace, ShardSet::Nothing, database, now, shared.events());
        let next = step.and_then(|mut view| {
            let visit = |key: &[u8], held: HeldLock, first: Option<&Arc<Waiter>>| {
                log_holds(shared, (key, &held, first), &since, now.lock);
            };
            let step = view.locks().scan_since(cursor, KEYS_PER_LOCK, &mut is_meant, HOLDERS_MAX, visit);
            view.finish(&shared.registries);
            step.ok()
        });
        // A long call holds the shard.
        let Some(next) = next else { break };
        cursor = next;
        if cursor == 0 {
            database = database.saturating_add(1);
            if database == shared.keyspace.databases() {
                (scan.place, scan.after) = (None, scan.after.max(Some(scan.until)));
                // Without such a lock, time has no reason to go on: a clock of tests may stand still.
                return has_later.then(|| scan.next.max(now.lock + 1));
            }
        }
    }
    (scan.place, scan.has_later) = (Some((database, cursor)), has_later);
    Some(now.lock + STEP_MS)
}

/// Logs the holders of a lock since a time of `since`.
fn log_holds(
    shared: &Shared,
    (key, held, first): (&[u8], &HeldLock, Option<&Arc<Waiter>>),
    since: &(Bound<LockTime>, Bound<LockTime>),
    now: LockTime,
) {
    let first = first.and_then(|waiter| waiter.serve.asker());
    let is_meant = |holder: &&LockHolder| holder.since.is_some_and(|time| since.contains(&time));
    for holder in held.holders.iter().filter(is_meant) {
        if !shared.locks.watch.holds.allows(now) {
            continue;
        }
        let (peer, name) = names(&shared.registries, holder.client);
        tracing::warn!(
            key = %LogName(key),
            kind = held.kind.name(),
            owner = holder.owner.as_ref().map(|owner| display(LogName(owner))),
            client = holder.client,
            peer,
            name,
            token = holder.token,
            held_ms = held_ms(Some(holder), now),
            left_ms = left_ms(Some(holder), now),
            renewals = holder.renewals,
            waiters = held.waiters,
            waiter = first.map(|asker| display(LogName(asker.owner))),
            waiter_client = first.map(|asker| asker.client.id),
            waiter_peer = first.map(|asker| asker.client.address.peer.as_str()),
            "A lock is held for long"
        );
    }
}
