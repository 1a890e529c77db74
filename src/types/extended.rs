//! The 80-bit floating point numbers of x86, in which Redis computes INCRBYFLOAT: read, added and written exactly alike.
//!
//! Rule    every result is the nearest number with 64 bits of mantissa, ties to even; nothing depends on the machine.
//! Source  what C's `strtold` takes and `printf("%.17Lf")` writes there; Redis 7.0 `string2ld`, `ld2string`.

use std::cmp::Ordering;

use super::big::{Big, GROUP, GROUP_DIGITS};

/// A number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extended {
    /// Plus or minus `mantissa * 2^exponent`. The mantissa's highest bit is set, unless the number is zero or tiny.
    Finite {
        /// Below zero, or the zero that is reached from there.
        is_negative: bool,
        /// 64 bits.
        mantissa: u64,
        /// From [`EXPONENT_MIN`] on.
        exponent: i32,
    },
    /// Infinite, or no number any more.
    Infinite,
}

impl Extended {
    /// Zero.
    pub const ZERO: Self = Self::Finite { is_negative: false, mantissa: 0, exponent: 0 };

    /// The number that `text` spells, all of it: decimal, or hexadecimal behind `0x`, or `inf`. `None` for everything
    /// else, for what is too large for a finite number, and for what is too small to be told from zero.
    pub fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (is_negative, unsigned) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word.as_bytes())) {
            return Some(Self::Infinite);
        }
        let (magnitude, is_zero) = match unsigned {
            [b'0', b'x' | b'X', rest @ ..] => hexadecimal(rest)?,
            decimals => decimal(decimals)?,
        };
        match magnitude {
            Self::Finite { mantissa: 0, .. } if !is_zero => None,
            Self::Finite { mantissa, exponent, .. } => Some(Self::Finite { is_negative, mantissa, exponent }),
            Self::Infinite => None,
        }
    }

    /// A thousand times the number, rounded to 64 bits of mantissa as any result is, and then up to the next integer.
    /// `None` when that is beyond 64 bits.
    pub fn thousandfold_rounded_up(self) -> Option<i64> {
        let Self::Finite { is_negative, mantissa, exponent } = self else { return None };
        let product = u128::from(mantissa) * 1000;
        let excess = (u128::BITS - product.leading_zeros()).saturating_sub(u64::BITS);
        let (kept, lost) = (product >> excess, product & ((1 << excess) - 1));
        // Twice what was lost against one unit of what was kept; a tie goes to the even neighbour.
        let is_up = match (lost << 1).cmp(&(1 << excess)) {
            Ordering::Less => false,
            Ordering::Equal => excess > 0 && kept & 1 == 1,
            Ordering::Greater => true,
        };
        let (kept, exponent) = (kept + u128::from(is_up), exponent.checked_add(excess as i32)?);
        let integer = match u32::try_from(exponent) {
            Ok(_) if kept == 0 => 0,
            Ok(exponent) if exponent < u64::BITS => kept.checked_mul(1 << exponent)?,
            Ok(_) => return None,
            Err(_) => {
                let places = exponent.unsigned_abs();
                let whole = kept.checked_shr(places).unwrap_or(0);
                let has_rest = whole.checked_shl(places).unwrap_or(0) != kept;
                whole + u128::from(has_rest && !is_negative)
            }
        };
        let magnitude = i128::try_from(integer).ok()?;
        i64::try_from(if is_negative { -magnitude } else { magnitude }).ok()
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let (
            Self::Finite { is_negative: a_negative, mantissa: a, exponent: a_exponent },
            Self::Finite { is_negative: b_negative, mantissa: b, exponent: b_exponent },
        ) = (self, other)
        else {
            return Self::Infinite;
        };
        let low = a_exponent.min(b_exponent);
        let aligned = |mantissa, exponent: i32| {
            let mut big = Big::new(mantissa);
            big.shift_left(exponent.abs_diff(low) as usize);
            big
        };
        let (mut a, mut b) = (aligned(a, a_exponent), aligned(b, b_exponent));
        let is_negative = if a_negative == b_negative {
            a.add(&b);
            a_negative
        } else if a.compare(&b).is_ge() {
            a.subtract(&b);
            a_negative
        } else {
            b.subtract(&a);
            a = b;
            b_negative
        };
        match nearest(&a, i64::from(low), false) {
            Self::Finite { mantissa, exponent, .. } => Self::Finite { is_negative, mantissa, exponent },
            Self::Infinite => Self::Infinite,
        }
    }

    /// The number with up to 17 digits behind the point, none of them a trailing zero, and without an exponent;
    /// `None` when it is not finite.
    pub fn text(self) -> Option<String> {
        let Self::Finite { is_negative, mantissa, exponent } = self else { return None };
        let text = match u32::try_from(exponent) {
            Ok(exponent) => {
                let mut whole = Big::new(mantissa);
                whole.shift_left(exponent as usize);
                whole.digits()
            }
            Err(_) => with_fraction(mantissa, exponent.unsigned_abs()),
        };
        Some(match text.as_str() {
            "" | "0" => "0".to_owned(),
            _ if is_negative => format!("-{text}"),
            _ => text,
        })
    }
}

