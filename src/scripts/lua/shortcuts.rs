//! Library functions that scripts call often, on Lua's own stack: the same work without a handle for every value.
//!
//! Rule    whatever is unusual is left to the function itself, which does all of it again: arguments of another type, what
//!         is an error, what may not be done any more.

use std::ffi::c_int;

use super::auxiliary::BYTES_PER_STEP;
use super::calls::Server;
use super::patterns::{Capture, Captures, Match};
use super::stack::{Kind, Stack};
use super::strings::{Mode, expand, first_match, match_from, substitute};
use super::{bit, cjson, cmsgpack, convert, library, structs};
use crate::scripts::digest;

/// Leaves the results of a function on top, above the arguments: how many; `None`, where the function itself is to do it.
pub(super) type Shortcut = fn(&Server<'_>, &mut Stack<'_>) -> Option<c_int>;

/// All of them: library, name, and the shorter way.
pub(super) const SHORTCUTS: &[(&str, &str, Shortcut)] = &[
    ("string", "find", |server, stack| search(server, stack, true)),
    ("string", "match", |server, stack| search(server, stack, false)),
    ("string", "gsub", replaced),
    ("string", "rep", repeated),
    ("bit", "band", |_, stack| combined(stack, |left, right| left & right)),
    ("bit", "bor", |_, stack| combined(stack, |left, right| left | right)),
    ("bit", "bxor", |_, stack| combined(stack, |left, right| left ^ right)),
    ("bit", "lshift", |_, stack| combined(stack, |word, by| word << (by & 31))),
    ("bit", "rshift", |_, stack| combined(stack, |word, by| word >> (by & 31))),
    ("bit", "tohex", to_hex),
    ("cjson", "encode", cjson::encode_shortly),
    ("cjson", "decode", cjson::decode_shortly),
    ("cmsgpack", "pack", cmsgpack::pack_shortly),
    ("cmsgpack", "unpack", cmsgpack::unpack_shortly),
    ("struct", "pack", structs::pack_shortly),
    ("struct", "unpack", structs::unpack_shortly),
    ("redis", "sha1hex", sha1hex),
    ("redis", "status_reply", status_reply),
    ("redis", "error_reply", error_reply),
];

/// The number of what goes on in a text for `gmatch`: the one behind them.
pub(super) const NEXT_MATCH: usize = SHORTCUTS.len();

/// The longest text that is made or copied here; what is longer is asked of the budget first.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The text at `at`, if it is no longer than that.
pub(super) fn short_text<'s>(stack: &'s Stack<'_>, at: c_int) -> Option<&'s [u8]> {
    stack.bytes(at).filter(|text| text.len() <= TEXT_BYTES_MAX)
}

/// `find` and `match`.
fn search(server: &Server<'_>, stack: &mut Stack<'_>, is_find: bool) -> Option<c_int> {
    let first = match stack.len() {
        2 => 1,
        3 if stack.kind(3) == Kind::Number => stack.number(3) as i64,
        _ => return None,
    };
    let (subject, pattern) = (stack.bytes(1)?, stack.bytes(2)?);
    let mode = Mode { is_find, is_plain: false };
    let charge = |steps| server.budget.charge(steps).map_err(drop);
    let mut captures = Captures::new();
    let Some(whole) = first_match(subject, pattern, first, mode, &mut captures, charge).ok()? else {
        stack.push_nil();
        return Some(1);
    };
    if !is_find {
        return push_captures(server, stack, Match { whole, captures: &captures });
    }
    stack.push_number(whole.start as f64 + 1.0);
    stack.push_number(whole.end as f64);
    let found = Match { whole, captures: &captures };
    Some(2 + if found.captures.is_empty() { 0 } else { push_captures(server, stack, found)? })
}

/// What a function of `gmatch` does, of text, pattern and how far it is: its results, and how far it is then.
pub(super) fn next_match(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let (subject, pattern) = (stack.bytes(1)?, stack.bytes(2)?);
    let charge = |steps| server.budget.charge(steps).map_err(drop);
    let (start, mut captures) = (stack.number(3) as usize, Captures::new());
    let (results, end) = match match_from(subject, pattern, start, &mut captures, charge).ok()? {
        Some((whole, end)) => {
            (push_captures(server, stack, Match { whole, captures: &captures })?, end as f64)
        }
        None => {
            stack.push_nil();
            (1, f64::INFINITY)
        }
    };
    stack.push_number(end);
    Some(results + 1)
}

