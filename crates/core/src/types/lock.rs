//! Locks that a string cannot be: shared, by permits, or taken several times by one owner; and what is known of a grant.
//!
//! Owns    the holders of one lock, and their deadlines. Their tokens rise in the order in which they came. [`Grant`] is what
//!         the entry of an exclusive lock knows of its holder.
//! Knows   `clock`, for deadlines. It never reads the time: the caller removes holders whose lease has ended.
//! Rule    a lock without holders is empty, and its key is removed. Its kind is that of its first holder.

use std::collections::BTreeSet;

use ahash::RandomState;
use bytes::Bytes;
use indexmap::IndexMap;
use redlatch_proto::clock::{Deadline, LockTime};

use super::{Seed, Shape, heap};

/// How a lock is shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LockKind {
    /// One owner, as a string.
    Exclusive,
    /// One owner, which may take it several times.
    Reentrant,
    Shared,
    /// Owners hold this many permits together at most.
    Permits(u32),
}

impl LockKind {
    /// The names of all kinds, each at its index.
    pub const NAMES: [&str; 4] = redlatch_proto::lock::KINDS;

    /// Its index among all kinds.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Self::Exclusive => 0,
            Self::Reentrant => 1,
            Self::Shared => 2,
            Self::Permits(_) => 3,
        }
    }

    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// How many permits there are, if they are counted.
    pub const fn limit(self) -> Option<u32> {
        if let Self::Permits(limit) = self { Some(limit) } else { None }
    }
}

/// One owner of a lock, without its name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    pub token: u64,
    /// The number of the client that took it.
    pub client: u64,
    /// The permits that it holds; of a reentrant lock, how often it has taken the lock.
    pub permits: u32,
    /// Since when.
    pub since: LockTime,
    /// The end of its lease; `None`: it has none.
    pub deadline: Option<Deadline>,
    /// The lease as it was last asked for, in milliseconds; `None`: it has none.
    pub lease_ms: Option<u64>,
    /// How often the lease was renewed.
    pub renewals: u32,
    /// The session that it belongs to, if any, and the milliseconds that it outlives the connection of that session.
    pub session: Option<(u64, u64)>,
    /// What the owner says about itself, as fields and values in turn.
    pub meta: Box<[Bytes]>,
}

/// A lock that has been granted: what an entry knows of its holder.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The fencing token: each grant of a keyspace has a higher one than those before it.
    pub token: u64,
    /// The client to which the lock was granted.
    pub holder: u64,
    /// When it was granted.
    pub since: LockTime,
    /// The lease, as it was last set, in milliseconds: at most [`u32::MAX`]. `None`: the lock does not expire.
    pub lease_ms: Option<u32>,
    /// How often its lease was set anew; at most 255.
    pub renewals: u8,
    /// Whether it was granted by a LOCK command.
    pub is_native: bool,
}

/// What is known of a grant beside its record.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GrantDetails {
    /// The session that it belongs to, and the milliseconds that it outlives the connection of that session.
    pub session: Option<(u64, u64)>,
    /// What the owner says about itself, as fields and values in turn.
    pub meta: Box<[Bytes]>,
}

impl GrantDetails {
    /// Bytes of memory, with the key.
    pub(crate) fn bytes(&self, key: &[u8]) -> usize {
        heap::in_tree::<((u16, Bytes), Self)>() + key.len() + words_bytes(&self.meta)
    }
}

/// A lock and its holders.
#[derive(Clone, Debug)]
pub struct Lock {
    kind: LockKind,
    holders: IndexMap<Bytes, Holder, RandomState>,
    /// The ends of leases, earliest first.
    ends: BTreeSet<(Deadline, Bytes)>,
    /// The permits that all holders have together.
    permits: u64,
    /// Bytes of owners and meta.
    bytes: usize,
}

impl Lock {
    /// A lock without holders. It allocates nothing.
    pub fn new(seed: Seed) -> Self {
        let holders = IndexMap::with_hasher(seed.hasher());
        Self { kind: LockKind::Shared, holders, ends: BTreeSet::new(), permits: 0, bytes: 0 }
    }

    pub fn kind(&self) -> LockKind {
        self.kind
    }

    /// Adds a holder, or replaces what is known of it. A lock without holders takes this kind.
    pub fn put(&mut self, kind: LockKind, owner: &Bytes, holder: Holder) {
        if self.holders.is_empty() {
            self.kind = kind;
        }
        self.take(owner);
        if let Some(deadline) = holder.deadline {
            self.ends.insert((deadline, owner.clone()));
        }
        self.permits += u64::from(holder.permits);
        self.bytes += bytes_of(owner, &holder);
        self.holders.insert(owner.clone(), holder);
    }

    /// Removes a holder, and returns what was known of it.
    pub fn remove(&mut self, owner: &[u8]) -> Option<Holder> {
        let holder = self.take(owner)?;
        // The last holder takes its place. A lock may have a million holders, and each removal takes the same time.
        self.holders.swap_remove(owner);
        Some(holder)
    }

