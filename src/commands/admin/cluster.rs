//! CLUSTER, READONLY and READWRITE, which this server refuses as a Redis without cluster support does.
//!
//! Source  Redis 7.0 `cluster.c`: `clusterCommand`, `readonlyCommand`.

use crate::commands::row::{Flags, Group, Row};
use crate::commands::{Call, Outcome};
use crate::error::Refusal;

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
    refused("INFO", "3.0.0"),
    refused("MYID", "3.0.0"),
    refused("NODES", "3.0.0"),
    refused("SHARDS", "7.0.0"),
    refused("SLOTS", "3.0.0"),
];

const fn refused(name: &'static str, since: &'static str) -> Row {
    Row::new(Group::Cluster, name, since, refuse).summary("Refused: there is no cluster.").flags(Flags::STALE)
}

fn refuse(_: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::said("ERR This instance has cluster support disabled"))
}
