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
use redlatch_core::replication::etcd::{EtcdError, KeyValue, Operation, Transaction};
use redlatch_core::state::cluster::{ClusterFacts, ClusterNode};
use redlatch_core::state::slot_groups::SlotGroup;
use tokio::time::{sleep, timeout};

use super::candidates::{self, Candidate, Rests};
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
    /// What tells the users, the passwords and the name of this node from those of others.
    digest: String,
    /// What commands say of the list.
    pub(super) facts: Arc<ClusterFacts>,
    /// What this node knows of the way to the leader.
    pub(super) reach: Arc<Reach>,
    /// The groups that this node has given up.
    rests: Arc<Rests>,
    seen: Mutex<Seen>,
}

/// What this node has seen of the others.
#[derive(Debug, Default)]
struct Seen {
    /// By their keys; that of this node is among them.
    entries: HashMap<Bytes, Entry>,
    /// The values of those that had an address of this node when it came.
    rivals: Option<HashMap<Bytes, Bytes>>,
    /// The digest of the last leader.
    leader_digest: Option<String>,
    /// What leaders have promised. Each node tells the others, for the case that etcd is restored.
    promised: Promised,
}

/// The entry of a node.
#[derive(Debug)]
struct Entry {
    value: Bytes,
    said: NodeEntry,
    /// Since when it is the same.
    since: Instant,
}

impl Members {
    /// The name of the cluster, and the slots of the group, if clients are in cluster mode. `digest`: of what all nodes
    /// should have alike. `rests`: the groups that this node has given up.
    pub(super) fn new(
        (name, slots): (String, Option<SlotGroup>),
        keys: Keys,
        me: Member,
        (digest, rests): (String, Arc<Rests>),
    ) -> Self {
        let facts = Arc::new(ClusterFacts::new(name, leader::node(&me)).with_group(slots));
        Self { keys, me, digest, facts, reach: Arc::default(), rests, seen: Mutex::default() }
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
        let Seen { entries, rivals, .. } = &mut *self.seen.lock();
        if entries.is_empty() {
            return false;
        }
        let own = self.keys.node(&self.me.id);
        let is_rival = |(key, entry): &(&Bytes, &Entry)| {
            **key != own && entry.said.addresses.iter().any(|at| self.me.addresses.contains(at))
        };
        let found = || entries.iter().filter(is_rival).map(|(key, entry)| (key.clone(), entry.value.clone()));
        let rivals = rivals.get_or_insert_with(|| found().collect());
        found().any(|(key, value)| rivals.get(&key).is_some_and(|before| *before != value))
    }

    /// The name of this node, and those of all that may be asked to lead a group, of the ones that have rewritten their
    /// entries within this time.
    pub(super) fn candidates(&self, group: u16, time: Duration) -> (String, Vec<String>) {
        let name = |node: &ClusterNode| format!("{}:{}", node.host, node.port);
        let leaders = self.facts.group.as_ref().map(SlotGroup::leaders).unwrap_or_default();
        let first = leaders.iter().find(|(number, ..)| *number == 0).map(|(.., node)| name(node));
        let me = name(&self.facts.me);
        let candidate = |name: String, digest: Option<&String>, rests: bool| Candidate {
            leads_first: first.as_ref() == Some(&name),
            digest: digest.cloned(),
            name,
            rests,
        };
        let seen = self.seen.lock();
        let heard = self.listed(&seen).filter(|(_, entry)| entry.since.elapsed() < time);
        let others = heard.map(|(key, Entry { said, .. })| {
            candidate(name(&self.node(key, said)), said.digest.as_ref(), said.rests.contains(&group))
        });
        let own = candidate(me.clone(), Some(&self.digest), self.rests.has(group));
        (me, candidates::names(others.chain([own]).collect()))
    }

    /// The node whose entry has this key and says this.
    fn node(&self, key: &Bytes, said: &NodeEntry) -> ClusterNode {
        let (prefix, _) = self.keys.nodes();
        let id = String::from_utf8_lossy(key.strip_prefix(&*prefix).unwrap_or_default()).into_owned();
        ClusterNode {
            differs: said.digest.as_ref().is_some_and(|digest| *digest != self.digest),
            unreached: said.report.unreached,
            ..leader::node(&Member { id, addresses: said.addresses.clone() })
        }
    }

    /// What this node knows of the promises of leaders.
    pub(super) fn promised(&self) -> Promised {
        self.seen.lock().promised
    }

    /// Whether the users, the passwords or the name of this node are others than those of the last leader.
    pub(super) fn differs_from(&self, leader: Option<&Member>) -> bool {
        let Seen { entries, leader_digest, .. } = &mut *self.seen.lock();
        let entry = leader.and_then(|leader| entries.get(&self.keys.node(&leader.id)));
        if let Some(digest) = entry.and_then(|entry| entry.said.digest.as_ref()) {
            *leader_digest = Some(digest.clone());
        }
        leader_digest.as_ref().is_some_and(|digest| *digest != self.digest)
    }

    /// A leader has promised this.
    pub(super) fn note_promised(&self, promised: Promised) {
        let mut seen = self.seen.lock();
        seen.promised = seen.promised.max(promised);
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
        self.note(answer.reads.into_iter().flatten());
        Ok(())
    }

    /// Notes what the entries of all nodes are now.
    fn note(&self, found: impl Iterator<Item = KeyValue>) {
        let mut seen = self.seen.lock();
        let mut before = std::mem::take(&mut seen.entries);
        for KeyValue { key, value, .. } in found {
            let entry = match before.remove(&key) {
                Some(entry) if entry.value == value => entry,
                _ => Entry { said: leader::in_node(&value), value, since: Instant::now() },
            };
            seen.promised = seen.promised.max(entry.said.promised);
            seen.entries.insert(key, entry);
        }
        let others = self.listed(&seen).map(|(key, entry)| self.node(key, &entry.said));
        self.facts.set_others(others.collect());
    }

