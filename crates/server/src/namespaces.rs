//! All namespaces of a server, and how an engine is made for a node of one.
//!
//! Owns    the registry of namespaces, and [`Blueprint`], from which engines are made.
//! Rule    a namespace is made when the first client enters it. One without keys and clients goes after ten minutes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_core::commands::{Peers, Shared};
use redlatch_core::engine::Engine;
use redlatch_core::journal::{Journal, Mode};
use redlatch_core::keyspace::{Keyspace, Layout};
use redlatch_core::scripts::interpreter::NewInterpreter;
use redlatch_core::state::cluster::ClusterFacts;
use redlatch_core::state::settings::{self, Settings};
use redlatch_core::state::slot_map::Members;
use redlatch_core::state::wait::Pending;
use redlatch_proto::clock::WallTime;
use redlatch_testing::commands::table;
use redlatch_testing::{
    ClockChange, ClockFacts, DEFAULT_NAMESPACE, Faults, Holds, Host, NAMESPACES_MAX, NamespaceFacts,
    NodeChange, NodeFacts, Recorder, Testing, checked_name,
};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::clock::{NodeClock, SystemClock, TestClock};
use super::context::{AnyClock, Process, ServerContext};
use super::journal::{self, Recovered};
use super::keeper::Keeper;
use super::namespace::{Activity, Membership, Namespace, Node, NodeStatus};
use super::{StartError, probe, stored_files, ticker};

/// How long a namespace without keys and clients stays.
const EMPTY_FOR: Duration = Duration::from_secs(600);
/// How often empty namespaces are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What the engines of a server are made from.
#[derive(Debug)]
pub(super) struct Blueprint {
    pub(super) settings: Vec<(String, String)>,
    pub(super) users: Vec<stored_files::UserLine>,
    pub(super) seed: u64,
    pub(super) journal: Option<Arc<dyn Journal>>,
    /// Where the journal of a cluster is, and what is known of that, if the server leads one.
    pub(super) replicated: Option<(Box<dyn journal::Place>, Arc<ClusterFacts>)>,
    pub(super) config_file: Option<String>,
    pub(super) allocator: &'static str,
    pub(super) process: Arc<Process>,
    /// Whether TEST commands are open to clients, and then whether only to those on this machine.
    pub(super) tests: Option<TestsOpenTo>,
    pub(super) nodes: usize,
}

/// To whom TEST commands are open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TestsOpenTo {
    Everybody,
    Local,
}

impl TestsOpenTo {
    /// What the setting `enable-test-commands` says.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        match settings.get(settings::ENABLE_TEST_COMMANDS).as_str() {
            "yes" => Some(Self::Everybody),
            "local" => Some(Self::Local),
            _ => None,
        }
    }
}

/// What runs the scripts that are not native.
#[cfg(feature = "lua")]
const INTERPRETER: Option<NewInterpreter> = Some(redlatch_lua::interpreter);
#[cfg(not(feature = "lua"))]
const INTERPRETER: Option<NewInterpreter> = None;

/// What an engine of a namespace has in addition.
struct Place {
    name: Arc<str>,
    membership: Membership,
    /// The other nodes of its cluster, if it is in cluster mode.
    peers: Option<Peers>,
    faults: Arc<Faults>,
    recorder: Arc<Recorder>,
}

