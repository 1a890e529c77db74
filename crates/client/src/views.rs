//! What a server tells about its locks: who holds them, since when, and who waits.
//!
//! Rule    a field that a server does not send is empty, zero or `None`: a later server may send more, or less.

use std::collections::BTreeMap;

use crate::received::Reply;

/// A lock that is held.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Held {
    /// Its key.
    pub key: Vec<u8>,
    /// `exclusive`, `shared`, `permits` or `reentrant`; `none` if the key is no lock.
    pub kind: String,
    /// The type of the value, as TYPE names it, if the key is no lock: its holder has no token then, and its owner is not
    /// known. What stands for the owner is the value of a string.
    pub value_type: Option<String>,
    /// The permits that there are, of a semaphore.
    pub limit: Option<u64>,
    /// Who holds it.
    pub holders: Vec<Holder>,
    /// How many wait for it.
    pub waiters: u64,
    /// For how long the first of them has waited, in milliseconds; `None` without one.
    pub waited_ms: Option<u64>,
    /// How often clients that poll have been refused.
    pub polls: u64,
}

/// A holder of a lock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Holder {
    /// The value that it holds the lock by.
    pub owner: Vec<u8>,
    /// Its fencing token.
    pub token: Option<u64>,
    /// How many permits it holds, or how often it holds the lock.
    pub permits: u64,
    /// Its connection; `None` if that is gone.
    pub client: Option<Client>,
    /// Since when it holds the lock, as Unix time in milliseconds.
    pub since_unix_ms: Option<u64>,
    /// For how long it has held the lock, in milliseconds.
    pub held_ms: Option<u64>,
    /// Its lease in milliseconds; `None` without one.
    pub lease_ms: Option<u64>,
    /// What is left of the lease, in milliseconds.
    pub left_ms: Option<u64>,
    /// How often it has renewed the lock.
    pub renewals: u64,
    /// Whether the lock ends with its connection.
    pub session: bool,
    /// What it tells about itself: any bytes.
    pub meta: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Whether this is inferred from an earlier reading, as `redlatch beside` says while it cannot read the lock.
    pub is_inferred: bool,
}

/// A connection to the server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Client {
    /// Its id, as in CLIENT LIST.
    pub id: u64,
    /// Its address.
    pub addr: String,
    /// The name that it gave itself.
    pub name: String,
    /// Its library.
    pub lib_name: String,
    /// The version of its library.
    pub lib_ver: String,
}

/// A wait for a lock.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Waiting {
    /// The owner that waits; `None` if the client polls.
    pub owner: Option<Vec<u8>>,
    /// Its connection.
    pub client: Option<Client>,
    /// For how long it has waited, in milliseconds.
    pub waited_ms: u64,
    /// `queued` or `polling`.
    pub how: String,
    /// `exclusive`, `shared`, `permits` or `reentrant`.
    pub kind: String,
    /// How many permits it wants.
    pub permits: u64,
}

impl Held {
    /// Reads a map of LOCK.WHO or LOCK.LIST; `None` if it is none.
    #[doc(hidden)]
    pub fn read(reply: &Reply) -> Option<Self> {
        let key = reply.field("key")?.text()?.to_vec();
        let holders = reply.field("holders").map_or(&[][..], Reply::items);
        Some(Self {
            key,
            kind: text(reply, "kind"),
            value_type: value_type(reply),
            limit: number(reply, "limit"),
            holders: holders.iter().map(Holder::read).collect(),
            waiters: number(reply, "waiters").unwrap_or(0),
            waited_ms: number(reply, "waited"),
            polls: number(reply, "polls").unwrap_or(0),
        })
    }

    /// A hold that has ended, as LOCK.HISTORY tells it: its kind is not known.
    pub(super) fn of_end(reply: &Reply) -> Option<Self> {
        let key = reply.field("key")?.text()?.to_vec();
        Some(Self { key, holders: vec![Holder::read(reply)], ..Self::default() })
    }

