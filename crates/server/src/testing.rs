//! The test backend, as the rest of the server sees it.
//!
//! Owns    how the engines of namespaces are made, and what a connection does where a fault meets a request.
//! Rule    a server without tests comes here once, at its start. `testing_none` stands in where there is no test backend.

use std::any::Any;
use std::sync::Arc;

use redlatch_core::commands::{Extension, Peers};
use redlatch_core::engine::{Batch, Engine, Flow};
use redlatch_core::journal::Journal;
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::{self, Settings};
use redlatch_core::state::slot_map::Members;
use redlatch_proto::clock::{Clock as AnyClock, WallTime};
use redlatch_proto::resp::Request;
use redlatch_testing::handles::{Clock, Faults, History, Namespace, NamespaceError, Nodes, Streams};
use redlatch_testing::requests::{self, Step};
use redlatch_testing::{MakeError, Maker, Namespaces, Place, Progress, Shell};
use tokio::io::DuplexStream;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::blueprint::{Addition, Blueprint, EngineClock};
use super::context::ServerContext;
use super::handle::open_stream;
use super::processor::State;
use super::worker::Workers;
use super::{Builder, Server, StartError, ticker};

pub(super) use redlatch_testing::commands::table as commands;
pub(super) use redlatch_testing::{ConnectionFaults, Membership, Reach, disconnected};

/// Whether the settings ask for namespaces: for TEST commands, or for several nodes.
pub(super) fn is_wanted(settings: &Settings) -> bool {
    settings.get(settings::ENABLE_TEST_COMMANDS) != "no" || settings.get(settings::NODES) > 1
}

/// Whether the settings can be used in this build: they can.
///
/// # Errors
/// None.
pub(super) fn check(_: &Settings) -> Result<(), StartError> {
    Ok(())
}

/// The namespaces of a server whose clock is a test's.
#[derive(Debug)]
pub(super) struct Tests {
    namespaces: Arc<Namespaces>,
    /// The namespace of clients that name none.
    namespace: Arc<redlatch_testing::Namespace>,
}

impl Tests {
    /// The namespaces of a new server: the default one alone, with a clock that stands still at `start`, or runs.
    ///
    /// # Errors
    /// A setting or a user is not as it must be.
    pub(super) fn start(
        blueprint: Blueprint,
        settings: &Settings,
        start: Option<WallTime>,
    ) -> Result<Self, StartError> {
        let open_to = match settings.get(settings::ENABLE_TEST_COMMANDS).as_str() {
            "yes" => Some(OpenTo::Everybody),
            "local" => Some(OpenTo::Local),
            _ => None,
        };
        let nodes = TestNodes { blueprint, open_to, nodes: settings.get(settings::NODES) };
        let namespaces = Namespaces::new(Box::new(nodes), start).map_err(start_error)?;
        Ok(Self { namespace: namespaces.default(), namespaces })
    }

    /// The engines of the default namespace, in the order of its nodes.
    pub(super) fn contexts(&self) -> Vec<ServerContext> {
        self.namespace.nodes().iter().map(|node| context_of(node.shell()).clone()).collect()
    }

    /// Notes the port of a node, which its clients in later namespaces see in INFO.
    pub(super) fn set_port(&self, node: usize, port: u16) {
        self.namespaces.set_port(node, port);
    }
}

/// Why a server does not start that cannot make an engine.
fn start_error(error: MakeError) -> StartError {
    error
        .downcast::<StartError>()
        .map_or_else(|other| StartError::Unusable(other.to_string()), |error| *error)
}

/// To whom TEST commands are open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum OpenTo {
    Everybody,
    Local,
}

/// What the nodes of namespaces are made from.
#[derive(Debug)]
struct TestNodes {
    blueprint: Blueprint,
    open_to: Option<OpenTo>,
    nodes: usize,
}

impl TestNodes {
    /// The settings of a node, counted from 0 on, which is told the port that follows those of the nodes before it.
    fn settings_of(&self, node: usize) -> Result<Settings, StartError> {
        let settings = self.blueprint.settings()?;
        if let announced @ 1.. = settings.get(settings::CLUSTER_ANNOUNCE_PORT) {
            settings.set("cluster-announce-port", &(usize::from(announced) + node).to_string())?;
        }
        Ok(settings)
    }
}

impl Maker for TestNodes {
    fn nodes(&self) -> usize {
        self.nodes
    }

    fn peers(&self, clock: Arc<dyn AnyClock>) -> Result<Vec<Option<Peers>>, MakeError> {
        let settings = self.blueprint.settings()?;
        if !settings.get(settings::CLUSTER_ENABLED) || self.nodes == 1 {
            return Ok(vec![None; self.nodes]);
        }
        let timeout_ms = settings.get(settings::CLUSTER_NODE_TIMEOUT);
        let nodes = u16::try_from(self.nodes).unwrap_or(u16::MAX);
        let replicas = settings.get(settings::CLUSTER_REPLICAS);
        if replicas > 0 && self.blueprint.journal.is_some() {
            let text = "cluster-replicas: the program that embeds the server has a journal of its own";
            return Err(StartError::Unusable(text.into()).into());
        }
        let peers = Peers::cluster(Members { nodes, replicas }, clock, timeout_ms);
        Ok(peers.into_iter().map(Some).collect())
    }

