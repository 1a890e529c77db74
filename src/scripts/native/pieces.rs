//! Of how many pieces a native script joins its longest text: a piece is one of KEYS or ARGV, a number, a part of a reply, or
//! a text that stands in the script.
//!
//! Rule    a script whose texts grow from turn to turn of a loop is not native: each joint may double them.
//! Bounds  a list counts as the longest element that is added to any, a function's parameter as one piece.

use super::parse::Parsed;
use super::tree::{Builtin, Expression, Slot, Statement};

/// The pieces of the longest text that a script joins; `None` where a text grows in a loop.
pub(super) fn most(script: &Parsed) -> Option<u64> {
    let slots = vec![1; script.slots];
    let mut reader = Reader { slots, inserted: 1, results: Vec::new(), result: 0, most: 0 };
    for function in &script.functions {
        reader.block(&function.body)?;
        let result = std::mem::take(&mut reader.result);
        reader.results.push(result);
    }
    reader.block(&script.body)?;
    Some(reader.most)
}

struct Reader {
    /// The pieces of what each local holds at most.
    slots: Vec<u64>,
    /// The pieces of the longest element of a list.
    inserted: u64,
    /// The pieces of what each function returns, for parameters of one piece.
    results: Vec<u64>,
    /// The pieces of what is returned so far.
    result: u64,
    most: u64,
}

impl Reader {
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

    /// Reads a loop twice: a local that holds more the second time holds more with every turn.
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

    /// The pieces of a value; those of all that it is made of are looked at as well.
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
                // What a function joins of longer arguments is longer by as much.
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

    /// The pieces of the longest of these, one at least.
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
