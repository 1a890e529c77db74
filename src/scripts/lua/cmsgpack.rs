//! The library `cmsgpack`: Lua's values as MessagePack, and back.
//!
//! Bounds  packing goes [`NESTING_MAX`] tables deep; unpacking does not recurse, and ends where Redis' stack would.
//! Source  lua-cmsgpack 0.4.0 as Redis 7.0 has it.

use std::ffi::c_int;
use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::auxiliary::{Call, Library, Output, STACK_SLOTS_MAX, Sink};
use super::budget::{Budget, Unlimited};
use super::calls::Server;
use super::fault::{Checked, Stopped};
use super::stack::{self, Arguments, Kind, Part, Stack};

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
    let (mut out, limit) = (call.output(), call.lift());
    for value in call.values() {
        let mut packer = Packer { call, out: &mut out };
        stack::above(call.lua, Some(value), &limit, |stack| packer.value(stack, &limit, 0))?.0?;
    }
    drop(limit);
    out.finish()
}

/// `pack`, above its arguments on the stack; `None` where these are not as they should be.
pub(super) fn pack_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let count = stack.len();
    if !(1..=ARGUMENTS_SHORTLY_MAX).contains(&count) {
        return None;
    }
    server.write(|call, out| {
        let limit = call.lift();
        for at in 1..=count {
            stack.push_copy(at);
            Packer { call, out }.value(stack, &limit, 0).ok()?;
            stack.pop(1);
        }
        call.reserve(out.bytes().len()).ok()?;
        stack.push_bytes(out.bytes(), &limit);
        Some(1)
    })
}

/// Arguments for which there is room beside them.
const ARGUMENTS_SHORTLY_MAX: c_int = 8;

struct Packer<'p, 'c, 'l> {
    call: &'c Call<'l>,
    out: &'p mut Output<'l>,
}

impl Packer<'_, '_, '_> {
    /// Packs the value on top, which stays there.
    fn value(&mut self, stack: &mut Stack<'_>, limit: &Unlimited<'_>, depth: usize) -> Checked {
        match stack.kind(-1) {
            Kind::Boolean => self.out.push(&[if stack.is_true(-1) { 0xc3 } else { 0xc2 }]),
            Kind::Number => self.number(stack.number(-1)),
            Kind::String => self.string(stack.bytes(-1).unwrap_or_default()),
            Kind::Table if depth < NESTING_MAX && stack.reserve(ROOM, limit) => {
                self.table(stack, limit, depth + 1)
            }
            _ => self.out.push(&[0xc0]),
        }
    }

    fn number(&mut self, number: f64) -> Checked {
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

    fn integer(&mut self, number: i64) -> Checked {
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

    fn string(&mut self, text: &[u8]) -> Checked {
        match text.len() {
            len @ 0..=31 => self.out.push(&[0xa0 | len as u8])?,
            len @ 32..=0xff => self.headed(0xd9, &(len as u8).to_be_bytes())?,
            len @ 0x100..=0xffff => self.headed(0xda, &(len as u16).to_be_bytes())?,
            len => self.headed(0xdb, &(len as u32).to_be_bytes())?,
        }
        self.out.push(text)
    }

    fn table(&mut self, stack: &mut Stack<'_>, limit: &Unlimited<'_>, depth: usize) -> Checked {
        let table = stack.len();
        match shape(self.call, stack)? {
            Shape::Array(len) => {
                self.count(len as usize, 0x90, 0xdc)?;
                for at in 1..=len {
                    stack.push_element(table, at);
                    self.value(stack, limit, depth)?;
                    stack.pop(1);
                }
            }
            Shape::Map(len) => {
                self.count(len, 0x80, 0xde)?;
                stack.push_nil();
                while stack.next(table) {
                    stack.push_copy(-2);
                    self.value(stack, limit, depth)?;
                    stack.pop(1);
                    self.value(stack, limit, depth)?;
                    stack.pop(1);
                }
            }
        }
        Ok(())
    }

    /// The head of an array or a map: its short form, and its form of 16 bits, which that of 32 bits follows.
    fn count(&mut self, len: usize, short: u8, long: u8) -> Checked {
        match len {
            0..=15 => self.out.push(&[short | len as u8]),
            16..=0xffff => self.headed(long, &(len as u16).to_be_bytes()),
            _ => self.headed(long + 1, &(len as u32).to_be_bytes()),
        }
    }

    fn headed(&mut self, head: u8, bytes: &[u8]) -> Checked {
        self.out.push_all([&[head], bytes])
    }
}

/// Values that the stack has at once above a table.
const ROOM: c_int = 4;

/// What a table is packed as, with its length.
enum Shape {
    Array(c_int),
    Map(usize),
}

/// What the table on top is: an array has the keys from 1 to its length and no others.
fn shape(call: &Call<'_>, stack: &mut Stack<'_>) -> std::result::Result<Shape, Stopped> {
    let (table, mut count, mut max, mut is_array) = (stack.len(), 0_usize, 0_i32, true);
    stack.push_nil();
    while stack.next(table) {
        stack.pop(1);
        let key = stack.number(-1);
        let key =
            if key.fract() == 0.0 && (1.0..=f64::from(i32::MAX)).contains(&key) { key as i32 } else { 0 };
        is_array &= key > 0;
        max = max.max(key);
        count += 1;
        call.charge(1)?;
    }
    Ok(if is_array && max as usize == count { Shape::Array(max) } else { Shape::Map(count) })
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
    let reader = Reader { data: &data, at: from as usize };
    let mut unpacker = Unpacker { call, reader, slots, open: Vec::new() };
    let mut results = Vec::new();
    while unpacker.reader.at < len && results.len() < count {
        results.push(unpacker.run()?);
        unpacker.slots += 1;
    }
    if !is_all {
        let at = unpacker.reader.at;
        let next = if at == len { -1.0 } else { at as f64 };
        results.insert(0, Value::Number(next));
    }
    Ok(MultiValue::from_vec(results))
}

struct Unpacker<'c, 'l, 'd> {
    call: &'c Call<'l>,
    reader: Reader<'d>,
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
enum Head<'d> {
    Array(usize),
    Boolean(bool),
    Map(usize),
    Nil,
    Number(f64),
    String(&'d [u8]),
}

/// Bytes, from one head to the next.
struct Reader<'d> {
    data: &'d [u8],
    at: usize,
}

