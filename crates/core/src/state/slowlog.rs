//! The slow log: commands that took longer than `slowlog-log-slower-than`, newest first.
//!
//! Owns    the logged calls and their numbers.
//! Rule    the size of an entry is bounded.
//! Source  Redis 7.0 `slowlog.c`: 32 words of 128 bytes, and the texts for what was left out.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

/// Words of a call that are kept, including the one that counts the omitted words.
const WORDS_MAX: usize = 32;
/// Bytes of a word that are kept.
const WORD_BYTES_MAX: usize = 128;

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlowCall {
    /// Its number. It rises with every slow call and is never reused.
    pub id: u64,
    /// When it ended, in seconds since the Unix epoch.
    pub unix_secs: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Its name and arguments, shortened; a command about locks is followed by a word for each lock that is held.
    pub words: Vec<Bytes>,
    /// Where its client connected from.
    pub peer: String,
    /// The name of its client: CLIENT SETNAME.
    pub client_name: String,
}

/// The slow log of one server.
#[derive(Debug, Default)]
pub struct Slowlog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    calls: VecDeque<SlowCall>,
    next_id: u64,
}

impl Slowlog {
    /// Logs a call under the next number, and drops the oldest calls beyond `len_max`.
    pub fn push(&self, call: SlowCall, len_max: usize) {
        let mut log = self.0.lock();
        let id = log.next_id;
        log.next_id = id.saturating_add(1);
        log.calls.push_front(SlowCall { id, ..call });
        log.calls.truncate(len_max);
    }

    /// Up to `count` calls, newest first.
    pub fn newest(&self, count: usize) -> Vec<SlowCall> {
        self.0.lock().calls.iter().take(count).cloned().collect()
    }

    /// How many calls are in the log.
    pub fn len(&self) -> usize {
        self.0.lock().calls.len()
    }

    /// True if the log is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties the log. Numbers are not reused.
    pub fn reset(&self) {
        self.0.lock().calls.clear();
    }
}

/// The words of a call as the log keeps them; `count` is their number.
pub fn shortened<'a>(words: impl Iterator<Item = &'a [u8]>, count: usize) -> Vec<Bytes> {
    let kept = if count > WORDS_MAX { WORDS_MAX - 1 } else { count };
    let mut short: Vec<Bytes> = words.take(kept).map(shorten).collect();
    if count > kept {
        short.push(format!("... ({} more arguments)", count.saturating_sub(kept)).into());
    }
    short
}

fn shorten(word: &[u8]) -> Bytes {
    if word.len() <= WORD_BYTES_MAX {
        return Bytes::copy_from_slice(word);
    }
    let mut short = word[..WORD_BYTES_MAX].to_vec();
    short.extend_from_slice(
        format!("... ({} more bytes)", word.len().saturating_sub(WORD_BYTES_MAX)).as_bytes(),
    );
    short.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(micros: u64) -> SlowCall {
        let (peer, client_name) = (String::new(), String::new());
        SlowCall { id: 0, unix_secs: 1, micros, words: Vec::new(), peer, client_name }
    }

    #[test]
    fn the_newest_calls_come_first_and_the_oldest_are_dropped() {
        let log = Slowlog::default();
        for micros in 1..=5 {
            log.push(call(micros), 3);
        }
        let seen: Vec<_> = log.newest(9).iter().map(|call| (call.id, call.micros)).collect();
        assert_eq!(seen, [(4, 5), (3, 4), (2, 3)]);
        log.reset();
        log.push(call(6), 3);
        assert_eq!(log.newest(9)[0].id, 5, "numbers are not used twice");
    }

    #[test]
    fn a_large_call_is_shortened() {
        let long = [b'x'; 200];
        let words = vec![&long[..]; 40];
        let short = shortened(words.iter().copied(), words.len());
        assert_eq!(short.len(), 32);
        assert_eq!(short[31], "... (9 more arguments)");
        assert!(short[0].ends_with(b"x... (72 more bytes)"));
        assert_eq!(shortened(words.iter().copied().take(32), 32).len(), 32, "32 words are kept whole");
    }
}
