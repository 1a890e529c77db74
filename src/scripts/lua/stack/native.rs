//! Functions in C, as Lua's own are and as mlua makes them: what the files beside this one build theirs of.
//!
//! Rule    as for the stack: Lua's functions raise errors, and so are called last, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::slice;
use std::sync::Arc;

use mlua::{Function, Lua, ffi, lua_State};

use crate::scripts::lua::budget::Budget;
use crate::scripts::lua::fault::is_of_a_script;

/// A function without upvalues.
///
/// # Errors
/// Where Lua has no room for it.
pub(super) fn function(lua: &Lua, function: ffi::lua_CFunction) -> mlua::Result<Function> {
    // SAFETY: under the protection of mlua, onto room for a value.
    unsafe { lua.exec_raw((), |state| ffi::lua_pushcclosure(state, function, 0)) }
}

/// Pushes the address of the function in C that is at `at`.
///
/// # Safety
/// There is such a value, and room for another.
pub(super) unsafe fn push_address(state: *mut lua_State, at: c_int) {
    // SAFETY: as the caller says.
    unsafe {
        let function = ffi::lua_tocfunction(state, at);
        let address = function.map_or(ptr::null_mut(), |function| function as *mut c_void);
        assert!(!address.is_null(), "a function in C");
        ffi::lua_pushlightuserdata(state, address);
    }
}

/// Pushes the one upvalue of the function at `at`, which mlua has made; gives its address.
///
/// # Safety
/// There is such a function, and room for another value.
pub(super) unsafe fn push_callback(state: *mut lua_State, at: c_int) -> ffi::lua_CFunction {
    // SAFETY: as the caller says.
    unsafe {
        let is_callback =
            ffi::lua_getupvalue(state, at, 2).is_null() && !ffi::lua_getupvalue(state, at, 1).is_null();
        assert!(is_callback, "a function that mlua has made has one upvalue");
        ffi::lua_tocfunction(state, at).expect("a function in C")
    }
}

/// Calls the function whose address is upvalue `at`, as if Lua had called it.
///
/// # Safety
/// `state` is that of a function of Lua in C that has its arguments on the stack, and whose upvalue `push_address` has
/// pushed. What the function finds among its upvalues is there, too. An error of Lua passes this.
pub(super) unsafe fn become_upvalue(state: *mut lua_State, at: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        let address = ffi::lua_touserdata(state, ffi::lua_upvalueindex(at));
        transmute::<*mut c_void, ffi::lua_CFunction>(address)(state)
    }
}

/// Pushes a budget, for [`budget`] to be found among the upvalues.
///
/// # Safety
/// It lives as long as the state, see [`tick`](super::tick), and there is room for a value.
pub(super) unsafe fn push_budget(state: *mut lua_State, budget: &Arc<Budget>) {
    // SAFETY: as the caller says.
    unsafe { ffi::lua_pushlightuserdata(state, Arc::as_ptr(budget).cast_mut().cast()) };
}

/// The budget that is upvalue `at` of the function that runs.
///
/// # Safety
/// [`push_budget`] has pushed it.
pub(super) unsafe fn budget<'s>(state: *mut lua_State, at: c_int) -> &'s Budget {
    // SAFETY: as the caller says.
    unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(at)).cast() }
}

/// Leaves the value on top alone.
///
/// # Safety
/// There are two values at least.
pub(super) unsafe fn alone(state: *mut lua_State) {
    // SAFETY: the first place is below the top.
    unsafe {
        ffi::lua_replace(state, 1);
        ffi::lua_settop(state, 1);
    }
}

/// Whether an error is what a script sees of it: surely none of ours, and none that ends it.
///
/// # Safety
/// It is on top.
pub(super) unsafe fn is_as_seen(state: *mut lua_State) -> bool {
    // SAFETY: as the caller says; a string is not converted.
    unsafe {
        match ffi::lua_type(state, -1) {
            ffi::LUA_TBOOLEAN | ffi::LUA_TNUMBER | ffi::LUA_TTABLE | ffi::LUA_TFUNCTION => true,
            ffi::LUA_TSTRING => {
                let mut len = 0;
                let start = ffi::lua_tolstring(state, -1, &mut len);
                is_of_a_script(slice::from_raw_parts(start.cast(), len))
            }
            _ => false,
        }
    }
}

/// Puts what the first upvalue makes of the value on top in its place.
///
/// # Safety
/// The upvalue is a function, and there is room for it. An error of Lua passes this.
pub(super) unsafe fn pass(state: *mut lua_State) {
    // SAFETY: as the caller says.
    unsafe {
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, -2);
        ffi::lua_call(state, 1, 1);
    }
}
