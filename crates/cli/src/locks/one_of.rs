//! The keys that `--one-of` names: `port:{5173..5199}`, `gpu:{a,b}`.
//!
//! Rule    as in a shell: a brace without a comma or two dots is a part of the key, such as the hash tag of `{sim}:{1..3}`.
//! Rule    the keys are counted before they are made: at most [`KEYS_MAX`].

use std::collections::HashSet;

use redlatch_proto::lock::KEYS_MAX;
use redlatch_proto::log_name::readable;

use crate::common::Fault;

/// The keys of all patterns, each once and in their order. A brace with a list or a range stands for each of its parts.
///
/// # Errors
/// A pattern is empty, has a range without two numbers or a brace within another one, or there are too many keys.
pub(super) fn keys_of<'p>(patterns: impl IntoIterator<Item = &'p [u8]>) -> Result<Vec<Vec<u8>>, Fault> {
    let (mut keys, mut known) = (Vec::new(), HashSet::new());
    for pattern in patterns {
        let named = |fault| format!("'{}': {fault}", readable(pattern));
        keys.extend(expanded(pattern, KEYS_MAX - keys.len()).map_err(named)?);
    }
    keys.retain(|key| known.insert(key.clone()));
    Ok(keys)
}

/// The keys of one pattern, at most `most`.
fn expanded(pattern: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let mut keys = vec![Vec::new()];
    let mut rest = pattern;
    while let Some((before, inside, after)) = brace(rest) {
        let parts = parts(inside, most)?.unwrap_or_else(|| vec![[b"{", inside, b"}"].concat()]);
        if parts.len() > most / keys.len() {
            return Err(too_many());
        }
        keys.iter_mut().for_each(|key| key.extend_from_slice(before));
        keys = keys.into_iter().flat_map(|key| longer(key, &parts)).collect();
        rest = after;
    }
    keys.iter_mut().for_each(|key| key.extend_from_slice(rest));
    match (keys.iter().any(Vec::is_empty), keys.len() > most) {
        (true, _) => Err("the key is empty: is a variable not set?".to_owned()),
        (false, true) => Err(too_many()),
        (false, false) => Ok(keys),
    }
}

/// A key with each of these parts behind it.
fn longer(mut key: Vec<u8>, parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    match parts {
        // So a pattern with many of them takes no longer than its length.
        [part] => {
            key.extend_from_slice(part);
            vec![key]
        }
        parts => parts.iter().map(|part| [&key[..], part].concat()).collect(),
    }
}

/// The text before the first brace, inside it, and after it.
fn brace(text: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let close = text.iter().position(|byte| *byte == b'}')?;
    let open = text[..close].iter().position(|byte| *byte == b'{')?;
    Some((&text[..open], &text[open + 1..close], &text[close + 1..]))
}

/// The parts of a list or a range; `None`: it is neither.
fn parts(inside: &[u8], most: usize) -> Result<Option<Vec<Vec<u8>>>, Fault> {
    let is_list = inside.contains(&b',');
    let dots = inside.windows(2).position(|pair| pair == b"..");
    match (is_list, dots) {
        (false, None) => Ok(None),
        _ if inside.contains(&b'{') => Err("a brace within another one".to_owned()),
        (true, _) => Ok(Some(inside.split(|byte| *byte == b',').map(<[u8]>::to_vec).collect())),
        (false, Some(dots)) => range(&inside[..dots], &inside[dots + 2..], most).map(Some),
    }
}

/// The whole numbers from the first to the last, up or down, with as many digits as the longer one if one begins with 0.
fn range(first: &[u8], last: &[u8], most: usize) -> Result<Vec<Vec<u8>>, Fault> {
    let number =
        |text: &[u8]| str::from_utf8(text).ok().filter(|text| text.len() <= DIGITS_MAX)?.parse::<u64>().ok();
    let (Some(from), Some(to)) = (number(first), number(last)) else {
        return Err("a range has two whole numbers, such as {1..9}".to_owned());
    };
    if from.abs_diff(to) >= most as u64 {
        return Err(too_many());
    }
    let is_padded = [first, last].iter().any(|text| text.len() > 1 && text[0] == b'0');
    let width = if is_padded { first.len().max(last.len()) } else { 0 };
    let text = |number| format!("{number:0width$}").into_bytes();
    Ok(match from <= to {
        true => (from..=to).map(text).collect(),
        false => (to..=from).rev().map(text).collect(),
    })
}

fn too_many() -> Fault {
    format!("more than {KEYS_MAX} keys")
}

/// The digits of the largest number.
const DIGITS_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(patterns: &[&str]) -> Result<String, Fault> {
        let keys = keys_of(patterns.iter().map(|pattern| pattern.as_bytes()))?;
        Ok(keys.iter().map(|key| String::from_utf8_lossy(key)).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn braces_stand_for_each_of_their_parts_as_in_a_shell() {
        for (patterns, expected) in [
            (&["a"][..], "a"),
            (&["port:{5173..5175}"], "port:5173 port:5174 port:5175"),
            (&["sim:{3..1}", "sim:x"], "sim:3 sim:2 sim:1 sim:x"),
            (&["{a,b}:{08..10}"], "a:08 a:09 a:10 b:08 b:09 b:10"),
            (&["x{,y,,y}", "xy"], "x xy"),
            (&["{sim}:{1..2}"], "{sim}:1 {sim}:2"),
            (&["a}b{1..2", "{}", "{7..7}"], "a}b{1..2 {} 7"),
            (&["a{0..1}{0..1}z"], "a00z a01z a10z a11z"),
        ] {
            assert_eq!(keys(patterns).as_deref(), Ok(expected), "{patterns:?}");
        }
    }

    #[test]
    fn too_many_keys_are_refused_before_they_are_made() {
        assert_eq!(keys(&["{1..1000}"]).map(|keys| keys.split(' ').count()), Ok(1_000));
        for (patterns, fault) in [
            (&["{1..1001}"][..], "more than 1000 keys"),
            (&["{0..18446744073709551615}"], "more than 1000 keys"),
            (&["{1..100}{1..100}{1..100}{1..100}"], "more than 1000 keys"),
            (&["{1..1000}", "a"], "more than 1000 keys"),
            (&["{1..18446744073709551616}"], "a range has two whole numbers"),
            (&["{000000000000000000001..2}"], "a range has two whole numbers"),
            (&["{a..c}"], "a range has two whole numbers"),
            (&["{-1..1}"], "a range has two whole numbers"),
            (&["{1...3}"], "a range has two whole numbers"),
            (&["{a,{b,c}}"], "a brace within another one"),
            (&[""], "the key is empty"),
            (&["{a,}"], "the key is empty"),
        ] {
            let said = keys(patterns).expect_err("a fault");
            assert!(said.contains(fault), "{patterns:?}: {said}");
        }
    }
}
