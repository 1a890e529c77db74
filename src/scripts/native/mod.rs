//! Native scripts: lock scripts that run without Lua.
//!
//! Owns    the part of Lua that lock scripts are written in: locals, `if`, short loops, `redis.call`, comparisons, arithmetic
//!         and a few functions. A script in that part is parsed into a tree once, and the tree is evaluated each time.
//! Knows   commands only through [`Calls`], so that its calls pass the gates, statistics and errors of commands.
//! Rule    the same reply, effects and error texts as the interpreter's; a script that may differ is not native.
//! Bounds  a native script takes a fixed number of steps at most: see `bounds`. It never waits.
//! Source  Lua 5.1 reference manual; Redis 7.0 `script_lua.c`.

mod bounds;
mod commands;
mod evaluate;
mod expressions;
mod guarded;
mod parse;
mod pieces;
mod run;
mod tree;
mod value;

use self::bounds::{Bounds, Undeclared};
pub use self::guarded::Change;
use self::guarded::Guarded;
use self::parse::Parsed;
use self::run::{Flow, Run};
use self::value::Value;
use super::{Inputs, lexer};
use crate::limits::LARGE_BYTES;
use crate::resp::{Reply, Words};

/// The server as a native script sees it: `redis.call`.
pub trait Calls {
    /// Carries out a command and appends its answer, in RESP2, to `reply`. An error is an answer, too. `listed` is the
    /// command's place in [`listed_commands`], where the script's text names it.
    fn call(&mut self, listed: Option<usize>, words: &[&[u8]], reply: &mut Vec<u8>);

    /// Carries out GET, which has the place `listed`, and tells whether it finds `value`, or how it failed: nearly every lock
    /// script compares the reply of GET and drops it. `None`: nothing was done, and GET has to be called.
    fn holds(&mut self, _listed: Option<usize>, _key: &[u8], _value: &[u8]) -> Option<Result<bool, Vec<u8>>> {
        None
    }

    /// Carries out GET and, if it finds the value, the change of the key. Tells whether the value was found, or how GET
    /// failed. `None`: nothing was done, and both commands have to be called.
    fn change_if_held(&mut self, _change: &Change<'_>) -> Option<Result<bool, Vec<u8>>> {
        None
    }
}

/// The names of the commands that native scripts may call, in upper case, in an order that stays.
pub fn listed_commands() -> impl Iterator<Item = &'static str> {
    commands::names()
}

/// What ended a script early. What it has done by then stays done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Raised {
    /// The error, code first.
    pub text: Vec<u8>,
    /// On which line of the script's text, from 1: the N of `script: <sha>, on @user_script:N.`
    pub line: u32,
}

impl Raised {
    /// What Lua itself refuses.
    #[cold]
    fn lua(text: &str, line: u32) -> Box<Self> {
        Self { text: format!("ERR user_script:{line}: {text}").into_bytes(), line }.into()
    }

    /// An argument of the wrong type.
    fn argument(place: usize, function: &str, wanted: &str, value: Value<'_>, line: u32) -> Box<Self> {
        let got = value.type_name();
        Self::lua(&format!("bad argument #{place} to '{function}' ({wanted} expected, got {got})"), line)
    }
}

/// A script that has been read. Kept, so that it is read once.
#[derive(Clone, Debug)]
pub struct Program {
    script: Parsed,
    /// The script as a guarded change of one key, if it is one: most lock scripts are.
    guarded: Option<Guarded>,
    bounds: Bounds,
}

impl Program {
    /// Reads a script; `None` where it is not native.
    pub fn read(text: &[u8]) -> Option<Self> {
        let script = parse::parse(&lexer::tokens(text).ok()?)?;
        let bounds = bounds::bounds(&script)?;
        Some(Self { guarded: Guarded::read(&script), script, bounds })
    }

    /// The commands that it calls by name, in upper case, each once. A server that lacks one of them must not run it.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.bounds.commands.iter().copied()
    }

    /// True where these KEYS and ARGV keep it within its bounds. A call that does not fit has to be interpreted or refused.
    #[inline]
    pub fn fits(&self, inputs: Inputs<'_>) -> bool {
        self.bounds.fit_any_inputs() || self.bounds.fit(inputs, LARGE_BYTES)
    }

    /// Whether one of its commands is named by ARGV: PUBLISH or SPUBLISH, where it fits.
    pub fn has_named_commands(&self) -> bool {
        !self.bounds.named_by.is_empty()
    }

    /// Whether all its keys are among its KEYS.
    #[inline]
    pub fn names_no_other_keys(&self) -> bool {
        !self.bounds.is_open && self.bounds.undeclared.is_empty()
    }

    /// Keys that the script names without declaring them: literals, or ARGV in the place of a key. `None` where it makes
    /// keys as it runs, so that it may touch any.
    pub fn undeclared<'a>(&'a self, args: Words<'a>) -> Option<impl Iterator<Item = &'a [u8]>> {
        let keys = self.bounds.undeclared.iter().filter_map(move |key| match key {
            Undeclared::Argument(place) => args.get(usize::from(*place) - 1),
            Undeclared::Literal(text) => Some(&**text),
        });
        (!self.bounds.is_open).then_some(keys)
    }

    /// Runs a script that changes a key if that holds a value, as most lock scripts do, and answers. `None`, and nothing
    /// has been done, where the script is another; call [`Program::run`] then. To be called only where [`Program::fits`].
    ///
    /// # Errors
    /// [`Raised`] where a call failed.
    #[inline]
    pub fn run_guarded(
        &self,
        inputs: &Inputs<'_>,
        calls: &mut impl Calls,
        reply: &mut Reply<'_>,
    ) -> Option<Result<(), Raised>> {
        self.guarded.as_ref()?.run(inputs, calls, reply)
    }

    /// Evaluates the tree, and answers with what the script returns. To be called only where [`Program::fits`]. `texts` is a
    /// buffer for the replies to its calls and for the texts it makes of them.
    ///
    /// # Errors
    /// [`Raised`] where a call failed, or Lua would have refused an operation.
    pub fn run(
        &self,
        inputs: &Inputs<'_>,
        calls: &mut dyn Calls,
        texts: &mut Vec<u8>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Raised> {
        let (slots, joined, kept, lists) = Default::default();
        let mut run = Run { script: &self.script, inputs, calls, slots, texts, lists, joined, kept };
        run.slots.resize(self.script.slots, Value::Nil);
        match run.block(&self.script.body) {
            Ok(Flow::Return(value)) => run.write(value, reply),
            Ok(Flow::Break | Flow::Next) => run.write(Value::Nil, reply),
            Err(raised) => return Err(*raised),
        }
        Ok(())
    }
}
