//! The journal: the effects on the keyspace as an ordered log.
//!
//! Owns    [`Mutation`], the entries of the log, [`Mutations`], those of a record, and [`Journal`], the trait of its
//!         receivers; [`log::Log`], the receiver that keeps them in files, and how these are read again.
//! Rule    one command, script or transaction makes one record, appended while its shards are still locked. Effects,
//!         never commands: applying the records in their order to an empty keyspace rebuilds the state.

use std::fmt::Debug;

use bytes::Bytes;

pub mod codec;
mod edit;
pub mod frame;
pub mod item;
pub mod log;
pub mod recovery;

use crate::state::wait::Place;
use crate::types::lock::{Grant, GrantDetails};
use crate::types::{Object, Seed};
use redlatch_proto::clock::{Deadline, LockTime};

pub use edit::{Edit, HashEdit, ListEdit, LockEdit, SetEdit, SortedSetEdit, StreamEdit};

/// One physical effect on the keyspace. `B` is what holds its bytes: a slice while it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation<B = Bytes> {
    /// Every key of the database is removed.
    Clear {
        /// The database.
        database: u16,
    },
    /// The object under the key is changed in one place. It is created if the key does not exist.
    Edit {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// What changes.
        edit: Edit<B>,
    },
    /// The key, which exists, is a lock from now on. Its value and deadline stay. A lock of the type lock has no such
    /// entry: its edits say who holds it.
    Grant {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// Who holds it, and since when.
        grant: Grant,
        /// Its session, and what its owner says about itself.
        details: GrantDetails,
    },
    /// A call of this owner waits for the lock of the key at this place: what is recorded in a cluster, so that the call
    /// goes on waiting there under the next leader. No key changes.
    Place {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// The owner that it will take the lock for.
        owner: B,
        /// Its place; `None`: it waits no longer.
        place: Option<Place>,
    },
    /// The key has this object and deadline; any previous value is replaced.
    PutObject {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// The whole object.
        object: Object,
        /// Its deadline, if it has one.
        deadline: Option<Deadline>,
    },
    /// The key has this string and deadline; any previous value is replaced.
    Put {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// The bytes of the string.
        value: B,
        /// Its deadline, if it has one.
        deadline: Option<Deadline>,
    },
    /// The key is removed.
    Remove {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// Whether it has expired; false if a command has removed it.
        expired: bool,
    },
    /// The key has this deadline; its value stays.
    SetDeadline {
        /// The database.
        database: u16,
        /// The key.
        key: B,
        /// Its deadline, if it has one.
        deadline: Option<Deadline>,
    },
    /// Two databases are swapped.
    Swap {
        /// One database.
        a: u16,
        /// The other.
        b: u16,
    },
}

impl<B> Mutation<B> {
    /// The fencing token that it gives out; zero: none.
    fn token(&self) -> u64 {
        match self {
            Self::Grant { grant, .. } => grant.token,
            Self::Edit { edit: Edit::Lock(LockEdit::Put(_, _, holder)), .. } => holder.token,
            _ => 0,
        }
    }

    /// The highest database that it changes.
    pub fn database(&self) -> u16 {
        match self {
            Self::Clear { database }
            | Self::Edit { database, .. }
            | Self::Grant { database, .. }
            | Self::Place { database, .. }
            | Self::PutObject { database, .. }
            | Self::Put { database, .. }
            | Self::Remove { database, .. }
            | Self::SetDeadline { database, .. } => *database,
            Self::Swap { a, b } => *a.max(b),
        }
    }
}

/// Mutations in their order, in the form that they have on disk.
#[derive(Clone, Debug, Default)]
pub struct Mutations {
    bytes: Vec<u8>,
    count: u64,
    /// The highest fencing token that they give out; zero: none.
    token: u64,
    /// Whether one of them gives a key a value, a grant or a deadline, or concerns a whole database.
    is_more_than_removals: bool,
}

impl Mutations {
    /// Appends a mutation.
    #[inline]
    pub fn push(&mut self, mutation: &Mutation<impl AsRef<[u8]>>) {
        codec::encode(mutation, &mut self.bytes);
        self.count += 1;
        self.token = self.token.max(mutation.token());
        self.is_more_than_removals |= !matches!(mutation, Mutation::Remove { .. } | Mutation::Edit { .. });
    }

    /// Removes all, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.count, self.token, self.is_more_than_removals) = (0, 0, false);
    }

    /// Bytes of memory.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Bytes of their form on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Decodes them.
    pub fn to_vec(&self) -> Vec<Mutation> {
        let mut bytes = Bytes::copy_from_slice(&self.bytes);
        // What is seen of an object does not depend on the seed.
        let mut next = |_| codec::decode(&mut bytes, Seed::of(0)).expect("what was encoded can be decoded");
        (0..self.count).map(&mut next).collect()
    }
}

impl<'a, B: AsRef<[u8]> + 'a> FromIterator<&'a Mutation<B>> for Mutations {
    fn from_iter<I: IntoIterator<Item = &'a Mutation<B>>>(mutations: I) -> Self {
        let mut all = Self::default();
        mutations.into_iter().for_each(|mutation| all.push(mutation));
        all
    }
}

/// What one command, script or transaction has changed.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The instant at which it was decided.
    pub now: LockTime,
    /// The latest moment at which a key that it changes ends, by its state before the record or after it. The beginning of
    /// time for a key that does not exist; the end of time for a key without a deadline, a counter, and a whole database.
    pub lasts_until: LockTime,
    /// The same by the state after the record alone.
    pub ends_at: LockTime,
    /// The effects, in order.
    pub mutations: &'a Mutations,
}

/// When a reply leaves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Nothing but the horizon is kept.
    Memory,
    /// When its record is written. The disk is synced once a second.
    EverySecond,
    /// When its record is on the disk.
    Always,
}

/// A receiver of records. Called with the shards of the record locked, so it appends and returns.
pub trait Journal: Debug + Send + Sync {
    /// Appends a record. Of two records that share a shard, the earlier one comes first.
    fn append(&self, record: &Record<'_>);

    /// Whether it receives the places of calls that wait for locks: [`Mutation::Place`].
    fn keeps_places(&self) -> bool {
        false
    }
}
