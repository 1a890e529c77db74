//! The library `bit`: operations on 32 bits.
//!
//! Source  Lua BitOp 1.0.2, as Redis 7.0 has it: numbers wrap around modulo 2^32, results are signed.

use std::sync::Arc;

use mlua::{Lua, LuaString, Result, Table};

use super::args::{Call, Library};
use super::budget::Budget;

/// The table `bit`.
pub(super) fn install(lua: &Lua, budget: &Arc<Budget>) -> Result<Table> {
    let library = Library::new(lua, budget)?;
    add_change(&library, "tobit", |word| word)?;
    add_change(&library, "bnot", |word| !word)?;
    add_change(&library, "bswap", u32::swap_bytes)?;
    add_fold(&library, "band", |left, right| left & right)?;
    add_fold(&library, "bor", |left, right| left | right)?;
    add_fold(&library, "bxor", |left, right| left ^ right)?;
    // Only the lowest five bits of the second word count.
    add_shift(&library, "lshift", u32::wrapping_shl)?;
    add_shift(&library, "rshift", u32::wrapping_shr)?;
    add_shift(&library, "arshift", |word, by| (word as i32).wrapping_shr(by) as u32)?;
    add_shift(&library, "rol", u32::rotate_left)?;
    add_shift(&library, "ror", u32::rotate_right)?;
    library.add("tohex", tohex)?;
    Ok(library.table)
}

/// Argument `at` as a word: modulo 2^32, rounded to the nearest integer where it has a fraction.
fn word(call: &Call<'_>, at: usize) -> Result<u32> {
    // Adding 2^52 + 2^51 moves the integer's lowest 32 bits to the lowest of the double.
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    Ok((call.number(at)? + MAGIC).to_bits() as u32)
}

/// A word as the number that scripts see.
fn signed(word: u32) -> f64 {
    f64::from(word as i32)
}

/// Adds a function that makes one word of another.
fn add_change(library: &Library<'_>, name: &str, change: fn(u32) -> u32) -> Result<()> {
    library.add(name, move |call| Ok(signed(change(word(call, 1)?))))
}

/// Adds a function that makes one word of all that it is given.
fn add_fold(library: &Library<'_>, name: &str, combine: fn(u32, u32) -> u32) -> Result<()> {
    library.add(name, move |call| {
        let mut result = word(call, 1)?;
        // From the last one on, which decides whose error is told.
        for at in (2..=call.len()).rev() {
            result = combine(result, word(call, at)?);
        }
        Ok(signed(result))
    })
}

/// Adds a function that makes one word of another and of a number of places.
fn add_shift(library: &Library<'_>, name: &str, shift: fn(u32, u32) -> u32) -> Result<()> {
    library.add(name, move |call| Ok(signed(shift(word(call, 1)?, word(call, 2)?))))
}

/// The last digits of a word in hexadecimal: eight, or as many as asked for; in capitals for a negative number of digits.
fn tohex(call: &Call<'_>) -> Result<LuaString> {
    const DIGITS: i32 = 8;
    let word = word(call, 1)?;
    let count = if call.len() < 2 { DIGITS } else { self::word(call, 2)? as i32 };
    let digits = if count < 0 { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    let count = count.unsigned_abs().min(DIGITS as u32);
    let text: Vec<u8> = (0..count).rev().map(|place| digits[(word >> (4 * place)) as usize & 0xf]).collect();
    call.lua.create_string(text)
}
