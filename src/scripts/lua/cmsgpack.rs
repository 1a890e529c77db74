//! The library `cmsgpack`: Lua's values as MessagePack, and back.
//!
//! Bounds  packing goes [`NESTING_MAX`] tables deep; unpacking does not recurse, and ends where Redis' stack would.
//! Source  lua-cmsgpack 0.4.0 as Redis 7.0 has it.

use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::auxiliary::{Call, Library, Output, STACK_SLOTS_MAX};
use super::budget::Budget;

/// The table `cmsgpack`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("pack", pack)?;
    library.add("unpack", |call| unpack(call, call.len(), 0, 0))?;
    library.add("unpack_one", |call| unpack(call, 1, call.integer_or(2, 0)?, 1))?;
    library.add("unpack_limit", |call| {
        let count = call.integer(2)?;
        unpack(call, 1, call.integer_or(3, 0)?, count)
    })?;
    library.table.raw_set("_NAME", "cmsgpack")?;
    library.table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.table.raw_set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    library.table.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library.table)
}

/// Tables within tables that are packed; those further in become nil, which also ends circles.
const NESTING_MAX: usize = 16;

fn pack(call: &Call<'_>) -> Result<LuaString> {
    if call.len() == 0 {
        return Err(call.bad(0, "MessagePack pack needs input."));
    }
    if 2 * call.len() > STACK_SLOTS_MAX {
        return Err(call.bad(0, "Too many arguments for MessagePack pack."));
    }
    let mut packer = Packer { call, out: call.output() };
    for value in call.args.iter() {
        packer.value(value, 0)?;
    }
    packer.out.finish()
}

struct Packer<'c, 'l> {
    call: &'c Call<'l>,
    out: Output<'c>,
}

impl Packer<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        match value {
            Value::Boolean(value) => self.out.push(&[if *value { 0xc3 } else { 0xc2 }]),
            Value::Integer(number) => self.integer(*number),
            Value::Number(number) => self.number(*number),
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Table(table) if depth < NESTING_MAX => self.table(table, depth + 1),
            _ => self.out.push(&[0xc0]),
        }
    }

    fn number(&mut self, number: f64) -> Result<()> {
        let integer = number as i64;
        // 2^63 saturates to a number that is equal to it again, and yet is no integer of 64 bits.
        if integer as f64 == number && integer != i64::MAX {
            return self.integer(integer);
        }
        let single = number as f32;
        if f64::from(single) == number {
            self.headed(0xca, &single.to_be_bytes())
        } else {
            self.headed(0xcb, &number.to_be_bytes())
        }
    }

    fn integer(&mut self, number: i64) -> Result<()> {
        match number {
            -32..=127 => self.out.push(&[number as u8]),
            128..=0xff => self.headed(0xcc, &(number as u8).to_be_bytes()),
            0x100..=0xffff => self.headed(0xcd, &(number as u16).to_be_bytes()),
            0x1_0000..=0xffff_ffff => self.headed(0xce, &(number as u32).to_be_bytes()),
            0x1_0000_0000.. => self.headed(0xcf, &number.to_be_bytes()),
            -0x80..=-33 => self.headed(0xd0, &(number as i8).to_be_bytes()),
            -0x8000..=-0x81 => self.headed(0xd1, &(number as i16).to_be_bytes()),
            -0x8000_0000..=-0x8001 => self.headed(0xd2, &(number as i32).to_be_bytes()),
            _ => self.headed(0xd3, &number.to_be_bytes()),
        }
    }

    fn string(&mut self, text: &[u8]) -> Result<()> {
        match text.len() {
            len @ 0..=31 => self.out.push(&[0xa0 | len as u8])?,
            len @ 32..=0xff => self.headed(0xd9, &(len as u8).to_be_bytes())?,
            len @ 0x100..=0xffff => self.headed(0xda, &(len as u16).to_be_bytes())?,
            len => self.headed(0xdb, &(len as u32).to_be_bytes())?,
        }
        self.out.push(text)
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        match shape(self.call, table)? {
            Shape::Array(len) => {
                self.count(len, 0x90, 0xdc)?;
                for at in 1..=len {
                    self.value(&table.raw_get(at)?, depth)?;
                }
            }
            Shape::Map(len) => {
                self.count(len, 0x80, 0xde)?;
                for pair in table.pairs::<Value, Value>() {
                    let (key, value) = pair?;
                    self.value(&key, depth)?;
                    self.value(&value, depth)?;
                }
            }
        }
        Ok(())
    }

    /// The head of an array or a map: its short form, and its form of 16 bits, which that of 32 bits follows.
    fn count(&mut self, len: usize, short: u8, long: u8) -> Result<()> {
        match len {
            0..=15 => self.out.push(&[short | len as u8]),
            16..=0xffff => self.headed(long, &(len as u16).to_be_bytes()),
            _ => self.headed(long + 1, &(len as u32).to_be_bytes()),
        }
    }

    fn headed(&mut self, head: u8, bytes: &[u8]) -> Result<()> {
        self.out.push(&[head])?;
        self.out.push(bytes)
    }
}

