//! A node of a cluster: it leads, or it is a standby, in each group of slots by itself. It keeps its sockets in both roles.
//!
//! Owns    the sockets, the client of etcd, and by group the server of a term.
//! Rule    the server of a term and its connections end with the term. What it has not committed is never answered.
//! Rule    a standby never gives up: while etcd does not answer it asks again, and says so once in the log.
//! Time    the monotonic clock of the process.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redlatch_client::Trust;
use redlatch_core::commands::Shared;
use redlatch_core::journal::item;
use redlatch_core::replication::balance::Balance;
use redlatch_core::replication::cluster::{Agreed, Cluster, JoinError, Keys, Member, Part, groups_under};
use redlatch_core::replication::etcd::{Etcd, EtcdError};
use redlatch_core::replication::restored::{self, AcceptError, Memory};
use redlatch_core::replication::standby::{self, Sight, SightError};
use redlatch_core::replication::term::Term;
use redlatch_core::state::acl::password::Digest;
use redlatch_core::state::acl::{Acl, file as acl_file};
use redlatch_core::state::cluster::ClusterFacts;
use redlatch_core::state::settings::{self, Handle, Settings};
use redlatch_core::state::slot_groups::SlotGroup;
use redlatch_platform::figures;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::candidates::Rests;
use super::client::EtcdClient;
use super::endpoint::Endpoint;
use super::leader::{self, Leader};
use super::listen::Acceptor;
use super::members::Members;
use super::moving::has_no_journal;
use super::notebook::Notebook;
use super::place::EtcdPlace;
use super::reach;
use super::sockets::{self, Sockets};
use super::splice::Splices;
use super::term_workers::{self, TermWorkers, Worker};
use crate::clock::SystemClock;
use crate::http::standby::Standby;
use crate::probe::SystemProbe;
use crate::testing::commands;
use crate::{Builder, Server, StartError, fresh_id, stored_files};

/// How many times a standby looks at etcd in the time of `cluster-takeover`.
const LOOKS_PER_TAKEOVER: u32 = 10;
/// The time between two looks at most.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// The time between two looks of a node that is second to another one, while nobody leads.
const SECOND_LOOK: Duration = Duration::from_millis(20);
/// How long another node has been the one that is to lead a group before this one hands over: the nodes know of each other by
/// then, and no more of one that had ended before this node took over.
const MOVES_AFTER: Duration = Duration::from_secs(7);
/// How long ago a node that lives has rewritten its entry at most.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// How long a watch of etcd that has ended rests.
const WATCH_AGAIN: Duration = Duration::from_secs(1);
/// How long the release of the epoch may take when the process ends. Without it the others wait for `cluster-takeover`.
const RELEASE_MAX: Duration = Duration::from_secs(2);

/// How long an endpoint of etcd may take to answer at most.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How often a leader shows how far the log is.
const SHOW_EVERY: Duration = Duration::from_millis(500);
/// How long after the beginning of a term `+switch-master` is published. Its subscribers have come back by then.
const TELL_AFTER: Duration = Duration::from_secs(1);

/// What a node says of a log that was restored from an older state.
const RESTORED: &str = "etcd was restored from an older state: locks that were granted since may still be held, and no node \
                        leads until 'redlatch cluster accept-restored' with the settings of a node accepts that";

/// Called with the server of each term, before it is known to lead.
pub type OnLead = Box<dyn Fn(&Server) + Send + Sync>;

/// A node that runs. It ends when it is stopped.
pub struct Node {
    common: Common,
    /// What it is in each group of slots: one, unless `cluster-groups` says more.
    groups: Vec<Arc<Inner>>,
}

/// What a node has alike in all groups.
#[derive(Clone)]
struct Common {
    builder: Arc<Builder>,
    settings: Arc<Settings>,
    workers: Arc<TermWorkers>,
    on_lead: Arc<OnLead>,
    etcd: EtcdClient,
    balance: Arc<Balance>,
    rests: Arc<Rests>,
    stop: watch::Sender<bool>,
}

