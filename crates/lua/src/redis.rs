//! The table `redis`: how a script reaches commands, and the functions that call none.
//!
//! Owns    what the functions take, what they give, and how they fail.
//! Knows   commands only through [`Commands`].
//! Source  Redis 7.0 `script_lua.c`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};
use parking_lot::Mutex;
use redlatch_core::scripts::digest;
use redlatch_core::scripts::interpreter::{Commands, Host, Level, Limits, Verdict};
use redlatch_proto::number::double::Text;
use redlatch_proto::resp::Protocol;
use smallvec::SmallVec;

use super::args::{Call, Library, text_of};
use super::budget::Budget;
use super::convert;
use super::fault::{Fault, Stop, error_table, refused};

/// What the functions of `redis` share with the run.
#[derive(Debug)]
pub(super) struct Shared {
    host: Host,
    run: Mutex<Run>,
}

/// What a script has set and logged so far.
#[derive(Debug)]
struct Run {
    protocol: Protocol,
    lines: Vec<(Level, Vec<u8>)>,
    limits: Option<Limits>,
}

/// Lines that a script logs between two calls; further ones are dropped.
const LINES_MAX: usize = 100;
/// Bytes of a line in the log.
const LINE_BYTES_MAX: usize = 1024;

impl Shared {
    pub(super) fn new(host: Host) -> Self {
        Self { host, run: Mutex::new(Run { protocol: Protocol::Resp2, lines: Vec::new(), limits: None }) }
    }

    pub(super) fn begin(&self, limits: Option<Limits>) {
        *self.run.lock() = Run { protocol: Protocol::Resp2, lines: Vec::new(), limits };
    }

    /// The protocol that replies come in: `redis.setresp`.
    pub(super) fn protocol(&self) -> Protocol {
        self.run.lock().protocol
    }

    /// Hands what the script has logged so far to the server.
    pub(super) fn write_log(&self, commands: &mut dyn Commands) {
        let lines = std::mem::take(&mut self.run.lock().lines);
        for (level, line) in lines {
            commands.log(level, &line);
        }
    }
}

/// Constants of `redis`.
const CONSTANTS: &[(&str, i64)] = &[
    ("LOG_DEBUG", 0),
    ("LOG_VERBOSE", 1),
    ("LOG_NOTICE", 2),
    ("LOG_WARNING", 3),
    ("REPL_NONE", 0),
    ("REPL_AOF", 1),
    ("REPL_SLAVE", 2),
    ("REPL_REPLICA", 2),
    ("REPL_ALL", REPL_ALL),
];
const REPL_ALL: i64 = 3;

/// The table `redis`, without `call` and `pcall`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>, shared: &Arc<Shared>) -> mlua::Result<Table> {
    let library = Library::new(lua, budget)?;
    for (name, value) in CONSTANTS {
        library.table.raw_set(*name, *value)?;
    }
    let version = shared.host.version;
    library.table.raw_set("REDIS_VERSION", version.map(|part| part.to_string()).join("."))?;
    let number = version.iter().fold(0_i64, |number, part| number << 8 | i64::from(*part));
    library.table.raw_set("REDIS_VERSION_NUM", number)?;
    library.add("error_reply", error_reply)?;
    library.add("status_reply", status_reply)?;
    library.add("sha1hex", sha1hex)?;
    library.add("set_repl", set_repl)?;
    // Scripts are replicated by their effects, and there is no debugger.
    library.add("replicate_commands", |_| Ok(true))?;
    library.add("breakpoint", |_| Ok(false))?;
    library.add("debug", |_| Ok(()))?;
    let own = Arc::clone(shared);
    library.add("log", move |call| log(call, &own))?;
    let own = Arc::clone(shared);
    library.add("setresp", move |call| set_protocol(call, &own))?;
    let own = Arc::clone(shared);
    library.add("acl_check_cmd", move |call| acl_check(call, &own))?;
    Ok(library.table)
}

fn error_reply(call: &Call<'_>) -> mlua::Result<Table> {
    let Some(text) = only_string(call.args) else {
        return error_table(call.lua, b"ERR wrong number or type of arguments", false);
    };
    let text = text.as_bytes();
    let text = redlatch_proto::error::until_nul(text.strip_prefix(b"-").unwrap_or(&text));
    // A text of one word has no code.
    let line = if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() };
    error_table(call.lua, &line, false)
}

fn status_reply(call: &Call<'_>) -> mlua::Result<Table> {
    let Some(text) = only_string(call.args) else {
        return error_table(call.lua, b"ERR wrong number or type of arguments", false);
    };
    let table = call.lua.create_table_with_capacity(0, 1)?;
    table.raw_set("ok", text)?;
    Ok(table)
}

fn only_string(args: &MultiValue) -> Option<&LuaString> {
    if args.len() == 1 { args.front()?.as_string() } else { None }
}

fn sha1hex(call: &Call<'_>) -> mlua::Result<LuaString> {
    if call.len() != 1 {
        return Err(refused("wrong number of arguments"));
    }
    let text = text_of(call.lua, call.value(1))?;
    let text = text.as_ref().map(LuaString::as_bytes);
    let text = text.as_deref().unwrap_or_default();
    call.charge(text.len())?;
    call.lua.create_string(digest(text))
}

