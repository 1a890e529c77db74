//! Who holds which lock, and who waits for it: LOCK.TOKEN, LOCK.WHO, LOCK.LIST, LOCK.WAITERS, LOCK.GRAPH.
//!
//! Rule    a user sees the locks of the keys for which it may send LOCK.WHO.
//! Locks   LOCK.LIST and LOCK.GRAPH lock one shard at a time: LOCK.LIST for at most [`KEYS_PER_LOCK`] keys. LOCK.WHO and
//!         LOCK.WAITERS also lock the shards of the queue of Redisson's fair lock. A client is looked up while a shard is
//!         locked.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use super::SINCE;
use super::fair;
use super::reader::Reader;
use super::replies::{answer_client, answer_meta, answer_type, maybe_bulk, maybe_integer, number};
use crate::commands::row::{Flags, Group, Row, integer, key, pattern, text};
use crate::commands::scan::{ScanOptions, cursor};
use crate::commands::{Args, Call, Outcome, Shared};
use crate::keyspace::{Asker, HeldLock, LockHolder, Shown, Waiter};
use crate::locks::Mode;
use crate::state::clients::{Client, ClientId, Names};
use crate::state::polling::{Pollers, Polls};
use crate::state::wait::Place;
use crate::types::lock::LockKind;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Lock, "LOCK.GRAPH", SINCE, graph)
        .summary("Returns every queued wait for a lock, and the owners it waits for.")
        .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::SUMS).with(Flags::LINEAR)),
    Row::new(Group::Lock, "LOCK.LIST", SINCE, list)
        .summary("Returns some locks of the database, their holders, and the next cursor.")
        .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::SUMS).with(Flags::LINEAR))
        .args(&[
            pattern("pattern").after("MATCH").maybe(),
            text("owner").after("OWNER").maybe(),
            integer("held-milliseconds").after("HELD-LONGER").maybe(),
            integer("waited-milliseconds").after("WAITED-LONGER").maybe(),
            integer("count").after("COUNT").maybe(),
            integer("cursor").after("CURSOR").maybe(),
        ]),
    Row::new(Group::Lock, "LOCK.TOKEN", SINCE, token)
        .summary("Returns the fencing token of a lock while a value owns it.")
        .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::FAST))
        .args(&[key("key"), text("value")]),
    Row::new(Group::Lock, "LOCK.WAITERS", SINCE, waiters)
        .summary("Returns who waits for a lock, in the order of its queue.")
        .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::LINEAR))
        .args(&[key("key")]),
    Row::new(Group::Lock, "LOCK.WHO", SINCE, who)
        .summary("Returns who holds a key, since when, and how many wait for its lock.")
        .flags(Flags::READONLY.with(Flags::NOSCRIPT).with(Flags::LINEAR))
        .args(&[key("key")]),
];

/// Keys that LOCK.LIST visits under one lock of a shard.
const KEYS_PER_LOCK: u64 = 16;
/// Bytes of a reply of LOCK.LIST to which no further keys are added.
const LIST_BYTES_FULL: usize = 1024 * 1024;
/// Bytes of a key that LOCK.LIST and LOCK.GRAPH show. A longer one is the name of no lock that people look for, and would
/// make their replies too long to be read. LOCK.WHO shows it.
const KEY_BYTES_SHOWN: usize = 64 * 1024;
/// Holders of one lock that LOCK.LIST and LOCK.GRAPH show. LOCK.WHO shows all.
const HOLDERS_SHOWN: usize = 100;

fn token(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;

    let token = call.view.locks().token_of(name, value);

    maybe_integer(&mut call.reply, token);
    Ok(Outcome::Replied)
}

