//! Members ordered by their scores, and by their bytes where scores are equal.
//!
//! Rule    no score is NaN. A set is kept in one piece of memory as long as Redis keeps it as a listpack, and never goes
//!         back to that form.
//! Source  Redis 7.0 `t_zset.c`: when `zsetAdd` converts, what a range by member finds where scores differ.

mod bounds;
mod order;
mod packed;
mod ranked;

use std::ops::Range;

use super::{Seed, Shape};
pub use bounds::{LexBound, LexRange, ScoreRange};
use packed::Packed;
use ranked::Ranked;

/// Members ordered by their scores.
#[derive(Clone, Debug)]
pub struct SortedSet {
    form: Form,
    /// Of the index.
    seed: Seed,
}

#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Ranked(Box<Ranked>),
}

impl SortedSet {
    /// An empty set.
    pub fn new(seed: Seed) -> Self {
        Self { form: Form::Packed(Packed::default()), seed }
    }

    /// Adds `member`, or gives it another score; returns the score before, if it was there.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        if let Form::Packed(packed) = &mut self.form {
            if let Some(place) = packed.find(member) {
                if place.score != score {
                    packed.move_to(place, member, score);
                }
                return Some(place.score);
            }
            if packed.len() < PACKED_MEMBERS_MAX && member.len() <= PACKED_BYTES_MAX {
                packed.insert(member, score);
                return None;
            }
        }
        self.ranked().insert(member, score)
    }

    /// Takes out `member`; returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Form::Packed(packed) => {
                let place = packed.find(member)?;
                packed.remove(place);
                Some(place.score)
            }
            Form::Ranked(ranked) => ranked.remove(member).map(|(_, score)| score),
        }
    }

    /// Removes the members of these ranks, which are all there.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        match &mut self.form {
            Form::Packed(packed) => packed.remove_range(ranks.start, ranks.end),
            Form::Ranked(ranked) => {
                for _ in ranks.clone() {
                    let first = ranked.range(ranks.start, ranks.end).next();
                    let Some(member) = first.map(|(member, _)| Box::<[u8]>::from(member)) else { return };
                    ranked.remove(&member);
                }
            }
        }
    }

    /// The score of `member`.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Packed(packed) => packed.find(member).map(|place| place.score),
            Form::Ranked(ranked) => ranked.score(member),
        }
    }

    /// How many members stand before `member`, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.form {
            Form::Packed(packed) => packed.find(member).map(|place| (place.rank, place.score)),
            Form::Ranked(ranked) => ranked.rank(member),
        }
    }

    /// The entries of these ranks, all of which are there, lowest first; they can be read from either end.
    pub fn range(&self, ranks: Range<usize>) -> Entries<'_> {
        Entries(match &self.form {
            Form::Packed(packed) => Inner::Packed(packed.range(ranks.start, ranks.end)),
            Form::Ranked(ranked) => Inner::Ranked(ranked.range(ranks.start, ranks.end)),
        })
    }

    /// All entries, lowest first.
    pub fn entries(&self) -> Entries<'_> {
        self.range(0..self.len())
    }

    /// The ranks of the members with these scores.
    pub fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        let (from, to) = match &self.form {
            Form::Packed(packed) => (
                packed.all().take_while(|(_, score)| range.is_above(*score)).count(),
                packed.all().take_while(|(_, score)| range.reaches(*score)).count(),
            ),
            Form::Ranked(ranked) => (
                ranked.count_before(|_, score| range.is_above(score)),
                ranked.count_before(|_, score| range.reaches(score)),
            ),
        };
        from..to.max(from)
    }

    /// The ranks of the members from one to another. Where scores differ it is what Redis finds in a small set, which
    /// depends on the end from which it looks; in a large one it is some range.
    pub fn ranks_by_member(&self, range: &LexRange<'_>, is_from_the_end: bool) -> Range<usize> {
        let (from, to) = match &self.form {
            // Redis asks the ends first, as if the members were in order.
            Form::Packed(packed) if packed.all().next().is_none_or(|(member, _)| !range.reaches(member)) => {
                (0, 0)
            }
            Form::Packed(packed)
                if packed.all().next_back().is_none_or(|(member, _)| !range.starts_by(member)) =>
            {
                (0, 0)
            }
            Form::Packed(_) if range.is_void() => (0, 0),
            Form::Packed(packed) => match is_from_the_end {
                false => {
                    let from = packed.all().take_while(|(member, _)| !range.starts_by(member)).count();
                    let inside =
                        packed.range(from, packed.len()).take_while(|(member, _)| range.reaches(member));
                    (from, from + inside.count())
                }
                true => {
                    let behind = packed.all().rev().take_while(|(member, _)| !range.reaches(member)).count();
                    let to = packed.len() - behind;
                    let inside = packed.range(0, to).rev().take_while(|(member, _)| range.starts_by(member));
                    (to - inside.count(), to)
                }
            },
            Form::Ranked(ranked) => (
                ranked.count_before(|member, _| !range.starts_by(member)),
                ranked.count_before(|member, _| range.reaches(member)),
            ),
        };
        from..to.max(from)
    }

    /// A part of a walk over the set, which begins with cursor 0: visits about `count` entries and returns the next
    /// cursor, 0 at the end. A member that is there all the time is visited. A small set is visited at once.
    pub fn scan(&self, cursor: u64, count: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        let ranked = match &self.form {
            Form::Packed(packed) => {
                packed.all().for_each(|(member, score)| visit(member, score));
                return 0;
            }
            Form::Ranked(ranked) => ranked,
        };
        // From the last slot down: the member that moves when another leaves goes to where the walk has yet to come,
        // or has been visited already.
        let len = ranked.len() as u64;
        let start = if cursor == 0 { len } else { cursor.min(len) };
        let end = start.saturating_sub(count);
        for slot in (end..start).rev() {
            if let Some((member, score)) = ranked.slot(slot as usize) {
                visit(member, score);
            }
        }
        end
    }

    fn ranked(&mut self) -> &mut Ranked {
        if let Form::Packed(packed) = &self.form {
            self.form = Form::Ranked(Box::new(Ranked::new(packed.all(), self.seed)));
        }
        match &mut self.form {
            Form::Ranked(ranked) => ranked,
            Form::Packed(_) => unreachable!("the set has just been given the other form"),
        }
    }

    /// Panics if the set contradicts itself.
    #[cfg(test)]
    fn assert_laws(&self) {
        if let Form::Ranked(ranked) = &self.form {
            ranked.assert_laws();
        }
        let entries: Vec<_> = self.entries().collect();
        assert_eq!(entries.len(), self.len());
        let in_order = |pair: &[(&[u8], f64)]| bounds::precedes(pair[0].1, pair[0].0, pair[1].1, pair[1].0);
        assert!(entries.windows(2).all(in_order), "{entries:?}");
    }
}

