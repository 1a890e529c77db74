//! What can be changed in a list under a key.

use bytes::Bytes;

use super::Editor;
use crate::journal::{Edit, ListEdit};
use crate::types::list::End;
use crate::types::{Element, List, Shape};

impl Editor<'_, List> {
    /// Adds an element at an end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        let effect = || Edit::List(ListEdit::Push { end, element: Bytes::copy_from_slice(element) });
        self.change(|list| list.push(end, element), effect);
    }

    /// Takes the element at an end, if there is one.
    pub fn pop(&mut self, end: End) -> Option<Element> {
        self.try_change(|list| list.pop(end), |_| Edit::List(ListEdit::Drop { end, count: 1 }))
    }

    /// Takes `count` elements away at an end, or all there are.
    pub fn drop_from(&mut self, end: End, count: usize) {
        if count > 0 {
            self.change(|list| list.drop_from(end, count), || Edit::List(ListEdit::Drop { end, count }));
        }
    }

    /// Keeps the elements from `start` on and before `end`; the others are gone.
    pub fn keep(&mut self, start: usize, end: usize) {
        if start > 0 || end < self.get().len() {
            self.change(|list| list.keep(start, end), || Edit::List(ListEdit::Keep { start, end }));
        }
    }

    /// Puts an element in place of the one at `index`; false when there is none.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        let effect = |(): &()| Edit::List(ListEdit::Set { index, element: Bytes::copy_from_slice(element) });
        self.try_change(|list| list.set(index, element).then_some(()), effect).is_some()
    }

    /// Puts an element before the one at `index`; at the tail when there is none.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let effect = || Edit::List(ListEdit::Insert { index, element: Bytes::copy_from_slice(element) });
        self.change(|list| list.insert(index, element), effect);
    }

    /// Takes away elements that equal `element`, from `end` on, at most `limit`; how many it took.
    pub fn remove(&mut self, element: &[u8], end: End, limit: usize) -> usize {
        let effect = |count: &usize| {
            Edit::List(ListEdit::Remove { element: Bytes::copy_from_slice(element), end, count: *count })
        };
        let remove = |list: &mut List| Some(list.remove(element, end, limit)).filter(|count| *count > 0);
        self.try_change(remove, effect).unwrap_or(0)
    }
}
