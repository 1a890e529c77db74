//! The expressions of native scripts, by precedence.
//!
//! Owns    operators, calls, and the fields and indices behind a value.
//! Source  Lua 5.1 reference manual, section 2.5; `lparser.c` and `lcode.c` of 5.1.5: an operator's line is that of the
//!         last token read when its code is made.

use super::super::lexer::Token;
use super::parse::{DEPTH_MAX, Meaning, Parser, SLOTS_MAX};
use super::tree::{Builtin, Call, Expression, Field, Line, Operator, Slot};

/// Binary operators, with their binding power on the left and on the right.
const BINARY: &[(&str, u8, u8)] = &[
    ("or", 1, 1),
    ("and", 2, 2),
    ("<", 3, 3),
    (">", 3, 3),
    ("<=", 3, 3),
    (">=", 3, 3),
    ("~=", 3, 3),
    ("==", 3, 3),
    ("..", 5, 4),
    ("+", 6, 6),
    ("-", 6, 6),
    ("*", 7, 7),
    ("/", 7, 7),
    ("%", 7, 7),
];
/// The binding power of `not`, `#` and `-`.
const UNARY: u8 = 8;
/// Pending values at one time. With [`SLOTS_MAX`] locals they are fewer than the 250 registers of Lua.
const PENDING_MAX: usize = 150;

impl<'a> Parser<'a> {
    pub(super) fn expression(&mut self) -> Option<Expression> {
        self.operation(0)
    }

