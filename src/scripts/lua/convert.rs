//! Replies into Lua values, and Lua values into replies.
//!
//! Owns    Redis' conversions, both ways, in RESP2 and RESP3.
//! Bounds  what a script returns is written without recursion; a reply that a command gives is as deep as the command
//!         makes it, and is refused below [`DEPTH_MAX`].
//! Source  Redis 7.0 `script_lua.c`: `redisProtocolToLuaType_*`, `luaReplyToRedisReply`.

use std::ffi::c_int;

use smallvec::SmallVec;

use super::budget::Unlimited;
use super::stack::{Kind, Stack};
use crate::error::until_nul;
use crate::number;
use crate::resp::{Protocol, Reply};

/// Arrays inside arrays, in a reply of ours.
const DEPTH_MAX: usize = 64;

/// A reply that is deeper than that.
pub(super) struct TooDeep;

/// Pushes a reply whose value takes no memory, if it is one: a number, nothing, true or false.
#[inline]
pub(super) fn read_plain(stack: &mut Stack<'_>, reply: &[u8]) -> bool {
    match reply {
        [b':', digits @ .., b'\r', b'\n'] => stack.push_number(number::integer(digits).unwrap_or(0) as f64),
        b"$-1\r\n" | b"*-1\r\n" => stack.push_boolean(false),
        b"_\r\n" => stack.push_nil(),
        b"#t\r\n" => stack.push_boolean(true),
        b"#f\r\n" => stack.push_boolean(false),
        _ => return false,
    }
    true
}

/// Pushes one whole reply as a Lua value.
pub(super) fn read(stack: &mut Stack<'_>, reply: &[u8], limit: &Unlimited<'_>) -> Result<(), TooDeep> {
    Reader { stack, limit, rest: reply }.value(0)
}

/// Pushes an error reply as a script sees it.
pub(super) fn push_error(stack: &mut Stack<'_>, line: &[u8], from_command: bool, limit: &Unlimited<'_>) {
    stack.push_table(0, 2, limit);
    stack.push_bytes(b"err", limit);
    stack.push_bytes(line, limit);
    stack.set_field(-3, limit);
    if from_command {
        stack.push_bytes(b"ignore_error_stats_update", limit);
        stack.push_boolean(true);
        stack.set_field(-3, limit);
    }
}

struct Reader<'r, 's, 'l> {
    stack: &'r mut Stack<'s>,
    limit: &'r Unlimited<'l>,
    rest: &'r [u8],
}

impl<'r> Reader<'r, '_, '_> {
    /// Pushes the next value.
    fn value(&mut self, depth: usize) -> Result<(), TooDeep> {
        if depth > DEPTH_MAX || !self.stack.reserve(VALUE_ROOM, self.limit) {
            return Err(TooDeep);
        }
        let line = self.line();
        let (kind, line) = line.split_first().map_or((b'_', line), |(kind, line)| (*kind, line));
        match kind {
            b':' => self.stack.push_number(number::integer(line).unwrap_or(0) as f64),
            b'$' => match self.bulk(line) {
                Some(bytes) => self.stack.push_bytes(bytes, self.limit),
                None => self.stack.push_boolean(false),
            },
            b'*' | b'>' => match count(line) {
                Some(len) => self.array(len, depth)?,
                None => self.stack.push_boolean(false),
            },
            b'+' => {
                self.tag(b"ok");
                self.stack.push_bytes(line, self.limit);
                self.stack.set_field(-3, self.limit);
            }
            b'-' => push_error(self.stack, line, true, self.limit),
            b'%' => self.pairs(count(line).unwrap_or(0), depth, true)?,
            b'~' => self.pairs(count(line).unwrap_or(0), depth, false)?,
            b'#' => self.stack.push_boolean(line == b"t"),
            b',' => {
                self.tag(b"double");
                self.stack.push_number(double(line));
                self.stack.set_field(-3, self.limit);
            }
            b'(' => {
                self.tag(b"big_number");
                self.stack.push_bytes(line, self.limit);
                self.stack.set_field(-3, self.limit);
            }
            b'=' => self.verbatim(line),
            _ => self.stack.push_nil(),
        }
        Ok(())
    }

    fn array(&mut self, len: usize, depth: usize) -> Result<(), TooDeep> {
        self.stack.push_table(len.min(self.rest.len()), 0, self.limit);
        for at in 1..=c_int::try_from(len).unwrap_or(c_int::MAX) {
            self.value(depth + 1)?;
            self.stack.set_element(-2, at, self.limit);
        }
        Ok(())
    }

    /// A map, or a set, whose members have true in the place of a value.
    fn pairs(&mut self, len: usize, depth: usize, is_map: bool) -> Result<(), TooDeep> {
        self.tag(if is_map { b"map" } else { b"set" });
        self.stack.push_table(0, len.min(self.rest.len()), self.limit);
        for _ in 0..len {
            self.value(depth + 1)?;
            if is_map {
                self.value(depth + 1)?;
            } else {
                self.stack.push_boolean(true);
            }
            self.stack.set_field(-3, self.limit);
        }
        self.stack.set_field(-3, self.limit);
        Ok(())
    }

