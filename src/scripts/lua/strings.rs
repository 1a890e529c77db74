//! The functions of `string` whose work is not in proportion to what they are given: searches, and `rep`.
//!
//! Rule    each charges what it does, and reserves what it makes before it makes it.
//! Source  Lua 5.1 reference manual, 5.4; order of checks and error texts as Lua 5.1.5 has them.

use std::ops::Range;
use std::sync::Arc;

use mlua::{FromLuaMulti, Lua, LuaString, MultiValue, Table, Value};

use super::auxiliary::{BYTES_PER_STEP, c_long};
use super::budget::Budget;
use super::fault::{bad_argument, raised};
use super::patterns::{Broken, Capture, Captures, Match, Matcher};
use super::stack::{self, Arguments, Meter, Part, Parts, Room};

/// Puts them into `string`.
pub(super) fn install(lua: &Lua, string: &Table, budget: &Arc<Budget>) -> mlua::Result<()> {
    for (name, is_find) in [("find", true), ("match", false)] {
        let own = Arc::clone(budget);
        let function = stack::function(lua, budget, move |lua, args| search(lua, &own, &args, is_find))?;
        string.raw_set(name, function)?;
    }
    // Who is given texts makes the function, and has no need of this.
    let refused = stack::function(lua, budget, |lua, args| {
        self::string(lua, &args, 1)?;
        self::string(lua, &args, 2).map(drop)
    })?;
    let own = Arc::clone(budget);
    let step = stack::function(lua, budget, move |lua, args| {
        let (subject, pattern, start) = FromLuaMulti::from_lua_multi(args, lua)?;
        next_match(lua, &own, &subject, &pattern, start)
    })?;
    let each = stack::iterator(lua, &refused, &step)?;
    string.raw_set("gmatch", &each)?;
    string.raw_set("gfind", each)?;
    let own = Arc::clone(budget);
    string.raw_set("gsub", stack::function(lua, budget, move |lua, args| gsub(lua, &own, &args))?)?;
    let own = Arc::clone(budget);
    string.raw_set("rep", stack::function(lua, budget, move |lua, args| rep(lua, &own, &args))?)
}

fn rep(lua: &Lua, budget: &Budget, args: &MultiValue) -> mlua::Result<LuaString> {
    let text = string(lua, args, 1)?;
    let count = integer(lua, args, 2, None)?;
    let text = text.as_bytes();
    let count = if text.is_empty() { 0 } else { self::count(count) };
    let len = text.len().saturating_mul(count);
    // Once here and once as Lua's own.
    budget.reserve(lua, len.saturating_mul(2))?;
    budget.charge(len / BYTES_PER_STEP)?;
    lua.create_string(text.repeat(count))
}

/// `rep`, into the room; `None` where the arguments are not as they should be, or it is too much for that.
pub(super) fn rep_shortly(arguments: &Arguments<'_>, room: &mut Room) -> Option<()> {
    let text = if arguments.len() == 2 { arguments.text(1)? } else { return None };
    let count = if text.is_empty() { 0 } else { count(c_long(arguments.number(2)?)) };
    let len = text.len().checked_mul(count).filter(|len| *len <= room.capacity())?;
    arguments.meter.charge(len / BYTES_PER_STEP).ok()?;
    // To copy so little takes longer than to write it.
    match text.len() {
        ..8 => (0..count).for_each(|_| text.iter().for_each(|byte| room.push(*byte))),
        _ => (0..count).try_for_each(|_| room.try_extend_from_slice(text)).ok()?,
    }
    Some(())
}

/// `find` and `match`.
fn search(lua: &Lua, budget: &Budget, args: &MultiValue, is_find: bool) -> mlua::Result<MultiValue> {
    let subject = string(lua, args, 1)?;
    let pattern = string(lua, args, 2)?;
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = integer(lua, args, 3, Some(1))?;
    let is_plain = is_find && args.get(3).is_some_and(truth);
    let mode = Mode { is_find, is_plain };
    let mut found = Captures::new();
    let whole = first_match(&subject, &pattern, start, mode, &mut found, |steps| budget.charge(steps));
    let Some(whole) = whole.map_err(|broken| explained(lua, broken))? else {
        return Ok(MultiValue::from_iter([Value::Nil]));
    };
    if !is_find {
        return captures(lua, &subject, &Match { whole, captures: &found });
    }
    let mut values = span(whole.start, whole.end)?;
    for capture in &found {
        values.push_back(captured(lua, &subject, *capture)?);
    }
    Ok(values)
}

