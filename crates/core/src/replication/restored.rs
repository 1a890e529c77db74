//! etcd that was restored from an older state: how nodes notice it, and how the log goes on.
//!
//! Owns    what a node remembers of the log, and the text of `restored`.
//! Rule    the head of a log never falls, and the revision at which an entry was put never changes. A node that finds it
//!         otherwise says so in etcd, and takes the epoch from a node that leads: what was granted since is not in the log.
//!         No node leads until an operator has accepted that.
//! Rule    what nodes remember is a lower bound: a later node may have ended with all that it knew.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::cluster::{Keys, Member};
use super::etcd::{Compare, Etcd, EtcdError, Operation, Transaction};
use super::standby::first;
use crate::journal::item;
use crate::journal::recovery::{Lacks, Promised};

/// What a node remembers of the log of its cluster. Default: nothing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// The etcd that the log was in; 0: unknown.
    pub etcd: u64,
    /// How often the log had been restored.
    pub restores: u64,
    /// The number of the next entry, and the revision at which the one before was put; 0: unknown.
    pub head: u64,
    pub revision: i64,
    pub promised: Promised,
}

impl Memory {
    /// The text that keeps it in a file, for the cluster of this id.
    pub fn text(&self, cluster: &[u8; 20]) -> String {
        let Self { etcd, restores, head, revision, promised } = self;
        let id = item::id_text(cluster);
        let text = format!(
            "{MEMORY}\ncluster {id}\netcd {etcd}\nrestores {restores}\nhead {head}\nrevision {revision}\n"
        );
        text + &promised_lines(promised)
    }

    /// Reads such a text. `None`: it is another one, or that of another cluster.
    pub fn parse(text: &str, cluster: &[u8; 20]) -> Option<Self> {
        let rest = text.strip_prefix(MEMORY)?;
        let values = Values::read(rest);
        values.text("cluster").filter(|id| *id == item::id_text(cluster))?;
        Some(Self {
            etcd: values.number("etcd")?,
            restores: values.number("restores")?,
            head: values.number("head")?,
            revision: values.number("revision")?,
            promised: values.promised(),
        })
    }

    /// The condition that the last entry of the log is still the one that was there.
    pub(super) fn last_entry(&self, keys: &Keys) -> Option<Compare> {
        let at = self.head.checked_sub(1).filter(|_| self.revision > 0)?;
        Some(Compare::ModRevision { key: keys.log(at), revision: self.revision })
    }
}

/// The first line of the file of a node.
const MEMORY: &str = "redlatch remembers";

/// What `restored` says: an older state of the log was found.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Restored {
    /// How often the log was restored, as far as that was accepted.
    pub count: u64,
    pub state: RestoredState,
    /// What the nodes remember.
    pub promised: Promised,
    /// How long nothing is granted, in milliseconds, if the operator who has accepted it has said so.
    pub quarantine_ms: Option<u64>,
}

/// How far a restored log is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RestoredState {
    /// No node leads.
    Waiting,
    /// The next leader begins with a quarantine.
    Accepted,
    /// That leader has begun.
    #[default]
    Done,
}

impl Restored {
    /// Its text in etcd.
    pub(super) fn text(&self) -> Bytes {
        let state = match self.state {
            RestoredState::Waiting => "waiting",
            RestoredState::Accepted => "accepted",
            RestoredState::Done => "done",
        };
        let mut text = format!("state {state}\ncount {}\n{}", self.count, promised_lines(&self.promised));
        if let Some(millis) = self.quarantine_ms {
            // Writing to a string does not fail.
            let _ = writeln!(text, "quarantine {millis}");
        }
        text.into()
    }

    /// Reads its text. `None`: it is another one.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let values = Values::read(std::str::from_utf8(text).ok()?);
        let state = match values.text("state")? {
            "waiting" => RestoredState::Waiting,
            "accepted" => RestoredState::Accepted,
            "done" => RestoredState::Done,
            _ => return None,
        };
        let (promised, quarantine_ms) = (values.promised(), values.number("quarantine"));
        Some(Self { count: values.number("count")?, state, promised, quarantine_ms })
    }

    /// What the next leader has to make up for, if it was accepted.
    pub(super) fn lacks(&self) -> Option<Lacks> {
        let Self { count: restores, state, promised, quarantine_ms } = *self;
        (state == RestoredState::Accepted).then_some(Lacks { restores, promised, quarantine_ms })
    }

    /// With what a node remembers of a later log.
    pub(super) fn with(self, memory: &Memory) -> Self {
        let count = self.count.max(memory.restores);
        Self { count, state: RestoredState::Waiting, promised: self.promised.max(memory.promised), ..self }
    }
}

