//! The log: the journal of a server with a directory, and the replies that wait for it.
//!
//! Owns    the items that are not written yet, how far the log is written and synced, and the durable horizon.
//! Time    comes in as an argument.
//! Rule    a reply leaves when its record is written, and when it is synced if it must be: [`Log::has`]. Where a record ends
//!         behind the durable horizon, its reply waits for the next sync.
//! Rule    two horizons count while one replaces the other: nothing is promised beyond the earlier one.
//! Locks   one mutex, taken with shards locked. A sync holds it only while it writes.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::item::{self, Horizon, Item, Opened, Volume};
use super::recovery::Promised;
use super::{Journal, Mode, Mutation, Mutations, Record, frame};
use crate::sync::{AtomicBool, AtomicU64, Mutex};
use crate::types::Seed;

/// The files of a journal. Called by one thread at a time, but for [`Storage::sync`], which may take long.
pub trait Storage: Debug + Send + Sync {
    /// Appends the bytes to the newest file: all, or none if it fails.
    ///
    /// # Errors
    /// The system's. [`io::ErrorKind::WouldBlock`]: a sync makes room.
    fn write(&self, bytes: &[u8]) -> io::Result<()>;

    /// Waits until everything that was written before the call is on the disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`]: nothing is lost, and the next sync goes on. Otherwise what was written since the last
    /// sync may be lost.
    fn sync(&self) -> io::Result<()>;

    /// Begins the file of that number with its first line.
    ///
    /// # Errors
    /// The system's. The newest file is the one before.
    fn begin(&self, number: u64) -> io::Result<()>;

    /// Removes the files before that number.
    ///
    /// # Errors
    /// The system's.
    fn remove_before(&self, number: u64) -> io::Result<()>;

    /// For how many milliseconds from the beginning of a successful sync of what was written just before, no other server can
    /// have taken the place of this one. `None`: no other server can at all.
    fn believed_ms(&self) -> Option<u64> {
        None
    }

    /// Whether the newest file takes so much room that the live keys are to be copied, beside the rule for its bytes.
    fn has_grown(&self) -> bool {
        false
    }

    /// Why nothing more is to be granted although writes work: the disk is full, and a reserve takes what still comes.
    fn shortage(&self) -> Option<String> {
        None
    }

    /// Tries to end the shortage.
    fn end_shortage(&self) {}

    /// Whether the next start will find the files that this one has.
    fn is_in_place(&self) -> bool {
        true
    }

    /// Makes everything again that is missing around the files, before the next one begins.
    ///
    /// # Errors
    /// The system's, or another server has taken the place.
    fn remake(&self) -> io::Result<()> {
        Ok(())
    }

    /// What identifies the storage of the newest file.
    fn volume(&self) -> Volume {
        Volume::default()
    }

    /// Whether so much waits to be synced that a copy of the live keys waits, too.
    fn is_behind(&self) -> bool {
        false
    }
}

/// How a log begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// The longest lease that does not wait for the disk, in milliseconds.
    pub lease_ms_max: u64,
    /// The first item of the new file.
    pub opened: Opened,
    /// Its second item: where lock time, tokens and quarantine go on.
    pub horizon: Horizon,
    /// The libraries of functions, if there are any.
    pub functions: Option<Bytes>,
}

impl Start {
    /// The start of a journal that has no files yet.
    pub fn of_first_file(server: [u8; 20], boot: Option<[u8; 16]>, mode: Mode, horizon: Horizon) -> Self {
        let opened = Opened { server, number: 1, previous: 0, previous_bytes: 0, boot, mode };
        Self { lease_ms_max: horizon.lease_ms_max, opened, horizon, functions: None }
    }
}