impl Blueprint {
    /// The only engine of a server that no test drives. With a `dir`, it goes on from the journal there.
    ///
    /// # Errors
    /// A setting or a user is not as it must be, or the journal cannot be used.
    pub(super) fn server(&mut self, settings: Settings) -> Result<ServerContext, StartError> {
        let ticker = Arc::new(Notify::new());
        let mut keyspace = self.keyspace(&settings, self.journal.clone(), (false, &ticker));
        let wanted = journal::wanted(&settings)?;
        let (place, cluster) = match (self.replicated.take(), wanted) {
            (Some((place, facts)), _) => (Some((place, Mode::Always)), Some(facts)),
            (None, Some((dir, mode))) => (Some((journal::directory(&dir)?, mode)), None),
            (None, None) => (None, None),
        };
        let Some(place) = place else {
            let clock = AnyClock::System(Arc::new(SystemClock::new()));
            return self.assemble(settings, (keyspace, clock, ticker), None, None);
        };
        if self.journal.is_some() {
            let text = "dir: the program that embeds the server has a journal of its own";
            return Err(StartError::Unusable(text.into()));
        }
        let recovered = journal::recover(&mut keyspace, place, &settings)?;
        if settings.get(settings::CLUSTER_ENABLED)
            && (1..keyspace.databases()).any(|other| keyspace.size(other).0 > 0)
        {
            let text =
                "cluster-enabled: the journal has keys in other databases than 0, which cluster mode lacks";
            return Err(StartError::Unusable(text.into()));
        }
        let clock = AnyClock::System(Arc::clone(&recovered.clock));
        let recovered = recovered.of_cluster(cluster);
        self.assemble(settings, (keyspace, clock, ticker), None, Some(recovered))
    }

    /// The engine of a node of a namespace.
    fn engine(&self, settings: Settings, clock: AnyClock, place: Place) -> Result<ServerContext, StartError> {
        let ticker = Arc::new(Notify::new());
        let stream = place.peers.as_ref().and_then(Peers::stream).cloned();
        let journal = match stream {
            Some(stream) => Some(stream as Arc<dyn Journal>),
            None => self.journal.clone().filter(|_| !place.is_named()),
        };
        let mut keyspace = self.keyspace(&settings, journal, (place.is_named(), &ticker));
        if self.tests.is_some() {
            keyspace.observe_locks(place.recorder.observer(place.number(), clock.shared()));
        }
        self.assemble(settings, (keyspace, clock, ticker), Some(place), None)
    }

    /// A keyspace that nothing is attached to.
    pub(super) fn empty_keyspace(&self, settings: &Settings) -> Keyspace {
        self.keyspace(settings, None, (true, &Arc::default()))
    }

    fn keyspace(
        &self,
        settings: &Settings,
        journal: Option<Arc<dyn Journal>>,
        (is_named, ticker): (bool, &Arc<Notify>),
    ) -> Keyspace {
        let layout = Layout {
            shards: if is_named { 1 } else { super::shards(settings) },
            databases: settings.get(settings::DATABASES),
            seed: self.seed,
            journal,
        };
        let earlier = Arc::clone(ticker);
        Keyspace::new(layout, move || earlier.notify_one())
    }

    fn assemble(
        &self,
        settings: Settings,
        (keyspace, clock, ticker): (Keyspace, AnyClock, Arc<Notify>),
        place: Option<Place>,
        recovered: Option<Recovered>,
    ) -> Result<ServerContext, StartError> {
        let number = place.as_ref().map_or(0, |place| place.membership.node as u64);
        let mut shared = Shared::new(keyspace, settings, clock.shared(), self.seed.wrapping_add(number))
            .with_commands(table())
            .with_interpreter(INTERPRETER)
            .with_probe(Arc::new(probe::SystemProbe(self.allocator)));
        let is_named = place.as_ref().is_some_and(Place::is_named);
        if !is_named {
            shared = self.with_files(shared);
        }
        if let (Some(place), Some(open_to)) = (&place, self.tests) {
            shared = shared.with_extension(Arc::new(place.testing(open_to)));
        }
        if let Some(peers) = place.as_ref().and_then(|place| place.peers.clone()) {
            shared = shared.with_peers(peers);
        }
        let keeper = recovered.as_ref().map(|recovered| Arc::new(Keeper::new(Arc::clone(&recovered.log))));
        match recovered {
            Some(recovered) => shared = recovered.go_on(shared),
            None if !is_named => {
                warn_of_no_journal(&shared.settings);
                begin_startup_guard(&shared);
            }
            None => {}
        }
        stored_files::install_users(&shared, &self.users)?;
        let stopping = Arc::clone(&ticker);
        shared.on_stop(move || stopping.notify_one());
        let membership = place.map(|place| place.membership);
        let process = Arc::clone(&self.process);
        let engine = Engine::new(Arc::new(shared));
        Ok(ServerContext::new(engine, clock, ticker, process, membership, keeper))
    }

