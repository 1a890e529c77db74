//! Doubles as Redis 7.0 reads and writes them: scores of sorted sets, doubles of RESP3.
//!
//! Source  Redis 7.0 `getDoubleFromObject` (C's `strtod`) and `addReplyDouble` (`%.17g`).

use std::io::Write as _;

use crate::error::until_nul;

/// The number that all of `text` spells in decimal, or `inf`, as C's `strtod` reads it.
///
/// `None` for everything else: NaN, hexadecimal numbers, and numbers that are too large for a finite double or round to 0
/// (`ERANGE` in C).
pub fn parse(text: &[u8]) -> Option<f64> {
    let is_in_range = |value: f64, is_zero| value.is_finite() && (value != 0.0 || is_zero);
    parse_with(text, |value, is_zero| is_in_range(value, is_zero).then_some(value))
}

/// Like [`parse`], where `check` decides about a number, given its value and whether all its digits are zero.
fn parse_with(text: &[u8], check: impl Fn(f64, bool) -> Option<f64>) -> Option<f64> {
    let (is_negative, unsigned) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let magnitude = match unsigned {
        [b'0'..=b'9' | b'.', ..] => {
            let (value, is_zero) = decimal(unsigned)?;
            check(value, is_zero)?
        }
        _ if is_infinity(unsigned) => f64::INFINITY,
        _ => return None,
    };
    Some(if is_negative { -magnitude } else { magnitude })
}

/// A number where Redis calls `strtod` and checks little, as for the ends of a range.
///
/// Leading spaces are skipped, a NUL ends the text, an empty text is 0, and a number out of range is infinite or 0.
pub fn parse_loosely(text: &[u8]) -> Option<f64> {
    let text = until_nul(text);
    if text.is_empty() {
        return Some(0.0);
    }
    let text = text.trim_ascii_start();
    // C's isspace accepts the vertical tab, too. No client sends one.
    parse_with(text, |value, _| Some(value))
}

fn is_infinity(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"infinity")
}

/// The value, and whether it is zero as spelt.
fn decimal(text: &[u8]) -> Option<(f64, bool)> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let digits = text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_zero = value == 0.0 && digits.filter(|byte| **byte != b'.').all(|byte| *byte == b'0');
    Some((value, is_zero))
}

/// The text of a double as `%.17g` or `%.14g` writes it, without trailing zeros.
#[derive(Clone, Copy, Debug)]
pub struct Text {
    buffer: [u8; TEXT_BYTES_MAX],
    len: usize,
}

impl Text {
    /// The text of `value`.
    pub fn new(value: f64) -> Self {
        Self::rounded(value, DIGITS, INTEGERS_END)
    }

    /// The text of `value` as Lua 5.1 writes it: `%.14g`.
    pub fn short(value: f64) -> Self {
        Self::rounded(value, SHORT_DIGITS, SHORT_INTEGERS_END)
    }