    fn verbatim(&mut self, line: &[u8]) {
        let text = self.bulk(line).unwrap_or_default();
        self.tag(b"verbatim_string");
        self.stack.push_table(0, 2, self.limit);
        for (name, value) in [(b"format".as_slice(), text.get(..3)), (b"string", text.get(4..))] {
            self.stack.push_bytes(name, self.limit);
            self.stack.push_bytes(value.unwrap_or_default(), self.limit);
            self.stack.set_field(-3, self.limit);
        }
        self.stack.set_field(-3, self.limit);
    }

    /// A table that has one field, whose value is still to be pushed and set.
    fn tag(&mut self, name: &[u8]) {
        self.stack.push_table(0, 1, self.limit);
        self.stack.push_bytes(name, self.limit);
    }

    /// The bytes that a line like `$5` announces; `None` for `$-1`.
    fn bulk(&mut self, line: &[u8]) -> Option<&'r [u8]> {
        let len = count(line)?;
        let bytes = self.rest.get(..len)?;
        self.rest = self.rest.get(len + 2..).unwrap_or_default();
        Some(bytes)
    }

    fn line(&mut self) -> &'r [u8] {
        let end = self.rest.iter().position(|byte| *byte == b'\r').unwrap_or(self.rest.len());
        let line = &self.rest[..end];
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        line
    }
}

/// Values that one reply has on the stack at once, not counting those inside it.
const VALUE_ROOM: c_int = 8;

fn count(line: &[u8]) -> Option<usize> {
    number::integer(line).and_then(|len| usize::try_from(len).ok())
}

