//! Locks as such: what happens to a lock, who may have it, and who waits for whom.
//!
//! Owns    the events of a lock's life and their observers, the rules by which a lock is granted, and the register of waiting
//!         lock requests.
//! Knows   the keyspace through a view; nothing of commands or connections.
//! Rule    an exclusive lock is a string key, so that it excludes the locks of clients that use SET NX.

mod acquire;
mod event;
mod lint;
pub(crate) mod observers;
mod waits;

pub use acquire::{Granted, LockRequest, Term, attempt, attempt_all, is_grantable};
pub use event::{Before, EndReason, LockChange, LockEvent, LockObserver};
pub use lint::{Linter, LockLint, Rule};
pub use waits::{Awaited, Circle, LockWaits, Overdue};
