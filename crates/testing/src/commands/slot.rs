//! TEST.SLOT: the slots of a cluster of several nodes.

use redlatch_core::commands::row::{Group, Row, integer};
use redlatch_core::commands::{Call, Move, Outcome, Peers, help};
use redlatch_core::state::slot_map::SlotTable;
use redlatch_core::types::slot::SLOTS;
use redlatch_proto::error::Refusal;

use super::node::{NODE, number};
use super::{TEST, begin, row};

pub(super) const ROWS: &[Row] = &[
    row("FREEZE", freeze)
        .summary("Has a node tell of the slots as they are now, in CLUSTER and MOVED, whatever changes, until THAW.")
        .args(&[NODE]),
    help::row(Group::Test).flags(TEST),
    row("MOVE", carry_out)
        .summary(
            "Moves a slot to a node, with its keys; with STEPS so many keys, and the slot stays half-way.",
        )
        .args(&[integer("slot"), NODE.after("TO"), integer("keys").after("STEPS").maybe()]),
    row("THAW", thaw).summary("Ends FREEZE.").args(&[NODE]),
];

/// The nodes of the cluster.
///
/// # Errors
/// There is none of several nodes.
pub(super) fn peers(call: &Call<'_, '_>) -> Result<Peers, Refusal> {
    let peers = call.shared.peers.clone();
    peers.ok_or(Refusal::said("ERR this server is not one of several nodes of a cluster"))
}

fn freeze(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    change(call, SlotTable::freeze)
}

fn thaw(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    change(call, SlotTable::thaw)
}

/// Changes what a node tells of the slots.
fn change(call: &mut Call<'_, '_>, change: fn(&mut SlotTable, u16)) -> Result<Outcome, Refusal> {
    let peers = peers(call)?;
    let node = number(call)?;
    call.args.finish()?;

    begin(call, |testing, pending| {
        testing.host.run_apart(Box::new(move || {
            change(&mut peers.slots.change(), node);
            pending.answer(|reply| reply.ok());
        }));
    })
}

/// Answers how many keys have moved.
fn carry_out(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let peers = peers(call)?;
    let slot = call.args.integer()?;
    let slot = u16::try_from(slot).ok().filter(|slot| *slot < SLOTS);
    let slot = slot.ok_or(Refusal::said("ERR Invalid or out of range slot"))?;
    if !call.args.take("TO") {
        return Err(Refusal::Syntax);
    }
    let to = number(call)?;
    let most = match call.args.take("STEPS") {
        true => Some(usize::try_from(call.args.integer()?)),
        false => None,
    };
    let most = most.transpose().map_err(|_| Refusal::said("ERR STEPS must not be negative"))?;
    call.args.finish()?;

    begin(call, |testing, pending| {
        testing.host.run_apart(Box::new(move || match peers.carry_out(Move { slot, to, most }) {
            Ok(moved) => pending.answer(|reply| reply.count(moved)),
            Err(refusal) => pending.refuse(&refusal),
        }));
    })
}
