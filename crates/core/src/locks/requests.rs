//! What a request for a lock comes to.
//!
//! Owns    [`RequestOutcome`], the one word for it, and [`RequestEvent`], which observers see.
//! Rule    a request has one outcome. One that waits has [`RequestOutcome::Waits`], and another at the end of its wait.
//! Rule    an error of rights, memory, type or slots is no outcome, unless it ends a wait.
//! Rule    what changes a lock is a [`LockEvent`](super::LockEvent) besides.

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::event::EndReason;
use crate::state::clients::ClientId;
use crate::state::wait::Place;

/// What a request to take, extend, release or transfer a lock has come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestOutcome {
    /// It waited, and its connection has ended.
    Abandoned,
    /// It has got the lock.
    Granted {
        /// Whether its owner held the lock already.
        again: bool,
    },
    /// It was to extend, release or transfer a lock that its owner does not hold.
    NotHeld(HolderRequest),
    /// It has not got the lock.
    Refused(RefusedBy),
    /// It waited, and its time is over.
    TimedOut,
    /// It waited, and CLIENT UNBLOCK or a move of its slot has ended the wait.
    Unblocked,
    /// It waits for the lock.
    Waits,
}

impl RequestOutcome {
    /// The request has got a lock that its owner did not hold.
    pub(crate) const GRANTED: Self = Self::Granted { again: false };
}

/// Why a request has not got its lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RefusedBy {
    /// The lock is free, and other requests wait for it.
    Awaited,
    /// Its wait has closed a circle of requests that wait for each other.
    Deadlock,
    /// Its wait has ended with an error: the session has ended, or the key is no lock any more.
    Error,
    /// The key exists: another owner holds the lock.
    Held,
    /// It was to wait, and `lock-waiters-max` requests wait already.
    QueueFull,
}

/// What a holder asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HolderRequest {
    /// A new lease.
    Extend,
    /// The end of its hold.
    Release,
    /// The end of its hold, and a new one of another owner.
    Transfer,
}

/// A request for a lock, and what it has come to.
#[derive(Clone, Debug)]
pub struct RequestEvent {
    /// What it has come to.
    pub outcome: RequestOutcome,
    /// The database of its keys.
    pub database: u16,
    /// The keys of its locks. The first is the one that the outcome is about: where it was refused, the key in the way.
    pub keys: Box<[Bytes]>,
    /// The name under which the client has asked, if it has said one.
    pub owner: Option<Bytes>,
    /// The client that has asked.
    pub client: ClientId,
    /// Whether it asked in a transaction or script.
    pub is_nested: bool,
    /// The wait that begins or ends, if there is one.
    pub wait: Option<RequestWait>,
    /// Whether the client has polled the lock for so long that the log says it: from this refusal on, or until this grant.
    pub is_long_poll: bool,
    /// How the lock that a late request is about was lost.
    pub late: Option<LateRequest>,
}

/// The wait of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestWait {
    /// Its place in the queues, with the number of the wait.
    pub place: Place,
    /// PRIORITY of the request, 0 to 9.
    pub priority: u8,
    /// Since when it waits.
    pub since: LockTime,
    /// Whether the log says that it waits for long.
    pub is_reported: bool,
    /// Whether its beginning was shown to those who make spans.
    pub is_traced: bool,
}

/// The first request of a holder that has lost its lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LateRequest {
    /// Why the lock has ended.
    pub reason: EndReason,
    /// How often its lease was renewed.
    pub renewals: u32,
}

impl RequestEvent {
    /// The key that the outcome is about.
    pub fn key(&self) -> &[u8] {
        self.keys.first().map_or(&[], |key| key)
    }
}
