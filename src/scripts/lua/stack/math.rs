//! `math.random` as Redis has it, one sequence that all scripts draw from, the same in every server; and `math.fmod`, which
//! needs no division of doubles for what are integers.
//!
//! Rule    as for the stack: Lua's errors pass these functions, so that nothing in them has a destructor.
//! Source  POSIX `drand48`: a linear congruential sequence of 48 bits; Redis 7.0 `script_lua.c` for what is made of it.
#![allow(unsafe_code)]

use std::ffi::c_int;

use mlua::{Function, Lua, Table, ffi, lua_State};

use super::native::function;
use crate::scripts::lua::auxiliary::c_long;

/// The state of the sequence.
#[derive(Clone, Copy)]
struct Sequence(u64);

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const MASK: u64 = (1 << 48) - 1;
/// Where the sequence begins that nobody has seeded.
const UNSEEDED: Sequence = Sequence(0x1234_ABCD_330E);
/// What fills the low bits of a state that has been seeded.
const SEED_LOW: u64 = 0x330E;
/// The largest number drawn.
const DRAW_MAX: i32 = i32::MAX;

impl Sequence {
    fn seeded(seed: i32) -> Self {
        Self(u64::from(seed as u32) << 16 | SEED_LOW)
    }

    /// A number from 0 to 1, 1 excluded.
    fn draw(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        let drawn = (self.0 >> 17) as i32 % DRAW_MAX;
        f64::from(drawn) / f64::from(DRAW_MAX)
    }
}

/// A number from 0 to 1 as an integer from `low` to `high`.
fn between(drawn: f64, low: i32, high: i32) -> f64 {
    let width = high.wrapping_sub(low).wrapping_add(1);
    (drawn * f64::from(width)).floor() + f64::from(low)
}

/// Puts them into `math`, with a sequence of their own.
pub(in super::super) fn install_math(lua: &Lua, math: &Table) -> mlua::Result<()> {
    // SAFETY: mlua calls this under protection, onto room for what is pushed. What Lua has made for a sequence is large
    // enough and aligned, is written before anybody looks, and needs no drop.
    let (random, seed): (Function, Function) = unsafe {
        lua.exec_raw((), |state| {
            ffi::lua_newuserdata(state, size_of::<Sequence>()).cast::<Sequence>().write(UNSEEDED);
            ffi::lua_pushvalue(state, 1);
            ffi::lua_pushcclosure(state, drawn, 1);
            ffi::lua_insert(state, 1);
            ffi::lua_pushcclosure(state, seeded, 1);
        })?
    };
    math.raw_set("random", random)?;
    math.raw_set("randomseed", seed)?;
    let fmod = function(lua, fmod)?;
    math.raw_set("fmod", &fmod)?;
    // Its name in Lua 5.0.
    math.raw_set("mod", fmod)
}

/// That of the function that runs.
///
/// # Safety
/// `state` is that of a function that [`random`] has made. The reference ends before another one begins.
unsafe fn sequence<'s>(state: *mut lua_State) -> &'s mut Sequence {
    // SAFETY: `random` has put it there, and Lua keeps it while its function runs.
    unsafe { &mut *ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast() }
}

/// Argument `at` as C's `int`, which keeps the low bits.
///
/// # Safety
/// `state` is that of a function of Lua in C that runs. An error of Lua passes this.
unsafe fn integer(state: *mut lua_State, at: c_int) -> i32 {
    // SAFETY: as the caller says.
    unsafe { c_long(ffi::luaL_checknumber(state, at)) as i32 }
}

unsafe extern "C-unwind" fn drawn(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue of `random` and room for a value.
    unsafe {
        // The sequence goes on before anything is refused.
        let drawn = sequence(state).draw();
        let arguments = ffi::lua_gettop(state);
        let number = match arguments {
            0 => drawn,
            1 | 2 => {
                let low = if arguments == 1 { 1 } else { integer(state, 1) };
                let high = integer(state, arguments);
                if low > high {
                    ffi::luaL_argerror(state, arguments, c"interval is empty".as_ptr());
                }
                between(drawn, low, high)
            }
            _ => return ffi::luaL_error(state, c"wrong number of arguments".as_ptr()),
        };
        ffi::lua_pushnumber(state, number);
    }
    1
}

unsafe extern "C-unwind" fn seeded(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let seed = integer(state, 1);
        *sequence(state) = Sequence::seeded(seed);
    }
    0
}

/// `math.fmod`
unsafe extern "C-unwind" fn fmod(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with room for a value. The second argument is looked at first, as by a C compiler's `fmod`.
    unsafe {
        let divisor = ffi::luaL_checknumber(state, 2);
        ffi::lua_pushnumber(state, remainder(ffi::luaL_checknumber(state, 1), divisor));
    }
    1
}

/// What is left of `number`, with its sign, when `divisor` has been taken away from it as often as it is in there.
fn remainder(number: f64, divisor: f64) -> f64 {
    let [whole, by] = [number, divisor].map(|number| number as i32);
    let are_whole = f64::from(whole) == number && f64::from(by) == divisor;
    match whole.checked_rem(by).filter(|_| are_whole) {
        Some(left) => f64::from(left).copysign(number),
        None => number % divisor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_an_integer_is_what_is_left_of_the_double() {
        let numbers =
            [0.0, 1.0, 3.0, 6.0, 7.0, 2_147_483_647.0, 2_147_483_648.0, 0.5, 1e300, f64::INFINITY, f64::NAN];
        let signed = || numbers.into_iter().flat_map(|number| [number, -number]);
        for (number, divisor) in signed().flat_map(|number| signed().map(move |divisor| (number, divisor))) {
            let (left, expected) = (remainder(number, divisor), number % divisor);
            let are_none = left.is_nan() && expected.is_nan();
            assert!(are_none || left.to_bits() == expected.to_bits(), "{number} {divisor}: {left}");
        }
    }
}
