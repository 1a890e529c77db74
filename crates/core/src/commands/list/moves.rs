//! Commands on several lists: LMOVE, RPOPLPUSH, LMPOP.
//!
//! Source  Redis 7.0 `t_list.c`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::Reply;
use smallvec::SmallVec;

use crate::commands::list::{pop_many, popped, pushed};
use crate::commands::row::{Arg, Flags, Group, Row, integer, key, key_count, one_of, token};
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::View;
use crate::types::list::End;
use crate::types::{Element, List};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::List, "LMOVE", "6.2.0", lmove)
        .summary("Removes an element from one end of a list, adds it at an end of another and returns it.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[key("source"), key("destination"), FROM, TO]),
    Row::new(Group::List, "LMPOP", "7.0.0", lmpop)
        .summary("Removes elements from the first list that exists and returns them.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key_count(), key("key").many(), WHERE, integer("count").after("COUNT").maybe()]),
    Row::new(Group::List, "RPOPLPUSH", "1.2.0", rpoplpush)
        .summary("Removes the last element of a list, adds it at the head of another and returns it.")
        .flags(Flags::WRITE.with(Flags::DENYOOM))
        .args(&[key("source"), key("destination")]),
];

const ENDS: &[Arg] = &[token("left", "LEFT"), token("right", "RIGHT")];
pub(in crate::commands) const FROM: Arg = one_of("wherefrom", ENDS);
pub(in crate::commands) const TO: Arg = one_of("whereto", ENDS);
pub(in crate::commands) const WHERE: Arg = one_of("where", ENDS);

/// The end that an element is taken from and the end that it is added to.
#[derive(Clone, Copy, Debug)]
pub(in crate::commands) struct MoveEnds {
    pub(in crate::commands) from: End,
    pub(in crate::commands) to: End,
}

impl MoveEnds {
    /// The ends of RPOPLPUSH.
    pub(in crate::commands) const RPOPLPUSH: Self = Self { from: End::Tail, to: End::Head };

    /// Reads the ends of LMOVE.
    pub(in crate::commands) fn take(args: &mut Args<'_>) -> Result<Self, Refusal> {
        Ok(Self { from: end(args)?, to: end(args)? })
    }
}

/// Moves an element and answers it. Source and destination may be one list.
///
/// Returns false, without a reply, if the source does not exist.
pub(in crate::commands) fn move_element(
    view: &mut View<'_>,
    source: &[u8],
    destination: &[u8],
    ends: MoveEnds,
    reply: &mut Reply<'_>,
) -> Result<bool, Refusal> {
    let Some(list) = view.find::<List>(source)? else { return Ok(false) };
    let element = match ends.from {
        End::Head => list.get().iter().next(),
        End::Tail => list.get().iter().next_back(),
    };
    let Some(element) = element.map(Element::new) else { return Ok(false) };
    drop(list);

    // The element is added before it is removed, so that rotating a list of one element does not remove the key.
    let mut list = view.open::<List>(destination)?;
    list.push(ends.to, &element);
    list.event(b'l', pushed(ends.to));
    drop(list);
    if let Some(mut list) = view.find::<List>(source)? {
        list.drop_from(ends.from, 1);
        list.event(b'l', popped(ends.from));
    }
    reply.bulk(&element);
    Ok(true)
}

/// Reads LEFT or RIGHT.
fn end(args: &mut Args<'_>) -> Result<End, Refusal> {
    match () {
        () if args.take("LEFT") => Ok(End::Head),
        () if args.take("RIGHT") => Ok(End::Tail),
        () => Err(Refusal::Syntax),
    }
}

fn lmove(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (source, destination) = (call.args.word()?, call.args.word()?);
    let ends = MoveEnds::take(&mut call.args)?;

    move_or_null(call, source, destination, ends)
}

fn rpoplpush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (source, destination) = (call.args.word()?, call.args.word()?);

    move_or_null(call, source, destination, MoveEnds::RPOPLPUSH)
}

fn move_or_null(
    call: &mut Call<'_, '_>,
    source: &[u8],
    destination: &[u8],
    ends: MoveEnds,
) -> Result<Outcome, Refusal> {
    if !move_element(call.view, source, destination, ends, &mut call.reply)? {
        call.reply.null();
    }
    Ok(Outcome::Replied)
}

/// The arguments of LMPOP and BLMPOP.
#[derive(Debug)]
pub(in crate::commands) struct MultiPopArgs<'a> {
    pub(in crate::commands) names: SmallVec<[&'a [u8]; 8]>,
    pub(in crate::commands) end: End,
    /// Maximum number of elements; at least 1.
    pub(in crate::commands) count: usize,
}

impl<'a> MultiPopArgs<'a> {
    /// Reads the arguments that follow the name or the timeout.
    pub(in crate::commands) fn take(args: &mut Args<'a>) -> Result<Self, Refusal> {
        let count_of_names = at_least_one(args.word()?, "ERR numkeys should be greater than 0")?;
        // The word after the names must exist: it is the end.
        let names = args.rest_to(count_of_names).collect();
        let end = end(args)?;
        let count = match args.take("COUNT") {
            true => at_least_one(args.word()?, "ERR count should be greater than 0")?,
            false => 1,
        };
        args.finish()?;
        Ok(Self { names, end, count })
    }
}

/// Removes elements and answers them with the name of their list.
///
/// Returns false, without a reply, if the list does not exist.
pub(in crate::commands) fn pop_named(
    view: &mut View<'_>,
    name: &[u8],
    end: End,
    count: usize,
    reply: &mut Reply<'_>,
) -> Result<bool, Refusal> {
    let Some(list) = view.find::<List>(name)? else { return Ok(false) };
    reply.array(2);
    reply.bulk(name);
    pop_many(list, end, count, reply);
    Ok(true)
}

fn at_least_one(word: &[u8], otherwise: &'static str) -> Result<usize, Refusal> {
    let number = number::integer(word).and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| Refusal::said(otherwise))
}

fn lmpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let MultiPopArgs { names, end, count } = MultiPopArgs::take(&mut call.args)?;

    for name in names {
        if pop_named(call.view, name, end, count, &mut call.reply)? {
            return Ok(Outcome::Replied);
        }
    }
    call.reply.null_array();
    Ok(Outcome::Replied)
}
