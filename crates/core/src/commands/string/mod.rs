//! Commands on whole strings: SET, GET and similar.
//!
//! Source  Redis 7.0 `t_string.c`; Valkey 9.1 for MSETEX.

pub(in crate::commands) mod bytes;
pub(in crate::commands) mod compare;
pub(in crate::commands) mod increx;
pub(in crate::commands) mod number;

use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Words;

use crate::commands::args;
use crate::commands::expiry::{self, LEASE, LeaseOption, NEW_LEASE, Unit};
use crate::commands::row::{Arg, Flags, Group, Row, block, integer, key, key_count, one_of, text, token};
use crate::commands::string::compare::{CONDITION, Condition};
use crate::commands::{Args, Call, Outcome, Shared};
use crate::keyspace::{Entry, Lease, Occupied};
use crate::locks::{RefusedBy, RequestOutcome};
use crate::state::session::Session;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::String, "GET", "1.0.0", get)
        .summary("Returns the string value of a key.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::String, "GETDEL", "6.2.0", getdel)
        .summary("Returns the string value of a key and deletes the key.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::String, "GETEX", "6.2.0", getex)
        .summary("Returns the string value of a key and sets or removes its lease.")
        .flags(Flags::WRITE.with(Flags::FAST))
        .args(&[key("key"), NEW_LEASE.maybe()]),
    Row::new(Group::String, "GETSET", "1.0.0", getset)
        .summary("Sets the string value of a key and returns the old value.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("value")]),
    Row::new(Group::String, "MGET", "1.0.0", mget)
        .summary("Returns the string values of keys, all at one instant.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key").many()]),
    Row::new(Group::String, "MSET", "1.0.1", mset)
        .summary("Sets the string values of keys, all at one instant.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[PAIR.many()]),
    Row::new(Group::String, "MSETEX", "8.4.0", msetex)
        .summary("Sets the string values of keys, with one lease, if no key exists or all do (Redis 8.4).")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[key_count(), PAIR.many(), EXISTENCE.maybe(), LEASE.maybe()]),
    Row::new(Group::String, "MSETNX", "1.0.1", msetnx)
        .summary("Sets the string values of keys, all at one instant, if no key exists.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[PAIR.many()]),
    Row::new(Group::String, "PSETEX", "2.6.0", psetex)
        .summary("Sets the string value of a key, with a lease in milliseconds.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[key("key"), integer("milliseconds"), text("value")]),
    Row::new(Group::String, "SET", "1.0.0", set)
        .summary(
            "Sets the string value of a key, if the conditions hold; creates the key if it does not exist.",
        )
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[key("key"), text("value"), CONDITION.maybe(), token("get", "GET").maybe(), LEASE.maybe()]),
    Row::new(Group::String, "SETEX", "2.0.0", setex)
        .summary("Sets the string value of a key, with a lease in seconds.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[key("key"), integer("seconds"), text("value")]),
    Row::new(Group::String, "SETNX", "1.0.0", setnx)
        .summary("Sets the string value of a key if the key does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("value")]),
];

const PAIR: Arg = block("data", &[key("key"), text("value")]);

const EXISTENCE: Arg = one_of("condition", &[token("nx", "NX"), token("xx", "XX")]);

fn get(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    answer_value(call, name)?;
    Ok(Outcome::Replied)
}

#[derive(Debug)]
struct SetOptions<'a> {
    condition: Condition<'a>,
    returns_old: bool,
    lease: LeaseOption<'a>,
}

/// The options behind a value, in the order of how often they come.
#[inline]
fn set_options<'a>(args: &mut Args<'a>) -> Result<SetOptions<'a>, Refusal> {
    const GET: u64 = args::option(b"GET");
    let mut options =
        SetOptions { condition: Condition::Always, returns_old: false, lease: LeaseOption::Absent };
    while !args.is_empty() {
        let option = args.option()?;
        let is_known = options.condition.take_existence(option)?
            || options.lease.take(option, args)?
            || options.condition.take_comparison(option, args)?;
        if !is_known && option != GET {
            return Err(Refusal::Syntax);
        }
        options.returns_old |= option == GET;
    }
    Ok(options)
}

/// The lease of a key that is set.
#[inline]
fn lease_of(option: LeaseOption<'_>, now: Now, command: &'static str) -> Result<Lease, Refusal> {
    match option {
        LeaseOption::Keep => Ok(Lease::Keep),
        LeaseOption::Persist => Err(Refusal::Syntax),
        LeaseOption::Absent => Ok(Lease::Never),
        LeaseOption::Until(unit, number) => Ok(Lease::Until(expiry::lease(unit, number, now, command)?)),
    }
}

