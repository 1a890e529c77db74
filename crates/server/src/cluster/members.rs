//! The list of the nodes of a cluster, for those who ask.
//!
//! Rule    every node rewrites its entry from time to time. One that stays the same is that of a node that has ended. The
//!         list decides nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use redlatch_core::journal::recovery::Promised;
use redlatch_core::replication::cluster::{Keys, Member};
use redlatch_core::replication::etcd::{EtcdError, Operation, Transaction};
use redlatch_core::state::cluster::{ClusterFacts, ClusterNode};
use tokio::time::{sleep, timeout};

use super::client::EtcdClient;
use super::leader::{self, NodeEntry};
use super::reach::{Reach, Report};

/// How often a node rewrites its entry.
const BEAT_EVERY: Duration = Duration::from_secs(2);
/// After which time an entry that stays the same is not listed.
const LISTED_FOR: Duration = Duration::from_secs(10);
/// After which time it is removed.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Entries that are read: more than a cluster has nodes.
const LISTED_MAX: u32 = 100;
/// How long the removal of this node's own entry may take when it ends.
const LEAVE_MAX: Duration = Duration::from_millis(500);

/// The list, as this node knows it.
#[derive(Debug)]
pub(super) struct Members {
    keys: Keys,
    me: Member,
    /// What commands say of it.
    pub(super) facts: Arc<ClusterFacts>,
    /// The entry of each node, and since when it is the same.
    seen: Mutex<HashMap<Bytes, (Bytes, Instant)>>,
    /// What the nodes that are listed tell of the way to the leader.
    reports: Mutex<Vec<Report>>,
    /// What this node knows of that.
    pub(super) reach: Arc<Reach>,
    /// The entries that had an address of this node when it came.
    rivals: Mutex<Option<HashMap<Bytes, Bytes>>>,
    /// What this node knows of the promises of leaders. Each node tells the others, for the case that etcd is restored.
    promised: Mutex<Promised>,
    /// What tells the users, the passwords and the name of this node from those of others.
    digest: String,
    digests: Mutex<Digests>,
}

/// What others have for [`Members::digest`].
#[derive(Debug, Default)]
struct Digests {
    /// By the ids of the nodes that are listed.
    listed: HashMap<String, String>,
    of_leader: Option<String>,
}

impl Members {
    /// `digest`: of what all nodes should have alike.
    pub(super) fn new(name: String, keys: Keys, me: Member, digest: String) -> Self {
        let facts = Arc::new(ClusterFacts::new(name, leader::node(&me)));
        let (seen, promised, digests) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (reports, reach, rivals) = (Mutex::default(), Arc::default(), Mutex::default());
        Self { keys, me, facts, seen, reports, reach, rivals, promised, digest, digests }
    }

    /// Rewrites the entry of this node and reads those of the others. `after` follows each time. Resolves when it turns out
    /// that another node had an address of this one before, and lives.
    pub(super) async fn beat(&self, etcd: &EtcdClient, after: impl Fn()) {
        for beat in 0.. {
            if let Err(error) = self.beat_once(etcd, beat).await {
                tracing::debug!(%error, "the list of nodes is not read");
            }
            after();
            if self.has_rival() {
                return;
            }
            sleep(BEAT_EVERY).await;
        }
    }

    /// Whether an entry with an address of this node, which was there before it, has changed since.
    fn has_rival(&self) -> bool {
        let (seen, mut rivals) = (self.seen.lock(), self.rivals.lock());
        if seen.is_empty() {
            return false;
        }
        let is_rival = |(key, (value, _)): &(&Bytes, &(Bytes, Instant))| {
            let theirs = leader::in_node(value).addresses;
            **key != self.keys.node(&self.me.id) && theirs.iter().any(|at| self.me.addresses.contains(at))
        };
        let found = || seen.iter().filter(is_rival).map(|(key, (value, _))| (key.clone(), value.clone()));
        let rivals = rivals.get_or_insert_with(|| found().collect());
        found().any(|(key, value)| rivals.get(&key).is_some_and(|before| *before != value))
    }

