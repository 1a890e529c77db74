//! One namespace: a clock, and an engine for each node. Tests move its clock and break its nodes.
//!
//! Owns    the movements of a test's clock, and what a client of a node can reach.
//! Rule    changes of the clock happen one after the other. Each is over when every connection has sent what it caused.
//! Time    real time is read only to tell how long clients have been silent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use redlatch_core::commands::{Peers, Shared};
use redlatch_core::keyspace::{Due, ShardSet, View};
use redlatch_core::state::clients::{Client, ClientId};
use redlatch_core::state::ledger::{Charge, Kind, Ledger};
use redlatch_proto::clock::{Clock, LockTime};
use redlatch_proto::error::Refusal;
use tokio::task::AbortHandle;

use crate::clock::{NodeClock, TIME_END, TestClock};
use crate::namespaces::{Namespaces, Shell};
use crate::steps::ClockSteps;
use crate::{
    ClockChange, ClockFacts, DEFAULT_NAMESPACE, Deadline, DeadlineOf, Mode, NamespaceFacts, NodeChange,
    NodeFacts, NodeState, Testing, client_fits, next_wait, recording, waits_until,
};

/// A namespace: a clock, and an engine for each node.
#[derive(Debug)]
pub struct Namespace {
    name: Arc<str>,
    clock: Arc<TestClock>,
    nodes: Vec<Node>,
    /// Held while the clock moves.
    moving: tokio::sync::Mutex<()>,
    activity: Arc<Activity>,
    /// The task that moves an automatic clock.
    auto: Mutex<Option<AbortHandle>>,
}

/// A node of a namespace.
#[derive(Debug)]
pub struct Node {
    shell: Arc<dyn Shell>,
    membership: Membership,
}

#[derive(Debug)]
struct NodeStatus {
    /// False while the node is up and has no partition.
    is_restricted: AtomicBool,
    state: Mutex<NodeState>,
    /// Patterns of the clients that it does not answer.
    partitions: RwLock<Vec<Bytes>>,
    /// The memory of the patterns.
    charge: Charge,
    /// Whether the other nodes and it do not hear each other.
    is_isolated: AtomicBool,
    /// The number of the last client that it had when it crashed; zero: it never has. These clients are reset.
    last_crashed: AtomicU64,
}

/// Whether a node answers a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// It does.
    Open,
    /// It neither reads nor writes.
    Silent,
    /// It resets the connection.
    Reset,
}

/// When a client of a namespace was last active, in real time.
#[derive(Debug)]
struct Activity {
    origin: Instant,
    millis: AtomicU64,
}

/// The place of an engine: a node of a namespace.
#[derive(Clone, Debug)]
pub struct Membership {
    pub(crate) namespaces: Weak<Namespaces>,
    namespace: Weak<Namespace>,
    /// From 0 on.
    node: usize,
    clock: Arc<NodeClock>,
    steps: Arc<ClockSteps>,
    status: Arc<NodeStatus>,
    activity: Arc<Activity>,
}

impl Membership {
    /// The number of the node, from 1 on.
    pub fn number(&self) -> u16 {
        u16::try_from(self.node + 1).unwrap_or(u16::MAX)
    }

    /// The clock of the node.
    pub(crate) fn clock(&self) -> &Arc<NodeClock> {
        &self.clock
    }

    /// Whether time stands still, so that no timer has to wait for it.
    pub fn is_frozen(&self) -> bool {
        self.clock.base().is_frozen()
    }

    /// The number of the last step of the clock.
    pub fn clock_step(&self) -> u64 {
        self.steps.last()
    }

    /// The connection of a client has done all work of this step of the clock.
    pub fn finish_clock_step(&self, client: ClientId, step: u64) {
        self.steps.finish(client, step);
    }

    /// A client has gone: no step of the clock waits for it any more.
    pub fn leave_clock_steps(&self, client: ClientId) {
        self.steps.leave(client);
    }

    /// The namespace, unless it has been dropped.
    pub(crate) fn namespace(&self) -> Option<Arc<Namespace>> {
        self.namespace.upgrade()
    }

    /// Removes the namespace; false if it is the default one, which lives as long as the server.
    pub fn remove(&self) -> bool {
        let named = self.namespace().filter(|namespace| &*namespace.name != DEFAULT_NAMESPACE);
        let namespaces = self.namespaces.upgrade();
        named.zip(namespaces).is_some_and(|(namespace, namespaces)| namespaces.remove(&namespace.name))
    }

