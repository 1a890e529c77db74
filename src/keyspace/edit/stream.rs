//! What can be changed in a stream under a key.

use bytes::Bytes;

use super::Editor;
use crate::journal::{Edit, StreamEdit};
use crate::types::Stream;
use crate::types::stream::{StreamId, Trim};

impl Editor<'_, Stream> {
    /// Adds an entry with an id behind the last; `words` are fields and values in turn.
    pub fn append(&mut self, id: StreamId, words: &[&[u8]]) {
        let effect = || {
            let words = words.iter().map(|word| Bytes::copy_from_slice(word)).collect();
            Edit::Stream(StreamEdit::Append { id, words })
        };
        self.change(|stream| stream.append(id, words), effect);
    }

    /// Deletes an entry; false when it is not there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let effect = |(): &()| Edit::Stream(StreamEdit::Delete(id));
        self.try_change(|stream| stream.delete(id).then_some(()), effect).is_some()
    }

    /// Takes entries away from the front; returns how many.
    pub fn trim(&mut self, trim: Trim) -> usize {
        let effect = |_: &usize| Edit::Stream(StreamEdit::Trim(trim));
        self.try_change(|stream| Some(stream.trim(trim)).filter(|gone| *gone > 0), effect).unwrap_or(0)
    }
}