    /// Gives the state the files of users and settings that the settings name.
    pub(super) fn with_files(&self, shared: Shared) -> Shared {
        let shared = match shared.settings.get(settings::ACLFILE) {
            name if name.is_empty() => shared,
            name => shared.with_acl_file(Arc::new(stored_files::AclFile::new(name))),
        };
        match &self.config_file {
            Some(name) => {
                let file = stored_files::AclFile::new(name.clone());
                shared.with_config_file(Arc::new(stored_files::ConfigFile(file)))
            }
            None => shared,
        }
    }

    /// What the nodes of a new namespace know of each other: nothing, unless they are a cluster.
    fn peers(&self, clock: &Arc<TestClock>) -> Result<Vec<Option<Peers>>, StartError> {
        let settings = self.settings()?;
        if !settings.get(settings::CLUSTER_ENABLED) || self.nodes == 1 {
            return Ok(vec![None; self.nodes]);
        }
        let timeout_ms = settings.get(settings::CLUSTER_NODE_TIMEOUT);
        let nodes = u16::try_from(self.nodes).unwrap_or(u16::MAX);
        let replicas = settings.get(settings::CLUSTER_REPLICAS);
        if replicas > 0 && self.journal.is_some() {
            let text = "cluster-replicas: the program that embeds the server has a journal of its own";
            return Err(StartError::Unusable(text.into()));
        }
        let members = Members { nodes, replicas };
        let peers = Peers::cluster(members, Arc::new(NodeClock::new(Arc::clone(clock))), timeout_ms);
        Ok(peers.into_iter().map(Some).collect())
    }

    /// The settings of a node, which is told the port that follows those of the nodes before it.
    fn settings_of(&self, node: usize) -> Result<Settings, StartError> {
        let settings = self.settings()?;
        if let announced @ 1.. = settings.get(settings::CLUSTER_ANNOUNCE_PORT) {
            settings.set("cluster-announce-port", &(usize::from(announced) + node).to_string())?;
        }
        Ok(settings)
    }

    /// Settings with the values that the server was started with.
    pub(super) fn settings(&self) -> Result<Settings, StartError> {
        let settings = Settings::default();
        for (name, value) in &self.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }
}

/// Says so where `appendfsync` asks for a journal that there is not, as in Redis without `appendonly`.
fn warn_of_no_journal(settings: &Settings) {
    if settings.get(settings::APPENDFSYNC) == "always" && settings.get(settings::CLUSTER_ETCD).is_empty() {
        tracing::warn!("appendfsync always has no effect without a dir: nothing outlives the server");
    }
}

/// Begins the quarantine of a server that keeps no journal, if `startup-guard` asks for one.
fn begin_startup_guard(shared: &Shared) {
    let guard_ms = shared.settings.get(settings::STARTUP_GUARD);
    if guard_ms > 0 {
        shared.begin_quarantine(
            shared.instance.started + guard_ms,
            "no journal tells of locks before this start",
        );
    }
}

impl Place {
    /// Whether it is in another namespace than the default one.
    fn is_named(&self) -> bool {
        &*self.name != DEFAULT_NAMESPACE
    }

    /// The number of the node, from 1 on.
    fn number(&self) -> u16 {
        u16::try_from(self.membership.node + 1).unwrap_or(u16::MAX)
    }

    fn testing(&self, open_to: TestsOpenTo) -> Testing {
        Testing {
            namespace: Arc::clone(&self.name),
            node: self.number(),
            is_local: open_to == TestsOpenTo::Local,
            faults: Arc::clone(&self.faults),
            recorder: Arc::clone(&self.recorder),
            host: Arc::new(NamespaceHost(self.membership.clone())),
            holds: Holds::default(),
        }
    }
}

/// All namespaces of a server.
#[derive(Debug)]
pub(super) struct Namespaces {
    blueprint: Blueprint,
    /// Where the tasks of engines run.
    runtime: Handle,
    by_name: Mutex<BTreeMap<Arc<str>, Entry>>,
    /// The ports of the nodes.
    ports: Vec<AtomicU64>,
}