/// What `find`, or `match`, returns for two texts, and for where to begin; `None`, where that is an error.
pub(super) fn search_shortly<'t, const IS_FIND: bool>(
    [subject, pattern]: [&'t [u8]; 2],
    first: Option<f64>,
    meter: &Meter,
    parts: &mut Parts,
) -> Option<&'t [u8]> {
    let (mode, mut captures) = (Mode { is_find: IS_FIND, is_plain: false }, Captures::new());
    let whole = first_match(subject, pattern, at(first), mode, &mut captures, |steps| meter.charge(steps));
    match whole.ok()? {
        Some(whole) if IS_FIND => {
            parts.push(Part::Number(whole.start as f64 + 1.0));
            parts.push(Part::Number(whole.end as f64));
            take_apart(&captures, parts)?;
        }
        Some(whole) => take_match_apart(whole, &captures, parts)?,
        None => {}
    }
    Some(subject)
}

/// Where to begin, which is at the first byte where nothing is said.
fn at(first: Option<f64>) -> i64 {
    first.map_or(1, c_long)
}

/// What a function of `gmatch` returns, in the same way, that looks from byte `start` on: where it looks next.
pub(super) fn next_shortly(
    [subject, pattern]: [&[u8]; 2],
    start: usize,
    meter: &Meter,
    parts: &mut Parts,
) -> Option<usize> {
    let mut captures = Captures::new();
    match match_from(subject, pattern, start, &mut captures, |steps| meter.charge(steps)).ok()? {
        Some((whole, end)) => {
            take_match_apart(whole, &captures, parts)?;
            Some(end)
        }
        None => Some(usize::MAX),
    }
}