fn set_repl(call: &Call<'_>) -> mlua::Result<()> {
    if call.len() != 1 {
        return Err(refused("redis.set_repl() requires two arguments."));
    }
    if call.number(1).unwrap_or(0.0) as i64 & !REPL_ALL != 0 {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(refused(text));
    }
    Ok(())
}

fn log(call: &Call<'_>, shared: &Shared) -> mlua::Result<()> {
    if call.len() < 2 {
        return Err(refused("redis.log() requires two arguments or more."));
    }
    let Ok(level) = call.number(1) else {
        return Err(refused("First argument must be a number (log level)."));
    };
    let levels = [Level::Debug, Level::Verbose, Level::Notice, Level::Warning];
    let level = usize::try_from(level as i64).ok().and_then(|level| levels.get(level).copied());
    let level = level.ok_or_else(|| refused("Invalid debug level."))?;
    let mut line = Vec::new();
    for (at, word) in call.args.iter().skip(1).enumerate() {
        if at > 0 {
            line.push(b' ');
        }
        if let Some(text) = text_of(call.lua, word)? {
            let text = text.as_bytes();
            line.extend_from_slice(&text[..text.len().min(LINE_BYTES_MAX)]);
        }
        line.truncate(LINE_BYTES_MAX);
    }
    let mut run = shared.run.lock();
    if run.lines.len() < LINES_MAX {
        run.lines.push((level, line));
    }
    Ok(())
}

fn set_protocol(call: &Call<'_>, shared: &Shared) -> mlua::Result<()> {
    if call.len() != 1 {
        return Err(refused("redis.setresp() requires one argument."));
    }
    shared.run.lock().protocol = match call.number(1).unwrap_or(0.0) as i64 {
        2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        _ => return Err(refused("RESP version must be 2 or 3.")),
    };
    Ok(())
}

fn acl_check(call: &Call<'_>, shared: &Shared) -> mlua::Result<bool> {
    with_words(call.args.iter(), |words| {
        if !(shared.host.knows)(words) {
            return Err(refused("Invalid command passed to redis.acl_check_cmd()"));
        }
        Ok(shared.run.lock().limits.as_ref().is_none_or(|limits| (limits.0)(words)))
    })
    .unwrap_or_else(|text| Err(refused(text)))
}

/// Calls `body` with the words of a command: strings, and numbers as Redis writes them.
///
/// # Errors
/// Redis' text, where there is no word, or one of another type.
fn with_words<'v, R>(
    values: impl Iterator<Item = &'v Value>,
    body: impl FnOnce(&[&[u8]]) -> R,
) -> Result<R, &'static str> {
    enum Word {
        Number(Text),
        String(mlua::BorrowedBytes),
    }
    let words = values.map(|value| match value {
        Value::String(text) => Some(Word::String(text.as_bytes())),
        Value::Integer(number) => Some(Word::Number(Text::new(*number as f64))),
        Value::Number(number) => Some(Word::Number(Text::new(*number))),
        _ => None,
    });
    let words: Option<SmallVec<[Word; 8]>> = words.collect();
    let words = words.ok_or("Lua redis lib command arguments must be strings or integers")?;
    if words.is_empty() {
        return Err("Please specify at least one argument for this redis lib call");
    }
    let words: SmallVec<[&[u8]; 8]> = words
        .iter()
        .map(|word| match word {
            Word::Number(text) => text.as_bytes(),
            Word::String(text) => text,
        })
        .collect();
    Ok(body(&words))
}

/// Steps that a call costs, beside its answer.
const STEPS_PER_CALL: usize = 2000;
/// Bytes of the buffer for replies that are kept from one call to the next.
pub(super) const REPLY_BYTES_KEPT: usize = 64 * 1024;

/// Who answers the calls of one script.
pub(super) struct Server<'a> {
    pub(super) commands: &'a mut dyn Commands,
    pub(super) budget: &'a Arc<Budget>,
    pub(super) shared: &'a Shared,
    /// The reply to the last call.
    pub(super) reply: &'a mut Vec<u8>,
}

impl Server<'_> {
    /// `redis.call`, whose arguments are the words of the command.
    ///
    /// # Errors
    /// An error reply, and the end of the script.
    pub(super) fn call(&mut self, lua: &Lua, args: &MultiValue) -> mlua::Result<Value> {
        self.budget.charge(STEPS_PER_CALL)?;
        let _limit = self.budget.lift(lua);
        self.shared.write_log(self.commands);
        let (budget, protocol) = (self.budget, self.shared.protocol());
        self.reply.clear();
        self.reply.shrink_to(REPLY_BYTES_KEPT);
        let Self { commands, reply, .. } = self;
        let answered = with_words(args.iter(), |words| {
            catch_unwind(AssertUnwindSafe(|| commands.command(words, protocol, reply)))
        });
        match answered {
            Ok(Err(panic)) => return Err(budget.pass_on(panic).into()),
            Ok(Ok(Verdict::Kill)) => return Err(budget.stop(Stop::Killed).into()),
            Ok(Ok(Verdict::GoOn)) => {}
            Err(text) => return Err(refused(text)),
        }
        budget.charge(self.reply.len())?;
        match self.reply.strip_prefix(b"-") {
            Some(line) => {
                let line = line.strip_suffix(b"\r\n").unwrap_or(line).to_vec();
                Err(Fault::Reply { line, from_command: true }.into())
            }
            None => convert::read(lua, budget, self.reply),
        }
    }
}
