//! ZINTERSTORE: stores the members that sorted sets have in common. A member of a set counts with a score of 1.
//!
//! Rule    scores are combined in Redis' order, smallest set first, so that sums are equal to the last bit.
//! Source  Redis 7.0 `t_zset.c`: `zunionInterDiffGenericCommand`, `zunionInterAggregate`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number::double::parse;

use crate::commands::row::{Flags, Group, Row, double, key, key_count, one_of, token};
use crate::commands::sorted_set::range::store;
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::{Occupied, View};
use crate::types::{Element, Object, Set, Shape, SortedSet};

pub(in crate::commands) const ROWS: &[Row] =
    &[Row::new(Group::SortedSet, "ZINTERSTORE", "2.0.0", zinterstore)
        .summary("Stores the members that sorted sets have in common as another sorted set.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::LINEAR))
        .args(&[
            key("destination"),
            key_count(),
            key("key").many(),
            double("weight").after("WEIGHTS").many().maybe(),
            one_of("aggregate", &[token("sum", "SUM"), token("min", "MIN"), token("max", "MAX")])
                .after("AGGREGATE")
                .maybe(),
        ])];

/// How the scores of a member in several sets become one.
#[derive(Clone, Copy, Debug)]
enum Aggregate {
    Max,
    Min,
    Sum,
}

impl Aggregate {
    fn take(args: &mut Args<'_>) -> Result<Self, Refusal> {
        match () {
            () if args.take("SUM") => Ok(Self::Sum),
            () if args.take("MIN") => Ok(Self::Min),
            () if args.take("MAX") => Ok(Self::Max),
            () => Err(Refusal::Syntax),
        }
    }

    /// The score of both; `b` may be NaN, `a` is not.
    fn combine(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Max if b > a => b,
            Self::Min if b < a => b,
            Self::Max | Self::Min => a,
            Self::Sum => number_or_zero(a + b),
        }
    }
}

/// Infinity times zero and infinity less infinity count as 0.
fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

#[derive(Clone, Copy, Debug)]
struct Source<'a> {
    name: &'a [u8],
    weight: f64,
    len: usize,
}

/// The value of a source.
enum Content<'v> {
    Missing,
    Set(&'v Set),
    SortedSet(&'v SortedSet),
}

impl<'v> Content<'v> {
    fn of(found: Option<Occupied<'v>>) -> Result<Self, Refusal> {
        let Some(found) = found else { return Ok(Self::Missing) };
        match found.object() {
            Some(Object::Set(_)) => found.into_object().map(Self::Set),
            _ => found.into_object().map(Self::SortedSet),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Missing => 0,
            Self::Set(set) => set.len(),
            Self::SortedSet(set) => set.len(),
        }
    }

    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Missing => None,
            Self::Set(set) => set.contains(member).then_some(1.0),
            Self::SortedSet(set) => set.score(member),
        }
    }

    /// All members, each with its score times `weight`.
    fn weighted(&self, weight: f64) -> Vec<(Element, f64)> {
        let one = number_or_zero(weight);
        match self {
            Self::Missing => Vec::new(),
            Self::Set(set) => set.iter().map(|member| (member.with_bytes(Element::new), one)).collect(),
            Self::SortedSet(set) => {
                let entries = set.entries();
                entries
                    .map(|(member, score)| (Element::new(member), number_or_zero(weight * score)))
                    .collect()
            }
        }
    }
}

fn zinterstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let target = call.args.word()?;
    let mut sources = take_sources(call)?;
    let aggregate = take_options(&mut call.args, &mut sources)?;
    sources.sort_by_key(|source| source.len);

    let stored = intersection(call.view, &sources, aggregate)?;

    store(call, target, stored, "zinterstore");
    Ok(Outcome::Replied)
}

/// Reads the sources. As in Redis, their types are checked before the options.
fn take_sources<'a>(call: &mut Call<'a, '_>) -> Result<Vec<Source<'a>>, Refusal> {
    let count = call.args.integer()?;
    if count < 1 {
        return Err(Refusal::said("ERR at least 1 input key is needed for 'zinterstore' command"));
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= call.args.len());
    let names = call.args.rest_to(count.ok_or(Refusal::Syntax)?);
    names
        .map(|name| {
            let len = Content::of(call.view.read(name))?.len();
            Ok(Source { name, weight: 1.0, len })
        })
        .collect()
}

/// Reads WEIGHTS into `sources`, and AGGREGATE.
fn take_options(args: &mut Args<'_>, sources: &mut [Source<'_>]) -> Result<Aggregate, Refusal> {
    let mut aggregate = Aggregate::Sum;
    while !args.is_empty() {
        if args.len() > sources.len() && args.take("WEIGHTS") {
            for source in &mut *sources {
                let weight = parse(args.word()?);
                source.weight = weight.ok_or_else(|| Refusal::said("ERR weight value is not a float"))?;
            }
        } else if args.take("AGGREGATE") {
            aggregate = Aggregate::take(args)?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(aggregate)
}

/// The members that all sources have. The first source is a smallest one.
///
/// # Errors
/// A text of its own beyond [`LOOKUPS_MAX`].
fn intersection(
    view: &mut View<'_>,
    sources: &[Source<'_>],
    aggregate: Aggregate,
) -> Result<SortedSet, Refusal> {
    let Some((first, others)) = sources.split_first() else { return Ok(SortedSet::new(view.seed())) };
    if first.len.saturating_mul(others.len()) > LOOKUPS_MAX {
        return Err(Refusal::said("ERR value is out of range"));
    }
    let mut members = Content::of(view.entry(first.name).occupied())?.weighted(first.weight);
    for source in others {
        let content = Content::of(view.entry(source.name).occupied())?;
        members.retain_mut(|(member, score)| {
            let found = content.score(member);
            *score = found.map_or(*score, |other| aggregate.combine(*score, other * source.weight));
            found.is_some()
        });
    }
    let entries = members.iter().map(|(member, score)| (member.as_bytes(), *score));
    Ok(SortedSet::of(entries, view.seed()))
}

/// Maximum number of members that one request looks up: the same set may be named many times. Redis has no such bound.
const LOOKUPS_MAX: usize = 1 << 26;
