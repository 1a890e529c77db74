//! The slots of a cluster of several nodes: who has each, which ones are moving, and which nodes have failed.
//!
//! Owns    the table that the engines of all nodes read.
//! Rule    nodes are numbered from 1 on. All of them see a change at once: there is no gossip, and no node is wrong.
//! Locks   a request holds the table from its check to its end, so that no slot moves in between.
//! Source  Redis 7.0 `cluster.c`, `getNodeByQuery`; `redis-cli.c`, `clusterManagerCommandCreate`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use redlatch_proto::clock::{Clock, LockTime};

use crate::types::slot::SLOTS;

/// The slots of a cluster of several nodes.
pub struct SlotMap {
    table: RwLock<SlotTable>,
    clock: Arc<dyn Clock>,
    /// `cluster-node-timeout`.
    timeout_ms: u64,
}

/// Who has each slot.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlotTable {
    /// The owner of each slot.
    owners: Vec<u16>,
    /// Where the slots go that are moving.
    moving: BTreeMap<u16, u16>,
    /// The nodes that do not answer, and since when.
    silent: BTreeMap<u16, LockTime>,
}

/// Where a request goes whose keys are in one slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// The slot is moving here, and the client asks for it.
    Arriving,
    Here,
    /// The slot is moving from here to this node: keys may be there already.
    Leaving(u16),
    /// A node has failed, and with it its slots.
    NotOk,
    /// This node has the slot.
    There(u16),
}

impl SlotMap {
    /// The slots of a new cluster, shared out evenly among so many nodes. A node that is silent for `timeout_ms` has failed.
    pub fn new(nodes: u16, clock: Arc<dyn Clock>, timeout_ms: u64) -> Self {
        Self { table: RwLock::new(SlotTable::new(nodes)), clock, timeout_ms }
    }

    /// Reads the table, also while it is held.
    pub fn hold(&self) -> RwLockReadGuard<'_, SlotTable> {
        self.table.read_recursive()
    }

    /// Waits until nobody holds the table. The caller must not hold it.
    pub fn change(&self) -> RwLockWriteGuard<'_, SlotTable> {
        self.table.write()
    }

    /// Notes that a node answers from now on, or that it does not.
    pub fn set_answers(&self, node: u16, answers: bool) {
        let mut table = self.change();
        match answers {
            true => table.silent.remove(&node),
            false => Some(*table.silent.entry(node).or_insert_with(|| self.clock.now().lock)),
        };
    }

    /// Whether a node has not answered for longer than the timeout.
    pub fn has_failed(&self, node: u16) -> bool {
        self.fails(self.hold().silent.get(&node))
    }

    fn fails(&self, silent_since: Option<&LockTime>) -> bool {
        silent_since.is_some_and(|since| self.clock.now().lock.millis_since(*since) > self.timeout_ms)
    }

    /// How many slots have failed with their nodes. The cluster is not ok unless that is 0.
    pub fn failed_slots(&self) -> usize {
        let table = self.hold();
        let failed = |node: &u16| self.fails(table.silent.get(node));
        if table.silent.is_empty() { 0 } else { table.owners.iter().filter(|node| failed(node)).count() }
    }

    /// Where a request at this node goes. One that is about a shard channel is served while a node has failed.
    pub fn route(&self, me: u16, slot: u16, (is_asking, is_of_channel): (bool, bool)) -> Route {
        if !is_of_channel && self.failed_slots() > 0 {
            return Route::NotOk;
        }
        let table = self.hold();
        match (table.owner(slot), table.target(slot)) {
            (owner, Some(target)) if owner == me => Route::Leaving(target),
            (owner, _) if owner == me => Route::Here,
            (_, Some(target)) if target == me && is_asking => Route::Arriving,
            (owner, _) => Route::There(owner),
        }
    }
}

impl SlotTable {
    /// Each node has a range, in the order of their numbers: the ranges of `redis-cli --cluster create`.
    fn new(nodes: u16) -> Self {
        let share = f64::from(SLOTS) / f64::from(nodes);
        let end = |node: u16| (f64::from(node) * share).round() as usize;
        let owners = (1..=nodes).flat_map(|node| std::iter::repeat_n(node, end(node) - end(node - 1)));
        Self { owners: owners.collect(), moving: BTreeMap::new(), silent: BTreeMap::new() }
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

    /// The slot begins to move to a node that does not have it.
    pub fn begin_move(&mut self, slot: u16, to: u16) {
        self.moving.insert(slot, to);
    }

    /// The node to which the slot is moving has it now.
    pub fn end_move(&mut self, slot: u16) {
        if let Some(target) = self.moving.remove(&slot) {
            self.owners[usize::from(slot)] = target;
        }
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

    fn ranges(table: &SlotTable) -> Vec<(u16, u16, u16)> {
        table.ranges().map(|(range, owner)| (*range.start(), *range.end(), owner)).collect()
    }

    /// The ranges of three and of five nodes are those of `redis-cli --cluster create` 7.0.15.
    #[test]
    fn the_slots_are_shared_out_as_by_redis_cli() {
        assert_eq!(ranges(&SlotTable::new(1)), [(0, 16_383, 1)]);
        assert_eq!(ranges(&SlotTable::new(3)), [(0, 5460, 1), (5461, 10_922, 2), (10_923, 16_383, 3)]);
        let starts = |nodes| ranges(&SlotTable::new(nodes)).iter().map(|range| range.0).collect::<Vec<_>>();
        assert_eq!(starts(5), [0, 3277, 6554, 9830, 13_107]);
        for nodes in 1..=64 {
            let table = SlotTable::new(nodes);
            assert_eq!((table.owners.len(), ranges(&table).len()), (16_384, usize::from(nodes)));
        }
    }

    #[test]
    fn a_slot_that_is_moving_is_served_by_its_owner_and_to_who_asks() {
        let map = SlotMap::new(3, Arc::new(HandClock::default()), 10);
        let routes = |is_asking| [1, 2, 3].map(|me| map.route(me, 7, (is_asking, false)));
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
        let clock = Arc::new(HandClock::default());
        let map = SlotMap::new(3, Arc::clone(&clock) as Arc<dyn Clock>, 10);
        map.set_answers(2, false);
        clock.0.store(10, Relaxed);
        // It is silent since its first failure to answer.
        map.set_answers(2, false);
        assert_eq!((map.route(1, 7, (false, false)), map.failed_slots()), (Route::Here, 0));
        clock.0.store(11, Relaxed);
        assert_eq!((map.route(1, 7, (false, false)), map.failed_slots()), (Route::NotOk, 5462));
        assert_eq!(map.route(1, 7, (false, true)), Route::Here, "a shard channel");
        assert_eq!([1, 2, 3].map(|node| map.has_failed(node)), [false, true, false]);
        map.set_answers(2, true);
        assert_eq!((map.route(1, 7, (false, false)), map.failed_slots()), (Route::Here, 0));
    }
}
