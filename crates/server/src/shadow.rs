//! The keyspace of a server that shows the locks of another one, as the reader of that server fills it.

use std::time::Duration;

use redlatch_core::keyspace::{Lease, LockValue};

use crate::Server;
use crate::context::ServerContext;
use crate::handle::with_key;

/// What a reading says of the lease of a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ShownLease {
    /// There is none.
    Never,
    /// It ends as it was known to end.
    Same,
    /// What is left of it now.
    Left(Duration),
}

/// The locks of another server, in database 0.
#[derive(Clone, Copy, Debug)]
pub struct Shadow<'s> {
    context: &'s ServerContext,
}

impl Server {
    /// The locks that the server shows, if it was built with [`Builder::beside`](crate::Builder::beside).
    #[doc(hidden)]
    pub fn shadow(&self) -> Shadow<'_> {
        Shadow { context: self.context() }
    }
}

impl Shadow<'_> {
    /// The lock of a key was read; `has_expired`: if there was another one before, its lease has ended.
    pub fn show(&self, key: &[u8], value: &LockValue, lease: ShownLease, has_expired: bool) {
        with_key(self.context, 0, key, |view| {
            let lease = match lease {
                ShownLease::Never => Lease::Never,
                ShownLease::Same => Lease::Keep,
                ShownLease::Left(left) => {
                    let left_ms = i64::try_from(left.as_millis()).unwrap_or(i64::MAX);
                    Lease::Until(view.now().deadline_in(left_ms))
                }
            };
            view.locks().show_held(key, value, lease, has_expired);
        });
    }

    /// The lock of a key was not found any more; `has_expired`: its lease has ended.
    pub fn hide(&self, key: &[u8], has_expired: bool) {
        with_key(self.context, 0, key, |view| view.locks().show_free(key, has_expired));
    }
}
