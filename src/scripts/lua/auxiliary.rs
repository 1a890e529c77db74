//! What the libraries of the interpreter share: arguments checked and errors worded as Lua's auxiliary library does.
//!
//! Rule    what a library builds outside of Lua's own memory, it builds in an [`Output`], which the budget bounds too.
//! Source  Lua 5.1 `lauxlib.c`; conversions of numbers are those of a C compiler on x86-64.

use std::sync::Arc;

use mlua::{Error, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};

use super::budget::{Budget, Unlimited};
use super::fault::{self, Checked, Fault, Stopped};
use super::stack::{self, Room};

/// Slots of the C stack that one function may use in Lua 5.1: how many values it returns, how deep it nests.
pub(super) const STACK_SLOTS_MAX: usize = 8000;

/// One call of a library function.
pub(super) struct Call<'l> {
    /// The interpreter.
    pub(super) lua: &'l Lua,
    /// What it was given, where that is not elsewhere.
    args: Option<&'l MultiValue>,
    budget: &'l Budget,
}

impl<'l> Call<'l> {
    /// One whose arguments are elsewhere.
    pub(super) fn without_args(lua: &'l Lua, budget: &'l Budget) -> Self {
        Self { lua, args: None, budget }
    }

    /// Lifts the limit of memory, see [`Budget::lift`]: only for what takes a bounded amount of it.
    pub(super) fn lift(&self) -> Unlimited<'l> {
        self.budget.lift(self.lua)
    }

    /// Nothing yet.
    pub(super) fn output(&self) -> Output<'l> {
        self.output_in(Vec::new())
    }

    /// Nothing yet, with the room of what is there.
    pub(super) fn output_in(&self, mut bytes: Vec<u8>) -> Output<'l> {
        bytes.clear();
        Output { reserved: bytes.capacity(), bytes, lua: self.lua, budget: self.budget }
    }
}

impl Call<'_> {
    /// How many arguments there are.
    pub(super) fn len(&self) -> usize {
        self.args.map_or(0, |args| args.len())
    }

    /// All of them.
    pub(super) fn values(&self) -> impl Iterator<Item = &Value> {
        self.args.into_iter().flat_map(|args| args.iter())
    }

    /// Argument `at`, from 1; nil where there is none.
    pub(super) fn value(&self, at: usize) -> &Value {
        self.args.and_then(|args| args.get(at - 1)).unwrap_or(&Value::Nil)
    }

    /// Argument `at` as a number.
    ///
    /// # Errors
    /// Lua's, when it is neither a number nor a text that reads as one.
    pub(super) fn number(&self, at: usize) -> Result<f64> {
        match to_number(self.lua, self.value(at)) {
            Some(number) => Ok(number),
            None => Err(self.wrong_type(at, "number")),
        }
    }

    /// Argument `at` as an integer: a number without its fraction.
    ///
    /// # Errors
    /// As [`Call::number`].
    pub(super) fn integer(&self, at: usize) -> Result<i64> {
        self.number(at).map(c_long)
    }

    /// Argument `at` as an integer, or `default` where it is nil or none.
    ///
    /// # Errors
    /// As [`Call::number`].
    pub(super) fn integer_or(&self, at: usize, default: i64) -> Result<i64> {
        if self.value(at).is_nil() { Ok(default) } else { self.integer(at) }
    }

    /// Argument `at` as a string; numbers are written as Lua writes them.
    ///
    /// # Errors
    /// Lua's, when it is neither a string nor a number.
    pub(super) fn string(&self, at: usize) -> Result<LuaString> {
        match self.value(at) {
            Value::String(text) => Ok(text.clone()),
            other @ (Value::Integer(_) | Value::Number(_)) => {
                let text = self.lua.coerce_string(other.clone())?;
                text.ok_or_else(|| self.wrong_type(at, "string"))
            }
            _ => Err(self.wrong_type(at, "string")),
        }
    }

    /// The error of an argument that is of another type than `expected`.
    pub(super) fn wrong_type(&self, at: usize, expected: &str) -> Error {
        let got = if at > self.len() { "no value" } else { self.value(at).type_name() };
        self.bad(at, format!("{expected} expected, got {got}"))
    }

    /// The error of an argument that does not do.
    pub(super) fn bad(&self, at: usize, why: impl AsRef<[u8]>) -> Error {
        let called = self.lua.inspect_stack(0, |frame| {
            let names = frame.names();
            (names.name.map(|name| name.into_owned()), names.name_what == Some("method"))
        });
        let (name, is_method) = called.unwrap_or_default();
        let name = name.unwrap_or_else(|| "?".to_owned());
        // The value before a colon is not counted.
        let start = match at as i64 - i64::from(is_method) {
            0 if is_method => format!("calling '{name}' on bad self ("),
            at => format!("bad argument #{at} to '{name}' ("),
        };
        self.error([start.as_bytes(), why.as_ref(), b")"].concat())
    }

    /// An error, said to have happened where the script called.
    pub(super) fn error(&self, text: impl AsRef<[u8]>) -> Error {
        fault::raised(self.lua, text)
    }

    /// An error without a place.
    pub(super) fn plain_error(&self, text: &str) -> Error {
        Fault::Text(text.as_bytes().to_vec()).into()
    }

    /// Work that a script can ask for much of at once: so many steps, each about what an instruction costs.
    ///
    /// # Errors
    /// The stop of a script that has to end.
    #[inline]
    pub(super) fn charge(&self, steps: usize) -> Checked {
        self.budget.charge(steps)
    }

    /// Bytes that are about to be held for the script.
    ///
    /// # Errors
    /// The stop of a script that may not hold so many.
    pub(super) fn reserve(&self, bytes: usize) -> Checked {
        self.budget.reserve(self.lua, bytes)
    }
}

