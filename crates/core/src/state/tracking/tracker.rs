//! One client with CLIENT TRACKING on: its options, and the messages it is sent.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use redlatch_proto::resp::{Protocol, Reply};

use crate::state::clients::{Client, ClientId, Clients};
use crate::state::ledger::{Charge, Kind};
use crate::types::heap;

/// The CLIENT TRACKING options of one client.
#[derive(Debug)]
pub struct Tracker {
    /// The client that reads the keys.
    pub client: Arc<Client>,
    /// REDIRECT: the client that gets the invalidations.
    pub redirect: Option<ClientId>,
    /// BCAST: the prefixes of keys whose changes it is sent, read or not. `None`: changes of keys that it has read.
    pub prefixes: Option<BTreeSet<Bytes>>,
    /// NOLOOP: it is not sent invalidations of its own changes.
    pub no_loop: bool,
    /// Whether an invalidation was lost because the client of REDIRECT is gone.
    pub is_broken: AtomicBool,
    charge: Charge,
}

/// Which reads of a connection are tracked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reads {
    pub which: Which,
    /// Whether CLIENT CACHING has made an exception for the next command or transaction.
    pub is_next: bool,
}

/// The mode of CLIENT TRACKING.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, PartialOrd)]
pub enum Which {
    #[default]
    None,
    /// BCAST: no reads are tracked.
    Broadcast,
    All,
    /// OPTIN: reads after CLIENT CACHING YES are tracked.
    Chosen,
    /// OPTOUT: all reads are tracked except after CLIENT CACHING NO.
    Unless,
}

/// The channel that RESP2 clients subscribe to.
const CHANNEL: &[u8] = b"__redis__:invalidate";

impl Reads {
    /// Whether any read may be tracked, now or after a CLIENT CACHING.
    #[inline]
    pub(crate) fn may_be_tracked(self) -> bool {
        self.which > Which::Broadcast
    }

    /// Whether the connection has tracking on.
    #[inline]
    pub fn is_on(self) -> bool {
        self.which != Which::None
    }

    /// Whether reads are tracked now.
    pub(crate) fn are_tracked(self) -> bool {
        match self.which {
            Which::None | Which::Broadcast => false,
            Which::All => true,
            Which::Chosen => self.is_next,
            Which::Unless => !self.is_next,
        }
    }

    /// The command or transaction after CLIENT CACHING is over.
    #[must_use]
    pub(crate) fn after_next(self) -> Self {
        Self { is_next: false, ..self }
    }
}

#[derive(Clone, Copy)]
enum Invalid<'a> {
    Keys(&'a [&'a Bytes]),
    /// Every key; caused by that client.
    All(ClientId),
}

/// Bytes of a prefix: its name, its place in the set of the client, and that in the registry, where the client is the first
/// of the prefix mostly.
fn prefix_bytes(prefix: &Bytes) -> usize {
    let of_registry = heap::in_tree::<(Bytes, BTreeSet<ClientId>)>() + heap::tree::<ClientId>(1);
    heap::shared(prefix) + heap::in_tree::<Bytes>() + of_registry
}

impl Tracker {
    /// The options of a client, without REDIRECT and NOLOOP.
    pub fn new(client: Arc<Client>, prefixes: Option<BTreeSet<Bytes>>) -> Self {
        let charge = client.ledger().open(Kind::Tracking);
        let is_broken = AtomicBool::new(false);
        let tracker = Self { client, redirect: None, prefixes, no_loop: false, is_broken, charge };
        tracker.charge();
        tracker
    }

    /// Adds prefixes to its own.
    pub(super) fn add_prefixes(&mut self, more: BTreeSet<Bytes>) {
        self.prefixes.get_or_insert_default().extend(more);
        self.charge();
    }

    fn charge(&self) {
        let prefixes = self.prefixes.iter().flatten().map(prefix_bytes).sum::<usize>();
        self.charge.set(size_of::<Self>() + heap::in_table::<(ClientId, Arc<Self>)>() + prefixes);
    }

    /// Whether it is sent invalidations of changes by `author`.
    pub(super) fn wants(&self, author: ClientId) -> bool {
        !self.no_loop || author != self.client.id
    }

    pub(super) fn invalidate_keys(&self, clients: &Clients, keys: &[&Bytes]) {
        self.send(clients, Invalid::Keys(keys));
    }

    /// Invalidates one key, or all keys, because of a command of `author`.
    pub(super) fn invalidate(&self, clients: &Clients, key: Option<&Bytes>, author: ClientId) {
        match key {
            Some(key) => self.invalidate_keys(clients, &[key]),
            None => self.send(clients, Invalid::All(author)),
        }
    }

    fn send(&self, clients: &Clients, invalid: Invalid<'_>) {
        let Some(target) = self.redirect else { return self.deliver(&self.client, invalid) };
        match clients.get(target) {
            Some(client) => self.deliver(&client, invalid),
            None => self.report_broken_redirect(target),
        }
    }

    fn deliver(&self, client: &Client, invalid: Invalid<'_>) {
        let mut message = Vec::new();
        let mut reply = Reply::new(&mut message, client.protocol());
        match client.protocol() {
            Protocol::Resp3 => {
                reply.push(2);
                reply.bulk(b"invalidate");
            }
            // RESP2 has no pushes: the client subscribes to a channel instead.
            Protocol::Resp2 if client.is_subscribed() && self.redirect.is_some() => {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(CHANNEL);
            }
            Protocol::Resp2 => return,
        }
        match invalid {
            Invalid::Keys(keys) => {
                reply.bulks(keys);
                client.deliver(&message);
            }
            Invalid::All(author) => {
                // In the protocol of the tracking client, not of the redirected one, as in Redis.
                reply.set_protocol(self.client.protocol());
                reply.null();
                // Messages about prefixes follow later.
                match author == client.id && self.prefixes.is_some() {
                    true => client.deliver_next(&message),
                    false => client.deliver(&message),
                }
            }
        }
    }

    /// Notifies the client that its REDIRECT is broken.
    fn report_broken_redirect(&self, target: ClientId) {
        self.is_broken.store(true, Relaxed);
        if self.client.protocol() == Protocol::Resp3 {
            let mut message = Vec::new();
            let mut reply = Reply::new(&mut message, Protocol::Resp3);
            reply.push(2);
            reply.bulk(b"tracking-redir-broken");
            reply.integer(i64::try_from(target).unwrap_or(i64::MAX));
            self.client.deliver(&message);
        }
    }
}