#[derive(Debug)]
struct Entry {
    namespace: Arc<Namespace>,
    /// Since when it has had neither keys nor clients, as of the last look.
    empty_since: Option<Instant>,
}

impl Namespaces {
    /// The namespaces of a new server: the default one alone, with a clock that stands still at `start`, or runs.
    ///
    /// # Errors
    /// A setting or a user is not as it must be.
    pub(super) fn new(blueprint: Blueprint, start: Option<WallTime>) -> Result<Arc<Self>, StartError> {
        let ports = (0..blueprint.nodes).map(|_| AtomicU64::new(0)).collect();
        let runtime = Handle::current();
        let namespaces = Arc::new(Self { blueprint, runtime, by_name: Mutex::default(), ports });
        let clock = start.map_or_else(TestClock::running, TestClock::frozen);
        let default = namespaces.make(DEFAULT_NAMESPACE, clock)?;
        namespaces.by_name.lock().insert(Arc::from(DEFAULT_NAMESPACE), Entry::new(default));
        namespaces.runtime.spawn(sweep_often(Arc::downgrade(&namespaces)));
        Ok(namespaces)
    }

    /// The namespace of clients that name none.
    pub(super) fn default(&self) -> Arc<Namespace> {
        let by_name = self.by_name.lock();
        Arc::clone(&by_name.get(DEFAULT_NAMESPACE).expect("there is always a default namespace").namespace)
    }

    /// Notes the port of a node, which its clients in later namespaces see in INFO.
    pub(super) fn set_port(&self, node: usize, port: u16) {
        self.ports[node].store(u64::from(port), Relaxed);
    }

