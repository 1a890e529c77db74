//! The second pass over a script's tokens: scopes, holes and the canonical text.
//!
//! Owns    which local a name means, which operand a hole holds, and on which line a call stands.
//! Knows   the arguments of commands from `operands`; tokens that are dropped never reach it.
//! Source  Lua 5.1 reference manual, sections 2.4.7 and 2.6.

use super::fold::{
    ends_a_value, is_only_read, is_whole_number, only_reads_operands, operand, starts_a_statement,
};
use super::lexer::{Lexeme, Token};
use super::operands::{self, Operands};
use super::shape::{DEPTH_MAX, HOLES_MAX, LOCALS_MAX, NotAShape, Operand};

pub(super) struct Walk<'a> {
    lexemes: &'a [Lexeme<'a>],
    at: usize,
    /// False where KEYS or ARGV is used in any other way than `KEYS[1]`: then a local may not stand for an element.
    only_reads: bool,
    canonical: String,
    holes: Vec<Operand>,
    call_lines: Vec<u32>,
    locals: Vec<Local<'a>>,
    /// For every open block, how many locals were in scope before it.
    blocks: Vec<usize>,
    brackets: Vec<Bracket>,
    pending: Vec<Pending<'a>>,
    declared: usize,
}

struct Local<'a> {
    name: &'a str,
    id: usize,
    means: Means,
}

enum Means {
    /// `redis.call` or `redis.pcall` itself: the name of the function.
    Calls(&'static str),
    /// The hole it renames.
    Hole(Operand),
    Value,
}

/// Names that come into scope later: those of `local` behind its values, those of `for` with its body.
struct Pending<'a> {
    names: Vec<Local<'a>>,
    is_loop: bool,
    depth: (usize, usize),
}

enum Bracket {
    Brace,
    /// The parentheses of a call to Redis: the command, where it is a known literal, and the argument being read.
    Call {
        operands: Option<&'static Operands>,
        argument: usize,
        value_at: usize,
    },
    Plain,
}

