//! Terms, standbys and clusters one step at a time, on the model of etcd without a network.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use redlatch_core::journal::item::Horizon;
use redlatch_core::journal::log::{Log, Start, Storage, SyncError};
use redlatch_core::journal::recovery::Promised;
use redlatch_core::journal::{Journal, Mode, Mutation, Record};
use redlatch_core::replication::cluster::{self, Agreed, Cluster, JoinError, Keys, Member, Part};
use redlatch_core::replication::etcd::{Operation, Transaction};
use redlatch_core::replication::restored::{self, Memory};
use redlatch_core::replication::standby::{Sight, SightError, Standby};
use redlatch_core::replication::term::{BUFFERED_BYTES_MAX, ENTRY_BYTES_MAX, Term, TermError};
use redlatch_proto::clock::LockTime;

use super::replicated_etcd::{Near, Next, Store};

const AGREED: Agreed = Agreed { takeover_ms: 1_000, databases: 16, part: Part { group: 0, groups: 1 } };

fn join(etcd: &Near) -> Result<Cluster, JoinError> {
    Cluster::join(etcd, Keys::under("a/"), AGREED, [0xab; 20])
}

fn standby(etcd: &Near, id: &str) -> Standby {
    let member = Member { id: id.to_owned(), addresses: vec![format!("{id}:6379")] };
    Standby::new(join(etcd).expect("it is the cluster of the test"), member, Memory::default())
}

fn look(standby: &mut Standby, etcd: &Near, at_ms: u64) -> Sight {
    standby.look(etcd, || Duration::from_millis(at_ms)).expect("etcd answers")
}

/// The first term on this etcd.
fn term(etcd: &Arc<Near>) -> Term {
    term_of(etcd, standby(etcd, "first"))
}

fn term_of(etcd: &Arc<Near>, mut standby: Standby) -> Term {
    assert!(look(&mut standby, etcd, 0).is_due);
    standby.seize(Arc::clone(etcd) as _).expect("etcd answers").expect("nobody else is there")
}

/// The bytes of the only file.
fn bytes(term: &Term) -> Vec<u8> {
    let mut files = term.load().expect("etcd answers");
    assert_eq!(files.len(), 1);
    files.remove(0).1.into_inner()
}

#[test]
fn a_node_joins_a_cluster_of_its_kind_only() {
    let etcd = Near::default();
    let founded = join(&etcd).unwrap();
    let again = Cluster::join(&etcd, Keys::under("a/"), AGREED, [1; 20]).unwrap();
    assert_eq!(founded, again, "the first node has chosen the id");
    assert_ne!(Cluster::join(&etcd, Keys::under("b/"), AGREED, [1; 20]).unwrap().id, founded.id);
    let refused = |agreed| Cluster::join(&etcd, Keys::under("a/"), agreed, [1; 20]).unwrap_err().to_string();
    assert_eq!(
        refused(Agreed { takeover_ms: 500, ..AGREED }),
        "the cluster has cluster-takeover 1000, and this node 500"
    );
    assert_eq!(refused(Agreed { databases: 1, ..AGREED }), "the cluster has databases 16, and this node 1");
    for (text, expected) in [
        (
            "redlatch cluster 2\nwhatever",
            "the cluster is of version 2, and this program reads versions up to 1",
        ),
        ("redlatch cluster 0", "the prefix is used for something else: cluster is \"redlatch cluster 0\""),
        ("{}", "the prefix is used for something else: cluster is \"{}\""),
    ] {
        etcd.put(b"a/cluster", text);
        assert_eq!(refused(AGREED), expected);
    }
    etcd.put(b"c/head", "7");
    let orphaned = Cluster::join(&etcd, Keys::under("c/"), AGREED, [1; 20]).unwrap_err();
    assert!(matches!(orphaned, JoinError::Foreign(_)), "{orphaned}");
    *etcd.next.lock() = Next::Unanswered;
    assert!(matches!(Cluster::join(&etcd, Keys::under("d/"), AGREED, [2; 20]), Err(JoinError::Etcd(_))));
    assert_eq!(Cluster::join(&etcd, Keys::under("d/"), AGREED, [3; 20]).unwrap().id, [2; 20]);
}

