//! Scripts: EVAL, EVALSHA, their read-only forms, and SCRIPT.
//!
//! Owns    how a script is found and where it runs: natively on the thread of its connection, or by the interpreter
//!         on the script thread. `scripts` states the rule.
//! Locks   a native script locks the shards of all its keys, including keys in its text, before its first call; all
//!         shards if it computes keys. An interpreted script locks the shards of its declared keys. One that asks for
//!         others starts again with all shards if it has only read, and locks the missing ones otherwise.
//! Source  Redis 7.0 `eval.c`, `script.c`; error texts of `redis.call` from `script_lua.c`.

pub(in crate::commands) mod cache;
pub(in crate::commands) mod context;
pub(in crate::commands) mod function;
pub(in crate::commands) mod interpreter;
pub(in crate::commands) mod library;
mod locks;
pub(in crate::commands) mod watchdog;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::limits::LARGE_BYTES;
use redlatch_proto::resp::{Reply, Request};
use smallvec::SmallVec;

use crate::commands::help;
use crate::commands::lock::breaker_of;
use crate::commands::row::{Arg, Flags, Group, Row, key, key_count, one_of, text, token};
use crate::commands::script::cache::Script;
use crate::commands::script::context::ScriptContext;
use crate::commands::script::interpreter::Run;
use crate::commands::{Args, Call, Command, Outcome, Shared, has_many_patterns, quarantine};
use crate::keyspace::ShardSet;
use crate::scripts::native::{Program, Raised};
use crate::scripts::{Inputs, Purpose, SHA_DIGITS, digest};
use crate::state::running::Unkillable;

const SCRIPT: Flags = Flags::SCRIPT.with(Flags::NOSCRIPT).with(Flags::STALE);
const ADMIN: Flags = Flags::NOSCRIPT;

const BY_TEXT: &[Arg] = &[text("script"), key_count(), key("key").maybe().many(), text("arg").maybe().many()];
const BY_SHA1: &[Arg] = &[text("sha1"), key_count(), key("key").maybe().many(), text("arg").maybe().many()];

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Scripting, "EVAL", "2.6.0", eval)
        .summary("Runs a Lua script.")
        .flags(SCRIPT)
        .args(BY_TEXT),
    Row::new(Group::Scripting, "EVALSHA", "2.6.0", evalsha)
        .summary("Runs a loaded Lua script by its SHA1.")
        .flags(SCRIPT)
        .args(BY_SHA1),
    Row::new(Group::Scripting, "EVAL_RO", "7.0.0", eval)
        .summary("Runs a Lua script that only reads.")
        .flags(SCRIPT.with(Flags::READONLY))
        .args(BY_TEXT),
    Row::new(Group::Scripting, "EVALSHA_RO", "7.0.0", evalsha)
        .summary("Runs a loaded Lua script that only reads, by its SHA1.")
        .flags(SCRIPT.with(Flags::READONLY))
        .args(BY_SHA1),
    Row::container(Group::Scripting, "SCRIPT", "2.6.0", SUBCOMMANDS)
        .summary("Manages the scripts that have been loaded."),
];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Scripting, "LOAD", "2.6.0", load)
        .summary("Loads a script without running it and returns its SHA1.")
        .flags(ADMIN.with(Flags::STALE))
        .args(&[text("script")]),
    Row::new(Group::Scripting, "EXISTS", "2.6.0", exists)
        .summary("Returns for each SHA1 whether its script is loaded.")
        .flags(ADMIN)
        .args(&[text("sha1").many()]),
    Row::new(Group::Scripting, "FLUSH", "2.6.0", flush)
        .summary("Deletes all loaded scripts.")
        .flags(ADMIN.with(Flags::OFFLOAD))
        .args(&[one_of("flush-type", &[token("async", "ASYNC"), token("sync", "SYNC")]).maybe()]),
    Row::new(Group::Scripting, "KILL", "2.6.0", kill)
        .summary("Ends a script that runs too long.")
        .flags(ADMIN.with(Flags::BUSY)),
    help::row(Group::Scripting),
];

