//! The library `struct`: Lua's values as the bytes of a C struct, and back.
//!
//! Bounds  a result grows with the format and the arguments, not with numbers in the format.
//! Source  `lua_struct.c` 0.3 as Redis 7.0 has it, on x86-64. `docs/scripts.md` lists what differs.

use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::args::{BYTES_PER_STEP, Call, Library, c_long};
use super::budget::Budget;
use super::fault::Checked;

/// The table `struct`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("pack", pack)?;
    library.add("unpack", unpack)?;
    library.add("size", size)?;
    Ok(library.table)
}

/// The bytes of an integer at most; those beyond the eighth are zero.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment of `!` without a number.
const ALIGNMENT: usize = 8;
/// Values that one call returns at most.
const VALUES_MAX: usize = 7900;

/// What is left of a format, and what its options have set so far.
struct Format<'c, 'l, 'f> {
    call: &'c Call<'l>,
    rest: &'f [u8],
    is_big: bool,
    alignment: usize,
}

impl<'c, 'l, 'f> Format<'c, 'l, 'f> {
    /// A format, which ends before its first zero byte.
    fn new(call: &'c Call<'l>, text: &'f [u8]) -> Self {
        let rest = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { call, rest, is_big: false, alignment: 1 }
    }

    /// The next option and its size in bytes; `None` at the end.
    fn next(&mut self) -> Result<Option<(u8, usize)>> {
        let Some((option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        self.call.charge(1)?;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'd' | b'l' | b'L' | b'T' => 8,
            b'c' => self.number(1)?,
            b'i' | b'I' => match self.number(4)? {
                size if size <= INTEGER_BYTES_MAX => size,
                size => {
                    let limit = INTEGER_BYTES_MAX;
                    let text = format!("integral size {size} is larger than limit of {limit}");
                    return Err(self.call.error(text));
                }
            },
            _ => 0,
        };
        Ok(Some((*option, size)))
    }

    /// The number at the beginning of the rest, or `default`.
    fn number(&mut self, default: usize) -> Result<usize> {
        if !self.rest.first().is_some_and(u8::is_ascii_digit) {
            return Ok(default);
        }
        let mut number = 0_i32;
        while let [digit @ b'0'..=b'9', rest @ ..] = self.rest {
            self.call.charge(1)?;
            let more = number.checked_mul(10).and_then(|number| number.checked_add(i32::from(digit - b'0')));
            number = more.ok_or_else(|| self.call.error("integral size overflow"))?;
            self.rest = rest;
        }
        Ok(number as usize)
    }

    /// Bytes between `position` and the next place for an element of this size.
    fn padding(&self, position: usize, option: u8, size: usize) -> usize {
        if size == 0 || option == b'c' {
            return 0;
        }
        // As C computes it, also for a size that is no power of two.
        let size = size.min(self.alignment);
        let mask = size.wrapping_sub(1);
        size.wrapping_sub(position & mask) & mask
    }

    /// Carries out an option that sets something.
    fn set(&mut self, option: u8) -> Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let alignment = self.number(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    let text = format!("alignment {alignment} is not a power of 2");
                    return Err(self.call.error(text));
                }
                self.alignment = alignment;
            }
            _ => {
                let text = [b"invalid format option '", &[option][..], b"'"].concat();
                return Err(self.call.bad(1, text));
            }
        }
        Ok(())
    }

    /// Bytes in the order of the format, from those of a little-endian number, or the other way round.
    fn ordered<const N: usize>(&self, mut bytes: [u8; N]) -> [u8; N] {
        if self.is_big {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(call: &Call<'_>) -> Result<LuaString> {
    let text = call.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(call, &text);
    let (mut out, mut position, mut at) = (call.output(), 0_usize, 2);
    while let Some((option, size)) = format.next()? {
        let padding = format.padding(position, option, size);
        out.push(&[0; INTEGER_BYTES_MAX][..padding])?;
        let mut len = size;
        if at > call.len() && b"bBhHlLTiIfdcs".contains(&option) {
            // Redis marks the end of the arguments with a nil.
            let expected = if b"cs".contains(&option) { "string" } else { "number" };
            return Err(call.bad(at, format!("{expected} expected, got nil")));
        }
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&word(call.number(at)?).to_le_bytes());
                let bytes = &mut bytes[..size];
                if format.is_big {
                    bytes.reverse();
                }
                out.push(bytes)?;
                at += 1;
            }
            b'x' => out.push(&[0])?,
            b'f' => {
                out.push(&format.ordered((call.number(at)? as f32).to_le_bytes()))?;
                at += 1;
            }
            b'd' => {
                out.push(&format.ordered(call.number(at)?.to_le_bytes()))?;
                at += 1;
            }
            b'c' | b's' => {
                let text = call.string(at)?;
                let text = text.as_bytes();
                at += 1;
                len = if size == 0 { text.len() } else { size };
                // The next argument is blamed, as in Redis.
                let part = text.get(..len).ok_or_else(|| call.bad(at, "string too short"))?;
                out.push(part)?;
                if option == b's' {
                    out.push(&[0])?;
                    len += 1;
                }
            }
            _ => format.set(option)?,
        }
        position += padding + len;
    }
    out.finish()
}