fn who(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let queue = fair::queue_of(call, name)?;
    let held = call.view.locks().held_key(name, Shown::First(usize::MAX));

    match held {
        Some(mut held) if !queue.is_empty() => {
            held.waiters = held.waiters.saturating_add(queue.len());
            Answer::new(&mut call.reply, call.shared, call.now).lock(name, &held);
        }
        Some(mut held) => {
            let polling = call.shared.registries.clients.polling(call.view.key_hash(name), call.now.lock);
            let with = |pollers, (_, polls): &(Arc<Client>, Polls)| Some(Pollers::with(pollers, *polls));
            if let Some(pollers) = polling.iter().fold(None, with) {
                held.add_pollers(&pollers);
            }
            Answer::new(&mut call.reply, call.shared, call.now).lock(name, &held);
        }
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// What LOCK.LIST looks for.
#[derive(Debug)]
struct Wanted<'a> {
    /// COUNT and MATCH.
    options: ScanOptions<'a>,
    cursor: u64,
    owner: Option<&'a [u8]>,
    held_ms: u64,
    waited_ms: Option<u64>,
}

impl<'a> Wanted<'a> {
    fn take(args: &mut Args<'a>) -> Result<Self, Refusal> {
        let (mut owner, mut held_ms, mut waited_ms, mut start) = (None, 0, None, 0);
        let options = ScanOptions::take(args, |args| {
            if args.take("OWNER") {
                owner = Some(args.word()?);
            } else if args.take("HELD-LONGER") {
                held_ms = millis(args)?;
            } else if args.take("WAITED-LONGER") {
                waited_ms = Some(millis(args)?);
            } else if args.take("CURSOR") {
                start = cursor(args)?;
            } else {
                return Ok(false);
            }
            Ok(true)
        })?;
        Ok(Self { options, cursor: start, owner, held_ms, waited_ms })
    }

    fn fits(&self, held: &HeldLock, now: LockTime) -> bool {
        let held_ms = |holder: &LockHolder| holder.since.map_or(0, |since| now.millis_since(since));
        let has_holder = held.holders.iter().any(|holder| held_ms(holder) >= self.held_ms);
        let waited = held.waits_since.map(|since| now.millis_since(since));
        has_holder && self.waited_ms.is_none_or(|wanted| waited.is_some_and(|waited| waited >= wanted))
    }
}

/// A duration that a lock must have been held or waited for.
fn millis(args: &mut Args<'_>) -> Result<u64, Refusal> {
    u64::try_from(args.integer()?).map_err(|_| Refusal::NotAnInteger)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let wanted = Wanted::take(&mut call.args)?;

    let reader = Reader::of(call.session);
    let is_wanted = |name: &[u8]| wanted.options.fits(name) && is_shown(&reader, name);
    let pollers = call.shared.registries.clients.pollers(call.now.lock);
    let (mut count, mut locks) = (0_usize, Vec::new());
    let shown = wanted.owner.map_or(Shown::First(HOLDERS_SHOWN), Shown::Owner);
    let (mut cursor, mut left) = (wanted.cursor, wanted.options.count);
    // An empty shard takes one step. The number of shards bounds these steps.
    while left > 0 {
        let (keys, mut found) = (left.min(KEYS_PER_LOCK), Vec::new());
        let (next, seen) =
            call.view.locks().scan(cursor, keys, shown, &is_wanted, &mut |name, hash, held| {
                found.push((Bytes::copy_from_slice(name), hash, held));
            })?;
        cursor = next;
        for (name, hash, mut held) in found {
            let fair = fair::queue_apart(call, &name, held.kind);
            held.waiters = held.waiters.saturating_add(fair.len());
            // Who waits in the queue of a fair lock polls it, too.
            if let Some(pollers) = pollers.get(&hash).filter(|_| fair.is_empty()) {
                held.add_pollers(pollers);
            }
            if wanted.fits(&held, call.now.lock) {
                count = count.saturating_add(1);
                let mut reply = Reply::new(&mut locks, call.reply.protocol());
                Answer::new(&mut reply, call.shared, call.now).lock(&name, &held);
            }
        }
        // COUNT is a hint, as that of SCAN: long keys, names and metadata make a step shorter.
        if cursor == 0 || locks.len() > LIST_BYTES_FULL {
            break;
        }
        left = left.saturating_sub(seen);
    }

    call.reply.array(2);
    call.reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    call.reply.array(count);
    call.reply.raw(&locks);
    Ok(Outcome::Replied)
}

fn waiters(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let fair = fair::queue_of(call, name)?;
    // One holder is enough to know that it is held.
    let kind = call.view.locks().held_key(name, Shown::First(1)).map(|held| held.kind);
    let queued: Vec<Arc<Waiter>> = call.view.queues().lock_waiters(name).map(Arc::clone).collect();
    let clients = &call.shared.registries.clients;
    // A free lock can be polled if a request waits for it. Who waits in the queue of a fair lock polls it, too.
    let polled = kind.or((!queued.is_empty()).then_some(LockKind::Exclusive)).filter(|_| fair.is_empty());
    let polling = polled.map(|kind| (kind, clients.polling(call.view.key_hash(name), call.now.lock)));

    let askers = queued.iter().filter_map(|waiter| Waits::of_waiter(waiter, name));
    let pollers = polling.iter().flat_map(|(kind, polling)| {
        polling.iter().map(|(client, polls)| Waits {
            owner: None,
            client: Some(client),
            since: Some(polls.since),
            how: "polling",
            mode: Mode { kind: *kind, permits: 1 },
            more: More::default(),
        })
    });
    let kind = kind.unwrap_or(LockKind::Reentrant);
    let fair = fair.iter().map(|owner| Waits {
        owner: Some(owner),
        client: None,
        since: None,
        how: "queued",
        mode: Mode { kind, permits: 1 },
        more: More::default(),
    });
    // Each of these is in order of time. The queue of the server comes first.
    let waiters: Vec<_> = askers.chain(fair).chain(pollers).collect();
    call.reply.array(waiters.len());
    let mut answer = Answer::new(&mut call.reply, call.shared, call.now);
    waiters.iter().for_each(|waits| answer.waits(waits));
    Ok(Outcome::Replied)
}

/// Who waits for a lock, as LOCK.WAITERS shows it.
#[derive(Debug)]
struct Waits<'w> {
    owner: Option<&'w Bytes>,
    client: Option<&'w Client>,
    since: Option<LockTime>,
    how: &'static str,
    mode: Mode,
    more: More,
}