    /// The engine of this node in the namespace of that name, which is made if there is none.
    ///
    /// # Errors
    /// The name is not allowed, or there are too many namespaces: an error reply.
    pub(crate) fn enter(&self, name: &[u8]) -> Result<Arc<dyn Shell>, String> {
        let stopping = || "ERR the server is stopping".to_owned();
        let namespace = self.namespaces.upgrade().ok_or_else(stopping)?.enter(name)?;
        Ok(Arc::clone(&namespace.nodes[self.node].shell))
    }

    /// Notes that a client is active.
    pub(crate) fn touch(&self) {
        self.activity.touch();
    }

    /// Whether the node answers this client.
    pub fn reach(&self, client: &Client) -> Reach {
        self.status.reach(client)
    }
}

impl Activity {
    fn new() -> Self {
        Self { origin: Instant::now(), millis: AtomicU64::new(0) }
    }

    fn touch(&self) {
        self.millis.store(self.elapsed_ms(), SeqCst);
    }

    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long no client has been active.
    fn silence(&self) -> Duration {
        Duration::from_millis(self.elapsed_ms().saturating_sub(self.millis.load(SeqCst)))
    }
}

impl NodeStatus {
    /// Of a node that is up. Its memory is charged to `ledger`.
    fn new(ledger: &Arc<Ledger>) -> Self {
        Self {
            charge: ledger.open(Kind::Namespaces),
            is_restricted: AtomicBool::new(false),
            state: Mutex::new(NodeState::Up),
            partitions: RwLock::new(Vec::new()),
            is_isolated: AtomicBool::new(false),
            last_crashed: AtomicU64::new(0),
        }
    }

    fn reach(&self, client: &Client) -> Reach {
        if client.id <= self.last_crashed.load(SeqCst) {
            return Reach::Reset;
        }
        if !self.is_restricted.load(SeqCst) {
            return Reach::Open;
        }
        match *self.state.lock() {
            NodeState::Crashed => Reach::Reset,
            NodeState::Paused => Reach::Silent,
            NodeState::Up if self.partitions.read().iter().any(|pattern| client_fits(pattern, client)) => {
                Reach::Silent
            }
            NodeState::Up => Reach::Open,
        }
    }

    fn set(&self, state: NodeState) {
        *self.state.lock() = state;
        self.note_restriction();
    }

    fn note_restriction(&self) {
        // The state stays locked, so that of two changes at once the later one is noted last.
        let state = self.state.lock();
        let partitions = self.partitions.read();
        let is_restricted = *state != NodeState::Up || !partitions.is_empty();
        self.charge.set(partitions.iter().map(|pattern| size_of::<Bytes>() + pattern.len()).sum());
        self.is_restricted.store(is_restricted, SeqCst);
    }
}

const PARTITIONS_MAX: usize = 1000;

impl Namespace {
    /// A namespace of so many nodes, each of whose engines `make` makes for its place.
    ///
    /// # Errors
    /// The last error of `make`.
    pub(crate) fn new<E>(
        (namespaces, name): (&Arc<Namespaces>, Arc<str>),
        clock: Arc<TestClock>,
        nodes: usize,
        mut make: impl FnMut(Membership) -> Result<Arc<dyn Shell>, E>,
    ) -> Result<Arc<Self>, E> {
        let (activity, mut failure) = (Arc::new(Activity::new()), None);
        let namespace = Arc::new_cyclic(|namespace: &Weak<Self>| {
            let mut made = Vec::new();
            for node in 0..nodes {
                let membership = Membership {
                    namespaces: Arc::downgrade(namespaces),
                    namespace: namespace.clone(),
                    node,
                    clock: Arc::new(NodeClock::new(Arc::clone(&clock))),
                    steps: Arc::default(),
                    status: Arc::new(NodeStatus::new(&namespaces.ledger)),
                    activity: Arc::clone(&activity),
                };
                match make(membership.clone()) {
                    Ok(shell) => made.push(Node { shell, membership }),
                    Err(error) => failure = Some(error),
                }
            }
            let moving = tokio::sync::Mutex::new(());
            Self { name, clock, nodes: made, moving, activity, auto: Mutex::new(None) }
        });
        failure.map_or(Ok(namespace), Err)
    }