#[test]
fn a_node_joins_a_cluster_of_as_many_groups_only() {
    let part = |group, groups| Part { group, groups };
    let etcd = Near::default();
    let join = |prefix, part| {
        Cluster::join(&etcd, Keys::of(prefix, part), Agreed { part, ..AGREED }, [1; 20])
            .map_err(|error| error.to_string())
    };
    let refused =
        |theirs, ours| Err(format!("the cluster has cluster-groups {theirs}, and this node {ours}"));
    for group in 0..8 {
        join("a/", part(group, 8)).unwrap();
    }
    join("b/", part(0, 1)).unwrap();
    assert_eq!(join("a/", part(0, 1)), refused(8, 1));
    assert_eq!(join("a/", part(0, 4)), refused(8, 4));
    assert_eq!(join("b/", part(0, 8)), refused(1, 8));
    for prefix in ["a/0/1/", "b/0/"] {
        let said = join(prefix, part(0, 1)).unwrap_err();
        assert!(said.contains("none may be the beginning of another"), "{said}");
    }
    let groups = |prefix| cluster::groups_under(&etcd, prefix).unwrap();
    assert_eq!((groups("a/"), groups("b/"), groups("c/")), (8, 1, 1));
}

#[test]
fn a_standby_waits_for_a_log_that_stands_still_from_the_answer_that_shows_it() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    let mut standby = standby(&etcd, "second");
    let seen = look(&mut standby, &etcd, 5_000);
    assert_eq!(seen.leader.unwrap().addresses, ["first:6379"]);
    assert_eq!((seen.epoch, seen.head, seen.is_due), (term.epoch(), 0, false));
    assert!(!look(&mut standby, &etcd, 5_999).is_due);
    term.begin(1).unwrap();
    term.sync().unwrap();
    assert!(!look(&mut standby, &etcd, 6_000).is_due, "the head has moved");
    assert!(!look(&mut standby, &etcd, 6_999).is_due);
    assert!(look(&mut standby, &etcd, 7_000).is_due);
    term.write(b"more").unwrap();
    term.sync().unwrap();
    assert!(standby.seize(Arc::clone(&etcd) as _).unwrap().is_none(), "the head has moved since");
    assert!(!look(&mut standby, &etcd, 7_001).is_due);
    assert!(look(&mut standby, &etcd, 8_001).is_due);
    *etcd.next.lock() = Next::Lost;
    assert!(standby.seize(Arc::clone(&etcd) as _).is_err());
    let next = standby.seize(Arc::clone(&etcd) as _).unwrap().unwrap();
    assert_eq!(next.head(), 2);
    assert_eq!(next.load().unwrap(), term.load().unwrap());
    term.write(b"of a deposed leader").unwrap();
    assert_eq!(term.sync().unwrap_err().to_string(), TermError::Deposed.to_string());
    assert!(term.write(b"more").is_err());
    assert_eq!(term.release(), Err(TermError::Deposed));
    assert!(term.remove_before(1).is_err());
}

#[test]
fn a_released_epoch_and_one_of_the_node_itself_are_taken_at_once() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    let (mut second, mut third) = (standby(&etcd, "second"), standby(&etcd, "third"));
    assert!(!look(&mut second, &etcd, 0).is_due);
    term.release().unwrap();
    let seen = look(&mut second, &etcd, 1);
    assert!(seen.is_led_by_nobody() && seen.is_due);
    assert!(look(&mut third, &etcd, 1).is_due);
    *etcd.next.lock() = Next::Unanswered;
    assert!(second.seize(Arc::clone(&etcd) as _).is_err(), "nobody knows who leads");
    assert!(third.seize(Arc::clone(&etcd) as _).unwrap().is_none());
    assert!(look(&mut second, &etcd, 2).is_due, "it is the second, which does not lead");
    assert!(second.seize(Arc::clone(&etcd) as _).unwrap().is_some());
    let seen = look(&mut third, &etcd, 3);
    assert!(!seen.is_led_by_nobody() && !seen.is_due);
    etcd.put(b"a/epoch", "{}");
    assert!(matches!(second.look(&*etcd, || Duration::ZERO), Err(SightError::Foreign(_))));
    etcd.put(b"a/cluster", "another");
    assert!(matches!(third.look(&*etcd, || Duration::ZERO), Err(SightError::Foreign(_))));
}

