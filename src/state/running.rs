//! The running script, as other threads see it: since when it runs, and whether it may be killed.
//!
//! Owns    the kill flags, and the time since when the script counts as long.
//! Time    comes from the injected clock.

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

#[derive(Clone, Debug)]
pub struct Script {
    /// The function, if FCALL runs it; EVAL has none.
    pub function: Option<Function>,
    /// The client that called it.
    pub client: Arc<Client>,
}

#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    /// The request that called it.
    pub command: OwnedRequest,
}

/// Why a script was not killed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unkillable {
    /// No script runs.
    NoneRuns,
    /// FUNCTION KILL while a script runs, or SCRIPT KILL while a function runs.
    OtherKind,
    /// It has written, and a part of its effects would stay.
    HasWritten,
}

impl Running {
    /// A script begins. Called with every shard locked, so that there is only one.
    pub fn begin(&self, script: Script, now: LockTime) {
        let mut slot = self.script.lock();
        // SCRIPT KILL reads and writes these with the slot locked.
        self.is_killed.store(false, Relaxed);
        self.has_written.store(false, Relaxed);
        self.since_ms.store(now.as_millis().max(1), SeqCst);
        // A manual clock that waits for this client must learn that its script may never end.
        script.client.wake();
        *slot = Some(script);
    }

    pub fn end(&self) {
        let mut slot = self.script.lock();
        self.since_ms.store(0, SeqCst);
        *slot = None;
    }

    /// Since when a long script runs, if one does.
    #[inline]
    pub fn since(&self) -> Option<LockTime> {
        match self.since_ms.load(Relaxed) {
            0 => None,
            since_ms => Some(LockTime::from_millis(since_ms)),
        }
    }

    #[inline]
    pub fn note_write(&self) {
        self.has_written.store(true, Relaxed);
    }

    pub fn script(&self) -> Option<Script> {
        self.script.lock().clone()
    }

    /// Whether the script must end now.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.is_killed.load(Relaxed) || self.is_ended.load(Relaxed)
    }

    /// SCRIPT KILL and FUNCTION KILL: ends a long script of that kind. A script that has just begun is not killed.
    ///
    /// # Errors
    /// [`Unkillable`]: why it was not killed.
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

    /// The server shuts down: every script ends, now and from now on, even if it has written.
    pub fn end_all(&self) {
        self.is_ended.store(true, SeqCst);
    }
}
