//! Until when the keys that a call changes last: what a record tells the journal.
//!
//! Owns    both ends of a [`Record`](crate::journal::Record): the latest end of a changed key, by its state before the call
//!         or after it, and by that after it alone. States in between do not count: a script may set a lock, and then its
//!         lease.
//! Rule    too late an end is safe and costs a wait for the disk. A key that does not exist has ended at the beginning
//!         of time, and a key without a deadline never ends.

use redlatch_proto::clock::{Deadline, LockTime};
use smallvec::SmallVec;

use super::arena::NO_DEADLINE;
use super::shard::{EntryId, Shard};
use crate::types::{Object, Shape};

/// The ends of the keys that a call has changed so far.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The latest end before the call.
    before_ms: u64,
    /// The latest present end, without recent keys.
    after_ms: u64,
    /// The keys that were changed last, each with its present end.
    recent: SmallVec<[Recent; RECENT_KEYS]>,
}

/// A changed key. Its hash stands for it: two keys of a call have one hash with a probability of 2^-64.
#[derive(Clone, Copy, Debug)]
struct Recent {
    hash: u64,
    database: u16,
    end_ms: u64,
}

impl Ends {
    /// A key has changed. `before_ms` counts only if it is the first change of the key in this call.
    #[inline]
    pub(super) fn note(&mut self, database: u16, hash: u64, before_ms: u64, after_ms: u64) {
        let is_it = |recent: &&mut Recent| recent.hash == hash && recent.database == database;
        if let Some(recent) = self.recent.iter_mut().rev().find(is_it) {
            recent.end_ms = after_ms;
            return;
        }
        self.before_ms = self.before_ms.max(before_ms);
        if self.recent.len() == RECENT_KEYS {
            let oldest = self.recent.remove(0);
            self.after_ms = self.after_ms.max(oldest.end_ms);
        }
        self.recent.push(Recent { hash, database, end_ms: after_ms });
    }

    /// Something has changed that never ends.
    pub(super) fn note_endless(&mut self) {
        self.after_ms = u64::MAX;
    }

    /// The latest end of all changed keys, before the call or after it, and after it alone.
    pub(super) fn latest(&self) -> (LockTime, LockTime) {
        let after_ms = self.recent.iter().fold(self.after_ms, |latest, key| latest.max(key.end_ms));
        (LockTime::from_millis(after_ms.max(self.before_ms)), LockTime::from_millis(after_ms))
    }
}

impl Shard {
    /// The millisecond at which an entry ends, or [`NO_DEADLINE`]. A value of the type lock ends with its last holder.
    #[inline]
    pub(super) fn end_ms(&self, id: EntryId) -> u64 {
        let deadline = match self.object(id) {
            Some(Object::Lock(lock)) if lock.is_empty() => return 0,
            Some(Object::Lock(lock)) => lock.latest_deadline(),
            _ => self.deadline(id),
        };
        deadline.map_or(NO_DEADLINE, Deadline::as_millis)
    }
}

/// How many changed keys are remembered. The scripts of lock clients use fewer. A key that is changed again after as many
/// others counts with the state between the two changes, too.
const RECENT_KEYS: usize = 8;

