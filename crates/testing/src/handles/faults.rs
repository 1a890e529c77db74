//! The faults of a server or a namespace, as a Rust test holds them. The same names as in the packages of other languages.
//!
//! Rule    what is wrong with a fault is found where TEST.FAULT ADD finds it: a fault is made of its words.

use std::sync::Arc;
use std::time::Duration;

use crate::commands::parse_fault;
use crate::{Namespace, Testing};

/// The faults of a server, or of a namespace. They are those that TEST.FAULT shows.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use redlatch::{Server, When};
///
/// let server = Server::builder().tests(1).start().await?;
/// let fault = server.faults().drop_reply(When::command("SET").key("lock:*").nth(1))?;
/// // ... the code under test takes its lock, and does not learn that it has it.
/// assert_eq!(fault.hits(), 0, "it would be 1 now");
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Faults<'s> {
    namespace: &'s Arc<Namespace>,
}

/// A fault of a server, or of a namespace. Dropping it leaves the fault as it is.
#[derive(Clone, Copy, Debug)]
pub struct Fault<'s> {
    faults: Faults<'s>,
    id: u64,
}

/// Why there is no such fault: what is wrong with its conditions or its action.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FaultError(String);

/// The requests at which a fault acts: those that meet all conditions. Each condition may be given once.
#[derive(Clone, Debug, Default)]
pub struct When {
    words: Vec<Vec<u8>>,
}

impl When {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests for this command, or for all subcommands of it: `SET`, `CONFIG`, `CONFIG|GET`.
    pub fn command(name: impl AsRef<str>) -> Self {
        Self::any().with("COMMAND", name.as_ref())
    }

    /// With a key that matches this pattern.
    #[must_use]
    pub fn key(self, pattern: impl AsRef<[u8]>) -> Self {
        self.with("KEY", pattern)
    }

    /// That run the script of this SHA-1, or a known script of this purpose: `acquire`, `extend`, `release`.
    #[must_use]
    pub fn script(self, script: impl AsRef<str>) -> Self {
        self.with("SCRIPT", script.as_ref())
    }

    /// Of clients whose name, library or address matches this pattern.
    #[must_use]
    pub fn client(self, pattern: impl AsRef<[u8]>) -> Self {
        self.with("CLIENT", pattern)
    }

    /// On this node; the first is 1.
    #[must_use]
    pub fn node(self, node: u16) -> Self {
        self.with("NODE", node.to_string())
    }

    /// Only the n-th that meets the conditions, from 1 on.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        self.with("NTH", nth.to_string())
    }

    /// Only every n-th that meets the conditions.
    #[must_use]
    pub fn every(self, every: u64) -> Self {
        self.with("EVERY", every.to_string())
    }

    /// Only this share, from 0 to 1, of those that meet the conditions. Equal seeds choose equal requests.
    #[must_use]
    pub fn probability(self, share: f64, seed: i64) -> Self {
        self.with("PROBABILITY", share.to_string()).with("SEED", seed.to_string())
    }

    /// At most so many requests. Default: no limit.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        self.with("TIMES", times.to_string())
    }

    fn with(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.words.extend([name.as_bytes().to_vec(), value.as_ref().to_vec()]);
        self
    }
}

/// # Errors
/// Every method that adds a fault: what is wrong with its conditions, or that there are 1000 faults.
impl<'s> Faults<'s> {
    #[doc(hidden)]
    pub fn new(namespace: Option<&'s Arc<Namespace>>) -> Self {
        let namespace = namespace.filter(|namespace| namespace.testing().is_some());
        Self { namespace: namespace.expect("a server with tests") }
    }

    /// Requests are carried out so much later.
    pub fn delay(self, by: Duration, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("DELAY", Some(millis(by)), when)
    }

    /// Requests are not carried out, and their connections are closed.
    pub fn drop_before(self, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("DROP-BEFORE", None, when)
    }

    /// Requests are carried out, and their connections are closed without the reply.
    pub fn drop_reply(self, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("DROP-AFTER", None, when)
    }

    /// Requests are carried out twice. The second reply is the reply.
    pub fn duplicate(self, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("DUPLICATE", None, when)
    }

    /// Requests are not carried out, and this error is the reply.
    pub fn error(self, text: impl AsRef<str>, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("ERROR", Some(text.as_ref().to_owned()), when)
    }

    /// Requests are carried out. Then their keys end, as if the leases were over.
    pub fn expire_key(self, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("EXPIRE-KEY", None, when)
    }

    /// Requests are carried out, and their connections are closed after half of the reply.
    pub fn half_reply(self, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("HALF-REPLY", None, when)
    }

    /// Requests are carried out and answered. Then their connections are neither read nor written for so long.
    pub fn pause_client(self, pause: Duration, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("PAUSE-CLIENT", Some(millis(pause)), when)
    }

    /// Requests are not carried out, and their connections are reset.
    pub fn reset(self, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("RESET", None, when)
    }

    /// Requests are carried out, and answered so much later.
    pub fn stall(self, by: Duration, when: When) -> Result<Fault<'s>, FaultError> {
        self.add("STALL", Some(millis(by)), when)
    }

    /// Removes all faults. Returns how many there were.
    pub fn clear(self) -> usize {
        self.testing().faults.clear()
    }

    fn add(self, action: &str, value: Option<String>, when: When) -> Result<Fault<'s>, FaultError> {
        let mut words: Vec<&[u8]> = when.words.iter().map(Vec::as_slice).collect();
        words.extend([b"DO", action.as_bytes()]);
        words.extend(value.as_ref().map(String::as_bytes));
        let added = parse_fault(&words, self.namespace.nodes().len())
            .and_then(|rule| crate::Faults::add(&self.testing().faults, rule));
        let id = added.map_err(|refusal| FaultError(refusal.text().trim_start_matches("ERR ").to_owned()))?;
        Ok(Fault { faults: self, id })
    }

    fn testing(self) -> &'s Testing {
        self.namespace.testing().expect("a namespace with tests keeps them")
    }
}

impl Fault<'_> {
    /// Its number.
    pub fn id(self) -> u64 {
        self.id
    }

    /// Requests that met its conditions; 0 if it has been removed.
    pub fn met(self) -> u64 {
        self.counts().0
    }

    /// Requests at which it acted; 0 if it has been removed.
    pub fn hits(self) -> u64 {
        self.counts().1
    }

    /// Removes it. False if it has been removed before.
    pub fn remove(self) -> bool {
        self.faults.testing().faults.remove(self.id)
    }

    fn counts(self) -> (u64, u64) {
        let all = self.faults.testing().faults.all();
        all.iter().find(|fault| fault.id == self.id).map_or((0, 0), |fault| (fault.met, fault.hits))
    }
}

fn millis(time: Duration) -> String {
    time.as_millis().to_string()
}