#[test]
fn a_node_that_gives_way_waits_twice_as_long_also_after_a_hand_over() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    let mut second = standby(&etcd, "second");
    second.give_way(true);
    assert!(!look(&mut second, &etcd, 0).is_due);
    assert!(!look(&mut second, &etcd, 1_999).is_due);
    assert!(look(&mut second, &etcd, 2_000).is_due);
    term.release().unwrap();
    assert!(!look(&mut second, &etcd, 2_001).is_due);
    assert!(look(&mut second, &etcd, 4_001).is_due);
    second.give_way(false);
    assert!(look(&mut second, &etcd, 4_002).is_due);
}

#[test]
fn a_node_that_is_second_to_another_takes_what_is_handed_over_a_twentieth_later() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    let mut second = standby(&etcd, "second");
    second.be_second(true);
    assert!(!look(&mut second, &etcd, 0).is_due);
    term.release().unwrap();
    assert!(!look(&mut second, &etcd, 1).is_due);
    assert!(!look(&mut second, &etcd, 50).is_due);
    assert!(look(&mut second, &etcd, 51).is_due);
    second.be_second(false);
    assert!(look(&mut second, &etcd, 51).is_due);
}

/// A term of a node, and the state of etcd after its first two entries. Two more follow.
fn restorable(etcd: &Arc<Near>) -> (Term, Store) {
    let term = term(etcd);
    let write = || {
        term.write(b"what is granted").expect("there is room");
        term.sync().expect("etcd answers");
    };
    term.begin(1).expect("there is room");
    write();
    write();
    let snapshot = etcd.store.lock().clone();
    write();
    write();
    (term, snapshot)
}

/// Accepts what was restored; returns the next term.
fn accept(etcd: &Arc<Near>, standby: &mut Standby, expected: Promised) -> Term {
    let accepted = restored::accept(&**etcd, &Keys::under("a/"), None);
    assert_eq!(accepted, Ok(Some(expected)));
    assert!(look(standby, etcd, 9_000).is_due, "nobody leads");
    let next = standby.seize(Arc::clone(etcd) as _).expect("etcd answers").expect("nobody else does");
    let lacks = next.lacks().expect("it was accepted");
    assert_eq!((lacks.promised, lacks.quarantine_ms), (expected, None));
    assert!(lacks.restores > 0);
    next
}

#[test]
fn a_log_that_is_older_than_what_a_node_remembers_is_led_by_nobody_until_that_is_accepted() {
    let etcd = Arc::new(Near::default());
    let (old, snapshot) = restorable(&etcd);
    let (mut second, mut fresh) = (standby(&etcd, "second"), standby(&etcd, "fresh"));
    let promised = Promised { now: at(50), until: at(90), token: 7 };
    second.note_promised(promised);
    assert!(!look(&mut second, &etcd, 0).is_restored);
    *etcd.store.lock() = snapshot;
    let seen = look(&mut second, &etcd, 5_000);
    assert_eq!((seen.is_restored, seen.is_due, &seen.leader), (true, false, &None));
    assert!(!seen.is_led_by_nobody(), "the lead is not there to be taken");
    let seen = look(&mut fresh, &etcd, 5_000);
    assert!(seen.is_restored && !seen.is_due, "it knows from the second");
    old.write(b"more").unwrap();
    assert!(old.sync().is_err(), "the old leader is deposed");
    assert_eq!(old.memory().head, 4);
    let mut first = Standby::new(
        join(&etcd).unwrap(),
        Member { id: "first".to_owned(), addresses: Vec::new() },
        Memory { promised: Promised { token: 9, ..Promised::default() }, ..old.memory() },
    );
    assert!(look(&mut first, &etcd, 5_000).is_restored);
    let next = accept(&etcd, &mut fresh, Promised { token: 9, ..promised });
    for standby in [&mut first, &mut second] {
        assert!(!look(standby, &etcd, 9_000).is_restored, "it has been accepted");
    }
    next.end_restore().unwrap();
    next.release().unwrap();
    assert!(look(&mut first, &etcd, 9_001).is_due);
    let after = first.seize(Arc::clone(&etcd) as _).unwrap().unwrap();
    assert_eq!(after.lacks(), None, "the quarantine is in the log");
}

