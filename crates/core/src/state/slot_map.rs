//! The slots of a cluster of several nodes: who has each, which ones are moving, and which nodes have failed.
//!
//! Owns    the table that the engines of all nodes read.
//! Rule    nodes are numbered from 1 on. All of them see a change at once: there is no gossip, and no node is wrong.
//! Locks   a request holds the table from its check to its end, so that no slot moves in between.
//! Source  Redis 7.0 `cluster.c`, `getNodeByQuery`; `redis-cli.c`, `clusterManagerCommandCreate`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use redlatch_proto::clock::{Clock, LockTime};

use crate::types::slot;

/// The slots of a cluster of several nodes.
pub struct SlotMap {
    table: RwLock<SlotTable>,
    clock: Arc<dyn Clock>,
    /// `cluster-node-timeout`.
    timeout_ms: u64,
}

/// Who has each slot, and who is the replica of whom.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlotTable {
    /// The owner of each slot.
    owners: Vec<u16>,
    /// Where the slots go that are moving.
    moving: BTreeMap<u16, u16>,
    /// The nodes that do not answer, and since when.
    silent: BTreeMap<u16, LockTime>,
    /// The master of each replica.
    masters: BTreeMap<u16, u16>,
    /// The masters whose slots a replica has taken over, each with that one, until they are its replicas.
    successors: BTreeMap<u16, u16>,
    /// The epoch of each node, in the order of their numbers.
    epochs: Vec<u16>,
    /// What those nodes tell that have not heard of later changes.
    frozen: BTreeMap<u16, Box<SlotTable>>,
}

/// The nodes of a new cluster.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Members {
    /// All of them.
    pub nodes: u16,
    /// The replicas of each master.
    pub replicas: u16,
}

/// A request at a node, whose keys are in one slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SlotRequest {
    pub slot: u16,
    /// ASKING.
    pub is_asking: bool,
    /// Whether a replica may serve it: it only reads, and its client has sent READONLY, or it is about a shard channel.
    pub may_be_at_replica: bool,
}

/// Where a request goes whose keys are in one slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// The slot is moving here, and the client asks for it.
    Arriving,
    Here,
    /// The slot is moving from here to this node: keys may be there already.
    Leaving(u16),
    /// A node has failed, and with it its slots; or this node does not hear the others.
    NotOk,
    /// This node has the slot.
    There(u16),
}

impl Members {
    /// Those that begin as masters: the first ones.
    pub fn masters(self) -> u16 {
        self.nodes / (self.replicas + 1)
    }
}

impl SlotMap {
    /// The slots of a new cluster, shared out evenly among its masters. A node that is silent for `timeout_ms` has
    /// failed.
    pub fn new(members: Members, clock: Arc<dyn Clock>, timeout_ms: u64) -> Self {
        Self { table: RwLock::new(SlotTable::new(members)), clock, timeout_ms }
    }

