//! `string.gmatch`: a function that makes functions, each with a place in a text.
//!
//! Rule    as for [`super::native`].
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use mlua::{Function, Lua, ffi, lua_State};

use super::Port;
use super::native::{alone, become_upvalue, push_address};

/// Where a function that goes through a text has the text, what is looked for, and how far it is.
const STATE: std::ops::RangeInclusive<c_int> = 5..=7;

impl Port {
    /// A function of Lua that makes, of a text and what is looked for there, a function that gives the next of it each time.
    /// `step` in Rust says what that is: of the two texts and of how far it was, the results and how far it is now; the same
    /// in a shorter way is `number`, see [`Port::shortened`]. What is no text is `other`'s.
    pub(in super::super) fn iterator(
        &self,
        lua: &Lua,
        other: &Function,
        step: &Function,
        number: usize,
    ) -> mlua::Result<Function> {
        let at = ptr::from_ref(self).cast_mut().cast();
        // SAFETY: mlua has pushed both functions and calls this under protection, onto room for what is pushed: each has one
        // upvalue, which is where it looks for it in the function that becomes it.
        unsafe {
            lua.exec_raw::<Function>((other, step), |state| {
                for function in [1, 2] {
                    let is_callback = !ffi::lua_getupvalue(state, function, 1).is_null();
                    assert!(is_callback, "a function that mlua has made has an upvalue");
                    push_address(state, function);
                }
                ffi::lua_pushlightuserdata(state, at);
                ffi::lua_pushlightuserdata(state, ptr::without_provenance_mut(number));
                ffi::lua_pushcclosure(state, making, 6);
                alone(state);
            })
        }
    }
}

/// Upvalues: of `other`, its own and its address; of `step` the same; the port; the number.
unsafe extern "C-unwind" fn making(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that `iterator` gave it and room for what is pushed. Nothing here has a
    // destructor when an error is raised.
    unsafe {
        let is_text = |at| ffi::lua_type(state, at) == ffi::LUA_TSTRING;
        if ffi::lua_gettop(state) != 2 || !is_text(1) || !is_text(2) {
            return become_upvalue(state, 2);
        }
        for upvalue in [3, 5, 6, 4] {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(upvalue));
        }
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushvalue(state, 2);
        ffi::lua_pushnumber(state, 0.0);
        ffi::lua_pushcclosure(state, stepping, *STATE.end());
        1
    }
}

/// Upvalues: `step`'s own, the port, the number, `step`'s address, and [`STATE`].
unsafe extern "C-unwind" fn stepping(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that `making` gave it and room for what is pushed. What is on top at the end
    // is the new state: both ways leave it there.
    unsafe {
        ffi::lua_settop(state, 0);
        for upvalue in STATE {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(upvalue));
        }
        let results = match Port::shorten(state) {
            Some(results) => results,
            None => become_upvalue(state, 4),
        };
        ffi::lua_replace(state, ffi::lua_upvalueindex(*STATE.end()));
        results - 1
    }
}
