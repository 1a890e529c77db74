//! The order of a sorted set, and the ranges that commands ask for in it.

use std::cmp::Ordering;

/// Whether the first entry comes before the second: by score, and by member if the scores are equal. The two zeros are
/// equal, and no score is NaN.
#[inline]
pub(super) fn precedes(a_score: f64, a: &[u8], b_score: f64, b: &[u8]) -> bool {
    match a_score.partial_cmp(&b_score) {
        Some(Ordering::Less) => true,
        Some(Ordering::Greater) => false,
        _ => a < b,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScoreRange {
    /// The lowest score.
    pub min: f64,
    /// Whether the lowest score itself is outside.
    pub is_min_open: bool,
    /// The highest score.
    pub max: f64,
    /// Whether the highest score itself is outside.
    pub is_max_open: bool,
}

impl ScoreRange {
    /// Whether `score` is below the range.
    pub(super) fn is_above(&self, score: f64) -> bool {
        if self.is_min_open { score <= self.min } else { score < self.min }
    }

    /// Whether `score` is not above the range.
    pub(super) fn reaches(&self, score: f64) -> bool {
        if self.is_max_open { score < self.max } else { score <= self.max }
    }
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LexBound<'a> {
    /// Before all members.
    First,
    /// This member, which is inside.
    Closed(&'a [u8]),
    /// This member, which is outside.
    Open(&'a [u8]),
    Last,
}

/// A range of members, for sets in which all scores are equal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LexRange<'a> {
    pub min: LexBound<'a>,
    pub max: LexBound<'a>,
}

impl LexRange<'_> {
    /// Whether the range is empty whatever the set.
    pub(super) fn is_void(&self) -> bool {
        match (self.min, self.max) {
            (LexBound::Closed(min), LexBound::Closed(max)) => min > max,
            (LexBound::Closed(min) | LexBound::Open(min), LexBound::Closed(max) | LexBound::Open(max)) => {
                min >= max
            }
            (min, max) => min == LexBound::Last || max == LexBound::First,
        }
    }

    /// Whether `member` is not below the range.
    pub(super) fn starts_by(&self, member: &[u8]) -> bool {
        match self.min {
            LexBound::First => true,
            LexBound::Closed(bound) => member >= bound,
            LexBound::Open(bound) => member > bound,
            LexBound::Last => false,
        }
    }

    /// Whether `member` is not above the range.
    pub(super) fn reaches(&self, member: &[u8]) -> bool {
        match self.max {
            LexBound::First => false,
            LexBound::Closed(bound) => member <= bound,
            LexBound::Open(bound) => member < bound,
            LexBound::Last => true,
        }
    }
}
