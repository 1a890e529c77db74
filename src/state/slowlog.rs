//! The slow log: commands that took longer than `slowlog-log-slower-than`, newest first.
//!
//! Owns    the calls remembered, and their numbers.
//! Rule    what is remembered of a call is bounded, whatever it carried.
//! Source  Redis 7.0 `slowlog.c`: 32 words of 128 bytes, and how what was left out is named.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;

/// Words of a call that are kept, the one that counts the rest included.
const WORDS_MAX: usize = 32;
/// Bytes of a word that are kept.
const WORD_BYTES_MAX: usize = 128;

/// A call that was slow.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlowCall {
    /// Its number: rises with every slow call, is never used twice.
    pub id: u64,
    /// When it ended, in seconds since the Unix epoch.
    pub unix_secs: u64,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// Its name and arguments, shortened.
    pub words: Vec<Bytes>,
    /// Where its client connected from.
    pub peer: String,
    /// What its client called itself.
    pub client_name: String,
}

/// The calls remembered.
#[derive(Debug, Default)]
pub struct Slowlog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    calls: VecDeque<SlowCall>,
    next_id: u64,
}

impl Slowlog {
    /// Remembers a call under the next number, and forgets the oldest beyond `len_max`.
    pub fn push(&self, call: SlowCall, len_max: usize) {
        let mut log = self.0.lock();
        let id = log.next_id;
        log.next_id += 1;
        log.calls.push_front(SlowCall { id, ..call });
        log.calls.truncate(len_max);
    }

    /// Up to `count` calls, newest first.
    pub fn newest(&self, count: usize) -> Vec<SlowCall> {
        self.0.lock().calls.iter().take(count).cloned().collect()
    }

    /// How many are remembered.
    pub fn len(&self) -> usize {
        self.0.lock().calls.len()
    }

    /// True when none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all; numbers go on.
    pub fn reset(&self) {
        self.0.lock().calls.clear();
    }
}

/// What is kept of the words of a call; `count` is how many there are.
pub fn shortened<'a>(words: impl Iterator<Item = &'a [u8]>, count: usize) -> Vec<Bytes> {
    let kept = if count > WORDS_MAX { WORDS_MAX - 1 } else { count };
    let mut short: Vec<Bytes> = words.take(kept).map(shorten).collect();
    if count > kept {
        short.push(format!("... ({} more arguments)", count - kept).into());
    }
    short
}

fn shorten(word: &[u8]) -> Bytes {
    if word.len() <= WORD_BYTES_MAX {
        return Bytes::copy_from_slice(word);
    }
    let mut short = word[..WORD_BYTES_MAX].to_vec();
    short.extend_from_slice(format!("... ({} more bytes)", word.len() - WORD_BYTES_MAX).as_bytes());
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
    fn the_newest_come_first_and_the_oldest_go() {
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
    fn a_large_call_is_kept_small() {
        let long = [b'x'; 200];
        let words = vec![&long[..]; 40];
        let short = shortened(words.iter().copied(), words.len());
        assert_eq!(short.len(), 32);
        assert_eq!(short[31], "... (9 more arguments)");
        assert!(short[0].ends_with(b"x... (72 more bytes)"));
        assert_eq!(shortened(words.iter().copied().take(32), 32).len(), 32, "32 words are kept whole");
    }
}
