//! Contenders for one lock, side by side: one holds it at a time, and the tokens rise.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The grants of one lock.
#[derive(Default)]
pub(crate) struct Grants {
    is_held: AtomicBool,
    tokens: Mutex<Vec<u64>>,
}

impl Grants {
    /// The lock has been granted. Returns the token that `read` finds.
    pub(crate) fn hold(&self, read: impl FnOnce() -> u64) -> u64 {
        assert!(!self.is_held.swap(true, Ordering::SeqCst), "two holders");
        let token = read();
        self.tokens.lock().unwrap().push(token);
        self.is_held.store(false, Ordering::SeqCst);
        token
    }
}

/// Runs so many contenders, each on a thread, of which each is to be granted the lock so often.
pub(crate) fn contend(contenders: usize, turns: usize, contend: impl Fn(usize, &Grants) + Sync) {
    let grants = Grants::default();
    std::thread::scope(|scope| {
        for contender in 0..contenders {
            let (contend, grants) = (&contend, &grants);
            scope.spawn(move || contend(contender, grants));
        }
    });
    let tokens = grants.tokens.into_inner().unwrap();
    assert_eq!(tokens.len(), contenders * turns);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}
