//! Lua's values as JSON.

use std::ffi::c_int;

use mlua::{Result, Value};
use smallvec::SmallVec;

use super::super::auxiliary::{Call, Output, STACK_SLOTS_MAX, Sink};
use super::super::budget::Unlimited;
use super::super::fault::Checked;
use super::super::stack::{self, Kind, Stack};
use super::{Done, Refused, Settings, number};

/// The text of the only argument.
///
/// # Errors
/// lua-cjson's, for what JSON cannot say.
pub(super) fn encode(call: &Call<'_>, settings: &Settings) -> Result<Value> {
    if call.len() != 1 {
        return Err(call.bad(1, "expected 1 argument"));
    }
    // The text grows in an output, which has a bound of its own, and is asked of the budget again before Lua has it.
    let unlimited = call.lift();
    let value = Some(call.value(1));
    let mut out = call.output();
    let (result, text) = stack::above(call.lua, value, &unlimited, |stack| {
        above(call, settings, stack, &mut out, &unlimited)
    })?;
    result.map_err(|refused| refused.said_by(call))?;
    Ok(text)
}

/// Leaves the text of the value on top in its place.
pub(super) fn above<'l>(
    call: &Call<'l>,
    settings: &Settings,
    stack: &mut Stack<'_>,
    out: &mut Output<'l>,
    unlimited: &Unlimited<'l>,
) -> Done<()> {
    Encoder { call, settings, stack, out, slots: 1, open: SmallVec::new(), unlimited }.run()
}

struct Encoder<'c, 'l, 's, 'k> {
    call: &'c Call<'l>,
    settings: &'c Settings,
    /// The value to be written is on top, above the tables that the encoder is in.
    stack: &'s mut Stack<'k>,
    out: &'s mut Output<'l>,
    /// Slots of the stack that the C code would be using.
    slots: usize,
    open: SmallVec<[Open; 8]>,
    unlimited: &'s Unlimited<'l>,
}

/// A table with some of its values written.
#[derive(Clone, Copy)]
struct Open {
    /// Its place.
    table: c_int,
    at: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// The place written last, and the last one.
    Array(c_int, c_int),
    /// Behind the key on top; whether that is the first one.
    Object(bool),
}

/// Values that the stack has at once above a table.
const ROOM: c_int = 2;

impl Encoder<'_, '_, '_, '_> {
    /// Leaves the text on top.
    fn run(&mut self) -> Done<()> {
        if self.value()? {
            self.open()?;
        }
        while let Some(open) = self.open.last().copied() {
            let is_inner = match open.at {
                Place::Array(..) => self.array(open)?,
                Place::Object(_) => self.object(open)?,
            };
            if is_inner {
                self.open()?;
            } else {
                self.close(open)?;
            }
        }
        let text = self.out.bytes();
        self.call.reserve(text.len())?;
        self.stack.push_bytes(text, self.unlimited);
        Ok(())
    }

    /// Writes the value on top; true where it is a table, which has to be gone into.
    fn value(&mut self) -> Done<bool> {
        match self.stack.kind(-1) {
            Kind::Table => return Ok(true),
            Kind::Nil => self.out.push(b"null")?,
            Kind::Boolean => self.out.push(if self.stack.is_true(-1) { b"true" } else { b"false" })?,
            Kind::Number => self.number(self.stack.number(-1))?,
            Kind::String => string(self.out, self.stack.bytes(-1).unwrap_or_default())?,
            Kind::Other if self.stack.is_null(-1) => self.out.push(b"null")?,
            Kind::Other => return Err(refused(self.stack.type_name(-1), "type not supported")),
        }
        Ok(false)
    }

