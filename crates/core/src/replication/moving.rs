//! A cluster that begins with the journal of one server, and one that becomes the journal of one server.
//!
//! Owns    the order of the steps of both moves, and the texts of `cluster` while locks arrive and once they have left.
//! Rule    one transaction of etcd moves the locks: the last one of an import, and that in [`Departure::leave`] of an
//!         export. The directory has a mark on its disk before that transaction, so that no server starts there. An export
//!         ends with another name for its mark, under which a server starts; an import leaves it as it is.
//! Rule    a move that was interrupted goes on when it is run again on the same directory: the id in the mark is also in
//!         etcd, once that transaction has happened.
//! Source  `simulation::moving` kills both at each step.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::cluster::{ARRIVING, Agreed, Cluster, JoinError, Keys, LEAVING, LEFT, Member, find_overlap};
use super::etcd::{Compare, Etcd, EtcdError, KeyValue, Operation, Transaction};
use super::marks::{Folder, Mark, UNFINISHED};
use super::restored::Memory;
use super::standby::{SightError, Standby, first, head_text};
use super::term::{ENTRY_BYTES_MAX, Term, TermError, entry_value};
use crate::journal::item;

/// Why locks are not moved.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MoveError {
    #[error("there is a cluster under this prefix")]
    Used,
    #[error("there is no cluster under this prefix")]
    NoCluster,
    #[error("{}", LEFT)]
    Left,
    #[error("the locks of this directory were moved to a cluster that is not under this prefix")]
    Elsewhere,
    #[error("another program is moving locks to this prefix")]
    Overtaken,
    /// The addresses of the node, in parentheses, if they are known.
    #[error("a node leads: stop all nodes first{0}")]
    Led(String),
    #[error("etcd was restored from an older state: 'redlatch cluster accept-restored' comes first")]
    Restored,
    /// What the directory says.
    #[error("{0}")]
    Folder(String),
    /// The keys cannot be copied.
    #[error("{0}")]
    Copy(String),
    /// What is there is not a cluster with these settings.
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error(transparent)]
    Sight(#[from] SightError),
    /// The term of the export is over.
    #[error(transparent)]
    Term(TermError),
    /// etcd has not answered, or has refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

impl From<io::Error> for MoveError {
    fn from(error: io::Error) -> Self {
        Self::Folder(error.to_string())
    }
}

impl From<TermError> for MoveError {
    fn from(error: TermError) -> Self {
        match error {
            TermError::Deposed => Self::Led(String::new()),
            TermError::Etcd(error) => Self::Etcd(error),
            error @ TermError::Foreign(_) => Self::Term(error),
        }
    }
}

/// A prefix in etcd that locks move to, or from.
#[derive(Clone, Debug)]
pub struct Prefix {
    pub etcd: Arc<dyn Etcd>,
    pub keys: Keys,
    /// What the nodes of the cluster agree on.
    pub agreed: Agreed,
}

/// How a move waits.
#[derive(Clone, Copy, Debug)]
pub struct Pace<P, N> {
    /// Waits for a part of `takeover`.
    pub pause: P,
    /// Reads a monotonic clock.
    pub now: N,
}

/// Moves the locks of the journal in a directory to a cluster that is not there yet. `fresh_id`: of the new cluster. `image`:
/// reads them as one file of a journal, with its number. Returns what else `image` returns; `None`: an earlier call has moved
/// them.
///
/// # Errors
/// [`MoveError`]. The same call goes on.
pub fn import<T>(
    to: Prefix,
    folder: &dyn Folder,
    fresh_id: [u8; 20],
    image: impl FnOnce() -> Result<(T, u64, Vec<u8>), String>,
) -> Result<Option<T>, MoveError> {
    let id = match Mark::of(folder)? {
        Mark::Exporting(_) => return Err(MoveError::Folder(UNFINISHED.to_owned())),
        Mark::Moved(id) if has_arrived(&to, id)? => return Ok(None),
        Mark::Moved(id) => id,
        Mark::Absent | Mark::Exported(_) => fresh_id,
    };
    let (image, file, bytes) = image().map_err(MoveError::Copy)?;
    let arrival = Arrival::begin(to, id)?;
    let head = arrival.put(file, &bytes)?;
    Mark::Moved(id).put(folder)?;
    arrival.end(head)?;
    Ok(Some(image))
}

/// Whether the cluster with this id is there. False: an import of it has not ended.
///
/// # Errors
/// [`MoveError`]: etcd does not answer; or neither is under this prefix.
fn has_arrived(to: &Prefix, id: [u8; 20]) -> Result<bool, MoveError> {
    let then = vec![Operation::Read { key: to.keys.cluster(), end: None, limit: 1 }];
    let answer = to.etcd.transact(&Transaction { then, ..Transaction::default() })?;
    match first(&answer, 0).map(|found| &found.value) {
        Some(text) if *text == arriving(&id) => Ok(false),
        Some(text) if Cluster::parse(text).is_ok_and(|(found, _)| found == id) => Ok(true),
        _ => Err(MoveError::Elsewhere),
    }
}

/// The text of `cluster` while the cluster with this id arrives.
fn arriving(id: &[u8; 20]) -> Bytes {
    format!("{ARRIVING}{}", item::id_text(id)).into()
}

/// A cluster whose log is being put into etcd. Until [`Arrival::end`] it is none: what an arrival has left that was
/// interrupted, the next one removes.
#[derive(Debug)]
pub struct Arrival {
    to: Prefix,
    cluster: Bytes,
    /// The revision at which this arrival has put `cluster`: each of its changes has that condition.
    claim: i64,
}

impl Arrival {
    /// Takes a prefix that no cluster has.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn begin(to: Prefix, id: [u8; 20]) -> Result<Self, MoveError> {
        let Prefix { etcd, keys, agreed } = &to;
        let all = [keys.cluster(), keys.epoch(), keys.head()];
        let read = |key| Operation::Read { key, end: None, limit: 1 };
        let then = all.clone().map(read).to_vec();
        let answer = etcd.transact(&Transaction { then, ..Transaction::default() })?;
        let found = std::array::from_fn(|read| first(&answer, read));
        check_free(found)?;
        find_overlap(&**etcd, keys, agreed.part)?;
        let revision = |found: Option<&KeyValue>| found.map_or(0, |found| found.mod_revision);
        let unchanged = |(key, found)| Compare::ModRevision { key, revision: revision(found) };
        let mut change = vec![Operation::Put { key: keys.cluster(), value: arriving(&id) }];
        change.extend(all_but_cluster(keys));
        let answer = etcd.transact(&Transaction {
            conditions: all.into_iter().zip(found).map(unchanged).collect(),
            then: change,
            otherwise: Vec::new(),
        })?;
        let (cluster, claim) = (Cluster::text_of(id, agreed), answer.revision);
        if answer.has_succeeded { Ok(Self { to, cluster, claim }) } else { Err(MoveError::Overtaken) }
    }

    /// Puts a file of the journal as the whole log. Returns the number of its entries.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn put(&self, file: u64, bytes: &[u8]) -> Result<u64, MoveError> {
        let (mut head, mut offset) = (0, 0);
        for part in bytes.chunks(ENTRY_BYTES_MAX) {
            let value = entry_value(file, offset, part);
            // To put the same entry twice changes nothing.
            until_answered(|| {
                self.change(vec![Operation::Put { key: self.to.keys.log(head), value: value.clone() }])
            })?;
            head += 1;
            offset += part.len() as u64;
        }
        Ok(head)
    }

    /// From now on it is a cluster, which nobody leads.
    ///
    /// # Errors
    /// [`MoveError`]. After [`MoveError::Etcd`] it may be one or not.
    pub fn end(&self, head: u64) -> Result<(), MoveError> {
        let keys = &self.to.keys;
        let put = |key, value| Operation::Put { key, value };
        let change = vec![
            put(keys.cluster(), self.cluster.clone()),
            put(keys.epoch(), Member::epoch_text(None)),
            // The last entry and the head are of one revision, as standbys expect: an empty entry.
            put(keys.log(head), Bytes::new()),
            put(keys.head(), head_text(head + 1)),
        ];
        match until_answered(|| self.change(change.clone())) {
            // Perhaps by an earlier try, whose answer was lost.
            Err(MoveError::Overtaken) => {
                let then = vec![Operation::Read { key: keys.cluster(), end: None, limit: 1 }];
                let answer = self.to.etcd.transact(&Transaction { then, ..Transaction::default() })?;
                let has_ended = first(&answer, 0).is_some_and(|found| found.value == self.cluster);
                if has_ended { Ok(()) } else { Err(MoveError::Overtaken) }
            }
            answer => answer,
        }
    }

    fn change(&self, then: Vec<Operation>) -> Result<(), MoveError> {
        let conditions = vec![Compare::ModRevision { key: self.to.keys.cluster(), revision: self.claim }];
        let answer = self.to.etcd.transact(&Transaction { conditions, then, otherwise: Vec::new() })?;
        if answer.has_succeeded { Ok(()) } else { Err(MoveError::Overtaken) }
    }
}

