//! A cursor over the words of a request.
//!
//! Rule    a handler takes what it expects, front to back, and says [`Args::finish`] before it acts.

#![allow(
    clippy::arithmetic_side_effects,
    reason = "places in a request, which is bounded, on the path of every command"
)]

use crate::error::Refusal;
use crate::number;
use crate::resp::{Request, Words};

/// The words of a request that have not been taken yet.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    request: Request<'a>,
    at: usize,
}

/// The name of an option in upper case, and its length, as one number: one look tells it from all others. Zero for what is
/// none, because it has more than seven letters.
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
    /// What follows the first `at` words of `request`.
    pub fn new(request: Request<'a>, at: usize) -> Self {
        Self { request, at }
    }

    /// The next word.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] when there is none: the row's arity has let too few words through for these options.
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
    /// [`Refusal::NotAnInteger`], or [`Refusal::Syntax`] when there is none.
    pub fn integer(&mut self) -> Result<i64, Refusal> {
        number::integer(self.word()?).ok_or(Refusal::NotAnInteger)
    }

    /// The next word as a pattern or name that has to be text.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] when there is none or it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, Refusal> {
        std::str::from_utf8(self.word()?).map_err(|_| Refusal::Syntax)
    }

    /// Takes the next word if it is `token`, in any letter case.
    pub fn take(&mut self, token: &str) -> bool {
        let is_next = self.peek().is_some_and(|word| word.eq_ignore_ascii_case(token.as_bytes()));
        self.at += usize::from(is_next);
        is_next
    }

    /// The next word as the name of an option: to be compared with what `option` makes of names.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] when there is none.
    #[inline]
    pub fn option(&mut self) -> Result<u64, Refusal> {
        self.word().map(option)
    }

    /// How many are left.
    pub fn len(&self) -> usize {
        self.request.len() - self.at
    }

    /// True when all have been taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All that are left, taken one by one.
    pub fn rest(&mut self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.rest_to(self.len())
    }

    /// The next `count` words, or all that are left, taken at once.
    #[inline]
    pub fn part(&mut self, count: usize) -> Words<'a> {
        let from = self.at;
        self.at += count.min(self.len());
        self.request.part(from..self.at)
    }

    /// The next `count` words, or all that are left, taken one by one.
    pub fn rest_to(&mut self, count: usize) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.part(count).iter()
    }

    /// Nothing may be left.
    ///
    /// # Errors
    /// [`Refusal::Syntax`] when something is.
    pub fn finish(&self) -> Result<(), Refusal> {
        if self.is_empty() { Ok(()) } else { Err(Refusal::Syntax) }
    }

    /// The whole request, its name included.
    pub fn request(&self) -> Request<'a> {
        self.request
    }
}
