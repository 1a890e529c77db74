//! Library functions that need nothing but their arguments: they answer on Lua's own stack, at what one of Lua's costs.
//!
//! Rule    as for the stack: what Lua makes last may raise an error, and nothing is left then to be dropped.
//! Rule    whatever is unusual is left to the function itself, which does all of it again.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::slice;

use arrayvec::ArrayVec;
use mlua::{Function, Lua, ffi, lua_State};

use super::ROOM_OF_A_CALL;
use super::function::Own;
use super::native::alone;
use super::replace::replaced;
use crate::scripts::lua::bit;
use crate::scripts::lua::fault::Checked;
use crate::scripts::lua::strings::{find_at_once, next_shortly};

/// A function in C that answers by itself, as long as nothing is unusual.
#[derive(Clone, Copy)]
pub(in super::super) struct Direct(pub(super) ffi::lua_CFunction);

impl Direct {
    /// One that gives parts of one of its two texts.
    pub(in super::super) const fn parts<F: Search>(_: F) -> Self {
        Self(searched::<F>)
    }

    /// `find`, which is that, too, once it is not found at once.
    pub(in super::super) const fn find<F: Search>(_: F) -> Self {
        Self(found::<F>)
    }

    /// One that makes a text of its arguments, in room that it is given. `None` where the function itself has to do it.
    pub(in super::super) const fn text<F>(_: F) -> Self
    where
        F: Fn(&Arguments<'_>, &mut Room) -> Option<()> + Copy,
    {
        Self(made::<F>)
    }

    /// `gsub` with a function or a table.
    pub(in super::super) const GSUB: Self = Self(replaced);

    /// One that gives one part of its first argument, or a number. `None` as for a text.
    pub(in super::super) const fn part<F: Fn(&Arguments<'_>) -> Option<Part> + Copy>(_: F) -> Self {
        Self(taken::<F>)
    }

    /// One that makes one word of another.
    pub(in super::super) const fn word<F: Fn(u32) -> u32 + Copy>(_: F) -> Self {
        Self(changed::<F>)
    }

    /// One that makes one word of two.
    pub(in super::super) const fn words<F: Fn(u32, u32) -> u32 + Copy>(_: F) -> Self {
        Self(combined::<F>)
    }

    /// One that makes one word of all that it is given.
    pub(in super::super) const fn fold<F: Fn(u32, u32) -> u32 + Copy>(_: F) -> Self {
        Self(folded::<F>)
    }
}

/// What gives parts of one of two texts; there may be a number, too. `None` where the function itself has to do it.
pub(in super::super) trait Search:
    for<'t> Fn([&'t [u8]; 2], Option<f64>, &Meter, &mut Parts) -> Option<&'t [u8]> + Copy
{
}

impl<F> Search for F where
    F: for<'t> Fn([&'t [u8]; 2], Option<f64>, &Meter, &mut Parts) -> Option<&'t [u8]> + Copy
{
}

/// A part of a text.
#[derive(Clone, Copy)]
pub(in super::super) enum Part {
    /// Bytes of it, from there and so many.
    Bytes(usize, usize),
    /// A place in it, or what some of its bytes mean.
    Number(f64),
}

/// Parts of a text, as long as they are few.
pub(in super::super) type Parts = ArrayVec<Part, 64>;

/// Room for a text that is made.
pub(in super::super) type Room = ArrayVec<u8, { 8 * 1024 }>;

/// A function of Lua that is `direct`, and `slow`, a function in Rust, for what that leaves.
pub(in super::super) fn direct(lua: &Lua, slow: &Function, direct: Direct) -> mlua::Result<Function> {
    Own::replace(lua, slow, None, direct)
}

/// What a function charges its work to, which is only looked for when there is some.
pub(in super::super) struct Meter(pub(super) *mut lua_State);

impl Meter {
    /// As [`Budget::charge`].
    pub(in super::super) fn charge(&self, steps: usize) -> Checked {
        if steps == 0 {
            return Ok(());
        }
        // SAFETY: it belongs to a function that has an `Own` and runs.
        unsafe { Own::of(self.0).budget.charge(steps) }
    }
}

/// The arguments of a function, which stay as they are.
pub(in super::super) struct Arguments<'s> {
    /// What the function charges its work to.
    pub(in super::super) meter: Meter,
    len: c_int,
    values: PhantomData<&'s [u8]>,
}

