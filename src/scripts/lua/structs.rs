//! The library `struct`: values packed into bytes the way C lays them out, and back.
//!
//! Bounds  the text of a format is read once; what it asks for is bounded by the strings given and by the memory limit.
//! Source  `lua_struct.c` 0.2 as Redis 7.0 has it, on a little-endian machine with 64 bits.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};
use smallvec::SmallVec;

use super::auxiliary::{Call, Library, Output, STACK_SLOTS_MAX, c_long, c_unsigned_long, to_number};
use super::budget::{Budget, Unlimited};
use super::calls::Server;
use super::shortcuts::short_text;
use super::stack::{Kind, Stack};

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

/// What is packed: the arguments behind the format, from 2 on.
trait Arguments {
    fn number(&self, at: usize) -> Result<f64>;

    /// Has `take` take the string.
    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()>;
}

fn pack(call: &Call<'_>) -> Result<LuaString> {
    let text = call.string(1)?;
    packed(call, &text.as_bytes(), call)?.finish()
}

/// `pack`, above its arguments on the stack; `None` where these are not as they should be.
pub(super) fn pack_shortly(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if !(1..=ARGUMENTS_SHORTLY_MAX).contains(&stack.len()) {
        return None;
    }
    let call = Call::without_args(server.lua, server.budget);
    let out = packed(&call, stack.bytes(1)?, &*stack).ok()?;
    call.reserve(out.bytes().len()).ok()?;
    stack.push_bytes(out.bytes(), &call.lift());
    Some(1)
}

/// Arguments with which the other way goes on.
const ARGUMENTS_SHORTLY_MAX: c_int = 8;

fn packed<'c>(call: &'c Call<'_>, letters: &[u8], arguments: &impl Arguments) -> Result<Output<'c>> {
    let mut format = Format::new(call, letters);
    let mut out = call.output();
    let mut at = 2;
    while let Some(item) = format.next(out.bytes().len())? {
        if item.padding > 0 {
            out.fill(0, item.padding)?;
        }
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = arguments.number(at)?;
                let value = if number < 0.0 { c_long(number) as u64 } else { c_unsigned_long(number) };
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                out.push(format.ordered(&mut bytes[..item.size]))?;
                at += 1;
            }
            b'x' => out.fill(0, 1)?,
            b'f' => {
                out.push(format.ordered(&mut (arguments.number(at)? as f32).to_le_bytes()))?;
                at += 1;
            }
            b'd' => {
                out.push(format.ordered(&mut arguments.number(at)?.to_le_bytes()))?;
                at += 1;
            }
            b'c' | b's' => {
                arguments.string(at, |text| {
                    let size = if item.size == 0 { text.len() } else { item.size };
                    out.push(text.get(..size).ok_or_else(|| call.bad(at + 1, "string too short"))?)
                })?;
                at += 1;
                if item.letter == b's' {
                    out.fill(0, 1)?;
                }
            }
            letter => format.control(letter)?,
        }
    }
    Ok(out)
}

impl Arguments for Call<'_> {
    fn number(&self, at: usize) -> Result<f64> {
        self.number(at).map_err(|error| missing(self, at, "number", error))
    }

    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        take(&self.string(at).map_err(|error| missing(self, at, "string", error))?.as_bytes())
    }
}

impl Arguments for Stack<'_> {
    fn number(&self, at: usize) -> Result<f64> {
        let at = self.argument(at).filter(|at| self.kind(*at) == Kind::Number).ok_or(Error::StackError)?;
        Ok(self.number(at))
    }

    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        take(self.argument(at).and_then(|at| self.bytes(at)).ok_or(Error::StackError)?)
    }
}

/// The error of an argument to pack. Where there is none, the C code meets a nil that it has put there itself.
fn missing(call: &Call<'_>, at: usize, expected: &str, error: Error) -> Error {
    if at > call.len() { call.bad(at, format!("{expected} expected, got nil")) } else { error }
}

fn unpack(call: &Call<'_>) -> Result<MultiValue> {
    let text = call.string(1)?;
    let letters = text.as_bytes();
    let mut format = Format::new(call, &letters);
    let data = call.string(2)?;
    // An offset below zero is one far beyond the end.
    let mut position = call.integer_or(3, 1)? as usize;
    if position == 0 {
        return Err(call.bad(3, "offset must be 1 or greater"));
    }
    position -= 1;
    let mut results = Unpacked { call, data: &data.as_bytes(), values: Vec::new() };
    unpacked(&mut format, position, &mut results)?;
    Ok(MultiValue::from_vec(results.values))
}

