//! The way to the leader: each standby asks the leader now and then, as a client does, and tells the result in its entry of
//! the list of nodes.
//!
//! Owns    what this node has found, and the rule by which a leader hands over.
//! Rule    a hint, and no decision of safety: the leader ends its term in good order, as at its own end.
//! Rule    a standby counts only if a client has come to it lately, so that a node which is cut off itself gets no term. A
//!         leader to which anything has come lately stays.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_client::wire::{Target, open};
use redlatch_client::{Error, Trust};
use redlatch_core::replication::cluster::Member;
use redlatch_core::state::settings::{self, Settings};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::leader::address_in;
use super::splice::Door;
use crate::Server;

/// How often a standby asks the leader.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How long each step of that may take.
const STEP_MAX: Duration = Duration::from_secs(1);
/// How long the leader must have been out of reach, and nothing have come to it.
const UNREACHED_FOR: Duration = Duration::from_secs(5);
/// How long a standby counts that a client has come to.
const CLIENT_COUNTS_FOR: Duration = Duration::from_secs(10);
/// For how long a node that has handed over leaves the lead to others.
pub(super) const REST: Duration = Duration::from_secs(5);

/// What a standby knows of the way to the leader.
#[derive(Debug, Default)]
pub(super) struct Reach {
    /// The leader that is out of reach, by its epoch, and since when.
    unreached: Mutex<Option<(i64, Instant)>>,
    /// When the last client has come to this node.
    client_at: Mutex<Option<Instant>>,
}

/// What a standby tells of the way to the leader.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Report {
    /// The epoch of the leader that it has not reached for a while.
    pub(super) unreached: Option<i64>,
    /// Whether clients reach it.
    pub(super) has_clients: bool,
}

impl Reach {
    /// A client has come to this node while it does not lead.
    pub(super) fn note_client(&self) {
        *self.client_at.lock() = Some(Instant::now());
    }

    /// What the others are told.
    pub(super) fn report(&self) -> Report {
        let unreached = (*self.unreached.lock()).filter(|(_, since)| since.elapsed() >= UNREACHED_FOR);
        let client_at = *self.client_at.lock();
        Report {
            unreached: unreached.map(|(epoch, _)| epoch),
            has_clients: client_at.is_some_and(|at| at.elapsed() < CLIENT_COUNTS_FOR),
        }
    }

    /// Asks the leader, for ever. `leader` says which other node leads, and its epoch.
    pub(super) async fn watch(&self, settings: &Settings, leader: impl Fn() -> Option<(i64, Member)>) {
        let password = settings.get(settings::REQUIREPASS);
        loop {
            sleep(ASK_EVERY).await;
            let Some((epoch, leader)) = leader() else {
                *self.unreached.lock() = None;
                continue;
            };
            let is_reached = answers(&leader, &password).await;
            let mut unreached = self.unreached.lock();
            *unreached = match *unreached {
                _ if is_reached => None,
                Some((same, since)) if same == epoch => Some((epoch, since)),
                _ => Some((epoch, Instant::now())),
            };
        }
    }
}

/// Whether this node answers at its address. Where it asks for more than the password of the default user, any answer counts
/// but that of a node that does not find the leader; where it has TLS alone, a connection does.
async fn answers(node: &Member, password: &str) -> bool {
    let Some(address) = address_in(&node.addresses, Door::Plain) else {
        let Some(address) = address_in(&node.addresses, Door::Tls) else { return true };
        return matches!(timeout(STEP_MAX, TcpStream::connect(address)).await, Ok(Ok(_)));
    };
    let target = Target { address: address.to_owned(), password: password.to_owned(), ..Target::default() };
    let asked = async {
        let mut connection = open(&target, &Trust::default(), STEP_MAX).await?;
        connection.authenticate(&target).await?;
        connection.ask(&[b"SENTINEL", b"MYID"]).await
    };
    match asked.await {
        Ok(reply) => reply.text().is_none_or(|id| *id == *node.id.as_bytes()),
        Err(Error::Refused(text)) => !text.starts_with("MASTERDOWN"),
        Err(_) => false,
    }
}

/// Resolves when the leader of this epoch is to hand over: clients reach other nodes, and nothing reaches this one.
pub(super) async fn hand_over_is_due(server: &Server, reports: impl Fn() -> Vec<Report>, epoch: i64) {
    let (mut received, mut since) = (server.received_bytes(), Instant::now());
    loop {
        sleep(ASK_EVERY).await;
        if std::mem::replace(&mut received, server.received_bytes()) != received {
            since = Instant::now();
        }
        let is_unreached = |report: &Report| report.unreached == Some(epoch);
        let reports = reports();
        let may_others = reports.iter().any(|report| is_unreached(report) && report.has_clients);
        if may_others && reports.iter().all(is_unreached) && since.elapsed() >= UNREACHED_FOR {
            tracing::warn!(
                epoch,
                "Neither clients nor standbys reach this node, and clients reach a standby: it hands over"
            );
            return;
        }
    }
}
