//! Commands on the ends and indices of a list: LPUSH, LPOP, LRANGE, LSET and similar.
//!
//! Source  Redis 7.0 `t_list.c`, including which argument is checked before the key.

pub(in crate::commands) mod blocking;
pub(in crate::commands) mod moves;
pub(in crate::commands) mod search;

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::Reply;

use crate::commands::row::{Flags, Group, Row, integer, key, text};
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::Editor;
use crate::types::list::End;
use crate::types::{List, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::List, "LINDEX", "1.0.0", lindex)
        .summary("Returns an element of a list by its index.")
        .flags(Flags::READONLY)
        .args(&[key("key"), integer("index")]),
    Row::new(Group::List, "LLEN", "1.0.0", llen)
        .summary("Returns how many elements a list has.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::List, "LPOP", "1.0.0", lpop)
        .summary("Removes the first elements of a list and returns them.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), integer("count").maybe()]),
    Row::new(Group::List, "LPUSH", "1.0.0", lpush)
        .summary(
            "Adds elements at the head of a list, one after the other; creates the list if it does not exist.",
        )
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("element").many()]),
    Row::new(Group::List, "LPUSHX", "2.2.0", lpushx)
        .summary("Adds elements at the head of an existing list.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("element").many()]),
    Row::new(Group::List, "LRANGE", "1.0.0", lrange)
        .summary("Returns the elements of a list from one index to another.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), integer("start"), integer("stop")]),
    Row::new(Group::List, "LSET", "1.0.0", lset)
        .summary("Replaces an element of a list, by its index.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::LINEAR))
        .args(&[key("key"), integer("index"), text("element")]),
    Row::new(Group::List, "LTRIM", "1.0.0", ltrim)
        .summary("Removes all elements of a list outside a range of indices.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), integer("start"), integer("stop")]),
    Row::new(Group::List, "RPOP", "1.0.0", rpop)
        .summary("Removes the last elements of a list and returns them, the last one first.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), integer("count").maybe()]),
    Row::new(Group::List, "RPUSH", "1.0.0", rpush)
        .summary("Adds elements at the tail of a list; creates the list if it does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("element").many()]),
    Row::new(Group::List, "RPUSHX", "2.2.0", rpushx)
        .summary("Adds elements at the tail of an existing list.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), text("element").many()]),
];

fn lpush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    push(call, End::Head)
}

fn rpush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    push(call, End::Tail)
}

fn push(call: &mut Call<'_, '_>, end: End) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let list = call.view.open::<List>(name)?;
    push_all(list, end, call.args, &mut call.reply);
    Ok(Outcome::Replied)
}

fn lpushx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    push_if_here(call, End::Head)
}

fn rpushx(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    push_if_here(call, End::Tail)
}

fn push_if_here(call: &mut Call<'_, '_>, end: End) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    match call.view.find::<List>(name)? {
        Some(list) => push_all(list, end, call.args, &mut call.reply),
        None => call.reply.integer(0),
    }
    Ok(Outcome::Replied)
}

/// Adds the remaining words to the list and answers its length.
fn push_all(mut list: Editor<'_, List>, end: End, mut elements: Args<'_>, reply: &mut Reply<'_>) {
    for element in elements.rest() {
        list.push(end, element);
    }
    list.event(b'l', pushed(end));
    reply.count(list.get().len());
}

/// The event of adding an element at an end.
pub(in crate::commands) const fn pushed(end: End) -> &'static str {
    match end {
        End::Head => "lpush",
        End::Tail => "rpush",
    }
}

/// The event of removing an element from an end.
pub(in crate::commands) const fn popped(end: End) -> &'static str {
    match end {
        End::Head => "lpop",
        End::Tail => "rpop",
    }
}

fn lpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop(call, End::Head)
}

fn rpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop(call, End::Tail)
}

