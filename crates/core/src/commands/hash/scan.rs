//! HSCAN: a scan over the fields of a hash.
//!
//! Source  Redis 7.0 `db.c`: `scanGenericCommand`; NOVALUES of Valkey 8.

use redlatch_proto::error::Refusal;

use crate::commands::row::{Flags, Group, Row, integer, key, pattern, token};
use crate::commands::scan::{Found, ScanOptions, cursor};
use crate::commands::{Call, Outcome};
use crate::types::Hash;

pub(in crate::commands) const ROWS: &[Row] = &[Row::new(Group::Hash, "HSCAN", "2.8.0", hscan)
    .summary("Returns some fields and values of a hash and the next cursor.")
    .flags(Flags::READONLY.with(Flags::LINEAR))
    .args(&[
        key("key"),
        integer("cursor"),
        pattern("pattern").after("MATCH").maybe(),
        integer("count").after("COUNT").maybe(),
        token("novalues", "NOVALUES").maybe(),
    ])];

fn hscan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let cursor = cursor(&mut call.args)?;
    // As in Redis, options are read only if the key exists.
    let Some(hash) = call.view.read_as::<Hash>(name)? else {
        Found::default().answer_step(0, &mut call.reply);
        return Ok(Outcome::Replied);
    };
    let mut with_values = true;
    let options = ScanOptions::take(&mut call.args, |args| {
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
