//! `loadstring` and `load`: what a script makes of text runs in the script's own world, and bytecode is none.
//!
//! Rule    as for the stack: Lua's errors pass these functions, so that nothing in them has a destructor.
//! Source  Lua 5.1 `lbaselib.c`.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use mlua::{Function, Lua, Table, ffi, lua_State};

use super::native::{budget, end, end_without_memory, push_budget};
use crate::scripts::lua::budget::Budget;

/// Both, for chunks that see `globals`.
pub(in super::super) fn compilers(
    lua: &Lua,
    globals: &Table,
    budget: &Arc<Budget>,
) -> mlua::Result<[Function; 2]> {
    let make = |function: ffi::lua_CFunction| {
        // SAFETY: mlua has pushed the table and calls this under protection, onto room for what is pushed. The budget
        // lives as long as the state.
        unsafe {
            lua.exec_raw::<Function>(globals, |state| {
                push_budget(state, budget);
                ffi::lua_pushcclosure(state, function, BUDGET);
            })
        }
    };
    Ok([make(compile_text)?, make(compile_pieces)?])
}

/// The upvalues: what chunks see, and who is charged.
const GLOBALS: c_int = 1;
const BUDGET: c_int = 2;

/// The byte that bytecode begins with. Behind a space it is part of a text, which makes no sense.
const ESCAPE: u8 = 27;

/// `loadstring`
unsafe extern "C-unwind" fn compile_text(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `compilers` and room for what is pushed, which keeps the text.
    unsafe {
        let mut len = 0;
        let mut text = ffi::luaL_checklstring(state, 1, &mut len);
        let name = ffi::luaL_optlstring(state, 2, text, ptr::null_mut());
        if len > 0 && *text == ESCAPE as c_char {
            ffi::lua_pushlstring_(state, c" ".as_ptr(), 1);
            ffi::lua_pushvalue(state, 1);
            ffi::lua_concat(state, 2);
            text = ffi::lua_tolstring(state, -1, &mut len);
        }
        let status = ffi::luaL_loadbuffer(state, text, len, name);
        finish(state, status)
    }
}

/// `load`
unsafe extern "C-unwind" fn compile_pieces(state: *mut lua_State) -> c_int {
    // SAFETY: as above; the third place is that of the piece that is read.
    unsafe {
        let name = ffi::luaL_optlstring(state, 2, c"=(load)".as_ptr(), ptr::null_mut());
        ffi::luaL_checktype(state, 1, ffi::LUA_TFUNCTION);
        ffi::lua_settop(state, PIECE);
        let mut reading = Reading::Begins;
        let status = ffi::lua_load(state, next_piece, ptr::from_mut(&mut reading).cast(), name);
        finish(state, status)
    }
}

/// Where the piece is that is being read.
const PIECE: c_int = 3;

/// Steps that one of them costs, whatever its length.
const STEPS_PER_PIECE: usize = 10;

/// How far the pieces of a text have been read.
enum Reading {
    Begins,
    /// The first piece is there, and has not been read yet.
    Waits,
    GoesOn,
}

/// The next piece, which the function in the first place gives: nothing, or an empty one, is the end.
unsafe extern "C-unwind" fn next_piece(
    state: *mut lua_State,
    reading: *mut c_void,
    len: *mut usize,
) -> *const c_char {
    // SAFETY: `compile_pieces` runs, whose state and `reading` these are. The piece stays where it is until the next one.
    unsafe {
        let reading = &mut *reading.cast::<Reading>();
        if matches!(reading, Reading::Waits) {
            *reading = Reading::GoesOn;
            return ffi::lua_tolstring(state, PIECE, len);
        }
        ffi::luaL_checkstack(state, 2, c"too many nested functions".as_ptr());
        ffi::lua_pushvalue(state, 1);
        ffi::lua_call(state, 0, 1);
        if ffi::lua_type(state, -1) == ffi::LUA_TNIL {
            *len = 0;
            return ptr::null();
        }
        if ffi::lua_isstring(state, -1) == 0 {
            ffi::luaL_error(state, c"reader function must return a string".as_ptr());
        }
        ffi::lua_replace(state, PIECE);
        let piece = ffi::lua_tolstring(state, PIECE, len);
        // Nobody else sees how long it takes where the function is one in C.
        if budget(state, BUDGET).charge(STEPS_PER_PIECE + *len).is_err() {
            end(state);
        }
        if matches!(reading, Reading::Begins) && *len > 0 && *piece == ESCAPE as c_char {
            *reading = Reading::Waits;
            *len = 1;
            return c" ".as_ptr();
        }
        *reading = Reading::GoesOn;
        piece
    }
}

/// What a script gets: the function on top, in its world; or nil, and why there is none.
///
/// # Safety
/// `state` is that of a function of `compilers`, with the function or the error on top and room for another value. An error
/// of Lua passes this.
unsafe fn finish(state: *mut lua_State, status: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        if status == ffi::LUA_OK {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(GLOBALS));
            ffi::lua_setfenv(state, -2);
            return 1;
        }
        if status == ffi::LUA_ERRMEM {
            end_without_memory(state);
        }
        ffi::lua_pushnil(state);
        ffi::lua_insert(state, -2);
        2
    }
}
