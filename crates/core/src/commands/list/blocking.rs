//! Commands that wait for a list or sorted set: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP; BZPOPMIN, BZPOPMAX, BZMPOP.
//!
//! Rule    a call that finds elements takes them as the command without blocking does. Otherwise it is parked on its
//!         keys; the write that adds elements to one of these keys serves parked calls, the oldest first.
//! Source  Redis 7.0 `t_list.c`, `blocked.c`; `timeout.c`: `getTimeoutFromObjectOrReply`.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::number::double::parse;
use redlatch_proto::resp::Reply;

use crate::commands::list::moves::{FROM, MoveEnds, MultiPopArgs, TO, WHERE, move_element, pop_named};
use crate::commands::list::pop_one;
use crate::commands::row::{Arg, Flags, Group, Row, double, integer, key, key_count, one_of, token};
use crate::commands::sorted_set::pop as sorted;
use crate::commands::{Call, Outcome};
use crate::keyspace::{Serve, View, Waiter};
use crate::state::clients::Client;
use crate::state::wait::WaitFor;
use crate::types::list::End;
use crate::types::{List, SortedSet};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::List, "BLMOVE", "6.2.0", blmove)
.summary("Moves an element from one end of a list to an end of another and returns it; waits until there is one.")
.flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT).with(Flags::BLOCKING))
.args(&[key("source"), key("destination"), FROM, TO, TIMEOUT]),
    Row::new(Group::List, "BLMPOP", "7.0.0", blmpop)
.summary("Removes elements from the first list that exists and returns them; waits until there is one.")
.flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::BLOCKING))
.args(&[TIMEOUT, key_count(), key("key").many(), WHERE, integer("count").after("COUNT").maybe()]),
    Row::new(Group::List, "BLPOP", "2.0.0", blpop)
.summary("Removes the first element of the first list that exists and returns it; waits until there is one.")
.flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::NOSCRIPT).with(Flags::BLOCKING))
.args(&[key("key").many(), TIMEOUT]),
    Row::new(Group::List, "BRPOP", "2.0.0", brpop)
.summary("Removes the last element of the first list that exists and returns it; waits until there is one.")
.flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::NOSCRIPT).with(Flags::BLOCKING))
.args(&[key("key").many(), TIMEOUT]),
    Row::new(Group::List, "BRPOPLPUSH", "2.2.0", brpoplpush)
.summary("Moves the last element of a list to the head of another and returns it; waits until there is one.")
.flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::NOSCRIPT).with(Flags::BLOCKING))
.args(&[key("source"), key("destination"), TIMEOUT]),
    Row::new(Group::SortedSet, "BZMPOP", "7.0.0", bzmpop)
.summary("Removes members from the first sorted set that exists and returns them; waits until there is one.")
.flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::BLOCKING))
.args(&[TIMEOUT, key_count(), key("key").many(), MIN_MAX, integer("count").after("COUNT").maybe()]),
    Row::new(Group::SortedSet, "BZPOPMAX", "5.0.0", bzpopmax)
.summary("Removes and returns the member with the highest score; waits until one of the sorted sets exists.")
.flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::NOSCRIPT).with(Flags::BLOCKING).with(Flags::FAST))
.args(&[key("key").many(), TIMEOUT]),
    Row::new(Group::SortedSet, "BZPOPMIN", "5.0.0", bzpopmin)
.summary("Removes and returns the member with the lowest score; waits until one of the sorted sets exists.")
.flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::NOSCRIPT).with(Flags::BLOCKING).with(Flags::FAST))
.args(&[key("key").many(), TIMEOUT]),
];

const MIN_MAX: Arg = one_of("where", &[token("min", "MIN"), token("max", "MAX")]);
/// Seconds; zero waits without a limit.
const TIMEOUT: Arg = double("timeout");

/// The elements that a blocking call pops, and the form of its reply.
#[derive(Clone, Debug)]
enum Pop {
    /// Up to so many elements of a list, in an array after the key's name.
    Elements(End, usize),
    /// One element of a list, after the key's name.
    Element(End),
    /// Up to so many members of a sorted set with their scores, in an array after the key's name.
    Members(sorted::End, usize),
    /// One member of a sorted set with its score, after the key's name.
    Member(sorted::End),
    /// One element, which is moved to another list.
    Move(MoveEnds, Bytes),
}

impl Pop {
    /// Pops the elements and answers. Returns false, without a reply, if the key has none.
    fn run(&self, view: &mut View<'_>, name: &[u8], reply: &mut Reply<'_>) -> Result<bool, Refusal> {
        match self {
            Self::Elements(end, count) => pop_named(view, name, *end, *count, reply),
            Self::Element(end) => {
                let Some(list) = view.find::<List>(name)? else { return Ok(false) };
                reply.array(2);
                reply.bulk(name);
                pop_one(list, *end, reply);
                Ok(true)
            }
            Self::Members(end, count) => sorted::pop(view, name, *end, *count, |len, entries| {
                sorted::answer_popped(reply, name, len, entries);
            }),
            Self::Member(end) => sorted::pop(view, name, *end, 1, |_, entries| {
                reply.array(3);
                reply.bulk(name);
                sorted::answer_flat(reply, entries);
            }),
            Self::Move(ends, destination) => move_element(view, name, destination, *ends, reply),
        }
    }

