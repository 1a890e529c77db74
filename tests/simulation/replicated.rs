//! Nodes that serve one set of locks in turn: the real engine, log, recovery and replication on a model of etcd. Or several
//! groups of slots, each a set of locks with a term, a log and a part of the clients of its own: see [`groups`].
//!
//! Faults  kills and pauses of nodes; nodes that are cut from etcd while clients reach them, from clients, or from both; an
//!         etcd that answers nobody; transactions that are late, lost, refused or there twice, and answers that are lost;
//!         clean stops; clocks of different rates; steps of the wall clock; clients that give up and go to another node.
//! Restore the store of etcd is put back to what it was some seconds before, once or twice, if a run asks for it. The nodes
//!         remember what they have seen also after a kill. Beliefs and tokens keep their laws; what was written is lost.
//! Laws    those of [`super::crash_clients`]; every lock in which a client believes is there when a node begins to serve;
//!         what was committed at the end of a leader is there; lock time never runs ahead; nobody waits in quarantine;
//!         reads and writes of every key are linearizable; once the faults have ended, requests are answered.
//! Time    real time is an event queue. One thread runs at a time: that of the world, or that of one node.

mod clients;
mod faults;
mod groups;
mod laws;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use parking_lot::Mutex;
use redlatch_core::commands::Shared;
use redlatch_core::engine::Engine;
use redlatch_core::journal::log::{Log, Owed};
use redlatch_core::journal::recovery::{Found, Resume};
use redlatch_core::keyspace::{Copied, CopyCursor, Keyspace};
use redlatch_core::replication::balance::Balance;
use redlatch_core::replication::cluster::Keys;
use redlatch_core::replication::etcd::{EtcdError, Transaction};
use redlatch_core::replication::restored::{self, Memory};
use redlatch_core::state::clients::Client as Peer;
use redlatch_core::state::lock_sessions::RestoredLock;
use redlatch_core::state::settings::Settings;
use redlatch_core::state::slot_groups::SlotGroup;
use redlatch_proto::clock::{Clock, LockTime, Now};
use redlatch_proto::resp::Request as Words;

pub(super) use groups::GROUP_DEFECTS;
use groups::Group;

use super::crash_clients::Client;
use super::crash_server::{Connection, Server, ServerClock, passed_ms};
use super::parts::standing;
use super::replicated_etcd::{Near, Store, Turn, Wake};
use super::replicated_node::{self, PREFIX};
use crate::support::interpreter::INTERPRETER;
use crate::support::rng::Rng;

/// Clients of each group.
const CLIENTS: usize = 6;
/// How many of them only read.
const READERS: usize = 2;
const MACHINES: usize = 3;
/// How long the log stands still before another node takes over.
pub(super) const TAKEOVER_MS: u64 = 1_000;
/// How long one run lasts, in milliseconds of real time, and how long faults begin.
const RUN_MS: u64 = 20_000;
const FAULTS_MS: u64 = 13_000;
/// How long a fault lasts at most.
const FAULT_MS_MAX: u64 = 4_000;
/// How long something takes between a node and etcd that is late, at most.
const LATE_MS_MAX: u64 = 700;
/// How long a node that reaches etcd again is hidden from most clients.
const HIDDEN_MS: u64 = 600;
/// How long nobody is answered at most at the end of a run.
const SILENCE_MS_MAX: u64 = 1_000;
/// How long a run lasts in which etcd is restored: the longest lease and the grace of the quarantine pass in it.
const RESTORE_RUN_MS: u64 = 48_000;
/// How often an operator looks whether a restored log waits.
const OPERATOR_EVERY_MS: u64 = 500;
/// How long nothing is granted at most at the end of such a run: what a client holds that has gone away.
const GRANTLESS_MS_MAX: u64 = 9_000;
/// How long most things take between a node and an etcd that is near, at most.
const QUIET_WAY_MS_MAX: u64 = 10;
/// Real time at the beginning of a run.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// How long a reply is on its way at most.
const DELIVERY_MS_MAX: u64 = 5;
/// How long a node waits for etcd.
const TIMEOUT_MS: u64 = 400;
/// By how many millionths the clocks of the nodes differ from real time.
const FASTER_PPM_MAX: u64 = 50_000;

