//! Looking through a hash: HSCAN, and HRANDFIELD, which draws from it.
//!
//! Source  Redis 7.0 `t_hash.c`: `hrandfieldWithCountCommand`, and `db.c`: `scanGenericCommand`; NOVALUES of Valkey 8.

use crate::commands::random::{self, BULK_BYTES, DRAWN_BYTES_MAX, below, too_much};
use crate::commands::row::{Flags, Group, Row, block, integer, key, pattern, token};
use crate::commands::scan::{Found, WalkOptions, cursor};
use crate::commands::{Call, Outcome, Shared};
use crate::error::Refusal;
use crate::resp::{Protocol, Reply};
use crate::types::{Hash, Shape};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row {
        name: "HRANDFIELD",
        summary: "Returns fields of a hash, any of them.",
        since: "6.2.0",
        group: Group::Hash,
        flags: Flags::READONLY.with(Flags::LINEAR),
        args: &[
            key("key"),
            block("options", &[integer("count"), token("withvalues", "WITHVALUES").maybe()]).maybe(),
        ],
        subcommands: &[],
        run: hrandfield,
    },
    Row {
        name: "HSCAN",
        summary: "Returns some fields and values of a hash, and where to go on.",
        since: "2.8.0",
        group: Group::Hash,
        flags: Flags::READONLY.with(Flags::LINEAR),
        args: &[
            key("key"),
            integer("cursor"),
            pattern("pattern").after("MATCH").maybe(),
            integer("count").after("COUNT").maybe(),
            token("novalues", "NOVALUES").maybe(),
        ],
        subcommands: &[],
        run: hscan,
    },
];

fn hrandfield(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if call.args.is_empty() {
        return one_field(call, name);
    }
    let count = random::count(&mut call.args)?;
    let with_values = !call.args.is_empty();
    if with_values {
        if !call.args.take("WITHVALUES") || !call.args.is_empty() {
            return Err(Refusal::Syntax);
        }
        if count.unsigned_abs() > (i64::MAX / 2).unsigned_abs() {
            return Err(too_much());
        }
    }

    let Some(hash) = call.view.read_as::<Hash>(name)? else {
        call.reply.array(0);
        return Ok(Outcome::Replied);
    };
    let mut drawn = Drawn { reply: &mut call.reply, with_values };
    match usize::try_from(count) {
        Ok(count) => drawn.distinct(hash, count.min(hash.len()), call.shared),
        Err(_) => drawn.repeated(hash, count.unsigned_abs(), call.shared)?,
    }
    Ok(Outcome::Replied)
}

fn one_field(call: &mut Call<'_, '_>, name: &[u8]) -> Result<Outcome, Refusal> {
    match call.view.read_as::<Hash>(name)?.and_then(|hash| hash.at(below(hash.len(), call.shared))) {
        Some((field, _)) => call.reply.bulk(field),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

/// Fields on their way to the client.
struct Drawn<'c, 'a> {
    reply: &'c mut Reply<'a>,
    with_values: bool,
}

impl Drawn<'_, '_> {
    fn head(&mut self, count: usize) {
        let flat = self.with_values && self.reply.protocol() == Protocol::Resp2;
        self.reply.array(count << u32::from(flat));
    }

    fn pair(&mut self, field: &[u8], value: &[u8]) {
        if self.with_values && self.reply.protocol() == Protocol::Resp3 {
            self.reply.array(2);
        }
        self.reply.bulk(field);
        if self.with_values {
            self.reply.bulk(value);
        }
    }

    /// So many fields, none of them twice.
    fn distinct(&mut self, hash: &Hash, count: usize, shared: &Shared) {
        self.head(count);
        let at = |place| hash.at(place);
        random::distinct((hash.len(), count), at, hash.iter(), shared, |(field, value)| {
            self.pair(field, value)
        });
    }

    /// So many fields, each drawn from all.
    fn repeated(&mut self, hash: &Hash, count: u64, shared: &Shared) -> Result<(), Refusal> {
        let count = usize::try_from(count).ok().filter(|count| *count <= DRAWN_BYTES_MAX / BULK_BYTES);
        let count = count.ok_or_else(too_much)?;
        self.head(count);
        let mut left = DRAWN_BYTES_MAX;
        for _ in 0..count {
            if let Some((field, value)) = hash.at(below(hash.len(), shared)) {
                let value_bytes = if self.with_values { value.len().saturating_add(BULK_BYTES) } else { 0 };
                let pair_bytes = field.len().saturating_add(BULK_BYTES).saturating_add(value_bytes);
                left = left.checked_sub(pair_bytes).ok_or_else(too_much)?;
                self.pair(field, value);
            }
        }
        Ok(())
    }
}

fn hscan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let cursor = cursor(&mut call.args)?;
    // Options are looked at only when the key is there, as in Redis.
    let Some(hash) = call.view.read_as::<Hash>(name)? else {
        Found::default().answer_step(0, &mut call.reply);
        return Ok(Outcome::Replied);
    };
    let mut with_values = true;
    let options = WalkOptions::take(&mut call.args, |args| {
        let is_own = args.take("NOVALUES");
        with_values &= !is_own;
        Ok(is_own)
    })?;

    let mut found = Found::default();
    let cursor = hash.scan(cursor, options.count, |field, value| {
        if options.fits(field) {
            found.add(field);
            if with_values {
                found.add(value);
            }
        }
    });

    found.answer_step(cursor, &mut call.reply);
    Ok(Outcome::Replied)
}
