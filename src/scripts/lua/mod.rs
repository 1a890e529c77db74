//! Lua 5.1: whatever script is not plain runs here.
//!
//! Owns    the interpreter's state, its sandbox, and the budgets that keep a script from holding the server.
//! Knows   commands only through [`Commands`], as native programs do through theirs.
//! Locks   none. Who shares an interpreter locks the keyspace first and the interpreter second, never the other way.
//! Rule    a function written for scripts raises errors by `Fault::raised`; plain errors of mlua lack the place.
//! Source  Redis 7.0 `script_lua.c`, `eval.c`; Lua 5.1 reference manual.

mod auxiliary;
mod bit;
mod budget;
mod calls;
mod cjson;
mod cmsgpack;
mod convert;
mod execute;
mod fault;
mod functions;
mod library;
mod library_state;
mod patterns;
mod sandbox;
mod shortcuts;
mod stack;
mod strings;
mod structs;

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;

use mlua::{Lua, LuaOptions, StdLib, Table};

pub use budget::{Asleep, Verdict, Watchdog};
pub use calls::{Commands, Level, Limits};
pub use fault::Stop;
pub use library::Host;

use super::Inputs;
use super::direct::is_direct;
use crate::resp::Reply;
use budget::Budget;
use execute::{Body, Compiled, Run};
use fault::Fault;
use functions::Functions;
use sandbox::Sandbox;
use stack::Kept;

/// Functions that the interpreter keeps compiled, and the bytes of their texts.
const COMPILED_MAX: usize = 1_000;
const COMPILED_BYTES_MAX: usize = 16 << 20;
/// Where a library is among the compiled scripts while it is being loaded.
const LIBRARY: c_int = 0;

/// A script, ready to be compiled.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// What errors call it, and how it is found again: the SHA-1 of its whole text, in hexadecimal.
    pub name: &'a str,
    /// Its text without its first line where that is a `#!` line, but with the line's end.
    pub text: &'a [u8],
}

/// The error line of a script that failed, code first.
pub type Failure = Vec<u8>;

/// One Lua state. It runs one script at a time, and nothing of a script stays in it but its compiled form.
#[derive(Debug)]
pub struct Interpreter {
    lua: Lua,
    budget: Arc<Budget>,
    sandbox: Sandbox,
    libraries: Option<Functions>,
    /// Where in `functions` the compiled form of a script is.
    compiled: BTreeMap<Box<str>, Compiled>,
    /// Compiled scripts: in a table of Lua's, for handles on this side are few. At [`LIBRARY`] the library that is loaded.
    functions: Table,
    functions_kept: Kept,
    /// The last reply to a script, for its room.
    reply: Vec<u8>,
    compiled_bytes: usize,
}

impl Interpreter {
    /// A fresh state, whose scripts may hold so many bytes each.
    ///
    /// # Errors
    /// Where even the sandbox does not fit.
    pub fn new(memory_max: usize, host: Host) -> Result<Self, Failure> {
        Self::build(memory_max, host).map_err(|error| line(&error, memory_max))
    }

    fn build(memory_max: usize, host: Host) -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        let budget = Budget::install(&lua, memory_max)?;
        let sandbox = Sandbox::new(&lua, &budget, host)?;
        let functions = lua.create_table()?;
        let functions_kept = stack::keep(&lua, &functions)?;
        let (compiled, reply) = (BTreeMap::new(), Vec::new());
        Ok(Self {
            lua,
            budget,
            sandbox,
            libraries: None,
            compiled,
            functions,
            functions_kept,
            reply,
            compiled_bytes: 0,
        })
    }

    /// Bytes that the state holds.
    pub fn memory(&self) -> usize {
        self.lua.used_memory()
    }

    /// How many bytes each script may hold from now on.
    pub fn set_memory_max(&mut self, bytes: usize) {
        // Setting the limit of a state that has its own allocator cannot fail.
        let _ = self.budget.set_memory_max(&self.lua, bytes);
    }

    /// Compiles a script, so that its first run does not have to.
    ///
    /// # Errors
    /// Why it does not compile.
    pub fn compile(&mut self, source: Source<'_>) -> Result<(), Failure> {
        self.function(source).map(drop)
    }

    /// Forgets all compiled scripts.
    pub fn flush(&mut self) {
        self.compiled.clear();
        // To empty a table takes no memory.
        let _ = self.functions.clear();
        self.compiled_bytes = 0;
        self.budget.let_go(&self.lua);
    }

    /// Runs a script over KEYS and ARGV and writes what it returns.
    ///
    /// # Errors
    /// Why it ended early. What it has done by then stays done.
    pub fn run(
        &mut self,
        source: Source<'_>,
        inputs: Inputs<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        let body = Body::Script(self.function(source)?);
        self.execute(Run { name: source.name, body, inputs }, commands, watchdog, reply)
    }

    fn line(&self, error: &mlua::Error) -> Failure {
        line(error, self.budget.memory_max())
    }

    /// Where the compiled form of a script is.
    fn function(&mut self, source: Source<'_>) -> Result<Compiled, Failure> {
        if let Some(compiled) = self.compiled.get(source.name) {
            return Ok(*compiled);
        }
        if self.compiled.len() >= COMPILED_MAX
            || self.compiled_bytes.saturating_add(source.text.len()) > COMPILED_BYTES_MAX
        {
            self.flush();
        }
        let chunk =
            self.lua.load(source.text).set_name("@user_script").set_mode(mlua::chunk::ChunkMode::Text);
        let Sandbox { environment, direct: (direct, _), real, .. } = &self.sandbox;
        let is_direct = is_direct(source.text, |name| !matches!(real.raw_get(name), Ok(mlua::Value::Nil)));
        let environment = if is_direct { direct } else { environment };
        let function = chunk.set_environment(environment.clone()).into_function();
        let function = function.map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => {
                format!("ERR Error compiling script (new function): {message}").into_bytes()
            }
            error => self.line(&error),
        })?;
        let index = LIBRARY + 1 + self.compiled.len() as c_int;
        self.functions.raw_set(index, &function).map_err(|error| self.line(&error))?;
        let compiled = Compiled { index, is_direct };
        self.compiled.insert(source.name.into(), compiled);
        self.compiled_bytes += source.text.len();
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests;

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("memory_max", &self.memory_max()).finish_non_exhaustive()
    }
}

/// The error line for what went wrong outside the script's own code.
fn line(error: &mlua::Error, memory_max: usize) -> Failure {
    match fault::unwrap(error, memory_max) {
        Fault::Reply { line, .. } => line,
        Fault::Stop(stop) => stop.to_string().into_bytes(),
        Fault::Text(text) => [b"ERR ".as_slice(), &text].concat(),
        Fault::Stopped => b"ERR Error running script".to_vec(),
    }
}
