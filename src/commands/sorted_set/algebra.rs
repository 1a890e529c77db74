//! Sorted sets from sorted sets: union, intersection, difference. Plain sets count as sorted ones with scores of 1.
//!
//! Rule    scores are added in Redis' order, smallest set first, so that sums are the same to the last bit.
//! Source  Redis 7.0 `t_zset.c`: `zunionInterDiffGenericCommand`, `zunionInterAggregate`.

use smallvec::SmallVec;

use crate::commands::row::{Arg, Flags, Group, Row, double, integer, key, key_count, one_of, token};
use crate::commands::sorted_set::range::{answer_entries, store};
use crate::commands::{Args, Call, Outcome};
use crate::error::Refusal;
use crate::keyspace::{Occupied, View};
use crate::number::double::parse;
use crate::number::integer as whole;
use crate::types::{Object, Set, Shape, SortedSet};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row {
        name: "ZDIFF",
        summary: "Returns the members of a sorted set that no other has.",
        since: "6.2.0",
        group: Group::SortedSet,
        flags: Flags::READONLY,
        args: &[key_count(), key("key").many(), token("withscores", "WITHSCORES").maybe()],
        subcommands: &[],
        run: zdiff,
    },
    Row {
        name: "ZDIFFSTORE",
        summary: "Stores the members of a sorted set that no other has.",
        since: "6.2.0",
        group: Group::SortedSet,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("destination"), key_count(), key("key").many()],
        subcommands: &[],
        run: zdiffstore,
    },
    Row {
        name: "ZINTER",
        summary: "Returns the members that sorted sets have in common.",
        since: "6.2.0",
        group: Group::SortedSet,
        flags: Flags::READONLY,
        args: COMBINED,
        subcommands: &[],
        run: zinter,
    },
    Row {
        name: "ZINTERCARD",
        summary: "Returns the number of members that sorted sets have in common.",
        since: "7.0.0",
        group: Group::SortedSet,
        flags: Flags::READONLY,
        args: &[key_count(), key("key").many(), integer("limit").after("LIMIT").maybe()],
        subcommands: &[],
        run: zintercard,
    },
    Row {
        name: "ZINTERSTORE",
        summary: "Stores the members that sorted sets have in common.",
        since: "2.0.0",
        group: Group::SortedSet,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("destination"), key_count(), key("key").many(), WEIGHTS, AGGREGATE],
        subcommands: &[],
        run: zinterstore,
    },
    Row {
        name: "ZUNION",
        summary: "Returns the members that any of some sorted sets has.",
        since: "6.2.0",
        group: Group::SortedSet,
        flags: Flags::READONLY,
        args: COMBINED,
        subcommands: &[],
        run: zunion,
    },
    Row {
        name: "ZUNIONSTORE",
        summary: "Stores the members that any of some sorted sets has.",
        since: "2.0.0",
        group: Group::SortedSet,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("destination"), key_count(), key("key").many(), WEIGHTS, AGGREGATE],
        subcommands: &[],
        run: zunionstore,
    },
];

/// What ZINTER and ZUNION take.
const COMBINED: &[Arg] =
    &[key_count(), key("key").many(), WEIGHTS, AGGREGATE, token("withscores", "WITHSCORES").maybe()];

const WEIGHTS: Arg = double("weight").after("WEIGHTS").many().maybe();
const AGGREGATE: Arg = one_of("aggregate", &[token("sum", "SUM"), token("min", "MIN"), token("max", "MAX")])
    .after("AGGREGATE")
    .maybe();

/// How sorted sets are put together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Difference,
    Intersection,
    Union,
}

/// What becomes of the scores that a member has in several sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Aggregate {
    Max,
    Min,
    Sum,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
            Self::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            // Infinity and its opposite.
            Self::Sum => number_or_zero(a + b),
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A set that goes into an operation.
#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    name: &'a [u8],
    weight: f64,
    len: usize,
}

