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
use super::budget::Budget;
use super::calls::Server;
use super::fault::{Checked, Stopped};
use super::shortcuts::{TEXT_BYTES_MAX, short_text};
use super::stack::Stack;
use super::strings::Part;

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

/// What becomes of a format.
type Done<T> = std::result::Result<T, Broken>;

/// Why there is no result; in a box, so that little is moved where there is one.
struct Broken(Box<Error>);

impl From<Error> for Broken {
    fn from(why: Error) -> Self {
        Self(Box::new(why))
    }
}

impl From<Stopped> for Broken {
    fn from(why: Stopped) -> Self {
        Error::from(why).into()
    }
}

impl From<Broken> for Error {
    fn from(Broken(why): Broken) -> Self {
        *why
    }
}

/// A format on its way through its letters.
struct Format<'c, 'l> {
    call: &'c Call<'l>,
    letters: &'c [u8],
    at: usize,
    is_big_endian: bool,
    alignment: usize,
}

/// One letter, with the bytes that go before and into it; small enough to be returned in registers.
#[derive(Clone, Copy)]
struct Item {
    letter: u8,
    padding: u8,
    size: u32,
}

impl<'c, 'l> Format<'c, 'l> {
    /// It ends where C would see it end, at its first NUL.
    fn new(call: &'c Call<'l>, text: &'c [u8]) -> Self {
        let letters = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Self { call, letters, at: 0, is_big_endian: false, alignment: 1 }
    }

    /// The next letter, for a value that would start at `position`.
    fn next(&mut self, position: usize) -> Done<Option<Item>> {
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
        let padding = match letter {
            _ if size == 0 => 0,
            b'c' => 0,
            // An integer is the longest, so that its padding is short.
            _ => {
                let size = size.min(self.alignment);
                (size.wrapping_sub(position & (size - 1)) & (size - 1)) as u8
            }
        };
        Ok(Some(Item { letter, padding, size: size as u32 }))
    }

    fn integer_size(&mut self) -> Done<usize> {
        let size = self.count(4)?;
        if size > INTEGER_BYTES_MAX {
            let limit = INTEGER_BYTES_MAX;
            let why = format!("integral size {size} is larger than limit of {limit}");
            return Err(self.call.error(why).into());
        }
        Ok(size)
    }

    /// The number that follows a letter, or `default` where none does.
    fn count(&mut self, default: usize) -> Done<usize> {
        let rest = &self.letters[self.at..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        self.at += digits;
        let add = |number: i32, digit: &u8| number.checked_mul(10)?.checked_add(i32::from(digit - b'0'));
        match rest[..digits].iter().try_fold(0, add) {
            Some(number) => Ok(number as usize),
            None => Err(self.call.error("integral size overflow").into()),
        }
    }

    /// What a letter does that stands for no value.
    fn control(&mut self, letter: u8) -> Done<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.count(ALIGNMENT)?;
                if !alignment.is_power_of_two() {
                    let why = format!("alignment {alignment} is not a power of 2");
                    return Err(self.call.error(why).into());
                }
                self.alignment = alignment;
            }
            _ => {
                let why = [b"invalid format option '", &[letter][..], b"'"].concat();
                return Err(self.call.bad(1, why).into());
            }
        }
        Ok(())
    }

    /// Writes so many bytes of an integer, those above its own being zero.
    #[inline]
    fn integer(&self, value: u64, size: usize, out: &mut Output<'_>) -> Checked {
        match (size, self.is_big_endian) {
            (1..=8, true) => out.push(&(value << (64 - 8 * size)).to_be_bytes()[..size]),
            (0..=8, _) => out.push(&value.to_le_bytes()[..size]),
            (_, true) => out.fill(0, size - 8).and_then(|()| out.push(&value.to_be_bytes())),
            (_, false) => out.push(&value.to_le_bytes()).and_then(|()| out.fill(0, size - 8)),
        }
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
    fn number(&self, at: usize) -> Done<f64>;

    /// Has `take` take the string.
    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Done<()>) -> Done<()>;
}

fn pack(call: &Call<'_>) -> Result<LuaString> {
    let text = call.string(1)?;
    let mut out = call.output();
    packed(call, &text.as_bytes(), call, &mut out)?;
    out.finish()
}

/// `pack`, above its arguments on the stack; `None` where these are not as they should be.
pub(super) fn pack_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if !(1..=ARGUMENTS_SHORTLY_MAX).contains(&stack.len()) {
        return None;
    }
    server.write(|call, out| {
        packed(call, stack.bytes(1)?, &*stack, out).ok().filter(|()| out.bytes().len() <= TEXT_BYTES_MAX)?;
        let limit = call.lift_for(stack, out.bytes().len());
        stack.push_bytes(out.bytes(), &limit);
        Some(1)
    })
}

/// Arguments with which the other way goes on.
const ARGUMENTS_SHORTLY_MAX: c_int = 8;

fn packed(call: &Call<'_>, letters: &[u8], arguments: &impl Arguments, out: &mut Output<'_>) -> Done<()> {
    let mut format = Format::new(call, letters);
    let mut at = 2;
    while let Some(item) = format.next(out.bytes().len())? {
        let size = item.size as usize;
        if item.padding > 0 {
            out.fill(0, usize::from(item.padding))?;
        }
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = arguments.number(at)?;
                let value = if number < 0.0 { c_long(number) as u64 } else { c_unsigned_long(number) };
                format.integer(value, size, out)?;
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
                    let size = if size == 0 { text.len() } else { size };
                    Ok(out.push(text.get(..size).ok_or_else(|| call.bad(at + 1, "string too short"))?)?)
                })?;
                at += 1;
                if item.letter == b's' {
                    out.fill(0, 1)?;
                }
            }
            letter => format.control(letter)?,
        }
    }
    Ok(())
}

