//! Numbers as C writes and reads them.
//!
//! Source  C99: `printf("%.*g")`, `strtod` in the locale "C".

/// The number as an integer, where `%.{digits}g` writes it as one; not zero, which may be -0.
pub(super) fn whole(number: f64, digits: usize) -> Option<i64> {
    let whole = number as i64;
    let is_short = whole.unsigned_abs() < 10_u64.pow(digits.min(15) as u32);
    (whole as f64 == number && is_short && whole != 0).then_some(whole)
}

/// What `%.{digits}g` makes of a number.
pub(super) fn text(number: f64, digits: usize) -> String {
    if let Some(whole) = whole(number, digits) {
        return itoa::Buffer::new().format(whole).to_owned();
    }
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan".to_owned() } else { "nan".to_owned() };
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{number:.decimals$}")).to_owned()
}

/// Without the zeros behind the point that say nothing.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The number that `text` begins with, and how many bytes it takes.
pub(super) fn read(text: &[u8]) -> Option<(f64, usize)> {
    let sign_len = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let (number, len) = unsigned(&text[sign_len..])?;
    let number = if text.first() == Some(&b'-') { -number } else { number };
    Some((number, sign_len + len))
}

fn unsigned(text: &[u8]) -> Option<(f64, usize)> {
    if let Some(found) = few_digits(text) {
        return Some(found);
    }
    let starts =
        |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    if starts("infinity") {
        return Some((f64::INFINITY, 8));
    }
    if starts("inf") {
        return Some((f64::INFINITY, 3));
    }
    if starts("nan") {
        return Some((f64::NAN.copysign(1.0), 3 + payload(&text[3..])));
    }
    if starts("0x")
        && let Some((number, len)) = hexadecimal(&text[2..])
    {
        return Some((number, 2 + len));
    }
    decimal(text)
}

/// A number that is nothing but so few digits that a double has room for each.
pub(super) fn few_digits(text: &[u8]) -> Option<(f64, usize)> {
    let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let goes_on = matches!(text.get(len), Some(b'.' | b'e' | b'E' | b'x' | b'X'));
    let number = || text[..len].iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    ((1..=15).contains(&len) && !goes_on).then(|| (number() as f64, len))
}

/// Bytes of what a NaN may carry in brackets.
fn payload(text: &[u8]) -> usize {
    if text.first() != Some(&b'(') {
        return 0;
    }
    let inner = text[1..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    if text.get(1 + inner) == Some(&b')') { inner + 2 } else { 0 }
}

fn decimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = digits(text, 10);
    let fraction = if text.get(whole) == Some(&b'.') { digits(&text[whole + 1..], 10) } else { 0 };
    if whole + fraction == 0 {
        return None;
    }
    let mut len = whole + if text.get(whole) == Some(&b'.') { 1 + fraction } else { 0 };
    len += exponent(&text[len..], b'e').1;
    let number = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
    Some((number, len))
}

/// What follows `0x`.
fn hexadecimal(text: &[u8]) -> Option<(f64, usize)> {
    let whole = digits(text, 16);
    let fraction = if text.get(whole) == Some(&b'.') { digits(&text[whole + 1..], 16) } else { 0 };
    if whole + fraction == 0 {
        return None;
    }
    let len = whole + if text.get(whole) == Some(&b'.') { 1 + fraction } else { 0 };
    let (mut binary, exponent_len) = exponent(&text[len..], b'p');
    binary = binary.saturating_sub(4 * fraction as i64);
    let mut mantissa: u64 = 0;
    for byte in text[..len].iter().filter(|byte| **byte != b'.') {
        let digit = char::from(*byte).to_digit(16).map_or(0, u64::from);
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
        } else {
            // What no longer fits decides at most which way to round.
            mantissa |= u64::from(digit != 0);
            binary = binary.saturating_add(4);
        }
    }
    Some((scaled(mantissa, binary), len + exponent_len))
}

