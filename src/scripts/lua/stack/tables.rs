//! Lua's own functions on tables, for scripts that have stand-ins in the place of tables that may not be written: what is
//! read of a stand-in is what it stands for, and nothing is written.
//!
//! Owns    how a stand-in is known: no other table has a metatable with that very function as `__newindex`. What it stands
//!         for is `__index`, what `getmetatable` says of it `shown`.
//! Rule    as for the stack: Lua's functions raise errors, and so are called last, where nothing is left to be dropped.
//! Source  Lua 5.1 `lbaselib.c` and `ltablib.c`, for the order in which arguments are looked at.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::ptr;

use mlua::{Function, Lua, Table, Value, ffi, lua_State};

use super::native::{alone, become_upvalue, function, push_address};

/// What is raised where a stand-in is written.
const READONLY: &CStr = c"Attempt to modify a readonly table";

/// Makes tables that stand for others, and knows them.
#[derive(Clone, Debug)]
pub(in super::super) struct StandIns {
    refuse: Function,
}

impl StandIns {
    /// What makes them in a state.
    ///
    /// # Errors
    /// Where Lua has no room for it.
    pub(in super::super) fn new(lua: &Lua) -> mlua::Result<Self> {
        function(lua, refused).map(|refuse| Self { refuse })
    }

    /// One for `table`, and `shown` for its metatable.
    ///
    /// # Errors
    /// As [`StandIns::new`].
    pub(in super::super) fn of(&self, lua: &Lua, table: &Table, shown: Option<Table>) -> mlua::Result<Table> {
        let metatable = lua.create_table_with_capacity(0, if shown.is_some() { 3 } else { 2 })?;
        metatable.raw_set("__index", table)?;
        metatable.raw_set("__newindex", &self.refuse)?;
        if let Some(shown) = shown {
            metatable.raw_set("shown", shown)?;
        }
        let stand_in = lua.create_table()?;
        stand_in.set_metatable(Some(metatable))?;
        Ok(stand_in)
    }

    /// What `table` stands for, or itself.
    ///
    /// # Errors
    /// As [`StandIns::new`].
    pub(in super::super) fn behind(&self, table: Table) -> mlua::Result<Table> {
        match table.metatable() {
            Some(metatable)
                if metatable.raw_get::<Value>("__newindex")? == Value::Function(self.refuse.clone()) =>
            {
                metatable.raw_get("__index")
            }
            _ => Ok(table),
        }
    }

    /// Puts functions that know them in the place of Lua's own. `of_texts` is what scripts see as the metatable of a string.
    ///
    /// # Errors
    /// As [`StandIns::new`].
    pub(in super::super) fn install(&self, lua: &Lua, globals: &Table, of_texts: &Table) -> mlua::Result<()> {
        let table: Table = globals.raw_get("table")?;
        let functions: [(&Table, &str, ffi::lua_CFunction); 7] = [
            (globals, "getmetatable", getmetatable),
            (globals, "next", next),
            (globals, "rawget", rawget),
            (globals, "rawset", rawset),
            (globals, "setmetatable", setmetatable),
            (&table, "insert", insert),
            (globals, "pairs", pairs),
        ];
        functions.into_iter().try_for_each(|(library, name, function)| {
            let own: Function = library.raw_get(name)?;
            let given = match name {
                "getmetatable" => Value::Table(of_texts.clone()),
                // There already, and goes through a stand-in.
                "pairs" => globals.raw_get("next")?,
                _ => Value::Nil,
            };
            // SAFETY: mlua has pushed the values and calls this under protection, onto room for what is pushed. The closure
            // has the only upvalue that a function of Lua's has, if it has one, in the same place, so that it may become
            // that function.
            let function = unsafe {
                lua.exec_raw::<Function>((own, &self.refuse, given), |state| {
                    if ffi::lua_getupvalue(state, 1, OWN).is_null() {
                        ffi::lua_pushnil(state);
                    }
                    ffi::lua_pushvalue(state, 2);
                    push_address(state, 1);
                    ffi::lua_pushvalue(state, 3);
                    ffi::lua_pushcclosure(state, function, GIVEN);
                    alone(state);
                })?
            };
            library.raw_set(name, function)
        })
    }
}

/// The metatable of a table that has no other fields than those that it has. Without `stand_ins` they may be written.
///
/// # Errors
/// Where Lua has no room for it.
pub(in super::super) fn strict(lua: &Lua, stand_ins: Option<&StandIns>) -> mlua::Result<Table> {
    let metatable = lua.create_table_with_capacity(0, 2)?;
    metatable.raw_set("__index", function(lua, absent)?)?;
    if let Some(StandIns { refuse }) = stand_ins {
        metatable.raw_set("__newindex", refuse)?;
    }
    Ok(metatable)
}

/// The upvalue of Lua's own function.
const OWN: c_int = 1;
const REFUSE: c_int = 2;
/// The address of Lua's own function.
const ADDRESS: c_int = 3;
/// What the function gives in the place of something else: see [`StandIns::install`].
const GIVEN: c_int = 4;

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
/// `state` is that of a function of [`StandIns::install`] that has just been called.
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
    // SAFETY: Lua calls this, with the upvalues of `install` and room for what is pushed; a key that the table does not
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
            First::StandIn => GIVEN,
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
            First::Other if ffi::lua_type(state, 1) == ffi::LUA_TSTRING => {
                ffi::lua_pushvalue(state, ffi::lua_upvalueindex(GIVEN));
            }
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

/// `__newindex` of a stand-in.
unsafe extern "C-unwind" fn refused(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with room for what is pushed.
    unsafe { ffi::luaL_error(state, READONLY.as_ptr()) }
}

/// `__index` of a table where every field is there.
unsafe extern "C-unwind" fn absent(state: *mut lua_State) -> c_int {
    // SAFETY: as above. The text of the name is on the stack; each format is one of Lua's, and has its values.
    unsafe {
        if ffi::lua_isstring(state, 2) == 0 {
            let no_name = c"Second argument to luaProtectedTableError must be a string or number";
            return ffi::luaL_error(state, no_name.as_ptr());
        }
        let name = ffi::lua_tolstring(state, 2, ptr::null_mut());
        ffi::luaL_error(state, c"Script attempted to access nonexistent global variable '%s'".as_ptr(), name)
    }
}