impl<'d> Unpacker<'_, '_, 'd> {
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
                Head::Nil => Some(Value::Nil),
                Head::Boolean(is_true) => Some(Value::Boolean(is_true)),
                Head::Number(number) => Some(Value::Number(number)),
                Head::String(text) => Some(Value::String(self.call.lua.create_string(text)?)),
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

    fn head(&mut self) -> Result<Head<'d>> {
        if self.reader.at < self.reader.data.len() {
            self.has_slot("too many return values at once; use unpack_one or unpack_limit instead.")?;
        }
        self.reader.head().map_err(|text| self.call.error(text))
    }

    fn has_slot(&self, why: &str) -> Result<()> {
        if self.slots < STACK_SLOTS_MAX {
            return Ok(());
        }
        Err(self.call.error(format!("stack overflow ({why})")))
    }
}

impl<'d> Reader<'d> {
    /// The next head, with its value where it has one.
    ///
    /// # Errors
    /// What the script is told.
    fn head(&mut self) -> std::result::Result<Head<'d>, &'static str> {
        let head = self.take(1)?[0];
        Ok(match head {
            0x00..=0x7f | 0xe0..=0xff => Head::Number(f64::from(head as i8)),
            0x80..=0x8f => Head::Map(usize::from(head & 15)),
            0x90..=0x9f => Head::Array(usize::from(head & 15)),
            0xa0..=0xbf => Head::String(self.take(usize::from(head & 31))?),
            0xc0 => Head::Nil,
            0xc2 | 0xc3 => Head::Boolean(head == 0xc3),
            0xca => Head::Number(f64::from(f32::from_be_bytes(self.array()?))),
            0xcb => Head::Number(f64::from_be_bytes(self.array()?)),
            0xcc => Head::Number(f64::from(u8::from_be_bytes(self.array()?))),
            0xcd => Head::Number(f64::from(u16::from_be_bytes(self.array()?))),
            0xce => Head::Number(f64::from(u32::from_be_bytes(self.array()?))),
            // Unsigned, but from 2^63 on the C code reads it as negative.
            0xcf => Head::Number(i64::from_be_bytes(self.array()?) as f64),
            0xd0 => Head::Number(f64::from(i8::from_be_bytes(self.array()?))),
            0xd1 => Head::Number(f64::from(i16::from_be_bytes(self.array()?))),
            0xd2 => Head::Number(f64::from(i32::from_be_bytes(self.array()?))),
            0xd3 => Head::Number(i64::from_be_bytes(self.array()?) as f64),
            0xd9 => Head::String(self.counted(1)?),
            0xda => Head::String(self.counted(2)?),
            0xdb => Head::String(self.counted(4)?),
            0xdc => Head::Array(self.length(2)?),
            0xdd => Head::Array(self.length(4)?),
            0xde => Head::Map(self.length(2)?),
            0xdf => Head::Map(self.length(4)?),
            0xc1 | 0xc4..=0xc9 | 0xd4..=0xd8 => return Err("Bad data format in input."),
        })
    }

