//! A cluster that begins with the journal of one server, and one that becomes the journal of one server.
//!
//! Owns    the text of `cluster` while the locks are on their way into etcd, and once they have left it.
//! Rule    the locks are in one place at a time. While `cluster` begins with `arriving` or `leaving` no node joins, and
//!         none puts an epoch. It begins with the one until the last entry of the log is there; with the other from before
//!         the journal of the server can be used.

use std::sync::Arc;

use bytes::Bytes;

use super::cluster::{ARRIVING, Agreed, Cluster, JoinError, Keys, LEAVING, Member};
use super::etcd::{Compare, Etcd, EtcdError, KeyValue, Operation, Transaction};
use super::standby::{first, head_text};
use super::term::{ENTRY_BYTES_MAX, Term, TermError, entry_value};
use crate::journal::item;

/// Why locks are not moved.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MoveError {
    #[error("there is a cluster under this prefix")]
    Used,
    #[error("there is no cluster under this prefix")]
    NoCluster,
    /// The locks are here still, and perhaps in a journal, too.
    #[error("an export from here has not ended: run it again")]
    Unfinished,
    #[error("somebody else moves locks to this prefix")]
    Overtaken,
    /// What is there is not a cluster with these settings.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// etcd has not answered, or has refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

/// A cluster whose log is being put into etcd. Until [`Arrival::end`] it is none: what an arrival has left that was
/// interrupted, the next one removes.
#[derive(Debug)]
pub struct Arrival {
    etcd: Arc<dyn Etcd>,
    keys: Keys,
    cluster: Bytes,
    /// The text of `cluster` that is that of this arrival alone.
    claim: Bytes,
}

impl Arrival {
    /// Takes a prefix that no cluster has.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn begin(etcd: Arc<dyn Etcd>, keys: Keys, agreed: &Agreed, id: [u8; 20]) -> Result<Self, MoveError> {
        let all = [keys.cluster(), keys.epoch(), keys.head()];
        let read = |key| Operation::Read { key, end: None, limit: 1 };
        let then = all.clone().map(read).to_vec();
        let answer = etcd.transact(&Transaction { then, ..Transaction::default() })?;
        let found = std::array::from_fn(|read| first(&answer, read));
        check_free(found)?;
        let revision = |found: Option<&KeyValue>| found.map_or(0, |found| found.mod_revision);
        let unchanged = |(key, found)| Compare::ModRevision { key, revision: revision(found) };
        let claim = Bytes::from(format!("{ARRIVING}{}", item::id_text(&id)));
        let mut change = vec![Operation::Put { key: keys.cluster(), value: claim.clone() }];
        change.extend(all_but_cluster(&keys));
        let answer = etcd.transact(&Transaction {
            conditions: all.into_iter().zip(found).map(unchanged).collect(),
            then: change,
            otherwise: Vec::new(),
        })?;
        let cluster = Cluster::text_of(id, agreed);
        if answer.has_succeeded { Ok(Self { etcd, keys, cluster, claim }) } else { Err(MoveError::Overtaken) }
    }

    /// Puts a file of the journal as the whole log. Returns the number of its entries.
    ///
    /// # Errors
    /// [`MoveError`]
    pub fn put(&self, file: u64, bytes: &[u8]) -> Result<u64, MoveError> {
        let (mut head, mut offset) = (0, 0);
        for part in bytes.chunks(ENTRY_BYTES_MAX) {
            let value = entry_value(file, offset, part);
            self.put_surely(Operation::Put { key: self.keys.log(head), value })?;
            head += 1;
            offset += part.len() as u64;
        }
        Ok(head)
    }

    /// Tries again where there is no answer: to put the same entry twice changes nothing.
    fn put_surely(&self, entry: Operation) -> Result<(), MoveError> {
        for _ in 1..TRIES {
            match self.change(vec![entry.clone()]) {
                Err(MoveError::Etcd(EtcdError::Unknown(_))) => {}
                answer => return answer,
            }
        }
        self.change(vec![entry])
    }

    /// From now on it is a cluster, which nobody leads.
    ///
    /// # Errors
    /// [`MoveError`]. After [`MoveError::Etcd`] it may be one or not.
    pub fn end(&self, head: u64) -> Result<(), MoveError> {
        let put = |key, value| Operation::Put { key, value };
        self.change(vec![
            put(self.keys.cluster(), self.cluster.clone()),
            put(self.keys.epoch(), Member::epoch_text(None)),
            // The last entry and the head are of one revision, as standbys expect: an empty entry.
            put(self.keys.log(head), Bytes::new()),
            put(self.keys.head(), head_text(head + 1)),
        ])
    }

    fn change(&self, then: Vec<Operation>) -> Result<(), MoveError> {
        let conditions = vec![Compare::Value { key: self.keys.cluster(), value: self.claim.clone() }];
        let answer = self.etcd.transact(&Transaction { conditions, then, otherwise: Vec::new() })?;
        if answer.has_succeeded { Ok(()) } else { Err(MoveError::Overtaken) }
    }
}

