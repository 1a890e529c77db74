//! A cursor over the words of a request.
//!
//! Rule    a handler reads its arguments front to back and calls [`Args::finish`] before it acts.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "positions in a bounded request, on the path of every command"
)]

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::{Request, Words};

/// The unread words of a request.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    request: Request<'a>,
    at: usize,
}

/// The name of an option as one number: its length and its letters in upper case. One comparison identifies the
/// option. Zero if the name has more than seven letters, which no option has.
#[inline]
pub(super) const fn option(name: &[u8]) -> u64 {
    if name.len() > 7 {
        return 0;
    }
    let (mut number, mut at) = (name.len() as u64, 0);
    while at < name.len() {
        number = number << 8 | name[at].to_ascii_uppercase() as u64;
        at += 1;
    }
    number
}

impl<'a> Args<'a> {
    /// The words after the first `at` words of `request`.
    pub fn new(request: Request<'a>, at: usize) -> Self {
        Self { request, at }
    }

    /// The next word.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] if there is none: the arity also allows requests that lack the value of an option.
    #[inline]
    pub fn word(&mut self) -> Result<&'a [u8], Refusal> {
        self.maybe_word().ok_or(Refusal::Syntax)
    }

    /// The next word, if there is one.
    #[inline]
    pub fn maybe_word(&mut self) -> Option<&'a [u8]> {
        let word = self.request.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// The next word without taking it.
    pub fn peek(&self) -> Option<&'a [u8]> {
        self.request.get(self.at)
    }

    /// The next word as a 64-bit integer.
    ///
    /// # Errors
    /// [`Refusal::NotAnInteger`], or [`Refusal::Syntax`] if there is no word.
    pub fn integer(&mut self) -> Result<i64, Refusal> {
        number::integer(self.word()?).ok_or(Refusal::NotAnInteger)
    }

    /// The next word as text.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] if there is none or it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Refusal> {
        std::str::from_utf8(self.word()?).map_err(|_| Refusal::Syntax)
    }

    /// Takes the next word if it is `token`, in any letter case.
    pub fn take(&mut self, token: &str) -> bool {
        let is_next = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(token.as_bytes()));
        self.at += usize::from(is_next);
        is_next
    }

    /// The next word as the name of an option, to be compared with the result of `option`.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] when there is none.
    #[inline]
    pub fn option(&mut self) -> Result<u64, Refusal> {
        self.word().map(option)
    }

    /// The number of words left.
    pub fn len(&self) -> usize {
        self.request.len() - self.at
    }

    /// True if no word is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn rest(&mut self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.rest_to(self.len())
    }

    /// Reads the next `count` words, or all remaining words if there are fewer.
    #[inline]
    pub fn part(&mut self, count: usize) -> Words<'a> {
        let from = self.at;
        self.at += count.min(self.len());
        self.request.part(from..self.at)
    }

    /// Like [`Args::part`], as an iterator.
    pub(crate) fn rest_to(&mut self, count: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.part(count).iter()
    }

    /// Checks that no word is left.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] if a word is left.
    pub fn finish(&self) -> Result<(), Refusal> {
        if self.is_empty() { Ok(()) } else { Err(Refusal::Syntax) }
    }

    /// The whole request, its name included.
    pub fn request(&self) -> Request<'a> {
        self.request
    }
}