impl PartialEq for SortedSet {
    fn eq(&self, other: &Self) -> bool {
        self.encoding() == other.encoding() && self.len() == other.len() && self.entries().eq(other.entries())
    }
}

impl Shape for SortedSet {
    fn type_name(&self) -> &'static str {
        "zset"
    }

    fn encoding(&self) -> &'static str {
        match self.form {
            Form::Packed(_) => "listpack",
            Form::Ranked(_) => "skiplist",
        }
    }

    fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len(),
            Form::Ranked(ranked) => ranked.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Ranked(ranked) => size_of::<Ranked>() + ranked.heap_bytes(),
        }
    }
}

/// Members and scores that stand together, read from either end.
#[derive(Clone, Debug)]
pub struct Entries<'a>(Inner<'a>);

#[derive(Clone, Debug)]
enum Inner<'a> {
    Packed(packed::Entries<'a>),
    Ranked(ranked::Entries<'a>),
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Inner::Packed(entries) => entries.next(),
            Inner::Ranked(entries) => entries.next(),
        }
    }
}

impl DoubleEndedIterator for Entries<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Inner::Packed(entries) => entries.next_back(),
            Inner::Ranked(entries) => entries.next_back(),
        }
    }
}

/// Members of a small set at most: `zset-max-listpack-entries` of Redis.
const PACKED_MEMBERS_MAX: usize = 128;
/// Bytes of a member of a small set at most: `zset-max-listpack-value` of Redis.
const PACKED_BYTES_MAX: usize = 64;

const _: () =
    assert!(PACKED_BYTES_MAX <= packed::MEMBER_BYTES_MAX && PACKED_MEMBERS_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests;
