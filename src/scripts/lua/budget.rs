//! What a script may use up, and who says that it has to end.
//!
//! Owns    the hook that runs every few instructions, the limit of memory, the stop that no `pcall` catches.
//! Time    is not known here: the watchdog is asked often enough that it can look at a clock of its own.
//! Rule    work outside the virtual machine that grows with its input is charged to the budget, and polls like it.
//!
//! Lua's own functions in C run without the hook, but none of those that a script can reach does more than look once at
//! everything the script holds. So the hook comes the oftener the more memory there is: between two polls lies about as
//! much work as on a small state. What could do more (patterns, `string.rep`, `table.sort`) is replaced.

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

use mlua::Lua;
use parking_lot::Mutex;

use super::fault::{Checked, Place, Stop, Stopped};
use super::stack::{self, Stack};

/// Looks after a script that runs. Asked from the script's own thread, about every few microseconds.
pub trait Watchdog: Send + Sync {
    /// Whether the script goes on. May note that it runs long.
    fn poll(&self) -> Verdict;
}

/// What a watchdog says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The script goes on.
    GoOn,
    /// The script ends now: SCRIPT KILL.
    Kill,
    /// The script ends now, and begins again elsewhere.
    Leave,
}

/// A watchdog that never ends a script.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asleep;

impl Watchdog for Asleep {
    fn poll(&self) -> Verdict {
        Verdict::GoOn
    }
}

/// Instructions between two polls while a script holds little.
const INSTRUCTIONS_PER_POLL: u32 = 1000;
/// Bytes from which on the polls come oftener.
const LITTLE_BYTES: usize = 4 << 20;
/// Bytes that are left free beside those that are needed: a stack of Lua's, for one, is never larger.
const SLACK_BYTES: usize = 1 << 20;
/// Steps of work outside the virtual machine that are as much as the instructions between two polls.
const STEPS_PER_POLL: u32 = 10_000;

/// The budget of the script that runs. One for each interpreter, reset for each script.
pub(super) struct Budget {
    watchdog: Mutex<Option<Arc<dyn Watchdog>>>,
    /// The stop that was given: from then on every poll says the same.
    stop: Mutex<Option<Stop>>,
    /// Whether there is one, for most scripts are given none.
    is_stopped: AtomicBool,
    /// Where the script has been ended, as far as it has come on its way out.
    place: Mutex<Option<Place>>,
    /// Bytes that a script may hold, the interpreter's own included.
    memory_max: AtomicUsize,
    /// Steps taken since the last poll.
    steps: AtomicU32,
    /// Instructions between two polls, as the hook is set.
    interval: AtomicU32,
    /// Bytes that were in use after the last full collection.
    living: AtomicUsize,
    /// Bytes that were in use after the last collection between two scripts: compiled scripts, functions.
    resident: AtomicUsize,
    /// What has passed a tick as a panic, and goes on its way where the script ends.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// The limit of memory is lifted for as long as this is held; then Lua may go on.
pub(super) struct Unlimited<'b> {
    budget: &'b Budget,
    lua: &'b Lua,
    /// Whether there is a limit to be put back; where all has room under it, it stays.
    is_lifted: bool,
}

impl Unlimited<'_> {
    /// The budget whose limit it is.
    pub(super) fn budget(&self) -> &Budget {
        self.budget
    }
}

impl Drop for Unlimited<'_> {
    fn drop(&mut self) {
        if self.is_lifted {
            let _ = self.lua.set_memory_limit(self.budget.memory_max());
        }
    }
}

impl Budget {
    /// A budget of `memory_max` bytes, and the hook that keeps it, which polls while any script of `lua` runs.
    pub(super) fn install(lua: &Lua, memory_max: usize) -> mlua::Result<Arc<Self>> {
        let budget = Arc::new(Self {
            watchdog: Mutex::new(None),
            stop: Mutex::new(None),
            is_stopped: AtomicBool::new(false),
            place: Mutex::new(None),
            memory_max: AtomicUsize::new(memory_max),
            steps: AtomicU32::new(0),
            interval: AtomicU32::new(INSTRUCTIONS_PER_POLL),
            living: AtomicUsize::new(0),
            resident: AtomicUsize::new(0),
            panic: Mutex::new(None),
        });
        lua.set_memory_limit(memory_max)?;
        stack::tick(lua, &budget, INSTRUCTIONS_PER_POLL)?;
        stack::with(lua, |stack| stack.collect_in_steps(false));
        Ok(budget)
    }

