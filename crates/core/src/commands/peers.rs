//! The nodes of a cluster that share out the slots: which one serves a request.
//!
//! Owns    what one node knows of the others.
//! Rule    an address is that of the node as the asking client reaches it: see [`SlotOwner`].
//! Source  Redis 7.0 `cluster.c`: `getNodeByQuery`, `clusterRedirectClient`.

use std::sync::{Arc, OnceLock, Weak};

use redlatch_proto::clock::Clock;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;
use smallvec::SmallVec;

use crate::commands::admin::slot_owner::SlotOwner;
use crate::commands::{Command, Shared};
use crate::keyspace::{Entry, View};
use crate::state::clients::Client;
use crate::state::slot_map::{Members, Route, SlotMap, SlotRequest};

mod moving;
mod replication;

pub use moving::Move;
use replication::Stream;

/// The nodes of a cluster, as one of them knows them.
#[derive(Clone)]
pub struct Peers {
    pub slots: Arc<SlotMap>,
    /// The number of this node, from 1 on.
    pub me: u16,
    /// The state of all nodes, in the order of their numbers.
    all: Arc<OnceLock<Vec<Weak<Shared>>>>,
    /// How the writes of each node reach its replicas; none: the cluster has no replicas.
    streams: Arc<Vec<Arc<Stream>>>,
    members: Members,
}

/// Why this node does not serve the keys of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Elsewhere {
    /// They may be at this node, to which their slot is moving.
    Ask(u16),
    /// A long call holds them: it is not known yet.
    Held,
    /// This node has their slot.
    Moved(u16),
    /// A node has failed.
    NotOk,
    /// Some are here, and some where their slot is moving.
    TryAgain,
}

impl Peers {
    /// The nodes of a new cluster, each as it knows the others. A node that is silent for `timeout_ms` has failed.
    pub fn cluster(members: Members, clock: Arc<dyn Clock>, timeout_ms: u64) -> Vec<Self> {
        let streams = if members.replicas == 0 { 0 } else { members.nodes };
        let first = Self {
            slots: Arc::new(SlotMap::new(members, clock, timeout_ms)),
            me: 1,
            all: Arc::default(),
            streams: Arc::new((0..streams).map(|_| Arc::default()).collect()),
            members,
        };
        (1..=members.nodes).map(|me| Self { me, ..first.clone() }).collect()
    }

    /// Tells all nodes of each other, once, in the order of their numbers.
    pub fn meet(&self, all: Vec<Weak<Shared>>) {
        // A cluster is made in one place, which calls this once.
        let _ = self.all.set(all);
        self.link(&self.slots.change());
    }

    /// The node that the shard of this one began with as its master: it gives the shard its id.
    pub(crate) fn founder(&self) -> Option<Arc<Shared>> {
        (1..=self.members.masters())
            .cycle()
            .nth(usize::from(self.me.saturating_sub(1)))
            .and_then(|node| self.node(node))
    }

