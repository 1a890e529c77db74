//! The words of the log for what is inside a stream.

use bytes::Bytes;

use crate::types::Stream;
use crate::types::stream::{StreamId, Trim};

/// One change inside a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEdit {
    /// An entry comes behind all others.
    Append {
        /// Its id.
        id: StreamId,
        /// Fields and values in turn.
        words: Vec<Bytes>,
    },
    /// The entry is gone.
    Delete(StreamId),
    /// Entries at the front are gone: which ones follows from how the stream came to be, which is in the log.
    Trim(Trim),
}

impl StreamEdit {
    /// Carries the edit out.
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