/// The log of one server.
#[derive(Debug)]
pub struct Log {
    mode: Mode,
    lease_ms_max: u64,
    quarantine_until: LockTime,
    storage: Box<dyn Storage>,
    state: Mutex<State>,
    /// How many records were appended.
    appended: AtomicU64,
    /// How many of them are written.
    written: AtomicU64,
    /// How many of them are on the disk.
    synced: AtomicU64,
    /// The last record whose reply waits until it is written.
    must_write: AtomicU64,
    /// The last record whose reply waits until it is on the disk.
    must_sync: AtomicU64,
    /// See [`Storage::believed_ms`].
    believed_ms: Option<u64>,
    /// Until when no other server can have taken the place of this one, by the clock of the boot.
    believed_until_ms: AtomicU64,
    /// How many syncs have begun, and the last of them that has succeeded.
    syncs: AtomicU64,
    proven: AtomicU64,
    /// Whether the last write has failed.
    is_failing: AtomicBool,
    /// Whether there is an error in the state.
    has_error: AtomicBool,
    /// Whether the newest file is so large that the live keys are to be copied to the next one.
    has_grown: AtomicBool,
}

/// What the mutex of the log guards.
#[derive(Debug)]
struct State {
    frame: Vec<u8>,
    opened: Opened,
    functions: Option<Bytes>,
    /// The highest fencing token.
    token: u64,
    /// The end of the last lease that did not wait for the disk.
    promised_until: LockTime,
    /// The end of the last lease of any length.
    leased_until: LockTime,
    leases: RecentLeases,
    /// The horizon on the disk, and that of the sync that runs, if one runs: the earlier one counts.
    durable: Horizon,
    syncing: Option<Horizon>,
    /// Bytes of the newest file, and of those before it.
    bytes: u64,
    previous_bytes: u64,
    /// Bytes of the newest file after the live keys had been copied to it.
    copied_bytes: u64,
    is_copied: bool,
    /// Whether a copy was asked for that has not begun.
    is_copy_wanted: bool,
    /// Why the last write has failed, or why there is a shortage.
    error: Option<String>,
    /// The last such error until it is asked for.
    failure: Option<String>,
    /// Whether the last entry is written.
    is_stopped: bool,
    synced_at: LockTime,
}

/// How far the log must have come before a reply leaves.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Owed {
    /// The record that must be written.
    pub written: u64,
    /// The record that must be on the disk.
    pub synced: u64,
    /// The sync that proves that no other server had taken the place of this one when the reply was made; 0: no other can.
    pub proven: u64,
}

/// The longest leases of the last minute or two.
#[derive(Clone, Copy, Debug, Default)]
struct RecentLeases {
    since: LockTime,
    now_ms: u64,
    before_ms: u64,
}

/// What the log says of itself.
#[derive(Clone, Debug)]
pub struct Status {
    /// When replies leave.
    pub mode: Mode,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes of the newest file after the live keys had been copied to it.
    pub copied_bytes: u64,
    /// Whether live keys are being copied to a new file.
    pub is_copying: bool,
    /// Why the last write has failed, if it has.
    pub error: Option<String>,
    /// The durable horizon.
    pub horizon: LockTime,
    /// When the disk was last synced.
    pub synced_at: LockTime,
    /// Records that are not on the disk.
    pub unsynced: u64,
}

/// A sync older than this counts as none, and a horizon lies this far behind the last lease that is expected, in
/// milliseconds.
pub const GRACE_MS: u64 = 5_000;
/// How long the longest lease counts as one that is in use, in milliseconds; it may be twice that.
const LEASES_MS: u64 = 60_000;
/// How many tokens a horizon reserves.
const TOKENS: u64 = 1 << 20;
/// By how many bytes the newest file grows at least before the live keys are copied to the next one: what Redis has as
/// auto-aof-rewrite-min-size. A file that begins with a larger copy grows by as much as that, so that copies never take more
/// than the changes themselves.
const GROWTH_BYTES: u64 = 64 << 20;

