//! `gsub` with a function or a table, which Lua calls or looks into for every match.
//!
//! Rule    as for the stack: nothing has a destructor where Lua is called, for an error of Lua may pass it. What has been
//!         written so far is Lua's, too, once it is more than a little.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Range;
use std::ptr;

use mlua::{ffi, lua_State};

use super::direct::{Meter, Parts, bytes, caught, number, push};
use super::function::Own;
use super::native::end;
use crate::scripts::lua::auxiliary::{BYTES_PER_STEP, c_long};
use crate::scripts::lua::strings::{Unfound, anchored, count, next_to_replace};

/// What replaces is an argument; above the arguments is what has been written, if it is much.
const REPLACEMENT: c_int = 3;
const WRITTEN: c_int = 5;
/// Bytes that are written before Lua has to keep them.
const LITTLE: usize = 512;

/// A match is as much work as so many instructions of a script, and so many of them are charged at once.
const STEPS_PER_MATCH: usize = 10;
const MATCHES_PER_CHARGE: usize = 64;

/// `gsub`; with a text it is left to others.
pub(super) unsafe extern "C-unwind" fn replaced(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of `Own::make` and room for what is pushed. The texts stay on the stack.
    unsafe {
        if !matches!(ffi::lua_type(state, REPLACEMENT), ffi::LUA_TFUNCTION | ffi::LUA_TTABLE) {
            return Own::leave(state);
        }
        let max = match ffi::lua_type(state, REPLACEMENT + 1) {
            ffi::LUA_TNONE | ffi::LUA_TNIL => Some(usize::MAX),
            _ => number(state, REPLACEMENT + 1).map(|number| count(c_long(number))),
        };
        let (Some(max), Some(subject), Some(pattern)) = (max, bytes(state, 1), bytes(state, 2)) else {
            return Own::leave(state);
        };
        ffi::lua_settop(state, WRITTEN);
        let mut little = [MaybeUninit::<u8>::uninit(); LITTLE];
        let mut written = Written { state, bytes: little.as_mut_ptr().cast(), len: 0, room: LITTLE };
        let (is_anchored, pattern) = anchored(pattern);
        let (mut at, mut done) = (0, 0);
        while done < max {
            let Some(whole) = push_value(state, [subject, pattern], at, is_anchored) else { break };
            done += 1;
            if done.is_multiple_of(MATCHES_PER_CHARGE)
                && Meter(state).charge(MATCHES_PER_CHARGE * STEPS_PER_MATCH).is_err()
            {
                end(state);
            }
            written.push(&subject[at..whole.start]);
            written.push_value(&subject[whole.clone()]);
            at = whole.end;
            if whole.is_empty() {
                let Some(byte) = subject.get(at) else { break };
                written.push(&[*byte]);
                at += 1;
            }
            if is_anchored {
                break;
            }
        }
        written.push(&subject[at..]);
        ffi::lua_pushlstring_(state, written.bytes.cast(), written.len);
        ffi::lua_pushnumber(state, done as f64);
        2
    }
}

/// Pushes what is to be in the place of the next match: where that is.
///
/// # Safety
/// As for [`replaced`]. An error of Lua passes this.
#[inline(never)]
unsafe fn push_value(
    state: *mut lua_State,
    texts: [&[u8]; 2],
    at: usize,
    is_anchored: bool,
) -> Option<Range<usize>> {
    // SAFETY: as the caller says. The table or function is where it was.
    unsafe {
        let is_function = ffi::lua_type(state, REPLACEMENT) == ffi::LUA_TFUNCTION;
        if is_function {
            ffi::lua_pushvalue(state, REPLACEMENT);
        }
        let (whole, count) = match push_captures(state, texts, at, is_anchored, is_function) {
            Ok(found) => found?,
            Err(Unfound::Malformed(why)) => raise(state, why),
            Err(Unfound::Stopped) => end(state),
        };
        if is_function {
            ffi::lua_call(state, count, 1);
        } else {
            ffi::lua_gettable(state, REPLACEMENT);
        }
        Some(whole)
    }
}

