//! What a native script may do, read off its tree before it runs: which commands, on which keys, and how many steps.
//!
//! Owns    the rule by which a script is native: it calls the commands listed in `commands`, its loops run over KEYS, ARGV,
//!         lists of its own, or as often as a number says, and no text grows from turn to turn.
//! Rule    what the tree does not tell is refused; or, where it is only a key, the script locks every shard.
//! Bounds  at most [`STEPS_MAX`] steps with the KEYS and ARGV of a call. No loop is inside another, and no function calls a
//!         function, so that steps are counted by one multiplication.

use super::commands::{self, Keys};
use super::parse::Parsed;
use super::pieces;
use super::tree::{Builtin, Call, Expression, Operator, Slot, Statement};
use super::value::number;
use crate::scripts::Inputs;

/// The most statements and expressions that one run evaluates: about a millisecond.
const STEPS_MAX: u64 = 10_000;
/// Pieces that one text is joined of at most.
const PIECES_MAX: u64 = 64;
/// Steps up to which a script without loops is too short for the size of its KEYS and ARGV to matter.
const FEW_STEPS: u64 = 200;

/// What can be told of a script before it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    /// The commands that it calls by name, in upper case, each once.
    pub(super) commands: Vec<&'static str>,
    /// Which ARGV name a command: `PUBLISH` or `SPUBLISH`, for a script that fits.
    pub(super) named_by: Vec<u16>,
    /// Keys that are not in KEYS, each once.
    pub(super) undeclared: Vec<Undeclared>,
    /// True where the script makes a key as it runs.
    pub(super) is_open: bool,
    /// Which ARGV say how often a loop runs.
    counted_by: Vec<u16>,
    steps: Steps,
}

/// How many steps a script takes.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    /// Whatever its KEYS and ARGV are.
    once: u64,
    /// For each of KEYS and ARGV, and each turn that a number of ARGV asks for.
    per_input: u64,
}

impl Steps {
    const ONCE: Self = Self { once: 1, per_input: 0 };

    /// Adds `other`, done so many `times`, of which at most one depends on KEYS and ARGV.
    fn add(&mut self, other: Self, times: Self) {
        let product = |a: u64, b: u64| a.saturating_mul(b);
        self.once = self.once.saturating_add(product(other.once, times.once));
        let per_input =
            product(other.per_input, times.once).saturating_add(product(other.once, times.per_input));
        self.per_input = self.per_input.saturating_add(per_input);
    }
}

impl Bounds {
    /// Whether they hold whatever KEYS and ARGV are.
    #[inline]
    pub(super) fn fit_any_inputs(&self) -> bool {
        self.named_by.is_empty() && self.steps.per_input == 0 && self.steps.once <= FEW_STEPS
    }

