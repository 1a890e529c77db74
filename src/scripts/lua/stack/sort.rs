//! `table.sort`: Lua's own, which nobody sees as long as it compares by itself or by a function in C.
//!
//! Rule    as for the stack: Lua's errors pass these functions, so that nothing in them has a destructor.
//! Source  Lua 5.1 `ltablib.c`.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Arc;

use mlua::{Function, Lua, ffi, lua_State};

use super::native::{alone, become_upvalue, budget, push_address, push_budget};
use super::tick::go_on;
use crate::scripts::lua::budget::Budget;

/// `own`, Lua's `sort`, whose comparisons `budget` sees.
pub(in super::super) fn sorting(lua: &Lua, own: &Function, budget: &Arc<Budget>) -> mlua::Result<Function> {
    // SAFETY: mlua has pushed the function and calls this under protection, onto room for what is pushed. Lua's function has
    // no upvalue. The budget lives as long as the state.
    unsafe {
        lua.exec_raw::<Function>(own, |state| {
            push_budget(state, budget);
            push_address(state, 1);
            push_budget(state, budget);
            ffi::lua_pushcclosure(state, is_less, BUDGET);
            ffi::lua_pushcclosure(state, sort, IS_LESS);
            alone(state);
        })
    }
}

/// The upvalue of all functions here.
const BUDGET: c_int = 1;
/// The upvalue of [`sort`] that is the address of Lua's own.
const ADDRESS: c_int = 2;
/// The upvalue of [`sort`] that is [`is_less`].
const IS_LESS: c_int = 3;
/// The upvalue of [`is_less_by`] that it compares by.
const COMPARE: c_int = 2;

/// Elements that Lua's own sort compares in no time, even if it takes a quadratic number of steps.
const FEW: usize = 500;

unsafe extern "C-unwind" fn sort(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `sorting` and room for what is pushed. The length of a table is that of
    // its elements. What is no table is Lua's own to refuse.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE {
            return become_upvalue(state, ADDRESS);
        }
        match ffi::lua_type(state, 2) {
            ffi::LUA_TNONE | ffi::LUA_TNIL if ffi::lua_objlen(state, 1) > FEW => {
                ffi::lua_settop(state, 1);
                ffi::lua_pushvalue(state, ffi::lua_upvalueindex(IS_LESS));
            }
            // What is no function is refused by Lua's own, too.
            _ if ffi::lua_iscfunction(state, 2) != 0 => {
                ffi::lua_settop(state, 2);
                ffi::lua_pushvalue(state, ffi::lua_upvalueindex(BUDGET));
                ffi::lua_insert(state, 2);
                ffi::lua_pushcclosure(state, is_less_by, COMPARE);
            }
            _ => {}
        }
        become_upvalue(state, ADDRESS)
    }
}

/// Whether the first argument is less than the second.
unsafe extern "C-unwind" fn is_less(state: *mut lua_State) -> c_int {
    // SAFETY: Lua's `sort` calls this, with two arguments and room for what is pushed.
    unsafe {
        go_on(state, budget(state, BUDGET), Budget::charge_call);
        ffi::lua_pushboolean(state, ffi::lua_lessthan(state, 1, 2));
    }
    1
}

/// The same, as a function in C has it.
unsafe extern "C-unwind" fn is_less_by(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        go_on(state, budget(state, BUDGET), Budget::charge_call);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(COMPARE));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, 2, 1);
    }
    1
}