impl Log {
    /// Begins a new file. Nothing is durable before the first [`Log::sync`].
    ///
    /// # Errors
    /// The system's.
    pub fn start(storage: Box<dyn Storage>, start: Start) -> io::Result<Self> {
        let Start { lease_ms_max, opened, horizon, functions } = start;
        storage.begin(opened.number)?;
        let (mode, is_copied) = (opened.mode, opened.previous_bytes == 0);
        let mut state = State {
            frame: Vec::new(),
            previous_bytes: opened.previous_bytes,
            opened,
            functions,
            token: horizon.token,
            // Leases of before the restart may be running.
            promised_until: LockTime::from_millis(horizon.until.as_millis().saturating_sub(GRACE_MS)),
            leased_until: LockTime::from_millis(0),
            leases: RecentLeases::default(),
            durable: Horizon { until: LockTime::from_millis(0), tokens_until: 0, ..horizon },
            syncing: None,
            bytes: frame::first_line().len() as u64,
            copied_bytes: 0,
            is_copied,
            is_copy_wanted: false,
            error: None,
            failure: None,
            is_stopped: false,
            synced_at: LockTime::from_millis(0),
        };
        state.begin_file(horizon, storage.volume());
        let believed_ms = storage.believed_ms();
        let log = Self {
            mode,
            lease_ms_max,
            quarantine_until: horizon.quarantine_until,
            storage,
            state: Mutex::new(state),
            appended: AtomicU64::new(0),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            must_write: AtomicU64::new(0),
            must_sync: AtomicU64::new(0),
            believed_ms,
            believed_until_ms: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            proven: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
            has_error: AtomicBool::new(false),
            has_grown: AtomicBool::new(false),
        };
        log.write_state(&mut log.state.lock())?;
        Ok(log)
    }

    /// See [`Storage::believed_ms`].
    pub fn believed_ms(&self) -> Option<u64> {
        self.believed_ms
    }

    /// Whether another server may take the place of this one: what it has answered must be there.
    fn is_watched(&self) -> bool {
        self.believed_ms.is_some()
    }

    /// When replies leave.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What the replies of requests wait for that have run up to now.
    #[inline]
    pub fn owed(&self) -> Owed {
        // A sync that begins later proves it.
        let proven = if self.believed_ms.is_some() { self.syncs.load(SeqCst) + 1 } else { 0 };
        Owed { written: self.must_write.load(SeqCst), synced: self.must_sync.load(SeqCst), proven }
    }

    /// The reply of the request that calls this leaves when everything up to now is on the disk.
    pub(crate) fn hold_reply(&self, now: LockTime) {
        let mut state = self.state.lock();
        // A record without effects: the reply waits for it as for any other.
        let record = Record { now, lasts_until: now, ends_at: now, mutations: &Mutations::default() };
        item::encode_record(&record, &mut state.frame);
        self.append_one(true, true);
    }

    /// Has the live keys copied to a new file soon. Returns false if they are being copied.
    pub(crate) fn request_copy(&self) -> bool {
        let mut state = self.state.lock();
        let is_new = state.is_copied && !state.is_copy_wanted;
        state.is_copy_wanted |= is_new;
        is_new
    }

    /// Whether a reply that waits for this may leave. `boot_ms` reads the clock of the boot, after the reply was made.
    #[inline]
    pub fn has(&self, owed: Owed, boot_ms: impl FnOnce() -> u64) -> bool {
        self.written.load(SeqCst) >= owed.written
            && self.synced.load(SeqCst) >= owed.synced
            && (self.proven.load(SeqCst) >= owed.proven || boot_ms() < self.believed_until_ms.load(SeqCst))
    }

    /// For how many milliseconds from this reading of the clock of the boot no other server can have taken the place of this
    /// one: 0 once one may have.
    pub fn believed_for_ms(&self, boot_ms: u64) -> u64 {
        self.believed_until_ms.load(SeqCst).saturating_sub(boot_ms)
    }

    /// Whether a reply waits for a sync.
    pub fn needs_sync(&self) -> bool {
        self.must_sync.load(SeqCst) > self.synced.load(SeqCst)
    }

