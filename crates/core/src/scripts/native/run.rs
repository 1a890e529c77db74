//! Runs a native script.
//!
//! Owns    the values of one run: its locals, and the texts and lists that they refer to.
//! Knows   commands only through [`Calls`].
//! Bounds  texts and lists are freed after the statement or block that made them, unless a list or an outer local refers to
//!         them.
//! Source  Lua 5.1 reference manual, chapter 2; Redis 7.0 `script_lua.c` for conversions.

use redlatch_proto::error::until_nul;
use redlatch_proto::number::double::Text;
use redlatch_proto::resp::{Element, Reply, Words};
use smallvec::SmallVec;

use super::parse::Parsed;
use super::tree::{Call, Expression, Line, Slot, Statement};
use super::value::{Span, Value, number, whole};
use super::{Calls, Inputs, Raised};

/// A script while it runs.
pub(super) struct Run<'a> {
    pub(super) script: &'a Parsed,
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) calls: &'a mut dyn Calls,
    pub(super) slots: SmallVec<[Value<'a>; INLINE_SLOTS]>,
    /// The bytes of all strings that the script has made, and the encoded replies to its calls.
    pub(super) texts: &'a mut Vec<u8>,
    pub(super) lists: Vec<Vec<Value<'a>>>,
    /// Bytes that the script has joined so far.
    pub(super) joined: usize,
    /// The texts and lists up to here stay until the end.
    pub(super) kept: Mark,
}

/// Locals that need no allocation.
const INLINE_SLOTS: usize = 12;

/// The lengths of texts and lists at some time.
#[derive(Clone, Copy, Default)]
pub(super) struct Mark {
    texts: usize,
    lists: usize,
}

pub(super) enum Flow<'a> {
    Break,
    Next,
    Return(Value<'a>),
}

/// A value, or the end of the script.
pub(super) type Evaluated<'a> = Result<Value<'a>, Box<Raised>>;

