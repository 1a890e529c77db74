//! Lua's patterns, matched within a budget of steps.
//!
//! Owns    the matcher: what a pattern means, and how much work it may do before it asks whether to go on.
//! Bounds  recursion by [`DEPTH_MAX`]; time by the charge, which the caller may refuse at any step.
//! Source  Lua 5.1 reference manual, 5.4.1; error texts as Lua 5.1.5 gives them. As there, a pattern ends at its first NUL.

mod single;

use std::ops::Range;

use single::{Single, in_set};

/// Why a pattern was not matched to the end.
#[derive(Debug)]
pub(super) enum Broken<E> {
    /// The pattern makes no sense, in Lua's words.
    Malformed(&'static str),
    Refused(E),
}

pub(super) const CAPTURES_MAX: usize = 32;
/// Items of a pattern that can be tried in several ways, one inside the other.
const DEPTH_MAX: usize = 220;
const STEPS_PER_CHARGE: usize = 1_000;

/// A part of the subject that a pattern has captured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Capture {
    /// These bytes.
    Bytes { start: usize, end: usize },
    /// A place: `()`.
    Place(usize),
    /// The capture began here and has not ended; to read it is an error.
    Open(usize),
}

/// The captures of a match, in the order of their parentheses.
pub(super) type Captures = smallvec::SmallVec<[Capture; 4]>;

/// A pattern on its subject.
pub(super) struct Matcher<'a, C, E> {
    subject: &'a [u8],
    pattern: &'a [u8],
    captures: &'a mut Captures,
    depth: usize,
    steps: usize,
    charge: C,
    why: Option<Broken<E>>,
}

/// The matcher goes no further; it knows why. Without a reason of its own an answer fits into two registers.
#[derive(Debug)]
struct Halt;

/// Where a match ends, if there is one.
type Found = Result<Option<usize>, Halt>;

impl<'a, E, C: FnMut(usize) -> Result<(), E>> Matcher<'a, C, E> {
    /// `pattern` without the `^` that anchors it. What a match has captured is left in `captures`. `charge` is told of every
    /// step, many at a time.
    pub(super) fn new(subject: &'a [u8], pattern: &'a [u8], captures: &'a mut Captures, charge: C) -> Self {
        let pattern = redlatch_proto::error::until_nul(pattern);
        Self { subject, pattern, captures, depth: 0, steps: 0, charge, why: None }
    }

    /// The match that begins at `start`, if there is one.
    ///
    /// # Errors
    /// For a pattern that makes no sense, as far as it was looked at, and for a charge that was refused.
    pub(super) fn at(&mut self, start: usize) -> Result<Option<Range<usize>>, Broken<E>> {
        self.captures.clear();
        self.depth = 0;
        match self.run(start, 0) {
            Ok(Some(end)) => Ok(Some(start..end)),
            Ok(None) => Ok(None),
            Err(Halt) => Err(self.reason()),
        }
    }

    /// The first match at `start` or behind it; only at `start` where the pattern is anchored.
    ///
    /// # Errors
    /// As [`Matcher::at`].
    pub(super) fn from(
        &mut self,
        start: usize,
        is_anchored: bool,
    ) -> Result<Option<Range<usize>>, Broken<E>> {
        if is_anchored {
            return self.at(start);
        }
        let (lead, mut at) = (lead(self.pattern), start);
        while at <= self.subject.len() {
            if !lead.is_empty() {
                match self.place_of(&Single::of(lead), at).map_err(|Halt| self.reason())? {
                    Some(place) => at = place,
                    None => return Ok(None),
                }
            }
            if let Some(found) = self.at(at)? {
                return Ok(Some(found));
            }
            at += 1;
        }
        Ok(None)
    }

    /// The captures of the last match.
    pub(super) fn captures(&self) -> &[Capture] {
        self.captures
    }

    #[inline]
    fn step(&mut self, steps: usize) -> Result<(), Halt> {
        self.steps += steps;
        if self.steps < STEPS_PER_CHARGE { Ok(()) } else { self.charge() }
    }

    #[cold]
    fn charge(&mut self) -> Result<(), Halt> {
        let steps = std::mem::take(&mut self.steps);
        (self.charge)(steps).map_err(|refused| self.halt(Broken::Refused(refused)))
    }

    fn reason(&mut self) -> Broken<E> {
        self.why.take().expect("whoever halts says why")
    }

    #[cold]
    fn halt(&mut self, why: Broken<E>) -> Halt {
        self.why = Some(why);
        Halt
    }

    fn malformed(&mut self, text: &'static str) -> Halt {
        self.halt(Broken::Malformed(text))
    }

    /// One level down: an item that can be tried in several ways.
    fn deeper(&mut self, at: usize, item: usize) -> Found {
        if self.depth == DEPTH_MAX {
            return Err(self.malformed("pattern too complex"));
        }
        self.depth += 1;
        let found = self.run(at, item);
        self.depth -= 1;
        found
    }