    /// Reads the table, also while it is held.
    pub fn hold(&self) -> RwLockReadGuard<'_, SlotTable> {
        self.table.read_recursive()
    }

    /// Waits until nobody holds the table. The caller must not hold it.
    pub fn change(&self) -> RwLockWriteGuard<'_, SlotTable> {
        self.table.write()
    }

    /// Like [`SlotMap::change`]; `None`: somebody holds the table.
    pub(crate) fn try_change(&self) -> Option<RwLockWriteGuard<'_, SlotTable>> {
        self.table.try_write()
    }

    /// Notes that a node answers from now on, or that it does not.
    pub(crate) fn note_answers(&self, table: &mut SlotTable, node: u16, answers: bool) {
        match answers {
            true => table.silent.remove(&node),
            false => Some(*table.silent.entry(node).or_insert_with(|| self.clock.now().lock)),
        };
        table.demote();
    }

    /// Whether a node has not answered for longer than the timeout.
    pub fn has_failed(&self, node: u16) -> bool {
        self.fails(self.hold().silent.get(&node))
    }

    fn fails(&self, silent_since: Option<&LockTime>) -> bool {
        silent_since.is_some_and(|since| self.clock.now().lock.millis_since(*since) > self.timeout_ms)
    }

    /// How many slots have failed with their nodes. The cluster is not ok unless that is 0.
    pub(crate) fn failed_slots(&self) -> usize {
        let table = self.hold();
        let failed = |node: &u16| self.fails(table.silent.get(node));
        if table.silent.is_empty() { 0 } else { table.owners.iter().filter(|node| failed(node)).count() }
    }

    /// Whether a node serves no key: slots have failed, or it has not heard the others for longer than the timeout.
    pub(crate) fn is_down_at(&self, node: u16) -> bool {
        self.has_failed(node) || self.failed_slots() > 0
    }

    /// When the next replica takes over, and from which master, if a master does not answer that has one.
    pub fn next_failover(&self, table: &SlotTable) -> Option<(LockTime, u16)> {
        let due = |(node, since): (&u16, &LockTime)| (*since + self.timeout_ms + 1, *node);
        table.silent.iter().filter(|(node, _)| table.is_replaceable(**node)).map(due).min()
    }

    /// The master from which a replica is to take over now.
    pub(crate) fn due_failover(&self, table: &SlotTable) -> Option<u16> {
        let (at, master) = self.next_failover(table)?;
        (at <= self.clock.now().lock).then_some(master)
    }

    /// Where a request at this node goes. One that is about a shard channel is served while a node has failed.
    pub fn route(&self, me: u16, request: SlotRequest, is_of_channel: bool) -> Route {
        if !is_of_channel && self.is_down_at(me) {
            return Route::NotOk;
        }
        let (table, slot) = (self.hold(), request.slot);
        match (table.owner(slot), table.target(slot)) {
            (owner, Some(target)) if owner == me => Route::Leaving(target),
            (owner, _) if owner == me => Route::Here,
            (_, Some(target)) if target == me && request.is_asking => Route::Arriving,
            (owner, _) if request.may_be_at_replica && table.master(me) == Some(owner) => Route::Here,
            (owner, _) => match table.told_by(me).owner(slot) {
                told if told == me => Route::There(owner),
                told => Route::There(told),
            },
        }
    }
}

impl SlotTable {
    /// Each master has a range, in the order of their numbers: the ranges of `redis-cli --cluster create`. The other nodes
    /// are replicas of the masters in turn.
    fn new(members: Members) -> Self {
        let masters = members.masters();
        let owners = (1..).zip(slot::ranges(masters)).flat_map(|(node, range)| range.map(move |_| node));
        Self {
            owners: owners.collect(),
            moving: BTreeMap::new(),
            silent: BTreeMap::new(),
            masters: (masters + 1..=members.nodes).zip((1..=masters).cycle()).collect(),
            successors: BTreeMap::new(),
            epochs: (1..=members.nodes).collect(),
            frozen: BTreeMap::new(),
        }
    }

    pub fn owner(&self, slot: u16) -> u16 {
        self.owners[usize::from(slot)]
    }

    /// Where the slot is moving; `None`: it is not.
    pub fn target(&self, slot: u16) -> Option<u16> {
        self.moving.get(&slot).copied()
    }

    /// The slots that are moving, and where.
    pub fn moving(&self) -> impl Iterator<Item = (u16, u16)> {
        self.moving.iter().map(|(slot, target)| (*slot, *target))
    }

    /// The slots in ranges, each with its owner, in their order.
    pub fn ranges(&self) -> impl Iterator<Item = (RangeInclusive<u16>, u16)> {
        let mut next = 0;
        self.owners.chunk_by(|a, b| a == b).map(move |run| {
            let first = next;
            next += run.len() as u16;
            (first..=next - 1, run[0])
        })
    }

    pub fn is_silent(&self, node: u16) -> bool {
        self.silent.contains_key(&node)
    }

    /// The master of a replica; `None`: the node is a master.
    pub fn master(&self, node: u16) -> Option<u16> {
        self.masters.get(&node).copied()
    }

    /// The replicas of a master, in the order of their numbers.
    pub fn replicas(&self, master: u16) -> impl Iterator<Item = u16> {
        self.masters.iter().filter(move |(_, of)| **of == master).map(|(replica, _)| *replica)
    }

    /// The epoch of a node: a replica has that of its master.
    pub fn epoch(&self, node: u16) -> u16 {
        self.epochs[usize::from(self.master(node).unwrap_or(node)) - 1]
    }

    pub fn current_epoch(&self) -> u16 {
        self.epochs.iter().copied().max().unwrap_or_default()
    }

    /// The table as a node tells clients of it.
    pub(crate) fn told_by(&self, node: u16) -> &Self {
        self.frozen.get(&node).map_or(self, |frozen| frozen)
    }