    /// The namespace of this name, which is made if there is none.
    ///
    /// # Errors
    /// The name is not allowed, or there are too many namespaces: an error reply.
    pub(super) fn enter(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Namespace>, String> {
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
        let namespace = self.make(name, TestClock::running()).map_err(|error| format!("ERR {error}"))?;
        by_name.insert(Arc::from(name), Entry::new(Arc::clone(&namespace)));
        Ok(namespace)
    }

    fn make(self: &Arc<Self>, name: &str, clock: TestClock) -> Result<Arc<Namespace>, StartError> {
        let (name, clock): (Arc<str>, _) = (Arc::from(name), Arc::new(clock));
        let (faults, recorder, activity) = (Arc::default(), Arc::default(), Arc::new(Activity::new()));
        let all_peers = self.blueprint.peers(&clock)?;
        let mut failure = None;
        let namespace = Arc::new_cyclic(|namespace: &Weak<Namespace>| {
            let mut nodes = Vec::new();
            for (node, peers) in all_peers.iter().cloned().enumerate() {
                let (clock, status) =
                    (Arc::new(NodeClock::new(Arc::clone(&clock))), Arc::new(NodeStatus::new()));
                let membership = Membership {
                    namespaces: Arc::downgrade(self),
                    namespace: namespace.clone(),
                    node,
                    status: Arc::clone(&status),
                    activity: Arc::clone(&activity),
                };
                let place = Place {
                    name: Arc::clone(&name),
                    membership,
                    peers,
                    faults: Arc::clone(&faults),
                    recorder: Arc::clone(&recorder),
                };
                let made = self.blueprint.settings_of(node).and_then(|settings| {
                    self.blueprint.engine(settings, AnyClock::Test(Arc::clone(&clock)), place)
                });
                match made {
                    Ok(context) => nodes.push(Node { context, clock, status }),
                    Err(error) => failure = Some(error),
                }
            }
            Namespace::new(name, clock, activity, nodes)
        });
        if let Some(error) = failure {
            return Err(error);
        }
        if let Some(peers) = &all_peers[0] {
            let shared = |node: &Node| Arc::downgrade(node.context.engine.shared());
            peers.meet(namespace.nodes().iter().map(shared).collect());
        }
        for (node, port) in namespace.nodes().iter().zip(&self.ports) {
            node.context.engine.shared().instance.port.store(port.load(Relaxed), Relaxed);
            self.runtime.spawn(ticker::run(node.context.clone()));
        }
        Ok(namespace)
    }

    /// Removes a namespace and disconnects its clients; false if there is none of this name.
    pub(super) fn remove(&self, name: &str) -> bool {
        let removed = self.by_name.lock().remove(name);
        removed.map(|entry| entry.namespace.end()).is_some()
    }

    /// Removes the namespaces that have been empty for long.
    fn sweep(&self, now: Instant) {
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
    fn new(namespace: Arc<Namespace>) -> Self {
        Self { namespace, empty_since: None }
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
        let Some(namespaces) = self.0.namespaces.upgrade() else { return Vec::new() };
        let all: Vec<_> =
            namespaces.by_name.lock().values().map(|entry| Arc::clone(&entry.namespace)).collect();
        all.iter().map(|namespace| namespace.facts()).collect()
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Server;

    #[tokio::test]
    async fn a_namespace_goes_when_it_has_been_empty_for_ten_minutes() {
        let server = Server::builder().tests(1).start().await.unwrap();
        let namespaces = server.namespaces().unwrap();
        let start = Instant::now();
        for name in ["empty", "used", "connected"] {
            namespaces.enter(name.as_bytes()).unwrap();
        }
        let used = namespaces.enter(b"used").unwrap();
        let mut connection = server.stream();
        let request = b"AUTH namespace:used\r\nSET k v\r\nAUTH namespace:connected\r\nPING\r\n";
        connection.write_all(request).await.unwrap();
        connection.read_exact(&mut [0; 22]).await.unwrap();
        let names = || -> Vec<_> { namespaces.by_name.lock().keys().map(|name| name.to_string()).collect() };
        namespaces.sweep(start);
        namespaces.sweep(start + EMPTY_FOR - Duration::from_millis(1));
        assert_eq!(names(), ["connected", "default", "empty", "used"]);
        namespaces.sweep(start + EMPTY_FOR);
        assert_eq!(names(), ["connected", "default", "used"]);
        // A namespace in which its last key has ended begins to count then.
        used.nodes()[0].context.engine.shared().forget(false);
        namespaces.sweep(start + EMPTY_FOR);
        namespaces.sweep(start + EMPTY_FOR + EMPTY_FOR);
        assert_eq!(names(), ["connected", "default"]);
    }

    /// How often what these weak pointers point to is still there, once tasks that end have ended.
    async fn left<T>(all: &[Weak<T>]) -> usize {
        let left = || all.iter().filter(|one| one.strong_count() > 0).count();
        // The tasks are in this runtime, and have all they need to end.
        for _ in 0..1_000_000 {
            if left() == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        left()
    }

    #[tokio::test]
    async fn nothing_of_a_server_or_a_namespace_stays_in_memory() {
        let mut shared = Vec::new();
        for _ in 0..20 {
            let server = Server::builder().tests(2).start().await.unwrap();
            let namespaces = server.namespaces().unwrap();
            let mut connection = server.stream();
            let request =
                b"AUTH namespace:x\r\nTEST.CLOCK AUTO ON IDLE 1\r\nTEST.NODE PAUSE 2\r\nBLPOP l 0\r\n";
            connection.write_all(request).await.unwrap();
            connection.read_exact(&mut [0; 15]).await.unwrap();
            let all = [namespaces.default(), namespaces.enter(b"x").unwrap()];
            let nodes = all.iter().flat_map(|namespace| namespace.nodes());
            shared.extend(nodes.map(|node| Arc::downgrade(node.context.engine.shared())));
        }
        assert_eq!((shared.len(), left(&shared).await), (80, 0));
        let server = Server::builder().tests(2).start().await.unwrap();
        let namespaces = server.namespaces().unwrap();
        let namespace = namespaces.enter(b"x").unwrap();
        namespace.change_clock(ClockChange::Freeze).await.unwrap();
        let dropped = [Arc::downgrade(namespace.nodes()[1].context.engine.shared())];
        drop(namespace);
        assert!(namespaces.remove("x"));
        assert_eq!(left(&dropped).await, 0);
    }
}
