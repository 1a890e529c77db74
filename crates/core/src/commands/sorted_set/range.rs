//! Ranges of sorted sets: ZRANGE in every form, ZCOUNT, ZREMRANGEBYRANK and similar.
//!
//! Rule    every range is converted to ranks, in logarithmic time, before members are read or removed.
//! Source  Redis 7.0 `t_zset.c`: `genericZrangebyrankCommand` and similar, `zslParseRange`, `zslParseLexRange`.

use std::ops::Range;

use redlatch_proto::error::Refusal;
use redlatch_proto::number::double::parse_loosely;
use redlatch_proto::number::integer as whole;
use redlatch_proto::resp::{Protocol, Reply};

use crate::commands::row::{Arg, Flags, Group, Row, block, double, integer, key, one_of, text, token};
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::Lease;
use crate::types::sorted_set::{LexBound, LexRange, ScoreRange};
use crate::types::{Shape, SortedSet};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::SortedSet, "ZCOUNT", "2.0.0", zcount)
        .summary("Returns the number of members of a sorted set with scores in a range.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), double("min"), double("max")]),
    Row::new(Group::SortedSet, "ZLEXCOUNT", "2.8.9", zlexcount)
        .summary("Returns the number of members of a sorted set from one to another.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("min"), text("max")]),
    Row::new(Group::SortedSet, "ZRANGE", "1.2.0", zrange)
        .summary("Returns members of a sorted set in a range of ranks, scores or members.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[
            key("key"),
            text("start"),
            text("stop"),
            one_of("sortby", &[token("byscore", "BYSCORE"), token("bylex", "BYLEX")]).maybe(),
            token("rev", "REV").maybe(),
            LIMIT.maybe(),
            token("withscores", "WITHSCORES").maybe(),
        ]),
    Row::new(Group::SortedSet, "ZRANGEBYLEX", "2.8.9", zrangebylex)
        .summary("Returns members of a sorted set from one to another.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), text("min"), text("max"), LIMIT.maybe()]),
    Row::new(Group::SortedSet, "ZRANGEBYSCORE", "1.0.5", zrangebyscore)
        .summary("Returns members of a sorted set with scores in a range.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[
            key("key"),
            double("min"),
            double("max"),
            token("withscores", "WITHSCORES").maybe(),
            LIMIT.maybe(),
        ]),
    Row::new(Group::SortedSet, "ZRANGESTORE", "6.2.0", zrangestore)
        .summary("Stores members of a sorted set in a range as another sorted set.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::LINEAR))
        .args(&[
            key("dst"),
            key("src"),
            text("min"),
            text("max"),
            one_of("sortby", &[token("byscore", "BYSCORE"), token("bylex", "BYLEX")]).maybe(),
            token("rev", "REV").maybe(),
            LIMIT.maybe(),
        ]),
    Row::new(Group::SortedSet, "ZREMRANGEBYLEX", "2.8.9", zremrangebylex)
        .summary("Removes members of a sorted set in a range of members.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), text("min"), text("max")]),
    Row::new(Group::SortedSet, "ZREMRANGEBYRANK", "2.0.0", zremrangebyrank)
        .summary("Removes members of a sorted set in a range of ranks.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), integer("start"), integer("stop")]),
    Row::new(Group::SortedSet, "ZREMRANGEBYSCORE", "1.2.0", zremrangebyscore)
        .summary("Removes members of a sorted set with scores in a range.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::LINEAR))
        .args(&[key("key"), double("min"), double("max")]),
    Row::new(Group::SortedSet, "ZREVRANGE", "1.2.0", zrevrange)
        .summary("Returns members of a sorted set in a range of ranks, highest scores first.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), integer("start"), integer("stop"), token("withscores", "WITHSCORES").maybe()]),
    Row::new(Group::SortedSet, "ZREVRANGEBYLEX", "2.8.9", zrevrangebylex)
        .summary("Returns members of a sorted set from one to another, last first.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[key("key"), text("max"), text("min"), LIMIT.maybe()]),
    Row::new(Group::SortedSet, "ZREVRANGEBYSCORE", "2.2.0", zrevrangebyscore)
        .summary("Returns members of a sorted set with scores in a range, highest first.")
        .flags(Flags::READONLY.with(Flags::LINEAR))
        .args(&[
            key("key"),
            double("max"),
            double("min"),
            token("withscores", "WITHSCORES").maybe(),
            LIMIT.maybe(),
        ]),
];

const LIMIT: Arg = block("limit", &[integer("offset"), integer("count")]).after("LIMIT");

/// How a range is given.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum By {
    Lex,
    Rank,
    Score,
}

#[derive(Clone, Copy, Debug)]
enum Span<'a> {
    Lex(LexRange<'a>),
    Rank(i64, i64),
    Score(ScoreRange),
}

impl<'a> Span<'a> {
    fn new(by: By, min: &'a [u8], max: &'a [u8]) -> Result<Self, Refusal> {
        Ok(match by {
            By::Lex => Self::Lex(LexRange { min: lex_bound(min)?, max: lex_bound(max)? }),
            By::Rank => {
                let rank = |word| whole(word).ok_or(Refusal::NotAnInteger);
                Self::Rank(rank(min)?, rank(max)?)
            }
            By::Score => {
                let ((min, is_min_open), (max, is_max_open)) = (score_bound(min)?, score_bound(max)?);
                Self::Score(ScoreRange { min, is_min_open, max, is_max_open })
            }
        })
    }

    /// The ranks of the members in the range, lowest first. Given ranks count from the end that is read first.
    fn ranks(&self, set: &SortedSet, is_reverse: bool) -> Range<usize> {
        match *self {
            Self::Lex(range) => set.ranks_by_member(&range, is_reverse),
            Self::Score(range) => set.ranks_by_score(&range),
            Self::Rank(start, stop) => {
                let (len, last) = (set.len(), (set.len() as i64).saturating_sub(1));
                let from_front =
                    |rank: i64| if rank < 0 { rank.saturating_add(last).saturating_add(1) } else { rank };
                let (start, stop) = (from_front(start).max(0), from_front(stop).min(last));
                if start > stop {
                    return 0..0;
                }
                let (start, end) = (start as usize, (stop as usize).saturating_add(1));
                if is_reverse { len.saturating_sub(end)..len.saturating_sub(start) } else { start..end }
            }
        }
    }
}

fn score_bound(word: &[u8]) -> Result<(f64, bool), Refusal> {
    let (is_open, number) = match word {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    let score = parse_loosely(number).ok_or_else(|| Refusal::said("ERR min or max is not a float"))?;
    Ok((score, is_open))
}

fn lex_bound(word: &[u8]) -> Result<LexBound<'_>, Refusal> {
    match word {
        b"-" => Ok(LexBound::First),
        b"+" => Ok(LexBound::Last),
        [b'(', member @ ..] => Ok(LexBound::Open(member)),
        [b'[', member @ ..] => Ok(LexBound::Closed(member)),
        _ => Err(Refusal::said("ERR min or max not valid string range item")),
    }
}

/// The arguments of ZRANGE and similar commands.
#[derive(Clone, Copy, Debug)]
struct RangeArgs<'a> {
    span: Span<'a>,
    is_reverse: bool,
    with_scores: bool,
    /// Members to skip; negative: all.
    offset: i64,
    /// Maximum number of members; negative: no limit.
    limit: i64,
}

impl<'a> RangeArgs<'a> {
    /// Reads all words behind the key. An argument that is `None` is read from the options.
    fn take(
        args: &mut Args<'a>,
        by: Option<By>,
        is_reverse: Option<bool>,
        may_answer: bool,
    ) -> Result<Self, Refusal> {
        let (mut by, mut is_reverse) = (by, is_reverse);
        let (first, second) = (args.word()?, args.word()?);
        let (mut with_scores, mut offset, mut limit) = (false, 0, -1);
        while !args.is_empty() {
            if may_answer && args.take("WITHSCORES") {
                with_scores = true;
            } else if args.len() > 2 && args.take("LIMIT") {
                (offset, limit) = (args.integer()?, args.integer()?);
            } else if is_reverse.is_none() && args.take("REV") {
                is_reverse = Some(true);
            } else if by.is_none() && args.take("BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && args.take("BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        let (by, is_reverse) = (by.unwrap_or(By::Rank), is_reverse.unwrap_or(false));
        if limit != -1 && by == By::Rank {
            return Err(Refusal::said(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if with_scores && by == By::Lex {
            return Err(Refusal::said(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        let (min, max) = if is_reverse && by != By::Rank { (second, first) } else { (first, second) };
        Ok(Self { span: Span::new(by, min, max)?, is_reverse, with_scores, offset, limit })
    }

    /// The ranks of the members in the reply, lowest first.
    fn ranks(&self, set: &SortedSet) -> Range<usize> {
        let ranks = self.span.ranks(set, self.is_reverse);
        if let Span::Rank(..) = self.span {
            return ranks;
        }
        let skipped = usize::try_from(self.offset).unwrap_or(usize::MAX).min(ranks.len());
        let left = usize::try_from(self.limit).unwrap_or(usize::MAX).min(ranks.len().saturating_sub(skipped));
        if self.is_reverse {
            let end = ranks.end.saturating_sub(skipped);
            end.saturating_sub(left)..end
        } else {
            let start = ranks.start.saturating_add(skipped);
            start..start.saturating_add(left)
        }
    }
}

fn zrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_range(call, None, None)
}

fn zrangebylex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_range(call, Some(By::Lex), Some(false))
}

fn zrangebyscore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_range(call, Some(By::Score), Some(false))
}

fn zrevrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_range(call, Some(By::Rank), Some(true))
}

fn zrevrangebylex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_range(call, Some(By::Lex), Some(true))
}

fn zrevrangebyscore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_range(call, Some(By::Score), Some(true))
}

fn answer_range(
    call: &mut Call<'_, '_>,
    by: Option<By>,
    is_reverse: Option<bool>,
) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let range = RangeArgs::take(&mut call.args, by, is_reverse, true)?;

    let Some(set) = call.view.read_as::<SortedSet>(name)? else {
        call.reply.array(0);
        return Ok(Outcome::Replied);
    };
    let ranks = range.ranks(set);
    let (count, entries) = (ranks.len(), set.range(ranks));
    if range.is_reverse {
        answer_entries(&mut call.reply, count, entries.rev(), range.with_scores);
    } else {
        answer_entries(&mut call.reply, count, entries, range.with_scores);
    }
    Ok(Outcome::Replied)
}

/// Answers `count` members with or without scores. In RESP3 each pair is an array.
pub(in crate::commands) fn answer_entries<'s>(
    reply: &mut Reply<'_>,
    count: usize,
    entries: impl Iterator<Item = (&'s [u8], f64)>,
    with_scores: bool,
) {
    let is_nested = with_scores && reply.protocol() == Protocol::Resp3;
    reply.array(if with_scores && !is_nested { count.saturating_mul(2) } else { count });
    for (member, score) in entries {
        if is_nested {
            reply.array(2);
        }
        reply.bulk(member);
        if with_scores {
            reply.double(score);
        }
    }
}

fn zcount(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_count(call, By::Score)
}

fn zlexcount(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_count(call, By::Lex)
}

fn answer_count(call: &mut Call<'_, '_>, by: By) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let span = Span::new(by, call.args.word()?, call.args.word()?)?;

    let count = call.view.read_as::<SortedSet>(name)?.map_or(0, |set| span.ranks(set, false).len());
    call.reply.count(count);
    Ok(Outcome::Replied)
}

fn zremrangebylex(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    remove_range(call, By::Lex, "zremrangebylex")
}

fn zremrangebyrank(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    remove_range(call, By::Rank, "zremrangebyrank")
}

fn zremrangebyscore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    remove_range(call, By::Score, "zremrangebyscore")
}

fn remove_range(call: &mut Call<'_, '_>, by: By, event: &'static str) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let span = Span::new(by, call.args.word()?, call.args.word()?)?;

    let mut removed = 0;
    if let Some(mut editor) = call.view.find::<SortedSet>(name)? {
        let ranks = span.ranks(editor.get(), false);
        removed = ranks.len();
        if removed > 0 {
            editor.remove_range(ranks);
            editor.event(b'z', event);
        }
    }

    call.reply.count(removed);
    Ok(Outcome::Replied)
}

fn zrangestore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let target = call.args.word()?;
    let source = call.args.word()?;
    let range = RangeArgs::take(&mut call.args, None, None, false)?;

    let mut stored = SortedSet::new(call.view.seed());
    if let Some(set) = call.view.read_as::<SortedSet>(source)? {
        for (member, score) in set.range(range.ranks(set)) {
            stored.insert(member, score);
        }
    }
    store(call, target, stored, "zrangestore");
    Ok(Outcome::Replied)
}

/// Stores a set under a key, whatever the key held, and answers its length. An empty set removes the key.
pub(in crate::commands) fn store(call: &mut Call<'_, '_>, name: &[u8], set: SortedSet, event: &'static str) {
    call.reply.count(set.len());
    if !set.is_empty() {
        call.view.entry(name).put_object(set.into(), Lease::Never);
        call.view.event(b'z', event, name);
    } else if call.view.remove(name) {
        call.view.event(b'g', "del", name);
    }
}