    /// Another limit from the next script on, in bytes.
    pub(super) fn set_memory_max(&self, lua: &Lua, memory_max: usize) -> mlua::Result<()> {
        if self.memory_max.swap(memory_max, Relaxed) != memory_max {
            lua.set_memory_limit(memory_max)?;
        }
        Ok(())
    }

    /// Lifts the limit while our own code works for a script, on what is bounded anyway: whatever takes memory then need not
    /// be ready to fail.
    #[inline]
    pub(super) fn lift<'b>(&'b self, lua: &'b Lua) -> Unlimited<'b> {
        // A state that has its own allocator takes any limit.
        let _ = lua.set_memory_limit(0);
        Unlimited { budget: self, lua, is_lifted: true }
    }

    /// The same for what takes a few bytes, `few` of them at most, beside what the stack and the table of all strings take
    /// when they grow.
    #[inline]
    pub(super) fn lift_for<'b>(&'b self, lua: &'b Lua, stack: &Stack<'_>, few: usize) -> Unlimited<'b> {
        // Either becomes at most twice as large, and is a part of what there is.
        let needed = stack.used_bytes().saturating_mul(2).saturating_add(few).saturating_add(SLACK_BYTES);
        if needed > self.memory_max() {
            return self.lift(lua);
        }
        Unlimited { budget: self, lua, is_lifted: false }
    }

    /// Bytes that a script may hold.
    pub(super) fn memory_max(&self) -> usize {
        self.memory_max.load(Relaxed)
    }

    /// A script begins, looked after by `watchdog`.
    pub(super) fn begin(&self, watchdog: Arc<dyn Watchdog>) {
        *self.watchdog.lock() = Some(watchdog);
        if self.is_stopped.load(Relaxed) {
            self.is_stopped.store(false, Relaxed);
            *self.stop.lock() = None;
            *self.place.lock() = None;
        }
        self.steps.store(0, Relaxed);
    }

    /// Ends the script, and lets the panic go on when that has happened.
    pub(super) fn pass_on(&self, panic: Box<dyn Any + Send>) -> Stopped {
        *self.panic.lock() = Some(panic);
        self.stop(Stop::Killed)
    }

    /// The script is over. What it leaves behind must not count against the next one.
    pub(super) fn end(&self, lua: &Lua) {
        *self.watchdog.lock() = None;
        if self.is_stopped.load(Relaxed)
            && let Some(panic) = self.panic.lock().take()
        {
            resume_unwind(panic);
        }
        let little = LITTLE_BYTES.min(self.memory_max() / 4);
        let bytes_kept = self.resident.load(Relaxed).saturating_add(little);
        if lua.used_memory() > bytes_kept {
            // What our own closures held is let go by the first collection, and gone after the second.
            self.collect(lua);
            self.collect(lua);
            self.resident.store(lua.used_memory(), Relaxed);
        }
    }

    /// What stayed between scripts has been let go.
    pub(super) fn let_go(&self, lua: &Lua) {
        self.resident.store(0, Relaxed);
        self.end(lua);
    }

    /// The stop that was given, if one was.
    pub(super) fn stopped(&self) -> Option<Stop> {
        if self.is_stopped.load(Relaxed) { self.stop.lock().clone() } else { None }
    }

    /// Where it is that the script ends. Who catches the end raises it again, and so the last place counts.
    pub(super) fn stopped_at(&self, place: Option<Place>) {
        *self.place.lock() = place;
    }

    /// Where the script was ended, if that is known.
    pub(super) fn place(&self) -> Option<Place> {
        if self.is_stopped.load(Relaxed) { self.place.lock().clone() } else { None }
    }

    /// Ends the script: this error, and every poll from here on.
    pub(super) fn stop(&self, stop: Stop) -> Stopped {
        self.stop.lock().get_or_insert(stop);
        self.is_stopped.store(true, Relaxed);
        Stopped
    }

    /// Asks whether the script may go on.
    ///
    /// # Errors
    /// The stop, where it may not.
    pub(super) fn poll(&self) -> Checked {
        if self.is_stopped.load(Relaxed) {
            return Err(Stopped);
        }
        let verdict = self.watchdog.lock().as_ref().map(|watchdog| watchdog.poll());
        match verdict {
            Some(Verdict::Kill) => Err(self.stop(Stop::Killed)),
            Some(Verdict::Leave) => Err(self.stop(Stop::Left)),
            Some(Verdict::GoOn) | None => Ok(()),
        }
    }

    /// Work outside the virtual machine: `steps` times about what an instruction costs.
    ///
    /// # Errors
    /// As [`Budget::poll`], which it does now and then.
    #[inline]
    pub(super) fn charge(&self, steps: usize) -> Checked {
        if self.is_due(u32::try_from(steps).unwrap_or(u32::MAX)) { self.poll() } else { Ok(()) }
    }

    /// A call in C, which no hook sees: of as much work as there is between two instructions.
    ///
    /// # Errors
    /// As [`Budget::poll`], which it does now and then.
    pub(super) fn charge_call(&self, stack: &mut Stack<'_>) -> Checked {
        let steps = STEPS_PER_POLL / interval(stack.used_bytes());
        if self.is_due(steps) { self.tick(stack) } else { Ok(()) }
    }

    /// Counts steps: whether there have been so many that somebody is to be asked.
    #[inline]
    fn is_due(&self, steps: u32) -> bool {
        let total = self.steps.load(Relaxed).saturating_add(steps);
        // Whatever is charged after a stop is refused, and not only what comes after some more steps.
        let is_due = total >= STEPS_PER_POLL || self.is_stopped.load(Relaxed);
        self.steps.store(if is_due { 0 } else { total }, Relaxed);
        is_due
    }

    /// Bytes that a function of ours is about to hold for the script.
    ///
    /// # Errors
    /// A stop, where they are more than the script may have.
    pub(super) fn reserve(&self, lua: &Lua, bytes: usize) -> Checked {
        let memory_max = self.memory_max();
        if lua.used_memory().saturating_add(bytes) > memory_max {
            return Err(self.stop(Stop::Memory(memory_max)));
        }
        if bytes > LITTLE_BYTES {
            // What has just become large is looked after at once, not when the old interval is over.
            stack::with(lua, |stack| self.adapt(stack, lua.used_memory().saturating_add(bytes)));
        }
        Ok(())
    }

    /// Bytes that a script has made outside of Lua, and that nobody collects.
    ///
    /// # Errors
    /// A stop, where they are more than the script may have.
    pub(super) fn bound(&self, bytes: usize) -> Checked {
        let memory_max = self.memory_max();
        if bytes > memory_max { Err(self.stop(Stop::Memory(memory_max))) } else { Ok(()) }
    }

    /// Some instructions of a script have run on that stack.
    ///
    /// # Errors
    /// As [`Budget::poll`].
    pub(super) fn tick(&self, stack: &mut Stack<'_>) -> Checked {
        self.poll()?;
        self.adapt(stack, stack.used_bytes());
        Ok(())
    }

    /// Collects, and ticks, as often as so many bytes ask for.
    fn adapt(&self, stack: &mut Stack<'_>, used: usize) {
        let memory_max = self.memory_max();
        if used > memory_max / 2 && used > self.living.load(Relaxed).saturating_add(memory_max / 8) {
            // Lua 5.1 fails where its allocator does, without a collection first; its own come too late for that.
            stack.collect();
            self.living.store(stack.used_bytes(), Relaxed);
        }
        let interval = interval(used);
        // A coroutine may still have the interval of the time when it was made.
        let (is_much, was_much) = (interval != INSTRUCTIONS_PER_POLL, self.collects_in_steps());
        if is_much || was_much {
            self.interval.store(interval, Relaxed);
            stack.tick_every(interval);
        }
        if is_much != was_much {
            // Nobody is asked while Lua collects, and what is large is not collected in no time.
            stack.collect_in_steps(is_much);
        }
    }

    /// Whether Lua collects in steps: there is much, or was when the script was last asked about.
    pub(super) fn collects_in_steps(&self) -> bool {
        self.interval.load(Relaxed) != INSTRUCTIONS_PER_POLL
    }

    fn collect(&self, lua: &Lua) {
        // No finaliser of a script's own exists, and so none that could fail.
        let _ = lua.gc_collect();
        self.living.store(lua.used_memory(), Relaxed);
    }
}

/// Instructions between two polls of a script that holds so many bytes.
fn interval(used: usize) -> u32 {
    let share = u32::try_from(used / LITTLE_BYTES).unwrap_or(u32::MAX).max(1);
    // In powers of two, so that the hook is not set anew for every few bytes.
    (INSTRUCTIONS_PER_POLL >> share.ilog2()).max(4)
}
