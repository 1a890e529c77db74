//! A standby: who leads, and when another node may take over.
//!
//! Rule    the log stands still for `takeover` on the clock of the standby, counted from the arrival of the answer that
//!         first showed it so. Then its epoch is swapped, if neither epoch nor log has changed since that answer. So every
//!         commit of the deposed leader began more than `takeover` before the swap.
//! Rule    what it remembers is later than what it sees: etcd was restored, and no node leads until that is accepted. See
//!         [`super::restored`].
//! Rule    an epoch is never adopted, not even that of this node: a commit of an earlier term may still be on its way.
//! Time    the node's monotonic clock, as the time since any origin.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::cluster::{Cluster, Member};
use super::etcd::{Answer, Compare, Etcd, EtcdError, KeyValue, Operation, Transaction};
use super::restored::{Memory, Restored, RestoredState};
use super::term::Term;
use crate::journal::recovery::Promised;

/// The part of `takeover` after which a node takes over that is second to another: that one has looked by then.
const SECOND_PART: u32 = 20;

/// A node that does not lead.
#[derive(Debug)]
pub struct Standby {
    cluster: Cluster,
    me: Member,
    seen: Option<Seen>,
    memory: Memory,
    /// Whether another node is to take over before this one.
    gives_way: bool,
    /// Whether another node is to have the lead that is handed over.
    is_second: bool,
}

/// What an answer of etcd has shown first.
#[derive(Debug)]
struct Seen {
    epoch: Option<(i64, Bytes)>,
    head: Option<Bytes>,
    /// The revision of the last change of `restored`, and what it says.
    restored: (i64, Restored),
    /// The id of the etcd that has answered, unless the log says that it is in there.
    new_etcd: Option<u64>,
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
    /// Whether the log is an older state of itself, which nobody has accepted: no node leads.
    pub is_restored: bool,
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

impl Sight {
    /// Whether the lead is there to be taken, as after a hand-over.
    pub fn is_led_by_nobody(&self) -> bool {
        self.leader.is_none() && !self.is_restored
    }
}

impl Standby {
    /// A node of this cluster, which remembers this of its log.
    pub fn new(cluster: Cluster, me: Member, memory: Memory) -> Self {
        Self { cluster, me, seen: None, memory, gives_way: false, is_second: false }
    }

    /// Whether this node gives way to others: it takes over after twice the time only, also from a leader that has handed
    /// over.
    pub fn give_way(&mut self, gives_way: bool) {
        self.gives_way = gives_way;
    }

    /// Whether another node that lives is to lead: this one takes over from a leader that hands over only if nobody else does
    /// so soon.
    pub fn be_second(&mut self, is_second: bool) {
        self.is_second = is_second;
    }

    /// What it remembers of the log.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// A leader has promised this, as this node knows from elsewhere.
    pub fn note_promised(&mut self, promised: Promised) {
        self.memory.promised = self.memory.promised.max(promised);
    }

    /// Asks etcd who leads, and how far the log is. `now` reads the clock when the answer has arrived.
    ///
    /// # Errors
    /// [`SightError`]
    pub fn look(&mut self, etcd: &dyn Etcd, now: impl FnOnce() -> Duration) -> Result<Sight, SightError> {
        let keys = &self.cluster.keys;
        let read = |key| Operation::Read { key, end: None, limit: 1 };
        let then =
            [keys.cluster(), keys.epoch(), keys.head(), keys.restored(), keys.etcd()].map(read).to_vec();
        // Whether the condition holds is a question beside the others.
        let conditions = self.memory.last_entry(keys).into_iter().collect();
        let answer = etcd.transact(&Transaction { conditions, otherwise: then.clone(), then })?;
        let now = now();
        let [cluster, epoch, head, restored, home] = std::array::from_fn(|at| first(&answer, at));
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
        let restored = restored.map_or(Some((0, Restored::default())), |found| {
            Some((found.mod_revision, Restored::parse(&found.value)?))
        });
        let restored = restored.ok_or(SightError::Foreign("restored is no text of this program"))?;
        let seen = Seen {
            epoch: epoch.map(|epoch| (epoch.mod_revision, epoch.value.clone())),
            head: head.map(|head| head.value.clone()),
            restored,
            new_etcd: Some(answer.etcd).filter(|id| *id > 0 && home.is_none()),
            since: now,
        };
        let home = home.map(|home| home.value.clone());
        let is_older = self.is_older(etcd, &answer, (sequence, &restored.1, home))?;
        if is_older || restored.1.state == RestoredState::Waiting {
            self.tell_restored(etcd, &seen, is_older)?;
            let epoch = seen.epoch.map_or(0, |(revision, _)| revision);
            return Ok(Sight { leader: None, epoch, head: sequence, is_due: false, is_restored: true });
        }
        self.remember(answer.etcd, sequence, head.map_or(0, |head| head.mod_revision), restored.1.count);
        Ok(self.sight(seen, leader, sequence))
    }