/// Bytes on their way into Lua, charged to the script's budget.
pub(super) struct Output<'l> {
    bytes: Vec<u8>,
    /// What the budget has been asked for.
    reserved: usize,
    lua: &'l Lua,
    budget: &'l Budget,
}

/// Bytes that are as much work as one instruction.
pub(super) const BYTES_PER_STEP: usize = 64;

/// Where a library writes.
pub(super) trait Sink {
    /// Bytes so far.
    fn len(&self) -> usize;

    /// Adds `bytes`.
    ///
    /// # Errors
    /// The stop of a script that may not hold so many, or that has to end. Of a [`Room`], that it has no more room.
    fn push(&mut self, bytes: &[u8]) -> Checked;

    /// Adds one behind the other.
    ///
    /// # Errors
    /// As [`Sink::push`].
    fn push_all<const N: usize>(&mut self, parts: [&[u8]; N]) -> Checked {
        parts.iter().try_for_each(|part| self.push(part))
    }

    /// Adds `byte` so many times.
    ///
    /// # Errors
    /// As [`Sink::push`].
    fn fill(&mut self, byte: u8, count: usize) -> Checked;
}

impl Sink for Output<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Checked {
        self.grow(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn push_all<const N: usize>(&mut self, parts: [&[u8]; N]) -> Checked {
        self.grow(parts.iter().map(|part| part.len()).sum())?;
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part));
        Ok(())
    }

    fn fill(&mut self, byte: u8, count: usize) -> Checked {
        self.grow(count)?;
        self.bytes.resize(self.bytes.len() + count, byte);
        Ok(())
    }
}

impl Sink for Room {
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn push(&mut self, bytes: &[u8]) -> Checked {
        self.try_extend_from_slice(bytes).map_err(|_| Stopped)
    }

    fn fill(&mut self, byte: u8, count: usize) -> Checked {
        (0..count).try_for_each(|_| self.try_push(byte)).map_err(|_| Stopped)
    }
}

impl Output<'_> {
    /// What there is so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, with its room.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Begins anew.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    /// All of it as a string of Lua.
    ///
    /// # Errors
    /// Where Lua has no room for it.
    pub(super) fn finish(self) -> Result<LuaString> {
        self.lua.create_string(&self.bytes)
    }

    #[inline]
    fn grow(&mut self, more: usize) -> Checked {
        self.budget.charge(1 + more / BYTES_PER_STEP)?;
        let len = self.bytes.len().saturating_add(more);
        if len > self.reserved {
            // As a vector grows: the budget is asked as seldom as the allocator.
            let reserved = len.max(2 * self.reserved).max(RESERVED_MIN);
            self.budget.reserve(self.lua, reserved)?;
            self.bytes.reserve_exact(reserved - self.bytes.len());
            self.reserved = reserved;
        }
        Ok(())
    }
}

/// Bytes that are reserved at the first need.
const RESERVED_MIN: usize = 256;

/// A number, or a text that reads as one.
pub(super) fn to_number(lua: &Lua, value: &Value) -> Option<f64> {
    match value {
        Value::Integer(number) => Some(*number as f64),
        Value::Number(number) => Some(*number),
        Value::String(_) => lua.coerce_number(value.clone()).ok().flatten(),
        _ => None,
    }
}

/// A library that is being put together.
pub(super) struct Library<'l> {
    /// The interpreter.
    pub(super) lua: &'l Lua,
    /// Who is charged for what its functions do.
    pub(super) budget: &'l Arc<Budget>,
    /// Its functions so far.
    pub(super) table: Table,
}

impl<'l> Library<'l> {
    /// One without functions, whose work is charged to `budget`.
    ///
    /// # Errors
    /// Where Lua has no room for it.
    pub(super) fn new(lua: &'l Lua, budget: &'l Arc<Budget>) -> Result<Self> {
        Ok(Self { lua, budget, table: lua.create_table()? })
    }

    /// Adds a function.
    ///
    /// # Errors
    /// As [`Library::new`].
    pub(super) fn add<F, R>(&self, name: &str, run: F) -> Result<()>
    where
        F: Fn(&Call<'_>) -> Result<R> + Send + 'static,
        R: IntoLuaMulti,
    {
        let budget = Arc::clone(self.budget);
        let function = stack::function(self.lua, self.budget, move |lua, args| {
            let call = Call { lua, args: Some(&args), budget: &budget };
            run(&call).map_err(|error| match error {
                // As many values as a function may hold at once.
                Error::StackError => call.error("stack overflow"),
                error => error,
            })
        })?;
        self.table.raw_set(name, function)
    }
}

/// A double as C's `long`: without its fraction, and the least one for what does not fit.
pub(super) fn c_long(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// A double as C's `unsigned long`, the way that compilers for x86-64 do it.
pub(super) fn c_unsigned_long(number: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if number >= HALF { (c_long(number - HALF) as u64) ^ (1 << 63) } else { c_long(number) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_become_integers_as_in_c() {
        assert_eq!(c_long(-1.9), -1);
        assert_eq!(c_long(1e300), i64::MIN);
        assert_eq!(c_long(f64::NAN), i64::MIN);
        assert_eq!(c_unsigned_long(1.9), 1);
        assert_eq!(c_unsigned_long(-1.0), u64::MAX);
        assert_eq!(c_unsigned_long(9_223_372_036_854_775_808.0), 1 << 63);
        assert_eq!(c_unsigned_long(1e300), 0);
    }
}