    fn rounded(value: f64, most: usize, integers_end: f64) -> Self {
        let mut text = Self { buffer: [0; TEXT_BYTES_MAX], len: 0 };
        if value.is_nan() {
            // C shows the sign, and 0/0 has one.
            text.push(if value.is_sign_negative() { b"-nan" } else { b"nan" });
        } else if value.is_infinite() {
            text.push(if value > 0.0 { b"inf" } else { b"-inf" });
        } else if value.abs() < integers_end && value.trunc() == value && !is_negative_zero(value) {
            text.push(itoa::Buffer::new().format(value as i64).as_bytes());
        } else {
            text.push_rounded(value, most);
        }
        text
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.buffer[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    fn push_rounded(&mut self, value: f64, most: usize) {
        let mut raw = [0; TEXT_BYTES_MAX];
        let mut rest = &mut raw[..];
        // One digit, a point, at most sixteen digits, an exponent: always shorter than the buffer.
        let _ = write!(rest, "{:.*e}", most - 1, value.abs());
        let left = rest.len();
        let raw = &raw[..TEXT_BYTES_MAX - left];
        let at = raw.iter().position(|byte| *byte == b'e').unwrap_or(raw.len());
        let exponent = std::str::from_utf8(raw.get(at + 1..).unwrap_or_default());
        let exponent: i32 = exponent.ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
        let mut digits = [b'0'; DIGITS];
        let significant = raw[..at].iter().filter(|byte| **byte != b'.');
        digits.iter_mut().zip(significant).for_each(|(to, digit)| *to = *digit);
        let used = digits.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
        if value.is_sign_negative() {
            self.push(b"-");
        }
        match usize::try_from(exponent) {
            Ok(whole) if whole < most => {
                self.push(&digits[..=whole]);
                self.push_fraction(digits.get(whole + 1..used).unwrap_or_default());
            }
            Err(_) if exponent >= -4 => {
                self.push(b"0.");
                self.push(&b"000"[..(exponent.unsigned_abs() as usize - 1)]);
                self.push(&digits[..used]);
            }
            _ => {
                self.push(&digits[..1]);
                self.push_fraction(&digits[1..used]);
                self.push(if exponent < 0 { b"e-" } else { b"e+" });
                if exponent.abs() < 10 {
                    self.push(b"0");
                }
                self.push(itoa::Buffer::new().format(exponent.unsigned_abs()).as_bytes());
            }
        }
    }

    fn push_fraction(&mut self, digits: &[u8]) {
        if !digits.is_empty() {
            self.push(b".");
            self.push(digits);
        }
    }
}

fn is_negative_zero(value: f64) -> bool {
    value == 0.0 && value.is_sign_negative()
}

const DIGITS: usize = 17;
/// From here on whole numbers have more than [`DIGITS`] digits.
const INTEGERS_END: f64 = 1e17;
/// Significant digits of a number that Lua converts to a string.
const SHORT_DIGITS: usize = 14;
const SHORT_INTEGERS_END: f64 = 1e14;
/// Enough for a sign, the digits, a point, and either leading zeros or an exponent.
const TEXT_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        String::from_utf8(Text::new(value).as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn short_texts_are_those_of_lua() {
        for (value, wanted) in [
            (1.0, "1"),
            (-2.5, "-2.5"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.33333333333333"),
            (99_999_999_999_999.0, "99999999999999"),
            (1e14, "1e+14"),
            (1_700_000_000_000_123.0, "1.7000000000001e+15"),
            (-0.0, "-0"),
            (1e-5, "1e-05"),
        ] {
            assert_eq!(Text::short(value).as_bytes(), wanted.as_bytes(), "{wanted}");
        }
    }

    #[test]
    fn doubles_are_written_as_redis_writes_them() {
        for (value, wanted) in [
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (3.1, "3.1000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (123_456_789_012_345_678.0, "1.2345678901234568e+17"),
            (1e100, "1e+100"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (0.000_123_456_789_012_345_67, "0.00012345678901234567"),
            (2e-7, "1.9999999999999999e-07"),
            (f64::MAX, "1.7976931348623157e+308"),
            (-f64::MIN_POSITIVE, "-2.2250738585072014e-308"),
            (f64::from_bits(1), "4.9406564584124654e-324"),
            (0.0, "0"),
            (-0.0, "-0"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (123_456_789.123_456_79, "123456789.12345679"),
            // Ties at the seventeenth digit go to the even one.
            (4_503_599_627_370_497.0 / 4.0, "1125899906842624.2"),
            (4_503_599_627_370_499.0 / 4.0, "1125899906842624.8"),
            (99_999_999_999_999_980.0, "99999999999999984"),
        ] {
            assert_eq!(text(value), wanted);
        }
    }

    #[test]
    fn words_are_read_as_redis_reads_them() {
        for (word, wanted) in [
            ("5.", Some(5.0)),
            (".5", Some(0.5)),
            ("+1", Some(1.0)),
            ("1E5", Some(1e5)),
            ("1.0e0000000000000000000001", Some(10.0)),
            ("0e-400", Some(0.0)),
            ("0e99999999999999999999999", Some(0.0)),
            ("5e-324", Some(f64::from_bits(1))),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("+InFiNiTy", Some(f64::INFINITY)),
        ] {
            assert_eq!(parse(word.as_bytes()), wanted, "{word}");
        }
    }

    #[test]
    fn other_words_are_refused() {
        for word in [
            "", " 1", "1 ", "nan", "-nan", "nan(1)", "1e", "1e+", "abc", "1_0", "1d", "0x10", "+-1",
            "1\x002", "in", "infi", "infinityx", "1e400", "1e-400", ".", "e5", "--1", "-", "+",
        ] {
            assert_eq!(parse(word.as_bytes()), None, "{word:?}");
        }
    }

    #[test]
    fn ends_of_ranges_are_read_loosely() {
        for (word, wanted) in [
            ("", Some(0.0)),
            (" \t1", Some(1.0)),
            ("1\0x", Some(1.0)),
            ("\0x", Some(0.0)),
            ("1e400", Some(f64::INFINITY)),
            ("1e-400", Some(0.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            (" ", None),
            ("1 ", None),
            ("nan", None),
            ("x", None),
        ] {
            assert_eq!(parse_loosely(word.as_bytes()), wanted, "{word:?}");
        }
    }

    #[test]
    fn every_double_reads_back_as_itself() {
        let mut bits = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(bits ^ bits >> 29);
            if value.is_finite() {
                assert_eq!(parse(text(value).as_bytes()), Some(value));
            }
        }
    }
}