    /// Whether there is something to write.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.written.load(SeqCst) < self.appended.load(SeqCst)
    }

    /// Writes what was appended. After a failure, only [`Log::retry`] writes again.
    #[inline]
    pub fn write(&self) {
        if self.is_pending() && !self.is_failing.load(SeqCst) {
            // The failure is in the state.
            let _ = self.write_state(&mut self.state.lock());
        }
    }

    /// Writes what was appended, and tries to end a shortage; see [`Log::error`].
    pub fn retry(&self) {
        let mut state = self.state.lock();
        let result = self.write_state(&mut state);
        if self.has_error() && result.is_ok() {
            self.storage.end_shortage();
            self.note_error(&mut state, &result);
        }
    }

    /// Whether writes fail, or will soon.
    #[inline]
    pub fn has_error(&self) -> bool {
        self.has_error.load(SeqCst)
    }

    /// Whether the last write has failed.
    pub fn is_failing(&self) -> bool {
        self.is_failing.load(SeqCst)
    }

    /// Why the last write has failed, or why the next ones will, if that is so: nothing more is to be granted.
    pub fn error(&self) -> Option<String> {
        if self.has_error() { self.state.lock().error.clone() } else { None }
    }

    /// The last error of a write since the last call. The next write may have repeated what that one could not do.
    pub fn take_failure(&self) -> Option<String> {
        self.state.lock().failure.take()
    }

    /// Whether more than releases waits for a write that fails.
    pub fn is_stuck(&self) -> bool {
        self.is_failing() && self.must_write.load(SeqCst) > self.written.load(SeqCst)
    }

    /// Notes how the last write has ended.
    fn note_error(&self, state: &mut State, result: &io::Result<()>) {
        self.is_failing.store(result.is_err(), SeqCst);
        let error = result.as_ref().err().map(ToString::to_string);
        state.error = error.or_else(|| self.storage.shortage()).map(|text| reason(&text));
        self.has_error.store(state.error.is_some(), SeqCst);
        if state.error.is_some() && !self.is_watched() {
            state.failure.clone_from(&state.error);
        }
    }

    fn write_state(&self, state: &mut State) -> io::Result<()> {
        if frame::is_empty(&state.frame) {
            return Ok(());
        }
        if state.is_stopped {
            return Err(io::Error::other("the journal has ended"));
        }
        let result = frame::seal(&mut state.frame).and_then(|()| self.storage.write(&state.frame));
        self.note_error(state, &result);
        if result.is_err() && !self.is_watched() && frame_only_removes(&state.frame) {
            // Their replies need not wait.
            self.written.store(self.appended.load(SeqCst), SeqCst);
        }
        if result.is_ok() {
            state.bytes += state.frame.len() as u64;
            let growth = state.copied_bytes.max(GROWTH_BYTES);
            let is_large = state.bytes > state.copied_bytes + growth || self.storage.has_grown();
            self.has_grown.store(is_large && state.is_copied, SeqCst);
            frame::body_start(&mut state.frame);
            if state.frame.capacity() > FRAME_BYTES_KEPT {
                state.frame.shrink_to(FRAME_BYTES_KEPT);
            }
            // Nothing is appended while the mutex is locked.
            self.written.store(self.appended.load(SeqCst), SeqCst);
        }
        result
    }

    /// Whether a sync is due: something was appended since the last one, or leases are running.
    pub fn is_sync_due(&self, now: LockTime) -> bool {
        self.synced.load(SeqCst) < self.appended.load(SeqCst) || self.state.lock().promised_until > now
    }

    /// Writes a horizon and syncs the disk. The caller has read both clocks before.
    ///
    /// # Errors
    /// [`SyncError::Write`] and [`SyncError::Delayed`]: nothing is lost, and a later sync may succeed. [`SyncError::Sync`]:
    /// what was written since the last sync may be lost.
    pub fn sync(&self, now: LockTime, boot_ms: u64) -> Result<(), SyncError> {
        let (written, horizon, number) = {
            let mut state = self.state.lock();
            let horizon = self.next_horizon(&mut state, now, boot_ms);
            let len = state.frame.len();
            Item::Horizon(horizon).encode(&mut state.frame);
            if let Err(error) = self.write_state(&mut state) {
                // The next sync has another one.
                state.frame.truncate(len);
                // What is written can be synced all the same.
                let written = self.written.load(SeqCst);
                drop(state);
                if !self.is_watched() || error.kind() == io::ErrorKind::WouldBlock {
                    self.storage.sync().map_err(SyncError::of)?;
                    self.synced.fetch_max(written, SeqCst);
                }
                return Err(SyncError::Write(error));
            }
            state.syncing = Some(horizon);
            (self.written.load(SeqCst), horizon, self.syncs.fetch_add(1, SeqCst) + 1)
        };
        let result = self.storage.sync();
        let mut state = self.state.lock();
        state.syncing = None;
        if let Err(error) = result.map_err(SyncError::of) {
            if matches!(error, SyncError::Sync(_)) {
                Item::Tainted.encode(&mut state.frame);
                let _ = self.write_state(&mut state);
            }
            return Err(error);
        }
        (state.durable, state.synced_at) = (horizon, now);
        self.synced.store(written, SeqCst);
        if let Some(believed_ms) = self.believed_ms {
            self.believed_until_ms.store(boot_ms + believed_ms, SeqCst);
            self.proven.store(number, SeqCst);
        }
        Ok(())
    }

    /// The horizon of a sync: every promise so far, and a lease as long as those in use that begins up to a grace from now.
    fn next_horizon(&self, state: &mut State, now: LockTime, boot_ms: u64) -> Horizon {
        let expected_ms = state.leases.longest_ms(now);
        let is_needed = expected_ms > 0 || state.promised_until > now;
        let until = if is_needed { state.promised_until.max(now + expected_ms) + GRACE_MS } else { now };
        Horizon {
            now,
            boot_ms,
            until,
            quarantine_until: self.quarantine_until,
            token: state.token,
            tokens_until: state.token + TOKENS,
            lease_ms_max: self.lease_ms_max,
        }
    }

    /// Says that the server ends in good order, and syncs. Nothing is written after that, and replies that wait for a write
    /// wait for ever.
    ///
    /// # Errors
    /// The system's: the next start will not know it.
    pub fn stop(&self, now: LockTime, boot_ms: u64) -> io::Result<()> {
        {
            let mut state = self.state.lock();
            let horizon = self.next_horizon(&mut state, now, boot_ms);
            let horizon = Horizon { until: state.promised_until.max(now), ..horizon };
            Item::Stopped(horizon).encode(&mut state.frame);
            self.write_state(&mut state)?;
            state.is_stopped = true;
        }
        // Another server may lead as soon as it knows.
        self.believed_until_ms.store(0, SeqCst);
        self.storage.sync()
    }

    /// Keeps the libraries of functions, as FUNCTION DUMP gives them. The reply waits for the disk.
    pub(crate) fn put_functions(&self, dump: Bytes) {
        let mut state = self.state.lock();
        if self.mode != Mode::Memory {
            Item::Functions(dump.clone()).encode(&mut state.frame);
        }
        state.functions = Some(dump);
        self.append_one(true, true);
    }

    /// Counts a record that was appended, with the mutex locked.
    #[inline]
    fn append_one(&self, must_write: bool, must_sync: bool) {
        let appended = self.appended.load(Relaxed) + 1;
        // Who must see it has locked a shard of the record, or the mutex, since.
        self.appended.store(appended, Release);
        if must_write {
            self.must_write.store(appended, Release);
        }
        if must_sync {
            self.must_sync.store(appended, Release);
        }
    }

    /// Whether the newest file has grown so much that the live keys are to be copied to the next one.
    #[inline]
    pub fn has_grown(&self) -> bool {
        self.has_grown.load(SeqCst)
    }

    /// Whether a copy of the live keys waits for syncs: see [`Storage::is_behind`].
    pub fn is_behind(&self) -> bool {
        self.storage.is_behind()
    }

    /// Whether the live keys are to be copied to the next file now.
    pub fn is_copy_due(&self) -> bool {
        let state = self.state.lock();
        state.is_copied && (self.has_grown() || state.is_copy_wanted)
    }

    /// Whether the newest file begins with a copy of the live keys that is not complete.
    pub fn is_copying(&self) -> bool {
        !self.state.lock().is_copied
    }

    /// Begins the next file, to which the live keys are to be copied.
    ///
    /// # Errors
    /// The system's. The log goes on in its file.
    pub fn begin_copy(&self, now: LockTime, boot_ms: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        self.write_state(&mut state)?;
        let (previous, previous_bytes) = (state.opened.number, state.bytes);
        let number = previous + 1;
        self.storage.begin(number)?;
        state.opened = Opened { number, previous, previous_bytes, ..state.opened.clone() };
        state.previous_bytes += previous_bytes;
        (state.bytes, state.is_copied) = (frame::first_line().len() as u64, false);
        state.is_copy_wanted = false;
        // The durable horizon stays the one that counts until the next sync.
        let horizon = self.next_horizon(&mut state, now, boot_ms);
        let until = horizon.until.max(state.durable.until);
        state.begin_file(Horizon { until, ..horizon }, self.storage.volume());
        self.write_state(&mut state)
    }

    /// Whether the next start will find what was written. While live keys are copied, that is not looked at.
    pub fn is_in_place(&self) -> bool {
        self.is_copying() || self.has_all_files()
    }

    /// Whether all files are there that the next start needs: those before the newest one, too, while it has no whole copy.
    pub fn has_all_files(&self) -> bool {
        self.storage.is_in_place()
    }

    /// Begins the next file where the others are gone. The live keys are to be copied to it.
    ///
    /// # Errors
    /// The system's, or another server has taken the place.
    pub fn begin_again(&self, now: LockTime, boot_ms: u64) -> io::Result<()> {
        self.storage.remake()?;
        self.begin_copy(now, boot_ms)
    }

    /// The live keys have been copied, and [`Log::sync`] follows.
    pub fn end_copy(&self) {
        let mut state = self.state.lock();
        Item::Copied.encode(&mut state.frame);
        self.append_one(false, false);
    }

    /// Removes the files before the newest one, to which all live keys have been copied and synced.
    ///
    /// # Errors
    /// The system's. The files stay until the next copy.
    pub fn remove_older(&self) -> io::Result<()> {
        let number = {
            let mut state = self.state.lock();
            (state.is_copied, state.copied_bytes) = (true, state.bytes);
            state.opened.number
        };
        self.storage.remove_before(number)?;
        self.state.lock().previous_bytes = 0;
        Ok(())
    }

    /// What this server has promised, and may until the next sync but one.
    pub fn promised(&self, now: LockTime) -> Promised {
        let state = self.state.lock();
        let until = state.durable.until.max(state.promised_until).max(state.leased_until);
        Promised { now, until, token: state.durable.tokens_until.max(state.token) }
    }

    /// What the log says of itself.
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        Status {
            mode: self.mode,
            bytes: state.bytes + state.previous_bytes,
            copied_bytes: state.copied_bytes,
            is_copying: !state.is_copied || state.is_copy_wanted,
            error: state.error.clone(),
            horizon: state.durable.until,
            synced_at: state.synced_at,
            unsynced: self.appended.load(SeqCst) - self.synced.load(SeqCst),
        }
    }
}

