//! The journal seam: what happened to the keyspace, as an ordered log of physical effects.
//!
//! Owns    [`Mutation`], the words of the log, and [`Journal`], who listens.
//! Rule    one command, script or transaction makes one record, numbered while its shards are still locked. Effects,
//!         never commands: applying the records in order of their numbers to an empty keyspace gives the same state.

use std::fmt::Debug;

use bytes::Bytes;

mod edit;
mod hash;
mod list;
mod set;
mod sorted_set;
mod stream;

use crate::clock::Deadline;
use crate::types::Object;

pub use edit::Edit;
pub use hash::HashEdit;
pub use list::ListEdit;
pub use set::SetEdit;
pub use sorted_set::SortedSetEdit;
pub use stream::StreamEdit;

/// One physical effect on the keyspace.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Every key of the database is gone.
    Clear {
        /// The database.
        database: u16,
    },
    /// The object under the key, which is made if the key is not there, is changed in one place.
    Edit {
        /// The database.
        database: u16,
        /// The key.
        key: Bytes,
        /// What changes.
        edit: Edit,
    },
    /// The key holds this object until this deadline, whatever it was before.
    PutObject {
        /// The database.
        database: u16,
        /// The key.
        key: Bytes,
        /// The whole object.
        object: Object,
        /// When it ends, if ever.
        deadline: Option<Deadline>,
    },
    /// The key holds this string until this deadline, whatever it was before.
    Put {
        /// The database.
        database: u16,
        /// The key.
        key: Bytes,
        /// The bytes of the string.
        value: Bytes,
        /// When it ends, if ever.
        deadline: Option<Deadline>,
    },
    /// The key is gone.
    Remove {
        /// The database.
        database: u16,
        /// The key.
        key: Bytes,
        /// Whether its deadline did it, and not a command.
        expired: bool,
    },
    /// The key ends at another moment; its value stays.
    SetDeadline {
        /// The database.
        database: u16,
        /// The key.
        key: Bytes,
        /// When it ends, if ever.
        deadline: Option<Deadline>,
    },
    /// Two databases have changed places.
    Swap {
        /// One database.
        a: u16,
        /// The other.
        b: u16,
    },
}

/// Who is told of every record. Called with the shards of the record locked: append and return.
pub trait Journal: Debug + Send + Sync {
    /// Record `number` holds `mutations`, in order. Numbers rise by one, but need not arrive in order: records of
    /// different shards may overtake each other on their way here.
    fn append(&self, number: u64, mutations: &[Mutation]);
}