    fn operation(&mut self, limit: u8) -> Option<Expression> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let outer = std::mem::take(&mut self.height);
        let mut left = self.unary()?;
        let mut height = self.height + 1;
        while let Some((sign, _, right_limit)) = self.binary().filter(|(_, left, _)| *left > limit) {
            self.at += 1;
            self.push_pending()?;
            let right = self.operation(*right_limit)?;
            self.pending -= 1;
            left = joined(sign, left, right, self.last_line())?;
            height = height.max(self.height) + 1;
        }
        // The tree of `a + b + c` is as high as that of `a + (b + c)`, although no recursion parses it.
        if height > DEPTH_MAX {
            return None;
        }
        self.height = outer.max(height);
        // `^` binds strongest; no native script uses it.
        if self.peek().is_some_and(|next| next.is("^")) {
            return None;
        }
        self.depth -= 1;
        Some(left)
    }

    fn binary(&self) -> Option<&'static (&'static str, u8, u8)> {
        let next = self.peek()?;
        BINARY.iter().find(|(sign, ..)| next.is(sign))
    }

    fn unary(&mut self) -> Option<Expression> {
        let Some(Token::Mark(sign @ ("not" | "-" | "#"))) = self.peek() else { return self.simple() };
        self.at += 1;
        let of = self.operation(UNARY)?;
        let line = self.last_line();
        Some(match (*sign, of) {
            ("not", of) => Expression::Not(of.into()),
            ("#", of) => Expression::Length { of: of.into(), line },
            // Lua 5.1 has one constant for 0 and -0, whichever comes first in the script.
            (_, Expression::Number(0.0)) => return None,
            (_, Expression::Number(number)) => Expression::Number(-number),
            (_, of) => Expression::Negate { of: of.into(), line },
        })
    }

    fn simple(&mut self) -> Option<Expression> {
        let value = match self.peek()? {
            Token::Mark("nil") => Expression::Nil,
            Token::Mark("true") => Expression::Boolean(true),
            Token::Mark("false") => Expression::Boolean(false),
            Token::Mark("{") => return self.list(),
            Token::Number(digits) => Expression::Number(numeral(digits)?),
            Token::Text(text) => Expression::Text(text.as_ref().into()),
            _ => return self.primary(),
        };
        self.at += 1;
        // `'x'.y` and `'x'(...)` are not Lua, and a table constructor cannot be called.
        (!self.continues_at(0)).then_some(value)
    }

    fn list(&mut self) -> Option<Expression> {
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.take("}") {
            let is_named = matches!(self.peek(), Some(Token::Name(_)))
                && self.peek_at(1).is_some_and(|next| next.is("="));
            if is_named || self.peek()?.is("[") {
                return None;
            }
            items.push(self.expression()?);
            self.push_pending()?;
            if !self.take(",") && !self.take(";") && !self.peek()?.is("}") {
                return None;
            }
        }
        self.pending -= items.len();
        (!self.continues_at(0)).then(|| Expression::List(items.into()))
    }

    /// A name, a value in parentheses or a call, with fields and indices.
    pub(super) fn primary(&mut self) -> Option<Expression> {
        let mut value = if self.take("(") {
            let inner = self.expression()?;
            self.expect(")")?;
            // Parentheses would reduce it to one value.
            (!matches!(inner, Expression::Unpack { .. })).then_some(inner)?
        } else {
            self.named()?
        };
        loop {
            self.height += 1;
            if self.take(".") {
                let Token::Name(name) = self.peek()? else { return None };
                let field = match *name {
                    "ok" => Field::Ok,
                    "err" => Field::Err,
                    _ => return None,
                };
                self.at += 1;
                value = Expression::Field { of: value.into(), field, line: self.discharge_line() };
            } else if self.take("[") {
                let at = self.expression()?;
                self.expect("]")?;
                let line = self.discharge_line();
                value = match at {
                    Expression::Text(_) => return None,
                    at => Expression::Index { operands: [value, at].into(), line },
                };
            } else {
                return (!self.continues_at(0)).then_some(value);
            }
        }
    }

    fn named(&mut self) -> Option<Expression> {
        let Token::Name(name) = self.peek()? else { return None };
        if let Some(is_protected) = self.redis_call() {
            return self.call(is_protected, 3);
        }
        match self.meaning(name) {
            Some(Meaning::Call { is_protected }) => return self.call(is_protected, 1),
            Some(Meaning::Function(place)) => {
                let function = place.filter(|_| self.opens_call(1))?;
                self.at += 2;
                return Some(Expression::Invoke { function, args: self.arguments()?.into() });
            }
            Some(Meaning::Local { slot, is_outer }) => {
                self.at += 1;
                return Some(Expression::Local { slot, name: (*name).into(), is_outer });
            }
            None => {}
        }
        match *name {
            "KEYS" => Some(self.input(Expression::Keys, Expression::Key)),
            "ARGV" => Some(self.input(Expression::Arguments, Expression::Argument)),
            "unpack" if self.opens_call(1) => {
                let line = self.line_at(1);
                self.at += 2;
                let list = self.expression()?;
                self.expect(")")?;
                Some(Expression::Unpack { list: list.into(), line })
            }
            _ => self.builtin(),
        }
    }

    /// `KEYS[1]`, or the table itself.
    fn input(&mut self, table: Expression, element: impl Fn(u16) -> Expression) -> Expression {
        self.at += 1;
        let (Some(Token::Mark("[")), Some(Token::Number(digits)), Some(Token::Mark("]"))) =
            (self.peek_at(0), self.peek_at(1), self.peek_at(2))
        else {
            return table;
        };
        let Some(place) = digits.parse().ok().filter(|place| *place > 0) else { return table };
        self.at += 3;
        element(place)
    }

    fn builtin(&mut self) -> Option<Expression> {
        let found = Builtin::ALL.iter().find(|(name, ..)| match name.split_once('.') {
            Some((library, name)) => self.is_library(library, name),
            None => self.is_global(name),
        })?;
        let (name, function, least, most) = *found;
        let length = if name.contains('.') { 3 } else { 1 };
        self.opens_call(length).then_some(())?;
        let line = self.line_at(length);
        self.at += length + 1;
        let args = self.arguments()?;
        if !(least..=most).contains(&args.len()) {
            return None;
        }
        if function == Builtin::Format {
            let Expression::Text(format) = &args[0] else { return None };
            let pieces = format.windows(2).filter(|pair| pair == b"%s").count();
            let signs = format.iter().filter(|byte| **byte == b'%').count();
            (pieces == signs && pieces + 1 == args.len()).then_some(())?;
        }
        Some(Expression::Builtin { function, args: args.into(), line })
    }

    fn call(&mut self, is_protected: bool, length: usize) -> Option<Expression> {
        self.opens_call(length).then_some(())?;
        let line = self.line_at(length);
        self.at += length + 1;
        let mut words = Vec::new();
        loop {
            let word = self.expression()?;
            // `unpack` is spread only as the last argument.
            let is_spread = matches!(word, Expression::Unpack { .. });
            words.push(word);
            self.push_pending()?;
            if self.take(")") {
                self.pending -= words.len();
                return Some(Expression::Call(Call::new(is_protected, words, line).into()));
            }
            self.expect(",")?;
            if is_spread {
                return None;
            }
        }
    }

    /// Arguments without `unpack`, and the parenthesis behind them.
    fn arguments(&mut self) -> Option<Vec<Expression>> {
        let mut args = Vec::new();
        while !self.take(")") {
            if !args.is_empty() {
                self.expect(",")?;
            }
            args.push(self.expression()?);
            self.push_pending()?;
        }
        self.pending -= args.len();
        Some(args)
    }

    /// Counts a value that waits while the next ones are parsed. Lua has a register for each.
    fn push_pending(&mut self) -> Option<()> {
        self.pending += 1;
        (self.pending <= PENDING_MAX).then_some(())
    }

    /// Whether `redis.call` or `redis.pcall` comes next; true for `pcall`.
    pub(super) fn redis_call(&self) -> Option<bool> {
        ["redis", "server"].iter().find_map(|library| match () {
            () if self.is_library(library, "call") => Some(false),
            () if self.is_library(library, "pcall") => Some(true),
            () => None,
        })
    }

    pub(super) fn is_library(&self, library: &str, function: &str) -> bool {
        self.is_global(library)
            && self.peek_at(1).is_some_and(|next| next.is("."))
            && matches!(self.peek_at(2), Some(Token::Name(name)) if *name == function)
    }

    /// Whether this name comes next and is not redefined by the script.
    pub(super) fn is_global(&self, global: &str) -> bool {
        matches!(self.peek(), Some(Token::Name(name)) if *name == global) && self.meaning(global).is_none()
    }

    /// Whether the token `ahead` is a parenthesis on the line of the token before it: Lua refuses others.
    pub(super) fn opens_call(&self, ahead: usize) -> bool {
        self.peek_at(ahead).is_some_and(|next| next.is("(")) && self.line_at(ahead) == self.line_at(ahead - 1)
    }

    /// Whether the token `ahead` continues the value before it.
    fn continues_at(&self, ahead: usize) -> bool {
        let next = self.peek_at(ahead);
        next.is_some_and(|next| next.is_any(&["(", "[", ".", ":", "{"]) || matches!(next, Token::Text(_)))
    }

    pub(super) fn declare(&mut self, name: &'a str) -> Option<Slot> {
        if self.slots == SLOTS_MAX {
            return None;
        }
        let slot = Slot::try_from(self.slots).ok()?;
        self.slots += 1;
        self.scope.push((name, Meaning::Local { slot, is_outer: false }));
        Some(slot)
    }

    /// What a name means here; `None` for a global.
    pub(super) fn meaning(&self, name: &str) -> Option<Meaning> {
        let place = self.scope.iter().rposition(|(own, _)| *own == name)?;
        Some(match self.scope[place].1 {
            Meaning::Local { slot, .. } => Meaning::Local { slot, is_outer: place < self.outer },
            other => other,
        })
    }

    /// The line of a field access: Lua emits its code after reading the next token.
    fn discharge_line(&self) -> Line {
        if self.binary().is_some() { self.line_at(0) } else { self.last_line() }
    }

    pub(super) fn peek(&self) -> Option<&'a Token<'a>> {
        self.peek_at(0)
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.lexemes.get(self.at + ahead).map(|lexeme| &lexeme.token)
    }

    pub(super) fn line(&self) -> Line {
        self.line_at(0)
    }

    pub(super) fn line_at(&self, ahead: usize) -> Line {
        self.lexemes.get(self.at + ahead).map_or(0, |lexeme| lexeme.line)
    }

    fn last_line(&self) -> Line {
        self.at.checked_sub(1).map_or(1, |last| self.lexemes[last].line)
    }

    pub(super) fn name(&mut self) -> Option<&'a str> {
        let Token::Name(name) = self.peek()? else { return None };
        self.at += 1;
        Some(name)
    }

    pub(super) fn take(&mut self, mark: &str) -> bool {
        let is_next = self.peek().is_some_and(|next| next.is(mark));
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn expect(&mut self, mark: &str) -> Option<()> {
        self.take(mark).then_some(())
    }

    /// Whether the script ends here, or a statement can begin.
    pub(super) fn starts_statement(&self) -> bool {
        const BEGINS: [&str; 14] = [
            ";", "break", "do", "else", "elseif", "end", "for", "function", "if", "local", "repeat",
            "return", "until", "while",
        ];
        self.peek().is_none_or(|next| matches!(next, Token::Name(_)) || next.is_any(&BEGINS))
    }
}

