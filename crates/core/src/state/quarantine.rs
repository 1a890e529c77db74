//! The quarantine: for a while after a start that may have forgotten locks, nothing is granted or extended.
//!
//! Owns    its end and its reason, the error of a disk that takes no writes, and whether the server is shutting down, has
//!         crashed for a test, or shows the locks of another server.
//! Time    comes in as an argument. The quarantine is over as soon as lock time is past its last millisecond.
//! Rule    commands read one flag while there is none of these.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use parking_lot::Mutex;

use redlatch_proto::clock::LockTime;

/// Why writes are refused at the moment, if they are.
#[derive(Debug, Default)]
pub struct Quarantine {
    /// Whether commands must look closer.
    is_on: AtomicBool,
    /// The last millisecond of the quarantine; zero: there is none.
    until_ms: AtomicU64,
    /// Whether the server is shutting down. It stays set.
    is_stopping: AtomicBool,
    /// Whether a test has let the server crash, and not start again yet.
    has_crashed: AtomicBool,
    /// Whether the locks are those of another server. It stays set.
    is_read_only: AtomicBool,
    causes: Mutex<Causes>,
}

#[derive(Debug, Default)]
struct Causes {
    reason: &'static str,
    /// Why the journal cannot be written.
    disk_error: Option<Arc<str>>,
}

impl Quarantine {
    /// Begins the quarantine, or makes it longer. `until` is its last millisecond.
    pub fn begin(&self, until: LockTime, reason: &'static str) {
        let mut causes = self.causes.lock();
        causes.reason = reason;
        self.until_ms.fetch_max(until.as_millis(), SeqCst);
        self.is_on.store(true, SeqCst);
    }

    /// The journal cannot be written, for this reason of the system: `No space left on device`.
    pub fn set_disk_error(&self, text: &str) {
        let mut causes = self.causes.lock();
        causes.disk_error = Some(text.into());
        self.is_on.store(true, SeqCst);
    }

    /// The journal can be written again. The next tick serves the requests that wait for locks.
    pub fn clear_disk_error(&self) {
        self.causes.lock().disk_error = None;
    }

    /// The server shuts down: from now on nothing is granted or extended.
    pub fn stop(&self) {
        let _causes = self.causes.lock();
        self.is_stopping.store(true, SeqCst);
        self.is_on.store(true, SeqCst);
    }

    /// Whether the server is shutting down.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(SeqCst)
    }

    /// The locks are those of another server: no command changes them.
    pub fn set_read_only(&self) {
        let _causes = self.causes.lock();
        self.is_read_only.store(true, SeqCst);
        self.is_on.store(true, SeqCst);
    }

    /// A test lets the server crash: until [`Quarantine::recover`] nobody who waits is granted a lock.
    pub fn crash(&self) {
        let _causes = self.causes.lock();
        self.has_crashed.store(true, SeqCst);
        self.is_on.store(true, SeqCst);
    }

    /// The server starts again after a crash.
    pub fn recover(&self) {
        self.has_crashed.store(false, SeqCst);
    }

    /// Whether a test has let the server crash, and not start again yet.
    pub(crate) fn has_crashed(&self) -> bool {
        self.has_crashed.load(SeqCst)
    }

    /// Whether grants are refused without a known end: the server shuts down, or the disk takes no writes.
    pub fn refuses(&self) -> bool {
        self.is_stopping() || self.disk_error().is_some()
    }

    /// Forgets a quarantine that is over. Returns its reason, if there was one. The caller has all shards locked, at a time
    /// that is past its end, so that no command still sees it.
    pub fn end(&self) -> Option<&'static str> {
        let causes = self.causes.lock();
        let is_read_only = self.is_read_only.load(SeqCst);
        if causes.disk_error.is_none() && !self.is_stopping() && !self.has_crashed() && !is_read_only {
            self.is_on.store(false, SeqCst);
        }
        (self.until_ms.swap(0, SeqCst) > 0).then_some(causes.reason)
    }

    /// Whether there may be a quarantine, an error of the disk, a shutdown or a crash, or the locks are of another server.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// The last millisecond of the quarantine, if that has not passed.
    pub fn until(&self, now: LockTime) -> Option<LockTime> {
        let until_ms = self.until_ms.load(SeqCst);
        (until_ms > 0 && now.as_millis() <= until_ms).then(|| LockTime::from_millis(until_ms))
    }

    /// Why the last quarantine began; empty if there was none.
    pub fn reason(&self) -> &'static str {
        self.causes.lock().reason
    }

    /// Why the journal cannot be written, if it cannot.
    pub fn disk_error(&self) -> Option<Arc<str>> {
        self.causes.lock().disk_error.clone()
    }

    /// Whether locks may not be granted to those who wait for them now.
    #[inline]
    pub(crate) fn forbids_grants(&self, now: LockTime) -> bool {
        self.is_on() && (self.until(now).is_some() || self.refuses() || self.has_crashed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_through_its_last_millisecond_and_is_never_shortened() {
        let (quarantine, at) = (Quarantine::default(), LockTime::from_millis);
        assert!(!quarantine.is_on());
        quarantine.begin(at(30), "another boot");
        quarantine.begin(at(20), "a damaged journal");
        assert_eq!((quarantine.until(at(30)), quarantine.until(at(31))), (Some(at(30)), None));
        assert!(quarantine.forbids_grants(at(30)) && !quarantine.forbids_grants(at(31)));
        assert_eq!(quarantine.end(), Some("a damaged journal"));
        assert_eq!(quarantine.end(), None, "it ends once");
        assert!(!quarantine.is_on());
    }

    #[test]
    fn a_shutdown_has_no_end() {
        let (quarantine, at) = (Quarantine::default(), LockTime::from_millis);
        quarantine.begin(at(30), "another boot");
        quarantine.stop();
        assert_eq!(quarantine.end(), Some("another boot"));
        assert!(quarantine.is_stopping() && quarantine.refuses() && quarantine.forbids_grants(at(31)));
    }

    #[test]
    fn a_crash_ends_with_the_next_start() {
        let (quarantine, at) = (Quarantine::default(), LockTime::from_millis);
        quarantine.crash();
        assert_eq!(quarantine.end(), None);
        assert!(quarantine.is_on() && quarantine.forbids_grants(at(31)) && !quarantine.refuses());
        quarantine.recover();
        assert!(!quarantine.forbids_grants(at(31)));
        quarantine.end();
        assert!(!quarantine.is_on());
    }

    #[test]
    fn an_error_of_the_disk_outlasts_a_quarantine() {
        let (quarantine, at) = (Quarantine::default(), LockTime::from_millis);
        quarantine.begin(at(30), "another boot");
        quarantine.set_disk_error("No space left on device");
        quarantine.end();
        assert!(quarantine.is_on() && quarantine.forbids_grants(at(31)));
        assert_eq!(quarantine.disk_error().as_deref(), Some("No space left on device"));
        quarantine.clear_disk_error();
        assert!(!quarantine.forbids_grants(at(31)));
        quarantine.end();
        assert!(!quarantine.is_on());
    }
}
