//! `math.random` as Redis has it: one sequence that all scripts draw from, the same in every server.
//!
//! Source  POSIX `drand48`: a linear congruential sequence of 48 bits; Redis 7.0 `script_lua.c` for what is made of it.

use std::sync::Arc;

use mlua::{Lua, Result, Table};
use parking_lot::Mutex;

use super::args::{Call, Library};
use super::budget::Budget;

/// The state of the sequence.
struct Sequence(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// Where the sequence begins before it is seeded.
const UNSEEDED: u64 = 0x1234_ABCD_330E;
/// The low bits of a state that has just been seeded.
const SEED_LOW: u64 = 0x330E;
const DRAW_MAX: i32 = i32::MAX;

/// Puts both functions into `math`.
pub(super) fn install(lua: &Lua, math: &Table, budget: &Arc<Budget>) -> Result<()> {
    let library = Library::new(lua, budget)?;
    let sequence = Arc::new(Mutex::new(Sequence(UNSEEDED)));
    let own = Arc::clone(&sequence);
    library.add("random", move |call| random(call, &mut own.lock()))?;
    library.add("randomseed", move |call| {
        *sequence.lock() = Sequence(u64::from(call.integer(1)? as i32 as u32) << 16 | SEED_LOW);
        Ok(())
    })?;
    library.table.for_each(|name: mlua::Value, function: mlua::Value| math.raw_set(name, function))
}

fn random(call: &Call<'_>, sequence: &mut Sequence) -> Result<f64> {
    // The sequence goes on before anything is refused.
    let drawn = sequence.draw();
    let (low, high) = match call.len() {
        0 => return Ok(drawn),
        1 => (1, call.integer(1)? as i32),
        2 => (call.integer(1)? as i32, call.integer(2)? as i32),
        _ => return Err(call.error("wrong number of arguments")),
    };
    if low > high {
        return Err(call.bad(call.len(), "interval is empty"));
    }
    let width = high.wrapping_sub(low).wrapping_add(1);
    Ok((drawn * f64::from(width)).floor() + f64::from(low))
}

impl Sequence {
    /// A number from 0 to 1, 1 excluded.
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        let drawn = (self.0 >> 17) as i32 % DRAW_MAX;
        f64::from(drawn) / f64::from(DRAW_MAX)
    }
}