fn double(line: &[u8]) -> f64 {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// Writes what a script returned, the value on top, that spoke in `spoken`, RESP2 or, after `redis.setresp(3)`, RESP3.
/// Takes it from the stack.
///
/// # Errors
/// The stop of a script that has to end, or whose reply is longer than the memory it may have: a table that is in itself
/// in two places is, if not infinitely deep, as long as two to the power of its depth.
pub(super) fn write(
    stack: &mut Stack<'_>,
    spoken: Protocol,
    reply: &mut Reply<'_>,
    limit: &Unlimited<'_>,
) -> mlua::Result<()> {
    let begun = reply.written();
    // Tables that are being written, each on the stack: how far each is.
    let mut open: SmallVec<[Open; 4]> = SmallVec::new();
    loop {
        if stack.kind(-1) != Kind::Table {
            plain(stack, spoken, reply);
            stack.pop(1);
        } else if open.len() < OPEN_MAX && stack.reserve(TABLE_ROOM, limit) {
            match Open::new(stack, reply, limit) {
                Some(table) => open.push(table),
                None => stack.pop(1),
            }
        } else {
            reply.error("ERR reached lua stack limit");
            stack.pop(1);
        }
        loop {
            let Some(last) = open.last_mut() else { return Ok(()) };
            if last.next(stack) {
                break;
            }
            open.pop();
        }
        limit.budget().charge(1)?;
        limit.budget().bound(reply.written() - begun)?;
    }
}

/// Tables inside tables that a script may return: not far from where Redis comes to the end of Lua's stack.
const OPEN_MAX: usize = 7_000;
/// Values that a table which is being written has on the stack at once, itself included.
const TABLE_ROOM: c_int = 6;

/// A table of which a part has been written. It lies on the stack, below what has been taken from it.
enum Open {
    /// An array, and how many of its elements are written.
    Array { written: c_int, len: c_int },
    /// The keys and values of a map. Its last key lies above it, and above that the value, if it `owes` one.
    Map { owes: bool },
    /// The members of a set. The last of them lies above it.
    Set,
}

impl Open {
    /// Writes the head of the table on top, or all of it, where it stands for something that is no aggregate.
    fn new(stack: &mut Stack<'_>, reply: &mut Reply<'_>, limit: &Unlimited<'_>) -> Option<Self> {
        if line(stack, reply, limit) {
            return None;
        }
        for (name, is_map) in [(b"map", true), (b"set", false)] {
            field(stack, name, limit);
            if stack.kind(-1) == Kind::Table {
                let entries = entries(stack);
                if is_map {
                    reply.map(entries)
                } else {
                    reply.set(entries)
                }
                stack.push_nil();
                return Some(if is_map { Self::Map { owes: false } } else { Self::Set });
            }
            stack.pop(1);
        }
        if text(stack, reply, limit) {
            return None;
        }
        let len = length(stack);
        reply.array(usize::try_from(len).unwrap_or(0));
        Some(Self::Array { written: 0, len })
    }

    /// Pushes what is to be written next; without anything left, takes the table and what belongs to it away.
    fn next(&mut self, stack: &mut Stack<'_>) -> bool {
        match self {
            Self::Array { written, len } if written == len => stack.pop(1),
            Self::Array { written, .. } => {
                *written += 1;
                stack.push_element(-1, *written);
                return true;
            }
            Self::Map { owes } if *owes => {
                // The value is written from where it lies.
                *owes = false;
                return true;
            }
            Self::Map { owes } => {
                if stack.next(-2) {
                    *owes = true;
                    stack.push_copy(-2);
                    return true;
                }
                stack.pop(2);
            }
            Self::Set => {
                if stack.next(-2) {
                    stack.pop(1);
                    stack.push_copy(-1);
                    return true;
                }
                stack.pop(2);
            }
        }
        false
    }
}

/// Pushes a field of the table on top.
fn field(stack: &mut Stack<'_>, name: &[u8], limit: &Unlimited<'_>) {
    stack.push_bytes(name, limit);
    stack.look_up(-2);
}

/// The bytes of a field of the table on top, which go to `write`; false where it has no such string.
pub(super) fn string_field(
    stack: &mut Stack<'_>,
    name: &[u8],
    limit: &Unlimited<'_>,
    write: impl FnOnce(&[u8]),
) -> bool {
    field(stack, name, limit);
    let is_string = stack.bytes(-1).map(write).is_some();
    stack.pop(1);
    is_string
}

/// A field of the table on top as a number; `None` where it has no such number.
pub(super) fn number_field(stack: &mut Stack<'_>, name: &[u8], limit: &Unlimited<'_>) -> Option<f64> {
    field(stack, name, limit);
    let number = (stack.kind(-1) == Kind::Number).then(|| stack.number(-1));
    stack.pop(1);
    number
}

/// Writes a table that stands for an error, a status or a double; true if it is one.
fn line(stack: &mut Stack<'_>, reply: &mut Reply<'_>, limit: &Unlimited<'_>) -> bool {
    if string_field(stack, b"err", limit, |line| reply.error_bytes(until_nul(line))) {
        return true;
    }
    if string_field(stack, b"ok", limit, |line| reply.status_bytes(until_nul(line))) {
        return true;
    }
    let number = number_field(stack, b"double", limit);
    number.is_some_and(|number| {
        reply.double(number);
        true
    })
}

/// Writes a table that stands for a big number or a verbatim string; true if it is one.
fn text(stack: &mut Stack<'_>, reply: &mut Reply<'_>, limit: &Unlimited<'_>) -> bool {
    if string_field(stack, b"big_number", limit, |number| reply.big_number(number)) {
        return true;
    }
    field(stack, b"verbatim_string", limit);
    let is_table = stack.kind(-1) == Kind::Table;
    if is_table {
        field(stack, b"format", limit);
        stack.push_bytes(b"string", limit);
        stack.look_up(-3);
    } else {
        stack.push_nil();
        stack.push_nil();
    }
    let is_text = match (stack.bytes(-2), stack.bytes(-1)) {
        (Some(format), Some(text)) => {
            reply.verbatim_bytes(format, text);
            true
        }
        _ => false,
    };
    stack.pop(3);
    is_text
}

/// Elements before the first nil of the table on top.
fn length(stack: &mut Stack<'_>) -> c_int {
    // The border that Lua finds may lie behind a nil: what comes before it is looked at one by one.
    for at in 1..c_int::MAX {
        stack.push_element(-1, at);
        let is_end = stack.kind(-1) == Kind::Nil;
        stack.pop(1);
        if is_end {
            return at - 1;
        }
    }
    0
}

/// Entries of the table on top.
fn entries(stack: &mut Stack<'_>) -> usize {
    let mut count = 0;
    stack.push_nil();
    while stack.next(-2) {
        stack.pop(1);
        count += 1;
    }
    count
}

/// The value on top, which is no table.
fn plain(stack: &Stack<'_>, spoken: Protocol, reply: &mut Reply<'_>) {
    match stack.kind(-1) {
        Kind::String => reply.bulk(stack.bytes(-1).unwrap_or_default()),
        Kind::Number => reply.integer(whole(stack.number(-1))),
        Kind::Boolean if spoken == Protocol::Resp3 => reply.boolean(stack.is_true(-1)),
        Kind::Boolean if stack.is_true(-1) => reply.integer(1),
        _ => reply.null(),
    }
}

/// A number as C converts it to an integer of 64 bits on the machines that Redis runs on: what does not fit is the least.
fn whole(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_an_integer_are_the_least_one() {
        assert_eq!([whole(3.99), whole(-3.99), whole(1e300), whole(f64::NAN)], [3, -3, i64::MIN, i64::MIN]);
        assert_eq!(whole(9_223_372_036_854_774_784.0), 9_223_372_036_854_774_784);
    }
}
