//! All namespaces of a server.
//!
//! Owns    the registry of namespaces, and [`Maker`]: how the server makes an engine for a node of one.
//! Rule    a namespace is made when the first client enters it. One without keys and clients goes after ten minutes.
//! Bounds  [`NAMESPACES_MAX`] namespaces, and `maxmemory` for all together: above it no other is made.

use std::any::Any;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_core::commands::Peers;
use redlatch_core::engine::Engine;
use redlatch_core::keyspace::LockObserver;
use redlatch_core::state::ledger::{Charge, Kind, Ledger};
use redlatch_core::state::wait::Pending;
use redlatch_proto::clock::{Clock, WallTime};
use redlatch_proto::error::Refusal;
use tokio::runtime::Handle;

use crate::clock::{NodeClock, TestClock};
use crate::namespace::{Membership, Namespace, Node};
use crate::{
    ClockChange, ClockFacts, DEFAULT_NAMESPACE, Faults, Holds, Host, NAMESPACES_MAX, NODE_BYTES,
    NamespaceFacts, NodeChange, NodeFacts, Recorder, Testing, checked_name,
};

/// How long a namespace without keys and clients stays.
pub const EMPTY_FOR: Duration = Duration::from_secs(600);
/// How often empty namespaces are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// The engine of a node, with what serves its clients.
pub trait Shell: Any + Debug + Send + Sync {
    /// The engine.
    fn engine(&self) -> &Engine;

    /// Has due work done in this runtime from now on, until the engine ends.
    fn run(&self, runtime: &Handle);

    /// Has what is due looked at now: the clock was moved.
    fn wake_ticker(&self);

    /// Ends the engine: its connections close once their replies are written.
    fn end(&self);
}

/// How the server makes the engines of a namespace.
pub trait Maker: Debug + Send + Sync {
    /// The number of nodes of a namespace.
    fn nodes(&self) -> usize;

    /// What the nodes of a new namespace know of each other: nothing, unless they are a cluster.
    ///
    /// # Errors
    /// A setting cannot be used.
    fn peers(&self, clock: Arc<dyn Clock>) -> Result<Vec<Option<Peers>>, MakeError>;

    /// The engine of a node.
    ///
    /// # Errors
    /// A setting or a user is not as it must be.
    fn make(&self, place: Place) -> Result<Arc<dyn Shell>, MakeError>;
}

/// Why an engine cannot be made.
pub type MakeError = Box<dyn Error + Send + Sync>;

/// What an engine of a namespace has in addition to others.
pub struct Place {
    /// The node that it is.
    pub membership: Membership,
    /// The other nodes of its cluster, if it is in cluster mode.
    pub peers: Option<Peers>,
    name: Arc<str>,
    faults: Arc<Faults>,
    recorder: Arc<Recorder>,
    ledger: Arc<Ledger>,
}

impl Place {
    /// Whether it is in another namespace than the default one.
    pub fn is_named(&self) -> bool {
        &*self.name != DEFAULT_NAMESPACE
    }

    /// The clock of the node.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(self.membership.clock()) as Arc<dyn Clock>
    }

    /// What records the locks of the node.
    pub fn observer(&self) -> Box<dyn LockObserver> {
        self.recorder.observer(self.membership.number(), self.clock())
    }

    /// The test backend of the node. `is_local`: only clients on this machine may use it.
    pub fn testing(&self, is_local: bool) -> Testing {
        Testing {
            namespace: Arc::clone(&self.name),
            node: self.membership.number(),
            is_local,
            faults: Arc::clone(&self.faults),
            recorder: Arc::clone(&self.recorder),
            host: Arc::new(NamespaceHost(self.membership.clone())),
            holds: Holds::default(),
            ledger: Arc::clone(&self.ledger),
        }
    }
}

/// All namespaces of a server.
#[derive(Debug)]
pub struct Namespaces {
    maker: Box<dyn Maker>,
    /// Where the tasks of engines run.
    runtime: Handle,
    by_name: Mutex<BTreeMap<Arc<str>, Entry>>,
    /// The ports of the nodes.
    ports: Vec<AtomicU64>,
    /// The sum of the bytes of all namespaces.
    pub(crate) ledger: Arc<Ledger>,
}

