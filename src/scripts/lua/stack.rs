//! Lua's own stack: what every script needs of it, without a handle and a protected call for every value.
//!
//! Owns    every `unsafe` of the interpreter, with the files beside it. What is done here for each script
//!         and each `redis.call`, mlua does too, at a multiple of the price.
//! Rule    nothing here raises an error of Lua, which would leave Rust by a jump: values are checked before Lua looks at
//!         them, room is made before it is used, and whatever takes memory wants to see that the limit is lifted
//!         ([`Unlimited`]). The one exception is the last statement of the functions that Lua calls, where nothing is left
//!         to be dropped.
//! Locks   a [`Stack`] is reached through mlua's lock, so that it is the only one of its thread of Lua that is in use.
//! Source  Lua 5.1 reference manual, chapter 3.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr;
use std::slice;

use mlua::{IntoLua, Lua, Value, ffi, lua_State};

use super::budget::Unlimited;

mod base;
mod catch;
mod collector;
mod compile;
mod direct;
mod function;
mod math;
mod native;
mod port;
mod replace;
mod sort;
mod tables;
mod tick;

pub(super) use base::{constant, to_string};
pub(super) use catch::{coroutines, protections};
pub(super) use collector::collector;
pub(super) use compile::compilers;
pub(super) use direct::{Arguments, Direct, Meter, Part, Parts, Room, direct, iterator};
pub(super) use function::function;
pub(super) use math::install_math;
pub(super) use port::{Answer, Called, Port};
pub(super) use sort::sorting;
pub(super) use tables::{StandIns, strict};
pub(super) use tick::tick;

/// Values that a function finds room for when Lua calls it.
const ROOM_OF_A_CALL: c_int = ffi::LUA_MINSTACK;

/// The values that a function, or the world outside of all functions, has in hand: 1 is the lowest, -1 the highest.
pub(super) struct Stack<'l> {
    state: *mut lua_State,
    /// How many values there are.
    top: c_int,
    /// How many there is room for.
    room: c_int,
    lua: PhantomData<&'l Lua>,
}

/// A value that is kept for good.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept(c_int);

/// What a value is, as far as anybody asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Nil,
    Boolean,
    Number,
    String,
    Table,
    /// A function, a coroutine, something of ours.
    Other,
}

/// Keeps a value of mlua's, so that [`Stack::push_kept`] finds it.
pub(super) fn keep(lua: &Lua, value: impl IntoLua) -> mlua::Result<Kept> {
    let mut kept = Kept(0);
    // SAFETY: mlua has pushed the value and calls this under protection; nothing is there that an error would skip.
    unsafe { lua.exec_raw::<()>(value, |state| kept.0 = ffi::luaL_ref(state, ffi::LUA_REGISTRYINDEX))? };
    Ok(kept)
}

/// Gives `body` the stack outside of all functions, and clears away what it leaves there.
pub(super) fn with<R>(lua: &Lua, body: impl FnOnce(&mut Stack<'_>) -> R) -> R {
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: mlua holds its lock and gives the state of Lua that is current, which lives as long as the lock is held.
        let top = unsafe { ffi::lua_gettop(state) };
        let mut stack = Cleared { stack: Stack { state, top, room: top, lua: PhantomData }, top };
        body(&mut stack.stack)
    })
}

