//! Functions: FUNCTION, FCALL and FCALL_RO.
//!
//! Owns    how a library is loaded and how a function is found. The interpreter runs it.
//! Locks   the shards of the declared keys before the interpreter, as for interpreted scripts. Libraries change on the script
//!         thread, so that no function runs meanwhile.
//! Source  Redis 7.0 `functions.c`. There is no DUMP and no RESTORE: libraries come as text.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::{Reply, Request};

use crate::commands::admin::acl_check;
use crate::commands::admin::persistence::journal;
use crate::commands::help;
use crate::commands::row::{Arg, Flags, Group, Row, key, key_count, one_of, pattern, text, token};
use crate::commands::script::context::ScriptContext;
use crate::commands::script::interpreter::Invocation;
use crate::commands::script::library::{Library, texts};
use crate::commands::script::{begin_long, busy, counted, end_running, refuse_in_cluster};
use crate::commands::{Args, Call, Outcome, Shared};
use crate::keyspace::{ShardSet, View};
use crate::scripts::Inputs;
use crate::scripts::library::{Function, library};
use crate::state::clients::Client;
use crate::state::session::Session;
use crate::types::glob;

const CALLS: Flags = Flags::SCRIPT.with(Flags::NOSCRIPT).with(Flags::STALE).with(Flags::OFFLOAD);
const LOOKS: Flags = Flags::NOSCRIPT;
/// Libraries change on the script thread, so that no function runs. Every shard is locked for the journal.
const CHANGES: Flags = Flags::WRITE.with(Flags::NOSCRIPT).with(Flags::ALL_SHARDS).with(Flags::OFFLOAD);

const CALL: &[Arg] = &[text("function"), key_count(), key("key").maybe().many(), text("arg").maybe().many()];

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Scripting, "FCALL", "7.0.0", fcall).summary("Calls a function.").flags(CALLS).args(CALL),
    Row::new(Group::Scripting, "FCALL_RO", "7.0.0", fcall)
        .summary("Calls a function that only reads.")
        .flags(CALLS.with(Flags::READONLY))
        .args(CALL),
    Row::container(Group::Scripting, "FUNCTION", "7.0.0", SUBCOMMANDS)
        .summary("Manages libraries of functions."),
];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Scripting, "LOAD", "7.0.0", load)
        .summary("Loads a library and returns its name.")
        .flags(CHANGES.with(Flags::DENYOOM))
        .args(&[token("replace", "REPLACE").maybe(), text("function-code")]),
    Row::new(Group::Scripting, "LIST", "7.0.0", list)
        .summary("Describes the libraries and their functions.")
        .flags(LOOKS)
        .args(&[
            pattern("library-name-pattern").after("LIBRARYNAME").maybe(),
            token("withcode", "WITHCODE").maybe(),
        ]),
    Row::new(Group::Scripting, "DELETE", "7.0.0", delete)
        .summary("Deletes a library.")
        .flags(CHANGES.with(Flags::REMOVES))
        .args(&[text("library-name")]),
    Row::new(Group::Scripting, "FLUSH", "7.0.0", flush)
        .summary("Deletes all libraries.")
        .flags(CHANGES.with(Flags::REMOVES))
        .args(&[one_of("flush-type", &[token("async", "ASYNC"), token("sync", "SYNC")]).maybe()]),
    Row::new(Group::Scripting, "STATS", "7.0.0", stats)
        .summary("Returns the running function, and the number of functions.")
        .flags(LOOKS.with(Flags::BUSY)),
    Row::new(Group::Scripting, "KILL", "7.0.0", kill)
        .summary("Ends a function that runs too long.")
        .flags(LOOKS.with(Flags::BUSY)),
    help::row(Group::Scripting).since("7.0.0"),
];

/// The keys and arguments of a function, and the request that calls it.
fn called<'a>(args: &mut Args<'a>) -> Result<(Inputs<'a>, Request<'a>), Refusal> {
    let count = number::integer(args.word()?);
    let count = count.ok_or_else(|| Refusal::said("ERR Bad number of keys provided"))?;
    Ok((counted(args, count)?, args.request()))
}

