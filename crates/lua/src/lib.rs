//! Lua 5.1, for scripts that do not run natively.
//!
//! Owns    the interpreter's state, its sandbox, and the budgets that keep a script from holding the server.
//! Knows   commands only through [`Commands`], as native scripts do through their own trait.
//! Locks   none. The caller locks the keyspace first and the interpreter second, never the other way.
//! Rule    only mlua's public, safe interface is used.
//! Rule    a function written for scripts raises errors by `fault::raised`; plain errors of mlua lack the place.
//! Source  Redis 7.0 `script_lua.c`, `eval.c`; Lua 5.1 reference manual.
//!
//! This crate is a part of `redlatch`; any version may change it.

#![forbid(unsafe_code)]

mod allowed;
mod args;
mod bit;
mod budget;
mod cjson;
mod cmsgpack;
mod convert;
mod fault;
mod functions;
mod math;
mod patterns;
mod redis;
mod sandbox;
mod strings;
mod structs;

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::{Error, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value};

use redlatch_core::scripts::Inputs;
use redlatch_core::scripts::interpreter::{Commands, Failure, Host, Interpreter, Source, Watchdog};
use redlatch_core::scripts::library::Loaded;
use redlatch_proto::resp::{Reply, Words};

pub use allowed::{ALLOWED, Row, Runs};
use budget::Budget;
use fault::{Fault, Stop};
use functions::Functions;
use redis::{REPLY_BYTES_KEPT, Server};
use sandbox::{Sandbox, compiled};

/// Scripts that the interpreter keeps compiled, and the bytes of their texts.
const COMPILED_MAX: usize = 1_000;
const COMPILED_BYTES_MAX: usize = 16 << 20;

/// A fresh interpreter, whose scripts may hold so many bytes each.
///
/// # Errors
/// Where even the sandbox does not fit.
pub fn interpreter(memory_max: usize, host: Host) -> Result<Box<dyn Interpreter>, Failure> {
    LuaInterpreter::build(memory_max, host)
        .map(|interpreter| Box::new(interpreter) as Box<dyn Interpreter>)
        .map_err(|error| line(&error, memory_max))
}

/// One Lua state. It runs one script at a time, and nothing of a script stays in it but its compiled form.
#[derive(Debug)]
struct LuaInterpreter {
    lua: Lua,
    budget: Arc<Budget>,
    sandbox: Sandbox,
    libraries: Option<Functions>,
    /// The number of each compiled script in the sandbox's table of them, by its name.
    compiled: BTreeMap<Box<str>, usize>,
    compiled_bytes: usize,
    /// The buffer for replies to the calls of scripts.
    reply: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Body<'a> {
    /// The function of that name in the library of that number, which has KEYS and ARGV as its arguments.
    Function { library: u32, name: &'a str },
    /// The compiled script of that number, which has them as globals.
    Script(usize),
}

impl Interpreter for LuaInterpreter {
    fn memory(&self) -> usize {
        self.lua.used_memory()
    }

    fn is_replaceable(&self) -> bool {
        self.libraries.as_ref().is_none_or(Functions::is_empty)
    }

    fn set_memory_max(&mut self, bytes: usize) {
        // Setting the limit of a state with mlua's allocator cannot fail.
        let _ = self.budget.set_memory_max(&self.lua, bytes);
    }

    fn compile(&mut self, source: Source<'_>) -> Result<(), Failure> {
        self.function(source).map(drop)
    }

    fn flush(&mut self) {
        self.compiled.clear();
        // To empty a table takes no memory.
        let _ = self.sandbox.scripts.clear();
        self.compiled_bytes = 0;
        self.budget.collect(&self.lua);
    }

    fn run(
        &mut self,
        source: Source<'_>,
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let body = Body::Script(self.function(source)?);
        self.execute(source.name, body, inputs, commands, watchdog, reply)
    }

    fn load(&mut self, body: &[u8], commands: &mut dyn Commands) -> Result<Loaded, Failure> {
        self.load_library(body, commands)
    }

    fn forget(&mut self, libraries: &[u32]) {
        self.forget_libraries(libraries);
    }

    fn call(
        &mut self,
        (library, name): (u32, &str),
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        self.execute(name, Body::Function { library, name }, inputs, commands, watchdog, reply)
    }
}

impl LuaInterpreter {
    fn build(memory_max: usize, host: Host) -> mlua::Result<Self> {
        let lua = Lua::new_with(StdLib::TABLE | StdLib::STRING | StdLib::MATH, LuaOptions::new())?;
        let budget = Budget::install(&lua, memory_max)?;
        let sandbox = Sandbox::new(&lua, &budget, host)?;
        let (compiled, compiled_bytes, reply) = (BTreeMap::new(), 0, Vec::new());
        Ok(Self { lua, budget, sandbox, libraries: None, compiled, compiled_bytes, reply })
    }

