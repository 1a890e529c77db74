//! Library functions that need nothing but their arguments: they answer on Lua's own stack, at what one of Lua's costs.
//!
//! Rule    as for the stack: what Lua makes last may raise an error, and nothing is left then to be dropped.
//! Rule    whatever is unusual is left to the function itself, which does all of it again.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use mlua::{Function, Lua, ffi, lua_State};

use super::native::{alone, push_callback};
use crate::scripts::lua::bit;
use crate::scripts::lua::budget::Budget;
use crate::scripts::lua::strings::{PARTS_MAX, Part, Parts, find_at_once, next_shortly, search_shortly};

/// What such a function has as its second upvalue; the first is that of the function itself.
pub(super) struct Own<T> {
    /// What the function has beside its arguments.
    pub(super) with: T,
    /// The function itself, which finds its upvalue and its arguments as if it had been called.
    pub(super) slow: ffi::lua_CFunction,
}

impl<T: Copy> Own<T> {
    /// A function of Lua that is `direct`, with `with`, and `slow` for what that leaves to it.
    ///
    /// # Safety
    /// `direct` looks for an `Own` of this kind.
    pub(super) unsafe fn make(
        lua: &Lua,
        slow: &Function,
        with: T,
        direct: ffi::lua_CFunction,
    ) -> mlua::Result<Function> {
        // SAFETY: mlua has pushed the function and calls this under protection, onto room for what is pushed. What Lua has
        // made for an `Own` is large enough and aligned, is written before anybody looks, and needs no drop.
        unsafe {
            lua.exec_raw::<Function>(slow, |state| {
                let slow = push_callback(state, 1);
                let own: *mut Self = ffi::lua_newuserdata(state, size_of::<Self>()).cast();
                own.write(Self { with, slow });
                ffi::lua_pushcclosure(state, direct, 2);
                alone(state);
            })
        }
    }

    /// That of the function that runs.
    ///
    /// # Safety
    /// `state` is that of a function that `make` has made, with such an `Own`.
    pub(super) unsafe fn of<'s>(state: *mut lua_State) -> &'s Self {
        // SAFETY: `make` has put it there, and Lua keeps it while its function runs.
        unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(2)).cast() }
    }
}

/// `find`, or `match`, which charges `budget`.
pub(in super::super) fn search(
    lua: &Lua,
    slow: &Function,
    budget: &Arc<Budget>,
    is_find: bool,
) -> mlua::Result<Function> {
    let direct = if is_find { found } else { searched::<false> };
    // SAFETY: that is what it looks for. The budget lives as long as the state, see [`tick`](super::tick).
    unsafe { Own::<*const Budget>::make(lua, slow, Arc::as_ptr(budget), direct) }
}

/// `gmatch`: a function that makes, of a text and what is looked for there, a function that gives the next of it each time.
/// `step` in Rust says what that is: of the two texts and of how far it was, the results and how far it is now. What is no
/// text is `slow`'s.
pub(in super::super) fn iterator(
    lua: &Lua,
    slow: &Function,
    step: &Function,
    budget: &Arc<Budget>,
) -> mlua::Result<Function> {
    // SAFETY: that is what they look for, as above. What is pushed has room.
    unsafe {
        let stepping = Own::<*const Budget>::make(lua, step, Arc::as_ptr(budget), stepping)?;
        let making = Own::make(lua, slow, (), making)?;
        lua.exec_raw::<Function>((making, stepping), |state| {
            // Each has two upvalues, of which the maker has four then.
            for function in [1, 2] {
                for upvalue in [1, 2] {
                    ffi::lua_getupvalue(state, function, upvalue);
                }
            }
            ffi::lua_pushcclosure(state, self::making, 4);
            alone(state);
        })
    }
}

/// A function that makes one word of two.
pub(in super::super) fn words<C: Fn(u32, u32) -> u32 + Copy>(
    lua: &Lua,
    slow: &Function,
    combine: C,
) -> mlua::Result<Function> {
    // SAFETY: that is what it looks for.
    unsafe { Own::<C>::make(lua, slow, combine, combined::<C>) }
}

/// `find` of two texts that are searched at once.
unsafe extern "C-unwind" fn found(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `make` and room for two values.
    unsafe {
        if ffi::lua_gettop(state) == 2
            && let (Some(subject), Some(pattern)) = (text(state, 1), text(state, 2))
            && let Some(place) = find_at_once(subject, pattern)
        {
            let Some(place) = place else {
                ffi::lua_pushnil(state);
                return 1;
            };
            ffi::lua_pushnumber(state, place as f64 + 1.0);
            ffi::lua_pushnumber(state, (place + pattern.len()) as f64);
            return 2;
        }
        searched::<true>(state)
    }
}