/// Bytes above which a frame is written at once: requests of one batch may change large values again and again.
const FRAME_BYTES_MAX: usize = 4 << 20;
/// Bytes of the buffer of the next frame that are kept after a larger one.
const FRAME_BYTES_KEPT: usize = 256 * 1024;

/// The text of an error as Redis writes it, without the number.
fn reason(text: &str) -> String {
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Why a sync has failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The horizon could not be written.
    #[error("cannot write: {0}")]
    Write(io::Error),
    /// Nobody knows yet whether what was written is there. It is not lost, and replies wait for the next sync.
    #[error("is late: {0}")]
    Delayed(io::Error),
    /// The disk could not be synced.
    #[error("cannot sync: {0}")]
    Sync(io::Error),
}

impl SyncError {
    /// Why [`Storage::sync`] has failed.
    fn of(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::TimedOut { Self::Delayed(error) } else { Self::Sync(error) }
    }
}

impl Journal for Log {
    /// Where another node goes on at once, calls come back to it.
    fn keeps_places(&self) -> bool {
        self.believed_ms.is_some()
    }

    fn append(&self, record: &Record<'_>) {
        let mut state = self.state.lock();
        let is_forgettable = self.is_failing() && !self.is_watched() && only_removes(record.mutations);
        let must_sync = self.waits_for_disk(&mut state, record) && !is_forgettable;
        if self.mode == Mode::Memory {
            self.append_one(false, must_sync);
            // There is nothing to write but the next horizon.
            self.written.store(self.appended.load(SeqCst), SeqCst);
            return;
        }
        item::encode_record(record, &mut state.frame);
        self.append_one(!is_forgettable, must_sync);
        if state.frame.len() > FRAME_BYTES_MAX && !self.is_failing() {
            // The failure is in the state.
            let _ = self.write_state(&mut state);
        }
    }
}

