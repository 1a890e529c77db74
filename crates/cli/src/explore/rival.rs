//! `rival`: a client that takes a lock whose former holder has none any more, as the next one who wants it.
//!
//! Rule    of several stores it takes more than half, or none. In a cluster one node serves the lock.
//! Rule    who is refused is no rival, and the run goes on without one.

use std::time::Duration;

use redlatch_client::wire::{Connection, RELEASE, Reply};
use redlatch_server::Server;
use redlatch_testing::{Event, EventKind};

use super::servers::Servers;

/// Takes the lock that was granted last.
pub(super) async fn take(server: &Server, servers: Servers) {
    let events = server.history().events();
    let Some((key, is_native)) = granted_last(&events) else { return };
    let (key, lease) = (&**key, LEASE_MS.to_string());
    let (take, give_back) = if is_native {
        (
            vec![&b"LOCK.ACQUIRE"[..], key, NAME.as_bytes(), b"LEASE", lease.as_bytes()],
            vec![&b"LOCK.RELEASE"[..], key, NAME.as_bytes()],
        )
    } else {
        (
            vec![&b"SET"[..], key, NAME.as_bytes(), b"NX", b"PX", lease.as_bytes()],
            vec![&b"EVAL"[..], RELEASE.as_bytes(), b"1", key, NAME.as_bytes()],
        )
    };
    let mut holding = Vec::new();
    for node in server.nodes().list() {
        let mut rival = Connection::over(Box::new(server.nodes().stream(node.node)), PATIENCE);
        if has_granted(&mut rival, &take).await {
            holding.push(rival);
        }
    }
    if !servers.is_held(holding.len()) {
        for rival in &mut holding {
            let _ = rival.ask(&give_back).await;
        }
    }
}

/// The key of the lock that was granted last, and whether a LOCK command has taken it.
fn granted_last(events: &[Event]) -> Option<(&bytes::Bytes, bool)> {
    events.iter().rev().filter(|event| event.kind == EventKind::Granted).find_map(|granted| {
        let request = events.iter().find(|event| Some(event.id) == granted.request)?;
        let is_native = match request.command.as_deref()? {
            "SET" | "SETNX" | "EVAL" | "EVALSHA" => false,
            "LOCK.ACQUIRE" | "LOCK.MACQUIRE" => true,
            _ => return None,
        };
        Some((granted.key.as_ref()?, is_native))
    })
}

async fn has_granted(rival: &mut Connection, take: &[&[u8]]) -> bool {
    let is_named = rival.ask(&[b"CLIENT", b"SETNAME", NAME.as_bytes()]).await.is_ok();
    let granted = |reply: &Reply| !matches!(reply, Reply::Error(_) | Reply::Null);
    is_named && rival.ask(take).await.is_ok_and(|reply| granted(&reply))
}

/// The name of the client.
pub(super) const NAME: &str = "rival";
/// Milliseconds for which it has the lock: long enough for the next request of the command, and short enough for a command
/// that takes its lock again.
const LEASE_MS: u64 = 1_000;
/// The time between the end of a lease and what its former holder does next, in which the rival takes the lock.
pub(super) const TURN: Duration = Duration::from_millis(200);
/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
