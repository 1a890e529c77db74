//! The library `bit`: operations on 32 bits.
//!
//! Source  Lua BitOp 1.0.2, as Redis 7.0 has it: numbers wrap around modulo 2^32, results are signed.

use std::sync::Arc;

use mlua::{Lua, LuaString, Result, Table};

use super::auxiliary::{Call, Library, to_number};
use super::budget::Budget;
use super::stack::{self, Arguments, Direct, Room};

/// The table `bit`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    add_change(&library, "tobit", |word| word)?;
    add_change(&library, "bnot", |word| !word)?;
    add_change(&library, "bswap", u32::swap_bytes)?;
    add_fold(&library, "band", |left, right| left & right)?;
    add_fold(&library, "bor", |left, right| left | right)?;
    add_fold(&library, "bxor", |left, right| left ^ right)?;
    // Of the second word the lowest five bits count.
    add_shift(&library, "lshift", u32::wrapping_shl)?;
    add_shift(&library, "rshift", u32::wrapping_shr)?;
    add_shift(&library, "arshift", |word, by| (word as i32).wrapping_shr(by) as u32)?;
    add_shift(&library, "rol", u32::rotate_left)?;
    add_shift(&library, "ror", u32::rotate_right)?;
    library.add("tohex", tohex)?;
    Ok(library.table)
}

/// Argument `at` as a word.
fn word(call: &Call<'_>, at: usize) -> Result<u32> {
    to_number(call.lua, call.value(at)).map(low_word).ok_or_else(|| call.wrong_type(at, "number"))
}

/// A number modulo 2^32, rounded to the nearest integer where it has a fraction.
pub(super) fn low_word(number: f64) -> u32 {
    // Adding 2^52 + 2^51 moves the integer's lowest 32 bits to the lowest of the double.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    (number + MAGIC).to_bits() as u32
}

/// A word as the number that scripts see.
pub(super) fn signed(word: u32) -> f64 {
    f64::from(word as i32)
}

/// Adds a function that answers by itself, and otherwise as `call` says.
fn add<C>(library: &Library<'_>, name: &str, call: C, direct: Direct) -> Result<()>
where
    C: Fn(&Call<'_>) -> Result<f64> + Send + 'static,
{
    library.add(name, call)?;
    let slow = library.table.raw_get(name)?;
    library.table.raw_set(name, stack::direct(library.lua, &slow, direct)?)
}

/// Adds a function that makes one word of another.
fn add_change<C>(library: &Library<'_>, name: &str, change: C) -> Result<()>
where
    C: Fn(u32) -> u32 + Copy + Send + 'static,
{
    add(library, name, move |call| Ok(signed(change(word(call, 1)?))), Direct::word(change))
}

/// Adds a function that makes one word of all that it is given.
fn add_fold<C>(library: &Library<'_>, name: &str, combine: C) -> Result<()>
where
    C: Fn(u32, u32) -> u32 + Copy + Send + 'static,
{
    add(library, name, move |call| fold(call, combine), Direct::fold(combine))
}

/// Adds a function that makes one word of another and of a number of places.
fn add_shift<C>(library: &Library<'_>, name: &str, shift: C) -> Result<()>
where
    C: Fn(u32, u32) -> u32 + Copy + Send + 'static,
{
    let slow = move |call: &Call<'_>| Ok(signed(shift(word(call, 1)?, word(call, 2)?)));
    add(library, name, slow, Direct::words(shift))
}

fn fold(call: &Call<'_>, combine: impl Fn(u32, u32) -> u32) -> Result<f64> {
    let mut result = word(call, 1)?;
    // From the last one on, which decides whose error is told.
    for at in (2..=call.len()).rev() {
        result = combine(result, word(call, at)?);
    }
    Ok(signed(result))
}

/// The last digits in hexadecimal: eight, or as many as asked for.
fn tohex(call: &Call<'_>) -> Result<LuaString> {
    let number = word(call, 1)?;
    let count = if call.len() < 2 { HEX_DIGITS } else { word(call, 2)? as i32 };
    call.lua.create_string(hex(number, count).collect::<Vec<_>>())
}

/// `tohex`, into the room; `None` where the arguments are not as they should be.
pub(super) fn tohex_shortly(arguments: &Arguments<'_>, room: &mut Room) -> Option<()> {
    let number = low_word(arguments.number(1)?);
    let count = if arguments.len() < 2 { HEX_DIGITS } else { low_word(arguments.number(2)?) as i32 };
    room.extend(hex(number, count));
    Some(())
}

/// Digits of a word in hexadecimal.
const HEX_DIGITS: i32 = 8;

/// The last `count` digits of a word, all of them at most; in capitals for a negative number of digits.
fn hex(word: u32, count: i32) -> impl Iterator<Item = u8> {
    let digits = if count < 0 { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let count = count.unsigned_abs().min(HEX_DIGITS as u32);
    (0..count).rev().map(move |place| digits[(word >> (4 * place)) as usize & 0xf])
}
