//! A term: the time in which a node leads, and its commits to the log in etcd.
//!
//! Owns    the entries of the log: what is not committed yet, and which entries make which file of the journal.
//! Rule    a commit is one transaction: if the epoch is that of the term and the head is the next sequence number, the
//!         head is moved and the entry is put. An entry that may have been committed is tried again as it is: a late
//!         duplicate of a try finds another head, and changes nothing. After a restore it finds another name of the term,
//!         though epoch and head may have the same numbers again.
//! Rule    an entry has bytes of one file, and where they belong in it. A file whose beginning is there twice begins with
//!         the later one: the start that has written the earlier one has not come to its end.
//! Locks   one mutex around the entries, which is not held while etcd is asked; another around the commits.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Cursor};
use std::sync::Arc;

use bytes::{Buf, Bytes};

use super::cluster::{Cluster, Member};
use super::etcd::{Answer, Compare, Etcd, EtcdError, Operation, Transaction};
use super::restored::{Memory, Restored, RestoredState};
use super::standby::{first, head_text, sequence};
use crate::journal::frame;
use crate::journal::log::Storage;
use crate::journal::recovery::Lacks;
use crate::sync::Mutex;

/// Bytes of the journal in one entry at most: etcd refuses requests above 1.5 MiB, and an answer that takes long would
/// keep all replies waiting.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Bytes that wait for etcd, above which nothing is written: memory for the writes of some seconds without etcd. One write
/// may exceed it.
pub const BUFFERED_BYTES_MAX: usize = 64 << 20;
/// Bytes that wait for etcd, above which a copy of the live keys waits: replies wait behind them.
const BEHIND_BYTES: usize = 4 << 20;
/// Bytes that an entry takes in etcd besides those of the journal: its key, the head, and the indexes of both.
const ENTRY_OVERHEAD_BYTES: u64 = 512;
/// By how many bytes the newest files of all groups grow in etcd before the live keys are copied to the next ones: what a
/// node that takes over reads in a fraction of a second. Of one group, an hour of heartbeats.
const GROWTH_BYTES: u64 = 8 << 20;
/// Bytes of entries that one read asks for, about.
const READ_BYTES: usize = 4 << 20;
/// Entries that one read asks for as long as nothing is known of their sizes: 22 MiB in base64, if they are large.
const READ_ENTRIES_MIN: u32 = 16;
/// Entries that one read asks for at most, where many small ones came before.
const READ_ENTRIES_MAX: u32 = 1_024;
/// Bytes before those of the journal in an entry: the number of the file, and the offset in it, little endian.
const HEADER_BYTES: usize = 16;

/// The files of a journal, by their numbers.
pub type Files = Vec<(u64, Cursor<Vec<u8>>)>;

/// A term. Clones are handles of the same term. As a [`Storage`] it keeps the journal of the leader.
#[derive(Clone, Debug)]
pub struct Term(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    etcd: Arc<dyn Etcd>,
    cluster: Cluster,
    /// The revision at which this node has put the epoch.
    epoch: i64,
    /// What this node has put under `term`.
    name: Bytes,
    restored: Restored,
    state: Mutex<State>,
    /// Locked from one commit to its answer.
    committing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// The sequence number of the next entry.
    head: u64,
    /// What a node remembers that has seen this term up to now.
    memory: Memory,
    /// What is not committed, the earliest first.
    entries: VecDeque<Entry>,
    buffered: usize,
    /// How many entries have been made, and how many of them are committed.
    made: u64,
    committed: u64,
    /// The newest file: its number and bytes.
    file: u64,
    file_bytes: u64,
    /// The first entry of each file in etcd.
    firsts: BTreeMap<u64, u64>,
    /// A revision of etcd that the next removal has it forget.
    forgettable: i64,
    /// Bytes in etcd of the newest file, now and after the live keys had been copied to it.
    stored: u64,
    copied: u64,
    /// Why the term is over, if it is.
    over: Option<TermError>,
}

/// Bytes of one file.
#[derive(Clone, Debug)]
struct Entry {
    file: u64,
    offset: u64,
    bytes: Vec<u8>,
    /// Whether it may be in etcd: nothing is added to it.
    is_tried: bool,
}

