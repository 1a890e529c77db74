//! The number of pieces in the longest string that a native script joins. A piece is one of KEYS or ARGV, a number, a part
//! of a reply, or a literal.
//!
//! Rule    a script is not native if a string grows with every iteration of a loop: each join may double it.
//! Bounds  a list counts as the longest element added to any list, a function's parameter as one piece.

use super::parse::Parsed;
use super::tree::{Builtin, Expression, Slot, Statement};

/// The pieces of the longest string that a script joins; `None` if a string grows in a loop.
pub(super) fn most(script: &Parsed) -> Option<u64> {
    let slots = vec![1; script.slots];
    let mut counter = Counter { slots, inserted: 1, results: Vec::new(), result: 0, most: 0 };
    for function in &script.functions {
        counter.block(&function.body)?;
        let result = std::mem::take(&mut counter.result);
        counter.results.push(result);
    }
    counter.block(&script.body)?;
    Some(counter.most)
}

struct Counter {
    /// The maximum pieces of each local.
    slots: Vec<u64>,
    /// The pieces of the longest element of a list.
    inserted: u64,
    /// The maximum pieces of each function's result, for parameters of one piece.
    results: Vec<u64>,
    /// The maximum pieces returned so far.
    result: u64,
    most: u64,
}

impl Counter {
    fn block(&mut self, block: &[Statement]) -> Option<()> {
        for statement in block {
            match statement {
                Statement::Assign { slot, value } | Statement::Local { slot, value } => {
                    let pieces = self.pieces(value);
                    self.hold(*slot, pieces);
                }
                Statement::Break => {}
                Statement::Do(body) => self.block(body)?,
                Statement::Each { value, list, body, .. } => {
                    let pieces = self.pieces(list).max(self.inserted);
                    self.hold(*value, pieces);
                    self.repeated(body)?;
                }
                Statement::Evaluate(value) => drop(self.pieces(value)),
                Statement::For { from, to, body, .. } => {
                    self.longest(&[from, to]);
                    self.repeated(body)?;
                }
                Statement::If { arms, otherwise } => {
                    for (test, body) in arms {
                        self.pieces(test);
                        self.block(body)?;
                    }
                    self.block(otherwise)?;
                }
                Statement::Insert { value, .. } => self.inserted = self.pieces(value).max(self.inserted),
                Statement::Return(value) => self.result = self.pieces(value).max(self.result),
            }
        }
        Some(())
    }

    /// Counts a loop twice: a local that has more pieces the second time grows with every iteration.
    fn repeated(&mut self, body: &[Statement]) -> Option<()> {
        self.block(body)?;
        let once = (self.slots.clone(), self.inserted);
        self.block(body)?;
        (self.slots == once.0 && self.inserted == once.1).then_some(())
    }

    fn hold(&mut self, slot: Slot, pieces: u64) {
        let held = &mut self.slots[usize::from(slot)];
        *held = pieces.max(*held);
    }

    /// The pieces of a value. Counts its operands, too.
    fn pieces(&mut self, value: &Expression) -> u64 {
        match value {
            Expression::And(operands)
            | Expression::Arithmetic { operands, .. }
            | Expression::Compare { operands, .. }
            | Expression::Equal { operands, .. }
            | Expression::Or(operands) => self.longest(&operands.each_ref()),
            Expression::Builtin { function: Builtin::Format, args, .. } => self.join(args),
            Expression::Builtin { args, .. } | Expression::List(args) => {
                self.longest(&args.iter().collect::<Vec<_>>())
            }
            Expression::Call(call) => {
                self.longest(&call.words.iter().collect::<Vec<_>>());
                1
            }
            Expression::Concatenate { operands, .. } => self.join(&**operands),
            Expression::Field { of, .. }
            | Expression::Length { of, .. }
            | Expression::Negate { of, .. }
            | Expression::Not(of)
            | Expression::Unpack { list: of, .. } => self.pieces(of),
            Expression::Index { operands, .. } => {
                self.pieces(&operands[1]);
                self.pieces(&operands[0]).max(self.inserted)
            }
            Expression::Invoke { function, args } => {
                let longest = self.longest(&args.iter().collect::<Vec<_>>());
                // The result grows in proportion to the arguments.
                let result = self.results.get(usize::from(*function)).copied().unwrap_or(1);
                self.made(result.saturating_mul(longest))
            }
            Expression::Local { slot, .. } => self.slots[usize::from(*slot)],
            Expression::Argument(_)
            | Expression::Arguments
            | Expression::Boolean(_)
            | Expression::Key(_)
            | Expression::Keys
            | Expression::Nil
            | Expression::Number(_)
            | Expression::Text(_) => 1,
        }
    }

    /// The maximum pieces of these values, at least one.
    fn longest(&mut self, values: &[&Expression]) -> u64 {
        values.iter().map(|value| self.pieces(value)).fold(1, u64::max)
    }

    fn join(&mut self, parts: &[Expression]) -> u64 {
        let sum = parts.iter().map(|part| self.pieces(part)).fold(0, u64::saturating_add);
        self.made(sum)
    }

    fn made(&mut self, pieces: u64) -> u64 {
        self.most = self.most.max(pieces);
        pieces
    }
}
