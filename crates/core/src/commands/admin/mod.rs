//! The server as a whole: TIME, ROLE, WAIT, SHUTDOWN, MEMORY, MODULE.
//!
//! Source  Redis 7.0.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

pub(in crate::commands) mod acl;
pub(in crate::commands) mod acl_categories;
pub(in crate::commands) mod acl_check;
pub(in crate::commands) mod acl_file;
pub(in crate::commands) mod acl_log;
pub(in crate::commands) mod acl_sessions;
pub(in crate::commands) mod cluster;
pub(in crate::commands) mod command;
pub(in crate::commands) mod config;
pub(in crate::commands) mod debug;
pub(in crate::commands) mod families;
pub(in crate::commands) mod info;
pub(in crate::commands) mod latency;
mod members;
pub(in crate::commands) mod metrics;
pub(in crate::commands) mod metrics_table;
pub(in crate::commands) mod monitor;
pub(in crate::commands) mod pause;
pub(in crate::commands) mod persistence;
mod readiness;
pub(in crate::commands) mod sentinel;
pub(in crate::commands) mod slot_owner;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::error::Refusal;
use redlatch_proto::number::{self, total};
use redlatch_proto::resp::Reply;

use crate::commands::admin::members::{Member, members, replicas_of};
use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, integer, key, one_of, token};
use crate::commands::{Call, Outcome, Peers};
use crate::state::ledger::Kind;
use crate::state::wait::Pending;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Server, "TIME", "2.6.0", time)
        .summary("Returns the server's wall clock: Unix seconds, and microseconds of this second.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST)),
    Row::new(Group::Server, "ROLE", "2.8.12", role)
        .summary("Returns the role in replication: master without replicas, but in the cluster of a test.")
        .flags(
            Flags::NOSCRIPT.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::DANGEROUS),
        ),
    Row::new(Group::Generic, "WAIT", "3.0.0", wait)
        .summary(
            "Waits until so many replicas have all writes, or for the timeout; there are none but in tests.",
        )
        .flags(Flags::NOSCRIPT)
        .args(&[integer("numreplicas"), integer("timeout")]),
    Row::new(Group::Server, "SHUTDOWN", "1.0.0", shutdown)
        .summary("Ends the server, with the journal on the disk if there is one.")
        .flags(
            Flags::ADMIN
                .with(Flags::NOSCRIPT)
                .with(Flags::LOADING)
                .with(Flags::STALE)
                .with(Flags::BUSY)
                .with(Flags::NO_MULTI),
        )
        .args(&[
            one_of("save-selector", &[token("nosave", "NOSAVE"), token("save", "SAVE")]).maybe(),
            token("now", "NOW").maybe(),
            token("force", "FORCE").maybe(),
            token("abort", "ABORT").maybe(),
        ]),
    Row::container(Group::Server, "MEMORY", "4.0.0", MEMORY)
        .summary("A container for commands about memory."),
    Row::container(Group::Server, "MODULE", "4.0.0", MODULE)
        .summary("A container for commands about modules, of which there are none."),
];

const MODULE: &[Row] = &[
    Row::new(Group::Server, "LIST", "4.0.0", module_list)
        .summary("Returns the loaded modules: none.")
        .flags(Flags::ADMIN.with(Flags::NOSCRIPT)),
    help::row(Group::Server),
];

const MEMORY: &[Row] = &[
    Row::new(Group::Server, "DOCTOR", "4.0.0", memory_doctor)
        .summary("Reports problems with memory.")
        .flags(Flags::SUMS),
    Row::new(Group::Server, "MALLOC-STATS", "4.0.0", memory_malloc_stats)
        .summary("Returns the allocator's own report, if it has one."),
    Row::new(Group::Server, "PURGE", "4.0.0", memory_purge)
        .summary("Drops the Lua interpreter, unless it runs a script or has libraries."),
    Row::new(Group::Server, "STATS", "4.0.0", memory_stats)
        .summary("Returns the use of the server's memory.")
        .flags(Flags::SUMS),
    Row::new(Group::Server, "USAGE", "4.0.0", memory_usage)
        .summary("Returns the bytes that a key and its value take.")
        .flags(Flags::READONLY)
        .args(&[key("key"), integer("count").after("SAMPLES").maybe()]),
    help::row(Group::Server).since("4.0.0"),
];

fn time(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let micros = call.shared.clock.wall_micros();
    call.reply.array(2);
    call.reply.bulk_integer((micros / 1_000_000) as i64);
    call.reply.bulk_integer((micros % 1_000_000) as i64);
    Ok(Outcome::Replied)
}

fn role(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let members = members(call);
    let Some(me) = members.iter().find(|member| member.is_me) else { return Err(gone()) };
    let reply = &mut call.reply;
    let offset = |member: &Member| i64::try_from(member.offset).unwrap_or(i64::MAX);
    if let Some(master) = &me.master {
        let master = members.iter().find(|member| member.owner.id() == master).ok_or_else(gone)?;
        let (ip, port) = master.owner.ip_and_port();
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(ip.as_bytes());
        reply.integer(i64::from(port));
        reply.bulk(b"connected");
        reply.integer(offset(me));
        return Ok(Outcome::Replied);
    }
    let replicas: Vec<&Member> = replicas_of(&members, me).collect();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(offset(me));
    reply.array(replicas.len());
    for replica in replicas {
        let (ip, port) = replica.owner.ip_and_port();
        reply.array(3);
        reply.bulk(ip.as_bytes());
        reply.bulk(port.to_string().as_bytes());
        reply.bulk(offset(replica).to_string().as_bytes());
    }
    Ok(Outcome::Replied)
}