/// Why a term is over, or does not begin.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TermError {
    #[error("another node leads")]
    Deposed,
    /// The log is not what this program has written.
    #[error("the log was changed by another program: {0}")]
    Foreign(&'static str),
    /// etcd has not answered, or has refused: the same may succeed later.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

impl From<TermError> for io::Error {
    fn from(error: TermError) -> Self {
        match error {
            TermError::Etcd(error) => Self::new(io::ErrorKind::TimedOut, error),
            error => Self::other(error),
        }
    }
}

impl Term {
    pub(super) fn new(
        etcd: Arc<dyn Etcd>,
        cluster: Cluster,
        (epoch, name): (i64, Bytes),
        (head, memory): (u64, Memory),
        restored: Restored,
    ) -> Self {
        let state = Mutex::new(State { head, memory, forgettable: epoch, ..State::default() });
        Self(Arc::new(Inner { etcd, cluster, epoch, name, restored, state, committing: Mutex::new(()) }))
    }

    /// What is known of the promises that the log lacks, if it was restored and that was accepted.
    pub fn lacks(&self) -> Option<Lacks> {
        self.0.restored.lacks()
    }

    /// The first file of a term is committed: the quarantine after a restore is in the log. If this fails, the next leader
    /// begins with another one.
    ///
    /// # Errors
    /// [`TermError`]
    pub fn end_restore(&self) -> Result<(), TermError> {
        if self.lacks().is_none() {
            return Ok(());
        }
        let done = Restored { state: RestoredState::Done, ..self.0.restored };
        self.change(vec![Operation::Put { key: self.0.cluster.keys.restored(), value: done.text() }])
            .map(drop)
    }

    /// What this node remembers of the log.
    pub fn memory(&self) -> Memory {
        self.0.state.lock().memory
    }

    /// The epoch of the term.
    pub fn epoch(&self) -> i64 {
        self.0.epoch
    }

    /// How long the log stands still before another node takes over, in milliseconds.
    pub fn takeover_ms(&self) -> u64 {
        self.0.cluster.agreed.takeover_ms
    }

    /// The id of the cluster.
    pub fn cluster_id(&self) -> [u8; 20] {
        self.0.cluster.id
    }

    /// The sequence number of the next entry of the log.
    pub fn head(&self) -> u64 {
        self.0.state.lock().head
    }

    /// Commits an empty entry, which tells the standbys that this node has not died, unless others wait. For the time before
    /// the journal goes on: then each sync is one.
    ///
    /// # Errors
    /// [`TermError`]
    pub fn beat(&self) -> Result<(), TermError> {
        {
            let mut state = self.0.state.lock();
            if state.entries.is_empty() {
                state.made += 1;
                // Files have numbers above 0, so nothing is added to it.
                state.entries.push_back(Entry { file: 0, offset: 0, bytes: Vec::new(), is_tried: false });
            }
        }
        self.commit_all()
    }

    /// Reads the files of the journal. While that takes more than one read, it calls [`Term::beat`]; others may, too.
    ///
    /// # Errors
    /// [`TermError`]: the term is over, because it has never begun.
    pub fn load(&self) -> Result<Files, TermError> {
        let keys = &self.0.cluster.keys;
        let mut files: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let (mut next, mut limit) = (None, READ_ENTRIES_MIN);
        loop {
            let head = self.head();
            let key = keys.log(next.unwrap_or(0));
            let read = Operation::Read { key, end: Some(keys.log_end()), limit };
            let then = vec![read];
            let answer = match self.0.etcd.transact(&Transaction { then, ..Transaction::default() }) {
                // The answer may have been too large.
                Err(EtcdError::Unknown(_)) if limit > READ_ENTRIES_MIN => {
                    limit = READ_ENTRIES_MIN;
                    continue;
                }
                answer => answer?,
            };
            let found = answer.reads.first().map_or(&[][..], |found| found);
            for entry in found {
                let at = keys.sequence_of(&entry.key).ok_or(TermError::Foreign("an entry has no number"))?;
                if next.is_some_and(|next| next != at) {
                    return Err(TermError::Foreign("an entry is missing"));
                }
                self.take(at, &entry.value, &mut files)?;
                next = Some(at + 1);
            }
            if next.unwrap_or(0) >= head || found.is_empty() {
                // Nothing but empty entries is behind that head, because nobody else can commit.
                let is_whole = next.unwrap_or(0) >= head;
                let files = files.into_iter().map(|(number, file)| (number, Cursor::new(file))).collect();
                return if is_whole { Ok(files) } else { Err(TermError::Foreign("an entry is missing")) };
            }
            let bytes: usize = found.iter().map(|entry| entry.value.len() + HEADER_BYTES).sum();
            let fitting = u32::try_from(READ_BYTES / (bytes / found.len())).unwrap_or(u32::MAX);
            limit = fitting.clamp(READ_ENTRIES_MIN, READ_ENTRIES_MAX);
            self.beat()?;
        }
    }

    /// Adds an entry of the log to its file.
    fn take(&self, at: u64, value: &Bytes, files: &mut BTreeMap<u64, Vec<u8>>) -> Result<(), TermError> {
        let mut value = value.clone();
        if value.is_empty() {
            return Ok(());
        }
        let mut number = || value.try_get_u64_le().map_err(|_| TermError::Foreign("an entry is cut short"));
        let (number, offset) = (number()?, number()?);
        if offset == 0 {
            files.insert(number, Vec::new());
            self.0.state.lock().firsts.insert(number, at);
        }
        let file = files.get_mut(&number).filter(|file| file.len() as u64 == offset);
        file.ok_or(TermError::Foreign("an entry does not fit"))?.extend_from_slice(&value);
        Ok(())
    }

    /// Commits one entry of the log.
    ///
    /// # Errors
    /// [`TermError`]. After [`TermError::Etcd`] it may be committed or not: only the same entry may be tried again.
    fn commit(&self, value: Bytes) -> Result<(), TermError> {
        let keys = &self.0.cluster.keys;
        let head = self.head();
        let put = |key, value| Operation::Put { key, value };
        let read = |key| Operation::Read { key, end: None, limit: 1 };
        let next = Compare::Value { key: keys.head(), value: head_text(head) };
        let [epoch, name] = self.is_mine();
        let answer = self.0.etcd.commit(Transaction {
            conditions: vec![epoch, name, next],
            then: vec![put(keys.head(), head_text(head + 1)), put(keys.log(head), value)],
            otherwise: vec![read(keys.epoch()), read(keys.term()), read(keys.head())],
        })?;
        let revision = match answer.has_succeeded {
            true => answer.revision,
            false => self.committed_at(&answer, head)?,
        };
        let mut state = self.0.state.lock();
        state.head = head + 1;
        state.memory = Memory { head: head + 1, revision, ..state.memory };
        Ok(())
    }

    /// The revision at which an earlier try has committed the entry of that number.
    fn committed_at(&self, answer: &Answer, head: u64) -> Result<i64, TermError> {
        let is_epoch = first(answer, 0).is_some_and(|epoch| epoch.mod_revision == self.0.epoch);
        if !is_epoch || first(answer, 1).is_none_or(|name| name.value != self.0.name) {
            return Err(TermError::Deposed);
        }
        // Nobody else can have moved the head in this epoch.
        let moved = first(answer, 2).filter(|found| sequence(found) == Some(head + 1));
        moved.map(|head| head.mod_revision).ok_or(TermError::Foreign("the head was moved"))
    }

    /// The conditions that the epoch is that of this term.
    fn is_mine(&self) -> [Compare; 2] {
        let keys = &self.0.cluster.keys;
        [
            Compare::ModRevision { key: keys.epoch(), revision: self.0.epoch },
            Compare::Value { key: keys.term(), value: self.0.name.clone() },
        ]
    }

    /// Commits what was written before the call.
    fn commit_all(&self) -> Result<(), TermError> {
        let _committing = self.0.committing.lock();
        let made = self.0.state.lock().made;
        loop {
            let value = {
                let mut state = self.0.state.lock();
                if let Some(over) = &state.over {
                    return Err(over.clone());
                }
                if state.committed >= made {
                    return Ok(());
                }
                let Some(entry) = state.entries.front_mut() else { return Ok(()) };
                entry.is_tried = true;
                entry.value()
            };
            match self.commit(value) {
                Ok(()) => self.0.state.lock().note_commit(),
                Err(error @ TermError::Etcd(_)) => return Err(error),
                Err(error) => {
                    self.0.state.lock().over = Some(error.clone());
                    return Err(error);
                }
            }
        }
    }

    /// Gives the epoch back, so that another node takes over at once. Called after the log was stopped, when no client is
    /// answered any more. If it fails, the others wait until the log has stood still.
    ///
    /// # Errors
    /// [`TermError`]
    pub fn release(&self) -> Result<(), TermError> {
        self.0.state.lock().over = Some(TermError::Deposed);
        let key = self.0.cluster.keys.epoch();
        self.change(vec![Operation::Put { key, value: Member::epoch_text(None) }]).map(drop)
    }

    /// Changes keys, if the epoch is that of this term.
    ///
    /// # Errors
    /// [`TermError`]
    pub(super) fn change(&self, then: Vec<Operation>) -> Result<Answer, TermError> {
        let conditions = self.is_mine().into();
        let answer = self.0.etcd.transact(&Transaction { conditions, then, otherwise: Vec::new() })?;
        if answer.has_succeeded { Ok(answer) } else { Err(TermError::Deposed) }
    }

    /// The etcd that the log is in.
    pub(super) fn etcd(&self) -> &dyn Etcd {
        &*self.0.etcd
    }

    /// The cluster whose log this is.
    pub(super) fn cluster(&self) -> &Cluster {
        &self.0.cluster
    }
}

impl Entry {
    /// Its bytes in etcd: none for [`Term::beat`].
    fn value(&self) -> Bytes {
        if self.bytes.is_empty() {
            return Bytes::new();
        }
        entry_value(self.file, self.offset, &self.bytes)
    }
}

/// The value of an entry with these bytes of a file.
pub(super) fn entry_value(file: u64, offset: u64, bytes: &[u8]) -> Bytes {
    let header = [file.to_le_bytes(), offset.to_le_bytes()];
    [header.as_flattened(), bytes].concat().into()
}

impl State {
    /// The bytes are in the newest file.
    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (file, offset) = (self.file, self.file_bytes);
            let is_open =
                |last: &&mut Entry| !last.is_tried && last.file == file && last.bytes.len() < ENTRY_BYTES_MAX;
            let last = match self.entries.back_mut().filter(is_open) {
                Some(last) => last,
                None => {
                    self.made += 1;
                    self.entries.push_back(Entry { file, offset, bytes: Vec::new(), is_tried: false });
                    continue;
                }
            };
            let (now, later) = bytes.split_at(bytes.len().min(ENTRY_BYTES_MAX - last.bytes.len()));
            last.bytes.extend_from_slice(now);
            self.file_bytes += now.len() as u64;
            self.buffered += now.len();
            bytes = later;
        }
    }

    /// The first entry is committed, and the head is behind it.
    fn note_commit(&mut self) {
        let Some(Entry { file, offset, bytes, .. }) = self.entries.pop_front() else { return };
        self.committed += 1;
        self.buffered -= bytes.len();
        if offset == 0 && !bytes.is_empty() {
            self.firsts.insert(file, self.head - 1);
            self.stored = 0;
        }
        self.stored += bytes.len() as u64 + ENTRY_OVERHEAD_BYTES;
    }
}