    /// What this node makes of an answer.
    fn sight(&mut self, seen: Seen, leader: Option<Member>, head: u64) -> Sight {
        let now = seen.since;
        let since = match &self.seen {
            Some(before) if before.epoch == seen.epoch && before.head == seen.head => before.since,
            _ => now,
        };
        let epoch = seen.epoch.as_ref().map_or(0, |(revision, _)| *revision);
        self.seen = Some(Seen { since, ..seen });
        let takeover = Duration::from_millis(self.cluster.agreed.takeover_ms);
        // A node that asks does not lead, whatever the epoch says of it.
        let is_led = leader.as_ref().is_some_and(|leader| leader.id != self.me.id);
        let still = now.saturating_sub(since);
        let rest = match (self.gives_way, is_led, self.is_second) {
            (true, ..) => 2 * takeover,
            (false, true, _) => takeover,
            (false, false, true) => takeover / SECOND_PART,
            (false, false, false) => Duration::ZERO,
        };
        let is_due = still >= rest;
        Sight { leader, epoch, head, is_due, is_restored: false }
    }

    /// Whether the log is an older state of one that was there: of what this node remembers, or of the etcd that the log says
    /// it is in.
    fn is_older(
        &self,
        etcd: &dyn Etcd,
        answer: &Answer,
        (head, restored, home): (u64, &Restored, Option<Bytes>),
    ) -> Result<bool, EtcdError> {
        let memory = &self.memory;
        let is_elsewhere = home.is_some_and(|home| answer.etcd > 0 && home != answer.etcd.to_string());
        if is_elsewhere || memory.restores > restored.count {
            return Ok(true);
        }
        if memory.restores < restored.count {
            return Ok(false);
        }
        // The keys may have been copied to another etcd, which has other revisions.
        if head < memory.head || answer.has_succeeded || memory.etcd != answer.etcd {
            return Ok(head < memory.head);
        }
        // The last entry is another one, or was removed since.
        let Some(last) = memory.head.checked_sub(1) else { return Ok(false) };
        let is_removed = Compare::ModRevision { key: self.cluster.keys.log(last), revision: 0 };
        let conditions = vec![is_removed];
        Ok(!etcd.transact(&Transaction { conditions, ..Transaction::default() })?.has_succeeded)
    }

    /// Tells the other nodes that the log is older than what was there, and what this node remembers. A leader is deposed.
    fn tell_restored(&self, etcd: &dyn Etcd, seen: &Seen, is_older: bool) -> Result<(), EtcdError> {
        let (revision, before) = &seen.restored;
        let told = if is_older { before.with(&self.memory) } else { *before };
        if told == *before {
            return Ok(());
        }
        let keys = &self.cluster.keys;
        let of_epoch = seen.epoch.as_ref().map_or(0, |(revision, _)| *revision);
        let mut then = vec![Operation::Put { key: keys.restored(), value: told.text() }];
        then.extend(
            seen.epoch.iter().map(|_| Operation::Put { key: keys.epoch(), value: Member::epoch_text(None) }),
        );
        let conditions = vec![
            self.cluster.is_unchanged(),
            Compare::ModRevision { key: keys.restored(), revision: *revision },
            Compare::ModRevision { key: keys.epoch(), revision: of_epoch },
        ];
        // If something has changed, the next look tells.
        etcd.transact(&Transaction { conditions, then, otherwise: Vec::new() }).map(drop)
    }

    fn remember(&mut self, etcd: u64, head: u64, revision: i64, restores: u64) {
        let is_same = self.memory.restores == restores;
        let promised = if is_same { self.memory.promised } else { Promised::default() };
        self.memory = Memory { etcd, restores, head, revision, promised };
    }

    /// Takes over, if what was seen last has not changed. `None`: it has.
    ///
    /// # Errors
    /// etcd has not answered, or has refused. The node may have the epoch or not: the next look tells.
    pub fn seize(&self, etcd: Arc<dyn Etcd>) -> Result<Option<Term>, EtcdError> {
        let Some(Seen { epoch, head, restored, new_etcd, .. }) = &self.seen else { return Ok(None) };
        let keys = &self.cluster.keys;
        let mine = Member::epoch_text(Some(&self.me));
        let revision = epoch.as_ref().map_or(0, |(revision, _)| *revision);
        let unchanged = Compare::ModRevision { key: keys.epoch(), revision };
        let put = |key, value| Operation::Put { key, value };
        let name = Bytes::from(format!("{} {}", self.me.id, restored.1.count));
        let mut then = vec![put(keys.epoch(), mine), put(keys.term(), name.clone())];
        let still = match head {
            Some(value) => Compare::Value { key: keys.head(), value: value.clone() },
            None => {
                then.push(put(keys.head(), head_text(0)));
                Compare::ModRevision { key: keys.head(), revision: 0 }
            }
        };
        then.extend(new_etcd.map(|id| put(keys.etcd(), id.to_string().into())));
        let as_seen = Compare::ModRevision { key: keys.restored(), revision: restored.0 };
        let conditions = vec![self.cluster.is_unchanged(), unchanged, still, as_seen];
        let answer = etcd.transact(&Transaction { conditions, then, otherwise: Vec::new() })?;
        let head = head.as_deref().map_or(Some(0), parse_head);
        let term = head.filter(|_| answer.has_succeeded).map(|head| {
            // The put was the last change of the epoch.
            Term::new(etcd, self.cluster.clone(), (answer.revision, name), (head, self.memory), restored.1)
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
