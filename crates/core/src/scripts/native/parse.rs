//! The parser of native scripts: tokens in, a tree out.
//!
//! Owns    scopes: which local, function or library a name means. A script with an unknown name or form is not native.
//! Bounds  at most [`DEPTH_MAX`] nested blocks and expressions and [`SLOTS_MAX`] locals; linear in the tokens times the
//!         locals in scope.
//! Source  Lua 5.1 reference manual, sections 2.2 to 2.6; `lparser.c` of 5.1.5 for the line that an error names.

use super::super::lexer::{Lexeme, Token};
use super::tree::{Block, Expression, Function, Line, Slot, Statement};

/// The deepest nesting of blocks and expressions.
pub(super) const DEPTH_MAX: usize = 60;
/// Locals of one script at most: a function in Lua may have as many upvalues.
pub(super) const SLOTS_MAX: usize = 60;

#[derive(Clone, Debug)]
pub(super) struct Parsed {
    pub(super) body: Block,
    pub(super) functions: Vec<Function>,
    pub(super) slots: usize,
}

/// Parses a whole script; `None` if it is not native, or not Lua.
pub(super) fn parse(lexemes: &[Lexeme<'_>]) -> Option<Parsed> {
    let mut parser = Parser {
        lexemes,
        at: 0,
        scope: Vec::new(),
        functions: Vec::new(),
        slots: 0,
        depth: 0,
        height: 0,
        pending: 0,
        outer: 0,
        loops: 0,
    };
    let body = parser.block()?;
    let is_whole = parser.at == lexemes.len();
    is_whole.then_some(Parsed { body, functions: parser.functions, slots: parser.slots })
}

pub(super) struct Parser<'a> {
    pub(super) lexemes: &'a [Lexeme<'a>],
    pub(super) at: usize,
    pub(super) scope: Vec<(&'a str, Meaning)>,
    functions: Vec<Function>,
    pub(super) slots: usize,
    pub(super) depth: usize,
    /// The height of the last expression's tree.
    pub(super) height: usize,
    /// Values that wait for their operator, call or list.
    pub(super) pending: usize,
    /// The number of names in scope that belong to the enclosing function.
    pub(super) outer: usize,
    /// The number of open loops in this function: `break` needs one.
    loops: usize,
}

/// What a name in scope means.
#[derive(Clone, Copy)]
pub(super) enum Meaning {
    /// `redis.call`, or `redis.pcall` where protected.
    Call { is_protected: bool },
    /// A function of the script; `None` inside its own body.
    Function(Option<u16>),
    /// A local. `is_outer`: it belongs to the enclosing function.
    Local { slot: Slot, is_outer: bool },
}

impl<'a> Parser<'a> {
    fn block(&mut self) -> Option<Block> {
        self.depth += 1;
        let opened = self.scope.len();
        let mut statements = Vec::new();
        if self.depth > DEPTH_MAX {
            return None;
        }
        while !self.ends_block() {
            let is_last = self.statement(&mut statements)?;
            self.take(";");
            if is_last && !self.ends_block() {
                return None;
            }
        }
        self.scope.truncate(opened);
        self.depth -= 1;
        Some(statements.into())
    }

    fn ends_block(&self) -> bool {
        self.peek().is_none_or(|token| token.is_any(&["else", "elseif", "end", "until"]))
    }

    /// Parses one statement. True if no statement may follow it.
    fn statement(&mut self, into: &mut Vec<Statement>) -> Option<bool> {
        let Token::Mark(mark) = self.peek()? else {
            into.push(self.assignment_or_call()?);
            return Some(false);
        };
        let line = self.line();
        let statement = match *mark {
            "local" => match self.local()? {
                Some(statement) => statement,
                None => return Some(false),
            },
            "if" => self.condition()?,
            "for" => self.repetition(line)?,
            "do" => {
                self.at += 1;
                let body = self.block()?;
                self.expect("end")?;
                Statement::Do(body)
            }
            "return" => {
                self.at += 1;
                let is_empty = self.ends_block() || self.peek().is_some_and(|next| next.is(";"));
                into.push(Statement::Return(if is_empty { Expression::Nil } else { self.expression()? }));
                return Some(true);
            }
            "break" if self.loops > 0 => {
                self.at += 1;
                into.push(Statement::Break);
                return Some(true);
            }
            _ => return None,
        };
        into.push(statement);
        Some(false)
    }