fn set(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;
    let options = set_options(&mut call.args)?;
    let lease = lease_of(options.lease, call.now, "set")?;

    if options.returns_old {
        // Nil would say that the key was stored: a free key that calls wait for answers with the owner that is next.
        let is_free =
            options.condition == Condition::Absent && matches!(call.view.entry(name), Entry::Vacant(_));
        let next = if is_free { call.view.queues().lock_waiters(name).next() } else { None };
        match next.and_then(|waiter| waiter.serve.asker()) {
            Some(next) => call.reply.bulk(next.owner),
            None => drop(answer_value(call, name)?),
        }
    }
    let entry = call.view.entry(name);
    let holds = match options.condition {
        Condition::Always => true,
        Condition::Absent => match &entry {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => !place.is_awaited(),
        },
        Condition::Present => matches!(entry, Entry::Occupied(_)),
        comparison => comparison.holds(entry.string()?),
    };
    if holds {
        let mut stored = entry.put(value, lease);
        if options.condition == Condition::Absent {
            grant(&mut stored, call.session, call.shared);
            call.comes_to(RequestOutcome::GRANTED, name, Some(value));
        }
        announce(call, name, lease);
    } else if options.condition == Condition::Absent {
        let by = refused_by(&entry);
        call.comes_to(RequestOutcome::Refused(by), name, Some(value));
    }

    match (options.returns_old, holds) {
        (true, _) => {}
        (false, true) => call.reply.ok(),
        (false, false) => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// A key that was stored because it did not exist is a lock, which the client holds.
#[inline]
fn grant(stored: &mut Occupied<'_>, session: &Session, shared: &Shared) {
    stored.grant(shared.keyspace.next_token(), session.client.id, false);
}

/// Why a key is not stored under the condition NX: it exists, or requests wait for its lock.
#[inline]
fn refused_by(entry: &Entry<'_>) -> RefusedBy {
    match entry {
        Entry::Occupied(_) => RefusedBy::Held,
        Entry::Vacant(_) => RefusedBy::Awaited,
    }
}

/// Publishes the events of a key that was set.
fn announce(call: &mut Call<'_, '_>, name: &[u8], lease: Lease) {
    call.view.event(b'$', "set", name);
    if let Lease::Until(_) = lease {
        call.view.event(b'g', "expire", name);
    }
}

/// Answers as GET does. Returns true if the key exists.
fn answer_value(call: &mut Call<'_, '_>, name: &[u8]) -> Result<bool, Refusal> {
    match call.view.read(name) {
        Some(found) => call.reply.bulk(found.string()?),
        None => {
            call.reply.null();
            return Ok(false);
        }
    }
    Ok(true)
}

fn setnx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;

    let outcome = match call.view.entry(name) {
        Entry::Vacant(place) if !place.is_awaited() => {
            grant(&mut place.insert(value, Lease::Never), call.session, call.shared);
            RequestOutcome::GRANTED
        }
        entry => RequestOutcome::Refused(refused_by(&entry)),
    };
    call.comes_to(outcome, name, Some(value));
    if outcome == RequestOutcome::GRANTED {
        announce(call, name, Lease::Never);
    }

    call.reply.integer(i64::from(outcome == RequestOutcome::GRANTED));
    Ok(Outcome::Replied)
}

fn setex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_with_lease(call, Unit::Secs, "setex")
}

fn psetex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    set_with_lease(call, Unit::Millis, "psetex")
}

fn set_with_lease(call: &mut Call<'_, '_>, unit: Unit, command: &'static str) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let lease = Lease::Until(expiry::lease(unit, call.args.word()?, call.now, command)?);
    let value = call.args.word()?;

    call.view.entry(name).put(value, lease);
    announce(call, name, lease);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn getset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let value = call.args.word()?;

    answer_value(call, name)?;
    call.view.entry(name).put(value, Lease::Never);
    announce(call, name, Lease::Never);
    Ok(Outcome::Replied)
}

fn getdel(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    if answer_value(call, name)? {
        call.view.remove(name);
        call.view.event(b'g', "del", name);
    }
    Ok(Outcome::Replied)
}

fn getex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let mut option = LeaseOption::Absent;
    while !call.args.is_empty() {
        let name = call.args.option()?;
        if !option.take(name, &mut call.args)? || option == LeaseOption::Keep {
            return Err(Refusal::Syntax);
        }
    }

    // As in Redis, the number is checked only if the key exists. An error replaces the reply.
    if !answer_value(call, name)? {
        return Ok(Outcome::Replied);
    }
    match option {
        LeaseOption::Keep | LeaseOption::Absent => {}
        LeaseOption::Persist => {
            expiry::persist(call.view, name)?;
        }
        LeaseOption::Until(unit, number) => {
            let deadline = expiry::lease(unit, number, call.now, "getex")?;
            if let Entry::Occupied(found) = &mut call.view.entry(name) {
                expiry::set_or_delete(found, deadline, call.now)?;
            }
        }
    }
    Ok(Outcome::Replied)
}