/// A node in one group.
struct Inner {
    common: Common,
    sockets: Sockets,
    agreed: Agreed,
    keys: Keys,
    me: Member,
    members: Arc<Members>,
    /// The list of the nodes in the first group.
    nodes: Arc<Members>,
    /// What this node remembers of the log, and where it keeps that.
    memory: Mutex<Memory>,
    notebook: Notebook,
    leader: watch::Sender<Leader>,
    /// The last leader that this node has seen in etcd. It may be this one.
    previous: Mutex<Option<Member>>,
    /// The other node that leads, by its epoch.
    sighted: Mutex<Option<(i64, Member)>>,
    /// Whether this node leads: its own server accepts clients then.
    leads: watch::Sender<bool>,
    /// The server of the term.
    server: Mutex<Option<Arc<Server>>>,
    /// Something has changed in etcd, perhaps.
    hint: Notify,
    has_ended: watch::Sender<bool>,
    /// Whether what it should have like the leader differs.
    differs: AtomicBool,
    /// Whether it ends because it may not take part in the cluster.
    has_failed: AtomicBool,
}

impl Node {
    /// Joins the cluster that the settings name, and begins to serve clients in the runtime that is entered. `threads`
    /// serve each term, and perhaps those of other groups.
    ///
    /// # Errors
    /// A setting cannot be used, an address cannot be listened on, or etcd refuses this node.
    pub async fn start(mut builder: Builder, threads: usize, on_lead: OnLead) -> Result<Self, StartError> {
        let inherited = std::mem::take(&mut builder.inherited);
        let settings = builder.again().blueprint().settings()?;
        check(&settings).map_err(StartError::Unusable)?;
        has_no_journal(&settings.get(settings::DIR)).map_err(StartError::Unusable)?;
        // The journal is in etcd.
        let builder = builder.set("dir", "");
        let count = settings.get(settings::CLUSTER_GROUPS);
        let sockets = Sockets::open_all(&settings, inherited, count)?;
        let common = Common {
            builder: Arc::new(builder),
            etcd: client(&settings).map_err(StartError::Unusable)?,
            settings: Arc::new(settings),
            workers: Arc::new(TermWorkers::start(threads, usize::from(count))?),
            on_lead: Arc::new(on_lead),
            balance: Arc::new(Balance::new(count)),
            rests: Arc::default(),
            stop: watch::Sender::new(false),
        };
        let mut groups: Vec<Arc<Inner>> = Vec::new();
        for (slots, sockets) in SlotGroup::all(count).into_iter().zip(sockets) {
            let nodes = groups.first().map(|first| Arc::clone(&first.members));
            let shared = shared(&common.builder)?;
            let group = Arc::new(Inner::new(&common, sockets, (slots, nodes), &shared.access.acl)?);
            group.accept(shared)?;
            groups.push(group);
        }
        for group in &groups {
            // What etcd refuses at once is said by the start.
            let cluster = group.join().await.map_err(StartError::Unusable)?;
            tokio::spawn(Arc::clone(group).run(cluster));
        }
        Ok(Self { common, groups })
    }

    /// The addresses of the ports: without TLS, with TLS, and of HTTP.
    pub fn addresses(&self) -> [Vec<SocketAddr>; 3] {
        let all = |of: fn(&Sockets) -> &[TcpListener]| {
            self.groups.iter().flat_map(|group| sockets::addresses(of(&group.sockets))).collect()
        };
        [all(|sockets| &sockets.tcp), all(|sockets| &sockets.tls), all(|sockets| &sockets.http)]
    }

    /// The servers of the terms in which this node leads.
    pub fn servers(&self) -> Vec<Arc<Server>> {
        self.groups.iter().filter_map(|group| group.server.lock().clone()).collect()
    }

    /// Asks other endpoints of etcd from now on: the text of `cluster-etcd`.
    ///
    /// # Errors
    /// A sentence about the setting. Those in use stay.
    pub fn set_endpoints(&self, text: &str) -> Result<(), String> {
        let endpoints = Endpoint::parse_all(text)?;
        let authorities = self.common.settings.get(settings::CLUSTER_ETCD_CA_CERT);
        check_trust(&endpoints, &authorities)?;
        self.common.etcd.set_endpoints(endpoints);
        Ok(())
    }

    /// Ends the node: a leader answers its clients as at any end, and hands over.
    pub fn stop(&self) {
        self.common.stop.send_replace(true);
    }