impl<'a> Run<'a> {
    pub(super) fn block(&mut self, block: &'a [Statement]) -> Result<Flow<'a>, Box<Raised>> {
        let opened = self.mark();
        for statement in block {
            let mark = self.mark();
            match self.statement(statement)? {
                Flow::Next => {}
                flow @ Flow::Break => {
                    self.release(opened);
                    return Ok(flow);
                }
                // The returned value may be a text of this block.
                flow @ Flow::Return(_) => return Ok(flow),
            }
            if !matches!(statement, Statement::Local { .. }) {
                self.release(mark);
            }
        }
        self.release(opened);
        Ok(Flow::Next)
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<Flow<'a>, Box<Raised>> {
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
                    let holds = self.is_true(test)?;
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

    fn bound(&mut self, expression: &'a Expression, refusal: &str, line: Line) -> Result<f64, Box<Raised>> {
        let value = self.evaluate(expression)?;
        self.to_number(value).ok_or_else(|| Raised::lua(refusal, line))
    }

    fn count(
        &mut self,
        slot: Slot,
        (from, to, step): (f64, f64, f64),
        body: &'a [Statement],
    ) -> Result<Flow<'a>, Box<Raised>> {
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
    ) -> Result<Flow<'a>, Box<Raised>> {
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

    fn insert(&mut self, list: Value<'a>, value: Value<'a>, line: Line) -> Result<(), Box<Raised>> {
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
        let reply = if call.is_given { self.call_as_given(call) } else { self.call_with_values(call)? };
        if !call.is_protected && self.texts.get(reply) == Some(&b'-') {
            let line = &self.texts[reply + 1..];
            let line = line.strip_suffix(b"\r\n").unwrap_or(line);
            return Err(Raised { text: line.to_vec(), line: call.line }.into());
        }
        Ok(self.read_at(&mut { reply }, 0))
    }

    /// Calls with words that are not in `texts`. Returns where the reply begins.
    fn call_as_given(&mut self, call: &'a Call) -> usize {
        let reply = self.texts.len();
        let mut words: SmallVec<[&[u8]; 6]> = SmallVec::new();
        for word in &call.words {
            match self.given(word) {
                Some(word) => words.push(word),
                None => {
                    self.texts.extend_from_slice(UNFIT_WORD);
                    return reply;
                }
            }
        }
        self.calls.call(call.listed, &words, self.texts);
        reply
    }

    /// The word of an expression that is one of KEYS or ARGV, or a literal.
    pub(super) fn given(&self, word: &'a Expression) -> Option<&'a [u8]> {
        match word {
            Expression::Argument(place) => self.inputs.args.get(usize::from(*place) - 1),
            Expression::Key(place) => self.inputs.keys.get(usize::from(*place) - 1),
            Expression::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Calls with words of which some must be evaluated. Returns where the reply begins.
    fn call_with_values(&mut self, call: &'a Call) -> Result<usize, Box<Raised>> {
        let mut values: SmallVec<[Value<'a>; 6]> = SmallVec::new();
        for word in &call.words {
            match word {
                Expression::Unpack { list, line } => self.unpack(list, *line, &mut values)?,
                word => values.push(self.evaluate(word)?),
            }
        }
        let reply = self.texts.len();
        // Words are copied out of `texts`, because the reply is appended there. Numbers become text.
        let mut moved: SmallVec<[u8; 128]> = SmallVec::new();
        for value in &mut values {
            let start = moved.len();
            match *value {
                Value::Given(_) => continue,
                Value::Number(number) => moved.extend_from_slice(Text::new(number).as_bytes()),
                Value::Text(span) => moved.extend_from_slice(&self.texts[span.start..span.end]),
                _ => {
                    self.texts.extend_from_slice(UNFIT_WORD);
                    return Ok(reply);
                }
            }
            *value = Value::Text(Span { start, end: moved.len() });
        }
        let word = |value: &Value<'a>| match *value {
            Value::Given(bytes) => bytes,
            Value::Text(span) => &moved[span.start..span.end],
            _ => b"",
        };
        let words: SmallVec<[&[u8]; 6]> = values.iter().map(word).collect();
        self.calls.call(call.listed, &words, self.texts);
        Ok(reply)
    }

    /// The encoded reply at this position, as a value. Strings are not copied.
    fn read_at(&mut self, at: &mut usize, depth: usize) -> Value<'a> {
        let mut rest = self.texts.get(*at..).unwrap_or_default();
        let element = Element::take(&mut rest);
        *at = self.texts.len() - rest.len();
        // The line or text of the element, which a line break follows.
        let end = at.saturating_sub(2);
        let span = |text: &[u8]| Span { start: end.saturating_sub(text.len()), end };
        match element {
            Some(Element::Line(b':', line)) => {
                Value::Number(redlatch_proto::number::integer(line).unwrap_or(0) as f64)
            }
            Some(Element::Line(b'+', line)) => Value::Status(span(line)),
            Some(Element::Line(b'-', line)) => Value::Failure(span(line)),
            Some(Element::Bulk(b'$', text)) => Value::Text(span(text)),
            Some(Element::Aggregate(b'*', len)) if depth < DEPTH_MAX => {
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
    ) -> Result<(), Box<Raised>> {
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
        let given = |words: Words<'a>| words.get(at).map_or(Value::Nil, Value::Given);
        match table {
            Value::Arguments => given(self.inputs.args),
            Value::Keys => given(self.inputs.keys),
            Value::List(place) => self.lists[place].get(at).copied().unwrap_or(Value::Nil),
            _ => Value::Nil,
        }
    }

    /// `#` of a table. If it contains nil, the length is the border that Lua's binary search finds.
    pub(super) fn length(&self, table: Value<'a>) -> usize {
        let items = match table {
            Value::Arguments => return self.inputs.args.len(),
            Value::Keys => return self.inputs.keys.len(),
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
        let start = self.texts.len();
        self.texts.extend_from_slice(bytes);
        Span { start, end: self.texts.len() }
    }

    /// The bytes of a string.
    pub(super) fn text(&self, value: Value<'a>) -> Option<&[u8]> {
        match value {
            Value::Given(bytes) => Some(bytes),
            Value::Text(span) => Some(&self.texts[span.start..span.end]),
            _ => None,
        }
    }

    /// A number, or the number that a string spells.
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

    /// Keeps a value after its block, with all texts and lists so far.
    fn keep(&mut self, value: Value<'a>) {
        if !matches!(value, Value::Boolean(_) | Value::Given(_) | Value::Nil | Value::Number(_)) {
            self.kept = self.mark();
        }
    }

    /// Writes the value that the script has returned.
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

/// Maximum nesting of arrays in a reply.
const DEPTH_MAX: usize = 8;
/// Values of one list that fit on Lua's stack.
const UNPACKED_MAX: usize = 7_999;
const UNFIT_WORD: &[u8] = b"-ERR Lua redis lib command arguments must be strings or integers\r\n";
