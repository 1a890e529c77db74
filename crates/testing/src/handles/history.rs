//! The history of a server or a namespace, as a Rust test holds it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Event, Extent, Filter, Finding, Namespace, Recorder, Timeline, check};

/// What has happened on a server, or in a namespace: its last 10,000 events.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redlatch::{LockRule, Server};
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
///
/// let server = Server::builder().tests(1).start().await?;
/// let mut client = server.stream();
/// client.write_all(b"SETNX lock:stock me\r\n").await?;
/// client.read_exact(&mut [0; 4]).await?;
/// assert_eq!(server.history().calls()["SETNX"], 1);
/// assert_eq!(server.history().check()[0].rule, LockRule::NoLease);
/// println!("{}", server.history().timeline());
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct History<'s> {
    recorder: &'s Recorder,
}

impl<'s> History<'s> {
    #[doc(hidden)]
    pub fn new(namespace: Option<&'s Arc<Namespace>>) -> Self {
        let testing = namespace.and_then(|namespace| namespace.testing());
        Self { recorder: &testing.expect("a server with tests").recorder }
    }

    /// The events, oldest first.
    pub fn events(self) -> Vec<Event> {
        self.recorder.events(&Filter::default(), usize::MAX)
    }

    /// How often each command was called.
    pub fn calls(self) -> BTreeMap<String, usize> {
        let calls = self.recorder.calls(&Filter::default());
        calls.into_iter().map(|(command, count)| (command.to_string(), count)).collect()
    }

    /// What is wrong in it, by the rules of TEST.CHECK.
    pub fn check(self) -> Vec<Finding> {
        check(&self.events())
    }

    /// It as text, a lane for each client: what fits a screen, which is 50 lines at most. With `REDLATCH_TIMELINE=all` in the
    /// environment of the test: every step.
    pub fn timeline(self) -> String {
        let wanted = std::env::var(Extent::VARIABLE).ok();
        Timeline::of(&self.events()).text(Extent::of(wanted.as_deref()))
    }
}