fn mget(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.array(call.args.len());
    for name in call.args.rest() {
        // A key of another type is answered like a missing one.
        match call.view.read(name).as_ref().map(Occupied::string) {
            Some(Ok(value)) => call.reply.bulk(value),
            _ => call.reply.null(),
        }
    }
    Ok(Outcome::Replied)
}

fn mset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pairs = pairs(call.args, "mset")?;

    put_all(call, pairs, Lease::Never);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn msetnx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pairs = pairs(call.args, "msetnx")?;

    let is_free = take_all(call, pairs, Lease::Never);

    call.reply.integer(i64::from(is_free));
    Ok(Outcome::Replied)
}

fn msetex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pairs = counted_pairs(&mut call.args)?;
    let options = set_options(&mut call.args)?;
    if options.returns_old || options.condition.is_comparison() {
        return Err(Refusal::Syntax);
    }
    let lease = lease_of(options.lease, call.now, "msetex")?;

    let exist = |call: &mut Call<'_, '_>| {
        pairs.clone().all(|(name, _)| matches!(call.view.entry(name), Entry::Occupied(_)))
    };
    let holds = match options.condition {
        Condition::Absent => take_all(call, pairs.clone(), lease),
        Condition::Present if !exist(call) => false,
        _ => {
            put_all(call, pairs.clone(), lease);
            true
        }
    };

    call.reply.integer(i64::from(holds));
    Ok(Outcome::Replied)
}

/// Stores keys if none of them exists and no request waits for one: each is a lock, which the client holds from then on.
/// Returns whether it has stored them.
fn take_all<'a>(
    call: &mut Call<'_, '_>,
    pairs: impl Iterator<Item = Pair<'a>> + Clone,
    lease: Lease,
) -> bool {
    let in_the_way = pairs.clone().find_map(|(name, value)| match call.view.entry(name) {
        Entry::Vacant(place) if !place.is_awaited() => None,
        entry => Some((name, value, refused_by(&entry))),
    });
    if let Some((name, value, by)) = in_the_way {
        call.comes_to(RequestOutcome::Refused(by), name, Some(value));
        return false;
    }
    for (name, value) in pairs.clone() {
        grant(&mut call.view.entry(name).put(value, lease), call.session, call.shared);
        announce(call, name, lease);
    }
    let mut names = pairs.clone().map(|(name, _)| name);
    if let Some(first) = names.next() {
        let owner = pairs.map(|(_, value)| value).next();
        call.all_come_to(RequestOutcome::GRANTED, (first, names), owner);
    }
    true
}

fn put_all<'a>(call: &mut Call<'_, '_>, pairs: impl Iterator<Item = Pair<'a>>, lease: Lease) {
    for (name, value) in pairs {
        call.view.entry(name).put(value, lease);
        announce(call, name, lease);
    }
}

/// The pairs of key and value behind their number.
fn counted_pairs<'a>(
    args: &mut Args<'a>,
) -> Result<impl Iterator<Item = Pair<'a>> + Clone + use<'a>, Refusal> {
    let count = args.integer().ok().and_then(|count| i32::try_from(count).ok()).unwrap_or(0);
    if count <= 0 {
        return Err(Refusal::said("ERR invalid numkeys value or out of range"));
    }
    let words = (count as usize).saturating_mul(2);
    if args.len() < words {
        return Err(Refusal::Syntax);
    }
    Ok(pairs_of(args.part(words)))
}

pub(in crate::commands) type Pair<'a> = (&'a [u8], &'a [u8]);

/// Pairs of key and value, or of field and value.
pub(in crate::commands) fn pairs<'a>(
    mut args: Args<'a>,
    command: &'static str,
) -> Result<impl Iterator<Item = Pair<'a>> + Clone, Refusal> {
    if !args.len().is_multiple_of(2) {
        return Err(Refusal::Arity(command.into()));
    }
    Ok(pairs_of(args.part(args.len())))
}

fn pairs_of(words: Words<'_>) -> impl Iterator<Item = Pair<'_>> + Clone {
    let pair = move |at: usize| Some((words.get(at)?, words.get(at.saturating_add(1))?));
    (0..words.len()).step_by(2).filter_map(pair)
}
