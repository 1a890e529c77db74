//! What a script may use up, and who decides that it has to end.
//!
//! Owns    the hook that runs every few instructions, the memory limit, and the stop that no `pcall` catches.
//! Time    is not known here: the watchdog is asked often enough to look at a clock of its own.
//! Rule    work outside the virtual machine that grows with its input is charged to the budget, and polls like the hook.
//!
//! Lua's own C functions and operators run without the hook. Those that a script can reach look at everything that the
//! script holds at most once. The hook therefore comes more often when the script holds much memory, so that the work
//! between two polls stays about the same.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use mlua::{HookTriggers, Lua, VmState};
use parking_lot::Mutex;
use redlatch_core::scripts::interpreter::{Verdict, Watchdog};

use super::fault::{Checked, Stop, Stopped};

/// Instructions between two polls while a script holds little memory.
const INSTRUCTIONS_PER_POLL: u32 = 1000;
/// Bytes in use from which on the hook comes more often.
const LITTLE_BYTES: usize = 4 << 20;
/// Steps of work outside the virtual machine that cost as much as the instructions between two polls.
const STEPS_PER_POLL: u32 = 10_000;

/// The budget of the script that runs. One for each interpreter, reset for each script.
pub(super) struct Budget {
    watchdog: Mutex<Option<Arc<dyn Watchdog>>>,
    /// The reason to stop, once there is one. Every later poll gives the same.
    stop: Mutex<Option<Stop>>,
    /// Whether there is a reason to stop.
    is_stopped: AtomicBool,
    /// Bytes that a script may hold, the interpreter's own included.
    memory_max: AtomicUsize,
    /// Steps taken since the last poll.
    steps: AtomicU32,
    /// Instructions between two polls, as the hook is set.
    interval: AtomicU32,
    /// Bytes in use after the last full collection.
    living: AtomicUsize,
    /// Bytes in use after the last collection between two scripts: compiled scripts and libraries.
    resident: AtomicUsize,
    /// A panic of a command or of the watchdog, which goes on where the script ends.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget").field("memory_max", &self.memory_max()).finish_non_exhaustive()
    }
}

/// Lifts the memory limit for as long as it lives.
///
/// Functions of Rust that take a bounded amount of memory hold one: mlua then needs no protected call for each value.
pub(super) struct Unlimited<'b> {
    budget: &'b Budget,
    lua: &'b Lua,
}

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        let _ = self.lua.set_memory_limit(self.budget.memory_max());
    }
}

