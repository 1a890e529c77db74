//! What the clients of the replicated simulation do and are told.

use super::{BEGIN_MS, DELIVERY_MS_MAX, Event, Link, World};
use crate::simulation::crash_clients::{Hold, Op};
use crate::simulation::linearizable::Operation;

impl World {
    pub(super) fn act(&mut self, who: usize) {
        if self.clients[who].request.is_some() {
            return;
        }
        let is_open = |link: &Link| {
            let leader = self.nodes[link.node].leader.as_ref();
            leader.is_some_and(|(number, _)| *number == link.leader)
        };
        let open = self.links[who].filter(is_open);
        let now_ms = self.now_ms();
        if open.is_none() {
            self.clients[who].lose_session(now_ms);
        }
        let open = open.filter(|link| !self.strays(who, *link));
        let Some(link) = open.or_else(|| self.connect(who)) else {
            return self.schedule_within(150, Event::Act(who));
        };
        self.links[who] = Some(link);
        let group = self.group_of_client(who);
        self.clients[who].act(who, now_ms, &self.groups[group].told, &mut self.rng);
        let Some(request) = &self.clients[who].request else {
            let delay_ms = 20 + self.rng.below_u64(400);
            return self.schedule(delay_ms, Event::Act(who));
        };
        if let Op::Share { register, value } = request.op {
            let history = &mut self.groups[group].histories[register];
            self.open[who] = Some((register, history.len()));
            history.push(Operation { is_write: value.is_some(), value, from: self.scheduled, to: None });
        }
        self.schedule_within(5, Event::Arrive(who, link));
        let patience_ms = 1_200 + self.rng.below_u64(2_500);
        self.schedule(patience_ms, Event::GiveUp(who, link, now_ms));
    }

    /// Opens a connection to the node that it was told of, or to some other one, if that leads.
    fn connect(&mut self, who: usize) -> Option<Link> {
        let node = self.choose(who);
        if self.nodes[node].hidden_until_ms > self.now_ms() && !self.clients[who].is_reader {
            return None;
        }
        let leader = self.nodes[node].leader.as_ref()?.0;
        self.connections += 1;
        Some(Link { node, leader, number: self.connections })
    }

    pub(super) fn deliver(&mut self, who: usize, link: Link, reply: &str) {
        if self.links[who] != Some(link) || self.clients[who].request.is_none() {
            return;
        }
        let (now_ms, group) = (self.now_ms(), self.group_of_client(who));
        let is_here = self.is_served_here(who, link, reply);
        self.note_answer(group, is_here && !reply.starts_with('-'));
        if let Some((register, index)) = self.open[who].take() {
            let operation = &mut self.groups[group].histories[register][index];
            operation.to = (!reply.starts_with('-')).then_some(self.scheduled);
            // A request that is sent elsewhere has not happened.
            operation.is_write &= is_here;
            if !operation.is_write {
                operation.value = reply.split("\r\n").nth(1).and_then(|value| value.parse().ok());
            }
        }
        match self.clients[who].hear(reply, now_ms, &mut self.groups[group].told) {
            Ok(Some(hold)) => self.believe(who, &hold),
            Ok(None) => {}
            // What was counted since the snapshot is lost.
            Err(why) if self.restores > 0 && why.starts_with("counter") => {}
            Err(why) => self.broken = Some(format!("client {who}: {why}")),
        }
        self.schedule_within(120, Event::Act(who));
    }

    /// A client believes in a lock from now on: no other does.
    fn believe(&mut self, who: usize, hold: &Hold) {
        let now_ms = self.now_ms();
        self.stats.granted_ms = now_ms - BEGIN_MS;
        let others = self.clients.iter().enumerate().filter(|(other, _)| *other != who);
        let theirs = others.filter_map(|(other, client)| Some((other, client.hold.as_ref()?)));
        let other = { theirs }.find(|(_, theirs)| theirs.key == hold.key && theirs.until_ms >= now_ms);
        if let Some((other, theirs)) = other {
            self.broken = Some(format!("client {who} has {hold:?}, and client {other} {theirs:?}"));
        }
    }

    pub(super) fn give_up(&mut self, who: usize, link: Link, sent_ms: u64) {
        let waits = self.clients[who].request.as_ref().is_some_and(|request| request.sent_ms == sent_ms);
        if waits && self.links[who] == Some(link) {
            self.schedule_within(3, Event::Close(who, link));
            self.lose(who);
        }
    }

    /// The connection of a client is gone, and its request is not answered.
    fn lose(&mut self, who: usize) {
        (self.links[who], self.open[who], self.clients[who].request) = (None, None, None);
        let now_ms = self.now_ms();
        self.clients[who].lose_session(now_ms);
        self.schedule_within(200, Event::Act(who));
    }

    pub(super) fn reset(&mut self, who: usize, link: Link) {
        if self.links[who] != Some(link) {
            return;
        }
        // A reply that is on its way arrives.
        match self.clients[who].request.as_ref().is_some_and(|request| request.is_answered) {
            true => self.schedule(DELIVERY_MS_MAX, Event::Reset(who, link)),
            false => self.lose(who),
        }
    }
}
