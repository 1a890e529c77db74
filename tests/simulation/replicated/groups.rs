//! Several groups of slots: who leads which, what clients that ask elsewhere are told, and whom a fault may disturb.
//!
//! Laws    those of one group, in each by itself. A node of another group answers with MOVED, which names a node that has had
//!         the epoch, or with CLUSTERDOWN, and grants nothing. In quiet runs, a group whose leader no fault has hit answers
//!         all the time, whatever happens to other machines.
//! Shell   what a node knows of leaders, and when it hands a group over, as in `cluster/node.rs` of the server.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use redlatch_core::replication::cluster::Part;
use redlatch_core::state::cluster::{ClusterFacts, ClusterNode};
use redlatch_core::state::slot_groups::SlotGroup;
use redlatch_core::types::slot::slot;

use super::{BEGIN_MS, CLIENTS, Defect, Event, Link, MACHINES, Node, TAKEOVER_MS, World};
use crate::simulation::crash_clients::{REGISTERS, Told};
use crate::simulation::crash_server::ServerClock;
use crate::simulation::linearizable::Operation;
use crate::simulation::parts::State;
use crate::simulation::replicated_node::{address_of, keys};

/// Canaries of groups.
pub(in crate::simulation) const GROUP_DEFECTS: &[Defect] = &[
    Defect::CommitsWithoutEpoch,
    Defect::IgnoresSlots,
    Defect::KeepsLostGroup,
    Defect::NamesItself,
    Defect::NeedsAllGroups,
];

/// How long after the end of a fault a group whose leader it has hit is served again: after a takeover.
const RECOVERY_MS: u64 = TAKEOVER_MS + 1_500;
/// How long a group that no fault disturbs answers nobody at most.
const SERVICE_MS_MAX: u64 = 800;
/// How long another node has been the one that is to lead a group before this one hands over.
const MOVES_AFTER_MS: u64 = 1_500;

/// One group of slots, and what is known of it.
#[derive(Debug, Default)]
pub(super) struct Group {
    /// What the names of its keys end with: a hash tag. Empty: there is one group.
    pub(super) tag: String,
    pub(super) told: Told,
    /// The histories of the keys that its clients share.
    pub(super) histories: [Vec<Operation>; REGISTERS],
    /// The number of its last leader; the state at the end of that one, if all of it was committed; and its clock.
    pub(super) leader: u64,
    pub(super) state: Option<State>,
    pub(super) clock: Option<Arc<ServerClock>>,
    /// When a client had a reply last, and when one that is no error.
    pub(super) answered_ms: u64,
    served_ms: u64,
    /// Until when a fault may keep it from serving.
    disturbed_until_ms: u64,
    /// The nodes that have had its epoch.
    led: BTreeSet<usize>,
}

impl Group {
    pub(super) fn all(count: usize) -> Vec<Self> {
        let disturbed_until_ms = BEGIN_MS + RECOVERY_MS;
        let group = |tag| Self { tag, answered_ms: BEGIN_MS, disturbed_until_ms, ..Self::default() };
        let tags = (0..).map(|number| format!("{{{number}}}"));
        let tag_of = |slots: SlotGroup| { tags.clone() }.find(|tag| slots.has(slot(tag.as_bytes())));
        match count {
            1 => vec![group(String::new())],
            _ => SlotGroup::all(count as u16).into_iter().filter_map(tag_of).map(group).collect(),
        }
    }
}

impl World {
    pub(super) fn group_of(&self, node: usize) -> usize {
        node % self.groups.len()
    }

    pub(super) fn machine_of(&self, node: usize) -> usize {
        node / self.groups.len()
    }

    /// The nodes of a machine.
    pub(super) fn nodes_of(&self, machine: usize) -> Range<usize> {
        machine * self.groups.len()..(machine + 1) * self.groups.len()
    }

    pub(super) fn group_of_client(&self, who: usize) -> usize {
        who / CLIENTS
    }

    fn has_groups(&self) -> bool {
        self.groups.len() > 1
    }

