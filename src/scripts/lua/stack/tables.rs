//! Lua's own functions on tables, for scripts that have stand-ins in the place of tables that may not be written: what is
//! read of a stand-in is what it stands for, and nothing is written.
//!
//! Owns    how a stand-in is known: no other table has a metatable with that very function as `__newindex`. What it stands
//!         for is `__index`, what `getmetatable` says of it `shown`.
//! Rule    as for the stack: Lua's functions raise errors, and so are called last, where nothing is left to be dropped.
//! Source  Lua 5.1 `lbaselib.c` and `ltablib.c`, for the order in which arguments are looked at.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};

use mlua::{Function, Lua, Value, ffi, lua_State};

use super::native::{alone, become_upvalue, push_address};

/// What is raised where a stand-in is written.
const READONLY: &CStr = c"Attempt to modify a readonly table";

/// `own`, Lua's function of that name, for stand-ins and all other values. `refuse` is the function by which stand-ins are
/// known; `other` is what `pairs` gives to go through one, and what sorts where Lua's own `sort` may not.
pub(in super::super) fn on_tables(
    lua: &Lua,
    name: &str,
    own: &Function,
    refuse: &Function,
    other: &Value,
) -> mlua::Result<Function> {
    let function = match name {
        "getmetatable" => getmetatable,
        "insert" => insert,
        "next" => next,
        "pairs" => pairs,
        "rawget" => rawget,
        "rawset" => rawset,
        "setmetatable" => setmetatable,
        "sort" => sort,
        _ => return Err(mlua::Error::runtime(format!("'{name}' is no function on tables"))),
    };
    // SAFETY: mlua has pushed the values and calls this under protection, onto room for what is pushed. The closure has the
    // only upvalue that a function of Lua's has, if it has one, in the same place, so that it may become that function.
    unsafe {
        lua.exec_raw::<Function>((own, refuse, other), |state| {
            if ffi::lua_getupvalue(state, 1, OWN).is_null() {
                ffi::lua_pushnil(state);
            }
            ffi::lua_pushvalue(state, 2);
            push_address(state, 1);
            ffi::lua_pushvalue(state, 3);
            ffi::lua_pushcclosure(state, function, OTHER);
            alone(state);
        })
    }
}

/// The upvalue of Lua's own function.
const OWN: c_int = 1;
const REFUSE: c_int = 2;
/// The address of Lua's own function.
const ADDRESS: c_int = 3;
const OTHER: c_int = 4;

/// What the first argument is.
enum First {
    /// A table without a metatable.
    Plain,
    StandIn,
    Other,
}

/// What the first argument is; of a stand-in `field` is pushed.
///
/// # Safety
/// `state` is that of a function of [`on_tables`] that has just been called.
#[inline]
unsafe fn first(state: *mut lua_State, field: &CStr) -> First {
    // SAFETY: as the caller says: there is room for what is pushed.
    unsafe {
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE {
            First::Other
        } else if ffi::lua_getmetatable(state, 1) == 0 {
            First::Plain
        } else if is_of_stand_in(state, field) {
            First::StandIn
        } else {
            First::Other
        }
    }
}

/// Whether the metatable on top is that of a stand-in: then `field` of it takes its place; otherwise nothing does.
///
/// # Safety
/// As for [`first`].
#[cold]
unsafe fn is_of_stand_in(state: *mut lua_State, field: &CStr) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        ffi::lua_pushstring_(state, c"__newindex".as_ptr());
        ffi::lua_rawget_(state, -2);
        let is_so = ffi::lua_rawequal(state, -1, ffi::lua_upvalueindex(REFUSE)) != 0;
        ffi::lua_settop(state, -2);
        if is_so {
            ffi::lua_pushstring_(state, field.as_ptr());
            ffi::lua_rawget_(state, -2);
            ffi::lua_replace(state, -2);
        } else {
            ffi::lua_settop(state, -2);
        }
        is_so
    }
}

/// What a stand-in stands for.
const STANDS_FOR: &CStr = c"__index";
/// What `getmetatable` says of it.
const SHOWN: &CStr = c"shown";

/// Raises what is raised where a stand-in is written.
///
/// # Safety
/// There is room for a value. An error of Lua passes this.
unsafe fn refuse(state: *mut lua_State) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        ffi::lua_pushstring_(state, READONLY.as_ptr());
        ffi::lua_error(state)
    }
}

