//! Lua's values as JSON.

use mlua::{Function, MultiValue, Result, Table, Value};

use super::super::auxiliary::{Call, Output, STACK_SLOTS_MAX};
use super::{Settings, number};

/// The text of the only argument.
///
/// # Errors
/// lua-cjson's, for what JSON cannot say.
pub(super) fn encode(call: &Call<'_>, settings: &Settings) -> Result<MultiValue> {
    if call.len() != 1 {
        return Err(call.bad(1, "expected 1 argument"));
    }
    let mut encoder = Encoder { call, settings, out: call.output(), slots: 1, open: Vec::new() };
    {
        // Until the text is handed to Lua, it grows in an output, which has a bound of its own.
        let _unlimited = call.lift();
        encoder.run(call.value(1).clone())?;
    }
    encoder.out.finish()
}

struct Encoder<'c, 'l> {
    call: &'c Call<'l>,
    settings: &'c Settings,
    out: Output<'c>,
    /// Slots of the stack that the C code would be using.
    slots: usize,
    /// The tables that the encoder is in, outermost first.
    open: Vec<Open>,
}

/// A table with some of its values written.
struct Open {
    table: Table,
    at: Place,
}

enum Place {
    /// The place written last, and the last one.
    Array(i64, i64),
    /// The key written last.
    Object(Value),
}

impl Encoder<'_, '_> {
    fn run(&mut self, value: Value) -> Result<()> {
        let mut next: Function = self.call.lua.globals().raw_get("next")?;
        let mut inner = self.value(value)?;
        loop {
            if let Some(table) = inner.take() {
                self.open(table)?;
            }
            let Some(mut open) = self.open.pop() else { return Ok(()) };
            inner = match &mut open.at {
                Place::Array(at, end) => self.array(&open.table, at, *end)?,
                Place::Object(key) => self.object(&open.table, key, &mut next)?,
            };
            if inner.is_some() {
                self.open.push(open);
            } else {
                let (end, slots) = match open.at {
                    Place::Array(..) => (b"]", 1),
                    Place::Object(_) => (b"}", 2),
                };
                self.slots -= slots;
                self.out.push(end)?;
            }
        }
    }

    /// Writes a value, or hands back the table that has to be gone into.
    fn value(&mut self, value: Value) -> Result<Option<Table>> {
        match value {
            Value::Table(table) => return Ok(Some(table)),
            Value::Nil => self.out.push(b"null")?,
            Value::LightUserData(pointer) if pointer.0.is_null() => self.out.push(b"null")?,
            Value::Boolean(true) => self.out.push(b"true")?,
            Value::Boolean(false) => self.out.push(b"false")?,
            Value::Integer(number) => self.number(number as f64)?,
            Value::Number(number) => self.number(number)?,
            Value::String(text) => self.string(&text.as_bytes())?,
            other => return Err(self.refused(type_name(&other), "type not supported")),
        }
        Ok(None)
    }

    fn open(&mut self, table: Table) -> Result<()> {
        let depth = self.open.len() + 1;
        if depth > self.settings.encode_depth_max as usize || self.slots + 3 > STACK_SLOTS_MAX {
            return Err(self.call.error(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        let at = match self.array_len(&table)? {
            Some(len) if len > 0 => Place::Array(0, len),
            _ => Place::Object(Value::Nil),
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

    /// The last place of an array; `None` where the table is none, or one with too many holes.
    fn array_len(&self, table: &Table) -> Result<Option<i64>> {
        let (mut items, mut max) = (0_i64, 0_i32);
        for pair in table.pairs::<Value, Value>() {
            let key = match pair?.0 {
                Value::Integer(key) => key as f64,
                Value::Number(key) => key,
                _ => return Ok(None),
            };
            if key.fract() != 0.0 || key < 1.0 {
                return Ok(None);
            }
            if key > f64::from(max) {
                // In C, what does not fit becomes the least number, and the table no array.
                max = if key < 2_147_483_648.0 { key as i32 } else { i32::MIN };
            }
            items += 1;
            self.call.charge(1)?;
        }
        let (settings, max) = (self.settings, i64::from(max));
        let ratio = i64::from(settings.encode_sparse_ratio);
        if ratio > 0 && max > items.saturating_mul(ratio) && max > i64::from(settings.encode_sparse_safe) {
            if settings.encode_sparse_converts == 0 {
                return Err(self.refused("table", "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(max))
    }

    fn array(&mut self, table: &Table, at: &mut i64, end: i64) -> Result<Option<Table>> {
        while *at < end {
            if *at > 0 {
                self.out.push(b",")?;
            }
            *at += 1;
            let inner = self.value(table.raw_get(*at)?)?;
            if inner.is_some() {
                return Ok(inner);
            }
        }
        Ok(None)
    }

    fn object(&mut self, table: &Table, last: &mut Value, next: &mut Function) -> Result<Option<Table>> {
        if last.is_nil() {
            // An iteration cannot be taken up again once another table has come in between; `next` can.
            for (place, pair) in table.pairs::<Value, Value>().enumerate() {
                let (key, value) = pair?;
                if place > 0 {
                    self.out.push(b",")?;
                }
                self.key(&key)?;
                let inner = self.value(value)?;
                if inner.is_some() {
                    *last = key;
                    return Ok(inner);
                }
            }
            return Ok(None);
        }
        loop {
            let (key, value): (Value, Value) = next.call((table, &*last))?;
            if key.is_nil() {
                return Ok(None);
            }
            self.out.push(b",")?;
            self.key(&key)?;
            let inner = self.value(value)?;
            *last = key;
            if inner.is_some() {
                return Ok(inner);
            }
        }
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        match key {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b"\"")?;
                self.value(key.clone())?;
                self.out.push(b"\"")?;
            }
            other => return Err(self.refused(type_name(other), "table key must be a number or string")),
        }
        self.out.push(b":")
    }

    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.settings.encode_invalid {
                0 => return Err(self.refused("number", "must not be NaN or Inf")),
                1 if number.is_nan() => return self.out.push(b"nan"),
                1 => {}
                _ => return self.out.push(b"null"),
            }
        }
        self.out.push(number::text(number, self.settings.encode_digits as usize).as_bytes())
    }

    fn string(&mut self, text: &[u8]) -> Result<()> {
        self.out.push(b"\"")?;
        let mut rest = text;
        while let Some(place) = rest.iter().position(|byte| escape(*byte) != Escape::None) {
            self.out.push(&rest[..place])?;
            match escape(rest[place]) {
                Escape::Code => self.out.push(format!("\\u{:04x}", rest[place]).as_bytes())?,
                Escape::Letter(letter) => self.out.push(&[b'\\', letter])?,
                Escape::None => {}
            }
            rest = &rest[place + 1..];
        }
        self.out.push(rest)?;
        self.out.push(b"\"")
    }

    fn refused(&self, kind: &str, why: &str) -> mlua::Error {
        self.call.error(format!("Cannot serialise {kind}: {why}"))
    }
}

/// What Lua calls the type of a value: light userdata has no name of its own.
fn type_name(value: &Value) -> &'static str {
    if value.is_light_userdata() { "userdata" } else { value.type_name() }
}

/// How a byte is written.
#[derive(Eq, PartialEq)]
enum Escape {
    Code,
    Letter(u8),
    None,
}

fn escape(byte: u8) -> Escape {
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
