//! The end of a lock, as it is told to its holder and to the channel of its key.
//!
//! Owns    the reasons, the push message `lock-lost`, and the name of the channel.

use bytes::Bytes;

use super::clients::ClientId;
use super::registries::Registries;
use crate::resp::{Protocol, Reply};

/// Why a lock has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EndReason {
    /// LOCK.BREAK.
    Broken,
    /// Its key was deleted or overwritten.
    Deleted,
    /// Its lease has ended.
    Expired,
    /// Its owner has released it.
    Released,
    /// The connection of its session has ended.
    Session,
}

impl EndReason {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broken => "broken",
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::Released => "released",
            Self::Session => "session",
        }
    }
}

/// A lock of a LOCK command that has ended.
#[derive(Clone, Debug)]
pub struct EndedLock {
    /// The database of its key.
    pub database: u16,
    /// Its key.
    pub key: Bytes,
    /// Its fencing token.
    pub token: u64,
    /// The client that held it.
    pub holder: ClientId,
    /// The session that it belonged to.
    pub session: Option<u64>,
    /// Why it has ended.
    pub reason: EndReason,
}

impl EndedLock {
    /// Takes it out of its session, and tells its holder and the subscribers of its channel, unless the holder has ended
    /// it itself. `author` is the client whose call has ended it.
    pub fn publish(&self, registries: &Registries, author: ClientId) {
        if let Some(session) = self.session {
            registries.lock_sessions.forget(session, self.database, &self.key, self.token);
        }
        let is_own = self.holder == author && self.reason == EndReason::Deleted;
        if self.reason == EndReason::Released || is_own {
            return;
        }
        if let Some(client) = registries.clients.get(self.holder)
            && client.protocol() == Protocol::Resp3
        {
            let mut message = Vec::new();
            let mut push = Reply::new(&mut message, Protocol::Resp3);
            push.push(4);
            push.bulk(b"lock-lost");
            push.bulk(&self.key);
            push.integer(i64::try_from(self.token).unwrap_or(i64::MAX));
            push.bulk(self.reason.name().as_bytes());
            client.deliver(&message);
        }
        let text = format!("lost {} {}", self.token, self.reason.name());
        registries.channels.publish(&[b"__lock__:", &self.key[..]].concat(), text.as_bytes());
    }
}
