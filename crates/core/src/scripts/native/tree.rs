//! The tree of a native script: its statements and expressions, with names resolved.
//!
//! Owns    the statements and expressions that a native script may contain. Any other script is interpreted.
//! Rule    a local has a slot of its own for the whole script: there are no closures, and no function calls itself.

use super::commands;

/// The number of a line of the script's text, from 1.
pub(super) type Line = u32;
/// The index of a local among all locals of a script.
pub(super) type Slot = u16;

/// Statements, one after the other.
pub(super) type Block = Box<[Statement]>;

/// One statement.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    /// `x = value`
    Assign { slot: Slot, value: Expression },
    /// `break`
    Break,
    /// `do ... end`
    Do(Block),
    /// `for index, value in ipairs(list) do ... end`
    Each { index: Slot, value: Slot, list: Expression, body: Block, line: Line },
    /// A call whose value is dropped.
    Evaluate(Expression),
    /// `for slot = from, to, step do ... end`
    For { slot: Slot, from: Expression, to: Expression, step: f64, body: Block, line: Line },
    /// `if ... then ... elseif ... then ... else ... end`
    If { arms: Box<[(Expression, Block)]>, otherwise: Block },
    /// `table.insert(list, value)`
    Insert { list: Expression, value: Expression, line: Line },
    /// `local x = value`
    Local { slot: Slot, value: Expression },
    /// `return value`
    Return(Expression),
}

/// One expression.
#[derive(Clone, Debug)]
pub(super) enum Expression {
    /// `left and right`
    And(Box<[Expression; 2]>),
    /// `ARGV[i]`, counted from 1.
    Argument(u16),
    /// `ARGV` itself.
    Arguments,
    /// Arithmetic.
    Arithmetic { operator: Operator, operands: Box<[Expression; 2]>, line: Line },
    /// `true`, `false`
    Boolean(bool),
    /// A function of Lua's or of Redis' library.
    Builtin { function: Builtin, args: Box<[Expression]>, line: Line },
    /// `redis.call`, `redis.pcall`
    Call(Box<Call>),
    /// `<`, `<=`, and their opposites with the operands exchanged.
    Compare { or_equal: bool, exchanged: bool, operands: Box<[Expression; 2]>, line: Line },
    /// `left .. right`
    Concatenate { operands: Box<[Expression; 2]>, line: Line },
    /// `==`, or `~=` if not `same`. `has_get`: the first operand is GET of a key, and no step evaluates the key or the
    /// second operand.
    Equal { same: bool, has_get: bool, operands: Box<[Expression; 2]> },
    /// `x.ok`, `x.err`
    Field { of: Box<Expression>, field: Field, line: Line },
    /// `x[at]`
    Index { operands: Box<[Expression; 2]>, line: Line },
    /// A function of the script's own.
    Invoke { function: u16, args: Box<[Expression]> },
    /// `KEYS[i]`, counted from 1.
    Key(u16),
    /// `KEYS` itself.
    Keys,
    /// `#x`
    Length { of: Box<Expression>, line: Line },
    /// `{...}`
    List(Box<[Expression]>),
    /// A local. `is_outer`: it belongs to a function around this one, which errors call an upvalue.
    Local { slot: Slot, name: Box<str>, is_outer: bool },
    /// `-x`
    Negate { of: Box<Expression>, line: Line },
    /// `nil`
    Nil,
    /// `not x`
    Not(Box<Expression>),
    /// A number.
    Number(f64),
    /// `left or right`
    Or(Box<[Expression; 2]>),
    /// A string.
    Text(Box<[u8]>),
    /// `unpack(list)`, as the last argument of a call.
    Unpack { list: Box<Expression>, line: Line },
}

/// An operator of arithmetic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Operator {
    /// `+`
    Add,
    /// `/`
    Divide,
    /// `%`
    Modulo,
    /// `*`
    Multiply,
    /// `-`
    Subtract,
}

/// The field of a status or of an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Field {
    /// `err`
    Err,
    /// `ok`
    Ok,
}

impl Field {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Err => "err",
            Self::Ok => "ok",
        }
    }
}

impl Expression {
    /// Whether it is one of KEYS, one of ARGV, or a literal string, so that no step evaluates it.
    pub(super) fn is_given(&self) -> bool {
        matches!(self, Self::Argument(_) | Self::Key(_) | Self::Text(_))
    }

    /// Whether it is GET of a key that [`Expression::is_given`].
    pub(super) fn is_get_as_given(&self) -> bool {
        let Self::Call(call) = self else { return false };
        let is_get = matches!(&*call.words, [Self::Text(name), _] if name.eq_ignore_ascii_case(b"GET"));
        is_get && call.is_given && !call.is_protected
    }
}

/// A call to Redis.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// `pcall`: an error is a value.
    pub(super) is_protected: bool,
    /// The command's index in the list, if the text names it.
    pub(super) listed: Option<usize>,
    /// Whether all words are [`Expression::is_given`].
    pub(super) is_given: bool,
    /// The name of the command and its arguments.
    pub(super) words: Box<[Expression]>,
    /// The line of its parenthesis.
    pub(super) line: Line,
}

impl Call {
    /// A call of `words`, name first.
    pub(super) fn new(is_protected: bool, words: Vec<Expression>, line: Line) -> Self {
        let listed = match words.first() {
            Some(Expression::Text(name)) => commands::find(name).map(|(place, _)| place),
            _ => None,
        };
        Self {
            is_protected,
            listed,
            is_given: words.iter().all(Expression::is_given),
            words: words.into(),
            line,
        }
    }
}

/// A function of the script's own.
#[derive(Clone, Debug)]
pub(super) struct Function {
    /// The slots of its parameters.
    pub(super) parameters: Box<[Slot]>,
    /// Its statements.
    pub(super) body: Block,
}

/// A function of a library.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Builtin {
    /// `redis.error_reply`
    ErrorReply,
    /// `math.floor`
    Floor,
    /// `string.format`, with `%s` only.
    Format,
    /// `math.max`
    Max,
    /// `math.min`
    Min,
    /// `redis.status_reply`
    StatusReply,
    /// `string.sub`
    Sub,
    /// `tonumber`
    ToNumber,
    /// `tostring`
    ToText,
    /// `type`
    Type,
}

impl Builtin {
    /// The name with its library, the function, and its minimum and maximum number of arguments.
    pub(super) const ALL: [(&'static str, Self, usize, usize); 10] = [
        ("redis.error_reply", Self::ErrorReply, 1, 1),
        ("math.floor", Self::Floor, 1, 1),
        ("string.format", Self::Format, 1, 16),
        ("math.max", Self::Max, 1, 16),
        ("math.min", Self::Min, 1, 16),
        ("redis.status_reply", Self::StatusReply, 1, 1),
        ("string.sub", Self::Sub, 2, 3),
        ("tonumber", Self::ToNumber, 1, 1),
        ("tostring", Self::ToText, 1, 1),
        ("type", Self::Type, 1, 1),
    ];
}