    /// `local x = e`; the inner `None` if it only names a function.
    fn local(&mut self) -> Option<Option<Statement>> {
        self.expect("local")?;
        (self.scope.len() < SLOTS_MAX).then_some(())?;
        if self.take("function") {
            return self.function().map(|()| None);
        }
        let name = self.name()?;
        if !self.take("=") {
            let slot = self.declare(name)?;
            return Some(Some(Statement::Local { slot, value: Expression::Nil }));
        }
        if let Some(is_protected) = self.redis_call()
            && !self
                .peek_at(3)
                .is_some_and(|next| next.is_any(&["(", ".", "[", ":"]) || matches!(next, Token::Text(_)))
        {
            self.at += 3;
            self.scope.push((name, Meaning::Call { is_protected }));
            return self.starts_statement().then_some(None);
        }
        let value = self.expression()?;
        let slot = self.declare(name)?;
        Some(Some(Statement::Local { slot, value }))
    }

    /// `function f(a, b) ... end` behind `local`.
    fn function(&mut self) -> Option<()> {
        if self.outer > 0 || self.depth > 1 {
            return None;
        }
        let name = self.name()?;
        let (opened, loops) = (self.scope.len(), std::mem::take(&mut self.loops));
        if self.scope.iter().any(|(own, _)| *own == name) {
            return None;
        }
        self.outer = opened;
        self.expect("(")?;
        let mut parameters = Vec::new();
        while !self.take(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
            }
            let parameter = self.name()?;
            parameters.push(self.declare(parameter)?);
        }
        // The name means the function in its body, too, but a recursive script is not native.
        self.scope.push((name, Meaning::Function(None)));
        let body = self.block()?;
        self.expect("end")?;
        self.scope.truncate(opened);
        (self.outer, self.loops) = (0, loops);
        let place = u16::try_from(self.functions.len()).ok()?;
        self.functions.push(Function { parameters: parameters.into(), body });
        self.scope.push((name, Meaning::Function(Some(place))));
        Some(())
    }

    fn condition(&mut self) -> Option<Statement> {
        let mut arms = Vec::new();
        let mut otherwise: Block = Box::default();
        self.expect("if")?;
        loop {
            let test = self.expression()?;
            self.expect("then")?;
            arms.push((test, self.block()?));
            if self.take("elseif") {
                continue;
            }
            if self.take("else") {
                otherwise = self.block()?;
            }
            self.expect("end")?;
            return Some(Statement::If { arms: arms.into(), otherwise });
        }
    }

    fn repetition(&mut self, line: Line) -> Option<Statement> {
        self.expect("for")?;
        let opened = self.scope.len();
        let first = self.name()?;
        let statement = if self.take("=") {
            let from = self.expression()?;
            self.expect(",")?;
            let to = self.expression()?;
            let step = if self.take(",") { self.step()? } else { 1.0 };
            self.expect("do")?;
            let slot = self.declare(first)?;
            Statement::For { slot, from, to, step, body: self.loop_body()?, line }
        } else {
            self.expect(",")?;
            let second = self.name()?;
            self.expect("in")?;
            (self.is_global("ipairs") && self.opens_call(1)).then_some(())?;
            let line = self.line_at(1);
            self.at += 2;
            let list = self.expression()?;
            self.expect(")")?;
            self.expect("do")?;
            let (index, value) = (self.declare(first)?, self.declare(second)?);
            Statement::Each { index, value, list, body: self.loop_body()?, line }
        };
        self.scope.truncate(opened);
        Some(statement)
    }

    fn loop_body(&mut self) -> Option<Block> {
        self.loops += 1;
        let body = self.block()?;
        self.loops -= 1;
        self.expect("end")?;
        Some(body)
    }

    /// A literal step other than 0.
    fn step(&mut self) -> Option<f64> {
        let sign = if self.take("-") { -1.0 } else { 1.0 };
        let Some(Token::Number(digits)) = self.peek() else { return None };
        self.at += 1;
        let step = digits.parse::<u16>().ok().filter(|step| *step > 0)?;
        Some(sign * f64::from(step))
    }

    fn assignment_or_call(&mut self) -> Option<Statement> {
        let Token::Name(name) = self.peek()? else { return None };
        if self.peek_at(1).is_some_and(|next| next.is("=")) {
            // Assigning to a function or a global is not native.
            let Meaning::Local { slot, .. } = self.meaning(name)? else { return None };
            self.at += 2;
            return Some(Statement::Assign { slot, value: self.expression()? });
        }
        if self.is_library("table", "insert") && self.opens_call(3) {
            let line = self.line_at(3);
            self.at += 4;
            let list = self.expression()?;
            self.expect(",")?;
            let value = self.expression()?;
            self.expect(")")?;
            return Some(Statement::Insert { list, value, line });
        }
        match self.primary()? {
            call @ (Expression::Call(_) | Expression::Invoke { .. }) if self.starts_statement() => {
                Some(Statement::Evaluate(call))
            }
            _ => None,
        }
    }
}