impl<'s> Arguments<'s> {
    /// How many there are.
    pub(in super::super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Argument `at`, from 1, if it is a string; a number is none.
    pub(in super::super) fn text(&self, at: usize) -> Option<&'s [u8]> {
        let (at, state) = (self.place(at)?, self.meter.0);
        // SAFETY: there is such an argument, and it stays where it is while the function runs. A string is not converted.
        unsafe { if ffi::lua_type(state, at) == ffi::LUA_TSTRING { bytes(state, at) } else { None } }
    }

    /// Argument `at`, from 1, if it is a number, or a text that reads as one.
    pub(in super::super) fn number(&self, at: usize) -> Option<f64> {
        // SAFETY: there is such an argument.
        self.place(at).and_then(|at| unsafe { number(self.meter.0, at) })
    }

    fn place(&self, at: usize) -> Option<c_int> {
        c_int::try_from(at).ok().filter(|at| (1..=self.len).contains(at))
    }
}

/// `gmatch`: a function that makes, of a text and what is looked for there, a function that gives the next of it each time.
/// `step` in Rust says what that is: of the two texts and of how far it was, the results and how far it is now. What is no
/// text is `slow`'s to refuse.
pub(in super::super) fn iterator(lua: &Lua, slow: &Function, step: &Function) -> mlua::Result<Function> {
    // SAFETY: what is pushed has room.
    unsafe {
        let [making, stepping] = [(slow, making as ffi::lua_CFunction), (step, stepping)]
            .map(|(slow, function)| direct(lua, slow, Direct(function)));
        lua.exec_raw::<Function>((making?, stepping?), |state| {
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

/// What is called `F`, which is in no place in particular.
///
/// # Safety
/// There is one that may be copied.
unsafe fn known<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0, "nothing has to be looked up to call it") };
    // SAFETY: as the caller says; of no bytes all are there.
    unsafe { NonNull::<F>::dangling().read() }
}

/// `find` of two texts that are searched at once.
unsafe extern "C-unwind" fn found<F: Search>(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `Own::make` and room for two values.
    unsafe {
        if ffi::lua_gettop(state) == 2
            && let (Some(subject), Some(pattern)) = (bytes(state, 1), bytes(state, 2))
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
        searched::<F>(state)
    }
}

unsafe extern "C-unwind" fn searched<F: Search>(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `Own::make`. There is an `F`.
    unsafe { push_found::<F>(state).unwrap_or_else(|| Own::leave(state)) }
}

/// Pushes what is found: how many values. It has a frame of its own, as the next one does, so that its room is free again
/// where the function itself raises an error: whoever handles that runs above all that raised it, and may fail again.
///
/// # Safety
/// As for [`searched`].
#[inline(never)]
unsafe fn push_found<F: Search>(state: *mut lua_State) -> Option<c_int> {
    // SAFETY: as the caller says. The texts are on the stack until the function returns. Nothing here has a destructor when
    // Lua makes a string, which may raise an error.
    unsafe {
        let third = match ffi::lua_gettop(state) {
            2 => None,
            3 => Some(number(state, 3)?),
            _ => return None,
        };
        let texts = [bytes(state, 1)?, bytes(state, 2)?];
        let mut parts = ManuallyDrop::new(Parts::new());
        let text = caught(state, || known::<F>()(texts, third, &Meter(state), &mut parts))?;
        Some(push(state, text, &parts))
    }
}

unsafe extern "C-unwind" fn made<F>(state: *mut lua_State) -> c_int
where
    F: Fn(&Arguments<'_>, &mut Room) -> Option<()> + Copy,
{
    // SAFETY: Lua calls this, with the upvalues of `Own::make`. There is an `F`.
    unsafe { push_made::<F>(state).map_or_else(|| Own::leave(state), |()| 1) }
}

/// Pushes what is made.
///
/// # Safety
/// As for [`made`].
#[inline(never)]
unsafe fn push_made<F>(state: *mut lua_State) -> Option<()>
where
    F: Fn(&Arguments<'_>, &mut Room) -> Option<()> + Copy,
{
    // SAFETY: as the caller says, with room for a value. Nothing here has a destructor when Lua makes a string, which may
    // raise an error.
    unsafe {
        let mut room = ManuallyDrop::new(Room::new());
        let arguments = Arguments { meter: Meter(state), len: ffi::lua_gettop(state), values: PhantomData };
        caught(state, || known::<F>()(&arguments, &mut room))?;
        ffi::lua_pushlstring_(state, room.as_ptr().cast(), room.len());
        Some(())
    }
}

unsafe extern "C-unwind" fn taken<F: Fn(&Arguments<'_>) -> Option<Part> + Copy>(
    state: *mut lua_State,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let arguments = Arguments { meter: Meter(state), len: ffi::lua_gettop(state), values: PhantomData };
        match caught(state, || known::<F>()(&arguments)) {
            Some(part) => push(state, arguments.text(1).unwrap_or_default(), &[part]),
            None => Own::leave(state),
        }
    }
}

unsafe extern "C-unwind" fn changed<F: Fn(u32) -> u32 + Copy>(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `Own::make` and room for a value. There is an `F`.
    unsafe {
        let Some(number) = number(state, 1) else { return Own::leave(state) };
        ffi::lua_pushnumber(state, bit::signed(known::<F>()(bit::low_word(number))));
    }
    1
}

unsafe extern "C-unwind" fn combined<F: Fn(u32, u32) -> u32 + Copy>(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let (Some(left), Some(right)) = (number(state, 1), number(state, 2)) else {
            return Own::leave(state);
        };
        let word = known::<F>()(bit::low_word(left), bit::low_word(right));
        ffi::lua_pushnumber(state, bit::signed(word));
    }
    1
}

unsafe extern "C-unwind" fn folded<F: Fn(u32, u32) -> u32 + Copy>(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        let Some(first) = number(state, 1) else { return Own::leave(state) };
        let mut word = bit::low_word(first);
        for at in 2..=ffi::lua_gettop(state) {
            let Some(next) = number(state, at) else { return Own::leave(state) };
            word = known::<F>()(word, bit::low_word(next));
        }
        ffi::lua_pushnumber(state, bit::signed(word));
    }
    1
}