    /// The node tells of the slots as they are now, whatever changes later.
    pub fn freeze(&mut self, node: u16) {
        let now = Self { frozen: BTreeMap::new(), ..self.clone() };
        self.frozen.insert(node, Box::new(now));
    }

    /// The node tells of the slots as they are.
    pub fn thaw(&mut self, node: u16) {
        self.frozen.remove(&node);
    }

    /// The slot begins to move to a node that does not have it.
    pub(crate) fn begin_move(&mut self, slot: u16, to: u16) {
        self.moving.insert(slot, to);
    }

    /// The node to which the slot is moving has it now.
    pub(crate) fn end_move(&mut self, slot: u16) {
        if let Some(target) = self.moving.remove(&slot) {
            self.owners[usize::from(slot)] = target;
        }
    }

    /// Whether a replica can take over from a silent node: it has slots, one of its replicas answers, and so does the
    /// majority of the masters with slots, which have to agree.
    fn is_replaceable(&self, node: u16) -> bool {
        let voters: BTreeSet<u16> = self.ranges().map(|(_, owner)| owner).collect();
        let answering = voters.iter().filter(|voter| !self.is_silent(**voter)).count();
        voters.contains(&node)
            && answering > voters.len() / 2
            && self.replicas(node).any(|replica| !self.is_silent(replica))
    }

    /// A replica has the slots of its master from now on, and the other replicas. Slots that are moving from or to the master
    /// stay where they are.
    pub(crate) fn take_over(&mut self, replica: u16) {
        let Some(master) = self.masters.remove(&replica) else { return };
        self.moving.retain(|slot, target| self.owners[usize::from(*slot)] != master && *target != master);
        let same = |node: &&mut u16| **node == master;
        self.owners.iter_mut().filter(same).for_each(|owner| *owner = replica);
        self.masters.values_mut().filter(same).for_each(|of| *of = replica);
        self.successors.values_mut().filter(same).for_each(|successor| *successor = replica);
        self.successors.insert(master, replica);
        self.epochs[usize::from(replica) - 1] = self.current_epoch() + 1;
    }

    /// A master that answers again becomes the replica of the one that has taken over, once that one answers, too.
    fn demote(&mut self) {
        let (silent, masters) = (&self.silent, &mut self.masters);
        self.successors.retain(|master, successor| {
            let stays = silent.contains_key(master) || silent.contains_key(successor);
            if !stays {
                masters.insert(*master, *successor);
            }
            stays
        });
    }
}