/// How often a transaction is tried that etcd does not answer.
const TRIES: usize = 10;

/// Tries a change again that etcd does not answer, which must be harmless.
fn until_answered<T, E: Into<MoveError>>(change: impl Fn() -> Result<T, E>) -> Result<T, MoveError> {
    for _ in 1..TRIES {
        match change().map_err(Into::into) {
            Err(MoveError::Etcd(EtcdError::Unknown(_))) => {}
            answer => return answer,
        }
    }
    change().map_err(Into::into)
}

/// Whether a cluster may arrive where this is found of `cluster`, `epoch` and `head`.
fn check_free([cluster, epoch, head]: [Option<&KeyValue>; 3]) -> Result<(), MoveError> {
    let begins = |with: &str| cluster.is_some_and(|found| found.value.starts_with(with.as_bytes()));
    let is_led = epoch.is_some() || head.is_some();
    let is_free = !is_led && (cluster.is_none() || begins(LEAVING) || begins(ARRIVING));
    if is_free { Ok(()) } else { Err(MoveError::Used) }
}

/// Moves the locks of a cluster to a directory that has no journal yet. `fresh_ids`: of the export, and of the node that it
/// is until it ends. `copy`: copies the keys of a term to a journal there, which is synced when it returns. Returns what
/// `copy` returns; `None`: an earlier call has moved them.
///
/// # Errors
/// [`MoveError`]. The same call goes on.
pub fn export<T>(
    from: Prefix,
    folder: &dyn Folder,
    fresh_ids: [[u8; 20]; 2],
    pace: Pace<impl Fn(), impl Fn() -> Duration>,
    copy: impl FnOnce(&Term) -> Result<T, String>,
) -> Result<Option<T>, MoveError> {
    let Some(departure) = Departure::begin(from, folder, fresh_ids, pace)? else { return Ok(None) };
    departure.mark()?;
    let copied = copy(&departure.term).map_err(MoveError::Copy)?;
    departure.leave()?;
    departure.end()?;
    Ok(Some(copied))
}