    /// What the refusal of `LOCK.ACQUIRE ... WHY` tells; `None` if it names no holder.
    pub(super) fn of_refusal(key: &[u8], refusal: &Reply) -> Option<Self> {
        let (owner, value_type) = (refusal.field("holder")?.text(), value_type(refusal));
        if owner.is_none() && value_type.is_none() {
            return None;
        }
        let holder = Holder {
            owner: owner.unwrap_or_default().to_vec(),
            token: number(refusal, "token"),
            permits: 1,
            left_ms: number(refusal, "lease"),
            meta: meta(refusal),
            ..Holder::default()
        };
        let kind = value_type.as_ref().map(|_| NO_LOCK.to_owned()).unwrap_or_default();
        Some(Self { key: key.to_vec(), kind, value_type, holders: vec![holder], ..Self::default() })
    }

    /// What a server without LOCK commands tells: the value of a string, or another type.
    pub(super) fn plain(key: &[u8], value: Result<Vec<u8>, String>, left_ms: Option<u64>) -> Self {
        let (kind, owner, value_type) = match value {
            Ok(owner) => ("exclusive", owner, None),
            Err(value_type) => (NO_LOCK, Vec::new(), Some(value_type)),
        };
        let holder = Holder { owner, permits: 1, left_ms, ..Holder::default() };
        Self {
            key: key.to_vec(),
            kind: kind.to_owned(),
            value_type,
            holders: vec![holder],
            ..Self::default()
        }
    }

    /// Who holds a key that is no lock, in words.
    #[doc(hidden)]
    pub fn unknown_owner(&self) -> Option<String> {
        let value_type = self.value_type.as_ref()?;
        Some(format!("an unknown owner: not a lock, but a {value_type}"))
    }
}

impl Holder {
    fn read(reply: &Reply) -> Self {
        Self {
            owner: reply.field("owner").and_then(Reply::text).unwrap_or_default().to_vec(),
            token: number(reply, "token"),
            permits: number(reply, "permits").unwrap_or(1),
            client: reply.field("client").and_then(Client::read),
            since_unix_ms: number(reply, "since"),
            held_ms: number(reply, "held"),
            lease_ms: number(reply, "lease"),
            left_ms: number(reply, "left"),
            renewals: number(reply, "renewals").unwrap_or(0),
            session: number(reply, "session") == Some(1),
            meta: meta(reply),
            is_inferred: text(reply, "known") == "inferred",
        }
    }
}

impl Client {
    fn read(reply: &Reply) -> Option<Self> {
        Some(Self {
            id: number(reply, "id")?,
            addr: text(reply, "addr"),
            name: text(reply, "name"),
            lib_name: text(reply, "lib-name"),
            lib_ver: text(reply, "lib-ver"),
        })
    }
}

impl Waiting {
    #[doc(hidden)]
    pub fn read(reply: &Reply) -> Self {
        Self {
            owner: reply.field("owner").and_then(Reply::text).map(<[u8]>::to_vec),
            client: reply.field("client").and_then(Client::read),
            waited_ms: number(reply, "waited").unwrap_or(0),
            how: text(reply, "how"),
            kind: text(reply, "kind"),
            permits: number(reply, "permits").unwrap_or(1),
        }
    }
}

fn number(reply: &Reply, name: &str) -> Option<u64> {
    reply.field(name)?.integer().and_then(|number| u64::try_from(number).ok())
}

fn text(reply: &Reply, name: &str) -> String {
    reply.field(name).and_then(Reply::text).map(lossy).unwrap_or_default()
}

fn meta(reply: &Reply) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let pairs = reply.field("meta").map(Reply::pairs).unwrap_or_default();
    pairs
        .into_iter()
        .filter_map(|(field, value)| Some((field.text()?.to_vec(), value.text()?.to_vec())))
        .collect()
}

/// The type of a value that is no lock.
fn value_type(reply: &Reply) -> Option<String> {
    reply.field("type").and_then(Reply::text).map(lossy)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The kind of a key that is no lock.
const NO_LOCK: &str = "none";
