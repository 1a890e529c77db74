//! The library `cmsgpack`: Lua's values as MessagePack, and back.
//!
//! Owns    the conversions of lua-cmsgpack; the crate `rmp` writes and reads what is between them.
//! Bounds  packing goes [`PACK_DEPTH_MAX`] tables deep, unpacking [`NESTING_MAX`].
//! Source  lua-cmsgpack 0.4.0 as Redis 7.0 has it. `docs/scripts.md` lists what differs.

use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};
use rmp::Marker;
use rmp::encode::{self, ValueWriteError};

use super::args::{Call, Library, NESTING_MAX, Output};
use super::budget::Budget;
use super::fault::{Fault, Stopped};

/// The table `cmsgpack`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("pack", pack)?;
    library.add("unpack", |call| unpack(call, 0, 0))?;
    library.add("unpack_one", |call| unpack(call, call.integer_or(2, 0)?, 1))?;
    library.add("unpack_limit", |call| unpack(call, call.integer_or(3, 0)?, call.integer(2)?))?;
    library.table.raw_set("_NAME", "cmsgpack")?;
    library.table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(library.table)
}

/// Tables within tables that are packed; those further in become nil, which also ends circles.
const PACK_DEPTH_MAX: usize = 16;
/// Values that one call returns at most.
const VALUES_MAX: usize = 7900;

fn pack(call: &Call<'_>) -> Result<LuaString> {
    if call.len() == 0 {
        return Err(call.bad(0, "MessagePack pack needs input."));
    }
    let mut out = call.output();
    for value in call.args {
        write(call, &mut out, value, 0)?;
    }
    out.finish()
}

/// An output that is full has stopped the script.
fn full(_: ValueWriteError) -> mlua::Error {
    Stopped.into()
}

fn write(call: &Call<'_>, out: &mut Output<'_>, value: &Value, depth: usize) -> Result<()> {
    match value {
        Value::Boolean(truth) => encode::write_bool(out, *truth).map_err(|_| Stopped.into()),
        Value::Integer(number) => encode::write_sint(out, *number).map(drop).map_err(full),
        Value::Number(number) => write_number(out, *number).map_err(full),
        Value::String(text) => {
            let text = text.as_bytes();
            encode::write_str_len(out, text.len() as u32).map_err(full)?;
            out.push(&text)
        }
        Value::Table(table) if depth < PACK_DEPTH_MAX => write_table(call, out, table, depth + 1),
        _ => encode::write_nil(out).map_err(|_| Stopped.into()),
    }
}

/// A number that is no integer of 64 bits, in 32 bits where that changes nothing.
fn write_number(out: &mut Output<'_>, number: f64) -> std::result::Result<(), ValueWriteError> {
    let single = number as f32;
    if f64::from(single) == number { encode::write_f32(out, single) } else { encode::write_f64(out, number) }
}

/// A table is an array if it has the keys from 1 to its length and no others.
fn write_table(call: &Call<'_>, out: &mut Output<'_>, table: &Table, depth: usize) -> Result<()> {
    let (mut count, mut last) = (0_u32, 0_u32);
    let mut is_array = true;
    for pair in table.pairs::<Value, Value>() {
        call.charge(1)?;
        count += 1;
        match pair?.0 {
            Value::Integer(place) if place > 0 => last = last.max(u32::try_from(place).unwrap_or(u32::MAX)),
            _ => is_array = false,
        }
    }
    if is_array && last == count {
        encode::write_array_len(out, count).map_err(full)?;
        return (1..=count).try_for_each(|place| write(call, out, &table.raw_get(place)?, depth));
    }
    encode::write_map_len(out, count).map_err(full)?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        write(call, out, &key, depth)?;
        write(call, out, &value, depth)?;
    }
    Ok(())
}

/// At most `count` values from byte `from` on, after where the next one starts; 0 of both: all, without that.
fn unpack(call: &Call<'_>, from: i64, count: i64) -> Result<MultiValue> {
    let text = call.string(1)?;
    let data = text.as_bytes();
    let (len, from_shown) = (data.len(), from as i32);
    if from < 0 || count < 0 {
        // The number that Redis calls the limit is the length.
        let text = format!("Invalid request to unpack with offset of {from_shown} and limit of {len}.");
        return Err(call.error(text));
    }
    if from > len as i64 {
        return Err(call.error(format!("Start offset {from_shown} greater than input length {len}.")));
    }
    let is_all = from == 0 && count == 0;
    let count = if is_all { usize::MAX } else { count as usize };
    let mut reader = Reader { call, rest: &data[from as usize..] };
    let mut results = MultiValue::new();
    while !reader.rest.is_empty() && results.len() < count {
        if results.len() >= VALUES_MAX {
            let text = "too many return values at once; use unpack_one or unpack_limit instead.";
            return Err(call.error(format!("stack overflow ({text})")));
        }
        results.push_back(reader.value(0)?);
    }
    if !is_all {
        let next = if reader.rest.is_empty() { -1.0 } else { (len - reader.rest.len()) as f64 };
        results.push_front(Value::Number(next));
    }
    Ok(results)
}

