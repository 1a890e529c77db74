//! `math.random` as Redis has it: one sequence that all scripts draw from, the same in every server.
//!
//! Source  POSIX `drand48`: a linear congruential sequence of 48 bits; Redis 7.0 `script_lua.c` for what is made of it.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use mlua::{Lua, Table, Value};

use super::calls::Server;
use super::fault::{bad_argument, raised};
use super::stack::Stack;

/// The state of the sequence.
#[derive(Debug)]
pub(super) struct Random(AtomicU64);

impl Default for Random {
    fn default() -> Self {
        Self(AtomicU64::new(UNSEEDED))
    }
}

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// Where the sequence begins that nobody has seeded.
const UNSEEDED: u64 = 0x1234_ABCD_330E;
/// What fills the low bits of a state that has been seeded.
const SEED_LOW: u64 = 0x330E;
/// The largest number drawn.
const DRAW_MAX: i32 = i32::MAX;

impl Random {
    /// Starts anew from a seed.
    pub(super) fn seed(&self, seed: i32) {
        self.0.store(u64::from(seed as u32) << 16 | SEED_LOW, Relaxed);
    }

    /// A number from 0 to 1, 1 excluded.
    fn draw(&self) -> f64 {
        let state = self.0.load(Relaxed).wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        self.0.store(state, Relaxed);
        let drawn = (state >> 17) as i32 % DRAW_MAX;
        f64::from(drawn) / f64::from(DRAW_MAX)
    }
}

/// Puts `random` and `randomseed` into `math`.
pub(super) fn install(lua: &Lua, math: &Table, random: &Arc<Random>) -> mlua::Result<()> {
    let own = Arc::clone(random);
    let draw = move |lua: &Lua, args: mlua::MultiValue| {
        // The sequence goes on before anything is refused.
        let drawn = own.draw();
        let (low, high) = match args.len() {
            0 => return Ok(drawn),
            1 => (1, integer(lua, args.front(), 1)?),
            2 => (integer(lua, args.front(), 1)?, integer(lua, args.get(1), 2)?),
            _ => return Err(raised(lua, "wrong number of arguments")),
        };
        if low > high {
            return Err(bad_argument(lua, args.len(), "interval is empty"));
        }
        Ok(between(drawn, low, high))
    };
    math.raw_set("random", lua.create_function(draw)?)?;
    let own = Arc::clone(random);
    let seed = move |lua: &Lua, seed: Option<Value>| {
        own.seed(integer(lua, seed.as_ref(), 1)?);
        Ok(())
    };
    math.raw_set("randomseed", lua.create_function(seed)?)
}

/// A number from 0 to 1 as an integer from `low` to `high`.
fn between(drawn: f64, low: i32, high: i32) -> f64 {
    let width = high.wrapping_sub(low).wrapping_add(1);
    (drawn * f64::from(width)).floor() + f64::from(low)
}

/// `random`, above its arguments on the stack; `None` where these are not as they should be.
pub(super) fn drawn(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let integer = |at| stack.as_number(at).map(c_int_of);
    let interval = match stack.len() {
        0 => None,
        1 => Some((1, integer(1)?)),
        2 => Some((integer(1)?, integer(2)?)),
        _ => return None,
    };
    let random = &server.shared.random;
    let number = match interval {
        None => random.draw(),
        Some((low, high)) if low <= high => between(random.draw(), low, high),
        Some(_) => return None,
    };
    stack.push_number(number);
    Some(1)
}

/// `randomseed`, in the same way.
pub(super) fn seeded(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let seed = if stack.len() == 1 { stack.as_number(1)? } else { return None };
    server.shared.random.seed(c_int_of(seed));
    Some(0)
}

/// C's conversion, which keeps the low bits.
fn c_int_of(number: f64) -> i32 {
    number as i64 as i32
}

fn integer(lua: &Lua, value: Option<&Value>, number: usize) -> mlua::Result<i32> {
    let given = value.map_or("no value", Value::type_name);
    let found = value.and_then(|value| lua.coerce_number(value.clone()).transpose()).transpose()?;
    match found {
        Some(found) => Ok(c_int_of(found)),
        None => Err(bad_argument(lua, number, &format!("number expected, got {given}"))),
    }
}