/// How the nodes are broken. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Defect {
    None,
    /// A node accepts a restored log by itself, without a quarantine.
    AcceptsRestored,
    /// Replies do not wait for the commit.
    AnswersBeforeCommit,
    /// A leader commits in the epoch of another node.
    CommitsWithoutEpoch,
    /// A leader commits wherever the head is.
    CommitsWithoutHead,
    /// Lock time jumps ahead when another node takes over.
    JumpsAhead,
    /// A leader begins on a restored log without a quarantine and without other tokens.
    LacksNothing,
    /// Replies that tell of nothing new leave at once.
    ReadsWithoutProof,
    /// A leader that another node may have replaced leaves the connections of sessions open.
    KeepsSessions,
    /// A leader answers for every group.
    IgnoresSlots,
    /// A leader goes on answering for a group that it has lost.
    KeepsLostGroup,
    /// A node tells clients that the groups of others are its own.
    NamesItself,
    /// A leader refuses all requests while that of another group does not answer.
    NeedsAllGroups,
}

/// Those that show where etcd is restored.
pub(super) const RESTORE_DEFECTS: &[Defect] = &[Defect::AcceptsRestored, Defect::LacksNothing];

pub(super) const DEFECTS: &[Defect] = &[
    Defect::AnswersBeforeCommit,
    Defect::CommitsWithoutEpoch,
    Defect::CommitsWithoutHead,
    Defect::JumpsAhead,
    Defect::ReadsWithoutProof,
    Defect::KeepsSessions,
];

/// What a node blocks for.
pub(super) enum Wait {
    Etcd(Transaction),
    /// So many milliseconds, or a reply that waits for a commit.
    Pause(u64),
}

/// What happens at some time.
enum Event {
    /// A client chooses what to do.
    Act(usize),
    /// A request arrives over a connection.
    Arrive(usize, Link),
    /// The answer to a wait of a node, by its number, is there, or will not be.
    Answer(usize, u64, Wake),
    /// A client has closed its connection.
    Close(usize, Link),
    Deliver(usize, Link, String),
    Fault,
    /// A leader, by its number, writes its journal.
    Flush(usize, u64),
    /// A client waits no longer for the reply to the request that it sent at this time.
    GiveUp(usize, Link, u64),
    /// The pause of a node ends.
    Go(usize, u64),
    /// Somebody looks whether a restored log is to be accepted.
    Operate,
    /// A transaction of a node arrives at etcd, if that is still the one that it was sent to.
    Request(usize, u64, (Transaction, u64)),
    /// The end of a leader closes a connection.
    Reset(usize, Link),
    /// The state of etcd becomes that of the snapshot.
    Restore,
    /// The state of etcd is saved.
    Save,
    Start(usize),
}

/// A connection of a client: the node, the number of the leader that it was, and the number of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Link {
    node: usize,
    leader: u64,
    number: u64,
}

/// What must be done without the world being locked.
enum Job {
    None,
    Over,
    Start(usize),
    Wake(usize, Option<Wake>),
}

/// A node in one group, and its thread. Those of a machine are one process, in the order of the groups.
struct Node {
    turn: Option<Turn>,
    incarnation: u64,
    /// The number of its wait, and whether it is a pause.
    wait: u64,
    is_pausing: bool,
    faster_ppm: i64,
    /// Until when its machine is stopped, as by SIGSTOP, and cut from etcd.
    paused_until_ms: u64,
    cut_until_ms: u64,
    /// Until when all is late between it and etcd.
    slow_until_ms: u64,
    /// Until when only readers reach it.
    hidden_until_ms: u64,
    /// Whether it is to end in good order.
    stops: bool,
    /// When it was to lead its group last, of all nodes.
    first_ms: u64,
    /// Whether its server goes on though its term has ended.
    is_kept: bool,
    leader: Option<(u64, Server)>,
    memory: Memory,
    /// Which connection of each client its server has.
    open: Vec<Option<Link>>,
}

