//! Functions that need nothing of a script: constants, and `tostring` of what has no metatable of its own.
//!
//! Rule    as for the stack: Lua's errors pass these functions, so that nothing in them has a destructor.
//! Source  Lua 5.1 `lbaselib.c`.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use mlua::{Function, Lua, ffi, lua_State};

use super::native::{become_upvalue, function, push_address};

/// A function that gives the same whatever it is given, or nothing.
///
/// # Errors
/// Where Lua has no room for it.
pub(in super::super) fn constant(lua: &Lua, value: Option<bool>) -> mlua::Result<Function> {
    unsafe extern "C-unwind" fn given<const VALUE: bool>(state: *mut lua_State) -> c_int {
        // SAFETY: Lua calls this, with room for a value.
        unsafe { ffi::lua_pushboolean(state, c_int::from(VALUE)) };
        1
    }
    unsafe extern "C-unwind" fn nothing(_: *mut lua_State) -> c_int {
        0
    }
    match value {
        Some(true) => function(lua, given::<true>),
        Some(false) => function(lua, given::<false>),
        None => function(lua, nothing),
    }
}

/// `tostring`, and `own`, Lua's, for values that may say themselves what they are called.
///
/// # Errors
/// As [`constant`].
pub(in super::super) fn to_string(lua: &Lua, own: &Function) -> mlua::Result<Function> {
    // SAFETY: mlua has pushed the function and calls this under protection, onto room for a value.
    unsafe {
        lua.exec_raw(own, |state| {
            push_address(state, 1);
            ffi::lua_pushcclosure(state, shown, ADDRESS);
        })
    }
}

/// The upvalue of [`shown`] that is the address of Lua's own function, which has none.
const ADDRESS: c_int = 1;

unsafe extern "C-unwind" fn shown(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue of `to_string`. A number becomes its text where it is.
    unsafe {
        if ffi::lua_isstring(state, 1) == 0 {
            return become_upvalue(state, ADDRESS);
        }
        ffi::lua_tolstring(state, 1, ptr::null_mut());
        ffi::lua_settop(state, 1);
    }
    1
}