    /// A length of so many bytes.
    fn length(&mut self, bytes: usize) -> std::result::Result<usize, &'static str> {
        let digits = self.take(bytes)?;
        Ok(digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    /// A text behind its length.
    fn counted(&mut self, bytes: usize) -> std::result::Result<&'d [u8], &'static str> {
        let len = self.length(bytes)?;
        self.take(len)
    }

    fn array<const N: usize>(&mut self) -> std::result::Result<[u8; N], &'static str> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn take(&mut self, len: usize) -> std::result::Result<&'d [u8], &'static str> {
        let end = self.at.checked_add(len);
        let bytes = end.and_then(|end| self.data.get(self.at..end)).ok_or("Missing bytes in input.")?;
        self.at += len;
        Ok(bytes)
    }
}

/// `unpack` of all there is, above its argument on the stack; `None` where that is not as it should be, or is much.
pub(super) fn unpack_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let data = if stack.len() == 1 { stack.bytes(1)? } else { return None };
    let data = if data.len() <= BYTES_SHORTLY_MAX { data.to_vec() } else { return None };
    let (mut reader, mut count) = (Reader { data: &data, at: 0 }, 0);
    let limit = server.budget.lift(server.lua);
    while reader.at < data.len() {
        push(server, &mut reader, stack, &limit, 0)?;
        count += 1;
        if count > VALUES_SHORTLY_MAX {
            return None;
        }
    }
    Some(count)
}

/// `unpack` of one number or text; `None` for anything else.
pub(super) fn unpack_one_shortly(arguments: &Arguments<'_>) -> Option<Part> {
    let data = if arguments.len() == 1 { arguments.text(1)? } else { return None };
    let mut reader = Reader { data, at: 0 };
    let part = match reader.head().ok()? {
        Head::Number(number) => Part::Number(number),
        Head::String(text) => Part::Bytes(reader.at - text.len(), text.len()),
        Head::Array(_) | Head::Boolean(_) | Head::Map(_) | Head::Nil => return None,
    };
    (reader.at == data.len()).then_some(part)
}

/// Bytes, results and nesting of what is unpacked without asking for its memory.
const BYTES_SHORTLY_MAX: usize = 16 * 1024;
const VALUES_SHORTLY_MAX: c_int = 8;

/// Pushes the next value.
fn push(
    server: &Server<'_>,
    reader: &mut Reader<'_>,
    stack: &mut Stack<'_>,
    limit: &Unlimited<'_>,
    depth: usize,
) -> Option<()> {
    server.budget.charge(1).ok()?;
    if depth > NESTING_MAX || !stack.reserve(ROOM, limit) {
        return None;
    }
    match reader.head().ok()? {
        Head::Nil => stack.push_nil(),
        Head::Boolean(is_true) => stack.push_boolean(is_true),
        Head::Number(number) => stack.push_number(number),
        Head::String(text) => stack.push_bytes(text, limit),
        Head::Array(len) => {
            let len = c_int::try_from(len).ok().filter(|len| *len as usize <= reader.data.len())?;
            stack.push_table(len as usize, 0, limit);
            for at in 1..=len {
                push(server, reader, stack, limit, depth + 1)?;
                stack.set_element(-2, at, limit);
            }
        }
        Head::Map(len) => {
            stack.push_table(0, if len <= reader.data.len() { len } else { return None }, limit);
            for _ in 0..len {
                push(server, reader, stack, limit, depth + 1)?;
                push(server, reader, stack, limit, depth + 1)?;
                stack.set_field(-3, limit).then_some(())?;
            }
        }
    }
    Some(())
}
