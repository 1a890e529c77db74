//! Entries ordered by their ids.
//!
//! Rule    ids rise. A stream without entries is still a stream: only one that never had any counts as empty.
//! Source  Redis 7.0 `t_stream.c`: `streamAppendItem`, `streamTrim`, where nodes begin and end.

mod node;
mod size;

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::Shape;
pub use node::Entry;
use node::Node;

/// The id of an entry.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct StreamId {
    /// Milliseconds of Unix time, as a rule.
    pub ms: u64,
    /// Tells entries of one millisecond apart.
    pub seq: u64,
}

impl StreamId {
    /// Before all others; no entry has it.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// Behind all others.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// The id right behind this one, if there is one.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The id right before this one, if there is one.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

/// Which entries are to go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Trim {
    /// What is to stay.
    pub keep: Keep,
    /// Whether only whole nodes go, so that more may stay.
    pub is_approximate: bool,
    /// Entries that may go at most; 0: no limit.
    pub limit: u64,
}

/// What is to stay of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Keep {
    /// So many entries, the last ones.
    Last(u64),
    /// Those from this id on.
    From(StreamId),
}

/// Entries ordered by their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stream {
    /// Shared with copies of the stream until they are changed.
    nodes: VecDeque<Arc<Node>>,
    len: usize,
    last_id: StreamId,
    /// Bytes of all nodes together.
    node_bytes: usize,
}

impl Stream {
    /// A stream without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry with an id behind [`Stream::last_id`]; `words` are fields and values in turn.
    pub fn append(&mut self, id: StreamId, words: &[&[u8]]) {
        match self.nodes.back_mut().filter(|node| node.has_room(words)) {
            Some(node) => {
                let node = Arc::make_mut(node);
                let before = node.heap_bytes();
                node.push(id, words);
                self.node_bytes += node.heap_bytes() - before;
            }
            None => {
                let node = Node::new(id, words);
                self.node_bytes += node.heap_bytes();
                self.nodes.push_back(Arc::new(node));
            }
        }
        self.len += 1;
        self.last_id = id;
    }

    /// Deletes an entry; false when it is not there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let at = self.nodes.partition_point(|node| node.last < id);
        let Some(node) = self.nodes.get_mut(at) else { return false };
        let node = Arc::make_mut(node);
        if node.delete(1, |entry| entry == id) == 0 {
            return false;
        }
        if node.live == 0 {
            self.node_bytes -= node.heap_bytes();
            self.nodes.remove(at);
        }
        self.len -= 1;
        true
    }

    /// Takes entries away from the front; returns how many.
    pub fn trim(&mut self, trim: Trim) -> usize {
        let mut deleted = 0;
        while let Some(node) = self.nodes.front_mut() {
            let surplus = match trim.keep {
                Keep::Last(most) => self.len.saturating_sub(usize::try_from(most).unwrap_or(usize::MAX)),
                Keep::From(_) => usize::MAX,
            };
            if surplus == 0 || (trim.limit > 0 && (deleted + node.live) as u64 > trim.limit) {
                break;
            }
            let goes_whole = match trim.keep {
                Keep::Last(_) => node.live <= surplus,
                Keep::From(id) => node.last < id,
            };
            if goes_whole {
                deleted += node.live;
                self.len -= node.live;
                self.node_bytes -= node.heap_bytes();
                self.nodes.pop_front();
                continue;
            }
            if !trim.is_approximate {
                let node = Arc::make_mut(node);
                let gone = match trim.keep {
                    Keep::Last(_) => node.delete(surplus, |_| true),
                    Keep::From(id) => node.delete(usize::MAX, |entry| entry < id),
                };
                deleted += gone;
                self.len -= gone;
            }
            break;
        }
        deleted
    }

    /// Visits the entries from one id to another, both included, first to last or in reverse, at most so many; returns
    /// how many they were.
    pub fn visit<'s>(
        &'s self,
        ids: RangeInclusive<StreamId>,
        is_reverse: bool,
        most: usize,
        mut see: impl FnMut(Entry<'s>),
    ) -> usize {
        let first = self.nodes.partition_point(|node| node.last < *ids.start());
        let end = self.nodes.partition_point(|node| node.first() <= *ids.end()).max(first);
        let (mut nodes, mut left) = (self.nodes.range(first..end), most);
        while let Some(node) = if is_reverse { nodes.next_back() } else { nodes.next() } {
            if left == 0 {
                break;
            }
            let inside = node.living().filter(|entry| ids.contains(&entry.id));
            if is_reverse {
                // A node is read from its front only, and has few entries.
                let entries: Vec<_> = inside.collect();
                left -= entries.into_iter().rev().take(left).map(&mut see).count();
            } else {
                left -= inside.take(left).map(&mut see).count();
            }
        }
        most - left
    }

    /// The id of the entry that was added last, deleted or not; [`StreamId::MIN`] when there was none.
    pub fn last_id(&self) -> StreamId {
        self.last_id
    }
}

impl Shape for Stream {
    fn type_name(&self) -> &'static str {
        "stream"
    }

    fn encoding(&self) -> &'static str {
        "stream"
    }

    fn len(&self) -> usize {
        self.len
    }

    fn heap_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>() + self.nodes.capacity() * size_of::<usize>() + self.node_bytes
    }

    fn is_empty(&self) -> bool {
        self.last_id == StreamId::MIN
    }
}

/// Entries that trimming with `~` takes away at most, if it is not told otherwise.
pub const TRIM_LIMIT: u64 = 100 * node::NODE_ENTRIES_MAX as u64;

#[cfg(test)]
mod tests;
