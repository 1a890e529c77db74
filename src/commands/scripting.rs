//! Scripts: EVAL, EVALSHA, their read-only forms, and SCRIPT.
//!
//! Owns    what a script sees: the keyspace at one instant, through commands whose replies it reads.
//! Locks   the shards of all its keys, those its text names included, before its first call.
//! Source  Redis 7.0 `eval.c`, `script.c`; error texts of `redis.call` from `script_lua.c`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::row::{Flags, Group, Row, key, key_count, one_of, text, token};
use super::script_cache::{Script, parse_sha, unrecognised};
use super::{Args, Call, Outcome, Shared, help, table};
use crate::clock::Now;
use crate::error::Refusal;
use crate::keyspace::{Reach, View};
use crate::resp::{Protocol, Reply, Request};
use crate::scripts::native::{Answer, Calls, Item, Raised, Returned};
use crate::state::session::Session;

const SCRIPT: Flags = Flags::SCRIPT.with(Flags::NOSCRIPT).with(Flags::STALE);
const ADMIN: Flags = Flags::NOSCRIPT;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "EVAL",
        summary: "Runs a Lua script that the server recognises.",
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
        summary: "Runs a Lua script that the server recognises and that only reads.",
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
        flags: ADMIN.with(Flags::STALE),
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
        flags: ADMIN,
        args: &[one_of("flush-type", &[token("async", "ASYNC"), token("sync", "SYNC")]).maybe()],
        subcommands: &[],
        run: flush,
    },
    Row {
        name: "KILL",
        summary: "Ends a script that runs too long; recognised scripts never do.",
        since: "2.6.0",
        group: Group::Scripting,
        flags: ADMIN,
        args: &[],
        subcommands: &[],
        run: kill,
    },
    help::row(Group::Scripting),
];

type Words<'a> = SmallVec<[&'a [u8]; 8]>;

/// KEYS and ARGV of one call.
struct Inputs<'a> {
    keys: Words<'a>,
    args: Words<'a>,
}

fn inputs<'a>(args: &mut Args<'a>) -> Result<Inputs<'a>, Refusal> {
    let count = args.integer()?;
    if count > args.len() as i64 {
        return Err(Refusal::said("ERR Number of keys can't be greater than number of args"));
    }
    let count = usize::try_from(count).map_err(|_| Refusal::said("ERR Number of keys can't be negative"))?;
    let keys = args.rest_to(count).collect();
    Ok(Inputs { keys, args: args.rest().collect() })
}

fn eval(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let text = call.args.word()?;
    let inputs = inputs(&mut call.args)?;

    let script = call.shared.scripts.pass(text)?;
    run(call, &script, &inputs)
}

fn evalsha(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let sha = call.args.word()?;
    let inputs = inputs(&mut call.args)?;

    let script = parse_sha(sha).and_then(|sha| call.shared.scripts.get(&sha)).ok_or(Refusal::NoScript)?;
    run(call, &script, &inputs)
}

fn run(call: &mut Call<'_, '_>, script: &Arc<Script>, inputs: &Inputs<'_>) -> Result<Outcome, Refusal> {
    let program = &script.program;
    if !program.fits(&inputs.keys, &inputs.args) {
        return Err(misfit(script, inputs));
    }
    let mut reach: Words<'_> = inputs.keys.iter().copied().collect();
    reach.extend(program.undeclared(&inputs.keys, &inputs.args));
    let reach = match reach.as_slice() {
        [] => Reach::Nothing,
        [one] => Reach::One(one),
        many => Reach::Keys(many),
    };
    let shared = call.shared;
    let database = call.session.database;
    let mut view = View::lock(&shared.keyspace, reach, database, call.now, shared.events());

    let mut replies = std::mem::take(&mut call.session.scratch);
    let mut inside = Inside {
        now: view.now(),
        view: &mut view,
        session: &mut *call.session,
        shared,
        replies: &mut replies,
        text: (0, 0),
        only_reads: call.command.row.flags.has(Flags::READONLY),
    };
    let returned = program.run(&inputs.keys, &inputs.args, &mut inside);
    let text = inside.text;
    // What a script selects does not outlive it.
    call.session.database = database;
    let result = answer(&mut call.reply, script, returned, &replies[text.0..text.1]);
    replies.truncate(SCRATCH_BYTES_KEPT);
    replies.shrink_to(SCRATCH_BYTES_KEPT);
    call.session.scratch = replies;
    view.finish(&shared.audience);
    result
}

/// Room for replies that a session keeps between scripts.
const SCRATCH_BYTES_KEPT: usize = 4096;

/// The error of a call whose KEYS or ARGV are not what the script works on.
fn misfit(script: &Script, inputs: &Inputs<'_>) -> Refusal {
    if inputs.keys.is_empty() {
        // What Lua says of the nil that stands in the place of the key.
        let text = "ERR Lua redis lib command arguments must be strings or integers";
        return raised(text.as_bytes(), script, Raised { call: 0 });
    }
    unrecognised(&script.hex)
}