impl std::fmt::Debug for SlotMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotMap").field("table", &self.table).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlatch_proto::clock::Now;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[derive(Default)]
    struct HandClock(AtomicU64);

    impl Clock for HandClock {
        fn now(&self) -> Now {
            Now { lock: LockTime::from_millis(self.0.load(Relaxed)), wall_offset_ms: 0 }
        }

        fn micros(&self) -> u64 {
            0
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    fn of(nodes: u16) -> Members {
        Members { nodes, replicas: 0 }
    }

    fn map(members: Members) -> (SlotMap, Arc<HandClock>) {
        let clock = Arc::new(HandClock::default());
        (SlotMap::new(members, Arc::clone(&clock) as Arc<dyn Clock>, 10), clock)
    }

    fn asks(slot: u16, is_asking: bool) -> SlotRequest {
        SlotRequest { slot, is_asking, may_be_at_replica: false }
    }

    fn set_answers(map: &SlotMap, node: u16, answers: bool) {
        map.note_answers(&mut map.change(), node, answers);
    }

    fn ranges(table: &SlotTable) -> Vec<(u16, u16, u16)> {
        table.ranges().map(|(range, owner)| (*range.start(), *range.end(), owner)).collect()
    }

    /// The ranges of three and of five nodes are those of `redis-cli --cluster create` 7.0.15.
    #[test]
    fn the_slots_are_shared_out_as_by_redis_cli() {
        assert_eq!(ranges(&SlotTable::new(of(1))), [(0, 16_383, 1)]);
        assert_eq!(ranges(&SlotTable::new(of(3))), [(0, 5460, 1), (5461, 10_922, 2), (10_923, 16_383, 3)]);
        let starts =
            |nodes| ranges(&SlotTable::new(of(nodes))).iter().map(|range| range.0).collect::<Vec<_>>();
        assert_eq!(starts(5), [0, 3277, 6554, 9830, 13_107]);
        for nodes in 1..=64 {
            let table = SlotTable::new(of(nodes));
            assert_eq!((table.owners.len(), ranges(&table).len()), (16_384, usize::from(nodes)));
        }
    }

    #[test]
    fn a_slot_that_is_moving_is_served_by_its_owner_and_to_who_asks() {
        let (map, _) = map(of(3));
        let routes = |is_asking| [1, 2, 3].map(|me| map.route(me, asks(7, is_asking), false));
        assert_eq!(routes(true), [Route::Here, Route::There(1), Route::There(1)]);
        map.change().begin_move(7, 3);
        assert_eq!(routes(false), [Route::Leaving(3), Route::There(1), Route::There(1)]);
        assert_eq!(routes(true), [Route::Leaving(3), Route::There(1), Route::Arriving]);
        map.change().end_move(7);
        assert_eq!(routes(false), [Route::There(3), Route::There(3), Route::Here]);
        let expected = [(0, 6, 1), (7, 7, 3), (8, 5460, 1), (5461, 10_922, 2), (10_923, 16_383, 3)];
        assert_eq!(ranges(&map.hold()), expected);
    }

    #[test]
    fn a_node_fails_when_it_has_been_silent_for_longer_than_the_timeout() {
        let (map, clock) = map(of(3));
        let route = |is_of_channel| map.route(1, asks(7, false), is_of_channel);
        set_answers(&map, 2, false);
        clock.0.store(10, Relaxed);
        // It is silent since its first failure to answer.
        set_answers(&map, 2, false);
        assert_eq!((route(false), map.failed_slots()), (Route::Here, 0));
        clock.0.store(11, Relaxed);
        assert_eq!((route(false), map.failed_slots()), (Route::NotOk, 5462));
        assert_eq!(route(true), Route::Here, "a shard channel");
        assert_eq!([1, 2, 3].map(|node| map.has_failed(node)), [false, true, false]);
        assert_eq!(map.due_failover(&map.hold()), None, "there is no replica");
        set_answers(&map, 2, true);
        assert_eq!((route(false), map.failed_slots()), (Route::Here, 0));
    }

    #[test]
    fn a_replica_takes_over_after_the_timeout_and_the_master_follows_it() {
        let (map, clock) = map(Members { nodes: 6, replicas: 1 });
        assert_eq!([1, 4, 5, 6].map(|node| map.hold().master(node)), [None, Some(1), Some(2), Some(3)]);
        set_answers(&map, 1, false);
        assert_eq!(map.next_failover(&map.hold()), Some((LockTime::from_millis(11), 1)));
        clock.0.store(10, Relaxed);
        assert_eq!(map.due_failover(&map.hold()), None);
        clock.0.store(11, Relaxed);
        assert_eq!(map.due_failover(&map.hold()), Some(1));
        map.change().take_over(4);
        let table = map.hold();
        assert_eq!((table.owner(0), table.epoch(4), table.current_epoch()), (4, 7, 7));
        assert_eq!((table.master(1), map.due_failover(&table)), (None, None));
        drop(table);
        // It does not become the replica of a node that does not answer.
        set_answers(&map, 4, false);
        set_answers(&map, 1, true);
        assert_eq!(map.hold().master(1), None);
        set_answers(&map, 4, true);
        assert_eq!((map.hold().master(1), map.hold().epoch(1)), (Some(4), 7));
    }

    #[test]
    fn no_replica_takes_over_without_the_majority_of_the_masters() {
        let (map, clock) = map(Members { nodes: 6, replicas: 1 });
        set_answers(&map, 1, false);
        set_answers(&map, 2, false);
        clock.0.store(11, Relaxed);
        assert_eq!(map.due_failover(&map.hold()), None);
        set_answers(&map, 2, true);
        set_answers(&map, 4, false);
        assert_eq!(map.due_failover(&map.hold()), None, "its replica does not answer");
        set_answers(&map, 4, true);
        assert_eq!(map.due_failover(&map.hold()), Some(1));
    }

    #[test]
    fn a_frozen_node_tells_of_the_owners_as_they_were() {
        let (map, _) = map(of(3));
        let routes = || [1, 2, 3].map(|me| map.route(me, asks(7, false), false));
        map.change().freeze(1);
        map.change().freeze(2);
        map.change().begin_move(7, 3);
        map.change().end_move(7);
        assert_eq!(
            routes(),
            [Route::There(3), Route::There(1), Route::Here],
            "nobody sends clients to itself"
        );
        map.change().thaw(2);
        assert_eq!(routes()[1], Route::There(3));
    }
}
