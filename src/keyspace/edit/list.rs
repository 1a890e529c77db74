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
        self.change(|_| move |list: &mut List| drop(list.pop(end)), |list| list.push(end, element), effect);
    }

    /// Takes the element at an end, if there is one.
    pub fn pop(&mut self, end: End) -> Option<Element> {
        let undo = |list: &List| without(list, end, 1);
        self.try_change(undo, |list| list.pop(end), |_| Edit::List(ListEdit::Drop { end, count: 1 }))
    }

    /// Takes `count` elements away at an end, or all there are.
    pub fn drop_from(&mut self, end: End, count: usize) {
        if count > 0 {
            let undo = |list: &List| without(list, end, count);
            self.change(
                undo,
                |list| list.drop_from(end, count),
                || Edit::List(ListEdit::Drop { end, count }),
            );
        }
    }

    /// Keeps the elements from `start` on and before `end`; the others are gone.
    pub fn keep(&mut self, start: usize, end: usize) {
        if start > 0 || end < self.get().len() {
            let undo = |list: &List| {
                let head = without(list, End::Head, start);
                let tail = without(list, End::Tail, list.len().saturating_sub(end.max(start)));
                |list: &mut List| {
                    tail(list);
                    head(list);
                }
            };
            self.change(undo, |list| list.keep(start, end), || Edit::List(ListEdit::Keep { start, end }));
        }
    }

    /// Puts an element in place of the one at `index`; false when there is none.
    pub fn set(&mut self, index: usize, element: &[u8]) -> bool {
        let effect = |(): &()| Edit::List(ListEdit::Set { index, element: Bytes::copy_from_slice(element) });
        let undo = |list: &List| {
            let before = list.get(index).map(Element::new);
            move |list: &mut List| {
                if let Some(before) = before {
                    list.set(index, &before);
                }
            }
        };
        self.try_change(undo, |list| list.set(index, element).then_some(()), effect).is_some()
    }

    /// Puts an element before the one at `index`; at the tail when there is none.
    pub fn insert(&mut self, index: usize, element: &[u8]) {
        let effect = || Edit::List(ListEdit::Insert { index, element: Bytes::copy_from_slice(element) });
        let undo = |list: &List| {
            let index = index.min(list.len());
            move |list: &mut List| list.remove_at(index)
        };
        self.change(undo, |list| list.insert(index, element), effect);
    }

    /// Takes away elements that equal `element`, from `end` on, at most `limit`; how many it took.
    pub fn remove(&mut self, element: &[u8], end: End, limit: usize) -> usize {
        let effect = |count: &usize| {
            Edit::List(ListEdit::Remove { element: Bytes::copy_from_slice(element), end, count: *count })
        };
        let remove = |list: &mut List| Some(list.remove(element, end, limit)).filter(|count| *count > 0);
        let undo = |list: &List| {
            let places = places_of(list, element, end, limit);
            let element = Element::new(element);
            move |list: &mut List| places.iter().for_each(|place| list.insert(*place, &element))
        };
        self.try_change(undo, remove, effect).unwrap_or(0)
    }
}

/// What takes back that `count` elements are taken away at an end, or all there are.
fn without(list: &List, end: End, count: usize) -> impl FnOnce(&mut List) + use<> {
    let (len, count) = (list.len(), count.min(list.len()));
    let gone: Vec<Element> = match end {
        // The one that is put back first stood farthest from the end.
        End::Head => list.range(0, count).rev().map(Element::new).collect(),
        End::Tail => list.range(len - count, len).map(Element::new).collect(),
    };
    move |list| gone.iter().for_each(|element| list.push(end, element))
}

/// Where the elements stand that equal `element`, the first `limit` of them from `end` on, in ascending order.
fn places_of(list: &List, element: &[u8], end: End, limit: usize) -> Vec<usize> {
    let is_one = |place: &usize| list.get(*place) == Some(element);
    match end {
        End::Head => (0..list.len()).filter(is_one).take(limit).collect(),
        End::Tail => {
            let mut places: Vec<_> = (0..list.len()).rev().filter(is_one).take(limit).collect();
            places.reverse();
            places
        }
    }
}