fn gone() -> Refusal {
    Refusal::said("ERR the cluster is being dropped")
}

fn wait(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let replicas = number::integer(call.args.word()?);
    let timeout_word = call.args.word()?;
    call.args.finish()?;
    let replicas = replicas.ok_or(Refusal::NotAnInteger)?;
    let timeout_ms = timeout(timeout_word)?;

    let peers = call.shared.peers.as_ref();
    if peers.is_some_and(Peers::is_replica) {
        return Err(Refusal::said(WAIT_AT_REPLICA));
    }
    let acknowledged = peers.map_or(0, Peers::acknowledged);
    let wanted = usize::try_from(replicas).unwrap_or(0);
    if wanted <= acknowledged {
        call.reply.count(acknowledged);
        return Ok(Outcome::Replied);
    }
    let parked = park(call, timeout_ms, |reply| reply.count(acknowledged));
    if let (Some(stream), Outcome::Park { wait, .. }) = (peers.and_then(Peers::stream), &parked)
        && !call.session.is_nested
    {
        let client = Arc::clone(&call.session.client);
        stream.wait(wanted, Pending { client, wait: Arc::clone(wait) });
    }
    Ok(parked)
}

const WAIT_AT_REPLICA: &str = concat!(
    "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is ",
    "configured to be writable (which is not the default) writes to replicas are just local and are not propagated."
);

/// A timeout in milliseconds; zero means no limit.
fn timeout(word: &[u8]) -> Result<u64, Refusal> {
    let millis = number::integer(word)
        .ok_or_else(|| Refusal::said("ERR timeout is not an integer or out of range"))?;
    u64::try_from(millis).map_err(|_| Refusal::said("ERR timeout is negative"))
}

/// Parks the call for `timeout_ms`, zero without a limit, and then replies with `answer`.
fn park(call: &Call<'_, '_>, timeout_ms: u64, answer: impl FnOnce(&mut Reply<'_>)) -> Outcome {
    let mut bytes = Vec::new();
    answer(&mut Reply::new(&mut bytes, call.session.protocol));
    let until = (timeout_ms > 0).then(|| call.now.lock + timeout_ms);
    Outcome::Park { wait: call.session.new_wait(until, bytes), waiter: None }
}

fn shutdown(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (mut save, mut nosave, mut now, mut force, mut abort) = (false, false, false, false, false);
    while !call.args.is_empty() {
        if call.args.take("NOSAVE") {
            nosave = true;
        } else if call.args.take("SAVE") {
            save = true;
        } else if call.args.take("NOW") {
            now = true;
        } else if call.args.take("FORCE") {
            force = true;
        } else if call.args.take("ABORT") {
            abort = true;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    if (save && nosave) || (abort && (save || nosave || now || force)) {
        return Err(Refusal::Syntax);
    }
    if abort {
        return Err(Refusal::said("ERR No shutdown in progress."));
    }

    if now {
        call.shared.stop.is_immediate.store(true, Relaxed);
    }
    call.shared.stop();
    Ok(Outcome::Close)
}

fn memory_usage(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    while !call.args.is_empty() {
        // The size is exact: the number of samples is checked and has no effect.
        if !call.args.take("SAMPLES") || call.args.integer()? < 0 {
            return Err(Refusal::Syntax);
        }
    }

    match call.view.entry(name).occupied() {
        Some(found) => call.reply.count(found.bytes()),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn memory_doctor(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let (held, process) = (call.view.whole().counts().bytes as u64, call.shared.instance.process());
    let text = if held > 0 && process.resident_bytes > held.max(1 << 24).saturating_mul(16) {
        format!(
            "The process holds {} bytes of memory for {held} bytes of keys: something large has been freed, \
             or many clients have large buffers.",
            process.resident_bytes
        )
    } else {
        "No problem with memory is known to this server.".to_owned()
    };
    call.reply.verbatim(&text);
    Ok(Outcome::Replied)
}

fn memory_malloc_stats(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.reply.bulk(b"Stats not supported for the current allocator");
    Ok(Outcome::Replied)
}

fn memory_purge(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.shared.scripts.interpreter.purge();
    call.reply.ok();
    Ok(Outcome::Replied)
}

fn memory_stats(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let shared = call.shared;
    let held = call.view.whole().counts().bytes as u64;
    let process = shared.instance.process();
    let mut keys = 0_u64;
    for database in 0..shared.keyspace.databases() {
        keys = keys.saturating_add(call.view.whole().known_size(database).0 as u64);
    }
    let buffers = metrics::client_bytes(shared, &shared.registries.clients.all());
    let scripts = shared.scripts.cache.bytes() as u64;
    let allocated = shared.with_namespaces(total([held, buffers, scripts, shared.keyspace.ledger().total()]));
    let facts = [
        ("peak.allocated", shared.stats.metrics.peak_bytes.raise_to(allocated)),
        ("total.allocated", allocated),
        ("replication.backlog", 0),
        ("clients.normal", buffers),
        ("aof.buffer", 0),
        ("keys.count", keys),
        ("keys.bytes-per-key", held.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", held),
        ("allocator.resident", process.resident_bytes),
        ("scripts", scripts),
    ];
    let kinds = Kind::ALL.map(|kind| (kind.name(), shared.held(kind)));
    call.reply.map(facts.len().saturating_add(kinds.len()));
    for (name, value) in facts.into_iter().chain(kinds) {
        call.reply.bulk(name.as_bytes());
        call.reply.integer(value as i64);
    }
    Ok(Outcome::Replied)
}

fn module_list(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.reply.array(0);
    Ok(Outcome::Replied)
}
