//! The rules by which a lock is granted.
//!
//! Owns    [`LockRequest`], and how what a key holds stands to a request.
//! Rule    a request is not granted before one that waits at a place before it. So a reader does not join other readers while
//!         a writer waits, and a small request does not overtake a large one.
//! Rule    a request of an owner that holds the lock already is the same grant again, except of a reentrant lock.

use std::borrow::Cow;

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, Now};
use redlatch_proto::error::Refusal;

use super::requests::RefusedBy;
use crate::state::clients::ClientId;
use crate::types::Lock;
use crate::types::lock::LockKind;

/// A request for one lock, or for several.
#[derive(Clone, Debug)]
pub struct LockRequest {
    /// How it asks for the lock, or for each lock of which `several` says nothing else.
    pub mode: Mode,
    /// Who asks.
    pub owner: Bytes,
    /// How long the grant lasts.
    pub term: Term,
    /// What the owner says about itself, as fields and values in turn.
    pub meta: Box<[Bytes]>,
    /// The client that asks.
    pub client: ClientId,
    /// How much it may be served before others that came earlier.
    pub priority: Priority,
    /// ANY and MODE of a request for several locks; `None`: it has neither.
    pub several: Option<Box<Several>>,
}

impl LockRequest {
    /// How it asks for the lock of its key at this place.
    pub fn mode_at(&self, at: usize) -> Mode {
        let modes = self.several.as_ref().map(|several| &several.modes);
        modes.and_then(|modes| modes.get(at)).copied().unwrap_or(self.mode)
    }

    /// How it asks for the lock of one of its keys, which are `keys`.
    pub fn mode_of(&self, keys: &[Bytes], key: &[u8]) -> Mode {
        let has_modes = self.several.as_ref().is_some_and(|several| !several.modes.is_empty());
        let at = keys.iter().take_while(|_| has_modes).position(|other| other == key);
        self.mode_at(at.unwrap_or(0))
    }

    /// How many of its locks it asks for, each with its own token; `None`: all of them, with one token.
    pub fn any(&self) -> Option<usize> {
        self.several.as_ref().and_then(|several| several.any)
    }
}

/// How a request asks for a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mode {
    /// The kind of the lock.
    pub kind: LockKind,
    /// How many permits it asks for; 1 for other kinds.
    pub permits: u32,
}

impl Mode {
    /// An exclusive lock.
    pub const EXCLUSIVE: Self = Self { kind: LockKind::Exclusive, permits: 1 };
}

/// PRIORITY of a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Priority {
    /// From 0, the default, to 9.
    pub level: u8,
    /// How many milliseconds its place is before that of a request which comes at the same time without a priority.
    pub gain_ms: u64,
}

/// What a request for several locks says beside their keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Several {
    /// How many of the locks it asks for, from 1 to their number; `None`: all of them.
    pub any: Option<usize>,
    /// How it asks for each lock, in the order of the keys. Empty: all are exclusive.
    pub modes: Box<[Mode]>,
}

/// How long a grant lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Term {
    /// So many milliseconds, unless it is extended.
    Lease(u64),
    /// As long as the connection of a session, and then so many milliseconds.
    Session {
        /// The number of the session.
        id: u64,
        /// How long it outlives the connection.
        delay_ms: u64,
    },
}

impl Term {
    /// The milliseconds of the lease, if there is one.
    pub fn lease_ms(self) -> Option<u64> {
        if let Self::Lease(millis) = self { Some(millis) } else { None }
    }

    /// The session and its delay, if there is one.
    pub fn session(self) -> Option<(u64, u64)> {
        if let Self::Session { id, delay_ms } = self { Some((id, delay_ms)) } else { None }
    }

    /// The end of a lease that begins now.
    pub fn deadline(self, now: Now) -> Option<Deadline> {
        let millis = i64::try_from(self.lease_ms()?).unwrap_or(i64::MAX);
        Some(now.deadline_in(millis))
    }
}

/// A lock that was granted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Granted {
    /// The fencing token.
    pub token: u64,
    /// False if the owner held the lock already, with this token.
    pub is_new: bool,
}

