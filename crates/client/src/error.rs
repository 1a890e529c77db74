//! Why a call of the lock client failed.

use std::io;

use super::views::Held;
use crate::received::Unreadable;

/// Why a call of the lock client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered in a way that the protocol does not allow, or with more than a reply may hold.
    #[error("{0}")]
    Broken(String),
    /// The lock is held by somebody else, and the wait has ended. What the server says about it, if it is a redlatch.
    #[error("the lock is held{}", held_by(.0.as_deref()))]
    Held(Option<Box<Held>>),
    /// The server refused a request. Its text, beginning with the code: `NOAUTH`, `DEADLOCK`, `ERR`.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server cannot be connected to, cannot be trusted, or has closed the connection.
    #[error("{0}")]
    Unreachable(String),
    /// The server is no redlatch, and plain Redis commands cannot do this.
    #[error("{0} takes a server with LOCK commands, which this one lacks")]
    Unsupported(&'static str),
    /// The URL cannot be used.
    #[error("{0}")]
    Url(String),
    /// The request names no key, or options that exclude each other.
    #[error("{0}")]
    Usage(&'static str),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server has closed the connection".to_owned(),
            _ => error.to_string(),
        })
    }
}

impl From<Unreadable> for Error {
    fn from(error: Unreadable) -> Self {
        Self::Broken(error.to_string())
    }
}

fn held_by(held: Option<&Held>) -> String {
    let Some(held) = held else { return String::new() };
    let known = || Some(String::from_utf8_lossy(&held.holders.first()?.owner).into_owned());
    held.unknown_owner().or_else(known).map(|holder| format!(" by {holder}")).unwrap_or_default()
}
