//! The balance of locks: whatever was granted is held, or has ended once.
//!
//! Laws     for each kind, the counter of grants is the number of grants in the journal, and the counter of keys that are
//!          held is the number of these keys; grants less ends are holders; each token is held or is in the history, once.
//! Sources  grants are read from the journal, holders from the keyspace, ends from the counters and LOCK.HISTORY.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_core::journal::{Edit, LockEdit, Mutation};
use redlatch_core::keyspace::{Keyspace, ShardSet, View};
use redlatch_core::state::settings::Events;
use redlatch_core::types::Object;
use redlatch_core::types::lock::LockKind;
use redlatch_proto::clock::Now;

use super::parts::DATABASES;

const KINDS: usize = LockKind::NAMES.len();

/// A grant: key, token, and the owner if the value of the key is not its name.
type Id = (Vec<u8>, u64, Vec<u8>);

/// The counters of a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counted {
    pub(crate) granted: [u64; KINDS],
    pub(crate) held: [usize; KINDS],
    pub(crate) ended: u64,
}

impl Counted {
    pub(crate) fn of(keyspace: &Keyspace) -> Self {
        let locks = keyspace.counts().locks;
        Self { granted: locks.acquired, held: locks.held, ended: locks.hold.count() }
    }
}

/// The holders that are there, expired or not.
#[derive(Debug, Default)]
struct Held {
    holders: BTreeSet<Id>,
    keys: [usize; KINDS],
}

impl Held {
    fn of(keyspace: &Keyspace, now: Now) -> Self {
        let mut held = Self::default();
        for database in 0..DATABASES {
            let mut view = View::lock(keyspace, ShardSet::All, database, now, Events::default());
            view.whole().survey(|entry| match (entry.object, entry.grant) {
                (Some(Object::Lock(lock)), _) => {
                    held.keys[lock.kind().index()] += 1;
                    let holders = lock.holders();
                    held.holders.extend(
                        holders.map(|(owner, holder)| (entry.key.to_vec(), holder.token, owner.to_vec())),
                    );
                }
                (None, Some(grant)) => {
                    held.keys[LockKind::Exclusive.index()] += 1;
                    held.holders.insert((entry.key.to_vec(), grant.token, Vec::new()));
                }
                (Some(_), Some(grant)) => panic!("a lock of another client here: {grant:?}"),
                (_, None) => {}
            });
        }
        held
    }
}

/// All grants of a run.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    granted: [u64; KINDS],
    ids: BTreeSet<Id>,
}

impl Balance {
    /// Notes the grants in these records, and compares them with the counters.
    pub(crate) fn check(
        &mut self,
        records: &[Vec<Mutation>],
        (keyspace, now): (&Keyspace, Now),
        counted: Counted,
    ) -> Result<(), String> {
        for record in records {
            record.iter().for_each(|mutation| self.note(mutation));
        }
        let held = Held::of(keyspace, now);
        if counted.granted != self.granted {
            return Err(format!("granted {:?}, counted {:?}", self.granted, counted.granted));
        }
        if counted.held != held.keys {
            return Err(format!("{:?} keys are held, counted {:?}", held.keys, counted.held));
        }
        let (granted, holders) = (self.granted.iter().sum::<u64>(), held.holders.len() as u64);
        if granted - holders != counted.ended {
            let ended = counted.ended;
            return Err(format!("{granted} grants, {holders} holders, but {ended} ends are counted"));
        }
        Ok(())
    }

    /// Each grant is held, or one of the `ends`: tokens by key, of a history that has forgotten nothing.
    pub(crate) fn check_tokens(
        &self,
        (keyspace, now): (&Keyspace, Now),
        ends: &[(Vec<u8>, u64)],
    ) -> Result<(), String> {
        let mut left: BTreeMap<(&[u8], u64), i64> = BTreeMap::new();
        for (key, token, _) in &self.ids {
            *left.entry((key, *token)).or_default() += 1;
        }
        let held = Held::of(keyspace, now);
        let holders = held.holders.iter().map(|(key, token, _)| (key, *token));
        for (key, token) in holders.chain(ends.iter().map(|(key, token)| (key, *token))) {
            *left.entry((key, token)).or_default() -= 1;
        }
        match left.into_iter().find(|(_, left)| *left != 0) {
            None => Ok(()),
            Some(((key, token), left)) => {
                let key = key.escape_ascii();
                Err(format!(
                    "token {token} of {key} was granted {left} times more than it is held or has ended"
                ))
            }
        }
    }

    fn note(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Grant { key, grant, .. } => {
                self.granted(LockKind::Exclusive, (key.to_vec(), grant.token, Vec::new()));
            }
            Mutation::Edit { key, edit: Edit::Lock(LockEdit::Put(kind, owner, holder)), .. } => {
                self.granted(*kind, (key.to_vec(), holder.token, owner.to_vec()));
            }
            Mutation::PutObject { key, object: Object::Lock(lock), .. } => {
                for (owner, holder) in lock.holders() {
                    self.granted(lock.kind(), (key.to_vec(), holder.token, owner.to_vec()));
                }
            }
            _ => {}
        }
    }

    /// A grant is new if its token is: a renewal is recorded with the same one.
    fn granted(&mut self, kind: LockKind, id: Id) {
        if self.ids.insert(id) {
            self.granted[kind.index()] += 1;
        }
    }
}