struct Reader<'c, 'l, 'd> {
    call: &'c Call<'l>,
    rest: &'d [u8],
}

/// Steps that one value costs.
const STEPS_PER_VALUE: usize = 10;

impl Reader<'_, '_, '_> {
    fn value(&mut self, depth: usize) -> Result<Value> {
        self.call.charge(STEPS_PER_VALUE)?;
        let number = match Marker::from_u8(u8::from_be_bytes(self.take()?)) {
            Marker::Null => return Ok(Value::Nil),
            Marker::True => return Ok(Value::Boolean(true)),
            Marker::False => return Ok(Value::Boolean(false)),
            Marker::FixStr(len) => return self.string(u32::from(len)),
            Marker::Str8 => {
                return self.take().map(u8::from_be_bytes).and_then(|len| self.string(len.into()));
            }
            Marker::Str16 => {
                return self.take().map(u16::from_be_bytes).and_then(|len| self.string(len.into()));
            }
            Marker::Str32 => return self.take().map(u32::from_be_bytes).and_then(|len| self.string(len)),
            Marker::FixArray(len) => return self.array(u32::from(len), depth),
            Marker::Array16 => {
                return self.take().map(u16::from_be_bytes).and_then(|len| self.array(len.into(), depth));
            }
            Marker::Array32 => {
                return self.take().map(u32::from_be_bytes).and_then(|len| self.array(len, depth));
            }
            Marker::FixMap(len) => return self.map(u32::from(len), depth),
            Marker::Map16 => {
                return self.take().map(u16::from_be_bytes).and_then(|len| self.map(len.into(), depth));
            }
            Marker::Map32 => return self.take().map(u32::from_be_bytes).and_then(|len| self.map(len, depth)),
            Marker::FixPos(value) => f64::from(value),
            Marker::FixNeg(value) => f64::from(value),
            Marker::U8 => f64::from(u8::from_be_bytes(self.take()?)),
            Marker::U16 => f64::from(u16::from_be_bytes(self.take()?)),
            Marker::U32 => f64::from(u32::from_be_bytes(self.take()?)),
            Marker::I8 => f64::from(i8::from_be_bytes(self.take()?)),
            Marker::I16 => f64::from(i16::from_be_bytes(self.take()?)),
            Marker::I32 => f64::from(i32::from_be_bytes(self.take()?)),
            // Redis reads both as signed integers.
            Marker::U64 | Marker::I64 => i64::from_be_bytes(self.take()?) as f64,
            Marker::F32 => f64::from(f32::from_be_bytes(self.take()?)),
            Marker::F64 => f64::from_be_bytes(self.take()?),
            _ => return Err(self.call.error("Bad data format in input.")),
        };
        Ok(Value::Number(number))
    }

    /// The next `N` bytes.
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.missing())?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn missing(&self) -> mlua::Error {
        self.call.error("Missing bytes in input.")
    }

    fn string(&mut self, len: u32) -> Result<Value> {
        let (text, rest) = self.rest.split_at_checked(len as usize).ok_or_else(|| self.missing())?;
        self.rest = rest;
        self.call.lua.create_string(text).map(Value::String)
    }

    fn array(&mut self, len: u32, depth: usize) -> Result<Value> {
        let table = self.table(depth, "array")?;
        for place in 1..=len {
            table.raw_set(place, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, len: u32, depth: usize) -> Result<Value> {
        let table = self.table(depth, "hash")?;
        for _ in 0..len {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            match &key {
                Value::Nil => return Err(Fault::Text(b"table index is nil".to_vec()).into()),
                Value::Number(number) if number.is_nan() => {
                    return Err(Fault::Text(b"table index is NaN".to_vec()).into());
                }
                _ => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }

    fn table(&self, depth: usize, kind: &str) -> Result<Table> {
        if depth >= NESTING_MAX {
            return Err(self.call.error(format!("stack overflow (in function mp_decode_to_lua_{kind})")));
        }
        self.call.lua.create_table()
    }
}