    /// The number of a script's compiled form.
    fn function(&mut self, source: Source<'_>) -> Result<usize, Failure> {
        if let Some(number) = self.compiled.get(source.name) {
            return Ok(*number);
        }
        let bytes = self.compiled_bytes.saturating_add(source.text.len());
        if self.compiled.len() >= COMPILED_MAX || bytes > COMPILED_BYTES_MAX {
            self.flush();
        }
        let function = compiled(&self.lua, &self.sandbox.environment, source.text, b"@user_script");
        let function = function.map_err(|error| match error {
            Error::SyntaxError { message, .. } => {
                format!("ERR Error compiling script (new function): {message}").into_bytes()
            }
            error => self.line(&error),
        })?;
        let number = self.compiled.len() + 1;
        self.sandbox.scripts.raw_set(number, function).map_err(|error| self.line(&error))?;
        self.compiled.insert(source.name.into(), number);
        self.compiled_bytes += source.text.len();
        Ok(number)
    }

    /// Runs `body`, looked after by `watchdog`, and writes what it returns. Whatever becomes of it, nothing of it stays.
    fn execute(
        &mut self,
        name: &str,
        body: Body<'_>,
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        self.budget.begin(&self.lua, watchdog).map_err(|error| self.line(&error))?;
        self.sandbox.shared.begin(commands.limits());
        let mut buffer = std::mem::take(&mut self.reply);
        let result = self.perform(body, inputs, commands, &mut buffer, reply);
        self.sandbox.shared.write_log(commands);
        buffer.clear();
        buffer.shrink_to(REPLY_BYTES_KEPT);
        self.reply = buffer;
        let result = match result {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.failure(name)),
            Err(_) if self.budget.stopped() => Err(self.failure(name)),
            Err(error) => Err(self.line(&error)),
        };
        self.budget.end(&self.lua);
        result
    }

    /// Runs `body` and writes what it returns; false where it failed.
    fn perform(
        &self,
        body: Body<'_>,
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        buffer: &mut Vec<u8>,
        reply: &mut Reply<'_>,
    ) -> mlua::Result<bool> {
        let (lua, budget, shared) = (&self.lua, &self.budget, &*self.sandbox.shared);
        let mut server = Server { commands, budget, shared, reply: buffer };
        lua.scope(|scope| {
            let limit = budget.lift(lua);
            let call = scope.create_function_mut(|lua, args: MultiValue| server.call(lua, &args))?;
            let (keys, args) = (texts(lua, inputs.keys)?, texts(lua, inputs.args)?);
            drop(limit);
            let (is_fine, result): (bool, Value) = match body {
                Body::Script(number) => self.sandbox.run_script.call((number, call, keys, args))?,
                Body::Function { library, name } => {
                    let Some(libraries) = &self.libraries else { return Err(Error::runtime("no library")) };
                    let body = libraries.callback(library, name)?;
                    self.sandbox.run_function.call((&libraries.redis, body, call, keys, args))?
                }
            };
            if is_fine {
                let _limit = budget.lift(lua);
                convert::write(&result, shared.protocol(), budget, reply)?;
            }
            Ok(is_fine)
        })
    }

    /// The error line of a run that has failed.
    fn failure(&self, name: &str) -> Failure {
        let noted = self.sandbox.take_failure();
        let (told, place) = noted.unwrap_or_default();
        let mut line = match self.budget.reason() {
            Some(stop) => stop.to_string().into_bytes(),
            // Without memory Lua calls no error handler.
            None if told.is_empty() => Stop::Memory(self.budget.memory_max()).to_string().into_bytes(),
            None => told,
        };
        if let Some((source, at)) = place.filter(|_| !name.is_empty()) {
            line.extend_from_slice(format!(" script: {name}, on {source}:{at}.").as_bytes());
        }
        line
    }

    fn line(&self, error: &Error) -> Failure {
        match self.budget.reason() {
            Some(stop) => stop.to_string().into_bytes(),
            None => line(error, self.budget.memory_max()),
        }
    }
}

fn texts(lua: &Lua, words: Words<'_>) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(words.len(), 0)?;
    for (place, word) in words.iter().enumerate() {
        table.raw_set(place + 1, LuaString::wrap(word))?;
    }
    Ok(table)
}

/// The error line for what went wrong outside the script's own code.
fn line(error: &Error, memory_max: usize) -> Failure {
    match fault::unwrap(error) {
        Fault::Reply { line, .. } => line,
        Fault::Text(text) if text == fault::OUT_OF_MEMORY.as_bytes() => {
            Stop::Memory(memory_max).to_string().into_bytes()
        }
        Fault::Text(text) => [b"ERR ", text.as_slice()].concat(),
        Fault::Stopped => b"ERR Error running script".to_vec(),
    }
}

#[cfg(test)]
mod tests;