fn pop(call: &mut Call<'_, '_>, end: End) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if call.args.len() > 1 {
        return Err(Refusal::Arity(call.command.name.as_str().into()));
    }
    let count = call.args.maybe_word().map(positive).transpose()?;

    let list = call.view.find::<List>(name)?;
    match (list, count) {
        (Some(list), Some(count)) => pop_many(list, end, count, &mut call.reply),
        (Some(list), None) => pop_one(list, end, &mut call.reply),
        (None, Some(_)) => call.reply.null_array(),
        (None, None) => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// A count, which must not be negative.
pub(in crate::commands) fn positive(word: &[u8]) -> Result<usize, Refusal> {
    let count = number::integer(word).and_then(|count| usize::try_from(count).ok());
    count.ok_or_else(|| Refusal::said("ERR value is out of range, must be positive"))
}

/// Removes one element and answers it. An existing list is never empty.
pub(in crate::commands) fn pop_one(mut list: Editor<'_, List>, end: End, reply: &mut Reply<'_>) {
    match list.pop(end) {
        Some(element) => reply.bulk(&element),
        None => reply.null(),
    }
    list.event(b'l', popped(end));
}

/// Removes elements from an end and answers them, the outermost first.
pub(in crate::commands) fn pop_many(
    mut list: Editor<'_, List>,
    end: End,
    count: usize,
    reply: &mut Reply<'_>,
) {
    let len = list.get().len();
    let count = count.min(len);
    reply.array(count);
    match end {
        End::Head => list.get().range(0, count).for_each(|element| reply.bulk(element)),
        End::Tail => {
            list.get().range(len.saturating_sub(count), len).rev().for_each(|element| reply.bulk(element))
        }
    }
    if count > 0 {
        list.drop_from(end, count);
        list.event(b'l', popped(end));
    }
}

fn llen(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let len = call.view.read_as::<List>(name)?.map_or(0, List::len);

    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn lrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let (start, stop) = (call.args.integer()?, call.args.integer()?);

    match call.view.read_as::<List>(name)? {
        Some(list) => {
            let (start, end) = span(start, stop, list.len());
            let elements = list.range(start, end);
            call.reply.array(elements.len());
            elements.for_each(|element| call.reply.bulk(element));
        }
        None => call.reply.array(0),
    }
    Ok(Outcome::Replied)
}

/// The half-open range that two indices of a client select: both are included, negative ones count from the tail.
/// Neither bound of the result exceeds `len`.
fn span(start: i64, stop: i64, len: usize) -> (usize, usize) {
    let place = |index: i64| match usize::try_from(index) {
        Ok(index) => Some(index.min(len)),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    let end = place(stop).map_or(0, |stop| stop.saturating_add(1).min(len));
    (place(start).unwrap_or(0).min(end), end)
}

fn lindex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    // As in Redis, the index is read only if the list exists.
    let Some(list) = call.view.read_as::<List>(name)? else {
        call.reply.null();
        return Ok(Outcome::Replied);
    };
    let index = call.args.integer()?;
    match place(index, list.len()).and_then(|index| list.get(index)) {
        Some(element) => call.reply.bulk(element),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// The place that an index of a client selects; a negative one counts from the tail. It may be beyond the list.
fn place(index: i64, len: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => len.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

fn lset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    // As in Redis, the index is read only if the list exists.
    let mut list = call.view.find::<List>(name)?.ok_or(Refusal::NoSuchKey)?;
    let index = call.args.integer()?;
    let element = call.args.word()?;
    let is_set = place(index, list.get().len()).is_some_and(|index| list.set(index, element));
    if !is_set {
        return Err(Refusal::said("ERR index out of range"));
    }
    list.event(b'l', "lset");

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn ltrim(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let (start, stop) = (call.args.integer()?, call.args.integer()?);

    if let Some(mut list) = call.view.find::<List>(name)? {
        let (start, end) = span(start, stop, list.get().len());
        list.keep(start, end);
        // As in Redis, a trim counts as a change even if it removes nothing.
        list.touch();
        list.event(b'l', "ltrim");
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_select_ranges_as_in_redis() {
        for (start, stop, len, selected) in [
            (0, -1, 5, (0, 5)),
            (1, 2, 5, (1, 3)),
            (-3, -2, 5, (2, 4)),
            (-99, 1, 5, (0, 2)),
            (3, 99, 5, (3, 5)),
            (5, 9, 5, (5, 5)),
            (3, 2, 5, (3, 3)),
            (-1, -2, 5, (4, 4)),
            (i64::MIN, i64::MAX, 5, (0, 5)),
            (i64::MIN, i64::MIN, 5, (0, 0)),
            (0, 0, 1, (0, 1)),
        ] {
            assert_eq!(span(start, stop, len), selected, "{start} {stop} of {len}");
        }
        assert_eq!(place(i64::MIN, 5), None);
        assert_eq!((place(-5, 5), place(-6, 5), place(9, 5)), (Some(0), None, Some(9)));
    }
}
