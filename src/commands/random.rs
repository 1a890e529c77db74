//! Draws by chance: what HRANDFIELD, SPOP, SRANDMEMBER and ZRANDMEMBER have in common.
//!
//! Rule    a request that asks for any number of elements is answered with a bounded number of bytes, or refused.
//! Source  Redis 7.0 `hrandfieldWithCountCommand`, `srandmemberWithCountCommand`, `zrandmemberWithCountCommand`.

use std::collections::BTreeSet;

use crate::commands::{Args, Shared};
use crate::error::Refusal;

/// Bytes of elements that may be drawn again and again for one reply. Redis has no such bound, and goes on for as long
/// as it has memory.
pub(super) const DRAWN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes that a bulk string has beside its own: even nothing at all takes a few to be said.
pub(super) const BULK_BYTES: usize = 6;
/// A value of which less than one element in so many is wanted is not walked through for them.
const SPARSE: usize = 8;

/// Takes how many elements are wanted; below zero: that many, the same one perhaps more than once.
///
/// # Errors
/// [`Refusal::NotAnInteger`]; a text of its own for the one integer that has no opposite.
pub(super) fn count(args: &mut Args<'_>) -> Result<i64, Refusal> {
    match args.integer()? {
        i64::MIN => Err(Refusal::said(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        )),
        count => Ok(count),
    }
}

/// What is said to who wants more than can be answered.
pub(super) fn too_much() -> Refusal {
    Refusal::said("ERR value is out of range")
}

/// A number below `end`, each as likely as any other; 0 when there is none.
pub(super) fn below(end: usize, shared: &Shared) -> usize {
    (u128::from(shared.random()).saturating_mul(end as u128) >> 64) as usize
}

/// `count` of the numbers below `end`, of which there are so many: every choice of them is as likely as any other.
pub(super) fn places(end: usize, count: usize, shared: &Shared) -> BTreeSet<usize> {
    // Each step takes one number more into the choice: the one drawn or, if that is in already, the newest.
    let mut chosen = BTreeSet::new();
    for newest in end.saturating_sub(count)..end {
        let drawn = below(newest.saturating_add(1), shared);
        if !chosen.insert(drawn) {
            chosen.insert(newest);
        }
    }
    chosen
}

/// Gives `take` so many of the `len` elements of a value, of which there are so many, none of them twice and in their
/// order: every choice is as likely as any other. Few are looked up, many are met on a walk through all of them.
pub(super) fn distinct<T>(
    (len, count): (usize, usize),
    at: impl Fn(usize) -> Option<T>,
    all: impl Iterator<Item = T>,
    shared: &Shared,
    take: impl FnMut(T),
) {
    if count < len / SPARSE {
        places(len, count, shared).into_iter().filter_map(at).for_each(take);
        return;
    }
    let (mut wanted, mut left) = (count, len);
    let is_chosen = |_: &T| {
        let is_chosen = below(left, shared) < wanted;
        wanted = wanted.saturating_sub(usize::from(is_chosen));
        left = left.saturating_sub(1);
        is_chosen
    };
    all.filter(is_chosen).for_each(take);
}