#[test]
fn a_restored_log_is_found_whatever_was_written_to_it_since() {
    for more in [0, 6] {
        let etcd = Arc::new(Near::default());
        let (old, snapshot) = restorable(&etcd);
        let mut second = standby(&etcd, "second");
        look(&mut second, &etcd, 0);
        *etcd.store.lock() = snapshot;
        // A node without a memory leads on it, and goes as far, or further.
        let mut fresh = standby(&etcd, "fresh");
        look(&mut fresh, &etcd, 0);
        assert!(look(&mut fresh, &etcd, 1_000).is_due);
        let next = fresh.seize(Arc::clone(&etcd) as _).unwrap().unwrap();
        while next.head() < old.head() + more {
            next.beat().unwrap();
        }
        assert!(look(&mut second, &etcd, 0).is_restored, "an entry is another one");
        assert!(matches!(next.beat(), Err(TermError::Deposed)));
        accept(&etcd, &mut fresh, Promised::default());
        assert!(!look(&mut second, &etcd, 0).is_restored);
    }
}

/// Revisions begin again where the snapshot was: a term of a node before the restore and one after it can have the same.
#[test]
fn a_commit_from_before_a_restore_changes_nothing_after_it() {
    let etcd = Arc::new(Near::default());
    let mut first = standby(&etcd, "first");
    let snapshot = etcd.store.lock().clone();
    // As many changes as the nodes make that find the snapshot.
    (0..2).for_each(|_| etcd.put(b"of another program", ""));
    let old = term(&etcd);
    old.beat().unwrap();
    // A second copy of this commit comes late.
    let late = etcd.last.lock().clone();
    look(&mut first, &etcd, 0);
    *etcd.store.lock() = snapshot;
    assert!(look(&mut first, &etcd, 0).is_restored);
    let new = accept(&etcd, &mut first, Promised::default());
    assert_eq!((old.epoch(), new.head()), (new.epoch(), 0), "both have the same numbers");
    assert!(!etcd.store.lock().apply(&late).has_succeeded);
    assert!(matches!(old.beat(), Err(TermError::Deposed)));
    new.beat().unwrap();
}

#[test]
fn another_etcd_is_found_by_nodes_that_remember_nothing() {
    let etcd = Arc::new(Near::default());
    etcd.store.lock().id = 5;
    let (_, snapshot) = restorable(&etcd);
    *etcd.store.lock() = snapshot.clone();
    etcd.store.lock().id = 6;
    let mut fresh = standby(&etcd, "fresh");
    assert!(look(&mut fresh, &etcd, 0).is_restored);
    accept(&etcd, &mut fresh, Promised::default());
    assert!(!look(&mut standby(&etcd, "later"), &etcd, 0).is_restored, "the log is in this etcd now");
    // The same snapshot once more, in the same etcd: only a node that was there knows.
    *etcd.store.lock() = snapshot;
    etcd.store.lock().id = 5;
    assert!(!look(&mut standby(&etcd, "later"), &etcd, 0).is_restored);
    assert!(look(&mut fresh, &etcd, 0).is_restored);
    let again = accept(&etcd, &mut fresh, Promised::default());
    assert_eq!(again.lacks().unwrap().restores, 2, "the first restore is not in the snapshot");
}

#[test]
fn an_etcd_that_does_not_say_which_it_is_is_no_other_one() {
    let etcd = Arc::new(Near::default());
    let unknown = term(&etcd);
    assert!(etcd.store.lock().value(&Keys::under("a/").etcd()).is_none(), "there is nothing to note");
    unknown.release().unwrap();
    etcd.store.lock().id = 5;
    term(&etcd).release().unwrap();
    assert_eq!(etcd.value(&Keys::under("a/").etcd()), "5");
    etcd.store.lock().id = 0;
    assert!(!look(&mut standby(&etcd, "fresh"), &etcd, 0).is_restored);
}

#[test]
fn an_operator_says_how_long_nothing_is_granted_after_a_restore() {
    let etcd = Arc::new(Near::default());
    term(&etcd).release().unwrap();
    let accepted = restored::accept(&*etcd, &Keys::under("a/"), Some(5_000));
    assert_eq!(accepted, Ok(None), "no node has found that the log is older");
    assert_eq!(term(&etcd).lacks().unwrap().quarantine_ms, Some(5_000));
}