/// The nodes, their clients and etcd.
pub(super) struct World {
    pub(super) defect: Defect,
    pub(super) rng: Rng,
    pub(super) broken: Option<String>,
    real_ms: Arc<AtomicU64>,
    wall_offset_ms: Arc<AtomicI64>,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    store: Store,
    /// What was saved of it, and how often it was restored.
    saved: Option<Store>,
    pub(super) restores: u64,
    run_ms: u64,
    /// How long most things take between a node and etcd.
    way_ms_max: u64,
    nodes: Vec<Node>,
    /// What the process of each machine knows of the leaders, if there are several groups.
    slots: Vec<Vec<SlotGroup>>,
    groups: Vec<Group>,
    balance: Balance,
    /// Whether etcd is near and loses nothing, but for machines that a fault hits.
    is_quiet: bool,
    /// Processes that were killed, whose threads have not ended.
    killed: Vec<Turn>,
    leaders: u64,
    clients: Vec<Client>,
    links: Vec<Option<Link>>,
    /// The nodes that the clients were told of by MOVED.
    routes: Vec<Option<usize>>,
    connections: u64,
    /// The operations of the clients in the histories of the shared keys that have no reply.
    open: Vec<Option<(usize, usize)>>,
    stats: Stats,
}

pub(super) type WorldHandle = Arc<Mutex<World>>;

/// What has happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stats {
    pub(super) leaders: u64,
    pub(super) replies: u64,
    /// Replies that sent a client to another node.
    pub(super) rerouted: u64,
    /// When a client was granted a lock or an extension last.
    pub(super) granted_ms: u64,
    /// Keys of etcd in the end.
    pub(super) keys: usize,
}

/// Runs one world. Returns what has happened, or the first broken law.
pub(super) fn run(seed: u64, defect: Defect) -> Result<Stats, String> {
    run_world(World::new(seed, defect))
}

/// Runs one world of several groups.
pub(super) fn run_in_groups(seed: u64, defect: Defect) -> Result<Stats, String> {
    run_world(World::in_groups(seed, defect, 2 + seed as usize % 3))
}

/// Runs one world in which etcd is restored.
pub(super) fn run_with_restores(seed: u64, defect: Defect) -> Result<Stats, String> {
    let mut world = World::new(seed, defect);
    world.run_ms = RESTORE_RUN_MS;
    world.store.id = 1;
    let save_ms = 2_000 + world.rng.below_u64(6_000);
    let restore_ms = save_ms + world.rng.below_u64(5_000);
    world.schedule(save_ms, Event::Save);
    world.schedule(restore_ms, Event::Restore);
    if world.rng.one_in(3) {
        let again_ms = restore_ms + world.rng.below_u64(4_000);
        world.schedule(again_ms, Event::Restore);
    }
    world.schedule(OPERATOR_EVERY_MS, Event::Operate);
    run_world(world)
}

fn run_world(world: World) -> Result<Stats, String> {
    let world = Arc::new(Mutex::new(world));
    loop {
        let job = world.lock().step();
        match job {
            Job::None => {}
            Job::Over => break,
            Job::Start(node) => {
                let incarnation = world.lock().nodes[node].incarnation;
                let life = move |port: Arc<_>| replicated_node::run(&port, incarnation);
                let turn = Turn::begin(node, Arc::clone(&world), life);
                world.lock().nodes[node].turn = Some(turn);
            }
            Job::Wake(node, why) => {
                let turn = world.lock().nodes[node].turn.take();
                turn.iter().for_each(|turn| turn.wake(why.clone()));
                world.lock().nodes[node].turn = turn;
            }
        }
        let (killed, is_broken) = {
            let mut world = world.lock();
            (std::mem::take(&mut world.killed), world.broken.is_some())
        };
        // Their threads end without the world being locked.
        drop(killed);
        if is_broken {
            break;
        }
    }
    // The storage of a leader has the world, too.
    let take = |node: &mut Node| (node.turn.take(), node.leader.take());
    let ended: Vec<_> = world.lock().nodes.iter_mut().map(take).collect();
    drop(ended);
    let mut world = world.lock();
    let at_ms = world.now_ms() - BEGIN_MS;
    match world.broken.take().map_or_else(|| world.check_end(), Err) {
        Ok(()) => Ok(Stats { leaders: world.leaders, keys: world.store.len(), ..world.stats }),
        Err(why) => Err(format!("{at_ms} ms: {why}")),
    }
}

