//! The functions of `redis` that call no command.
//!
//! Source  Redis 7.0 `script_lua.c`.

use std::ffi::c_int;
use std::sync::Arc;

use mlua::{IntoLuaMulti, Lua, LuaString, MultiValue, Table, Value};
use smallvec::SmallVec;

use super::budget::Budget;
use super::calls::{Level, Server};
use super::fault::{error_table, refused};
use super::sandbox::Shared;
use super::shortcuts::short_text;
use super::stack::{self, Kind, Stack};
use crate::number::double::Text;
use crate::resp::Protocol;
use crate::scripts::digest;

/// What a script can learn of the server it runs in.
#[derive(Clone, Copy, Debug)]
pub struct Host {
    /// The version of Redis that the server answers like, in three numbers.
    pub version: &'static str,
    /// Whether these words name a command.
    pub knows: fn(&[&[u8]]) -> bool,
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

/// Puts them into `redis`.
pub(super) fn install(
    lua: &Lua,
    redis: &Table,
    shared: &Arc<Shared>,
    budget: &Arc<Budget>,
) -> mlua::Result<()> {
    for (name, value) in CONSTANTS {
        redis.raw_set(*name, *value)?;
    }
    let version = shared.host.version;
    let parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    let number = parts.fold(0_i64, |number, part: i64| number << 8 | part);
    redis.raw_set("REDIS_VERSION", version)?;
    redis.raw_set("REDIS_VERSION_NUM", number)?;
    let library = Redis { lua, redis, shared, budget };
    library.add("error_reply", |lua, _, args| error_reply(lua, args))?;
    library.add("status_reply", |lua, _, args| status_reply(lua, args))?;
    library.add("sha1hex", |lua, _, args| sha1hex(lua, args))?;
    library.add("set_repl", |lua, _, args| set_repl(lua, args))?;
    // What a script does is recorded by its effects, always.
    redis.raw_set("replicate_commands", stack::constant(lua, Some(true))?)?;
    redis.raw_set("breakpoint", stack::constant(lua, Some(false))?)?;
    redis.raw_set("debug", stack::constant(lua, None)?)?;
    library.add("log", log)?;
    library.add("setresp", set_protocol)?;
    library.add("acl_check_cmd", |_, shared, args| acl_check(shared, &args))
}

/// The table that is being filled.
struct Redis<'a> {
    lua: &'a Lua,
    redis: &'a Table,
    shared: &'a Arc<Shared>,
    budget: &'a Arc<Budget>,
}

impl Redis<'_> {
    /// Adds a function, which may ask the call that runs.
    fn add<R: IntoLuaMulti + 'static>(
        &self,
        name: &str,
        run: fn(&Lua, &Shared, MultiValue) -> mlua::Result<R>,
    ) -> mlua::Result<()> {
        let shared = Arc::clone(self.shared);
        let function = stack::function(self.lua, self.budget, move |lua, args| run(lua, &shared, args))?;
        self.redis.raw_set(name, function)
    }
}

fn error_reply(lua: &Lua, args: MultiValue) -> mlua::Result<Table> {
    let Some(text) = only_string(&args) else {
        return error_table(lua, b"ERR wrong number or type of arguments", false);
    };
    error_table(lua, &error_line(&text.as_bytes()), false)
}

/// The line of an error reply with that text.
pub(super) fn error_line(text: &[u8]) -> Vec<u8> {
    let text = crate::error::until_nul(text.strip_prefix(b"-").unwrap_or(text));
    // A text of one word has no code.
    if text.contains(&b' ') { text.to_vec() } else { [b"ERR ", text].concat() }
}

fn status_reply(lua: &Lua, args: MultiValue) -> mlua::Result<Table> {
    let Some(text) = only_string(&args) else {
        return error_table(lua, b"ERR wrong number or type of arguments", false);
    };
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("ok", text)?;
    Ok(table)
}

fn only_string(args: &MultiValue) -> Option<&LuaString> {
    if args.len() == 1 { args.front()?.as_string() } else { None }
}

fn sha1hex(lua: &Lua, args: MultiValue) -> mlua::Result<LuaString> {
    if args.len() != 1 {
        return Err(refused("wrong number of arguments"));
    }
    let text = args.front().and_then(|value| lua.coerce_string(value.clone()).transpose()).transpose()?;
    let digest = text.map_or_else(|| digest(b""), |text| digest(&text.as_bytes()));
    lua.create_string(digest)
}

