//! The locks of unchanged clients that are no strings: what their values say of kind, owner and holds.
//!
//! Source  the scripts of the clients, see `scripts::known`.

use redlatch_proto::number;

use crate::types::Object;
use crate::types::lock::LockKind;

/// The owner, if the value names just one: the field of a hash beside Redisson's mode, or the member of a sorted set beside
/// Symfony's mark.
pub(crate) fn sole_owner(object: &Object) -> Option<&[u8]> {
    match object {
        Object::Hash(hash) => sole(hash.iter().map(|(field, _)| field), MODE),
        Object::SortedSet(set) => sole(set.entries().map(|(member, _)| member), WRITE),
        _ => None,
    }
}

/// The kind of a lock that is no string.
///
/// A hash is Redisson's: owners are fields whose values count their holds; the field `mode` makes it a read/write lock. A
/// sorted set is a semaphore, or Symfony's lock: its members are the owners.
pub(crate) fn kind_of(object: &Object) -> LockKind {
    match object {
        Object::Lock(lock) => lock.kind(),
        Object::Hash(hash) if hash.get(MODE).is_some_and(|mode| mode == b"read") => LockKind::Shared,
        Object::Hash(_) if holds_of(object).is_some() => LockKind::Reentrant,
        Object::SortedSet(set) if set.score(WRITE).is_none() => LockKind::Shared,
        _ => LockKind::Exclusive,
    }
}

/// How often the only owner of a lock that is a hash has taken it.
pub(crate) fn holds_of(object: &Object) -> Option<u32> {
    let Object::Hash(hash) = object else { return None };
    let holds = number::integer(hash.get(sole_owner(object)?)?)?;
    u32::try_from(holds).ok()
}

/// The only name beside `mark`.
fn sole<'o>(names: impl Iterator<Item = &'o [u8]>, mark: &[u8]) -> Option<&'o [u8]> {
    let mut owners = names.filter(|name| *name != mark);
    owners.next().filter(|_| owners.next().is_none())
}

/// The field of Redisson's read/write locks that says how they are held.
pub(crate) const MODE: &[u8] = b"mode";
/// The member of Symfony's locks that says that one owner holds them alone.
pub(crate) const WRITE: &[u8] = b"__write__";
