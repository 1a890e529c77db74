//! What spans have in common: their target, and the field `traceparent` of META, which names a span of the client.
//!
//! Source  W3C Trace Context, version 00.

use bytes::Bytes;

/// The target of all spans. Their names are `connection`, `command`, `wait` and `grant`.
pub const SPANS: &str = "redlatch::spans";

/// The name of the field in META.
const FIELD: &[u8] = b"traceparent";
/// Bytes of `00-<32 digits>-<16 digits>-<2 digits>`.
const BYTES: usize = 55;

/// The value of the field `traceparent` among fields and values in turn. `None` if there is none, or it is not of that
/// form. Of a later version the part that version 00 knows is returned.
pub fn traceparent(meta: &[Bytes]) -> Option<&str> {
    let mut pairs = meta.chunks_exact(2);
    let value = &pairs.find(|pair| pair[0].eq_ignore_ascii_case(FIELD))?[1];
    checked(value)
}

fn checked(value: &[u8]) -> Option<&str> {
    let (known, rest) = value.split_at_checked(BYTES)?;
    let text = std::str::from_utf8(known).ok()?;
    let mut parts = text.split('-');
    let mut next = |digits: usize| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        parts.next().filter(|part| part.len() == digits && part.bytes().all(is_digit))
    };
    let (version, trace, span, _flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let fits = match version {
        "ff" => false,
        "00" => rest.is_empty(),
        _ => rest.first().is_none_or(|byte| *byte == b'-'),
    };
    (fits && !is_zero(trace) && !is_zero(span)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_well_formed_value_counts() {
        assert_eq!(checked(GOOD.as_bytes()), Some(GOOD));
        let later = format!("01{}-more", &GOOD[2..]);
        assert_eq!(checked(later.as_bytes()), Some(&later[..55]), "a later version may have more");
        for bad in [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}0"),
            format!("{GOOD}-more"),
            format!("ff{}", &GOOD[2..]),
            GOOD.to_ascii_uppercase(),
            GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            GOOD.replace('-', "_"),
            GOOD.replace("00f0", "00g0"),
            GOOD.replace("00f0", "\u{e9}\u{e9}"),
        ] {
            assert_eq!(checked(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn the_field_is_found_among_others_in_any_letter_case() {
        let meta = |words: &[&'static str]| {
            words.iter().map(|word| Bytes::from_static(word.as_bytes())).collect::<Vec<_>>()
        };
        assert_eq!(traceparent(&meta(&["host", "a", "TraceParent", GOOD])), Some(GOOD));
        assert_eq!(traceparent(&meta(&["host", "traceparent"])), None);
        assert_eq!(traceparent(&[]), None);
    }
}
