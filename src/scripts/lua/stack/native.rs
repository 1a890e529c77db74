//! Lua's own functions, where nothing speaks against them: with stand-ins, for one, ours have to be asked.
//!
//! Rule    as for the stack: Lua's functions raise errors, and so are called last, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;

use mlua::{Function, Lua, ffi, lua_State};

/// A function of Lua that is `own`, Lua's, for tables without a metatable, and `ours` for those with one. What is no table
/// is `own`'s to refuse. Where there is a number of `few` elements, `ours` has tables of more, too, and whatever has a
/// function in C as its second argument.
pub(in super::super) fn for_plain_tables(
    lua: &Lua,
    own: &Function,
    ours: &Function,
    few: Option<u32>,
) -> mlua::Result<Function> {
    // SAFETY: mlua has pushed both and calls this under protection, onto room for what is pushed. The closure has the only
    // upvalue that a function of Lua's has, if it has one, in the same place, so that it may become that function.
    unsafe {
        lua.exec_raw::<Function>((own, ours), |state| {
            if ffi::lua_getupvalue(state, 1, 1).is_null() {
                ffi::lua_pushnil(state);
            }
            ffi::lua_pushvalue(state, 2);
            push_address(state, 1);
            ffi::lua_pushinteger(state, few.map_or(ANY, |few| few as ffi::lua_Integer));
            ffi::lua_pushcclosure(state, plainly, 4);
            alone(state);
        })
    }
}

/// Pushes the address of the function in C that is at `at`.
///
/// # Safety
/// There is such a value, and room for another.
unsafe fn push_address(state: *mut lua_State, at: c_int) {
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
unsafe fn become_upvalue(state: *mut lua_State, at: c_int) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        let address = ffi::lua_touserdata(state, ffi::lua_upvalueindex(at));
        transmute::<*mut c_void, ffi::lua_CFunction>(address)(state)
    }
}

/// In the place of a number of elements: any.
const ANY: ffi::lua_Integer = -1;

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

unsafe extern "C-unwind" fn plainly(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that it was made with: the second is a function, the third the address of one
    // in C that finds its own upvalue and its arguments as if it had been called itself.
    unsafe {
        let (top, few) = (ffi::lua_gettop(state), ffi::lua_tointeger(state, ffi::lua_upvalueindex(4)));
        let is_few = || few == ANY || ffi::lua_objlen(state, 1) as ffi::lua_Integer <= few;
        let is_odd = || few != ANY && ffi::lua_iscfunction(state, 2) != 0;
        let is_plain = || ffi::lua_getmetatable(state, 1) == 0 && is_few() && !is_odd();
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE || is_plain() {
            return become_upvalue(state, 3);
        }
        // Without the metatable.
        ffi::lua_settop(state, top);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

/// `pcall`: what the error is that a script sees, `caught` says, which raises again what no script may catch.
pub(in super::super) fn pcall(lua: &Lua, caught: &Function) -> mlua::Result<Function> {
    // SAFETY: as above.
    unsafe { lua.exec_raw::<Function>(caught, |state| ffi::lua_pushcclosure(state, protected, 1)) }
}

unsafe extern "C-unwind" fn protected(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue that it was made with, a function. There is room for it beside an error, and
    // room is made beside results.
    unsafe {
        ffi::luaL_checkany(state, 1);
        let status = ffi::lua_pcall(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET, 0);
        if status != ffi::LUA_OK {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
            ffi::lua_insert(state, 1);
            ffi::lua_call(state, 1, 1);
        }
        ffi::luaL_checkstack(state, 1, c"too many results".as_ptr());
        ffi::lua_pushboolean(state, c_int::from(status == ffi::LUA_OK));
        ffi::lua_insert(state, 1);
        ffi::lua_gettop(state)
    }
}