unsafe extern "C-unwind" fn searched<const IS_FIND: bool>(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `make` and room for twenty values: three are arguments at most, and so
    // many more as are pushed at most. The texts are on the stack until this returns. Nothing here has a destructor when
    // Lua makes a string, which may raise an error.
    unsafe {
        let own = Own::<*const Budget>::of(state);
        let first = match ffi::lua_gettop(state) {
            2 => Some(1.0),
            3 => number(state, 3),
            _ => None,
        };
        let (Some(subject), Some(pattern), Some(first)) = (text(state, 1), text(state, 2), first) else {
            return (own.slow)(state);
        };
        let mut parts = NONE;
        let budget = &*own.with;
        let search = || search_shortly(subject, pattern, first as i64, IS_FIND, budget, &mut parts);
        match caught(budget, search) {
            Some(len) => push(state, subject, &parts[..len]),
            None => (own.slow)(state),
        }
    }
}

/// Upvalues: those of `make`, and the two for [`stepping`].
unsafe extern "C-unwind" fn making(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that `iterator` gave it and room for what is pushed.
    unsafe {
        let is_text = |at| ffi::lua_type(state, at) == ffi::LUA_TSTRING;
        if ffi::lua_gettop(state) != 2 || !is_text(1) || !is_text(2) {
            return (Own::<()>::of(state).slow)(state);
        }
        for place in [ffi::lua_upvalueindex(3), ffi::lua_upvalueindex(4), 1, 2] {
            ffi::lua_pushvalue(state, place);
        }
        ffi::lua_pushnumber(state, 0.0);
        ffi::lua_pushcclosure(state, stepping, *PLACE.end());
        1
    }
}

/// Where a function that goes through a text has the text, what is looked for, and how far it is.
const PLACE: RangeInclusive<c_int> = 3..=5;

/// Upvalues: those of `make`, and [`PLACE`].
unsafe extern "C-unwind" fn stepping(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that `making` gave it and room for what is pushed; it keeps the texts.
    unsafe {
        let [subject_at, pattern_at, start_at] = [3, 4, 5].map(ffi::lua_upvalueindex);
        let own = Own::<*const Budget>::of(state);
        let (Some(subject), Some(pattern)) = (text(state, subject_at), text(state, pattern_at)) else {
            return 0;
        };
        let (start, mut parts) = (ffi::lua_tonumber(state, start_at) as usize, NONE);
        let budget = &*own.with;
        if let Some((len, end)) = caught(budget, || next_shortly(subject, pattern, start, budget, &mut parts))
        {
            ffi::lua_pushnumber(state, end as f64);
            ffi::lua_replace(state, start_at);
            return push(state, subject, &parts[..len]);
        }
        ffi::lua_settop(state, 0);
        for place in PLACE {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(place));
        }
        let results = (own.slow)(state);
        ffi::lua_replace(state, start_at);
        results - 1
    }
}

/// What `body` says, which panics in the middle of Lua otherwise.
fn caught<R>(budget: &Budget, body: impl FnOnce() -> Option<R>) -> Option<R> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        budget.pass_on(panic);
        None
    })
}

/// No parts yet.
const NONE: Parts = [Part::Number(0.0); PARTS_MAX];

/// Pushes parts of a text, or nil for none: how many values.
///
/// # Safety
/// They are parts of it, the text stays where it is, and there is room. An error of Lua passes this.
unsafe fn push(state: *mut lua_State, text: &[u8], parts: &[Part]) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        for part in parts {
            match *part {
                Part::Bytes(start, len) => {
                    ffi::lua_pushlstring_(state, text.as_ptr().add(start as usize).cast(), len as usize);
                }
                Part::Number(number) => ffi::lua_pushnumber(state, number),
            }
        }
        if parts.is_empty() {
            ffi::lua_pushnil(state);
        }
    }
    parts.len().max(1) as c_int
}

unsafe extern "C-unwind" fn combined<C: Fn(u32, u32) -> u32 + Copy>(state: *mut lua_State) -> c_int {
    const { assert!(size_of::<C>() == 0, "nothing has to be looked up to call it") };
    // SAFETY: Lua calls this, with the upvalues of `make` and room for a value. There is a `C`, it is in no place in
    // particular, and may be copied.
    unsafe {
        if ffi::lua_gettop(state) == 2
            && let (Some(left), Some(right)) = (number(state, 1), number(state, 2))
        {
            let combine = NonNull::<C>::dangling().read();
            let word = combine(bit::low_word(left), bit::low_word(right));
            ffi::lua_pushnumber(state, bit::signed(word));
            return 1;
        }
        (Own::<C>::of(state).slow)(state)
    }
}

/// The argument as a number, if it is one or a text that reads as one.
///
/// # Safety
/// There is such a place.
unsafe fn number(state: *mut lua_State, at: c_int) -> Option<f64> {
    // SAFETY: as the caller says. Only what is zero may be no number.
    unsafe {
        let number = ffi::lua_tonumber(state, at);
        (number != 0.0 || ffi::lua_isnumber(state, at) != 0).then_some(number)
    }
}

/// The argument as a string, which a number becomes.
///
/// # Safety
/// There is such a place, and it keeps its value while the text is used.
unsafe fn text<'s>(state: *mut lua_State, at: c_int) -> Option<&'s [u8]> {
    let mut len = 0;
    // SAFETY: as the caller says. The text of a number may raise an error, when nothing here has a destructor.
    unsafe {
        let start = ffi::lua_tolstring(state, at, &mut len);
        (!start.is_null()).then(|| slice::from_raw_parts(start.cast(), len))
    }
}
