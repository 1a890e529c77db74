//! Replies into Lua values, and Lua values into replies.
//!
//! Owns    Redis' conversions, both ways, in RESP2 and RESP3.
//! Bounds  what a script returns is written without recursion; a reply that a command gives is as deep as the command
//!         makes it, and is refused below [`DEPTH_MAX`].
//! Source  Redis 7.0 `script_lua.c`: `redisProtocolToLuaType_*`, `luaReplyToRedisReply`.

use mlua::{Function, Lua, LuaString, Table, Value};

use super::fault::{error_table, refused};
use crate::error::until_nul;
use crate::resp::{Protocol, Reply};

/// Names of fields, and what else is made once.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) err: LuaString,
    ok: LuaString,
    double: LuaString,
    map: LuaString,
    set: LuaString,
    big_number: LuaString,
    verbatim_string: LuaString,
    string: LuaString,
    format: LuaString,
    /// Lua's own `next`.
    next: Function,
}

impl Names {
    pub(super) fn new(lua: &Lua) -> mlua::Result<Self> {
        let name = |text: &str| lua.create_string(text);
        Ok(Self {
            err: name("err")?,
            ok: name("ok")?,
            double: name("double")?,
            map: name("map")?,
            set: name("set")?,
            big_number: name("big_number")?,
            verbatim_string: name("verbatim_string")?,
            string: name("string")?,
            format: name("format")?,
            next: lua.globals().raw_get("next")?,
        })
    }
}

/// Arrays inside arrays, in a reply of ours.
const DEPTH_MAX: usize = 64;

/// One whole reply as a Lua value.
pub(super) fn read(lua: &Lua, names: &Names, reply: &[u8]) -> mlua::Result<Value> {
    let mut reader = Reader { lua, names, rest: reply };
    reader.value(0)
}

struct Reader<'a> {
    lua: &'a Lua,
    names: &'a Names,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        let lua = self.lua;
        let line = self.line();
        let (kind, line) = line.split_first().map_or((b'_', line), |(kind, line)| (*kind, line));
        Ok(match kind {
            b':' => Value::Number(crate::number::integer(line).unwrap_or(0) as f64),
            b'$' => match self.bulk(line) {
                Some(bytes) => Value::String(lua.create_string(bytes)?),
                None => Value::Boolean(false),
            },
            b'*' | b'>' | b'~' | b'%' if depth == DEPTH_MAX => {
                return Err(refused("the reply is too deep for a script"));
            }
            b'*' | b'>' => match crate::number::integer(line).and_then(|len| usize::try_from(len).ok()) {
                Some(len) => self.array(len, depth)?,
                None => Value::Boolean(false),
            },
            b'+' => self.tagged(&self.names.ok, Value::String(lua.create_string(line)?))?,
            b'-' => Value::Table(error_table(lua, line, true)?),
            b'%' => self.pairs(self.count(line), depth, true)?,
            b'~' => self.pairs(self.count(line), depth, false)?,
            b'#' => Value::Boolean(line == b"t"),
            b',' => self.tagged(&self.names.double, Value::Number(double(line)))?,
            b'(' => self.tagged(&self.names.big_number, Value::String(lua.create_string(line)?))?,
            b'=' => {
                let text = self.bulk(line).unwrap_or_default();
                let inner = lua.create_table_with_capacity(0, 2)?;
                inner.raw_set(&self.names.format, lua.create_string(text.get(..3).unwrap_or_default())?)?;
                inner.raw_set(&self.names.string, lua.create_string(text.get(4..).unwrap_or_default())?)?;
                self.tagged(&self.names.verbatim_string, Value::Table(inner))?
            }
            _ => Value::Nil,
        })
    }

    fn array(&mut self, len: usize, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(len.min(self.rest.len()), 0)?;
        for at in 1..=len {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value)?;
        }
        Ok(Value::Table(table))
    }

    /// A map, or a set, whose members have true in the place of a value.
    fn pairs(&mut self, len: usize, depth: usize, is_map: bool) -> mlua::Result<Value> {
        let inner = self.lua.create_table_with_capacity(0, len.min(self.rest.len()))?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = if is_map { self.value(depth + 1)? } else { Value::Boolean(true) };
            if !key.is_nil() {
                inner.raw_set(key, value)?;
            }
        }
        self.tagged(if is_map { &self.names.map } else { &self.names.set }, Value::Table(inner))
    }

    fn tagged(&self, name: &LuaString, value: Value) -> mlua::Result<Value> {
        let table = self.lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn count(&self, line: &[u8]) -> usize {
        crate::number::integer(line).and_then(|len| usize::try_from(len).ok()).unwrap_or(0)
    }

    /// The bytes that a line like `$5` announces; `None` for `$-1`.
    fn bulk(&mut self, line: &[u8]) -> Option<&'a [u8]> {
        let len = usize::try_from(crate::number::integer(line)?).ok()?;
        let bytes = self.rest.get(..len)?;
        self.rest = self.rest.get(len + 2..).unwrap_or_default();
        Some(bytes)
    }

    fn line(&mut self) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| *byte == b'\r').unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        line
    }
}