    pub(in crate::simulation) fn part_of(&self, node: usize) -> Part {
        Part { group: self.group_of(node) as u16, groups: self.groups.len() as u16 }
    }

    /// What the server of a term says of its cluster.
    pub(super) fn facts(&self, node: usize) -> Option<Arc<ClusterFacts>> {
        let slots = &self.slots[self.machine_of(node)][self.group_of(node)];
        let group = (self.defect != Defect::IgnoresSlots).then(|| slots.clone());
        let facts = ClusterFacts::new("locks".to_owned(), cluster_node(node)).with_group(group);
        self.has_groups().then(|| Arc::new(facts))
    }

    /// A process notes who leads a group, for clients that ask for its slots elsewhere.
    pub(in crate::simulation) fn note_leader(&mut self, node: usize, leader: Option<usize>) {
        let leader = if self.defect == Defect::NamesItself { Some(node) } else { leader };
        let slots = &self.slots[self.machine_of(node)][self.group_of(node)];
        slots.set_leader(leader.map(cluster_node));
    }

    /// Notes who has the epoch, after a transaction of this node.
    pub(super) fn note_epoch(&mut self, node: usize) {
        let epoch = self.store.value(&keys(self.part_of(node)).epoch());
        if epoch.is_some_and(|text| text.ends_with(address_of(node).as_bytes())) {
            let group = self.group_of(node);
            self.groups[group].led.insert(node);
        }
    }

    /// A node has lost its group.
    pub(in crate::simulation) fn term_fails(&mut self, node: usize) {
        match self.defect {
            Defect::KeepsLostGroup => self.nodes[node].is_kept = true,
            _ => self.term_ends(node),
        }
    }

    /// Whether this node is to lead its group, of all whose processes run.
    pub(in crate::simulation) fn is_first(&self, node: usize) -> bool {
        let name = |machine: usize| format!("machine {machine}");
        let runs = |machine: &usize| self.nodes[self.nodes_of(*machine).start].turn.is_some();
        let (me, group) = (self.machine_of(node), self.group_of(node) as u16);
        let all = (0..MACHINES).filter(|machine| *machine == me || runs(machine)).map(name);
        !self.has_groups() || self.balance.is_for(&name(me), group, all.collect())
    }

    /// A leader hands its group over when another node is to lead it, and has been for a while.
    pub(in crate::simulation) fn look_at_balance(&mut self, node: usize) {
        let (now_ms, is_first) = (self.now_ms(), self.is_first(node));
        let first_ms = &mut self.nodes[node].first_ms;
        if is_first {
            *first_ms = now_ms;
        } else if *first_ms + MOVES_AFTER_MS < now_ms {
            self.hand_over(node);
        }
    }

    /// Whether a client leaves a connection to ask elsewhere. One client of each group never does.
    pub(super) fn strays(&mut self, who: usize, link: Link) -> bool {
        let may = self.has_groups() && !who.is_multiple_of(CLIENTS) && !self.clients[who].has_session();
        let strays = may && self.rng.one_in(15);
        if strays {
            self.schedule_within(3, Event::Close(who, link));
        }
        strays
    }

    /// Where a client without a connection asks: where it was told to; or at a node of its group, or now and then of another.
    pub(super) fn choose(&mut self, who: usize) -> usize {
        if let Some(node) = self.routes[who].take() {
            return node;
        }
        let groups = self.groups.len();
        let is_wrong = self.has_groups() && !who.is_multiple_of(CLIENTS) && self.rng.one_in(4);
        let group = if is_wrong { self.rng.below(groups) } else { self.group_of_client(who) };
        self.rng.below(MACHINES) * groups + group
    }