#[test]
fn entries_that_were_removed_and_copied_keys_are_no_restore() {
    let etcd = Arc::new(Near::default());
    let (term, _) = restorable(&etcd);
    let mut second = standby(&etcd, "second");
    look(&mut second, &etcd, 0);
    term.begin(2).unwrap();
    term.sync().unwrap();
    term.remove_before(2).unwrap();
    assert!(!look(&mut second, &etcd, 1).is_restored);
    assert_eq!(second.memory().head, 5);
    // An operator has moved all keys but `etcd` to another etcd, which has given them other revisions.
    etcd.delete(&Keys::under("a/").etcd());
    for key in [Keys::under("a/").log(4), Keys::under("a/").head()] {
        let value = etcd.value(&key);
        let put = Operation::Put { key, value };
        etcd.store.lock().apply(&Transaction { then: vec![put], ..Default::default() });
    }
    etcd.store.lock().id = 6;
    assert!(!look(&mut second, &etcd, 2).is_restored);
}

#[test]
fn an_entry_without_an_answer_is_committed_once() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    term.begin(1).unwrap();
    for (next, text) in [(Next::Lost, "one"), (Next::Unanswered, "two")] {
        term.write(text.as_bytes()).unwrap();
        *etcd.next.lock() = next;
        assert_eq!(term.sync().unwrap_err().kind(), std::io::ErrorKind::TimedOut);
        let tried = etcd.last.lock().clone();
        term.write(b", ").unwrap();
        term.sync().unwrap();
        // The first try arrives late.
        assert!(!etcd.store.lock().apply(&tried).has_succeeded);
    }
    assert!(bytes(&term).ends_with(b"one, two, "), "{:?}", bytes(&term));
}

#[test]
fn large_writes_are_several_entries_and_a_file_may_begin_again() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    term.begin(1).unwrap();
    term.write(b"of a start that has failed").unwrap();
    term.sync().unwrap();
    term.begin(1).unwrap();
    let large: Vec<u8> = (0..40 * ENTRY_BYTES_MAX + 5).map(|at| (at / 1000) as u8).collect();
    term.write(&large).unwrap();
    term.sync().unwrap();
    // The first line of the file takes room in the first entry.
    assert_eq!(term.head(), 42);
    assert!(bytes(&term).ends_with(&large));
    assert!(bytes(&term).len() < large.len() + 100);
    assert!(term.head() > 42, "a long read moves the head");
    etcd.delete(&Keys::under("a/").log(20));
    assert_eq!(term.load().unwrap_err(), TermError::Foreign("an entry is missing"));
}

#[test]
fn a_beat_without_an_answer_is_one_entry_before_those_of_the_journal() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    for lost in [Next::Lost, Next::Unanswered] {
        *etcd.next.lock() = lost;
        assert!(matches!(term.beat(), Err(TermError::Etcd(_))));
    }
    assert_eq!(term.head(), 0, "nobody knows");
    term.begin(1).unwrap();
    term.write(b"what follows").unwrap();
    term.sync().unwrap();
    assert_eq!(term.head(), 2);
    assert!(bytes(&term).ends_with(b"what follows"));
    term.beat().unwrap();
    assert_eq!(term.head(), 3);
    term.write(b", and more").unwrap();
    term.sync().unwrap();
    assert!(bytes(&term).ends_with(b"what follows, and more"));
    assert!(etcd.store.lock().len() >= 5 + 3, "the beats are entries");
}

#[test]
fn older_files_are_removed_once_the_copy_has_begun_in_etcd() {
    let etcd = Arc::new(Near::default());
    let term = term(&etcd);
    term.begin(1).unwrap();
    let mut commits = 0;
    while !term.has_grown() {
        term.write(b"a heartbeat").unwrap();
        term.sync().unwrap();
        commits += 1;
    }
    assert!((10_000..20_000).contains(&commits), "{commits} heartbeats are an hour");
    term.begin(2).unwrap();
    term.remove_before(2).unwrap();
    assert_eq!(etcd.store.lock().len(), 4 + commits, "the next file is not in etcd");
    term.sync().unwrap();
    term.remove_before(2).unwrap();
    assert_eq!(etcd.store.lock().len(), 5);
    assert_eq!(*etcd.forgotten.lock(), term.epoch());
    assert!(!term.has_grown());
    assert_eq!(term.load().unwrap()[0].0, 2);
    term.begin(3).unwrap();
    term.sync().unwrap();
    term.remove_before(3).unwrap();
    assert!(*etcd.forgotten.lock() as usize > commits, "what the removal before has left");
}

