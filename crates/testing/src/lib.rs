//! The test backend: what TEST commands change and show. Off unless `enable-test-commands` allows it.
//!
//! Owns    [`Testing`], the part of a server's state that only tests use: its namespace, its faults, its history.
//! Rule    a server without it costs nothing more: one look at an `Option` for each batch of requests.
//! Rule    what needs sockets, tasks or the system clock is behind [`Host`], which the shell implements.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod check;
mod clock;
pub mod commands;
mod connection_faults;
mod engine;
mod event;
mod faults;
pub mod handles;
mod host;
mod namespace;
mod namespaces;
mod page;
mod recorder;
mod recording;
mod reply_text;
pub mod requests;
mod rule;
mod steps;
mod timeline;

pub use check::{Finding, check};
pub use connection_faults::{ConnectionFaults, Progress};
use engine::{expire_keys, keys_of, meet_fault, next_wait, waits_until};
pub use event::{Event, EventKind, Field, shown};
pub use faults::{FAULTS_MAX, Fault, Faults, Hit};
pub use host::{
    ClockChange, ClockFacts, Deadline, DeadlineOf, Host, Mode, NamespaceFacts, NodeChange, NodeFacts,
    NodeState,
};
pub use namespace::{Membership, Namespace, Node, Reach};
pub use namespaces::{EMPTY_FOR, MakeError, Maker, Namespaces, Place, Shell};
pub use page::{HTML_END, html_head};
pub use recorder::{Filter, Moment, Recorder};
pub use recording::disconnected;
pub use reply_text::reply_text;
pub use rule::{
    Action, Asked, AskedScript, Conditions, FAULT_BYTES_MAX, FAULT_COUNT_MAX, FAULT_MS_MAX, PURPOSES, Rule,
    Script, Turn, client_fits, purpose_name,
};
pub use timeline::{Extent, Timeline};

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_core::commands::{Extension, Shared};
use redlatch_core::state::clients::{Client, ClientId};
use redlatch_core::state::ledger::Ledger;
use redlatch_proto::clock::{LockTime, Now};
use redlatch_proto::resp::Request;

/// The test backend of one node of a namespace.
pub struct Testing {
    /// The name of the namespace.
    pub namespace: Arc<str>,
    /// The number of the node, from 1 on.
    pub node: u16,
    /// Whether only clients on this machine may use it.
    pub is_local: bool,
    /// The faults of the namespace.
    pub faults: Arc<Faults>,
    /// The history of the namespace.
    pub recorder: Arc<Recorder>,
    /// What only the shell can do.
    pub host: Arc<dyn Host>,
    /// The clients that faults hold up.
    pub holds: Holds,
    /// The sum of the bytes of all namespaces.
    pub ledger: Arc<Ledger>,
}

/// Until when faults hold clients of a node up.
#[derive(Debug, Default)]
pub struct Holds(Mutex<BTreeMap<ClientId, LockTime>>);

impl std::fmt::Debug for Testing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Testing")
            .field("namespace", &self.namespace)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// The namespace of clients that name none.
pub const DEFAULT_NAMESPACE: &str = "default";
/// Bytes of the longest name of a namespace.
pub const NAME_BYTES_MAX: usize = 128;
/// Namespaces of one server.
pub const NAMESPACES_MAX: usize = 4096;
/// Bytes of a node of a namespace without keys and clients: the growth of the process per node, measured with a thousand.
const NODE_BYTES: usize = 64 * 1024;

/// What a password that names a namespace begins with.
const NAMESPACE: &[u8] = b"namespace:";

impl Testing {
    /// The test backend of a server, if it has one.
    pub fn of(shared: &Shared) -> Option<&Self> {
        shared.extension.as_ref()?.downcast()
    }
}

impl Extension for Testing {
    fn is_open_to(&self, client: &Client) -> bool {
        !self.is_local || client.address.is_local()
    }

    fn is_own_password(&self, password: &[u8]) -> bool {
        password.strip_prefix(NAMESPACE) == Some(self.namespace.as_bytes())
    }

    fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    fn has_taken_over(&self, now: Now, node: u16, master: u16) {
        self.recorder.failover(now, node, master);
    }
}

impl Holds {
    /// A fault holds a client up until then; `None`: none does.
    pub fn set(&self, client: ClientId, until: Option<LockTime>) {
        let mut holds = self.0.lock();
        match until {
            Some(until) => _ = holds.insert(client, until),
            None => _ = holds.remove(&client),
        }
    }

    /// Until when a fault holds a client up, if one does.
    pub fn until(&self, client: ClientId) -> Option<LockTime> {
        self.0.lock().get(&client).copied()
    }
}

/// The namespace that a request asks for by its password: AUTH, or HELLO with AUTH.
pub fn namespace_of<'a>(request: Request<'a>) -> Option<&'a [u8]> {
    let name = request.word(0);
    let password = if name.eq_ignore_ascii_case(b"AUTH") {
        request.get(request.len().saturating_sub(1))?
    } else if name.eq_ignore_ascii_case(b"HELLO") {
        let at = (2..request.len()).find(|at| request.word(*at).eq_ignore_ascii_case(b"AUTH"))?;
        request.get(at + 2)?
    } else {
        return None;
    };
    password.strip_prefix(NAMESPACE)
}

/// The name of a namespace.
///
/// # Errors
/// What is wrong with it, as an error reply.
pub fn checked_name(name: &[u8]) -> Result<&str, String> {
    let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:/@-".contains(byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(format!(
            "ERR the name of a namespace has 1 to {NAME_BYTES_MAX} bytes, not {}",
            name.len()
        ));
    }
    match std::str::from_utf8(name) {
        Ok(text) if name.iter().all(is_allowed) => Ok(text),
        _ => Err("ERR the name of a namespace has letters, digits and . _ : / @ - only".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_auth_and_hello_names_the_namespace() {
        let of = |words: &[&[u8]]| namespace_of(Request::listed(words)).map(<[u8]>::to_vec);
        assert_eq!(of(&[b"AUTH", b"namespace:a"]), Some(b"a".to_vec()));
        assert_eq!(of(&[b"auth", b"any", b"namespace:a"]), Some(b"a".to_vec()));
        assert_eq!(of(&[b"HELLO", b"3", b"auth", b"any", b"namespace:b"]), Some(b"b".to_vec()));
        let named: &[&[u8]] = &[b"HELLO", b"3", b"SETNAME", b"x", b"AUTH", b"u", b"namespace:b"];
        assert_eq!(of(named), Some(b"b".to_vec()));
        assert_eq!(of(&[b"AUTH", b"secret"]), None);
        assert_eq!(of(&[b"HELLO", b"3", b"AUTH", b"u"]), None);
        assert_eq!(of(&[b"SET", b"AUTH", b"namespace:a"]), None);
    }

    #[test]
    fn a_name_is_short_and_plain() {
        assert_eq!(checked_name(b"tests/lock.py::test-1_a"), Ok("tests/lock.py::test-1_a"));
        assert!(checked_name(b"").is_err());
        assert!(checked_name(b"two words").is_err());
        assert!(checked_name("h\u{e9}".as_bytes()).is_err());
        assert!(checked_name(&[b'x'; NAME_BYTES_MAX]).is_ok());
        let long = checked_name(&[b'x'; 10_240]).unwrap_err();
        assert!(long.contains("128") && long.contains("10240"), "{long}");
    }
}
