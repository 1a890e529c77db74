//! TEST.NODE: the nodes of a namespace.

use redlatch_core::commands::row::{Arg, Flags, Group, Row, integer, one_of, pattern, token};
use redlatch_core::commands::{Call, Outcome, help};
use redlatch_proto::error::Refusal;

use super::{TEST, begin, pattern_word, row, testing};
use crate::{NodeChange, NodeFacts};

pub(super) const ROWS: &[Row] = &[
    row("CRASH", crash)
        .summary(
            "Resets the connections of a node, and new ones, until START; its keys are gone unless KEEP.",
        )
        .args(&[NODE, one_of("keys", &[token("keep", "KEEP"), token("lose", "LOSE")]).maybe()]),
    row("HEAL", heal).summary("Ends all partitions of a node.").args(&[NODE]),
    help::row(Group::Test).flags(TEST),
    row("LIST", list).summary("Lists the nodes and their states."),
    row("PARTITION", partition)
        .summary(
            "Lets a node answer none of the clients whose name, library or address matches, or hear no other node.",
        )
        .flags(TEST.with(Flags::DENYOOM))
        .args(&[NODE, one_of("peers", &[pattern("pattern").after("CLIENT"), token("nodes", "NODES")])]),
    row("PAUSE", pause).summary("Lets a node read and answer nothing until RESUME.").args(&[NODE]),
    row("REPLICATION", replication)
        .summary("Sets whether what a node writes reaches its replicas; OFF: it is acknowledged all the same.")
        .args(&[NODE, one_of("switch", &[token("on", "ON"), token("off", "OFF")])]),
    row("RESUME", resume).summary("Ends PAUSE.").args(&[NODE]),
    row("SKEW", skew)
        .summary("Sets how far the clock of a node is ahead of the others.")
        .args(&[NODE, integer("milliseconds")]),
    row("START", start).summary("Ends CRASH.").args(&[NODE]),
];

pub(super) const NODE: Arg = integer("node");

/// Milliseconds that the clock of a node may be ahead: a year.
const SKEW_MS_MAX: i64 = 365 * 86_400_000;

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let nodes = testing(call)?.host.nodes();
    call.reply.array(nodes.len());
    for node in nodes {
        show(call, &node);
    }
    Ok(Outcome::Replied)
}

fn show(call: &mut Call<'_, '_>, node: &NodeFacts) {
    let reply = &mut call.reply;
    reply.map(7);
    reply.bulk(b"node");
    reply.integer(i64::from(node.node));
    reply.bulk(b"port");
    reply.count(node.port as usize);
    reply.bulk(b"state");
    reply.bulk(node.state.name().as_bytes());
    reply.bulk(b"skew");
    reply.integer(node.skew_ms);
    reply.bulk(b"partitions");
    reply.bulks(&node.partitions);
    reply.bulk(b"clients");
    reply.count(node.clients);
    reply.bulk(b"keys");
    reply.count(node.keys);
}

/// Reads the number of a node.
pub(super) fn number(call: &mut Call<'_, '_>) -> Result<u16, Refusal> {
    let number = call.args.integer()?;
    let nodes = testing(call)?.host.nodes().len();
    match u16::try_from(number) {
        Ok(node) if (1..=nodes).contains(&usize::from(node)) => Ok(node),
        _ => Err(Refusal::said(format!("ERR there is no node {number}; there are {nodes}, from 1 on"))),
    }
}

/// Reads the number of a node other than the one that the client is connected to.
fn other(call: &mut Call<'_, '_>) -> Result<u16, Refusal> {
    let node = number(call)?;
    if node == testing(call)?.node {
        return Err(Refusal::said(format!("ERR you are connected to node {node}; ask another one for this")));
    }
    Ok(node)
}

fn change(call: &mut Call<'_, '_>, node: u16, change: NodeChange) -> Result<Outcome, Refusal> {
    call.args.finish()?;
    begin(call, |testing, pending| testing.host.change_node(node, change, pending))
}

fn crash(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = other(call)?;
    let keeps_keys = call.args.take("KEEP") || {
        call.args.take("LOSE");
        false
    };
    change(call, node, NodeChange::Crash { keeps_keys })
}

fn start(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = number(call)?;
    change(call, node, NodeChange::Start)
}

fn pause(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = other(call)?;
    change(call, node, NodeChange::Pause)
}

fn resume(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = number(call)?;
    change(call, node, NodeChange::Resume)
}

fn heal(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = number(call)?;
    change(call, node, NodeChange::Heal)
}

fn skew(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (node, millis) = (number(call)?, call.args.integer()?);
    if millis.unsigned_abs() > SKEW_MS_MAX.unsigned_abs() {
        return Err(Refusal::said(format!(
            "ERR a clock is {SKEW_MS_MAX} ms (a year) ahead or behind at most"
        )));
    }
    change(call, node, NodeChange::Skew(millis))
}

fn partition(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = number(call)?;
    if call.args.take("NODES") {
        super::slot::peers(call)?;
        return change(call, node, NodeChange::Isolate);
    }
    if !call.args.take("CLIENT") {
        return Err(Refusal::Syntax);
    }
    let pattern = pattern_word(call)?;
    change(call, node, NodeChange::Partition(pattern))
}

fn replication(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let node = number(call)?;
    let is_on = call.args.take("ON");
    if !is_on && !call.args.take("OFF") {
        return Err(Refusal::Syntax);
    }
    change(call, node, NodeChange::Replication { is_on })
}