/// What only some requests that wait have.
#[derive(Clone, Copy, Debug, Default)]
struct More {
    /// How many locks a request with ANY waits for, and of how many; `None`: for all that it names.
    choice: Option<(usize, usize)>,
    priority: u8,
}

impl More {
    fn of(asker: &Asker<'_>, waiter: &Waiter) -> Self {
        let choice = asker.request.any().map(|any| (any, waiter.wait.keys.len()));
        Self { choice, priority: asker.request.priority.level }
    }

    /// How many fields it has.
    fn len(self) -> usize {
        usize::from(self.priority > 0).saturating_add(self.choice.map_or(0, |_| 2))
    }
}

impl<'w> Waits<'w> {
    fn of_waiter(waiter: &'w Waiter, key: &[u8]) -> Option<Self> {
        let (asker, mode) = (waiter.serve.asker()?, waiter.mode_of(key)?);
        let Asker { owner, client, since, .. } = asker;
        let (owner, client, since) = (Some(owner), Some(&**client), Some(since));
        Some(Self { owner, client, since, how: "queued", mode, more: More::of(&asker, waiter) })
    }
}

/// A queued wait, as LOCK.GRAPH shows it.
#[derive(Debug)]
struct Edge {
    /// The place of the wait among all.
    place: Place,
    owner: Bytes,
    waits_for: Bytes,
    held_by: Arc<[Bytes]>,
    more: More,
}

fn graph(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let reader = Reader::of(call.session);
    let mut edges = Vec::new();
    call.view.locks().each_queue(HOLDERS_SHOWN, |queue| {
        if !is_shown(&reader, queue.key) {
            return;
        }
        let holders = queue.lock.into_iter().flat_map(|held| held.holders);
        let held_by: Arc<[Bytes]> = holders.filter_map(|holder| holder.owner).collect();
        edges.extend(queue.waiters.iter().filter_map(|waiter| {
            let asker = waiter.serve.asker()?;
            let (place, owner) = (waiter.wait.place, asker.owner.clone());
            let (waits_for, held_by) = (queue.key.clone(), Arc::clone(&held_by));
            Some(Edge { place, owner, waits_for, held_by, more: More::of(&asker, waiter) })
        }));
    })?;
    edges.sort_by(|a, b| (a.place, &a.waits_for).cmp(&(b.place, &b.waits_for)));
    edges.extend(fair_edges(call, &reader)?);

    call.reply.array(edges.len());
    for edge in edges {
        let mut answer = Answer::new(&mut call.reply, call.shared, call.now);
        answer.reply.map(edge.more.len().saturating_add(3));
        answer.field("owner").bulk(&edge.owner);
        answer.field("waits-for").bulk(&edge.waits_for);
        answer.field("held-by").bulks(&edge.held_by);
        answer.more(edge.more);
    }
    Ok(Outcome::Replied)
}

/// The waits in the queues of Redisson's fair locks. They come last, because nobody knows when they have begun.
fn fair_edges(call: &mut Call<'_, '_>, reader: &Reader) -> Result<Vec<Edge>, Refusal> {
    let (mut edges, mut cursor) = (Vec::new(), 0);
    if call.view.whole().counts().locks.held[LockKind::Reentrant.index()] == 0 {
        return Ok(edges);
    }
    loop {
        let (mut found, is_shown) = (Vec::new(), |name: &[u8]| is_shown(reader, name));
        let shown = Shown::First(HOLDERS_SHOWN);
        (cursor, _) =
            call.view.locks().scan(cursor, KEYS_PER_LOCK, shown, &is_shown, &mut |name, _, held| {
                found.push((Bytes::copy_from_slice(name), held));
            })?;
        for (name, held) in found {
            let owners = fair::queue_apart(call, &name, held.kind);
            let held_by: Arc<[Bytes]> = held.holders.into_iter().filter_map(|holder| holder.owner).collect();
            edges.extend(owners.into_iter().map(|owner| Edge {
                place: Place { rank: i64::MAX, number: u64::MAX },
                owner,
                waits_for: name.clone(),
                held_by: Arc::clone(&held_by),
                more: More::default(),
            }));
        }
        if cursor == 0 {
            return Ok(edges);
        }
    }
}