impl Budget {
    /// A budget of `memory_max` bytes, and the hook that polls while any script of `lua` runs.
    pub(super) fn install(lua: &Lua, memory_max: usize) -> mlua::Result<Arc<Self>> {
        let budget = Arc::new(Self {
            watchdog: Mutex::new(None),
            stop: Mutex::new(None),
            is_stopped: AtomicBool::new(false),
            memory_max: AtomicUsize::new(memory_max),
            steps: AtomicU32::new(0),
            interval: AtomicU32::new(INSTRUCTIONS_PER_POLL),
            living: AtomicUsize::new(0),
            resident: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        lua.set_memory_limit(memory_max)?;
        budget.hook(lua, INSTRUCTIONS_PER_POLL)?;
        Ok(budget)
    }

    /// Polls every so many instructions. Coroutines inherit the hook of the thread that creates them.
    fn hook(self: &Arc<Self>, lua: &Lua, instructions: u32) -> mlua::Result<()> {
        self.interval.store(instructions, Relaxed);
        let budget = Arc::clone(self);
        lua.set_global_hook(HookTriggers::new().every_nth_instruction(instructions), move |lua, _| {
            budget.poll()?;
            budget.adapt(lua)?;
            Ok(VmState::Continue)
        })
    }

    /// Collects garbage and sets the hook as the memory in use requires.
    fn adapt(self: &Arc<Self>, lua: &Lua) -> mlua::Result<()> {
        let (used, memory_max) = (lua.used_memory(), self.memory_max());
        if used > memory_max / 2 && used > self.living.load(Relaxed).saturating_add(memory_max / 8) {
            // Lua 5.1 fails where its allocator does, without a collection first; its own come too late for that.
            lua.gc_collect()?;
            self.living.store(lua.used_memory(), Relaxed);
        }
        let (wanted, set) = (interval(used), self.interval.load(Relaxed));
        // A coroutine may still have the interval of the time when it was created.
        if wanted != set || wanted != INSTRUCTIONS_PER_POLL {
            self.hook(lua, wanted)?;
        }
        Ok(())
    }

    /// Another memory limit from the next script on, in bytes.
    pub(super) fn set_memory_max(&self, lua: &Lua, memory_max: usize) -> mlua::Result<()> {
        if self.memory_max.swap(memory_max, Relaxed) != memory_max {
            lua.set_memory_limit(memory_max)?;
        }
        Ok(())
    }

    /// Lifts the memory limit: see [`Unlimited`].
    pub(super) fn lift<'b>(&'b self, lua: &'b Lua) -> Unlimited<'b> {
        // A state with mlua's allocator takes any limit.
        let _ = lua.set_memory_limit(0);
        Unlimited { budget: self, lua }
    }

    /// Bytes that a script may hold.
    pub(super) fn memory_max(&self) -> usize {
        self.memory_max.load(Relaxed)
    }

    /// A script begins, looked after by `watchdog`.
    ///
    /// # Errors
    /// Where the hook cannot be set.
    pub(super) fn begin(self: &Arc<Self>, lua: &Lua, watchdog: Arc<dyn Watchdog>) -> mlua::Result<()> {
        *self.watchdog.lock() = Some(watchdog);
        if self.is_stopped.swap(false, Relaxed) {
            *self.stop.lock() = None;
        }
        self.steps.store(0, Relaxed);
        // The hook counts from here, so that no poll comes before the script has begun.
        self.hook(lua, INSTRUCTIONS_PER_POLL)
    }

    /// Ends the script because a command or the watchdog panicked. The panic goes on in [`Budget::end`].
    pub(super) fn pass_on(&self, panic: Box<dyn Any + Send>) -> Stopped {
        self.panic.lock().get_or_insert(panic);
        self.stop(Stop::Killed)
    }

    /// The script is over. What it leaves behind must not count against the next script.
    pub(super) fn end(&self, lua: &Lua) {
        *self.watchdog.lock() = None;
        let panic = if self.stopped() { self.panic.lock().take() } else { None };
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
        let little = LITTLE_BYTES.min(self.memory_max() / 4);
        if lua.used_memory() > self.resident.load(Relaxed).saturating_add(little) {
            self.collect(lua);
        }
    }

    /// Frees what nothing refers to: a script has left much, or compiled scripts or libraries have been forgotten.
    pub(super) fn collect(&self, lua: &Lua) {
        // What closures of Rust held is released by the first collection and freed by the second.
        for _ in 0..2 {
            // Scripts have no finalisers, and so none that could fail.
            let _ = lua.gc_collect();
        }
        self.living.store(lua.used_memory(), Relaxed);
        self.resident.store(lua.used_memory(), Relaxed);
    }

    /// Whether the script has to end.
    pub(super) fn stopped(&self) -> bool {
        self.is_stopped.load(Relaxed)
    }

    /// Why the script has to end, if it does.
    pub(super) fn reason(&self) -> Option<Stop> {
        if self.stopped() { self.stop.lock().clone() } else { None }
    }

    /// Ends the script: every poll from here on fails.
    pub(super) fn stop(&self, stop: Stop) -> Stopped {
        self.stop.lock().get_or_insert(stop);
        self.is_stopped.store(true, Relaxed);
        Stopped
    }

    /// Ends the script because it asked for too much memory.
    pub(super) fn stop_for_memory(&self) -> Stopped {
        self.stop(Stop::Memory(self.memory_max()))
    }

    /// Asks whether the script may go on.
    ///
    /// # Errors
    /// The stop, where it may not.
    pub(super) fn poll(&self) -> Checked {
        if self.stopped() {
            return Err(Stopped);
        }
        let watchdog = self.watchdog.lock();
        let Some(watchdog) = watchdog.as_ref() else { return Ok(()) };
        match catch_unwind(AssertUnwindSafe(|| watchdog.poll())) {
            Ok(Verdict::GoOn) => Ok(()),
            Ok(Verdict::Kill) => Err(self.stop(Stop::Killed)),
            Err(panic) => Err(self.pass_on(panic)),
        }
    }

    /// Counts work outside the virtual machine: `steps` times about what an instruction costs.
    ///
    /// # Errors
    /// As [`Budget::poll`], which it calls now and then.
    pub(super) fn charge(&self, steps: usize) -> Checked {
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        let total = self.steps.load(Relaxed).saturating_add(steps);
        let is_due = total >= STEPS_PER_POLL || self.stopped();
        self.steps.store(if is_due { 0 } else { total }, Relaxed);
        if is_due { self.poll() } else { Ok(()) }
    }

    /// Checks that a function of Rust may hold so many more bytes for the script.
    ///
    /// # Errors
    /// A stop, where they are more than the script may have.
    pub(super) fn reserve(self: &Arc<Self>, lua: &Lua, bytes: usize) -> mlua::Result<()> {
        let used = lua.used_memory().saturating_add(bytes);
        if used > self.memory_max() {
            return Err(self.stop_for_memory().into());
        }
        if bytes > LITTLE_BYTES && interval(used) < self.interval.load(Relaxed) {
            // The hook follows at once what has become large, not when the old interval is over.
            self.hook(lua, interval(used))?;
        }
        Ok(())
    }

    /// Checks bytes that a script has made outside of Lua, and that no collection frees.
    ///
    /// # Errors
    /// A stop, where they are more than the script may have.
    pub(super) fn bound(&self, bytes: usize) -> Checked {
        if bytes > self.memory_max() { Err(self.stop_for_memory()) } else { Ok(()) }
    }
}

/// Instructions between two polls of a script that holds so many bytes.
fn interval(used: usize) -> u32 {
    let share = u32::try_from(used / LITTLE_BYTES).unwrap_or(u32::MAX).max(1);
    // In powers of two, so that the hook is not set anew for every few bytes.
    (INSTRUCTIONS_PER_POLL >> share.ilog2()).max(4)
}