fn fcall(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let called = called(&mut call.args);
    let callable = call.shared.scripts.libraries.function(name);
    let callable = callable.ok_or_else(|| Refusal::said("ERR Function not found"))?;
    let (inputs, request) = called?;
    let function = callable.function();
    if !function.runs_in_cluster() {
        refuse_in_cluster(call.shared)?;
    }
    let must_only_read = call.command.row.flags.has(Flags::READONLY);
    if must_only_read && !function.only_reads() {
        return Err(Refusal::said("ERR Can not execute a script with write flag using *_ro command."));
    }
    let (only_reads, may_grow) = (function.only_reads(), function.may_grow());
    if call.session.is_short_of_memory && !only_reads && !may_grow {
        return Err(Refusal::OutOfMemory);
    }
    let asks_further = &callable.library.asks_further;
    begin_long(call, asks_further);
    let mut context = ScriptContext::new(call.view, call.session, call.shared, only_reads);
    context.may_grow |= may_grow;
    context.note_asks_further(asks_further);
    if !function.may_cross_slots() {
        context.keep_to_one_slot();
    }
    let invocation = Invocation { library: callable.library.id, name: &function.name, inputs, request };
    context.run(|context| call.shared.scripts.interpreter.call(invocation, context, &mut call.reply))
}

fn load(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut replaces = false;
    while call.args.len() > 1 {
        if !call.args.take("REPLACE") {
            return Err(Refusal::quoting("ERR Unknown option given: ", call.args.word()?, ""));
        }
        replaces = true;
    }
    let text = call.args.word()?;
    let name = enter(text, replaces, (call.view, call.session), call.shared)?;

    keep(call.shared);

    call.reply.bulk(name.as_bytes());
    Ok(Outcome::Replied)
}

/// Puts the libraries into the journal, if there is one. Every shard is locked.
fn keep(shared: &Shared) {
    if let Some(log) = journal(shared) {
        log.put_functions(shared.scripts.libraries.dump());
    }
}

impl Shared {
    /// Loads the libraries of a dump, at the start of a server. One that cannot be loaded is left out, which the log says.
    pub fn restore_functions(&self, dump: &Bytes) {
        let client = Client::new(0, String::new(), String::new(), false, self.instance.started);
        let mut session = Session::new(Arc::new(client), Arc::clone(self.access.acl.default_account()), true);
        let mut view = View::lock(&self.keyspace, ShardSet::All, 0, self.clock.now(), self.events());
        for text in texts(dump.clone()) {
            if let Err(refusal) = enter(&text, true, (&mut view, &mut session), self) {
                let reason = refusal.text().into_owned();
                tracing::error!(reason, "A library of functions cannot be loaded again");
            }
        }
        view.finish(&self.registries);
    }
}

/// Loads a library, and returns its name. Every shard is locked.
fn enter<'k>(
    text: &[u8],
    replaces: bool,
    (view, session): (&mut View<'k>, &mut Session),
    shared: &'k Shared,
) -> Result<String, Refusal> {
    let header = library(text).map_err(Refusal::Quoted)?;
    if !replaces && shared.scripts.libraries.has(&header.name) {
        return Err(Refusal::said(format!("ERR Library '{}' already exists", header.name)));
    }
    let mut context = ScriptContext::new(view, session, shared, true);
    let loaded = shared.scripts.interpreter.load(&text[header.body..], &mut context);
    context.end();
    let loaded = loaded?;
    let entered = if loaded.functions.is_empty() {
        Err(Refusal::said("ERR No functions registered"))
    } else {
        let ledger = shared.keyspace.ledger();
        let library = Library::new(header.name.clone(), loaded.id, loaded.functions, text, ledger);
        shared.scripts.libraries.enter(library)
    };
    // What has been replaced goes; or what could not take its place.
    match &entered {
        Ok(old) => shared.scripts.interpreter.forget(&old.iter().map(|old| old.id).collect::<Vec<_>>()),
        Err(_) => shared.scripts.interpreter.forget(&[loaded.id]),
    }
    entered?;
    Ok(header.name)
}

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (mut pattern, mut with_code) = (None, false);
    while let Some(word) = call.args.maybe_word() {
        if !with_code && word.eq_ignore_ascii_case(b"WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && word.eq_ignore_ascii_case(b"LIBRARYNAME") {
            let given = call.args.maybe_word();
            pattern = Some(given.ok_or_else(|| Refusal::said("ERR library name argument was not given"))?);
        } else {
            return Err(Refusal::quoting("ERR Unknown argument ", word, ""));
        }
    }

    let mut libraries = call.shared.scripts.libraries.list();
    if let Some(pattern) = pattern {
        libraries.retain(|library| glob::matches_ignoring_case(pattern, library.name.as_bytes()));
    }
    call.reply.array(libraries.len());
    for library in libraries {
        call.reply.map(if with_code { 4 } else { 3 });
        call.reply.bulk(b"library_name");
        call.reply.bulk(library.name.as_bytes());
        call.reply.bulk(b"engine");
        call.reply.bulk(b"LUA");
        call.reply.bulk(b"functions");
        call.reply.array(library.functions.len());
        for function in &library.functions {
            describe(&mut call.reply, function);
        }
        if with_code {
            call.reply.bulk(b"library_code");
            call.reply.bulk(&library.text);
        }
    }
    Ok(Outcome::Replied)
}

