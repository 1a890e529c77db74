//! What a Rust test holds of a server: its clock, its nodes, its namespaces. The same names as in the packages of other
//! languages.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redlatch_core::commands::Shared;
use redlatch_proto::clock::{LockTime, WallTime};
use redlatch_proto::error::Refusal;
use tokio::io::DuplexStream;

use crate::namespaces::{Namespaces, Shell};
use crate::{ClockChange, NodeChange, NodeFacts, namespace};

mod faults;
mod history;

pub use faults::{Fault, FaultError, Faults, When};
pub use history::History;

/// How a server opens connections without a socket.
pub trait Streams: fmt::Debug + Send + Sync {
    /// A connection to this engine.
    fn open(&self, shell: &dyn Shell) -> DuplexStream;
}

/// The clock of a running server, or of a namespace.
#[derive(Clone, Copy, Debug)]
pub struct Clock<'s> {
    shared: &'s Shared,
    namespace: Option<&'s Arc<namespace::Namespace>>,
}

impl<'s> Clock<'s> {
    #[doc(hidden)]
    pub fn new(shared: &'s Shared, namespace: Option<&'s Arc<namespace::Namespace>>) -> Self {
        Self { shared, namespace }
    }

    /// Milliseconds of lock time now.
    pub fn now(&self) -> LockTime {
        self.shared.clock.now().lock
    }

    /// Moves the clock forward, from deadline to deadline, so that all due work is done in order. Returns when
    /// every reply and message that this causes has been sent to the clients that read. Time stops at the end of the
    /// year 9999.
    ///
    /// # Panics
    /// When the server was built without `Builder::manual_clock` and
    /// `Builder::tests`.
    pub async fn advance(&self, by: Duration) {
        let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.change(ClockChange::Advance(millis)).await;
    }

    /// Like [`Clock::advance`], for callers without a runtime.
    ///
    /// # Panics
    /// As [`Clock::advance`], and inside an asynchronous runtime.
    pub fn advance_blocking(&self, by: Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime for one wait");
        runtime.block_on(self.advance(by));
    }

    /// Like [`Clock::advance`], to the next deadline. Returns the time there; `None` if nothing is due ever.
    ///
    /// # Panics
    /// As [`Clock::advance`].
    pub async fn next(&self) -> Option<WallTime> {
        self.change(ClockChange::Next).await
    }

    /// Lets time stand still.
    ///
    /// # Panics
    /// As [`Clock::advance`].
    pub async fn freeze(&self) {
        self.change(ClockChange::Freeze).await;
    }

    /// Lets time pass, from where it stands.
    ///
    /// # Panics
    /// As [`Clock::advance`].
    pub async fn run(&self) {
        self.change(ClockChange::Run).await;
    }

    /// Freezes the clock, and moves it to the next deadline whenever all clients have been silent for `idle` of real
    /// time, until another method of the clock ends that.
    ///
    /// # Panics
    /// As [`Clock::advance`], and outside an asynchronous runtime.
    pub async fn auto(&self, idle: Duration) {
        let idle_ms = u64::try_from(idle.as_millis()).unwrap_or(u64::MAX);
        self.change(ClockChange::Auto { idle_ms }).await;
    }

    /// Steps the wall clock alone, forwards or back. Leases are not affected.
    ///
    /// # Panics
    /// As [`Clock::advance`].
    pub fn step_wall(&self, millis: i64) {
        self.namespace().clock().step_wall(millis);
    }

    async fn change(&self, change: ClockChange) -> Option<WallTime> {
        let unix_ms = self.namespace().change_clock(change).await;
        unix_ms.expect("only TEST.CLOCK SET is refused").map(WallTime::from_millis)
    }

    fn namespace(&self) -> &'s Arc<namespace::Namespace> {
        self.namespace.expect("a server with a manual clock, or with tests")
    }
}

/// A namespace of a server: a server of its own behind the same port. Dropping it leaves it as it is.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
    inner: Arc<namespace::Namespace>,
    address: SocketAddr,
    streams: Arc<dyn Streams>,
}

/// Why a namespace cannot be entered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NamespaceError(String);

impl Namespace {
    #[doc(hidden)]
    pub fn enter(
        namespaces: Option<&Arc<Namespaces>>,
        name: &str,
        (address, streams): (SocketAddr, Arc<dyn Streams>),
    ) -> Result<Self, NamespaceError> {
        let without = || NamespaceError("the server was built without tests".to_owned());
        let inner = namespaces.ok_or_else(without)?.enter(name.as_bytes());
        let inner = inner.map_err(|text| NamespaceError(text.trim_start_matches("ERR ").to_owned()))?;
        Ok(Self { name: name.to_owned(), inner, address, streams })
    }

