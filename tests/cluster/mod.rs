//! Several nodes on a real etcd: one leads, the others splice their clients to it, and one of them takes over.
//!
//! Belongs here  what only processes show: ends of connections, takeovers, settings, what etcd refuses. The rules of
//!               replication are tried in `simulation/`.
//! Needs         etcd and etcdctl on PATH, or REDLATCH_ETCD; tests of partitions also root and the program `ip`; tests of
//!               clients the projects of `tests/clients/`. `.ci/run cluster` has them.
//! Time          real. How long a takeover takes is printed, and asserted with room for a busy machine.

mod addresses;
mod alike;
mod bad_input;
mod broken;
mod canaries;
mod clients;
mod deployed;
mod groups;
mod growth;
mod harness;
mod live;
mod moved;
mod partitions;
mod porcupine;
mod reach;
mod registers;
mod replaced;
mod restored;
mod sessions;
mod slow;
mod takeover;
