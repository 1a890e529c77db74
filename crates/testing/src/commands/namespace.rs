//! TEST.NAMESPACE: the namespaces of the process.

use redlatch_core::commands::row::{Group, Row, text};
use redlatch_core::commands::{Call, Outcome, help};
use redlatch_proto::error::Refusal;

use super::{TEST, row, testing};
use crate::{DEFAULT_NAMESPACE, checked_name};

pub(super) const ROWS: &[Row] = &[
    row("DROP", drop_one).summary("Removes a namespace and disconnects its clients.").args(&[text("name")]),
    help::row(Group::Test).flags(TEST),
    row("LIST", list).summary("Lists the namespaces."),
];

fn list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let namespaces = testing(call)?.host.namespaces();
    call.reply.array(namespaces.len());
    for namespace in namespaces {
        call.reply.map(4);
        call.reply.bulk(b"name");
        call.reply.bulk(namespace.name.as_bytes());
        call.reply.bulk(b"clients");
        call.reply.count(namespace.clients);
        call.reply.bulk(b"keys");
        call.reply.count(namespace.keys);
        call.reply.bulk(b"mode");
        call.reply.bulk(namespace.mode.name().as_bytes());
    }
    Ok(Outcome::Replied)
}

fn drop_one(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = checked_name(call.args.word()?).map_err(Refusal::said)?;
    call.args.finish()?;
    if name == DEFAULT_NAMESPACE {
        return Err(Refusal::said("ERR the namespace 'default' cannot be dropped; FLUSHALL empties it"));
    }

    let was_there = testing(call)?.host.drop_namespace(name);
    call.reply.integer(i64::from(was_there));
    Ok(Outcome::Replied)
}
