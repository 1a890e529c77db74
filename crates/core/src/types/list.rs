//! Lists of elements.
//!
//! Owns    the elements. Both ends and any index are reached in constant time; an insert in the middle moves elements.
//! Rule    an index counts from the head, from 0. The caller translates a client's negative index.
//! Source  Redis 7.0 calls every list a quicklist.

use std::collections::VecDeque;

use super::{Element, Shape};

#[derive(Clone, Debug, Default)]
pub struct List {
    elements: VecDeque<Element>,
    /// Bytes of all elements on the heap.
    long_bytes: usize,
}

/// One end of a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The left end, where index 0 is.
    Head,
    Tail,
}

/// Capacity that a list keeps.
const CAPACITY_MIN: usize = 32;

impl List {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an element at an end.
    #[inline]
    pub fn push(&mut self, end: End, bytes: &[u8]) {
        let element = self.element(bytes);
        match end {
            End::Head => self.elements.push_front(element),
            End::Tail => self.elements.push_back(element),
        }
    }

    /// Removes the element at an end, if there is one.
    #[inline]
    pub fn pop(&mut self, end: End) -> Option<Element> {
        let element = match end {
            End::Head => self.elements.pop_front(),
            End::Tail => self.elements.pop_back(),
        }?;
        self.long_bytes -= element.heap_bytes();
        self.shrink();
        Some(element)
    }

    /// Removes `count` elements at an end, or all.
    pub(crate) fn drop_from(&mut self, end: End, count: usize) {
        let len = self.len();
        let count = count.min(len);
        match end {
            End::Head => self.keep(count, len),
            End::Tail => self.keep(0, len - count),
        }
    }

    /// Keeps the elements from `start` up to `end` and removes the others.
    pub fn keep(&mut self, start: usize, end: usize) {
        let end = end.min(self.len());
        let start = start.min(end);
        let gone: usize =
            self.elements.range(..start).chain(self.elements.range(end..)).map(Element::heap_bytes).sum();
        self.long_bytes -= gone;
        self.elements.truncate(end);
        self.elements.drain(..start);
        self.shrink();
    }

    /// Replaces the element at `index`. Returns false if there is none.
    pub fn set(&mut self, index: usize, bytes: &[u8]) -> bool {
        let Some(place) = self.elements.get_mut(index) else { return false };
        let new = Element::new(bytes);
        self.long_bytes = self.long_bytes - place.heap_bytes() + new.heap_bytes();
        *place = new;
        true
    }

    /// Inserts an element before the one at `index`, or at the tail if there is none.
    pub fn insert(&mut self, index: usize, bytes: &[u8]) {
        let element = self.element(bytes);
        self.elements.insert(index.min(self.elements.len()), element);
    }

    /// Removes up to `limit` elements equal to `bytes`, from `end` on. Returns their number.
    pub fn remove(&mut self, bytes: &[u8], end: End, limit: usize) -> usize {
        let all = self.elements.iter().filter(|element| element.as_bytes() == bytes).count();
        let count = all.min(limit);
        if count == 0 {
            return 0;
        }
        // From the head: matches to skip, then matches to remove.
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
        self.shrink();
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

    /// The elements from `start` up to `end`. Neither exceeds the length, and `start` does not exceed `end`.
    pub fn range(
        &self,
        start: usize,
        end: usize,
    ) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.elements.range(start..end).map(Element::as_bytes)
    }

    fn element(&mut self, bytes: &[u8]) -> Element {
        let element = Element::new(bytes);
        self.long_bytes += element.heap_bytes();
        element
    }

    /// Frees memory once three quarters of the capacity are unused, so that a queue that was long does not stay large.
    #[inline]
    fn shrink(&mut self) {
        let (len, places) = (self.elements.len(), self.elements.capacity());
        if places > CAPACITY_MIN && len < places / 4 {
            self.elements.shrink_to((len * 2).max(CAPACITY_MIN));
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

#[cfg(test)]
mod tests;
