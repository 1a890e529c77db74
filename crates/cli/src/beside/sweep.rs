//! The order in which an observed server is read: round after round, and each lock again at the end of its lease.
//!
//! Owns    the locks that were read last.
//! Rule    a lock that is not found is gone, whatever the clock says; until it was looked for, it is held.
//! Bounds  [`LOCKS_MAX`] locks, whose keys have at most [`KEY_BYTES_MAX`] bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redlatch_client::Error;
use redlatch_proto::log_name::readable;
use tokio::time::{Instant, sleep};

use super::observed::{Observed, Reading};
use super::recognise::{Kind, names_lock};

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
    /// When leases end, with their keys.
    due: BTreeSet<(Instant, Vec<u8>)>,
    round: u64,
}

struct Known {
    kind: Kind,
    reading: Reading,
    /// In which round it was read last.
    round: u64,
}

/// Locks that are kept; further ones are not shown.
const LOCKS_MAX: usize = 100_000;
/// Bytes of a key that lists of locks show.
const KEY_BYTES_MAX: usize = 1024;
/// The pause before a server that could not be read is asked again.
const PAUSE: Duration = Duration::from_secs(1);

impl<V: Viewer> Sweep<V> {
    pub(super) fn new(observed: Observed, pattern: Option<String>, viewer: V) -> Self {
        Self { observed, viewer, pattern, known: BTreeMap::new(), due: BTreeSet::new(), round: 0 }
    }

    /// How many locks are held.
    pub(super) fn locks(&self) -> usize {
        self.known.len()
    }

    /// Reads round after round. A server that cannot be read for a while is a gap, after which everything is read again.
    ///
    /// # Errors
    /// The server refuses the login, or a right without which nothing can be read.
    pub(super) async fn run(&mut self) -> Error {
        loop {
            match self.round().await {
                Ok(()) => {}
                Err(error) if is_denial(&error) => return error,
                Err(error) => {
                    if let Err(error) = self.wait_for_the_server(error).await {
                        return error;
                    }
                }
            }
        }
    }

    /// Reads every key once, and what was held before.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub(super) async fn round(&mut self) -> Result<(), Error> {
        let (started, mut seen) = (Instant::now(), 0);
        self.round += 1;
        for kind in Kind::ALL {
            let mut cursor = b"0".to_vec();
            loop {
                let pattern = self.pattern.as_deref().unwrap_or("*");
                let (next, keys) = self.observed.scan(&cursor, kind, pattern.as_bytes()).await?;
                seen += keys.len() as u64;
                for key in keys {
                    self.read_due().await?;
                    if self.may_be_lock(&key, kind) {
                        self.read(&key, kind).await?;
                    }
                }
                self.read_due().await?;
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
        }
        self.note_round(seen, started.elapsed());
        Ok(())
    }

    /// Reads the locks again whose leases have ended.
    async fn read_due(&mut self) -> Result<(), Error> {
        let ended = self.due.range(..(Instant::now(), Vec::new())).map(|(_, key)| key.clone());
        for key in ended.collect::<Vec<_>>() {
            if let Some(kind) = self.known.get(&key).map(|known| known.kind) {
                self.read(&key, kind).await?;
            }
        }
        Ok(())
    }

    fn may_be_lock(&self, key: &[u8], kind: Kind) -> bool {
        let is_named = kind != Kind::String || self.pattern.is_some() || names_lock(key);
        is_named && key.len() <= KEY_BYTES_MAX
    }

    async fn read(&mut self, key: &[u8], kind: Kind) -> Result<(), Error> {
        let found = self.observed.lock(key, kind).await?;
        let before = self.known.remove(key);
        if let Some((end, _)) = before.as_ref().and_then(|before| before.reading.ends) {
            self.due.remove(&(end, key.to_vec()));
        }
        let before = before.map(|before| before.reading);
        match (found, before) {
            (None, None) => {}
            (None, Some(before)) => self.viewer.gone(key, &before),
            (Some(_), None) if self.known.len() >= LOCKS_MAX => {}
            (Some(reading), before) => {
                self.viewer.held(key, before.as_ref(), &reading);
                self.due.extend(reading.ends.map(|(end, _)| (end, key.to_vec())));
                self.known.insert(key.to_vec(), Known { kind, reading, round: self.round });
            }
        }
        Ok(())
    }

    /// All keys were read.
    fn note_round(&self, keys: u64, took: Duration) {
        let beside = &self.observed.beside;
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        beside.keys.store(keys, Relaxed);
        beside.round_ms.store(millis, Relaxed);
        beside.rounds.fetch_add(1, Relaxed);
        if beside.is_in_gap.swap(false, Relaxed) {
            let (locks, requests) = (self.locks(), beside.requests.load(Relaxed));
            tracing::info!(keys, locks, requests, millis, "All locks of the observed server are read");
        }
    }

    /// Connects again, as often as it takes.
    ///
    /// # Errors
    /// The server refuses the login.
    async fn wait_for_the_server(&mut self, error: Error) -> Result<(), Error> {
        let beside = &self.observed.beside;
        if !beside.is_in_gap.swap(true, Relaxed) {
            beside.gaps.fetch_add(1, Relaxed);
        }
        let reason = readable(error.to_string().as_bytes());
        tracing::warn!(reason, "The observed server cannot be read");
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
    let codes = ["NOAUTH", "NOPERM", "WRONGPASS"];
    matches!(error, Error::Refused(text) if codes.iter().any(|code| text.starts_with(code)))
}
