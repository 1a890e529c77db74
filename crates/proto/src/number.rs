//! Numbers as Redis reads and writes them.
//!
//! Rule    floating point is `f64` everywhere. INCRBYFLOAT and HINCRBYFLOAT compute with 80 bits in Redis, so that the
//!         last digits of a sum may differ here.
//! Source  Redis 7.0: `string2ll` (strict).

pub mod double;

/// A 64-bit integer in the one spelling that Redis accepts: no sign but `-`, no leading zero, no space, no `-0`.
#[inline]
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] => return (!negative).then_some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    // 19 digits fit 64 bits without a sign; the sign decides at the end.
    let mut magnitude: u64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(digit));
    }
    if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() }
}

/// The sum of all numbers; the highest number that there is in place of a higher one.
pub fn total(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}

/// A mean of numbers of any size: the sum of 2^64 of them fits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean {
    sum: u128,
    count: u64,
}

impl Mean {
    /// Counts one number.
    pub fn add(&mut self, number: u64) {
        self.sum = self.sum.saturating_add(number.into());
        self.count = self.count.saturating_add(1);
    }

    /// The mean, rounded down; 0 without a number.
    pub fn get(&self) -> u64 {
        let mean = self.sum.checked_div(self.count.into()).unwrap_or(0);
        u64::try_from(mean).unwrap_or(u64::MAX)
    }
}

impl FromIterator<u64> for Mean {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut mean = Self::default();
        numbers.into_iter().for_each(|number| mean.add(number));
        mean
    }
}

/// The text that INCRBYFLOAT answers and stores: the shortest one that reads back as `value`, without an exponent, and with
/// at most 17 decimals.
pub fn float_text(value: f64) -> String {
    let mut text = format!("{value}");
    if text.split_once('.').is_some_and(|(_, decimals)| decimals.len() > DECIMALS_MAX) {
        text = format!("{value:.DECIMALS_MAX$}");
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    if text == "-0" { "0".to_owned() } else { text }
}

/// Decimals of a number that Redis writes: `%.17Lf` without the zeros at its end.
const DECIMALS_MAX: usize = 17;

/// An unsigned integer as C's `strtoul` reads it: a sign is accepted, and a negative number wraps around.
pub fn wrapped(text: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if !digits.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let magnitude: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("99999999999999999999", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1 ", None),
            ("1.0", None),
            ("1x", None),
        ] {
            assert_eq!(integer(text.as_bytes()), value, "{text:?}");
        }
    }

    #[test]
    fn floats_are_written_without_an_exponent() {
        assert_eq!(float_text(10.5 + 0.1), "10.6");
        assert_eq!(float_text(3.0e3), "3000");
        assert_eq!(float_text(-0.0), "0");
        assert_eq!(float_text(1e300).len(), 301);
        assert_eq!(float_text(5e-324), "0");
        assert_eq!(float_text(-1.5e-17), "-0.00000000000000002");
        assert_eq!(float_text(0.1 + 0.2), "0.30000000000000004");
    }
}
