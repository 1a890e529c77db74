//! The functions of `string` that take places or sizes: searches, `byte`, `char`, `rep` and `sub`.
//!
//! Rule    each charges what it does, and reserves what it makes before it makes it.
//! Source  Lua 5.1 reference manual, 5.4; order of checks and error texts as Lua 5.1.5 has them.

use std::ops::Range;
use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::args::{BYTES_PER_STEP, Call, Library, Output};
use super::budget::Budget;
use super::patterns::{Broken, Capture, Captures, Matcher};

/// Puts the functions that never call Lua into `string`. `gmatch`, and `gsub` with a function or a table, are in the
/// prelude.
pub(super) fn install(lua: &Lua, string: &Table, budget: &Arc<Budget>) -> Result<()> {
    let library = Library::new(lua, budget)?;
    library.add("byte", byte)?;
    library.add("char", char)?;
    library.add("find", |call| search(call, true))?;
    library.add("match", |call| search(call, false))?;
    library.add("rep", rep)?;
    library.add("sub", |call| {
        let text = call.string(1)?;
        let text = text.as_bytes();
        made(call, &text[range(&text, call.integer(2)?, call.integer_or(3, -1)?)])
    })?;
    library.table.for_each(|name: Value, function: Value| string.raw_set(name, function))
}

/// Adds what the prelude needs for `gmatch` and `gsub`.
pub(super) fn add_helpers(library: &Library<'_>) -> Result<()> {
    library.add("texts", |call| Ok((call.string(1)?, call.string(2)?)))?;
    library.add("gsub", gsub)?;
    library.add("next_match", |call| {
        let (subject, pattern, start) = (call.string(1)?, call.string(2)?, call.integer(3)? as usize);
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        next(call, [&subject, &pattern], start, false, |_| Ok(()))
    })?;
    library.add("next_gsub", |call| {
        let (subject, pattern, start) = (call.string(1)?, call.string(2)?, call.integer(3)? as usize);
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let (is_anchored, pattern) = anchored(&pattern);
        let mut span = (Value::Nil, Value::Nil);
        let mut values = next(call, [&subject, pattern], start, is_anchored, |whole| {
            span = (Value::Number(whole.start as f64 + 1.0), Value::Number(whole.end as f64));
            Ok(())
        })?;
        values.push_front(span.1);
        values.push_front(span.0);
        Ok(values)
    })
}

/// A string of Lua. A short one is made without the memory limit, which costs a protected call.
fn made(call: &Call<'_>, bytes: &[u8]) -> Result<LuaString> {
    let _limit = (bytes.len() <= SHORT_BYTES).then(|| call.budget.lift(call.lua));
    call.lua.create_string(bytes)
}

const SHORT_BYTES: usize = 1024;

/// `byte`
fn byte(call: &Call<'_>) -> Result<MultiValue> {
    let text = call.string(1)?;
    let text = text.as_bytes();
    let first = call.integer_or(2, 1)?;
    let bytes = &text[range(&text, first, call.integer_or(3, first)?)];
    if bytes.len() > VALUES_MAX {
        return Err(call.error("stack overflow (string slice too long)"));
    }
    Ok(bytes.iter().map(|byte| Value::Integer(i64::from(*byte))).collect())
}

/// Values that one function may return: Lua's C stack has 8000 slots.
const VALUES_MAX: usize = 7950;

/// `char`
fn char(call: &Call<'_>) -> Result<LuaString> {
    let byte = |at| {
        let number = call.integer(at)? as i32;
        u8::try_from(number).map_err(|_| call.bad(at, "invalid value"))
    };
    let bytes: Result<Vec<u8>> = (1..=call.len()).map(byte).collect();
    made(call, &bytes?)
}

/// `rep`
fn rep(call: &Call<'_>) -> Result<LuaString> {
    let (text, count) = (call.string(1)?, call.integer(2)?);
    let text = text.as_bytes();
    // An `int` of C, and nothing of nothing at once.
    let count = if text.is_empty() { 0 } else { usize::try_from(count as i32).unwrap_or(0) };
    let len = text.len().saturating_mul(count);
    // Once here and once as Lua's own.
    call.budget.reserve(call.lua, len.saturating_mul(2))?;
    call.charge(len / BYTES_PER_STEP)?;
    call.lua.create_string(text.repeat(count))
}

