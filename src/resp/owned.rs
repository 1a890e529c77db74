//! A request that outlives the buffer it came in: what a transaction has queued.

use super::request::{Request, Span};

/// A request with bytes of its own.
#[derive(Clone, Debug, Default)]
pub struct OwnedRequest {
    bytes: Box<[u8]>,
    spans: Box<[Span]>,
}

impl OwnedRequest {
    /// A copy of `request`.
    pub fn of(request: Request<'_>) -> Self {
        Self::beginning(request, usize::MAX, usize::MAX)
    }

    /// A copy of the beginning of `request`: of no more words than that, and no more bytes of each.
    pub fn beginning(request: Request<'_>, words_max: usize, word_bytes_max: usize) -> Self {
        let words = || request.words().take(words_max).map(|word| &word[..word.len().min(word_bytes_max)]);
        let mut bytes = Vec::with_capacity(words().map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(request.len().min(words_max));
        for word in words() {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(word);
            spans.push(Span { start, end: bytes.len() as u32 });
        }
        Self { bytes: bytes.into(), spans: spans.into() }
    }

    /// The request.
    pub fn request(&self) -> Request<'_> {
        Request::received(&self.bytes, &self.spans)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans)
    }
}