    /// All nodes with their numbers, unless the cluster is being dropped.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u16, Arc<Shared>)> {
        let all = self.all.get().map_or(&[][..], Vec::as_slice);
        (1..).zip(all).filter_map(|(number, shared)| Some((number, shared.upgrade()?)))
    }

    pub(crate) fn node(&self, number: u16) -> Option<Arc<Shared>> {
        self.all().find_map(|(other, shared)| (other == number).then_some(shared))
    }

    /// Sends a message to the subscribers at the other nodes that hear this one, as PUBLISH does in a cluster.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) {
        for node in self.hearing() {
            node.registries.channels.publish(channel, message);
        }
    }

    /// The patterns that subscribers at the other nodes have.
    pub(crate) fn patterns_elsewhere(&self) -> u64 {
        self.hearing().iter().map(|node| node.registries.channels.patterns()).sum()
    }

    /// The other nodes, if they and this one answer.
    fn hearing(&self) -> Vec<Arc<Shared>> {
        let table = self.slots.hold();
        let hears = |number: u16| number != self.me && !table.is_silent(number);
        match table.is_silent(self.me) {
            true => Vec::new(),
            false => self.all().filter_map(|(number, node)| hears(number).then_some(node)).collect(),
        }
    }

    /// What this node grants from now on has a higher token than what the node that has this slot has granted.
    fn follow_tokens(&self, slot: u16) {
        let owner = self.slots.hold().owner(slot);
        if let (Some(owner), Some(me)) = (self.node(owner), self.node(self.me)) {
            me.keyspace.raise_tokens(owner.keyspace.tokens());
            self.stream().iter().for_each(|stream| stream.raise_tokens(owner.keyspace.tokens()));
        }
    }

    /// Whether the slot is moving, so that it depends on the keys who serves them.
    pub(crate) fn is_half_way(&self, slot: u16) -> bool {
        self.slots.hold().target(slot).is_some()
    }

    /// Whether this node serves the keys of this request. `look` counts which of them are here; `None`: a long call holds
    /// them. Without keys, the request is about shard channels.
    pub(crate) fn check(
        &self,
        request: SlotRequest,
        keys: &[&[u8]],
        look: impl FnOnce(&[&[u8]]) -> Option<usize>,
    ) -> Result<(), Elsewhere> {
        let route = self.slots.route(self.me, request, keys.is_empty());
        match route {
            Route::Here => return Ok(()),
            Route::There(node) => return Err(Elsewhere::Moved(node)),
            Route::NotOk => return Err(Elsewhere::NotOk),
            Route::Leaving(_) => {}
            Route::Arriving => self.follow_tokens(request.slot),
        }
        let present = look(keys).ok_or(Elsewhere::Held)?;
        match route {
            _ if present == keys.len() => Ok(()),
            Route::Leaving(_) if present > 0 => Err(Elsewhere::TryAgain),
            Route::Leaving(node) => Err(Elsewhere::Ask(node)),
            _ if keys.iter().any(|key| key != &keys[0]) => Err(Elsewhere::TryAgain),
            _ => Ok(()),
        }
    }

    /// Like [`Peers::check`], for requests whose keys are locked.
    pub(crate) fn check_locked(
        &self,
        asked: SlotRequest,
        steps: &[(&'static Command, Request<'_>)],
        view: &mut View<'_>,
    ) -> Result<(), Elsewhere> {
        let keys: SmallVec<[&[u8]; 4]> = keys(steps).collect();
        self.check(asked, &keys, |keys| Some(count_present(view, keys)))
    }
}

impl Elsewhere {
    /// The error that a client gets.
    pub(crate) fn refusal(self, slot: u16, client: &Client, shared: &Shared) -> Refusal {
        let redirect = |word, node| {
            let node = shared.peers.as_ref().and_then(|peers| peers.node(node));
            let owner = SlotOwner::told_to(client, shared, node.as_deref().unwrap_or(shared));
            format!("{word} {slot} {}", owner.address())
        };
        Refusal::Rerouted(match self {
            Self::Ask(node) => redirect("ASK", node),
            Self::Moved(node) => redirect("MOVED", node),
            Self::NotOk => "CLUSTERDOWN The cluster is down".to_owned(),
            Self::Held | Self::TryAgain => {
                "TRYAGAIN Multiple keys request during rehashing of slot".to_owned()
            }
        })
    }
}

/// Checks that the group of this server has the slot, if there are groups.
///
/// # Errors
/// The address of the leader of the other group, or that there is none.
pub(crate) fn check_group(shared: &Shared, client: &Client, slot: u16) -> Result<(), Refusal> {
    let Some(group) = shared.group().filter(|group| !group.has(slot)) else { return Ok(()) };
    Err(Refusal::Rerouted(match group.leader_of(slot) {
        Some(leader) => format!("MOVED {slot} {}", SlotOwner::of_leader(client, shared, &leader).address()),
        None => "CLUSTERDOWN Hash slot not served".to_owned(),
    }))
}

/// A write at a replica.
pub(crate) fn read_only() -> Refusal {
    Refusal::said("READONLY You can't write against a read only replica.")
}

/// The keys of these requests.
pub(crate) fn keys<'a>(steps: &[(&'static Command, Request<'a>)]) -> impl Iterator<Item = &'a [u8]> {
    steps.iter().flat_map(|(command, request)| command.positions(*request).map(|at| request.word(at)))
}

/// How many of these keys exist. Their shards are locked.
pub(crate) fn count_present(view: &mut View<'_>, keys: &[&[u8]]) -> usize {
    keys.iter().filter(|key| matches!(view.entry(key), Entry::Occupied(_))).count()
}
