//! TEST.FAULT: the faults of a namespace.

use bytes::Bytes;
use redlatch_core::commands::row::{Flags, Group, Row, block, double, integer, one_of, pattern, text, token};
use redlatch_core::commands::{Args, Call, Outcome, help};
use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::Request;

use super::{TEST, row, testing};
use crate::{
    Action, Conditions, FAULT_BYTES_MAX, FAULT_COUNT_MAX, FAULT_MS_MAX, PURPOSES, Rule, Script, Turn,
};

pub(super) const ROWS: &[Row] = &[
    row("ADD", add).summary("Adds a fault and returns its number.").flags(TEST.with(Flags::DENYOOM)).args(&[
        text("command").after("COMMAND").maybe(),
        pattern("pattern").after("KEY").maybe(),
        text("sha1-or-purpose").after("SCRIPT").maybe(),
        pattern("pattern").after("CLIENT").maybe(),
        integer("node").after("NODE").maybe(),
        one_of(
            "turn",
            &[
                integer("n").after("NTH"),
                integer("n").after("EVERY"),
                block("share", &[double("share").after("PROBABILITY"), integer("seed").after("SEED")]),
            ],
        )
        .maybe(),
        integer("times").after("TIMES").maybe(),
        one_of(
            "action",
            &[
                integer("milliseconds").after("DELAY"),
                token("drop-after", "DROP-AFTER"),
                token("drop-before", "DROP-BEFORE"),
                token("duplicate", "DUPLICATE"),
                text("error").after("ERROR"),
                token("expire-key", "EXPIRE-KEY"),
                token("half-reply", "HALF-REPLY"),
                integer("milliseconds").after("PAUSE-CLIENT"),
                token("reset", "RESET"),
                integer("milliseconds").after("STALL"),
            ],
        )
        .after("DO"),
    ]),
    row("CLEAR", clear).summary("Removes all faults and returns how many there were."),
    help::row(Group::Test).flags(TEST),
    row("LIST", list).summary("Lists the faults, how many requests they met, and at how many they acted."),
    row("REMOVE", remove).summary("Removes a fault.").args(&[integer("id")]),
];

fn add(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let nodes = testing(call)?.host.nodes().len();
    let rule = rule(&mut call.args, nodes)?;

    let id = testing(call)?.faults.add(rule)?;

    call.reply.count(id as usize);
    Ok(Outcome::Replied)
}

fn clear(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let removed = testing(call)?.faults.clear();
    call.reply.count(removed);
    Ok(Outcome::Replied)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let faults = testing(call)?.faults.all();
    call.reply.array(faults.len());
    for fault in faults {
        call.reply.map(4);
        call.reply.bulk(b"id");
        call.reply.count(fault.id as usize);
        call.reply.bulk(b"rule");
        call.reply.bulk(fault.rule.to_string().as_bytes());
        call.reply.bulk(b"met");
        call.reply.count(fault.met as usize);
        call.reply.bulk(b"hits");
        call.reply.count(fault.hits as usize);
    }
    Ok(Outcome::Replied)
}

fn remove(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let id = call.args.integer()?;
    call.args.finish()?;

    let was_there = u64::try_from(id).is_ok_and(|id| testing(call).is_ok_and(|test| test.faults.remove(id)));
    call.reply.integer(i64::from(was_there));
    Ok(Outcome::Replied)
}

/// The rule that these words behind TEST.FAULT ADD describe, on a server with so many nodes.
///
/// # Errors
/// What is wrong with them.
pub fn parse(words: &[&[u8]], nodes: usize) -> Result<Rule, Refusal> {
    rule(&mut Args::new(Request::listed(words), 0), nodes)
}

/// Reads the words behind ADD.
fn rule(args: &mut Args<'_>, nodes: usize) -> Result<Rule, Refusal> {
    let mut conditions = Conditions::default();
    let (mut turn, mut times) = (None, None);
    loop {
        let word = args.maybe_word().ok_or_else(|| {
            Refusal::said(
                "ERR a fault ends with DO and an action, as in TEST.FAULT ADD COMMAND SET DO DROP-AFTER",
            )
        })?;
        match word.to_ascii_uppercase().as_slice() {
            b"COMMAND" => once(&mut conditions.command, "COMMAND", command(args)?)?,
            b"KEY" => once(&mut conditions.key, "KEY", short(args, "KEY", "a pattern")?)?,
            b"SCRIPT" => once(&mut conditions.script, "SCRIPT", script(args)?)?,
            b"CLIENT" => once(&mut conditions.client, "CLIENT", short(args, "CLIENT", "a pattern")?)?,
            b"NODE" => {
                let node = count(args, "NODE", (1, nodes as u64))?;
                once(&mut conditions.node, "NODE", u16::try_from(node).unwrap_or(u16::MAX))?;
            }
            b"NTH" => once(&mut turn, TURN, Turn::Nth(count(args, "NTH", (1, FAULT_COUNT_MAX))?))?,
            b"EVERY" => once(&mut turn, TURN, Turn::Every(count(args, "EVERY", (1, FAULT_COUNT_MAX))?))?,
            b"PROBABILITY" => once(&mut turn, TURN, share(args)?)?,
            b"TIMES" => once(&mut times, "TIMES", count(args, "TIMES", (1, FAULT_COUNT_MAX))?)?,
            b"DO" => break,
            _ => return Err(unknown("there is no condition", word, CONDITIONS)),
        }
    }
    let action = action(args)?;
    Ok(Rule { conditions, turn: turn.unwrap_or(Turn::Each), times, action })
}

