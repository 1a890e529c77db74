//! Looking through a database: KEYS, SCAN, RANDOMKEY, DBSIZE.
//!
//! Locks   SCAN and DBSIZE hold one shard at a time, and none for longer than [`KEYS_PER_LOCK`] keys or one sum.
//! Source  Redis 7.0 `db.c`: `scanGenericCommand`, `parseScanCursorOrReply`.

use super::row::{Flags, Group, Row, integer, pattern, text};
use super::{Args, Call, Outcome};
use crate::error::Refusal;
use crate::resp::Reply;
use crate::types::glob;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "DBSIZE",
        summary: "Returns the number of keys in the database.",
        since: "1.0.0",
        group: Group::Server,
        flags: Flags::READONLY.with(Flags::FAST).with(Flags::SUMS),
        args: &[],
        subcommands: &[],
        run: dbsize,
    },
    Row {
        name: "KEYS",
        summary: "Returns all keys that fit a pattern.",
        since: "1.0.0",
        group: Group::Generic,
        flags: Flags::READONLY.with(Flags::ALL_SHARDS).with(Flags::DANGEROUS),
        args: &[pattern("pattern")],
        subcommands: &[],
        run: keys,
    },
    Row {
        name: "RANDOMKEY",
        summary: "Returns a key of the database, any of them.",
        since: "1.0.0",
        group: Group::Generic,
        flags: Flags::READONLY.with(Flags::ALL_SHARDS),
        args: &[],
        subcommands: &[],
        run: random_key,
    },
    Row {
        name: "SCAN",
        summary: "Returns some keys of the database, and where to go on.",
        since: "2.8.0",
        group: Group::Generic,
        flags: Flags::READONLY.with(Flags::SUMS),
        args: &[
            integer("cursor"),
            pattern("pattern").after("MATCH").maybe(),
            integer("count").after("COUNT").maybe(),
            text("type").after("TYPE").maybe(),
        ],
        subcommands: &[],
        run: scan,
    },
];

/// Keys that SCAN looks at while it holds a shard.
const KEYS_PER_LOCK: u64 = 16;

fn dbsize(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let (keys, _) = call.view.size(call.view.database())?;

    call.reply.count(keys);
    Ok(Outcome::Replied)
}

fn keys(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pattern = call.args.word()?;

    let mut found = Found::default();
    call.view.for_each_key(|name| {
        if glob::matches(pattern, name) {
            found.add(name);
        }
    });

    found.answer(&mut call.reply);
    Ok(Outcome::Replied)
}

fn random_key(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let entropy = call.shared.random();

    match call.view.random_key(entropy) {
        Some(name) => call.reply.bulk(&name),
        None => call.reply.null(),
    }
    Ok(Outcome::Replied)
}

#[derive(Debug)]
struct ScanOptions<'a> {
    count: u64,
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
}

fn scan_options<'a>(args: &mut Args<'a>) -> Result<ScanOptions<'a>, Refusal> {
    let mut options = ScanOptions { count: 10, pattern: None, type_name: None };
    while !args.is_empty() {
        if args.take("COUNT") {
            let count = args.integer()?;
            options.count = u64::try_from(count).ok().filter(|count| *count > 0).ok_or(Refusal::Syntax)?;
        } else if args.take("MATCH") {
            options.pattern = Some(args.word()?);
        } else if args.take("TYPE") {
            options.type_name = Some(args.word()?);
        } else {
            return Err(Refusal::Syntax);
        }
    }
    Ok(options)
}

fn scan(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut cursor = cursor(call.args.word()?).ok_or_else(|| Refusal::said("ERR invalid cursor"))?;
    let options = scan_options(&mut call.args)?;

    let mut found = Found::default();
    let mut left = options.count;
    // A shard without keys costs a step too, but there are only so many shards.
    while left > 0 {
        let keys = left.min(KEYS_PER_LOCK);
        let mut seen = 0;
        cursor = call.view.scan(cursor, keys, &mut |name, type_name| {
            seen += 1;
            let fits = options.pattern.is_none_or(|pattern| glob::matches(pattern, name))
                && options.type_name.is_none_or(|wanted| wanted.eq_ignore_ascii_case(type_name.as_bytes()));
            if fits {
                found.add(name);
            }
        })?;
        if cursor == 0 {
            break;
        }
        left = left.saturating_sub(seen);
    }

    call.reply.array(2);
    call.reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
    found.answer(&mut call.reply);
    Ok(Outcome::Replied)
}

/// A cursor as C's `strtoul` reads it, which takes a sign, wraps a negative number around, and reads nothing as 0.
pub(super) fn cursor(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let magnitude: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

/// Names of keys, already in the words of the protocol: how many they are is known at the end only.
#[derive(Debug, Default)]
pub(super) struct Found {
    count: usize,
    names: Vec<u8>,
}

impl Found {
    pub(super) fn add(&mut self, name: &[u8]) {
        self.count += 1;
        Reply::new(&mut self.names, crate::resp::Protocol::Resp2).bulk(name);
    }

    pub(super) fn answer(&self, reply: &mut Reply<'_>) {
        reply.array(self.count);
        reply.raw(&self.names);
    }
}

#[cfg(test)]
mod tests {
    use super::cursor;

    #[test]
    fn a_cursor_is_what_strtoul_takes_and_nothing_else() {
        for (text, value) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            ("--1", None),
            ("-+1", None),
            (" 0", None),
            ("0x0", None),
            ("1 ", None),
            ("abc", None),
        ] {
            assert_eq!(cursor(text.as_bytes()), value, "{text:?}");
        }
    }
}
