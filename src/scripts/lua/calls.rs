//! `redis.call` and `redis.pcall`: how a script reaches commands.
//!
//! Owns    what the two functions take, what they give, how they fail.
//! Knows   commands only through [`Commands`].
//! Source  Redis 7.0 `script_lua.c`, `luaRedisGenericCommand`.

use std::ffi::c_int;

use mlua::Lua;
use smallvec::SmallVec;

use super::auxiliary::{Call, Output};
use super::budget::{Budget, Unlimited};
use super::convert;
use super::sandbox::Shared;
use super::shortcuts::{SHORTCUTS, Shortcut};
use super::stack::{Answer, Called, Kind, Stack};
use crate::number::double::Text;
use crate::resp::Protocol;

/// The server as a script sees it.
pub trait Commands {
    /// Carries out a command and appends its answer, in `protocol`, to `reply`. An error is an answer, too.
    fn command(&mut self, words: &[&[u8]], protocol: Protocol, reply: &mut Vec<u8>);

    /// Whether the script goes on after that; if not, its watchdog says why.
    fn goes_on(&self) -> bool {
        true
    }

    /// Whether the script may have to end before it is over, to begin again as if for the first time.
    fn is_trial(&self) -> bool {
        false
    }

    /// It has had to.
    fn has_left(&mut self) {}

    /// What the script's user may send of the commands that there are; `None`: all.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// `redis.log`.
    fn log(&mut self, level: Level, text: &[u8]);
}

/// Tells of a command, by its words, whether it may be sent.
pub struct Limits(pub Box<Judge>);

type Judge = dyn Fn(&[&[u8]]) -> bool + Send;

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Limits(..)")
    }
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

/// A call is about as much work as so many steps, beside what it answers.
const STEPS_PER_CALL: usize = 2000;
/// Bytes that a script holds at most for a byte of a reply: two tables, one in the other, for the four of `%0\r\n`.
const READ_BYTES_MAX: usize = 64;
/// Bytes of reply that are kept from one call to the next.
const REPLY_BYTES_KEPT: usize = 64 * 1024;

/// Who answers the calls of one script.
pub(super) struct Server<'a> {
    pub(super) commands: &'a mut dyn Commands,
    pub(super) lua: &'a Lua,
    pub(super) budget: &'a Budget,
    pub(super) shared: &'a Shared,
    /// The reply to the last call.
    pub(super) reply: &'a mut Vec<u8>,
}

impl Called for Server<'_> {
    fn call(&mut self, stack: &mut Stack<'_>) -> Answer {
        if self.budget.charge(STEPS_PER_CALL).is_err() {
            return Answer::Stopped;
        }
        match self.carry_out(stack) {
            Ok(()) if !self.commands.goes_on() && self.budget.poll().is_err() => Answer::Stopped,
            Ok(()) if self.budget.charge(self.reply.len()).is_err() => Answer::Stopped,
            Ok(()) => self.answer(stack),
            Err(text) => self.failure(stack, text.as_bytes(), false),
        }
    }

    fn shorten(&mut self, number: usize, stack: &mut Stack<'_>) -> Option<c_int> {
        let (.., Shortcut::Served(served) | Shortcut::Either(_, served)) = SHORTCUTS.get(number)? else {
            return None;
        };
        let results = served(self, stack);
        self.reply.clear();
        self.reply.shrink_to(REPLY_BYTES_KEPT);
        results
    }
}

impl<'a> Server<'a> {
    /// Carries out the command whose words are on the stack.
    fn carry_out(&mut self, stack: &Stack<'_>) -> Result<(), &'static str> {
        if stack.len() == 0 {
            return Err("ERR Please specify at least one argument for this redis lib call");
        }
        // Numbers become text, which lives here while the command runs.
        let mut numbers: SmallVec<[(usize, Text); 2]> = SmallVec::new();
        let mut words: SmallVec<[&[u8]; 8]> = SmallVec::new();
        for at in 1..=stack.len() {
            match stack.bytes(at) {
                Some(word) => words.push(word),
                None if stack.kind(at) == Kind::Number => {
                    numbers.push((words.len(), Text::new(stack.number(at))));
                    words.push(b"");
                }
                None => return Err("ERR Lua redis lib command arguments must be strings or integers"),
            }
        }
        for (at, text) in &numbers {
            words[*at] = text.as_bytes();
        }
        if !self.commands.is_trial() {
            self.log();
        }
        self.reply.clear();
        self.reply.shrink_to(REPLY_BYTES_KEPT);
        self.commands.command(&words, self.shared.protocol(), self.reply);
        Ok(())
    }

    /// Leaves what the command has answered.
    fn answer(&self, stack: &mut Stack<'_>) -> Answer {
        stack.truncate(0);
        if convert::read_plain(stack, self.reply) {
            return Answer::Value;
        }
        if let Some(line) = self.reply.strip_prefix(b"-") {
            return self.failure(stack, line.strip_suffix(b"\r\n").unwrap_or(line), true);
        }
        if self.budget.reserve(self.lua, self.reply.len()).is_err() {
            return Answer::Stopped;
        }
        let limit = self.lift_for(stack, self.reply.len().saturating_mul(READ_BYTES_MAX));
        match convert::read(stack, self.reply, &limit) {
            Ok(()) => Answer::Value,
            Err(convert::TooDeep) => {
                convert::push_error(stack, b"ERR the reply is too deep for a script", false, &limit);
                Answer::Raised
            }
        }
    }

    fn failure(&self, stack: &mut Stack<'_>, line: &[u8], from_command: bool) -> Answer {
        stack.truncate(0);
        convert::push_error(stack, line, from_command, &self.lift_for(stack, line.len()));
        Answer::Failure
    }

    /// Lifts the limit of memory, see [`Budget::lift_for`].
    pub(super) fn lift_for(&self, stack: &Stack<'_>, bytes: usize) -> Unlimited<'a> {
        self.budget.lift_for(self.lua, stack, bytes)
    }

    /// Has `body` write into the room of the last reply, on behalf of the script.
    pub(super) fn write<R>(&mut self, body: impl FnOnce(&Call<'a>, &mut Output<'a>) -> R) -> R {
        let call = Call::without_args(self.lua, self.budget);
        let mut out = call.output_in(std::mem::take(self.reply));
        let result = body(&call, &mut out);
        *self.reply = out.into_bytes();
        result
    }

    /// What the script has logged so far.
    pub(super) fn log(&mut self) {
        for (level, line) in self.shared.take_lines() {
            self.commands.log(level, &line);
        }
    }
}
