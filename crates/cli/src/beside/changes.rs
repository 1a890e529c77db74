//! The keys of which an observed server says that they have changed: the pushes of CLIENT TRACKING.
//!
//! Owns    the keys that are to be read again, each once.
//! Rule    a push names keys, and no more: what became of a lock, only a reading says.
//! Bounds  [`CHANGED_MAX`] keys, of at most [`KEY_BYTES_MAX`] bytes each; when there are more, all keys are to be read.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use redlatch_client::wire::Reply;
use redlatch_core::types::glob;

use super::recognise::is_companion;
use super::sweep::KEY_BYTES_MAX;

/// The changes that a server has told.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The keys that are locks; `None`: the server is not asked for changes.
    pattern: Option<String>,
    keys: BTreeSet<Vec<u8>>,
    /// The key that was taken last.
    last: Vec<u8>,
    /// Why all keys are to be read.
    missed: Option<&'static str>,
}

/// Changed keys that are kept. At the highest rate, reading them takes a few seconds.
const CHANGED_MAX: usize = 1_000;

impl Changes {
    /// No key has changed yet; `pattern`: the keys that are locks.
    pub(super) fn of(pattern: Option<String>) -> Self {
        Self { pattern, ..Self::default() }
    }

    /// The literal text that all keys of the pattern begin with: the server is asked for changes of such keys.
    pub(super) fn prefix(&self) -> Option<&[u8]> {
        let pattern = self.pattern.as_ref()?.as_bytes();
        let end = pattern.iter().position(|byte| b"*?[\\".contains(byte));
        Some(&pattern[..end.unwrap_or(pattern.len())])
    }

    /// Takes in a push; calls `changed` with each key that is to be read again.
    pub(super) fn note(&mut self, push: &[Reply], mut changed: impl FnMut(&[u8])) {
        let (Some(pattern), [kind, keys]) = (&self.pattern, push) else { return };
        if !kind.is("invalidate") {
            return;
        }
        if *keys == Reply::Null {
            self.missed = Some("the database was emptied");
        }
        let fits = |key: &[u8]| glob::matches(pattern.as_bytes(), key) && !is_companion(key);
        let is_lock = |key: &&[u8]| key.len() <= KEY_BYTES_MAX && fits(key);
        for key in keys.items().iter().filter_map(Reply::text).filter(is_lock) {
            if self.keys.len() < CHANGED_MAX || self.keys.contains(key) {
                self.keys.insert(key.to_vec());
                changed(key);
            } else {
                self.missed = Some("too many keys have changed at once");
            }
        }
    }

    /// Takes a key that is to be read again. The keys take turns, so that none waits for ever.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let mut later = self.keys.range::<[u8], _>((Excluded(&self.last[..]), Unbounded));
        let key = later.next().or_else(|| self.keys.first())?.clone();
        self.keys.remove(&key);
        self.last.clone_from(&key);
        Some(key)
    }

    /// A key that was taken could not be read.
    pub(super) fn put_back(&mut self, key: Vec<u8>) {
        self.keys.insert(key);
    }

    /// Whether a key is to be read again.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.contains(key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.missed.is_none()
    }

    /// Why all keys are to be read, if they are. The next call says so only if there is another reason.
    pub(super) fn take_missed(&mut self) -> Option<&'static str> {
        self.missed.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Reply {
        Reply::Text(text.as_bytes().to_vec())
    }

    /// The push for these keys.
    fn push<'k>(keys: impl IntoIterator<Item = &'k str>) -> Vec<Reply> {
        vec![text("invalidate"), Reply::List(keys.into_iter().map(text).collect())]
    }

    fn of(pattern: &str) -> Changes {
        Changes::of(Some(pattern.to_owned()))
    }

    #[test]
    fn the_prefix_is_the_literal_head_of_the_pattern() {
        for (pattern, prefix) in [
            ("lock:*", "lock:"),
            ("lock:a", "lock:a"),
            ("j?b", "j"),
            ("a[bc]", "a"),
            ("a\\*b", "a"),
            ("*", ""),
            ("", ""),
        ] {
            assert_eq!(of(pattern).prefix(), Some(prefix.as_bytes()), "{pattern}");
        }
        assert_eq!(Changes::default().prefix(), None);
    }

    #[test]
    fn each_key_that_fits_is_kept_once_and_anything_else_is_not() {
        let (mut changes, mut told) = (of("lock:*"), 0);
        let long = format!("lock:{}", "x".repeat(KEY_BYTES_MAX));
        changes.note(&push(["lock:a", "job", "lock:a", &long]), |_| told += 1);
        changes.note(&push(["lock:a:rwlock_timeout:1"]), |_| told += 1);
        let other = [text("message"), Reply::List(vec![text("lock:b")])];
        for push in [&other[..], &[text("invalidate"), Reply::Integer(1)], &[text("invalidate")], &[]] {
            changes.note(push, |_| told += 1);
        }
        assert_eq!((changes.take(), changes.take(), told), (Some(b"lock:a".to_vec()), None, 2));
        assert!(changes.is_empty());
        let mut unasked = Changes::default();
        unasked.note(&push(["lock:a"]), |_| told += 1);
        assert!(unasked.is_empty() && told == 2);
    }

    #[test]
    fn a_flush_and_more_changes_than_are_kept_ask_for_a_reading_of_all() {
        let mut changes = of("lock:*");
        changes.note(&[text("invalidate"), Reply::Null], |_| {});
        assert!(!changes.is_empty() && changes.take_missed().is_some() && changes.is_empty());
        let keys: Vec<String> = (0..=CHANGED_MAX).map(|number| format!("lock:{number:04}")).collect();
        changes.note(&push(keys[1..].iter().map(String::as_str)), |_| {});
        assert_eq!(changes.take_missed(), None);
        changes.note(&push([&keys[1][..]]), |_| {});
        assert_eq!(changes.take_missed(), None, "it is kept already");
        changes.note(&push([&keys[0][..]]), |_| {});
        assert!(changes.take_missed().is_some() && changes.keys.len() == CHANGED_MAX);
    }

    #[test]
    fn a_key_that_always_changes_does_not_keep_the_others_waiting() {
        let mut changes = of("*");
        changes.note(&push(["a", "b", "c"]), |_| {});
        let mut taken = Vec::new();
        for _ in 0..4 {
            taken.extend(changes.take());
            changes.note(&push(["a"]), |_| {});
        }
        assert_eq!(taken, [b"a", b"b", b"c", b"a"]);
    }
}
