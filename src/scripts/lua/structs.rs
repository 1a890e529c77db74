//! The library `struct`: values packed into bytes the way C lays them out, and back.
//!
//! Bounds  the text of a format is read once; what it asks for is bounded by the strings given and by the memory limit.
//! Source  `lua_struct.c` 0.2 as Redis 7.0 has it, on a little-endian machine with 64 bits.

use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::auxiliary::{Call, Library, STACK_SLOTS_MAX, c_long, c_unsigned_long, to_number};
use super::budget::Budget;

/// The table `struct`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("pack", pack)?;
    library.add("unpack", unpack)?;
    library.add("size", size)?;
    Ok(library.table)
}

/// Bytes of an integer at most.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` aligns to when it does not say.
const ALIGNMENT: usize = 8;

/// A format on its way through its letters.
struct Format<'c, 'l> {
    call: &'c Call<'l>,
    letters: &'c [u8],
    at: usize,
    is_big_endian: bool,
    alignment: usize,
}

/// One letter, with the bytes that go before and into it.
struct Item {
    letter: u8,
    padding: usize,
    size: usize,
}

impl<'c, 'l> Format<'c, 'l> {
    /// It ends where C would see it end, at its first NUL.
    fn new(call: &'c Call<'l>, text: &'c [u8]) -> Self {
        let letters = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { call, letters, at: 0, is_big_endian: false, alignment: 1 }
    }

    /// The next letter, for a value that would start at `position`.
    fn next(&mut self, position: usize) -> Result<Option<Item>> {
        let Some(&letter) = self.letters.get(self.at) else { return Ok(None) };
        self.at += 1;
        self.call.charge(1)?;
        let size = match letter {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'c' => self.count(1)?,
            b'i' | b'I' => self.integer_size()?,
            _ => 0,
        };
        let padding = if size == 0 || letter == b'c' {
            0
        } else {
            let size = size.min(self.alignment);
            size.wrapping_sub(position & (size - 1)) & (size - 1)
        };
        Ok(Some(Item { letter, padding, size }))
    }

    fn integer_size(&mut self) -> Result<usize> {
        let size = self.count(4)?;
        if size > INTEGER_BYTES_MAX {
            let limit = INTEGER_BYTES_MAX;
            return Err(self.call.error(format!("integral size {size} is larger than limit of {limit}")));
        }
        Ok(size)
    }

    /// The number that follows a letter, or `default` where none does.
    fn count(&mut self, default: usize) -> Result<usize> {
        let rest = &self.letters[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        self.at += digits;
        let add = |number: i32, digit: &u8| number.checked_mul(10)?.checked_add(i32::from(digit - b'0'));
        match rest[..digits].iter().try_fold(0, add) {
            Some(number) => Ok(number as usize),
            None => Err(self.call.error("integral size overflow")),
        }
    }

    /// What a letter does that stands for no value.
    fn control(&mut self, letter: u8) -> Result<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.count(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    return Err(self.call.error(format!("alignment {alignment} is not a power of 2")));
                }
                self.alignment = alignment;
            }
            _ => {
                return Err(self.call.bad(1, [b"invalid format option '", &[letter][..], b"'"].concat()));
            }
        }
        Ok(())
    }

    /// Bytes of the machine in the order that the format asks for, or the other way round.
    fn ordered<'b>(&self, bytes: &'b mut [u8]) -> &'b [u8] {
        if self.is_big_endian {
            bytes.reverse();
        }
        bytes
    }
}

fn pack(call: &Call<'_>) -> Result<LuaString> {
    let text = call.string(1)?;
    let letters = text.as_bytes();
    let mut format = Format::new(call, &letters);
    let mut out = call.output();
    let mut at = 2;
    while let Some(item) = format.next(out.bytes().len())? {
        out.fill(0, item.padding)?;
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = number(call, at)?;
                let value = if number < 0.0 { c_long(number) as u64 } else { c_unsigned_long(number) };
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                out.push(format.ordered(&mut bytes[..item.size]))?;
                at += 1;
            }
            b'x' => out.fill(0, 1)?,
            b'f' => {
                out.push(format.ordered(&mut (number(call, at)? as f32).to_le_bytes()))?;
                at += 1;
            }
            b'd' => {
                out.push(format.ordered(&mut number(call, at)?.to_le_bytes()))?;
                at += 1;
            }
            b'c' | b's' => {
                let text = string(call, at)?;
                let text = text.as_bytes();
                at += 1;
                let size = if item.size == 0 { text.len() } else { item.size };
                out.push(text.get(..size).ok_or_else(|| call.bad(at, "string too short"))?)?;
                if item.letter == b's' {
                    out.fill(0, 1)?;
                }
            }
            letter => format.control(letter)?,
        }
    }
    out.finish()
}