/// Gives `body` the stack of the function that Lua has called, with `value` on it if there is one: what it says, and what it
/// leaves on top.
///
/// # Errors
/// Where mlua has no room for that.
pub(super) fn above<R>(
    lua: &Lua,
    value: Option<&Value>,
    limit: &Unlimited<'_>,
    body: impl FnOnce(&mut Stack<'_>) -> R,
) -> mlua::Result<(R, Value)> {
    lua.exec_raw_lua(|raw| {
        let state = raw.state();
        // SAFETY: mlua holds its lock and gives the state of Lua that is current, which is a function's that has just been
        // called and has room for more values than one.
        let top = unsafe {
            let top = ffi::lua_gettop(state);
            value.map_or(Ok(()), |value| raw.push_value(value))?;
            top
        };
        let given = top + c_int::from(value.is_some());
        let stack = Stack { state, top: given, room: given, lua: PhantomData };
        let mut own = Cleared { stack, top };
        if !own.stack.reserve(ROOM_ABOVE, limit) {
            return Err(mlua::Error::StackError);
        }
        let said = body(&mut own.stack);
        own.stack.keep_highest(top);
        own.stack.top = top;
        // SAFETY: there is a value on top, and room for a copy; it is not among those of the stack any more.
        Ok((said, unsafe { raw.pop_value() }))
    })
}

/// Values that [`above`] makes room for.
const ROOM_ABOVE: c_int = 2;

/// A stack that is as it was when dropped, also where a panic passes.
struct Cleared<'l> {
    stack: Stack<'l>,
    top: c_int,
}

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        self.stack.truncate(self.top);
    }
}

