//! What the libraries of the interpreter share: arguments are checked and errors worded as Lua's auxiliary library does.
//!
//! Rule    what a library builds outside of Lua's own memory, it builds in an [`Output`], which the budget bounds too.
//! Source  Lua 5.1 `lauxlib.c`; conversions of numbers are those of a C compiler on x86-64.

use std::sync::Arc;

use mlua::{Error, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value};

use super::budget::Budget;
use super::fault::{self, Checked};

/// Tables inside tables that functions of Rust follow: each is a level of recursion.
pub(super) const NESTING_MAX: usize = 128;

/// One call of a library function.
pub(super) struct Call<'l> {
    pub(super) lua: &'l Lua,
    pub(super) args: &'l MultiValue,
    /// Who is charged for the work.
    pub(super) budget: &'l Arc<Budget>,
}

impl<'l> Call<'l> {
    /// An empty output.
    pub(super) fn output(&self) -> Output<'l> {
        Output { bytes: Vec::new(), reserved: 0, lua: self.lua, budget: self.budget }
    }

    /// How many arguments there are.
    pub(super) fn len(&self) -> usize {
        self.args.len()
    }

    /// Argument `at`, from 1; nil where there is none.
    pub(super) fn value(&self, at: usize) -> &Value {
        self.args.get(at - 1).unwrap_or(&Value::Nil)
    }

    /// Argument `at` as a number.
    ///
    /// # Errors
    /// Lua's, when it is neither a number nor a text that reads as one.
    pub(super) fn number(&self, at: usize) -> Result<f64> {
        let number = match self.value(at) {
            Value::Integer(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            text @ Value::String(_) => self.lua.coerce_number(text.clone())?,
            _ => None,
        };
        number.ok_or_else(|| self.wrong_type(at, "number"))
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
            other => text_of(self.lua, other)?.ok_or_else(|| self.wrong_type(at, "string")),
        }
    }

    /// The error of an argument that is of another type than `expected`.
    pub(super) fn wrong_type(&self, at: usize, expected: &str) -> Error {
        let got = if at > self.len() { "no value" } else { type_name(self.value(at)) };
        self.bad(at, format!("{expected} expected, got {got}"))
    }

    /// The error of an argument that is refused.
    pub(super) fn bad(&self, at: usize, why: impl AsRef<[u8]>) -> Error {
        fault::bad_argument(self.lua, at, why)
    }

    /// An error with the place of the call in front.
    pub(super) fn error(&self, text: impl AsRef<[u8]>) -> Error {
        fault::raised(self.lua, text)
    }

    /// Counts work: so many steps, each about what an instruction costs.
    ///
    /// # Errors
    /// The stop of a script that has to end.
    pub(super) fn charge(&self, steps: usize) -> Checked {
        self.budget.charge(steps)
    }
}

/// The name of a value's type as Lua gives it.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// A string, or a number as Lua writes it; `None` for any other value.
pub(super) fn text_of(lua: &Lua, value: &Value) -> Result<Option<LuaString>> {
    match value {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => lua.coerce_string(value.clone()),
        _ => Ok(None),
    }
}

/// Bytes on their way into Lua, charged to the script's budget.
pub(super) struct Output<'l> {
    bytes: Vec<u8>,
    /// Bytes that the budget has been asked for.
    reserved: usize,
    lua: &'l Lua,
    budget: &'l Arc<Budget>,
}

/// Bytes that cost as much work as one instruction.
pub(super) const BYTES_PER_STEP: usize = 64;
/// Bytes that are reserved at the first need.
const RESERVED_MIN: usize = 256;

impl Output<'_> {
    /// Adds `bytes`.
    ///
    /// # Errors
    /// The stop of a script that may not hold so many, or that has to end.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.budget.charge(1 + bytes.len() / BYTES_PER_STEP)?;
        let len = self.bytes.len().saturating_add(bytes.len());
        if len > self.reserved {
            // As a vector grows: the budget is asked as seldom as the allocator.
            let reserved = len.max(2 * self.reserved).max(RESERVED_MIN);
            self.budget.reserve(self.lua, reserved)?;
            self.bytes.reserve_exact(reserved - self.bytes.len());
            self.reserved = reserved;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// All of it as a string of Lua.
    ///
    /// # Errors
    /// Where Lua has no room for it.
    pub(super) fn finish(self) -> Result<LuaString> {
        self.budget.reserve(self.lua, self.bytes.len())?;
        self.lua.create_string(&self.bytes)
    }
}

impl std::io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.push(bytes).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A library that is being put together.
pub(super) struct Library<'l> {
    pub(super) lua: &'l Lua,
    /// Who is charged for what its functions do.
    pub(super) budget: &'l Arc<Budget>,
    pub(super) table: Table,
}

impl<'l> Library<'l> {
    /// A library without functions, whose work is charged to `budget`.
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
        let function = self.lua.create_function(move |lua, args: MultiValue| {
            budget.charge(STEPS_PER_CALL)?;
            run(&Call { lua, args: &args, budget: &budget })
        })?;
        self.table.raw_set(name, function)
    }
}

/// Steps that the call of a function of Rust costs, whatever it does.
const STEPS_PER_CALL: usize = 10;

/// A double as C's `long`: without its fraction, and the least one for what does not fit.
pub(super) fn c_long(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}
