//! The order in which an observed server is read: round after round, and each lock again at the end of its lease, and when
//! the server says that it has changed.
//!
//! Owns    the locks that were read last.
//! Rule    a lock that is not found is gone, whatever the clock says; until it was looked for, it is held.
//! Bounds  [`LOCKS_MAX`] locks, whose keys have at most [`KEY_BYTES_MAX`] bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{iter, mem};

use redlatch_client::Error;
use redlatch_client::wire::is_unknown;
use redlatch_proto::log_name::readable;
use tokio::time::{Instant, sleep};

use super::observed::{NoReading, Observed, Reading};
use super::recognise::{Kind, is_companion, names_lock};

/// What becomes of the readings.
pub(super) trait Viewer {
    /// The lock of a key is held. `before`: how it was read last, if it was held then.
    fn held(&mut self, key: &[u8], before: Option<&Reading>, now: &Reading);

    /// The lock of a key is not held any more.
    fn gone(&mut self, key: &[u8], before: &Reading);
}

/// A reader of all locks.
pub(super) struct Sweep<V> {
    pub(super) observed: Observed,
    pub(super) viewer: V,
    /// The keys that are locks, whatever their names; `None`: by their names.
    pattern: Option<String>,
    known: BTreeMap<Vec<u8>, Known>,
    /// When locks are read again, with their keys, and as what: see [`Reading::due`].
    due: BTreeMap<(Instant, Vec<u8>), Kind>,
    round: u64,
    /// The key whose reading has failed last, and has not succeeded since.
    failed: Option<Vec<u8>>,
    /// Keys whose reading has failed twice: they are not read again.
    skipped: BTreeSet<Vec<u8>>,
    /// Locks that this round has found beyond [`LOCKS_MAX`].
    left_out: u64,
    /// Whether the server could not be read since the last round.
    is_failing: bool,
    /// In which round the server could not be read, or changes were missed, unless all was read since.
    gap: Option<u64>,
    /// When the last round has ended.
    ended: Option<Instant>,
}

struct Known {
    kind: Kind,
    reading: Reading,
    /// In which round it was read last.
    round: u64,
}

/// Locks that are kept; further ones are not shown.
pub(super) const LOCKS_MAX: usize = 100_000;
/// Keys that are skipped; when there are more, each is read again.
const SKIPPED_MAX: usize = 1_000;
/// Bytes of a key that lists of locks show.
pub(super) const KEY_BYTES_MAX: usize = 1024;
/// The pause before a server that could not be read is asked again.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause between two rounds while the server says which keys change: they find what it did not say.
const ROUND_PAUSE: Duration = Duration::from_secs(60);

impl<V: Viewer> Sweep<V> {
    pub(super) fn new(observed: Observed, pattern: Option<String>, viewer: V) -> Self {
        Self {
            observed,
            viewer,
            pattern,
            known: BTreeMap::new(),
            due: BTreeMap::new(),
            round: 0,
            failed: None,
            skipped: BTreeSet::new(),
            left_out: 0,
            is_failing: false,
            gap: None,
            ended: None,
        }
    }

    /// How many locks are held.
    pub(super) fn locks(&self) -> usize {
        self.known.len()
    }

    /// Reads round after round.
    ///
    /// # Errors
    /// As [`Sweep::round`].
    pub(super) async fn run(&mut self) -> Error {
        loop {
            if let Err(error) = self.round().await {
                return error;
            }
        }
    }

    /// Reads every key once, and what was held before. A server that cannot be read for a while is a gap, after which
    /// everything is read again.
    ///
    /// # Errors
    /// The server refuses the login, or a right without which nothing can be read.
    pub(super) async fn round(&mut self) -> Result<(), Error> {
        while let Err(error) = self.try_round().await {
            if is_denial(&error) {
                return Err(error);
            }
            self.wait_for_the_server(&error).await?;
        }
        Ok(())
    }

