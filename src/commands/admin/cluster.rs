//! CLUSTER, READONLY and READWRITE, which this server refuses as a Redis without cluster support does.
//!
//! Source  Redis 7.0 `cluster.c`: `clusterCommand`, `readonlyCommand`.

use crate::commands::row::{Flags, Group, Row};
use crate::commands::{Call, Outcome};
use crate::error::Refusal;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::container(
        Group::Cluster,
        "CLUSTER",
        "3.0.0",
        &[
            Row::new(Group::Cluster, "INFO", "3.0.0", refuse)
                .summary("Refused: there is no cluster.")
                .flags(Flags::STALE),
            Row::new(Group::Cluster, "MYID", "3.0.0", refuse)
                .summary("Refused: there is no cluster.")
                .flags(Flags::STALE),
            Row::new(Group::Cluster, "NODES", "3.0.0", refuse)
                .summary("Refused: there is no cluster.")
                .flags(Flags::STALE),
            Row::new(Group::Cluster, "SHARDS", "7.0.0", refuse)
                .summary("Refused: there is no cluster.")
                .flags(Flags::STALE),
            Row::new(Group::Cluster, "SLOTS", "3.0.0", refuse)
                .summary("Refused: there is no cluster.")
                .flags(Flags::STALE),
        ],
    )
    .summary("A container for commands about a cluster, all refused: there is none."),
    Row::new(Group::Cluster, "READONLY", "3.0.0", refuse)
        .summary("Refused: it is for replicas of a cluster.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
    Row::new(Group::Cluster, "READWRITE", "3.0.0", refuse)
        .summary("Refused: it is for replicas of a cluster.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
];

fn refuse(_: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::said("ERR This instance has cluster support disabled"))
}