    fn make(&self, place: Place) -> Result<Arc<dyn Shell>, MakeError> {
        let node = usize::from(place.membership.number()) - 1;
        let (settings, ticker) = (self.settings_of(node)?, Arc::new(Notify::new()));
        let stream = place.peers.as_ref().and_then(Peers::stream).cloned();
        let journal = match stream {
            Some(stream) => Some(stream as Arc<dyn Journal>),
            None => self.blueprint.journal.clone().filter(|_| !place.is_named()),
        };
        let mut keyspace = self.blueprint.keyspace(&settings, journal, (place.is_named(), &ticker));
        if self.open_to.is_some() {
            keyspace.observe_locks(place.observer());
        }
        let clock = EngineClock { clock: place.clock(), system: None };
        let addition = Addition {
            is_named: place.is_named(),
            seed: node as u64,
            extension: self
                .open_to
                .map(|to| Arc::new(place.testing(to == OpenTo::Local)) as Arc<dyn Extension>),
            peers: place.peers,
            membership: Some(place.membership),
        };
        let context = self.blueprint.assemble(settings, (keyspace, clock, ticker), addition, None)?;
        Ok(Arc::new(context))
    }
}

impl Shell for ServerContext {
    fn engine(&self) -> &Engine {
        &self.engine
    }

    fn run(&self, runtime: &Handle) {
        runtime.spawn(ticker::run(self.clone()));
    }

    fn wake_ticker(&self) {
        self.ticker().notify_one();
    }

    fn end(&self) {
        self.engine.shared().scripts.running.end_all();
        self.end_with(Client::close);
    }
}

/// The engine that this server has made.
fn context_of(shell: &dyn Shell) -> &ServerContext {
    (shell as &dyn Any).downcast_ref().expect("the nodes of a server are its own")
}

impl Streams for Workers {
    fn open(&self, shell: &dyn Shell) -> DuplexStream {
        open_stream(context_of(shell), self)
    }
}

/// What becomes of a request that is not just executed.
pub(super) enum Detour {
    /// A fault holds the connection up, or has its request executed twice.
    Faulty(Progress),
    /// The request comes again in the engine of another namespace.
    Move(ServerContext),
    /// It is not read, because the node does not answer this client.
    Unreachable,
}

impl Detour {
    /// The state of the connection, whether the request stays in the input, and where the connection moves.
    pub(super) fn outcome(self) -> (State, bool, Option<ServerContext>) {
        match self {
            Self::Faulty(Progress::Held { until, is_done }) => (State::Stalled(until), !is_done, None),
            Self::Faulty(_) => (State::Waiting, true, None),
            Self::Move(context) => (State::Open, true, Some(context)),
            Self::Unreachable => (State::Open, true, None),
        }
    }
}

/// Executes one request at a node of a namespace.
///
/// # Errors
/// It is not just executed.
pub(super) fn execute(
    (engine, membership, faults): (&Engine, &Membership, &mut Option<Box<ConnectionFaults>>),
    session: &mut Session,
    request: Request<'_>,
    batch: &mut Batch,
    out: &mut Vec<u8>,
) -> Result<Flow, Detour> {
    let server = (engine, membership, &mut **faults.get_or_insert_default());
    match requests::execute(server, session, request, batch, out) {
        Step::Done(progress) => flow(progress),
        Step::Move(shell) => Err(Detour::Move(context_of(&*shell).clone())),
        Step::Unreachable => Err(Detour::Unreachable),
    }
}

fn flow(progress: Progress) -> Result<Flow, Detour> {
    match progress {
        Progress::Done(flow) => Ok(flow),
        progress => Err(Detour::Faulty(progress)),
    }
}

/// A request that has waited was answered: its reply begins at that place in the output.
///
/// # Errors
/// A fault holds the connection up.
pub(super) fn end_wait(
    faults: &mut Option<Box<ConnectionFaults>>,
    engine: &Engine,
    session: &Session,
    reply: (usize, &mut Vec<u8>),
) -> Result<Flow, Detour> {
    let Some(faults) = faults else { return Ok(Flow::Next) };
    flow(faults.finish_wait(engine, session, reply))
}

impl Builder {
    /// Time stands still at `start` until [`Clock::advance`] moves it. Default: the system's clocks.
    #[must_use]
    pub fn manual_clock(mut self, start: WallTime) -> Self {
        self.manual_start = Some(start);
        self
    }

