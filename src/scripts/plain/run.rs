//! Runs a plain script.
//!
//! Owns    the values of one run: its locals, and the texts and lists that they refer to.
//! Knows   commands only through [`Calls`].
//! Bounds  texts and lists go with the statement or the block that made them, unless a list or a local outside keeps them.
//! Source  Lua 5.1 reference manual, chapter 2; Redis 7.0 `script_lua.c` for conversions.

use smallvec::SmallVec;

use super::parse::Parsed;
use super::tree::{Call, Expression, Line, Slot, Statement};
use super::value::{Span, Value, number, whole};
use super::{Calls, Raised};
use crate::error::until_nul;
use crate::number::double::Text;
use crate::resp::Reply;

/// A script while it runs.
pub(super) struct Run<'a> {
    pub(super) script: &'a Parsed,
    pub(super) keys: &'a [&'a [u8]],
    pub(super) args: &'a [&'a [u8]],
    pub(super) calls: &'a mut dyn Calls,
    /// The reply of the call that is being made.
    pub(super) fresh: &'a mut Vec<u8>,
    pub(super) slots: SmallVec<[Value<'a>; 12]>,
    /// The bytes of all texts.
    pub(super) texts: SmallVec<[u8; 256]>,
    pub(super) lists: Vec<Vec<Value<'a>>>,
    /// Bytes that the script has put together so far.
    pub(super) joined: usize,
    /// What of texts and lists stays until the end.
    pub(super) kept: Mark,
}

/// How far texts and lists reach.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    texts: usize,
    lists: usize,
}

/// How a statement ends.
pub(super) enum Flow<'a> {
    Break,
    Next,
    Return(Value<'a>),
}

/// A value, or the end of the script.
pub(super) type Evaluated<'a> = Result<Value<'a>, Raised>;

