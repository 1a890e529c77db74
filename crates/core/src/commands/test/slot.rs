//! TEST.SLOT: the slots of a cluster of several nodes.

use redlatch_proto::error::Refusal;

use super::node::{NODE, number};
use super::{TEST, begin, row};
use crate::commands::peers::Move;
use crate::commands::row::{Group, Row, integer};
use crate::commands::{Call, Outcome, help};
use crate::types::slot::SLOTS;

pub(super) const ROWS: &[Row] = &[
    help::row(Group::Test).flags(TEST),
    row("MOVE", carry_out)
        .summary(
            "Moves a slot to a node, with its keys; with STEPS so many keys, and the slot stays half-way.",
        )
        .args(&[integer("slot"), NODE.after("TO"), integer("keys").after("STEPS").maybe()]),
];

/// Answers how many keys have moved.
fn carry_out(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let peers = call.shared.peers.clone();
    let peers = peers.ok_or(Refusal::said("ERR this server is not one of several nodes of a cluster"))?;
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
