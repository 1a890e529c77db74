//! A slot moves from one node to another, with its keys: values, leases, holders, fencing tokens.
//!
//! Locks   the table of slots, so that no request runs in between; all shards of the node that has the keys, then those of
//!         the other.
//! Rule    who waits for a key that moves is sent after it. A lock of a session moves as after the end of its connection,
//!         because the session stays where it is.

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, LockTime};
use redlatch_proto::error::Refusal;

use super::{Elsewhere, Peers};
use crate::commands::Shared;
use crate::journal::Mutation;
use crate::keyspace::{ShardSet, View};
use crate::state::slot_map::SlotTable;
use crate::types::lock::Holder;
use crate::types::slot::slot as slot_of;
use crate::types::{Lock, Typed};

/// A slot that goes to another node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Move {
    pub slot: u16,
    pub to: u16,
    /// How many keys move at most, after which the slot stays half-way; `None`: all of them, and the slot has moved.
    pub most: Option<usize>,
}

impl Peers {
    /// Moves a slot, or goes on with its move. Returns how many keys have moved. Waits until no request runs.
    ///
    /// # Errors
    /// The slot cannot move there.
    pub fn carry_out(&self, wanted: Move) -> Result<usize, Refusal> {
        let Move { slot, to, most } = wanted;
        let mut table = self.slots.change();
        let from = check(&table, wanted)?;
        let gone = || Refusal::said("ERR the cluster is being dropped");
        let (source, target) = (self.node(from).ok_or_else(gone)?, self.node(to).ok_or_else(gone)?);

        table.begin_move(slot, to);
        let moved = take_keys(&source, wanted);
        // What the other node grants from now on has a higher token than what was granted here.
        target.keyspace.raise_tokens(source.keyspace.tokens());
        let stream = target.peers.as_ref().and_then(Self::stream);
        stream.iter().for_each(|stream| stream.raise_tokens(source.keyspace.tokens()));
        let now = target.clock.now();
        let count = moved.len();
        for mut made in moved {
            leave_clients(&mut made, now.lock);
            made.iter().for_each(|mutation| target.keyspace.apply(mutation, now));
            stream.iter().for_each(|stream| stream.send(&made.iter().collect()));
        }
        if most.is_none() {
            table.end_move(slot);
            self.end_shard_channels(&table, |_| false);
        }
        Ok(count)
    }
}

/// Returns the node that has the slot.
fn check(table: &SlotTable, Move { slot, to, .. }: Move) -> Result<u16, Refusal> {
    let from = table.owner(slot);
    if let Some(master) = table.master(to) {
        return Err(Refusal::said(format!("ERR node {to} is a replica of node {master}")));
    }
    if from == to {
        return Err(Refusal::said(format!("ERR node {to} has slot {slot} already")));
    }
    if let Some(target) = table.target(slot).filter(|target| *target != to) {
        return Err(Refusal::said(format!("ERR slot {slot} is moving to node {target}")));
    }
    match [from, to].into_iter().find(|node| table.is_silent(*node)) {
        Some(node) => Err(Refusal::said(format!("ERR node {node} does not answer"))),
        None => Ok(from),
    }
}

/// Removes keys of the slot, in the order of their names. Returns for each what makes it at the other node.
fn take_keys(source: &Shared, Move { slot, to, most }: Move) -> Vec<Vec<Mutation>> {
    let mut view = View::lock(&source.keyspace, ShardSet::All, 0, source.clock.now(), source.events());
    let mut keys: Vec<Bytes> = Vec::new();
    view.whole().for_each_key(|key| {
        if slot_of(key) == slot {
            keys.push(Bytes::copy_from_slice(key));
        }
    });
    keys.sort_unstable();
    keys.truncate(most.unwrap_or(keys.len()));
    // Before the keys go, so that nobody is granted here a lock that goes on there.
    match most {
        Some(_) => redirect_waits(source, (slot, Elsewhere::Ask(to)), |key| keys.binary_search(key).is_ok()),
        None => redirect_waits(source, (slot, Elsewhere::Moved(to)), |key| slot_of(key) == slot),
    }
    let moved = keys.iter().map(|key| view.take_away(key)).collect();
    view.finish(&source.registries);
    moved
}

/// Answers the commands that wait for such a key with a redirection.
fn redirect_waits(source: &Shared, (slot, elsewhere): (u16, Elsewhere), is_meant: impl Fn(&Bytes) -> bool) {
    for client in source.registries.clients.all() {
        if client.waits_for(usize::MAX).iter().any(&is_meant) {
            client.unblock(Some(&elsewhere.refusal(slot, &client, source).text()));
        }
    }
}

/// Leaves behind what only the other node knows: the clients that have the locks of a key, and their sessions, as if these
/// had ended at `now`.
pub(super) fn leave_clients(made: &mut [Mutation], now: LockTime) {
    let mut end = None;
    for mutation in made.iter_mut() {
        match mutation {
            Mutation::Grant { grant, details, .. } => {
                grant.holder = NO_CLIENT;
                end = session_end(details.session.take(), now);
            }
            Mutation::PutObject { object, deadline, .. } => {
                if let Some(lock) = Lock::of_mut(object) {
                    leave_holders(lock, now);
                    *deadline = lock.latest_deadline();
                }
            }
            _ => {}
        }
    }
    for mutation in made {
        if let (Mutation::Put { deadline, .. }, Some(end)) = (mutation, end) {
            deadline.get_or_insert(end);
        }
    }
}

fn leave_holders(lock: &mut Lock, now: LockTime) {
    let kind = lock.kind();
    let all: Vec<(Bytes, Holder)> =
        lock.holders().map(|(owner, holder)| (owner.clone(), holder.clone())).collect();
    for (owner, holder) in all {
        let deadline = holder.deadline.or(session_end(holder.session, now));
        lock.put(kind, &owner, Holder { client: NO_CLIENT, deadline, session: None, ..holder });
    }
}

/// When a lock of a session ends whose connection ends at `now`.
fn session_end(session: Option<(u64, u64)>, now: LockTime) -> Option<Deadline> {
    session.map(|(_, delay_ms)| Deadline::at(now + delay_ms))
}

/// No client has this number.
const NO_CLIENT: u64 = 0;
