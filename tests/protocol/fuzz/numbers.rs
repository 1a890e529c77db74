//! Number parsing and arithmetic compared with the standard library, with wide sums, and with their own output.

use proptest::collection::vec;
use proptest::prelude::*;
use redlatch_proto::number::double::{self, Text};
use redlatch_proto::number::{float_text, integer, wrapped};

pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    let text = |text: String| text.into_bytes();
    let signed = |sign: &str, rest: String| format!("{sign}{rest}").into_bytes();
    let sign = || prop::sample::select(vec!["", "", "-", "+", "--", " "]);
    prop_oneof![
        any::<i64>().prop_map(move |value| text(value.to_string())),
        any::<i128>().prop_map(move |value| text((value >> 60).to_string())),
        any::<u64>().prop_map(move |bits| text(format!("{:?}", f64::from_bits(bits)))),
        any::<u64>().prop_map(move |bits| text(f64::from_bits(bits).to_string())),
        (sign(), "[0-9]{0,25}(\\.[0-9]{0,25})?([eE][-+]?[0-9]{0,4})?").prop_map(move |(s, r)| signed(s, r)),
        (sign(), "0[xX][0-9a-fA-F]{0,18}(\\.[0-9a-fA-F]{0,18})?([pP][-+]?[0-9]{0,4})?")
            .prop_map(move |(s, r)| signed(s, r)),
        (sign(), "[iI][nN][fF](inity)?|nan|NaN").prop_map(move |(s, r)| signed(s, r)),
        vec(prop::sample::select(b"0123456789+-.eExXpPinfa \0".to_vec()), 0..12),
    ]
    .boxed()
}

pub(crate) fn check(input: &[u8]) {
    let shown = input.escape_ascii();
    let text = std::str::from_utf8(input).ok();

    let plain: Option<i64> = text.and_then(|text| text.parse().ok());
    let canonical = plain.filter(|value| value.to_string().as_bytes() == input);
    assert_eq!(integer(input), canonical, "integer {shown}");

    let big: Option<i128> = text.filter(|text| text.len() < 30).and_then(|text| text.parse().ok());
    let magnitude = big.map(i128::unsigned_abs).and_then(|magnitude| u64::try_from(magnitude).ok());
    let modular = magnitude.map(|value| if input[0] == b'-' { value.wrapping_neg() } else { value });
    if input.len() < 30 {
        assert_eq!(wrapped(input), modular, "wrapped {shown}");
    }

    let found = double::parse(input);
    let expected = text.and_then(expected);
    assert_eq!(found.map(f64::to_bits), expected.map(f64::to_bits), "double {shown}: {found:?} {expected:?}");
    if let Some(value) = found.filter(|value| value.is_finite()) {
        let written = Text::new(value);
        let again = double::parse(written.as_bytes());
        assert_eq!(again, Some(value), "written as {}", written.as_bytes().escape_ascii());
        let read = double::parse(float_text(value).as_bytes()).expect("a number");
        // Half of the last of 17 decimals, and the last bit of a double.
        let bound = 0.5e-17 + value.abs().max(read.abs()) * f64::EPSILON;
        assert!((read - value).abs() <= bound, "float_text of {shown}");
    }
    if let (Some(exact), Some(loose)) = (found, double::parse_loosely(input)) {
        assert_eq!(exact.to_bits(), loose.to_bits(), "loosely {shown}");
    }
}

/// C's `strtod` on the whole text, with the restrictions of Redis: neither NaN nor out of range.
fn expected(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (value, digits): (f64, _) = if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        (unsigned.parse().ok()?, unsigned.split(['e', 'E']).next().unwrap_or_default())
    } else {
        let is_infinite = ["inf", "infinity"].iter().any(|word| unsigned.eq_ignore_ascii_case(word));
        return is_infinite.then_some(if text.starts_with('-') { -f64::INFINITY } else { f64::INFINITY });
    };
    let is_zero = digits.chars().all(|digit| matches!(digit, '0' | '.'));
    let is_in_range = value.is_finite() && (value != 0.0 || is_zero);
    is_in_range.then_some(if text.starts_with('-') { -value } else { value })
}
