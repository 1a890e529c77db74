//! How Lua calls Rust: `redis.call` and `redis.pcall` as functions of Lua, and who answers them.
//!
//! Rule    as for the stack: an error of Lua is raised by the last statement alone, where nothing is left to be dropped.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use mlua::{Function, Lua, ffi, lua_State};
use parking_lot::Mutex;

use super::direct::Direct;
use super::function::{Own, plain};
use super::native::end;
use super::{ROOM_OF_A_CALL, Stack};

/// Who answers when a script calls.
pub(in super::super) trait Called {
    /// Works on the arguments, which are all that is on the stack, and leaves on top what [`Answer`] says.
    fn call(&mut self, stack: &mut Stack<'_>) -> Answer;

    /// Does what the library function of that number does, on the arguments, which are all that is on the stack: how many
    /// results it leaves on top; `None`, where that is left to the function itself.
    fn shorten(&mut self, number: usize, stack: &mut Stack<'_>) -> Option<c_int>;
}

/// What a call has left on top of the stack.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in super::super) enum Answer {
    /// An error, which is raised or returned, as the function is that was called.
    Failure,
    /// An error that is raised in either case.
    Raised,
    /// Nothing: the script has to end.
    Stopped,
    /// What the function returns.
    Value,
}

/// Where two functions of Lua find who answers their calls: one that raises failures, and one that returns them.
///
/// The functions stay the same for the life of the interpreter; who answers changes from script to script, and is nobody
/// between scripts.
#[derive(Debug, Default)]
pub(in super::super) struct Port {
    /// A `&mut dyn Called` on the stack of [`Port::open`], while that runs and no call is being answered.
    called: AtomicPtr<c_void>,
    /// What has passed a call as a panic, and goes on its way where the script ends.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Port {
    /// Makes the functions, first the one that raises.
    pub(in super::super) fn install(lua: &Lua) -> mlua::Result<(Arc<Self>, Function, Function)> {
        let port = Arc::new(Self::default());
        // The state lets go of this when it is closed: the functions do not outlive what they point to.
        lua.set_app_data(Installed(Arc::clone(&port)));
        let at = Arc::as_ptr(&port).cast_mut().cast::<c_void>();
        let make = |function: ffi::lua_CFunction| {
            // SAFETY: the closure only pushes, under the protection of mlua and onto room for three values.
            unsafe {
                lua.exec_raw::<Function>((), |state| {
                    ffi::lua_pushlightuserdata(state, at);
                    ffi::lua_pushcclosure(state, function, 1);
                })
            }
        };
        let (raising, returning) = (make(raising)?, make(returning)?);
        Ok((port, raising, returning))
    }

    /// Lets `called` answer while `body` runs.
    pub(in super::super) fn open<R>(&self, mut called: &mut dyn Called, body: impl FnOnce() -> R) -> R {
        let called: *mut &mut dyn Called = &mut called;
        self.called.store(called.cast(), Relaxed);
        let closed = Closed(self);
        let result = body();
        drop(closed);
        let panic = self.panic.lock().take();
        match panic {
            Some(panic) => resume_unwind(panic),
            None => result,
        }
    }

    /// A function of Lua that does what `slow` does, another in Rust, in a shorter way where [`Called::shorten`] does so
    /// for `number`, and before by itself, if it can.
    pub(in super::super) fn shortened(
        self: &Arc<Self>,
        lua: &Lua,
        slow: &Function,
        number: usize,
        direct: Option<Direct>,
    ) -> mlua::Result<Function> {
        Own::replace(lua, slow, Some((Arc::clone(self), number)), direct.unwrap_or(Direct(shortened)))
    }

    /// That of the function that runs, one of the two.
    ///
    /// # Safety
    /// `state` is that of such a function.
    unsafe fn of<'s>(state: *mut lua_State) -> &'s Self {
        // SAFETY: the upvalue is what `install` has put there, and Installed keeps it alive.
        unsafe { &*ffi::lua_touserdata(state, ffi::lua_upvalueindex(1)).cast() }
    }