/// How often an entry is put that etcd does not answer.
const TRIES: usize = 10;

/// Whether a cluster may arrive where this is found of `cluster`, `epoch` and `head`.
fn check_free([cluster, epoch, head]: [Option<&KeyValue>; 3]) -> Result<(), MoveError> {
    let begins = |with: &str| cluster.is_some_and(|found| found.value.starts_with(with.as_bytes()));
    let is_led = epoch.is_some() || head.is_some();
    match cluster {
        _ if begins(LEAVING) && is_led => Err(MoveError::Unfinished),
        None if !is_led => Ok(()),
        Some(_) if begins(LEAVING) || begins(ARRIVING) => Ok(()),
        _ => Err(MoveError::Used),
    }
}

/// Finds the cluster that is to leave, or has begun to. The node that takes its epoch goes on with [`leave`].
///
/// # Errors
/// [`MoveError`]
pub fn find(etcd: &dyn Etcd, keys: Keys, agreed: Agreed) -> Result<Cluster, MoveError> {
    let read = |key| Operation::Read { key, end: None, limit: 1 };
    let then = [keys.cluster(), keys.epoch()].map(read).to_vec();
    let answer = etcd.transact(&Transaction { then, ..Transaction::default() })?;
    let text = first(&answer, 0).map(|found| found.value.clone()).ok_or(MoveError::NoCluster)?;
    let parsed = match text.strip_prefix(LEAVING.as_bytes()) {
        Some(_) if first(&answer, 1).is_none() => return Err(MoveError::NoCluster),
        Some(text) => Cluster::parse(text)?,
        None => Cluster::parse(&text)?,
    };
    Ok(Cluster::agreed_on(keys, text, parsed, agreed)?)
}

/// From now on no node joins the cluster, and none but this one leads.
///
/// # Errors
/// [`TermError`]
pub fn leave(term: &Term) -> Result<(), TermError> {
    let cluster = term.cluster();
    let text = cluster.text();
    if text.starts_with(LEAVING.as_bytes()) {
        return Ok(());
    }
    let value = [LEAVING.as_bytes(), text].concat().into();
    term.change(vec![Operation::Put { key: cluster.keys.cluster(), value }]).map(drop)
}

/// The locks are in the journal of a server: removes them here.
///
/// # Errors
/// [`TermError`]
pub fn forget(term: &Term) -> Result<(), TermError> {
    term.change(all_but_cluster(&term.cluster().keys)).map(drop)
}

/// Removes all keys but `cluster`.
fn all_but_cluster(keys: &Keys) -> Vec<Operation> {
    let delete = |key, end| Operation::Delete { key, end };
    let (nodes, nodes_end) = keys.nodes();
    vec![
        delete(keys.epoch(), None),
        delete(keys.head(), None),
        delete(keys.restored(), None),
        delete(keys.etcd(), None),
        delete(keys.log(0), Some(keys.log_end())),
        delete(nodes, Some(nodes_end)),
    ]
}