impl<'a> Run<'a> {
    pub(super) fn block(&mut self, block: &'a [Statement]) -> Result<Flow<'a>, Raised> {
        let opened = self.mark();
        for statement in block {
            let mark = self.mark();
            match self.statement(statement)? {
                Flow::Next => {}
                flow @ Flow::Break => {
                    self.release(opened);
                    return Ok(flow);
                }
                // What it returns may be a text of this block.
                flow @ Flow::Return(_) => return Ok(flow),
            }
            if !matches!(statement, Statement::Local { .. }) {
                self.release(mark);
            }
        }
        self.release(opened);
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<Flow<'a>, Raised> {
        match statement {
            Statement::Assign { slot, value } => {
                let value = self.evaluate(value)?;
                self.keep(value);
                self.set(*slot, value);
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Do(body) => return self.block(body),
            Statement::Each { index, value, list, body, line } => {
                return self.each((*index, *value), list, body, *line);
            }
            Statement::Evaluate(call) => drop(self.evaluate(call)?),
            Statement::For { slot, from, to, step, body, line } => {
                let from = self.bound(from, "'for' initial value must be a number", *line)?;
                let to = self.bound(to, "'for' limit must be a number", *line)?;
                return self.count(*slot, (from, to, *step), body);
            }
            Statement::If { arms, otherwise } => {
                for (test, body) in arms {
                    let mark = self.mark();
                    let holds = self.evaluate(test)?.is_true();
                    self.release(mark);
                    if holds {
                        return self.block(body);
                    }
                }
                return self.block(otherwise);
            }
            Statement::Insert { list, value, line } => {
                let list = self.evaluate(list)?;
                let value = self.evaluate(value)?;
                self.insert(list, value, *line)?;
            }
            Statement::Local { slot, value } => {
                let value = self.evaluate(value)?;
                self.set(*slot, value);
            }
            Statement::Return(value) => return Ok(Flow::Return(self.evaluate(value)?)),
        }
        Ok(Flow::Next)
    }

    fn bound(&mut self, expression: &'a Expression, refusal: &str, line: Line) -> Result<f64, Raised> {
        let value = self.evaluate(expression)?;
        self.to_number(value).ok_or_else(|| Raised::lua(refusal, line))
    }

    fn count(
        &mut self,
        slot: Slot,
        (from, to, step): (f64, f64, f64),
        body: &'a [Statement],
    ) -> Result<Flow<'a>, Raised> {
        let mut at = from;
        while if step > 0.0 { at <= to } else { at >= to } {
            self.set(slot, Value::Number(at));
            match self.block(body)? {
                Flow::Break => break,
                Flow::Next => {}
                flow @ Flow::Return(_) => return Ok(flow),
            }
            at += step;
        }
        Ok(Flow::Next)
    }

    fn each(
        &mut self,
        (index, place): (Slot, Slot),
        list: &'a Expression,
        body: &'a [Statement],
        line: Line,
    ) -> Result<Flow<'a>, Raised> {
        let list = self.evaluate(list)?;
        if list.type_name() != "table" {
            return Err(Raised::argument(1, "ipairs", "table", list, line));
        }
        for at in 1.. {
            let value = self.item(list, at);
            if matches!(value, Value::Nil) {
                break;
            }
            self.set(index, Value::Number(at as f64));
            self.set(place, value);
            match self.block(body)? {
                Flow::Break => break,
                Flow::Next => {}
                flow @ Flow::Return(_) => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    fn insert(&mut self, list: Value<'a>, value: Value<'a>, line: Line) -> Result<(), Raised> {
        let Value::List(place) = list else {
            return Err(Raised::argument(1, "insert", "table", list, line));
        };
        self.keep(value);
        if !matches!(value, Value::Nil) {
            self.lists[place].push(value);
        }
        Ok(())
    }

    /// `redis.call`
    pub(super) fn call(&mut self, call: &'a Call) -> Evaluated<'a> {
        let mut values: SmallVec<[Value<'a>; 6]> = SmallVec::new();
        for word in &call.words {
            match word {
                Expression::Unpack { list, line } => self.unpack(list, *line, &mut values)?,
                word => values.push(self.evaluate(word)?),
            }
        }
        // Numbers become text, which lives here while the command runs.
        let numbers: SmallVec<[Text; 1]> = values.iter().filter_map(digits).collect();
        self.carry_out(&values, numbers.iter());
        self.read(call)
    }

    fn carry_out<'t>(&mut self, values: &[Value<'a>], mut numbers: impl Iterator<Item = &'t Text>) {
        let Self { texts, calls, fresh, .. } = self;
        let mut words: SmallVec<[&[u8]; 6]> = SmallVec::with_capacity(values.len());
        fresh.clear();
        for value in values {
            match *value {
                Value::Given(bytes) => words.push(bytes),
                Value::Number(_) => words.push(numbers.next().map(Text::as_bytes).unwrap_or_default()),
                Value::Text(span) => words.push(&texts[span.start..span.end]),
                _ => return fresh.extend_from_slice(UNFIT_WORD),
            }
        }
        calls.call(&words, fresh);
    }

    /// The reply that has come, as a value.
    fn read(&mut self, call: &Call) -> Evaluated<'a> {
        if let Some(line) = self.fresh.strip_prefix(b"-") {
            let line = line.strip_suffix(b"\r\n").unwrap_or(line);
            if !call.is_protected {
                return Err(Raised { text: line.to_vec(), line: call.line });
            }
        }
        let mut at = 0;
        Ok(self.read_at(&mut at, 0))
    }

    fn read_at(&mut self, at: &mut usize, depth: usize) -> Value<'a> {
        let rest = self.fresh.get(*at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'\r').unwrap_or(rest.len());
        let (kind, line) = (rest.first(), rest.get(1..end).unwrap_or_default());
        let start = *at + end + 2;
        *at = start;
        match kind {
            Some(b':') => Value::Number(crate::number::integer(line).unwrap_or(0) as f64),
            Some(b'+') => Value::Status(keep_bytes(&mut self.texts, line)),
            Some(b'-') => Value::Failure(keep_bytes(&mut self.texts, line)),
            Some(b'$' | b'*') if line == b"-1" => Value::Boolean(false),
            Some(b'$') => {
                let len = crate::number::integer(line).and_then(|len| usize::try_from(len).ok()).unwrap_or(0);
                *at = start + len + 2;
                let bytes = self.fresh.get(start..start + len).unwrap_or_default();
                Value::Text(keep_bytes(&mut self.texts, bytes))
            }
            Some(b'*') if depth < DEPTH_MAX => {
                let len = crate::number::integer(line).unwrap_or(0);
                let list = (0..len).map(|_| self.read_at(at, depth + 1)).collect();
                self.list(list)
            }
            _ => Value::Boolean(false),
        }
    }

    fn unpack(
        &mut self,
        list: &'a Expression,
        line: Line,
        into: &mut SmallVec<[Value<'a>; 6]>,
    ) -> Result<(), Raised> {
        let list = self.evaluate(list)?;
        if list.type_name() != "table" {
            return Err(Raised::argument(1, "unpack", "table", list, line));
        }
        let len = self.length(list);
        if len > UNPACKED_MAX {
            return Err(Raised::lua("too many results to unpack", line));
        }
        for at in 1..=len {
            into.push(self.item(list, at));
        }
        Ok(())
    }

    pub(super) fn list(&mut self, items: Vec<Value<'a>>) -> Value<'a> {
        self.lists.push(items);
        Value::List(self.lists.len() - 1)
    }

    /// The element of a table, counted from 1.
    pub(super) fn item(&self, table: Value<'a>, at: usize) -> Value<'a> {
        let at = at.wrapping_sub(1);
        let given = |words: &'a [&'a [u8]]| words.get(at).map_or(Value::Nil, |word| Value::Given(word));
        match table {
            Value::Arguments => given(self.args),
            Value::Keys => given(self.keys),
            Value::List(place) => self.lists[place].get(at).copied().unwrap_or(Value::Nil),
            _ => Value::Nil,
        }
    }

    /// `#` of a table; one with a nil inside ends where Lua's search for an end finds it.
    pub(super) fn length(&self, table: Value<'a>) -> usize {
        let items = match table {
            Value::Arguments => return self.args.len(),
            Value::Keys => return self.keys.len(),
            Value::List(place) => &self.lists[place],
            _ => return 0,
        };
        if !matches!(items.last(), Some(Value::Nil)) {
            return items.len();
        }
        let (mut low, mut high) = (0, items.len());
        while high - low > 1 {
            let middle = (low + high) / 2;
            if matches!(items[middle - 1], Value::Nil) { high = middle } else { low = middle }
        }
        low
    }

    pub(super) fn keep_text(&mut self, bytes: &[u8]) -> Span {
        keep_bytes(&mut self.texts, bytes)
    }

    /// The bytes of a string.
    pub(super) fn text(&self, value: Value<'a>) -> Option<&[u8]> {
        match value {
            Value::Given(bytes) => Some(bytes),
            Value::Text(span) => Some(&self.texts[span.start..span.end]),
            _ => None,
        }
    }

    /// A number, or what a string spells.
    pub(super) fn to_number(&self, value: Value<'a>) -> Option<f64> {
        match value {
            Value::Number(number) => Some(number),
            value => self.text(value).and_then(number),
        }
    }

    fn set(&mut self, slot: Slot, value: Value<'a>) {
        self.slots[usize::from(slot)] = value;
    }

    fn mark(&self) -> Mark {
        Mark { texts: self.texts.len(), lists: self.lists.len() }
    }

    fn release(&mut self, mark: Mark) {
        self.texts.truncate(mark.texts.max(self.kept.texts));
        self.lists.truncate(mark.lists.max(self.kept.lists));
    }

    /// A value is to outlive the block: what there is by now stays.
    fn keep(&mut self, value: Value<'a>) {
        if !matches!(value, Value::Boolean(_) | Value::Given(_) | Value::Nil | Value::Number(_)) {
            self.kept = self.mark();
        }
    }

    /// Answers with what the script has returned.
    pub(super) fn write(&self, value: Value<'a>, reply: &mut Reply<'_>) {
        match value {
            Value::Boolean(true) => reply.integer(1),
            Value::Boolean(false) | Value::Nil => reply.null(),
            Value::Failure(span) => reply.error_bytes(until_nul(&self.texts[span.start..span.end])),
            Value::Given(bytes) => reply.bulk(bytes),
            Value::Number(number) => reply.integer(whole(number)),
            Value::Status(span) => reply.status_bytes(until_nul(&self.texts[span.start..span.end])),
            Value::Text(span) => reply.bulk(&self.texts[span.start..span.end]),
            Value::Arguments | Value::Keys | Value::List(_) => {
                let is_there = |at: &usize| !matches!(self.item(value, *at), Value::Nil);
                let len = (1..).take_while(is_there).count();
                reply.array(len);
                (1..=len).for_each(|at| self.write(self.item(value, at), reply));
            }
        }
    }
}

fn keep_bytes(texts: &mut SmallVec<[u8; 256]>, bytes: &[u8]) -> Span {
    let start = texts.len();
    texts.extend_from_slice(bytes);
    Span { start, end: texts.len() }
}

fn digits(value: &Value<'_>) -> Option<Text> {
    if let Value::Number(number) = value { Some(Text::new(*number)) } else { None }
}

/// Arrays inside arrays, in a reply.
const DEPTH_MAX: usize = 8;
/// Lua has room for so many values of one list on its stack.
const UNPACKED_MAX: usize = 7_999;
const UNFIT_WORD: &[u8] = b"-ERR Lua redis lib command arguments must be strings or integers\r\n";