/// Pushes the captures of a match in the text that is the lowest value, or all of the match where it has none.
fn push_captures(server: &Server<'_>, stack: &mut Stack<'_>, found: Match<'_>) -> Option<c_int> {
    let len = |capture: &Capture| match *capture {
        Capture::Bytes { start, end } => end - start,
        Capture::Place(_) | Capture::Open(_) => 0,
    };
    if found.whole.len() + found.captures.iter().map(len).sum::<usize>() > TEXT_BYTES_MAX {
        return None;
    }
    let (floor, limit) = (stack.len(), server.budget.lift(server.lua));
    if !stack.reserve(found.captures.len() as c_int + 2, &limit) {
        return None;
    }
    if found.captures.is_empty() {
        stack.push_part(1, found.whole, &limit);
    }
    for capture in found.captures {
        match *capture {
            Capture::Bytes { start, end } => drop(stack.push_part(1, start..end, &limit)),
            Capture::Place(at) => stack.push_number(at as f64 + 1.0),
            Capture::Open(_) => return None,
        }
    }
    Some(stack.len() - floor)
}

/// `gsub` with a text.
fn replaced(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 3 {
        return None;
    }
    let (subject, pattern, text) = (short_text(stack, 1)?, stack.bytes(2)?, stack.bytes(3)?);
    let mut out = Vec::with_capacity(subject.len());
    let charge = |steps| server.budget.charge(steps).map_err(drop);
    let count = substitute(subject, pattern, i64::MAX, charge, &mut out, |found, out| {
        expand(text, subject, found, out).map_err(drop)?;
        if out.len() > TEXT_BYTES_MAX { Err(()) } else { Ok(()) }
    });
    let count = count.ok()?;
    if out.len() > TEXT_BYTES_MAX {
        return None;
    }
    stack.push_bytes(&out, &server.budget.lift(server.lua));
    stack.push_number(count as f64);
    Some(2)
}

/// `rep`
fn repeated(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 2 || stack.kind(2) != Kind::Number {
        return None;
    }
    let count = usize::try_from(stack.number(2) as i64).unwrap_or(0);
    let text = stack.bytes(1)?;
    let len = text.len().checked_mul(count).filter(|len| *len <= TEXT_BYTES_MAX)?;
    server.budget.charge(len / BYTES_PER_STEP).ok()?;
    let text = if len > 0 { text.repeat(count) } else { Vec::new() };
    stack.push_bytes(&text, &server.budget.lift(server.lua));
    Some(1)
}

/// Combines two words of 32 bits.
fn combined(stack: &mut Stack<'_>, combine: fn(u32, u32) -> u32) -> Option<c_int> {
    if stack.len() != 2 || stack.kind(1) != Kind::Number || stack.kind(2) != Kind::Number {
        return None;
    }
    let [left, right] = [1, 2].map(|at| bit::low_word(stack.number(at)));
    stack.push_number(bit::signed(combine(left, right)));
    Some(1)
}

fn to_hex(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let count = match stack.len() {
        1 => bit::HEX_DIGITS,
        2 if stack.kind(2) == Kind::Number => bit::low_word(stack.number(2)) as i32,
        _ => return None,
    };
    if stack.kind(1) != Kind::Number {
        return None;
    }
    let digits = bit::hex(bit::low_word(stack.number(1)), count);
    stack.push_bytes(&digits, &server.budget.lift(server.lua));
    Some(1)
}

fn sha1hex(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let text = if stack.len() == 1 { stack.bytes(1)? } else { return None };
    server.budget.charge(text.len()).ok()?;
    stack.push_bytes(&digest(text), &server.budget.lift(server.lua));
    Some(1)
}

fn status_reply(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 1 || stack.kind(1) != Kind::String {
        return None;
    }
    let limit = server.budget.lift(server.lua);
    stack.push_table(0, 1, &limit);
    stack.push_bytes(b"ok", &limit);
    stack.push_copy(1);
    stack.set_field(-3, &limit);
    Some(1)
}

fn error_reply(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let text = if stack.len() == 1 { short_text(stack, 1)? } else { return None };
    let line = library::error_line(text);
    convert::push_error(stack, &line, false, &server.budget.lift(server.lua));
    Some(1)
}
