//! A request as commands see it: words that are borrowed from the input.
//!
//! Rule    only [`OwnedRequest`] copies words.

use std::ops::Range;

/// The position of an argument: offsets into the buffer received, or into the decoder's scratch buffer.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

/// One request: a name and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a>(Source<'a>);

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    /// A request received from a client.
    Received { bytes: &'a [u8], spans: &'a [Span] },
    /// A request built by a script.
    Listed(&'a [&'a [u8]]),
}

impl<'a> Request<'a> {
    /// The words at `spans` in `bytes`.
    pub(super) fn received(bytes: &'a [u8], spans: &'a [Span]) -> Self {
        Self(Source::Received { bytes, spans })
    }

    /// The request of these words: what a script calls.
    pub fn listed(words: &'a [&'a [u8]]) -> Self {
        Self(Source::Listed(words))
    }

    /// The number of words: the name and its arguments.
    #[inline]
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Received { spans, .. } => spans.len(),
            Source::Listed(words) => words.len(),
        }
    }

    /// True for the request of `*0` or of a blank line.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `index`; the name is word 0.
    ///
    /// # Panics
    /// When `index` is not below [`Request::len`].
    #[inline]
    pub fn word(&self, index: usize) -> &'a [u8] {
        self.get(index).expect("a word of the request")
    }

    /// The word at `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        match self.0 {
            Source::Received { bytes, spans } => {
                let span = spans.get(index)?;
                Some(&bytes[span.start as usize..span.end as usize])
            }
            Source::Listed(words) => words.get(index).copied(),
        }
    }

    /// All words in order.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.part(0..self.len()).iter()
    }

    /// The words of that range that exist.
    #[inline]
    pub fn part(&self, range: Range<usize>) -> Words<'a> {
        let end = range.end.min(self.len());
        Words { request: *self, start: range.start.min(end), end }
    }
}

/// Consecutive words of a request.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    request: Request<'a>,
    start: usize,
    end: usize,
}

impl<'a> Words<'a> {
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// True if there are no words.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The word at `index`, counted from 0, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        if index < self.len() { self.request.get(self.start + index) } else { None }
    }

    /// All words in order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let this = *self;
        (this.start..this.end).map(move |index| this.request.word(index))
    }
}

impl<'a> From<&'a [&'a [u8]]> for Words<'a> {
    fn from(words: &'a [&'a [u8]]) -> Self {
        Request::listed(words).part(0..words.len())
    }
}

/// A request with bytes of its own, which outlives the buffer it was received in: in the queue of a transaction.
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

    /// A copy of the first `words_max` words of `request`, each cut to `word_bytes_max` bytes.
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

    pub fn request(&self) -> Request<'_> {
        Request::received(&self.bytes, &self.spans)
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans)
    }
}
