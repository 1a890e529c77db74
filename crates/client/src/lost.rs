//! Why a lock is no longer held, and how the server tells it.

use std::fmt;

use redlatch_proto::lock::{EndReason, GivenUp};
use redlatch_proto::log_name::readable;

use crate::received::Reply;

/// Why a lock is no longer held.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Lost {
    /// An operator has broken it.
    Broken(BrokenBy),
    /// Its key was deleted or overwritten by somebody else.
    Deleted,
    /// Its lease has ended on the server.
    Expired,
    /// Every key was removed: FLUSHDB or FLUSHALL.
    Flushed,
    /// The server no longer knows it, for a reason that it does not tell.
    NotHeld,
    /// The guard was copied into this process by a fork: the lock is that of the process that took it.
    OtherProcess,
    /// It was released, or left.
    Released,
    /// Its session has ended.
    Session,
    /// It was handed over to another owner, by this client or another one.
    Transferred,
    /// No renewal has succeeded in time. The server may still count it as held.
    Unrenewed,
}

/// Who has broken a lock, and why. Each text is escaped; `None`: the server has not told it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct BrokenBy {
    /// The REASON of LOCK.BREAK.
    pub reason: Option<String>,
    /// The user of the server that has sent LOCK.BREAK.
    pub user: Option<String>,
    /// Where it connected from.
    pub address: Option<String>,
}

impl BrokenBy {
    /// What stands in the push behind `broken`: reason, user, address.
    fn read(told: &[Reply]) -> Self {
        let text = |at: usize| {
            let text = told.get(at).and_then(Reply::text).filter(|text| !text.is_empty());
            text.map(readable)
        };
        Self { reason: text(0), user: text(1), address: text(2) }
    }
}

impl fmt::Display for BrokenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EndReason::Broken.meaning())?;
        match (&self.user, &self.address) {
            (Some(user), Some(address)) => write!(f, " ({user}, {address})")?,
            (Some(one), None) | (None, Some(one)) => write!(f, " ({one})")?,
            (None, None) => {}
        }
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

impl Lost {
    /// The reason in a push that tells of the loss of a lock: `lock-lost`, key, token, reason, and who has
    /// broken it. `None` if the push tells something else.
    pub(super) fn read(push: &[Reply], keys: &[Vec<u8>], token: Option<u64>) -> Option<Self> {
        let [kind, key, of, reason, told @ ..] = push else { return None };
        (kind.is("lock-lost") && is_of(key, of, keys, token)).then(|| {
            match reason.text().and_then(EndReason::named) {
                Some(EndReason::Broken) => Self::Broken(BrokenBy::read(told)),
                Some(EndReason::Deleted) => Self::Deleted,
                Some(EndReason::Expired) => Self::Expired,
                Some(EndReason::Flushed) => Self::Flushed,
                Some(EndReason::Session) => Self::Session,
                Some(EndReason::Transferred) => Self::Transferred,
                Some(EndReason::Moved | EndReason::Released) | None => Self::NotHeld,
            }
        })
    }
}

/// Whether a push with this key and token tells of one of the keys, held with `token`.
pub(super) fn is_of(key: &Reply, of: &Reply, keys: &[Vec<u8>], token: Option<u64>) -> bool {
    keys.iter().any(|known| key.text() == Some(known))
        && of.integer().and_then(|of| u64::try_from(of).ok()) == token
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Broken(by) => return by.fmt(f),
            Self::Deleted => EndReason::Deleted.meaning(),
            Self::Expired => EndReason::Expired.meaning(),
            Self::Flushed => EndReason::Flushed.meaning(),
            Self::NotHeld => GivenUp::NotHeld.meaning(),
            Self::OtherProcess => GivenUp::Forked.meaning(),
            Self::Released => EndReason::Released.meaning(),
            Self::Session => EndReason::Session.meaning(),
            Self::Transferred => EndReason::Transferred.meaning(),
            Self::Unrenewed => GivenUp::Unrenewed.meaning(),
        })
    }
}