fn double(line: &[u8]) -> f64 {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// Writes what a script returned that spoke in `spoken`, RESP2 or, after `redis.setresp(3)`, RESP3.
///
/// # Errors
/// Where the interpreter runs out of memory.
pub(super) fn write(
    names: &Names,
    value: Value,
    spoken: Protocol,
    reply: &mut Reply<'_>,
) -> mlua::Result<()> {
    // Tables that are being written: how far each is.
    let mut open: Vec<Open> = Vec::new();
    let mut next = Some(value);
    loop {
        if let Some(value) = next.take() {
            match value {
                Value::Table(table) if open.len() < OPEN_MAX => open.extend(Open::new(names, table, reply)?),
                Value::Table(_) => reply.error("ERR reached lua stack limit"),
                value => plain(&value, spoken, reply),
            }
        }
        let Some(last) = open.last_mut() else { return Ok(()) };
        next = last.next()?;
        if next.is_none() {
            open.pop();
        }
    }
}

/// Tables inside tables that a script may return: not far from where Redis comes to the end of Lua's stack.
const OPEN_MAX: usize = 7_000;

/// A table of which a part has been written.
enum Open {
    /// An array, and how many of its elements are written.
    Array { table: Table, written: usize, len: usize },
    /// The keys and values of a map, or the members of a set: the last key, and whether its value has yet to come.
    Items { table: Table, next: Function, last: Value, value: Option<Value>, with_values: bool },
}

impl Open {
    /// Writes the head of a table, or all of it, where it stands for something that is no aggregate.
    fn new(names: &Names, table: Table, reply: &mut Reply<'_>) -> mlua::Result<Option<Self>> {
        if line(names, &table, reply)? {
            return Ok(None);
        }
        if let Value::Table(map) = table.raw_get(&names.map)? {
            reply.map(entries(&map)?);
            return Ok(Some(Self::items(names, map, true)));
        }
        if let Value::Table(set) = table.raw_get(&names.set)? {
            reply.set(entries(&set)?);
            return Ok(Some(Self::items(names, set, false)));
        }
        if text(names, &table, reply)? {
            return Ok(None);
        }
        let len = length(&table)?;
        reply.array(len);
        Ok(Some(Self::Array { table, written: 0, len }))
    }

    fn items(names: &Names, table: Table, with_values: bool) -> Self {
        Self::Items { table, next: names.next.clone(), last: Value::Nil, value: None, with_values }
    }

    fn next(&mut self) -> mlua::Result<Option<Value>> {
        match self {
            Self::Items { value, .. } if value.is_some() => Ok(value.take()),
            Self::Items { table, next, last, value, with_values } => {
                let (key, found): (Value, Value) = next.call((&*table, &*last))?;
                if key.is_nil() {
                    return Ok(None);
                }
                *last = key.clone();
                *value = with_values.then_some(found);
                Ok(Some(key))
            }
            Self::Array { written, len, .. } if written == len => Ok(None),
            Self::Array { table, written, .. } => {
                *written += 1;
                table.raw_get(*written).map(Some)
            }
        }
    }
}

/// Writes a table that stands for an error, a status or a double; true if it is one.
fn line(names: &Names, table: &Table, reply: &mut Reply<'_>) -> mlua::Result<bool> {
    if let Value::String(line) = table.raw_get(&names.err)? {
        reply.error_bytes(until_nul(&line.as_bytes()));
    } else if let Value::String(line) = table.raw_get(&names.ok)? {
        reply.status_bytes(until_nul(&line.as_bytes()));
    } else {
        match table.raw_get(&names.double)? {
            Value::Number(number) => reply.double(number),
            Value::Integer(number) => reply.double(number as f64),
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Writes a table that stands for a big number or a verbatim string; true if it is one.
fn text(names: &Names, table: &Table, reply: &mut Reply<'_>) -> mlua::Result<bool> {
    if let Value::String(number) = table.raw_get(&names.big_number)? {
        reply.big_number(&number.as_bytes());
        return Ok(true);
    }
    if let Value::Table(inner) = table.raw_get(&names.verbatim_string)?
        && let Value::String(text) = inner.raw_get(&names.string)?
        && let Value::String(format) = inner.raw_get(&names.format)?
    {
        reply.verbatim_bytes(&format.as_bytes(), &text.as_bytes());
        return Ok(true);
    }
    Ok(false)
}

/// Elements before the first nil.
fn length(table: &Table) -> mlua::Result<usize> {
    // The border that Lua finds may lie behind a nil: what comes before it is looked at one by one.
    for at in 1.. {
        if table.raw_get::<Value>(at)?.is_nil() {
            return Ok(at - 1);
        }
    }
    Ok(0)
}

fn entries(table: &Table) -> mlua::Result<usize> {
    let mut count = 0;
    for pair in table.pairs::<Value, Value>() {
        pair?;
        count += 1;
    }
    Ok(count)
}

/// What is no table.
fn plain(value: &Value, spoken: Protocol, reply: &mut Reply<'_>) {
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(whole(*number)),
        Value::Boolean(is_so) if spoken == Protocol::Resp3 => reply.boolean(*is_so),
        Value::Boolean(true) => reply.integer(1),
        _ => reply.null(),
    }
}

/// A number as C converts it to an integer of 64 bits on the machines that Redis runs on: what does not fit is the least.
fn whole(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_an_integer_are_the_least_one() {
        assert_eq!([whole(3.99), whole(-3.99), whole(1e300), whole(f64::NAN)], [3, -3, i64::MIN, i64::MIN]);
        assert_eq!(whole(9_223_372_036_854_774_784.0), 9_223_372_036_854_774_784);
    }
}