impl Arguments for Call<'_> {
    fn number(&self, at: usize) -> Done<f64> {
        Ok(self.number(at).map_err(|error| missing(self, at, "number", error))?)
    }

    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Done<()>) -> Done<()> {
        take(&self.string(at).map_err(|error| missing(self, at, "string", error))?.as_bytes())
    }
}

impl Arguments for Stack<'_> {
    fn number(&self, at: usize) -> Done<f64> {
        self.argument(at).and_then(|at| self.as_number(at)).ok_or_else(|| Error::StackError.into())
    }

    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Done<()>) -> Done<()> {
        take(self.argument(at).and_then(|at| self.bytes(at)).ok_or_else(|| Error::StackError)?)
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
pub(super) fn unpack_shortly(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let count = stack.len();
    let position = match count {
        2 => 0,
        3 => (stack.as_number(3)? as usize).checked_sub(1)?,
        _ => return None,
    };
    let call = Call::without_args(server.lua, server.budget);
    let (data, mut values) = (short_text(stack, 2)?, SmallVec::new());
    let mut results = UnpackedShortly { data, values: &mut values };
    unpacked(&mut Format::new(&call, stack.bytes(1)?), position, &mut results).ok()?;
    // Each result holds a part of the text.
    let limit = call.lift_for(stack, data.len());
    if !stack.reserve(values.len() as c_int, &limit) {
        return None;
    }
    for value in &values {
        match *value {
            Part::Number(number) => stack.push_number(number),
            Part::Bytes(start, len) => {
                let start = start as usize;
                stack.push_part(2, start..start + len as usize, &limit).then_some(())?;
            }
        }
    }
    Some(values.len() as c_int)
}

/// Values with which the other way goes on.
const RESULTS_SHORTLY: usize = 64;

/// What is unpacked, and the values that have been found there.
trait Results {
    fn data(&self) -> &[u8];

    /// Makes room for another value, and the end.
    fn make_room(&mut self) -> Done<()>;

    fn number(&mut self, number: f64);

    /// A string, which is a part of the data.
    fn part(&mut self, part: Range<usize>) -> Done<()>;

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

    fn make_room(&mut self) -> Done<()> {
        let has_room = self.call.len() + self.values.len() + 2 <= STACK_SLOTS_MAX;
        has_room.then_some(()).ok_or_else(|| self.call.error("stack overflow (too many results)").into())
    }

    fn number(&mut self, number: f64) {
        self.values.push(Value::Number(number));
    }

    fn part(&mut self, part: Range<usize>) -> Done<()> {
        self.values.push(Value::String(self.call.lua.create_string(&self.data[part])?));
        Ok(())
    }

    fn previous(&mut self) -> Option<f64> {
        self.values.pop().and_then(|value| to_number(self.call.lua, &value))
    }
}

struct UnpackedShortly<'d> {
    data: &'d [u8],
    values: &'d mut SmallVec<[Part; 4]>,
}

impl Results for UnpackedShortly<'_> {
    fn data(&self) -> &[u8] {
        self.data
    }

    fn make_room(&mut self) -> Done<()> {
        let has_room = self.values.len() < RESULTS_SHORTLY;
        has_room.then_some(()).ok_or_else(|| Error::StackError.into())
    }

    fn number(&mut self, number: f64) {
        self.values.push(Part::Number(number));
    }

    fn part(&mut self, part: Range<usize>) -> Done<()> {
        self.values.push(Part::Bytes(part.start as u32, part.len() as u32));
        Ok(())
    }

    fn previous(&mut self) -> Option<f64> {
        self.values.pop().and_then(|value| match value {
            Part::Number(number) => Some(number),
            Part::Bytes(..) => None,
        })
    }
}

/// Takes the data apart from `position` on, and adds where that ends.
fn unpacked(format: &mut Format<'_, '_>, mut position: usize, results: &mut impl Results) -> Done<()> {
    let call = format.call;
    while let Some(item) = format.next(position)? {
        let mut size = item.size as usize;
        position = position.wrapping_add(usize::from(item.padding));
        slice(call, results.data(), position, size)?;
        results.make_room()?;
        let bytes = slice(call, results.data(), position, size)?;
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
                if size == 0 {
                    let previous = results.previous();
                    let previous = previous.ok_or_else(|| call.error("format 'c0' needs a previous size"))?;
                    size = c_unsigned_long(previous) as usize;
                    slice(call, results.data(), position, size)?;
                }
                results.part(position..position + size)?;
            }
            b's' => {
                let rest = results.data().get(position..).unwrap_or_default();
                let len = rest.iter().position(|byte| *byte == 0);
                let len = len.ok_or_else(|| call.error("unfinished string in data"))?;
                results.part(position..position + len)?;
                size = len + 1;
            }
            letter => format.control(letter)?,
        }
        position = position.wrapping_add(size);
    }
    results.number(position as f64 + 1.0);
    Ok(())
}

/// The next `size` bytes of what is being unpacked.
fn slice<'d>(call: &Call<'_>, data: &'d [u8], position: usize, size: usize) -> Done<&'d [u8]> {
    let end = position.checked_add(size);
    end.and_then(|end| data.get(position..end)).ok_or_else(|| call.bad(2, "data string too short").into())
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
        position += usize::from(item.padding);
        match item.letter {
            b's' => return Err(call.bad(1, "option 's' has no fixed size")),
            b'c' if item.size == 0 => return Err(call.bad(1, "option 'c0' has no fixed size")),
            letter if !letter.is_ascii_alphanumeric() => format.control(letter)?,
            _ => {}
        }
        position = position.saturating_add(item.size as usize);
    }
    Ok(position as f64)
}
