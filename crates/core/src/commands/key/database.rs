//! Commands on whole databases: FLUSHDB, FLUSHALL, SWAPDB.
//!
//! Rule    memory is freed at once, with SYNC and with ASYNC.
//! Source  Redis 7.0 `db.c`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number::integer as parse;

use crate::commands::row::{Arg, Flags, Group, Row, integer, one_of, token};
use crate::commands::{Args, Call, Outcome, Shared};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Server, "FLUSHALL", "1.0.0", flushall)
        .summary("Deletes every key of every database.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::ALL_SHARDS).with(Flags::DANGEROUS))
        .args(&[FLUSH_TYPE.maybe()]),
    Row::new(Group::Server, "FLUSHDB", "1.0.0", flushdb)
        .summary("Deletes every key of the database.")
        .flags(Flags::WRITE.with(Flags::REMOVES).with(Flags::ALL_SHARDS).with(Flags::DANGEROUS))
        .args(&[FLUSH_TYPE.maybe()]),
    Row::new(Group::Server, "SWAPDB", "4.0.0", swapdb)
        .summary("Exchanges two databases for all clients at once.")
        .flags(Flags::WRITE.with(Flags::FAST).with(Flags::ALL_SHARDS).with(Flags::DANGEROUS))
        .args(&[integer("index1"), integer("index2")]),
];

const FLUSH_TYPE: Arg = one_of("flush-type", &[token("async", "ASYNC"), token("sync", "SYNC")]);

fn flushall(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    take_flush_type(&mut call.args)?;

    call.view.whole().clear_all();

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn flushdb(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    take_flush_type(&mut call.args)?;

    let database = call.view.database();
    call.view.whole().clear(database);

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn take_flush_type(args: &mut Args<'_>) -> Result<(), Refusal> {
    let _ = args.take("SYNC") || args.take("ASYNC");
    args.finish()
}

fn swapdb(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    refuse_in_cluster(call.shared, "SWAPDB is")?;
    let first = index(call.args.word()?, "ERR invalid first DB index")?;
    let second = index(call.args.word()?, "ERR invalid second DB index")?;
    let (first, second) = (in_range(first, call.shared)?, in_range(second, call.shared)?);

    if first != second {
        call.view.whole().swap(first, second);
        call.shared.registries.lock_sessions.swap(first, second);
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// # Errors
/// The server is in cluster mode, where there is database 0 alone. The error says what is not allowed.
pub(in crate::commands) fn refuse_in_cluster(shared: &Shared, what: &str) -> Result<(), Refusal> {
    match shared.cluster_enabled {
        true => Err(Refusal::said(format!("ERR {what} not allowed in cluster mode"))),
        false => Ok(()),
    }
}

/// The number of a database as COPY and MOVE read it.
///
/// # Errors
/// [`Refusal::NotAnInteger`], a text of its own for what does not fit 32 bits, [`Refusal::DatabaseRange`].
pub(in crate::commands) fn number(text: &[u8], shared: &Shared) -> Result<u16, Refusal> {
    in_range(any_number(text)?, shared)
}

/// The number of the database that SELECT selects.
///
/// # Errors
/// As [`number`]; in cluster mode, it is not database 0.
pub(in crate::commands) fn selected(text: &[u8], shared: &Shared) -> Result<u16, Refusal> {
    let number = any_number(text)?;
    if number != 0 {
        refuse_in_cluster(shared, "SELECT is")?;
    }
    in_range(number, shared)
}

fn any_number(text: &[u8]) -> Result<i64, Refusal> {
    let number = parse(text).ok_or(Refusal::NotAnInteger)?;
    if i32::try_from(number).is_err() {
        return Err(Refusal::said(format!(
            "ERR value is out of range, value must between {} and {}",
            i32::MIN,
            i32::MAX
        )));
    }
    Ok(number)
}

fn index(text: &[u8], refusal: &'static str) -> Result<i64, Refusal> {
    let number = parse(text).filter(|number| i32::try_from(*number).is_ok());
    number.ok_or(Refusal::said(refusal))
}

fn in_range(number: i64, shared: &Shared) -> Result<u16, Refusal> {
    let number = u16::try_from(number).ok();
    number.filter(|number| *number < shared.keyspace.databases()).ok_or(Refusal::DatabaseRange)
}
