//! Commands that search a list for an element: LINSERT, LPOS, LREM.
//!
//! Source  Redis 7.0 `t_list.c`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::row::{Arg, Flags, Group, Row, integer, key, one_of, text, token};
use crate::commands::{Args, Call, Outcome};
use crate::types::List;
use crate::types::Shape;
use crate::types::list::End;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::List, "LINSERT", "2.2.0", linsert)
        .summary("Inserts an element before or after another in a list.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::LINEAR))
        .args(&[key("key"), WHERE, text("pivot"), text("element")]),
    Row::new(Group::List, "LPOS", "6.0.6", lpos)
        .summary("Returns the indices of elements of a list that are equal to another.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[
            key("key"),
            text("element"),
            integer("rank").after("RANK").maybe(),
            integer("num-matches").after("COUNT").maybe(),
            integer("len").after("MAXLEN").maybe(),
        ]),
    Row::new(Group::List, "LREM", "1.0.0", lrem)
        .summary("Removes elements of a list that are equal to another.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), integer("count"), text("element")]),
];

const WHERE: Arg = one_of("where", &[token("before", "BEFORE"), token("after", "AFTER")]);

fn linsert(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let is_after = call.args.take("AFTER");
    if !is_after && !call.args.take("BEFORE") {
        return Err(Refusal::Syntax);
    }
    let pivot = call.args.word()?;
    let element = call.args.word()?;

    let Some(mut list) = call.view.find::<List>(name)? else {
        call.reply.integer(0);
        return Ok(Outcome::Replied);
    };
    let index = list.get().iter().position(|other| other == pivot);
    match index {
        Some(index) => {
            list.insert(index.saturating_add(is_after.into()), element);
            list.event(b'l', "linsert");
            call.reply.count(list.get().len());
        }
        None => call.reply.integer(-1),
    }
    Ok(Outcome::Replied)
}

fn lrem(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let (end, limit) = match call.args.integer()? {
        0 => (End::Head, usize::MAX),
        count => {
            let limit = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            (if count > 0 { End::Head } else { End::Tail }, limit)
        }
    };
    let element = call.args.word()?;

    let mut count = 0;
    if let Some(mut list) = call.view.find::<List>(name)? {
        count = list.remove(element, end, limit);
        if count > 0 {
            list.event(b'l', "lrem");
        }
    }

    call.reply.count(count);
    Ok(Outcome::Replied)
}

/// The options of LPOS.
#[derive(Debug)]
struct Search {
    /// The end where the search begins.
    from: End,
    skip: usize,
    /// Maximum number of indices in the reply, an array; `None`: one index without an array.
    count: Option<usize>,
    compared_max: usize,
}

fn search(args: &mut Args<'_>) -> Result<Search, Refusal> {
    let mut search = Search { from: End::Head, skip: 0, count: None, compared_max: usize::MAX };
    while !args.is_empty() {
        if args.take("RANK") {
            let rank = args.integer()?;
            search.from = if rank > 0 { End::Head } else { End::Tail };
            // Redis negates the least integer, which overflows, and searches as for -1.
            let rank = if rank == i64::MIN { 1 } else { rank.unsigned_abs() };
            let skip = rank.checked_sub(1).ok_or_else(|| Refusal::said(RANK_IS_ZERO))?;
            search.skip = usize::try_from(skip).unwrap_or(usize::MAX);
        } else if args.take("COUNT") {
            search.count = Some(no_less_than_zero(args.word()?, "ERR COUNT can't be negative")?);
        } else if args.take("MAXLEN") {
            search.compared_max = no_less_than_zero(args.word()?, "ERR MAXLEN can't be negative")?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(search)
}

const RANK_IS_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                            or use negative to start from the end of the list";

/// A limit; zero means no limit.
fn no_less_than_zero(word: &[u8], otherwise: &'static str) -> Result<usize, Refusal> {
    let limit = number::integer(word).and_then(|limit| usize::try_from(limit).ok());
    match limit {
        Some(0) => Ok(usize::MAX),
        Some(limit) => Ok(limit),
        None => Err(Refusal::said(otherwise)),
    }
}

fn lpos(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let element = call.args.word()?;
    let search = search(&mut call.args)?;

    let found: Vec<usize> = match call.view.read_as::<List>(name)? {
        Some(list) => {
            let count = search.count.unwrap_or(1);
            let is_equal = |&index: &usize| list.get(index) == Some(element);
            let (len, compared) = (list.len(), list.len().min(search.compared_max));
            match search.from {
                End::Head => (0..compared).filter(is_equal).skip(search.skip).take(count).collect(),
                End::Tail => (len.saturating_sub(compared)..len)
                    .rev()
                    .filter(is_equal)
                    .skip(search.skip)
                    .take(count)
                    .collect(),
            }
        }
        None => Vec::new(),
    };

    match (search.count, found.first()) {
        (Some(_), _) => {
            call.reply.array(found.len());
            found.iter().for_each(|index| call.reply.count(*index));
        }
        (None, Some(index)) => call.reply.count(*index),
        (None, None) => call.reply.null(),
    }
    Ok(Outcome::Replied)
}