impl Log {
    /// Whether the reply of this record waits until it is on the disk. Notes what the record promises.
    fn waits_for_disk(&self, state: &mut State, record: &Record<'_>) -> bool {
        state.token = state.token.max(record.mutations.token);
        // What is forgotten in any case does not come back, so that only what there is now is promised.
        let lasts_until = if self.mode == Mode::Memory { record.ends_at } else { record.lasts_until };
        let lease_ms = lasts_until.millis_since(record.now);
        let is_lease = lease_ms > 0 && lease_ms <= self.lease_ms_max;
        if is_lease {
            state.leases.note(lease_ms, record.now);
        }
        let limit = state.syncing.map_or(state.durable, |next| next.earlier(state.durable));
        let is_covered = lasts_until <= limit.until
            && state.token <= limit.tokens_until
            && (lease_ms == 0 || is_lease && record.now.millis_since(state.synced_at) <= GRACE_MS);
        if is_lease {
            state.promised_until = state.promised_until.max(lasts_until);
        }
        if lasts_until < LockTime::MAX {
            state.leased_until = state.leased_until.max(lasts_until);
        }
        match self.mode {
            Mode::Always => true,
            Mode::EverySecond => !is_covered,
            // What is forgotten in any case has no use for the disk, unless a horizon can cover it.
            Mode::Memory => !is_covered && is_lease,
        }
    }
}

