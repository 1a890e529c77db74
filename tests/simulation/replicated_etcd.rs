//! A model of etcd, and the network between it and a node.
//!
//! Owns    the keys, the transactions that are on their way, and the thread of each node: one thread runs at a time; and
//!         [`Near`], an etcd without a network.
//! Faults  are made by [`super::replicated`]: transactions and answers that are late or lost, and transactions that arrive
//!         twice.
//! Rule    a node blocks in each call. Its thread then gives the turn back, and goes on when the world wakes it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use redlatch_core::replication::cluster::{Member, Part};
use redlatch_core::replication::etcd::{Answer, Compare, Etcd, EtcdError, KeyValue, Operation, Transaction};
use redlatch_core::replication::restored::Memory;
use redlatch_proto::clock::LockTime;

use super::crash_server::ServerClock;
use super::replicated::{Defect, Wait, WorldHandle};

#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    keys: BTreeMap<Bytes, (Bytes, i64)>,
    revision: i64,
    /// Its id; 0: it tells none.
    pub(super) id: u64,
}

impl Store {
    pub(super) fn apply(&mut self, transaction: &Transaction) -> Answer {
        let has_succeeded = transaction.conditions.iter().all(|condition| match condition {
            Compare::ModRevision { key, revision } => {
                self.keys.get(key).map_or(0, |(_, changed)| *changed) == *revision
            }
            Compare::Value { key, value } => self.keys.get(key).is_some_and(|(found, _)| found == value),
        });
        let operations = if has_succeeded { &transaction.then } else { &transaction.otherwise };
        let writes = |operation: &Operation| !matches!(operation, Operation::Read { .. });
        self.revision += i64::from(operations.iter().any(writes));
        let mut reads = Vec::new();
        for operation in operations {
            match operation {
                Operation::Put { key, value } => {
                    self.keys.insert(key.clone(), (value.clone(), self.revision));
                }
                Operation::Delete { key, end } => {
                    self.keys.retain(|found, _| !is_in(found, key, end.as_ref()));
                }
                Operation::Read { key, end, limit } => {
                    let limit = if *limit == 0 { usize::MAX } else { *limit as usize };
                    let found = self.keys.iter().filter(|(found, _)| is_in(found, key, end.as_ref()));
                    let found = found.take(limit).map(|(key, (value, mod_revision))| KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        mod_revision: *mod_revision,
                    });
                    reads.push(found.collect());
                }
            }
        }
        Answer { etcd: self.id, revision: self.revision, has_succeeded, reads }
    }

    pub(super) fn value(&self, key: &Bytes) -> Option<Bytes> {
        self.keys.get(key).map(|(value, _)| value.clone())
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

fn is_in(key: &Bytes, first: &Bytes, end: Option<&Bytes>) -> bool {
    end.map_or(key == first, |end| (first..end).contains(&key))
}

/// What becomes of the next transaction that writes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Next {
    #[default]
    Answered,
    Lost,
    Unanswered,
}

/// An etcd that answers at once.
#[derive(Debug, Default)]
pub(super) struct Near {
    pub(super) store: Mutex<Store>,
    pub(super) next: Mutex<Next>,
    pub(super) last: Mutex<Transaction>,
    pub(super) forgotten: Mutex<i64>,
}

impl Near {
    pub(super) fn of(store: Store) -> Self {
        Self { store: Mutex::new(store), ..Self::default() }
    }

    pub(super) fn into_store(self) -> Store {
        self.store.into_inner()
    }

    pub(super) fn put(&self, key: &[u8], value: &'static str) {
        let (key, value) = (key.to_vec().into(), value.into());
        self.store
            .lock()
            .apply(&Transaction { then: vec![Operation::Put { key, value }], ..Default::default() });
    }

    pub(super) fn value(&self, key: &Bytes) -> Bytes {
        self.store.lock().value(key).expect("a key that is there")
    }

    pub(super) fn delete(&self, key: &[u8]) {
        let delete = Operation::Delete { key: key.to_vec().into(), end: None };
        self.store.lock().apply(&Transaction { then: vec![delete], ..Default::default() });
    }
}

impl Etcd for Near {
    fn transact(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        *self.last.lock() = transaction.clone();
        let is_write = transaction.then.iter().any(|operation| !matches!(operation, Operation::Read { .. }));
        let next = if is_write { std::mem::take(&mut *self.next.lock()) } else { Next::Answered };
        let answer = (next != Next::Lost).then(|| self.store.lock().apply(transaction));
        answer.filter(|_| next == Next::Answered).ok_or(EtcdError::Unknown("lost".to_owned()))
    }

    fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        *self.forgotten.lock() = revision;
        Ok(())
    }
}

/// The thread of a node, as the world has it.
#[derive(Debug)]
pub(super) struct Turn {
    wakes: Sender<Option<Wake>>,
    returns: Receiver<()>,
    thread: Option<JoinHandle<()>>,
    is_dead: Arc<AtomicBool>,
}

/// Why a node goes on.
pub(super) type Wake = Result<Answer, EtcdError>;

/// The thread of a node, as the node has it, and its connection to etcd.
pub(super) struct Port {
    pub(super) node: usize,
    pub(super) world: WorldHandle,
    turns: Mutex<(Receiver<Option<Wake>>, Sender<()>)>,
    is_dead: Arc<AtomicBool>,
}