    /// Keys that the call changes, other than the key it waits for.
    fn keys_also_changed(&self) -> Vec<Bytes> {
        match self {
            Self::Move(_, destination) => vec![destination.clone()],
            _ => Vec::new(),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    client: Arc<Client>,
    pop: Pop,
}

impl Serve for Waiting {
    fn is_ready(&self, view: &mut View<'_>, key: &[u8]) -> bool {
        match self.pop {
            Pop::Elements(..) | Pop::Element(_) | Pop::Move(..) => {
                matches!(view.find::<List>(key), Ok(Some(_)))
            }
            Pop::Members(..) | Pop::Member(_) => matches!(view.find::<SortedSet>(key), Ok(Some(_))),
        }
    }

    fn serve(&self, view: &mut View<'_>, key: &[u8]) {
        let mut answer = Vec::new();
        let mut reply = Reply::new(&mut answer, self.client.protocol());
        match self.pop.run(view, key, &mut reply) {
            Ok(true) => {}
            Ok(false) => reply.null_array(),
            // The destination has another type. This call ends with an error, and the next call gets the element.
            Err(refusal) => reply.error_bytes(&refusal.line()),
        }
        view.answer(&self.client, answer);
    }

    fn heap_bytes(&self) -> usize {
        // Its destination is a key of the waiter.
        0
    }
}

fn blpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop_any(call, Pop::Element(End::Head))
}

fn brpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop_any(call, Pop::Element(End::Tail))
}

fn bzpopmin(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop_any(call, Pop::Member(sorted::End::Min))
}

fn bzpopmax(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop_any(call, Pop::Member(sorted::End::Max))
}

/// The arguments of BLPOP, BRPOP, BZPOPMIN and BZPOPMAX.
fn pop_any(call: &mut Call<'_, '_>, pop: Pop) -> Result<Outcome, Refusal> {
    let names: Vec<&[u8]> = call.args.rest_to(call.args.len().saturating_sub(1)).collect();
    let until = timeout(call.args.word()?, call)?;

    pop_or_wait(call, &names, until, pop)
}

fn blmove(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (source, destination) = (call.args.word()?, call.args.word()?);
    let ends = MoveEnds::take(&mut call.args)?;
    let until = timeout(call.args.word()?, call)?;

    pop_or_wait(call, &[source], until, Pop::Move(ends, Bytes::copy_from_slice(destination)))
}

fn brpoplpush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (source, destination) = (call.args.word()?, call.args.word()?);
    let until = timeout(call.args.word()?, call)?;

    pop_or_wait(call, &[source], until, Pop::Move(MoveEnds::RPOPLPUSH, Bytes::copy_from_slice(destination)))
}

fn blmpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let time = call.args.word()?;
    let MultiPopArgs { names, end, count } = MultiPopArgs::take(&mut call.args)?;
    let until = timeout(time, call)?;

    pop_or_wait(call, &names, until, Pop::Elements(end, count))
}

fn bzmpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let time = call.args.word()?;
    let (names, end, count) = sorted::multi_pop_args(&mut call.args)?;
    let names: Vec<&[u8]> = names.collect();
    let until = timeout(time, call)?;

    pop_or_wait(call, &names, until, Pop::Members(end, count))
}

/// Pops from the first key that has elements, or parks the call.
fn pop_or_wait(
    call: &mut Call<'_, '_>,
    names: &[&[u8]],
    until: Option<LockTime>,
    pop: Pop,
) -> Result<Outcome, Refusal> {
    for name in names {
        if pop.run(call.view, name, &mut call.reply)? {
            return Ok(Outcome::Replied);
        }
    }
    if call.session.is_nested {
        match pop {
            Pop::Move(..) => call.reply.null(),
            _ => call.reply.null_array(),
        }
        return Ok(Outcome::Replied);
    }
    call.session.may_hold()?;
    let mut keys: Vec<Bytes> = names.iter().map(|name| Bytes::copy_from_slice(name)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut answer = Vec::new();
    Reply::new(&mut answer, call.reply.protocol()).null_array();
    let wait = {
        let place = (call.view.queues().next_place(0), WaitFor::Values);
        call.session.new_wait_for(place, call.view.database(), keys, until, answer)
    };
    let also = pop.keys_also_changed();
    let serve = Box::new(Waiting { client: Arc::clone(&call.session.client), pop });
    let waiter = Waiter::new(call.shared.keyspace.ledger(), Arc::clone(&wait), also, serve);
    Ok(Outcome::Park { wait, waiter: Some(Arc::new(waiter)) })
}

/// The end of a wait of `seconds`; `None` waits without a limit.
fn timeout(seconds: &[u8], call: &Call<'_, '_>) -> Result<Option<LockTime>, Refusal> {
    let seconds = parse(seconds);
    let seconds = seconds.ok_or_else(|| Refusal::said("ERR timeout is not a float or out of range"))?;
    let millis = (seconds * 1000.0).ceil();
    // Redis converts a number beyond 64 bits to the least integer there is, which is negative.
    match millis {
        0.0 => Ok(None),
        millis if (0.0..MILLIS_END).contains(&millis) => Ok(Some(call.now.lock + millis as u64)),
        _ => Err(Refusal::said("ERR timeout is negative")),
    }
}

/// The first number of milliseconds that does not fit a signed 64-bit integer.
const MILLIS_END: f64 = 9_223_372_036_854_775_808.0;