/// Upvalues: those of `Own::make`, and the two for [`stepping`].
unsafe extern "C-unwind" fn making(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that `iterator` gave it and room for what is pushed.
    unsafe {
        if bytes(state, 1).is_none() || bytes(state, 2).is_none() {
            return Own::leave(state);
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

/// Upvalues: those of `Own::make`, and [`PLACE`].
unsafe extern "C-unwind" fn stepping(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues that `making` gave it and room for what is pushed; it keeps the texts.
    unsafe {
        let [subject_at, pattern_at, start_at] = [3, 4, 5].map(ffi::lua_upvalueindex);
        let (Some(subject), Some(pattern)) = (bytes(state, subject_at), bytes(state, pattern_at)) else {
            return 0;
        };
        let (start, mut parts) =
            (ffi::lua_tonumber(state, start_at) as usize, ManuallyDrop::new(Parts::new()));
        let next = || next_shortly([subject, pattern], start, &Meter(state), &mut parts);
        if let Some(end) = caught(state, next) {
            ffi::lua_pushnumber(state, end as f64);
            ffi::lua_replace(state, start_at);
            return push(state, subject, &parts);
        }
        ffi::lua_settop(state, 0);
        for place in PLACE {
            ffi::lua_pushvalue(state, ffi::lua_upvalueindex(place));
        }
        let results = Own::leave(state);
        ffi::lua_replace(state, start_at);
        results - 1
    }
}

/// What `body` says, which panics in the middle of Lua otherwise.
///
/// # Safety
/// As for [`Own::of`].
pub(super) unsafe fn caught<R>(state: *mut lua_State, body: impl FnOnce() -> Option<R>) -> Option<R> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        // SAFETY: as the caller says.
        unsafe { Own::of(state).budget.pass_on(panic) };
        None
    })
}

/// Pushes parts of a text, or nil for none: how many values.
///
/// # Safety
/// They are parts of it, the text stays where it is, and there is room for twenty values less three. An error of Lua passes
/// this.
pub(super) unsafe fn push(state: *mut lua_State, text: &[u8], parts: &[Part]) -> c_int {
    // SAFETY: as the caller says; more room is made for more.
    unsafe {
        if parts.len() > ROOM_OF_A_CALL as usize - 3 {
            ffi::luaL_checkstack(state, parts.len() as c_int, c"too many results".as_ptr());
        }
        for part in parts {
            match *part {
                Part::Bytes(start, len) => {
                    ffi::lua_pushlstring_(state, text.as_ptr().add(start).cast(), len);
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

/// The argument as a number, if it is one or a text that reads as one.
///
/// # Safety
/// There is such a place.
pub(super) unsafe fn number(state: *mut lua_State, at: c_int) -> Option<f64> {
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
pub(super) unsafe fn bytes<'s>(state: *mut lua_State, at: c_int) -> Option<&'s [u8]> {
    let mut len = 0;
    // SAFETY: as the caller says. The text of a number may raise an error, when nothing here has a destructor.
    unsafe {
        let start = ffi::lua_tolstring(state, at, &mut len);
        (!start.is_null()).then(|| slice::from_raw_parts(start.cast(), len))
    }
}
