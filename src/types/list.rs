//! A list: elements in a row, with two ends.
//!
//! Owns    the elements. Both ends and any index are reached in constant time; the middle moves.
//! Rule    an index counts from the head, from 0; what a client's negative index means is the caller's business.
//! Source  Redis 7.0 calls every list a quicklist.

use std::collections::VecDeque;

use super::{Element, Shape};

/// Elements in a row.
#[derive(Clone, Debug, Default)]
pub struct List {
    elements: VecDeque<Element>,
    /// What the elements have on the heap, all together.
    long_bytes: usize,
}

/// One end of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The left one, where index 0 is.
    Head,
    /// The right one.
    Tail,
}

/// Places that a list keeps, however few are taken.
const PLACES_MIN: usize = 32;

impl List {
    /// One without elements.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an element at an end.
    #[inline]
    pub fn push(&mut self, end: End, bytes: &[u8]) {
        let element = self.took(bytes);
        match end {
            End::Head => self.elements.push_front(element),
            End::Tail => self.elements.push_back(element),
        }
    }

    /// Takes the element at an end, if there is one.
    #[inline]
    pub fn pop(&mut self, end: End) -> Option<Element> {
        let element = match end {
            End::Head => self.elements.pop_front(),
            End::Tail => self.elements.pop_back(),
        }?;
        self.long_bytes -= element.heap_bytes();
        self.slim();
        Some(element)
    }

    /// Takes `count` elements away at an end, or all there are.
    pub fn drop_from(&mut self, end: End, count: usize) {
        let len = self.len();
        let count = count.min(len);
        match end {
            End::Head => self.keep(count, len),
            End::Tail => self.keep(0, len - count),
        }
    }

    /// Keeps the elements from `start` on and before `end`; the others are gone.
    pub fn keep(&mut self, start: usize, end: usize) {
        let end = end.min(self.len());
        let start = start.min(end);
        let gone: usize = self.elements.range(..start).chain(self.elements.range(end..)).map(heap).sum();
        self.long_bytes -= gone;
        self.elements.truncate(end);
        self.elements.drain(..start);
        self.slim();
    }

    /// Puts an element in place of the one at `index`; false when there is none.
    pub fn set(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.elements.get_mut(index) else { return false };
        let new = Element::new(bytes);
        self.long_bytes = self.long_bytes - place.heap_bytes() + new.heap_bytes();
        *place = new;
        true
    }

    /// Puts an element before the one at `index`; at the tail when there is none.
    pub fn insert(&mut self, index: usize, bytes: &[u8]) {
        let element = self.took(bytes);
        self.elements.insert(index.min(self.elements.len()), element);
    }

    /// Takes away elements that equal `bytes`, from `end` on, at most `limit`; how many it took.
    pub fn remove(&mut self, bytes: &[u8], end: End, limit: usize) -> usize {
        let all = self.elements.iter().filter(|element| element.as_bytes() == bytes).count();
        let count = all.min(limit);
        if count == 0 {
            return 0;
        }
        // Seen from the head: pass over those that stay, then take the others.
        let mut passed = if end == End::Tail { all - count } else { 0 };
        let mut left = count;
        let mut freed = 0;
        self.elements.retain(|element| {
            if left == 0 || element.as_bytes() != bytes {
                return true;
            }
            if passed > 0 {
                passed -= 1;
                return true;
            }
            left -= 1;
            freed += element.heap_bytes();
            false
        });
        self.long_bytes -= freed;
        self.slim();
        count
    }

    /// The element at `index`, if there is one.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.elements.get(index).map(Element::as_bytes)
    }

    /// The elements from the head on.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.elements.iter().map(Element::as_bytes)
    }

    /// The elements from `start` on and before `end`; both at most the list's length, and `start` no more than `end`.
    pub fn range(
        &self,
        start: usize,
        end: usize,
    ) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.elements.range(start..end).map(Element::as_bytes)
    }

    fn took(&mut self, bytes: &[u8]) -> Element {
        let element = Element::new(bytes);
        self.long_bytes += element.heap_bytes();
        element
    }

    /// Gives memory back once three places of four stand empty: a queue that was long once is not large for ever.
    #[inline]
    fn slim(&mut self) {
        let (len, places) = (self.elements.len(), self.elements.capacity());
        if places > PLACES_MIN && len < places / 4 {
            self.elements.shrink_to((len * 2).max(PLACES_MIN));
        }
    }
}

impl End {
    /// The other end.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Head => Self::Tail,
            Self::Tail => Self::Head,
        }
    }
}

impl Shape for List {
    fn type_name(&self) -> &'static str {
        "list"
    }

    fn encoding(&self) -> &'static str {
        "quicklist"
    }

    #[inline]
    fn len(&self) -> usize {
        self.elements.len()
    }

    fn heap_bytes(&self) -> usize {
        self.elements.capacity() * size_of::<Element>() + self.long_bytes
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.elements == other.elements
    }
}

impl Eq for List {}

impl<'a> FromIterator<&'a [u8]> for List {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(elements: I) -> Self {
        let mut list = Self::new();
        for element in elements {
            list.push(End::Tail, element);
        }
        list
    }
}

fn heap(element: &Element) -> usize {
    element.heap_bytes()
}

#[cfg(test)]
mod tests;
