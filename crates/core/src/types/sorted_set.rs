//! Sorted sets: members ordered by their scores, and by their bytes where scores are equal.
//!
//! Rule    no score is NaN. A set is a vector as long as Redis stores it as a listpack. A larger set has an index, and
//!         keeps it when it shrinks.
//! Source  Redis 7.0 `t_zset.c`: when `zsetAdd` converts, and which members a range by member finds if scores differ.

mod bounds;
mod order;
mod ranked;
mod small;

use std::ops::Range;

use super::{Seed, Shape};
pub(crate) use bounds::{LexBound, LexRange, ScoreRange};
use ranked::Ranked;
use small::Small;

/// Members ordered by their scores.
#[derive(Clone, Debug)]
pub struct SortedSet {
    form: Form,
    /// The seed of the index.
    seed: Seed,
}

#[derive(Clone, Debug)]
enum Form {
    Small(Small),
    Ranked(Box<Ranked>),
}

impl SortedSet {
    /// An empty set.
    pub fn new(seed: Seed) -> Self {
        Self { form: Form::Small(Small::default()), seed }
    }

    /// A set of entries with different members. It has their final form from the beginning, since a large set keeps the
    /// sign of a zero and a small one does not.
    pub fn of<'a>(entries: impl ExactSizeIterator<Item = (&'a [u8], f64)> + Clone, seed: Seed) -> Self {
        let mut set = Self::new(seed);
        let is_long = |(member, _): (&[u8], f64)| member.len() > SMALL_BYTES_MAX;
        if entries.len() > SMALL_MEMBERS_MAX || entries.clone().any(is_long) {
            set.become_skiplist();
        }
        for (member, score) in entries {
            set.insert(member, score);
        }
        set
    }

    /// Adds `member`, or changes its score. Returns its previous score, if it was a member.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        if let Form::Small(small) = &mut self.form {
            if let Some((rank, old)) = small.rank(member) {
                if old != score {
                    small.remove_range(rank..rank + 1);
                    small.insert(member, score);
                }
                return Some(old);
            }
            if small.len() < SMALL_MEMBERS_MAX && member.len() <= SMALL_BYTES_MAX {
                small.insert(member, score);
                return None;
            }
        }
        self.ranked().insert(member, score)
    }

    /// Removes `member`. Returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Form::Small(small) => {
                let (rank, score) = small.rank(member)?;
                small.remove_range(rank..rank + 1);
                Some(score)
            }
            Form::Ranked(ranked) => ranked.remove(member),
        }
    }

    /// Removes the members of these ranks, all of which exist.
    pub(crate) fn remove_range(&mut self, ranks: Range<usize>) {
        match &mut self.form {
            Form::Small(small) => small.remove_range(ranks),
            Form::Ranked(ranked) => {
                for _ in ranks.clone() {
                    let first = ranked.range(ranks.start..ranks.start + 1).next();
                    let Some(member) = first.map(|(member, _)| Box::<[u8]>::from(member)) else { return };
                    ranked.remove(&member);
                }
            }
        }
    }

    /// Counts as a skip list from now on, however few members there are.
    pub(crate) fn become_skiplist(&mut self) {
        self.ranked();
    }

    /// The score of `member`.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Small(small) => small.rank(member).map(|(_, score)| score),
            Form::Ranked(ranked) => ranked.score(member),
        }
    }

    /// The number of members before `member`, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.form {
            Form::Small(small) => small.rank(member),
            Form::Ranked(ranked) => ranked.rank(member),
        }
    }

    /// The entries of these ranks, all of which exist, lowest score first.
    pub fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        let (small, ranked) = match &self.form {
            Form::Small(small) => (Some(small.range(ranks)), None),
            Form::Ranked(ranked) => (None, Some(ranked.range(ranks))),
        };
        small.into_iter().flatten().chain(ranked.into_iter().flatten())
    }

    /// All entries, lowest score first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (&[u8], f64)> {
        self.range(0..self.len())
    }

    /// The ranks of the members with these scores.
    pub(crate) fn ranks_by_score(&self, range: &ScoreRange) -> Range<usize> {
        let (from, to) = match &self.form {
            Form::Small(small) => (
                small.all().take_while(|(_, score)| range.is_above(*score)).count(),
                small.all().take_while(|(_, score)| range.reaches(*score)).count(),
            ),
            Form::Ranked(ranked) => (
                ranked.count_before(|_, score| range.is_above(score)),
                ranked.count_before(|_, score| range.reaches(score)),
            ),
        };
        from..to.max(from)
    }

    /// The ranks of the members within a range. If scores differ, a small set returns what Redis finds, which depends on
    /// the end where the search begins; a large set returns some range.
    pub(crate) fn ranks_by_member(&self, range: &LexRange<'_>, is_from_the_end: bool) -> Range<usize> {
        let (from, to) = match &self.form {
            // Redis compares the first and the last member first, as if the members were in order.
            Form::Small(small) if small.all().next().is_none_or(|(member, _)| !range.reaches(member)) => {
                (0, 0)
            }
            Form::Small(small)
                if small.all().next_back().is_none_or(|(member, _)| !range.starts_by(member)) =>
            {
                (0, 0)
            }
            Form::Small(_) if range.is_void() => (0, 0),
            Form::Small(small) => match is_from_the_end {
                false => {
                    let from = small.all().take_while(|(member, _)| !range.starts_by(member)).count();
                    let inside =
                        small.range(from..small.len()).take_while(|(member, _)| range.reaches(member));
                    (from, from + inside.count())
                }
                true => {
                    let behind = small.all().rev().take_while(|(member, _)| !range.reaches(member)).count();
                    let to = small.len() - behind;
                    let inside = small.range(0..to).rev().take_while(|(member, _)| range.starts_by(member));
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

    /// Visits about `count` entries from `cursor` on, and returns the next cursor; 0 at the end.
    ///
    /// A scan begins with cursor 0. A member that exists during the whole scan is visited at least once. A small set is
    /// visited in one step.
    pub fn scan(&self, cursor: u64, count: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        let ranked = match &self.form {
            Form::Small(small) => {
                small.all().for_each(|(member, score)| visit(member, score));
                return 0;
            }
            Form::Ranked(ranked) => ranked,
        };
        // From the last slot down: a removal moves the last member to a lower slot. The scan has visited that member
        // already, or visits it there.
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
        if let Form::Small(small) = &self.form {
            self.form = Form::Ranked(Box::new(Ranked::new(small.all(), self.seed)));
        }
        match &mut self.form {
            Form::Ranked(ranked) => ranked,
            Form::Small(_) => unreachable!("the set has just been indexed"),
        }
    }

    /// Panics if an invariant is broken.
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
            Form::Small(_) => "listpack",
            Form::Ranked(_) => "skiplist",
        }
    }

    fn len(&self) -> usize {
        match &self.form {
            Form::Small(small) => small.len(),
            Form::Ranked(ranked) => ranked.len(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Small(small) => small.heap_bytes(),
            Form::Ranked(ranked) => size_of::<Ranked>() + ranked.heap_bytes(),
        }
    }
}

/// Maximum number of members of a small set: Redis' `zset-max-listpack-entries`.
const SMALL_MEMBERS_MAX: usize = 128;
/// Maximum bytes of a member of a small set: Redis' `zset-max-listpack-value`.
const SMALL_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests;