    /// Its nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn clock(&self) -> &TestClock {
        &self.clock
    }

    /// Its faults and its history, if TEST commands are open. All nodes have the same.
    pub(crate) fn testing(&self) -> Option<&Testing> {
        Testing::of(self.nodes.first()?.shared())
    }

    /// Disconnects all clients, for good.
    pub(crate) fn end(&self) {
        self.stop_auto();
        for node in &self.nodes {
            node.shell.end();
        }
    }

    fn clients(&self) -> impl Iterator<Item = Arc<Client>> {
        self.nodes.iter().flat_map(|node| node.shared().registries.clients.all())
    }

    pub(crate) fn facts(&self) -> NamespaceFacts {
        let nodes = self.node_facts();
        NamespaceFacts {
            name: Arc::clone(&self.name),
            clients: nodes.iter().map(|node| node.clients).sum(),
            keys: nodes.iter().map(|node| node.keys).sum(),
            mode: self.mode(),
        }
    }

    fn mode(&self) -> Mode {
        match (self.auto.lock().is_some(), self.clock.is_frozen()) {
            (true, _) => Mode::Auto,
            (false, true) => Mode::Frozen,
            (false, false) => Mode::Running,
        }
    }

    /// Moves time forward to `target`, through every deadline in between, in their order.
    async fn step_to(&self, target: LockTime) {
        let target = target.min(TIME_END);
        // Requests written to an in-process stream before this call are processed at the old time.
        self.settle().await;
        loop {
            let now = self.clock.now().lock;
            let next = self.tick().map_or(target, |next| next.max(now + 1).min(target));
            if now >= target {
                break;
            }
            self.clock.set(next);
            self.tick();
            self.settle().await;
        }
        self.settle().await;
        self.wake_tickers();
    }

    /// Waits until every connection has done its work and has sent the messages about it.
    async fn settle(&self) {
        for node in &self.nodes {
            node.membership.steps.make(&node.shared().registries.clients).await;
        }
    }

    /// Does all due work of all nodes. Returns the next time at which work is due, by the clock of the namespace.
    fn tick(&self) -> Option<LockTime> {
        let shared = self.nodes.first().map(|node| node.shared());
        let failover = shared.and_then(|shared| shared.peers.as_ref()?.next_failover());
        self.nodes.iter().filter_map(Node::tick).chain(failover).min()
    }

    /// When the next deadline has passed. A key exists through the millisecond of its deadline. The wheel has work in
    /// between, which nobody sees.
    fn next_deadline(&self) -> Option<LockTime> {
        let next_work = self.tick();
        let now = self.clock.now().lock;
        let nodes = (1..).zip(&self.nodes);
        let deadlines = nodes.flat_map(|(number, node)| node.deadlines(number, 1));
        let due_in = deadlines.map(|due| due.in_ms + u64::from(matches!(due.of, DeadlineOf::Key(_)))).min();
        due_in.map(|millis| now + millis).or(next_work).filter(|next| *next <= TIME_END)
    }

    /// Changes the clock. Returns the Unix time in milliseconds; `None` if there is no next deadline.
    ///
    /// # Errors
    /// The time to move to has passed, or is behind `TIME_END`.
    pub async fn change_clock(self: &Arc<Self>, change: ClockChange) -> Result<Option<u64>, Refusal> {
        let _moving = self.moving.lock().await;
        match change {
            ClockChange::Freeze => {
                self.stop_auto();
                self.clock.freeze();
                self.settle().await;
            }
            ClockChange::Run => {
                self.stop_auto();
                self.clock.run();
                self.wake_all();
            }
            ClockChange::Advance(millis) => self.step_to(self.clock.now().lock + millis).await,
            ClockChange::Set(unix_ms) => {
                let now = self.clock.now();
                let millis = i128::from(unix_ms) - i128::from(now.wall().as_millis());
                let target = now.lock + u64::try_from(millis).map_err(|_| has_passed())?;
                if target > TIME_END {
                    return Err(Refusal::said("ERR time ends with the year 9999"));
                }
                self.step_to(target).await;
            }
            ClockChange::Next => {
                self.settle().await;
                let Some(next) = self.next_deadline() else { return Ok(None) };
                self.step_to(next).await;
            }
            ClockChange::Auto { idle_ms } => {
                self.stop_auto();
                self.clock.freeze();
                let task = run_auto(Arc::downgrade(self), Duration::from_millis(idle_ms));
                *self.auto.lock() = Some(tokio::spawn(task).abort_handle());
            }
            ClockChange::AutoOff => self.stop_auto(),
            ClockChange::StepWall(millis) => self.clock.step_wall(millis),
        }
        Ok(Some(self.clock.now().wall().as_millis()))
    }

    fn stop_auto(&self) {
        if let Some(task) = self.auto.lock().take() {
            task.abort();
        }
    }

    /// Wakes all connections and tickers, so that they look at the clock, and at whom their node answers.
    fn wake_all(&self) {
        self.clients().for_each(|client| client.wake());
        self.wake_tickers();
    }

    /// Wakes all tickers: what they sleep until may be due sooner on a clock that was moved.
    fn wake_tickers(&self) {
        self.nodes.iter().for_each(|node| node.shell.wake_ticker());
    }

    /// The clock, with at most `count` deadlines.
    pub(crate) fn clock_facts(&self, count: usize) -> ClockFacts {
        let now = self.clock.now();
        let mut deadlines: Vec<_> =
            (1..).zip(&self.nodes).flat_map(|(number, node)| node.deadlines(number, count)).collect();
        deadlines.sort_by_key(|deadline| deadline.in_ms);
        deadlines.truncate(count);
        ClockFacts { mode: self.mode(), unix_ms: now.wall().as_millis(), lock: now.lock, deadlines }
    }

    pub(crate) fn node_facts(&self) -> Vec<NodeFacts> {
        (1..).zip(&self.nodes).map(|(number, node)| node.facts(number)).collect()
    }

    /// Tells the nodes of a cluster whether this one answers.
    async fn tell_peers(&self, node: &Node, number: u16) {
        let Some(peers) = node.shared().peers.clone() else { return };
        let is_up = *node.membership.status.state.lock() == NodeState::Up;
        let answers = is_up && !node.membership.status.is_isolated.load(SeqCst);
        // On a thread that may wait for a long script.
        let told = tokio::task::spawn_blocking(move || peers.set_answers(number, answers));
        told.await.expect("telling does not panic");
    }

    /// Changes the state of a node; `number` counts from 1 on.
    ///
    /// # Errors
    /// The node has as many partitions as are allowed.
    pub(crate) async fn change_node(&self, number: u16, change: NodeChange) -> Result<(), Refusal> {
        let node = &self.nodes[usize::from(number) - 1];
        match change {
            NodeChange::Crash { keeps_keys } => {
                node.crash();
                // Before its connections and keys go, so that its replicas do not hear of their end.
                self.tell_peers(node, number).await;
                self.wake_all();
                // On a thread that may wait for a long script.
                let shared = Arc::clone(node.shared());
                let forgotten = tokio::task::spawn_blocking(move || shared.forget(keeps_keys));
                forgotten.await.expect("forgetting does not panic");
            }
            NodeChange::Pause => node.membership.status.set(NodeState::Paused),
            NodeChange::Start | NodeChange::Resume => {
                node.shared().recover();
                node.membership.status.set(NodeState::Up);
            }
            NodeChange::Skew(millis) => {
                let _moving = self.moving.lock().await;
                self.settle().await;
                node.membership.clock.set_skew_ms(millis);
                self.tick();
                self.settle().await;
                self.wake_tickers();
            }
            NodeChange::Partition(pattern) => {
                let mut partitions = node.membership.status.partitions.write();
                if partitions.len() >= PARTITIONS_MAX {
                    return Err(Refusal::said(format!("ERR a node has {PARTITIONS_MAX} partitions at most")));
                }
                partitions.push(pattern);
            }
            NodeChange::Isolate => node.membership.status.is_isolated.store(true, SeqCst),
            NodeChange::Heal => {
                node.membership.status.partitions.write().clear();
                node.membership.status.is_isolated.store(false, SeqCst);
            }
            NodeChange::Replication { is_on } => {
                let peers = node.shared().peers.clone();
                let none = || Refusal::said("ERR no node of this server has a replica");
                let peers = peers.ok_or_else(none)?;
                let changed = tokio::task::spawn_blocking(move || peers.set_replication(number, is_on));
                changed.await.expect("changing replication does not panic")?;
            }
        }
        node.membership.status.note_restriction();
        self.tell_peers(node, number).await;
        self.wake_all();
        Ok(())
    }
}

