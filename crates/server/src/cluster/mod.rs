//! A node of a cluster: several nodes serve one set of locks from a log in etcd.
//!
//! Owns    [`Node`], which leads with a server, or splices its clients to the node that leads.
//! Knows   `replication` for every decision about who leads; the builder of a server.
//! Rule    etcd is asked by one client, whose requests run in the runtime of the node.

mod candidates;
mod client;
mod commits;
mod endpoint;
mod folder;
mod leader;
mod listen;
mod members;
mod moving;
mod node;
mod notebook;
mod place;
mod reach;
mod rpc;
mod server;
mod sockets;
mod splice;
mod standby_http;
mod term_workers;

pub use moving::{Moved, export, import};
pub(super) use node::check;
pub use node::{Node, OnLead, accept_restored};
