//! Functions in C, as Lua's own are and as mlua makes them: what the files beside this one build theirs of.
//!
//! Rule    as for the stack: Lua's functions raise errors, and so are called last, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr;
use std::sync::Arc;

use mlua::{Function, Lua, ffi, lua_State};

use super::Stack;
use super::tick::of_state;
use crate::scripts::lua::budget::Budget;
use crate::scripts::lua::fault::{Place, Stop};

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

/// Ends the script: nobody handles that. Who catches it finds out from the budget why, and ends the script, too.
///
/// # Safety
/// `state` is that of a function of Lua that runs, and nothing is left to be dropped.
pub(super) unsafe fn end(state: *mut lua_State) -> ! {
    unsafe extern "C-unwind" {
        /// What Lua's own functions raise errors by, see `ldo.c` of Lua 5.1, which there is no other version of.
        fn luaD_throw(state: *mut lua_State, status: c_int) -> !;
    }
    // SAFETY: as the caller says. For want of memory Lua asks no handler, which would be the script's own, and makes nothing.
    unsafe {
        of_state(state).stopped_at(innermost(state));
        luaD_throw(state, ffi::LUA_ERRMEM)
    }
}

impl Stack<'_> {
    /// Where the innermost function of a script's own is.
    pub(in super::super) fn innermost(&self) -> Option<Place> {
        // SAFETY: the state lives.
        unsafe { innermost(self.state) }
    }
}

/// The same.
///
/// # Safety
/// The state lives.
unsafe fn innermost(state: *mut lua_State) -> Option<Place> {
    // SAFETY: as the caller says. Lua fills in what is asked for of a frame that is there; the texts live as long as that.
    unsafe {
        let mut frame = MaybeUninit::<ffi::lua_Debug>::zeroed().assume_init();
        let mut level = 0;
        while ffi::lua_getstack(state, level, &mut frame) != 0 {
            ffi::lua_getinfo(state, c"Sl".as_ptr(), &mut frame);
            if let Ok(line) = usize::try_from(frame.currentline) {
                return Some((CStr::from_ptr(frame.source).to_string_lossy().into_owned(), line));
            }
            level += 1;
        }
        None
    }
}

/// Ends a script that is out of memory, if it has not been stopped before.
///
/// # Safety
/// As for [`end`].
pub(super) unsafe fn end_without_memory(state: *mut lua_State) -> ! {
    // SAFETY: as the caller says.
    unsafe {
        let budget = of_state(state);
        budget.stop(Stop::Memory(budget.memory_max()));
        end(state)
    }
}