    /// The entries of the other nodes, without those of nodes that have ended.
    fn listed<'s>(&self, seen: &'s Seen) -> impl Iterator<Item = (&'s Bytes, &'s Entry)> {
        let own = self.keys.node(&self.me.id);
        seen.entries.iter().filter(move |(key, entry)| **key != own && entry.since.elapsed() < LISTED_FOR)
    }

    fn text(&self, beat: u64) -> Bytes {
        let entry = NodeEntry {
            addresses: self.me.addresses.clone(),
            digest: Some(self.digest.clone()),
            report: self.reach.report(),
            rests: self.rests.groups(),
            promised: self.promised(),
        };
        leader::node_text(&entry, beat).into()
    }

    /// What the others tell of the way to the leader.
    pub(super) fn reports(&self) -> Vec<Report> {
        let seen = self.seen.lock();
        self.listed(&seen).map(|(_, entry)| entry.said.report).collect()
    }

    /// The keys of entries that have stayed the same for long. A node that was paused writes its own again.
    fn ended(&self) -> Vec<Bytes> {
        let entries = &self.seen.lock().entries;
        let ended = entries.iter().filter(|(_, entry)| entry.since.elapsed() > KEPT_FOR);
        ended.map(|(key, _)| key.clone()).collect()
    }

    /// Removes the entry of this node.
    pub(super) async fn leave(&self, etcd: &EtcdClient) {
        let then = vec![Operation::Delete { key: self.keys.node(&self.me.id), end: None }];
        // The others notice its end in any case.
        let _ = timeout(LEAVE_MAX, etcd.transaction(&Transaction { then, ..Transaction::default() })).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: i64 = 5;

    fn members() -> Members {
        let me = Member { id: "me".to_owned(), addresses: leader::addresses(Some("a:1"), None) };
        let own = ("mine".to_owned(), Arc::default());
        let members = Members::new(("locks".to_owned(), None), Keys::under("/r/"), me, own);
        members.facts.set_term(EPOCH, 1);
        members
    }

    fn note(members: &Members, beat: u64, entries: &[(&str, &NodeEntry)]) {
        let found = entries.iter().map(|(id, entry)| KeyValue {
            key: members.keys.node(id),
            value: leader::node_text(entry, beat).into(),
            mod_revision: 1,
        });
        members.note(found);
    }

    fn entry(address: &str) -> NodeEntry {
        NodeEntry { addresses: leader::addresses(Some(address), None), ..NodeEntry::default() }
    }

    #[test]
    fn what_the_others_tell_is_shown_and_kept() {
        let members = members();
        let promised = Promised { token: 7, ..Promised::default() };
        let report = Report { unreached: Some(EPOCH), has_clients: true };
        let other = NodeEntry { digest: Some("other".to_owned()), report, promised, ..entry("b:2") };
        note(&members, 1, &[("me", &entry("a:1")), ("other", &other), ("third", &entry("c:3"))]);
        let shown: Vec<_> = members.facts.others().into_iter().map(|node| (node.id, node.differs)).collect();
        assert_eq!(shown, [("other".to_owned(), true), ("third".to_owned(), false)]);
        assert_eq!(members.facts.unreached_by(), 1);
        assert_eq!(members.reports().len(), 2);
        let leader = Member { id: "other".to_owned(), addresses: Vec::new() };
        assert!(!members.differs_from(None) && members.differs_from(Some(&leader)));
        note(&members, 2, &[]);
        assert!(members.differs_from(None), "the last leader counts");
        assert_eq!(members.promised(), promised);
        members.facts.set_term(EPOCH + 1, 1);
        assert_eq!(members.facts.unreached_by(), 0);
    }

    #[test]
    fn a_group_goes_to_nodes_that_agree_and_have_not_given_it_up() {
        let members = members();
        let mine = |address| NodeEntry { digest: Some("mine".to_owned()), ..entry(address) };
        let resting = NodeEntry { rests: vec![3], ..mine("b:2") };
        let other = NodeEntry { digest: Some("other".to_owned()), ..entry("d:4") };
        note(&members, 1, &[("b", &resting), ("c", &mine("c:3")), ("d", &other)]);
        let asked = |group| {
            let (me, mut names) = members.candidates(group, LISTED_FOR);
            names.sort();
            (me, names.join(" "))
        };
        assert_eq!(asked(3), ("a:1".to_owned(), "a:1 c:3".to_owned()));
        assert_eq!(asked(4), ("a:1".to_owned(), "a:1 b:2 c:3".to_owned()));
        members.rests.give_up(4, Duration::ZERO);
        assert_eq!(asked(4).1, "b:2 c:3");
        assert_eq!(members.text(1), leader::node_text(&in_text(&members), 1));
        assert_eq!(in_text(&members).rests, [4], "the others are told");
    }

    fn in_text(members: &Members) -> NodeEntry {
        leader::in_node(&members.text(1))
    }

    #[test]
    fn an_entry_with_an_address_of_this_node_is_a_rival_once_it_changes() {
        let members = members();
        assert!(!members.has_rival());
        let both = [("before", &entry("a:1")), ("other", &entry("b:2"))];
        note(&members, 1, &both);
        assert!(!members.has_rival(), "it may have ended");
        let later = NodeEntry { digest: Some("x".to_owned()), ..entry("a:1") };
        note(&members, 1, &[both[0], both[1], ("later", &later)]);
        note(&members, 1, &[both[0], both[1], ("later", &entry("a:1"))]);
        assert!(!members.has_rival(), "that one has come later");
        note(&members, 2, &both);
        assert!(members.has_rival());
    }
}