    /// Resolves when the node has been ended, by [`Node::stop`] or by SHUTDOWN.
    pub async fn stopped(&self) {
        // The channel cannot close, because its sender lives in `self`.
        let _ = self.common.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Whether it has ended because it may not take part in the cluster. The log says why.
    pub fn has_failed(&self) -> bool {
        self.groups.iter().any(|group| group.has_failed.load(Relaxed))
    }

    /// Resolves when the node has been ended, and another one may lead.
    pub async fn finished(&self) {
        for group in &self.groups {
            let _ = group.has_ended.subscribe().wait_for(|ended| *ended).await;
        }
    }
}

impl Inner {
    /// A node in the group of these slots. `nodes`: its list in the first group, if this is another one.
    fn new(
        common: &Common,
        sockets: Sockets,
        (slots, nodes): (SlotGroup, Option<Arc<Members>>),
        acl: &Acl,
    ) -> Result<Self, StartError> {
        let settings = &common.settings;
        let (part, dir) =
            (Part { group: slots.number, groups: slots.count() as u16 }, settings.get(settings::DIR));
        let id = item::id_text(&fresh_id());
        let me = Member { id, addresses: announced(settings, &sockets, part.group)? };
        let keys = keys(settings, part);
        let slots = (part.groups > 1 || settings.get(settings::CLUSTER_ENABLED)).then_some(slots);
        let name = settings.get(settings::CLUSTER_NAME);
        let digest = digest(acl, &name);
        let own = (digest, Arc::clone(&common.rests));
        let members = Arc::new(Members::new((name, slots), keys.clone(), me.clone(), own));
        Ok(Self {
            agreed: agreed(settings, part),
            nodes: nodes.unwrap_or_else(|| Arc::clone(&members)),
            notebook: Notebook::in_directory(&dir, part),
            common: common.clone(),
            sockets,
            keys,
            me,
            members,
            memory: Mutex::default(),
            leader: watch::Sender::new(Leader::default()),
            previous: Mutex::default(),
            sighted: Mutex::default(),
            leads: watch::Sender::new(false),
            server: Mutex::default(),
            hint: Notify::new(),
            has_ended: watch::Sender::new(false),
            differs: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
        })
    }

    /// Whether this node is to lead the group, of all nodes that live and may be asked. Where there is one group, any node
    /// is.
    fn is_first(&self) -> bool {
        if self.agreed.part.groups == 1 {
            return true;
        }
        let group = self.agreed.part.group;
        let (me, all) = self.nodes.candidates(group, HEARD_WITHIN);
        self.common.balance.is_for(&me, group, all)
    }

    /// Accepts clients on all sockets while this node does not lead.
    fn accept(&self, shared: Shared) -> Result<(), StartError> {
        let shared = shared.with_cluster(Arc::clone(&self.members.facts));
        let is_open = shared.access.acl.default_account().user().needs_none();
        let splices = Splices {
            leader: self.leader.subscribe(),
            hold: millis(&self.common.settings, settings::CLUSTER_FAILOVER_HOLD),
            keepalive_seconds: self.common.settings.get(settings::TCP_KEEPALIVE),
            facts: Arc::clone(&self.members.facts),
        };
        let acceptor = Acceptor {
            splices,
            leads: self.leads.subscribe(),
            stop: self.common.stop.subscribe(),
            places: Arc::new(Semaphore::new(self.common.settings.get(settings::MAXCLIENTS) as usize)),
            keepalive_seconds: self.common.settings.get(settings::TCP_KEEPALIVE),
            is_protected: is_open && self.common.settings.get(settings::PROTECTED_MODE),
            http: Arc::new(Standby::new(shared)),
            reach: Arc::clone(&self.members.reach),
        };
        acceptor.serve(&self.sockets)
    }

    /// Asks etcd for hints that something has changed, for ever.
    async fn watch(self: Arc<Self>) {
        loop {
            self.common.etcd.watch(&self.keys.epoch(), || self.hint.notify_one()).await;
            sleep(WATCH_AGAIN).await;
        }
    }

    /// Shows this node to the others, and writes down what it remembers of the log of this cluster, until it turns out that
    /// it may not take part.
    async fn beat(self: Arc<Self>, cluster: [u8; 20]) {
        let write = || {
            let remembered = *self.memory.lock();
            self.notebook.write(&Memory { promised: self.members.promised(), ..remembered }, &cluster);
        };
        self.members.beat(&self.common.etcd, write).await;
        tracing::error!(
            addresses = self.me.addresses.join(", "),
            "cluster-announce: another node that runs announces an address of this one"
        );
        self.has_failed.store(true, Relaxed);
        self.common.stop.send_replace(true);
    }

    /// Asks the leader now and then, for ever.
    async fn reach(self: Arc<Self>) {
        self.members.reach.watch(&self.common.settings, || self.sighted.lock().clone()).await;
    }

