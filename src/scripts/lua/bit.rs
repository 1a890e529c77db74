//! The library `bit`: operations on 32 bits.
//!
//! Source  Lua BitOp 1.0.2, as Redis 7.0 has it: numbers wrap around modulo 2^32, results are signed.

use std::sync::Arc;

use mlua::{Lua, LuaString, Result, Table};
use smallvec::SmallVec;

use super::auxiliary::{Call, Library, to_number};
use super::budget::Budget;
use super::stack;

/// The table `bit`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    library.add("tobit", |call| Ok(signed(word(call, 1)?)))?;
    library.add("bnot", |call| Ok(signed(!word(call, 1)?)))?;
    library.add("bswap", |call| Ok(signed(word(call, 1)?.swap_bytes())))?;
    add(&library, "band", fold, |left, right| left & right)?;
    add(&library, "bor", fold, |left, right| left | right)?;
    add(&library, "bxor", fold, |left, right| left ^ right)?;
    // Of the second word the lowest five bits count.
    add(&library, "lshift", shift, u32::wrapping_shl)?;
    add(&library, "rshift", shift, u32::wrapping_shr)?;
    add(&library, "arshift", shift, |word, by| (word as i32).wrapping_shr(by) as u32)?;
    add(&library, "rol", shift, u32::rotate_left)?;
    add(&library, "ror", shift, u32::rotate_right)?;
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

/// Adds a function that makes one word of two, and is called as `call` says.
fn add<C>(library: &Library<'_>, name: &str, call: fn(&Call<'_>, C) -> Result<f64>, combine: C) -> Result<()>
where
    C: Fn(u32, u32) -> u32 + Copy + Send + 'static,
{
    library.add(name, move |given| call(given, combine))?;
    let slow = library.table.raw_get(name)?;
    library.table.raw_set(name, stack::words(library.lua, &slow, combine)?)
}

fn fold(call: &Call<'_>, combine: impl Fn(u32, u32) -> u32) -> Result<f64> {
    let mut result = word(call, 1)?;
    // From the last one on, which decides whose error is told.
    for at in (2..=call.len()).rev() {
        result = combine(result, word(call, at)?);
    }
    Ok(signed(result))
}

fn shift(call: &Call<'_>, shift: impl Fn(u32, u32) -> u32) -> Result<f64> {
    let number = word(call, 1)?;
    Ok(signed(shift(number, word(call, 2)?)))
}

/// The last digits in hexadecimal: eight, or as many as asked for.
fn tohex(call: &Call<'_>) -> Result<LuaString> {
    let number = word(call, 1)?;
    let count = if call.len() < 2 { HEX_DIGITS } else { word(call, 2)? as i32 };
    call.lua.create_string(hex(number, count))
}

/// Digits of a word in hexadecimal.
pub(super) const HEX_DIGITS: i32 = 8;

/// The last `count` digits of a word, all of them at most; in capitals for a negative number of digits.
pub(super) fn hex(word: u32, count: i32) -> SmallVec<[u8; HEX_DIGITS as usize]> {
    let digits = if count < 0 { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let count = count.unsigned_abs().min(HEX_DIGITS as u32);
    (0..count).rev().map(|place| digits[(word >> (4 * place)) as usize & 0xf]).collect()
}
