//! The bounds of a native script, derived from its tree before it runs: its commands, its keys, and its number of steps.
//!
//! Owns    the rule by which a script is native: it calls the commands listed in `commands`, its loops run over KEYS, ARGV,
//!         lists that it makes, or a range of numbers, and no string grows with every iteration.
//! Rule    a script without bounds is not native. If only a key is unknown, the script locks every shard.
//! Bounds  at most [`STEPS_MAX`] steps with the KEYS and ARGV of a call. No loop is inside another, and no function calls
//!         another, so that one multiplication counts the steps of a loop.

use super::commands::{self, Keys};
use super::parse::Parsed;
use super::pieces;
use super::tree::{Builtin, Call, Expression, Operator, Slot, Statement};
use super::value::number;
use crate::scripts::Inputs;

/// The most statements and expressions that one run evaluates: about a millisecond.
const STEPS_MAX: u64 = 10_000;
/// Pieces of one joined string at most.
const PIECES_MAX: u64 = 64;
/// Steps of a script without loops up to which the size of KEYS and ARGV does not matter.
const SHORT_STEPS_MAX: u64 = 200;

/// The bounds of a script, known before it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// The commands that it calls by name, in upper case, each once.
    pub(super) commands: Vec<&'static str>,
    /// Indices of the ARGV that name a command, which must be `PUBLISH` or `SPUBLISH`.
    pub(super) named_by: Vec<u16>,
    /// Keys that are not in KEYS, each once.
    pub(super) undeclared: Vec<Undeclared>,
    /// Whether the script computes a key as it runs.
    pub(super) is_open: bool,
    /// Indices of the ARGV that limit a loop.
    counted_by: Vec<u16>,
    steps: Steps,
}

/// The number of steps of a script.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    /// Steps that do not depend on KEYS and ARGV.
    once: u64,
    /// Steps for each of KEYS and ARGV, and for each iteration that a number of ARGV asks for.
    per_input: u64,
}

impl Steps {
    const ONCE: Self = Self { once: 1, per_input: 0 };

    /// Adds `other`, repeated `times`. At most one of both depends on KEYS and ARGV.
    fn add(&mut self, other: Self, times: Self) {
        let product = |a: u64, b: u64| a.saturating_mul(b);
        self.once = self.once.saturating_add(product(other.once, times.once));
        let per_input =
            product(other.per_input, times.once).saturating_add(product(other.once, times.per_input));
        self.per_input = self.per_input.saturating_add(per_input);
    }
}

impl Bounds {
    /// Whether the script stays within its bounds with any KEYS and ARGV.
    #[inline]
    pub(super) fn fit_any_inputs(&self) -> bool {
        self.named_by.is_empty() && self.steps.per_input == 0 && self.steps.once <= SHORT_STEPS_MAX
    }

    /// Whether the script stays within its bounds with these KEYS and ARGV, of at most `bytes_max` bytes.
    pub(super) fn fit(&self, inputs: Inputs<'_>, bytes_max: u64) -> bool {
        let arg = |place: &u16| inputs.args.get(usize::from(*place) - 1);
        let publishes =
            |word: &[u8]| word.eq_ignore_ascii_case(b"PUBLISH") || word.eq_ignore_ascii_case(b"SPUBLISH");
        let asked =
            |place: &u16| arg(place).and_then(number).map(|iterations| iterations.abs().ceil() as u64);
        let asked =
            self.counted_by.iter().map(asked).try_fold(0_u64, |sum, iterations| sum.checked_add(iterations?));
        let Some(asked) = asked else { return false };
        let iterations = asked.saturating_add(inputs.word_count() as u64);
        self.named_by.iter().all(|place| arg(place).is_some_and(publishes))
            && self.steps.once.saturating_add(self.steps.per_input.saturating_mul(iterations)) <= STEPS_MAX
            && inputs.bytes() <= bytes_max
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

/// The bounds of a script; `None` if it has none.
pub(super) fn bounds(script: &Parsed) -> Option<Bounds> {
    (pieces::most(script)? <= PIECES_MAX).then_some(())?;
    let origins = vec![Origin::Unset; script.slots];
    let (bounds, part, outside, is_in_loop) = Default::default();
    let mut analysis = Analysis { origins, bounds, part, outside, is_in_loop };
    for function in &script.functions {
        function.parameters.iter().for_each(|slot| analysis.origins[usize::from(*slot)] = Origin::Several);
        analysis.origins(&function.body);
    }
    analysis.origins(&script.body);
    let parts = script.functions.iter().map(|function| {
        analysis.block(&function.body, &[])?;
        Some(std::mem::take(&mut analysis.part))
    });
    let parts = parts.collect::<Option<Vec<Part>>>()?;
    analysis.block(&script.body, &parts)?;
    let steps = analysis.part.steps;
    (steps.once <= STEPS_MAX).then_some(Bounds { steps, ..analysis.bounds })
}

/// Where the value of a local comes from.
#[derive(Clone, Copy, Debug)]
enum Origin<'t> {
    /// A number that a loop counts, or one of ARGV.
    Given,
    /// One of KEYS.
    Key,
    /// More than one place.
    Several,
    /// This expression and no other.
    Once(&'t Expression),
    Unset,
}

/// The bounds of a function, of a loop, or of the script itself, as far as it has been analysed.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    steps: Steps,
    /// Elements that it adds to its lists, counted like steps.
    inserts: Steps,
    has_loop: bool,
}

struct Analysis<'t> {
    origins: Vec<Origin<'t>>,
    bounds: Bounds,
    /// The part that is being analysed.
    part: Part,
    /// In a loop: the part before the loop.
    outside: Part,
    is_in_loop: bool,
}