    /// Joins the cluster. `None`: etcd does not answer.
    ///
    /// # Errors
    /// A sentence about the setting that keeps this node out.
    async fn join(&self) -> Result<Option<Cluster>, String> {
        let (keys, agreed, etcd) = (self.keys.clone(), self.agreed.clone(), self.common.etcd.clone());
        let joined = spawn_blocking(move || {
            let cluster = Cluster::join(&etcd, keys, agreed, fresh_id())?;
            let mut secret = [0; 20];
            // Without randomness of the system no node passes addresses on.
            let key =
                if figures::draw_secret(&mut secret) { Some(cluster.node_key(&etcd, secret)?) } else { None };
            Ok((cluster, key))
        });
        let Ok(joined) = joined.await else { return Ok(None) };
        match joined {
            Ok((cluster, key)) => {
                key.into_iter().for_each(|key| self.members.facts.set_node_key(key));
                Ok(Some(cluster))
            }
            Err(JoinError::Etcd(error @ EtcdError::Unknown(_))) => {
                if self.is_new_trouble(&error.to_string()) {
                    tracing::warn!(%error, "The node waits for etcd");
                }
                Ok(None)
            }
            Err(JoinError::Etcd(error)) => Err(format!("cluster-etcd: {error}")),
            Err(error) => Err(format!(
                "cluster-prefix '{}': {error}",
                self.common.settings.get(settings::CLUSTER_PREFIX)
            )),
        }
    }

    /// Notes why nobody leads. Clients without a login see the first words alone: the rest names endpoints. Returns whether
    /// there was no trouble before.
    fn is_new_trouble(&self, error: &str) -> bool {
        let trouble = error.split(':').next().unwrap_or_default();
        let mut is_new = false;
        self.leader.send_modify(|leader| is_new = leader.trouble.replace(trouble.to_owned()).is_none());
        is_new
    }

    /// Takes one role after the other until the node ends. `cluster`: what it has joined, if etcd has answered.
    async fn run(self: Arc<Self>, cluster: Option<Cluster>) {
        let mut stop = self.common.stop.subscribe();
        let joined = async {
            let mut cluster = Ok(cluster);
            while let Ok(None) = cluster {
                sleep(JOIN_AGAIN).await;
                cluster = self.join().await;
            }
            cluster
        };
        let joined = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Ok(None),
            joined = joined => joined,
        };
        match joined {
            Ok(Some(cluster)) => self.serve(cluster).await,
            Ok(None) => {}
            Err(reason) => {
                tracing::error!(reason, "This node may not join the cluster");
                self.has_failed.store(true, Relaxed);
            }
        }
        self.common.stop.send_replace(true);
        self.has_ended.send_replace(true);
    }

