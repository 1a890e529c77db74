//! Replication: one set of locks that several nodes serve in turn, from a log in etcd.
//!
//! Owns    the keys of a cluster in etcd, who may write its log, the commits of the log, and what is known of a log that was
//!         restored from an older state.
//! Rule    the log decides who leads: a commit succeeds only while the epoch is the one of this leader. Nothing that a node
//!         believes by its clock decides about a write.
//! Time    comes in as an argument.

pub mod balance;
pub mod cluster;
pub mod etcd;
pub mod marks;
pub mod moving;
pub mod restored;
pub mod standby;
pub mod term;
