//! Lua's own functions, where nothing speaks against them: with stand-ins, for one, ours have to be asked.
//!
//! Rule    as for the stack: Lua's functions raise errors, and so are called last, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr;
use std::slice;

use mlua::{Function, Lua, ffi, lua_State};

use crate::scripts::lua::fault::is_of_a_script;

/// A function of Lua that is `own`, Lua's of that name, for tables without a metatable, and `ours` for those with one. What
/// is no table is `own`'s to refuse. With `sort`, `ours` has tables of more than a few elements, too, and whatever has a
/// function in C as its second argument.
pub(in super::super) fn for_plain_tables(
    lua: &Lua,
    name: &str,
    own: &Function,
    ours: &Function,
) -> mlua::Result<Function> {
    let function = match name {
        "getmetatable" => plain_getmetatable,
        "next" => plain_next,
        "pairs" => plain_pairs,
        "rawget" => plain_rawget,
        "rawset" => plain_rawset,
        "sort" => plain_sort,
        _ => plainly,
    };
    // SAFETY: mlua has pushed both and calls this under protection, onto room for what is pushed. The closure has the only
    // upvalue that a function of Lua's has, if it has one, in the same place, so that it may become that function.
    unsafe {
        lua.exec_raw::<Function>((own, ours), |state| {
            if ffi::lua_getupvalue(state, 1, 1).is_null() {
                ffi::lua_pushnil(state);
            }
            ffi::lua_pushvalue(state, 2);
            push_address(state, 1);
            ffi::lua_pushcclosure(state, function, 3);
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

/// Whether the first argument is a table without a metatable.
///
/// # Safety
/// `state` is that of a function of Lua in C that has just been called.
unsafe fn is_plain(state: *mut lua_State) -> bool {
    // SAFETY: as the caller says. Where there is a metatable, there is room for it.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE {
            return false;
        }
        let has_metatable = ffi::lua_getmetatable(state, 1) != 0;
        if has_metatable {
            ffi::lua_settop(state, -2);
        }
        !has_metatable
    }
}

/// Becomes Lua's own function, or calls ours in its place.
///
/// # Safety
/// `state` is that of a function of `for_plain_tables` that has just been called. An error of Lua passes this.
unsafe fn resolve(state: *mut lua_State, is_own: bool) -> c_int {
    // SAFETY: as the caller says: the second upvalue is a function, the third the address of one in C that finds its own
    // upvalue and its arguments as if it had been called itself.
    unsafe {
        if is_own {
            return become_upvalue(state, 3);
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, ffi::lua_gettop(state) - 1, ffi::LUA_MULTRET);
        ffi::lua_gettop(state)
    }
}

unsafe extern "C-unwind" fn plainly(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `for_plain_tables`.
    unsafe { resolve(state, ffi::lua_type(state, 1) != ffi::LUA_TTABLE || is_plain(state)) }
}

unsafe extern "C-unwind" fn plain_sort(state: *mut lua_State) -> c_int {
    // SAFETY: as above. The length of a table is that of its elements.
    unsafe {
        let is_easy = || ffi::lua_objlen(state, 1) <= FEW && ffi::lua_iscfunction(state, 2) == 0;
        resolve(state, ffi::lua_type(state, 1) != ffi::LUA_TTABLE || is_plain(state) && is_easy())
    }
}

/// Elements that Lua's own sort compares in no time, even if it takes a quadratic number of steps.
const FEW: usize = 500;

unsafe extern "C-unwind" fn plain_getmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `for_plain_tables` and room for a value.
    unsafe {
        if !is_plain(state) {
            return plainly(state);
        }
        ffi::lua_pushnil(state);
        1
    }
}

unsafe extern "C-unwind" fn plain_next(state: *mut lua_State) -> c_int {
    // SAFETY: as above; a key that the table does not have is an error of Lua, when nothing is left to be dropped.
    unsafe {
        if !is_plain(state) {
            return plainly(state);
        }
        if ffi::lua_gettop(state) != 2 {
            ffi::lua_settop(state, 2);
        }
        if ffi::lua_next(state, 1) != 0 {
            return 2;
        }
        ffi::lua_pushnil(state);
        1
    }
}

unsafe extern "C-unwind" fn plain_pairs(state: *mut lua_State) -> c_int {
    // SAFETY: as above; the first upvalue is that of Lua's own function, which is `next`.
    unsafe {
        if !is_plain(state) {
            return plainly(state);
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

unsafe extern "C-unwind" fn plain_rawget(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        if ffi::lua_gettop(state) != 2 || !is_plain(state) {
            return plainly(state);
        }
        ffi::lua_rawget_(state, 1);
        1
    }
}

unsafe extern "C-unwind" fn plain_rawset(state: *mut lua_State) -> c_int {
    // SAFETY: as above; a key that no table can have is an error of Lua.
    unsafe {
        if ffi::lua_gettop(state) != 3 || !is_plain(state) {
            return plainly(state);
        }
        ffi::lua_rawset(state, 1);
        1
    }
}

/// `pcall` and `xpcall`. What the error is that a script sees, `passed` says, which raises again what no script may catch.
pub(in super::super) fn protections(lua: &Lua, passed: &Function) -> mlua::Result<[Function; 2]> {
    let make = |function: ffi::lua_CFunction| {
        // SAFETY: mlua has pushed the function and calls this under protection.
        unsafe { lua.exec_raw::<Function>(passed, |state| ffi::lua_pushcclosure(state, function, 1)) }
    };
    Ok([make(protected)?, make(handled)?])
}

unsafe extern "C-unwind" fn protected(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue that it was made with, a function, and room for what is pushed: the arguments
    // are gone when there is an error.
    unsafe {
        ffi::luaL_checkany(state, 1);
        // Below all results, beside which there may be no room.
        ffi::lua_pushboolean(state, 1);
        ffi::lua_insert(state, 1);
        if ffi::lua_pcall(state, ffi::lua_gettop(state) - 2, ffi::LUA_MULTRET, 0) != ffi::LUA_OK {
            ffi::lua_pushboolean(state, 0);
            ffi::lua_replace(state, 1);
            if !is_as_seen(state) {
                pass(state);
            }
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
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, 2);
        ffi::lua_pushcclosure(state, handling, 2);
        ffi::lua_insert(state, 1);
        // The handler's place is that of what is told first.
        let is_fine = ffi::lua_pcall(state, 0, ffi::LUA_MULTRET, 1) == ffi::LUA_OK;
        if !is_fine {
            // What the handler itself has failed of.
            pass(state);
        }
        ffi::lua_pushboolean(state, c_int::from(is_fine));
        ffi::lua_replace(state, 1);
        ffi::lua_gettop(state)
    }
}

/// Upvalues: `passed`, and the handler.
unsafe extern "C-unwind" fn handling(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this with an error, and with room for what is pushed.
    unsafe {
        ffi::lua_settop(state, 1);
        pass(state);
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(2));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, 1, 1);
        1
    }
}

/// Whether an error is what a script sees of it: surely none of ours, and none that ends it.
///
/// # Safety
/// It is on top.
unsafe fn is_as_seen(state: *mut lua_State) -> bool {
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
unsafe fn pass(state: *mut lua_State) {
    // SAFETY: as the caller says.
    unsafe {
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(1));
        ffi::lua_insert(state, -2);
        ffi::lua_call(state, 1, 1);
    }
}
