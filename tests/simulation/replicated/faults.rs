//! What happens to nodes and clocks.

use std::sync::atomic::Ordering::SeqCst;

use super::{BEGIN_MS, CLIENTS, Event, FAULT_MS_MAX, FAULTS_MS, HIDDEN_MS, NODES, TAKEOVER_MS, World};

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
        let leader = (0..NODES).filter(|node| leads(node).is_some()).max_by_key(leads);
        let any = self.rng.below(NODES);
        let node = leader.filter(|_| !self.rng.one_in(3)).unwrap_or(any);
        match self.rng.below(9) {
            0..2 => self.kill(node),
            2..4 => self.pause(node, until_ms),
            4 => self.nodes[node].cut_until_ms = until_ms,
            5 => self.isolate(node, until_ms),
            6 => self.nodes.iter_mut().for_each(|node| node.cut_until_ms = until_ms),
            7 => self.nodes[node].stops = self.nodes[node].leader.is_some(),
            _ => {
                let step_ms = self.rng.below_u64(7_200_000) as i64 - 3_600_000;
                self.wall_offset_ms.fetch_add(step_ms, SeqCst);
            }
        }
        let delay_ms = 100 + self.rng.below_u64(2_500);
        self.schedule(delay_ms, Event::Fault);
    }

    /// A node is stopped: meanwhile it tells no client that a session has ended.
    fn pause(&mut self, node: usize, until_ms: u64) {
        self.nodes[node].paused_until_ms = until_ms;
        for (client, link) in self.clients.iter_mut().zip(&self.links) {
            if link.is_some_and(|link| link.node == node) {
                client.give_session_up();
            }
        }
    }

    /// The node is cut from all clients but the readers, and mostly from etcd, too, for a shorter time. Meanwhile the others
    /// may be slow.
    fn isolate(&mut self, node: usize, until_ms: u64) {
        if self.rng.one_in(2) {
            self.nodes.iter_mut().for_each(|node| node.slow_until_ms = until_ms);
        }
        let is_cut = !self.rng.one_in(3);
        let state = &mut self.nodes[node];
        state.hidden_until_ms = until_ms + HIDDEN_MS;
        if is_cut {
            state.cut_until_ms = until_ms;
        }
        for who in 0..CLIENTS {
            if let Some(link) =
                self.links[who].filter(|link| link.node == node && !self.clients[who].is_reader)
            {
                self.schedule_within(3, Event::Reset(who, link));
            }
        }
    }

    fn kill(&mut self, node: usize) {
        let Some(turn) = self.nodes[node].turn.take() else { return };
        turn.kill();
        self.killed.push(turn);
        self.term_ends(node);
        let state = &mut self.nodes[node];
        state.wait += 1;
        (state.paused_until_ms, state.stops) = (0, false);
        self.schedule_within(2_000, Event::Start(node));
    }
}