    async fn try_round(&mut self) -> Result<(), Error> {
        self.rest().await?;
        if self.observed.has_changed_role().await? && self.begin_gap() {
            tracing::warn!("The observed server has become a replica, or a master");
        }
        let (started, mut seen) = (Instant::now(), 0);
        self.round += 1;
        self.left_out = 0;
        for kind in Kind::ALL {
            let mut cursor = b"0".to_vec();
            loop {
                let pattern = self.pattern.as_deref().unwrap_or("*");
                let (next, keys) = self.observed.scan(&cursor, kind, pattern.as_bytes()).await?;
                seen += keys.len() as u64;
                for key in keys {
                    if self.may_be_lock(&key, kind) {
                        self.read(&key, kind).await?;
                        self.take_turn().await?;
                    }
                }
                self.take_turn().await?;
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        let is_unread =
            |(key, known): (&Vec<u8>, &Known)| (known.round < self.round).then(|| (key.clone(), known.kind));
        let unread: Vec<_> = self.known.iter().filter_map(is_unread).collect();
        for (key, kind) in unread {
            self.read(&key, kind).await?;
            self.take_turn().await?;
        }
        self.note_round(seen, started.elapsed());
        Ok(())
    }

    /// While the server says which keys change, there are pauses between rounds: reads those keys, and locks that are due.
    async fn rest(&mut self) -> Result<(), Error> {
        while self.observed.beside.is_tracking.load(Relaxed) {
            let pause = if self.gap.is_some() { PAUSE } else { ROUND_PAUSE };
            let end = self.ended.map(|ended| ended + pause).filter(|end| *end > Instant::now());
            let Some(end) = end else { break };
            if self.observed.changes.is_empty() {
                let due = self.due.first_key_value().map_or(end, |((at, _), _)| end.min(*at));
                self.observed.listen(due).await?;
            }
            self.take_turn().await?;
        }
        Ok(())
    }

    /// Reads the lock that is due first, and a key that has changed: just one of each, so that many do not stop the round.
    async fn take_turn(&mut self) -> Result<(), Error> {
        let due = self.due.first_key_value().filter(|((at, _), _)| *at <= Instant::now());
        if let Some((key, kind)) = due.map(|((_, key), kind)| (key.clone(), *kind)) {
            self.read(&key, kind).await?;
        }
        if let Some(reason) = self.observed.changes.take_missed()
            && self.begin_gap()
        {
            tracing::warn!(reason, "Changes of the observed server were missed");
        }
        let Some(key) = self.observed.changes.take() else { return Ok(()) };
        let read = self.read_changed(&key).await;
        if read.is_err() {
            self.observed.changes.put_back(key);
        }
        read
    }

    /// Reads a key that has changed, perhaps to a lock of another kind.
    async fn read_changed(&mut self, key: &[u8]) -> Result<(), Error> {
        let before = self.known.get(key).map_or(Kind::String, |known| known.kind);
        let others = Kind::ALL.into_iter().filter(|kind| *kind != before);
        for kind in iter::once(before).chain(others) {
            if !self.read(key, kind).await? {
                break;
            }
        }
        Ok(())
    }

    fn may_be_lock(&self, key: &[u8], kind: Kind) -> bool {
        let is_named = kind == Kind::Hash || self.pattern.is_some() || names_lock(key);
        is_named && key.len() <= KEY_BYTES_MAX && !is_companion(key)
    }

    /// Reads a key. What is not known of a lock that was held leaves it held, as inferred. True if its value is of another
    /// type.
    async fn read(&mut self, key: &[u8], kind: Kind) -> Result<bool, Error> {
        let found = match self.skipped.contains(key) {
            true => Err(NoReading::Unknown),
            false => self.observed.lock(key, kind).await,
        };
        if let Err(NoReading::Failed(error)) = found {
            self.note_failure(key);
            return Err(error);
        }
        self.failed.take_if(|failed| failed == key);
        let before = self.known.remove(key);
        if let Some(due) = before.as_ref().and_then(|before| before.reading.due()) {
            self.due.remove(&(due, key.to_vec()));
        }
        let is_unread =
            matches!((&found, &before), (Err(NoReading::Unknown), Some(before)) if before.kind == kind);
        self.observed.beside.set_unread(key, is_unread || self.observed.changes.has(key));
        let is_other = matches!(found, Err(NoReading::Other));
        match (found, before) {
            (Err(NoReading::Unknown), Some(before)) if before.kind == kind => {
                self.known.insert(key.to_vec(), Known { round: self.round, ..before });
            }
            (Err(_), None) => {}
            (Err(_), Some(before)) => self.viewer.gone(key, &before.reading),
            (Ok(_), None) if self.known.len() >= LOCKS_MAX => self.left_out += 1,
            (Ok(reading), before) => {
                self.viewer.held(key, before.map(|before| before.reading).as_ref(), &reading);
                self.due.extend(reading.due().map(|due| ((due, key.to_vec()), kind)));
                self.known.insert(key.to_vec(), Known { kind, reading, round: self.round });
            }
        }
        Ok(is_other)
    }

    /// The reading of a key has failed: a reply that breaks the connection must not keep all other keys from being read.
    fn note_failure(&mut self, key: &[u8]) {
        if self.failed.take().is_none_or(|failed| failed != key) {
            self.failed = Some(key.to_vec());
            return;
        }
        if self.skipped.len() >= SKIPPED_MAX {
            self.skipped.clear();
        }
        self.skipped.insert(key.to_vec());
    }

    /// What was read is not certain any more, until a round that begins later has read all of it. True if it was certain.
    fn begin_gap(&mut self) -> bool {
        let beside = &self.observed.beside;
        beside.is_in_gap.store(true, Relaxed);
        let is_new = self.gap.replace(self.round).is_none();
        beside.gaps.fetch_add(u64::from(is_new), Relaxed);
        is_new
    }

    /// All keys were read.
    fn note_round(&mut self, keys: u64, took: Duration) {
        self.is_failing = false;
        self.ended = Some(Instant::now());
        self.gap.take_if(|round| *round < self.round);
        let beside = &self.observed.beside;
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        beside.keys.store(keys, Relaxed);
        beside.round_ms.store(millis, Relaxed);
        if beside.left_out.swap(self.left_out, Relaxed) == 0 && self.left_out > 0 {
            tracing::warn!(left_out = self.left_out, "More locks were read than are shown");
        }
        beside.rounds.fetch_add(1, Relaxed);
        if self.gap.is_none() && beside.is_in_gap.swap(false, Relaxed) {
            let (locks, requests) = (self.locks(), beside.requests.load(Relaxed));
            tracing::info!(keys, locks, requests, millis, "All locks of the observed server are read");
        }
    }

    /// Connects again, as often as it takes.
    ///
    /// # Errors
    /// The server refuses the login.
    async fn wait_for_the_server(&mut self, error: &Error) -> Result<(), Error> {
        self.begin_gap();
        if !mem::replace(&mut self.is_failing, true) {
            let reason = readable(error.to_string().as_bytes());
            tracing::warn!(reason, "The observed server cannot be read");
        }
        loop {
            sleep(PAUSE).await;
            match self.observed.reconnect().await {
                Err(error) if is_denial(&error) => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }
}

/// Whether the server refuses the login, or a right.
fn is_denial(error: &Error) -> bool {
    let Error::Refused(text) = error else { return false };
    is_unknown(text) || ["NOAUTH", "NOPERM", "WRONGPASS"].iter().any(|code| text.starts_with(code))
}