impl<'a> Walk<'a> {
    pub(super) fn over(lexemes: &'a [Lexeme<'a>]) -> Self {
        Self {
            lexemes,
            at: 0,
            only_reads: only_reads_operands(lexemes),
            canonical: String::new(),
            holes: Vec::new(),
            call_lines: Vec::new(),
            locals: Vec::new(),
            blocks: Vec::new(),
            brackets: Vec::new(),
            pending: Vec::new(),
            declared: 0,
        }
    }

    /// The canonical text, the holes and the lines of the calls.
    pub(super) fn run(mut self) -> Result<(String, Vec<Operand>, Vec<u32>), NotAShape> {
        while let Some(lexeme) = self.lexemes.get(self.at) {
            self.settle(&lexeme.token)?;
            match &lexeme.token {
                Token::Mark(mark) => self.mark(mark)?,
                Token::Name(name) => self.name(name)?,
                Token::Number(number) => self.number(number)?,
                Token::Text(text) => self.text(text)?,
            }
        }
        match self.blocks.as_slice() {
            [] => Ok((self.canonical, self.holes, self.call_lines)),
            _ => Err(NotAShape::Unbalanced),
        }
    }

    fn mark(&mut self, mark: &'static str) -> Result<(), NotAShape> {
        match mark {
            "local" => return self.local(),
            "for" => return self.loop_names(),
            "function" => return self.function(None),
            "repeat" | "until" => return Err(NotAShape::Foreign),
            "(" => self.open_parenthesis(false)?,
            "[" => self.brackets.push(Bracket::Plain),
            "{" => self.brackets.push(Bracket::Brace),
            ")" | "]" | "}" => drop(self.brackets.pop()),
            "," => {
                if let Some(Bracket::Call { argument, .. }) = self.brackets.last_mut() {
                    *argument += 1;
                }
            }
            "then" => self.open_block()?,
            "do" => {
                self.open_block()?;
                if self.pending.last().is_some_and(|names| names.is_loop && names.depth == self.depth(1)) {
                    let names = self.pending.pop().map(|pending| pending.names);
                    self.declare(names.unwrap_or_default())?;
                }
            }
            "elseif" | "end" => self.close_block()?,
            "else" => {
                self.close_block()?;
                self.open_block()?;
            }
            _ => {}
        }
        self.emit(mark);
        self.at += 1;
        Ok(())
    }

    /// `local a, b = ...`; the names are in scope from the next statement on.
    fn local(&mut self) -> Result<(), NotAShape> {
        if let Some(Token::Mark("function")) = self.peek(1) {
            self.emit("local");
            self.at += 1;
            let Some(Token::Name(name)) = self.peek(1) else { return Err(NotAShape::Unbalanced) };
            let local = self.new_local(name);
            let id = local.id;
            self.declare(vec![local])?;
            return self.function(Some(id));
        }
        if self.rename()? {
            return Ok(());
        }
        self.emit("local");
        self.at += 1;
        let names = self.names();
        if !self.peek(0).is_some_and(|next| next.is("=")) {
            return self.declare(names);
        }
        self.pending.push(Pending { names, is_loop: false, depth: self.depth(0) });
        Ok(())
    }

    /// `local key = KEYS[1]` and `local call = redis.call` are but new names, and leave no trace where the script opens
    /// with them and never assigns to either side.
    fn rename(&mut self) -> Result<bool, NotAShape> {
        // Further down, a declaration may stand where Lua allows none, and dropping it would mend the script.
        let (true, Some(Token::Name(name)), Some(Token::Mark("="))) =
            (self.canonical.is_empty(), self.peek(1), self.peek(2))
        else {
            return Ok(false);
        };
        let (means, length) = match (self.operand_at(self.at + 3), self.redis_call(3)) {
            (Some(operand), _) if self.only_reads => (Means::Hole(operand), 7),
            (_, Some(function)) => (Means::Calls(function), 6),
            _ => return Ok(false),
        };
        let is_whole =
            starts_a_statement(self.peek(length)) && !self.peek(length).is_some_and(|next| next.is("do"));
        if !is_whole || !is_only_read(self.lexemes, name, self.at + 1) {
            return Ok(false);
        }
        self.declare(vec![Local { name, id: usize::MAX, means }])?;
        self.at += length;
        Ok(true)
    }

    fn loop_names(&mut self) -> Result<(), NotAShape> {
        self.emit("for");
        self.at += 1;
        let names = self.names();
        self.pending.push(Pending { names, is_loop: true, depth: self.depth(0) });
        Ok(())
    }

    /// A list of names being declared, read and written; they are not yet in scope.
    fn names(&mut self) -> Vec<Local<'a>> {
        let mut names = Vec::new();
        while let Some(Token::Name(name)) = self.peek(0) {
            let local = self.new_local(name);
            self.emit(&format!("%{}", local.id));
            names.push(local);
            self.at += 1;
            if !self.peek(0).is_some_and(|next| next.is(",")) {
                break;
            }
            self.emit(",");
            self.at += 1;
        }
        names
    }

    /// `function` with its name, where it has one, its parameters, and the opening of its body.
    fn function(&mut self, local: Option<usize>) -> Result<(), NotAShape> {
        self.emit("function");
        self.at += 1;
        if let Some(id) = local {
            self.emit(&format!("%{id}"));
            self.at += 1;
        } else if let Some(Token::Name(name)) = self.peek(0) {
            // A function that is assigned to a local or a field is beyond what any recognised script does.
            if self.find(name).is_some() || !self.peek(1).is_some_and(|next| next.is("(")) {
                return Err(NotAShape::Foreign);
            }
            self.emit(name);
            self.at += 1;
        }
        if !self.peek(0).is_some_and(|next| next.is("(")) {
            return Err(NotAShape::Unbalanced);
        }
        self.emit("(");
        self.at += 1;
        let names = self.names();
        if self.peek(0).is_some_and(|next| next.is("...")) {
            self.emit("...");
            self.at += 1;
        }
        if !self.peek(0).is_some_and(|next| next.is(")")) {
            return Err(NotAShape::Unbalanced);
        }
        self.emit(")");
        self.at += 1;
        self.open_block()?;
        self.declare(names)
    }

    fn name(&mut self, name: &'a str) -> Result<(), NotAShape> {
        if self.is_field() {
            self.emit(name);
            self.at += 1;
            return Ok(());
        }
        if let Some(found) = self.find(name) {
            let id = self.locals[found].id;
            match self.locals[found].means {
                Means::Calls(function) => return self.call(function, 1),
                Means::Hole(ref operand) => {
                    let operand = operand.clone();
                    self.hole(operand)?;
                }
                Means::Value => self.emit(&format!("%{id}")),
            }
            self.at += 1;
        } else if let Some(operand) = self.operand_at(self.at) {
            self.hole(operand)?;
            self.at += 4;
        } else if let Some(function) = self.redis_call(0) {
            return self.call(function, 3);
        } else {
            self.emit(name);
            self.at += 1;
        }
        Ok(())
    }

    /// `redis.call` or `redis.pcall`, so many tokens long, and the parenthesis of its arguments.
    fn call(&mut self, function: &str, length: usize) -> Result<(), NotAShape> {
        self.emit("redis .");
        self.emit(function);
        self.at += length;
        if self.peek(0).is_some_and(|next| next.is("(")) {
            self.open_parenthesis(true)?;
            self.emit("(");
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self, number: &str) -> Result<(), NotAShape> {
        // Lua hands a whole number to a command as its digits, so it is the operand that the string would be.
        match self.argument() {
            Some(Position::Operand) if is_whole_number(number) => {
                self.hole(Operand::Literal(number.as_bytes().into()))?;
            }
            _ => self.emit(number),
        }
        self.at += 1;
        Ok(())
    }

    fn text(&mut self, text: &[u8]) -> Result<(), NotAShape> {
        let upper = text.to_ascii_uppercase();
        match self.argument() {
            Some(Position::Command) => {
                if let Some(Bracket::Call { operands, .. }) = self.brackets.last_mut() {
                    *operands = operands::of(&upper);
                }
                self.emit_text(&upper);
            }
            Some(Position::Operand) => self.hole(Operand::Literal(text.into()))?,
            Some(Position::Option) => {
                if let Some(Bracket::Call { argument, value_at, .. }) = self.brackets.last_mut()
                    && operands::takes_value(&upper)
                {
                    *value_at = *argument + 1;
                }
                self.emit_text(&upper);
            }
            None if self.is_compared() => self.hole(Operand::Literal(text.into()))?,
            None => self.emit_text(text),
        }
        self.at += 1;
        Ok(())
    }

    /// The part that a literal plays which is a whole argument of a call to Redis; `None` where it is none.
    fn argument(&self) -> Option<Position> {
        let Some(Bracket::Call { operands, argument, value_at }) = self.brackets.last() else { return None };
        let is_whole = self.before().is_some_and(|token| token.is_any(&["(", ","]))
            && self.peek(1).is_some_and(|token| token.is_any(&[")", ","]));
        match (is_whole, argument, operands) {
            (false, ..) => None,
            (true, 0, _) => Some(Position::Command),
            (true, _, None) => None,
            (true, at, Some(operands)) if operands.covers(*at) || at == value_at => Some(Position::Operand),
            (true, ..) => Some(Position::Option),
        }
    }

    fn is_compared(&self) -> bool {
        self.before().is_some_and(|token| token.is_any(&["==", "~="]))
            || self.peek(1).is_some_and(|token| token.is_any(&["==", "~="]))
    }

    /// A name behind a dot, or before `=` inside a table, names a field, not a variable.
    fn is_field(&self) -> bool {
        match self.before() {
            Some(Token::Mark("." | ":")) => true,
            Some(Token::Mark("{" | "," | ";")) => {
                matches!(self.brackets.last(), Some(Bracket::Brace))
                    && self.peek(1).is_some_and(|next| next.is("="))
            }
            _ => false,
        }
    }

    /// The function that is named where `redis.call` or `redis.pcall` begins this many tokens ahead.
    fn redis_call(&self, ahead: usize) -> Option<&'static str> {
        let (Some(Token::Name(library)), Some(Token::Mark(".")), Some(Token::Name(function))) =
            (self.peek(ahead), self.peek(ahead + 1), self.peek(ahead + 2))
        else {
            return None;
        };
        match *function {
            _ if !matches!(*library, "redis" | "server") || self.find(library).is_some() => None,
            "call" => Some("call"),
            "pcall" => Some("pcall"),
            _ => None,
        }
    }

    fn operand_at(&self, at: usize) -> Option<Operand> {
        let operand = operand(self.lexemes.get(at..)?)?;
        let Token::Name(table) = &self.lexemes[at].token else { return None };
        self.find(table).is_none().then_some(operand)
    }

    fn open_parenthesis(&mut self, is_redis: bool) -> Result<(), NotAShape> {
        let here = &self.lexemes[self.at];
        if let Some(before) = self.at.checked_sub(1).map(|before| &self.lexemes[before])
            && (ends_a_value(&before.token) && !before.token.is("end"))
            && before.line != here.line
        {
            return Err(NotAShape::AmbiguousCall);
        }
        if is_redis {
            self.call_lines.push(here.line);
            self.brackets.push(Bracket::Call { operands: None, argument: 0, value_at: 0 });
        } else {
            self.brackets.push(Bracket::Plain);
        }
        Ok(())
    }

    /// Brings the names of a `local` into scope once its values are complete.
    fn settle(&mut self, next: &Token<'_>) -> Result<(), NotAShape> {
        let here = self.depth(0);
        let is_due = self.pending.last().is_some_and(|pending| !pending.is_loop && pending.depth == here)
            && (next.is(";") || starts_a_statement(Some(next)))
            && self.before().is_some_and(ends_a_value);
        if is_due {
            let names = self.pending.pop().map(|pending| pending.names);
            self.declare(names.unwrap_or_default())?;
        }
        Ok(())
    }

    fn declare(&mut self, names: Vec<Local<'a>>) -> Result<(), NotAShape> {
        self.locals.extend(names);
        if self.locals.len() > LOCALS_MAX { Err(NotAShape::TooLong) } else { Ok(()) }
    }

    fn open_block(&mut self) -> Result<(), NotAShape> {
        if self.blocks.len() == DEPTH_MAX {
            return Err(NotAShape::TooLong);
        }
        self.blocks.push(self.locals.len());
        Ok(())
    }

    fn close_block(&mut self) -> Result<(), NotAShape> {
        let outer = self.blocks.pop().ok_or(NotAShape::Unbalanced)?;
        self.locals.truncate(outer);
        Ok(())
    }

    fn new_local(&mut self, name: &'a str) -> Local<'a> {
        self.declared += 1;
        Local { name, id: self.declared - 1, means: Means::Value }
    }

    /// The place among the locals of the one that this name means here.
    fn find(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|local| local.name == name)
    }

    /// How many blocks, without the innermost `less`, and how many brackets are open.
    fn depth(&self, less: usize) -> (usize, usize) {
        (self.blocks.len() - less, self.brackets.len())
    }

    fn before(&self) -> Option<&'a Token<'a>> {
        self.at.checked_sub(1).map(|before| &self.lexemes[before].token)
    }

    fn peek(&self, ahead: usize) -> Option<&'a Token<'a>> {
        self.lexemes.get(self.at + ahead).map(|lexeme| &lexeme.token)
    }

    fn hole(&mut self, operand: Operand) -> Result<(), NotAShape> {
        let number = match self.holes.iter().position(|known| *known == operand) {
            Some(known) => known,
            None if self.holes.len() == HOLES_MAX => return Err(NotAShape::TooLong),
            None => {
                self.holes.push(operand);
                self.holes.len() - 1
            }
        };
        self.emit(&format!("@{number}"));
        Ok(())
    }

    fn emit(&mut self, word: &str) {
        if !self.canonical.is_empty() {
            self.canonical.push(' ');
        }
        self.canonical.push_str(word);
    }

    fn emit_text(&mut self, text: &[u8]) {
        self.emit(&format!("\"{}\"", text.escape_ascii()));
    }
}

enum Position {
    Command,
    Operand,
    Option,
}
