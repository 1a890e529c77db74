//! Native programs: what a recognised script does, as a tree of calls, tests and answers.
//!
//! Owns    Lua's side of a script: which call comes next, what is compared with what, what is returned.
//! Knows   commands only through [`Calls`], so that a program's calls pass the gates, statistics and errors of commands.
//! Bounds  a program has no loop but over the KEYS it was given, and never waits.
//! Source  Lua 5.1 for comparisons and arithmetic; Redis 7.0 `script_lua.c` for conversions.

use std::io::Write;

use smallvec::SmallVec;

/// The keyspace as a script sees it: `redis.call`.
pub trait Calls {
    /// Carries out a command, named in upper case. Its text, if it has one, is [`Calls::text`] until the next call.
    fn call(&mut self, command: &'static str, args: &[&[u8]]) -> Answer;

    /// The bytes of the last answer that was a bulk, a status or an error (the latter without its `-`).
    fn text(&self) -> &[u8];
}

/// What a command answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// A string; its bytes are the text.
    Bulk,
    /// An error; its line, code first, is the text.
    Error,
    /// An integer.
    Integer(i64),
    /// Null. Lua sees false.
    Nil,
    /// A status; its line is the text.
    Status,
}

/// What a script returns, after Redis' conversion from Lua.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Returned {
    /// An array.
    Array(Vec<Item>),
    /// A string.
    Bulk(&'static str),
    /// An error line, code first, that the script made itself.
    Error(&'static str),
    /// An integer.
    Integer(i64),
    /// The reply of the last call, as it is.
    Last(Answer),
    /// Nil or false: null in RESP2 and in RESP3.
    Nil,
    /// A status line.
    Status(&'static str),
}

/// One element of an array that a script returns.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Item {
    /// A string.
    Bulk(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// False: null.
    Nil,
}

/// A `redis.call` that failed and so ended the script; its error line is [`Calls::text`]. What was done before stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Raised {
    /// Which `redis.call` it was, in the order of the script's text, from 0.
    pub call: u8,
}

/// An operand by the name that it has in the table's spelling of the script.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// `ARGV[i]` there.
    Argument(u16),
    /// The key that the innermost [`Step::EachKey`] is at.
    Each,
    /// `KEYS[i]` there.
    Key(u16),
    /// This literal there.
    Literal(&'static str),
}

/// An argument of a call.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// Every key given, in order.
    AllKeys,
    /// Every key given, each followed by this operand.
    AllKeysWith(Role),
    /// `string.format` of these pieces with these operands, `%s` each, between them.
    Format(&'static [&'static str], &'static [Role]),
    /// The number kept plus this operand, as Lua adds and formats them.
    KeptPlus(Role),
    /// `tonumber` of this operand.
    Number(Role),
    /// The operand.
    Of(Role),
    /// `tonumber` of this operand, less one.
    OneLess(Role),
    /// A word that the script has there.
    Word(&'static str),
}

/// One `redis.call`.
#[derive(Clone, Copy, Debug)]
pub struct Do {
    /// Its place among the script's calls, in the order of the text, from 0.
    pub call: u8,
    /// The command, in upper case.
    pub command: &'static str,
    /// What it is given.
    pub args: &'static [Arg],
}

/// A comparison with a number.
#[derive(Clone, Copy, Debug)]
pub enum Test {
    /// More than this.
    Above(i64),
    /// Less than this.
    Below(i64),
    /// Less than `tonumber` of this operand.
    BelowOperand(Role),
    /// This.
    Equals(i64),
    /// Lua's truth: anything but nil and false.
    True,
}

/// One step of a program. A branch that does not return falls through to the next step.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Calls, and forgets the reply.
    Call(Do),
    /// Adds one to the count.
    Count,
    /// The steps once for every key given, in order, as [`Role::Each`].
    EachKey(&'static [Step]),
    /// Reads a string and asks whether it is the token.
    Holder {
        /// The reading call.
        get: Do,
        /// What it should read.
        token: Role,
        /// Where it reads just that.
        held: &'static [Step],
        /// Where there is no such key.
        missing: &'static [Step],
        /// Where it reads anything else.
        other: &'static [Step],
    },
    /// Calls, and looks at the reply.
    If {
        /// The call.
        reply: Do,
        /// What its reply is compared with.
        is: Test,
        /// Where it passes.
        then: &'static [Step],
        /// Where it does not.
        otherwise: &'static [Step],
    },
    /// Looks at the number kept.
    IfKept {
        /// What it is compared with.
        is: Test,
        /// Where it passes.
        then: &'static [Step],
    },
    /// Looks at an operand as a number.
    IfOperand {
        /// The operand.
        operand: Role,
        /// What it is compared with.
        is: Test,
        /// Where it passes.
        then: &'static [Step],
    },
    /// Compares two operands byte for byte.
    IfSame {
        /// One of them.
        left: Role,
        /// The other.
        right: Role,
        /// Where they are the same.
        then: &'static [Step],
        /// Where they are not.
        otherwise: &'static [Step],
    },
    /// Calls, and keeps the integer that is replied.
    Keep(Do),
    /// Calls, and keeps the integer replied where it is positive and less than the one kept, or none is.
    KeepLeast(Do),
    /// Reads, and asks whether it reads the first bytes of the token, as many as `length` says.
    Prefix {
        /// The reading call.
        read: Do,
        /// Whose first bytes it should read.
        token: Role,
        /// How many, as a number.
        length: Role,
        /// Where it reads anything else.
        other: &'static [Step],
    },
    /// Ends the script.
    Return(Give),
    /// Reads like [`Step::Holder`], but a key of another type is as good as another token.
    Shared {
        /// The reading call.
        get: Do,
        /// What it should read.
        token: Role,
        /// Where it reads anything else.
        other: &'static [Step],
    },
    /// `redis.pcall`: calls, and forgets the reply even where it is an error.
    Try(Do),
}

/// What a program returns.
#[derive(Clone, Copy, Debug)]
pub enum Give {
    /// A string.
    Bulk(&'static str),
    /// The reply of this call.
    Call(Do),
    /// The count.
    Counted,
    /// An error line, code first.
    Error(&'static str),
    /// An integer.
    Integer(i64),
    /// The number kept.
    Kept,
    /// How many keys were given.
    KeyCount,
    /// Nil or false.
    Nil,
    /// A number and the number kept.
    PairKept(i64),
    /// Two numbers.
    Pair(i64, i64),
    /// A status line.
    Status(&'static str),
    /// The string that one call reads and the integer that the other replies. Where there is no string, null in its
    /// place, or, where `or_nil`, null at once and no second call.
    TextAndNumber {
        /// Reads the string.
        text: Do,
        /// Replies the integer.
        number: Do,
        /// What becomes of a missing string.
        or_nil: bool,
    },
}

/// The values of a program's operands for one call of the script.
pub trait Operands {
    /// The value of an operand other than [`Role::Each`].
    fn value(&self, role: Role) -> &[u8];
    /// Every key given.
    fn keys(&self) -> &[&[u8]];
}

/// Runs a program.
///
/// # Errors
/// [`Raised`] where a call failed.
pub(super) fn run(
    steps: &[Step],
    operands: &dyn Operands,
    calls: &mut dyn Calls,
) -> Result<Returned, Raised> {
    let mut run = Run { operands, calls, each: b"", kept: 0, count: 0 };
    Ok(run.steps(steps)?.unwrap_or(Returned::Nil))
}

/// A guard and its two branches, the form that most scripts have.
pub(super) fn run_guarded(
    held: &'static [Step],
    otherwise: &'static [Step],
    operands: &dyn Operands,
    calls: &mut dyn Calls,
) -> Result<Returned, Raised> {
    run(
        &[Step::Holder { get: GET, token: Role::Argument(1), held, missing: otherwise, other: otherwise }],
        operands,
        calls,
    )
}

/// True where Lua would take this operand for a number that we can compute with.
pub(super) fn is_number(text: &[u8]) -> bool {
    number(text).is_some()
}

/// The call that opens most scripts.
pub(super) const GET: Do = Do { call: 0, command: "GET", args: &[Arg::Of(Role::Key(1))] };

struct Run<'a> {
    operands: &'a dyn Operands,
    calls: &'a mut dyn Calls,
    each: &'a [u8],
    kept: i64,
    count: i64,
}

/// `Some` once the script has returned.
type Flow = Result<Option<Returned>, Raised>;

impl<'a> Run<'a> {
    fn steps(&mut self, steps: &[Step]) -> Flow {
        for step in steps {
            if let Some(returned) = self.step(step)? {
                return Ok(Some(returned));
            }
        }
        Ok(None)
    }

    fn step(&mut self, step: &Step) -> Flow {
        match *step {
            Step::Call(call) => drop(self.call(call)?),
            Step::Count => self.count += 1,
            Step::EachKey(steps) => {
                let operands = self.operands;
                for key in operands.keys() {
                    self.each = key;
                    if let Some(returned) = self.steps(steps)? {
                        return Ok(Some(returned));
                    }
                }
            }
            Step::Holder { get, token, held, missing, other } => {
                let branch = match self.call(get)? {
                    Answer::Nil => missing,
                    Answer::Bulk if self.calls.text() == self.value(token) => held,
                    _ => other,
                };
                return self.steps(branch);
            }
            Step::If { reply, is, then, otherwise } => {
                let answer = self.call(reply)?;
                return self.steps(if self.passes(answer, is) { then } else { otherwise });
            }
            Step::IfKept { is, then } if self.passes(Answer::Integer(self.kept), is) => {
                return self.steps(then);
            }
            Step::IfOperand { operand, is, then } if self.number_passes(self.number(operand), is) => {
                return self.steps(then);
            }
            Step::IfKept { .. } | Step::IfOperand { .. } => {}
            Step::IfSame { left, right, then, otherwise } => {
                return self.steps(if self.value(left) == self.value(right) { then } else { otherwise });
            }
            Step::Keep(call) => {
                if let Answer::Integer(number) = self.call(call)? {
                    self.kept = number;
                }
            }
            Step::KeepLeast(call) => {
                if let Answer::Integer(number) = self.call(call)?
                    && number > 0
                    && (self.kept == 0 || number < self.kept)
                {
                    self.kept = number;
                }
            }
            Step::Prefix { read, token, length, other } => {
                let answer = self.call(read)?;
                let token = self.value(token);
                // `string.sub(token, 1, length)`: a length below zero counts from the end.
                let length = self.number(length);
                let length = if length < 0.0 { length + token.len() as f64 + 1.0 } else { length };
                let head = &token[..(length.max(0.0) as usize).min(token.len())];
                if !(answer == Answer::Bulk && self.calls.text() == head) {
                    return self.steps(other);
                }
            }
            Step::Return(give) => return self.give(give).map(Some),
            Step::Shared { get, token, other } => {
                let holds = self.perform(get) == Answer::Bulk && self.calls.text() == self.value(token);
                if !holds {
                    return self.steps(other);
                }
            }
            Step::Try(call) => drop(self.perform(call)),
        }
        Ok(None)
    }

    fn give(&mut self, give: Give) -> Result<Returned, Raised> {
        Ok(match give {
            Give::Bulk(text) => Returned::Bulk(text),
            Give::Call(call) => Returned::Last(self.call(call)?),
            Give::Counted => Returned::Integer(self.count),
            Give::Error(line) => Returned::Error(line),
            Give::Integer(number) => Returned::Integer(number),
            Give::Kept => Returned::Integer(self.kept),
            Give::KeyCount => Returned::Integer(self.operands.keys().len() as i64),
            Give::Nil => Returned::Nil,
            Give::PairKept(first) => Returned::Array(vec![Item::Integer(first), Item::Integer(self.kept)]),
            Give::Pair(first, second) => Returned::Array(vec![Item::Integer(first), Item::Integer(second)]),
            Give::Status(line) => Returned::Status(line),
            Give::TextAndNumber { text, number, or_nil } => {
                let text = match self.call(text)? {
                    Answer::Bulk => Item::Bulk(self.calls.text().to_vec()),
                    _ if or_nil => return Ok(Returned::Nil),
                    _ => Item::Nil,
                };
                let number = match self.call(number)? {
                    Answer::Integer(number) => Item::Integer(number),
                    _ => Item::Nil,
                };
                Returned::Array(vec![text, number])
            }
        })
    }

    /// `redis.call`: an error ends the script.
    fn call(&mut self, call: Do) -> Result<Answer, Raised> {
        match self.perform(call) {
            Answer::Error => Err(Raised { call: call.call }),
            answer => Ok(answer),
        }
    }

    fn perform(&mut self, call: Do) -> Answer {
        // Numbers are few and short; they live here while the call runs.
        let mut numbers: SmallVec<[Digits; 1]> = SmallVec::new();
        let mut formatted = Vec::new();
        for arg in call.args {
            match *arg {
                Arg::KeptPlus(role) => numbers.push(Digits::of(self.number(role) + self.kept as f64)),
                Arg::Number(role) => numbers.push(Digits::of(self.number(role))),
                Arg::OneLess(role) => numbers.push(Digits::of(self.number(role) - 1.0)),
                Arg::Format(pieces, roles) => formatted = self.format(pieces, roles),
                _ => {}
            }
        }
        let mut number = numbers.iter();
        let mut args: SmallVec<[&[u8]; 8]> = SmallVec::new();
        for arg in call.args {
            match *arg {
                Arg::AllKeys => args.extend_from_slice(self.operands.keys()),
                Arg::AllKeysWith(role) => {
                    for key in self.operands.keys() {
                        args.extend_from_slice(&[*key, self.value(role)]);
                    }
                }
                Arg::KeptPlus(_) | Arg::Number(_) | Arg::OneLess(_) => {
                    args.push(number.next().map_or(&b""[..], Digits::bytes));
                }
                Arg::Format(..) => args.push(&formatted),
                Arg::Of(role) => args.push(self.value(role)),
                Arg::Word(word) => args.push(word.as_bytes()),
            }
        }
        self.calls.call(call.command, &args)
    }

    fn format(&self, pieces: &[&str], roles: &[Role]) -> Vec<u8> {
        let mut text = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            text.extend_from_slice(piece.as_bytes());
            let Some(role) = roles.get(at) else { continue };
            let value = self.value(*role);
            // Lua 5.1 hands a short string to C's `sprintf`, where it ends at the first NUL.
            let end = value.iter().position(|byte| *byte == 0).filter(|_| value.len() < 100);
            text.extend_from_slice(&value[..end.unwrap_or(value.len())]);
        }
        text
    }

    fn passes(&self, answer: Answer, test: Test) -> bool {
        match (answer, test) {
            (answer, Test::True) => answer != Answer::Nil,
            (Answer::Integer(number), test) => self.number_passes(number as f64, test),
            _ => false,
        }
    }

    fn number_passes(&self, number: f64, test: Test) -> bool {
        match test {
            Test::Above(bound) => number > bound as f64,
            Test::Below(bound) => number < bound as f64,
            Test::BelowOperand(role) => number < self.number(role),
            Test::Equals(other) => number == other as f64,
            Test::True => true,
        }
    }

    fn value(&self, role: Role) -> &'a [u8] {
        match role {
            Role::Each => self.each,
            role => self.operands.value(role),
        }
    }

    fn number(&self, role: Role) -> f64 {
        number(self.value(role)).unwrap_or(0.0)
    }
}

/// Lua's number for a string, of decimal ones only: what `strtod` takes in hexadecimal or as `inf` is left to Lua.
fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
    let is_decimal = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
    if is_decimal { text.parse().ok().filter(|number: &f64| number.is_finite()) } else { None }
}

