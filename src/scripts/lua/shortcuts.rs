//! Library functions that scripts call often, on Lua's own stack: the same work without a handle for every value.
//!
//! Rule    whatever is unusual is left to the function itself, which does all of it again: arguments of another type, what
//!         is an error, what may not be done any more.

use std::ffi::c_int;

use super::calls::Server;
use super::stack::{Arguments, Direct, Kind, Room, Stack};
use super::strings::{expand, substitute, substitute_plainly};
use super::{bit, cjson, cmsgpack, convert, library, strings, structs};
use crate::scripts::digest;

/// A shorter way than that of the function itself.
pub(super) enum Shortcut {
    /// Without anybody between.
    Direct(Direct),
    /// With what the script's server has.
    Served(Served),
    /// In the one way, or else in the other.
    Either(Direct, Served),
}

/// Leaves the results of a function on top, above the arguments: how many; `None`, where the function itself is to do it.
pub(super) type Served = fn(&mut Server<'_>, &mut Stack<'_>) -> Option<c_int>;

/// All of them but `gmatch` and those of `bit` that make a word: library, name, and the shorter way.
pub(super) const SHORTCUTS: &[(&str, &str, Shortcut)] = &[
    ("string", "find", Shortcut::Direct(Direct::find(strings::search_shortly::<true>))),
    ("string", "match", Shortcut::Direct(Direct::parts(strings::search_shortly::<false>))),
    ("string", "gsub", Shortcut::Either(Direct::GSUB, replaced)),
    ("string", "rep", Shortcut::Direct(Direct::text(strings::rep_shortly))),
    ("bit", "tohex", Shortcut::Direct(Direct::text(bit::tohex_shortly))),
    ("cjson", "encode", Shortcut::Either(Direct::text(cjson::encode_text), cjson::encode_shortly)),
    ("cjson", "decode", Shortcut::Either(Direct::part(cjson::decode_scalar), cjson::decode_shortly)),
    ("cmsgpack", "pack", Shortcut::Served(cmsgpack::pack_shortly)),
    (
        "cmsgpack",
        "unpack",
        Shortcut::Either(Direct::part(cmsgpack::unpack_one_shortly), cmsgpack::unpack_shortly),
    ),
    ("struct", "pack", Shortcut::Direct(Direct::text(structs::pack_shortly))),
    ("struct", "unpack", Shortcut::Direct(Direct::parts(structs::unpack_shortly))),
    ("struct", "size", Shortcut::Direct(Direct::part(structs::size_shortly))),
    ("redis", "sha1hex", Shortcut::Direct(Direct::text(sha1hex))),
    ("redis", "acl_check_cmd", Shortcut::Served(library::acl_check_shortly)),
    ("redis", "log", Shortcut::Served(library::log_shortly)),
    ("redis", "set_repl", Shortcut::Served(library::set_repl_shortly)),
    ("redis", "setresp", Shortcut::Served(library::set_protocol_shortly)),
    ("redis", "status_reply", Shortcut::Served(status_reply)),
    ("redis", "error_reply", Shortcut::Served(error_reply)),
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

fn sha1hex(arguments: &Arguments<'_>, room: &mut Room) -> Option<()> {
    let text = if arguments.len() == 1 { arguments.text(1)? } else { return None };
    arguments.meter.charge(text.len()).ok()?;
    room.try_extend_from_slice(&digest(text)).ok()
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
