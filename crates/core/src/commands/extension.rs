//! What a crate above the core adds to a server, as the core sees it: the test backend.
//!
//! Owns    [`Extension`], the questions that the core asks of it.
//! Rule    a server without one is asked nothing. No ordinary request asks.

use std::any::Any;
use std::sync::Arc;

use redlatch_proto::clock::Now;

use crate::state::clients::Client;
use crate::state::ledger::Ledger;

/// What is added to one server.
pub trait Extension: Any + Send + Sync {
    /// Whether this client may use the commands that come with it.
    fn is_open_to(&self, client: &Client) -> bool;

    /// Whether a password names the place that the client is in: it needs no other.
    fn is_own_password(&self, password: &[u8]) -> bool;

    /// The sum of the bytes of all servers of the process, and of what tests make it hold.
    fn ledger(&self) -> &Arc<Ledger>;

    /// A node has taken over from its master.
    fn has_taken_over(&self, now: Now, node: u16, master: u16);
}

impl dyn Extension {
    /// The value behind it, for the crate that added it.
    pub fn downcast<T: Extension>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}