/// An argument to pack. Where there is none, the C code meets a nil that it has put there itself.
fn number(call: &Call<'_>, at: usize) -> Result<f64> {
    call.number(at).map_err(|error| missing(call, at, "number", error))
}

fn string(call: &Call<'_>, at: usize) -> Result<LuaString> {
    call.string(at).map_err(|error| missing(call, at, "string", error))
}

fn missing(call: &Call<'_>, at: usize, expected: &str, error: Error) -> Error {
    if at > call.len() { call.bad(at, format!("{expected} expected, got nil")) } else { error }
}

fn unpack(call: &Call<'_>) -> Result<MultiValue> {
    let text = call.string(1)?;
    let letters = text.as_bytes();
    let mut format = Format::new(call, &letters);
    let data = call.string(2)?;
    let data = data.as_bytes();
    // An offset below zero is one far beyond the end.
    let mut position = call.integer_or(3, 1)? as usize;
    if position == 0 {
        return Err(call.bad(3, "offset must be 1 or greater"));
    }
    position -= 1;
    let mut results = Vec::new();
    while let Some(mut item) = format.next(position)? {
        position = position.wrapping_add(item.padding);
        let mut bytes = slice(call, &data, position, item.size)?;
        if call.len() + results.len() + 2 > STACK_SLOTS_MAX {
            return Err(call.error("stack overflow (too many results)"));
        }
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = item.letter.is_ascii_lowercase();
                results.push(Value::Number(integer(bytes, format.is_big_endian, is_signed)));
            }
            b'x' => {}
            b'f' => results.push(Value::Number(f64::from(f32::from_le_bytes(array(bytes, &format))))),
            b'd' => results.push(Value::Number(f64::from_le_bytes(array(bytes, &format)))),
            b'c' => {
                if item.size == 0 {
                    let size = results.pop().and_then(|size| to_number(call.lua, &size));
                    let size = size.ok_or_else(|| call.error("format 'c0' needs a previous size"))?;
                    item.size = c_unsigned_long(size) as usize;
                    bytes = slice(call, &data, position, item.size)?;
                }
                results.push(Value::String(call.lua.create_string(bytes)?));
            }
            b's' => {
                let rest = data.get(position..).unwrap_or_default();
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| call.error("unfinished string in data"))?;
                results.push(Value::String(call.lua.create_string(&rest[..end])?));
                item.size = end + 1;
            }
            letter => format.control(letter)?,
        }
        position = position.wrapping_add(item.size);
    }
    results.push(Value::Number(position as f64 + 1.0));
    Ok(MultiValue::from_vec(results))
}

/// The next `size` bytes of what is being unpacked.
fn slice<'d>(call: &Call<'_>, data: &'d [u8], position: usize, size: usize) -> Result<&'d [u8]> {
    let end = position.checked_add(size);
    end.and_then(|end| data.get(position..end)).ok_or_else(|| call.bad(2, "data string too short"))
}

fn array<const N: usize>(bytes: &[u8], format: &Format<'_, '_>) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    format.ordered(&mut array);
    array
}

fn integer(bytes: &[u8], is_big_endian: bool, is_signed: bool) -> f64 {
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    let value = if is_big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
    if !is_signed {
        return value as f64;
    }
    // A shift by more than 63 is one by its lowest six bits.
    let sign = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    let value = if value & sign == 0 { value } else { value | sign };
    value as i64 as f64
}

fn size(call: &Call<'_>) -> Result<f64> {
    let text = call.string(1)?;
    let letters = text.as_bytes();
    let mut format = Format::new(call, &letters);
    let mut position: usize = 0;
    while let Some(item) = format.next(position)? {
        position += item.padding;
        match item.letter {
            b's' => return Err(call.bad(1, "option 's' has no fixed size")),
            b'c' if item.size == 0 => return Err(call.bad(1, "option 'c0' has no fixed size")),
            letter if !letter.is_ascii_alphanumeric() => format.control(letter)?,
            _ => {}
        }
        position = position.saturating_add(item.size);
    }
    Ok(position as f64)
}