/// `unpack`, above its arguments on the stack; `None` where these are not as they should be.
pub(super) fn unpack_shortly(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let count = stack.len();
    let position = match count {
        2 => 0,
        3 if stack.kind(3) == Kind::Number => (stack.number(3) as usize).checked_sub(1)?,
        _ => return None,
    };
    let call = Call::without_args(server.lua, server.budget);
    let letters: SmallVec<[u8; LETTERS_SHORTLY]> = stack.bytes(1)?.into();
    short_text(stack, 2)?;
    let limit = call.lift();
    let mut results = UnpackedShortly { stack, floor: count, limit: &limit };
    unpacked(&mut Format::new(&call, &letters), position, &mut results).ok()?;
    Some(stack.len() - count)
}

/// Letters of most formats.
const LETTERS_SHORTLY: usize = 32;
/// Values on the stack with which the other way goes on.
const RESULTS_SHORTLY: c_int = 64;

/// What is unpacked, and the values that have been found there.
trait Results {
    fn data(&self) -> &[u8];

    /// Makes room for another value, and the end.
    fn make_room(&mut self) -> Result<()>;

    fn number(&mut self, number: f64);

    /// A string, which is a part of the data.
    fn part(&mut self, part: Range<usize>) -> Result<()>;

    /// Takes the last value back, if it is a number.
    fn previous(&mut self) -> Option<f64>;
}

struct Unpacked<'c, 'l> {
    call: &'c Call<'l>,
    data: &'c [u8],
    values: Vec<Value>,
}

impl Results for Unpacked<'_, '_> {
    fn data(&self) -> &[u8] {
        self.data
    }

    fn make_room(&mut self) -> Result<()> {
        let has_room = self.call.len() + self.values.len() + 2 <= STACK_SLOTS_MAX;
        has_room.then_some(()).ok_or_else(|| self.call.error("stack overflow (too many results)"))
    }

    fn number(&mut self, number: f64) {
        self.values.push(Value::Number(number));
    }

    fn part(&mut self, part: Range<usize>) -> Result<()> {
        self.values.push(Value::String(self.call.lua.create_string(&self.data[part])?));
        Ok(())
    }

    fn previous(&mut self) -> Option<f64> {
        self.values.pop().and_then(|value| to_number(self.call.lua, &value))
    }
}

struct UnpackedShortly<'s, 'l, 'b> {
    stack: &'s mut Stack<'l>,
    /// Values below them.
    floor: c_int,
    limit: &'s Unlimited<'b>,
}

impl Results for UnpackedShortly<'_, '_, '_> {
    fn data(&self) -> &[u8] {
        self.stack.bytes(2).unwrap_or_default()
    }

    fn make_room(&mut self) -> Result<()> {
        let has_room = self.stack.len() < RESULTS_SHORTLY && self.stack.reserve(2, self.limit);
        has_room.then_some(()).ok_or(Error::StackError)
    }

    fn number(&mut self, number: f64) {
        self.stack.push_number(number);
    }

    fn part(&mut self, part: Range<usize>) -> Result<()> {
        self.stack.push_part(2, part, self.limit).then_some(()).ok_or(Error::StackError)
    }

    fn previous(&mut self) -> Option<f64> {
        let is_number = self.stack.len() > self.floor && self.stack.kind(-1) == Kind::Number;
        is_number.then(|| {
            let number = self.stack.number(-1);
            self.stack.pop(1);
            number
        })
    }
}

/// Takes the data apart from `position` on, and adds where that ends.
fn unpacked(format: &mut Format<'_, '_>, mut position: usize, results: &mut impl Results) -> Result<()> {
    let call = format.call;
    while let Some(mut item) = format.next(position)? {
        position = position.wrapping_add(item.padding);
        slice(call, results.data(), position, item.size)?;
        results.make_room()?;
        let bytes = slice(call, results.data(), position, item.size)?;
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = item.letter.is_ascii_lowercase();
                let number = integer(bytes, format.is_big_endian, is_signed);
                results.number(number);
            }
            b'x' => {}
            b'f' => {
                let number = f32::from_le_bytes(array(bytes, format));
                results.number(f64::from(number));
            }
            b'd' => {
                let number = f64::from_le_bytes(array(bytes, format));
                results.number(number);
            }
            b'c' => {
                if item.size == 0 {
                    let size = results.previous();
                    let size = size.ok_or_else(|| call.error("format 'c0' needs a previous size"))?;
                    item.size = c_unsigned_long(size) as usize;
                    slice(call, results.data(), position, item.size)?;
                }
                results.part(position..position + item.size)?;
            }
            b's' => {
                let rest = results.data().get(position..).unwrap_or_default();
                let len = rest.iter().position(|byte| *byte == 0);
                let len = len.ok_or_else(|| call.error("unfinished string in data"))?;
                results.part(position..position + len)?;
                item.size = len + 1;
            }
            letter => format.control(letter)?,
        }
        position = position.wrapping_add(item.size);
    }
    results.number(position as f64 + 1.0);
    Ok(())
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