unsafe extern "C-unwind" fn next(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `on_tables` and room for what is pushed; a key that the table does not
    // have is an error of Lua.
    unsafe {
        match first(state, STANDS_FOR) {
            First::Plain => {}
            First::StandIn => ffi::lua_replace(state, 1),
            First::Other => return become_upvalue(state, ADDRESS),
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

unsafe extern "C-unwind" fn pairs(state: *mut lua_State) -> c_int {
    // SAFETY: as above; Lua's own function has its `next` as its upvalue.
    unsafe {
        let next = match first(state, SHOWN) {
            First::Plain => OWN,
            First::StandIn => OTHER,
            First::Other => return become_upvalue(state, ADDRESS),
        };
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(next));
        ffi::lua_pushvalue(state, 1);
        ffi::lua_pushnil(state);
        3
    }
}

unsafe extern "C-unwind" fn rawget(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        match first(state, STANDS_FOR) {
            First::Plain if ffi::lua_gettop(state) == 2 => {
                ffi::lua_rawget_(state, 1);
                return 1;
            }
            First::StandIn => ffi::lua_replace(state, 1),
            First::Plain | First::Other => {}
        }
        become_upvalue(state, ADDRESS)
    }
}

unsafe extern "C-unwind" fn rawset(state: *mut lua_State) -> c_int {
    // SAFETY: as above; a key that no table can have is an error of Lua.
    unsafe {
        match first(state, SHOWN) {
            First::Plain if ffi::lua_gettop(state) == 3 => {
                ffi::lua_rawset(state, 1);
                return 1;
            }
            First::StandIn => ffi::lua_settop(state, -2),
            First::Plain | First::Other => return become_upvalue(state, ADDRESS),
        }
        ffi::luaL_checkany(state, 2);
        ffi::luaL_checkany(state, 3);
        refuse(state)
    }
}

unsafe extern "C-unwind" fn getmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        match first(state, SHOWN) {
            First::Plain => ffi::lua_pushnil(state),
            First::StandIn => {}
            First::Other => return become_upvalue(state, ADDRESS),
        }
    }
    1
}

unsafe extern "C-unwind" fn setmetatable(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        if !matches!(first(state, SHOWN), First::StandIn) {
            return become_upvalue(state, ADDRESS);
        }
        ffi::lua_settop(state, -2);
        if !matches!(ffi::lua_type(state, 2), ffi::LUA_TNIL | ffi::LUA_TTABLE) {
            ffi::luaL_argerror(state, 2, c"nil or table expected".as_ptr());
        }
        refuse(state)
    }
}

unsafe extern "C-unwind" fn insert(state: *mut lua_State) -> c_int {
    // SAFETY: as above. What is wrong with the number of arguments is Lua's own to say.
    unsafe {
        if !matches!(first(state, SHOWN), First::StandIn) {
            return become_upvalue(state, ADDRESS);
        }
        ffi::lua_settop(state, -2);
        match ffi::lua_gettop(state) {
            2 => {}
            3 => _ = ffi::luaL_checknumber(state, 2),
            _ => return become_upvalue(state, ADDRESS),
        }
        refuse(state)
    }
}

/// Lua's own sort can take a quadratic number of steps. Where it compares by itself no hook sees them; a function in Lua that
/// compares is seen.
unsafe extern "C-unwind" fn sort(state: *mut lua_State) -> c_int {
    // SAFETY: as above. The length of a table is that of its elements.
    unsafe {
        let is_easy = || ffi::lua_objlen(state, 1) <= FEW && ffi::lua_iscfunction(state, 2) == 0;
        if ffi::lua_type(state, 1) != ffi::LUA_TTABLE || is_easy() {
            return become_upvalue(state, ADDRESS);
        }
        if !matches!(ffi::lua_type(state, 2), ffi::LUA_TNONE | ffi::LUA_TNIL) {
            ffi::luaL_checktype(state, 2, ffi::LUA_TFUNCTION);
        }
        ffi::lua_pushvalue(state, ffi::lua_upvalueindex(OTHER));
        ffi::lua_insert(state, 1);
        ffi::lua_call(state, ffi::lua_gettop(state) - 1, 0);
        0
    }
}

/// Elements that Lua's own sort compares in no time, even if it takes a quadratic number of steps.
const FEW: usize = 500;
