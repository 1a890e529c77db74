//! The interpreted script that runs now, as other clients see it: since when, and whether it may still be ended.
//!
//! Owns    the request of SCRIPT KILL, and the moment at which the script began.
//! Time    comes in as an argument.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;

use super::clients::Client;
use crate::clock::LockTime;
use crate::resp::OwnedRequest;

/// The interpreted script that runs now, if one does.
#[derive(Debug, Default)]
pub struct Running {
    /// Since when a script runs, in milliseconds of lock time; zero: none does.
    since_ms: AtomicU64,
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
    pub fn begin(&self, script: Script, now: LockTime) {
        let mut slot = self.script.lock();
        // `kill` looks at these with the slot locked.
        self.is_killed.store(false, Relaxed);
        self.has_written.store(false, Relaxed);
        self.since_ms.store(now.as_millis().max(1), SeqCst);
        // A manual clock that waits for this client to settle has to know that its script may never end.
        script.client.wake();
        *slot = Some(script);
    }

    /// The script is over.
    pub fn end(&self) {
        let mut slot = self.script.lock();
        self.since_ms.store(0, SeqCst);
        *slot = None;
    }

    /// Since when a script runs, if one does.
    #[inline]
    pub fn since(&self) -> Option<LockTime> {
        match self.since_ms.load(Relaxed) {
            0 => None,
            since_ms => Some(LockTime::from_millis(since_ms)),
        }
    }

    /// The script has called a command that writes.
    #[inline]
    pub fn note_write(&self) {
        self.has_written.store(true, Relaxed);
    }

    /// The script that runs.
    pub fn script(&self) -> Option<Script> {
        self.script.lock().clone()
    }

    /// Whether the script has to end now.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed) || self.is_ended.load(Relaxed)
    }

    /// Ends the script that runs, if it is of that kind and has not written.
    ///
    /// # Errors
    /// [`Unkillable`]: why it was not ended.
    pub fn kill(&self, is_function: bool) -> Result<(), Unkillable> {
        let script = self.script.lock();
        let script = script.as_ref().ok_or(Unkillable::NoneRuns)?;
        if self.has_written.load(SeqCst) {
            return Err(Unkillable::HasWritten);
        }
        if script.function.is_some() != is_function {
            return Err(Unkillable::OtherKind);
        }
        self.is_killed.store(true, SeqCst);
        Ok(())
    }

    /// The server ends: the script that runs and all later ones end at once, also those that have written.
    pub fn end_all(&self) {
        self.is_ended.store(true, SeqCst);
    }
}