/// A number as Redis hands it to a command.
struct Digits {
    text: [u8; 32],
    length: usize,
}

impl Digits {
    fn of(number: f64) -> Self {
        let mut digits = Self { text: [0; 32], length: 0 };
        let mut rest = &mut digits.text[..];
        // A number that is not whole, or has more than 17 digits, is refused as a time whatever its digits are, so
        // those need not be `printf`'s to the last place.
        let written = if number.fract() == 0.0 && number.abs() < 1e17 {
            write!(rest, "{number:.0}")
        } else {
            write!(rest, "{number:e}")
        };
        let left = rest.len();
        digits.length = if written.is_ok() { 32 - left } else { 0 };
        digits
    }

    fn bytes(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

#[cfg(test)]
mod numbers {
    use super::*;

    #[test]
    fn are_read_as_lua_reads_decimals() {
        let good: [(&str, f64); 7] = [
            ("10", 10.0),
            (" 10\n", 10.0),
            ("-3", -3.0),
            ("1e3", 1000.0),
            ("1.50", 1.5),
            (".5", 0.5),
            ("+7", 7.0),
        ];
        for (text, expected) in good {
            assert_eq!(number(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in ["", " ", "0x10", "inf", "nan", "1 2", "ten", "1e999", "--1"] {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn are_written_as_redis_writes_them_where_they_are_whole() {
        for (number, text) in [
            (30_000.0, "30000"),
            (-1.0, "-1"),
            (0.0, "0"),
            (-0.0, "-0"),
            (9_007_199_254_740_992.0, "9007199254740992"),
        ] {
            assert_eq!(Digits::of(number).bytes(), text.as_bytes());
        }
    }
}