/// Whether a list shows a reader the lock of a key.
fn is_shown(reader: &Reader, name: &[u8]) -> bool {
    name.len() <= KEY_BYTES_SHOWN && reader.may_see(name)
}

/// Writes locks and clients into a reply.
struct Answer<'r, 'o> {
    reply: &'r mut Reply<'o>,
    shared: &'r Shared,
    now: Now,
}

impl<'r, 'o> Answer<'r, 'o> {
    fn new(reply: &'r mut Reply<'o>, shared: &'r Shared, now: Now) -> Self {
        Self { reply, shared, now }
    }

    fn lock(&mut self, name: &[u8], held: &HeldLock) {
        let waited = held.waits_since.map(|since| self.now.lock.millis_since(since));
        self.reply.map(held.value_type.map_or(7, |_| 8));
        self.field("key").bulk(name);
        self.field("kind").bulk(held.kind_name().as_bytes());
        let limit = held.kind.limit().map(u64::from);
        maybe_integer(self.field("limit"), limit);
        self.field("holders").array(held.holders.len());
        held.holders.iter().for_each(|holder| self.holder(name, holder));
        self.field("waiters").count(held.waiters);
        maybe_integer(self.field("waited"), waited);
        self.field("polls").integer(number(held.polls));
        if let Some(value_type) = held.value_type {
            answer_type(self.reply, value_type);
        }
    }

    fn holder(&mut self, key: &[u8], holder: &LockHolder) {
        let now = self.now;
        let since = holder.since.map(|since| Now { lock: since, ..now }.wall().as_millis());
        let held = holder.since.map(|since| now.lock.millis_since(since));
        let left = holder.deadline.map(|deadline| now.millis_until(deadline).unsigned_abs());
        self.reply.map(if self.shared.beside.is_some() { 12 } else { 11 });
        self.owner(holder.owner.as_ref());
        maybe_integer(self.field("token"), holder.token);
        self.field("permits").integer(holder.permits.into());
        self.field("client");
        self.client_of(holder.client);
        maybe_integer(self.field("since"), since);
        maybe_integer(self.field("held"), held);
        maybe_integer(self.field("lease"), holder.lease_ms);
        maybe_integer(self.field("left"), left);
        self.field("renewals").integer(holder.renewals.into());
        self.field("session").integer(holder.is_of_session.into());
        answer_meta(self.field("meta"), &holder.meta);
        if let Some(beside) = &self.shared.beside {
            self.field("known").bulk(beside.known(key, holder.deadline, now.lock).as_bytes());
        }
    }

    fn waits(&mut self, waits: &Waits<'_>) {
        let waited = waits.since.map(|since| self.now.lock.millis_since(since));
        self.reply.map(waits.more.len().saturating_add(6));
        self.owner(waits.owner);
        self.field("client");
        self.client(waits.client);
        maybe_integer(self.field("waited"), waited);
        self.field("how").bulk(waits.how.as_bytes());
        self.field("kind").bulk(waits.mode.kind.name().as_bytes());
        self.field("permits").integer(waits.mode.permits.into());
        self.more(waits.more);
    }

    fn more(&mut self, more: More) {
        if let Some((any, of)) = more.choice {
            self.field("any").count(any);
            self.field("of").count(of);
        }
        if more.priority > 0 {
            self.field("priority").integer(more.priority.into());
        }
    }

    fn owner(&mut self, owner: Option<&Bytes>) {
        maybe_bulk(self.field("owner"), owner.map(|owner| &owner[..]));
    }

    /// The client of that number; null if its connection is gone. That of a lock of another server is not known.
    fn client_of(&mut self, id: ClientId) {
        if self.shared.beside.is_some() {
            return answer_client(self.reply, id, "unknown", &Names::default());
        }
        let client = self.shared.registries.clients.get(id);
        self.client(client.as_deref());
    }

    fn client(&mut self, client: Option<&Client>) {
        match client {
            Some(client) => {
                answer_client(self.reply, client.id, &client.address.peer, &client.names.lock().clone())
            }
            None => self.reply.null(),
        }
    }

    /// Writes the name of a field; the value is written next.
    fn field(&mut self, name: &str) -> &mut Reply<'o> {
        self.reply.bulk(name.as_bytes());
        self.reply
    }
}