/// `mantissa * 2^exponent`, rounded once.
fn scaled(mantissa: u64, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let top = (63 - i64::from(mantissa.leading_zeros())).saturating_add(exponent);
    if top > 1023 {
        return f64::INFINITY;
    }
    // Bits below the last that the result has: 53 of them are kept, fewer near zero.
    let dropped = (top.max(-1022) - 52).saturating_sub(exponent);
    let (kept, exponent) = match dropped {
        ..=0 => (mantissa, exponent),
        1..=64 => {
            let wide = u128::from(mantissa);
            let half = 1_u128 << (dropped - 1);
            let (kept, rest) = (wide >> dropped, wide & (2 * half - 1));
            let is_up = rest > half || (rest == half && kept & 1 == 1);
            (kept as u64 + u64::from(is_up), exponent.saturating_add(dropped))
        }
        _ => return 0.0,
    };
    // Exact in two steps: neither factor is out of range, and the bits kept fit the result.
    let half = exponent / 2;
    kept as f64 * 2_f64.powi(half as i32) * 2_f64.powi((exponent - half) as i32)
}

/// The exponent behind `mark` and how many bytes it takes with it; none of either without digits.
fn exponent(text: &[u8], mark: u8) -> (i64, usize) {
    if text.first().map(u8::to_ascii_lowercase) != Some(mark) {
        return (0, 0);
    }
    let sign_len = usize::from(matches!(text.get(1), Some(b'+' | b'-')));
    let rest = &text[1 + sign_len..];
    let len = digits(rest, 10);
    if len == 0 {
        return (0, 0);
    }
    let add = |sum: i64, digit: &u8| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    let size = rest[..len].iter().fold(0, add);
    (if text[1] == b'-' { -size } else { size }, 1 + sign_len + len)
}

fn digits(text: &[u8], base: u32) -> usize {
    text.iter().take_while(|byte| char::from(**byte).is_digit(base)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_printf() {
        for (number, digits, expected) in [
            (0.0, 14, "0"),
            (-0.0, 14, "-0"),
            (1e14, 14, "1e+14"),
            (99_999_999_999_999.0, 14, "99999999999999"),
            (0.1, 14, "0.1"),
            (0.0001, 14, "0.0001"),
            (0.000_01, 14, "1e-05"),
            (1.0 / 3.0, 3, "0.333"),
            (12_345.0, 3, "1.23e+04"),
            (9.9999, 1, "1e+01"),
            (1e300, 14, "1e+300"),
        ] {
            assert_eq!(text(number, digits), expected);
        }
    }

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        for (given, number, len) in [
            ("12,", 12.0, 2),
            ("0]", 0.0, 1),
            ("-0012]", -12.0, 5),
            ("999999999999999", 999_999_999_999_999.0, 15),
            ("9007199254740993", 9_007_199_254_740_992.0, 16),
            ("1.5e3]", 1500.0, 5),
            ("1e+", 1.0, 1),
            ("-.5", -0.5, 3),
            ("0x1.8p1z", 3.0, 7),
            ("0x", 0.0, 1),
            ("0x.8", 0.5, 4),
            ("-Infinityx", f64::NEG_INFINITY, 9),
            ("infin", f64::INFINITY, 3),
            ("1e999999999999999999999", f64::INFINITY, 23),
            ("0x1p-1074", f64::from_bits(1), 9),
            ("0x1p-1075", 0.0, 9),
            ("0x1.8p-1075", f64::from_bits(1), 11),
            ("0x1p99999999999999999999", f64::INFINITY, 24),
            ("0x1fffffffffffff8p0", 2_f64.powi(57), 19),
            ("0x100000000000008p0", 72_057_594_037_927_936.0, 19),
            ("0x1000000000000080000000001p-96", 1.0 + f64::EPSILON, 31),
            ("0x1000000000000080000000000p-96", 1.0, 31),
        ] {
            let (read, read_len) = read(given.as_bytes()).unwrap();
            assert_eq!((read, read_len), (number, len), "{given}");
        }
        assert_eq!(read(b"-"), None);
        assert_eq!(read(b"+x"), None);
        assert_eq!(read(b".e1"), None);
        assert_eq!(read(b"nan(1_a)").map(|(_, len)| len), Some(8));
        assert_eq!(read(b"nan(1-a)").map(|(_, len)| len), Some(3));
    }
}