impl<'t> Analysis<'t> {
    fn origins(&mut self, block: &'t [Statement]) {
        for statement in block {
            match statement {
                Statement::Assign { slot, .. } => self.origins[usize::from(*slot)] = Origin::Several,
                Statement::Do(body) => self.origins(body),
                Statement::Each { index, value, list, body, .. } => {
                    self.origins[usize::from(*index)] = Origin::Given;
                    self.origins[usize::from(*value)] = match list {
                        Expression::Arguments => Origin::Given,
                        Expression::Keys => Origin::Key,
                        _ => Origin::Several,
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
                // A later assignment overrides this.
                Statement::Local { slot, value } => self.origins[usize::from(*slot)] = Origin::Once(value),
                Statement::Break
                | Statement::Evaluate(_)
                | Statement::Insert { .. }
                | Statement::Return(_) => {}
            }
        }
    }

    /// Checks statements. `functions` are the functions that they may call.
    fn block(&mut self, block: &'t [Statement], functions: &[Part]) -> Option<()> {
        for statement in block {
            self.part.steps.once += 1;
            match statement {
                Statement::Assign { value, .. }
                | Statement::Evaluate(value)
                | Statement::Local { value, .. }
                | Statement::Return(value) => self.value(value, functions)?,
                Statement::Break => {}
                Statement::Do(body) => self.block(body, functions)?,
                Statement::Each { list, body, .. } => {
                    let iterations = self.length(list)?;
                    self.repeated(iterations, self.is_own(list), body, functions)?;
                }
                Statement::For { from, to, body, .. } => {
                    let (mut iterations, mut is_over_own) = (Steps::ONCE, false);
                    for bound in [from, to] {
                        is_over_own |= self.iterations(bound, &mut iterations, 0)?;
                    }
                    self.repeated(iterations, is_over_own, body, functions)?;
                }
                Statement::If { arms, otherwise } => {
                    for (test, body) in arms {
                        self.value(test, functions)?;
                        self.block(body, functions)?;
                    }
                    self.block(otherwise, functions)?;
                }
                Statement::Insert { list, value, .. } => {
                    self.is_own(list).then_some(())?;
                    self.argument(value, functions)?;
                    self.part.inserts.once += 1;
                }
            }
        }
        Some(())
    }

    /// Checks a loop. A loop over a list of the script must not add to a list, because it might never end.
    fn repeated(
        &mut self,
        iterations: Steps,
        is_over_own: bool,
        body: &'t [Statement],
        functions: &[Part],
    ) -> Option<()> {
        if std::mem::replace(&mut self.is_in_loop, true) {
            return None;
        }
        self.outside = std::mem::take(&mut self.part);
        self.block(body, functions)?;
        let mut inside = std::mem::replace(&mut self.part, std::mem::take(&mut self.outside));
        inside.steps.once += 1;
        self.part.steps.add(inside.steps, iterations);
        self.part.inserts.add(inside.inserts, iterations);
        (self.is_in_loop, self.part.has_loop) = (false, true);
        let is_square = inside.steps.per_input > 0 && iterations.per_input > 0;
        (!is_square && (!is_over_own || inside.inserts.once == 0)).then_some(())
    }

    /// The maximum length of a list; `None` if it is neither KEYS nor ARGV nor made by the script.
    fn length(&self, list: &'t Expression) -> Option<Steps> {
        match list {
            Expression::Keys | Expression::Arguments => Some(Steps { once: 0, per_input: 1 }),
            list if self.is_own(list) => {
                let mut length = self.outside.inserts;
                length.add(self.part.inserts, Steps::ONCE);
                Some(length)
            }
            _ => None,
        }
    }

    /// Checks an expression where Lua takes one value.
    fn value(&mut self, value: &'t Expression, functions: &[Part]) -> Option<()> {
        let Expression::Invoke { function, args } = value else { return self.argument(value, functions) };
        let called = functions.get(usize::from(*function))?;
        (!called.has_loop || !self.is_in_loop).then_some(())?;
        self.part.steps.add(called.steps, Steps::ONCE);
        self.part.inserts.add(called.inserts, Steps::ONCE);
        self.part.has_loop |= called.has_loop;
        args.iter().try_for_each(|arg| self.argument(arg, functions))
    }

    /// Checks an expression where Lua takes all values. A function of the script may return none, so it is refused.
    fn argument(&mut self, value: &'t Expression, functions: &[Part]) -> Option<()> {
        self.part.steps.once += 1;
        match value {
            Expression::Invoke { .. } | Expression::Unpack { .. } => None,
            Expression::And(operands) | Expression::Or(operands) | Expression::Equal { operands, .. } => {
                operands.iter().try_for_each(|operand| self.value(operand, functions))
            }
            Expression::Arithmetic { operands, .. }
            | Expression::Compare { operands, .. }
            | Expression::Concatenate { operands, .. }
            | Expression::Index { operands, .. } => {
                operands.iter().try_for_each(|operand| self.argument(operand, functions))
            }
            Expression::Builtin { args, .. } | Expression::List(args) => {
                args.iter().try_for_each(|arg| self.argument(arg, functions))
            }
            Expression::Call(call) => self.call(call, functions),
            Expression::Not(of) => self.value(of, functions),
            Expression::Field { of, .. } | Expression::Length { of, .. } | Expression::Negate { of, .. } => {
                self.argument(of, functions)
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

    fn call(&mut self, call: &'t Call, functions: &[Part]) -> Option<()> {
        let (name, words) = call.words.split_first()?;
        for word in words {
            match word {
                Expression::Unpack { list, .. } => {
                    let length = self.length(list);
                    // The length of a reply is bounded by the size of a value, so one unpack of it is allowed, outside of
                    // loops.
                    (length.is_some() || !self.is_in_loop).then_some(())?;
                    self.part.steps.add(length.unwrap_or_default(), Steps::ONCE);
                    self.argument(list, functions)?;
                }
                word => self.argument(word, functions)?,
            }
        }
        let keys = match self.known(name, 0) {
            Expression::Text(name) => {
                let (_, command) = commands::find(name)?;
                if !self.bounds.commands.contains(&command.name) {
                    self.bounds.commands.push(command.name);
                }
                command.keys
            }
            Expression::Argument(place) => {
                self.bounds.named_by.push(*place);
                Keys::None
            }
            _ => return None,
        };
        match keys {
            Keys::All => words.iter().for_each(|word| self.key(word)),
            Keys::EveryOther => {
                // A spread list contains keys, wherever it begins.
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

    fn key(&mut self, word: &'t Expression) {
        let is_keys = |table: &Expression| matches!(table, Expression::Keys);
        match self.known(word, 0) {
            Expression::Key(_) => {}
            Expression::Index { operands, .. } if is_keys(&operands[0]) => {}
            Expression::Local { slot, .. } if matches!(self.origin(*slot), Origin::Key) => {}
            Expression::Argument(place) => self.undeclared(Undeclared::Argument(*place)),
            Expression::Text(text) => self.undeclared(Undeclared::Literal(text.clone())),
            // In MSET the spread list contains values, too. They are locked as if they were keys, which does no harm.
            Expression::Unpack { list, .. } if is_keys(list) => {}
            _ => self.bounds.is_open = true,
        }
    }

    /// Records an undeclared key once.
    fn undeclared(&mut self, key: Undeclared) {
        if !self.bounds.undeclared.contains(&key) {
            self.bounds.undeclared.push(key);
        }
    }

    /// An expression, or for a local that is assigned once, its value.
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

    /// True for a list that the script itself makes with `table.insert`.
    fn is_own(&self, list: &'t Expression) -> bool {
        matches!(self.known(list, 0), Expression::List(items) if items.is_empty())
    }

    /// Checks the first or last number of a loop, and adds to its iterations. True if the number depends on the length of a
    /// list that the script makes.
    fn iterations(
        &mut self,
        expression: &'t Expression,
        iterations: &mut Steps,
        depth: usize,
    ) -> Option<bool> {
        if depth == CHAIN_MAX {
            return None;
        }
        match self.known(expression, 0) {
            Expression::Number(number) => {
                iterations.once = iterations.once.saturating_add(number.abs().ceil() as u64);
                Some(false)
            }
            Expression::Length { of, .. } => {
                let length = self.length(of)?;
                iterations.once = iterations.once.saturating_add(length.once);
                iterations.per_input = iterations.per_input.saturating_add(length.per_input);
                Some(self.is_own(of))
            }
            Expression::Argument(place) => {
                self.bounds.counted_by.push(*place);
                iterations.per_input = iterations.per_input.saturating_add(1);
                Some(false)
            }
            Expression::Builtin { function: Builtin::ToNumber, args, .. } => {
                self.iterations(&args[0], iterations, depth + 1)
            }
            Expression::Arithmetic { operator: Operator::Add | Operator::Subtract, operands, .. } => {
                let [left, right] = &**operands;
                let left = self.iterations(left, iterations, depth + 1)?;
                Some(self.iterations(right, iterations, depth + 1)? || left)
            }
            _ => None,
        }
    }
}

/// Maximum depth of locals that refer to locals, and of nested sums.
const CHAIN_MAX: usize = 8;
