//! Replies into Lua values, and Lua values into replies.
//!
//! Owns    Redis' conversions, both ways, in RESP2 and RESP3.
//! Bounds  both ways recurse, to a fixed depth. What a script returns is charged to its budget.
//! Source  Redis 7.0 `script_lua.c`: `redisProtocolToLuaType_*`, `luaReplyToRedisReply`.

use std::sync::Arc;

use mlua::{IntoLua, Lua, LuaString, Result, Table, Value};
use redlatch_proto::error::until_nul;
use redlatch_proto::number;
use redlatch_proto::resp::{Element, Protocol, Reply};

use super::args::NESTING_MAX;
use super::budget::Budget;
use super::fault::{error_table, refused};

/// Arrays inside arrays, in a reply of a command.
const READ_DEPTH_MAX: usize = 64;
/// Tables inside tables that a script may return.
const WRITE_DEPTH_MAX: usize = NESTING_MAX;

/// One whole reply as a Lua value. The caller has lifted the memory limit.
///
/// # Errors
/// The stop of a script that may not hold so much, and an error for a reply that is too deep.
pub(super) fn read(lua: &Lua, budget: &Arc<Budget>, reply: &[u8]) -> Result<Value> {
    budget.reserve(lua, reply.len())?;
    Reader { lua, budget, rest: reply, values: 0 }.value(0)
}

struct Reader<'r> {
    lua: &'r Lua,
    budget: &'r Arc<Budget>,
    rest: &'r [u8],
    /// Values inside arrays so far.
    values: usize,
}

/// Values between two looks at the memory in use, which the smallest values take the most of.
const VALUES_PER_LOOK: usize = 1000;

impl<'r> Reader<'r> {
    fn value(&mut self, depth: usize) -> Result<Value> {
        let Some(element) = Element::take(&mut self.rest) else { return Ok(Value::Nil) };
        self.value_of(element, depth)
    }

    fn value_of(&mut self, element: Element<'r>, depth: usize) -> Result<Value> {
        if depth > READ_DEPTH_MAX {
            return Err(refused("the reply is too deep for a script"));
        }
        Ok(match element {
            Element::Null(b'_') => Value::Nil,
            Element::Null(_) => Value::Boolean(false),
            Element::Aggregate(b'%', len) => tagged(self.lua, "map", self.pairs(len / 2, depth, true)?)?,
            Element::Aggregate(b'~', len) => tagged(self.lua, "set", self.pairs(len, depth, false)?)?,
            Element::Aggregate(_, len) => Value::Table(self.array(len, depth)?),
            Element::Bulk(b'=', text) => {
                let parts = self.lua.create_table_with_capacity(0, 2)?;
                parts.raw_set("format", LuaString::wrap(text.get(..3).unwrap_or_default()))?;
                parts.raw_set("string", LuaString::wrap(text.get(4..).unwrap_or_default()))?;
                tagged(self.lua, "verbatim_string", parts)?
            }
            Element::Bulk(_, bytes) => Value::String(self.lua.create_string(bytes)?),
            Element::Line(b':', line) => Value::Number(number::integer(line).unwrap_or(0) as f64),
            Element::Line(b'-', line) => Value::Table(error_table(self.lua, line, true)?),
            Element::Line(b'+', line) => tagged(self.lua, "ok", LuaString::wrap(line))?,
            Element::Line(b'(', line) => tagged(self.lua, "big_number", LuaString::wrap(line))?,
            Element::Line(b',', line) => tagged(self.lua, "double", double(line))?,
            Element::Line(_, line) => Value::Boolean(line == b"t"),
        })
    }

    fn count_value(&mut self) -> Result<()> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_LOOK) {
            self.budget.reserve(self.lua, self.rest.len())?;
        }
        Ok(())
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(len.min(self.rest.len()), 0)?;
        for at in 1..=len {
            self.count_value()?;
            match Element::take(&mut self.rest) {
                // A string needs no handle on its way into the table.
                Some(Element::Bulk(b'$', bytes)) => table.raw_set(at, LuaString::wrap(bytes))?,
                Some(element) => table.raw_set(at, self.value_of(element, depth + 1)?)?,
                None => {}
            }
        }
        Ok(table)
    }

    /// A map, or a set, whose members have true in the place of a value.
    fn pairs(&mut self, len: usize, depth: usize, is_map: bool) -> Result<Table> {
        let table = self.lua.create_table_with_capacity(0, len.min(self.rest.len()))?;
        for _ in 0..len {
            self.count_value()?;
            let key = self.value(depth + 1)?;
            let value = if is_map { self.value(depth + 1)? } else { Value::Boolean(true) };
            table.raw_set(key, value)?;
        }
        Ok(table)
    }
}

