//! The library `struct`: values packed into bytes the way C lays them out, and back.
//!
//! Bounds  the text of a format is read once; what it asks for is bounded by the strings given and by the memory limit.
//! Source  `lua_struct.c` 0.2 as Redis 7.0 has it, on a little-endian machine with 64 bits.

use std::ops::Range;
use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Table, Value};

use super::auxiliary::{
    BYTES_PER_STEP, Call, Library, STACK_SLOTS_MAX, Sink, c_long, c_unsigned_long, to_number,
};
use super::budget::Budget;
use super::fault::{Checked, Stopped};
use super::stack::{Arguments, Meter, Part, Parts, Room};

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
/// Letters that are as much work as an instruction.
const LETTERS_PER_STEP: usize = 4;
/// What `!` aligns to when it does not say.
const ALIGNMENT: usize = 8;

/// What becomes of a format.
type Done<T> = std::result::Result<T, Broken>;

/// Why there is no result.
#[derive(Clone, Copy)]
enum Broken {
    /// An alignment that is no power of two.
    Alignment(usize),
    /// That argument is none, or not what it should be.
    Argument(usize, &'static str),
    /// That item has no size of its own.
    NoFixedSize(&'static str),
    /// `c0` behind what is no number.
    NoSize,
    /// The letter stands for nothing.
    Letter(u8),
    /// A number of more than 31 bits.
    Overflow,
    /// Data that ends before the format does.
    ShortData,
    /// The argument before that one has fewer bytes than are asked for; C counts the format's place twice.
    ShortText(usize),
    /// An integer of so many bytes.
    Size(usize),
    /// The script has to end.
    Stopped,
    /// More results than a function may have, or more than the shorter way has room for.
    TooMany,
    /// A string without its NUL.
    Unfinished,
}

impl From<Stopped> for Broken {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl Broken {
    /// What the function raises.
    fn said_by(self, call: &Call<'_>) -> Error {
        match self {
            Self::Alignment(bytes) => call.error(format!("alignment {bytes} is not a power of 2")),
            // Where there is none, the C code meets a nil that it has put there itself.
            Self::Argument(at, expected) if at > call.len() => {
                call.bad(at, format!("{expected} expected, got nil"))
            }
            Self::Argument(at, expected) => call.wrong_type(at, expected),
            Self::NoFixedSize(item) => call.bad(1, format!("option '{item}' has no fixed size")),
            Self::NoSize => call.error("format 'c0' needs a previous size"),
            Self::Letter(letter) => call.bad(1, [b"invalid format option '", &[letter][..], b"'"].concat()),
            Self::Overflow => call.error("integral size overflow"),
            Self::ShortData => call.bad(2, "data string too short"),
            Self::ShortText(at) => call.bad(at, "string too short"),
            Self::Size(bytes) => {
                call.error(format!("integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"))
            }
            Self::Stopped => Stopped.into(),
            Self::TooMany => call.error("stack overflow (too many results)"),
            Self::Unfinished => call.error("unfinished string in data"),
        }
    }
}

/// A format on its way through its letters, which it charges.
struct Format<'f, C> {
    charge: C,
    letters: &'f [u8],
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

impl<'f, C: Fn(usize) -> Checked> Format<'f, C> {
    fn new(letters: &'f [u8], charge: C) -> Self {
        Self { charge, letters, at: 0, is_big_endian: false, alignment: 1 }
    }

    /// The next letter, for a value that would start at `position`. A format ends where C would see it end, at its first
    /// NUL.
    #[inline]
    fn next(&mut self, position: usize) -> Done<Option<Item>> {
        let letter = match self.letters.get(self.at) {
            None | Some(0) => return Ok(None),
            Some(letter) => *letter,
        };
        self.at += 1;
        if self.at.is_multiple_of(LETTERS_PER_STEP) {
            (self.charge)(1)?;
        }
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
            _ if size == 0 || self.alignment == 1 => 0,
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
        if size > INTEGER_BYTES_MAX { Err(Broken::Size(size)) } else { Ok(size) }
    }

    /// The number that follows a letter, or `default` where none does.
    fn count(&mut self, default: usize) -> Done<usize> {
        let mut number = None;
        while let Some(digit @ b'0'..=b'9') = self.letters.get(self.at) {
            let digit = i32::from(digit - b'0');
            let longer = number.unwrap_or(0_i32).checked_mul(10).and_then(|tens| tens.checked_add(digit));
            number = Some(longer.ok_or(Broken::Overflow)?);
            self.at += 1;
        }
        Ok(number.map_or(default, |number| number as usize))
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
                    return Err(Broken::Alignment(alignment));
                }
                self.alignment = alignment;
            }
            _ => return Err(Broken::Letter(letter)),
        }
        Ok(())
    }