    /// What this node knows of the promises of leaders.
    pub(super) fn promised(&self) -> Promised {
        *self.promised.lock()
    }

    /// Whether the users, the passwords or the name of this node are others than those of the last leader.
    pub(super) fn differs_from(&self, leader: Option<&Member>) -> bool {
        let Digests { listed, of_leader } = &mut *self.digests.lock();
        if let Some(digest) = leader.and_then(|leader| listed.get(&leader.id)) {
            *of_leader = Some(digest.clone());
        }
        of_leader.as_ref().is_some_and(|digest| *digest != self.digest)
    }

    /// A leader has promised this.
    pub(super) fn note_promised(&self, promised: Promised) {
        let mut known = self.promised.lock();
        *known = known.max(promised);
    }

    async fn beat_once(&self, etcd: &EtcdClient, beat: u64) -> Result<(), EtcdError> {
        let (key, value) = (self.keys.node(&self.me.id), self.text(beat));
        let (first, end) = self.keys.nodes();
        let mut then = vec![
            Operation::Put { key, value },
            Operation::Read { key: first, end: Some(end), limit: LISTED_MAX },
        ];
        then.extend(self.ended().into_iter().map(|key| Operation::Delete { key, end: None }));
        let answer = etcd.transaction(&Transaction { then, ..Transaction::default() }).await?;
        let (now, mut seen) = (Instant::now(), self.seen.lock());
        let (mut listed, mut reports, mut digests) = (Vec::new(), Vec::new(), HashMap::new());
        let mut still = HashMap::new();
        for found in answer.reads.into_iter().flatten() {
            let since = match seen.get(&found.key) {
                Some((value, since)) if *value == found.value => *since,
                _ => now,
            };
            let id = found.key.strip_prefix(&*self.keys.nodes().0).map(String::from_utf8_lossy);
            let NodeEntry { addresses, digest, report, promised } = leader::in_node(&found.value);
            self.note_promised(promised);
            let differs = digest.as_ref().is_some_and(|digest| *digest != self.digest);
            digests.extend(id.as_ref().map(|id| id.clone().into_owned()).zip(digest));
            if let Some(id) = id.filter(|id| *id != self.me.id && now - since < LISTED_FOR) {
                let node = leader::node(&Member { id: id.into_owned(), addresses });
                listed.push(ClusterNode { differs, ..node });
                reports.push(report);
            }
            still.insert(found.key, (found.value, since));
        }
        *seen = still;
        self.digests.lock().listed = digests;
        self.facts.set_others(listed);
        let epoch = self.facts.epoch();
        let unreached =
            reports.iter().filter(|report| report.unreached.is_some_and(|it| it == epoch)).count();
        self.facts.set_unreached_by(unreached);
        *self.reports.lock() = reports;
        Ok(())
    }

    fn text(&self, beat: u64) -> Bytes {
        let entry = NodeEntry {
            addresses: self.me.addresses.clone(),
            digest: Some(self.digest.clone()),
            report: self.reach.report(),
            promised: self.promised(),
        };
        leader::node_text(&entry, beat).into()
    }

    /// What the others tell of the way to the leader.
    pub(super) fn reports(&self) -> Vec<Report> {
        self.reports.lock().clone()
    }

    /// The keys of entries that have stayed the same for long. A node that was paused writes its own again.
    fn ended(&self) -> Vec<Bytes> {
        let seen = self.seen.lock();
        seen.iter().filter(|(_, (_, since))| since.elapsed() > KEPT_FOR).map(|(key, _)| key.clone()).collect()
    }

    /// Removes the entry of this node.
    pub(super) async fn leave(&self, etcd: &EtcdClient) {
        let then = vec![Operation::Delete { key: self.keys.node(&self.me.id), end: None }];
        // The others notice its end in any case.
        let _ = timeout(LEAVE_MAX, etcd.transaction(&Transaction { then, ..Transaction::default() })).await;
    }
}