#[derive(Debug)]
struct Entry {
    namespace: Arc<Namespace>,
    /// What its nodes take without keys and clients.
    _charge: Charge,
    /// Since when it has had neither keys nor clients, as of the last look.
    empty_since: Option<Instant>,
}

impl Namespaces {
    /// The namespaces of a new server: the default one alone, with a clock that stands still at `start`, or runs.
    ///
    /// # Errors
    /// A setting or a user is not as it must be.
    pub fn new(maker: Box<dyn Maker>, start: Option<WallTime>) -> Result<Arc<Self>, MakeError> {
        let ports = (0..maker.nodes()).map(|_| AtomicU64::new(0)).collect();
        let runtime = Handle::current();
        let (by_name, ledger) = Default::default();
        let namespaces = Arc::new(Self { maker, runtime, by_name, ports, ledger });
        let clock = start.map_or_else(TestClock::running, TestClock::frozen);
        let default = namespaces.make(DEFAULT_NAMESPACE, clock)?;
        let entry = Entry::new(default, &Arc::default());
        namespaces.by_name.lock().insert(Arc::from(DEFAULT_NAMESPACE), entry);
        namespaces.runtime.spawn(sweep_often(Arc::downgrade(&namespaces)));
        Ok(namespaces)
    }

    /// The namespace of clients that name none.
    pub fn default(&self) -> Arc<Namespace> {
        let by_name = self.by_name.lock();
        Arc::clone(&by_name.get(DEFAULT_NAMESPACE).expect("there is always a default namespace").namespace)
    }

    /// Notes the port of a node, which its clients in later namespaces see in INFO.
    pub fn set_port(&self, node: usize, port: u16) {
        self.ports[node].store(u64::from(port), Relaxed);
    }

