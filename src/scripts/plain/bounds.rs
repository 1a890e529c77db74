//! What a script may do, read off its tree before it runs: which commands, on which keys, how often, and how much that is.
//!
//! Owns    the rule by which a script is plain: it calls commands that are listed in `commands`, and its loops run over KEYS,
//!         ARGV, lists of its own, or as often as a small number says.
//! Rule    what cannot be told beforehand is refused, or, where it is only a key, makes the script's reach the whole store.
//! Bounds  a loop runs at most a few thousand times, none is inside another, and no function calls a function.

use super::commands::{self, Keys};
use super::parse::Parsed;
use super::toll::{LOOPS_MAX, Loop, TURNS_MAX, Toll, Turns};
use super::tree::{Builtin, Call, Expression, Operator, Slot, Statement};
use crate::scripts::effort::{Effort, Spread};

/// What can be told of a script before it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// The commands that it calls by name, in upper case, each once.
    pub(super) commands: Vec<&'static str>,
    /// Which ARGV name a command: `PUBLISH` or `SPUBLISH`, for a script that fits.
    pub(super) named_by: Vec<u16>,
    /// Keys that are not in KEYS, each once.
    pub(super) undeclared: Vec<Undeclared>,
    /// True where a key is made as the script runs.
    pub(super) is_open: bool,
    /// True where a loop runs over KEYS or ARGV.
    pub(super) has_loop: bool,
    /// Which ARGV say how often a loop runs.
    pub(super) turns: Vec<u16>,
    /// How much that is.
    pub(super) toll: Toll,
}

impl Bounds {
    /// Whether they hold whatever KEYS and ARGV are.
    pub(super) fn fit_any_inputs(&self) -> bool {
        self.named_by.is_empty() && self.turns.is_empty() && !self.has_loop
    }
}

/// A key that is not in KEYS.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Undeclared {
    /// `ARGV[i]`
    Argument(u16),
    /// A string of the script.
    Literal(Box<[u8]>),
}

/// The bounds of a script; `None` where it has none that can be told.
pub(super) fn bounds(script: &Parsed) -> Option<Bounds> {
    let origins = vec![Origin::Unset; script.slots];
    let lengths = vec![None; script.slots];
    let mut reader =
        Reader { origins, lengths, bounds: Bounds::default(), toll: Toll::default(), turn: None };
    for function in &script.functions {
        function.parameters.iter().for_each(|slot| reader.origins[usize::from(*slot)] = Origin::Many);
        reader.origins(&function.body);
    }
    reader.origins(&script.body);
    let tolls = script.functions.iter().map(|function| {
        reader.block(&function.body, &[])?;
        Some(std::mem::take(&mut reader.toll))
    });
    let tolls = tolls.collect::<Option<Vec<Toll>>>()?;
    reader.block(&script.body, &tolls)?;
    Some(Bounds { toll: reader.toll, ..reader.bounds })
}

/// Where the value of a local comes from.
#[derive(Clone, Copy, Debug)]
enum Origin<'t> {
    /// A number that a loop counts, or one of ARGV.
    Given,
    /// One of KEYS.
    Key,
    /// More than one place.
    Many,
    /// This expression and no other.
    Once(&'t Expression),
    Unset,
}

struct Reader<'t> {
    origins: Vec<Origin<'t>>,
    /// Of how many values the text in a local is joined, where that is known.
    lengths: Vec<Option<u64>>,
    bounds: Bounds,
    /// Of what is being read: a function, or the script itself.
    toll: Toll,
    /// The loop that is being read.
    turn: Option<Loop>,
}

impl<'t> Reader<'t> {
    fn origins(&mut self, block: &'t [Statement]) {
        for statement in block {
            match statement {
                Statement::Assign { slot, .. } => self.origins[usize::from(*slot)] = Origin::Many,
                Statement::Do(body) => self.origins(body),
                Statement::Each { index, value, list, body, .. } => {
                    self.origins[usize::from(*index)] = Origin::Given;
                    self.origins[usize::from(*value)] = match list {
                        Expression::Arguments => Origin::Given,
                        Expression::Keys => Origin::Key,
                        _ => Origin::Many,
                    };
                    self.origins(body);
                }
                Statement::For { slot, body, .. } => {
                    self.origins[usize::from(*slot)] = Origin::Given;
                    self.origins(body);
                }
                Statement::If { arms, otherwise } => {
                    arms.iter().for_each(|(_, body)| self.origins(body));
                    self.origins(otherwise);
                }
                // An assignment further down takes it back.
                Statement::Local { slot, value } => self.origins[usize::from(*slot)] = Origin::Once(value),
                Statement::Break
                | Statement::Evaluate(_)
                | Statement::Insert { .. }
                | Statement::Return(_) => {}
            }
        }
    }

