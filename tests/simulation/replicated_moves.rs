//! Locks that move into a cluster and out of it, one step at a time, on the model of etcd without a network.

use std::sync::Arc;
use std::time::Duration;

use redlatch_core::journal::log::Storage;
use redlatch_core::replication::cluster::{Agreed, Cluster, JoinError, Keys, Member, Part};
use redlatch_core::replication::moving::{self, Arrival, MoveError};
use redlatch_core::replication::restored::Memory;
use redlatch_core::replication::standby::{SightError, Standby};
use redlatch_core::replication::term::{ENTRY_BYTES_MAX, Term, TermError};

use super::replicated_etcd::{Near, Next};

const AGREED: Agreed = Agreed { takeover_ms: 1_000, databases: 16, part: Part { group: 0, groups: 1 } };

fn keys() -> Keys {
    Keys::under("a/")
}

fn join(etcd: &Near) -> Result<Cluster, JoinError> {
    Cluster::join(etcd, keys(), AGREED, [0xab; 20])
}

fn arrival(etcd: &Arc<Near>, id: u8) -> Result<Arrival, MoveError> {
    Arrival::begin(Arc::clone(etcd) as _, keys(), &AGREED, [id; 20])
}

fn find(etcd: &Near) -> Result<Cluster, MoveError> {
    moving::find(etcd, keys(), AGREED)
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

#[test]
fn locks_that_arrive_are_led_by_nobody_before_they_are_all_there() {
    let etcd = Arc::new(Near::default());
    let bytes: Vec<u8> = (0..ENTRY_BYTES_MAX * 2 + 5).map(|at| at as u8).collect();
    let interrupted = arrival(&etcd, 1).unwrap();
    assert_eq!(interrupted.put(3, &bytes), Ok(3));
    assert!(matches!(join(&etcd), Err(JoinError::Moving(why)) if why.contains("has not ended")));
    assert!(matches!(find(&etcd), Err(MoveError::Join(JoinError::Moving(_)))));
    let next = arrival(&etcd, 2).unwrap();
    assert_eq!(etcd.store.lock().len(), 1, "nothing is left of the first");
    assert_eq!(interrupted.put(3, &bytes), Err(MoveError::Overtaken));
    assert_eq!(interrupted.end(3), Err(MoveError::Overtaken));
    *etcd.next.lock() = Next::Unanswered;
    let head = next.put(7, &bytes).unwrap();
    *etcd.next.lock() = Next::Unanswered;
    assert!(matches!(next.end(head), Err(MoveError::Etcd(_))), "it has happened, and nobody knows");
    let arrived = join(&etcd).unwrap();
    assert_eq!(arrived.id, [2; 20]);
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
fn a_cluster_that_leaves_is_led_by_nobody_else() {
    let etcd = Arc::new(Near::default());
    assert_eq!(find(&etcd).unwrap_err(), MoveError::NoCluster);
    let first = term(&etcd, standby(join(&etcd).unwrap(), "first"));
    first.begin(1).unwrap();
    first.sync().unwrap();
    let mut node = standby(join(&etcd).unwrap(), "node");
    let second = term(&etcd, standby(find(&etcd).unwrap(), "an export"));
    assert_eq!(moving::leave(&first), Err(TermError::Deposed));
    moving::leave(&second).unwrap();
    assert!(matches!(join(&etcd), Err(JoinError::Moving(why)) if why.contains("moved away")));
    assert!(matches!(node.look(&*etcd, || Duration::ZERO), Err(SightError::Foreign(_))));
    assert_eq!(arrival(&etcd, 1).unwrap_err(), MoveError::Unfinished);

    let third = term(&etcd, standby(find(&etcd).unwrap(), "the same, run again"));
    moving::leave(&third).unwrap();
    assert_eq!(third.load().unwrap().len(), 1, "the log is still there");
    assert_eq!(moving::forget(&second), Err(TermError::Deposed));
    moving::forget(&third).unwrap();
    assert_eq!(etcd.store.lock().len(), 1, "the key that tells nodes");
    assert!(matches!(join(&etcd), Err(JoinError::Moving(_))));
    assert_eq!(find(&etcd).unwrap_err(), MoveError::NoCluster);
    assert!(arrival(&etcd, 1).is_ok());
}
