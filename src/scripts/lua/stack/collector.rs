//! `collectgarbage`: a script may collect and count, and not choose the collector's pace.
//!
//! Rule    as for the stack: Lua's errors pass this function, so that nothing in it has a destructor.
//! Source  Lua 5.1 `lbaselib.c`.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr;

use mlua::{ffi, lua_State};

use super::direct::{Meter, Own};

/// What there is to ask for, in the order of [`NAMES`].
const COLLECT: c_int = 0;
const COUNT: c_int = 1;
const STEP: c_int = 2;
const STOP: c_int = 3;
const RESTART: c_int = 4;

struct Names([*const c_char; 8]);

// SAFETY: they point to what never changes.
unsafe impl Sync for Names {}

static NAMES: Names = Names([
    c"collect".as_ptr(),
    c"count".as_ptr(),
    c"step".as_ptr(),
    c"stop".as_ptr(),
    c"restart".as_ptr(),
    c"setpause".as_ptr(),
    c"setstepmul".as_ptr(),
    ptr::null(),
]);

/// What Lua collects with unless it is told otherwise: the pause, and how much a step does, in per cent.
const PACE: f64 = 200.0;

/// `collectgarbage`. What may not go on, `slow` stops.
pub(super) unsafe extern "C-unwind" fn collecting(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `Own::make` and room for a value. The names end with none.
    unsafe {
        let asked = ffi::luaL_checkoption(state, 1, c"collect".as_ptr(), NAMES.0.as_ptr());
        ffi::luaL_optnumber(state, 2, 0.0);
        let kilobytes = ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0);
        if asked == COLLECT && Meter(state).charge(kilobytes as usize).is_err() {
            return Own::leave(state);
        }
        match asked {
            COLLECT => ffi::lua_pushnumber(state, f64::from(ffi::lua_gc(state, ffi::LUA_GCCOLLECT, 0))),
            COUNT => {
                let bytes = ffi::lua_gc(state, ffi::LUA_GCCOUNTB, 0);
                ffi::lua_pushnumber(state, f64::from(kilobytes) + f64::from(bytes) / 1024.0);
            }
            STEP => ffi::lua_pushboolean(state, 0),
            STOP | RESTART => ffi::lua_pushnumber(state, 0.0),
            _ => ffi::lua_pushnumber(state, PACE),
        }
    }
    1
}
