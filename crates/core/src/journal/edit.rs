//! Log entries for changes inside of objects.
//!
//! Rule    an edit is replayed without a clock, limits or random numbers, whatever command caused it.

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use crate::types::list::End;
use crate::types::lock::{Holder, LockKind};
use crate::types::stream::StreamId;
use crate::types::{Hash, List, Lock, Object, Seed, Set, Shape, SortedSet, Stream, Typed};

/// One change inside of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Edit<B = Bytes> {
    /// Inside a hash.
    Hash(HashEdit<B>),
    /// Inside a list.
    List(ListEdit<B>),
    /// Inside a lock.
    Lock(LockEdit<B>),
    /// Inside a set.
    Set(SetEdit<B>),
    /// Inside a sorted set.
    SortedSet(SortedSetEdit<B>),
    /// Inside a stream.
    Stream(StreamEdit<B>),
}

impl Edit {
    /// Removes the element of an object that expired first, if an element has expired. Returns the edit.
    pub(crate) fn of_due(object: &mut Object, now: LockTime) -> Option<Self> {
        match object {
            Object::Lock(lock) => {
                let owner = lock.due(now)?.clone();
                lock.remove(&owner);
                Some(Self::Lock(LockEdit::Remove(owner)))
            }
            _ => None,
        }
    }

    /// Whether it removes a field, a member or an owner, and does nothing else.
    pub fn removes(&self) -> bool {
        matches!(
            self,
            Self::Hash(HashEdit::Remove(_))
                | Self::Lock(LockEdit::Remove(_))
                | Self::Set(SetEdit::Remove(_))
                | Self::SortedSet(SortedSetEdit::Remove(_))
        )
    }

    /// The empty object to which the first edit of a new key is applied.
    pub fn blank(&self, seed: Seed) -> Object {
        match self {
            Self::Hash(_) => Hash::new(seed).into(),
            Self::List(_) => List::new().into(),
            Self::Lock(_) => Lock::new(seed).into(),
            Self::Set(_) => Set::new(seed).into(),
            Self::SortedSet(_) => SortedSet::new(seed).into(),
            Self::Stream(_) => Stream::new().into(),
        }
    }

    /// Applies the edit, whatever the object is like: before a key is copied to a journal, edits of it are applied to an
    /// empty object. An object of another type stays unchanged.
    pub fn apply(&self, object: &mut Object) {
        match self {
            Self::Hash(edit) => change(object, |hash| edit.apply(hash)),
            Self::List(edit) => change(object, |list| edit.apply(list)),
            Self::Lock(edit) => change(object, |lock| edit.apply(lock)),
            Self::Set(edit) => change(object, |set| edit.apply(set)),
            Self::SortedSet(edit) => change(object, |set| edit.apply(set)),
            Self::Stream(edit) => change(object, |stream| edit.apply(stream)),
        }
    }
}

/// One change of a hash.
#[derive(Clone, Debug, PartialEq)]
pub enum HashEdit<B = Bytes> {
    /// The field is removed.
    Remove(B),
    /// The field has this value.
    Set(B, B),
}

impl HashEdit {
    fn apply(&self, hash: &mut Hash) {
        match self {
            Self::Remove(field) => {
                hash.remove(field);
            }
            Self::Set(field, value) => {
                hash.set(field, value);
            }
        }
    }
}

/// One change of a list. Indices count from the head, from 0.
#[derive(Clone, Debug, PartialEq)]
pub enum ListEdit<B = Bytes> {
    /// Elements at an end are removed.
    Drop {
        /// The end.
        end: End,
        /// How many.
        count: usize,
    },
    /// An element is inserted before another.
    Insert {
        /// The index of the new element.
        index: usize,
        /// The new element.
        element: B,
    },
    /// All elements outside of a range are removed.
    Keep {
        /// The index of its first element.
        start: usize,
        /// The index behind its last.
        end: usize,
    },
    /// An element is added at an end.
    Push {
        /// The end.
        end: End,
        /// The new element.
        element: B,
    },
    /// Elements that equal this one are removed.
    Remove {
        /// What they equal.
        element: B,
        /// Where the search for them began.
        end: End,
        /// How many.
        count: usize,
    },
    /// An element is replaced.
    Set {
        /// Where.
        index: usize,
        /// The new element.
        element: B,
    },
}

impl ListEdit {
    fn apply(&self, list: &mut List) {
        match self {
            Self::Drop { end, count } => list.drop_from(*end, *count),
            Self::Insert { index, element } => list.insert(*index, element),
            Self::Keep { start, end } => list.keep(*start, *end),
            Self::Push { end, element } => list.push(*end, element),
            Self::Remove { element, end, count } => {
                list.remove(element, *end, *count);
            }
            Self::Set { index, element } => {
                list.set(*index, element);
            }
        }
    }
}

/// One change of a lock.
#[derive(Clone, Debug, PartialEq)]
pub enum LockEdit<B = Bytes> {
    /// The owner holds it.
    Put(LockKind, B, Holder),
    /// The owner does not hold it any more.
    Remove(B),
}

impl LockEdit {
    fn apply(&self, lock: &mut Lock) {
        match self {
            Self::Put(kind, owner, holder) => lock.put(*kind, owner, holder.clone()),
            Self::Remove(owner) => drop(lock.remove(owner)),
        }
    }
}

/// One change of a set.
#[derive(Clone, Debug, PartialEq)]
pub enum SetEdit<B = Bytes> {
    /// A member is added.
    Insert(B),
    /// A member is removed.
    Remove(B),
}

impl SetEdit {
    fn apply(&self, set: &mut Set) {
        match self {
            Self::Insert(member) => set.insert(member),
            Self::Remove(member) => set.remove(member),
        };
    }
}

/// One change of a sorted set.
#[derive(Clone, Debug, PartialEq)]
pub enum SortedSetEdit<B = Bytes> {
    /// The member has this score; it is added if it does not exist.
    Insert {
        /// The member.
        member: B,
        /// Its score.
        score: f64,
    },
    /// The member is removed.
    Remove(B),
    /// The members of a range of ranks are removed.
    RemoveRange {
        /// The first rank.
        from: usize,
        /// The rank behind the last.
        to: usize,
    },
}

impl SortedSetEdit {
    fn apply(&self, set: &mut SortedSet) {
        match self {
            Self::Insert { member, score } => {
                set.insert(member, *score);
            }
            Self::Remove(member) => {
                set.remove(member);
            }
            // An edit of a key that is not copied yet may name ranks that the set does not have.
            Self::RemoveRange { from, to } => {
                let to = (*to).min(set.len());
                set.remove_range((*from).min(to)..to);
            }
        }
    }
}

/// One change of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEdit<B = Bytes> {
    /// An entry is added at the end.
    Append {
        /// Its id.
        id: StreamId,
        /// Fields and values in turn.
        words: Vec<B>,
    },
    /// The oldest entries are removed, so that at most this many stay.
    Trim {
        /// How many.
        len_max: u64,
    },
}

impl StreamEdit {
    fn apply(&self, stream: &mut Stream) {
        match self {
            Self::Append { id, words } => {
                let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
                stream.append(*id, &words);
            }
            Self::Trim { len_max } => {
                stream.trim(*len_max);
            }
        }
    }
}

fn change<T: Typed>(object: &mut Object, change: impl FnOnce(&mut T)) {
    if let Some(shape) = T::of_mut(object) {
        change(shape);
    }
}