    /// Takes part in the cluster until the node ends.
    async fn serve(self: &Arc<Self>, cluster: Cluster) {
        *self.memory.lock() = self.notebook.read(&cluster.id);
        self.members.note_promised(self.memory.lock().promised);
        let watching = tokio::spawn(Arc::clone(self).watch());
        let beating = tokio::spawn(Arc::clone(self).beat(cluster.id));
        let reaching = tokio::spawn(Arc::clone(self).reach());
        let mut stop = self.common.stop.subscribe();
        let mut rest = Duration::ZERO;
        loop {
            let term = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                term = self.stand_by(&cluster, rest) => term,
            };
            rest = match self.lead(term).await {
                Some(rest) => rest,
                None => break,
            };
        }
        [watching, beating, reaching].iter().for_each(|task| task.abort());
        self.notebook.write(&self.memory.lock(), &cluster.id);
        self.members.leave(&self.common.etcd).await;
    }

    /// A standby, until it may lead, which is not before this time has passed.
    async fn stand_by(&self, cluster: &Cluster, rest: Duration) -> Term {
        let mut standby = standby::Standby::new(cluster.clone(), self.me.clone(), *self.memory.lock());
        let looks_every =
            (millis(&self.common.settings, settings::CLUSTER_TAKEOVER) / LOOKS_PER_TAKEOVER).min(LOOK_MAX);
        let origin = Instant::now();
        loop {
            let mut pause = looks_every;
            let etcd: Arc<dyn Etcd> = Arc::new(self.common.etcd.clone());
            standby.note_promised(self.members.promised());
            standby.be_second(!self.is_first());
            let looked = spawn_blocking(move || {
                let looked = look(&mut standby, &etcd, (origin, origin.elapsed() >= rest));
                (standby, looked)
            });
            // The task ends only with the runtime, or by a panic that the hook has reported.
            let Ok((same, looked)) = looked.await else { return std::future::pending().await };
            standby = same;
            *self.memory.lock() = *standby.memory();
            match looked {
                Ok((sight, term)) => {
                    self.note(&sight, term.is_some());
                    if let Some(term) = term {
                        return term;
                    }
                    standby.give_way(self.differs_from(sight.leader.as_ref()));
                    if sight.is_led_by_nobody() && origin.elapsed() >= rest {
                        // It is second, if nobody is first.
                        pause = pause.min(SECOND_LOOK);
                    }
                }
                Err(error) => {
                    if self.is_new_trouble(&error.to_string()) {
                        tracing::warn!(%error, "This standby does not know who leads");
                    }
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = self.hint.notified() => {}
            }
        }
    }

    /// Whether what this node should have like the leader differs. The log says so once.
    fn differs_from(&self, leader: Option<&Member>) -> bool {
        let differs = self.members.differs_from(leader);
        if !self.differs.swap(differs, Relaxed) && differs {
            tracing::warn!(
                "Users, passwords or cluster-name differ from the leader's: this node leads only if no other node can"
            );
        }
        differs
    }

    fn note(&self, sight: &Sight, is_mine: bool) {
        self.members.facts.set_restored(sight.is_restored);
        self.note_leader(sight.leader.as_ref().filter(|_| !is_mine));
        *self.sighted.lock() = sight.leader.clone().filter(|_| !is_mine).map(|leader| (sight.epoch, leader));
        if let Some(leader) = &sight.leader {
            *self.previous.lock() = Some(leader.clone());
        }
        let addresses = match &sight.leader {
            // A process that has ended may have led at the addresses of this one.
            Some(leader) if !is_mine && !leader.addresses.iter().any(|at| self.me.addresses.contains(at)) => {
                leader.addresses.clone()
            }
            _ => Vec::new(),
        };
        let trouble = sight.is_restored.then(|| RESTORED.to_owned());
        let leader = Leader { epoch: sight.epoch, addresses, trouble };
        self.leader.send_if_modified(|known| {
            let is_new = *known != leader;
            if is_new && !leader.addresses.is_empty() {
                tracing::info!(
                    leader = leader.addresses.join(", "),
                    group = self.agreed.part.group,
                    epoch = leader.epoch,
                    "Another node leads"
                );
            }
            match (&known.trouble, &leader.trouble) {
                (before, Some(_)) if *before != leader.trouble => {
                    tracing::error!(
                        head = sight.head,
                        accept = acceptance(&self.common.settings),
                        "etcd was restored from an older state: no node leads"
                    );
                }
                (Some(before), None) if before == RESTORED => tracing::warn!("The restored log is accepted"),
                (Some(_), None) => tracing::info!("etcd answers again"),
                _ => {}
            }
            *known = leader;
            is_new
        });
    }

    /// Notes who leads the group, for clients that ask for its slots at any other.
    fn note_leader(&self, leader: Option<&Member>) {
        if let Some(group) = &self.members.facts.group {
            group.set_leader(leader.map(leader::node));
        }
    }

    /// Leads until the term ends. Returns for how long this node leaves the lead to others; `None`: it ends.
    async fn lead(self: &Arc<Self>, term: Term) -> Option<Duration> {
        let (epoch, group, begun) = (term.epoch(), self.agreed.part.group, Instant::now());
        tracing::info!(epoch, group, head = term.head(), "This node takes over");
        // What an earlier term was asked for has been done.
        self.members.facts.takes_hand_over();
        let (node, of_server) = (Arc::clone(self), term.clone());
        let workers = self.common.workers.of_a_term();
        let starting = workers.clone();
        let mut starting = spawn_blocking(move || node.server(of_server, &starting));
        let beats_every = millis(&self.common.settings, settings::CLUSTER_TAKEOVER) / LOOKS_PER_TAKEOVER;
        let started = loop {
            tokio::select! {
                started = &mut starting => break started,
                () = sleep(beats_every) => {}
            }
            // It is late, or the start fails, too.
            let restoring = term.clone();
            let _ = spawn_blocking(move || restoring.beat()).await;
        };
        let server = match started {
            Ok(Ok(server)) => Arc::new(server),
            Ok(Err(error)) => {
                tracing::error!(%error, "This node cannot lead");
                self.release(term).await;
                return Some(millis(&self.common.settings, settings::CLUSTER_TAKEOVER));
            }
            Err(_) => return None,
        };
        self.keep_in_mind(&server, &term);
        let begun_anew = term.clone();
        if !matches!(spawn_blocking(move || begun_anew.end_restore()).await, Ok(Ok(()))) {
            tracing::warn!("The next leader begins with a quarantine, too");
        }
        *self.server.lock() = Some(Arc::clone(&server));
        self.note_leader(Some(&self.me));
        self.leads.send_replace(true);
        let addresses = self.sockets.local_addresses();
        self.leader.send_replace(Leader { epoch, addresses, trouble: None });
        let took_ms = begun.elapsed().as_millis() as u64;
        tracing::info!(epoch, group, took_ms, "This node leads");
        let goes_on = self.is_replaced(&server, &term).await;
        match server.has_failed() {
            true => server.stop_now(),
            false => server.stop(),
        }
        server.finished().await;
        server.cut_all("another node may lead");
        drop(workers);
        self.keep_in_mind(&server, &term);
        self.note_leader(None);
        self.leader.send_replace(Leader::default());
        self.leads.send_replace(false);
        self.server.lock().take();
        if server.has_failed() {
            tracing::warn!(epoch, group, "This node does not lead any more");
            return (!*self.common.stop.borrow()).then_some(Duration::ZERO);
        }
        if self.release(term).await {
            tracing::info!(epoch, group, "This node has handed over");
        }
        goes_on.then_some(reach::REST)
    }

    /// Resolves when the term is to end. Returns whether the node goes on, because another one is to lead.
    async fn is_replaced(&self, server: &Server, term: &Term) -> bool {
        let (mut stop, begun) = (self.common.stop.subscribe(), Instant::now());
        let asked = async {
            while !self.members.facts.takes_hand_over() {
                sleep(SHOW_EVERY).await;
                self.keep_in_mind(server, term);
            }
            tracing::info!(epoch = term.epoch(), "This node was asked to hand over");
        };
        let tells = async {
            sleep(TELL_AFTER).await;
            self.tell_switch(server);
            std::future::pending().await
        };
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => false,
            () = server.stopped() => false,
            () = asked => true,
            () = reach::hand_over_is_due(server, || self.members.reports(), term.epoch()) => {
                self.common.rests.give_up(self.agreed.part.group, begun.elapsed());
                true
            }
            () = self.is_for_another(term.epoch()) => true,
            () = tells => true,
        }
    }

    /// Resolves when another node is to lead the group, and has been for a while.
    async fn is_for_another(&self, epoch: i64) {
        let mut since = Instant::now();
        while since.elapsed() < MOVES_AFTER {
            sleep(SHOW_EVERY).await;
            if self.is_first() {
                since = Instant::now();
            }
        }
        let group = self.agreed.part.group;
        tracing::info!(epoch, group, "Another node should lead this group: this node hands over");
    }

    /// Notes how far a term is, and what its server has promised.
    fn keep_in_mind(&self, server: &Server, term: &Term) {
        self.members.facts.set_term(term.epoch(), term.head());
        self.members.note_promised(server.promised());
        *self.memory.lock() = Memory { promised: self.members.promised(), ..term.memory() };
    }

    /// Tells the subscribers of `+switch-master` that another address leads, as a Sentinel does.
    fn tell_switch(&self, server: &Server) {
        let Some(old) = self.previous.lock().as_ref().map(leader::node) else { return };
        let ClusterFacts { name, me: new, .. } = &*self.members.facts;
        if (&old.host, old.port) != (&new.host, new.port) {
            let message = format!("{name} {} {} {} {}", old.host, old.port, new.host, new.port);
            server.publish("+switch-master", &message);
        }
    }

    /// The server of a term, which goes on from the log.
    fn server(&self, term: Term, workers: &[Worker]) -> Result<Server, StartError> {
        let place = EtcdPlace { term };
        // The ports are those of the node, which has written their files.
        let files = ["port-file", "tls-port-file", "http-port-file"];
        let builder = files.iter().fold(self.common.builder.again(), |builder, name| builder.set(*name, ""));
        let builder = builder.inherited(self.sockets.shared()?);
        let builder = builder.replicated(Box::new(place), Arc::clone(&self.members.facts));
        let server = term_workers::start_on(workers, builder)?;
        (self.common.on_lead)(&server);
        Ok(server)
    }

    /// Gives the epoch back. Returns whether another node may lead at once.
    async fn release(&self, term: Term) -> bool {
        let released = tokio::time::timeout(RELEASE_MAX, spawn_blocking(move || term.release())).await;
        let is_released = matches!(released, Ok(Ok(Ok(()))));
        if !is_released {
            tracing::warn!("The epoch is not given back: another node leads only after cluster-takeover");
        }
        is_released
    }
}

