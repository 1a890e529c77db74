//! Scripts: EVAL, EVALSHA, their read-only forms, and SCRIPT.
//!
//! Owns    how a script is found, on what it runs, and how its answer is given: plain ones natively, all others on the
//!         interpreter, with the same result.
//! Locks   before the first call the shards of all keys of a plain script, those its text names included; every shard for
//!         one that makes keys as it runs, and for an interpreted one.
//! Source  Redis 7.0 `eval.c`, `script.c`; error texts of `redis.call` from `script_lua.c`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::inside::Inside;
use super::interpreter::Run;
use super::row::{Flags, Group, Row, key, key_count, one_of, text, token};
use super::script_cache::Script;
use super::{Args, Call, Command, Outcome, Shared, help};
use crate::error::Refusal;
use crate::keyspace::Reach;
use crate::limits::WORK_MAX;
use crate::resp::{Reply, Request};
use crate::scripts::plain::{Program, Raised};
use crate::scripts::{Inputs, SHA_DIGITS, Sizes, digest};
use crate::state::running::Unkillable;

const SCRIPT: Flags = Flags::SCRIPT.with(Flags::NOSCRIPT).with(Flags::STALE);
const ADMIN: Flags = Flags::NOSCRIPT;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "EVAL",
        summary: "Runs a Lua script.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: SCRIPT,
        args: &[text("script"), key_count(), key("key").maybe().many(), text("arg").maybe().many()],
        subcommands: &[],
        run: eval,
    },
    Row {
        name: "EVALSHA",
        summary: "Runs a loaded Lua script by its SHA1.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: SCRIPT,
        args: &[text("sha1"), key_count(), key("key").maybe().many(), text("arg").maybe().many()],
        subcommands: &[],
        run: evalsha,
    },
    Row {
        name: "EVAL_RO",
        summary: "Runs a Lua script that only reads.",
        since: "7.0.0",
        group: Group::Scripting,
        flags: SCRIPT.with(Flags::READONLY),
        args: &[text("script"), key_count(), key("key").maybe().many(), text("arg").maybe().many()],
        subcommands: &[],
        run: eval,
    },
    Row {
        name: "EVALSHA_RO",
        summary: "Runs a loaded Lua script that only reads, by its SHA1.",
        since: "7.0.0",
        group: Group::Scripting,
        flags: SCRIPT.with(Flags::READONLY),
        args: &[text("sha1"), key_count(), key("key").maybe().many(), text("arg").maybe().many()],
        subcommands: &[],
        run: evalsha,
    },
    Row {
        name: "SCRIPT",
        summary: "Manages the scripts that have been loaded.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: Flags::NONE,
        args: &[],
        subcommands: SUBCOMMANDS,
        run: super::container,
    },
];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "LOAD",
        summary: "Loads a script without running it; answers its SHA1.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: ADMIN.with(Flags::STALE).with(Flags::ALL_SHARDS),
        args: &[text("script")],
        subcommands: &[],
        run: load,
    },
    Row {
        name: "EXISTS",
        summary: "Tells of each SHA1 whether its script is loaded.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: ADMIN,
        args: &[text("sha1").many()],
        subcommands: &[],
        run: exists,
    },
    Row {
        name: "FLUSH",
        summary: "Forgets all loaded scripts.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: ADMIN.with(Flags::ALL_SHARDS),
        args: &[one_of("flush-type", &[token("async", "ASYNC"), token("sync", "SYNC")]).maybe()],
        subcommands: &[],
        run: flush,
    },
    Row {
        name: "KILL",
        summary: "Ends a script that runs too long.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: ADMIN.with(Flags::BUSY),
        args: &[],
        subcommands: &[],
        run: kill,
    },
    help::row(Group::Scripting),
];

/// KEYS and ARGV: the next `count` words, and those behind them.
///
/// # Errors
/// Where there are fewer, or none can be.
pub(super) fn counted<'a>(args: &mut Args<'a>, count: i64) -> Result<Inputs<'a>, Refusal> {
    if count > args.len() as i64 {
        return Err(Refusal::said("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Refusal::said("ERR Number of keys can't be negative"))?;
    let keys = args.part(count);
    Ok(Inputs { keys, args: args.part(args.len()) })
}

fn inputs<'a>(args: &mut Args<'a>) -> Result<Inputs<'a>, Refusal> {
    let count = args.integer()?;
    counted(args, count)
}

