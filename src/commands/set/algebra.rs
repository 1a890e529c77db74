//! Several sets at a time: SINTER, SUNION, SDIFF, their STORE forms, SINTERCARD.
//!
//! Source  Redis 7.0 `t_set.c`.

use smallvec::SmallVec;

use crate::commands::row::{Flags, Group, Row, integer, key, key_count};
use crate::commands::set::members;
use crate::commands::{Args, Call, Outcome};
use crate::error::Refusal;
use crate::keyspace::{Lease, View};
use crate::number;
use crate::types::{Set, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row {
        name: "SDIFF",
        summary: "Returns the members of a set that several others do not have.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::READONLY,
        args: &[key("key").many()],
        subcommands: &[],
        run: sdiff,
    },
    Row {
        name: "SDIFFSTORE",
        summary: "Stores under a key the members of a set that several others do not have.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("destination"), key("key").many()],
        subcommands: &[],
        run: sdiffstore,
    },
    Row {
        name: "SINTER",
        summary: "Returns the members that several sets have in common.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::READONLY,
        args: &[key("key").many()],
        subcommands: &[],
        run: sinter,
    },
    Row {
        name: "SINTERCARD",
        summary: "Returns how many members several sets have in common.",
        since: "7.0.0",
        group: Group::Set,
        flags: Flags::READONLY,
        args: &[key_count(), key("key").many(), integer("limit").after("LIMIT").maybe()],
        subcommands: &[],
        run: sintercard,
    },
    Row {
        name: "SINTERSTORE",
        summary: "Stores under a key the members that several sets have in common.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("destination"), key("key").many()],
        subcommands: &[],
        run: sinterstore,
    },
    Row {
        name: "SUNION",
        summary: "Returns the members of several sets.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::READONLY,
        args: &[key("key").many()],
        subcommands: &[],
        run: sunion,
    },
    Row {
        name: "SUNIONSTORE",
        summary: "Stores under a key the members of several sets.",
        since: "1.0.0",
        group: Group::Set,
        flags: Flags::WRITE.with(Flags::DENYOOM),
        args: &[key("destination"), key("key").many()],
        subcommands: &[],
        run: sunionstore,
    },
];

/// The names of a request's keys; few, most often.
type Names<'a> = SmallVec<[&'a [u8]; 8]>;

/// What is made of several sets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Operation {
    Difference,
    Intersection,
    Union,
}

impl Operation {
    /// Carries it out over the sets under these names; a key that is not there is an empty set.
    fn of(self, view: &mut View<'_>, names: &[&[u8]]) -> Result<Set, Refusal> {
        let result = match self {
            Self::Difference => difference(view, names),
            Self::Intersection => intersection(view, names),
            Self::Union => union(view, names),
        };
        result.map(Set::settled)
    }

    /// The event of a key under which its result was stored.
    fn stored(self) -> &'static str {
        match self {
            Self::Difference => "sdiffstore",
            Self::Intersection => "sinterstore",
            Self::Union => "sunionstore",
        }
    }
}

fn union(view: &mut View<'_>, names: &[&[u8]]) -> Result<Set, Refusal> {
    let mut union = Set::new(view.seed());
    for name in names {
        let Some(set) = view.read_as::<Set>(name)? else { continue };
        if union.is_empty() {
            union = set.clone();
        } else {
            set.iter().for_each(|member| {
                member.with_bytes(|bytes| union.insert(bytes));
            });
        }
    }
    Ok(union)
}

fn difference(view: &mut View<'_>, names: &[&[u8]]) -> Result<Set, Refusal> {
    let Some((first, others)) = names.split_first() else { return Ok(Set::new(view.seed())) };
    let seed = view.seed();
    let mut left = view.read_as::<Set>(first)?.cloned().unwrap_or_else(|| Set::new(seed));
    for name in others {
        let Some(set) = view.read_as::<Set>(name)? else { continue };
        // Whichever is less to look at.
        if set.len() < left.len() {
            set.iter().for_each(|member| {
                member.with_bytes(|bytes| left.remove(bytes));
            });
        } else {
            left.retain(|member| !set.has(member));
        }
    }
    Ok(left)
}

fn intersection(view: &mut View<'_>, names: &[&[u8]]) -> Result<Set, Refusal> {
    let (mut smallest, mut size) = (None, usize::MAX);
    for name in names {
        let len = view.read_as::<Set>(name)?.map_or(0, Set::len);
        if len < size {
            (smallest, size) = (Some(*name), len);
        }
    }
    let Some(smallest) = smallest.filter(|_| size > 0) else { return Ok(Set::new(view.seed())) };
    let seed = view.seed();
    let common = view.find::<Set>(smallest)?.map(|set| set.get().clone());
    let mut common = common.unwrap_or_else(|| Set::new(seed));
    for name in names.iter().filter(|name| **name != smallest) {
        if let Some(set) = view.find::<Set>(name)? {
            common.retain(|member| set.get().has(member));
        }
    }
    Ok(common)
}

fn sdiff(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer(call, Operation::Difference)
}

fn sinter(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer(call, Operation::Intersection)
}

fn sunion(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer(call, Operation::Union)
}

fn answer(call: &mut Call<'_, '_>, operation: Operation) -> Result<Outcome, Refusal> {
    let result = operation.of(call.view, &call.args.rest().collect::<Names<'_>>())?;

    members(&result, &mut call.reply);
    Ok(Outcome::Replied)
}

fn sdiffstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    store(call, Operation::Difference)
}

fn sinterstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    store(call, Operation::Intersection)
}

fn sunionstore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    store(call, Operation::Union)
}

fn store(call: &mut Call<'_, '_>, operation: Operation) -> Result<Outcome, Refusal> {
    let destination = call.args.word()?;
    let result = operation.of(call.view, &call.args.rest().collect::<Names<'_>>())?;

    let len = result.len();
    if len > 0 {
        call.view.entry(destination).put_object(result.into(), Lease::Never);
        call.view.event(b's', operation.stored(), destination);
    } else if call.view.remove(destination) {
        call.view.event(b'g', "del", destination);
    }

    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn sintercard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let count = number::integer(call.args.word()?).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or_else(|| Refusal::said("ERR numkeys should be greater than 0"))?;
    if count > call.args.len() {
        return Err(Refusal::said("ERR Number of keys can't be greater than number of args"));
    }
    let names: Names<'_> = call.args.rest_to(count).collect();
    let limit = limit(&mut call.args)?;

    let common = intersection(call.view, &names)?;

    call.reply.count(common.len().min(limit));
    Ok(Outcome::Replied)
}

fn limit(args: &mut Args<'_>) -> Result<usize, Refusal> {
    let mut limit = usize::MAX;
    while !args.is_empty() {
        if !args.take("LIMIT") {
            return Err(Refusal::Syntax);
        }
        let number = number::integer(args.word()?).and_then(|limit| usize::try_from(limit).ok());
        limit = match number.ok_or_else(|| Refusal::said("ERR LIMIT can't be negative"))? {
            0 => usize::MAX,
            limit => limit,
        };
    }
    Ok(limit)
}
