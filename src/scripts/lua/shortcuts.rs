//! Library functions that scripts call often, on Lua's own stack: the same work without a handle for every value.
//!
//! Rule    whatever is unusual is left to the function itself, which does all of it again: arguments of another type, what
//!         is an error, what may not be done any more.

use std::ffi::c_int;

use sha1::{Digest, Sha1};

use super::calls::Server;
use super::patterns::{Capture, Match, Matcher};
use super::stack::{Kind, Stack};
use super::strings::{anchored, expand, has_specials, substitute};
use super::{bit, cjson, cmsgpack, convert, library};

/// A function and its shorter way.
pub(super) struct Shortcut {
    /// The library that it is in.
    pub(super) library: &'static str,
    /// Its name.
    pub(super) name: &'static str,
    /// Leaves the results on top, above the arguments: how many; `None`, where the function itself is to do it.
    pub(super) run: fn(&Server<'_>, &mut Stack<'_>) -> Option<c_int>,
}

type Run = fn(&Server<'_>, &mut Stack<'_>) -> Option<c_int>;

const fn shortcut(library: &'static str, name: &'static str, run: Run) -> Shortcut {
    Shortcut { library, name, run }
}

/// All of them.
pub(super) const SHORTCUTS: &[Shortcut] = &[
    shortcut("string", "find", |server, stack| search(server, stack, true)),
    shortcut("string", "match", |server, stack| search(server, stack, false)),
    shortcut("string", "gsub", replaced),
    shortcut("string", "rep", repeated),
    shortcut("bit", "band", |_, stack| combined(stack, |left, right| left & right)),
    shortcut("bit", "bor", |_, stack| combined(stack, |left, right| left | right)),
    shortcut("bit", "bxor", |_, stack| combined(stack, |left, right| left ^ right)),
    shortcut("bit", "lshift", |_, stack| combined(stack, |word, by| word << (by & 31))),
    shortcut("bit", "rshift", |_, stack| combined(stack, |word, by| word >> (by & 31))),
    shortcut("cjson", "encode", cjson::encode_shortly),
    shortcut("cjson", "decode", cjson::decode_shortly),
    shortcut("cmsgpack", "pack", cmsgpack::pack_shortly),
    shortcut("cmsgpack", "unpack", cmsgpack::unpack_shortly),
    shortcut("redis", "sha1hex", sha1hex),
    shortcut("redis", "status_reply", status_reply),
    shortcut("redis", "error_reply", error_reply),
];

/// Bytes of copying that are about one instruction.
const BYTES_PER_STEP: usize = 64;
/// The longest text that is made here; what is longer is asked of the budget first.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// `find` and `match`.
fn search(server: &Server<'_>, stack: &mut Stack<'_>, is_find: bool) -> Option<c_int> {
    let first = match stack.len() {
        2 => 1,
        3 if stack.kind(3) == Kind::Number => stack.number(3) as i64,
        _ => return None,
    };
    let (subject, pattern) = (stack.bytes(1)?, stack.bytes(2)?);
    // Below zero it counts from the end.
    let first = if first < 0 { first.saturating_add_unsigned(subject.len() as u64 + 1) } else { first };
    let start = usize::try_from(first.saturating_sub(1)).unwrap_or(0).min(subject.len());
    let found = if is_find && !has_specials(pattern) {
        server.budget.charge((subject.len() - start + pattern.len()) / BYTES_PER_STEP).ok()?;
        let at = place(&subject[start..], pattern).map(|at| start + at);
        at.map(|at| Match { whole: at..at + pattern.len(), captures: Default::default() })
    } else {
        let (is_anchored, rest) = anchored(pattern);
        let mut matcher = Matcher::new(subject, rest, |steps| server.budget.charge(steps));
        matcher.from(start, is_anchored).ok()?
    };
    let limit = server.budget.lift(server.lua);
    let Some(found) = found else {
        stack.push_nil();
        return Some(1);
    };
    let floor = stack.len();
    if !stack.reserve(2 + found.captures.len() as c_int, &limit) {
        return None;
    }
    if is_find {
        stack.push_number(found.whole.start as f64 + 1.0);
        stack.push_number(found.whole.end as f64);
    } else if found.captures.is_empty() {
        stack.push_part(1, found.whole, &limit);
    }
    for capture in &found.captures {
        match *capture {
            Capture::Bytes { start, end } => drop(stack.push_part(1, start..end, &limit)),
            Capture::Place(at) => stack.push_number(at as f64 + 1.0),
            Capture::Open(_) => return None,
        }
    }
    Some(stack.len() - floor)
}

/// Where `part` is first.
fn place(text: &[u8], part: &[u8]) -> Option<usize> {
    // To prepare a fast search takes longer than a slow one of so little.
    if part.is_empty() || text.len() > FEW_BYTES {
        return memchr::memmem::find(text, part);
    }
    text.windows(part.len()).position(|window| window == part)
}

/// Bytes that are searched in no time.
const FEW_BYTES: usize = 64;

/// `gsub` with a text.
fn replaced(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    if stack.len() != 3 {
        return None;
    }
    let (subject, pattern, text) = (stack.bytes(1)?, stack.bytes(2)?, stack.bytes(3)?);
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

fn sha1hex(server: &Server<'_>, stack: &mut Stack<'_>) -> Option<c_int> {
    let text = if stack.len() == 1 { stack.bytes(1)? } else { return None };
    server.budget.charge(text.len()).ok()?;
    let digits = library::hexadecimal(&Sha1::digest(text));
    stack.push_bytes(&digits, &server.budget.lift(server.lua));
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
    let text = if stack.len() == 1 { stack.bytes(1)? } else { return None };
    let line = library::error_line(text);
    convert::push_error(stack, &line, false, &server.budget.lift(server.lua));
    Some(1)
}