impl Stack<'_> {
    /// Makes room for so many values more; false where Lua has none.
    pub(super) fn reserve(&mut self, values: c_int, _: &Unlimited<'_>) -> bool {
        if self.top + values <= self.room {
            return true;
        }
        // SAFETY: the state lives; without a limit of memory the stack grows or is too long, and no error is raised.
        let is_fine = unsafe { ffi::lua_checkstack(self.state, values) } != 0;
        if is_fine {
            self.room = self.room.max(self.top + values);
        }
        is_fine
    }

    /// How many values there are.
    pub(super) fn len(&self) -> c_int {
        self.top
    }

    /// Takes away all but the lowest `len`.
    pub(super) fn truncate(&mut self, len: c_int) {
        assert!((0..=self.top).contains(&len), "values are taken away here");
        // SAFETY: the state lives, and the stack only becomes shorter.
        unsafe { ffi::lua_settop(self.state, len) };
        self.top = len;
    }

    /// Takes the highest `count` away.
    pub(super) fn pop(&mut self, count: c_int) {
        self.truncate(self.top - count);
    }

    /// Takes away all that is above the lowest `len` but the highest value; nil, where there is none.
    fn keep_highest(&mut self, len: c_int) {
        if self.top <= len {
            return self.push_nil();
        }
        if self.top > len + 1 {
            // SAFETY: the place holds a value, which the highest one takes the place of.
            unsafe { ffi::lua_replace(self.state, len + 1) };
            self.top -= 1;
        }
        self.truncate(len + 1);
    }

    pub(super) fn push_nil(&mut self) {
        self.admit();
        // SAFETY: there is room, and it takes no memory.
        unsafe { ffi::lua_pushnil(self.state) };
    }

    pub(super) fn push_boolean(&mut self, is_so: bool) {
        self.admit();
        // SAFETY: as for nil.
        unsafe { ffi::lua_pushboolean(self.state, c_int::from(is_so)) };
    }

    /// Pushes what JSON calls null: a pointer to nothing.
    pub(super) fn push_null(&mut self) {
        self.admit();
        // SAFETY: as for nil.
        unsafe { ffi::lua_pushlightuserdata(self.state, ptr::null_mut()) };
    }

    pub(super) fn push_number(&mut self, number: f64) {
        self.admit();
        // SAFETY: as for nil.
        unsafe { ffi::lua_pushnumber(self.state, number) };
    }

    pub(super) fn push_bytes(&mut self, bytes: &[u8], _: &Unlimited<'_>) {
        self.admit();
        // SAFETY: there is room, Lua copies the bytes, and no limit makes it fail.
        unsafe { ffi::lua_pushlstring_(self.state, bytes.as_ptr().cast(), bytes.len()) };
    }

    /// Pushes an empty table with room for so many elements and fields.
    pub(super) fn push_table(&mut self, elements: usize, fields: usize, _: &Unlimited<'_>) {
        self.admit();
        let [elements, fields] = [elements, fields].map(|count| count.min(TABLE_ROOM_MAX) as c_int);
        // SAFETY: there is room, no limit makes it fail, and the sizes are far from where Lua refuses them.
        unsafe { ffi::lua_createtable(self.state, elements, fields) };
    }

    /// Pushes a table whose elements are these texts.
    pub(super) fn push_texts<'w>(
        &mut self,
        texts: impl ExactSizeIterator<Item = &'w [u8]>,
        limit: &Unlimited<'_>,
    ) {
        self.push_table(texts.len(), 0, limit);
        for (text, at) in texts.zip(1..) {
            self.push_bytes(text, limit);
            // SAFETY: the table is the value below the text; no limit makes it fail.
            unsafe { ffi::lua_rawseti_(self.state, -2, at) };
            self.top -= 1;
        }
    }

    /// Puts the value on top into the table at `at`, under a name.
    pub(super) fn set_known(&mut self, at: c_int, name: Kept, _: &Unlimited<'_>) {
        let table = self.table(at);
        assert!(table < self.top, "the value is not the table");
        self.push_kept(name);
        assert!(self.kind(-1) == Kind::String, "a name");
        // SAFETY: the place holds a table below the value and its name, which change places: the name is no nil. No limit
        // makes it fail.
        unsafe {
            ffi::lua_insert(self.state, -2);
            ffi::lua_rawset(self.state, table);
        }
        self.top -= 2;
    }

    pub(super) fn push_kept(&mut self, kept: Kept) {
        self.admit();
        // SAFETY: there is room; the registry is a table, and a number that it does not have gives nil.
        unsafe { ffi::lua_rawgeti_(self.state, ffi::LUA_REGISTRYINDEX, kept.0) };
    }

    pub(super) fn push_copy(&mut self, at: c_int) {
        let at = self.place(at);
        self.admit();
        // SAFETY: the place holds a value, and there is room for another.
        unsafe { ffi::lua_pushvalue(self.state, at) };
    }

    /// What the value at `at` is.
    pub(super) fn kind(&self, at: c_int) -> Kind {
        // SAFETY: the place holds a value.
        match unsafe { ffi::lua_type(self.state, self.place(at)) } {
            ffi::LUA_TNIL => Kind::Nil,
            ffi::LUA_TBOOLEAN => Kind::Boolean,
            ffi::LUA_TNUMBER => Kind::Number,
            ffi::LUA_TSTRING => Kind::String,
            ffi::LUA_TTABLE => Kind::Table,
            _ => Kind::Other,
        }
    }

    /// Whether the value at `at` is a pointer to nothing.
    pub(super) fn is_null(&self, at: c_int) -> bool {
        let at = self.place(at);
        // SAFETY: the place holds a value.
        unsafe {
            ffi::lua_type(self.state, at) == ffi::LUA_TLIGHTUSERDATA
                && ffi::lua_touserdata(self.state, at).is_null()
        }
    }

    /// What Lua calls the type of the value at `at`.
    pub(super) fn type_name(&self, at: c_int) -> &'static str {
        // SAFETY: the place holds a value.
        match unsafe { ffi::lua_type(self.state, self.place(at)) } {
            ffi::LUA_TNIL => "nil",
            ffi::LUA_TBOOLEAN => "boolean",
            ffi::LUA_TNUMBER => "number",
            ffi::LUA_TSTRING => "string",
            ffi::LUA_TTABLE => "table",
            ffi::LUA_TFUNCTION => "function",
            ffi::LUA_TTHREAD => "thread",
            _ => "userdata",
        }
    }

    /// Whether the value at `at` is neither nil nor false.
    pub(super) fn is_true(&self, at: c_int) -> bool {
        // SAFETY: the place holds a value.
        unsafe { ffi::lua_toboolean(self.state, self.place(at)) != 0 }
    }

    /// The number at `at`; zero for anything else.
    pub(super) fn number(&self, at: c_int) -> f64 {
        self.as_number(at).unwrap_or(0.0)
    }

    /// The same; `None` for anything else, a text that reads as a number too.
    pub(super) fn as_number(&self, at: c_int) -> Option<f64> {
        // SAFETY: the place holds a number, once that is known.
        (self.kind(at) == Kind::Number).then(|| unsafe { ffi::lua_tonumber(self.state, self.place(at)) })
    }

    /// The string at `at`, for as long as nobody touches the stack; `None` for anything else, a number too.
    pub(super) fn bytes(&self, at: c_int) -> Option<&[u8]> {
        if self.kind(at) != Kind::String {
            return None;
        }
        let mut len = 0;
        // SAFETY: the place holds a string, so that nothing is converted. Lua neither moves nor frees it while it is on the
        // stack, and whatever takes it from there, or lets Lua run, borrows the stack anew.
        unsafe {
            let start = ffi::lua_tolstring(self.state, self.place(at), &mut len);
            Some(slice::from_raw_parts(start.cast(), len))
        }
    }

    /// Pushes element `index` of the table at `at`.
    pub(super) fn push_element(&mut self, at: c_int, index: c_int) {
        let table = self.table(at);
        self.admit();
        // SAFETY: the place holds a table, there is room, and a raw look at it calls nothing.
        unsafe { ffi::lua_rawgeti_(self.state, table, index) };
    }

    /// Replaces the key on top by what the table at `at` has for it.
    pub(super) fn look_up(&mut self, at: c_int) {
        let table = self.table(at);
        // SAFETY: as for an element; the table is below the top, and so the key is a value of its own.
        unsafe { ffi::lua_rawget_(self.state, table) };
    }

    /// Puts the value on top into the table at `at`, as element `index`.
    pub(super) fn set_element(&mut self, at: c_int, index: c_int, _: &Unlimited<'_>) {
        let table = self.table(at);
        // SAFETY: the place holds a table below the top; no limit makes it fail.
        unsafe { ffi::lua_rawseti_(self.state, table, index) };
        self.top -= 1;
    }

    /// Puts the value on top into the table at `at`, under the key below it; false, and it is passed over, for a key that no
    /// table can have.
    pub(super) fn set_field(&mut self, at: c_int, _: &Unlimited<'_>) -> bool {
        let table = self.table(at);
        let is_key = match self.kind(-2) {
            Kind::Nil => false,
            Kind::Number => !self.number(-2).is_nan(),
            _ => true,
        };
        if !is_key || table + 2 > self.top {
            self.pop(2);
            return false;
        }
        // SAFETY: the place holds a table below key and value, the key is neither nil nor NaN; no limit makes it fail.
        unsafe { ffi::lua_rawset(self.state, table) };
        self.top -= 2;
        true
    }

    /// Replaces the key on top by the one that follows in the table at `at`, and its value; takes it away after the last.
    /// Nil stands before the first.
    pub(super) fn next(&mut self, at: c_int) -> bool {
        let table = self.table(at);
        if self.kind(-1) != Kind::Nil {
            // Lua raises an error for a key that is not in the table.
            self.push_copy(-1);
            self.look_up(table);
            let is_there = self.kind(-1) != Kind::Nil;
            self.pop(1);
            if !is_there {
                self.pop(1);
                return false;
            }
        }
        self.admit();
        // SAFETY: the place holds a table below the key, which it has or which is nil, and there is room for one value more.
        let is_there = unsafe { ffi::lua_next(self.state, table) } != 0;
        if !is_there {
            self.top -= 2;
        }
        is_there
    }

    /// Whether the value at `at` is a function.
    pub(super) fn is_function(&self, at: c_int) -> bool {
        // SAFETY: the place holds a value.
        unsafe { ffi::lua_type(self.state, self.place(at)) == ffi::LUA_TFUNCTION }
    }

    /// What tells the table or function at `at` from all others as long as it lives.
    pub(super) fn identity(&self, at: c_int) -> usize {
        // SAFETY: the place holds a value; what it points to is not looked at.
        unsafe { ffi::lua_topointer(self.state, self.place(at)) }.addr()
    }

    /// Pushes upvalue `number`, from 1, of the function at `at`; false where it has no such.
    pub(super) fn push_upvalue(&mut self, at: c_int, number: c_int) -> bool {
        assert!(self.is_function(at), "a function is there");
        let function = self.place(at);
        self.admit();
        // SAFETY: the place holds a function, and there is room for what is pushed, if anything is.
        let is_there = unsafe { !ffi::lua_getupvalue(self.state, function, number).is_null() };
        if !is_there {
            self.top -= 1;
        }
        is_there
    }

    /// Makes the value on top upvalue `number` of the function at `at`, which has one of that number.
    pub(super) fn set_upvalue(&mut self, at: c_int, number: c_int) {
        assert!(self.is_function(at), "a function is there");
        // SAFETY: the place holds a function below the top. Where it has no such upvalue, the value stays.
        let is_set = unsafe { !ffi::lua_setupvalue(self.state, self.place(at), number).is_null() };
        if is_set {
            self.top -= 1;
        } else {
            self.pop(1);
        }
    }

    /// Whether the table at `at` has a metatable.
    pub(super) fn has_metatable(&mut self, at: c_int) -> bool {
        let table = self.table(at);
        self.admit();
        // SAFETY: the place holds a table, and there is room for what is pushed, if anything is.
        let has_one = unsafe { ffi::lua_getmetatable(self.state, table) } != 0;
        if has_one {
            self.pop(1);
        } else {
            self.top -= 1;
        }
        has_one
    }

    /// Takes all fields and the metatable of the table at `at` away.
    pub(super) fn empty(&mut self, at: c_int, limit: &Unlimited<'_>) {
        let table = self.table(at);
        self.push_nil();
        // SAFETY: the place holds a table, which is to have none instead of a metatable.
        unsafe { ffi::lua_setmetatable(self.state, table) };
        self.top -= 1;
        self.push_nil();
        loop {
            // A key goes when the one behind it is known, which is found by it.
            self.push_copy(-1);
            let is_there = self.next(table);
            if is_there {
                self.pop(1);
            } else {
                self.push_nil();
            }
            self.push_copy(-2);
            self.push_nil();
            self.set_field(table, limit);
            // SAFETY: the place below the top holds a value, which the one on top takes the place of.
            unsafe { ffi::lua_replace(self.state, self.top - 1) };
            self.top -= 1;
            if !is_there {
                return self.pop(1);
            }
        }
    }

    /// Calls the function below the highest `count` values with these, under its limit of memory: `handler` says what
    /// becomes of an error. In their place is the first result, or what became of the error; which, is returned.
    pub(super) fn call(&mut self, count: c_int, handler: c_int, limit: Unlimited<'_>) -> bool {
        let (handler, function) = (self.place(handler), self.place(-1 - count));
        assert!(handler < function, "the handler stays while the function runs");
        drop(limit);
        // SAFETY: function and arguments are there, the handler stays below them, and no error passes a protected call.
        let status = unsafe { ffi::lua_pcall(self.state, count, 1, handler) };
        self.top = function;
        status == ffi::LUA_OK
    }

    /// One value more: checks that there is room.
    fn admit(&mut self) {
        assert!(self.top < self.room, "room has been made for every value");
        self.top += 1;
    }

    /// The place `at`, counted from the lowest.
    fn place(&self, at: c_int) -> c_int {
        let place = if at < 0 { self.top + 1 + at } else { at };
        assert!((1..=self.top).contains(&place), "a value is there");
        place
    }

    /// The same, where it is a table with at least one value above it or to come.
    fn table(&self, at: c_int) -> c_int {
        assert!(self.kind(at) == Kind::Table, "a table is there");
        self.place(at)
    }
}

/// Elements or fields that a table is made with room for; it grows all the same.
const TABLE_ROOM_MAX: usize = 1 << 16;