    /// Whether they hold with these KEYS and ARGV, of at most `bytes_max` bytes.
    pub(super) fn fit(&self, inputs: Inputs<'_>, bytes_max: u64) -> bool {
        let arg = |place: &u16| inputs.args.get(usize::from(*place) - 1);
        let publishes =
            |word: &[u8]| word.eq_ignore_ascii_case(b"PUBLISH") || word.eq_ignore_ascii_case(b"SPUBLISH");
        let asked = |place: &u16| arg(place).and_then(number).map(|turns| turns.abs().ceil() as u64);
        let asked = self.counted_by.iter().map(asked).try_fold(0_u64, |sum, turns| sum.checked_add(turns?));
        let Some(asked) = asked else { return false };
        let turns = asked.saturating_add(inputs.word_count() as u64);
        self.named_by.iter().all(|place| arg(place).is_some_and(publishes))
            && self.steps.once.saturating_add(self.steps.per_input.saturating_mul(turns)) <= STEPS_MAX
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

/// The bounds of a script; `None` where it has none that can be told.
pub(super) fn bounds(script: &Parsed) -> Option<Bounds> {
    (pieces::most(script)? <= PIECES_MAX).then_some(())?;
    let origins = vec![Origin::Unset; script.slots];
    let (bounds, part, outside, is_in_loop) = Default::default();
    let mut reader = Reader { origins, bounds, part, outside, is_in_loop };
    for function in &script.functions {
        function.parameters.iter().for_each(|slot| reader.origins[usize::from(*slot)] = Origin::Many);
        reader.origins(&function.body);
    }
    reader.origins(&script.body);
    let parts = script.functions.iter().map(|function| {
        reader.block(&function.body, &[])?;
        Some(std::mem::take(&mut reader.part))
    });
    let parts = parts.collect::<Option<Vec<Part>>>()?;
    reader.block(&script.body, &parts)?;
    let steps = reader.part.steps;
    (steps.once <= STEPS_MAX).then_some(Bounds { steps, ..reader.bounds })
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

/// What has been read of a function, of a loop, or of the script itself.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    steps: Steps,
    /// Elements that it adds to lists of its own, counted as steps are.
    inserts: Steps,
    has_loop: bool,
}

struct Reader<'t> {
    origins: Vec<Origin<'t>>,
    bounds: Bounds,
    /// What is being read, as far as it has been.
    part: Part,
    /// In a loop: what stands before it.
    outside: Part,
    is_in_loop: bool,
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

    /// Checks statements; `functions` are those of the script, and there are none inside functions.
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
                    let turns = self.length(list)?;
                    self.repeated(turns, self.is_own(list), body, functions)?;
                }
                Statement::For { from, to, body, .. } => {
                    let (mut turns, mut over_own) = (Steps::ONCE, false);
                    for bound in [from, to] {
                        over_own |= self.turns(bound, &mut turns, 0)?;
                    }
                    self.repeated(turns, over_own, body, functions)?;
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

    /// Checks a loop. One over a list of the script's own adds to none: it might never end.
    fn repeated(
        &mut self,
        turns: Steps,
        over_own: bool,
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
        self.part.steps.add(inside.steps, turns);
        self.part.inserts.add(inside.inserts, turns);
        (self.is_in_loop, self.part.has_loop) = (false, true);
        let is_square = inside.steps.per_input > 0 && turns.per_input > 0;
        (!is_square && (!over_own || inside.inserts.once == 0)).then_some(())
    }

    /// How many elements a list has at most; `None` where it is neither given nor the script's own.
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

    /// Checks a value of which one is taken.
    fn value(&mut self, value: &'t Expression, functions: &[Part]) -> Option<()> {
        let Expression::Invoke { function, args } = value else { return self.argument(value, functions) };
        let called = functions.get(usize::from(*function))?;
        (!called.has_loop || !self.is_in_loop).then_some(())?;
        self.part.steps.add(called.steps, Steps::ONCE);
        self.part.inserts.add(called.inserts, Steps::ONCE);
        self.part.has_loop |= called.has_loop;
        args.iter().try_for_each(|arg| self.argument(arg, functions))
    }

    /// Checks a value where Lua would take as many as there are: a function of the script may have none.
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
                    // A reply has as many elements as fit a value: once is enough.
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

    /// Checks a number that says where a loop begins or ends, and adds to how often it runs. True where that is the length
    /// of a list of the script's own.
    fn turns(&mut self, expression: &'t Expression, turns: &mut Steps, depth: usize) -> Option<bool> {
        if depth == CHAIN_MAX {
            return None;
        }
        match self.known(expression, 0) {
            Expression::Number(number) => {
                turns.once = turns.once.saturating_add(number.abs().ceil() as u64);
                Some(false)
            }
            Expression::Length { of, .. } => {
                let length = self.length(of)?;
                turns.once = turns.once.saturating_add(length.once);
                turns.per_input = turns.per_input.saturating_add(length.per_input);
                Some(self.is_own(of))
            }
            Expression::Argument(place) => {
                self.bounds.counted_by.push(*place);
                turns.per_input = turns.per_input.saturating_add(1);
                Some(false)
            }
            Expression::Builtin { function: Builtin::ToNumber, args, .. } => {
                self.turns(&args[0], turns, depth + 1)
            }
            Expression::Arithmetic { operator: Operator::Add | Operator::Subtract, operands, .. } => {
                let [left, right] = &**operands;
                let left = self.turns(left, turns, depth + 1)?;
                Some(self.turns(right, turns, depth + 1)? || left)
            }
            _ => None,
        }
    }
}

/// Locals that stand for locals, and sums inside sums.
const CHAIN_MAX: usize = 8;
