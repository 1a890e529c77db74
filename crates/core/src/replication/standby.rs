//! A standby: who leads, and when another node may take over.
//!
//! Rule    the log stands still for `takeover` on the clock of the standby, counted from the arrival of the answer that
//!         first showed it so. Then its epoch is swapped, if neither epoch nor log has changed since that answer. So every
//!         commit of the deposed leader began more than `takeover` before the swap.
//! Rule    an epoch is never adopted, not even that of this node: a commit of an earlier term may still be on its way.
//! Time    the node's monotonic clock, as the time since any origin.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::cluster::{Cluster, Member};
use super::etcd::{Answer, Compare, Etcd, EtcdError, KeyValue, Operation, Transaction};
use super::term::Term;

/// A node that does not lead.
#[derive(Debug)]
pub struct Standby {
    cluster: Cluster,
    me: Member,
    seen: Option<Seen>,
}

/// What an answer of etcd has shown first.
#[derive(Debug)]
struct Seen {
    epoch: Option<(i64, Bytes)>,
    head: Option<Bytes>,
    /// When that answer had arrived.
    since: Duration,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sight {
    /// Who leads, or has led until now.
    pub leader: Option<Member>,
    /// The epoch; 0: nobody has ever led.
    pub epoch: i64,
    /// The sequence number of the next entry of the log.
    pub head: u64,
    /// Whether this node may take over: [`Standby::seize`].
    pub is_due: bool,
}

/// Why a standby does not know who leads.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SightError {
    /// etcd has not answered, or has refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another program, or a person, has changed the keys: the node must join again.
    #[error("the keys of the cluster were changed: {0}")]
    Foreign(&'static str),
}

impl Standby {
    /// A node of this cluster that has seen nothing yet.
    pub fn new(cluster: Cluster, me: Member) -> Self {
        Self { cluster, me, seen: None }
    }

    /// Asks etcd who leads, and how far the log is. `now` reads the clock when the answer has arrived.
    ///
    /// # Errors
    /// [`SightError`]
    pub fn look(&mut self, etcd: &dyn Etcd, now: impl FnOnce() -> Duration) -> Result<Sight, SightError> {
        let keys = &self.cluster.keys;
        let read = |key| Operation::Read { key, end: None, limit: 1 };
        let then = [keys.cluster(), keys.epoch(), keys.head()].map(read).to_vec();
        let answer = etcd.transact(&Transaction { then, ..Transaction::default() })?;
        let now = now();
        let [cluster, epoch, head] = std::array::from_fn(|at| first(&answer, at));
        if !self.cluster.is(cluster) {
            return Err(SightError::Foreign("cluster is another"));
        }
        let sequence = match (epoch, head) {
            (None, None) => 0,
            (Some(_), Some(head)) => sequence(head).ok_or(SightError::Foreign("head is no number"))?,
            _ => return Err(SightError::Foreign("there is an epoch or a head, and not the other")),
        };
        let leader = epoch.map_or(Ok(None), |epoch| Member::in_epoch(&epoch.value));
        let leader = leader.map_err(|_| SightError::Foreign("epoch is none"))?;
        let seen = Seen {
            epoch: epoch.map(|epoch| (epoch.mod_revision, epoch.value.clone())),
            head: head.map(|head| head.value.clone()),
            since: now,
        };
        let since = match &self.seen {
            Some(before) if before.epoch == seen.epoch && before.head == seen.head => before.since,
            _ => now,
        };
        let epoch = seen.epoch.as_ref().map_or(0, |(revision, _)| *revision);
        self.seen = Some(Seen { since, ..seen });
        let takeover = Duration::from_millis(self.cluster.agreed.takeover_ms);
        // A node that asks does not lead, whatever the epoch says of it.
        let is_led = leader.as_ref().is_some_and(|leader| leader.id != self.me.id);
        let is_due = !is_led || now.saturating_sub(since) >= takeover;
        Ok(Sight { leader, epoch, head: sequence, is_due })
    }

    /// Takes over, if what was seen last has not changed. `None`: it has.
    ///
    /// # Errors
    /// etcd has not answered, or has refused. The node may have the epoch or not: the next look tells.
    pub fn seize(&self, etcd: Arc<dyn Etcd>) -> Result<Option<Term>, EtcdError> {
        let Some(Seen { epoch, head, .. }) = &self.seen else { return Ok(None) };
        let keys = &self.cluster.keys;
        let mine = Member::epoch_text(Some(&self.me));
        let revision = epoch.as_ref().map_or(0, |(revision, _)| *revision);
        let unchanged = Compare::ModRevision { key: keys.epoch(), revision };
        let put = |key, value| Operation::Put { key, value };
        let mut then = vec![put(keys.epoch(), mine)];
        let still = match head {
            Some(value) => Compare::Value { key: keys.head(), value: value.clone() },
            None => {
                then.push(put(keys.head(), head_text(0)));
                Compare::ModRevision { key: keys.head(), revision: 0 }
            }
        };
        let conditions = vec![self.cluster.is_unchanged(), unchanged, still];
        let answer = etcd.transact(&Transaction { conditions, then, otherwise: Vec::new() })?;
        let head = head.as_deref().map_or(Some(0), parse_head);
        let term = head.filter(|_| answer.has_succeeded).map(|head| {
            // The put was the last change of the epoch.
            Term::new(etcd, self.cluster.clone(), answer.revision, head)
        });
        Ok(term)
    }
}

/// The first key that the read of that number has found.
pub(super) fn first(answer: &Answer, read: usize) -> Option<&KeyValue> {
    answer.reads.get(read)?.first()
}

/// The text of `head`.
pub(super) fn head_text(sequence: u64) -> Bytes {
    sequence.to_string().into()
}

/// The number in `head`.
pub(super) fn sequence(head: &KeyValue) -> Option<u64> {
    parse_head(&head.value)
}

fn parse_head(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