/// A number as a C compiler casts it to 64 bits without a sign.
fn word(number: f64) -> u64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    match number {
        _ if number < LIMIT || number.is_nan() => c_long(number) as u64,
        _ => (c_long(number - LIMIT) as u64) ^ (1 << 63),
    }
}

fn unpack(call: &Call<'_>) -> Result<MultiValue> {
    let (text, data) = (call.string(1)?, call.string(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let first = call.integer_or(3, 1)?;
    if first == 0 {
        return Err(call.bad(3, "offset must be 1 or greater"));
    }
    let mut format = Format::new(call, &text);
    // A negative offset is one behind every string.
    let mut position = (first as usize).wrapping_sub(1);
    let mut values: Vec<Value> = Vec::new();
    while let Some((option, size)) = format.next()? {
        position = position.wrapping_add(format.padding(position, option, size));
        let part = |size: usize| {
            let rest = data.get(position..).and_then(|rest| rest.get(..size));
            rest.ok_or_else(|| call.bad(2, "data string too short"))
        };
        let bytes = part(size)?;
        charge_bytes(call, size)?;
        if values.len() >= VALUES_MAX {
            return Err(call.error("stack overflow (too many results)"));
        }
        let mut len = size;
        match option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                values.push(Value::Number(integer(bytes, format.is_big, option.is_ascii_lowercase())));
            }
            b'x' => {}
            b'f' => values.push(Value::Number(f32::from_le_bytes(format.ordered(fixed(bytes))).into())),
            b'd' => values.push(Value::Number(f64::from_le_bytes(format.ordered(fixed(bytes))))),
            b'c' => {
                if size == 0 {
                    let previous = values.pop().map(|value| call.lua.coerce_number(value)).transpose()?;
                    let missing = || call.error("format 'c0' needs a previous size");
                    len = word(previous.flatten().ok_or_else(missing)?) as usize;
                }
                values.push(string(call, part(len)?)?);
            }
            b's' => {
                let rest = &data[position..];
                let end = memchr::memchr(0, rest);
                charge_bytes(call, end.unwrap_or(rest.len()))?;
                let end = end.ok_or_else(|| call.error("unfinished string in data"))?;
                values.push(string(call, &rest[..end])?);
                len = end + 1;
            }
            _ => format.set(option)?,
        }
        position = position.wrapping_add(len);
    }
    values.push(Value::Number(position.wrapping_add(1) as i64 as f64));
    Ok(MultiValue::from_vec(values))
}

fn charge_bytes(call: &Call<'_>, bytes: usize) -> Checked {
    call.charge(bytes / BYTES_PER_STEP)
}

fn string(call: &Call<'_>, bytes: &[u8]) -> Result<Value> {
    call.lua.create_string(bytes).map(Value::String)
}

/// The first bytes, of which there are enough: `optsize` has said how many are needed.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

/// An integer of any size; what is beyond 64 bits is lost.
fn integer(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let join = |word: u64, byte: &u8| (word << 8) | u64::from(*byte);
    let word = match is_big {
        true => bytes.iter().fold(0, join),
        false => bytes.iter().rev().fold(0, join),
    };
    if !is_signed {
        return word as f64;
    }
    // A shift by more than 63 bits counts modulo 64.
    let mask = u64::MAX.wrapping_shl((bytes.len() as u32).wrapping_mul(8).wrapping_sub(1));
    let word = if word & mask != 0 { word | mask } else { word };
    word as i64 as f64
}

fn size(call: &Call<'_>) -> Result<f64> {
    let text = call.string(1)?;
    let text = text.as_bytes();
    let mut format = Format::new(call, &text);
    let mut position = 0_usize;
    while let Some((option, size)) = format.next()? {
        position = position.wrapping_add(format.padding(position, option, size));
        if option == b's' {
            return Err(call.bad(1, "option 's' has no fixed size"));
        }
        if option == b'c' && size == 0 {
            return Err(call.bad(1, "option 'c0' has no fixed size"));
        }
        if !option.is_ascii_alphanumeric() {
            format.set(option)?;
        }
        position = position.wrapping_add(size);
    }
    Ok(position as i64 as f64)
}