/// A table with one field, by which a script knows what kind of reply it is.
fn tagged(lua: &Lua, name: &str, value: impl IntoLua) -> Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(Value::Table(table))
}

fn double(line: &[u8]) -> f64 {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// A number. mlua has whole numbers of Lua as integers.
fn number_of(value: &Value) -> Option<f64> {
    value.as_number().or_else(|| value.as_integer().map(|number| number as f64))
}

/// Writes what a script returned that speaks `spoken`: RESP2 or, after `redis.setresp(3)`, RESP3.
///
/// # Errors
/// The stop of a script that has to end, or whose reply is longer than the memory it may have: a table that is in itself
/// in two places is, if not infinitely deep, as long as two to the power of its depth.
pub(super) fn write(
    value: &Value,
    spoken: Protocol,
    budget: &Arc<Budget>,
    reply: &mut Reply<'_>,
) -> Result<()> {
    let begun = reply.written();
    Writer { spoken, budget, reply, begun }.value(value, 0)
}

struct Writer<'w, 'r> {
    spoken: Protocol,
    budget: &'w Arc<Budget>,
    reply: &'w mut Reply<'r>,
    /// What had been written before.
    begun: usize,
}

impl Writer<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        self.budget.charge(STEPS_PER_VALUE)?;
        self.budget.bound(self.reply.written() - self.begun)?;
        match value {
            Value::String(text) => self.reply.bulk(&text.as_bytes()),
            Value::Integer(number) => self.reply.integer(*number),
            Value::Number(number) => self.reply.integer(super::args::c_long(*number)),
            Value::Boolean(truth) if self.spoken == Protocol::Resp3 => self.reply.boolean(*truth),
            Value::Boolean(true) => self.reply.integer(1),
            Value::Table(_) if depth >= WRITE_DEPTH_MAX => self.reply.error("ERR reached lua stack limit"),
            Value::Table(table) => return self.table(table, depth + 1),
            _ => self.reply.null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if let Value::String(line) = table.raw_get("err")? {
            self.reply.error_bytes(until_nul(&line.as_bytes()));
        } else if let Value::String(line) = table.raw_get("ok")? {
            self.reply.status_bytes(until_nul(&line.as_bytes()));
        } else if let Some(number) = number_of(&table.raw_get("double")?) {
            self.reply.double(number);
        } else if let Value::Table(map) = table.raw_get("map")? {
            self.reply.map(self.entries(&map)?);
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.value(&key, depth)?;
                self.value(&value, depth)?;
            }
        } else if let Value::Table(set) = table.raw_get("set")? {
            self.reply.set(self.entries(&set)?);
            for pair in set.pairs::<Value, Value>() {
                self.value(&pair?.0, depth)?;
            }
        } else if let Value::String(number) = table.raw_get("big_number")? {
            self.reply.big_number(&number.as_bytes());
        } else if let Some((format, text)) = verbatim(table)? {
            self.reply.verbatim_bytes(&format.as_bytes(), &text.as_bytes());
        } else {
            self.array(table, depth)?;
        }
        Ok(())
    }

    fn array(&mut self, table: &Table, depth: usize) -> Result<()> {
        let mut len = 0;
        // The border that Lua finds may lie behind a nil: what comes before it is looked at one by one.
        while !table.raw_get::<Value>(len + 1)?.is_nil() {
            len += 1;
            self.budget.charge(1)?;
        }
        self.reply.array(len);
        (1..=len).try_for_each(|at| self.value(&table.raw_get(at)?, depth))
    }

    fn entries(&self, table: &Table) -> Result<usize> {
        let mut count = 0;
        for pair in table.pairs::<Value, Value>() {
            pair?;
            count += 1;
            self.budget.charge(1)?;
        }
        Ok(count)
    }
}

/// Steps that one value of a reply costs.
const STEPS_PER_VALUE: usize = 10;

/// The format and the text of a table that stands for a verbatim string.
fn verbatim(table: &Table) -> Result<Option<(LuaString, LuaString)>> {
    let Value::Table(parts) = table.raw_get("verbatim_string")? else { return Ok(None) };
    Ok(match (parts.raw_get("format")?, parts.raw_get("string")?) {
        (Value::String(format), Value::String(text)) => Some((format, text)),
        _ => None,
    })
}
