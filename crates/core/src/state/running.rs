//! The running script, as other threads see it: whose it is, since when it runs, and whether it may be killed.
//!
//! Owns    the kill flags, and how many scripts have run for too long.
//! Time    comes from the injected clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;
use redlatch_proto::clock::LockTime;
use redlatch_proto::resp::OwnedRequest;

use super::clients::Client;
use super::metrics::Counter;

/// The interpreted script that runs now, if one does.
#[derive(Debug, Default)]
pub struct Running {
    /// Since when a script runs, in milliseconds of lock time; zero: none does.
    since_ms: AtomicU64,
    is_killed: AtomicBool,
    is_ended: AtomicBool,
    has_written: AtomicBool,
    script: Mutex<Option<Script>>,
    /// Scripts that have run for longer than `busy-reply-threshold`.
    pub slow: Counter,
}

#[derive(Clone, Debug)]
pub struct Script {
    /// The SHA-1 of its text in hexadecimal, or the name of the function.
    pub name: String,
    /// The request that called it, if it is a function.
    pub function_call: Option<OwnedRequest>,
    /// The client that called it.
    pub client: Arc<Client>,
}

impl Script {
    /// Whether FCALL runs it.
    pub(crate) fn is_function(&self) -> bool {
        self.function_call.is_some()
    }
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
    /// A script begins. Called on the script thread, so that there is only one.
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

    /// The running script ends, to start again. Returns false if it has been killed, and may not start again.
    pub fn give_up(&self) -> bool {
        let mut slot = self.script.lock();
        if self.is_killed() {
            return false;
        }
        self.since_ms.store(0, SeqCst);
        *slot = None;
        true
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
    pub(crate) fn note_write(&self) {
        self.has_written.store(true, Relaxed);
    }

    pub fn script(&self) -> Option<Script> {
        self.script.lock().clone()
    }

    /// The running script, and for how many milliseconds it runs.
    pub(crate) fn script_and_age(&self, now: LockTime) -> Option<(Script, u64)> {
        let script = self.script.lock();
        let since = self.since()?;
        Some((script.clone()?, now.millis_since(since)))
    }

    /// The running script has run for longer than `busy-reply-threshold`.
    #[cold]
    pub(crate) fn note_slow(&self, now: LockTime) {
        let Some((Script { name, client, function_call }, age_ms)) = self.script_and_age(now) else { return };
        self.slow.add(1);
        let kill = if function_call.is_some() { "FUNCTION KILL" } else { "SCRIPT KILL" };
        let (peer, client_name) = (&client.address.peer, client.names.lock().name.clone());
        tracing::warn!(
            script = name,
            client = client.id,
            client_name,
            peer,
            age_ms,
            has_written = self.has_written.load(Relaxed),
            "Slow script detected: other clients get BUSY for its keys until it ends, or {kill} ends it"
        );
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
        if script.is_function() != is_function {
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