/// What a source holds.
enum Content<'v> {
    Nothing,
    Plain(&'v Set),
    Sorted(&'v SortedSet),
}

impl<'v> Content<'v> {
    fn of(found: Option<Occupied<'v>>) -> Result<Self, Refusal> {
        let Some(found) = found else { return Ok(Self::Nothing) };
        match found.object() {
            Some(Object::Set(_)) => found.into_object().map(Self::Plain),
            _ => found.into_object().map(Self::Sorted),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Plain(set) => set.len(),
            Self::Sorted(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Nothing => None,
            Self::Plain(set) => set.contains(member).then_some(1.0),
            Self::Sorted(set) => set.score(member),
        }
    }

    fn for_each(&self, mut visit: impl FnMut(&[u8], f64)) {
        match self {
            Self::Nothing => {}
            Self::Plain(set) => set.iter().for_each(|member| member.with_bytes(|bytes| visit(bytes, 1.0))),
            Self::Sorted(set) => set.entries().for_each(|(member, score)| visit(member, score)),
        }
    }
}

/// What a request of this family asks for.
struct Ask<'a> {
    operation: Operation,
    sources: SmallVec<[Source<'a>; 8]>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Members to count at most.
    limit: usize,
}

/// Which options a command has beside those of its operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Gives {
    Count,
    Members,
    Stores,
}

impl<'a> Ask<'a> {
    /// Reads the request from the number of keys on. The types of the keys are looked at before the options, as in
    /// Redis.
    fn take(call: &mut Call<'a, '_>, operation: Operation, gives: Gives) -> Result<Self, Refusal> {
        let count = whole(call.args.word()?).ok_or(Refusal::NotAnInteger)?;
        if count < 1 {
            let name = call.command.name.as_str();
            return Err(Refusal::said(format!("ERR at least 1 input key is needed for '{name}' command")));
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= call.args.len());
        let count = count.ok_or(Refusal::Syntax)?;
        let mut sources = SmallVec::new();
        for name in call.args.rest_to(count) {
            let len = Content::of(call.view.read(name))?.len();
            sources.push(Source { name, weight: 1.0, len });
        }
        let mut ask =
            Self { operation, sources, aggregate: Aggregate::Sum, with_scores: false, limit: usize::MAX };
        while !call.args.is_empty() {
            ask.option(&mut call.args, gives)?;
        }
        if operation != Operation::Difference {
            ask.sources.sort_by_key(|source| source.len);
        }
        Ok(ask)
    }

    fn option(&mut self, args: &mut Args<'a>, gives: Gives) -> Result<(), Refusal> {
        let has_scores = self.operation != Operation::Difference && gives != Gives::Count;
        if has_scores && args.len() > self.sources.len() && args.take("WEIGHTS") {
            for source in &mut self.sources {
                let weight = parse(args.word()?);
                source.weight = weight.ok_or_else(|| Refusal::said("ERR weight value is not a float"))?;
            }
        } else if has_scores && args.take("AGGREGATE") {
            self.aggregate = match () {
                () if args.take("SUM") => Aggregate::Sum,
                () if args.take("MIN") => Aggregate::Min,
                () if args.take("MAX") => Aggregate::Max,
                () => return Err(Refusal::Syntax),
            };
        } else if gives == Gives::Members && args.take("WITHSCORES") {
            self.with_scores = true;
        } else if gives == Gives::Count && args.take("LIMIT") {
            let limit = whole(args.word()?).and_then(|limit| usize::try_from(limit).ok());
            self.limit = match limit.ok_or_else(|| Refusal::said("ERR LIMIT can't be negative"))? {
                0 => usize::MAX,
                limit => limit,
            };
        } else {
            return Err(Refusal::Syntax);
        }
        Ok(())
    }

    /// Carries it out.
    fn result(&self, view: &mut View<'_>) -> Result<SortedSet, Refusal> {
        let mut result = SortedSet::unsettled(view.seed());
        let mut content = |source: &Source<'a>, see: &mut dyn FnMut(Content<'_>)| {
            see(Content::of(view.entry(source.name).occupied())?);
            Ok::<(), Refusal>(())
        };
        if self.operation == Operation::Union {
            for source in &self.sources {
                content(source, &mut |content| {
                    content.for_each(|member, score| {
                        let score = number_or_zero(source.weight * score);
                        let old = result.score(member);
                        let score = old.map_or(score, |old| self.aggregate.of(old, score));
                        // An equal score stays as it is, and with it the sign of a zero.
                        if old.is_some_and(|old| old == score && old.to_bits() != score.to_bits()) {
                            result.remove(member);
                        }
                        result.insert(member, score);
                    });
                })?;
            }
            return Ok(result);
        }
        let Some((first, others)) = self.sources.split_first() else { return Ok(result) };
        let mut members: Vec<(Box<[u8]>, f64)> = Vec::new();
        content(first, &mut |content| {
            content.for_each(|member, score| {
                members.push((member.into(), number_or_zero(first.weight * score)))
            });
        })?;
        for source in others {
            content(source, &mut |content| {
                members.retain_mut(|(member, score)| match (content.score(member), self.operation) {
                    (Some(other), Operation::Intersection) => {
                        *score = self.aggregate.of(*score, other * source.weight);
                        true
                    }
                    (found, operation) => found.is_none() && operation == Operation::Difference,
                });
            })?;
        }
        for (member, score) in &members {
            result.insert(member, *score);
        }
        Ok(result)
    }
}

fn zdiff(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer(call, Operation::Difference)
}

fn zinter(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer(call, Operation::Intersection)
}

fn zunion(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer(call, Operation::Union)
}

fn answer(call: &mut Call<'_, '_>, operation: Operation) -> Result<Outcome, Refusal> {
    let ask = Ask::take(call, operation, Gives::Members)?;

    let result = ask.result(call.view)?;

    answer_entries(&mut call.reply, result.len(), result.entries(), ask.with_scores);
    Ok(Outcome::Replied)
}

fn zintercard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let ask = Ask::take(call, Operation::Intersection, Gives::Count)?;

    let result = ask.result(call.view)?;

    call.reply.count(result.len().min(ask.limit));
    Ok(Outcome::Replied)
}

fn zdiffstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    store_result(call, Operation::Difference, "zdiffstore")
}

fn zinterstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    store_result(call, Operation::Intersection, "zinterstore")
}

fn zunionstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    store_result(call, Operation::Union, "zunionstore")
}

fn store_result(
    call: &mut Call<'_, '_>,
    operation: Operation,
    event: &'static str,
) -> Result<Outcome, Refusal> {
    let target = call.args.word()?;
    let ask = Ask::take(call, operation, Gives::Stores)?;

    let result = ask.result(call.view)?;

    store(call, target, result.settled(), event);
    Ok(Outcome::Replied)
}
