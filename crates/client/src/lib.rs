//! Locks over the Redis protocol, for programs that take them: [`Locks`], [`Guard`].
//!
//! A lock is renewed in the background for as long as its [`Guard`] lives. [`Guard::lost`] says when it is lost, at the
//! latest before the server grants it to anybody else. A process that is paused learns of it too late: only
//! [`Guard::token`], checked by what the lock protects, stops such a process.
//!
//! The server may be any that speaks the protocol. One without LOCK commands has plain exclusive locks, without a token.
//!
//! This is the module `lock` of `redlatch`, for a program that takes locks and starts no server.
//!
//! # In the source
//!
//! Owns    how a server is reached and asked, and locks over that.
//! Time    the monotonic clock. A holder's deadline counts from the moment its request was sent, so it ends before the
//!         lease that the server counts.
//! Rule    a reply is bounded in bytes and in depth before it is decoded; a server that breaks the protocol costs its
//!         own connection and no more.

#![forbid(unsafe_code)]

#[warn(missing_docs)]
mod acquire;
mod cluster;
mod connection;
mod connector;
mod counts;
mod dialect;
#[warn(missing_docs)]
mod error;
#[warn(missing_docs)]
mod fence;
#[warn(missing_docs)]
mod guard;
#[warn(missing_docs)]
mod hold;
mod keeper;
mod limits;
#[warn(missing_docs)]
mod locks;
#[warn(missing_docs)]
mod lost;
mod received;
mod retry;
mod target;
mod texts;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_none.rs"]
mod tls;
#[warn(missing_docs)]
mod views;

pub use acquire::{Acquire, Lock};
pub use error::Error;
pub use fence::{Fence, FenceError, Fenced};
pub use guard::{Guard, Watch};
pub use hold::{Hold, HoldEvent, HoldEvents};
pub use locks::{Locks, OnUnavailable};
pub use lost::{BrokenBy, Lost};
pub use redlatch_proto::options::Kind;
pub use target::Trust;
pub use views::{Client, Held, Holder, Waiting};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Connections to a server, as the program `redlatch` and the nodes of a cluster use them. They are not part of the
/// interface: any version may change them.
#[doc(hidden)]
pub mod wire {
    pub use crate::connection::{Connection, Stream, is_unknown};
    pub use crate::connector::{at, connect, open};
    pub use crate::dialect::{GrantAnswer, RELEASE, Terms};
    pub use crate::locks::{Node, Nodes, no_node, random};
    pub use crate::received::Reply;
    pub use crate::retry::{FULL, Retry};
    pub use crate::target::{Target, Transport};
    pub use crate::texts::{breaking, is_gone, lease, lines, owner, place, utc};
    pub use crate::tls::handshake;
}
