//! What catches errors, in C: `pcall`, `xpcall`, `coroutine.resume` and what `coroutine.wrap` makes.
//!
//! Rule    the end of a script, which looks like a want of memory, is not caught: it is raised again.
//! Rule    as for the stack: Lua's errors pass these functions, so that nothing in them has a destructor.
//! Source  Lua 5.1 `lbaselib.c`.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr;

use mlua::{Function, Lua, ffi, lua_State};

use super::native::{alone, become_upvalue, end_without_memory, function, push_address};
use crate::scripts::lua::fault::OUT_OF_MEMORY;

/// `pcall` and `xpcall`.
pub(in super::super) fn protections(lua: &Lua) -> mlua::Result<[Function; 2]> {
    Ok([function(lua, protected)?, function(lua, handled)?])
}

/// `coroutine.resume` and `coroutine.wrap`, of Lua's own `create` and `resume`.
pub(in super::super) fn coroutines(
    lua: &Lua,
    own_create: &Function,
    own_resume: &Function,
) -> mlua::Result<[Function; 2]> {
    let make = |function: ffi::lua_CFunction| {
        // SAFETY: mlua has pushed both and calls this under protection, onto room for what is pushed. Neither of Lua's
        // functions has an upvalue.
        unsafe {
            lua.exec_raw::<Function>((own_resume, own_create), |state| {
                push_address(state, 1);
                push_address(state, 2);
                ffi::lua_pushcclosure(state, function, CREATE);
                alone(state);
            })
        }
    };
    Ok([make(resumed)?, make(wrapped)?])
}

unsafe extern "C-unwind" fn protected(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with room for what is pushed: the arguments are gone when there is an error.
    unsafe {
        if ffi::lua_gettop(state) == 0 {
            // Redis calls what it has put on the stack itself.
            ffi::lua_pushboolean(state, 0);
            ffi::lua_pushstring_(state, c"attempt to call a boolean value".as_ptr());
            return 2;
        }
        // Below all results, beside which there may be no room.
        ffi::lua_pushboolean(state, 1);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, ffi::lua_gettop(state) - 2, ffi::LUA_MULTRET, 0);
        if status != ffi::LUA_OK {
            look_at(state, status);
            ffi::lua_pushboolean(state, 0);
            ffi::lua_replace(state, 1);
            if ffi::lua_type(state, -1) == ffi::LUA_TTABLE {
                // Of an error reply a script sees the text. Where that is none, Redis leaves it behind the table.
                ffi::lua_getfield(state, -1, c"err".as_ptr());
                if ffi::lua_isstring(state, -1) != 0 {
                    ffi::lua_replace(state, -2);
                }
            }
        }
        ffi::lua_gettop(state)
    }
}

unsafe extern "C-unwind" fn handled(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_insert(state, 1);
        let status = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        look_at(state, status);
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_replace(state, 1);
        ffi::lua_gettop(state)
    }
}

/// Ends the script where that is what has been caught.
///
/// # Safety
/// `state` is that of a function here. An error of Lua passes this.
unsafe fn look_at(state: *mut lua_State, status: c_int) {
    if status == ffi::LUA_ERRMEM {
        // SAFETY: as the caller says.
        unsafe { end_without_memory(state) }
    }
}

/// Ends the script where that is what has ended a coroutine, just now: of one that has ended before, Lua says something else.
///
/// # Safety
/// As for [`look_at`], with what Lua says of the coroutine on top.
unsafe fn look_at_coroutine(state: *mut lua_State, at: c_int) {
    // SAFETY: as the caller says. Only strings are read, which stay where they are.
    unsafe {
        let status = ffi::lua_status(ffi::lua_tothread(state, at));
        if ffi::lua_type(state, -1) == ffi::LUA_TSTRING
            && CStr::from_ptr(ffi::lua_tolstring(state, -1, ptr::null_mut())).to_bytes()
                == OUT_OF_MEMORY.as_bytes()
        {
            look_at(state, status);
        }
    }
}

/// The upvalues of what handles coroutines: the addresses of Lua's own functions, and of what is wrapped its coroutine.
const RESUME: c_int = 1;
const CREATE: c_int = 2;
const COROUTINE: c_int = 2;

/// `coroutine.resume`
unsafe extern "C-unwind" fn resumed(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `coroutines` and room for what is pushed.
    unsafe {
        let results = become_upvalue(state, RESUME);
        if ffi::lua_toboolean(state, -results) == 0 {
            look_at_coroutine(state, 1);
        }
        results
    }
}

/// `coroutine.wrap`
unsafe extern "C-unwind" fn wrapped(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        become_upvalue(state, CREATE);
        alone(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(RESUME));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushcclosure(state, carried_on, COROUTINE);
        1
    }
}

/// What `coroutine.wrap` makes.
unsafe extern "C-unwind" fn carried_on(state: *mut lua_State) -> c_int {
    // SAFETY: as above, with the upvalues of `wrapped`.
    unsafe {
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(COROUTINE));
        ffi::lua_insert(state, 1);
        let results = become_upvalue(state, RESUME);
        if ffi::lua_toboolean(state, -results) != 0 {
            return results - 1;
        }
        look_at_coroutine(state, ffi::lua_upvalueindex(COROUTINE));
        if ffi::lua_isstring(state, -1) != 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_insert(state, -2);
            ffi::lua_concat(state, 2);
        }
        ffi::lua_error(state)
    }
}