/// Tells apart what all nodes should have alike. It is long enough for that, and too short to find a password by.
fn digest(acl: &Acl, name: &str) -> String {
    let text = [name.as_bytes(), b"\n", &acl_file::text(acl)].concat();
    let mut hex = Digest::of(&text).hex();
    hex.truncate(DIGEST_DIGITS);
    hex
}

const DIGEST_DIGITS: usize = 8;

/// Looks at etcd, and takes over if that is due.
fn look(
    standby: &mut standby::Standby,
    etcd: &Arc<dyn Etcd>,
    (origin, may_lead): (Instant, bool),
) -> Result<(Sight, Option<Term>), SightError> {
    let sight = standby.look(&**etcd, || origin.elapsed())?;
    let term = if sight.is_due && may_lead { standby.seize(Arc::clone(etcd))? } else { None };
    Ok((sight, term))
}

/// Checks the settings that a node cannot have.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    let (tests, nodes) = (settings.get(settings::ENABLE_TEST_COMMANDS), settings.get(settings::NODES));
    if tests != "no" {
        let reason = "a node of a cluster has no test commands";
        return Err(format!("enable-test-commands '{tests}': cannot be with cluster-etcd: {reason}"));
    }
    if nodes != 1 {
        let reason = "a node of a cluster is one node";
        return Err(format!("nodes '{nodes}': cannot be with cluster-etcd: {reason}"));
    }
    if settings.get(settings::ENABLE_DEBUG_COMMAND) == "local" {
        let reason = "a client that comes through another node seems to be local";
        return Err(format!("enable-debug-command 'local': cannot be with cluster-etcd: {reason}"));
    }
    if settings.get(settings::APPENDONLY) == "yes" || settings.get(settings::APPENDFSYNC) == "no" {
        return Err("appendonly, appendfsync: with cluster-etcd, every reply waits for etcd".to_owned());
    }
    let (certificate, key) =
        (settings.get(settings::CLUSTER_ETCD_CERT), settings.get(settings::CLUSTER_ETCD_KEY));
    if certificate.is_empty() != key.is_empty() {
        return Err("cluster-etcd-cert, cluster-etcd-key: must be set together".to_owned());
    }
    if settings.get(settings::CLUSTER_ETCD_USER).is_empty()
        && !settings.get(settings::CLUSTER_ETCD_PASSWORD).is_empty()
    {
        return Err("cluster-etcd-password: must not be set without cluster-etcd-user".to_owned());
    }
    let prefix = settings.get(settings::CLUSTER_PREFIX);
    if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX || !prefix.is_ascii() {
        return Err(format!("cluster-prefix '{prefix}': must be 1 to {PREFIX_BYTES_MAX} ASCII characters"));
    }
    let endpoints = Endpoint::parse_all(&settings.get(settings::CLUSTER_ETCD))?;
    check_trust(&endpoints, &settings.get(settings::CLUSTER_ETCD_CA_CERT))
}