/// `find` and `match`.
fn search(call: &Call<'_>, is_find: bool) -> Result<MultiValue> {
    let (subject, pattern) = (call.string(1)?, call.string(2)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let start = begin(&subject, call.integer_or(3, 1)?);
    let is_plain = is_find && !matches!(call.value(4), Value::Nil | Value::Boolean(false));
    let mut found = Captures::new();
    let whole = if is_find && (is_plain || !has_specials(&pattern)) {
        call.charge((subject.len() - start + pattern.len()) / BYTES_PER_STEP)?;
        let at = memchr::memmem::find(&subject[start..], &pattern).map(|at| start + at);
        at.map(|at| at..at + pattern.len())
    } else {
        let (is_anchored, rest) = anchored(&pattern);
        let matcher = Matcher::new(&subject, rest, &mut found, |steps| call.charge(steps));
        matched(call, matcher, start, is_anchored)?
    };
    let Some(whole) = whole else { return Ok(MultiValue::from_iter([Value::Nil])) };
    let mut values = MultiValue::new();
    if is_find {
        values.extend([Value::Number(whole.start as f64 + 1.0), Value::Number(whole.end as f64)]);
    } else if found.is_empty() {
        values.push_back(Value::String(call.lua.create_string(&subject[whole])?));
    }
    push_captures(call, &subject, &found, &mut values)?;
    Ok(values)
}

/// The next match from byte `start` on: where the one after it may begin, and its captures, or all of it where it has
/// none. A match of nothing moves on by one, so that it does not come again.
fn next(
    call: &Call<'_>,
    [subject, pattern]: [&[u8]; 2],
    start: usize,
    is_anchored: bool,
    mut seen: impl FnMut(&Range<usize>) -> Result<()>,
) -> Result<MultiValue> {
    let mut found = Captures::new();
    let whole = if start > subject.len() || is_anchored && start > 0 {
        None
    } else {
        let matcher = Matcher::new(subject, pattern, &mut found, |steps| call.charge(steps));
        matched(call, matcher, start, is_anchored)?
    };
    let mut values = MultiValue::new();
    let Some(whole) = whole else {
        values.extend([Value::Number(subject.len() as f64 + 1.0), Value::Nil]);
        return Ok(values);
    };
    seen(&whole)?;
    let end = if is_anchored { subject.len() + 1 } else { whole.end + usize::from(whole.is_empty()) };
    values.push_back(Value::Number(end as f64));
    if found.is_empty() {
        values.push_back(Value::String(call.lua.create_string(&subject[whole])?));
    }
    push_captures(call, subject, &found, &mut values)?;
    Ok(values)
}

/// The first match, with the matcher's errors as a script sees them.
fn matched<C, E>(
    call: &Call<'_>,
    mut matcher: Matcher<'_, C, E>,
    start: usize,
    is_anchored: bool,
) -> Result<Option<Range<usize>>>
where
    C: FnMut(usize) -> std::result::Result<(), E>,
    E: Into<mlua::Error>,
{
    matcher.from(start, is_anchored).map_err(|broken| explained(call, broken))
}

fn explained(call: &Call<'_>, broken: Broken<impl Into<mlua::Error>>) -> mlua::Error {
    match broken {
        Broken::Malformed(text) => call.error(text),
        Broken::Refused(error) => error.into(),
    }
}

fn push_captures(
    call: &Call<'_>,
    subject: &[u8],
    captures: &[Capture],
    values: &mut MultiValue,
) -> Result<()> {
    for capture in captures {
        values.push_back(match *capture {
            Capture::Bytes { start, end } => Value::String(call.lua.create_string(&subject[start..end])?),
            Capture::Place(at) => Value::Number(at as f64 + 1.0),
            Capture::Open(_) => return Err(call.error("unfinished capture")),
        });
    }
    Ok(())
}

/// `gsub` with a text, or with anything that is refused.
fn gsub(call: &Call<'_>) -> Result<(LuaString, f64)> {
    let (subject, pattern) = (call.string(1)?, call.string(2)?);
    let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
    let max = call.integer_or(4, subject.len() as i64 + 1)?;
    let max = usize::try_from(max as i32).unwrap_or(0);
    let text = match call.value(3) {
        Value::String(_) | Value::Integer(_) | Value::Number(_) => call.string(3)?,
        _ => return Err(call.bad(3, "string/function/table expected")),
    };
    let text = text.as_bytes();
    let (is_anchored, pattern) = anchored(&pattern);
    let (mut captures, mut out) = (Captures::new(), call.output());
    let mut matcher = Matcher::new(&subject, pattern, &mut captures, |steps| call.charge(steps));
    let (mut at, mut copied, mut count) = (0, 0, 0);
    while count < max && at <= subject.len() {
        let found = matcher.from(at, is_anchored).map_err(|broken| explained(call, broken))?;
        let Some(whole) = found else { break };
        count += 1;
        out.push(&subject[copied..whole.start])?;
        expand(call, &text, &subject, whole.clone(), matcher.captures(), &mut out)?;
        copied = whole.end;
        at = whole.end + usize::from(whole.is_empty());
        if is_anchored {
            break;
        }
    }
    out.push(&subject[copied..])?;
    Ok((out.finish()?, count as f64))
}

/// Writes a replacement text with the captures where it asks for them.
fn expand(
    call: &Call<'_>,
    text: &[u8],
    subject: &[u8],
    whole: Range<usize>,
    captures: &[Capture],
    out: &mut Output<'_>,
) -> Result<()> {
    let mut rest = text;
    while let Some(place) = memchr::memchr(b'%', rest) {
        out.push(&rest[..place])?;
        // A lone sign at the end stands for a NUL, as in C.
        let byte = rest.get(place + 1).copied().unwrap_or(0);
        rest = rest.get(place + 2..).unwrap_or_default();
        match byte {
            b'0' => out.push(&subject[whole.clone()])?,
            b'1'..=b'9' => match captures.get(usize::from(byte - b'1')) {
                Some(Capture::Bytes { start, end }) => out.push(&subject[*start..*end])?,
                Some(Capture::Place(at)) => out.push(itoa::Buffer::new().format(at + 1).as_bytes())?,
                Some(Capture::Open(_)) => return Err(call.error("unfinished capture")),
                // Without captures the whole match is the first.
                None if byte == b'1' && captures.is_empty() => out.push(&subject[whole.clone()])?,
                None => return Err(call.error("invalid capture index")),
            },
            other => out.push(&[other])?,
        }
    }
    out.push(rest)
}

/// Where a search from byte `first` on begins, counted from 0; `first` counts from 1, and from the end below zero.
fn begin(subject: &[u8], first: i64) -> usize {
    let first = if first < 0 { first.saturating_add_unsigned(subject.len() as u64 + 1) } else { first };
    usize::try_from(first.saturating_sub(1)).unwrap_or(0).min(subject.len())
}

/// The bytes from `first` to `last`, which count as in [`begin`]. Both are in the text, whatever the script has said.
fn range(text: &[u8], first: i64, last: i64) -> Range<usize> {
    let place = |at: i64| if at < 0 { at.saturating_add_unsigned(text.len() as u64 + 1) } else { at };
    let start = usize::try_from(place(first).max(1) - 1).unwrap_or(usize::MAX).min(text.len());
    let end = usize::try_from(place(last)).unwrap_or(0).min(text.len());
    start..end.max(start)
}

/// Whether a pattern is anchored, and the rest of it.
fn anchored(pattern: &[u8]) -> (bool, &[u8]) {
    pattern.strip_prefix(b"^").map_or((false, pattern), |rest| (true, rest))
}

/// Whether a pattern is more than the bytes it is made of. Lua looks at it as C does, up to a NUL.
fn has_specials(pattern: &[u8]) -> bool {
    let stop =
        |byte: &&u8| matches!(byte, 0 | b'^' | b'$' | b'*' | b'+' | b'?' | b'.' | b'(' | b'[' | b'%' | b'-');
    pattern.iter().find(stop).is_some_and(|byte| *byte != 0)
}