/// A cluster whose locks are being copied to a directory. Until [`Departure::leave`] it is one that this export leads.
#[derive(Debug)]
pub struct Departure<'a> {
    /// That of the export.
    pub term: Term,
    folder: &'a dyn Folder,
    id: [u8; 20],
}

impl<'a> Departure<'a> {
    /// Takes the epoch that no node has, or whose node has been silent for the time of a takeover. `None`: the locks are in
    /// the directory.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn begin(
        from: Prefix,
        folder: &'a dyn Folder,
        [fresh_id, node_id]: [[u8; 20]; 2],
        pace: Pace<impl Fn(), impl Fn() -> Duration>,
    ) -> Result<Option<Self>, MoveError> {
        let in_use =
            || MoveError::Folder("is in use, or was: name another one, or remove its 'data'".to_owned());
        let mark = Mark::of(folder)?;
        let id = match mark {
            Mark::Exported(id) | Mark::Exporting(id) => id,
            Mark::Absent if Mark::is_alone_in(folder)? => fresh_id,
            Mark::Absent | Mark::Moved(_) => return Err(in_use()),
        };
        let Prefix { etcd, keys, agreed } = from;
        let (has_left, found) = (has_left(&*etcd, &keys, &id)?, find(&*etcd, keys, agreed));
        let has_ended = match mark {
            Mark::Exporting(_) => has_left,
            // The last call may have been killed before it said so.
            _ => has_left && found == Err(MoveError::Left),
        };
        if has_ended {
            Mark::end_export(folder)?;
            return Ok(None);
        }
        if matches!(mark, Mark::Exported(_)) {
            return Err(in_use());
        }
        let me = Member { id: item::id_text(&node_id), addresses: Vec::new() };
        let term = seize(Standby::new(found?, me, Memory::default()), &etcd, pace)?;
        Ok(Some(Self { term, folder, id }))
    }

    /// From now on no server starts on the directory. What an export has left there that was interrupted is removed.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn mark(&self) -> Result<(), MoveError> {
        Mark::Exporting(self.id).put(self.folder)?;
        Ok(Mark::clear_beside(self.folder)?)
    }

    /// The locks are on the disk of the directory. From now on there is no cluster: its keys are removed, unless another node
    /// leads.
    ///
    /// # Errors
    /// [`MoveError`]. After [`MoveError::Etcd`] it may be there or not.
    pub fn leave(&self) -> Result<(), MoveError> {
        let cluster = self.term.cluster();
        let put = |key, value| Operation::Put { key, value };
        let mut change = vec![
            put(cluster.keys.cluster(), [LEAVING.as_bytes(), cluster.text()].concat().into()),
            put(cluster.keys.exported(&item::id_text(&self.id)), Bytes::from_static(b"ended")),
        ];
        change.extend(all_but_cluster(&cluster.keys));
        match until_answered(|| self.term.change(change.clone())) {
            // Perhaps by an earlier try, whose answer was lost.
            Err(MoveError::Led(_)) if has_left(self.term.etcd(), &cluster.keys, &self.id)? => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// From now on a server starts on the directory.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn end(&self) -> Result<(), MoveError> {
        Ok(Mark::end_export(self.folder)?)
    }
}

