//! Replicas in a cluster of a test: the writes of a master reach them at once, unless the test holds them back; one of them
//! takes over when the master has failed.
//!
//! Owns    [`Stream`], the way from a node to its replicas, and the failover.
//! Locks   shards of the master, then its stream, then shards of a replica. A stream gets a replica while the table of slots
//!         is locked, so that no request runs, and after all that lead elsewhere have lost theirs.
//! Rule    what a replica gets is applied without a record or an event: nobody who waits at a replica is woken.
//! Source  Redis 7.0 `cluster.c`, `clusterHandleSlaveFailover`, `clusterDelSlot`; `replication.c`, `waitCommand`.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;

use super::moving::leave_clients;
use super::{Elsewhere, Peers};
use crate::commands::Shared;
use crate::journal::{Journal, Mutations, Record};
use crate::state::slot_map::SlotTable;
use crate::state::wait::Pending;
use crate::types::slot::slot as slot_of;

/// The way of a node's writes to its replicas.
#[derive(Debug)]
pub struct Stream {
    /// Bytes of the effects that the node has, its own and those of its master.
    offset: AtomicU64,
    /// Whether its replicas get what it writes.
    is_on: AtomicBool,
    /// The replicas that have all that it has written, by their numbers.
    replicas: RwLock<Vec<(u16, Weak<Shared>)>>,
    /// Calls of WAIT, each with how many replicas it waits for.
    waits: Mutex<Vec<(usize, Pending)>>,
}

/// The offset of a new node. A Redis begins with the 14 bytes of a PING.
const FIRST_OFFSET: u64 = 14;

impl Default for Stream {
    fn default() -> Self {
        Self {
            offset: AtomicU64::new(FIRST_OFFSET),
            is_on: AtomicBool::new(true),
            replicas: RwLock::default(),
            waits: Mutex::default(),
        }
    }
}

impl Journal for Stream {
    fn append(&self, record: &Record<'_>) {
        self.send(record.mutations);
    }
}

impl Stream {
    /// Gives these effects to the replicas.
    pub(super) fn send(&self, mutations: &Mutations) {
        let replicas = self.replicas.read();
        let bytes = mutations.bytes();
        let offset = self.offset.fetch_add(bytes, SeqCst).saturating_add(bytes);
        let reached: Vec<_> = replicas.iter().filter_map(|(_, replica)| replica.upgrade()).collect();
        if reached.is_empty() {
            return;
        }
        let mutations = mutations.to_vec();
        for replica in reached {
            let mut replay = replica.keyspace.replay();
            replay.at(replica.clock.now().lock);
            mutations.iter().for_each(|mutation| replay.apply(mutation));
            if let Some(stream) = replica.peers.as_ref().and_then(Peers::stream) {
                stream.offset.fetch_max(offset, SeqCst);
            }
        }
    }

    /// The tokens of the replicas rise above this one.
    pub(super) fn raise_tokens(&self, to: u64) {
        let replicas = self.replicas.read();
        replicas.iter().filter_map(|(_, replica)| replica.upgrade()).for_each(|replica| {
            replica.keyspace.raise_tokens(to);
        });
    }

    /// Answers a call of WAIT when so many replicas have all that the node has written.
    pub(crate) fn wait(&self, replicas: usize, pending: Pending) {
        let mut waits = self.waits.lock();
        waits.retain(|(_, pending)| !pending.wait.claim.is_taken());
        waits.push((replicas, pending));
    }

    /// Answers the calls of WAIT that so many replicas are enough for.
    fn answer_waits(&self, acknowledged: usize) {
        self.waits.lock().retain(|(replicas, pending)| {
            let is_met = *replicas <= acknowledged;
            if is_met {
                pending.answer(|reply| reply.count(acknowledged));
            }
            !is_met
        });
    }
}

impl Peers {
    /// The stream of this node; `None`: the cluster has no replicas.
    pub fn stream(&self) -> Option<&Arc<Stream>> {
        self.stream_of(self.me)
    }

    fn stream_of(&self, node: u16) -> Option<&Arc<Stream>> {
        self.streams.get(usize::from(node).checked_sub(1)?)
    }

    /// Bytes of effects that a node has; 0 in a cluster without replicas.
    pub(crate) fn offset(&self, node: u16) -> u64 {
        self.stream_of(node).map_or(0, |stream| stream.offset.load(SeqCst))
    }

    /// Whether this node is a replica.
    pub fn is_replica(&self) -> bool {
        !self.streams.is_empty() && self.slots.hold().master(self.me).is_some()
    }

    /// The replicas of a node that answer, in the order of their numbers.
    pub(crate) fn replicas(&self, node: u16) -> Vec<u16> {
        answering_replicas(&self.slots.hold(), node)
    }

    /// Sends a message to the subscribers at the other nodes of this node's shard.
    pub(crate) fn publish_to_shard(&self, channel: &[u8], message: &[u8]) {
        if self.streams.is_empty() {
            return;
        }
        let table = self.slots.hold();
        let head = table.master(self.me).unwrap_or(self.me);
        let others =
            answering_replicas(&table, head).into_iter().chain([head]).filter(|node| *node != self.me);
        others.filter_map(|node| self.node(node)).for_each(|shared| {
            shared.registries.channels.publish_to_shard(channel, message);
        });
    }

