//! Native scripts: lock scripts that run without Lua.
//!
//! Owns    the part of Lua that lock scripts are written in: locals, `if`, short loops, `redis.call`, comparisons, arithmetic
//!         and a few functions. A script in that part is parsed into a tree once, and the tree is evaluated each time.
//! Knows   commands only through [`Calls`], so that its calls pass the gates, statistics and errors of commands.
//! Rule    reply, effects and error texts equal the interpreter's. A script for which they may differ is not native.
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

use redlatch_proto::limits::LARGE_BYTES;
use redlatch_proto::resp::{Reply, Words};

use self::bounds::{Bounds, Undeclared};
pub use self::guarded::Change;
use self::guarded::Guarded;
use self::parse::Parsed;
use self::run::{Flow, Run};
use self::value::Value;
use super::{Inputs, lexer};

/// The server as a native script sees it: `redis.call`.
pub trait Calls {
    /// Runs a command and appends its reply, in RESP2, to `reply`. An error is a reply, too. `listed` is the index of the
    /// command in `listed_commands`, if the script's text names the command.
    fn call(&mut self, listed: Option<usize>, words: &[&[u8]], reply: &mut Vec<u8>);

    /// Runs GET, which has the index `listed`. Returns whether it finds `value`, or its error: nearly every lock script
    /// compares the reply of GET and drops it. `None`: nothing was done, and GET must be called.
    fn holds(&mut self, _listed: Option<usize>, _key: &[u8], _value: &[u8]) -> Option<Result<bool, Vec<u8>>> {
        None
    }

    /// Runs GET and, if it finds the value, the change of the key. Returns whether the value was found, or the error of GET.
    /// `None`: nothing was done, and both commands must be called.
    fn change_if_held(&mut self, _change: &Change<'_>) -> Option<Result<bool, Vec<u8>>> {
        None
    }
}

/// The names of the commands that native scripts may call, in upper case, in a fixed order.
pub(crate) fn listed_commands() -> impl Iterator<Item = &'static str> {
    commands::names()
}

/// The error that ended a script. The effects of its earlier calls stay.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Raised {
    /// The error, code first.
    pub text: Vec<u8>,
    /// On which line of the script's text, from 1: the N of `script: <sha>, on @user_script:N.`
    pub line: u32,
}

impl Raised {
    /// An error of Lua itself.
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

/// A parsed script. It is cached.
#[derive(Clone, Debug)]
pub struct Program {
    script: Parsed,
    /// The script as a guarded change of one key, if it is one: most lock scripts are.
    guarded: Option<Guarded>,
    bounds: Bounds,
    /// Words and signs of its text.
    lexemes: usize,
}

impl Program {
    /// Parses a script; `None` if it is not native.
    pub fn read(text: &[u8]) -> Option<Self> {
        let lexemes = lexer::tokens(text).ok()?;
        let script = parse::parse(&lexemes)?;
        let bounds = bounds::bounds(&script)?;
        Some(Self { guarded: Guarded::read(&script), script, bounds, lexemes: lexemes.len() })
    }

    /// Approximate bytes of its tree: of the scripts of lock clients, each word or sign takes this many.
    pub fn heap_bytes(&self) -> usize {
        const PER_LEXEME: usize = 16;
        self.lexemes * PER_LEXEME
    }

    /// The commands that it calls by name, in upper case, each once. A server without one of these commands must not run
    /// the script.
    pub fn commands(&self) -> impl Iterator<Item = &'static str> {
        self.bounds.commands.iter().copied()
    }

    /// Whether the script stays within its bounds with these KEYS and ARGV. Otherwise the call must be interpreted or
    /// refused.
    #[inline]
    pub fn fits(&self, inputs: Inputs<'_>) -> bool {
        self.bounds.fit_any_inputs() || self.bounds.fit(inputs, LARGE_BYTES)
    }

    /// Whether ARGV names a command: PUBLISH or SPUBLISH, if [`Program::fits`].
    pub fn has_named_commands(&self) -> bool {
        !self.bounds.named_by.is_empty()
    }

    /// Whether all its keys are among its KEYS.
    #[inline]
    pub(crate) fn names_no_other_keys(&self) -> bool {
        !self.bounds.is_open && self.bounds.undeclared.is_empty()
    }

    /// Keys that the script uses without declaring them: literals, or arguments. `None` if it computes keys, so that it may
    /// use any key.
    pub fn undeclared<'a>(&'a self, args: Words<'a>) -> Option<impl Iterator<Item = &'a [u8]>> {
        let keys = self.bounds.undeclared.iter().filter_map(move |key| match key {
            Undeclared::Argument(place) => args.get(usize::from(*place) - 1),
            Undeclared::Literal(text) => Some(&**text),
        });
        (!self.bounds.is_open).then_some(keys)
    }

    /// Runs a script that changes a key if the key holds a value, as most lock scripts do, and writes the reply. `None`: the
    /// script is of another kind, nothing was done, and the caller calls [`Program::run`]. Only if [`Program::fits`].
    ///
    /// # Errors
    /// [`Raised`] if a call fails.
    #[inline]
    pub(crate) fn run_guarded(
        &self,
        inputs: &Inputs<'_>,
        calls: &mut impl Calls,
        reply: &mut Reply<'_>,
    ) -> Option<Result<(), Raised>> {
        self.guarded.as_ref()?.run(inputs, calls, reply)
    }

    /// Evaluates the tree and writes the value that the script returns. Only if [`Program::fits`]. `texts` is a buffer for
    /// the replies to its calls and for the strings that it makes.
    ///
    /// # Errors
    /// [`Raised`] if a call fails, or an operation that Lua refuses.
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
