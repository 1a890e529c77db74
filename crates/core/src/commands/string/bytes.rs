//! Commands on the bytes of a string: STRLEN, APPEND, GETRANGE, SETRANGE.
//!
//! Source  Redis 7.0 `t_string.c`.

use redlatch_proto::error::Refusal;

use crate::commands::row::{Flags, Group, Row, integer, key, text};
use crate::commands::{Call, Outcome};
use crate::keyspace::{Entry, Lease};
use crate::state::settings;

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::String, "APPEND", "2.0.0", append)
        .summary("Adds bytes at the end of a string; creates the key if it does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST).with(Flags::LINEAR))
        .args(&[key("key"), text("value")]),
    Row::new(Group::String, "GETRANGE", "2.4.0", getrange)
        .summary("Returns a part of a string.")
        .flags(Flags::READONLY)
        .args(&[key("key"), integer("start"), integer("end")]),
    Row::new(Group::String, "SETRANGE", "2.2.0", setrange)
        .summary("Writes bytes into a string from an offset on; creates the key if it does not exist.")
        .flags(Flags::WRITE.with(Flags::DENYOOM).with(Flags::LINEAR))
        .args(&[key("key"), integer("offset"), text("value")]),
    Row::new(Group::String, "STRLEN", "2.2.0", strlen)
        .summary("Returns the length of a string.")
        .flags(Flags::READONLY.with(Flags::FAST))
        .args(&[key("key")]),
    Row::new(Group::String, "SUBSTR", "1.0.0", getrange)
        .summary("Returns a part of a string: the old name of GETRANGE.")
        .flags(Flags::READONLY)
        .args(&[key("key"), integer("start"), integer("end")]),
];

fn strlen(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;

    let len = match call.view.read(name) {
        Some(found) => found.string()?.len(),
        None => 0,
    };

    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn append(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let tail = call.args.word()?;
    let max = call.shared.settings.get(settings::PROTO_MAX_BULK_LEN);

    let len = match call.view.entry(name) {
        Entry::Occupied(mut found) => {
            check_len(found.string()?.len() as u64, tail.len(), max)?;
            found.append(tail)
        }
        Entry::Vacant(place) => {
            place.insert(tail, Lease::Never);
            tail.len()
        }
    };
    call.view.event(b'$', "append", name);

    call.reply.count(len);
    Ok(Outcome::Replied)
}

fn getrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let start = call.args.integer()?;
    let end = call.args.integer()?;

    match call.view.read(name) {
        Some(found) => call.reply.bulk(part(found.string()?, start, end)),
        None => call.reply.bulk(b""),
    }
    Ok(Outcome::Replied)
}

/// The bytes from `start` to `end`, both included. Negative positions count from the end.
fn part(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = value.len() as i64;
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    // Crossed positions before the beginning select nothing, although both would be clamped to the first byte.
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let (start, end) = (place(start), place(end).min(len.saturating_sub(1)));
    if start > end { &[] } else { &value[start as usize..=end as usize] }
}

fn setrange(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    let offset = call.args.integer()?;
    let bytes = call.args.word()?;
    let max = call.shared.settings.get(settings::PROTO_MAX_BULK_LEN);
    let Ok(start) = u64::try_from(offset) else {
        return Err(Refusal::said("ERR offset is out of range"));
    };

    let entry = call.view.entry(name);
    let old_len = entry.string()?.map_or(0, <[u8]>::len);
    if bytes.is_empty() {
        call.reply.count(old_len);
        return Ok(Outcome::Replied);
    }
    check_len(start, bytes.len(), max)?;
    let mut found = match entry {
        Entry::Occupied(found) => found,
        Entry::Vacant(place) => place.insert(b"", Lease::Never),
    };
    let len = found.overwrite(start as usize, bytes);
    found.event(b'$', "setrange");

    call.reply.count(len);
    Ok(Outcome::Replied)
}

/// Checks that a string of `before` bytes plus `more` bytes is not longer than `max`.
fn check_len(before: u64, more: usize, max: u64) -> Result<(), Refusal> {
    if before.saturating_add(more as u64) > max { Err(Refusal::StringTooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn getrange_is_cut_to_the_length_of_the_value() {
        let part = |start, end| part(b"hello", start, end);
        assert_eq!(part(0, -1), b"hello");
        assert_eq!(part(-3, -2), b"ll");
        assert_eq!(part(3, 100), b"lo");
        assert_eq!(part(i64::MIN, i64::MAX), b"hello");
        assert_eq!(part(-100, -50), b"h");
        assert_eq!(part(-50, -100), b"");
        assert_eq!(part(5, 9), b"");
        assert_eq!(part(2, 1), b"");
    }

    #[test]
    fn an_empty_value_has_no_range() {
        for (start, end) in [(0, 0), (0, -1), (-1, -1), (i64::MIN, i64::MAX)] {
            assert_eq!(part(b"", start, end), b"");
        }
    }
}