impl State {
    /// The first items of a file.
    fn begin_file(&mut self, horizon: Horizon, volume: Volume) {
        frame::body_start(&mut self.frame);
        Item::Opened(self.opened.clone()).encode(&mut self.frame);
        if volume != Volume::default() {
            Item::Volume(volume).encode(&mut self.frame);
        }
        Item::Horizon(horizon).encode(&mut self.frame);
        if let Some(dump) = &self.functions {
            Item::Functions(dump.clone()).encode(&mut self.frame);
        }
    }
}

impl Horizon {
    fn earlier(self, other: Self) -> Self {
        let tokens_until = self.tokens_until.min(other.tokens_until);
        Self { until: self.until.min(other.until), tokens_until, ..self }
    }
}

impl RecentLeases {
    fn note(&mut self, lease_ms: u64, now: LockTime) {
        self.turn(now);
        self.now_ms = self.now_ms.max(lease_ms);
    }

    fn longest_ms(&mut self, now: LockTime) -> u64 {
        self.turn(now);
        self.now_ms.max(self.before_ms)
    }

    fn turn(&mut self, now: LockTime) {
        let periods = now.millis_since(self.since) / LEASES_MS;
        if periods > 0 {
            let before_ms = if periods == 1 { self.now_ms } else { 0 };
            *self = Self { since: now, now_ms: 0, before_ms };
        }
    }
}

/// Whether it is safe to answer before this is written: a release that is forgotten ends with its lease. What is removed in
/// the end may have changed before: a count of holds becomes 0, and its key is removed.
fn only_removes(mutations: &Mutations) -> bool {
    !mutations.is_more_than_removals && all_remove(&mutations.to_vec())
}

fn all_remove(mutations: &[Mutation]) -> bool {
    let is_removed = |key: &Bytes, later: &[Mutation]| {
        later
            .iter()
            .any(|mutation| matches!(mutation, Mutation::Remove { key: removed, .. } if removed == key))
    };
    mutations.iter().enumerate().all(|(index, mutation)| match mutation {
        Mutation::Remove { .. } => true,
        Mutation::Edit { key, edit, .. } => edit.removes() || is_removed(key, &mutations[index + 1..]),
        _ => false,
    })
}

/// Whether that holds for all that a frame has.
fn frame_only_removes(frame: &[u8]) -> bool {
    let mut body = Bytes::copy_from_slice(frame::body(frame));
    let mut is_harmless = true;
    while is_harmless && !body.is_empty() {
        // What is seen of an object does not depend on the seed.
        is_harmless = match Item::decode(&mut body, Seed::of(0)) {
            Ok(Item::Record { mutations, .. }) => all_remove(&mutations),
            Ok(Item::Horizon(_)) => true,
            _ => false,
        };
    }
    is_harmless
}