const _: () = assert!(NO_DEADLINE == u64::MAX, "a key without a deadline ends at the end of time");

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use crate::journal::{Journal, Record};
    use crate::keyspace::{Keyspace, Layout, Lease, ShardSet, View};
    use crate::locks::EndReason;
    use crate::locks::GrantDetails;
    use crate::state::registries::Registries;
    use crate::state::settings::Events;
    use crate::sync::Mutex;
    use crate::types::lock::{Holder, LockKind};
    use crate::types::{Hash, Lock, Set};
    use redlatch_proto::clock::{LockTime, Now};

    /// Both ends of all records, in milliseconds.
    #[derive(Debug, Default)]
    struct Log(Mutex<Vec<(u64, u64)>>);

    impl Journal for Log {
        fn append(&self, record: &Record<'_>) {
            self.0.lock().push((record.lasts_until.as_millis(), record.ends_at.as_millis()));
        }
    }

    fn now(millis: u64) -> Now {
        Now { lock: LockTime::from_millis(millis), wall_offset_ms: 0 }
    }

    fn until(millis: i64) -> Lease {
        Lease::Until(now(0).deadline_in(millis))
    }

    fn holder(token: u64, deadline_ms: Option<i64>) -> Holder {
        Holder {
            token,
            client: 1,
            permits: 1,
            since: LockTime::from_millis(0),
            deadline: deadline_ms.map(|millis| now(0).deadline_in(millis)),
            lease_ms: None,
            renewals: 0,
            session: None,
            meta: Box::default(),
        }
    }

    type Act = fn(&mut View<'_>);

    /// The end that the record of `act` has at this moment, after a record of `before`.
    fn end_of(before: Act, act: Act, at_ms: u64) -> u64 {
        ends_of(before, act, at_ms).0
    }

    /// Both ends of that record.
    fn ends_of(before: Act, act: Act, at_ms: u64) -> (u64, u64) {
        let log = Arc::new(Log::default());
        let journal: Arc<dyn Journal> = log.clone();
        let layout = Layout { shards: 4, databases: 2, seed: 7, journal: Some(journal) };
        let keyspace = Keyspace::new(layout, || {});
        for (act, at_ms) in [(before, 0), (act, at_ms)] {
            let mut view = View::lock(&keyspace, ShardSet::All, 0, now(at_ms), Events::default());
            act(&mut view);
            view.finish(&Registries::default());
        }
        let ends = log.0.lock();
        *ends.last().expect("a record")
    }

    fn leased(view: &mut View<'_>) {
        view.entry(b"k").put(b"v", until(300));
    }

    fn endless(view: &mut View<'_>) {
        view.entry(b"k").put(b"v", Lease::Never);
    }

    fn semaphore(view: &mut View<'_>) {
        let kind = LockKind::Permits(3);
        view.locks().put_holder(b"k", kind, &Bytes::from_static(b"a"), holder(1, Some(300)));
        view.locks().put_holder(b"k", kind, &Bytes::from_static(b"b"), holder(2, Some(500)));
    }

    fn hash(view: &mut View<'_>) {
        view.open::<Hash>(b"k").unwrap().set(b"owner", b"1");
        view.entry(b"k").occupied().unwrap().set_deadline(Some(now(0).deadline_in(300)));
    }

    fn nothing(_: &mut View<'_>) {}

    #[test]
    fn a_record_ends_with_the_latest_end_of_a_key_before_or_after_it() {
        const MAX: u64 = u64::MAX;
        let table: &[(&str, Act, Act, u64)] = &[
            ("SET PX", nothing, leased, 300),
            ("SET", nothing, endless, MAX),
            (
                "SET PX shorter",
                leased,
                |view| {
                    view.entry(b"k").put(b"v", until(100));
                },
                300,
            ),
            ("SET PX of a key without a lease", endless, leased, MAX),
            (
                "SET KEEPTTL",
                leased,
                |view| {
                    view.entry(b"k").put(b"w", Lease::Keep);
                },
                300,
            ),
            (
                "APPEND",
                leased,
                |view| {
                    view.entry(b"k").occupied().unwrap().append(b"w");
                },
                300,
            ),
            (
                "DEL",
                leased,
                |view| {
                    view.remove(b"k");
                },
                300,
            ),
            (
                "DEL of a key without a lease",
                endless,
                |view| {
                    view.remove(b"k");
                },
                MAX,
            ),
            (
                "PEXPIRE",
                leased,
                |view| view.locks().renew(b"k", &Bytes::new(), (Some(now(0).deadline_in(700)), None), None),
                700,
            ),
            ("PERSIST", leased, |view| view.locks().renew(b"k", &Bytes::new(), (None, None), None), MAX),
            (
                "SET, then PEXPIRE",
                nothing,
                |view| {
                    endless(view);
                    view.entry(b"k").occupied().unwrap().set_deadline(Some(now(0).deadline_in(200)));
                },
                200,
            ),
            (
                "SET PX, then DEL",
                nothing,
                |view| {
                    leased(view);
                    view.remove(b"k");
                },
                0,
            ),
            (
                "two keys, then their leases",
                nothing,
                |view| {
                    for key in [b"a", b"b"] {
                        view.open::<Hash>(key).unwrap().set(b"f", b"1");
                    }
                    for key in [b"a", b"b"] {
                        view.entry(key).occupied().unwrap().set_deadline(Some(now(0).deadline_in(250)));
                    }
                },
                250,
            ),
            (
                "many keys, one without a lease",
                nothing,
                |view| {
                    view.entry(b"first").put(b"v", Lease::Never);
                    for key in 0..40_u8 {
                        view.entry(&[key]).put(b"v", until(100));
                    }
                },
                MAX,
            ),
            ("INCR with a lease", leased, |view| view.entry(b"k").put(b"2", Lease::Keep).mark_counter(), MAX),
            (
                "HINCRBY with a lease",
                hash,
                |view| {
                    view.open::<Hash>(b"k").unwrap().set(b"owner", b"2");
                },
                300,
            ),
            (
                "HDEL of the last field",
                hash,
                |view| {
                    view.open::<Hash>(b"k").unwrap().remove(b"owner");
                },
                300,
            ),
            (
                "SADD",
                nothing,
                |view| {
                    view.open::<Set>(b"k").unwrap().insert(b"m");
                },
                MAX,
            ),
            ("a new holder with a lease", nothing, semaphore, 500),
            (
                "a holder without a lease",
                semaphore,
                |view| {
                    let owner = Bytes::from_static(b"c");
                    view.locks().put_holder(b"k", LockKind::Permits(3), &owner, holder(3, None));
                },
                MAX,
            ),
            (
                "a holder leaves",
                semaphore,
                |view| {
                    view.open::<Lock>(b"k").unwrap().remove(b"b", EndReason::Released);
                },
                500,
            ),
            (
                "LOCK.ACQUIRE",
                nothing,
                |view| {
                    view.locks().hold_exclusive(b"k", b"o", until(400), (1, 2), GrantDetails::default());
                },
                400,
            ),
            (
                "LOCK.ACQUIRE of a session",
                nothing,
                |view| {
                    view.locks().hold_exclusive(b"k", b"o", Lease::Never, (1, 2), GrantDetails::default());
                },
                MAX,
            ),
            ("FLUSHDB", leased, |view| view.whole().clear(0), MAX),
            ("SWAPDB", leased, |view| view.whole().swap(0, 1), MAX),
        ];
        for (name, before, act, end_ms) in table {
            assert_eq!(end_of(*before, *act, 50), *end_ms, "{name}");
        }
    }

    #[test]
    fn a_record_says_when_its_keys_end_after_it() {
        let shorten: Act = |view| {
            view.entry(b"k").put(b"v", until(100));
        };
        let remove: Act = |view| {
            view.remove(b"k");
        };
        for (act, ends_ms) in [(shorten, (300, 100)), (remove, (300, 0)), (endless, (u64::MAX, u64::MAX))] {
            assert_eq!(ends_of(leased, act, 50), ends_ms);
        }
    }

    #[test]
    fn the_end_of_a_lease_waits_for_nothing() {
        assert_eq!(
            end_of(
                leased,
                |view| {
                    view.entry(b"k");
                },
                301
            ),
            0,
            "a key has expired"
        );
        assert_eq!(
            end_of(
                semaphore,
                |view| {
                    view.entry(b"k");
                },
                301
            ),
            0,
            "a holder has expired"
        );
        assert_eq!(
            end_of(
                leased,
                |view| {
                    view.entry(b"k").put(b"w", until(900));
                },
                301
            ),
            900
        );
    }
}
