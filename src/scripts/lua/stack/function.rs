//! Functions in Rust for Lua: how what they say goes back, and how it is raised, where that is an error.
//!
//! Owns    errors on their way from Rust to Lua: a script's own functions may handle them where they are raised, and so they
//!         are Lua's values from there on.
//! Rule    as for the stack: an error of Lua is raised by the last statement alone, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use mlua::{Function, IntoLuaMulti, LightUserData, Lua, MultiValue, Result, Value, ffi, lua_State};

use super::direct::Direct;
use super::native::{alone, end, push_callback};
use super::port::{Port, shortened};
use crate::scripts::lua::budget::Budget;
use crate::scripts::lua::fault::{self, Fault};

/// A function of Lua that does what `run` does with its arguments, and raises its errors.
///
/// # Errors
/// Where Lua has no room for it.
pub(in super::super) fn function<R: IntoLuaMulti>(
    lua: &Lua,
    budget: &Arc<Budget>,
    run: impl Fn(&Lua, MultiValue) -> Result<R> + Send + 'static,
) -> Result<Function> {
    let own = Arc::clone(budget);
    let slow = lua.create_function(move |lua, args: MultiValue| {
        let results = run(lua, args).and_then(|results| results.into_lua_multi(lua));
        Ok(results.unwrap_or_else(|error| told(lua, &own, &error)))
    })?;
    let mut address = None;
    // SAFETY: mlua has pushed the function and calls this under protection, onto room for what is pushed.
    unsafe { lua.exec_raw::<()>(&slow, |state| address = Some(push_callback(state, 1)))? };
    let Some(address) = address else { return Err(mlua::Error::StackError) };
    Own { budget: Arc::clone(budget), served: None, slow: address }.make(lua, &slow, plain)
}

/// What Rust says of an error: [`MARK`], and the value that is raised; the mark alone for the end of the script.
fn told(lua: &Lua, budget: &Budget, error: &mlua::Error) -> MultiValue {
    let fault = fault::unwrap(error, budget.memory_max());
    let text = match &fault {
        Fault::Reply { line: text, .. } | Fault::Text(text) => text,
        Fault::Stop(stop) => {
            budget.stop(stop.clone());
            return MultiValue::from_iter([mark()]);
        }
        Fault::Stopped => return MultiValue::from_iter([mark()]),
    };
    if budget.reserve(lua, text.len()).is_err() {
        return MultiValue::from_iter([mark()]);
    }
    // Under the limit this would be calls that Lua protects, and it may be that there can be no more calls in C.
    let _limit = budget.lift(lua);
    let value = match &fault {
        Fault::Reply { from_command, .. } => fault::error_table(lua, text, *from_command).map(Value::Table),
        _ => lua.create_string(text).map(Value::String),
    };
    MultiValue::from_iter([mark(), value.unwrap_or(Value::Nil)])
}

/// What is at this address is before an error among what a function in Rust returns. No script gets hold of it.
static MARK: u8 = 0;

fn mark() -> Value {
    Value::LightUserData(LightUserData(ptr::from_ref(&MARK).cast_mut().cast::<c_void>()))
}

/// What such a function has as its second upvalue; the first is that of the function in Rust. Lua does not collect it.
pub(super) struct Own {
    /// Who is charged.
    pub(super) budget: Arc<Budget>,
    /// Who may shorten it, and by what number.
    pub(super) served: Option<(Arc<Port>, usize)>,
    /// The function in Rust, which finds its upvalue and its arguments as if it had been called.
    slow: ffi::lua_CFunction,
}

/// Those of all functions of a state. There is one for all that are not `served`.
struct All(Vec<Arc<Own>>);

impl All {
    fn keep(&mut self, own: Own) -> *const Own {
        let is_same = |other: &&Arc<Own>| {
            own.served.is_none() && other.served.is_none() && ptr::fn_addr_eq(own.slow, other.slow)
        };
        if let Some(same) = self.0.iter().find(is_same) {
            return Arc::as_ptr(same);
        }
        let own = Arc::new(own);
        let at = Arc::as_ptr(&own);
        self.0.push(own);
        at
    }
}

impl Own {
    /// A function of Lua that is `direct`, and `slow`, which [`function`] has made, for what that leaves.
    ///
    /// # Errors
    /// Where Lua has no room for it.
    pub(super) fn replace(
        lua: &Lua,
        slow: &Function,
        served: Option<(Arc<Port>, usize)>,
        Direct(direct): Direct,
    ) -> Result<Function> {
        let mut own = None;
        // SAFETY: mlua has pushed the function and calls this under protection, onto room for what is pushed. The upvalue is
        // what `make` has put there, and lives as long as the state.
        unsafe {
            lua.exec_raw::<()>(slow, |state| {
                if !ffi::lua_getupvalue(state, 1, OWN).is_null() {
                    own = ffi::lua_touserdata(state, -1).cast::<Self>().as_ref();
                }
            })?;
        }
        let Some(Self { budget, slow: address, .. }) = own else { return Err(mlua::Error::StackError) };
        Self { budget: Arc::clone(budget), served, slow: *address }.make(lua, slow, direct)
    }

    /// The closure of `function` with the first upvalue of `slow`, and this.
    fn make(self, lua: &Lua, slow: &Function, function: ffi::lua_CFunction) -> Result<Function> {
        let at = self.kept(lua).cast_mut().cast();
        // SAFETY: mlua has pushed the function and calls this under protection, onto room for what is pushed. The state keeps
        // what the second upvalue points to.
        unsafe {
            lua.exec_raw::<Function>(slow, |state| {
                ffi::lua_getupvalue(state, 1, 1);
                ffi::lua_pushlightuserdata(state, at);
                ffi::lua_pushcclosure(state, function, OWN);
                alone(state);
            })
        }
    }

    /// Where this is for as long as the state lives: no function outlives that.
    fn kept(self, lua: &Lua) -> *const Self {
        if let Some(mut all) = lua.app_data_mut::<All>() {
            return all.keep(self);
        }
        let mut all = All(Vec::new());
        let at = all.keep(self);
        lua.set_app_data(all);
        at
    }

    /// That of the function that runs.
    ///
    /// # Safety
    /// `state` is that of a function that [`function`] or [`Own::replace`] has made.
    pub(super) unsafe fn of<'s>(state: *mut lua_State) -> &'s Self {
        // SAFETY: `make` has put it there, and the state keeps it.
        unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(OWN)).cast() }
    }

    /// Leaves it all to who may shorten it, and then to the function itself.
    ///
    /// # Safety
    /// As for `of`, with the arguments as they were. An error of Lua passes this.
    pub(super) unsafe fn leave(state: *mut lua_State) -> c_int {
        // SAFETY: as the caller says.
        unsafe { if Self::of(state).served.is_some() { shortened(state) } else { plain(state) } }
    }
}

/// The upvalue of all these functions that is their [`Own`].
const OWN: c_int = 2;

/// The function in Rust.
///
/// # Safety
/// As for [`Own::leave`].
pub(super) unsafe extern "C-unwind" fn plain(state: *mut lua_State) -> c_int {
    // SAFETY: as the caller says. What says where a mark is, is not looked into.
    unsafe {
        let results = (Own::of(state).slow)(state);
        if results == 0 || ffi::lua_touserdata(state, -results).cast_const() != ptr::from_ref(&MARK).cast() {
            return results;
        }
        if results == 1 {
            end(state);
        }
        ffi::lua_error(state)
    }
}
