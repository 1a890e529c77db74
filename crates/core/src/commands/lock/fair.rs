//! The queue of a fair lock of Redisson: a list of owners, whose timeouts are in a sorted set.
//!
//! Rule    inside of a transaction there is none, because the transaction has not locked these keys.

use bytes::Bytes;
use redlatch_proto::clock::Now;
use redlatch_proto::error::Refusal;

use crate::commands::Call;
use crate::keyspace::{Occupied, ShardSet, View};
use crate::types::lock::LockKind;
use crate::types::{List, SortedSet};

/// Owners of one queue that are looked at.
const OWNERS_MAX: usize = 10_000;

/// The owners that wait for the lock of a key, first come first. The call has the shard of that key afterwards.
pub(super) fn queue_of(call: &mut Call<'_, '_>, name: &[u8]) -> Result<Vec<Bytes>, Refusal> {
    let keys = keys_of(name);
    if !call.view.holds_all() {
        if call.session.is_nested {
            return Ok(Vec::new());
        }
        if !call.view.relock(ShardSet::Keys(&[name, &keys.queue, &keys.timeouts])) {
            return Err(Refusal::Occupied);
        }
    }
    Ok(read(call.view, &keys, call.now))
}

/// Like [`queue_of`], for a call that has locked no shard. A fair lock is reentrant: others have no such queue. While a long
/// call holds the queue, it is not seen.
pub(super) fn queue_apart(call: &Call<'_, '_>, name: &[u8], kind: LockKind) -> Vec<Bytes> {
    if kind != LockKind::Reentrant || call.session.is_nested || call.view.holds_all() {
        return Vec::new();
    }
    let (keys, shared) = (keys_of(name), call.shared);
    let set = [&keys.queue[..], &keys.timeouts];
    let view = View::try_lock(
        &shared.keyspace,
        ShardSet::Keys(&set),
        call.view.database(),
        call.now,
        shared.events(),
    );
    let Some(mut view) = view else { return Vec::new() };
    let owners = read(&mut view, &keys, call.now);
    view.finish(&shared.registries);
    owners
}

/// The keys that belong to a fair lock.
struct FairKeys {
    queue: Vec<u8>,
    timeouts: Vec<u8>,
}

fn keys_of(name: &[u8]) -> FairKeys {
    let key = |prefix: &[u8]| match name.contains(&b'{') {
        true => [prefix, b":", name].concat(),
        false => [prefix, b":{", name, b"}"].concat(),
    };
    FairKeys { queue: key(b"redisson_lock_queue"), timeouts: key(b"redisson_lock_timeout") }
}

fn read(view: &mut View<'_>, keys: &FairKeys, now: Now) -> Vec<Bytes> {
    let Some(Ok(list)) = view.entry(&keys.queue).occupied().map(Occupied::into_object::<List>) else {
        return Vec::new();
    };
    let owners: Vec<_> = list.iter().take(OWNERS_MAX).map(Bytes::copy_from_slice).collect();
    let timeouts = view.entry(&keys.timeouts).occupied().map(Occupied::into_object::<SortedSet>);
    let now_ms = now.wall().as_millis() as f64;
    let has_ended = |owner: &Bytes| {
        let until_ms = timeouts.as_ref().and_then(|set| set.as_ref().ok()?.score(owner));
        until_ms.is_some_and(|until_ms| until_ms <= now_ms)
    };
    // As Redisson does, which removes those at the head only.
    owners.into_iter().skip_while(has_ended).collect()
}