    /// Checks statements; `tolls` are those of the functions, and there are none inside functions.
    fn block(&mut self, block: &'t [Statement], tolls: &[Toll]) -> Option<()> {
        for statement in block {
            match statement {
                Statement::Evaluate(value) | Statement::Return(value) => self.value(value, tolls)?,
                Statement::Local { slot, value } => {
                    self.value(value, tolls)?;
                    self.lengths[usize::from(*slot)] = self.length(value);
                }
                Statement::Assign { value, .. } => {
                    self.value(value, tolls)?;
                    if let Some(turn) = &mut self.turn {
                        turn.accumulates |= may_grow(value);
                    }
                }
                Statement::Break => {}
                Statement::Do(body) => self.block(body, tolls)?,
                Statement::Each { list, body, .. } => {
                    let turns = match list {
                        Expression::Keys | Expression::Arguments => Turns { inputs: 1, ..Turns::default() },
                        list if self.is_own(list) => Turns { own: 1, ..Turns::default() },
                        _ => return None,
                    };
                    self.repeated(turns, body, tolls)?;
                }
                Statement::For { from, to, step, body, .. } => {
                    let mut turns = Turns { said: 1, ..Turns::default() };
                    let (low, high) = if *step > 0.0 { (from, to) } else { (to, from) };
                    self.turns(high, &mut turns, 0)?;
                    // Who begins above zero does not come by more often for it.
                    let mut fewer = Turns::default();
                    let is_above = matches!(low, Expression::Number(number) if *number >= 0.0);
                    self.turns(low, if is_above { &mut fewer } else { &mut turns }, 0)?;
                    self.repeated(turns, body, tolls)?;
                }
                Statement::If { arms, otherwise } => {
                    for (test, body) in arms {
                        self.value(test, tolls)?;
                        self.block(body, tolls)?;
                    }
                    self.block(otherwise, tolls)?;
                }
                Statement::Insert { list, value, .. } => {
                    self.is_own(list).then_some(())?;
                    self.argument(value, tolls)?;
                    *self.inserts() += 1;
                }
            }
        }
        Some(())
    }

    fn repeated(&mut self, turns: Turns, body: &'t [Statement], tolls: &[Toll]) -> Option<()> {
        if self.turn.is_some() || self.toll.loops.len() == LOOPS_MAX {
            return None;
        }
        self.bounds.has_loop = true;
        self.turn = Some(Loop { turns, ..Loop::default() });
        self.block(body, tolls)?;
        let turn = self.turn.take()?;
        // A list that grows while it is gone through may never end.
        let is_endless = turns.own > 0 && turn.inserts > 0;
        self.toll.loops.push(turn);
        (!is_endless).then_some(())
    }

    /// It does this, where it is being read.
    fn spends(&mut self, effort: Effort) {
        let sum = self.turn.as_mut().map_or(&mut self.toll.once, |turn| &mut turn.effort);
        *sum = sum.with(effort);
    }

    /// It looks at what these are: nothing new, where they stand in the script.
    fn looks_at(&mut self, words: &'t [Expression]) {
        for word in words {
            self.spends(match self.known(word, 0) {
                Expression::Boolean(_) | Expression::Nil | Expression::Number(_) | Expression::Text(_) => {
                    continue;
                }
                Expression::Argument(_) | Expression::Key(_) => Effort { inputs: 1, ..Effort::default() },
                Expression::Index { operands, .. } if is_given(&operands[0]) => {
                    Effort { inputs: 1, ..Effort::default() }
                }
                Expression::Unpack { list, .. } if is_given(list) => {
                    Effort { inputs: 1, ..Effort::default() }
                }
                _ => Effort { texts: 1, ..Effort::default() },
            });
        }
    }

    /// It joins a text, which is `grown` where that may be done to what has been joined before.
    fn joins(&mut self, text: &'t Expression, grown: Effort) {
        self.spends(match self.length(text) {
            Some(longest) => Effort { longest, texts: 1, ..Effort::default() },
            None => Effort { texts: 1, ..grown },
        });
    }

    /// Of how many values a text is joined at most; `None` where it may be joined of what is not known.
    fn length(&self, text: &Expression) -> Option<u64> {
        let sum = |parts: &[Expression]| {
            parts.iter().try_fold(0_u64, |sum, part| Some(sum.saturating_add(self.length(part)?)))
        };
        match text {
            Expression::Concatenate { operands, .. } => sum(&**operands),
            Expression::And(operands) | Expression::Or(operands) => sum(&**operands),
            Expression::Builtin {
                function: Builtin::Format | Builtin::Sub | Builtin::ToText, args, ..
            } => sum(args),
            Expression::Number(_) | Expression::Text(_) => Some(0),
            Expression::Local { slot, .. } => match self.origin(*slot) {
                Origin::Once(_) => self.lengths[usize::from(*slot)],
                Origin::Given | Origin::Key => Some(1),
                Origin::Many | Origin::Unset => None,
            },
            Expression::Index { operands, .. } => {
                let table = self.known(&operands[0], 0);
                matches!(table, Expression::Arguments | Expression::Keys | Expression::Call(_)).then_some(1)
            }
            Expression::Field { .. } | Expression::Invoke { .. } => None,
            _ => Some(1),
        }
    }