    /// Goes into the table on top.
    fn open(&mut self) -> Done<()> {
        let depth = self.open.len() + 1;
        let is_too_deep = depth > self.settings.encode_depth_max as usize || self.slots + 3 > STACK_SLOTS_MAX;
        if is_too_deep || !self.stack.reserve(ROOM, self.unlimited) {
            return Err(Refused::Text(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        let table = self.stack.len();
        let at = match self.array_len(table)? {
            Some(len) if len > 0 => Place::Array(0, len),
            _ => {
                self.stack.push_nil();
                Place::Object(true)
            }
        };
        let (start, slots) = match at {
            Place::Array(..) => (b"[", 1),
            Place::Object(_) => (b"{", 2),
        };
        self.slots += slots;
        self.out.push(start)?;
        self.open.push(Open { table, at });
        Ok(())
    }

    /// Leaves a table, which is on top then.
    fn close(&mut self, open: Open) -> Done<()> {
        let (end, slots) = match open.at {
            Place::Array(..) => (b"]", 1),
            Place::Object(_) => (b"}", 2),
        };
        self.slots -= slots;
        self.open.pop();
        // What it was a value of goes on behind it.
        self.stack.truncate(open.table - 1);
        self.out.push(end)?;
        Ok(())
    }

    /// The last place of an array; `None` where the table is none, or one with too many holes.
    fn array_len(&mut self, table: c_int) -> Done<Option<c_int>> {
        let (mut items, mut max) = (0_i64, 0_i32);
        self.stack.push_nil();
        while self.stack.next(table) {
            self.stack.pop(1);
            let key = self.stack.number(-1);
            if self.stack.kind(-1) != Kind::Number || key.fract() != 0.0 || key < 1.0 {
                self.stack.pop(1);
                return Ok(None);
            }
            if key > f64::from(max) {
                // In C, what does not fit becomes the least number, and the table no array.
                max = if key < 2_147_483_648.0 { key as i32 } else { i32::MIN };
            }
            items += 1;
            self.call.charge(1)?;
        }
        let (settings, last) = (self.settings, i64::from(max));
        let ratio = i64::from(settings.encode_sparse_ratio);
        if ratio > 0 && last > items.saturating_mul(ratio) && last > i64::from(settings.encode_sparse_safe) {
            if settings.encode_sparse_converts == 0 {
                return Err(refused("table", "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(max))
    }

    /// Goes on with an array; true where a table is on top.
    fn array(&mut self, Open { table, at }: Open) -> Done<bool> {
        let Place::Array(from, end) = at else { return Ok(false) };
        for place in from + 1..=end {
            if place > 1 {
                self.out.push(b",")?;
            }
            self.stack.push_element(table, place);
            if self.value()? {
                self.goes_on_at(Place::Array(place, end));
                return Ok(true);
            }
            self.stack.pop(1);
        }
        Ok(false)
    }

    /// Goes on with an object, whose last key is on top; true where a table is.
    fn object(&mut self, Open { table, at }: Open) -> Done<bool> {
        let mut is_first = matches!(at, Place::Object(true));
        while self.stack.next(table) {
            if !std::mem::take(&mut is_first) {
                self.out.push(b",")?;
            }
            self.key()?;
            if self.value()? {
                self.goes_on_at(Place::Object(false));
                return Ok(true);
            }
            self.stack.pop(1);
        }
        Ok(false)
    }

    fn goes_on_at(&mut self, place: Place) {
        if let Some(open) = self.open.last_mut() {
            open.at = place;
        }
    }

    /// The key below the value on top.
    fn key(&mut self) -> Done<()> {
        match self.stack.kind(-2) {
            Kind::String => string(self.out, self.stack.bytes(-2).unwrap_or_default())?,
            Kind::Number => {
                self.out.push(b"\"")?;
                self.number(self.stack.number(-2))?;
                self.out.push(b"\"")?;
            }
            _ => return Err(refused(self.stack.type_name(-2), "table key must be a number or string")),
        }
        Ok(self.out.push(b":")?)
    }

    fn number(&mut self, number: f64) -> Done<()> {
        if !number.is_finite() {
            match self.settings.encode_invalid {
                0 => return Err(refused("number", "must not be NaN or Inf")),
                1 if number.is_nan() => return Ok(self.out.push(b"nan")?),
                1 => {}
                _ => return Ok(self.out.push(b"null")?),
            }
        }
        let mut whole = itoa::Buffer::new();
        match number::whole(number, self.settings.encode_digits as usize) {
            Some(number) => self.out.push(whole.format(number).as_bytes())?,
            None => self.out.push(number::text(number, self.settings.encode_digits as usize).as_bytes())?,
        }
        Ok(())
    }
}

/// Writes a text, with its quotes.
///
/// # Errors
/// As [`Sink::push`].
pub(super) fn string(out: &mut impl Sink, text: &[u8]) -> Checked {
    let mut rest = text;
    let place_in = |text: &[u8]| text.iter().position(|byte| IS_ESCAPED[usize::from(*byte)]);
    let Some(mut place) = place_in(rest) else { return out.push_all([b"\"", text, b"\""]) };
    out.push(b"\"")?;
    loop {
        out.push(&rest[..place])?;
        match escape(rest[place]) {
            Escape::Code => out.push(format!("\\u{:04x}", rest[place]).as_bytes())?,
            Escape::Letter(letter) => out.push(&[b'\\', letter])?,
            Escape::None => {}
        }
        rest = &rest[place + 1..];
        match place_in(rest) {
            Some(next) => place = next,
            None => return out.push_all([rest, b"\""]),
        }
    }
}

fn refused(kind: &str, why: &str) -> Refused {
    Refused::Text(format!("Cannot serialise {kind}: {why}"))
}

/// Of each byte, whether it is not written as it is.
const IS_ESCAPED: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < table.len() {
        table[byte] = !matches!(escape(byte as u8), Escape::None);
        byte += 1;
    }
    table
};

/// How a byte is written.
enum Escape {
    Code,
    Letter(u8),
    None,
}

const fn escape(byte: u8) -> Escape {
    match byte {
        b'"' | b'\\' | b'/' => Escape::Letter(byte),
        8 => Escape::Letter(b'b'),
        b'\t' => Escape::Letter(b't'),
        b'\n' => Escape::Letter(b'n'),
        12 => Escape::Letter(b'f'),
        b'\r' => Escape::Letter(b'r'),
        0..=31 | 127 => Escape::Code,
        _ => Escape::None,
    }
}
