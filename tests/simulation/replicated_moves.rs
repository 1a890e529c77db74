//! Locks that move into a cluster and out of it, one step at a time, on the model of etcd without a network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use redlatch_core::journal::log::Storage;
use redlatch_core::replication::cluster::{Agreed, Cluster, JoinError, Keys, Member, Part};
use redlatch_core::replication::etcd::{Etcd, Operation, Transaction};
use redlatch_core::replication::marks::{self, Folder, UNFINISHED};
use redlatch_core::replication::moving::{self, Arrival, Departure, MoveError, Pace, Prefix};
use redlatch_core::replication::restored::Memory;
use redlatch_core::replication::standby::{SightError, Standby};
use redlatch_core::replication::term::{ENTRY_BYTES_MAX, Term, TermError};

use super::moves_disk::{Disk, Life, OpenDisk};
use super::replicated_etcd::{Near, Next};

const AGREED: Agreed = Agreed { takeover_ms: 1_000, databases: 16, part: Part { group: 0, groups: 1 } };

fn keys() -> Keys {
    Keys::under("a/")
}

fn join(etcd: &Near) -> Result<Cluster, JoinError> {
    Cluster::join(etcd, keys(), AGREED, [0xab; 20])
}

fn prefix(etcd: &Arc<Near>) -> Prefix {
    Prefix { etcd: Arc::clone(etcd) as _, keys: keys(), agreed: AGREED }
}

fn arrival(etcd: &Arc<Near>, id: u8) -> Result<Arrival, MoveError> {
    Arrival::begin(prefix(etcd), [id; 20])
}

/// An export to this directory, which finds that nobody leads.
fn departure<'a>(etcd: &Arc<Near>, folder: &'a OpenDisk, id: u8) -> Result<Option<Departure<'a>>, MoveError> {
    let passed_ms = AtomicU64::new(0);
    let pause = || _ = passed_ms.fetch_add(100, SeqCst);
    let pace = Pace { pause, now: || Duration::from_millis(passed_ms.load(SeqCst)) };
    Departure::begin(prefix(etcd), folder, [[id; 20], [id + 1; 20]], pace)
}

fn folder() -> OpenDisk {
    OpenDisk::new(&Disk::default(), &Life::with(None))
}

fn standby(cluster: Cluster, id: &str) -> Standby {
    Standby::new(cluster, Member { id: id.to_owned(), addresses: Vec::new() }, Memory::default())
}

/// The next term, after a leader that is silent.
fn term(etcd: &Arc<Near>, mut standby: Standby) -> Term {
    for at_ms in [0, AGREED.takeover_ms] {
        standby.look(&**etcd, || Duration::from_millis(at_ms)).expect("etcd answers");
    }
    standby.seize(Arc::clone(etcd) as _).expect("etcd answers").expect("nobody else is there")
}

/// The keys of the cluster that are left, beside those that say which exports have ended.
fn left(etcd: &Near) -> usize {
    let (key, end) = (Bytes::from_static(b"a/exported/"), Some(Bytes::from_static(b"a/exported0")));
    let then = vec![Operation::Read { key, end, limit: 0 }];
    let answer = etcd.transact(&Transaction { then, ..Transaction::default() }).expect("it answers");
    etcd.store.lock().len() - answer.reads[0].len()
}

#[test]
fn locks_that_arrive_are_led_by_nobody_before_they_are_all_there() {
    let etcd = Arc::new(Near::default());
    let bytes: Vec<u8> = (0..ENTRY_BYTES_MAX * 2 + 5).map(|at| at as u8).collect();
    let interrupted = arrival(&etcd, 1).unwrap();
    assert_eq!(interrupted.put(3, &bytes), Ok(3));
    assert!(
        matches!(join(&etcd), Err(JoinError::Moving(why)) if why.contains("has not ended: run it again"))
    );
    assert!(matches!(departure(&etcd, &folder(), 7), Err(MoveError::Join(JoinError::Moving(_)))));
    // The same id is that of the same import, run again.
    let next = arrival(&etcd, 1).unwrap();
    assert_eq!(etcd.store.lock().len(), 1, "nothing is left of the first");
    assert_eq!(interrupted.put(3, &bytes), Err(MoveError::Overtaken));
    assert_eq!(interrupted.end(3), Err(MoveError::Overtaken));
    *etcd.next.lock() = Next::Unanswered;
    let head = next.put(7, &bytes).unwrap();
    *etcd.next.lock() = Next::Unanswered;
    assert_eq!(next.end(head), Ok(()), "it has happened, and the next try finds that");
    let arrived = join(&etcd).unwrap();
    assert_eq!(arrived.id, [1; 20]);
    // It looks twice: what it has seen is still the log.
    let leads = term(&etcd, standby(arrived, "first"));
    let files = leads.load().unwrap();
    assert_eq!((leads.head(), files.len(), files[0].0), (4, 1, 7));
    assert_eq!(files[0].1.get_ref(), &bytes);
    assert_eq!(arrival(&etcd, 4).unwrap_err(), MoveError::Used);
}

