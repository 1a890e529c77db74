//! The library `cjson`: Lua's values as JSON, and back.
//!
//! Owns    lua-cjson's conversions with its default settings; serde_json reads.
//! Bounds  both ways recurse, to [`NESTING_MAX`] and to serde_json's own limit, and are charged for each value.
//! Source  lua-cjson 2.1.0 as Redis 7.0 has it. `docs/scripts.md` lists what differs.

use std::sync::Arc;

use mlua::{Lua, LuaString, Result, Table, Value};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::args::{Call, Library, NESTING_MAX, Output, type_name};
use super::budget::Budget;
use super::fault::Stopped;

/// The table `cjson`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("encode", encode)?;
    library.add("decode", decode)?;
    library.table.raw_set("null", Value::NULL)?;
    library.table.raw_set("_NAME", "cjson")?;
    library.table.raw_set("_VERSION", "2.1.0")?;
    Ok(library.table)
}

/// `encode`
fn encode(call: &Call<'_>) -> Result<LuaString> {
    if call.len() != 1 {
        return Err(call.bad(1, "expected 1 argument"));
    }
    let mut encoder = Encoder { call, out: call.output() };
    encoder.value(call.value(1), 1)?;
    encoder.out.finish()
}

struct Encoder<'c, 'l> {
    call: &'c Call<'l>,
    out: Output<'l>,
}

/// What a table is written as.
enum Shape {
    Array(usize),
    Object,
}

impl Encoder<'_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        match value {
            value if value.is_nil() || value.is_null() => self.out.push(b"null"),
            Value::Boolean(truth) => self.out.push(if *truth { b"true" } else { b"false" }),
            Value::Integer(_) | Value::Number(_) => self.number(value),
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Table(table) => self.table(table, depth),
            other => Err(self.refused(other, "type not supported")),
        }
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        if depth > NESTING_MAX {
            return Err(self.call.error(format!("Cannot serialise, excessive nesting ({depth})")));
        }
        match self.shape(table)? {
            Shape::Array(len) => {
                for place in 1..=len {
                    self.out.push(if place == 1 { b"[" } else { b"," })?;
                    self.value(&table.raw_get(place)?, depth + 1)?;
                }
                self.out.push(b"]")
            }
            Shape::Object => {
                self.out.push(b"{")?;
                for (place, pair) in table.pairs::<Value, Value>().enumerate() {
                    let (key, value) = pair?;
                    if place > 0 {
                        self.out.push(b",")?;
                    }
                    self.key(&key)?;
                    self.value(&value, depth + 1)?;
                }
                self.out.push(b"}")
            }
        }
    }

    /// What a table is written as: an array, if all keys are places and not too many are missing.
    fn shape(&self, table: &Table) -> Result<Shape> {
        const SPARSE_RATIO: i64 = 2;
        const SPARSE_SAFE: i64 = 10;
        let (mut items, mut last) = (0_i64, 0_i64);
        for pair in table.pairs::<Value, Value>() {
            self.call.charge(1)?;
            match pair?.0 {
                // In lua-cjson a place that does not fit a C int becomes the least one.
                Value::Integer(place) if place > 0 => {
                    if place > last {
                        last = i32::try_from(place).unwrap_or(i32::MIN).into();
                    }
                }
                _ => return Ok(Shape::Object),
            }
            items += 1;
        }
        let Some(len) = usize::try_from(last).ok().filter(|len| *len > 0) else { return Ok(Shape::Object) };
        if last > items.saturating_mul(SPARSE_RATIO) && last > SPARSE_SAFE {
            return Err(self.call.error("Cannot serialise table: excessively sparse array"));
        }
        Ok(Shape::Array(len))
    }

    fn key(&mut self, key: &Value) -> Result<()> {
        match key {
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b"\"")?;
                self.number(key)?;
                self.out.push(b"\"")?;
            }
            other => return Err(self.refused(other, "table key must be a number or string")),
        }
        self.out.push(b":")
    }

    /// A number as Lua writes it, with 14 digits.
    fn number(&mut self, number: &Value) -> Result<()> {
        if number.as_number().is_some_and(|number| !number.is_finite()) {
            return Err(self.refused(number, "must not be NaN or Inf"));
        }
        let text = self.call.lua.coerce_string(number.clone())?;
        self.out.push(&text.map(|text| text.as_bytes().to_vec()).unwrap_or_default())
    }

    fn string(&mut self, text: &[u8]) -> Result<()> {
        self.out.push(b"\"")?;
        let mut rest = text;
        while let Some(place) = rest.iter().position(|byte| is_escaped(*byte)) {
            self.out.push(&rest[..place])?;
            match rest[place] {
                byte @ (b'"' | b'\\' | b'/') => self.out.push(&[b'\\', byte])?,
                8 => self.out.push(b"\\b")?,
                b'\t' => self.out.push(b"\\t")?,
                b'\n' => self.out.push(b"\\n")?,
                12 => self.out.push(b"\\f")?,
                b'\r' => self.out.push(b"\\r")?,
                byte => self.out.push(format!("\\u{byte:04x}").as_bytes())?,
            }
            rest = &rest[place + 1..];
        }
        self.out.push(rest)?;
        self.out.push(b"\"")
    }

    fn refused(&self, value: &Value, why: &str) -> mlua::Error {
        self.call.error(format!("Cannot serialise {}: {why}", type_name(value)))
    }
}