    /// The holder whose lease ended first, if one has ended.
    pub fn due(&self, now: LockTime) -> Option<&Bytes> {
        self.ends.first().filter(|(deadline, _)| deadline.has_passed(now)).map(|(_, owner)| owner)
    }

    /// What is known of a holder.
    pub fn holder(&self, owner: &[u8]) -> Option<&Holder> {
        self.holders.get(owner)
    }

    /// All holders, in no order.
    pub fn holders(&self) -> impl ExactSizeIterator<Item = (&Bytes, &Holder)> {
        self.holders.iter()
    }

    /// The permits that all holders have together.
    pub fn permits(&self) -> u64 {
        self.permits
    }

    /// The earliest end of a lease.
    pub(crate) fn earliest_deadline(&self) -> Option<Deadline> {
        self.ends.first().map(|(deadline, _)| *deadline)
    }

    /// The end of the last lease; `None` if a holder has no lease.
    pub(crate) fn latest_deadline(&self) -> Option<Deadline> {
        let last = self.ends.last().filter(|_| self.ends.len() == self.holders.len());
        last.map(|(deadline, _)| *deadline)
    }

    /// True if the leases of all holders have ended.
    pub fn has_ended(&self, now: LockTime) -> bool {
        self.latest_deadline().is_some_and(|deadline| deadline.has_passed(now))
    }

    /// Takes a holder out of the sums. It keeps its place until it is removed or replaced.
    fn take(&mut self, owner: &[u8]) -> Option<Holder> {
        let (owner, holder) = self.holders.get_key_value(owner)?;
        if let Some(deadline) = holder.deadline {
            self.ends.remove(&(deadline, owner.clone()));
        }
        self.permits -= u64::from(holder.permits);
        self.bytes -= bytes_of(owner, holder);
        Some(holder.clone())
    }
}

fn bytes_of(owner: &Bytes, holder: &Holder) -> usize {
    heap::shared(owner) + words_bytes(&holder.meta)
}

/// Bytes of fields and values.
pub(crate) fn words_bytes(words: &[Bytes]) -> usize {
    words.iter().map(|word| size_of::<Bytes>() + heap::shared(word)).sum()
}

impl Shape for Lock {
    fn type_name(&self) -> &'static str {
        "lock"
    }

    fn encoding(&self) -> &'static str {
        self.kind.name()
    }

    fn len(&self) -> usize {
        self.holders.len()
    }

    fn heap_bytes(&self) -> usize {
        let of_holder = size_of::<(Bytes, Holder)>() + 2 * size_of::<usize>();
        let ends = heap::tree::<(Deadline, Bytes)>(self.ends.len());
        self.holders.capacity() * of_holder + ends + self.bytes
    }
}

/// Locks are equal if their kinds and holders are.
impl PartialEq for Lock {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.holders.iter().eq(other.holders.iter())
    }
}

impl Eq for Lock {}

#[cfg(test)]
mod tests {
    use super::*;
    use redlatch_proto::clock::Now;

    fn holder(token: u64, permits: u32, deadline: Option<i64>) -> Holder {
        let now = Now { lock: LockTime::from_millis(0), wall_offset_ms: 0 };
        Holder {
            token,
            client: 1,
            permits,
            since: LockTime::from_millis(0),
            deadline: deadline.map(|millis| now.deadline_in(millis)),
            lease_ms: None,
            renewals: 0,
            session: None,
            meta: Box::default(),
        }
    }

    #[test]
    fn its_sums_follow_its_holders() {
        let mut lock = Lock::new(Seed::of(1));
        let [a, b] = [Bytes::from_static(b"a"), Bytes::from_static(b"b")];
        lock.put(LockKind::Permits(5), &a, holder(1, 2, Some(10)));
        lock.put(LockKind::Shared, &b, holder(2, 3, Some(20)));
        assert_eq!((lock.kind(), lock.permits(), lock.len()), (LockKind::Permits(5), 5, 2));
        assert_eq!(lock.latest_deadline(), holder(0, 0, Some(20)).deadline);
        lock.put(LockKind::Permits(5), &a, holder(1, 1, None));
        assert_eq!((lock.permits(), lock.latest_deadline()), (4, None));
        assert_eq!(lock.holders().map(|(owner, _)| &owner[..]).collect::<Vec<_>>(), [b"a", b"b"]);
        assert_eq!(lock.due(LockTime::from_millis(20)), None);
        assert_eq!(lock.due(LockTime::from_millis(21)), Some(&b));
        assert_eq!(lock.remove(b"b").map(|holder| holder.token), Some(2));
        assert_eq!((lock.remove(b"b"), lock.permits(), lock.earliest_deadline()), (None, 1, None));
        lock.remove(b"a");
        assert!(lock.is_empty() && lock.bytes == 0);
    }
}
