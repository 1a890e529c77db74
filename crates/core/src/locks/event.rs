//! What happens to a lock: it is granted, its lease is renewed, it ends.
//!
//! Owns    [`LockEvent`], and the reasons for which a lock ends.
//! Rule    an event is made by the function that changes the grant, and by nothing else; `keyspace::locks::life` has all of
//!         them. What becomes of a request is a [`RequestEvent`](super::RequestEvent).

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::Deadline;
pub use redlatch_proto::lock::EndReason;

use crate::state::clients::ClientId;
use crate::types::lock::LockKind;

/// Who has broken a lock, and why. It is kept, because the connection that sends LOCK.BREAK often ends with it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Breaker {
    /// The user that sent LOCK.BREAK, or the HTTP request.
    pub user: Bytes,
    /// Where it connected from; empty: in process.
    pub peer: Box<str>,
    /// The REASON.
    pub text: Option<Bytes>,
}

impl Breaker {
    /// Bytes of memory, with its counts of references.
    pub(crate) fn held_bytes(&self) -> usize {
        let text = self.text.as_ref().map_or(0, Bytes::len);
        2 * size_of::<usize>() + size_of::<Self>() + self.user.len() + self.peer.len() + text
    }
}

/// Something that has happened to a lock, or to one holder of it.
#[derive(Clone, Debug)]
pub struct LockEvent {
    /// What has happened.
    pub change: LockChange,
    /// The database of its key.
    pub database: u16,
    /// Its key.
    pub key: Bytes,
    /// The name under which it is held; `None`: the value does not say.
    pub owner: Option<Bytes>,
    /// How it is shared.
    pub kind: LockKind,
    /// The fencing token.
    pub token: u64,
    /// The token of the first lock that the same request has taken: locks that are taken at once have no order. 0: it was
    /// taken because it was free, of several that the request has named.
    pub with: u64,
    /// The client that holds it, or held it; 0: not known.
    pub client: ClientId,
    /// Whether a LOCK command has granted it.
    pub is_native: bool,
    /// The number of the session that it belongs to.
    pub session: Option<u64>,
    /// The lease as it was last set, in milliseconds; `None`: it has none.
    pub lease_ms: Option<u64>,
    /// The client whose call has caused the event; 0: none, as when a lease ends.
    pub author: ClientId,
    /// Whether the call was part of a transaction or script.
    pub is_nested: bool,
}

/// What has happened to a lock.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LockChange {
    /// It has a new holder.
    Granted,
    /// Its holder has a new lease, or another connection.
    Renewed(Before),
    /// Its holder does not hold it any more. A lock that was broken has a breaker.
    Ended(EndReason, Option<Arc<Breaker>>),
}

/// What was known of a holder before its lease was renewed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Before {
    /// Its client; 0: not known.
    pub client: ClientId,
    /// Its lease, in milliseconds.
    pub lease_ms: Option<u64>,
    /// The end of its lease.
    pub deadline: Option<Deadline>,
    /// The number of the session that it belonged to.
    pub session: Option<u64>,
}
