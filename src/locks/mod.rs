//! Locks as such: who may have a lock now, and who waits for whom.
//!
//! Owns    the rules by which a lock is granted, and the register of waiting lock requests.
//! Knows   the keyspace through a view; nothing of commands or connections.
//! Rule    an exclusive lock is a string key, so that it excludes the locks of clients that use SET NX.

mod acquire;
mod waits;

pub use acquire::{Granted, LockRequest, Term, attempt, attempt_all, first_held};
pub use waits::{Awaited, Circle, LockWaits, Overdue};