/// What a table is packed as, with its length.
enum Shape {
    Array(usize),
    Map(usize),
}

/// An array has the keys from 1 to its length and no others.
fn shape(call: &Call<'_>, table: &Table) -> Result<Shape> {
    let (mut count, mut max, mut is_array) = (0_usize, 0_i64, true);
    for pair in table.pairs::<Value, Value>() {
        let key = match pair?.0 {
            Value::Integer(key) => key,
            Value::Number(key) if key.fract() == 0.0 => key as i64,
            _ => 0,
        };
        is_array &= (1..=i64::from(i32::MAX)).contains(&key);
        max = max.max(key);
        count += 1;
        call.charge(1)?;
    }
    Ok(if is_array && max == count as i64 { Shape::Array(count) } else { Shape::Map(count) })
}

/// At most `count` values from byte `from` on, led by where the next one starts; 0 of both: all, without that.
/// `slots` are those of its stack that the C code has in use.
fn unpack(call: &Call<'_>, slots: usize, from: i64, count: i64) -> Result<MultiValue> {
    let text = call.string(1)?;
    let data = text.as_bytes();
    let (len, from_shown) = (data.len(), from as i32);
    if from < 0 || count < 0 {
        // The number it calls the limit is the length.
        let text = format!("Invalid request to unpack with offset of {from_shown} and limit of {len}.");
        return Err(call.error(&text));
    }
    if from > len as i64 {
        return Err(call.error(format!("Start offset {from_shown} greater than input length {len}.")));
    }
    let is_all = from == 0 && count == 0;
    let count = if is_all { usize::MAX } else { count as usize };
    let mut unpacker = Unpacker { call, data: &data, at: from as usize, slots, open: Vec::new() };
    let mut results = Vec::new();
    while unpacker.at < len && results.len() < count {
        results.push(unpacker.run()?);
        unpacker.slots += 1;
    }
    if !is_all {
        let next = if unpacker.at == len { -1.0 } else { unpacker.at as f64 };
        results.insert(0, Value::Number(next));
    }
    Ok(MultiValue::from_vec(results))
}

struct Unpacker<'c, 'l, 'd> {
    call: &'c Call<'l>,
    data: &'d [u8],
    at: usize,
    /// Slots of the stack that the C code would be using.
    slots: usize,
    /// The tables that it is in, outermost first.
    open: Vec<Open>,
}

/// A table that is not yet complete.
enum Open {
    /// So many items are in it, so many come.
    Array(Table, usize, usize),
    /// The key whose value comes next; so many pairs come, this one included.
    Map(Table, Option<Value>, usize),
}

/// What a head says.
enum Head {
    Array(usize),
    Map(usize),
    Value(Value),
}