/// How many bytes a file grows by after so many were copied to it, before the next one begins. One of so many groups.
fn growth(groups: u16, copied: usize) -> usize {
    let etcd = Arc::new(Near::default());
    let part = Part { group: 0, groups };
    let cluster = Cluster::join(&*etcd, Keys::of("a/", part), Agreed { part, ..AGREED }, [1; 20])
        .expect("it is the first");
    let member = Member { id: "first".to_owned(), addresses: Vec::new() };
    let term = term_of(&etcd, Standby::new(cluster, member, Memory::default()));
    term.begin(1).expect("its first file");
    term.write(&vec![0; copied]).expect("there is room");
    term.sync().expect("etcd answers");
    term.remove_before(1).expect("etcd answers");
    let mut grown = 0;
    while !term.has_grown() {
        term.write(&[0; 16 << 10]).expect("there is room");
        term.sync().expect("etcd answers");
        grown += 16 << 10;
    }
    grown
}

#[test]
fn logs_of_groups_share_what_one_log_grows_by_unless_they_have_many_keys() {
    const MIB: usize = 1 << 20;
    for (groups, copied, expected) in [
        (1, 0, 8 * MIB),
        (1, 20 * MIB, 8 * MIB),
        (64, 0, MIB / 8),
        (64, 3 * MIB, 3 * MIB),
        (64, 20 * MIB, 8 * MIB),
    ] {
        let grown = growth(groups, copied);
        assert!(
            (expected - expected / 20..expected + MIB / 16).contains(&grown),
            "{groups}, {copied}: {grown}"
        );
    }
}

#[test]
fn a_log_that_etcd_does_not_take_refuses_writes_and_goes_on() {
    let etcd = Arc::new(Near::default());
    let log = log(&etcd);
    let value = vec![b'x'; 3 << 20];
    let put = || {
        let (value, key) = (Bytes::from(value.clone()), Bytes::from_static(b"key"));
        let mutations = [Mutation::Put { database: 0, key, value, deadline: None }];
        let mutations = &mutations.iter().collect();
        log.append(&Record { now: at(1), lasts_until: at(2), ends_at: at(2), mutations });
        log.write();
    };
    (0..=BUFFERED_BYTES_MAX / value.len() + 1).for_each(|_| put());
    assert_eq!(log.error().as_deref(), Some("etcd does not take the log"));
    let owed = log.owed();
    // This one makes room, and the next one is for what had none.
    assert!(matches!(log.sync(at(2), 2), Err(SyncError::Write(_))));
    assert!(!log.has(owed, || 2));
    log.sync(at(3), 3).unwrap();
    assert!(log.has(owed, || 3));
    assert_eq!(log.error(), None);
}

#[test]
fn a_reply_needs_a_commit_that_began_lately_or_after_it() {
    let etcd = Arc::new(Near::default());
    let log = log(&etcd);
    // That commit began at 100 by the clock of the boot.
    assert!(log.has(log.owed(), || 899));
    assert!(!log.has(log.owed(), || 900));
    let (before, started_ms) = (log.owed(), 5_000);
    *etcd.next.lock() = Next::Lost;
    assert!(matches!(log.sync(at(2), started_ms), Err(SyncError::Delayed(_))));
    assert!(!log.has(before, || 5_001), "nobody has answered");
    let meanwhile = log.owed();
    // It takes until 7,000.
    log.sync(at(3), started_ms).unwrap();
    assert!(log.has(before, || 7_000), "a commit that began later has succeeded");
    assert!(log.has(meanwhile, || 7_000), "this one, too");
    assert!(!log.has(log.owed(), || 7_000));
    log.sync(at(4), 8_000).unwrap();
    assert!(log.has(log.owed(), || 8_001));
    log.stop(at(5), 8_002).unwrap();
    assert!(!log.has(log.owed(), || 8_003), "another node may lead at once");
}

const fn at(millis: u64) -> LockTime {
    LockTime::from_millis(millis)
}

/// The first log on this etcd, synced at 100 by the clock of the boot.
fn log(etcd: &Arc<Near>) -> Log {
    let start = Start::of_first_file([7; 20], None, Mode::Always, Horizon::default());
    let log = Log::start(Box::new(term(etcd)), start).expect("a new log");
    log.sync(at(1), 100).expect("etcd answers");
    log
}