/// KEYS and ARGV: the next `count` words, and the words after them.
///
/// # Errors
/// There are fewer words, or the count is negative.
pub(in crate::commands) fn counted<'a>(args: &mut Args<'a>, count: i64) -> Result<Inputs<'a>, Refusal> {
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
    if is_for_script_thread(call, text) {
        return Ok(Outcome::Offload);
    }

    match call.shared.scripts.cache.of_text(text) {
        Some(script) => run(call, &script, inputs, Cached::Yes),
        None => run(call, &Arc::new(Script::read(text)?), inputs, Cached::NotYet),
    }
}

fn evalsha(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let sha = call.args.word()?;
    // A word that is not as long as a SHA-1 is refused before the words after it are parsed.
    if sha.len() != SHA_DIGITS {
        return Err(Refusal::NoScript);
    }
    let inputs = inputs(&mut call.args)?;

    let script = call.shared.scripts.cache.find(sha).ok_or(Refusal::NoScript)?;
    run(call, &script, inputs, Cached::Yes)
}

/// Whether a text is so long that it is hashed and parsed on the script thread. There, other calls are told that this one is
/// long.
fn is_for_script_thread(call: &mut Call<'_, '_>, text: &[u8]) -> bool {
    if text.len() as u64 <= LARGE_BYTES {
        return false;
    }
    call.session.may_leave() || {
        call.view.announce_long_call();
        false
    }
}

/// Whether the cache has a script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cached {
    Yes,
    /// It does not. A script that is not native must be compiled first.
    NotYet,
}

fn run(
    call: &mut Call<'_, '_>,
    script: &Arc<Script>,
    inputs: Inputs<'_>,
    cached: Cached,
) -> Result<Outcome, Refusal> {
    let program = match native(call, script, inputs)? {
        Some(program) => Some(program),
        None if call.session.may_leave() => return Ok(Outcome::Offload),
        None => {
            begin_long(call, &script.asks_further);
            None
        }
    };
    if cached == Cached::NotYet {
        if script.program.is_none() {
            call.shared.scripts.interpreter.check(script, &call.shared.settings, call.session.may_block)?;
        }
        call.shared.scripts.cache.insert_evictable(script);
    }
    if script.flags.no_cluster {
        refuse_in_cluster(call.shared)?;
    }
    let is_read = call.command.row.flags.has(Flags::READONLY);
    if is_read && script.may_write() {
        return Err(Refusal::said("ERR Can not execute a script with write flag using *_ro command."));
    }
    if call.session.is_short_of_memory && script.may_write() && !script.flags.allow_oom {
        return Err(Refusal::OutOfMemory);
    }
    if call.shared.locks.quarantine.is_on()
        && let Some(known) = script.known
        && quarantine::answer_acquire(call, known)
    {
        return Ok(Outcome::Replied);
    }
    let only_reads = script.flags.no_writes || is_read;
    let before = locks::Before { reply: call.reply.written(), tokens: call.shared.keyspace.tokens() };
    let purpose = script.known.map(|known| known.purpose);
    if purpose == Some(Purpose::Break) {
        call.view.set_breaker(breaker_of(call.session, None));
    }
    let mut context = ScriptContext::new(call.view, call.session, call.shared, only_reads);
    context.may_grow |= script.flags.allow_oom;
    context.purpose = purpose;
    context.note_asks_further(&script.asks_further);
    if script.is_of_one_slot() {
        context.keep_to_one_slot();
    }
    let outcome = context.run(|context| match program {
        Some(program) => run_natively(program, &inputs, context, &mut call.reply)
            .map_err(|raised| refusal(script, &raised)),
        None => call.shared.scripts.interpreter.run(Run { script, inputs }, context, &mut call.reply),
    });
    let outcome = outcome?;
    call.now = call.view.now();
    if let Some(known) = script.known {
        locks::note(call, known, inputs, before);
    }
    Ok(outcome)
}

/// # Errors
/// The server is in cluster mode, where a script or function with the flag `no-cluster` may not run.
fn refuse_in_cluster(shared: &Shared) -> Result<(), Refusal> {
    match shared.cluster_enabled {
        true => Err(Refusal::said("ERR Can not run script on cluster, 'no-cluster' flag is set.")),
        false => Ok(()),
    }
}

