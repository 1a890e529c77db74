//! Lua's collector: its pace, and `collectgarbage`, with which a script may collect and count, and not choose that.
//!
//! Owns    the pace. While a state is small, each collection is a whole one: as much work in all as in steps, none of it
//!         between two collections, and what a script asks for is one more, not the rest of another and then one.
//! Rule    as for the stack: Lua's errors pass this function, so that nothing in it has a destructor.
//! Source  Lua 5.1 `lbaselib.c`.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::Arc;

use mlua::{Function, Lua, ffi, lua_State};

use super::Stack;
use super::native::{budget, end, push_budget};
use crate::scripts::lua::budget::Budget;

/// How much a step does of what was made since the last one, in per cent, where Lua is not told otherwise.
const STEP_PERCENT: c_int = 200;
/// What Lua takes for no end: a step is a whole collection.
const WHOLE: c_int = 0;
/// What there is when the next collection begins, of what there was after the last one, in per cent: as Lua has it, and as
/// much as steps have let it grow to when they are done.
const PAUSE_PERCENT: c_int = 200;
const WHOLE_PAUSE_PERCENT: c_int = 300;

impl Stack<'_> {
    /// Bytes that the state holds, with what is missing to a full kilobyte.
    pub(in super::super) fn used_bytes(&self) -> usize {
        // SAFETY: the state lives, and this only tells.
        let kilobytes = unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOUNT, 0) };
        (kilobytes as usize + 1) * 1024
    }

    /// Frees what nobody can reach.
    pub(in super::super) fn collect(&mut self) {
        // SAFETY: the state lives. No finaliser of a script's own exists, and those of mlua's raise nothing.
        unsafe { ffi::lua_gc(self.state, ffi::LUA_GCCOLLECT, 0) };
    }

    /// Has Lua collect in steps, or all at once each time.
    pub(in super::super) fn collect_in_steps(&mut self, is_so: bool) {
        // SAFETY: as above. A step that has no end ends the collection that has begun.
        unsafe {
            let (step, pause) = match is_so {
                true => (STEP_PERCENT, PAUSE_PERCENT),
                false => (WHOLE, WHOLE_PAUSE_PERCENT),
            };
            ffi::lua_gc(self.state, ffi::LUA_GCSETSTEPMUL, step);
            ffi::lua_gc(self.state, ffi::LUA_GCSETPAUSE, pause);
            if !is_so {
                ffi::lua_gc(self.state, ffi::LUA_GCSTEP, 0);
            }
        }
    }
}

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

/// What a script is told of the pace: what both of its numbers are in Lua, in per cent.
const PACE: f64 = 200.0;

/// `collectgarbage`, charged to `budget`.
pub(in super::super) fn collector(lua: &Lua, budget: &Arc<Budget>) -> mlua::Result<Function> {
    // SAFETY: under the protection of mlua, onto room for a value. The budget lives as long as the state.
    unsafe {
        lua.exec_raw((), |state| {
            push_budget(state, budget);
            ffi::lua_pushcclosure(state, collecting, BUDGET);
        })
    }
}

/// The upvalue of [`collecting`] that is charged.
const BUDGET: c_int = 1;

unsafe extern "C-unwind" fn collecting(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue of `collector` and room for a value. The names end with none.
    unsafe {
        let asked = ffi::luaL_checkoption(state, 1, c"collect".as_ptr(), NAMES.0.as_ptr());
        ffi::luaL_optnumber(state, 2, 0.0);
        let kilobytes = ffi::lua_gc(state, ffi::LUA_GCCOUNT, 0);
        let budget = budget(state, BUDGET);
        if asked == COLLECT && budget.charge(kilobytes as usize).is_err() {
            end(state);
        }
        match asked {
            COLLECT => {
                let is_whole = !budget.collects_in_steps();
                ffi::lua_gc(state, if is_whole { ffi::LUA_GCSTEP } else { ffi::LUA_GCCOLLECT }, 0);
                ffi::lua_pushnumber(state, 0.0);
            }
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