    fn inserts(&mut self) -> &mut u64 {
        self.turn.as_mut().map_or(&mut self.toll.inserts, |turn| &mut turn.inserts)
    }

    /// Checks a value of which one is taken.
    fn value(&mut self, value: &'t Expression, tolls: &[Toll]) -> Option<()> {
        match value {
            Expression::Invoke { function, args } => {
                let Toll { once, inserts, loops } = tolls.get(usize::from(*function))?;
                let has_room = self.turn.is_none() && self.toll.loops.len() + loops.len() <= LOOPS_MAX;
                (loops.is_empty() || has_room).then_some(())?;
                self.toll.loops.extend(loops);
                self.spends(*once);
                *self.inserts() += inserts;
                args.iter().try_for_each(|arg| self.argument(arg, tolls))
            }
            value => self.argument(value, tolls),
        }
    }

    /// Checks a value where Lua would take as many as there are: a function of the script may have none.
    fn argument(&mut self, value: &'t Expression, tolls: &[Toll]) -> Option<()> {
        match value {
            Expression::Invoke { .. } | Expression::Unpack { .. } => None,
            Expression::And(operands) | Expression::Or(operands) => {
                operands.iter().try_for_each(|operand| self.value(operand, tolls))
            }
            Expression::Equal { operands, .. } => {
                self.looks_at(&**operands);
                operands.iter().try_for_each(|operand| self.value(operand, tolls))
            }
            Expression::Arithmetic { operands, .. } | Expression::Index { operands, .. } => {
                operands.iter().try_for_each(|operand| self.argument(operand, tolls))
            }
            Expression::Compare { operands, .. } => {
                self.looks_at(&**operands);
                operands.iter().try_for_each(|operand| self.argument(operand, tolls))
            }
            Expression::Concatenate { operands, .. } => {
                self.joins(value, Effort { joints: 1, ..Effort::default() });
                operands.iter().try_for_each(|operand| self.argument(operand, tolls))
            }
            Expression::Builtin { function: Builtin::Format, args, .. } => {
                self.joins(value, Effort { gathers: 1, ..Effort::default() });
                args.iter().try_for_each(|arg| self.argument(arg, tolls))
            }
            Expression::Builtin { args, .. } => {
                self.looks_at(args);
                args.iter().try_for_each(|arg| self.argument(arg, tolls))
            }
            Expression::List(args) => args.iter().try_for_each(|arg| self.argument(arg, tolls)),
            Expression::Call(call) => self.call(call, tolls),
            Expression::Not(of) => self.value(of, tolls),
            Expression::Field { of, .. } | Expression::Length { of, .. } | Expression::Negate { of, .. } => {
                self.argument(of, tolls)
            }
            Expression::Argument(_)
            | Expression::Arguments
            | Expression::Boolean(_)
            | Expression::Key(_)
            | Expression::Keys
            | Expression::Local { .. }
            | Expression::Nil
            | Expression::Number(_)
            | Expression::Text(_) => Some(()),
        }
    }

    fn call(&mut self, call: &'t Call, tolls: &[Toll]) -> Option<()> {
        let (name, words) = call.words.split_first()?;
        self.looks_at(words);
        for word in words {
            match word {
                Expression::Unpack { list, .. } => self.argument(list, tolls)?,
                word => self.argument(word, tolls)?,
            }
        }
        let keys = match self.known(name, 0) {
            Expression::Text(name) => {
                let (_, command) = commands::find(name)?;
                if matches!(command.name, "PUBLISH" | "SPUBLISH") {
                    self.publishes();
                }
                if !self.bounds.commands.contains(&command.name) {
                    self.bounds.commands.push(command.name);
                }
                command.keys
            }
            Expression::Argument(place) => {
                self.bounds.named_by.push(*place);
                self.publishes();
                Keys::None
            }
            _ => return None,
        };
        self.spends(match keys {
            Keys::First => Effort { values: 1, ..Effort::default() },
            Keys::None => Effort::default(),
            Keys::All | Keys::EveryOther => {
                let spreads =
                    words.iter().map(|word| self.spread(word)).filter(|spread| *spread != Spread::None);
                let (lists, spread) =
                    spreads.fold((0, Spread::None), |(n, most), one| (n + 1, most.max(one)));
                Effort { values: words.len() as u64, lists, spread, ..Effort::default() }
            }
        });
        match keys {
            Keys::All => words.iter().for_each(|word| self.key(word)),
            Keys::EveryOther => {
                // What is spread has keys in it wherever it begins.
                let is_spread = |word: &Expression| matches!(word, Expression::Unpack { .. });
                let places = words.iter().enumerate();
                let keys = places.filter(|(place, word)| place % 2 == 0 || is_spread(word));
                keys.for_each(|(_, word)| self.key(word));
            }
            Keys::First => words.iter().take(1).for_each(|word| self.key(word)),
            Keys::None => {}
        }
        Some(())
    }