/// The native form of a script, if it stays within its bounds with these KEYS and ARGV, and scans no large value. The
/// shards of its keys are locked if it is returned.
///
/// # Errors
/// [`Refusal::Occupied`] while a long call holds one of these shards.
#[inline]
fn native<'s>(
    call: &mut Call<'_, '_>,
    script: &'s Script,
    inputs: Inputs<'_>,
) -> Result<Option<&'s Program>, Refusal> {
    let Some(program) = script.program.as_ref().filter(|program| program.fits(inputs)) else {
        return Ok(None);
    };
    // The shards of the keys that the request names are locked already.
    if !program.names_no_other_keys() {
        lock_undeclared(call, program, inputs)?;
    }
    let is_large = script.scans_values && scans_large_values(call, program, inputs);
    Ok((!is_large).then_some(program))
}

/// Locks the shards of all keys of a native script that uses undeclared keys.
fn lock_undeclared(call: &mut Call<'_, '_>, program: &Program, inputs: Inputs<'_>) -> Result<(), Refusal> {
    let Some(undeclared) = program.undeclared(inputs.args) else { return lock_more(call, ShardSet::All) };
    let keys: SmallVec<[&[u8]; 8]> = inputs.keys.iter().chain(undeclared).collect();
    lock_more(call, ShardSet::Keys(&keys))
}

/// Whether a native script that scans values would scan a large value, or send a message to many patterns. Such a
/// script is interpreted, so that SCRIPT KILL can end it. Without an interpreter it runs natively on the script
/// thread.
#[cold]
fn scans_large_values(call: &mut Call<'_, '_>, program: &Program, inputs: Inputs<'_>) -> bool {
    let is_large = has_many_patterns(call.shared) || {
        call.shared.keyspace.largest_bytes() > LARGE_BYTES
            && match program.undeclared(inputs.args) {
                Some(undeclared) => inputs
                    .keys
                    .iter()
                    .chain(undeclared)
                    .any(|key| call.view.value_bytes(key) as u64 > LARGE_BYTES),
                None => true,
            }
    };
    is_large && (call.shared.scripts.interpreter.is_present() || call.session.may_leave())
}

/// Whether a request inside EXEC runs a script natively. A script that is not cached counts as interpreted. So does a
/// script that scans values while any key has a large value.
pub(crate) fn runs_natively(shared: &Shared, command: &Command, request: Request<'_>) -> bool {
    let mut args = Args::new(request, command.name_words);
    let Ok(text) = args.word() else { return true };
    let script = match command.row.name {
        "EVAL" | "EVAL_RO" => shared.scripts.cache.of_text(text),
        _ => shared.scripts.cache.find(text),
    };
    let is_large = || has_many_patterns(shared) || shared.keyspace.largest_bytes() > LARGE_BYTES;
    match (script, inputs(&mut args)) {
        (Some(script), Ok(inputs)) => {
            let fits = script.program.as_ref().is_some_and(|program| program.fits(inputs));
            fits && !(script.scans_values && is_large())
        }
        _ => false,
    }
}

/// An interpreted script begins, on the script thread unless it is a part of EXEC: locks every shard if it is known to ask
/// for keys that it does not declare.
fn begin_long(call: &mut Call<'_, '_>, asks_further: &AtomicBool) {
    if !asks_further.load(Relaxed) && !call.session.locks_all {
        call.view.announce_long_call();
    } else if call.session.is_nested {
        call.view.lock_further(ShardSet::All);
    } else {
        call.view.lock_all_for_long();
    }
    call.now = call.view.now();
}

/// Whether a script of EXEC may ask for keys that its request does not declare, as far as is known.
pub(crate) fn asks_further(shared: &Shared, command: &Command, request: Request<'_>) -> bool {
    let mut args = Args::new(request, command.name_words);
    let Ok(name) = args.word() else { return false };
    let script = match command.row.name {
        "FCALL" | "FCALL_RO" => {
            let callable = shared.scripts.libraries.function(name);
            return callable.is_some_and(|callable| callable.library.asks_further.load(Relaxed));
        }
        "EVAL" | "EVAL_RO" => shared.scripts.cache.of_text(name),
        _ => shared.scripts.cache.find(name),
    };
    script.is_some_and(|script| {
        let computes = script.program.as_ref().is_some_and(|program| !program.names_no_other_keys());
        computes || script.asks_further.load(Relaxed)
    })
}