impl Storage for Term {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.state.lock();
        if let Some(over) = &state.over {
            return Err(over.clone().into());
        }
        if state.buffered > BUFFERED_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::WouldBlock, "etcd does not take the log"));
        }
        state.append(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(self.commit_all()?)
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        let mut state = self.0.state.lock();
        (state.file, state.file_bytes) = (number, 0);
        state.append(&frame::first_line());
        Ok(())
    }

    fn remove_before(&self, number: u64) -> io::Result<()> {
        let keys = &self.0.cluster.keys;
        let first = {
            let mut state = self.0.state.lock();
            state.copied = state.stored;
            // A file that has not begun in etcd takes the place of none.
            let Some(first) = state.firsts.get(&number).copied() else { return Ok(()) };
            state.firsts.retain(|file, _| *file >= number);
            first
        };
        let answer = self.change(vec![Operation::Delete { key: keys.log(0), end: Some(keys.log(first)) }])?;
        // What was removed takes room until it is forgotten. Others who use this etcd may still read what is younger than the
        // removal before.
        let revision = std::mem::replace(&mut self.0.state.lock().forgettable, answer.revision);
        Ok(self.0.etcd.compact(revision).map_err(TermError::from)?)
    }

    /// Four fifths of `takeover`: the clocks of two nodes may differ by a fifth of it. What was written just before a sync is
    /// tried in that sync first. So the head moves after the sync has begun, and a standby counts from a later moment.
    fn believed_ms(&self) -> Option<u64> {
        Some(self.takeover_ms() / 5 * 4)
    }

    fn has_grown(&self) -> bool {
        let state = self.0.state.lock();
        // The part of a group with many keys is larger: each copy writes all of them.
        let part = GROWTH_BYTES / u64::from(self.0.cluster.agreed.part.groups);
        state.stored > state.copied + state.copied.clamp(part, GROWTH_BYTES)
    }

    fn is_behind(&self) -> bool {
        self.0.state.lock().buffered > BEHIND_BYTES
    }
}