    /// The address as Redis clients write it: `redis://:namespace%3Aorders@127.0.0.1:40000`.
    pub fn url(&self) -> String {
        let name = self.name.replace(':', "%3A").replace('/', "%2F").replace('@', "%40");
        format!("redis://:namespace%3A{name}@{}", self.address)
    }

    /// A connection without a socket, which is in the namespace.
    pub fn stream(&self) -> DuplexStream {
        self.streams.open(self.inner.nodes()[0].shell())
    }

    /// The clock of the namespace.
    pub fn clock(&self) -> Clock<'_> {
        Clock::new(self.inner.nodes()[0].shared(), Some(&self.inner))
    }

    /// The faults of the namespace.
    ///
    /// # Panics
    /// When the server was built without `Builder::tests`.
    pub fn faults(&self) -> Faults<'_> {
        Faults::new(Some(&self.inner))
    }

    /// What has happened in the namespace.
    ///
    /// # Panics
    /// When the server was built without `Builder::tests`.
    pub fn history(&self) -> History<'_> {
        History::new(Some(&self.inner))
    }

    /// The nodes of the namespace.
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes::new(Some(&self.inner), &*self.streams)
    }
}

/// The nodes of a server, or of a namespace. They are numbered from 1 on.
///
/// # Panics
/// Every method, if there is no node of the number that it is given.
#[derive(Clone, Copy, Debug)]
pub struct Nodes<'s> {
    namespace: &'s Arc<namespace::Namespace>,
    streams: &'s dyn Streams,
}

impl<'s> Nodes<'s> {
    #[doc(hidden)]
    pub fn new(namespace: Option<&'s Arc<namespace::Namespace>>, streams: &'s dyn Streams) -> Self {
        Self { namespace: namespace.expect("a server with a manual clock, or with tests"), streams }
    }

    /// All nodes, with their states.
    pub fn list(&self) -> Vec<NodeFacts> {
        self.namespace.node_facts()
    }

    /// A connection without a socket to a node.
    pub fn stream(&self, node: u16) -> DuplexStream {
        self.streams.open(self.get(node).shell())
    }

    /// Resets the connections of a node, and new ones, until [`Nodes::start`]. Its keys are gone unless `keeps_keys`.
    pub async fn crash(&self, node: u16, keeps_keys: bool) {
        self.change(node, NodeChange::Crash { keeps_keys }).await;
    }

    /// Lets a node answer again after a crash.
    pub async fn start(&self, node: u16) {
        self.change(node, NodeChange::Start).await;
    }

    /// Lets a node read and answer nothing until [`Nodes::resume`].
    pub async fn pause(&self, node: u16) {
        self.change(node, NodeChange::Pause).await;
    }

    /// Lets a node answer again after a pause.
    pub async fn resume(&self, node: u16) {
        self.change(node, NodeChange::Resume).await;
    }

    /// Sets the clock of a node so many milliseconds ahead of the others; negative: behind.
    pub async fn skew(&self, node: u16, millis: i64) {
        self.change(node, NodeChange::Skew(millis)).await;
    }

    /// Lets a node answer none of the clients whose name, library or address matches a pattern.
    pub async fn partition(&self, node: u16, pattern: impl AsRef<[u8]>) {
        self.change(node, NodeChange::Partition(Bytes::copy_from_slice(pattern.as_ref()))).await;
    }

    /// Ends all partitions of a node.
    pub async fn heal(&self, node: u16) {
        self.change(node, NodeChange::Heal).await;
    }

    /// Has the writes of a node of a cluster reach its replicas, or go no further although they are acknowledged.
    pub async fn replicate(&self, node: u16, is_on: bool) {
        self.change(node, NodeChange::Replication { is_on }).await;
    }

    fn get(&self, node: u16) -> &'s namespace::Node {
        let nodes = self.namespace.nodes();
        let found = usize::from(node).checked_sub(1).and_then(|index| nodes.get(index));
        found.unwrap_or_else(|| panic!("there is no node {node}; there are {}", nodes.len()))
    }

    async fn change(&self, node: u16, change: NodeChange) {
        self.get(node);
        self.namespace
            .change_node(node, change)
            .await
            .unwrap_or_else(|refusal: Refusal| panic!("{}", refusal.text()));
    }
}
