//! Commands on single members of sorted sets: ZADD, ZSCORE, ZRANK and similar.
//!
//! Source  Redis 7.0 `t_zset.c`; WITHSCORE of ZRANK and ZREVRANK of Valkey 9.1.

pub(in crate::commands) mod intersection;
pub(in crate::commands) mod pop;
pub(in crate::commands) mod range;

use redlatch_proto::error::Refusal;
use redlatch_proto::number::double::parse;

use crate::commands::row::{Arg, Flags, Group, Row, block, double, key, one_of, text, token};
use crate::commands::{Args, Call, Outcome};
use crate::keyspace::Editor;
use crate::types::{Shape, SortedSet};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::SortedSet, "ZADD", "1.2.0", zadd)
        .summary("Adds members to a sorted set or gives them other scores, if the conditions hold.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[
            key("key"),
            one_of("condition", &[token("nx", "NX"), token("xx", "XX")]).maybe(),
            one_of("comparison", &[token("gt", "GT"), token("lt", "LT")]).maybe(),
            token("change", "CH").maybe(),
            token("increment", "INCR").maybe(),
            PAIR.many(),
        ]),
    Row::new(Group::SortedSet, "ZCARD", "1.2.0", zcard)
        .summary("Returns the number of members of a sorted set.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::SortedSet, "ZINCRBY", "1.2.0", zincrby)
        .summary("Adds to the score of a member of a sorted set; a missing member counts as 0.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST))
        .args(&[key("key"), double("increment"), text("member")]),
    Row::new(Group::SortedSet, "ZMSCORE", "6.2.0", zmscore)
        .summary("Returns the scores of members of a sorted set.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("member").many()]),
    Row::new(Group::SortedSet, "ZRANK", "2.0.0", zrank)
        .summary("Returns the rank of a member of a sorted set, lowest score first.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("member"), token("withscore", "WITHSCORE").maybe()]),
    Row::new(Group::SortedSet, "ZREM", "1.2.0", zrem)
        .summary("Removes members of a sorted set.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::FAST))
        .args(&[key("key"), text("member").many()]),
    Row::new(Group::SortedSet, "ZREVRANK", "2.0.0", zrevrank)
        .summary("Returns the rank of a member of a sorted set, highest score first.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("member"), token("withscore", "WITHSCORE").maybe()]),
    Row::new(Group::SortedSet, "ZSCORE", "1.2.0", zscore)
        .summary("Returns the score of a member of a sorted set.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key"), text("member")]),
];

const PAIR: Arg = block("data", &[double("score"), text("member")]);

/// The options of ZADD: which members it changes and what it answers.
#[derive(Clone, Copy, Debug, Default)]
struct AddOptions {
    only_new: bool,
    only_present: bool,
    only_greater: bool,
    only_less: bool,
    counts_changes: bool,
    is_increment: bool,
}

impl AddOptions {
    fn take(args: &mut Args<'_>) -> Self {
        let mut options = Self::default();
        loop {
            let option = match () {
                () if args.take("NX") => &mut options.only_new,
                () if args.take("XX") => &mut options.only_present,
                () if args.take("GT") => &mut options.only_greater,
                () if args.take("LT") => &mut options.only_less,
                () if args.take("CH") => &mut options.counts_changes,
                () if args.take("INCR") => &mut options.is_increment,
                () => return options,
            };
            *option = true;
        }
    }

    /// Refuses options that exclude each other. `words` is the number of scores and members.
    fn check(self, words: usize) -> Result<(), Refusal> {
        if words == 0 || !words.is_multiple_of(2) {
            return Err(Refusal::Syntax);
        }
        if self.only_new && self.only_present {
            return Err(Refusal::said("ERR XX and NX options at the same time are not compatible"));
        }
        let kinds = [self.only_new, self.only_greater, self.only_less];
        if kinds.into_iter().filter(|is_set| *is_set).count() > 1 {
            return Err(Refusal::said("ERR GT, LT, and/or NX options at the same time are not compatible"));
        }
        if self.is_increment && words > 2 {
            return Err(Refusal::said("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// The new score of a member whose score was `old`, if the options allow the change.
    fn score(self, old: Option<f64>, given: f64) -> Result<Option<f64>, Refusal> {
        let Some(old) = old else { return Ok((!self.only_present).then_some(given)) };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.is_increment { old + given } else { given };
        if score.is_nan() {
            return Err(Refusal::said("ERR resulting score is not a number (NaN)"));
        }
        let is_refused = (self.only_less && score >= old) || (self.only_greater && score <= old);
        Ok((!is_refused).then_some(score))
    }
}

/// The result of ZADD.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    added: usize,
    updated: usize,
    /// The score of the last member that was changed.
    score: Option<f64>,
}

fn zadd(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let options = AddOptions::take(&mut call.args);
    options.check(call.args.len())?;

    add(call, name, options)
}

fn zincrby(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    // As in Redis, ZINCRBY accepts the options of ZADD. After an option, too few words are left.
    if ["NX", "XX", "CH", "INCR", "GT", "LT"].into_iter().any(|option| call.args.take(option)) {
        return Err(Refusal::Syntax);
    }

    add(call, name, AddOptions { is_increment: true, ..AddOptions::default() })
}

/// Executes ZADD on the scores and members that are left.
fn add(call: &mut Call<'_, '_>, name: &[u8], options: AddOptions) -> Result<Outcome, Refusal> {
    let mut scores = call.args;
    while let Some(word) = scores.maybe_word() {
        parse(word).ok_or(Refusal::NotAFloat)?;
        scores.word()?;
    }

    let editor = match options.only_present {
        true => call.view.find::<SortedSet>(name)?,
        false => Some(call.view.open::<SortedSet>(name)?),
    };
    let done = editor.map_or(Ok(Done::default()), |editor| add_all(editor, call.args, options))?;

    match (options.is_increment, done.score) {
        (true, Some(score)) => call.reply.double(score),
        (true, None) => call.reply.null(),
        (false, _) if options.counts_changes => call.reply.count(done.added.saturating_add(done.updated)),
        (false, _) => call.reply.count(done.added),
    }
    Ok(Outcome::Replied)
}

fn add_all(
    mut editor: Editor<'_, SortedSet>,
    mut pairs: Args<'_>,
    options: AddOptions,
) -> Result<Done, Refusal> {
    let mut done = Done::default();
    while !pairs.is_empty() {
        let given = parse(pairs.word()?).ok_or(Refusal::NotAFloat)?;
        let member = pairs.word()?;
        let old = editor.get().score(member);
        let Some(score) = options.score(old, given)? else { continue };
        done.score = Some(score);
        if old != Some(score) {
            editor.insert(member, score);
            let count = if old.is_none() { &mut done.added } else { &mut done.updated };
            *count = count.saturating_add(1);
        }
    }
    if done.added > 0 || done.updated > 0 {
        editor.event(b'z', if options.is_increment { "zincr" } else { "zadd" });
    }
    Ok(done)
}

fn zrem(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let mut removed = 0;
    if let Some(mut editor) = call.view.find::<SortedSet>(name)? {
        removed = call.args.rest().filter(|member| editor.remove(member).is_some()).count();
        if removed > 0 {
            editor.event(b'z', "zrem");
        }
    }

    call.reply.count(removed);
    Ok(Outcome::Replied)
}

fn zcard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let len = call.view.read_as::<SortedSet>(name)?.map_or(0, SortedSet::len);
    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn zscore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let member = call.args.word()?;

    match call.view.read_as::<SortedSet>(name)?.and_then(|set| set.score(member)) {
        Some(score) => call.reply.double(score),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn zmscore(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let set = call.view.read_as::<SortedSet>(name)?;
    call.reply.array(call.args.len());
    for member in call.args.rest() {
        match set.and_then(|set| set.score(member)) {
            Some(score) => call.reply.double(score),
            None => call.reply.null(),
        }
    }
    Ok(Outcome::Replied)
}

fn zrank(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_rank(call, |_, rank| rank)
}

fn zrevrank(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    answer_rank(call, |set, rank| set.len().saturating_sub(1).saturating_sub(rank))
}

fn answer_rank(
    call: &mut Call<'_, '_>,
    place: impl Fn(&SortedSet, usize) -> usize,
) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let member = call.args.word()?;
    if call.args.len() > 1 {
        return Err(Refusal::Arity(call.command.name.as_str().into()));
    }
    let with_score = call.args.take("WITHSCORE");
    call.args.finish()?;

    let set = call.view.read_as::<SortedSet>(name)?;
    match set.and_then(|set| set.rank(member).map(|(rank, score)| (place(set, rank), score))) {
        Some((rank, score)) if with_score => {
            call.reply.array(2);
            call.reply.count(rank);
            call.reply.double(score);
        }
        Some((rank, _)) => call.reply.count(rank),
        None if with_score => call.reply.null_array(),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}