/// What the script returned, in the client's protocol.
fn answer(
    reply: &mut Reply<'_>,
    script: &Script,
    returned: Result<Returned, Raised>,
    text: &[u8],
) -> Result<Outcome, Refusal> {
    match returned {
        Err(error) => return Err(raised(text, script, error)),
        Ok(Returned::Last(Answer::Bulk)) => reply.bulk(text),
        Ok(Returned::Last(Answer::Status)) => reply.status(&String::from_utf8_lossy(text)),
        Ok(Returned::Last(Answer::Error)) => reply.error_bytes(text),
        Ok(Returned::Last(Answer::Integer(number)) | Returned::Integer(number)) => reply.integer(number),
        Ok(Returned::Last(Answer::Nil) | Returned::Nil) => reply.null(),
        Ok(Returned::Bulk(text)) => reply.bulk(text.as_bytes()),
        Ok(Returned::Status(line)) => reply.status(line),
        Ok(Returned::Error(line)) => return Err(Refusal::said(line)),
        Ok(Returned::Array(items)) => {
            reply.array(items.len());
            for item in items {
                match item {
                    Item::Bulk(bytes) => reply.bulk(&bytes),
                    Item::Integer(number) => reply.integer(number),
                    Item::Nil => reply.null(),
                }
            }
        }
    }
    Ok(Outcome::Replied)
}

/// The error of a `redis.call` that ended the script.
fn raised(line: &[u8], script: &Script, raised: Raised) -> Refusal {
    let (line, at) = (String::from_utf8_lossy(line), script.program.line(raised));
    Refusal::said(format!("{line} script: {}, on @user_script:{at}.", script.hex))
}

/// The keyspace as a script sees it: `redis.call`, one command after the other at the same instant.
struct Inside<'c, 'k> {
    view: &'c mut View<'k>,
    now: Now,
    session: &'c mut Session,
    shared: &'k Shared,
    replies: &'c mut Vec<u8>,
    /// Where the text of the last reply lies.
    text: (usize, usize),
    only_reads: bool,
}

impl Calls for Inside<'_, '_> {
    fn call(&mut self, name: &'static str, args: &[&[u8]]) -> Answer {
        let command = table()
            .find(name.as_bytes())
            .expect("a script enters the cache only when its commands are there");
        let mut words: Words<'_> = SmallVec::with_capacity(args.len() + 1);
        words.push(name.as_bytes());
        words.extend_from_slice(args);
        self.replies.clear();
        let result = if self.only_reads && command.row.flags.has(Flags::WRITE) {
            Err(Refusal::said("ERR Write commands are not allowed from read-only scripts."))
        } else if command.fits(words.len()) {
            self.shared.stats[usize::from(command.index)].calls.add(1);
            (command.row.run)(&mut Call {
                view: &mut *self.view,
                args: Args::new(Request::listed(&words), 1),
                reply: Reply::new(self.replies, Protocol::Resp2),
                now: self.now,
                session: &mut *self.session,
                shared: self.shared,
                command,
            })
        } else {
            Err(Refusal::said("ERR Wrong number of args calling Redis command from script"))
        };
        // SELECT holds for the rest of the script.
        self.view.select(self.session.database);
        if let Err(refusal) = result {
            self.replies.clear();
            Reply::new(self.replies, Protocol::Resp2).error_bytes(&refusal.line());
        }
        let (answer, start, end) = read(self.replies);
        self.text = (start, end);
        answer
    }

    fn text(&self) -> &[u8] {
        &self.replies[self.text.0..self.text.1]
    }
}

/// One reply in RESP2, and where its text lies.
fn read(reply: &[u8]) -> (Answer, usize, usize) {
    let line_end = reply.iter().position(|byte| *byte == b'\r').unwrap_or(reply.len());
    let line = reply.get(1..line_end).unwrap_or_default();
    match reply.first() {
        Some(b':') => (Answer::Integer(crate::number::integer(line).unwrap_or(0)), 0, 0),
        Some(b'+') => (Answer::Status, 1, line_end),
        Some(b'-') => (Answer::Error, 1, line_end),
        Some(b'$') if line != b"-1" => (Answer::Bulk, line_end + 2, reply.len() - 2),
        _ => (Answer::Nil, 0, 0),
    }
}

fn load(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let text = call.args.word()?;
    call.args.finish()?;

    let script = call.shared.scripts.load(text)?;

    call.reply.bulk(script.hex.as_bytes());
    Ok(Outcome::Replied)
}

fn exists(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.array(call.args.len());
    for sha in call.args.rest() {
        let is_loaded = parse_sha(sha).is_some_and(|sha| call.shared.scripts.get(&sha).is_some());
        call.reply.integer(i64::from(is_loaded));
    }
    Ok(Outcome::Replied)
}

fn flush(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let is_known = call.args.is_empty() || call.args.take("ASYNC") || call.args.take("SYNC");
    if !is_known || !call.args.is_empty() {
        return Err(Refusal::said("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }

    call.shared.scripts.flush();

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn kill(_: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::said("NOTBUSY No scripts in execution right now."))
}