fn has_passed() -> Refusal {
    Refusal::said("ERR that time has passed; TEST.CLOCK STEP-WALL steps the wall clock in either direction")
}

/// Moves the clock to the next deadline whenever all clients have been silent for `idle`.
async fn run_auto(namespace: Weak<Namespace>, idle: Duration) {
    loop {
        let silence = namespace.upgrade().map(|namespace| namespace.activity.silence());
        let Some(silence) = silence else { return };
        if silence < idle {
            tokio::time::sleep(idle - silence).await;
            continue;
        }
        let Some(namespace) = namespace.upgrade() else { return };
        if namespace.clients().next().is_some() {
            let moving = namespace.moving.lock().await;
            if let Some(next) = namespace.next_deadline() {
                namespace.step_to(next).await;
            }
            drop(moving);
        }
        namespace.activity.touch();
    }
}

impl Node {
    /// What serves its clients.
    pub fn shell(&self) -> &dyn Shell {
        &*self.shell
    }

    /// The state of its engine.
    pub fn shared(&self) -> &Arc<Shared> {
        self.shell.engine().shared()
    }

    /// Its clients are gone for the locks and for the history before the first of their connections ends.
    fn crash(&self) {
        let (shared, status) = (self.shared(), &self.membership.status);
        shared.crash();
        recording::crashed(shared);
        status.set(NodeState::Crashed);
        // They end also if the node starts before they have noticed.
        let last = shared.registries.clients.all().iter().map(|client| client.id).max();
        status.last_crashed.fetch_max(last.unwrap_or(0), SeqCst);
    }

