//! Why a call of the lock client failed.

use std::io;

use redlatch_proto::certificates::in_words;
use redlatch_proto::log_name::readable;

use super::lost::Lost;
use super::texts::{breaking, lines};
use super::views::Held;
use crate::received::Unreadable;

/// Why a call of the lock client failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered in a way that the protocol does not allow, or with more than a reply may hold.
    #[error("{0}")]
    Broken(String),
    /// To wait would close a circle of owners, each waiting for a lock of the next. The server's text.
    #[error("the server refuses: {0}")]
    Deadlock(String),
    /// The lock is held by somebody else, and the wait has ended. What the server says about it, if it does.
    /// The text says who has it, why, since when, and how to break it.
    #[error("{}", held_by(.0.as_deref()))]
    Held(Option<Box<Held>>),
    /// The lock is held no longer: its first key, and why.
    #[error("{} is lost: {reason}", readable(.key))]
    Lost {
        /// The first key.
        key: Vec<u8>,
        /// Why it is held no longer.
        reason: Lost,
    },
    /// The server refused a request. Its text, beginning with the code: `NOAUTH`, `DEADLOCK`, `ERR`.
    #[error("the server refuses: {0}")]
    Refused(String),
    /// The server cannot be connected to, cannot be trusted, or has closed the connection.
    #[error("{reason}")]
    Unreachable {
        /// Why, in words.
        reason: String,
        /// What the system or TLS said; none if an answer did not come in time, or was a refusal.
        source: Option<io::Error>,
    },
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

impl Error {
    /// [`Error::Unreachable`] without a source.
    #[doc(hidden)]
    pub fn unreachable(reason: impl Into<String>) -> Self {
        Self::Unreachable { reason: reason.into(), source: None }
    }

    /// What an error reply says.
    pub(crate) fn of_reply(text: String) -> Self {
        match text.starts_with("DEADLOCK ") {
            true => Self::Deadlock(text),
            false => Self::Refused(text),
        }
    }

    /// Whether the server has answered, and refuses.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Deadlock(_) | Self::Refused(_))
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the server has closed the connection".to_owned(),
            _ => in_words(error.to_string()),
        };
        Self::Unreachable { reason, source: Some(error) }
    }
}

impl From<Unreadable> for Error {
    fn from(error: Unreadable) -> Self {
        Self::Broken(error.to_string())
    }
}

fn held_by(held: Option<&Held>) -> String {
    let Some(held) = held else { return "the lock is held".to_owned() };
    let force = breaking(held).map(|command| format!("To take it by force: {command}")).unwrap_or_default();
    format!("{} is held\n{}{force}", readable(&held.key), lines(held)).trim_end().to_owned()
}
