//! One connection's own state: what its next command may assume.
//!
//! Owns    the selected database, authentication, reply mode; the shared [`Client`] shows the rest to others.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::claim::Claim;
use super::clients::Client;
use super::transaction::{Transaction, Watching};
use crate::clock::LockTime;
use crate::resp::Protocol;

/// What a connection carries from one request to the next.
#[derive(Debug)]
pub struct Session {
    /// The client as others see it.
    pub client: Arc<Client>,
    /// The selected database.
    pub database: u16,
    /// The protocol of its replies.
    pub protocol: Protocol,
    /// Whether CLIENT REPLY lets answers through.
    pub replies: Replies,
    /// Whether it has shown the password, or none is asked for.
    pub authenticated: bool,
    /// A call of its own that waits for a moment or an event.
    pub parked: Option<Parked>,
    /// Whether what takes long may hold the thread that carries out its requests.
    pub may_be_held: bool,
    /// The requests since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// The keys it watches, for its next EXEC.
    pub watching: Option<Box<Watching>>,
    /// Channels it is subscribed to.
    pub channels: BTreeSet<bytes::Bytes>,
    /// Patterns it is subscribed to.
    pub patterns: BTreeSet<bytes::Bytes>,
    /// The row that answered last: most clients repeat themselves.
    pub last_row: u16,
    /// Room for the replies that a script sees, kept from one script to the next.
    pub scratch: Vec<u8>,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Replies {
    /// Every request is answered.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    SkipNext,
    /// The one being carried out is not.
    Skip,
}

/// A call that waits.
#[derive(Clone, Debug)]
pub struct Parked {
    /// When it gives up; `None`: never.
    pub until: Option<LockTime>,
    /// What it answers then, ready for the wire.
    pub answer: Vec<u8>,
    /// Who may end its wait.
    pub claim: Arc<Claim>,
    /// The database of the keys it waits for.
    pub database: u16,
    /// The keys it waits for, if it waits for any.
    pub keys: Vec<Bytes>,
}

impl Session {
    /// A session at its start; `authenticated` when no password is asked for.
    pub fn new(client: Arc<Client>, authenticated: bool) -> Self {
        Self {
            client,
            database: 0,
            protocol: Protocol::Resp2,
            replies: Replies::On,
            authenticated,
            parked: None,
            may_be_held: true,
            transaction: None,
            watching: None,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            last_row: u16::MAX,
            scratch: Vec::new(),
        }
    }

    /// Whether it may say little more than SUBSCRIBE: RESP2 cannot tell a push from a reply.
    #[inline]
    pub fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscriptions() > 0
    }

    /// Channels and patterns together.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }
}
