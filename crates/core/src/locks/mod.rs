//! Locks: what a lock is, what happens to it, who may have it, and what a request for it comes to.
//!
//! Owns    the record of a lock (`record`, `foreign`), the rules by which it is granted (`rules`), what happens to it
//!         (`event`), what becomes of a request (`requests`), how locks have ended (`history`), what is counted (`counts`),
//!         and what clients do wrong (`lint`).
//! Knows   no keyspace: these are values, and functions of them. Grants, waits and answers are in `keyspace::locks`.
//! Rule    an exclusive lock is a string key, so that it excludes the locks of clients that use SET NX.

pub(crate) mod counts;
mod event;
pub(crate) mod foreign;
pub(crate) mod history;
pub(crate) mod lint;
pub(crate) mod record;
mod requests;
mod rules;

pub use counts::{Durations, LockCounts};
pub(crate) use counts::{GroupCounts, LockGroups, Waited};
pub use event::{Before, Breaker, EndReason, LockChange, LockEvent};
pub(crate) use history::{Excerpt, PastLock};
pub use lint::{LockLint, Rule};
pub use record::{Grant, GrantDetails};
pub use requests::{HolderRequest, LateRequest, RefusedBy, RequestEvent, RequestOutcome, RequestWait};
pub use rules::{Attempt, Found, Granted, Grants, LockRequest, Mode, Priority, Several, Standing, Term};