fn eval(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let text = call.args.word()?;
    let inputs = inputs(&mut call.args)?;

    let scripts = &call.shared.scripts;
    let find = || scripts.of_text(text);
    scripts.resolved(
        call,
        |script| script.is(text),
        find,
        |call, script| match script {
            Some(script) => run(call, script, inputs, Cached::Yes),
            None => run(call, &Arc::new(Script::read(text)?), inputs, Cached::NotYet),
        },
    )
}

fn evalsha(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let sha = call.args.word()?;
    // What has not the length of a SHA-1 is refused before what follows it is looked at.
    if sha.len() != SHA_DIGITS {
        return Err(Refusal::NoScript);
    }
    let inputs = inputs(&mut call.args)?;

    let scripts = &call.shared.scripts;
    let (is_it, find) = (|script: &Script| script.sha == *sha, || scripts.find(sha));
    scripts.resolved(call, is_it, find, |call, script| {
        run(call, script.ok_or(Refusal::NoScript)?, inputs, Cached::Yes)
    })
}

/// Whether the cache has a script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cached {
    Yes,
    /// It has yet to be compiled, too, if it is not plain.
    NotYet,
}

fn run(
    call: &mut Call<'_, '_>,
    script: &Arc<Script>,
    inputs: Inputs<'_>,
    cached: Cached,
) -> Result<Outcome, Refusal> {
    let program = natively(call, script, inputs);
    match program {
        // Its keys are those that the request names: their shards are locked already.
        Some(program) if program.names_no_other_keys() => {}
        Some(program) => match program.undeclared(inputs.args) {
            Some(undeclared) => {
                let keys: SmallVec<[&[u8]; 8]> = inputs.keys.iter().chain(undeclared).collect();
                widen(call, Reach::Keys(&keys))?;
            }
            None => widen(call, Reach::All)?,
        },
        None => {
            if is_much(call, script, inputs) && may_leave(call) {
                return Ok(Outcome::Aside);
            }
            // What an interpreted script touches cannot be known beforehand.
            widen(call, Reach::All)?;
        }
    }
    if cached == Cached::NotYet {
        if script.program.is_none() {
            call.shared.interpreter.check(script, &call.shared.settings)?;
        }
        call.shared.scripts.pass(script);
    }
    let is_read = call.command.row.flags.has(Flags::READONLY);
    if is_read && script.may_write() {
        return Err(Refusal::said("ERR Can not execute a script with write flag using *_ro command."));
    }
    if call.session.is_short_of_memory && script.may_write() && !script.flags.allow_oom {
        return Err(Refusal::OutOfMemory);
    }
    let only_reads = script.flags.no_writes || is_read;
    let mut inside = Inside::new(call.view, call.session, call.shared, only_reads);
    inside.may_grow |= script.flags.allow_oom;
    inside.run(None, |inside| match program {
        Some(program) => {
            run_natively(program, &inputs, inside, &mut call.reply).map_err(|raised| refusal(script, &raised))
        }
        None => call.shared.interpreter.run(Run { script, inputs }, inside, &mut call.reply),
    })
}

/// The script as it is run natively, if it is plain and does little with these KEYS and ARGV. What may be much is left to the
/// interpreter, which others see at work and can end.
#[inline]
fn natively<'s>(call: &mut Call<'_, '_>, script: &'s Script, inputs: Inputs<'_>) -> Option<&'s Program> {
    let program = script.program.as_ref().filter(|program| program.fits(inputs))?;
    let mut work = program.work(inputs, sizes(call.shared));
    if work > WORK_MAX && program.names_no_other_keys() {
        // There is something large somewhere; perhaps not here.
        let largest = inputs.keys.iter().map(|key| call.view.value_bytes(key) as u64).max().unwrap_or(0);
        work = program.work(inputs, Sizes { largest, ..sizes(call.shared) });
    }
    call.session.worked(work);
    (work <= WORK_MAX || !cfg!(feature = "lua")).then_some(program)
}

/// Whether what takes long may begin again elsewhere: a part of EXEC may if all of EXEC does.
pub(super) fn may_leave(call: &Call<'_, '_>) -> bool {
    call.session.may_leave() || call.view.is_tried_out()
}

/// Whether a script that is interpreted may be more than a thread should be held by.
fn is_much(call: &mut Call<'_, '_>, script: &Script, inputs: Inputs<'_>) -> bool {
    let Some(effort) = script.effort else { return true };
    let work = effort.work(inputs, sizes(call.shared)).saturating_mul(INTERPRETED);
    call.session.worked(work);
    work > WORK_MAX
}