/// Whether the export with this id has taken the locks out of etcd.
fn has_left(etcd: &dyn Etcd, keys: &Keys, id: &[u8; 20]) -> Result<bool, EtcdError> {
    let then = vec![Operation::Read { key: keys.exported(&item::id_text(id)), end: None, limit: 1 }];
    let answer = etcd.transact(&Transaction { then, ..Transaction::default() })?;
    Ok(first(&answer, 0).is_some())
}

/// Finds the cluster that is to leave.
fn find(etcd: &dyn Etcd, keys: Keys, agreed: Agreed) -> Result<Cluster, MoveError> {
    let then = vec![Operation::Read { key: keys.cluster(), end: None, limit: 1 }];
    let answer = etcd.transact(&Transaction { then, ..Transaction::default() })?;
    let text = first(&answer, 0).map(|found| found.value.clone()).ok_or(MoveError::NoCluster)?;
    if text.starts_with(LEAVING.as_bytes()) {
        return Err(MoveError::Left);
    }
    let parsed = Cluster::parse(&text)?;
    Ok(Cluster::agreed_on(keys, text, parsed, agreed)?)
}

/// Takes the epoch of a cluster that nobody leads.
fn seize(
    mut standby: Standby,
    etcd: &Arc<dyn Etcd>,
    pace: Pace<impl Fn(), impl Fn() -> Duration>,
) -> Result<Term, MoveError> {
    let mut seen = None;
    loop {
        let sight = standby.look(&**etcd, &pace.now)?;
        if sight.is_restored {
            return Err(MoveError::Restored);
        }
        let now = Some((sight.epoch, sight.head));
        if seen.is_some() && seen != now {
            let at = sight.leader.map(|leader| format!(" ({})", leader.addresses.join(", ")));
            return Err(MoveError::Led(at.unwrap_or_default()));
        }
        seen = now;
        if sight.is_due
            && let Some(term) = standby.seize(Arc::clone(etcd))?
        {
            return Ok(term);
        }
        (pace.pause)();
    }
}

/// Removes all keys but `cluster`, and those that say which exports have ended.
fn all_but_cluster(keys: &Keys) -> Vec<Operation> {
    let delete = |key, end| Operation::Delete { key, end };
    let (nodes, nodes_end) = keys.nodes();
    vec![
        delete(keys.epoch(), None),
        delete(keys.term(), None),
        delete(keys.head(), None),
        delete(keys.restored(), None),
        delete(keys.etcd(), None),
        delete(keys.log(0), Some(keys.log_end())),
        delete(nodes, Some(nodes_end)),
    ]
}