impl Turn {
    /// Begins the thread of a node, which runs until it blocks first.
    pub(super) fn begin(
        node: usize,
        world: WorldHandle,
        run: impl FnOnce(Arc<Port>) + Send + 'static,
    ) -> Self {
        let (wakes, woken) = channel();
        let (done, returns) = channel();
        let is_dead = Arc::new(AtomicBool::new(false));
        let turns = Mutex::new((woken, done.clone()));
        let port = Arc::new(Port { node, world, turns, is_dead: Arc::clone(&is_dead) });
        let thread = std::thread::spawn(move || {
            run(port);
            // The world may be gone.
            let _ = done.send(());
        });
        let turn = Self { wakes, returns, thread: Some(thread), is_dead };
        turn.wait();
        turn
    }

    /// Lets the node run until it blocks again. The world is not locked.
    pub(super) fn wake(&self, why: Option<Wake>) {
        // A thread that has ended has nothing to wake for.
        if self.wakes.send(why).is_ok() {
            self.wait();
        }
    }

    fn wait(&self) {
        // An error: it has panicked, which the end of the turn tells.
        let _ = self.returns.recv();
    }

    /// The node is killed: whatever it does from now on has no effect.
    pub(super) fn kill(&self) {
        self.is_dead.store(true, SeqCst);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.is_dead.store(true, SeqCst);
        let _ = self.wakes.send(None);
        let thread = self.thread.take().expect("the thread was begun");
        let result = thread.join();
        if !std::thread::panicking() {
            result.expect("a node does not panic");
        }
    }
}

impl Port {
    /// Whether the node was killed.
    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(SeqCst)
    }

    /// Blocks until the world wakes the node, for which `wait` is its reason.
    fn block(&self, wait: Wait) -> Option<Wake> {
        if self.is_dead() {
            return None;
        }
        self.world.lock().begin_wait(self.node, wait);
        let turns = self.turns.lock();
        // The world may be gone: then the channels are, too.
        turns.1.send(()).ok()?;
        let why = turns.0.recv().ok()?;
        why.filter(|_| !self.is_dead())
    }

    pub(super) fn fail(&self, why: &str) {
        if !self.is_dead() {
            self.world.lock().broken = Some(format!("node {}: {why}", self.node));
        }
    }

    /// How the node is broken.
    pub(super) fn defect(&self) -> Defect {
        self.world.lock().defect
    }

    /// The wall clock, in milliseconds.
    pub(super) fn wall_ms(&self) -> u64 {
        self.world.lock().wall_ms()
    }

    /// The clock of a leader that begins at this lock time.
    pub(super) fn clock_from(&self, now: LockTime) -> Arc<ServerClock> {
        self.world.lock().clock_from(self.node, now)
    }

    pub(super) fn boot_ms(&self) -> u64 {
        self.world.lock().boot_ms(self.node)
    }

    /// [`Port::boot_ms`], as the time since its origin.
    pub(super) fn boot(&self) -> Duration {
        Duration::from_millis(self.boot_ms())
    }

    /// Notes what the node remembers, as in its directory.
    pub(super) fn remember(&self, memory: Memory) {
        if !self.is_dead() {
            *self.world.lock().memory(self.node) = memory;
        }
    }

    /// What it remembers.
    pub(super) fn memory(&self) -> Memory {
        *self.world.lock().memory(self.node)
    }

    /// The group of the node.
    pub(super) fn part(&self) -> Part {
        self.world.lock().part_of(self.node)
    }

    /// Whether it is to lead its group, of all nodes.
    pub(super) fn is_first(&self) -> bool {
        self.world.lock().is_first(self.node)
    }

    /// Notes who leads, as etcd says.
    pub(super) fn note_leader(&self, leader: Option<&Member>) {
        if !self.is_dead() {
            let node = leader.and_then(|leader| leader.id.split('-').next()?.parse().ok());
            self.world.lock().note_leader(self.node, node);
        }
    }

    /// Waits, or until the journal asks for a sync. Returns false if the node was killed.
    pub(super) fn pause(&self, millis: u64) -> bool {
        self.block(Wait::Pause(millis)).is_some()
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Etcd for Port {
    fn transact(&self, transaction: &Transaction) -> Result<Answer, EtcdError> {
        let defect = self.world.lock().defect;
        let why = self.block(Wait::Etcd(broken(transaction, defect)));
        why.unwrap_or_else(|| Err(EtcdError::Unknown("the node was killed".to_owned())))
    }

    fn compact(&self, _revision: i64) -> Result<(), EtcdError> {
        Ok(())
    }
}

/// The transaction without the conditions that the defect forgets.
fn broken(transaction: &Transaction, defect: Defect) -> Transaction {
    let puts = |name: &[u8]| {
        let mut operations = transaction.then.iter();
        operations.any(|operation| matches!(operation, Operation::Put { key, .. } if key.ends_with(name)))
    };
    let is_commit = puts(b"head") && !puts(b"epoch");
    let forgotten: &[&str] = match defect {
        Defect::CommitsWithoutEpoch if is_commit => &["epoch", "term"],
        Defect::CommitsWithoutHead if is_commit => &["head"],
        _ => return transaction.clone(),
    };
    let mut broken = transaction.clone();
    broken.conditions.retain(|condition| {
        let (Compare::ModRevision { key, .. } | Compare::Value { key, .. }) = condition;
        !forgotten.iter().any(|name| key.ends_with(name.as_bytes()))
    });
    broken
}