/// The work that a request for a script may be, which EXEC carries out among others that leave `largest` bytes under a key;
/// `None` where it cannot be told.
pub(crate) fn work_in_transaction(
    shared: &Shared,
    command: &Command,
    request: Request<'_>,
    largest: u64,
) -> Option<u64> {
    let mut args = Args::new(request, command.name_words);
    let text = args.word().ok()?;
    let script = match command.row.name {
        "EVAL" | "EVAL_RO" => shared.scripts.of_text(text),
        "EVALSHA" | "EVALSHA_RO" => shared.scripts.find(text),
        // What a function does its name does not tell.
        _ => None,
    }?;
    let inputs = inputs(&mut args).ok()?;
    let sizes = Sizes { largest, ..sizes(shared) };
    match script.program.as_ref().filter(|program| program.fits(inputs)) {
        Some(program) => Some(program.work(inputs, sizes)),
        None => Some(script.effort?.work(inputs, sizes).saturating_mul(INTERPRETED)),
    }
}

/// How much longer the interpreter takes to look at a value.
const INTERPRETED: u64 = 4;

#[inline]
fn sizes(shared: &Shared) -> Sizes {
    Sizes { largest: shared.keyspace.largest_bytes(), message: shared.audience.channels.message_work() }
}

/// Has the view of a call hold what `reach` needs; inside EXEC it holds everything already.
///
/// # Errors
/// [`Refusal::Occupied`] while a long call holds it.
pub(super) fn widen(call: &mut Call<'_, '_>, reach: Reach<'_>) -> Result<(), Refusal> {
    let is_wide = call.view.holds_all() || call.view.relock(reach);
    is_wide.then_some(()).ok_or(Refusal::Occupied)
}

/// Room for texts that a session keeps between scripts.
const SCRATCH_BYTES_KEPT: usize = 4096;

fn run_natively(
    program: &Program,
    inputs: &Inputs<'_>,
    inside: &mut Inside<'_, '_>,
    reply: &mut Reply<'_>,
) -> Result<(), Raised> {
    if let Some(result) = program.run_guarded(inputs, inside, reply) {
        return result;
    }
    let mut texts = inside.take_scratch();
    let result = program.run(inputs, inside, &mut texts, reply);
    texts.clear();
    texts.shrink_to(SCRATCH_BYTES_KEPT);
    inside.keep_scratch(texts);
    result
}

/// The error that ended a script.
fn refusal(script: &Script, raised: &Raised) -> Refusal {
    let place = format!(" script: {}, on @user_script:{}.", script.hex(), raised.line);
    Refusal::Quoted([raised.text.as_slice(), place.as_bytes()].concat())
}

fn load(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let text = call.args.word()?;
    call.args.finish()?;

    let script = match call.shared.scripts.get(&digest(text)) {
        Some(script) => script,
        None => {
            let script = Arc::new(Script::read(text)?);
            if script.program.is_none() {
                call.shared.interpreter.check(&script, &call.shared.settings)?;
            }
            script
        }
    };
    call.shared.scripts.keep(&script);

    call.reply.bulk(script.hex().as_bytes());
    Ok(Outcome::Replied)
}

fn exists(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.array(call.args.len());
    for sha in call.args.rest() {
        call.reply.integer(i64::from(call.shared.scripts.find(sha).is_some()));
    }
    Ok(Outcome::Replied)
}

fn flush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let is_known = call.args.is_empty() || call.args.take("ASYNC") || call.args.take("SYNC");
    if !is_known || !call.args.is_empty() {
        return Err(Refusal::said("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }

    call.shared.scripts.flush();
    call.shared.interpreter.flush();

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn kill(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    end_running(call.shared, false)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Ends the script that runs, if it is of that kind and has not written yet: SCRIPT KILL, FUNCTION KILL.
pub(super) fn end_running(shared: &Shared, is_function: bool) -> Result<(), Refusal> {
    shared.running.kill(is_function).map_err(|why| match why {
        Unkillable::NoneRuns => Refusal::said("NOTBUSY No scripts in execution right now."),
        Unkillable::OtherKind => busy(!is_function),
        Unkillable::HasWritten => Refusal::said(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ),
    })
}

/// What everybody else is told while a script runs longer than it should.
pub(crate) fn busy(is_function: bool) -> Refusal {
    let kill = if is_function { "FUNCTION KILL" } else { "SCRIPT KILL" };
    Refusal::said(format!(
        "BUSY Redis is busy running a script. You can only call {kill} or SHUTDOWN NOSAVE."
    ))
}
