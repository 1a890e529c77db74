//! ZPOPMIN, ZPOPMAX and ZMPOP, which remove members from an end of a sorted set, and ZSCAN.
//!
//! Source  Redis 7.0 `t_zset.c`: `genericZpopCommand`, `zmpopGetKeysAndWhere`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number::double::Text;
use redlatch_proto::number::integer as whole;
use redlatch_proto::resp::Reply;

use crate::commands::row::{Flags, Group, Row, integer, key, key_count, one_of, pattern, token};
use crate::commands::scan::{Found, ScanOptions, cursor};
use crate::commands::sorted_set::range::answer_entries;
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::View;
use crate::types::{Shape, SortedSet};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::SortedSet, "ZMPOP", "7.0.0", zmpop)
        .summary("Removes members with the lowest or highest scores from the first sorted set that exists.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[
            key_count(),
            key("key").many(),
            one_of("where", &[token("min", "MIN"), token("max", "MAX")]),
            integer("count").after("COUNT").maybe(),
        ]),
    Row::new(Group::SortedSet, "ZPOPMAX", "5.0.0", zpopmax)
        .summary("Removes members with the highest scores from a sorted set and returns them.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), integer("count").maybe()]),
    Row::new(Group::SortedSet, "ZPOPMIN", "5.0.0", zpopmin)
        .summary("Removes members with the lowest scores from a sorted set and returns them.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), integer("count").maybe()]),
    Row::new(Group::SortedSet, "ZSCAN", "2.8.0", zscan)
        .summary("Returns some members of a sorted set with their scores and the next cursor.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[
            key("key"),
            integer("cursor"),
            pattern("pattern").after("MATCH").maybe(),
            integer("count").after("COUNT").maybe(),
            token("noscores", "NOSCORES").maybe(),
        ]),
];

/// The end that members are removed from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::commands) enum End {
    /// The highest score first.
    Max,
    /// The lowest score first.
    Min,
}

impl End {
    /// Reads MIN or MAX.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] when it is neither.
    pub(in crate::commands) fn take(args: &mut Args<'_>) -> Result<Self, Refusal> {
        match () {
            () if args.take("MIN") => Ok(Self::Min),
            () if args.take("MAX") => Ok(Self::Max),
            () => Err(Refusal::Syntax),
        }
    }
}

/// Removes up to `count` members from the sorted set under a key. `answer` gets their number and the members.
///
/// Returns false, without a call of `answer`, if the key does not exist.
///
/// # Errors
/// [`Refusal::WrongType`] when the key holds another type.
pub(in crate::commands) fn pop(
    view: &mut View<'_>,
    name: &[u8],
    end: End,
    count: usize,
    answer: impl FnOnce(usize, &mut dyn Iterator<Item = (&[u8], f64)>),
) -> Result<bool, Refusal> {
    let Some(mut editor) = view.find::<SortedSet>(name)? else { return Ok(false) };
    let len = editor.get().len();
    let count = count.min(len);
    if count == 0 {
        answer(0, &mut std::iter::empty());
        return Ok(true);
    }
    match end {
        End::Max => {
            let highest = len.saturating_sub(count)..len;
            answer(count, &mut editor.get().range(highest.clone()).rev());
            editor.remove_range(highest);
            editor.event(b'z', "zpopmax");
        }
        End::Min => {
            answer(count, &mut editor.get().range(0..count));
            editor.remove_range(0..count);
            editor.event(b'z', "zpopmin");
        }
    }
    Ok(true)
}

fn zpopmax(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop_some(call, End::Max)
}

fn zpopmin(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    pop_some(call, End::Min)
}

fn pop_some(call: &mut Call<'_, '_>, end: End) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if call.args.len() > 1 {
        return Err(Refusal::Syntax);
    }
    let count = call.args.maybe_word().map(|word| whole(word).and_then(|count| usize::try_from(count).ok()));
    if count == Some(None) {
        return Err(Refusal::said("ERR value is out of range, must be positive"));
    }
    let count = count.flatten();

    let (view, reply) = (&mut *call.view, &mut call.reply);
    let was_there = pop(view, name, end, count.unwrap_or(1), |len, entries| match count {
        Some(_) => answer_entries(reply, len, entries, true),
        None => {
            // One member and its score are a flat array, also in RESP3.
            reply.array(2);
            answer_flat(reply, entries);
        }
    })?;
    if !was_there {
        call.reply.array(0);
    }
    Ok(Outcome::Replied)
}

/// Answers a key and the members removed from it. Each member is an array with its score, also in RESP2.
pub(in crate::commands) fn answer_popped(
    reply: &mut Reply<'_>,
    name: &[u8],
    len: usize,
    entries: &mut dyn Iterator<Item = (&[u8], f64)>,
) {
    reply.array(2);
    reply.bulk(name);
    reply.array(len);
    for (member, score) in entries {
        reply.array(2);
        reply.bulk(member);
        reply.double(score);
    }
}

/// Writes members and scores as a flat sequence. The caller has written the header of the reply.
pub(in crate::commands) fn answer_flat(
    reply: &mut Reply<'_>,
    entries: &mut dyn Iterator<Item = (&[u8], f64)>,
) {
    for (member, score) in entries {
        reply.bulk(member);
        reply.double(score);
    }
}

/// A number of at least 1.
fn positive(word: &[u8], what: &'static str) -> Result<usize, Refusal> {
    let number = whole(word).and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0);
    number.ok_or_else(|| Refusal::said(format!("ERR {what} should be greater than 0")))
}

/// Reads the arguments of ZMPOP: its keys, the end, and the maximum number of members.
pub(in crate::commands) fn multi_pop_args<'a>(
    args: &mut Args<'a>,
) -> Result<(impl Iterator<Item = &'a [u8]> + use<'a>, End, usize), Refusal> {
    let count = positive(args.word()?, "numkeys")?;
    if count >= args.len() {
        return Err(Refusal::Syntax);
    }
    let names = args.rest_to(count);
    let end = End::take(args)?;
    let limit = match args.take("COUNT") {
        true => positive(args.word()?, "count")?,
        false => 1,
    };
    args.finish()?;
    Ok((names, end, limit))
}

fn zmpop(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (names, end, limit) = multi_pop_args(&mut call.args)?;

    let (view, reply) = (&mut *call.view, &mut call.reply);
    for name in names {
        if pop(view, name, end, limit, |len, entries| answer_popped(reply, name, len, entries))? {
            return Ok(Outcome::Replied);
        }
    }
    call.reply.null_array();
    Ok(Outcome::Replied)
}

fn zscan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let cursor = cursor(&mut call.args)?;
    let mut found = Found::default();
    let mut next = 0;
    // As in Redis, options are read only if the key exists.
    if let Some(set) = call.view.read_as::<SortedSet>(name)? {
        let mut with_scores = true;
        let options = ScanOptions::take(&mut call.args, |args| {
            let is_own = args.take("NOSCORES");
            with_scores &= !is_own;
            Ok(is_own)
        })?;
        next = set.scan(cursor, options.count, |member, score| {
            if options.fits(member) {
                found.add(member);
                if with_scores {
                    found.add(Text::new(score).as_bytes());
                }
            }
        });
    }

    found.answer_step(next, &mut call.reply);
    Ok(Outcome::Replied)
}