/// Locks further shards, unless they are locked already, as inside EXEC on a worker.
///
/// # Errors
/// [`Refusal::Occupied`] while a long call holds one of these shards.
fn lock_more(call: &mut Call<'_, '_>, reach: ShardSet<'_>) -> Result<(), Refusal> {
    if call.session.is_nested {
        // EXEC on the script thread may have changed something.
        if !call.view.covers(reach) {
            call.view.lock_further(reach);
        }
        return Ok(());
    }
    let is_locked = call.view.holds_all() || call.view.relock(reach);
    is_locked.then_some(()).ok_or(Refusal::Occupied)
}

/// Bytes of the buffer for replies that a session keeps between scripts.
const SCRATCH_BYTES_KEPT: usize = 4096;

fn run_natively(
    program: &Program,
    inputs: &Inputs<'_>,
    context: &mut ScriptContext<'_, '_>,
    reply: &mut Reply<'_>,
) -> Result<(), Raised> {
    if let Some(result) = program.run_guarded(inputs, context, reply) {
        return result;
    }
    let mut texts = context.take_scratch();
    let result = program.run(inputs, context, &mut texts, reply);
    texts.clear();
    texts.shrink_to(SCRATCH_BYTES_KEPT);
    context.keep_scratch(texts);
    result
}

/// The error that ended a script.
fn refusal(script: &Script, raised: &Raised) -> Refusal {
    let origin = format!(" script: {}, on @user_script:{}.", script.hex(), raised.line);
    Refusal::Quoted([raised.text.as_slice(), origin.as_bytes()].concat())
}

fn load(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let text = call.args.word()?;
    call.args.finish()?;
    if is_for_script_thread(call, text) {
        return Ok(Outcome::Offload);
    }

    let script = match call.shared.scripts.cache.get(&digest(text)) {
        Some(script) => script,
        None => {
            let script = Arc::new(Script::read(text)?);
            if script.program.is_none() {
                if call.session.may_leave() {
                    return Ok(Outcome::Offload);
                }
                call.shared
                    .scripts
                    .interpreter
                    .check(&script, &call.shared.settings, call.session.may_block)?;
            }
            script
        }
    };
    call.shared.scripts.cache.insert_permanent(&script);

    call.reply.bulk(script.hex().as_bytes());
    Ok(Outcome::Replied)
}

fn exists(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.array(call.args.len());
    for sha in call.args.rest() {
        call.reply.integer(i64::from(call.shared.scripts.cache.find(sha).is_some()));
    }
    Ok(Outcome::Replied)
}

fn flush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let is_known = call.args.is_empty() || call.args.take("ASYNC") || call.args.take("SYNC");
    if !is_known || !call.args.is_empty() {
        return Err(Refusal::said("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }

    call.shared.scripts.cache.flush();
    call.shared.scripts.interpreter.flush();

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn kill(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    end_running(call.shared, false)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Ends the running script or function, if it has not written yet: SCRIPT KILL, FUNCTION KILL.
pub(in crate::commands) fn end_running(shared: &Shared, is_function: bool) -> Result<(), Refusal> {
    shared.scripts.running.kill(is_function).map_err(|why| match why {
        Unkillable::NoneRuns => Refusal::said("NOTBUSY No scripts in execution right now."),
        Unkillable::OtherKind => busy(!is_function),
        Unkillable::HasWritten => Refusal::said(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You can either wait the \
             script termination or kill the server in a hard way using the SHUTDOWN NOSAVE command.",
        ),
    })?;
    tracing::info!("The running script is killed");
    Ok(())
}

/// The error for requests that a script holds up, if one has run for longer than `busy-reply-threshold`.
pub(crate) fn busy_now(shared: &Shared, now: LockTime) -> Option<Refusal> {
    let millis = now.millis_since(shared.scripts.running.since()?);
    let is_slow = shared.settings.busy_millis().is_some_and(|limit| millis >= limit);
    is_slow.then(|| busy(shared.scripts.running.script().is_some_and(|script| script.is_function())))
}

/// The error that other clients get while a script runs for longer than `busy-reply-threshold`.
fn busy(is_function: bool) -> Refusal {
    let kill = if is_function { "FUNCTION KILL" } else { "SCRIPT KILL" };
    Refusal::said(format!(
        "BUSY Redis is busy running a script. You can only call {kill} or SHUTDOWN NOSAVE."
    ))
}
