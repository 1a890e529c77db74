//! CLUSTER, READONLY, READWRITE and ASKING: a cluster of one node, which has all slots, or in tests of several. Without
//! `cluster-enabled` they are refused as by a Redis without cluster support.
//!
//! Where several nodes serve one set of locks from a log in etcd, CLUSTER INFO tells of them.
//!
//! Rule    a client is told the address at which it has reached this server, unless `cluster-announce-ip` names another.
//! Source  Redis 7.0 `cluster.c`: `clusterCommand`, `readonlyCommand`, `askingCommand`; MYSHARDID from Valkey.

use std::ops::RangeInclusive;

use redlatch_proto::error::Refusal;
use redlatch_proto::number::integer as parse;
use redlatch_proto::resp::Reply;

use crate::commands::admin::members::{Member, members, replicas_of};
use crate::commands::admin::slot_owner::shard_id;
use crate::commands::row::{Arg, Flags, Group, Row, Run, block, integer, text};
use crate::commands::{Call, Outcome, Peers, Shared, help};
use crate::state::cluster::ClusterFacts;
use crate::state::session::Asking;
use crate::types::slot::{SLOTS, slot};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Cluster, "ASKING", "3.0.0", ask)
        .summary(
            "Has the next request served by the node to which its slot is moving, in a cluster of a test.",
        )
        .flags(Flags::FAST),
    Row::container(Group::Cluster, "CLUSTER", "3.0.0", SUBCOMMANDS).summary(
        "A container for commands about the cluster, of which this server is the only node but in tests.",
    ),
    Row::new(Group::Cluster, "READONLY", "3.0.0", read_replicas)
        .summary("Has replicas serve the reads of this connection, in a cluster of a test.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
    Row::new(Group::Cluster, "READWRITE", "3.0.0", read_masters)
        .summary("Ends READONLY.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
];

const SUBCOMMANDS: &[Row] = &[
    changing("ADDSLOTS", "3.0.0", add_slots).args(&[integer("slot").many()]),
    changing("ADDSLOTSRANGE", "7.0.0", add_slot_ranges).args(&[SLOT_RANGE.many()]),
    row("COUNT-FAILURE-REPORTS", "3.0.0", failure_reports)
        .summary("Returns 0: no node reports anything.")
        .flags(Flags::ADMIN.with(Flags::STALE))
        .args(&[text("node-id")]),
    row("COUNTKEYSINSLOT", "3.0.0", count_keys)
        .summary("Counts the keys in a slot of this node.")
        .flags(SCANS)
        .args(&[integer("slot")]),
    row("GETKEYSINSLOT", "3.0.0", keys)
        .summary("Returns keys of a slot of this node, at most so many.")
        .flags(SCANS)
        .args(&[integer("slot"), integer("count")]),
    row("HELP", "5.0.0", help)
        .summary("Lists the subcommands and what they do.")
        .flags(Flags::LOADING.with(Flags::STALE)),
    row("INFO", "3.0.0", info)
        .summary("Tells of the cluster, or of the nodes that share a log in etcd; refused without either."),
    row("KEYSLOT", "3.0.0", key_slot).summary("Returns the slot of a key.").args(&[text("key")]),
    row("LINKS", "7.0.0", links).summary("Returns no link: there is no cluster bus."),
    row("MYID", "3.0.0", my_id).summary("Returns the id of this node, which is another after each start."),
    row("MYSHARDID", "7.2.0", my_shard_id)
        .summary("Returns the id of the shard of this node.")
        .flags(Flags::LOADING.with(Flags::STALE)),
    row("NODES", "3.0.0", nodes).summary("Describes the nodes, each in a line."),
    row("REPLICAS", "5.0.0", replicas)
        .summary("Describes the replicas of a node, each in a line; there are none but in tests.")
        .flags(Flags::ADMIN.with(Flags::STALE))
        .args(&[text("node-id")]),
    row("SHARDS", "7.0.0", shards).summary("Returns the nodes, each with its slots."),
    row("SLAVES", "3.0.0", replicas)
        .summary("Like REPLICAS.")
        .flags(Flags::ADMIN.with(Flags::STALE))
        .args(&[text("node-id")]),
    row("SLOTS", "3.0.0", slots).summary("Returns the slots, and the addresses of the nodes that have them."),
];

const SLOT_RANGE: Arg = block("range", &[integer("start-slot"), integer("end-slot")]);
const SCANS: Flags = Flags::STALE.with(Flags::ALL_SHARDS).with(Flags::LINEAR);

const fn row(name: &'static str, since: &'static str, run: Run) -> Row {
    Row::new(Group::Cluster, name, since, run).flags(Flags::STALE)
}

const fn changing(name: &'static str, since: &'static str, run: Run) -> Row {
    row(name, since, run)
        .summary("Refused: every slot has an owner already.")
        .flags(Flags::ADMIN.with(Flags::STALE).with(Flags::NO_ASYNC_LOADING))
}

/// # Errors
/// The server is not in cluster mode.
fn enabled(call: &Call<'_, '_>) -> Result<(), Refusal> {
    match call.shared.cluster_enabled {
        true => Ok(()),
        false => Err(Refusal::said("ERR This instance has cluster support disabled")),
    }
}

fn read_replicas(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let accepted = accept(call)?;
    call.session.reads_replicas = true;
    Ok(accepted)
}

fn read_masters(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let accepted = accept(call)?;
    call.session.reads_replicas = false;
    Ok(accepted)
}

fn accept(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn ask(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.session.asking = Asking::Next;
    accept(call)
}

fn help(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    help::help(call)
}

fn add_slots(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    let first = any_slot(call.args.word()?)?;
    call.args.rest().try_for_each(|word| any_slot(word).map(drop))?;

    Err(busy(first))
}

/// As in Redis, the first range that is wrong or has an owner decides: that is the first one.
fn add_slot_ranges(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    if !call.args.len().is_multiple_of(2) {
        return Err(Refusal::Arity(call.command.name.as_str().into()));
    }
    let (start, end) = (any_slot(call.args.word()?)?, any_slot(call.args.word()?)?);
    if start > end {
        let text = format!("ERR start slot number {start} is greater than end slot number {end}");
        return Err(Refusal::said(text));
    }

    Err(busy(start))
}

fn busy(slot: u16) -> Refusal {
    Refusal::said(format!("ERR Slot {slot} is already busy"))
}

fn any_slot(word: &[u8]) -> Result<u16, Refusal> {
    let slot = parse(word).and_then(in_range);
    slot.ok_or(Refusal::said("ERR Invalid or out of range slot"))
}

fn in_range(number: i64) -> Option<u16> {
    u16::try_from(number).ok().filter(|slot| *slot < SLOTS)
}

fn failure_reports(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    any_node(call)?;

    call.reply.integer(0);
    Ok(Outcome::Replied)
}

fn replicas(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (members, at) = any_node(call)?;
    if members[at].master.is_some() {
        return Err(Refusal::said("ERR The specified node is not a master"));
    }

    let lines: Vec<String> =
        replicas_of(&members, &members[at]).map(|replica| replica.line().trim_end().to_owned()).collect();
    call.reply.bulks(&lines);
    Ok(Outcome::Replied)
}

/// Reads the id of a node of the cluster. Returns all nodes, and the place of that one among them.
fn any_node(call: &mut Call<'_, '_>) -> Result<(Vec<Member>, usize), Refusal> {
    enabled(call)?;
    let id = call.args.word()?;
    call.args.finish()?;
    let members = members(call);
    let at = members.iter().position(|member| id == member.owner.id().as_bytes());
    let at = at.ok_or_else(|| Refusal::quoting("ERR Unknown node ", id, ""))?;
    Ok((members, at))
}

fn count_keys(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    let wanted = in_range(call.args.integer()?).ok_or(Refusal::said("ERR Invalid slot"))?;
    call.args.finish()?;

    let mut count = 0_usize;
    call.view.whole().for_each_key(|name| count = count.saturating_add(usize::from(slot(name) == wanted)));

    call.reply.count(count);
    Ok(Outcome::Replied)
}

fn keys(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    let (wanted, count) = (call.args.integer()?, call.args.integer()?);
    call.args.finish()?;
    let bounds = in_range(wanted).zip(usize::try_from(count).ok());
    let (wanted, count) = bounds.ok_or(Refusal::said("ERR Invalid slot or number of keys"))?;

    let mut found: Vec<Box<[u8]>> = Vec::new();
    call.view.whole().for_each_key(|name| {
        if found.len() < count && slot(name) == wanted {
            found.push(name.into());
        }
    });

    call.reply.bulks(&found);
    Ok(Outcome::Replied)
}

fn key_slot(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    let name = call.args.word()?;
    call.args.finish()?;

    call.reply.integer(i64::from(slot(name)));
    Ok(Outcome::Replied)
}

fn links(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    call.reply.array(0);
    Ok(Outcome::Replied)
}

fn my_id(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    call.reply.bulk(own_id(call.shared).as_bytes());
    Ok(Outcome::Replied)
}

fn my_shard_id(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    let founder = call.shared.peers.as_ref().and_then(Peers::founder);
    let id = founder.as_deref().map_or(own_id(call.shared), |founder| &founder.instance.run_id);
    call.reply.bulk(&shard_id(id));
    Ok(Outcome::Replied)
}

/// The id of this node, as the others know it.
fn own_id(shared: &Shared) -> &str {
    match &shared.cluster {
        Some(cluster) if cluster.group.is_some() => &cluster.me.id,
        _ => &shared.instance.run_id,
    }
}

fn nodes(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    let text: String = members(call).iter().map(Member::line).collect();
    call.reply.verbatim(&text);
    Ok(Outcome::Replied)
}

fn slots(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    let members = members(call);
    let of = members.iter().map(|member| member.ranges.iter().map(move |range| (member, range)));
    let mut ranges: Vec<_> = of.flatten().collect();
    ranges.sort_by_key(|(_, range)| *range.start());
    call.reply.array(ranges.len());
    for (member, range) in ranges {
        let replicas: Vec<&Member> =
            replicas_of(&members, member).filter(|replica| !replica.has_failed).collect();
        call.reply.array(replicas.len().saturating_add(3));
        put_range(&mut call.reply, range);
        member.owner.put_endpoint(&mut call.reply);
        replicas.iter().for_each(|replica| replica.owner.put_endpoint(&mut call.reply));
    }
    Ok(Outcome::Replied)
}

fn shards(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    enabled(call)?;
    call.args.finish()?;

    let members = members(call);
    let reply = &mut call.reply;
    let masters: Vec<&Member> = members.iter().filter(|member| member.master.is_none()).collect();
    reply.array(masters.len());
    for master in masters {
        reply.map(2);
        reply.bulk(b"slots");
        reply.array(master.ranges.len().saturating_mul(2));
        master.ranges.iter().for_each(|range| put_range(reply, range));
        reply.bulk(b"nodes");
        let replicas: Vec<&Member> = replicas_of(&members, master).collect();
        reply.array(replicas.len().saturating_add(1));
        master.owner.put_fields(reply, ("master", master.offset), master.has_failed);
        for replica in replicas {
            replica.owner.put_fields(reply, ("replica", replica.offset), replica.has_failed);
        }
    }
    Ok(Outcome::Replied)
}

fn put_range(reply: &mut Reply<'_>, range: &RangeInclusive<u16>) {
    reply.integer(i64::from(*range.start()));
    reply.integer(i64::from(*range.end()));
}

fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let text = match &call.shared.cluster {
        Some(cluster) => info_of_replicated(call, cluster),
        None => {
            enabled(call)?;
            info_of_slots(call)
        }
    };
    call.args.finish()?;

    call.reply.verbatim(&text);
    Ok(Outcome::Replied)
}

/// CLUSTER INFO of nodes that have all slots.
fn info_of_slots(call: &Call<'_, '_>) -> String {
    let members = members(call);
    let peers = call.shared.peers.as_ref();
    let failed = peers.map_or(0, |peers| peers.slots.failed_slots());
    let epoch = peers.map_or(0, |peers| peers.slots.hold().current_epoch());
    let is_down = peers.is_some_and(|peers| peers.slots.is_down_at(peers.me));
    let (known, size) = (members.len(), members.iter().filter(|member| !member.ranges.is_empty()).count());
    let mine = members.iter().filter(|member| member.is_me).map(|member| member.epoch).sum();
    let lines: [(&str, usize); 11] = [
        ("cluster_slots_assigned", SLOTS.into()),
        ("cluster_slots_ok", usize::from(SLOTS).saturating_sub(failed)),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", failed),
        ("cluster_known_nodes", known),
        ("cluster_size", size),
        ("cluster_current_epoch", epoch.into()),
        ("cluster_my_epoch", u16::into(mine)),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ];
    let state = if is_down { "fail" } else { "ok" };
    let lines: String = lines.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
    format!("cluster_state:{state}\r\n{lines}")
}

fn info_of_replicated(call: &Call<'_, '_>, cluster: &ClusterFacts) -> String {
    let (commits, commit_micros) = cluster.commits();
    let nodes = cluster.others().len().saturating_add(1);
    let lines = [
        ("cluster_state", if cluster.is_served() { "ok" } else { "fail" }.to_owned()),
        ("cluster_known_nodes", nodes.to_string()),
        ("cluster_unreached_by", cluster.unreached_by().to_string()),
        ("cluster_current_epoch", cluster.epoch().to_string()),
        ("cluster_name", cluster.name.clone()),
        ("cluster_leader", format!("{}:{}", cluster.me.host, cluster.me.port)),
        ("cluster_leader_id", cluster.me.id.clone()),
        ("cluster_leads_for_ms", call.now.lock.millis_since(call.shared.instance.started).to_string()),
        ("cluster_head", cluster.head().to_string()),
        ("cluster_commits", commits.to_string()),
        ("cluster_commit_micros", commit_micros.to_string()),
    ];
    let mut text: String = lines.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect();
    if let Some(group) = &cluster.group {
        let leaders = group.leaders();
        let slots: usize = leaders.iter().map(|(_, slots, _)| slots.len()).sum();
        let (leaders, count, number) = (leaders.len(), group.count(), group.number);
        text += &format!("cluster_slots_assigned:{slots}\r\ncluster_slots_ok:{slots}\r\n");
        text += &format!("cluster_size:{leaders}\r\ncluster_groups:{count}\r\ncluster_group:{number}\r\n");
    }
    for node in cluster.others() {
        text += &format!("cluster_standby:{}:{}\r\n", node.host, node.port);
        if node.differs {
            text += &format!("cluster_standby_differs:{}:{}\r\n", node.host, node.port);
        }
    }
    text
}