impl World {
    fn new(seed: u64, defect: Defect) -> Self {
        Self::in_groups(seed, defect, 1)
    }

    fn in_groups(seed: u64, defect: Defect, count: usize) -> Self {
        let mut rng = Rng::new(seed);
        let mut faster_ppm = || rng.below_u64(2 * FASTER_PPM_MAX) as i64 - FASTER_PPM_MAX as i64;
        let rates: Vec<i64> = (0..MACHINES).map(|_| faster_ppm()).collect();
        let clients = CLIENTS * count;
        let nodes = rates.iter().flat_map(|rate| std::iter::repeat_n(*rate, count)).map(|faster_ppm| Node {
            turn: None,
            incarnation: 0,
            wait: 0,
            is_pausing: false,
            faster_ppm,
            paused_until_ms: 0,
            cut_until_ms: 0,
            slow_until_ms: 0,
            hidden_until_ms: 0,
            stops: false,
            first_ms: 0,
            is_kept: false,
            leader: None,
            memory: Memory::default(),
            open: vec![None; clients],
        });
        let nodes = nodes.collect();
        let groups = Group::all(count);
        let client = |who: usize| Client::of_replicas(who % CLIENTS < READERS, &groups[who / CLIENTS].tag);
        let of_clients = (0..clients).map(client).collect();
        let way_ms_max = rng.pick(&[4, 4, 30, 100]);
        let mut world = Self {
            defect,
            rng,
            broken: None,
            real_ms: Arc::new(AtomicU64::new(BEGIN_MS)),
            wall_offset_ms: Arc::default(),
            events: BTreeMap::new(),
            scheduled: 0,
            store: Store::default(),
            saved: None,
            restores: 0,
            run_ms: RUN_MS,
            way_ms_max,
            nodes,
            slots: vec![SlotGroup::all(count as u16); MACHINES],
            groups,
            balance: Balance::new(count as u16),
            is_quiet: false,
            killed: Vec::new(),
            leaders: 0,
            clients: of_clients,
            links: vec![None; clients],
            routes: vec![None; clients],
            connections: 0,
            open: vec![None; clients],
            stats: Stats::default(),
        };
        if count > 1 && world.rng.one_in(2) {
            (world.is_quiet, world.way_ms_max) = (true, QUIET_WAY_MS_MAX);
        }
        (0..world.nodes.len()).for_each(|node| world.schedule(0, Event::Start(node)));
        (0..clients).for_each(|who| world.schedule(0, Event::Act(who)));
        world.schedule(1_000, Event::Fault);
        world
    }

    fn now_ms(&self) -> u64 {
        self.real_ms.load(SeqCst)
    }

    pub(super) fn wall_ms(&self) -> u64 {
        self.now_ms().saturating_add_signed(self.wall_offset_ms.load(SeqCst))
    }

    /// The monotonic clock of a node.
    pub(super) fn boot_ms(&self, node: usize) -> u64 {
        passed_ms(self.now_ms() - BEGIN_MS / 2, self.nodes[node].faster_ppm)
    }