/// Whether a byte of a string is not written as it is.
fn is_escaped(byte: u8) -> bool {
    matches!(byte, 0..=31 | 127 | b'"' | b'\\' | b'/')
}

/// `decode`
fn decode(call: &Call<'_>) -> Result<Value> {
    if call.len() != 1 {
        return Err(call.bad(1, "expected 1 argument"));
    }
    let text = call.string(1)?;
    let text = text.as_bytes();
    call.charge(text.len() / 8)?;
    let mut reader = serde_json::Deserializer::from_slice(&text);
    let decoded = Decoder { call }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    decoded.map_err(|error| match call.charge(0) {
        Err(stopped) => stopped.into(),
        Ok(()) => call.error(format!("{error}")),
    })
}

/// Makes one value of Lua.
#[derive(Clone, Copy)]
struct Decoder<'c, 'l> {
    call: &'c Call<'l>,
}

impl Decoder<'_, '_> {
    /// An error of Lua on its way through serde. Without memory the script ends.
    fn broken<E: de::Error>(&self, error: mlua::Error) -> E {
        if matches!(error, mlua::Error::MemoryError(_)) {
            let Stopped = self.call.budget.stop_for_memory();
        }
        E::custom(error)
    }
}

impl<'de> DeserializeSeed<'de> for Decoder<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> std::result::Result<Value, D::Error> {
        self.call.charge(STEPS_PER_VALUE).map_err(|_| de::Error::custom("stopped"))?;
        reader.deserialize_any(self)
    }
}

/// Steps that one value costs.
const STEPS_PER_VALUE: usize = 10;

impl<'de> Visitor<'de> for Decoder<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Boolean(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<Value, E> {
        Ok(Value::NULL)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Value, E> {
        self.call.lua.create_string(value).map(Value::String).map_err(|error| self.broken(error))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<Value, A::Error> {
        let table = self.call.lua.create_table().map_err(|error| self.broken(error))?;
        let mut place = 0;
        while let Some(value) = items.next_element_seed(self)? {
            place += 1;
            table.raw_set(place, value).map_err(|error| self.broken(error))?;
        }
        Ok(Value::Table(table))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Value, A::Error> {
        let table = self.call.lua.create_table().map_err(|error| self.broken(error))?;
        while let Some(key) = entries.next_key::<std::borrow::Cow<'de, str>>()? {
            let value = entries.next_value_seed(self)?;
            table.raw_set(&*key, value).map_err(|error| self.broken(error))?;
        }
        Ok(Value::Table(table))
    }
}
