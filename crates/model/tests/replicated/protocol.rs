//! The protocol of the replicated mode as a model: etcd as one store with transactions, two nodes, two clients, one lock.
//!
//! Order   a step may come as late as it likes, or never. So a node that is stopped takes no step, and a request or an
//!         answer that is late or lost is a step that comes late or not at all. One try of a commit may stay on its way, and
//!         reach etcd before or after the others.
//! Time    in ticks. A tick of real time is one of every clock, but one clock of a node may miss one tick in a run.
//! Merged  steps whose delay makes the protocol safer are one. A standby looks all the time: one that looks less takes
//!         over later. A request is executed when it is asked, a reply arrives when it leaves: a client counts its lease
//!         from the question on, and what was told before the question is less than what was told before the execution.
//!         A client gives up on a leader that was deposed; any other one may yet answer it.
//! Not in  sessions, waiters, restored logs, files of the log, several locks, requests that are executed after their client
//!         has given up. etcd itself: its transactions are taken to be linearizable.

use stateright::{Model, Property};

use super::mutants::Mutant;

/// How long the log stands still before another node takes over, in ticks.
const TAKEOVER: u8 = 2;
/// How long a leader believes that it leads: less than that by the tick that its clock may miss.
const BELIEVED: u8 = TAKEOVER - 1;
/// How long a lock is granted for.
const LEASE: u8 = 3;

/// Bounds of the exploration: what a run has at most.
const TICKS_MAX: u8 = 3;
const EPOCHS_MAX: u8 = 3;
const CHANGES_MAX: u8 = 2;

/// The promises of docs/replication.md.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Promise {
    NoLockTwice,
    WhatWasAnsweredStays,
    TokensRise,
    ReadsAreLinearizable,
}

impl Promise {
    /// The name of its property.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::NoLockTwice => "no lock is granted twice",
            Self::WhatWasAnsweredStays => "what was answered stays",
            Self::TokensRise => "tokens rise",
            Self::ReadsAreLinearizable => "reads are linearizable",
        }
    }
}

/// What must be possible: a protocol that does nothing keeps all promises.
pub(super) const POSSIBLE: &[&str] = &[GRANTED_AGAIN, OUTLIVES, DOUBTED, OVERTAKEN];
const GRANTED_AGAIN: &str = "the lock is granted again";
const OUTLIVES: &str = "a lock outlives its leader";
const DOUBTED: &str = "a leader executes a request that it may not answer";
const OVERTAKEN: &str = "a commit was made by an earlier try";

/// The model: the protocol, or a mutant of it.
pub(super) struct Protocol {
    pub(super) mutant: Mutant,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) struct State {
    ticks: u8,
    /// Whether a clock has missed a tick.
    was_slow: bool,
    etcd: Etcd,
    nodes: [Node; 2],
    clients: [Client; 2],
    stray: Stray,
    /// What replies have told of: the newest version, and the highest token.
    told: (u8, u8),
    /// A promise that a reply has broken.
    broken: Option<Promise>,
}

