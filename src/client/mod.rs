//! The client side of the wire: connections to a server, and locks over them.
//!
//! Owns    how a server is reached and asked, and the public interface `redlatch::lock`.
//! Knows   the server's handle, for locks in process; nothing of commands or keys inside a server.
//! Time    the monotonic clock. A holder's deadline counts from the moment its request was sent, so it ends before the
//!         lease that the server counts.
//! Rule    a reply is bounded in bytes and in depth before it is decoded; a server that breaks the protocol costs its
//!         own connection and no more.

mod connection;
mod connector;
mod dialect;
mod error;
mod guard;
mod in_process;
mod locks;
mod target;
mod tls;
mod views;

pub use error::Error;
pub use guard::{BrokenBy, Guard, Lost};
pub use locks::{Acquire, Lock, Locks};
pub use target::Trust;
pub use views::{Client, Held, Holder, Waiting};

#[cfg(feature = "cli")]
pub(crate) use crate::resp::received::Reply;
#[cfg(feature = "cli")]
pub(crate) use connection::Connection;
#[cfg(feature = "etcd")]
pub(crate) use connection::Stream;
#[cfg(feature = "cli")]
pub(crate) use connector::{at, connect, open};
#[cfg(feature = "cli")]
pub(crate) use dialect::RELEASE;
#[cfg(feature = "cli")]
pub(crate) use locks::random;
#[cfg(feature = "cli")]
pub(crate) use target::{Target, Transport};
#[cfg(feature = "etcd")]
pub(crate) use tls::handshake;
