//! The groups of slots of a cluster in etcd, each of which has a leader of its own.
//!
//! Owns    who leads each group, as a process knows it.
//! Rule    a group has the same range of slots for ever. Only its leader changes.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;

use super::cluster::ClusterNode;
use crate::types::slot;

/// A group, with all others.
#[derive(Clone, Debug)]
pub struct SlotGroup {
    /// Its number, from 0 on.
    pub number: u16,
    slots: RangeInclusive<u16>,
    all: Arc<[OtherGroup]>,
}

#[derive(Debug)]
struct OtherGroup {
    slots: RangeInclusive<u16>,
    leader: Mutex<Option<ClusterNode>>,
}

impl SlotGroup {
    /// So many groups, which know each other.
    pub fn all(count: u16) -> Vec<Self> {
        let other = |slots| OtherGroup { slots, leader: Mutex::default() };
        let all: Arc<[OtherGroup]> = slot::ranges(count).map(other).collect();
        let group = |(number, slots)| Self { number, slots, all: Arc::clone(&all) };
        (0..).zip(slot::ranges(count)).map(group).collect()
    }

    /// How many groups there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The slots of this group.
    pub fn slots(&self) -> &RangeInclusive<u16> {
        &self.slots
    }

    /// Whether the slot is in this group.
    pub fn has(&self, slot: u16) -> bool {
        self.slots.contains(&slot)
    }

    /// Notes who leads this group, if anybody does.
    pub fn set_leader(&self, leader: Option<ClusterNode>) {
        if let Some(group) = self.all.get(usize::from(self.number)) {
            *group.leader.lock() = leader;
        }
    }

    /// Who leads the group of a slot; `None`: nobody, as far as is known.
    pub(crate) fn leader_of(&self, slot: u16) -> Option<ClusterNode> {
        self.all.iter().find(|group| group.slots.contains(&slot))?.leader.lock().clone()
    }

    /// The leaders that are known, each with the number and the slots of its group, in the order of these.
    pub fn leaders(&self) -> Vec<(u16, RangeInclusive<u16>, ClusterNode)> {
        let led = |(number, group): (u16, &OtherGroup)| {
            Some((number, group.slots.clone(), group.leader.lock().clone()?))
        };
        (0..).zip(self.all.iter()).filter_map(led).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_in_one_group_which_is_told_of_everywhere() {
        for count in [1, 2, 3, 8, 64] {
            let groups = SlotGroup::all(count);
            for slot in 0..slot::SLOTS {
                assert_eq!(groups.iter().filter(|group| group.has(slot)).count(), 1, "{slot} of {count}");
            }
        }
        let [first, second] = &SlotGroup::all(2)[..] else { panic!("two groups") };
        let node = |port| ClusterNode { host: "a".to_owned(), port, ..ClusterNode::default() };
        assert_eq!((first.leader_of(0), first.leaders()), (None, vec![]));
        second.set_leader(Some(node(7)));
        assert_eq!(first.leader_of(16_383), Some(node(7)));
        assert_eq!(first.leaders(), [(1, 8192..=16_383, node(7))]);
        second.set_leader(None);
        assert_eq!(second.leaders(), []);
    }
}