/// `mantissa / 2^shift` in decimal, rounded to 17 digits behind the point, ties to even.
fn with_fraction(mantissa: u64, shift: u32) -> String {
    let scaled = u128::from(mantissa) * FRACTION;
    // The scaled number has at most 121 bits: shifted further than that, less than half is left.
    let rounded = if shift >= 122 {
        0
    } else {
        let (whole, rest, half) = (scaled >> shift, scaled & ((1 << shift) - 1), 1_u128 << (shift - 1));
        whole + u128::from(rest > half || (rest == half && whole & 1 == 1))
    };
    let text = format!("{}.{:017}", rounded / FRACTION, rounded % FRACTION);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The nearest number to `big * 2^exponent`, or to a little more than that when `has_rest`; positive.
///
/// Where there is a rest, `big` has more than 65 bits, so that the rest decides nothing but ties.
fn nearest(big: &Big, exponent: i64, has_rest: bool) -> Extended {
    if big.is_zero() {
        return Extended::ZERO;
    }
    let end = big.bits() as i64 + exponent;
    let low = (end - 64).max(i64::from(EXPONENT_MIN));
    let Ok(cut) = usize::try_from(low - exponent) else {
        // All bits fit, and more.
        let mantissa = big.window(0) << (exponent - low);
        return finite(mantissa, low);
    };
    let mantissa = big.window(cut);
    let is_half = cut > 0 && big.window(cut - 1) & 1 == 1;
    let is_more = has_rest || (cut > 0 && big.has_bits_below(cut - 1));
    match is_half && (is_more || mantissa & 1 == 1) {
        false => finite(mantissa, low),
        true => match mantissa.checked_add(1) {
            Some(mantissa) => finite(mantissa, low),
            None => finite(1 << 63, low + 1),
        },
    }
}

fn finite(mantissa: u64, exponent: i64) -> Extended {
    match i32::try_from(exponent) {
        Ok(exponent) if exponent <= EXPONENT_MAX => {
            Extended::Finite { is_negative: false, mantissa, exponent }
        }
        _ => Extended::Infinite,
    }
}

/// The nearest number to what decimal digits spell, and whether they spell zero.
fn decimal(text: &[u8]) -> Option<(Extended, bool)> {
    let (digits, scale, rest) = digits(text, 10)?;
    let power = written_exponent(rest, b'e')?.saturating_sub(scale as i64);
    let first = digits.iter().position(|digit| *digit != 0);
    let Some(first) = first else { return Some((Extended::ZERO, true)) };

    // Far out of range on either side; in between every intermediate number stays small.
    let magnitude = power.saturating_add((digits.len() - first) as i64);
    if magnitude > DECIMAL_MAX {
        return Some((Extended::Infinite, false));
    }
    if magnitude < -DECIMAL_MAX {
        return Some((Extended::ZERO, false));
    }
    let mut big = Big::default();
    for chunk in digits[first..].chunks(GROUP_DIGITS) {
        let group = chunk.iter().fold(0, |sum, digit| sum * 10 + u64::from(*digit));
        let factor = 10_u64.checked_pow(chunk.len() as u32).unwrap_or(GROUP);
        big.multiply_add(factor, group);
    }
    let mut left = power.unsigned_abs() as usize;
    let mut has_rest = false;
    let mut shift = 0;
    if power < 0 {
        // A little more than 10 / 3 bits a digit, so that more than 66 bits are left after the division.
        shift = (left * 10 / 3 + 70).saturating_sub(big.bits());
        big.shift_left(shift);
    }
    while left > 0 {
        let step = left.min(GROUP_DIGITS);
        let factor = 10_u64.pow(step as u32);
        match power < 0 {
            true => has_rest |= big.divide(factor) != 0,
            false => big.multiply_add(factor, 0),
        }
        left -= step;
    }
    Some((nearest(&big, -(shift as i64), has_rest), false))
}

/// The same of hexadecimal digits.
fn hexadecimal(text: &[u8]) -> Option<(Extended, bool)> {
    let (digits, scale, rest) = digits(text, 16)?;
    let power = written_exponent(rest, b'p')?.saturating_sub(4 * scale as i64);
    let mut big = Big::default();
    for digit in digits {
        big.multiply_add(16, u64::from(digit));
    }
    let end = power.saturating_add(big.bits() as i64);
    let is_zero = big.is_zero();
    if !is_zero && end < i64::from(EXPONENT_MIN) {
        return Some((Extended::ZERO, false));
    }
    if !is_zero && end > i64::from(EXPONENT_MAX) + 64 {
        return Some((Extended::Infinite, false));
    }
    Some((nearest(&big, power, false), is_zero))
}

/// Digits with at most one point among them, how many stand behind it, and what follows.
fn digits(text: &[u8], radix: u32) -> Option<(Vec<u8>, usize, &[u8])> {
    let (mut digits, mut scale, mut is_behind) = (Vec::with_capacity(text.len()), 0, false);
    let mut at = 0;
    for byte in text {
        match char::from(*byte).to_digit(radix) {
            Some(digit) => {
                digits.push(digit as u8);
                scale += usize::from(is_behind);
            }
            None if *byte == b'.' && !is_behind => is_behind = true,
            None => break,
        }
        at += 1;
    }
    if digits.is_empty() { None } else { Some((digits, scale, &text[at..])) }
}

/// The exponent behind `mark`, all of the text; 0 when there is no text.
fn written_exponent(text: &[u8], mark: u8) -> Option<i64> {
    let [first, rest @ ..] = text else { return Some(0) };
    if !first.eq_ignore_ascii_case(&mark) {
        return None;
    }
    let (is_negative, digits) = match rest {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude = digits
        .iter()
        .fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(if is_negative { -magnitude } else { magnitude })
}

/// The exponent of the smallest number above zero: `2^-16445`.
pub const EXPONENT_MIN: i32 = -16_445;
/// The exponent with which a full mantissa is the largest finite number.
const EXPONENT_MAX: i32 = 16_383 - 63;
/// Beyond ten to this power, or below ten to minus this, nothing is finite or above zero.
const DECIMAL_MAX: i64 = 4_960;
/// The longest text that Redis reads as a number.
const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;
/// Ten to the number of digits behind the point.
const FRACTION: u128 = 100_000_000_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum(a: &str, b: &str) -> Option<String> {
        Extended::parse(a.as_bytes())?.plus(Extended::parse(b.as_bytes())?).text()
    }

    fn read_back(text: &str) -> Option<String> {
        Extended::parse(text.as_bytes())?.text()
    }

    #[test]
    fn seconds_become_milliseconds_as_on_an_x86() {
        for (seconds, millis) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("1", Some(1_000)),
            ("0.1", Some(100)),
            ("0.5", Some(500)),
            ("0.001", Some(1)),
            ("0.0001", Some(1)),
            ("1e-300", Some(1)),
            ("-1e-300", Some(0)),
            ("-0.001", Some(0)),
            ("-0.002", Some(-1)),
            ("-1", Some(-1_000)),
            ("2.0005", Some(2_001)),
            ("0x10", Some(16_000)),
            ("9223372036854775", Some(9_223_372_036_854_775_000)),
            ("9223372036854776", None),
            ("-9223372036854776", None),
            ("1e400", None),
            ("inf", None),
        ] {
            let parsed = Extended::parse(seconds.as_bytes()).unwrap();
            assert_eq!(parsed.thousandfold_rounded_up(), millis, "{seconds}");
        }
    }

    #[test]
    fn sums_are_those_of_an_x86() {
        for (a, b, result) in [
            ("5.6", "5.0e3", "5005.60000000000000009"),
            ("0.1", "0.2", "0.3"),
            ("10", "1e-17", "10.00000000000000001"),
            ("10.00000000000000001", "1e-18", "10.00000000000000001"),
            ("10.00000000000000001", "0x10", "26.00000000000000001"),
            ("9007199254740993", "1", "9007199254740994"),
            ("1e17", "1", "100000000000000001"),
            ("1e20", "1", "100000000000000000000"),
            ("-0.5", ".5", "0"),
            ("5.", "+1", "6"),
            ("-1e-30", "0", "0"),
            ("0x1.8p1", "-0X.8", "2.5"),
            ("1e-4950", "0", "0"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(result), "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_or_out_of_range_is_refused() {
        let no_number =
            ["", "-", ".", "e5", "1e", "1e+", "1 ", " 1", "0x", "0x.p1", "0x1p", "1.2.3", "nan", "--1"];
        let out_of_range =
            ["1e4933", "-1e5000", "1e99999999999999999999", "1e-4960", "0x1p16384", "0x1p-16447"];
        for text in no_number.iter().chain(&out_of_range) {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        for text in ["0e99999999999999999999", "0x0p-99999999", "-0"] {
            assert_eq!(read_back(text).as_deref(), Some("0"), "{text:?}");
        }
        assert_eq!(Extended::parse(b"-InFinity"), Some(Extended::Infinite));
        assert_eq!(sum("1e4932", "1e4932"), None, "an infinite sum");
        assert_eq!(Extended::parse(&[b'1'; TEXT_BYTES_MAX + 1]), None);
    }

    proptest! {
        #[test]
        fn sums_of_integers_are_exact(a: i64, b in -1_i64 << 62..1 << 62) {
            let sum_of = sum(&a.to_string(), &b.to_string());
            prop_assert_eq!(sum_of, Some((i128::from(a) + i128::from(b)).to_string()));
        }

        /// Below 128 half a unit of the last bit is less than half a unit of the seventeenth digit.
        #[test]
        fn seventeen_digits_behind_the_point_read_back(whole in 0..128_u8, fraction in 1..100_000_000_000_000_000_u64) {
            let text = format!("{whole}.{fraction:017}");
            let text = text.trim_end_matches('0');
            prop_assert_eq!(read_back(text), Some(text.to_owned()));
        }

        #[test]
        fn a_decimal_exponent_moves_the_point(mantissa in 1..1_000_000_000_u64, zeros in 0..30_usize) {
            let moved = format!("{mantissa}{}e-{zeros}", "0".repeat(zeros));
            prop_assert_eq!(read_back(&moved), Some(mantissa.to_string()));
        }

        #[test]
        fn every_double_is_read_as_it_is(bits: u64) {
            let double = f64::from_bits(bits);
            prop_assume!(double.is_finite() && double.abs() < 1e18);
            // A double's full decimal expansion names it exactly.
            let exact = Extended::parse(format!("{double:.1074}").as_bytes());
            let (mantissa, exponent) = match (bits >> 52) & 0x7FF {
                0 => (bits & ((1 << 52) - 1), -1074),
                biased => (bits & ((1 << 52) - 1) | 1 << 52, biased as i32 - 1075),
            };
            let sign = if double.is_sign_negative() { "-" } else { "" };
            let hexadecimal = Extended::parse(format!("{sign}0x{mantissa:x}p{exponent}").as_bytes());
            prop_assert_eq!(exact, hexadecimal);
        }

        #[test]
        fn a_sum_is_the_same_both_ways_and_its_opposite_is_the_opposites_sum(
            a in "-?[0-9]{1,30}(\\.[0-9]{0,30})?(e-?[0-9]{1,2})?",
            b in "-?[0-9]{1,30}(\\.[0-9]{0,30})?(e-?[0-9]{1,2})?",
        ) {
            let flip = |text: &str| text.strip_prefix('-').map_or_else(|| format!("-{text}"), str::to_owned);
            let one = sum(&a, &b);
            prop_assert!(one.is_some());
            prop_assert_eq!(&one, &sum(&b, &a));
            let other = sum(&flip(&a), &flip(&b)).map(|text| if text == "0" { text } else { flip(&text) });
            prop_assert_eq!(one, other);
        }
    }
}
