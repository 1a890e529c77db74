//! What a script may do, read off its tree before it runs: which commands, on which keys, how often.
//!
//! Owns    the rule by which a script is plain: it calls commands that are listed in `commands`, and its loops run over KEYS,
//!         ARGV, lists of its own, or as often as a small number says.
//! Rule    what cannot be told beforehand is refused, or, where it is only a key, makes the script's reach the whole store.
//! Bounds  a loop runs at most a few thousand times, none is inside another, and no function calls a function.

use super::commands::{self, Keys};
use super::parse::Parsed;
use super::tree::{Builtin, Call, Expression, Operator, Slot, Statement};

/// The most KEYS, and the most ARGV, of a call to a script that has a loop, and the largest number that may bound one.
pub(super) const TURNS_MAX: usize = 1_000;

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
    let mut reader =
        Reader { origins: vec![Origin::Unset; script.slots], bounds: Bounds::default(), in_loop: false };
    for function in &script.functions {
        function.parameters.iter().for_each(|slot| reader.origins[usize::from(*slot)] = Origin::Many);
        reader.origins(&function.body);
    }
    reader.origins(&script.body);
    let looping = script.functions.iter().map(|function| {
        reader.in_loop = false;
        let before = std::mem::take(&mut reader.bounds.has_loop);
        reader.block(&function.body, &[])?;
        let loops = std::mem::replace(&mut reader.bounds.has_loop, before);
        reader.bounds.has_loop |= loops;
        Some(loops)
    });
    let looping = looping.collect::<Option<Vec<bool>>>()?;
    reader.block(&script.body, &looping)?;
    Some(reader.bounds)
}

/// Where the value of a local comes from.
#[derive(Clone, Copy, Debug)]
enum Origin<'t> {
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
    bounds: Bounds,
    in_loop: bool,
}

impl<'t> Reader<'t> {
    fn origins(&mut self, block: &'t [Statement]) {
        for statement in block {
            match statement {
                Statement::Assign { slot, .. } => self.origins[usize::from(*slot)] = Origin::Many,
                Statement::Do(body) => self.origins(body),
                Statement::Each { index, value, list, body, .. } => {
                    self.origins[usize::from(*index)] = Origin::Many;
                    let is_key = matches!(list, Expression::Keys);
                    self.origins[usize::from(*value)] = if is_key { Origin::Key } else { Origin::Many };
                    self.origins(body);
                }
                Statement::For { slot, body, .. } => {
                    self.origins[usize::from(*slot)] = Origin::Many;
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

    /// Checks statements; `looping` tells of each function whether it has a loop, and is empty inside functions.
    fn block(&mut self, block: &'t [Statement], looping: &[bool]) -> Option<()> {
        for statement in block {
            match statement {
                Statement::Assign { value, .. }
                | Statement::Evaluate(value)
                | Statement::Local { value, .. }
                | Statement::Return(value) => self.value(value, looping)?,
                Statement::Break => {}
                Statement::Do(body) => self.block(body, looping)?,
                Statement::Each { list, body, .. } => {
                    let is_short =
                        matches!(list, Expression::Keys | Expression::Arguments) || self.is_own(list);
                    is_short.then_some(())?;
                    self.repeated(body, looping)?;
                }
                Statement::For { from, to, body, .. } => {
                    self.turns(from, 0)?;
                    self.turns(to, 0)?;
                    self.repeated(body, looping)?;
                }
                Statement::If { arms, otherwise } => {
                    for (test, body) in arms {
                        self.value(test, looping)?;
                        self.block(body, looping)?;
                    }
                    self.block(otherwise, looping)?;
                }
                Statement::Insert { list, value, .. } => {
                    self.is_own(list).then_some(())?;
                    self.argument(value, looping)?;
                }
            }
        }
        Some(())
    }

    fn repeated(&mut self, body: &'t [Statement], looping: &[bool]) -> Option<()> {
        if self.in_loop {
            return None;
        }
        self.bounds.has_loop = true;
        self.in_loop = true;
        self.block(body, looping)?;
        self.in_loop = false;
        Some(())
    }

    /// Checks a value of which one is taken.
    fn value(&mut self, value: &'t Expression, looping: &[bool]) -> Option<()> {
        match value {
            Expression::Invoke { function, args } => {
                let loops = *looping.get(usize::from(*function))?;
                (!(loops && self.in_loop)).then_some(())?;
                args.iter().try_for_each(|arg| self.argument(arg, looping))
            }
            value => self.argument(value, looping),
        }
    }

    /// Checks a value where Lua would take as many as there are: a function of the script may have none.
    fn argument(&mut self, value: &'t Expression, looping: &[bool]) -> Option<()> {
        match value {
            Expression::Invoke { .. } | Expression::Unpack { .. } => None,
            Expression::And(operands) | Expression::Or(operands) | Expression::Equal { operands, .. } => {
                operands.iter().try_for_each(|operand| self.value(operand, looping))
            }
            Expression::Arithmetic { operands, .. }
            | Expression::Compare { operands, .. }
            | Expression::Concatenate { operands, .. }
            | Expression::Index { operands, .. } => {
                operands.iter().try_for_each(|operand| self.argument(operand, looping))
            }
            Expression::Builtin { args, .. } | Expression::List(args) => {
                args.iter().try_for_each(|arg| self.argument(arg, looping))
            }
            Expression::Call(call) => self.call(call, looping),
            Expression::Not(of) => self.value(of, looping),
            Expression::Field { of, .. } | Expression::Length { of, .. } | Expression::Negate { of, .. } => {
                self.argument(of, looping)
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

    fn call(&mut self, call: &'t Call, looping: &[bool]) -> Option<()> {
        let (name, words) = call.words.split_first()?;
        for word in words {
            match word {
                Expression::Unpack { list, .. } => self.argument(list, looping)?,
                word => self.argument(word, looping)?,
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

    /// Checks a number that says where a loop begins or ends.
    fn turns(&mut self, expression: &'t Expression, depth: usize) -> Option<()> {
        if depth == CHAIN_MAX {
            return None;
        }
        match self.known(expression, 0) {
            Expression::Number(number) => (number.abs() <= TURNS_MAX as f64).then_some(()),
            Expression::Length { of, .. } => {
                let is_short = matches!(**of, Expression::Keys | Expression::Arguments) || self.is_own(of);
                is_short.then_some(())
            }
            Expression::Argument(place) => {
                self.bounds.turns.push(*place);
                Some(())
            }
            Expression::Builtin { function: Builtin::ToNumber, args, .. } => self.turns(&args[0], depth + 1),
            Expression::Arithmetic { operator: Operator::Add | Operator::Subtract, operands, .. } => {
                operands.iter().try_for_each(|operand| self.turns(operand, depth + 1))
            }
            _ => None,
        }
    }
}

/// Locals that stand for locals, and sums inside sums.
const CHAIN_MAX: usize = 8;
