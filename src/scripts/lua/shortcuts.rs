//! Library functions that scripts call often, on Lua's own stack: the same work without a handle for every value.
//!
//! Rule    whatever is unusual is left to the function itself, which does all of it again: arguments of another type, what
//!         is an error, what may not be done any more.

use std::ffi::c_int;

use super::auxiliary::BYTES_PER_STEP;
use super::calls::Server;
use super::stack::{Kind, Stack};
use super::strings::{expand, substitute, substitute_plainly};
use super::{bit, cjson, cmsgpack, convert, library, structs};
use crate::scripts::digest;

/// Leaves the results of a function on top, above the arguments: how many; `None`, where the function itself is to do it.
pub(super) type Shortcut = fn(&mut Server<'_>, &mut Stack<'_>) -> Option<c_int>;

/// All of them: library, name, and the shorter way.
pub(super) const SHORTCUTS: &[(&str, &str, Shortcut)] = &[
    ("string", "gsub", replaced),
    ("string", "rep", repeated),
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

/// The longest text that is made or copied here; what is longer is asked of the budget first.
pub(super) const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The text at `at`, if it is no longer than that.
pub(super) fn short_text<'s>(stack: &'s Stack<'_>, at: c_int) -> Option<&'s [u8]> {
    stack.bytes(at).filter(|text| text.len() <= TEXT_BYTES_MAX)
}

/// `gsub` with a text.
fn replaced(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 3 {
        return None;
    }
    let (subject, pattern, text) = (short_text(stack, 1)?, stack.bytes(2)?, stack.bytes(3)?);
    let (budget, out) = (server.budget, &mut *server.reply);
    out.clear();
    let charge = |steps| budget.charge(steps).map_err(drop);
    charge(subject.len()).ok()?;
    let mut count = substitute_plainly(subject, pattern, text, TEXT_BYTES_MAX, out);
    if count.is_none() {
        out.clear();
        let substituted = substitute(subject, pattern, usize::MAX, charge, out, |found, out| {
            expand(text, subject, found, out).map_err(drop)?;
            if out.len() > TEXT_BYTES_MAX { Err(()) } else { Ok(()) }
        });
        count = substituted.ok().filter(|_| out.len() <= TEXT_BYTES_MAX);
    }
    let count = count?;
    let limit = budget.lift_for(server.lua, stack, out.len());
    stack.push_bytes(out, &limit);
    stack.push_number(count as f64);
    Some(2)
}

/// `rep`
fn repeated(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 2 {
        return None;
    }
    let count = usize::try_from(stack.as_number(2)? as i64).unwrap_or(0);
    let text = stack.bytes(1)?;
    let len = text.len().checked_mul(count).filter(|len| *len <= TEXT_BYTES_MAX)?;
    server.budget.charge(len / BYTES_PER_STEP).ok()?;
    let out = &mut *server.reply;
    out.clear();
    out.reserve(len);
    match text {
        [byte] => out.resize(len, *byte),
        _ => (0..count.min(len)).for_each(|_| out.extend_from_slice(text)),
    }
    let limit = server.budget.lift_for(server.lua, stack, len);
    stack.push_bytes(out, &limit);
    Some(1)
}

fn to_hex(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let count = match stack.len() {
        1 => bit::HEX_DIGITS,
        2 => bit::low_word(stack.as_number(2)?) as i32,
        _ => return None,
    };
    let digits = bit::hex(bit::low_word(stack.as_number(1)?), count);
    stack.push_bytes(&digits, &server.lift_for(stack, 0));
    Some(1)
}

fn sha1hex(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let text = if stack.len() == 1 { stack.bytes(1)? } else { return None };
    server.budget.charge(text.len()).ok()?;
    let digest = digest(text);
    stack.push_bytes(&digest, &server.lift_for(stack, 0));
    Some(1)
}

fn status_reply(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 1 || stack.kind(1) != Kind::String {
        return None;
    }
    let limit = server.lift_for(stack, 0);
    stack.push_table(0, 1, &limit);
    stack.push_bytes(b"ok", &limit);
    stack.push_copy(1);
    stack.set_field(-3, &limit);
    Some(1)
}

fn error_reply(server: &mut Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let text = if stack.len() == 1 { short_text(stack, 1)? } else { return None };
    let line = library::error_line(text);
    convert::push_error(stack, &line, false, &server.lift_for(stack, line.len()));
    Some(1)
}
