//! Glob patterns: KEYS, SCAN MATCH, PSUBSCRIBE, CONFIG GET.
//!
//! Rule    an empty text matches the empty pattern only, and not `*`, as in Redis 7.0.
//! Rule    time is linear in the lengths of pattern and text: the search returns only to the last `*`, and the work of all
//!         returns is bounded. Beyond the bound nothing matches, as in Redis beyond a thousand stars.
//! Source  the pattern language of Redis' `stringmatchlen`: `*`, `?`, `[a-z]`, `[^x]`, and `\` to take it literally.

/// True if `pattern` matches the whole of `text`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte)
}

/// Whether the pattern is `*`, for which scans match nothing: they return the empty name, too.
pub fn is_all(pattern: &[u8]) -> bool {
    pattern == b"*"
}

/// Like [`matches()`], without regard to the case of ASCII letters.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte.to_ascii_lowercase())
}

/// Bytes match if they are equal after `fold`.
fn matches_with(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8 + Copy) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let mut budget = budget(pattern, text);
    matches_within(pattern, text, fold, &mut budget).unwrap_or(false)
}

/// Bytes of pattern that may be compared, over all returns to a star.
fn budget(pattern: &[u8], text: &[u8]) -> usize {
    SEGMENT_BYTES_SURE.saturating_mul(pattern.len().saturating_add(text.len()))
}

/// `None` if the budget is exhausted.
fn matches_within(
    pattern: &[u8],
    text: &[u8],
    fold: impl Fn(u8) -> u8 + Copy,
    budget: &mut usize,
) -> Option<bool> {
    let (mut p, mut t) = (0, 0);
    // The position behind the last star, and the end of the text that the star matches so far. An earlier star never
    // needs to match more: the last star can match the rest.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        let (fits, width) = one(&pattern[p..], text[t], fold);
        *budget = budget.checked_sub(width)?;
        if fits {
            p += width;
            t += 1;
        } else {
            let Some((after_star, matched)) = star else { return Some(false) };
            star = Some((after_star, matched + 1));
            p = after_star;
            t = matched + 1;
        }
    }
    Some(pattern[p..].iter().all(|byte| *byte == b'*'))
}

/// Whether the first element of the pattern matches `byte`, and the length of that element.
fn one(pattern: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    match pattern {
        [] => (false, 0),
        [b'?', ..] => (true, 1),
        [b'[', class @ ..] => {
            let (fits, width) = in_class(class, byte, fold);
            (fits, 1 + width)
        }
        [b'\\', literal, ..] => (fold(*literal) == fold(byte), 2),
        [literal, ..] => (fold(*literal) == fold(byte), 1),
    }
}

/// Whether `byte` is in the class that begins after `[`, and the class's width including its `]`.
fn in_class(class: &[u8], byte: u8, fold: impl Fn(u8) -> u8) -> (bool, usize) {
    let byte = fold(byte);
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let mut found = false;
    loop {
        match &class[at..] {
            // A class that is never closed ends with the pattern.
            [] => break,
            [b']', ..] => {
                at += 1;
                break;
            }
            [b'\\', literal, ..] => {
                found |= fold(*literal) == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (*low.min(high), *low.max(high));
                // Ordered as written, then folded: as in Redis, a range may hold nothing when case is ignored.
                found |= (fold(low)..=fold(high)).contains(&byte);
                at += 3;
            }
            [literal, ..] => {
                found |= fold(*literal) == byte;
                at += 1;
            }
        }
    }
    (found != negated, at)
}

/// A part of a pattern between two stars of up to this length, in bytes, is always found. The search for a longer part
/// may end early in a text where it nearly matches at many places.
const SEGMENT_BYTES_SURE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, fits) in [
            ("*", "", false),
            ("**", "", false),
            ("", "", true),
            ("", "a", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*b*c", "aXbXbXc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[^a]x", "bx", true),
            ("[^a]x", "ax", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[\\]]", "]", true),
            ("[ab", "a", true),
            ("h[ae]llo", "hello", true),
            ("lock:*", "lock:", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), fits, "{pattern} on {text}");
        }
        assert!(matches_ignoring_case(b"MAX*", b"maxclients"));
    }

    #[test]
    fn the_time_of_a_match_is_bounded_by_the_lengths() {
        let a = |n: usize| "a".repeat(n);
        let cases = [
            ("a*".repeat(5_000), a(20_000) + "b", Some(true)),
            ("a*".repeat(5_000) + "c", a(20_000) + "b", Some(false)),
            ("*".repeat(100_000) + "b", a(1000), Some(false)),
            // Every place of the text is where the part behind the star could begin.
            (format!("*{}b*", a(5_000)), a(10_000), None),
            (format!("*{}b*", "?".repeat(5_000)), a(10_000), None),
            (format!("*[{}]*", "b".repeat(5_000)), a(10_000), None),
            // Parts of the longest length that is always found.
            (format!("*{}b*", a(SEGMENT_BYTES_SURE - 1)), a(10_000) + "b", Some(true)),
            (format!("*{}b*", a(SEGMENT_BYTES_SURE - 1)), a(10_000), Some(false)),
        ];
        for (pattern, text, expected) in cases {
            let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
            let mut left = budget(pattern, text);
            let found = matches_within(pattern, text, |byte| byte, &mut left);
            let about = pattern[..pattern.len().min(20)].escape_ascii();
            assert_eq!(found, expected, "{about}");
            assert_eq!(matches(pattern, text), expected.unwrap_or(false), "{about}");
        }
    }

    #[test]
    fn a_long_part_is_found_in_an_ordinary_text() {
        let name = "service:orders:region:eu-central-1:tenant:4711:lock:".repeat(20);
        let pattern = format!("*{name}*end");
        let text = "service:orders:region:eu-".repeat(100) + &name + "the end";
        assert!(matches(pattern.as_bytes(), text.as_bytes()));
    }
}
