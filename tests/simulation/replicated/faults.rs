//! What happens to nodes and clocks.

use std::sync::atomic::Ordering::SeqCst;

use redlatch_core::state::slot_groups::SlotGroup;

use super::{BEGIN_MS, Event, FAULT_MS_MAX, FAULTS_MS, HIDDEN_MS, Node, TAKEOVER_MS, World};

impl World {
    /// A fault begins, and the next one is planned.
    pub(super) fn fault(&mut self) {
        let now_ms = self.now_ms();
        if now_ms > BEGIN_MS + FAULTS_MS {
            return;
        }
        // Another node takes over while many of them end.
        let fault_ms = match self.rng.below(3) {
            0 => TAKEOVER_MS + self.rng.below_u64(400),
            // It gives sessions an end, too.
            1 => 2 * TAKEOVER_MS + self.rng.below_u64(FAULT_MS_MAX - 2 * TAKEOVER_MS),
            _ => self.rng.below_u64(FAULT_MS_MAX),
        };
        let until_ms = now_ms + fault_ms;
        let leads = |node: &usize| self.nodes[*node].leader.as_ref().map(|(number, _)| *number);
        let leader = (0..self.nodes.len()).filter(|node| leads(node).is_some()).max_by_key(leads);
        let any = self.rng.below(self.nodes.len());
        let node = leader.filter(|_| !self.rng.one_in(3)).unwrap_or(any);
        let machine = self.machine_of(node);
        match self.rng.below(9) {
            0..2 => self.kill(machine),
            2..4 => self.pause(machine, until_ms),
            4 => self.hit(machine, until_ms, |node| node.cut_until_ms = until_ms),
            5 => self.isolate(machine, until_ms),
            6 => self.hit_all(until_ms, |node| node.cut_until_ms = until_ms),
            7 => self.hand_over(node),
            _ => {
                let step_ms = self.rng.below_u64(7_200_000) as i64 - 3_600_000;
                self.wall_offset_ms.fetch_add(step_ms, SeqCst);
            }
        }
        let delay_ms = 100 + self.rng.below_u64(if self.is_quiet { 2 * 2_500 } else { 2_500 });
        self.schedule(delay_ms, Event::Fault);
    }

    /// Does something to a machine: to all its nodes. Until then, groups that it leads may not be served.
    fn hit(&mut self, machine: usize, until_ms: u64, strike: impl FnMut(&mut Node)) {
        self.disturb(|world, group| world.may_lead(machine, group), until_ms);
        let nodes = self.nodes_of(machine);
        self.nodes[nodes].iter_mut().for_each(strike);
    }

    fn hit_all(&mut self, until_ms: u64, strike: impl FnMut(&mut Node)) {
        self.disturb(|_, _| true, until_ms);
        self.nodes.iter_mut().for_each(strike);
    }

    /// A node is to leave its group to another one.
    pub(super) fn hand_over(&mut self, node: usize) {
        let (now_ms, group) = (self.now_ms(), self.group_of(node));
        self.disturb(|_, of| of == group, now_ms);
        self.nodes[node].stops = self.nodes[node].leader.is_some();
    }

    /// A machine is stopped: meanwhile it tells no client that a session has ended.
    fn pause(&mut self, machine: usize, until_ms: u64) {
        self.hit(machine, until_ms, |node| node.paused_until_ms = until_ms);
        let nodes = self.nodes_of(machine);
        for (client, link) in self.clients.iter_mut().zip(&self.links) {
            if link.is_some_and(|link| nodes.contains(&link.node)) {
                client.give_session_up();
            }
        }
    }

    /// The machine is cut from all clients but the readers, and mostly from etcd, too, for a shorter time. Meanwhile the
    /// others may be slow.
    fn isolate(&mut self, machine: usize, until_ms: u64) {
        if self.rng.one_in(2) {
            self.hit_all(until_ms, |node| node.slow_until_ms = until_ms);
        }
        let is_cut = !self.rng.one_in(3);
        self.hit(machine, until_ms + HIDDEN_MS, |node| {
            node.hidden_until_ms = until_ms + HIDDEN_MS;
            if is_cut {
                node.cut_until_ms = until_ms;
            }
        });
        let nodes = self.nodes_of(machine);
        for who in 0..self.clients.len() {
            if let Some(link) =
                self.links[who].filter(|link| nodes.contains(&link.node) && !self.clients[who].is_reader)
            {
                self.schedule_within(3, Event::Reset(who, link));
            }
        }
    }

    fn kill(&mut self, machine: usize) {
        let nodes = self.nodes_of(machine);
        if self.nodes[nodes.start].turn.is_none() {
            return;
        }
        let now_ms = self.now_ms();
        self.hit(machine, now_ms, |_| {});
        for node in nodes.clone() {
            let turn = self.nodes[node].turn.take();
            turn.iter().for_each(|turn| turn.kill());
            self.killed.extend(turn);
            self.term_ends(node);
            let state = &mut self.nodes[node];
            state.wait += 1;
            (state.paused_until_ms, state.stops) = (0, false);
        }
        self.slots[machine] = SlotGroup::all(self.groups.len() as u16);
        let delay_ms = self.rng.below_u64(2_000);
        nodes.for_each(|node| self.schedule(delay_ms, Event::Start(node)));
    }
}