    /// Does all due work. Returns the next time at which work is due, by the clock of the namespace.
    fn tick(&self) -> Option<LockTime> {
        let engine = self.shell.engine();
        engine.sweep();
        let next = loop {
            if let Due::Next(next) = engine.tick() {
                break next;
            }
        };
        let clock = &self.membership.clock;
        let now = clock.now().lock;
        let due = [next, next_wait(engine.shared())].into_iter().flatten().filter(|next| *next > now).min();
        due.or(next).map(|next| clock.base_time(next))
    }

    fn facts(&self, number: u16) -> NodeFacts {
        let shared = self.shared();
        NodeFacts {
            node: number,
            port: shared.instance.main_port(),
            state: *self.membership.status.state.lock(),
            skew_ms: self.membership.clock.skew_ms(),
            partitions: self.membership.status.partitions.read().clone(),
            clients: shared.registries.clients.all().len(),
            keys: (0..shared.keyspace.databases())
                .map(|database| shared.keyspace.known_size(database).0)
                .sum(),
        }
    }

    /// The next deadlines of this node, `count` at most, in their order. While a long call holds the keys, theirs are left
    /// out. What should have happened, but is held up by a pause, is no deadline any more.
    fn deadlines(&self, number: u16, count: usize) -> Vec<Deadline> {
        let shared = self.shared();
        let now = self.membership.clock.now();
        let mut found: Vec<(LockTime, DeadlineOf)> = Vec::new();
        let shorten = |found: &mut Vec<(LockTime, DeadlineOf)>| {
            found.sort_by_key(|(time, _)| *time);
            found.truncate(count);
        };
        let is_replica = shared.peers.as_ref().is_some_and(Peers::is_replica);
        for database in 0..shared.keyspace.databases() {
            // The keys of a replica end with those of its master.
            if is_replica || shared.keyspace.known_size(database).1 == 0 {
                continue;
            }
            let view = View::try_lock(&shared.keyspace, ShardSet::All, database, now, shared.events());
            let Some(mut view) = view else { break };
            view.whole().survey(|entry| {
                if let Some(deadline) = entry.deadline.filter(|deadline| !deadline.has_passed(now.lock)) {
                    found.push((deadline.time(), DeadlineOf::Key(Bytes::copy_from_slice(entry.key))));
                    if found.len() > 16 * count {
                        shorten(&mut found);
                    }
                }
            });
            view.finish(&shared.registries);
        }
        for client in shared.registries.clients.all() {
            let until = waits_until(shared, &client).filter(|until| *until > now.lock);
            found.extend(until.map(|until| (until, DeadlineOf::Wait(client.id))));
        }
        found.extend(shared.pause.holds(|| true, now.lock).map(|until| (until, DeadlineOf::Pause)));
        shorten(&mut found);
        let (offset_ms, base) = (now.wall_offset_ms, self.membership.clock.base().now().lock);
        found
            .into_iter()
            .map(|(time, of)| Deadline {
                unix_ms: time.as_millis().saturating_add_signed(offset_ms),
                in_ms: self.membership.clock.base_time(time).millis_since(base),
                of,
                node: number,
            })
            .collect()
    }
}