    /// Whether a request was served where it was sent. If not, the client goes where it is told.
    pub(super) fn is_served_here(&mut self, who: usize, link: Link, reply: &str) -> bool {
        let moved = reply.strip_prefix("-MOVED ");
        let is_here = moved.is_none() && reply != "-CLUSTERDOWN Hash slot not served\r\n";
        let group = self.group_of_client(who);
        let is_foreign = self.group_of(link.node) != group;
        // A canary must break more than this.
        if is_here == is_foreign && self.defect == Defect::None {
            self.broken =
                Some(format!("client {who} of group {group} is told {reply:?} by node {}", link.node));
        }
        if let Some(moved) = moved {
            let node = (0..self.nodes.len()).find(|node| moved.trim_end().ends_with(&address_of(*node)));
            let leads = |node: &usize| self.groups[group].led.contains(node);
            let slot_number = slot(self.groups[group].tag.as_bytes());
            self.routes[who] = node.filter(leads).filter(|_| moved.starts_with(&format!("{slot_number} ")));
            if self.routes[who].is_none() {
                self.broken = Some(format!("client {who} of group {group} is sent to {moved:?}"));
            }
        }
        if !is_here {
            self.stats.rerouted += 1;
            self.schedule_within(3, Event::Close(who, link));
            self.links[who] = None;
        }
        is_here
    }

    /// Whether a broken node refuses its own group because no leader of another one answers.
    pub(super) fn misses_group(&self) -> bool {
        let answers = |node: &Node| node.leader.is_some() && node.paused_until_ms <= self.now_ms();
        let groups = self.groups.len();
        let has_leader = |group: usize| self.nodes.iter().skip(group).step_by(groups).any(answers);
        self.defect == Defect::NeedsAllGroups && !(0..groups).all(has_leader)
    }

    /// A client of a group has a reply.
    pub(super) fn note_answer(&mut self, group: usize, is_served: bool) {
        if let Err(why) = self.check_service(group) {
            self.broken = Some(why);
        }
        let now_ms = self.now_ms();
        self.stats.replies += 1;
        let group = &mut self.groups[group];
        group.answered_ms = now_ms;
        if is_served {
            group.served_ms = now_ms;
        }
    }

    /// A group that no fault disturbs is served.
    pub(super) fn check_service(&self, group: usize) -> Result<(), String> {
        let Group { served_ms, disturbed_until_ms, .. } = self.groups[group];
        let silence_ms = self.now_ms().saturating_sub(served_ms.max(disturbed_until_ms));
        // A canary must break more than this, unless it is about this.
        let counts = matches!(self.defect, Defect::None | Defect::NeedsAllGroups) && self.is_quiet;
        match counts && silence_ms > SERVICE_MS_MAX {
            true => Err(format!("group {group} is not served for {silence_ms} ms, and no fault has hit it")),
            false => Ok(()),
        }
    }

    /// Whether what happens to a machine may happen to the leader of a group.
    pub(super) fn may_lead(&self, machine: usize, group: usize) -> bool {
        let Group { leader, disturbed_until_ms, .. } = self.groups[group];
        let mut nodes = (group..self.nodes.len()).step_by(self.groups.len());
        let leads = |node: &usize| self.nodes[*node].leader.as_ref().is_some_and(|(it, _)| *it == leader);
        let node = nodes.find(leads).filter(|_| disturbed_until_ms < self.now_ms());
        node.is_none_or(|node| self.machine_of(node) == machine)
    }

    /// A fault begins that these groups may notice until then.
    pub(super) fn disturb(&mut self, is_hit: impl Fn(&Self, usize) -> bool, until_ms: u64) {
        for group in 0..self.groups.len() {
            if !is_hit(self, group) {
                continue;
            }
            if let Err(why) = self.check_service(group) {
                self.broken = Some(why);
            }
            let until = &mut self.groups[group].disturbed_until_ms;
            *until = (*until).max(until_ms + RECOVERY_MS);
        }
    }
}

/// A node, as clients are told of it.
fn cluster_node(node: usize) -> ClusterNode {
    let (host, port) = address_of(node)
        .rsplit_once(':')
        .map_or_else(Default::default, |(host, port)| (host.to_owned(), port.parse().expect("a port")));
    ClusterNode { id: format!("{node:040}"), host, port, ..ClusterNode::default() }
}
