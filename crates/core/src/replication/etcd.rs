//! What a node asks of etcd: transactions over keys.
//!
//! Owns    [`Etcd`], the trait of its two implementations: the client of the server, and the model of the simulation.
//! Source  etcd's API, version 3: Txn. A transaction of reads alone is linearizable, too.

use std::fmt::Debug;

use bytes::Bytes;

/// A condition of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Compare {
    /// The key was last changed at this revision; 0: there is no such key.
    ModRevision {
        key: Bytes,
        /// The revision of the store.
        revision: i64,
    },
    /// The key has this value.
    Value { key: Bytes, value: Bytes },
}

/// One operation of a transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Operation {
    /// The key has this value.
    Put { key: Bytes, value: Bytes },
    /// Removes the keys from `key` up to `end`, without it.
    Delete {
        /// The first key.
        key: Bytes,
        /// Behind the last key; `None`: one key.
        end: Option<Bytes>,
    },
    /// Reads the keys from `key` up to `end`, without it, in their order.
    Read {
        /// The first key.
        key: Bytes,
        /// Behind the last key; `None`: one key.
        end: Option<Bytes>,
        /// How many keys are read at most; 0: all.
        limit: u32,
    },
}

/// Operations that happen together: `then` if all conditions hold, else `otherwise`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Transaction {
    /// All must hold; none: they do.
    pub conditions: Vec<Compare>,
    /// What happens if they hold.
    pub then: Vec<Operation>,
    /// What happens if one does not.
    pub otherwise: Vec<Operation>,
}

/// A key that was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyValue {
    pub key: Bytes,
    pub value: Bytes,
    /// The revision of the store at which it was last changed.
    pub mod_revision: i64,
}

/// The answer to a transaction.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// The id of the etcd that has answered: another one after a restore under another name; 0: unknown.
    pub etcd: u64,
    /// The revision of the store after it.
    pub revision: i64,
    pub has_succeeded: bool,
    /// What each [`Operation::Read`] has found, in their order.
    pub reads: Vec<Vec<KeyValue>>,
}

/// Why a transaction has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EtcdError {
    /// Nobody knows whether it has happened, or will: a time-out, a lost connection, no leader.
    #[error("etcd does not answer: {0}")]
    Unknown(String),
    /// It has not happened, and will not: wrong credentials, no space left, a value too large.
    #[error("etcd refuses: {0}")]
    Refused(String),
}

/// A store of keys with transactions. Calls block until there is an answer or a time-out.
pub trait Etcd: Debug + Send + Sync {
    /// Carries out a transaction.
    ///
    /// # Errors
    /// [`EtcdError`]
    fn transact(&self, transaction: &Transaction) -> Result<Answer, EtcdError>;

    /// Carries out a transaction that writes a part of a log, perhaps in one call with those of other logs: each has its own
    /// conditions and its own answer.
    ///
    /// # Errors
    /// [`EtcdError`]
    fn commit(&self, transaction: Transaction) -> Result<Answer, EtcdError> {
        self.transact(&transaction)
    }

    /// Forgets what keys were before that revision of the store. Nobody reads it.
    ///
    /// # Errors
    /// [`EtcdError`]. A revision that is forgotten already is no error.
    fn compact(&self, revision: i64) -> Result<(), EtcdError>;
}