    /// Where the match ends of what follows `item` in the pattern and `at` in the subject.
    fn run(&mut self, mut at: usize, mut item: usize) -> Found {
        loop {
            self.step(1)?;
            let Some(&first) = self.pattern.get(item) else { return Ok(Some(at)) };
            let second = self.pattern.get(item + 1).copied();
            if !SPECIAL[usize::from(first)] && !second.is_some_and(is_quantifier) {
                if self.subject.get(at) != Some(&first) {
                    return Ok(None);
                }
                (at, item) = (at + 1, item + 1);
                continue;
            }
            match (first, second) {
                (b'(', Some(b')')) => return self.open(Capture::Place(at), at, item + 2),
                (b'(', _) => return self.open(Capture::Open(at), at, item + 1),
                (b')', _) => return self.close(at, item + 1),
                (b'%', Some(b'b')) => match self.balanced(at, item + 2)? {
                    Some(end) => (at, item) = (end, item + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => match self.frontier(at, item + 2)? {
                    Some(end) => item = end,
                    None => return Ok(None),
                },
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.again(at, digit)? {
                    Some(end) => (at, item) = (end, item + 2),
                    None => return Ok(None),
                },
                (b'$', None) => return Ok((at == self.subject.len()).then_some(at)),
                _ => {
                    let end = self.item_end(item)?;
                    let (pattern, quantifier) = (self.pattern, self.pattern.get(end));
                    let single = Single::of(&pattern[item..end]);
                    let fits = self.fits(at, &single)?;
                    match quantifier {
                        Some(b'?') => {
                            if fits && let Some(found) = self.deeper(at + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            item = end + 1;
                        }
                        Some(b'*') => return self.longest(at, &single, end),
                        Some(b'+') if fits => return self.longest(at + 1, &single, end),
                        Some(b'-') => return self.shortest(at, &single, end),
                        _ if !fits => return Ok(None),
                        _ => (at, item) = (at + 1, end),
                    }
                }
            }
        }
    }

    fn open(&mut self, capture: Capture, at: usize, item: usize) -> Found {
        if self.captures.len() == CAPTURES_MAX {
            return Err(self.malformed("too many captures"));
        }
        let level = self.captures.len();
        self.captures.push(capture);
        let found = self.deeper(at, item)?;
        if found.is_none() {
            self.captures.truncate(level);
        }
        Ok(found)
    }

    fn close(&mut self, at: usize, item: usize) -> Found {
        let open = self.captures.iter().enumerate().rev().find_map(|(level, capture)| match capture {
            Capture::Open(start) => Some((level, *start)),
            _ => None,
        });
        let Some((level, start)) = open else { return Err(self.malformed("invalid pattern capture")) };
        self.captures[level] = Capture::Bytes { start, end: at };
        let found = self.deeper(at, item)?;
        if found.is_none() {
            self.captures[level] = Capture::Open(start);
        }
        Ok(found)
    }

    /// `%bxy`: where the balance ends that begins at `at`.
    fn balanced(&mut self, at: usize, item: usize) -> Found {
        let &[open, close, ..] = self.pattern.get(item..).unwrap_or_default() else {
            return Err(self.malformed("unbalanced pattern"));
        };
        if self.subject.get(at) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for (ahead, byte) in self.subject[at + 1..].iter().enumerate() {
            self.step(1)?;
            if *byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + ahead + 2));
                }
            } else if *byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%f[set]`: where the pattern goes on, if a run of the set begins at `at`.
    fn frontier(&mut self, at: usize, item: usize) -> Found {
        if self.pattern.get(item) != Some(&b'[') {
            return Err(self.malformed("missing '[' after '%f' in pattern"));
        }
        let end = self.item_end(item)?;
        self.step(2 * (end - item))?;
        let before = at.checked_sub(1).map_or(0, |before| self.subject[before]);
        let here = self.subject.get(at).copied().unwrap_or(0);
        let set = &self.pattern[item..end];
        Ok((!in_set(before, set) && in_set(here, set)).then_some(end))
    }

    /// `%1`: where that capture ends when it is there once more.
    fn again(&mut self, at: usize, digit: u8) -> Found {
        let index = usize::from(digit).checked_sub(usize::from(b'1'));
        let capture = index.and_then(|index| self.captures.get(index)).copied();
        let captured = match capture {
            None | Some(Capture::Open(_)) => return Err(self.malformed("invalid capture index")),
            // A place has no bytes to come again.
            Some(Capture::Place(_)) => return Ok(None),
            Some(Capture::Bytes { start, end }) => &self.subject[start..end],
        };
        let len = captured.len();
        let is_here = self.subject[at..].starts_with(captured);
        self.step(len / 8)?;
        Ok(is_here.then_some(at + len))
    }

    /// Where the single-character item ends that begins at `item`.
    #[inline]
    fn item_end(&mut self, item: usize) -> Result<usize, Halt> {
        item_end(self.pattern, item).map_err(|text| self.malformed(text))
    }

    /// Where the first byte of that kind is from `at` on.
    #[inline]
    fn place_of(&mut self, single: &Single<'_>, mut at: usize) -> Found {
        if self.subject.get(at).is_some_and(|byte| single.has(*byte)) {
            return Ok(Some(at));
        }
        for bytes in self.subject[at..].chunks(STEPS_PER_CHARGE) {
            let found = bytes.iter().position(|byte| single.has(*byte));
            let passed = found.unwrap_or(bytes.len());
            self.step((passed / SKIPPED_PER_STEP).saturating_mul(1 + single.steps()))?;
            at += passed;
            if found.is_some() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    #[inline]
    fn fits(&mut self, at: usize, single: &Single<'_>) -> Result<bool, Halt> {
        self.step(single.steps())?;
        Ok(self.subject.get(at).is_some_and(|byte| single.has(*byte)))
    }

    /// As many as there are, then fewer.
    fn longest(&mut self, at: usize, single: &Single<'_>, end: usize) -> Found {
        let mut count = 0;
        for bytes in self.subject.get(at..).unwrap_or_default().chunks(STEPS_PER_CHARGE) {
            let fitting = bytes.iter().take_while(|byte| single.has(**byte)).count();
            self.step(fitting.saturating_mul(1 + single.steps()))?;
            count += fitting;
            if fitting < bytes.len() {
                break;
            }
        }
        loop {
            if let Some(found) = self.deeper(at + count, end + 1)? {
                return Ok(Some(found));
            }
            if count == 0 {
                return Ok(None);
            }
            count -= 1;
        }
    }

    /// None, then more.
    fn shortest(&mut self, mut at: usize, single: &Single<'_>, end: usize) -> Found {
        loop {
            if let Some(found) = self.deeper(at, end + 1)? {
                return Ok(Some(found));
            }
            if !self.fits(at, single)? {
                return Ok(None);
            }
            at += 1;
        }
    }
}

/// Where the single-character item of a pattern ends that begins at `item`; or else what is wrong.
#[inline]
fn item_end(pattern: &[u8], item: usize) -> Result<usize, &'static str> {
    match pattern[item] {
        b'%' if item + 1 == pattern.len() => Err("malformed pattern (ends with '%')"),
        b'%' => Ok(item + 2),
        b'[' => set_end(pattern, item),
        _ => Ok(item + 1),
    }
}

/// The same for a set.
fn set_end(pattern: &[u8], item: usize) -> Result<usize, &'static str> {
    let mut at = item + 1;
    at += usize::from(pattern.get(at) == Some(&b'^'));
    // A bracket that comes first stands for itself.
    loop {
        let Some(&byte) = pattern.get(at) else { return Err("malformed pattern (missing ']')") };
        at += 1;
        if byte == b'%' && at < pattern.len() {
            at += 1;
        }
        if pattern.get(at) == Some(&b']') {
            return Ok(at + 1);
        }
    }
}

/// The item that every match begins with, where that is one byte of some kind: none begins elsewhere. Empty where nothing
/// is known.
fn lead(pattern: &[u8]) -> &[u8] {
    let opened = pattern.iter().take_while(|byte| **byte == b'(').count();
    let item = &pattern[opened..];
    if opened >= CAPTURES_MAX
        || matches!(item, [] | [b')' | b'$', ..] | [b'%', b'b' | b'f' | b'0'..=b'9', ..])
    {
        return &[];
    }
    match item_end(item, 0) {
        Ok(end) if !matches!(item.get(end), Some(b'*' | b'?' | b'-')) => &item[..end],
        _ => &[],
    }
}

/// Bytes that are passed over in one step where no match can begin.
const SKIPPED_PER_STEP: usize = 8;

/// Bytes of a pattern that stand for more than themselves.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let (bytes, mut at) = (b"()%$.[", 0);
    while at < bytes.len() {
        special[bytes[at] as usize] = true;
        at += 1;
    }
    special
};

/// Whether this byte says how often the item before it may come.
fn is_quantifier(byte: u8) -> bool {
    matches!(byte, b'?' | b'*' | b'+' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Option<(Range<usize>, Vec<Capture>)>;

    fn find(subject: &str, pattern: &str) -> Result<Seen, String> {
        let charge = |_: usize| Ok::<(), &'static str>(());
        let is_anchored = pattern.starts_with('^');
        let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
        let mut captures = Captures::new();
        let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
        let found = Matcher::new(subject, pattern, &mut captures, charge).from(0, is_anchored);
        match found {
            Ok(found) => Ok(found.map(|whole| (whole, captures.to_vec()))),
            Err(Broken::Malformed(text)) => Err(text.to_owned()),
            Err(Broken::Refused(text)) => Err(text.to_owned()),
        }
    }

    fn whole(subject: &str, pattern: &str) -> Option<Range<usize>> {
        find(subject, pattern).unwrap().map(|(whole, _)| whole)
    }

    #[test]
    fn items_match_as_the_manual_says() {
        for (subject, pattern, expected) in [
            ("hello", "l+", Some(2..4)),
            ("hello", "l-o", Some(2..5)),
            ("hello", "^l", None),
            ("hello", "o$", Some(4..5)),
            ("a.b", "%.", Some(1..2)),
            ("x[y]", "%b[]", Some(1..4)),
            ("THE (quick) fox", "%f[%a]%a+", Some(0..3)),
            ("abab", "(ab)%1", Some(0..4)),
            ("a]b", "[]]", Some(1..2)),
            ("a-b", "[a%-]+", Some(0..2)),
            ("abc", "[^a-b]", Some(2..3)),
            ("", "a*", Some(0..0)),
            ("aXb", "%u", Some(1..2)),
            ("ab", "ab?c?", Some(0..2)),
        ] {
            assert_eq!(whole(subject, pattern), expected, "{subject} {pattern}");
        }
    }

    #[test]
    fn no_match_is_passed_over() {
        const ITEMS: [&str; 19] = [
            "a", "b", ".", "%d", "%A", "[ab]", "[^a]", "[a-", "%", "(", ")", "()", "*", "+", "-", "?", "$",
            "%b()", "%f[a]",
        ];
        let mut state = 1_u64;
        let mut draw = |end: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % end
        };
        let mut found = 0;
        for _ in 0..20_000 {
            let pattern: String = (0..1 + draw(5)).map(|_| ITEMS[draw(ITEMS.len())]).collect();
            let subject: String = (0..draw(9)).map(|_| ["a", "b", "1", "(", ")"][draw(5)]).collect();
            let (mut captures, mut others) = (Captures::new(), Captures::new());
            let charge = |_: usize| Ok::<(), ()>(());
            let (subject, pattern) = (subject.as_bytes(), pattern.as_bytes());
            let first = Matcher::new(subject, pattern, &mut captures, charge).from(0, false);
            let mut matcher = Matcher::new(subject, pattern, &mut others, charge);
            let one_by_one =
                (0..=subject.len()).map(|at| matcher.at(at)).find(|found| !matches!(found, Ok(None)));
            let seen = format!("{first:?} {captures:?}");
            found += usize::from(matches!(first, Ok(Some(_))));
            let expected = format!("{:?} {:?}", one_by_one.unwrap_or(Ok(None)), others);
            assert!(
                seen == expected || !matches!(first, Ok(Some(_))) && seen[..8] == expected[..8],
                "{seen} {expected}"
            );
        }
        assert!(found > 3_000, "{found}");
    }

    #[test]
    fn captures_are_bytes_or_places() {
        let (_, captures) = find("key=val", "()(%w+)=(%w*)()").unwrap().unwrap();
        let bytes = |start, end| Capture::Bytes { start, end };
        assert_eq!(captures, [Capture::Place(0), bytes(0, 3), bytes(4, 7), Capture::Place(7)]);
    }

    #[test]
    fn patterns_without_sense_are_refused_in_luas_words() {
        for (pattern, text) in [
            ("[a", "malformed pattern (missing ']')"),
            ("%", "malformed pattern (ends with '%')"),
            ("a)", "invalid pattern capture"),
            ("%1", "invalid capture index"),
            ("%f", "missing '[' after '%f' in pattern"),
            ("%b", "unbalanced pattern"),
        ] {
            assert_eq!(find("aaa", pattern), Err(text.to_owned()), "{pattern}");
        }
        assert_eq!(find("a", &"(".repeat(40)), Err("too many captures".to_owned()));
        assert_eq!(find("a", &"a?".repeat(4_000)).err().as_deref(), None, "the first finds its end at once");
    }

    #[test]
    fn an_exponential_pattern_ends_when_the_charge_is_refused() {
        let mut left = 10;
        let charge = |_: usize| {
            left -= 1;
            if left == 0 { Err("enough") } else { Ok(()) }
        };
        let subject = "a".repeat(40);
        let pattern = "a*".repeat(20) + "b";
        let (subject, pattern, mut captures) = (subject.as_bytes(), pattern.as_bytes(), Captures::new());
        let found = Matcher::new(subject, pattern, &mut captures, charge).from(0, false);
        assert!(matches!(found, Err(Broken::Refused("enough"))), "{found:?}");
    }
}