    /// Writes so many bytes of an integer, those above its own being zero.
    #[inline]
    fn integer(&self, value: u64, size: usize, out: &mut impl Sink) -> Checked {
        match (size, self.is_big_endian) {
            (4, true) => out.push(&(value as u32).to_be_bytes()),
            (4, false) => out.push(&(value as u32).to_le_bytes()),
            (1..=8, true) => out.push(&(value << (64 - 8 * size)).to_be_bytes()[..size]),
            (0..=8, false) => out.push(&value.to_le_bytes()[..size]),
            (0, true) => Ok(()),
            (_, true) => {
                out.fill(0, size - 8)?;
                out.push(&value.to_be_bytes())
            }
            (_, false) => {
                out.push(&value.to_le_bytes())?;
                out.fill(0, size - 8)
            }
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
trait Values {
    fn number(&self, at: usize) -> Option<f64>;

    /// Has `take` take the string.
    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Done<()>) -> Option<Done<()>>;
}

impl Values for Call<'_> {
    fn number(&self, at: usize) -> Option<f64> {
        to_number(self.lua, self.value(at))
    }

    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Done<()>) -> Option<Done<()>> {
        Some(take(&self.string(at).ok()?.as_bytes()))
    }
}

impl Values for Arguments<'_> {
    fn number(&self, at: usize) -> Option<f64> {
        self.number(at)
    }

    fn string(&self, at: usize, take: impl FnOnce(&[u8]) -> Done<()>) -> Option<Done<()>> {
        self.text(at).map(take)
    }
}

fn pack(call: &Call<'_>) -> Result<LuaString> {
    let text = call.string(1)?;
    let (letters, mut out) = (text.as_bytes(), call.output());
    let mut format = Format::new(&letters, |steps| call.charge(steps));
    packed(&mut format, call, &mut out).map_err(|broken| broken.said_by(call))?;
    out.finish()
}

/// `pack`, into the room; `None` where the arguments are not as they should be, or it is too much for that.
pub(super) fn pack_shortly(arguments: &Arguments<'_>, room: &mut Room) -> Option<()> {
    let mut format = Format::new(arguments.text(1)?, |steps| arguments.meter.charge(steps));
    packed(&mut format, arguments, room).ok()
}

fn packed(
    format: &mut Format<'_, impl Fn(usize) -> Checked>,
    values: &impl Values,
    out: &mut impl Sink,
) -> Done<()> {
    let mut at = 2;
    while let Some(item) = format.next(out.len())? {
        let size = item.size as usize;
        if item.padding > 0 {
            out.fill(0, usize::from(item.padding))?;
        }
        let number = || values.number(at).ok_or(Broken::Argument(at, "number"));
        let is_value = match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = number()?;
                let value = if number < 0.0 { c_long(number) as u64 } else { c_unsigned_long(number) };
                format.integer(value, size, out)?;
                true
            }
            b'f' => {
                out.push(format.ordered(&mut (number()? as f32).to_le_bytes()))?;
                true
            }
            b'd' => {
                out.push(format.ordered(&mut number()?.to_le_bytes()))?;
                true
            }
            b'c' | b's' => {
                let pushed = values.string(at, |text| {
                    let size = if size == 0 { text.len() } else { size };
                    Ok(out.push(text.get(..size).ok_or(Broken::ShortText(at + 1))?)?)
                });
                pushed.ok_or(Broken::Argument(at, "string"))??;
                out.fill(0, usize::from(item.letter == b's'))?;
                true
            }
            b'x' => {
                out.fill(0, 1)?;
                false
            }
            letter => {
                format.control(letter)?;
                false
            }
        };
        at += usize::from(is_value);
    }
    Ok(())
}

fn unpack(call: &Call<'_>) -> Result<MultiValue> {
    let text = call.string(1)?;
    let data = call.string(2)?;
    let data = data.as_bytes();
    // An offset below zero is one far beyond the end.
    let position = (call.integer_or(3, 1)? as usize).checked_sub(1);
    let position = position.ok_or_else(|| call.bad(3, "offset must be 1 or greater"))?;
    let mut results = Unpacked { call, parts: Vec::new() };
    let letters = text.as_bytes();
    unpacked(&mut Format::new(&letters, |steps| call.charge(steps)), &data, position, &mut results)
        .map_err(|broken| broken.said_by(call))?;
    let value = |part: &Part| match *part {
        Part::Bytes(start, len) => call.lua.create_string(&data[start..start + len]).map(Value::String),
        Part::Number(number) => Ok(Value::Number(number)),
    };
    results.parts.iter().map(value).collect()
}

/// `unpack`, as parts of its data; `None` where the arguments are not as they should be, or these are too many.
pub(super) fn unpack_shortly<'t>(
    [letters, data]: [&'t [u8]; 2],
    first: Option<f64>,
    meter: &Meter,
    parts: &mut Parts,
) -> Option<&'t [u8]> {
    let position = (first.unwrap_or(1.0) as usize).checked_sub(1)?;
    unpacked(&mut Format::new(letters, |steps| meter.charge(steps)), data, position, parts).ok()?;
    Some(data)
}

/// What has been found in the data.
trait Results {
    /// Whether there is room for another, and the end.
    fn has_room(&self) -> bool;

    fn push(&mut self, part: Part);

