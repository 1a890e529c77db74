//! `redis.call` and `redis.pcall`: how a script reaches commands.
//!
//! Owns    the two functions for as long as one script runs; what they take, what they give, how they fail.
//! Knows   commands only through [`Commands`].
//! Source  Redis 7.0 `script_lua.c`, `luaRedisGenericCommand`.

use std::cell::RefCell;

use mlua::{Lua, MultiValue, Value};
use smallvec::SmallVec;

use super::budget::Budget;
use super::convert::{self, Names};
use super::fault::{self, Fault};
use super::sandbox::Sandbox;
use crate::number::double::Text;
use crate::resp::Protocol;

/// The server as a script sees it.
pub trait Commands {
    /// Carries out a command and appends its answer, in `protocol`, to `reply`. An error is an answer, too.
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>);

    /// `redis.log`.
    fn log(&mut self, level: Level, text: &[u8]);
}

/// How important a line in the log is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Level {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// Runs `body` while `redis.call` reaches `commands`.
pub(super) fn with<R>(
    lua: &Lua,
    sandbox: &Sandbox,
    budget: &Budget,
    names: &Names,
    commands: &mut dyn Commands,
    body: impl FnOnce() -> mlua::Result<R>,
) -> mlua::Result<R> {
    let server = RefCell::new(Server { commands, reply: Vec::new() });
    sandbox.shared.begin();
    let result = lua.scope(|scope| {
        let call = |raises: bool| {
            let server = &server;
            scope.create_function(move |lua, words: MultiValue| {
                budget.charge(STEPS_PER_CALL)?;
                // Not while a reply is being made: commands do not call back into Lua.
                let mut server = server.borrow_mut();
                budget.relax(lua);
                let answer = server.call(lua, sandbox, budget, names, &words);
                budget.enforce(lua);
                match answer {
                    Err(Failed::Lua(error)) => Err(error),
                    Err(Failed::Reply { line, from_command }) if raises => {
                        Err(Fault::Reply { line, from_command }.into())
                    }
                    Err(Failed::Reply { line, from_command }) => {
                        fault::error_table(lua, &line, from_command).map(Value::Table)
                    }
                    Ok(value) => Ok(value),
                }
            })
        };
        sandbox.attach(call(true)?, call(false)?)?;
        let result = body();
        sandbox.detach()?;
        result
    });
    server.borrow_mut().log(sandbox);
    result
}

/// A call is about as much work as so many instructions.
const STEPS_PER_CALL: usize = 100;
/// Bytes of reply that are kept from one call to the next.
const REPLY_BYTES_KEPT: usize = 64 * 1024;

struct Server<'a> {
    commands: &'a mut dyn Commands,
    reply: Vec<u8>,
}

enum Failed {
    /// The interpreter itself: memory.
    Lua(mlua::Error),
    /// The command's error, or one about its words.
    Reply { line: Vec<u8>, from_command: bool },
}

impl Failed {
    fn words(line: &str) -> Self {
        Self::Reply { line: line.as_bytes().to_vec(), from_command: false }
    }
}

impl From<mlua::Error> for Failed {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

impl Server<'_> {
    fn call(
        &mut self,
        lua: &Lua,
        sandbox: &Sandbox,
        budget: &Budget,
        names: &Names,
        words: &MultiValue,
    ) -> Result<Value, Failed> {
        if words.is_empty() {
            return Err(Failed::words("ERR Please specify at least one argument for this redis lib call"));
        }
        // Numbers become text, which lives here while the command runs.
        let numbers: SmallVec<[Text; 2]> = words.iter().filter_map(number).collect();
        let mut numbers = numbers.iter();
        let strings: SmallVec<[Option<mlua::BorrowedBytes>; 8]> =
            words.iter().map(|word| word.as_string().map(mlua::LuaString::as_bytes)).collect();
        let mut all: SmallVec<[&[u8]; 8]> = SmallVec::with_capacity(words.len());
        for (word, string) in words.iter().zip(&strings) {
            match (word, string) {
                (_, Some(string)) => all.push(string),
                (Value::Integer(_) | Value::Number(_), None) => {
                    all.push(numbers.next().map(Text::as_bytes).unwrap_or_default());
                }
                _ => {
                    return Err(Failed::words(
                        "ERR Lua redis lib command arguments must be strings or integers",
                    ));
                }
            }
        }
        self.log(sandbox);
        self.reply.clear();
        self.reply.shrink_to(REPLY_BYTES_KEPT);
        self.commands.command(&all, sandbox.shared.protocol(), &mut self.reply);
        match self.reply.strip_prefix(b"-") {
            Some(line) => {
                let line = line.strip_suffix(b"\r\n").unwrap_or(line).to_vec();
                Err(Failed::Reply { line, from_command: true })
            }
            None => {
                budget.reserve(lua, self.reply.len())?;
                Ok(convert::read(lua, names, &self.reply)?)
            }
        }
    }

    /// What the script has logged so far.
    fn log(&mut self, sandbox: &Sandbox) {
        for (level, line) in sandbox.shared.take_lines() {
            self.commands.log(level, &line);
        }
    }
}

fn number(word: &Value) -> Option<Text> {
    match word {
        // Every number of Lua 5.1 is a double.
        Value::Integer(number) => Some(Text::new(*number as f64)),
        Value::Number(number) => Some(Text::new(*number)),
        _ => None,
    }
}

/// What `redis.call` does where no script runs: while a library of functions is being loaded.
pub(super) fn outside(lua: &Lua) -> mlua::Error {
    fault::raised(lua, "redis.call can only be called inside a script invocation")
}
