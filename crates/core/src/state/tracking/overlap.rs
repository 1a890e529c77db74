//! Overlapping prefixes of one client are refused: the client would be sent a key twice.
//!
//! Rule    the check costs one sort and is linear apart from it.

use std::collections::BTreeSet;
use std::ops::Bound::{Included, Unbounded};

use bytes::Bytes;

/// Two prefixes of which one begins with the other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Overlap<'a> {
    /// A new prefix, and one that the client has already.
    Existing(&'a [u8], &'a [u8]),
    Provided(&'a [u8], &'a [u8]),
}

impl<'a> Overlap<'a> {
    /// The overlap that Redis reports: of the first `new` prefix that overlaps with one of `old` or with a later new one.
    /// The prefixes in `old` do not overlap with each other, except with the empty one, which BCAST without a prefix adds
    /// without this check.
    pub(crate) fn first(new: &[&'a [u8]], old: &'a BTreeSet<Bytes>) -> Option<Self> {
        let existing = new.iter().enumerate().find_map(|(at, prefix)| Some((at, existing(prefix, old)?)));
        let provided = first_of_several(new);
        match (existing, provided) {
            (Some((at, other)), provided) if provided.is_none_or(|provided| at <= provided) => {
                Some(Self::Existing(new[at], other))
            }
            (_, Some(at)) => {
                let other = new[at + 1..].iter().find(|other| overlap(new[at], other))?;
                Some(Self::Provided(new[at], other))
            }
            (_, None) => None,
        }
    }
}

fn overlap(a: &[u8], b: &[u8]) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

/// The first of `old` that overlaps with `prefix`: the empty prefix, or a neighbour in the order.
fn existing<'a>(prefix: &[u8], old: &'a BTreeSet<Bytes>) -> Option<&'a [u8]> {
    let before = old.range::<[u8], _>((Unbounded, Included(prefix))).next_back();
    let behind = old.range::<[u8], _>((Included(prefix), Unbounded)).next();
    let empty = old.first().filter(|first| first.is_empty());
    [empty, before, behind].into_iter().flatten().map(|other| &other[..]).find(|other| overlap(prefix, other))
}

/// The index of the first prefix that overlaps with any other.
fn first_of_several(new: &[&[u8]]) -> Option<usize> {
    let mut sorted: Vec<usize> = (0..new.len()).collect();
    sorted.sort_by_key(|at| new[*at]);
    // Each prefix in the chain begins with the one before it.
    let mut chain: Vec<usize> = Vec::new();
    let mut first = None;
    for at in sorted {
        while chain.last().is_some_and(|top| !new[at].starts_with(new[*top])) {
            chain.pop();
        }
        if let Some(top) = chain.last() {
            first = [first, Some(at), Some(*top)].into_iter().flatten().min();
        }
        chain.push(at);
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares every pair, as Redis does.
    fn pair_by_pair<'a>(new: &[&'a [u8]], old: &'a BTreeSet<Bytes>) -> Option<Overlap<'a>> {
        new.iter().enumerate().find_map(|(at, prefix)| {
            let existing = old.iter().find(|other| overlap(prefix, other));
            let provided = new[at + 1..].iter().find(|other| overlap(prefix, other));
            let provided = provided.map(|other| Overlap::Provided(prefix, other));
            existing.map(|other| Overlap::Existing(prefix, other)).or(provided)
        })
    }

    #[test]
    fn the_overlap_found_is_the_one_that_comparing_every_pair_finds() {
        let names: [&[u8]; 7] = [b"", b"a", b"ab", b"abc", b"b", b"ba", b"bb"];
        let (mut found, mut none) = (0, 0);
        for choice in 0..7_usize.pow(4) {
            let at = |place: u32| choice / 7_usize.pow(place) % 7;
            let new = [names[at(0)], names[at(1)], names[at(2)]];
            for old in [&[][..], &[at(3)], &[4, 2], &[1, 5, 6], &[0, 1, 4]] {
                let old = old.iter().map(|at| Bytes::from_static(names[*at])).collect();
                for len in 0..=new.len() {
                    let first = Overlap::first(&new[..len], &old);
                    assert_eq!(first, pair_by_pair(&new[..len], &old), "{:?} {old:?}", &new[..len]);
                    *if first.is_some() { &mut found } else { &mut none } += 1;
                }
            }
        }
        assert!(found > 1_000 && none > 1_000, "{found} {none}");
    }

    #[test]
    fn a_hundred_thousand_prefixes_are_checked_fast() {
        let names: Vec<String> = (0..100_000).map(|n| format!("{n:06}")).collect();
        let mut new: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(Overlap::first(&new, &BTreeSet::new()), None);
        new.push(b"0999999");
        assert_eq!(Overlap::first(&new, &BTreeSet::new()), Some(Overlap::Provided(b"099999", b"0999999")));
    }
}
