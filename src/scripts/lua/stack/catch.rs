//! What catches errors, in C: `pcall`, `xpcall`, `coroutine.resume` and what `coroutine.wrap` makes.
//!
//! Rule    what an error is that a script sees, a function says, `passed`, which raises again what no script may catch.
//! Rule    as for the stack: Lua's errors pass these functions, so that nothing in them has a destructor.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use mlua::{Function, Lua, ffi, lua_State};

use super::native::{alone, become_upvalue, budget, is_as_seen, pass, push_address, push_budget};
use crate::scripts::lua::budget::Budget;

/// `pcall` and `xpcall`.
pub(in super::super) fn protections(
    lua: &Lua,
    passed: &Function,
    budget: &Arc<Budget>,
) -> mlua::Result<[Function; 2]> {
    // SAFETY: mlua has pushed what there is and calls these under protection, onto room for what is pushed. The budget lives
    // as long as the state.
    unsafe {
        let protected =
            lua.exec_raw::<Function>(passed, |state| ffi::lua_pushcclosure(state, protected, 1))?;
        let handled = lua.exec_raw::<Function>(passed, |state| {
            ffi::lua_pushvalue(state, 1);
            ffi::lua_pushnil(state);
            push_budget(state, budget);
            ffi::lua_pushcclosure(state, handling, BUDGET);
            push_budget(state, budget);
            ffi::lua_pushcclosure(state, handled, BUDGET);
        })?;
        Ok([protected, handled])
    }
}

/// `coroutine.resume` and `coroutine.wrap`, of Lua's own `create` and `resume`.
pub(in super::super) fn coroutines(
    lua: &Lua,
    passed: &Function,
    own_create: &Function,
    own_resume: &Function,
) -> mlua::Result<[Function; 2]> {
    let make = |function: ffi::lua_CFunction| {
        // SAFETY: as above. Neither of Lua's functions has an upvalue.
        unsafe {
            lua.exec_raw::<Function>((passed, own_resume, own_create), |state| {
                push_address(state, 2);
                ffi::lua_replace(state, RESUME);
                push_address(state, 3);
                ffi::lua_replace(state, CREATE);
                ffi::lua_pushcclosure(state, function, CREATE);
            })
        }
    };
    Ok([make(resumed)?, make(wrapped)?])
}

unsafe extern "C-unwind" fn protected(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue that it was made with, a function, and room for what is pushed: the arguments
    // are gone when there is an error.
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
        if ffi::lua_pcall(state, ffi::lua_gettop(state) - 2, ffi::LUA_MULTRET, 0) != ffi::LUA_OK {
            ffi::lua_pushboolean(state, 0);
            ffi::lua_replace(state, 1);
            see(state);
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

/// The upvalue of [`handled`] that is [`handling`], which is told who handles for as long as the function runs: nothing has
/// to be made for each call. What runs meanwhile and calls this again is over before this is, in whichever thread of Lua.
const HANDLING: c_int = 2;
/// The upvalue of [`handling`] that is the handler.
const HANDLER: c_int = 2;
/// The upvalue of both that knows whether the script has been stopped.
const BUDGET: c_int = 3;

unsafe extern "C-unwind" fn handled(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `protections` and room for what is pushed. No error passes between the two
    // changes of the handler.
    unsafe {
        ffi::luaL_checkany(state, 2);
        ffi::lua_settop(state, 2);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(HANDLING));
        ffi::lua_insert(state, 1);
        ffi::lua_getupvalue(state, 1, HANDLER);
        ffi::lua_insert(state, 2);
        ffi::lua_setupvalue(state, 1, HANDLER);
        let status = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1);
        ffi::lua_pushvalue(state, 2);
        ffi::lua_setupvalue(state, 1, HANDLER);
        // Who has handled an error has seen it already. Nobody is asked about an end of the memory.
        let is_seen = status == ffi::LUA_OK || status == ffi::LUA_ERRRUN && !is_stopped(state);
        if !is_seen {
            pass(state);
        }
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_replace(state, 2);
        ffi::lua_gettop(state) - 1
    }
}

unsafe extern "C-unwind" fn handling(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this with an error, and with room for what is pushed.
    unsafe {
        ffi::lua_settop(state, 1);
        if is_stopped(state) || !is_as_seen(state) {
            pass(state);
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(HANDLER));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, 1, 1);
        1
    }
}

/// Whether the script has been stopped.
///
/// # Safety
/// `state` is that of a function of [`protections`] that has [`BUDGET`].
unsafe fn is_stopped(state: *mut lua_State) -> bool {
    // SAFETY: as the caller says.
    unsafe { budget(state, BUDGET).stopped().is_some() }
}

/// The upvalues of what handles coroutines, behind `passed`: the addresses of Lua's own functions, and of what is wrapped its
/// coroutine.
const RESUME: c_int = 2;
const CREATE: c_int = 3;
const COROUTINE: c_int = 3;

/// `coroutine.resume`
unsafe extern "C-unwind" fn resumed(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `coroutines` and room for what is pushed.
    unsafe {
        let results = become_upvalue(state, RESUME);
        if ffi::lua_toboolean(state, -results) == 0 {
            see(state);
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
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
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
        see(state);
        if ffi::lua_isstring(state, -1) != 0 {
            ffi::luaL_where(state, 1);
            ffi::lua_insert(state, -2);
            ffi::lua_concat(state, 2);
        }
        ffi::lua_error(state)
    }
}

/// Puts what a script sees of the error on top in its place.
///
/// # Safety
/// As for [`pass`].
unsafe fn see(state: *mut lua_State) {
    // SAFETY: as the caller says.
    unsafe {
        if !is_as_seen(state) {
            pass(state);
        }
    }
}
