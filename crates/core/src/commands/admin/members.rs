//! The nodes of a cluster with their slots: one that has all, or in tests several.
//!
//! Source  Redis 7.0 `cluster.c`, `clusterGenNodeDescription`.

use std::ops::RangeInclusive;

use crate::commands::Call;
use crate::commands::admin::slot_owner::SlotOwner;
use crate::commands::peers::Peers;
use crate::state::cluster::ClusterNode;
use crate::state::slot_groups::SlotGroup;
use crate::types::slot::SLOTS;

/// A node of the cluster, as the client of a call is told.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) owner: SlotOwner,
    pub(super) is_me: bool,
    /// The id of its master, if it is a replica.
    pub(super) master: Option<String>,
    /// Bytes of effects that it has.
    pub(super) offset: u64,
    pub(super) has_failed: bool,
    pub(super) epoch: u16,
    /// Its slots, in their order.
    pub(super) ranges: Vec<RangeInclusive<u16>>,
    /// Its slots that are moving, as CLUSTER NODES shows them to the node itself.
    moving: String,
}

/// All nodes of the cluster, in the order of their numbers.
pub(super) fn members(call: &Call<'_, '_>) -> Vec<Member> {
    let client = &call.session.client;
    if let Some(group) = call.shared.group() {
        return leaders(call, group);
    }
    let Some(peers) = &call.shared.peers else {
        return vec![Member {
            owner: SlotOwner::told_to(client, call.shared, call.shared),
            is_me: true,
            master: None,
            offset: 0,
            has_failed: false,
            epoch: 0,
            ranges: vec![0..=SLOTS.saturating_sub(1)],
            moving: String::new(),
        }];
    };
    let told = peers.all().map(|(number, shared)| (number, SlotOwner::told_to(client, call.shared, &shared)));
    let owners: Vec<(u16, SlotOwner)> = told.collect();
    let (moving, held) = (moving(peers, &owners), peers.slots.hold());
    let table = held.told_by(peers.me);
    let id = |number| peers.node(number).map(|shared| shared.instance.run_id.clone());
    let member = |(number, owner): (u16, SlotOwner)| Member {
        owner,
        is_me: number == peers.me,
        master: table.master(number).and_then(id),
        offset: peers.offset(number),
        has_failed: peers.slots.has_failed(number),
        epoch: table.epoch(number),
        ranges: table.ranges().filter(|(_, owner)| *owner == number).map(|(range, _)| range).collect(),
        moving: if number == peers.me { moving.clone() } else { String::new() },
    };
    owners.into_iter().map(member).collect()
}

/// The leaders of all groups that have one, in the order of their slots.
fn leaders(call: &Call<'_, '_>, group: &SlotGroup) -> Vec<Member> {
    let member = |(number, slots, leader): (u16, RangeInclusive<u16>, ClusterNode)| Member {
        owner: SlotOwner::of_leader(&call.session.client, call.shared, &leader),
        is_me: number == group.number,
        master: None,
        offset: 0,
        has_failed: false,
        epoch: 0,
        ranges: vec![slots],
        moving: String::new(),
    };
    group.leaders().into_iter().map(member).collect()
}

/// The replicas of a node that are among these, in their order.
pub(super) fn replicas_of<'m>(members: &'m [Member], master: &Member) -> impl Iterator<Item = &'m Member> {
    let id = master.owner.id().to_owned();
    members.iter().filter(move |member| member.master.as_ref() == Some(&id))
}

/// The slots that are moving from this node or to it.
fn moving(peers: &Peers, owners: &[(u16, SlotOwner)]) -> String {
    let table = peers.slots.hold();
    let id =
        |number: u16| owners.iter().find(|(other, _)| *other == number).map_or("", |(_, owner)| owner.id());
    let shown = |(slot, target): (u16, u16)| match table.owner(slot) {
        owner if owner == peers.me => format!(" [{slot}->-{}]", id(target)),
        owner if target == peers.me => format!(" [{slot}-<-{}]", id(owner)),
        _ => String::new(),
    };
    table.moving().map(shown).collect()
}

impl Member {
    /// The line of CLUSTER NODES.
    pub(super) fn line(&self) -> String {
        let range = |range: &RangeInclusive<u16>| match (range.start(), range.end()) {
            (first, last) if first == last => format!(" {first}"),
            (first, last) => format!(" {first}-{last}"),
        };
        let role = if self.master.is_some() { "slave" } else { "master" };
        let flags = if self.is_me { format!("myself,{role}") } else { role.to_owned() };
        let master = self.master.as_deref().unwrap_or("-");
        let (failed, link) = if self.has_failed { (",fail", "disconnected") } else { ("", "connected") };
        let slots: String = self.ranges.iter().map(range).collect();
        let (start, epoch, moving) = (self.owner.line_start(), self.epoch, &self.moving);
        format!("{start} {flags}{failed} {master} 0 0 {epoch} {link}{slots}{moving}\n")
    }
}
