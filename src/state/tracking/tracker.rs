//! One client that keeps copies: what it wants to be told, and the messages that tell it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;

use crate::resp::{Protocol, Reply};
use crate::state::clients::{Client, ClientId, Clients};

/// What one client wants to be told.
#[derive(Debug)]
pub struct Tracker {
    /// Who reads the keys.
    pub client: Arc<Client>,
    /// Who is told, if it is somebody else.
    pub redirect: Option<ClientId>,
    /// The prefixes of keys it is told of whether it has read them or not (BCAST); `None`: what it has read.
    pub prefixes: Option<BTreeSet<Bytes>>,
    /// Whether it is spared changes of its own.
    pub no_loop: bool,
    /// Whether there was something to tell and nobody where it sends its messages.
    pub is_broken: AtomicBool,
}

/// Which reads of a connection are remembered.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reads {
    /// Which of them as a rule.
    pub which: Which,
    /// Whether CLIENT CACHING has made an exception of what comes next.
    pub is_next: bool,
}

/// Which reads of a connection are remembered as a rule.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, PartialOrd)]
pub enum Which {
    /// None.
    #[default]
    None,
    /// None: it is told of all keys with certain prefixes.
    Broadcast,
    /// All.
    All,
    /// Those that CLIENT CACHING YES precedes.
    Chosen,
    /// All but those that CLIENT CACHING NO precedes.
    Unless,
}

/// The channel that RESP2 clients listen to.
const CHANNEL: &[u8] = b"__redis__:invalidate";

impl Reads {
    /// Whether any is, now or after a CLIENT CACHING.
    #[inline]
    pub fn matter(self) -> bool {
        self.which > Which::Broadcast
    }

    /// Whether the connection is told of anything.
    #[inline]
    pub fn are_told(self) -> bool {
        self.which != Which::None
    }

    /// Whether what is read now is remembered.
    pub fn are_remembered(self) -> bool {
        match self.which {
            Which::None | Which::Broadcast => false,
            Which::All => true,
            Which::Chosen => self.is_next,
            Which::Unless => !self.is_next,
        }
    }

    /// The command or transaction that CLIENT CACHING was about is over.
    #[must_use]
    pub fn after_next(self) -> Self {
        Self { is_next: false, ..self }
    }
}

/// What a message is about.
#[derive(Clone, Copy)]
enum News<'a> {
    Keys(&'a [&'a Bytes]),
    /// By the hand of that client.
    All(ClientId),
}

impl Tracker {
    /// Whether it is to be told of what `author` does.
    pub(super) fn wants(&self, author: ClientId) -> bool {
        !self.no_loop || author != self.client.id
    }

    /// Tells of these keys.
    pub(super) fn tell(&self, clients: &Clients, keys: &[&Bytes]) {
        self.send(clients, News::Keys(keys));
    }

    /// Tells of one key, or that all may have changed, by the hand of `author`.
    pub(super) fn tell_of(&self, clients: &Clients, key: Option<&Bytes>, author: ClientId) {
        match key {
            Some(key) => self.tell(clients, &[key]),
            None => self.send(clients, News::All(author)),
        }
    }

    fn send(&self, clients: &Clients, news: News<'_>) {
        let Some(target) = self.redirect else { return self.deliver(&self.client, news) };
        match clients.get(target) {
            Some(client) => self.deliver(&client, news),
            None => self.lament(target),
        }
    }

    fn deliver(&self, client: &Client, news: News<'_>) {
        let mut message = Vec::new();
        let mut reply = Reply::new(&mut message, client.protocol());
        match client.protocol() {
            Protocol::Resp3 => {
                reply.push(2);
                reply.bulk(b"invalidate");
            }
            // RESP2 has no pushes: the message goes where the client has said that it listens.
            Protocol::Resp2 if client.is_subscribed() && self.redirect.is_some() => {
                reply.push(3);
                reply.bulk(b"message");
                reply.bulk(CHANNEL);
            }
            Protocol::Resp2 => return,
        }
        match news {
            News::Keys(keys) => {
                reply.bulks(keys);
                client.deliver(&message);
            }
            News::All(author) => {
                // In the words of whoever keeps the copies, not of whoever is told, as in Redis.
                reply.set_protocol(self.client.protocol());
                reply.null();
                // Of prefixes it is told later than of this.
                match author == client.id && self.prefixes.is_some() {
                    true => client.deliver_next(&message),
                    false => client.deliver(&message),
                }
            }
        }
    }

    /// Tells the client itself that nobody is where it sends its messages.
    fn lament(&self, target: ClientId) {
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