fn describe(reply: &mut Reply<'_>, function: &Function) {
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(function.name.as_bytes());
    reply.bulk(b"description");
    match &function.description {
        Some(text) => reply.bulk(text),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    reply.set(function.flags.len());
    for flag in &function.flags {
        reply.status(flag);
    }
}

fn delete(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    call.args.finish()?;

    let library = call.shared.scripts.libraries.remove(name);
    let library = library.ok_or_else(|| Refusal::said("ERR Library not found"))?;
    call.shared.scripts.interpreter.forget(&[library.id]);
    keep(call.shared);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn flush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if call.args.len() > 1 {
        return Err(Refusal::subcommand_syntax("FUNCTION", call.args.request().word(1)));
    }
    if !call.args.is_empty() && !call.args.take("ASYNC") && !call.args.take("SYNC") {
        return Err(Refusal::said("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
    }

    let libraries = call.shared.scripts.libraries.flush();
    let ids: Vec<u32> = libraries.iter().map(|library| library.id).collect();
    call.shared.scripts.interpreter.forget(&ids);
    keep(call.shared);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn stats(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let (libraries, functions) = call.shared.scripts.libraries.counts();
    // On a server with one thread a short call ends before another client can ask.
    let since = call.shared.scripts.running.since();
    let running = since.and_then(|since| Some((since, call.shared.scripts.running.script()?)));
    if running.as_ref().is_some_and(|(_, script)| !script.is_function()) {
        // A script that is not a function is not reported.
        return Err(busy(false));
    }

    call.reply.map(2);
    call.reply.bulk(b"running_script");
    match running.and_then(|(since, script)| Some((since, script.name, script.function_call?))) {
        Some((since, name, request)) => {
            call.reply.map(3);
            call.reply.bulk(b"name");
            call.reply.bulk(name.as_bytes());
            call.reply.bulk(b"command");
            let words: Vec<&[u8]> = request.request().words().collect();
            // Keys and arguments are shown to a user that may use these keys itself.
            let account = &call.session.account;
            let is_shown = account.is_unlimited() || acl_check::may_send(&account.user(), &words);
            call.reply.bulks(if is_shown { &words } else { words.get(..2).unwrap_or_default() });
            call.reply.bulk(b"duration_ms");
            let now_ms = call.shared.clock.now().lock.as_millis();
            call.reply.integer(now_ms.saturating_sub(since.as_millis()) as i64);
        }
        None => call.reply.null(),
    }
    call.reply.bulk(b"engines");
    call.reply.map(1);
    call.reply.bulk(b"LUA");
    call.reply.map(2);
    call.reply.bulk(b"libraries_count");
    call.reply.count(libraries);
    call.reply.bulk(b"functions_count");
    call.reply.count(functions);
    Ok(Outcome::Replied)
}

fn kill(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    end_running(call.shared, true)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}