    /// The namespace of this name, which is made if there is none.
    ///
    /// # Errors
    /// The name is not allowed, there are too many namespaces, or memory is short: an error reply.
    pub fn enter(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Namespace>, String> {
        let name = checked_name(name)?;
        let mut by_name = self.by_name.lock();
        if let Some(entry) = by_name.get_mut(name) {
            entry.empty_since = None;
            return Ok(Arc::clone(&entry.namespace));
        }
        if by_name.len() >= NAMESPACES_MAX {
            return Err(format!(
                "ERR there are {NAMESPACES_MAX} namespaces, which is the limit; TEST.NAMESPACE DROP removes one"
            ));
        }
        let default = by_name.get(DEFAULT_NAMESPACE).and_then(|entry| entry.namespace.nodes().first());
        if default.is_some_and(|node| node.shared().is_short_of_memory()) {
            return Err(Refusal::OutOfMemory.text().into_owned());
        }
        let namespace = self.make(name, TestClock::running()).map_err(|error| format!("ERR {error}"))?;
        by_name.insert(Arc::from(name), Entry::new(Arc::clone(&namespace), &self.ledger));
        Ok(namespace)
    }

    fn make(self: &Arc<Self>, name: &str, clock: TestClock) -> Result<Arc<Namespace>, MakeError> {
        let (name, clock): (Arc<str>, _) = (Arc::from(name), Arc::new(clock));
        let (faults, recorder) = (Arc::new(Faults::new(&self.ledger)), Arc::new(Recorder::new(&self.ledger)));
        let peers = self.maker.peers(Arc::new(NodeClock::new(Arc::clone(&clock))))?;
        let namespace = Namespace::new((self, Arc::clone(&name)), clock, peers.len(), |membership| {
            self.maker.make(Place {
                peers: peers[usize::from(membership.number()) - 1].clone(),
                membership,
                name: Arc::clone(&name),
                faults: Arc::clone(&faults),
                recorder: Arc::clone(&recorder),
                ledger: Arc::clone(&self.ledger),
            })
        })?;
        if let Some(peers) = &peers[0] {
            let shared = |node: &Node| Arc::downgrade(node.shared());
            peers.meet(namespace.nodes().iter().map(shared).collect());
        }
        for (node, port) in namespace.nodes().iter().zip(&self.ports) {
            node.shared().instance.port.store(port.load(Relaxed), Relaxed);
            node.shell().run(&self.runtime);
        }
        Ok(namespace)
    }

    /// Removes a namespace and disconnects its clients; false if there is none of this name.
    pub fn remove(&self, name: &str) -> bool {
        let removed = self.by_name.lock().remove(name);
        removed.map(|entry| entry.namespace.end()).is_some()
    }

    /// All namespaces, in the order of their names.
    pub fn facts(&self) -> Vec<NamespaceFacts> {
        let by_name = self.by_name.lock();
        let all: Vec<_> = by_name.values().map(|entry| Arc::clone(&entry.namespace)).collect();
        drop(by_name);
        all.iter().map(|namespace| namespace.facts()).collect()
    }

    /// Removes the namespaces that have been empty for [`EMPTY_FOR`], as far as looks before this one have seen.
    pub fn sweep(&self, now: Instant) {
        let mut by_name = self.by_name.lock();
        by_name.retain(|name, entry| {
            let facts = entry.namespace.facts();
            if facts.clients > 0 || facts.keys > 0 || &**name == DEFAULT_NAMESPACE {
                entry.empty_since = None;
                return true;
            }
            let since = *entry.empty_since.get_or_insert(now);
            let stays = now.duration_since(since) < EMPTY_FOR;
            if !stays {
                entry.namespace.end();
            }
            stays
        });
    }
}

impl Entry {
    /// What its nodes take is charged to `ledger`.
    fn new(namespace: Arc<Namespace>, ledger: &Arc<Ledger>) -> Self {
        let charge = ledger.open(Kind::Namespaces);
        charge.set(NODE_BYTES * namespace.nodes().len());
        Self { namespace, _charge: charge, empty_since: None }
    }
}

async fn sweep_often(namespaces: Weak<Namespaces>) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let Some(namespaces) = namespaces.upgrade() else { return };
        namespaces.sweep(Instant::now());
    }
}

/// The process as the engine of one node uses it.
struct NamespaceHost(Membership);

impl Host for NamespaceHost {
    fn namespaces(&self) -> Vec<NamespaceFacts> {
        self.0.namespaces.upgrade().map_or_else(Vec::new, |namespaces| namespaces.facts())
    }

    fn drop_namespace(&self, name: &str) -> bool {
        self.0.namespaces.upgrade().is_some_and(|namespaces| namespaces.remove(name))
    }

    fn nodes(&self) -> Vec<NodeFacts> {
        self.0.namespace().map_or_else(Vec::new, |namespace| namespace.node_facts())
    }

    fn change_node(&self, node: u16, change: NodeChange, pending: Pending) {
        let Some(namespace) = self.0.namespace() else { return };
        tokio::spawn(async move {
            match namespace.change_node(node, change).await {
                Ok(()) => pending.answer(|reply| reply.ok()),
                Err(refusal) => pending.refuse(&refusal),
            }
        });
    }

    fn run_apart(&self, work: Box<dyn FnOnce() + Send>) {
        tokio::task::spawn_blocking(work);
    }

    fn clock(&self, count: usize) -> Option<ClockFacts> {
        self.0.namespace().map(|namespace| namespace.clock_facts(count))
    }

    fn change_clock(&self, change: ClockChange, pending: Pending) {
        let Some(namespace) = self.0.namespace() else { return };
        tokio::spawn(async move {
            match (change, namespace.change_clock(change).await) {
                (ClockChange::Auto { .. } | ClockChange::AutoOff, Ok(_)) => {
                    pending.answer(|reply| reply.ok())
                }
                (_, Ok(Some(unix_ms))) => pending.answer(|reply| reply.count(unix_ms as usize)),
                (_, Ok(None)) => pending.answer(|reply| reply.null()),
                (_, Err(refusal)) => pending.refuse(&refusal),
            }
        });
    }
}
