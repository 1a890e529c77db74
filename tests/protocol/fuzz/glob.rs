//! Glob patterns compared with a slow and simple matcher.
//!
//! Source  Redis 7.0 `stringmatchlen` defines the parts of a pattern; the matcher is a table over both texts.

use proptest::collection::vec;
use proptest::prelude::*;
use redlatch_core::types::glob::{matches, matches_ignoring_case};

/// One part of a pattern.
enum Part {
    /// Any bytes.
    Star,
    /// One byte of a set.
    Of(Box<[bool; 256]>),
}

/// Pattern and text, a zero byte between them.
pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    let letter = || prop::sample::select(b"aAbBcZ-^]".to_vec());
    let sign = prop::sample::select(b"**?[]^-\\abBcZ".to_vec());
    let class = (any::<bool>(), vec(letter(), 0..5)).prop_map(|(is_negated, inner)| {
        [&b"["[..], if is_negated { b"^" } else { b"" }, &inner, b"]"].concat()
    });
    let part = prop_oneof![3 => sign.prop_map(|sign| vec![sign]), 1 => class];
    let pattern = vec(part, 0..12).prop_map(|parts| parts.concat());
    let text = prop_oneof![4 => vec(letter(), 0..12), 1 => vec(any::<u8>(), 0..6)];
    (pattern, text).prop_map(|(pattern, text)| [&pattern[..], b"\0", &text].concat()).boxed()
}

pub(crate) fn check(input: &[u8]) {
    let split = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (pattern, text) = (&input[..split], input.get(split + 1..).unwrap_or_default());
    let shown = || format!("{} on {}", pattern.escape_ascii(), text.escape_ascii());
    assert_eq!(matches(pattern, text), slowly(pattern, text, false), "{}", shown());
    assert_eq!(matches_ignoring_case(pattern, text), slowly(pattern, text, true), "any case: {}", shown());
}

/// Whether the whole text matches: computed for each prefix of the pattern and each prefix of the text.
fn slowly(pattern: &[u8], text: &[u8], ignores_case: bool) -> bool {
    if text.is_empty() {
        // Redis matches any key against `*` without reading the pattern.
        return pattern.is_empty();
    }
    let mut fits = vec![false; text.len() + 1];
    fits[0] = true;
    for part in parts(pattern, ignores_case) {
        let before = fits.clone();
        for at in 0..=text.len() {
            fits[at] = match &part {
                Part::Star => before[..=at].contains(&true),
                Part::Of(bytes) => at > 0 && before[at - 1] && bytes[usize::from(text[at - 1])],
            };
        }
    }
    fits[text.len()]
}

fn parts(mut pattern: &[u8], ignores_case: bool) -> Vec<Part> {
    let fold = |byte: u8| if ignores_case { byte.to_ascii_lowercase() } else { byte };
    let only = |wanted: &dyn Fn(u8) -> bool| {
        let mut of = Box::new([false; 256]);
        (0..=255_u8).for_each(|byte| of[usize::from(byte)] = wanted(byte));
        Part::Of(of)
    };
    let mut parts = Vec::new();
    while let Some((first, rest)) = pattern.split_first() {
        pattern = rest;
        parts.push(match (first, rest) {
            (b'*', _) => Part::Star,
            (b'?', _) => only(&|_| true),
            (b'[', _) => {
                let (ranges, is_negated, after) = class(rest);
                pattern = after;
                only(&|byte| {
                    let fits = |(low, high): &(u8, u8)| (fold(*low)..=fold(*high)).contains(&fold(byte));
                    ranges.iter().any(fits) != is_negated
                })
            }
            (b'\\', [literal, after @ ..]) => {
                pattern = after;
                only(&|byte| fold(byte) == fold(*literal))
            }
            (literal, _) => only(&|byte| fold(byte) == fold(*literal)),
        });
    }
    parts
}

/// The ranges of a class, whether it is negated, and the rest of the pattern.
fn class(text: &[u8]) -> (Vec<(u8, u8)>, bool, &[u8]) {
    let (is_negated, mut text) = text.strip_prefix(b"^").map_or((false, text), |rest| (true, rest));
    let mut ranges = Vec::new();
    loop {
        text = match text {
            [b'\\', literal, rest @ ..] => {
                ranges.push((*literal, *literal));
                rest
            }
            [b']', rest @ ..] => return (ranges, is_negated, rest),
            [] => return (ranges, is_negated, text),
            [low, b'-', high, rest @ ..] => {
                ranges.push((*low.min(high), *low.max(high)));
                rest
            }
            [literal, rest @ ..] => {
                ranges.push((*literal, *literal));
                rest
            }
        };
    }
}