    /// Takes the last one back, if it is a number, or one of those texts that read as one.
    fn previous(&mut self, data: &[u8]) -> Option<f64>;
}

struct Unpacked<'c, 'l> {
    call: &'c Call<'l>,
    parts: Vec<Part>,
}

impl Results for Unpacked<'_, '_> {
    fn has_room(&self) -> bool {
        self.call.len() + self.parts.len() + 2 <= STACK_SLOTS_MAX
    }

    fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    fn previous(&mut self, data: &[u8]) -> Option<f64> {
        match self.parts.pop()? {
            Part::Bytes(start, len) => {
                let text = self.call.lua.create_string(&data[start..start + len]).ok()?;
                to_number(self.call.lua, &Value::String(text))
            }
            Part::Number(number) => Some(number),
        }
    }
}

impl Results for Parts {
    fn has_room(&self) -> bool {
        self.len() + 2 <= self.capacity()
    }

    fn push(&mut self, part: Part) {
        self.push(part);
    }

    fn previous(&mut self, _: &[u8]) -> Option<f64> {
        match self.pop()? {
            Part::Bytes(..) => None,
            Part::Number(number) => Some(number),
        }
    }
}

/// Takes the data apart from `position` on, and adds where that ends.
fn unpacked(
    format: &mut Format<'_, impl Fn(usize) -> Checked>,
    data: &[u8],
    mut position: usize,
    results: &mut impl Results,
) -> Done<()> {
    while let Some(item) = format.next(position)? {
        let mut size = item.size as usize;
        position = position.wrapping_add(usize::from(item.padding));
        let bytes = &data[part(data, position, size)?];
        if !results.has_room() {
            return Err(Broken::TooMany);
        }
        match item.letter {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let number = integer(bytes, format.is_big_endian, item.letter.is_ascii_lowercase());
                results.push(Part::Number(number));
            }
            b'x' => {}
            b'f' => results.push(Part::Number(f64::from(f32::from_le_bytes(array(bytes, format))))),
            b'd' => results.push(Part::Number(f64::from_le_bytes(array(bytes, format)))),
            b'c' => {
                if size == 0 {
                    size = c_unsigned_long(results.previous(data).ok_or(Broken::NoSize)?) as usize;
                    part(data, position, size)?;
                }
                results.push(Part::Bytes(position, size));
            }
            b's' => {
                let rest = data.get(position..).unwrap_or_default();
                (format.charge)(rest.len() / BYTES_PER_STEP)?;
                let len = memchr::memchr(0, rest).ok_or(Broken::Unfinished)?;
                results.push(Part::Bytes(position, len));
                size = len + 1;
            }
            letter => format.control(letter)?,
        }
        position = position.wrapping_add(size);
    }
    results.push(Part::Number(position as f64 + 1.0));
    Ok(())
}

/// Where the next `size` bytes of what is being unpacked are.
fn part(data: &[u8], position: usize, size: usize) -> Done<Range<usize>> {
    let end = position.checked_add(size).filter(|end| *end <= data.len());
    end.map(|end| position..end).ok_or(Broken::ShortData)
}

fn array<const N: usize>(bytes: &[u8], format: &Format<'_, impl Fn(usize) -> Checked>) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    format.ordered(&mut array);
    array
}

fn integer(bytes: &[u8], is_big_endian: bool, is_signed: bool) -> f64 {
    let value = word(bytes, is_big_endian);
    if !is_signed {
        return value as f64;
    }
    // A shift by more than 63 is one by its lowest six bits.
    let sign = u64::MAX.wrapping_shl((bytes.len() as u32 * 8).wrapping_sub(1));
    let value = if value & sign == 0 { value } else { value | sign };
    value as i64 as f64
}

/// The lowest 64 bits of an integer.
fn word(bytes: &[u8], is_big_endian: bool) -> u64 {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return u64::from(if is_big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) });
    }
    let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if is_big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) }
}

fn size(call: &Call<'_>) -> Result<f64> {
    let text = call.string(1)?;
    let letters = text.as_bytes();
    let size = sized(&mut Format::new(&letters, |steps| call.charge(steps)));
    size.map(|size| size as f64).map_err(|broken| broken.said_by(call))
}

/// `size`; `None` where the argument is not as it should be.
pub(super) fn size_shortly(arguments: &Arguments<'_>) -> Option<Part> {
    let mut format = Format::new(arguments.text(1)?, |steps| arguments.meter.charge(steps));
    sized(&mut format).ok().map(|size| Part::Number(size as f64))
}

fn sized(format: &mut Format<'_, impl Fn(usize) -> Checked>) -> Done<usize> {
    let mut position: usize = 0;
    while let Some(item) = format.next(position)? {
        position += usize::from(item.padding);
        match item.letter {
            b's' => return Err(Broken::NoFixedSize("s")),
            b'c' if item.size == 0 => return Err(Broken::NoFixedSize("c0")),
            letter if !letter.is_ascii_alphanumeric() => format.control(letter)?,
            _ => {}
        }
        position = position.saturating_add(item.size as usize);
    }
    Ok(position)
}
