//! CLUSTER, READONLY and READWRITE, which this server refuses as a Redis without cluster support does.
//!
//! Source  Redis 7.0 `cluster.c`: `clusterCommand`, `readonlyCommand`.

use crate::commands::row::{Flags, Group, Row};
use crate::commands::{Call, Outcome};
use crate::error::Refusal;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row {
        name: "CLUSTER",
        summary: "A container for commands about a cluster, all refused: there is none.",
        since: "3.0.0",
        flags: Flags::NONE,
        subcommands: &[
            Row { name: "INFO", summary: "Refused: there is no cluster.", ..SUBCOMMAND },
            Row { name: "MYID", summary: "Refused: there is no cluster.", ..SUBCOMMAND },
            Row { name: "NODES", summary: "Refused: there is no cluster.", ..SUBCOMMAND },
            Row { name: "SHARDS", summary: "Refused: there is no cluster.", since: "7.0.0", ..SUBCOMMAND },
            Row { name: "SLOTS", summary: "Refused: there is no cluster.", ..SUBCOMMAND },
        ],
        run: crate::commands::container,
        ..SUBCOMMAND
    },
    Row {
        name: "READONLY",
        summary: "Refused: it is for replicas of a cluster.",
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        ..SUBCOMMAND
    },
    Row {
        name: "READWRITE",
        summary: "Refused: it is for replicas of a cluster.",
        flags: Flags::LOADING.with(Flags::STALE).with(Flags::FAST),
        ..SUBCOMMAND
    },
];

const SUBCOMMAND: Row = Row::new(Group::Cluster, "", "3.0.0", refuse).summary("").flags(Flags::STALE);

fn refuse(_: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    Err(Refusal::said("ERR This instance has cluster support disabled"))
}
