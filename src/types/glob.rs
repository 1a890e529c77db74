//! Glob patterns: KEYS, SCAN MATCH, PSUBSCRIBE, CONFIG GET.
//!
//! Rule    a text of no bytes fits the pattern of no bytes only: not even `*`, as in Redis 7.0.
//! Rule    at worst the pattern's length times the text's: one place to return to, the last `*`, never a tree of them.
//! Source  the pattern language of Redis' `stringmatchlen`: `*`, `?`, `[a-z]`, `[^x]`, and `\` to take it literally.

/// True when the whole of `text` fits `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |a, b| a == b)
}

/// Whether it is the one pattern of which commands that walk need not ask what fits: then the empty name does, too.
pub fn is_all(pattern: &[u8]) -> bool {
    pattern == b"*"
}

/// Whether the whole of `text` fits `pattern`, the case of ASCII letters ignored.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |a, b| a.eq_ignore_ascii_case(&b))
}

fn matches_with(pattern: &[u8], text: &[u8], same: impl Fn(u8, u8) -> bool + Copy) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and the text it was last tried to swallow up to. An earlier star never needs to
    // swallow more: whatever it could reach, the later one reaches too.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        match one(&pattern[p..], text[t], same) {
            Some(width) => {
                p += width;
                t += 1;
            }
            None => {
                let Some((after_star, swallowed)) = star else { return false };
                star = Some((after_star, swallowed + 1));
                p = after_star;
                t = swallowed + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Bytes of pattern that fit `byte`, or `None` when they do not.
fn one(pattern: &[u8], byte: u8, same: impl Fn(u8, u8) -> bool) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'[', class @ ..] => {
            let (fits, width) = in_class(class, byte, same);
            fits.then_some(1 + width)
        }
        [b'\\', literal, ..] => same(*literal, byte).then_some(2),
        [literal, ..] => same(*literal, byte).then_some(1),
    }
}

/// Whether `byte` is in the class that begins after `[`, and the class's width including its `]`.
fn in_class(class: &[u8], byte: u8, same: impl Fn(u8, u8) -> bool) -> (bool, usize) {
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
                found |= same(*literal, byte);
                at += 2;
            }
            [low, b'-', high, ..] => {
                let (low, high) = (*low.min(high), *low.max(high));
                let folded = [byte, byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
                found |= folded.iter().any(|b| (low..=high).contains(b) && same(*b, byte));
                at += 3;
            }
            [literal, ..] => {
                found |= same(*literal, byte);
                at += 1;
            }
        }
    }
    (found != negated, at)
}

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
    fn a_pattern_of_many_stars_takes_no_longer_than_its_product() {
        let pattern = b"a*".repeat(5_000);
        let text = [&b"a".repeat(20_000)[..], b"b"].concat();
        assert!(matches(&pattern, &text));
        assert!(!matches(&[&pattern[..], b"c"].concat(), &text));
    }
}
