//! The evaluation of expressions.
//!
//! Owns    operators and the functions of libraries.
//! Source  Lua 5.1 reference manual, sections 2.5 and 5; `lvm.c`, `lstrlib.c`, `lmathlib.c` of 5.1.5; Redis 7.0
//!         `script_lua.c` for `error_reply` and `status_reply`.

use redlatch_proto::error::until_nul;
use redlatch_proto::number::double::Text;
use smallvec::SmallVec;

use super::Raised;
use super::run::{Evaluated, Flow, Run};
use super::tree::{Builtin, Expression, Field, Line, Operator};
use super::value::{Span, Value, unfit, unordered, whole};

/// Bytes that a script may join in one run. Lock scripts need far less.
const JOINED_BYTES_MAX: usize = 16 << 20;

impl<'a> Run<'a> {
    pub(super) fn evaluate(&mut self, expression: &'a Expression) -> Evaluated<'a> {
        Ok(match expression {
            Expression::And(operands) => {
                let left = self.evaluate(&operands[0])?;
                if left.is_true() { self.evaluate(&operands[1])? } else { left }
            }
            Expression::Argument(_) | Expression::Key(_) => {
                self.given(expression).map_or(Value::Nil, Value::Given)
            }
            Expression::Arguments => Value::Arguments,
            Expression::Arithmetic { operator, operands, line } => {
                let (left, right) = self.both(operands)?;
                self.compute(*operator, (left, right), operands, *line)?
            }
            Expression::Boolean(is_so) => Value::Boolean(*is_so),
            Expression::Builtin { function, args, line } => self.builtin(*function, args, *line)?,
            Expression::Call(call) => self.call(call)?,
            Expression::Compare { or_equal, exchanged, operands, line } => {
                let (left, right) = self.both(operands)?;
                let (left, right) = if *exchanged { (right, left) } else { (left, right) };
                Value::Boolean(self.is_less(left, right, *or_equal, *line)?)
            }
            Expression::Concatenate { operands, line } => {
                let (left, right) = self.both(operands)?;
                self.join((left, right), operands, *line)?
            }
            Expression::Equal { .. } => Value::Boolean(self.is_true(expression)?),
            Expression::Field { of, field, line } => {
                let table = self.evaluate(of)?;
                self.field(table, *field, of, *line)?
            }
            Expression::Index { operands, line } => {
                let (table, at) = self.both(operands)?;
                self.element(table, at, &operands[0], *line)?
            }
            Expression::Invoke { function, args } => self.invoke(usize::from(*function), args)?,
            Expression::Keys => Value::Keys,
            Expression::Length { of, line } => {
                let value = self.evaluate(of)?;
                match self.text(value) {
                    Some(text) => Value::Number(text.len() as f64),
                    None if value.type_name() == "table" => Value::Number(self.length(value) as f64),
                    None => return Err(Raised::lua(&unfit("get length of", of, value), *line)),
                }
            }
            Expression::List(items) => {
                let items = items.iter().map(|item| self.evaluate(item)).collect::<Result<_, _>>()?;
                self.list(items)
            }
            Expression::Local { slot, .. } => self.slots[usize::from(*slot)],
            Expression::Negate { of, line } => {
                let value = self.evaluate(of)?;
                let number = self.to_number(value);
                let number =
                    number.ok_or_else(|| Raised::lua(&unfit("perform arithmetic on", of, value), *line))?;
                Value::Number(-number)
            }
            Expression::Nil => Value::Nil,
            Expression::Not(of) => Value::Boolean(!self.evaluate(of)?.is_true()),
            Expression::Number(number) => Value::Number(*number),
            Expression::Or(operands) => {
                let left = self.evaluate(&operands[0])?;
                if left.is_true() { left } else { self.evaluate(&operands[1])? }
            }
            Expression::Text(text) => Value::Given(text),
            // A call that spreads the list evaluates it itself; elsewhere only the first value counts.
            Expression::Unpack { list, .. } => {
                let list = self.evaluate(list)?;
                self.item(list, 1)
            }
        })
    }

    /// Whether an expression is neither nil nor false.
    pub(super) fn is_true(&mut self, expression: &'a Expression) -> Result<bool, Box<Raised>> {
        let Expression::Equal { same, has_get, operands } = expression else {
            return Ok(self.evaluate(expression)?.is_true());
        };
        if *has_get && let Some(is_held) = self.holds(operands)? {
            return Ok(is_held == *same);
        }
        let (left, right) = self.both(operands)?;
        Ok(self.are_equal(left, right) == *same)
    }

    /// Whether the key of a GET, the first operand, holds the second; `None` if GET must be called to find out.
    fn holds(&mut self, [get, value]: &'a [Expression; 2]) -> Result<Option<bool>, Box<Raised>> {
        let Expression::Call(call) = get else { return Ok(None) };
        let key = call.words.get(1).and_then(|key| self.given(key));
        let Some((key, value)) = key.zip(self.given(value)) else { return Ok(None) };
        let held = self.calls.holds(call.listed, key, value).transpose();
        held.map_err(|text| Raised { text, line: call.line }.into())
    }

    fn both(&mut self, operands: &'a [Expression; 2]) -> Result<(Value<'a>, Value<'a>), Box<Raised>> {
        Ok((self.evaluate(&operands[0])?, self.evaluate(&operands[1])?))
    }

    fn compute(
        &self,
        operator: Operator,
        (left, right): (Value<'a>, Value<'a>),
        operands: &[Expression; 2],
        line: Line,
    ) -> Evaluated<'a> {
        let refused =
            |expression, value| Raised::lua(&unfit("perform arithmetic on", expression, value), line);
        let a = self.to_number(left).ok_or_else(|| refused(&operands[0], left))?;
        let b = self.to_number(right).ok_or_else(|| refused(&operands[1], right))?;
        Ok(Value::Number(match operator {
            Operator::Add => a + b,
            Operator::Divide => a / b,
            Operator::Modulo => a - (a / b).floor() * b,
            Operator::Multiply => a * b,
            Operator::Subtract => a - b,
        }))
    }

