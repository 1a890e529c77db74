//! What a cluster leaves in etcd: what the log no longer needs is removed and forgotten.

use super::harness::{Etcd, Node};
use crate::support::wire::Link;

/// Keys that live, and the bytes of each: 4 MB.
const KEYS: usize = 4_000;
const VALUE_BYTES: usize = 1_000;
/// How often each key is written.
const WRITES: usize = 60;
/// Two files of the log, each with the live keys and 8 MiB more, a copy of the live keys, and what is written meanwhile.
const DATABASE_BYTES_MAX: u64 = 48 << 20;

#[test]
#[ignore = "needs etcd"]
fn the_database_of_etcd_levels_off() {
    let etcd = Etcd::start_one(&[]);
    let mut leader = Node::start(&etcd, &[]);
    leader.wait_for("This node leads");
    let mut link = Link::to(leader.address()).expect("a leader");
    let mut largest = [0; 2];
    for write in 0..WRITES {
        let value = format!("{write:0>VALUE_BYTES$}");
        for key in 0..KEYS {
            link.send(&["SET", &format!("lock:{key}"), &value, "PX", "3600000"]).expect("a leader");
        }
        for _ in 0..KEYS {
            link.next().expect("an answer");
        }
        let bytes = etcd.database_bytes();
        largest = [0, 1].map(|at| bytes[at].max(largest[at]));
        assert!(bytes[1] < DATABASE_BYTES_MAX, "{bytes:?} after {write} writes of each key");
    }
    let written = (WRITES * KEYS * VALUE_BYTES) as u64;
    println!("written {written} bytes; the database has had {largest:?}, all and in use");
    assert!(written > 4 * largest[0], "the database of {largest:?} grows with what is written: {written}");
}