/// NTH, EVERY and PROBABILITY exclude each other.
const TURN: &str = "one of NTH, EVERY and PROBABILITY";
const CONDITIONS: &str =
    "COMMAND, KEY, SCRIPT, CLIENT, NODE, NTH, EVERY, PROBABILITY ... SEED, TIMES, then DO and an action";
const ACTIONS: &str = "DELAY ms, STALL ms, ERROR text, DROP-BEFORE, DROP-AFTER, HALF-REPLY, RESET, PAUSE-CLIENT ms, \
                       EXPIRE-KEY, DUPLICATE";

fn action(args: &mut Args<'_>) -> Result<Action, Refusal> {
    let word =
        args.maybe_word().ok_or_else(|| Refusal::said(format!("ERR DO needs an action: {ACTIONS}")))?;
    let action = match word.to_ascii_uppercase().as_slice() {
        b"DELAY" => Action::Delay(count(args, "DELAY", (1, FAULT_MS_MAX))?),
        b"DROP-AFTER" => Action::DropAfter,
        b"DROP-BEFORE" => Action::DropBefore,
        b"DUPLICATE" => Action::Duplicate,
        b"ERROR" => Action::Error(error_text(args)?),
        b"EXPIRE-KEY" => Action::ExpireKey,
        b"HALF-REPLY" => Action::HalfReply,
        b"PAUSE-CLIENT" => Action::PauseClient(count(args, "PAUSE-CLIENT", (1, FAULT_MS_MAX))?),
        b"RESET" => Action::Reset,
        b"STALL" => Action::Stall(count(args, "STALL", (1, FAULT_MS_MAX))?),
        _ => return Err(unknown("there is no action", word, ACTIONS)),
    };
    match args.maybe_word() {
        None => Ok(action),
        Some(word) => Err(quoting(
            &format!("ERR the action {} is the end of a fault; behind it is '", action.name()),
            word,
            "'",
        )),
    }
}

/// Sets a condition that has not been given before.
fn once<T>(place: &mut Option<T>, name: &str, value: T) -> Result<(), Refusal> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Refusal::said(format!("ERR a fault has {name} once"))),
    }
}

/// The value of a condition or an action.
fn value<'a>(args: &mut Args<'a>, name: &str) -> Result<&'a [u8], Refusal> {
    args.maybe_word().ok_or_else(|| Refusal::said(format!("ERR {name} needs a value")))
}

fn command(args: &mut Args<'_>) -> Result<Box<str>, Refusal> {
    let word = value(args, "COMMAND")?;
    match super::table().find_whole(word) {
        Some(command) if command.row.group == Group::Test => {
            Err(Refusal::said("ERR no fault meets a TEST command"))
        }
        Some(command) => Ok(command.name.as_str().into()),
        None => Err(quoting(
            "ERR there is no command '",
            word,
            "'; a subcommand is named with a bar, as in CONFIG|GET",
        )),
    }
}

fn script(args: &mut Args<'_>) -> Result<Script, Refusal> {
    let word = value(args, "SCRIPT")?;
    let purposes = || format!("'; SCRIPT is a SHA-1 or one of {}", PURPOSES.join(", "));
    Script::of(word).ok_or_else(|| quoting("ERR there is no purpose '", word, &purposes()))
}

/// A word of bounded length.
fn short(args: &mut Args<'_>, name: &str, what: &str) -> Result<Bytes, Refusal> {
    let word = value(args, name)?;
    match word.len() <= FAULT_BYTES_MAX {
        true => Ok(Bytes::copy_from_slice(word)),
        false => Err(Refusal::said(format!(
            "ERR {name}: {what} has {FAULT_BYTES_MAX} bytes at most, not {}",
            word.len()
        ))),
    }
}

fn error_text(args: &mut Args<'_>) -> Result<Bytes, Refusal> {
    let text = short(args, "ERROR", "a text")?;
    match text.is_empty() || text.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        true => Err(Refusal::said("ERR ERROR: a text is one line, and not empty")),
        false => Ok(text),
    }
}

fn count(args: &mut Args<'_>, name: &str, (least, most): (u64, u64)) -> Result<u64, Refusal> {
    let number = number::integer(value(args, name)?).and_then(|number| u64::try_from(number).ok());
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| Refusal::said(format!("ERR {name} must be a whole number from {least} to {most}")))
}

fn share(args: &mut Args<'_>) -> Result<Turn, Refusal> {
    let share = number::double::parse(value(args, "PROBABILITY")?)
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| Refusal::said("ERR PROBABILITY must be a number from 0 to 1"))?;
    if !args.take("SEED") {
        return Err(Refusal::said("ERR PROBABILITY needs SEED and a whole number behind it"));
    }
    let seed = number::integer(value(args, "SEED")?)
        .ok_or_else(|| Refusal::said("ERR SEED must be a whole number of 64 bits"))?;
    Ok(Turn::Share { share, seed })
}

fn unknown(what: &str, word: &[u8], all: &str) -> Refusal {
    quoting(&format!("ERR {what} '"), word, &format!("'; there are {all}"))
}

/// Quotes the beginning of a word.
fn quoting(before: &str, word: &[u8], after: &str) -> Refusal {
    Refusal::quoting(before, &word[..word.len().min(128)], after)
}
