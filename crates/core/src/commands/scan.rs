//! Cursors, options and replies that SCAN, HSCAN, SSCAN and ZSCAN share.
//!
//! Source  Redis 7.0 `scanGenericCommand`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::{Protocol, Reply};

use crate::commands::Args;
use crate::types::glob;

/// The options COUNT and MATCH.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanOptions<'a> {
    /// Approximate number of elements to visit in one step.
    pub(super) count: u64,
    pattern: Option<&'a [u8]>,
}

impl<'a> ScanOptions<'a> {
    /// Reads all remaining words. `own` reads an option that only one command has. It returns false for another word.
    ///
    /// # Errors
    /// [`Refusal::Syntax`], [`Refusal::NotAnInteger`].
    pub(super) fn take(
        args: &mut Args<'a>,
        mut own: impl FnMut(&mut Args<'a>) -> Result<bool, Refusal>,
    ) -> Result<Self, Refusal> {
        let mut options = Self { count: 10, pattern: None };
        while !args.is_empty() {
            if args.take("COUNT") {
                let count = args.integer()?;
                options.count =
                    u64::try_from(count).ok().filter(|count| *count > 0).ok_or(Refusal::Syntax)?;
            } else if args.take("MATCH") {
                options.pattern = Some(args.word()?).filter(|pattern| !glob::is_all(pattern));
            } else if !own(args)? {
                return Err(Refusal::Syntax);
            }
        }
        Ok(options)
    }

    /// True if the element matches the pattern.
    pub(super) fn fits(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// Reads the cursor.
///
/// # Errors
/// The word is not a cursor.
pub(super) fn cursor(args: &mut Args<'_>) -> Result<u64, Refusal> {
    read_cursor(args.word()?).ok_or_else(|| Refusal::said("ERR invalid cursor"))
}

/// A cursor as C's `strtoul` reads it: a zero byte ends the text, and an empty text is 0.
fn read_cursor(text: &[u8]) -> Option<u64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() { Some(0) } else { number::wrapped(text) }
}

/// Elements found so far, already encoded, because their number is known only at the end.
#[derive(Debug, Default)]
pub(super) struct Found {
    count: usize,
    names: Vec<u8>,
}

impl Found {
    pub(super) fn add(&mut self, name: &[u8]) {
        self.count = self.count.saturating_add(1);
        Reply::new(&mut self.names, Protocol::Resp2).bulk(name);
    }

    pub(super) fn answer(&self, reply: &mut Reply<'_>) {
        reply.array(self.count);
        reply.raw(&self.names);
    }

    /// Answers one step: the next cursor and the elements found.
    pub(super) fn answer_step(&self, cursor: u64, reply: &mut Reply<'_>) {
        reply.array(2);
        reply.bulk(itoa::Buffer::new().format(cursor).as_bytes());
        self.answer(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::read_cursor;

    #[test]
    fn a_cursor_is_read_as_by_strtoul() {
        for (text, value) in [
            ("", Some(0)),
            ("0", Some(0)),
            ("007", Some(7)),
            ("+5", Some(5)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            ("--1", None),
            ("-+1", None),
            (" 0", None),
            ("0x0", None),
            ("1 ", None),
            ("abc", None),
            ("\0abc", Some(0)),
            ("7\0abc", Some(7)),
            ("7 \0", None),
        ] {
            assert_eq!(read_cursor(text.as_bytes()), value, "{text:?}");
        }
    }
}
