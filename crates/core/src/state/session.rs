//! The state of one connection that only its own commands use.
//!
//! Owns    the selected database, authentication, reply mode, transaction. What other connections may see, and change, is
//!         in the shared [`Client`].

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Protocol;

use super::acl::Account;
use super::clients::Client;
use super::lock_sessions::LockSession;
use super::login_delays::LoginTurn;
use super::metrics::{CALLS_PER_SAMPLE, Tally};
use super::tracking::Reads;
use super::transaction::{Transaction, Watching};
use super::wait::{Claim, Place, Wait, WaitFor};

/// The state of one connection, from one request to the next.
#[derive(Debug)]
pub struct Session {
    /// What other connections see of this one.
    pub client: Arc<Client>,
    pub database: u16,
    /// The protocol version of its replies.
    pub protocol: Protocol,
    /// CLIENT REPLY.
    pub replies: Replies,
    /// The user it is authenticated as.
    pub account: Arc<Account>,
    /// Whether it has authenticated, or need not.
    pub authenticated: bool,
    /// Its logins, where wrong passwords delay them.
    pub login_turn: LoginTurn,
    /// Its command that waits, for a key or for its timeout.
    pub parked: Option<Arc<Wait>>,
    /// Whether its requests run on a thread that may block: the script thread, or the caller of an embedded engine.
    pub may_block: bool,
    /// Approximate time used since the batch of requests began, in nanoseconds. Short commands are not counted.
    pub used_nanos: u64,
    /// The requests since MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// The keys watched for its next EXEC.
    pub watching: Option<Box<Watching>>,
    /// Whether the current command is part of EXEC or of a script. Such a command must not wait.
    pub is_nested: bool,
    /// True if the script that is run again locks every shard: it has asked for keys that it does not declare.
    pub locks_all: bool,
    /// True if the script that is run again has already been shown to monitors.
    pub is_shown: bool,
    /// Whether more memory is in use than `maxmemory` allows, as of the current request.
    pub is_short_of_memory: bool,
    /// In cluster mode, the slot of the script or EXEC that runs, once it has used a key.
    pub slot: Option<u16>,
    /// ASKING.
    pub asking: Asking,
    /// READONLY: whether it reads from the replicas of a cluster.
    pub reads_replicas: bool,
    /// Whether the slot of the current request is moving: its keys are looked at again when they are locked.
    pub is_half_way: bool,
    /// CLIENT TRACKING: which of its reads are tracked.
    pub reads: Reads,
    /// Index of its last command in the table: most clients repeat one command.
    pub last_row: u16,
    /// The session of its locks, if it has begun one.
    pub lock_session: Option<Arc<LockSession>>,
    /// The span of the connection; disabled if nobody wants it.
    pub span: tracing::Span,
    /// A buffer for the replies that a script reads, kept from one script to the next.
    pub scratch: Vec<u8>,
    /// Commands called by its scripts since the batch began, not yet counted.
    pub called: Tally,
    /// Calls until the next one that is timed as a sample; see [`CALLS_PER_SAMPLE`].
    calls_until_sample: u8,
}

/// CLIENT REPLY.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Replies {
    #[default]
    On,
    /// No request is answered.
    Off,
    /// The next request is not answered.
    SkipNext,
    /// The current request is not answered.
    Skip,
}

/// ASKING: whether a request is served by the node to which its slot is moving. It holds for the next request, or for all of
/// the next transaction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Asking {
    #[default]
    No,
    /// The next request asks.
    Next,
    /// The current request asks.
    Now,
}

impl Asking {
    /// A request begins.
    #[must_use]
    pub fn begin(self, is_in_transaction: bool) -> Self {
        match self {
            Self::Next => Self::Now,
            Self::Now if is_in_transaction => Self::Now,
            Self::Now | Self::No => Self::No,
        }
    }