    /// The clock of a leader that begins at this lock time.
    pub(super) fn clock_from(&self, node: usize, now: LockTime) -> Arc<ServerClock> {
        Arc::new(ServerClock {
            real_ms: Arc::clone(&self.real_ms),
            wall_offset_ms: Arc::clone(&self.wall_offset_ms),
            origin: (now.as_millis(), self.now_ms()),
            faster_ppm: self.nodes[node].faster_ppm,
        })
    }

    fn schedule(&mut self, delay_ms: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((self.now_ms() + delay_ms, self.scheduled), event);
    }

    fn schedule_within(&mut self, delay_ms: u64, event: Event) {
        let delay_ms = self.rng.below_u64(delay_ms);
        self.schedule(delay_ms, event);
    }

    fn step(&mut self) -> Job {
        let Some(((at_ms, number), event)) = self.events.pop_first() else { return Job::Over };
        self.real_ms.fetch_max(at_ms, SeqCst);
        if self.now_ms() > BEGIN_MS + self.run_ms {
            return Job::Over;
        }
        if let Some(node) = event.node()
            && self.nodes[node].paused_until_ms > at_ms
        {
            self.events.insert((self.nodes[node].paused_until_ms, number), event);
            return Job::None;
        }
        let job = match event {
            Event::Start(node) => {
                self.nodes[node].incarnation += 1;
                return Job::Start(node);
            }
            Event::Answer(node, wait, answer) => self.wake(node, wait, answer),
            // A pause ends with no answer in particular.
            Event::Go(node, wait) => self.wake(node, wait, Err(EtcdError::Unknown(String::new()))),
            event => {
                self.happen(event);
                Job::None
            }
        };
        self.close_doubtful_sessions();
        self.look_after_waits();
        job
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Act(who) => self.act(who),
            Event::Arrive(who, link) => self.arrive(who, link),
            Event::Close(who, link) => self.close(who, link),
            Event::Deliver(who, link, reply) => self.deliver(who, link, &reply),
            Event::Fault => self.fault(),
            Event::Flush(node, leader) => self.flush(node, leader),
            Event::GiveUp(who, link, sent_ms) => self.give_up(who, link, sent_ms),
            Event::Operate => self.operate(),
            // The connections of the etcd before are gone.
            Event::Request(_, _, (_, restores)) if restores != self.restores => {}
            Event::Request(node, wait, (transaction, _)) => self.request(node, wait, &transaction),
            Event::Reset(who, link) => self.reset(who, link),
            Event::Restore => self.restore(),
            Event::Save => self.saved = (self.store.len() > 3).then(|| self.store.clone()),
            Event::Start(_) | Event::Answer(..) | Event::Go(..) => unreachable!("a job"),
        }
    }

    /// Ends the wait of a node, if it is still the same.
    fn wake(&mut self, node: usize, wait: u64, answer: Wake) -> Job {
        let state = &mut self.nodes[node];
        if state.turn.is_none() || state.wait != wait {
            return Job::None;
        }
        state.wait += 1;
        state.is_pausing = false;
        Job::Wake(node, Some(answer))
    }

    pub(super) fn begin_wait(&mut self, node: usize, wait: Wait) {
        let state = &mut self.nodes[node];
        state.is_pausing = matches!(wait, Wait::Pause(_));
        let number = state.wait;
        match wait {
            Wait::Pause(millis) => self.schedule(millis, Event::Go(node, number)),
            Wait::Etcd(transaction) => {
                let transaction = (transaction, self.restores);
                let timeout = Err(EtcdError::Unknown("a time-out".to_owned()));
                self.schedule(TIMEOUT_MS, Event::Answer(node, number, timeout));
                if !self.is_quiet && self.rng.one_in(12) {
                    let delay_ms = self.rng.below_u64(2_500);
                    self.schedule(delay_ms, Event::Request(node, number, transaction.clone()));
                }
                if let Some(delay_ms) = self.way_ms(node) {
                    self.schedule(delay_ms, Event::Request(node, number, transaction));
                }
            }
        }
    }

    /// Whether all faults have ended.
    fn is_calm(&self) -> bool {
        self.now_ms() > BEGIN_MS + FAULTS_MS + FAULT_MS_MAX
    }

    /// How long something takes between a node and etcd; `None`: it is lost.
    fn way_ms(&mut self, node: usize) -> Option<u64> {
        if self.is_calm() {
            return Some(self.rng.below_u64(4));
        }
        let cut_ms = self.nodes[node].cut_until_ms.saturating_sub(self.now_ms());
        let is_slow = self.nodes[node].slow_until_ms > self.now_ms();
        if self.is_quiet && cut_ms == 0 && !is_slow {
            return Some(self.rng.below_u64(self.way_ms_max));
        }
        if self.rng.one_in(if cut_ms > 0 { 2 } else { 100 }) {
            return None;
        }
        let is_late = is_slow || self.rng.one_in(12);
        let way_ms = if is_late { LATE_MS_MAX } else { self.way_ms_max };
        Some(cut_ms + self.rng.below_u64(way_ms))
    }

    /// etcd is what it was when it was saved, under its name or another one. Nodes that do not remember what came later can
    /// know by the name alone.
    fn restore(&mut self) {
        let Some(saved) = self.saved.clone() else { return };
        let number = |text: Option<Bytes>| String::from_utf8_lossy(&text?).parse::<u64>().ok();
        let head = number(saved.value(&Keys::under(PREFIX).head())).unwrap_or(0);
        let all_know = self.nodes.iter().all(|node| node.memory.head > head);
        self.store = saved;
        self.restores += 1;
        if !all_know || self.rng.one_in(3) {
            self.store.id += self.restores;
        }
    }

    /// Accepts a restored log, once a node has found it.
    fn operate(&mut self) {
        self.schedule(OPERATOR_EVERY_MS, Event::Operate);
        let keys = Keys::under(PREFIX);
        if self.store.value(&keys.restored()).is_some_and(|text| text.starts_with(b"state waiting")) {
            let etcd = Near::of(std::mem::take(&mut self.store));
            let accepted = restored::accept(&etcd, &keys, None);
            self.store = etcd.into_store();
            if let Err(error) = accepted {
                self.broken = Some(format!("it is not accepted: {error}"));
            }
        }
    }

    /// What a node remembers of the log.
    pub(super) fn memory(&mut self, node: usize) -> &mut Memory {
        &mut self.nodes[node].memory
    }

    fn request(&mut self, node: usize, wait: u64, transaction: &Transaction) {
        let answer = if !self.is_quiet && self.rng.one_in(200) && !self.is_calm() {
            Err(EtcdError::Refused("no space".to_owned()))
        } else {
            Ok(self.store.apply(transaction))
        };
        self.note_epoch(node);
        if let Some(delay_ms) = self.way_ms(node) {
            self.schedule(delay_ms, Event::Answer(node, wait, answer));
        }
    }

    /// The node that leads, as far as it knows.
    fn leader(&mut self, node: usize) -> Option<&mut Server> {
        self.nodes[node].leader.as_mut().map(|(_, server)| server)
    }

    /// Whether a node is to end its term in good order.
    pub(super) fn stops(&mut self, node: usize) -> bool {
        std::mem::take(&mut self.nodes[node].stops)
    }

    /// A step of the copy of the live keys.
    pub(super) fn copy(&mut self, node: usize, cursor: &mut CopyCursor) -> Copied {
        let server = self.leader(node).expect("a leader copies");
        let copied = server.keyspace().copy(cursor, server.now().lock);
        server.log.write();
        copied
    }

    /// The server at the other end of a connection.
    fn server_of(&mut self, link: Link) -> Option<&mut Server> {
        let leader = self.nodes[link.node].leader.as_mut();
        leader.filter(|(number, _)| *number == link.leader).map(|(_, server)| server)
    }

    /// A leader executes a request. Its reply waits as in the processor of a connection.
    fn arrive(&mut self, who: usize, link: Link) {
        if self.links[who] != Some(link) {
            return;
        }
        let Some(request) = self.clients[who].request.clone() else { return };
        if let Some(other) = self.nodes[link.node].open[who].filter(|other| *other != link) {
            self.close(who, other);
        }
        let is_refused = self.misses_group();
        let Some(server) = self.server_of(link) else { return };
        let connection = &mut server.connections[who];
        if is_refused {
            connection.output = "-CLUSTERDOWN The cluster is down\r\n".to_owned();
            self.nodes[link.node].open[who] = Some(link);
            return self.schedule_within(3, Event::Flush(link.node, link.leader));
        }
        let words: Vec<&[u8]> = request.words.iter().map(|word| word.as_bytes()).collect();
        let (mut batch, mut out) = (server.engine.batch(), Vec::new());
        server.engine.execute(&mut connection.session, Words::listed(&words), &mut batch, &mut out);
        server.engine.end_batch(&mut connection.session, batch);
        connection.owed = server.log.owed();
        connection.output = String::from_utf8(out).expect("an answer in ASCII");
        self.nodes[link.node].open[who] = Some(link);
        self.schedule_within(3, Event::Flush(link.node, link.leader));
    }

    /// The replies of this moment leave with the next write.
    fn flush(&mut self, node: usize, leader: u64) {
        let Some((_, server)) = self.nodes[node].leader.as_ref().filter(|(number, _)| *number == leader)
        else {
            return;
        };
        server.log.write();
        let is_wanted = server.log.needs_sync();
        self.leave(node);
        if is_wanted && self.nodes[node].is_pausing {
            let wait = self.nodes[node].wait;
            self.schedule_within(3, Event::Go(node, wait));
        }
    }

    /// Sends the replies that may leave.
    pub(super) fn leave(&mut self, node: usize) {
        let (boot_ms, defect) = (self.boot_ms(node), self.defect);
        let Node { leader: Some((_, server)), open, is_kept, .. } = &mut self.nodes[node] else { return };
        let mut left = Vec::new();
        for (who, connection) in server.connections.iter_mut().enumerate() {
            let owed = match defect {
                Defect::AnswersBeforeCommit => Owed::default(),
                Defect::KeepsLostGroup if *is_kept => Owed::default(),
                Defect::ReadsWithoutProof => Owed { proven: 0, ..connection.owed },
                _ => connection.owed,
            };
            if !connection.output.is_empty() && server.log.has(owed, || boot_ms) {
                left.extend(open[who].map(|link| (who, link, std::mem::take(&mut connection.output))));
            }
        }
        for (who, link, reply) in left {
            if self.links[who] == Some(link) {
                self.clients[who].request.iter_mut().for_each(|request| request.is_answered = true);
            }
            let delay_ms = 1 + self.rng.below_u64(DELIVERY_MS_MAX);
            self.schedule(delay_ms, Event::Deliver(who, link, reply));
        }
    }

    /// Closes the connections of sessions of leaders that another node may have replaced.
    fn close_doubtful_sessions(&mut self) {
        if self.defect == Defect::KeepsSessions {
            return;
        }
        let now_ms = self.now_ms();
        for node in 0..self.nodes.len() {
            let boot_ms = self.boot_ms(node);
            let Node { leader: Some((_, server)), open, paused_until_ms, .. } = &self.nodes[node] else {
                continue;
            };
            if *paused_until_ms > now_ms || server.log.believed_for_ms(boot_ms) > 0 {
                continue;
            }
            let holders = server.engine.shared().registries.lock_sessions.holders();
            let holds = |connection: &Connection| holders.contains(&connection.session.client.id);
            let of_holders = server.connections.iter().zip(open).enumerate().filter(|(_, (it, _))| holds(it));
            let ended: Vec<_> = of_holders.filter_map(|(who, (_, link))| Some((who, (*link)?))).collect();
            for (who, link) in ended {
                self.close(who, link);
                self.schedule_within(3, Event::Reset(who, link));
            }
        }
    }

    /// Removes what has expired, and finishes calls that have waited.
    fn look_after_waits(&mut self) {
        let now_ms = self.now_ms();
        let mut answered = Vec::new();
        for (at, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| node.paused_until_ms <= now_ms)
        {
            let Some((leader, server)) = &mut node.leader else { continue };
            if server.finish_waits() {
                answered.push((at, *leader));
            }
        }
        for (node, leader) in answered {
            self.schedule_within(3, Event::Flush(node, leader));
        }
    }

    /// The server learns that the client has closed the connection.
    fn close(&mut self, who: usize, link: Link) {
        if self.nodes[link.node].open[who].take_if(|open| *open == link).is_none() {
            return;
        }
        let Some(server) = self.server_of(link) else { return };
        let mut connection = connect(&server.engine, server.now());
        std::mem::swap(&mut connection, &mut server.connections[who]);
        server.engine.disconnect(&mut connection.session);
    }

    /// A node does not lead any more.
    pub(super) fn term_ends(&mut self, node: usize) {
        let Some((leader, server)) = self.nodes[node].leader.take() else { return };
        self.note_leader(node, None);
        let group = self.group_of(node);
        if leader == self.groups[group].leader {
            let is_committed = !server.log.is_pending() && server.log.status().unsynced == 0;
            self.groups[group].state = is_committed.then(|| standing(server.keyspace(), server.now()));
        }
        for who in 0..self.clients.len() {
            if let Some(link) = self.links[who].filter(|link| (link.node, link.leader) == (node, leader)) {
                self.schedule_within(3, Event::Reset(who, link));
            }
        }
    }

    /// A node has taken over, and serves.
    pub(super) fn serve(
        &mut self,
        node: usize,
        keyspace: Keyspace,
        log: Arc<Log>,
        clock: Arc<ServerClock>,
        (found, resume, session_locks): (&Found, &Resume, Vec<RestoredLock>),
    ) {
        if let Err(why) = self.check_start(node, (&keyspace, clock.now()), found, resume) {
            self.broken = Some(format!("node {node}: {why}: {found:?}, {resume:?}"));
        }
        self.leaders += 1;
        let group = self.group_of(node);
        (self.groups[group].leader, self.groups[group].clock) = (self.leaders, Some(Arc::clone(&clock)));
        let shared = Shared::new(keyspace, Settings::default(), clock, self.leaders)
            .with_log(Arc::clone(&log))
            .with_interpreter(INTERPRETER);
        let shared = match self.facts(node) {
            Some(facts) => shared.with_cluster(facts),
            None => shared,
        };
        shared.registries.lock_sessions.restore(session_locks);
        if let Some((until, reason)) = resume.quarantine {
            shared.begin_quarantine(until, reason);
        }
        let engine = Engine::new(Arc::new(shared));
        let now = engine.shared().clock.now();
        let connections = (0..self.clients.len()).map(|_| connect(&engine, now)).collect();
        let server = Server { engine, log, connections, copy: None, is_sync_wanted: false };
        let now_ms = self.now_ms();
        let state = &mut self.nodes[node];
        (state.leader, state.is_kept) = (Some((self.leaders, server)), false);
        state.first_ms = now_ms;
        state.open.fill(None);
        self.note_leader(node, Some(node));
    }
}

/// A connection to a server.
fn connect(engine: &Engine, now: Now) -> Connection {
    let id = engine.shared().registries.clients.next_id();
    let session = engine.connect(Peer::new(id, "w".into(), "s".into(), false, now.lock));
    Connection { session, output: String::new(), owed: Owed::default() }
}

impl Event {
    /// The node that takes part in it, and must not be stopped.
    fn node(&self) -> Option<usize> {
        match self {
            Self::Answer(node, ..) | Self::Flush(node, _) | Self::Go(node, _) => Some(*node),
            Self::Arrive(_, link) | Self::Close(_, link) => Some(link.node),
            _ => None,
        }
    }
}