    fn are_equal(&self, left: Value<'a>, right: Value<'a>) -> bool {
        match (left, right) {
            (Value::Boolean(left), Value::Boolean(right)) => left == right,
            (Value::Number(left), Value::Number(right)) => left == right,
            (Value::Failure(left), Value::Failure(right)) | (Value::Status(left), Value::Status(right)) => {
                left == right
            }
            (Value::List(left), Value::List(right)) => left == right,
            (Value::Arguments, Value::Arguments) | (Value::Keys, Value::Keys) | (Value::Nil, Value::Nil) => {
                true
            }
            _ => self.text(left).is_some_and(|left| Some(left) == self.text(right)),
        }
    }

    fn is_less(
        &self,
        left: Value<'a>,
        right: Value<'a>,
        or_equal: bool,
        line: Line,
    ) -> Result<bool, Box<Raised>> {
        if let (Value::Number(left), Value::Number(right)) = (left, right) {
            return Ok(if or_equal { left <= right } else { left < right });
        }
        match (self.text(left), self.text(right)) {
            (Some(left), Some(right)) => Ok(if or_equal { left <= right } else { left < right }),
            _ => Err(Raised::lua(&unordered(left, right), line)),
        }
    }

    fn join(
        &mut self,
        (left, right): (Value<'a>, Value<'a>),
        operands: &[Expression; 2],
        line: Line,
    ) -> Evaluated<'a> {
        for (expression, value) in operands.iter().zip([left, right]) {
            if !matches!(value.type_name(), "number" | "string") {
                return Err(Raised::lua(&unfit("concatenate", expression, value), line));
            }
        }
        let start = self.texts.len();
        self.push(left, line)?;
        self.push(right, line)?;
        Ok(self.since(start))
    }

    /// Appends a string or a number to the string that is being joined.
    fn push(&mut self, value: Value<'a>, line: Line) -> Result<(), Box<Raised>> {
        let len = self.text(value).map_or(0, <[u8]>::len);
        self.joined = self.joined.saturating_add(len);
        if self.joined > JOINED_BYTES_MAX {
            let text = format!("ERR the script needs more memory than its limit of {JOINED_BYTES_MAX} bytes");
            return Err(Raised { text: text.into_bytes(), line }.into());
        }
        match value {
            Value::Number(number) => self.texts.extend_from_slice(Text::short(number).as_bytes()),
            Value::Given(bytes) => self.texts.extend_from_slice(bytes),
            Value::Text(span) => {
                let end = self.texts.len();
                self.texts.resize(end + len, 0);
                self.texts.copy_within(span.start..span.end, end);
            }
            _ => {}
        }
        Ok(())
    }

    /// The string that has been joined since then.
    fn since(&self, start: usize) -> Value<'a> {
        Value::Text(Span { start, end: self.texts.len() })
    }

    fn field(&self, table: Value<'a>, field: Field, of: &Expression, line: Line) -> Evaluated<'a> {
        match (table, field) {
            (Value::Failure(span), Field::Err) | (Value::Status(span), Field::Ok) => Ok(Value::Text(span)),
            // A string has the functions of its library as fields; none has this name.
            _ if matches!(table.type_name(), "table" | "string") => Ok(Value::Nil),
            _ => Err(Raised::lua(&unfit("index", of, table), line)),
        }
    }

    fn element(&self, table: Value<'a>, at: Value<'a>, of: &Expression, line: Line) -> Evaluated<'a> {
        if !matches!(table.type_name(), "table" | "string") {
            return Err(Raised::lua(&unfit("index", of, table), line));
        }
        Ok(match at {
            Value::Number(at) if at >= 1.0 && at.fract() == 0.0 => self.item(table, at as usize),
            _ => Value::Nil,
        })
    }

    fn invoke(&mut self, function: usize, args: &'a [Expression]) -> Evaluated<'a> {
        let script = self.script;
        let function = &script.functions[function];
        // All arguments are evaluated before a parameter is set.
        let values = args.iter().map(|arg| self.evaluate(arg)).collect::<Result<Vec<_>, _>>()?;
        for (at, slot) in function.parameters.iter().enumerate() {
            self.slots[usize::from(*slot)] = values.get(at).copied().unwrap_or(Value::Nil);
        }
        Ok(match self.block(&function.body)? {
            Flow::Return(value) => value,
            Flow::Break | Flow::Next => Value::Nil,
        })
    }

    fn builtin(&mut self, function: Builtin, args: &'a [Expression], line: Line) -> Evaluated<'a> {
        let first = self.evaluate(&args[0])?;
        Ok(match function {
            Builtin::ErrorReply => self.error_reply(first),
            Builtin::StatusReply if self.text(first).is_none() => {
                Value::Failure(self.keep_text(WRONG_ARGUMENTS))
            }
            Builtin::StatusReply => {
                let start = self.texts.len();
                self.push(first, line)?;
                let end = self.texts.len();
                // Makes the position unique, because tables are compared by it and the text may be empty.
                self.texts.push(0);
                Value::Status(Span { start, end })
            }
            Builtin::Floor => Value::Number(self.number_argument(first, 1, "floor", line)?.floor()),
            Builtin::Format => self.format(first, &args[1..], line)?,
            Builtin::Max => self.extreme("max", args, first, |most, next| next > most, line)?,
            Builtin::Min => self.extreme("min", args, first, |least, next| next < least, line)?,
            Builtin::Sub => self.part(first, &args[1..], line)?,
            Builtin::ToNumber => self.to_number(first).map_or(Value::Nil, Value::Number),
            Builtin::ToText => self.spelt(first),
            Builtin::Type => Value::Given(first.type_name().as_bytes()),
        })
    }

    /// `redis.error_reply`: a text of one word gets the code `ERR`.
    fn error_reply(&mut self, text: Value<'a>) -> Value<'a> {
        let mut line: SmallVec<[u8; 64]> = SmallVec::new();
        match self.text(text) {
            None => line.extend_from_slice(WRONG_ARGUMENTS),
            Some(text) => {
                let text = until_nul(text.strip_prefix(b"-").unwrap_or(text));
                if !text.contains(&b' ') {
                    line.extend_from_slice(b"ERR ");
                }
                line.extend_from_slice(text);
            }
        }
        Value::Failure(self.keep_text(&line))
    }

    fn spelt(&mut self, value: Value<'a>) -> Value<'a> {
        match value {
            Value::Given(_) | Value::Text(_) => value,
            Value::Number(number) => Value::Text(self.keep_text(Text::short(number).as_bytes())),
            Value::Boolean(true) => Value::Given(b"true"),
            Value::Boolean(false) => Value::Given(b"false"),
            Value::Nil => Value::Given(b"nil"),
            Value::Arguments => self.named(0),
            Value::Keys => self.named(1),
            Value::Failure(text) | Value::Status(text) => self.named(2 + 2 * text.start),
            Value::List(place) => self.named(3 + 2 * place),
        }
    }

    /// The text of a table, unique at that time. Lua shows the address, which is as arbitrary.
    fn named(&mut self, number: usize) -> Value<'a> {
        let name = format!("table: {:#x}", 0x7f00_0000_0000 + number as u64);
        Value::Text(self.keep_text(name.as_bytes()))
    }

    fn extreme(
        &mut self,
        name: &str,
        args: &'a [Expression],
        first: Value<'a>,
        is_better: impl Fn(f64, f64) -> bool,
        line: Line,
    ) -> Evaluated<'a> {
        let mut values = vec![first];
        for arg in &args[1..] {
            values.push(self.evaluate(arg)?);
        }
        let mut best = self.number_argument(values[0], 1, name, line)?;
        for (at, value) in values.iter().enumerate().skip(1) {
            let next = self.number_argument(*value, at + 1, name, line)?;
            if is_better(best, next) {
                best = next;
            }
        }
        Ok(Value::Number(best))
    }

    fn number_argument(
        &self,
        value: Value<'a>,
        place: usize,
        name: &str,
        line: Line,
    ) -> Result<f64, Box<Raised>> {
        self.to_number(value).ok_or_else(|| Raised::argument(place, name, "number", value, line))
    }

    /// `string.sub`
    fn part(&mut self, text: Value<'a>, places: &'a [Expression], line: Line) -> Evaluated<'a> {
        let mut ends = [Value::Nil, Value::Nil];
        for (end, place) in ends.iter_mut().zip(places) {
            *end = self.evaluate(place)?;
        }
        let start = self.texts.len();
        if !matches!(text.type_name(), "number" | "string") {
            return Err(Raised::argument(1, "sub", "string", text, line));
        }
        self.push(text, line)?;
        let len = (self.texts.len() - start) as i64;
        let from = whole(self.number_argument(ends[0], 2, "sub", line)?);
        let to = match ends[1] {
            Value::Nil => -1,
            end => whole(self.number_argument(end, 3, "sub", line)?),
        };
        let counted = |place: i64| if place < 0 { place.saturating_add(len + 1).max(0) } else { place };
        let (from, to) = (counted(from).max(1), counted(to).min(len));
        if from > to {
            return Ok(Value::Given(b""));
        }
        Ok(Value::Text(Span { start: start + from as usize - 1, end: start + to as usize }))
    }

    /// `string.format`, of `%s` only.
    fn format(&mut self, format: Value<'a>, args: &'a [Expression], line: Line) -> Evaluated<'a> {
        let values = args.iter().map(|arg| self.evaluate(arg)).collect::<Result<Vec<_>, _>>()?;
        let start = self.texts.len();
        let Value::Given(mut rest) = format else { return Ok(Value::Nil) };
        for (at, value) in values.into_iter().enumerate() {
            let piece = rest.windows(2).position(|pair| pair == b"%s").unwrap_or(rest.len());
            self.push(Value::Given(&rest[..piece]), line)?;
            rest = rest.get(piece + 2..).unwrap_or_default();
            if !matches!(value.type_name(), "number" | "string") {
                return Err(Raised::argument(at + 2, "format", "string", value, line));
            }
            let from = self.texts.len();
            self.push(value, line)?;
            // Lua 5.1 hands a short string to C's `sprintf`, where it ends at the first NUL.
            if self.texts.len() - from < 100 {
                let kept = until_nul(&self.texts[from..]).len();
                self.texts.truncate(from + kept);
            }
        }
        self.push(Value::Given(rest), line)?;
        Ok(self.since(start))
    }
}

const WRONG_ARGUMENTS: &[u8] = b"ERR wrong number or type of arguments";