    /// What becomes keys where a word of a call does.
    fn spread(&self, word: &Expression) -> Spread {
        match word {
            Expression::Unpack { list, .. } if is_given(list) || self.is_own(list) => Spread::Given,
            Expression::Unpack { .. } => Spread::Any,
            _ => Spread::None,
        }
    }

    fn publishes(&mut self) {
        self.spends(Effort { publications: 1, ..Effort::default() });
    }

    fn key(&mut self, word: &'t Expression) {
        let is_keys = |table: &Expression| matches!(table, Expression::Keys);
        match self.known(word, 0) {
            Expression::Key(_) => {}
            Expression::Index { operands, .. } if is_keys(&operands[0]) => {}
            Expression::Local { slot, .. } if matches!(self.origin(*slot), Origin::Key) => {}
            Expression::Argument(place) => self.undeclared(Undeclared::Argument(*place)),
            Expression::Text(text) => self.undeclared(Undeclared::Literal(text.clone())),
            // MSET of what `unpack` gives has values in it, too, which may be locked as if they were keys.
            Expression::Unpack { list, .. } if is_keys(list) => {}
            _ => self.bounds.is_open = true,
        }
    }

    /// Notes a key, once however often it is used: a local may stand for a long one.
    fn undeclared(&mut self, key: Undeclared) {
        if !self.bounds.undeclared.contains(&key) {
            self.bounds.undeclared.push(key);
        }
    }

    /// An expression, or the one that a local stands for, for good.
    fn known(&self, expression: &'t Expression, depth: usize) -> &'t Expression {
        match expression {
            Expression::Local { slot, .. } if depth < CHAIN_MAX => match self.origin(*slot) {
                Origin::Once(origin) => self.known(origin, depth + 1),
                _ => expression,
            },
            other => other,
        }
    }

    fn origin(&self, slot: Slot) -> Origin<'t> {
        self.origins[usize::from(slot)]
    }

    /// True for a list that the script itself makes, element by element.
    fn is_own(&self, list: &'t Expression) -> bool {
        matches!(self.known(list, 0), Expression::List(items) if items.is_empty())
    }

    /// Checks a number that says where a loop begins or ends, and adds to how often it runs.
    fn turns(&mut self, expression: &'t Expression, turns: &mut Turns, depth: usize) -> Option<()> {
        if depth == CHAIN_MAX {
            return None;
        }
        match self.known(expression, 0) {
            Expression::Number(number) => {
                turns.said += number.abs().ceil() as u64;
                (number.abs() <= TURNS_MAX as f64).then_some(())
            }
            Expression::Length { of, .. } if is_given(of) => {
                turns.inputs += 1;
                Some(())
            }
            Expression::Length { of, .. } => {
                turns.own += 1;
                self.is_own(of).then_some(())
            }
            Expression::Argument(place) => {
                self.bounds.turns.push(*place);
                turns.name(*place)
            }
            Expression::Builtin { function: Builtin::ToNumber, args, .. } => {
                self.turns(&args[0], turns, depth + 1)
            }
            Expression::Arithmetic { operator: Operator::Add | Operator::Subtract, operands, .. } => {
                operands.iter().try_for_each(|operand| self.turns(operand, turns, depth + 1))
            }
            _ => None,
        }
    }
}

/// KEYS or ARGV.
fn is_given(list: &Expression) -> bool {
    matches!(list, Expression::Arguments | Expression::Keys)
}

/// Whether a value that a loop assigns may be a text that it has made of what it assigned before.
fn may_grow(value: &Expression) -> bool {
    match value {
        Expression::And(operands) | Expression::Or(operands) => operands.iter().any(may_grow),
        Expression::Builtin { function, .. } => {
            matches!(function, Builtin::Format | Builtin::Sub | Builtin::ToText)
        }
        Expression::Concatenate { .. }
        | Expression::Field { .. }
        | Expression::Index { .. }
        | Expression::Invoke { .. }
        | Expression::Local { .. } => true,
        _ => false,
    }
}

/// Locals that stand for locals, and sums inside sums.
const CHAIN_MAX: usize = 8;
