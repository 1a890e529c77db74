//! Lua's values in native scripts, and Lua's rules for numbers.
//!
//! Owns    the conversion of strings to numbers, and Lua's error texts for operands of a wrong type.
//! Source  Lua 5.1 reference manual, sections 2.2 and 2.5; `lvm.c`, `ldebug.c` of 5.1.5.

use redlatch_proto::error::until_nul;
use redlatch_proto::number::double;

use super::tree::Expression;

/// A range of the bytes in `Run::texts`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A value of a script. The tag is a whole word: with a smaller tag the compiler copies values in parts, and reading them
/// back is slow.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Value<'a> {
    /// ARGV
    Arguments,
    /// `true`, `false`; Redis' null becomes `false`.
    Boolean(bool),
    /// An error: a table with `err`.
    Failure(Span),
    /// A string of KEYS, ARGV or the script.
    Given(&'a [u8]),
    /// KEYS
    Keys,
    /// A list: a table that counts from 1.
    List(usize),
    /// `nil`
    Nil,
    Number(f64),
    /// A status: a table with `ok`.
    Status(Span),
    /// A string that the script has made, or that a call has returned.
    Text(Span),
}

impl Value<'_> {
    /// Its type, as Lua's `type` returns it.
    pub(super) const fn type_name(self) -> &'static str {
        match self {
            Self::Boolean(_) => "boolean",
            Self::Arguments | Self::Failure(_) | Self::Keys | Self::List(_) | Self::Status(_) => "table",
            Self::Given(_) | Self::Text(_) => "string",
            Self::Nil => "nil",
            Self::Number(_) => "number",
        }
    }

    /// Lua's truth: false only for `nil` and `false`.
    pub(super) const fn is_true(self) -> bool {
        !matches!(self, Self::Nil | Self::Boolean(false))
    }
}

/// The number that Lua reads from a string: C's `strtod`, with white space on both sides.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let is_blank = |byte: &u8| matches!(*byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c);
    let text = until_nul(text);
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let end = text.iter().rposition(|byte| !is_blank(byte))? + 1;
    let text = &text[start..end];
    // Nearly all numbers are short and whole.
    if text.len() < 16
        && let Some(whole) = redlatch_proto::number::integer(text)
    {
        return Some(whole as f64);
    }
    let (is_negative, word) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if word.eq_ignore_ascii_case(b"nan") {
        return Some(if is_negative { -f64::NAN } else { f64::NAN });
    }
    if let [b'0', b'x' | b'X', digits @ ..] = word {
        let magnitude = hexadecimal(std::str::from_utf8(digits).ok()?)?;
        return Some(if is_negative { -magnitude } else { magnitude });
    }
    double::parse_loosely(text)
}

/// The value of the digits after `0x`, which may have a fraction and a binary exponent.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole, fraction].concat();
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let magnitude = u128::from_str_radix(&digits, 16).ok()? as f64;
    let exponent: i32 = exponent.parse().ok()?;
    Some(magnitude * 2_f64.powi(exponent.saturating_sub(4 * fraction.len() as i32)))
}

/// The integer that Redis replies for a number, and that Lua passes to functions like `string.sub`. Numbers out of range
/// become the least integer.
pub(super) fn whole(number: f64) -> i64 {
    const BOUND: f64 = 9_223_372_036_854_775_808.0;
    if (-BOUND..BOUND).contains(&number) { number as i64 } else { i64::MIN }
}

/// Lua's error text for an operand of a wrong type: `attempt to index local 'x' (a nil value)`.
pub(super) fn unfit(operation: &str, expression: &Expression, value: Value<'_>) -> String {
    let kind = value.type_name();
    match expression {
        Expression::Local { name, is_outer: false, .. } => {
            format!("attempt to {operation} local '{name}' (a {kind} value)")
        }
        Expression::Local { name, is_outer: true, .. } => {
            format!("attempt to {operation} upvalue '{name}' (a {kind} value)")
        }
        Expression::Arguments => format!("attempt to {operation} global 'ARGV' (a {kind} value)"),
        Expression::Keys => format!("attempt to {operation} global 'KEYS' (a {kind} value)"),
        Expression::Argument(_) | Expression::Index { .. } | Expression::Key(_) => {
            format!("attempt to {operation} field '?' (a {kind} value)")
        }
        Expression::Field { field, .. } => {
            let name = field.name();
            format!("attempt to {operation} field '{name}' (a {kind} value)")
        }
        _ => format!("attempt to {operation} a {kind} value"),
    }
}

/// Lua's error text for two values that have no order.
pub(super) fn unordered(left: Value<'_>, right: Value<'_>) -> String {
    match (left.type_name(), right.type_name()) {
        (left, right) if left == right => format!("attempt to compare two {left} values"),
        (left, right) => format!("attempt to compare {left} with {right}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_lua_reads_them() {
        for (text, expected) in [
            ("10", 10.0),
            (" 10\n", 10.0),
            ("-3", -3.0),
            ("1e3", 1000.0),
            ("1.50", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("+7", 7.0),
            ("007", 7.0),
            ("0x10", 16.0),
            ("0x1p4", 16.0),
            ("-0x.8", -0.5),
            ("10\0x", 10.0),
            ("inf", f64::INFINITY),
            ("12345678901234567890", 12_345_678_901_234_567_890.0),
        ] {
            assert_eq!(number(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in ["", " ", "1 2", "ten", "--1", "1e", "- 1", "0x", "0x1p", "0x.", "\0 1"] {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
        assert!(number(b"nan").is_some_and(f64::is_nan));
    }

    #[test]
    fn numbers_out_of_range_become_the_least_integer() {
        assert_eq!([whole(3.99), whole(-3.99), whole(1e300), whole(f64::NAN)], [3, -3, i64::MIN, i64::MIN]);
    }
}