#[test]
fn an_arrival_that_nodes_overtake_changes_nothing() {
    let etcd = Arc::new(Near::default());
    *etcd.next.lock() = Next::Lost;
    assert!(matches!(arrival(&etcd, 1), Err(MoveError::Etcd(_))));
    let founded = join(&etcd).unwrap();
    assert_eq!(arrival(&etcd, 1).unwrap_err(), MoveError::Used);
    assert_eq!(join(&etcd).unwrap(), founded);
    etcd.put(b"a/cluster", "{}");
    assert_eq!(arrival(&etcd, 1).unwrap_err(), MoveError::Used);
}

#[test]
fn a_cluster_above_or_below_another_one_does_not_arrive() {
    for other in ["a/0/", ""] {
        let etcd = Arc::new(Near::default());
        Cluster::join(&*etcd, Keys::under(other), AGREED, [0xab; 20]).unwrap();
        assert!(matches!(arrival(&etcd, 1), Err(MoveError::Join(JoinError::Foreign(_)))), "{other:?}");
    }
}

#[test]
fn locks_arrive_once() {
    let (etcd, from) = (Arc::new(Near::default()), folder());
    let import = |etcd: &Arc<Near>, id| {
        moving::import(prefix(etcd), &from, [id; 20], || Ok(((), 1, b"bytes".to_vec())))
    };
    assert_eq!(import(&etcd, 1), Ok(Some(())));
    assert_eq!(import(&etcd, 2), Ok(None));
    assert_eq!(join(&etcd).unwrap().id, [1; 20]);
    assert_eq!(import(&Arc::default(), 3), Err(MoveError::Elsewhere), "another etcd");
    departure(&etcd, &folder(), 7).unwrap().expect("a cluster").leave().unwrap();
    assert_eq!(import(&etcd, 4), Err(MoveError::Elsewhere), "they have left");
}

#[test]
fn a_cluster_that_leaves_is_led_by_nobody_else() {
    let (etcd, to, other) = (Arc::new(Near::default()), folder(), folder());
    assert_eq!(departure(&etcd, &to, 7).unwrap_err(), MoveError::NoCluster);
    let first = term(&etcd, standby(join(&etcd).unwrap(), "first"));
    first.begin(1).unwrap();
    first.sync().unwrap();
    let mut node = standby(join(&etcd).unwrap(), "node");
    let interrupted = departure(&etcd, &to, 7).unwrap().expect("a cluster");
    assert_eq!(first.beat(), Err(TermError::Deposed));
    interrupted.mark().unwrap();
    assert_eq!(interrupted.term.load().unwrap().len(), 1);

    // A node, or an export to another directory, may take its place until it has left.
    let second = term(&etcd, standby(join(&etcd).unwrap(), "second"));
    assert!(matches!(interrupted.leave(), Err(MoveError::Led(_))));
    let third = departure(&etcd, &other, 17).unwrap().expect("a cluster");
    assert_eq!(second.beat(), Err(TermError::Deposed));
    third.mark().unwrap();
    *etcd.next.lock() = Next::Unanswered;
    assert_eq!(third.leave(), Ok(()), "it has happened, and the next try finds that");
    assert_eq!(left(&etcd), 1, "the key that tells nodes");
    assert!(matches!(join(&etcd), Err(JoinError::Moving(why)) if why.contains("run it again")));
    assert!(matches!(node.look(&*etcd, || Duration::ZERO), Err(SightError::Foreign(_))));
    assert_eq!(departure(&etcd, &to, 27).unwrap_err(), MoveError::Left, "they are in the other directory");

    // Even where others have arrived meanwhile, the export goes on.
    let arrived = arrival(&etcd, 1).unwrap();
    arrived.end(0).unwrap();
    assert_eq!(marks::refusal(|name| other.disk.has(name)), Some(UNFINISHED));
    assert!(departure(&etcd, &other, 37).unwrap().is_none(), "it has left before");
    assert_eq!(marks::refusal(|name| other.disk.has(name)), None);
    let in_use = departure(&etcd, &other, 47).unwrap_err().to_string();
    assert!(in_use.contains("is in use, or was"), "{in_use}");
}

#[test]
fn an_export_goes_to_a_directory_with_nothing_else() {
    let (etcd, to) = (Arc::new(Near::default()), folder());
    join(&etcd).unwrap();
    Folder::write(&to, "journal-1", "").unwrap();
    let in_use = departure(&etcd, &to, 7).unwrap_err().to_string();
    assert!(in_use.contains("is in use, or was"), "{in_use}");
    to.remove("journal-1").unwrap();
    departure(&etcd, &to, 7).unwrap().expect("a cluster").mark().unwrap();
    Folder::write(&to, "journal-1", "half of it").unwrap();
    departure(&etcd, &to, 7).unwrap().expect("a cluster").mark().unwrap();
    assert_eq!(to.names().unwrap(), ["exporting"], "what was left there is removed");
    assert!(matches!(
        moving::import(prefix(&Arc::default()), &to, [1; 20], || Ok(((), 1, Vec::new()))),
        Err(MoveError::Folder(why)) if why == UNFINISHED
    ));
}