/// Pushes what the next match has captured, or the first of it alone: where it is, and how many values there are. Its own,
/// so that their room is free again when Lua is called.
///
/// # Safety
/// As for [`replaced`]. An error of Lua passes this.
#[inline(never)]
unsafe fn push_captures(
    state: *mut lua_State,
    texts: [&[u8]; 2],
    at: usize,
    is_anchored: bool,
    is_all: bool,
) -> Result<Option<(Range<usize>, c_int)>, Unfound> {
    let mut parts = ManuallyDrop::new(Parts::new());
    // SAFETY: as the caller says. The parts have no destructor.
    unsafe {
        let find = || Some(next_to_replace(texts, at, is_anchored, &Meter(state), &mut parts));
        let found = caught(state, find).unwrap_or(Err(Unfound::Stopped))?;
        let Some(whole) = found else { return Ok(None) };
        let count = if is_all { parts.len() } else { 1 };
        Ok(Some((whole, push(state, texts[0], &parts[..count]))))
    }
}

/// What has been written so far.
struct Written {
    state: *mut lua_State,
    /// On the stack of C, and then in a value at [`WRITTEN`].
    bytes: *mut u8,
    len: usize,
    room: usize,
}

impl Written {
    /// # Safety
    /// As for [`replaced`]. An error of Lua passes this.
    unsafe fn push(&mut self, bytes: &[u8]) {
        // SAFETY: as the caller says; there is room for them, and what is pushed is behind all that there is.
        unsafe {
            if bytes.len() > self.room - self.len {
                self.grow(bytes.len());
            }
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.bytes.add(self.len), bytes.len());
        }
        self.len += bytes.len();
    }

    /// Pushes the value on top, which it takes away, or `own` for none.
    ///
    /// # Safety
    /// As for `push`.
    unsafe fn push_value(&mut self, own: &[u8]) {
        // SAFETY: as the caller says: the text stays on the stack until it is written.
        unsafe {
            let kind = ffi::lua_type(self.state, -1);
            let text = match kind {
                ffi::LUA_TSTRING | ffi::LUA_TNUMBER => bytes(self.state, -1).unwrap_or_default(),
                _ if ffi::lua_toboolean(self.state, -1) == 0 => own,
                _ => refuse(self.state, kind),
            };
            if Meter(self.state).charge(text.len() / BYTES_PER_STEP).is_err() {
                end(self.state);
            }
            // A value that grows may not be above this one.
            self.push(text);
            ffi::lua_settop(self.state, WRITTEN);
        }
    }

    /// Makes room for so many bytes more, in a value of Lua, which frees it when nobody has it any more.
    ///
    /// # Safety
    /// As for `push`.
    #[cold]
    unsafe fn grow(&mut self, more: usize) {
        let room = (2 * self.room).max(self.len.saturating_add(more));
        // SAFETY: as the caller says. The old value is on the stack until its bytes have moved.
        unsafe {
            let bytes: *mut u8 = ffi::lua_newuserdata(self.state, room).cast();
            ptr::copy_nonoverlapping(self.bytes, bytes, self.len);
            ffi::lua_replace(self.state, WRITTEN);
            (self.bytes, self.room) = (bytes, room);
        }
    }
}

/// Raises an error as Lua's own functions do: with the place of the call.
///
/// # Safety
/// There is room for two values, and nothing is left to be dropped.
unsafe fn raise(state: *mut lua_State, why: &'static str) -> ! {
    // SAFETY: as the caller says.
    unsafe {
        ffi::luaL_where(state, 1);
        ffi::lua_pushlstring_(state, why.as_ptr().cast(), why.len());
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}

/// Raises the error of a value of that kind.
///
/// # Safety
/// As for [`raise`].
unsafe fn refuse(state: *mut lua_State, kind: c_int) -> ! {
    // SAFETY: as the caller says; a format of Lua's with a place for a text of C's.
    unsafe {
        ffi::luaL_where(state, 1);
        let name = ffi::lua_typename(state, kind);
        ffi::lua_pushfstring(state, c"invalid replacement value (a %s)".as_ptr(), name);
        ffi::lua_concat(state, 2);
        ffi::lua_error(state)
    }
}
