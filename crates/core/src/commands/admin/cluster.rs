//! CLUSTER, READONLY and READWRITE, which this server refuses as a Redis without cluster support does: keys have no slots.
//! Where several nodes serve one set of locks, CLUSTER INFO tells of them.
//!
//! Source  Redis 7.0 `cluster.c`: `clusterCommand`, `readonlyCommand`.

use redlatch_proto::error::Refusal;

use crate::commands::row::{Flags, Group, Row};
use crate::commands::{Call, Outcome};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::container(Group::Cluster, "CLUSTER", "3.0.0", SUBCOMMANDS)
        .summary("A container for commands about a cluster, all refused: there is none."),
    Row::new(Group::Cluster, "READONLY", "3.0.0", refuse)
        .summary("Refused: it is for replicas of a cluster.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
    Row::new(Group::Cluster, "READWRITE", "3.0.0", refuse)
        .summary("Refused: it is for replicas of a cluster.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
];

const SUBCOMMANDS: &[Row] = &[
    refused("HELP", "5.0.0").flags(Flags::LOADING.with(Flags::STALE)),
    Row::new(Group::Cluster, "INFO", "3.0.0", info)
        .summary("Tells of the nodes that share a log in etcd; refused without such a log.")
        .flags(Flags::STALE),
    refused("MYID", "3.0.0"),
    refused("NODES", "3.0.0"),
    refused("SHARDS", "7.0.0"),
    refused("SLOTS", "3.0.0"),
];

const fn refused(name: &'static str, since: &'static str) -> Row {
    Row::new(Group::Cluster, name, since, refuse).summary("Refused: there is no cluster.").flags(Flags::STALE)
}

fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let Some(cluster) = &call.shared.cluster else { return refuse(call) };
    call.args.finish()?;

    let (commits, commit_micros) = cluster.commits();
    let nodes = cluster.others().len().saturating_add(1);
    let lines = [
        ("cluster_state", if cluster.unreached_by() == 0 { "ok" } else { "fail" }.to_owned()),
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
    for node in cluster.others() {
        text += &format!("cluster_standby:{}:{}\r\n", node.host, node.port);
        if node.differs {
            text += &format!("cluster_standby_differs:{}:{}\r\n", node.host, node.port);
        }
    }
    call.reply.verbatim(&text);
    Ok(Outcome::Replied)
}

fn refuse(_: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::said("ERR This instance has cluster support disabled"))
}