/// Why there is no match.
#[derive(Clone, Copy, Debug)]
pub(super) enum Unfound {
    /// The pattern makes no sense, in Lua's words.
    Malformed(&'static str),
    /// The script has to end.
    Stopped,
}

/// The next match of a pattern that has lost its anchor, from byte `at` on, and what it has captured.
pub(super) fn next_to_replace(
    [subject, pattern]: [&[u8]; 2],
    at: usize,
    is_anchored: bool,
    meter: &Meter,
    parts: &mut Parts,
) -> Result<Option<Range<usize>>, Unfound> {
    let mut captures = Captures::new();
    let mut matcher = Matcher::new(subject, pattern, &mut captures, |steps| meter.charge(steps));
    let found = matcher.from(at, is_anchored).map_err(|broken| match broken {
        Broken::Malformed(why) => Unfound::Malformed(why),
        Broken::Refused(_) => Unfound::Stopped,
    })?;
    let Some(whole) = found else { return Ok(None) };
    let taken = take_match_apart(whole.clone(), &captures, parts);
    taken.map(|()| Some(whole)).ok_or(Unfound::Malformed("unfinished capture"))
}

/// The captures of a match, or all of it where it has none.
fn take_match_apart(whole: Range<usize>, captures: &[Capture], parts: &mut Parts) -> Option<()> {
    if captures.is_empty() {
        parts.push(Part::Bytes(whole.start, whole.len()));
    }
    take_apart(captures, parts)
}

/// What has been captured: there are 32 captures at most, for which there is room.
fn take_apart(captures: &[Capture], parts: &mut Parts) -> Option<()> {
    for capture in captures {
        parts.push(match *capture {
            Capture::Bytes { start, end } => Part::Bytes(start, end - start),
            Capture::Place(at) => Part::Number(at as f64 + 1.0),
            Capture::Open(_) => return None,
        });
    }
    Some(())
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mode {
    /// A place: `find`; not what is there.
    pub(super) is_find: bool,
    /// The pattern as it is written.
    pub(super) is_plain: bool,
}

/// The first match from byte `first` on, counted from 1, and from the end below zero, and what it has captured.
///
/// # Errors
/// As [`Matcher::at`].
pub(super) fn first_match<E>(
    subject: &[u8],
    pattern: &[u8],
    first: i64,
    mode: Mode,
    captures: &mut Captures,
    mut charge: impl FnMut(usize) -> Result<(), E>,
) -> Result<Option<Range<usize>>, Broken<E>> {
    let start = begin(subject, first);
    if mode.is_find && (mode.is_plain || !has_specials(pattern)) {
        charge((subject.len() - start + pattern.len()) / BYTES_PER_STEP).map_err(Broken::Refused)?;
        let at = place(&subject[start..], pattern).map(|at| start + at);
        return Ok(at.map(|at| at..at + pattern.len()));
    }
    let (is_anchored, rest) = anchored(pattern);
    Matcher::new(subject, rest, captures, charge).from(start, is_anchored)
}

/// Where a search from byte `first` on begins, counted from 0.
fn begin(subject: &[u8], first: i64) -> usize {
    let first = if first < 0 { first.saturating_add_unsigned(subject.len() as u64 + 1) } else { first };
    usize::try_from(first.saturating_sub(1)).unwrap_or(0).min(subject.len())
}

/// Where `part` is first.
fn place(text: &[u8], part: &[u8]) -> Option<usize> {
    // To prepare a fast search takes longer than a slow one of so little.
    if text.len() > FEW_BYTES { memchr::memmem::find(text, part) } else { place_in_few(text, part) }
}

/// The same, where that is no work worth speaking of.
#[inline]
fn place_in_few(text: &[u8], part: &[u8]) -> Option<usize> {
    let Some((first, rest)) = part.split_first() else { return Some(0) };
    // Nor is a call that compares bytes.
    let is_here = |bytes: &[u8]| {
        bytes.split_first().is_some_and(|(byte, others)| byte == first && others.iter().eq(rest))
    };
    text.windows(part.len()).position(is_here)
}

/// Where `pattern` is first in `subject`, as far as that is seen without any work worth speaking of; never panics.
#[inline]
pub(super) fn find_at_once(subject: &[u8], pattern: &[u8]) -> Option<Option<usize>> {
    let is_little = subject.len() <= FEW_BYTES && pattern.len() <= FEW_BYTES / 4;
    (is_little && !has_specials(pattern)).then(|| place_in_few(subject, pattern))
}

/// Bytes that are searched in no time.
const FEW_BYTES: usize = 64;

fn span(start: usize, end: usize) -> mlua::Result<MultiValue> {
    Ok(MultiValue::from_iter([Value::Number(start as f64 + 1.0), Value::Number(end as f64)]))
}

/// What there is from `start` on, nil for nothing, and behind it where to go on.
fn next_match(
    lua: &Lua,
    budget: &Budget,
    subject: &LuaString,
    pattern: &LuaString,
    start: f64,
) -> mlua::Result<MultiValue> {
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let mut found = Captures::new();
    let whole = match_from(&subject, &pattern, start as usize, &mut found, |steps| budget.charge(steps));
    let (mut results, end) = match whole.map_err(|broken| explained(lua, broken))? {
        Some((whole, end)) => (captures(lua, &subject, &Match { whole, captures: &found })?, end),
        None => (MultiValue::from_iter([Value::Nil]), usize::MAX),
    };
    results.push_back(Value::Number(end as f64));
    Ok(results)
}

/// The first match from byte `start` on, counted from 0, where the one after it may begin, and what it has captured.
///
/// # Errors
/// As [`Matcher::at`].
pub(super) fn match_from<E>(
    subject: &[u8],
    pattern: &[u8],
    start: usize,
    captures: &mut Captures,
    charge: impl FnMut(usize) -> Result<(), E>,
) -> Result<Option<(Range<usize>, usize)>, Broken<E>> {
    if start > subject.len() {
        return Ok(None);
    }
    let found = Matcher::new(subject, pattern, captures, charge).from(start, false)?;
    Ok(found.map(|whole| {
        // A match of nothing moves on by one, so that it does not come again.
        let end = whole.end + usize::from(whole.is_empty());
        (whole, end)
    }))
}

/// `gsub` with a text. Tables and functions come here only where an argument before is wrong.
fn gsub(lua: &Lua, budget: &Budget, args: &MultiValue) -> mlua::Result<(LuaString, f64)> {
    let subject = string(lua, args, 1)?;
    let pattern = string(lua, args, 2)?;
    // In this order.
    let max = count(integer(lua, args, 4, Some(subject.as_bytes().len() as i64 + 1))?);
    let text = match args.get(2) {
        Some(Value::String(_) | Value::Integer(_) | Value::Number(_)) => string(lua, args, 3)?,
        _ => return Err(bad_argument(lua, 3, "string/function/table expected")),
    };
    let (bytes, pattern, text) = (subject.as_bytes(), pattern.as_bytes(), text.as_bytes());
    let mut out = Vec::new();
    let count = substitute(
        &bytes,
        &pattern,
        max,
        |steps| Ok(budget.charge(steps)?),
        &mut out,
        |found, out| {
            let len = out.len();
            expand(&text, &bytes, found, out).map_err(|text| raised(lua, text))?;
            // Looked at in steps, so that many small ones do not cost a look each.
            if out.len() / RESERVED_STEP != len / RESERVED_STEP {
                budget.reserve(lua, out.len().saturating_mul(2))?;
            }
            Ok(())
        },
    );
    let count = count.map_err(|broken: Broken<mlua::Error>| explained(lua, broken))?;
    budget.reserve(lua, out.len())?;
    Ok((lua.create_string(out)?, count as f64))
}

/// Appends `subject` to `out`, with what `replace` appends for each match in its place, `max` of them at most: how many
/// there were.
///
/// # Errors
/// As [`Matcher::at`], and those of `replace`.
pub(super) fn substitute<E>(
    subject: &[u8],
    pattern: &[u8],
    max: usize,
    charge: impl FnMut(usize) -> Result<(), E>,
    out: &mut Vec<u8>,
    mut replace: impl FnMut(&Match<'_>, &mut Vec<u8>) -> Result<(), E>,
) -> Result<usize, Broken<E>> {
    let (is_anchored, rest) = anchored(pattern);
    let mut captures = Captures::new();
    let mut matcher = Matcher::new(subject, rest, &mut captures, charge);
    let (mut at, mut count) = (0, 0);
    while count < max {
        let found = matcher.at(at)?;
        let is_empty = found.as_ref().is_none_or(Range::is_empty);
        if let Some(whole) = found {
            count += 1;
            at = whole.end;
            let found = Match { whole, captures: matcher.captures() };
            replace(&found, out).map_err(Broken::Refused)?;
        }
        if is_empty {
            let Some(byte) = subject.get(at) else { break };
            out.push(*byte);
            at += 1;
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(subject.get(at..).unwrap_or_default());
    Ok(count)
}

/// The same for a pattern and a text that mean just what they say; `None` for others, and where `out` gets longer than
/// `len_max`.
pub(super) fn substitute_plainly(
    subject: &[u8],
    pattern: &[u8],
    text: &[u8],
    len_max: usize,
    out: &mut Vec<u8>,
) -> Option<usize> {
    // A search alone does not mind what closes no capture.
    let is_odd = |byte: &u8| matches!(byte, 0 | b')');
    if pattern.is_empty() || pattern.iter().any(is_odd) || has_specials(pattern) || text.contains(&b'%') {
        return None;
    }
    let finder = (subject.len() > FEW_BYTES).then(|| memchr::memmem::Finder::new(pattern));
    let next = |rest: &[u8]| match &finder {
        Some(finder) => finder.find(rest),
        None => place_in_few(rest, pattern),
    };
    let (mut rest, mut count) = (subject, 0);
    while let Some(at) = next(rest) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(text);
        rest = &rest[at + pattern.len()..];
        count += 1;
        if out.len() > len_max {
            return None;
        }
    }
    out.extend_from_slice(rest);
    (out.len() <= len_max).then_some(count)
}

/// Bytes of a result that grow between two looks at what is left of the memory.
const RESERVED_STEP: usize = 64 * 1024;

/// A replacement text with the captures where it asks for them.
///
/// # Errors
/// Lua's text, for a capture that there is not.
pub(super) fn expand(
    text: &[u8],
    subject: &[u8],
    found: &Match<'_>,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'%' => match bytes.next().copied().unwrap_or(0) {
                b'0' => out.extend_from_slice(&subject[found.whole.clone()]),
                digit @ b'1'..=b'9' => {
                    let index = usize::from(digit - b'1');
                    match found.captures.get(index) {
                        Some(Capture::Bytes { start, end }) => out.extend_from_slice(&subject[*start..*end]),
                        Some(Capture::Place(at)) => {
                            out.extend_from_slice(itoa::Buffer::new().format(at + 1).as_bytes());
                        }
                        // Without captures the whole match is the first.
                        None if index == 0 && found.captures.is_empty() => {
                            out.extend_from_slice(&subject[found.whole.clone()]);
                        }
                        Some(Capture::Open(_)) => return Err("unfinished capture"),
                        None => return Err("invalid capture index"),
                    }
                }
                other => out.push(other),
            },
            byte => out.push(byte),
        }
    }
    Ok(())
}

/// The captures of a match, or all of it where it has none.
fn captures(lua: &Lua, subject: &[u8], found: &Match<'_>) -> mlua::Result<MultiValue> {
    if found.captures.is_empty() {
        let whole = lua.create_string(&subject[found.whole.clone()])?;
        return Ok(MultiValue::from_iter([Value::String(whole)]));
    }
    found.captures.iter().map(|capture| captured(lua, subject, *capture)).collect()
}

fn captured(lua: &Lua, subject: &[u8], capture: Capture) -> mlua::Result<Value> {
    Ok(match capture {
        Capture::Bytes { start, end } => Value::String(lua.create_string(&subject[start..end])?),
        Capture::Place(at) => Value::Number(at as f64 + 1.0),
        Capture::Open(_) => return Err(raised(lua, "unfinished capture")),
    })
}

fn explained(lua: &Lua, broken: Broken<impl Into<mlua::Error>>) -> mlua::Error {
    match broken {
        Broken::Malformed(text) => raised(lua, text),
        Broken::Refused(error) => error.into(),
    }
}

/// Whether a pattern is anchored, and the rest of it.
pub(super) fn anchored(pattern: &[u8]) -> (bool, &[u8]) {
    pattern.strip_prefix(b"^").map_or((false, pattern), |rest| (true, rest))
}

/// Whether a pattern is more than the bytes it is made of. Lua looks at it as C does, up to a NUL.
fn has_specials(pattern: &[u8]) -> bool {
    let stop =
        |byte: &&u8| matches!(byte, 0 | b'^' | b'$' | b'*' | b'+' | b'?' | b'.' | b'(' | b'[' | b'%' | b'-');
    pattern.iter().find(stop).is_some_and(|byte| *byte != 0)
}

/// How often something is done: an `int` of C, and not less than never.
pub(super) fn count(number: i64) -> usize {
    usize::try_from(number as i32).unwrap_or(0)
}

fn truth(value: &Value) -> bool {
    !matches!(value, Value::Nil | Value::Boolean(false))
}

fn string(lua: &Lua, args: &MultiValue, number: usize) -> mlua::Result<LuaString> {
    let value = args.get(number - 1);
    match value {
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(value @ (Value::Integer(_) | Value::Number(_))) => {
            if let Some(text) = lua.coerce_string(value.clone())? {
                return Ok(text);
            }
        }
        _ => {}
    }
    let given = value.map_or("no value", Value::type_name);
    Err(bad_argument(lua, number, &format!("string expected, got {given}")))
}

fn integer(lua: &Lua, args: &MultiValue, number: usize, default: Option<i64>) -> mlua::Result<i64> {
    let value = args.get(number - 1);
    if let (None | Some(Value::Nil), Some(default)) = (value, default) {
        return Ok(default);
    }
    let found = value.and_then(|value| lua.coerce_number(value.clone()).transpose()).transpose()?;
    let given = value.map_or("no value", Value::type_name);
    found.map(c_long).ok_or_else(|| bad_argument(lua, number, &format!("number expected, got {given}")))
}