fn check_trust(endpoints: &[Endpoint], authorities: &str) -> Result<(), String> {
    match endpoints.iter().any(Endpoint::is_tls) && authorities.is_empty() {
        true => Err("cluster-etcd-ca-cert: must be set for an endpoint with https".to_owned()),
        false => Ok(()),
    }
}

/// Accepts that the log in etcd is an older state of itself: the next leader begins with a quarantine, which lasts so long if
/// that is said. Returns whether a node had found that the log is older. Needs a runtime.
///
/// # Errors
/// A sentence about a setting, or about what is in etcd.
pub async fn accept_restored(settings: &Settings, quarantine: Option<Duration>) -> Result<bool, String> {
    let (etcd, prefix) = (client(settings)?, settings.get(settings::CLUSTER_PREFIX));
    let quarantine_ms = quarantine.map(|quarantine| quarantine.as_millis() as u64);
    let accept = move || {
        let (groups, mut was_found) = (groups_under(&etcd, &prefix)?, false);
        for group in 0..groups {
            let keys = Keys::of(&prefix, Part { group, groups });
            was_found |= restored::accept(&etcd, &keys, quarantine_ms)?.is_some();
        }
        Ok(was_found)
    };
    let accepted = spawn_blocking(accept).await.map_err(|error| error.to_string())?;
    accepted.map_err(|error: AcceptError| error.to_string())
}

/// The command line that accepts a restored log, with what tells of this etcd. It has no password.
fn acceptance(settings: &Settings) -> String {
    let mut line = "redlatch cluster accept-restored".to_owned();
    for (name, value) in settings.fitting(&[b"cluster-etcd*", b"cluster-prefix"]) {
        let is_default = Settings::row(name).is_some_and(|row| row.default == value);
        if !is_default && settings::shown(name, &value) == value {
            line += &format!(" --{name} {value}");
        }
    }
    line
}

