//! The script that runs now, as everybody else may see it: since when, whether it may still be ended.
//!
//! Owns    what SCRIPT KILL says to it, and the moment from which on it counts as long.
//! Time    comes from the injected clock, and from how often the script has been looked at: where the clock is moved by
//!         hand, a script that never ends is long all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;

use super::clients::Client;
use crate::clock::LockTime;
use crate::resp::OwnedRequest;

/// The script that runs now, if one does.
#[derive(Debug, Default)]
pub struct Running {
    /// Since when a script runs that takes long, in milliseconds of lock time; zero: none does.
    long_since_ms: AtomicU64,
    is_killed: AtomicBool,
    is_ended: AtomicBool,
    has_written: AtomicBool,
    script: Mutex<Option<Script>>,
}

/// A script that runs.
#[derive(Clone, Debug)]
pub struct Script {
    /// The name of the function, if it is one; EVAL has none.
    pub function: Option<Function>,
    /// Whose call it is.
    pub client: Arc<Client>,
}

/// A function that runs.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The request that called it.
    pub command: OwnedRequest,
}

/// Why a script was not ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unkillable {
    /// None runs.
    NoneRuns,
    /// One of the other kind runs.
    OtherKind,
    /// It has written, and its half-done work would stay.
    HasWritten,
}

impl Running {
    /// A script begins. Called with every shard locked, so that there is only one.
    pub fn begin(&self, script: Script) {
        let mut slot = self.script.lock();
        // Whoever ends a script looks with the slot locked.
        self.is_killed.store(false, Relaxed);
        self.has_written.store(false, Relaxed);
        *slot = Some(script);
    }

    /// It is over; true when it took long.
    pub fn end(&self) -> bool {
        *self.script.lock() = None;
        // Only the script's own thread says that it takes long.
        self.long_since_ms.load(Relaxed) != 0 && self.long_since_ms.swap(0, SeqCst) != 0
    }

    /// It takes long, and has run since about then.
    pub fn note_long(&self, since: LockTime) {
        if let Some(script) = &*self.script.lock() {
            self.long_since_ms.store(since.as_millis().max(1), SeqCst);
            // Whoever waits for this client to settle need not wait any longer.
            script.client.wake();
        }
    }

    /// Since when a script runs that takes long, if one does.
    #[inline]
    pub fn long_since(&self) -> Option<LockTime> {
        match self.long_since_ms.load(Relaxed) {
            0 => None,
            since_ms => Some(LockTime::from_millis(since_ms)),
        }
    }

    /// It has changed something.
    #[inline]
    pub fn note_write(&self) {
        self.has_written.store(true, Relaxed);
    }

    /// The script that runs.
    pub fn script(&self) -> Option<Script> {
        self.script.lock().clone()
    }

    /// Whether it is to end now.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed) || self.is_ended.load(Relaxed)
    }

    /// Ends the script that takes long, if it is of that kind and nothing speaks against it. One that has only just begun
    /// is not meant.
    ///
    /// # Errors
    /// [`Unkillable`]: why it was not ended.
    pub fn kill(&self, is_function: bool) -> Result<(), Unkillable> {
        let script = self.script.lock();
        let script = script.as_ref().filter(|_| self.long_since().is_some()).ok_or(Unkillable::NoneRuns)?;
        if self.has_written.load(SeqCst) {
            return Err(Unkillable::HasWritten);
        }
        if script.function.is_some() != is_function {
            return Err(Unkillable::OtherKind);
        }
        self.is_killed.store(true, SeqCst);
        Ok(())
    }

    /// The server ends: every script does, now and from now on, whatever it has done.
    pub fn end_all(&self) {
        self.is_ended.store(true, SeqCst);
    }
}