fn joined(sign: &str, left: Expression, right: Expression, line: Line) -> Option<Expression> {
    let operands = Box::new([left, right]);
    let operator = match sign {
        "+" => Some(Operator::Add),
        "-" => Some(Operator::Subtract),
        "*" => Some(Operator::Multiply),
        "/" => Some(Operator::Divide),
        "%" => Some(Operator::Modulo),
        _ => None,
    };
    if let (Some(Operator::Divide | Operator::Modulo | Operator::Multiply), [left, right]) =
        (operator, &*operands)
        && matches!((left, right), (Expression::Number(_), Expression::Number(_)))
    {
        // Lua folds constants, which may yield -0.
        return None;
    }
    if let Some(operator) = operator {
        return Some(Expression::Arithmetic { operator, operands, line });
    }
    Some(match sign {
        "and" => Expression::And(operands),
        "or" => Expression::Or(operands),
        ".." => Expression::Concatenate { operands, line },
        "==" | "~=" => {
            let has_get = operands[0].is_get_as_given() && operands[1].is_given();
            Expression::Equal { same: sign == "==", has_get, operands }
        }
        "<" | "<=" => Expression::Compare { or_equal: sign == "<=", exchanged: false, operands, line },
        ">" | ">=" => Expression::Compare { or_equal: sign == ">=", exchanged: true, operands, line },
        _ => return None,
    })
}

fn numeral(digits: &str) -> Option<f64> {
    let is_decimal =
        digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_decimal { digits.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}
