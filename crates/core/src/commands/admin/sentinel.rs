//! SENTINEL: who leads a cluster, for clients that ask a Sentinel for it.
//!
//! Rule    without a cluster the command is unknown. The node that answers is the one that leads, since a standby splices its
//!         clients to it; every node counts as a Sentinel.
//! Rule    there are no replicas to read from, so that no client waits for one.
//! Rule    `+switch-master` is the only event. The node publishes it when it has begun to lead, not this command.
//! Source  Redis 7.0 `sentinel.c`: `sentinelCommand`, `addReplySentinelRedisInstance`.

use redlatch_proto::error::Refusal;

use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, text};
use crate::commands::{Call, Outcome};
use crate::state::cluster::{ClusterFacts, ClusterNode};
use crate::state::settings;

pub(in crate::commands) const ROWS: &[Row] =
    &[Row::container(Group::Sentinel, "SENTINEL", "2.8.4", SUBCOMMANDS)
        .summary("Tells which node of the cluster leads, and which others there are.")
        .flags(Flags::ADMIN)];

const SUBCOMMANDS: &[Row] = &[
    row("CKQUORUM", ckquorum)
        .summary("Tells that a leader can be found: this node leads.")
        .args(&[text("master-name")]),
    row("FAILOVER", failover).summary("Has another node lead.").args(&[text("master-name")]),
    row("GET-MASTER-ADDR-BY-NAME", address)
        .summary("Returns host and port of the node that leads.")
        .args(&[text("master-name")]),
    help::row(Group::Sentinel).since("6.2.0"),
    row("MASTER", master).summary("Returns the node that leads.").args(&[text("master-name")]),
    row("MASTERS", masters).summary("Returns the node that leads, in a list."),
    row("MYID", my_id).since("6.2.0").summary("Returns the id of the node that leads."),
    row("REPLICAS", replicas)
        .since("5.0.0")
        .summary("Returns no node: none is read from but the one that leads.")
        .args(&[text("master-name")]),
    row("SENTINELS", sentinels).summary("Returns the other nodes.").args(&[text("master-name")]),
    row("SLAVES", replicas).since("2.8.0").summary("Like REPLICAS.").args(&[text("master-name")]),
];

const fn row(name: &'static str, run: crate::commands::row::Run) -> Row {
    Row::new(Group::Sentinel, name, "2.8.4", run).flags(Flags::ADMIN)
}

/// The cluster, which a SENTINEL command has: without it the command is unknown.
fn facts<'k>(call: &Call<'_, 'k>) -> Result<&'k ClusterFacts, Refusal> {
    call.shared.cluster.as_deref().ok_or_else(|| Refusal::said("ERR this server has no cluster"))
}

/// Reads the name of the cluster.
fn named<'k>(call: &mut Call<'_, 'k>) -> Result<&'k ClusterFacts, Refusal> {
    let facts = facts(call)?;
    let name = call.args.word()?;
    call.args.finish()?;
    match name == facts.name.as_bytes() {
        true => Ok(facts),
        false => Err(Refusal::said("ERR No such master with that name")),
    }
}

fn ckquorum(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let usable = named(call)?.others().len().saturating_add(1);

    let text = format!("OK {usable} usable Sentinels. Quorum and failover authorization can be reached");
    call.reply.status_bytes(text.as_bytes());
    Ok(Outcome::Replied)
}

fn address(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let facts = facts(call)?;
    let name = call.args.word()?;
    call.args.finish()?;

    if name == facts.name.as_bytes() {
        call.reply.bulks(&[facts.me.host.as_str(), &facts.me.port.to_string()]);
    } else {
        call.reply.null_array();
    }
    Ok(Outcome::Replied)
}

fn failover(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if !named(call)?.ask_to_hand_over() {
        return Err(Refusal::said("NOGOODSLAVE No suitable replica to promote"));
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn master(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let facts = named(call)?;

    master_of(call, facts);
    Ok(Outcome::Replied)
}

fn masters(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let facts = facts(call)?;
    call.args.finish()?;

    call.reply.array(1);
    master_of(call, facts);
    Ok(Outcome::Replied)
}

fn my_id(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let facts = facts(call)?;
    call.args.finish()?;

    call.reply.bulk(facts.me.id.as_bytes());
    Ok(Outcome::Replied)
}

fn replicas(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    named(call)?;

    call.reply.array(0);
    Ok(Outcome::Replied)
}

fn sentinels(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let others = named(call)?.others();

    call.reply.array(others.len());
    for node in &others {
        let own = [("last-hello-message", "0"), ("voted-leader", "?"), ("voted-leader-epoch", "0")];
        node_of(call, (&node.id, node, "sentinel"), &own);
    }
    Ok(Outcome::Replied)
}

fn master_of(call: &mut Call<'_, '_>, facts: &ClusterFacts) {
    let (epoch, others) = (facts.epoch().to_string(), facts.others().len().to_string());
    let since = call.now.lock.millis_since(call.shared.instance.started).to_string();
    let own = [
        ("info-refresh", "0"),
        ("role-reported", "master"),
        ("role-reported-time", &since),
        ("config-epoch", &epoch),
        ("num-slaves", "0"),
        ("num-other-sentinels", &others),
        ("quorum", "1"),
        ("failover-timeout", "180000"),
        ("parallel-syncs", "1"),
    ];
    node_of(call, (&facts.name, &facts.me, "master"), &own);
}

/// A node as Redis describes it, with fields of its own kind.
fn node_of(call: &mut Call<'_, '_>, (name, node, flags): (&str, &ClusterNode, &str), own: &[(&str, &str)]) {
    let takeover = call.shared.settings.get(settings::CLUSTER_TAKEOVER).to_string();
    let port = node.port.to_string();
    let fields = [
        ("name", name),
        ("ip", &node.host),
        ("port", &port),
        ("runid", &node.id),
        ("flags", flags),
        ("link-pending-commands", "0"),
        ("link-refcount", "1"),
        ("last-ping-sent", "0"),
        ("last-ok-ping-reply", "0"),
        ("last-ping-reply", "0"),
        ("down-after-milliseconds", &takeover),
    ];
    call.reply.map(fields.len().saturating_add(own.len()));
    for (field, value) in fields.iter().chain(own) {
        call.reply.bulk(field.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
}
