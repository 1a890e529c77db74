//! Log entries for changes inside of a stream.

use bytes::Bytes;

use crate::types::Stream;
use crate::types::stream::{StreamId, Trim};

/// One change inside a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEdit {
    /// An entry is added at the end.
    Append {
        /// Its id.
        id: StreamId,
        /// Fields and values in turn.
        words: Vec<Bytes>,
    },
    /// The entry is removed.
    Delete(StreamId),
    /// Entries at the front are gone: which entries follows from the edits before.
    Trim(Trim),
}

impl StreamEdit {
    /// Applies the edit.
    pub(super) fn apply(&self, stream: &mut Stream) {
        match self {
            Self::Append { id, words } => {
                let words: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
                stream.append(*id, &words);
            }
            Self::Delete(id) => {
                stream.delete(*id);
            }
            Self::Trim(trim) => {
                stream.trim(*trim);
            }
        }
    }
}