/// The names of the keys of a log.
pub(super) fn keys(settings: &Settings, part: Part) -> Keys {
    Keys::of(&settings.get::<String>(settings::CLUSTER_PREFIX), part)
}

/// Bytes of a prefix at most: it is in every request.
const PREFIX_BYTES_MAX: usize = 256;

pub(super) fn client(settings: &Settings) -> Result<EtcdClient, String> {
    let endpoints = Endpoint::parse_all(&settings.get(settings::CLUSTER_ETCD))?;
    let text = |setting| Some(settings.get::<String>(setting)).filter(|text| !text.is_empty());
    let trust = Trust {
        authorities: text(settings::CLUSTER_ETCD_CA_CERT),
        accepts_any: false,
        identity: text(settings::CLUSTER_ETCD_CERT).zip(text(settings::CLUSTER_ETCD_KEY)),
    };
    let login = (settings.get(settings::CLUSTER_ETCD_USER), settings.get(settings::CLUSTER_ETCD_PASSWORD));
    // Half of it: a leader tries another endpoint before it is replaced.
    let answer_max = (millis(settings, settings::CLUSTER_TAKEOVER) / 2).min(ANSWER_MAX);
    Ok(EtcdClient::new(endpoints, trust, login, answer_max))
}

/// What the nodes of a cluster must have alike.
pub(super) fn agreed(settings: &Settings, part: Part) -> Agreed {
    Agreed {
        takeover_ms: settings.get(settings::CLUSTER_TAKEOVER),
        databases: settings.get(settings::DATABASES),
        part,
    }
}

/// The time between two tries to join.
const JOIN_AGAIN: Duration = Duration::from_millis(500);

/// The settings and the users of this configuration, with no keys.
fn shared(builder: &Builder) -> Result<Shared, StartError> {
    let blueprint = builder.again().blueprint();
    let settings = blueprint.settings()?;
    let keyspace = blueprint.empty_keyspace(&settings);
    let shared = Shared::new(keyspace, settings, Arc::new(SystemClock::new()), blueprint.seed)
        .with_commands(commands())
        .with_probe(Arc::new(SystemProbe(blueprint.allocator)));
    let shared = blueprint.with_files(shared);
    stored_files::install_users(&shared, &blueprint.users)?;
    Ok(shared)
}

/// Where clients and other nodes reach this node in the group of this number.
fn announced(settings: &Settings, sockets: &Sockets, group: u16) -> Result<Vec<String>, StartError> {
    let announce = settings.get(settings::CLUSTER_ANNOUNCE);
    let unfit = |reason| StartError::Unusable(format!("cluster-announce '{announce}': {reason}"));
    let port_of = |listeners: &[TcpListener]| sockets::addresses(listeners).first().map(SocketAddr::port);
    let (tcp_port, tls_port) = (port_of(&sockets.tcp), port_of(&sockets.tls));
    let (host, port) = if announce.is_empty() {
        let bound =
            sockets::addresses(&sockets.tcp).into_iter().chain(sockets::addresses(&sockets.tls)).next();
        let ip = bound.ok_or_else(|| unfit("must be set where there is only a Unix socket"))?.ip();
        if ip.is_unspecified() {
            return Err(unfit("must be set, because bind names no address that others can reach"));
        }
        (in_brackets(ip), tcp_port)
    } else {
        let behind = |port: &str| port.parse::<u16>().ok()?.checked_add(group);
        let parts = announce.rsplit_once(':').and_then(|(host, port)| Some((host, behind(port)?)));
        let (host, port) = parts
            .filter(|(host, _)| !host.is_empty() && !host.contains([' ', '\n']))
            .ok_or_else(|| unfit("must be host:port"))?;
        (host.to_owned(), tcp_port.map(|_| port))
    };
    let tcp = port.map(|port| format!("{host}:{port}"));
    let tls = tls_port.map(|port| format!("{host}:{port}"));
    match leader::own_addresses(tcp.as_deref(), tls.as_deref()) {
        none if none.is_empty() => {
            Err(unfit("others reach a node by TCP, and neither port nor tls-port is set"))
        }
        mut addresses => {
            addresses.extend(port_of(&sockets.http).map(|port| leader::http_address(&host, port)));
            Ok(addresses)
        }
    }
}

fn in_brackets(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn millis(settings: &Settings, setting: Handle<u64>) -> Duration {
    Duration::from_millis(settings.get(setting))
}
