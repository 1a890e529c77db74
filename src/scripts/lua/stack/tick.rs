//! How Lua asks every few instructions whether a script may go on.
//!
//! Rule    as for the stack: an error of Lua is raised by the last statement alone, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

use mlua::{Lua, ffi, lua_State};

use super::Stack;
use super::native::{end, push_budget};
use crate::scripts::lua::budget::Budget;
use crate::scripts::lua::fault::Checked;

/// Has `budget` asked every so many instructions of a script, in this thread of Lua and in those that it makes.
pub(in super::super) fn tick(lua: &Lua, budget: &Arc<Budget>, instructions: u32) -> mlua::Result<()> {
    // The state lets go of this when it is closed: nothing ticks after that.
    lua.set_app_data(Arc::clone(budget));
    // SAFETY: under the protection of mlua, onto room for two values; the registry is a table.
    unsafe {
        lua.exec_raw::<()>((), |state| {
            ffi::lua_pushlightuserdata(state, key());
            push_budget(state, budget);
            ffi::lua_rawset(state, ffi::LUA_REGISTRYINDEX);
            tick_every(state, instructions);
        })
    }
}

impl Stack<'_> {
    /// Has the budget asked so often from here on, in this thread of Lua.
    pub(in super::super) fn tick_every(&mut self, instructions: u32) {
        // SAFETY: the state lives.
        unsafe { tick_every(self.state, instructions) };
    }
}

/// # Safety
/// The state lives, and `tick` has been called for it.
unsafe fn tick_every(state: *mut lua_State, instructions: u32) {
    let count = c_int::try_from(instructions).unwrap_or(c_int::MAX);
    // SAFETY: as the caller says.
    unsafe { ffi::lua_sethook(state, Some(ticked), ffi::LUA_MASKCOUNT, count) };
}

/// Under what the registry has the budget: an address that nothing else has.
fn key() -> *mut c_void {
    static KEY: u8 = 0;
    ptr::from_ref(&KEY).cast_mut().cast()
}

/// The budget that `tick` has been called with.
///
/// # Safety
/// `state` is one of Lua's where that has been done, with room for a value.
pub(super) unsafe fn of_state<'s>(state: *mut lua_State) -> &'s Budget {
    // SAFETY: as the caller says: the registry has what `tick` put there, which lives as long as the state.
    unsafe {
        ffi::lua_pushlightuserdata(state, key());
        ffi::lua_rawget_(state, ffi::LUA_REGISTRYINDEX);
        let budget: *const Budget = ffi::lua_touserdata(state, -1).cast();
        ffi::lua_settop(state, -2);
        &*budget
    }
}

/// Every so many instructions.
unsafe extern "C-unwind" fn ticked(state: *mut lua_State, _: *mut ffi::lua_Debug) {
    // SAFETY: Lua calls this between two instructions, with room for what is pushed.
    unsafe { go_on(state, of_state(state), Budget::tick) }
}

/// Asks `budget` in such a way, and ends the script if it may not go on.
///
/// # Safety
/// `state` is that of Lua that runs. An error of Lua passes this.
pub(super) unsafe fn go_on(
    state: *mut lua_State,
    budget: &Budget,
    ask: impl FnOnce(&Budget, &mut Stack<'_>) -> Checked,
) {
    // SAFETY: as the caller says.
    unsafe {
        let top = ffi::lua_gettop(state);
        let mut stack = Stack { state, top, room: top, lua: PhantomData };
        let asked = catch_unwind(AssertUnwindSafe(|| ask(budget, &mut stack)));
        if asked.unwrap_or_else(|panic| Err(budget.pass_on(panic))).is_err() {
            end(state);
        }
    }
}