    /// Ends the subscriptions to shard channels at the nodes that have lost the slots of these, and at those that have
    /// another master now, as Redis does. A node that does not answer learns of it later. Called with the table locked.
    pub(super) fn end_shard_channels(&self, table: &SlotTable, has_new_master: impl Fn(u16) -> bool) {
        for (number, node) in self.all().filter(|(number, _)| !table.is_silent(*number)) {
            let head = table.master(number).unwrap_or(number);
            let is_lost = |channel: &[u8]| table.owner(slot_of(channel)) != head;
            let all = has_new_master(number);
            node.registries.channels.end_shard_channels(|channel| all || is_lost(channel));
        }
    }

    /// How many replicas have all that this node has written.
    pub(crate) fn acknowledged(&self) -> usize {
        let has_all = |replica: &&u16| self.offset(**replica) == self.offset(self.me);
        self.replicas(self.me).iter().filter(has_all).count()
    }

    /// Reads the table of slots for as long as a request runs, after every failover that is due.
    pub fn hold(&self) -> RwLockReadGuard<'_, SlotTable> {
        self.fail_over();
        self.slots.hold()
    }

    /// Notes that a node answers the others from now on, or that it does not. Waits until no request runs.
    pub fn set_answers(&self, node: u16, answers: bool) {
        let mut table = self.slots.change();
        let before = table.clone();
        self.slots.note_answers(&mut table, node, answers);
        self.link(&table);
        self.end_shard_channels(&table, |node| table.master(node) != before.master(node));
    }

    /// Whether what a node writes reaches its replicas from now on. Waits until no request runs.
    ///
    /// # Errors
    /// The cluster has no replicas.
    pub fn set_replication(&self, node: u16, is_on: bool) -> Result<(), Refusal> {
        let stream = self.stream_of(node);
        let stream = stream.ok_or(Refusal::said("ERR no node of this server has a replica"))?;
        let table = self.slots.change();
        stream.is_on.store(is_on, SeqCst);
        self.link(&table);
        Ok(())
    }

    /// When the next replica takes over, if a master does not answer that has one.
    pub fn next_failover(&self) -> Option<LockTime> {
        self.slots.next_failover(&self.slots.hold()).map(|(at, _)| at)
    }

    /// Has replicas take over from masters that have failed. While a request runs it does nothing: the next call does it.
    pub(crate) fn fail_over(&self) {
        if self.streams.is_empty() || self.slots.due_failover(&self.slots.hold()).is_none() {
            return;
        }
        let Some(mut table) = self.slots.try_change() else { return };
        while let Some(master) = self.slots.due_failover(&table) {
            let candidates = answering_replicas(&table, master).into_iter();
            let Some(replica) = candidates.max_by_key(|node| (self.offset(*node), Reverse(*node))) else {
                return;
            };
            table.take_over(replica);
            self.link(&table);
            self.end_shard_channels(&table, |node| table.master(node) == Some(replica));
            self.promote(master, replica);
        }
    }

    /// A replica goes on with the locks of its master, as far as it has them. The clients that wait at the master are sent
    /// there.
    fn promote(&self, master: u16, replica: u16) {
        if let Some(master) = self.node(master) {
            for client in master.registries.clients.all() {
                if let Some(key) = client.waits_for(1).first() {
                    let refusal = Elsewhere::Moved(replica).refusal(slot_of(key), &client, &master);
                    client.unblock(Some(&refusal.text()));
                }
            }
        }
        if let Some(shared) = self.node(replica) {
            let now = shared.clock.now();
            shared.keyspace.rewrite(now.lock, |entry| leave_clients(entry, now.lock));
            if let Some(extension) = &shared.extension {
                extension.has_taken_over(now, replica, master);
            }
        }
    }

    /// Has each stream reach the replicas that it should. Called with the table locked.
    pub(super) fn link(&self, table: &SlotTable) {
        for (node, stream) in (1..).zip(&*self.streams) {
            let wanted = reached(table, node, stream);
            stream.replicas.write().retain(|(replica, _)| wanted.contains(replica));
        }
        for (node, stream) in (1..).zip(&*self.streams) {
            let linked: Vec<u16> = stream.replicas.read().iter().map(|(replica, _)| *replica).collect();
            let wanted = reached(table, node, stream);
            wanted.iter().filter(|replica| !linked.contains(replica)).for_each(|replica| {
                self.copy(node, *replica);
            });
            let has_all = |replica: &u16| self.offset(*replica) == self.offset(node);
            stream.answer_waits(answering_replicas(table, node).into_iter().filter(has_all).count());
        }
    }

    /// Makes a replica what its master is, and has it get what that writes.
    fn copy(&self, master: u16, replica: u16) {
        let (Some(source), Some(target)) = (self.node(master), self.node(replica)) else { return };
        let (Some(stream), Some(theirs)) = (self.stream_of(master), self.stream_of(replica)) else { return };
        source.keyspace.copy_to(&target.keyspace, target.clock.now().lock, || {
            theirs.offset.store(stream.offset.load(SeqCst), SeqCst);
            stream.replicas.write().push((replica, Arc::downgrade(&target)));
        });
    }
}

fn answering_replicas(table: &SlotTable, master: u16) -> Vec<u16> {
    table.replicas(master).filter(|replica| !table.is_silent(*replica)).collect()
}

/// The replicas that get what a node writes.
fn reached(table: &SlotTable, node: u16, stream: &Stream) -> Vec<u16> {
    match stream.is_on.load(SeqCst) && !table.is_silent(node) {
        true => answering_replicas(table, node),
        false => Vec::new(),
    }
}
