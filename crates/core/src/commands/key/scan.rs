//! Scans of the keyspace: KEYS, SCAN, RANDOMKEY, DBSIZE.
//!
//! Locks   SCAN and DBSIZE lock one shard at a time: SCAN for at most [`KEYS_PER_LOCK`] keys, DBSIZE for one sum.
//! Source  Redis 7.0 `db.c`: `scanGenericCommand`, `parseScanCursorOrReply`.

use redlatch_proto::error::Refusal;

use crate::commands::row::{Flags, Group, Row, integer, pattern, text};
use crate::commands::scan::{Found, ScanOptions, cursor};
use crate::commands::{Call, Outcome};
use crate::types::glob;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Server, "DBSIZE", "1.0.0", dbsize)
        .summary("Returns the number of keys in the database.")
        .flags(Flags::READONLY.with(Flags::FAST).with(Flags::SUMS)),
    Row::new(Group::Generic, "KEYS", "1.0.0", keys)
        .summary("Returns all keys that match a pattern.")
        .flags(Flags::READONLY.with(Flags::ALL_SHARDS).with(Flags::DANGEROUS))
        .args(&[pattern("pattern")]),
    Row::new(Group::Generic, "RANDOMKEY", "1.0.0", random_key)
        .summary("Returns a random key of the database.")
        .flags(Flags::READONLY.with(Flags::ALL_SHARDS)),
    Row::new(Group::Generic, "SCAN", "2.8.0", scan)
        .summary("Returns some keys of the database and the next cursor.")
        .flags(Flags::READONLY.with(Flags::SUMS))
        .args(&[
            integer("cursor"),
            pattern("pattern").after("MATCH").maybe(),
            integer("count").after("COUNT").maybe(),
            text("type").after("TYPE").maybe(),
        ]),
];

/// Keys that SCAN visits under one lock of a shard.
const KEYS_PER_LOCK: u64 = 16;

fn dbsize(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let database = call.view.database();
    let (keys, _) = call.view.whole().size(database)?;

    call.reply.count(keys);
    Ok(Outcome::Replied)
}

fn keys(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pattern = call.args.word()?;

    let mut found = Found::default();
    let takes_all = glob::is_all(pattern);
    call.view.whole().for_each_key(|name| {
        if takes_all || glob::matches(pattern, name) {
            found.add(name);
        }
    });

    found.answer(&mut call.reply);
    Ok(Outcome::Replied)
}

fn random_key(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let entropy = call.shared.random.next();

    // CLIENT PAUSE keeps expired keys. RANDOMKEY answers an expired key then if there are no others.
    let accepts_ended = call.shared.pause.holds(|| true, call.now.lock).is_some();
    match call.view.whole().random_key(entropy, accepts_ended) {
        Some(name) => call.reply.bulk(&name),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

fn scan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut cursor = cursor(&mut call.args)?;
    let mut wanted_type = None;
    let options = ScanOptions::take(&mut call.args, |args| {
        let is_type = args.take("TYPE");
        if is_type {
            wanted_type = Some(args.word()?);
        }
        Ok(is_type)
    })?;

    let mut found = Found::default();
    let mut left = options.count;
    // An empty shard takes one step. The number of shards bounds these steps.
    while left > 0 {
        let keys = left.min(KEYS_PER_LOCK);
        let mut seen = 0_u64;
        cursor = call.view.whole().scan(cursor, keys, &mut |name, type_name| {
            seen = seen.saturating_add(1);
            let fits = options.fits(name)
                && wanted_type.is_none_or(|wanted| wanted.eq_ignore_ascii_case(type_name.as_bytes()));
            if fits {
                found.add(name);
            }
        })?;
        if cursor == 0 {
            break;
        }
        left = left.saturating_sub(seen);
    }

    found.answer_step(cursor, &mut call.reply);
    Ok(Outcome::Replied)
}