fn set_repl(lua: &Lua, args: MultiValue) -> mlua::Result<()> {
    if args.len() != 1 {
        return Err(refused("redis.set_repl() requires two arguments."));
    }
    if !are_flags(number(lua, args.front())?.unwrap_or(0.0)) {
        let text = "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.";
        return Err(refused(text));
    }
    Ok(())
}

fn log(lua: &Lua, shared: &Shared, args: MultiValue) -> mlua::Result<()> {
    if args.len() < 2 {
        return Err(refused("redis.log() requires two arguments or more."));
    }
    let Some(level) = number(lua, args.front())? else {
        return Err(refused("First argument must be a number (log level)."));
    };
    let level = level_of(level).ok_or_else(|| refused("Invalid debug level."))?;
    let mut line = Vec::new();
    for (at, word) in args.iter().skip(1).enumerate() {
        if at > 0 {
            line.push(b' ');
        }
        if let Some(text) = lua.coerce_string(word.clone())? {
            line.extend_from_slice(&text.as_bytes());
        }
    }
    shared.log(level, &line);
    Ok(())
}

fn level_of(number: f64) -> Option<Level> {
    [Level::Debug, Level::Verbose, Level::Notice, Level::Warning]
        .get(usize::try_from(number as i64).ok()?)
        .copied()
}

/// `log` of one text, above its arguments on the stack; `None` where these are others.
pub(super) fn log_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 2 {
        return None;
    }
    let (level, text) = (level_of(stack.as_number(1)?)?, short_text(stack, 2)?);
    server.shared.log(level, text);
    Some(0)
}

/// `setresp`, in the same way.
pub(super) fn set_protocol_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let number = if stack.len() == 1 { stack.as_number(1)? } else { return None };
    server.shared.set_protocol(protocol_of(number)?);
    Some(0)
}

/// `set_repl`, in the same way: what a script does is recorded by its effects, always.
pub(super) fn set_repl_shortly(_: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let flags = if stack.len() == 1 { stack.as_number(1)? } else { return None };
    are_flags(flags).then_some(0)
}

fn protocol_of(number: f64) -> Option<Protocol> {
    match number as i64 {
        2 => Some(Protocol::Resp2),
        3 => Some(Protocol::Resp3),
        _ => None,
    }
}

fn are_flags(number: f64) -> bool {
    number as i64 & !REPL_ALL == 0
}

fn set_protocol(lua: &Lua, shared: &Shared, args: MultiValue) -> mlua::Result<()> {
    if args.len() != 1 {
        return Err(refused("redis.setresp() requires one argument."));
    }
    let protocol = protocol_of(number(lua, args.front())?.unwrap_or(0.0));
    shared.set_protocol(protocol.ok_or_else(|| refused("RESP version must be 2 or 3."))?);
    Ok(())
}

fn acl_check(shared: &Shared, args: &MultiValue) -> mlua::Result<bool> {
    if args.is_empty() {
        return Err(refused("Please specify at least one argument for this redis lib call"));
    }
    let mut words = Vec::with_capacity(args.len());
    for word in args {
        match word {
            Value::String(text) => words.push(text.as_bytes().to_vec()),
            Value::Integer(number) => words.push(Text::new(*number as f64).as_bytes().to_vec()),
            Value::Number(number) => words.push(Text::new(*number).as_bytes().to_vec()),
            _ => return Err(refused("Lua redis lib command arguments must be strings or integers")),
        }
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    shared.may_send(&words).ok_or_else(|| refused("Invalid command passed to redis.acl_check_cmd()"))
}

/// `acl_check_cmd` of texts, above its arguments on the stack; `None` where there are others, or no command.
pub(super) fn acl_check_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let may_send = {
        let given = &*stack;
        let text = |at| given.bytes(at).filter(|_| given.kind(at) == Kind::String);
        let words: SmallVec<[&[u8]; 8]> = (1..=given.len()).map(text).collect::<Option<_>>()?;
        server.shared.may_send(&words)?
    };
    stack.push_boolean(may_send);
    Some(1)
}

fn number(lua: &Lua, value: Option<&Value>) -> mlua::Result<Option<f64>> {
    value.map_or(Ok(None), |value| lua.coerce_number(value.clone()))
}