/// Accepts that the log is an older state of itself: the next leader begins with a quarantine. If a node leads, it is
/// deposed. Returns what the nodes remember, if one of them has found that the log is older.
///
/// # Errors
/// A sentence about what is in etcd; or etcd has not answered, or has refused.
pub fn accept(
    etcd: &dyn Etcd,
    keys: &Keys,
    quarantine_ms: Option<u64>,
) -> Result<Option<Promised>, AcceptError> {
    let read = |key| Operation::Read { key, end: None, limit: 1 };
    let then = [keys.cluster(), keys.epoch(), keys.restored()].map(read).to_vec();
    for _ in 0..TRIES {
        let answer = etcd.transact(&Transaction { then: then.clone(), ..Transaction::default() })?;
        let cluster = first(&answer, 0).ok_or(AcceptError::NoCluster)?;
        let (epoch, found) = (first(&answer, 1), first(&answer, 2));
        let restored = found.map_or(Some(Restored::default()), |found| Restored::parse(&found.value));
        let restored = restored.ok_or(AcceptError::Foreign)?;
        let is_found = restored.state == RestoredState::Waiting;
        let accepted =
            Restored { count: restored.count + 1, state: RestoredState::Accepted, quarantine_ms, ..restored };
        let unchanged = |key, revision| Compare::ModRevision { key, revision };
        let mut change = vec![
            Operation::Put { key: keys.restored(), value: accepted.text() },
            // The next leader notes where the log is now.
            Operation::Delete { key: keys.etcd(), end: None },
        ];
        change.extend(epoch.map(|_| Operation::Put { key: keys.epoch(), value: Member::epoch_text(None) }));
        let answer = etcd.transact(&Transaction {
            conditions: vec![
                Compare::Value { key: keys.cluster(), value: cluster.value.clone() },
                unchanged(keys.restored(), found.map_or(0, |found| found.mod_revision)),
                unchanged(keys.epoch(), epoch.map_or(0, |epoch| epoch.mod_revision)),
            ],
            then: change,
            otherwise: Vec::new(),
        })?;
        if answer.has_succeeded {
            return Ok(is_found.then_some(restored.promised));
        }
    }
    Err(AcceptError::Busy)
}

/// How often [`accept`] tries again because something has changed.
const TRIES: usize = 10;

/// Why a restored log is not accepted.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AcceptError {
    #[error("there is no cluster under this prefix")]
    NoCluster,
    #[error("the prefix is used for something else")]
    Foreign,
    #[error("the keys of the cluster change again and again")]
    Busy,
    /// etcd has not answered, or has refused.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
}

fn promised_lines(promised: &Promised) -> String {
    let Promised { now, until, token } = promised;
    format!("now {}\nuntil {}\ntoken {token}\n", now.as_millis(), until.as_millis())
}

/// Lines of a name and a value.
pub struct Values<'t>(BTreeMap<&'t str, &'t str>);

impl<'t> Values<'t> {
    /// Reads the lines of a text.
    pub fn read(text: &'t str) -> Self {
        Self(text.lines().filter_map(|line| line.split_once(' ')).collect())
    }

    fn text(&self, name: &str) -> Option<&'t str> {
        self.0.get(name).copied()
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.text(name)?.parse().ok()
    }

    /// What a node has promised, as [`Values::of_promised`] has written it; nothing where that is missing.
    pub fn promised(&self) -> Promised {
        let time = |name| LockTime::from_millis(self.number(name).unwrap_or(0));
        Promised { now: time("now"), until: time("until"), token: self.number("token").unwrap_or(0) }
    }

    /// The lines of what a node has promised.
    pub fn of_promised(promised: &Promised) -> String {
        promised_lines(promised)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_read_as_it_was_written() {
        let at = LockTime::from_millis;
        let promised = Promised { now: at(5), until: at(70), token: 9 };
        let memory = Memory { etcd: u64::MAX, restores: 1, head: 30, revision: 8, promised };
        let text = memory.text(&[7; 20]);
        assert_eq!(Memory::parse(&text, &[7; 20]), Some(memory));
        assert_eq!(Memory::parse(&text, &[8; 20]), None, "another cluster");
        assert_eq!(Memory::parse("", &[7; 20]), None);
        for state in [RestoredState::Waiting, RestoredState::Accepted, RestoredState::Done] {
            for quarantine_ms in [None, Some(5)] {
                let restored = Restored { count: 3, state, promised, quarantine_ms };
                assert_eq!(Restored::parse(&restored.text()), Some(restored));
            }
        }
        assert_eq!(Restored::parse(b"{}"), None);
        assert_eq!(Values::read(&Values::of_promised(&promised)).promised(), promised);
    }

    #[test]
    fn the_last_entry_is_a_condition_where_its_revision_is_known() {
        let (keys, memory) = (Keys::under("a/"), Memory { head: 30, revision: 8, ..Memory::default() });
        let last = Compare::ModRevision { key: keys.log(29), revision: 8 };
        assert_eq!(memory.last_entry(&keys), Some(last));
        assert_eq!(Memory { revision: 0, ..memory }.last_entry(&keys), None);
        assert_eq!(Memory { head: 0, ..memory }.last_entry(&keys), None, "there is no entry");
    }
}