    /// Whether the current request asks.
    pub(crate) fn is_now(self) -> bool {
        self == Self::Now
    }

    /// The current request is repeated later.
    #[must_use]
    pub fn again(self) -> Self {
        if self == Self::Now { Self::Next } else { self }
    }
}

impl Session {
    /// The session of a new connection; `authenticated` if no password is required.
    pub fn new(client: Arc<Client>, account: Arc<Account>, authenticated: bool) -> Self {
        client.login.show_account(&account);
        client.login.show_authenticated(authenticated);
        // Connections that end after a few calls are sampled as often as others: each starts at another place.
        let first_sample = (client.id % u64::from(CALLS_PER_SAMPLE)) as u8;
        Self {
            client,
            database: 0,
            protocol: Protocol::Resp2,
            replies: Replies::On,
            account,
            authenticated,
            login_turn: LoginTurn::default(),
            parked: None,
            may_block: true,
            used_nanos: 0,
            transaction: None,
            watching: None,
            is_nested: false,
            locks_all: false,
            is_shown: false,
            is_short_of_memory: false,
            slot: None,
            asking: Asking::default(),
            reads_replicas: false,
            is_half_way: false,
            reads: Reads::default(),
            last_row: u16::MAX,
            lock_session: None,
            span: tracing::Span::none(),
            scratch: Vec::new(),
            called: Tally::default(),
            calls_until_sample: first_sample,
        }
    }

    /// Whether the current command may be moved to the script thread: it runs on a worker, and is not part of a script or
    /// transaction.
    pub(crate) fn may_leave(&self) -> bool {
        !self.may_block && !self.is_nested
    }

    /// Counts a call. Returns true if this call must be timed as a sample.
    #[inline]
    pub fn is_sampled(&mut self) -> bool {
        let is_sampled = self.calls_until_sample == 0;
        self.calls_until_sample = if is_sampled { CALLS_PER_SAMPLE } else { self.calls_until_sample } - 1;
        is_sampled
    }

    /// A command of this session that waits for its timeout alone; see [`Wait`].
    pub fn new_wait(&self, until: Option<LockTime>, answer: Vec<u8>) -> Arc<Wait> {
        self.new_wait_for((Place::default(), WaitFor::Values), self.database, Vec::new(), until, answer)
    }

    /// A command of this session that waits for any of some keys of a database.
    pub(crate) fn new_wait_for(
        &self,
        (place, kind): (Place, WaitFor),
        database: u16,
        keys: Vec<Bytes>,
        until: Option<LockTime>,
        answer: Vec<u8>,
    ) -> Arc<Wait> {
        let is_muted = self.replies != Replies::On;
        Arc::new(Wait {
            place,
            kind,
            until,
            answer,
            is_muted,
            database,
            keys,
            claim: Claim::default(),
            left: Default::default(),
            unblocked: Default::default(),
        })
    }

    /// Adds to the time used by the batch.
    #[inline]
    pub(crate) fn add_nanos(&mut self, nanos: u64) {
        self.used_nanos = self.used_nanos.saturating_add(nanos);
    }

    /// Sets the user, and whether the session has authenticated as this user.
    pub fn enter_as(&mut self, account: Arc<Account>, authenticated: bool) {
        self.client.login.show_account(&account);
        self.client.login.show_authenticated(authenticated);
        self.account = account;
        self.authenticated = authenticated;
    }

    /// Permission to make the server hold memory for this client without writing a key.
    ///
    /// # Errors
    /// More memory is in use than `maxmemory` allows.
    pub(crate) fn may_hold(&self) -> Result<(), Refusal> {
        if self.is_short_of_memory { Err(Refusal::OutOfMemory) } else { Ok(()) }
    }

    /// Whether only SUBSCRIBE and similar commands are allowed: a RESP2 client cannot distinguish a message from a reply.
    #[inline]
    pub(crate) fn is_subscriber(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.client.is_subscribed()
    }
}
