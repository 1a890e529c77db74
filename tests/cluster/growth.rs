//! What a cluster leaves in etcd: what the log no longer needs is removed and forgotten.

use super::harness::{Etcd, Node};
use crate::support::wire::Link;

/// Keys that live, and the bytes of each: 4 MB.
const KEYS: usize = 4_000;
const VALUE_BYTES: usize = 1_000;
/// How often each key is written. The log begins some twenty files in that time.
const WRITES: usize = 60;
/// Writes whose answers are awaited together.
const PIPELINED: usize = 100;

#[test]
#[ignore = "needs etcd"]
fn the_database_of_etcd_levels_off() {
    let etcd = Etcd::start_one(&[]);
    let mut leader = Node::start(&etcd, &[]);
    leader.wait_for("This node leads");
    let mut link = Link::to(leader.address()).expect("a leader");
    for write in 0..WRITES {
        let value = format!("{write:0>VALUE_BYTES$}");
        for first in (0..KEYS).step_by(PIPELINED) {
            for key in first..first + PIPELINED {
                link.send(&["SET", &format!("lock:{key}"), &value, "PX", "3600000"]).expect("a leader");
            }
            for _ in 0..PIPELINED {
                link.next().expect("an answer");
            }
        }
    }
    let (written, bytes) = ((WRITES * KEYS * VALUE_BYTES) as u64, etcd.database_bytes());
    println!("{written} bytes were written; the database has {bytes}");
    assert!(written > 3 * bytes, "{written} bytes were written, and the database has {bytes}");
}
