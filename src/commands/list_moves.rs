//! Lists, several at a time: LMOVE, RPOPLPUSH, LMPOP.
//!
//! Source  Redis 7.0 `t_list.c`.

use super::lists::{pop_many, popped, pushed};
use super::row::{Arg, Flags, Group, Row, integer, key, key_count, one_of, token};
use super::{Args, Call, Outcome};
use crate::error::Refusal;
use crate::number;
use crate::types::list::End;
use crate::types::{Element, List};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "LMOVE",
        summary: "Removes an element from one end of a list, adds it at an end of another and returns it.",
        since: "6.2.0",
        group: Group::List,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("source"), key("destination"), FROM, TO],
        subcommands: &[],
        run: lmove,
    },
    Row {
        name: "LMPOP",
        summary: "Removes elements from the first list that is there and returns them.",
        since: "7.0.0",
        group: Group::List,
        flags: Flags::WRITE.with(Flags::LINEAR),
        args: &[key_count(), key("key").many(), WHERE, integer("count").after("COUNT").maybe()],
        subcommands: &[],
        run: lmpop,
    },
    Row {
        name: "RPOPLPUSH",
        summary: "Removes the last element of a list, adds it at the head of another and returns it.",
        since: "1.2.0",
        group: Group::List,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("source"), key("destination")],
        subcommands: &[],
        run: rpoplpush,
    },
];

const ENDS: &[Arg] = &[token("left", "LEFT"), token("right", "RIGHT")];
const FROM: Arg = one_of("wherefrom", ENDS);
const TO: Arg = one_of("whereto", ENDS);
const WHERE: Arg = one_of("where", ENDS);

/// From an end of one list to an end of another, which may be the same list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move<'a> {
    source: &'a [u8],
    destination: &'a [u8],
    from: End,
    to: End,
}

impl<'a> Move<'a> {
    /// The words of LMOVE.
    pub(super) fn take(args: &mut Args<'a>) -> Result<Self, Refusal> {
        let (source, destination) = (args.word()?, args.word()?);
        Ok(Self { source, destination, from: end(args)?, to: end(args)? })
    }

    /// The words of RPOPLPUSH.
    pub(super) fn take_old(args: &mut Args<'a>) -> Result<Self, Refusal> {
        Ok(Self { source: args.word()?, destination: args.word()?, from: End::Tail, to: End::Head })
    }

    /// Moves an element and answers it; false, with nothing answered, when the source is not there.
    pub(super) fn run(self, call: &mut Call<'_, '_>) -> Result<bool, Refusal> {
        let Some(source) = call.view.find::<List>(self.source)? else { return Ok(false) };
        let list = source.get();
        let element = match self.from {
            End::Head => list.iter().next(),
            End::Tail => list.iter().next_back(),
        };
        let Some(element) = element.map(Element::new) else { return Ok(false) };
        drop(source);

        // The element is in both lists for a moment, so that what rotates a list of one does not remove the key.
        let mut destination = call.view.open::<List>(self.destination)?;
        destination.push(self.to, &element);
        destination.event(b'l', pushed(self.to));
        drop(destination);
        if let Some(mut source) = call.view.find::<List>(self.source)? {
            source.drop_from(self.from, 1);
            source.event(b'l', popped(self.from));
        }
        call.reply.bulk(&element);
        Ok(true)
    }
}

/// LEFT or RIGHT.
fn end(args: &mut Args<'_>) -> Result<End, Refusal> {
    match () {
        () if args.take("LEFT") => Ok(End::Head),
        () if args.take("RIGHT") => Ok(End::Tail),
        () => Err(Refusal::Syntax),
    }
}

fn lmove(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let step = Move::take(&mut call.args)?;

    move_or_null(call, step)
}

fn rpoplpush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let step = Move::take_old(&mut call.args)?;

    move_or_null(call, step)
}

fn move_or_null(call: &mut Call<'_, '_>, step: Move<'_>) -> Result<Outcome, Refusal> {
    if !step.run(call)? {
        call.reply.null();
    }
    Ok(Outcome::Replied)
}

/// Elements from an end of the first of several lists that is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Harvest<'a> {
    names: Args<'a>,
    count_of_names: usize,
    end: End,
    count: usize,
}

impl<'a> Harvest<'a> {
    /// The words of LMPOP.
    pub(super) fn take(args: &mut Args<'a>) -> Result<Self, Refusal> {
        let count_of_names = at_least_one(args.word()?, "ERR numkeys should be greater than 0")?;
        let names = *args;
        // With more names than words there is no word left for the end.
        args.rest_to(count_of_names).for_each(drop);
        let end = end(args)?;
        let count = match args.take("COUNT") {
            true => at_least_one(args.word()?, "ERR count should be greater than 0")?,
            false => 1,
        };
        args.finish()?;
        Ok(Self { names, count_of_names, end, count })
    }

    /// Takes elements and answers them with their list's name; false, with nothing answered, when no list is there.
    pub(super) fn run(mut self, call: &mut Call<'_, '_>) -> Result<bool, Refusal> {
        for name in self.names.rest_to(self.count_of_names) {
            if let Some(list) = call.view.find::<List>(name)? {
                call.reply.array(2);
                call.reply.bulk(name);
                pop_many(list, self.end, self.count, &mut call.reply);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn at_least_one(word: &[u8], otherwise: &'static str) -> Result<usize, Refusal> {
    let number = number::integer(word).and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(|| Refusal::said(otherwise))
}

fn lmpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let harvest = Harvest::take(&mut call.args)?;

    if !harvest.run(call)? {
        call.reply.null_array();
    }
    Ok(Outcome::Replied)
}