/// The locks that a request for several was granted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Grants {
    /// All of them, with one token.
    All(Granted),
    /// As many as ANY asks for. Those that the owner held already come first, then each in the order of the request.
    Some(Box<[(Bytes, Granted)]>),
}

impl Grants {
    /// The keys of the locks, of all that the request names.
    pub fn keys<'k>(&self, all: &'k [Bytes]) -> Cow<'k, [Bytes]> {
        match self {
            Self::All(_) => Cow::Borrowed(all),
            Self::Some(some) => some.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// The place of the first lock that the owner did not hold already; `None`: it held all of them.
    pub fn first_new(&self) -> Option<usize> {
        match self {
            Self::All(granted) => granted.is_new.then_some(0),
            Self::Some(some) => some.iter().position(|(_, granted)| granted.is_new),
        }
    }
}

/// What a request for locks comes to at once: for one lock, or with [`Grants`] for several.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Attempt<G = Granted> {
    /// It has its locks.
    Granted(G),
    /// It has none.
    Refused {
        /// The place of the first lock that it cannot have, among its keys.
        at: usize,
        /// Why it cannot have that one.
        by: RefusedBy,
    },
}

impl<G> Attempt<G> {
    /// What a request comes to that waits for the end of a quarantine.
    pub(crate) const WAITS: Self = Self::Refused { at: 0, by: RefusedBy::Held };
}

/// What a key holds, as far as it may be a lock.
#[derive(Clone, Copy, Debug)]
pub enum Found<'k> {
    /// A value that is the lock of an unchanged client, as a hash of Redisson is.
    Foreign,
    /// It does not exist.
    Nothing,
    /// A value that is no lock.
    Other,
    /// A value of the type lock.
    Record(&'k Lock),
    /// A string, which counts as an exclusive lock of the owner of this name.
    String {
        /// The string.
        owner: &'k [u8],
        /// The fencing token; `None`: it was not stored as a lock.
        token: Option<u64>,
    },
}

/// How a lock stands to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// Others hold it.
    Held,
    /// The owner holds it, with this token; without one, if another command has set the string.
    Mine(Option<u64>),
    /// It can be granted, if no earlier request waits for it.
    Open,
}

impl Standing {
    /// How what a key holds stands to a request.
    ///
    /// # Errors
    /// The key holds something that is no lock, or the owner holds the lock in another way.
    #[inline]
    pub fn of(found: Found<'_>, owner: &[u8], mode: Mode) -> Result<Self, Refusal> {
        match found {
            Found::Foreign => Ok(Self::Held),
            Found::Nothing => Ok(Self::Open),
            Found::Other => Err(Refusal::WrongType),
            Found::Record(lock) => of_record(lock, owner, mode),
            Found::String { owner: held_by, .. } if held_by != owner => Ok(Self::Held),
            Found::String { .. } if mode.kind != LockKind::Exclusive => {
                Err(held_otherwise(LockKind::Exclusive))
            }
            // A string that another command has set counts as a lock of this owner, too.
            Found::String { token, .. } => Ok(Self::Mine(token)),
        }
    }
}

fn of_record(lock: &Lock, owner: &[u8], mode: Mode) -> Result<Standing, Refusal> {
    if let Some(holder) = lock.holder(owner) {
        let is_alike =
            lock.kind() == mode.kind && (mode.kind == LockKind::Reentrant || holder.permits == mode.permits);
        return match is_alike {
            true => Ok(Standing::Mine(Some(holder.token))),
            false => Err(held_otherwise(lock.kind())),
        };
    }
    match (lock.kind(), mode.kind) {
        (LockKind::Shared, LockKind::Shared) => Ok(Standing::Open),
        (LockKind::Permits(limit), LockKind::Permits(asked)) if limit != asked => {
            Err(Refusal::said(format!("ERR the lock has {limit} permits, not {asked}")))
        }
        (LockKind::Permits(limit), LockKind::Permits(_)) => {
            let wanted = lock.permits().saturating_add(u64::from(mode.permits));
            Ok(if wanted <= u64::from(limit) { Standing::Open } else { Standing::Held })
        }
        _ => Ok(Standing::Held),
    }
}

fn held_otherwise(kind: LockKind) -> Refusal {
    Refusal::said(format!("ERR the owner holds this lock in another way: {}", kind.name()))
}