impl Unpacker<'_, '_, '_> {
    /// The next value.
    fn run(&mut self) -> Result<Value> {
        loop {
            let mut value = match self.head()? {
                Head::Array(len) => {
                    let table = self.call.lua.create_table()?;
                    self.slots += 1;
                    self.has_slot("in function mp_decode_to_lua_array")?;
                    self.open.push(Open::Array(table, 0, len));
                    self.slots += 1;
                    None
                }
                Head::Map(len) => {
                    self.open.push(Open::Map(self.call.lua.create_table()?, None, len));
                    self.slots += 1;
                    None
                }
                Head::Value(value) => Some(value),
            };
            // A value that is complete may complete those around it.
            loop {
                if let Some(value) = value.take()
                    && let Some(value) = self.put(value)?
                {
                    return Ok(value);
                }
                match self.open.pop() {
                    Some(Open::Array(table, _, 0)) => {
                        self.slots -= 2;
                        value = Some(Value::Table(table));
                    }
                    Some(Open::Map(table, _, 0)) => {
                        self.slots -= 1;
                        value = Some(Value::Table(table));
                    }
                    unfinished => {
                        self.open.extend(unfinished);
                        break;
                    }
                }
            }
        }
    }

    /// Puts a value where it belongs, or hands it back where it belongs nowhere.
    fn put(&mut self, value: Value) -> Result<Option<Value>> {
        self.call.charge(1)?;
        match self.open.last_mut() {
            None => return Ok(Some(value)),
            Some(Open::Array(table, len, rest)) => {
                *len += 1;
                *rest -= 1;
                table.raw_set(*len, value)?;
            }
            Some(Open::Map(table, key, rest)) => match key.take() {
                None => {
                    self.slots += 1;
                    *key = Some(value);
                }
                Some(Value::Nil) => return Err(self.call.plain_error("table index is nil")),
                Some(Value::Number(number)) if number.is_nan() => {
                    return Err(self.call.plain_error("table index is NaN"));
                }
                Some(key) => {
                    self.slots -= 1;
                    *rest -= 1;
                    table.raw_set(key, value)?;
                }
            },
        }
        Ok(None)
    }

    fn head(&mut self) -> Result<Head> {
        let head = self.take(1)?[0];
        self.has_slot("too many return values at once; use unpack_one or unpack_limit instead.")?;
        Ok(match head {
            0x00..=0x7f | 0xe0..=0xff => number(f64::from(head as i8)),
            0x80..=0x8f => Head::Map(usize::from(head & 15)),
            0x90..=0x9f => Head::Array(usize::from(head & 15)),
            0xa0..=0xbf => self.string(usize::from(head & 31))?,
            0xc0 => Head::Value(Value::Nil),
            0xc2 | 0xc3 => Head::Value(Value::Boolean(head == 0xc3)),
            0xca => number(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => number(f64::from_be_bytes(self.array()?)),
            0xcc => number(f64::from(u8::from_be_bytes(self.array()?))),
            0xcd => number(f64::from(u16::from_be_bytes(self.array()?))),
            0xce => number(f64::from(u32::from_be_bytes(self.array()?))),
            // Unsigned, but from 2^63 on the C code reads it as negative.
            0xcf => number(i64::from_be_bytes(self.array()?) as f64),
            0xd0 => number(f64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => number(f64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => number(f64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => number(i64::from_be_bytes(self.array()?) as f64),
            0xd9 => {
                let len = usize::from(u8::from_be_bytes(self.array()?));
                self.string(len)?
            }
            0xda => {
                let len = usize::from(u16::from_be_bytes(self.array()?));
                self.string(len)?
            }
            0xdb => {
                let len = u32::from_be_bytes(self.array()?) as usize;
                self.string(len)?
            }
            0xdc => Head::Array(usize::from(u16::from_be_bytes(self.array()?))),
            0xdd => Head::Array(u32::from_be_bytes(self.array()?) as usize),
            0xde => Head::Map(usize::from(u16::from_be_bytes(self.array()?))),
            0xdf => Head::Map(u32::from_be_bytes(self.array()?) as usize),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err(self.call.error("Bad data format in input.")),
        })
    }

    fn string(&mut self, len: usize) -> Result<Head> {
        let text: LuaString = self.call.lua.create_string(self.take(len)?)?;
        Ok(Head::Value(Value::String(text)))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take(&mut self, len: usize) -> Result<&[u8]> {
        let end = self.at.checked_add(len);
        match end.and_then(|end| self.data.get(self.at..end)) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => Err(self.call.error("Missing bytes in input.")),
        }
    }

    fn has_slot(&self, why: &str) -> Result<()> {
        if self.slots < STACK_SLOTS_MAX {
            return Ok(());
        }
        Err(self.call.error(format!("stack overflow ({why})")))
    }
}

fn number(number: f64) -> Head {
    Head::Value(Value::Number(number))
}