/// The keys of the cluster. The entries of the log are folded into what they make.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Etcd {
    epoch: u8,
    /// Whether the epoch is that of a node, and not released.
    is_led: bool,
    head: u8,
    lock_time: u8,
    keys: Keys,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Keys {
    /// How many changes there were.
    version: u8,
    lock: Option<Lock>,
    /// The last token that was given out.
    token: u8,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Lock {
    client: usize,
    /// The lock time from which on it is free.
    end: u8,
    /// In which epoch it was granted.
    epoch: u8,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Node {
    /// For how many ticks of its clock it has seen the log stand still.
    Standby(u8),
    Leader(Leader),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Leader {
    epoch: u8,
    /// The number of its next entry.
    head: u8,
    lock_time: u8,
    keys: Keys,
    /// The version up to which all is committed.
    committed: u8,
    /// For how many ticks of its clock it believes that it leads.
    believes: u8,
    /// Whether its first entry is committed.
    serves: bool,
    commit: Option<Commit>,
}

/// An entry on its way to etcd, and how many ticks of the leader's clock ago that began.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Commit {
    entry: Entry,
    ticks: u8,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Entry {
    lock_time: u8,
    /// `None`: nothing has changed.
    keys: Option<Keys>,
}

/// A try of a commit that etcd may have at any time. There is one in a run at most.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Stray {
    NotYet,
    OnItsWay { epoch: u8, head: u8, entry: Entry },
    Arrived,
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Client {
    /// For how many ticks it believes that it has the lock.
    believes: u8,
    call: Option<Call>,
}

/// A request that a leader has executed. Its reply waits there.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
struct Call {
    node: usize,
    /// How many ticks ago.
    ticks: u8,
    /// The version that the reply tells of, and the token that it grants.
    version: u8,
    token: Option<u8>,
    /// Which promise the reply breaks if it leaves, by what others had been told before.
    breaks: Option<Promise>,
    proof: Proof,
}

/// Whether a commit has succeeded that began after the request was executed.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Proof {
    NotBegun,
    Begun,
    Proven,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ask {
    Acquire,
    Release,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Tick {
        slow: Option<usize>,
    },
    /// A standby swaps the epoch, and reads the log.
    Seize(usize),
    /// A leader begins a commit: of what has changed, or of lock time alone.
    Begin {
        node: usize,
        is_stray: bool,
    },
    /// etcd has it, and answers.
    Commit(usize),
    /// etcd has the try that has stayed on its way.
    Stray,
    /// A node is killed, and starts again as a standby.
    Kill(usize),
    HandOver(usize),
    Ask {
        client: usize,
        node: usize,
        ask: Ask,
    },
    Reply(usize),
    /// A client waits no longer for a reply.
    GiveUp(usize),
}

/// The head of the log. Only what lies between it and other numbers matters, up to two.
const HEAD: u8 = 2;

fn relative(number: u8, head: u8) -> u8 {
    (number + HEAD).saturating_sub(head).min(2 * HEAD)
}

const BOTH: [usize; 2] = [0, 1];

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let keys = Keys { version: 0, lock: None, token: 0 };
        vec![State {
            ticks: 0,
            was_slow: false,
            etcd: Etcd { epoch: 0, is_led: false, head: HEAD, lock_time: 0, keys },
            nodes: [Node::Standby(0); 2],
            clients: [Client { believes: 0, call: None }; 2],
            stray: Stray::NotYet,
            told: (0, 0),
            broken: None,
        }]
    }

    /// All steps that there are. Those that are not possible lead nowhere.
    fn actions(&self, _: &State, steps: &mut Vec<Step>) {
        steps.extend([None, Some(0), Some(1)].map(|slow| Step::Tick { slow }));
        steps.push(Step::Stray);
        for one in BOTH {
            steps.extend([Step::Seize(one), Step::Commit(one), Step::Kill(one), Step::HandOver(one)]);
            steps.extend([false, true].map(|is_stray| Step::Begin { node: one, is_stray }));
            for ask in [Ask::Acquire, Ask::Release] {
                steps.extend(BOTH.map(|node| Step::Ask { client: one, node, ask }));
            }
            steps.extend([Step::Reply(one), Step::GiveUp(one)]);
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = *before;
        match step {
            Step::Tick { slow } => state.tick(slow),
            Step::Seize(node) => state.seize(node, self.mutant),
            Step::Begin { node, is_stray } => state.begin(node, is_stray),
            Step::Commit(node) => state.commit(node, self.mutant),
            Step::Stray => state.stray(self.mutant),
            Step::Kill(node) => state.kill(node),
            Step::HandOver(node) => state.hand_over(node, self.mutant),
            Step::Ask { client, node, ask } => state.ask(client, node, ask),
            Step::Reply(client) => state.reply(client, self.mutant),
            Step::GiveUp(client) => state.give_up(client),
        }?;
        Some(state.canonical(self.mutant))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(Promise::NoLockTwice.name(), |_, state: &State| {
                state.clients.iter().any(|client| client.believes == 0)
            }),
            Property::always(Promise::WhatWasAnsweredStays.name(), |_, state: &State| {
                state.etcd.keys.version >= state.told.0
            }),
            Property::always(Promise::TokensRise.name(), |_, state: &State| {
                state.broken != Some(Promise::TokensRise)
            }),
            Property::always(Promise::ReadsAreLinearizable.name(), |_, state: &State| {
                state.broken != Some(Promise::ReadsAreLinearizable)
            }),
            Property::sometimes(GRANTED_AGAIN, |_, state: &State| state.told.1 > 1),
            Property::sometimes(OUTLIVES, |_, state: &State| {
                let is_believed = state.clients.iter().any(|client| client.believes > 0);
                is_believed && state.leaders().any(|leader| leader.serves && leader.has_taken_over_a_lock())
            }),
            Property::sometimes(DOUBTED, |_, state: &State| {
                state.clients.iter().any(|client| client.call.is_some_and(|call| call.breaks.is_some()))
            }),
            Property::sometimes(OVERTAKEN, |_, state: &State| {
                let is_ahead =
                    |leader: &Leader| leader.epoch == state.etcd.epoch && leader.head < state.etcd.head;
                state.leaders().any(is_ahead)
            }),
        ]
    }
}

impl State {
    fn leaders(&self) -> impl Iterator<Item = &Leader> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Standby(_) => None,
            Node::Leader(leader) => Some(leader),
        })
    }

    /// The one of all states that go on alike: without what has ended, with the head at [`HEAD`], and the least of those that
    /// differ only in which node and which client is the first.
    fn canonical(mut self, mutant: Mutant) -> Self {
        self.etcd.keys.lock = self.etcd.keys.lock.filter(|lock| lock.end > self.etcd.lock_time);
        let head = self.etcd.head;
        if let Stray::OnItsWay { epoch, head: its_head, .. } = &mut self.stray {
            let may_succeed = (*epoch == self.etcd.epoch || mutant == Mutant::CommitsWithoutEpoch)
                && (*its_head == head || mutant == Mutant::CommitsWithoutHead);
            *its_head = relative(*its_head, head);
            if !may_succeed {
                self.stray = Stray::Arrived;
            }
        }
        for node in &mut self.nodes {
            if let Node::Leader(leader) = node {
                leader.keys.lock = leader.lock();
                leader.head = relative(leader.head, head);
            }
        }
        self.etcd.head = HEAD;
        let other = self.with_nodes_swapped();
        self.min(other).min(self.with_clients_swapped()).min(other.with_clients_swapped())
    }

    fn with_nodes_swapped(mut self) -> Self {
        self.nodes.swap(0, 1);
        for call in self.clients.iter_mut().filter_map(|client| client.call.as_mut()) {
            call.node = 1 - call.node;
        }
        self
    }

    fn with_clients_swapped(mut self) -> Self {
        self.clients.swap(0, 1);
        let swap = |keys: &mut Keys| {
            if let Some(lock) = &mut keys.lock {
                lock.client = 1 - lock.client;
            }
        };
        swap(&mut self.etcd.keys);
        for node in &mut self.nodes {
            if let Node::Leader(leader) = node {
                swap(&mut leader.keys);
                leader.commit.iter_mut().for_each(|commit| commit.entry.keys.iter_mut().for_each(swap));
            }
        }
        if let Stray::OnItsWay { entry, .. } = &mut self.stray {
            entry.keys.iter_mut().for_each(swap);
        }
        self
    }

    fn tick(&mut self, slow: Option<usize>) -> Option<()> {
        if self.ticks == TICKS_MAX || (slow.is_some() && self.was_slow) {
            return None;
        }
        self.ticks += 1;
        self.was_slow |= slow.is_some();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            match node {
                _ if slow == Some(number) => {}
                Node::Standby(still) => *still = TAKEOVER.min(*still + 1),
                Node::Leader(leader) => leader.tick(),
            }
        }
        for client in &mut self.clients {
            client.believes = client.believes.saturating_sub(1);
            client.call.iter_mut().for_each(|call| call.ticks = LEASE.min(call.ticks + 1));
        }
        Some(())
    }

    fn seize(&mut self, node: usize, mutant: Mutant) -> Option<()> {
        let Node::Standby(still) = self.nodes[node] else { return None };
        if (self.etcd.is_led && still < TAKEOVER) || self.etcd.epoch >= EPOCHS_MAX {
            return None;
        }
        self.change_epoch(true);
        self.lead(node, mutant);
        Some(())
    }

    fn change_epoch(&mut self, is_led: bool) {
        // Terms have odd epochs, so that a run with hand-overs has as many as one without.
        let epoch = (self.etcd.epoch + 1) | u8::from(is_led);
        (self.etcd.epoch, self.etcd.is_led) = (epoch, is_led);
        self.nodes.iter_mut().for_each(|node| node.begin_to_wait());
    }

    /// The node begins a term in the epoch that there is, with what the log has.
    fn lead(&mut self, node: usize, mutant: Mutant) {
        let Etcd { epoch, head, lock_time, mut keys, .. } = self.etcd;
        // Another clock may have any reading.
        let lock_time = if mutant == Mutant::LockTimeNotResumed { lock_time + LEASE } else { lock_time };
        if mutant == Mutant::TokensNotResumed {
            keys.token = 0;
        }
        let committed = keys.version;
        let leader =
            Leader { epoch, head, lock_time, keys, committed, believes: 0, serves: false, commit: None };
        self.nodes[node] = Node::Leader(leader);
    }

    fn begin(&mut self, node: usize, is_stray: bool) -> Option<()> {
        let Node::Leader(leader) = &mut self.nodes[node] else { return None };
        if leader.commit.is_some() || (is_stray && self.stray != Stray::NotYet) {
            return None;
        }
        let (epoch, head, entry) = (leader.epoch, leader.head, leader.entry());
        leader.commit = Some(Commit { entry, ticks: 0 });
        if is_stray {
            self.stray = Stray::OnItsWay { epoch, head, entry };
        }
        self.prove(node, Proof::NotBegun, Proof::Begun);
        Some(())
    }

    /// Replies that wait at that node come nearer to their proof.
    fn prove(&mut self, node: usize, before: Proof, after: Proof) {
        let calls = self.clients.iter_mut().filter_map(|client| client.call.as_mut());
        calls.filter(|call| call.node == node && call.proof == before).for_each(|call| call.proof = after);
    }

    fn commit(&mut self, node: usize, mutant: Mutant) -> Option<()> {
        let Node::Leader(mut leader) = self.nodes[node] else { return None };
        let Commit { mut entry, ticks } = leader.commit.take()?;
        if mutant == Mutant::AddsToTriedEntry {
            entry = leader.entry();
        }
        let has_succeeded = self.try_commit((leader.epoch, leader.head), entry, mutant);
        let is_mine = self.etcd.epoch == leader.epoch || mutant == Mutant::MistakesHead;
        let is_committed = has_succeeded || (is_mine && self.etcd.head == leader.head + 1);
        if !is_committed {
            self.end_term(node);
            return Some(());
        }
        let believed = match mutant {
            Mutant::BelievesForTakeover => TAKEOVER - ticks,
            Mutant::BelievesFromAnswer => BELIEVED,
            _ => BELIEVED.saturating_sub(ticks),
        };
        leader.believes = leader.believes.max(believed);
        leader.head += 1;
        leader.committed = entry.keys.map_or(leader.committed, |keys| keys.version);
        leader.serves = true;
        self.nodes[node] = Node::Leader(leader);
        self.prove(node, Proof::Begun, Proof::Proven);
        Some(())
    }

    /// The transaction of a commit. Returns whether it has succeeded.
    fn try_commit(&mut self, (epoch, head): (u8, u8), entry: Entry, mutant: Mutant) -> bool {
        let is_in_epoch = self.etcd.epoch == epoch || mutant == Mutant::CommitsWithoutEpoch;
        let is_next = self.etcd.head == head || mutant == Mutant::CommitsWithoutHead;
        if !is_in_epoch || !is_next {
            return false;
        }
        self.etcd.head = head + 1;
        self.etcd.lock_time = self.etcd.lock_time.max(entry.lock_time);
        self.etcd.keys = entry.keys.unwrap_or(self.etcd.keys);
        for node in &mut self.nodes {
            let is_late = mutant == Mutant::SwapsWithoutHead && *node == Node::Standby(TAKEOVER);
            if mutant != Mutant::TakesOverFromLiving && !is_late {
                node.begin_to_wait();
            }
        }
        true
    }

    fn stray(&mut self, mutant: Mutant) -> Option<()> {
        let Stray::OnItsWay { epoch, head, entry } = self.stray else { return None };
        self.stray = Stray::Arrived;
        self.try_commit((epoch, head), entry, mutant);
        Some(())
    }

    fn kill(&mut self, node: usize) -> Option<()> {
        let Node::Leader(_) = self.nodes[node] else { return None };
        self.end_term(node);
        Some(())
    }

    /// The leader drops what it has not committed, and closes the connections of its clients.
    fn end_term(&mut self, node: usize) {
        self.nodes[node] = Node::Standby(0);
        for client in &mut self.clients {
            client.call = client.call.filter(|call| call.node != node);
        }
    }

    /// A leader that has committed everything gives the epoch back.
    fn hand_over(&mut self, node: usize, mutant: Mutant) -> Option<()> {
        let Node::Leader(leader) = &self.nodes[node] else { return None };
        let is_whole = leader.commit.is_none() && leader.committed == leader.keys.version;
        if !is_whole || leader.epoch != self.etcd.epoch || leader.epoch >= EPOCHS_MAX {
            return None;
        }
        if mutant != Mutant::AnswersAfterHandOver {
            self.end_term(node);
        }
        self.change_epoch(false);
        Some(())
    }

    fn ask(&mut self, client: usize, node: usize, ask: Ask) -> Option<()> {
        let Node::Leader(leader) = &mut self.nodes[node] else { return None };
        let Client { believes, call } = &mut self.clients[client];
        if call.is_some() || !leader.serves || leader.keys.version == CHANGES_MAX {
            return None;
        }
        if ask == Ask::Release {
            // Who has no lock releases none, and who releases it does not believe in it any more.
            *believes = believes.checked_sub(1).map(|_| 0)?;
        }
        let token = leader.execute(client, ask);
        let version = leader.keys.version;
        let is_low = token.is_some_and(|(token, is_new)| token < self.told.1 + u8::from(is_new));
        let breaks = if is_low { Some(Promise::TokensRise) } else { None };
        let breaks = if version < self.told.0 { Some(Promise::ReadsAreLinearizable) } else { breaks };
        let token = token.map(|(token, _)| token);
        *call = Some(Call { node, ticks: 0, version, token, breaks, proof: Proof::NotBegun });
        Some(())
    }

    /// A client whose leader was deposed asks another one. Any other call may yet be answered.
    fn give_up(&mut self, client: usize) -> Option<()> {
        let Call { node, .. } = self.clients[client].call?;
        let Node::Leader(Leader { epoch, .. }) = self.nodes[node] else { return None };
        self.clients[client].call.take_if(|_| epoch < self.etcd.epoch).map(drop)
    }

    fn reply(&mut self, client: usize, mutant: Mutant) -> Option<()> {
        let Call { node, ticks, version, token, breaks, proof } = self.clients[client].call?;
        let Node::Leader(leader) = &self.nodes[node] else { return None };
        let is_committed = leader.committed >= version || mutant == Mutant::RepliesBeforeCommit;
        let is_proven = proof == Proof::Proven || leader.believes > 0 || mutant == Mutant::ReadsWithoutProof;
        if !is_committed || !is_proven {
            return None;
        }
        let believes = token.map_or(self.clients[client].believes, |_| LEASE - ticks);
        self.clients[client] = Client { believes, call: None };
        self.told = (self.told.0.max(version), self.told.1.max(token.unwrap_or(0)));
        self.broken = breaks;
        Some(())
    }
}