    /// Opens the test backend to clients on this machine: namespaces and TEST commands. Its clock runs, unless
    /// [`Builder::manual_clock`] stops it. `nodes` stores have a port each. Default: no test backend, one node.
    #[must_use]
    pub fn tests(self, nodes: u16) -> Self {
        self.set("enable-test-commands", "local").set("nodes", nodes.to_string())
    }

    /// Makes it a Redis Cluster of so many nodes, each on a port of its own, with the test backend of [`Builder::tests`].
    /// They are masters, unless there are [`Builder::replicas`], and share out the slots. Default: it is no cluster.
    #[must_use]
    pub fn cluster(self, nodes: u16) -> Self {
        self.tests(nodes).set("cluster-enabled", "yes")
    }

    /// So many nodes of a [`Builder::cluster`] are replicas of each master: the last ones. A cluster with replicas has three
    /// masters or more. Default: 0.
    #[must_use]
    pub fn replicas(self, replicas: u16) -> Self {
        self.set("cluster-replicas", replicas.to_string())
    }
}

impl Server {
    fn namespace_of_tests(&self) -> Option<&Arc<redlatch_testing::Namespace>> {
        self.tests.as_ref().map(|tests| &tests.namespace)
    }

    /// The server's clock.
    pub fn clock(&self) -> Clock<'_> {
        Clock::new(self.context().engine.shared(), self.namespace_of_tests())
    }

    /// The namespace of this name, which is made if there is none: a server of its own behind the same port.
    ///
    /// # Errors
    /// The server was built without [`Builder::tests`], the name is not allowed, or there are too many namespaces.
    pub fn namespace(&self, name: impl AsRef<str>) -> Result<Namespace, NamespaceError> {
        let namespaces = self.tests.as_ref().map(|tests| &tests.namespaces);
        Namespace::enter(namespaces, name.as_ref(), (self.addr(), Arc::clone(&self.workers) as _))
    }

    /// The faults of the server.
    ///
    /// # Panics
    /// When the server was built without [`Builder::tests`].
    pub fn faults(&self) -> Faults<'_> {
        Faults::new(self.namespace_of_tests())
    }

    /// What has happened on the server.
    ///
    /// # Panics
    /// When the server was built without [`Builder::tests`].
    pub fn history(&self) -> History<'_> {
        History::new(self.namespace_of_tests())
    }

    /// The nodes of the server.
    ///
    /// # Panics
    /// When the server was built without [`Builder::tests`].
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes::new(self.namespace_of_tests(), &*self.workers)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::time::{Duration, Instant};

    use redlatch_testing::{ClockChange, EMPTY_FOR};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn namespaces(server: &Server) -> &Arc<Namespaces> {
        &server.tests.as_ref().unwrap().namespaces
    }

    #[tokio::test]
    async fn a_namespace_goes_when_it_has_been_empty_for_ten_minutes() {
        let server = Server::builder().tests(1).start().await.unwrap();
        let namespaces = namespaces(&server);
        let start = Instant::now();
        for name in ["empty", "used", "connected"] {
            namespaces.enter(name.as_bytes()).unwrap();
        }
        let used = namespaces.enter(b"used").unwrap();
        let mut connection = server.stream();
        let request = b"AUTH namespace:used\r\nSET k v\r\nAUTH namespace:connected\r\nPING\r\n";
        connection.write_all(request).await.unwrap();
        connection.read_exact(&mut [0; 22]).await.unwrap();
        let names = || -> Vec<_> { namespaces.facts().iter().map(|facts| facts.name.to_string()).collect() };
        namespaces.sweep(start);
        namespaces.sweep(start + EMPTY_FOR - Duration::from_millis(1));
        assert_eq!(names(), ["connected", "default", "empty", "used"]);
        namespaces.sweep(start + EMPTY_FOR);
        assert_eq!(names(), ["connected", "default", "used"]);
        // A namespace in which its last key has ended begins to count then.
        used.nodes()[0].shared().forget(false);
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
            let namespaces = namespaces(&server);
            let mut connection = server.stream();
            let request =
                b"AUTH namespace:x\r\nTEST.CLOCK AUTO ON IDLE 1\r\nTEST.NODE PAUSE 2\r\nBLPOP l 0\r\n";
            connection.write_all(request).await.unwrap();
            connection.read_exact(&mut [0; 15]).await.unwrap();
            let all = [namespaces.default(), namespaces.enter(b"x").unwrap()];
            let nodes = all.iter().flat_map(|namespace| namespace.nodes());
            shared.extend(nodes.map(|node| Arc::downgrade(node.shared())));
        }
        assert_eq!((shared.len(), left(&shared).await), (80, 0));
        let server = Server::builder().tests(2).start().await.unwrap();
        let namespaces = namespaces(&server);
        let namespace = namespaces.enter(b"x").unwrap();
        namespace.change_clock(ClockChange::Freeze).await.unwrap();
        let dropped = [Arc::downgrade(namespace.nodes()[1].shared())];
        drop(namespace);
        assert!(namespaces.remove("x"));
        assert_eq!(left(&dropped).await, 0);
    }
}
