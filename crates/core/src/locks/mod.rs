//! Locks: what a lock is, what happens to it, who may have it, who has it, and who waits for whom.
//!
//! Owns    the record of a lock (`record`, `foreign`), the functions that change it (`life`, `holds`), its events and their
//!         observers (`event`, `observers`, `lint`), the rules by which it is granted (`rules`), the register of waiting
//!         requests (`waits`), and the answers about it (`views`, `counts`, `history`).
//! Knows   the keyspace, where the record of a lock is a part of the entry of its key; nothing of commands or connections.
//! Rule    an exclusive lock is a string key, so that it excludes the locks of clients that use SET NX.
//! Rule    a grant changes in `life` alone: there it is granted, renewed and ended. Each change is one [`LockEvent`].

pub(crate) mod counts;
mod event;
pub(crate) mod foreign;
pub(crate) mod history;
mod holds;
pub(crate) mod life;
mod lint;
pub(crate) mod observers;
pub(crate) mod record;
mod rules;
mod views;
mod waits;

pub use counts::{Durations, GroupCounts, LockCounts, LockGroups, Waited};
pub use event::{Before, Breaker, EndReason, LockChange, LockEvent, LockObserver, Unmet, UnmetRequest};
pub use history::{Excerpt, PastLock};
pub use holds::Hold;
pub use lint::{Linter, LockLint, Rule};
pub use record::{Grant, GrantDetails};
pub use rules::{Granted, LockRequest, Term, attempt, attempt_all, first_held};
pub use views::{HeldLock, LockHolder, Shown, ViewLocks};
pub use waits::{Awaited, Circle, LockWaits, Overdue};
