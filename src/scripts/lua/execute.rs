//! One run of a script, a function or a library: from KEYS and ARGV to the reply.
//!
//! Owns    the order in which a run begins and ends: whatever becomes of it, nothing of it stays.

use std::ffi::c_int;
use std::sync::Arc;

use super::budget::{Unlimited, Watchdog};
use super::calls::{Commands, Server};
use super::fault::Stop;
use super::library_state::LibraryState;
use super::stack::{self, Kind, Stack};
use super::{Failure, Interpreter, convert};
use crate::resp::Reply;
use crate::scripts::Inputs;

/// What is run, and on what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'a> {
    /// What errors call it.
    pub(super) name: &'a str,
    /// Where it is found.
    pub(super) body: Body<'a>,
    /// On what.
    pub(super) inputs: Inputs<'a>,
}

/// What is run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// The function of that name in the library of that number, which has KEYS and ARGV as its arguments.
    Function { library: u32, name: &'a str, is_trial: bool },
    /// A script, which has them as globals.
    Script(Compiled),
}

/// Where the compiled form of a script is among all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compiled {
    pub(super) index: c_int,
    /// Whether it finds the libraries themselves around it.
    pub(super) is_direct: bool,
}

/// Values that a run has on the stack at once before its reply is written.
const ROOM: c_int = 12;

impl Interpreter {
    /// Runs it, looked after by `watchdog`, and writes what it returns.
    pub(super) fn execute(
        &mut self,
        run: Run<'_>,
        commands: &mut dyn Commands,
        watchdog: Arc<dyn Watchdog>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        self.budget.begin(watchdog);
        self.sandbox.shared.begin(commands.limits());
        let mut kept = std::mem::take(&mut self.reply);
        let shared = &*self.sandbox.shared;
        let mut server = Server { commands, lua: &self.lua, budget: &self.budget, shared, reply: &mut kept };
        let result = self.sandbox.port.open(&mut server, || {
            stack::with(&self.lua, |stack| match self.perform(stack, run) {
                Ok(limit) => self.write(stack, reply, &limit),
                Err(failure) => Err(failure),
            })
        });
        if self.budget.stopped() == Some(Stop::Left) {
            server.commands.has_left();
        } else {
            server.log();
        }
        self.reply = kept;
        self.budget.end(&self.lua);
        result
    }

    /// Runs what is at `body`, which no command is there for.
    ///
    /// # Errors
    /// How it failed.
    pub(super) fn execute_alone(&self, index: c_int) -> Result<(), Failure> {
        let body = Body::Script(Compiled { index, is_direct: false });
        let run = Run { name: "", body, inputs: Inputs::new(&[], &[]) };
        stack::with(&self.lua, |stack| self.perform(stack, run).map(drop))
    }

    /// Leaves the result on top.
    fn perform(&self, stack: &mut Stack<'_>, run: Run<'_>) -> Result<Unlimited<'_>, Failure> {
        let limit = self.budget.lift(&self.lua);
        if !stack.reserve(ROOM, &limit) {
            return Err(self.ended());
        }
        stack.push_kept(self.sandbox.failed);
        let handler = stack.len();
        let (is_fine, limit) = match run.body {
            Body::Script(Compiled { index, is_direct }) => {
                stack.push_kept(if is_direct { self.sandbox.direct.1 } else { self.sandbox.globals });
                let globals = stack.len();
                let [keys, args] = self.sandbox.inputs;
                for (name, words) in [(keys, run.inputs.keys), (args, run.inputs.args)] {
                    stack.push_texts(words.iter(), &limit);
                    stack.set_known(globals, name, &limit);
                }
                stack.push_kept(self.functions_kept);
                stack.push_element(-1, index);
                let is_fine = stack.call(0, handler, limit);
                let limit = self.budget.lift(&self.lua);
                for name in [keys, args] {
                    stack.push_nil();
                    stack.set_known(globals, name, &limit);
                }
                (is_fine, limit)
            }
            Body::Function { library, name, is_trial } => {
                let Some(libraries) = &self.libraries else {
                    return Err(b"ERR Error running script".to_vec());
                };
                libraries.push(stack, library, name, &limit);
                let function = stack.len();
                let state = match is_trial {
                    true => LibraryState::of(stack, function, libraries.known, &limit),
                    false => Some(LibraryState::default()),
                };
                let Some(state) = state else {
                    self.budget.stop(Stop::Left);
                    return Err(self.ended());
                };
                stack.push_copy(function);
                stack.push_texts(run.inputs.keys.iter(), &limit);
                stack.push_texts(run.inputs.args.iter(), &limit);
                let is_fine = stack.call(2, handler, limit);
                let limit = self.budget.lift(&self.lua);
                if self.budget.stopped() == Some(Stop::Left) {
                    state.put_back(stack, &limit);
                }
                (is_fine, limit)
            }
        };
        if is_fine { Ok(limit) } else { Err(self.told(stack, run.name, &limit)) }
    }

    fn write(
        &self,
        stack: &mut Stack<'_>,
        reply: &mut Reply<'_>,
        limit: &Unlimited<'_>,
    ) -> Result<(), Failure> {
        convert::write(stack, self.sandbox.shared.protocol(), reply, limit).map_err(|_| self.ended())
    }

    /// The line of how a script failed, out of what the handler has left on top.
    fn told(&self, stack: &mut Stack<'_>, name: &str, limit: &Unlimited<'_>) -> Failure {
        let mut line = Vec::new();
        let is_told = stack.kind(-1) == Kind::Table
            && convert::string_field(stack, b"err", limit, |text| line.extend_from_slice(text));
        let place = if is_told {
            convert::number_field(stack, b"line", limit).map(|at| {
                let mut source = Vec::new();
                convert::string_field(stack, b"source", limit, |text| source.extend_from_slice(text));
                (String::from_utf8_lossy(&source).into_owned(), at as usize)
            })
        } else {
            // Without memory, which is how scripts end, Lua calls no handler; nor does it when the handler fails.
            line = self.ended();
            self.budget.place()
        };
        if let Some((source, at)) = place.filter(|_| !name.is_empty()) {
            line.extend_from_slice(format!(" script: {name}, on {source}:{at}.").as_bytes());
        }
        line
    }

    /// The line of a script that was ended from outside, or by the end of its memory.
    fn ended(&self) -> Failure {
        let stop = self.budget.stopped().unwrap_or(Stop::Memory(self.budget.memory_max()));
        stop.to_string().into_bytes()
    }
}