impl Node {
    /// A standby sees that the log has moved.
    fn begin_to_wait(&mut self) {
        if let Self::Standby(still) = self {
            *still = 0;
        }
    }
}

impl Leader {
    fn tick(&mut self) {
        self.lock_time += 1;
        self.believes = self.believes.saturating_sub(1);
        self.commit.iter_mut().for_each(|commit| commit.ticks = TAKEOVER.min(commit.ticks + 1));
    }

    /// An entry with all that has changed.
    fn entry(&self) -> Entry {
        Entry {
            lock_time: self.lock_time,
            keys: Some(self.keys).filter(|keys| keys.version > self.committed),
        }
    }

    /// The lock that is held now.
    fn lock(&self) -> Option<Lock> {
        self.keys.lock.filter(|lock| lock.end > self.lock_time)
    }

    fn has_taken_over_a_lock(&self) -> bool {
        self.lock().is_some_and(|lock| lock.epoch < self.epoch)
    }

    /// Executes a request. Returns the token that it grants, and whether that is a new one.
    fn execute(&mut self, client: usize, ask: Ask) -> Option<(u8, bool)> {
        let holder = self.lock().map(|lock| lock.client);
        let is_new = holder.is_none();
        match ask {
            Ask::Acquire if is_new || holder == Some(client) => {
                self.keys.token += u8::from(is_new);
                self.keys.lock = Some(Lock { client, end: self.lock_time + LEASE, epoch: self.epoch });
                self.keys.version += 1;
                Some((self.keys.token, is_new))
            }
            Ask::Release if holder == Some(client) => {
                self.keys.lock = None;
                self.keys.version += 1;
                None
            }
            _ => None,
        }
    }
}
