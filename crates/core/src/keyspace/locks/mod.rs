//! The locks of a keyspace: how they are granted, renewed and ended, who has them, and who waits for whom.
//!
//! Owns    the functions that change a lock (`life`, `holds`, `grants`), what requests come to (`requests`), those who see
//!         all of it (`observers`, `linter`), the register of waiting requests (`waits`), the answers (`views`), and the
//!         locks of another server (`shadow`).
//! Knows   the values and rules of `locks`; the record of a lock is a part of the entry of its key.
//! Rule    a grant changes in `life` alone: there it is granted, renewed and ended. Each change is one
//!         [`LockEvent`](crate::locks::LockEvent).
//! Rule    what a request comes to is said to [`ViewLocks::comes_to`] alone, as one
//!         [`RequestOutcome`](crate::locks::RequestOutcome).

mod grants;
mod holds;
pub(crate) mod life;
mod linter;
mod observers;
mod requests;
mod shadow;
mod views;
mod waits;

pub use grants::attempt;
pub(crate) use grants::{attempt_several, first_held, is_grantable};
pub use holds::Hold;
pub(crate) use linter::Linter;
pub use observers::LockObserver;
pub(super) use observers::{Messages, Observed, Sessions};
pub use requests::Asked;
pub(crate) use requests::AskingClient;
pub use shadow::LockValue;
pub use views::ViewLocks;
pub(crate) use views::{HeldLock, LockHolder, Shown};
pub(crate) use waits::Circle;
pub use waits::LockWaits;