    /// Has whoever answers answer on `state`; `None` where nobody is there.
    ///
    /// # Safety
    /// `state` is that of a function of Lua in C that has just been called.
    unsafe fn answer<R>(
        &self,
        state: *mut lua_State,
        body: impl FnOnce(&mut dyn Called, &mut Stack<'_>) -> R,
    ) -> Option<R> {
        // Nobody else finds it meanwhile: there is one reference to it, and this is where it is. The script's thread is the
        // only one that looks here while the script runs.
        let slot = self.called.load(Relaxed);
        if slot.is_null() {
            return None;
        }
        self.called.store(ptr::null_mut(), Relaxed);
        // SAFETY: not null only while `open` runs, below which the script runs that calls: what it points to lives, and
        // nobody else uses it. The lifetime that the cast forgets is longer than this function.
        let called = unsafe { &mut *slot.cast::<&mut dyn Called>() };
        // SAFETY: the state lives while it calls.
        let top = unsafe { ffi::lua_gettop(state) };
        let mut stack = Stack { state, top, room: top + ROOM_OF_A_CALL, lua: PhantomData };
        match catch_unwind(AssertUnwindSafe(|| body(&mut **called, &mut stack))) {
            Ok(answer) => {
                self.called.store(slot, Relaxed);
                Some(answer)
            }
            // Nobody answers from here on, whatever the script does with the error.
            Err(panic) => {
                *self.panic.lock() = Some(panic);
                // SAFETY: the arguments are there still.
                unsafe { ffi::lua_settop(state, top) };
                None
            }
        }
    }
}

fn call(called: &mut dyn Called, stack: &mut Stack<'_>) -> Answer {
    let answer = called.call(stack);
    assert!(stack.top > 0 || answer == Answer::Stopped, "a call leaves something");
    answer
}

/// Keeps a port for as long as the state whose functions point to it.
struct Installed(#[expect(dead_code, reason = "held, not read")] Arc<Port>);

/// A port that nobody answers at any more when this is dropped, however that comes about.
struct Closed<'p>(&'p Port);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.called.store(ptr::null_mut(), Relaxed);
    }
}

/// `redis.call`
unsafe extern "C-unwind" fn raising(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalue that `install` gave it. Nothing here has a destructor when an error is raised.
    unsafe {
        match Port::of(state).answer(state, call) {
            Some(Answer::Value) => 1,
            Some(Answer::Failure | Answer::Raised) => ffi::lua_error(state),
            Some(Answer::Stopped) => end(state),
            None => ffi::luaL_error(state, OUTSIDE.as_ptr()),
        }
    }
}

/// `redis.pcall`
unsafe extern "C-unwind" fn returning(state: *mut lua_State) -> c_int {
    // SAFETY: as above.
    unsafe {
        match Port::of(state).answer(state, call) {
            Some(Answer::Value | Answer::Failure) => 1,
            Some(Answer::Raised) => ffi::lua_error(state),
            Some(Answer::Stopped) => end(state),
            None => ffi::luaL_error(state, OUTSIDE.as_ptr()),
        }
    }
}

/// A library function that may be shortened.
pub(super) unsafe extern "C-unwind" fn shortened(state: *mut lua_State) -> c_int {
    // SAFETY: Lua calls this, with the upvalues of an `Own`. To take values from the stack takes no memory.
    unsafe {
        let Some((port, number)) = &Own::of(state).served else { return plain(state) };
        let results = port.answer(state, |called, stack| {
            let top = stack.top;
            let results = called.shorten(*number, stack);
            match results {
                Some(count) => assert!((0..=stack.top).contains(&count), "they are there"),
                None => stack.truncate(top),
            }
            results
        });
        match results {
            Some(Some(results)) => results,
            Some(None) | None => plain(state),
        }
    }
}

/// What a function says where no script runs; a format of Lua's without a place to fill.
const OUTSIDE: &std::ffi::CStr = c"redis.call can only be called inside a script invocation";
