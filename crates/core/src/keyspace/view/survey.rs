//! A survey of a database: every entry, for replay checks and the embedding API.
//!
//! Rule    a survey changes nothing: it shows entries that have expired and are not removed yet, and does not remove them.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use redlatch_proto::clock::Deadline;
use redlatch_proto::number::Mean;

use super::WholeKeyspace;
use crate::locks::Grant;
use crate::types::Object;

/// One entry of a database.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef<'v> {
    pub key: &'v [u8],
    /// The value, if it is a string; empty otherwise.
    pub string: &'v [u8],
    /// The value, if it is not a string.
    pub object: Option<&'v Object>,
    /// The last millisecond in which the key lives, if it has a deadline, which may have passed.
    pub deadline: Option<Deadline>,
    /// Its grant, if it is a lock.
    pub grant: Option<Grant>,
}

/// Random keys of each shard that [`WholeKeyspace::average_ttl_ms`] samples.
const SAMPLES_PER_SHARD: u64 = 16;

impl WholeKeyspace<'_, '_> {
    /// The mean time to live of the keys of a database that have one, in milliseconds; 0 if none has.
    ///
    /// An estimate: the mean over up to `SAMPLES_PER_SHARD` random keys of each shard, chosen by `entropy`. It is exact
    /// where all leases are equal; else its standard error is the leases' standard deviation over the square root of the
    /// number of samples. Shards that a long call holds are left out.
    pub(crate) fn average_ttl_ms(&mut self, database: u16, entropy: u64) -> u64 {
        let now = self.view.now;
        let mut mean_ms = Mean::default();
        self.each_free_shard(|held| {
            let shard = &held.shard;
            if shard.deadlines(database) == 0 {
                return;
            }
            for sample in 1..=SAMPLES_PER_SHARD {
                let bits = entropy.wrapping_mul(sample.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15));
                let id = shard.random(database, bits >> 16).filter(|id| !shard.has_ended(*id, now.lock));
                if let Some(deadline) = id.and_then(|id| shard.deadline(id)) {
                    mean_ms.add(u64::try_from(now.millis_until(deadline)).unwrap_or(0));
                }
            }
        });
        mean_ms.get()
    }

    /// Visits every entry of the database in the locked shards, expired or not, in no order. Counts neither hits nor
    /// accesses.
    pub fn survey(&mut self, mut visit: impl FnMut(EntryRef<'_>)) {
        let database = self.view.database;
        self.view.locked.each(|_, held| {
            let (shard, mut cursor) = (&held.shard, 0);
            loop {
                cursor = shard.scan(database, cursor, &mut |id| {
                    let object = shard.object(id);
                    let string = if object.is_some() { &[] } else { shard.value(id) };
                    let (key, deadline, grant) = (shard.key(id), shard.deadline(id), shard.granted(id));
                    visit(EntryRef { key, string, object, deadline, grant });
                });
                if cursor == 0 {
                    break;
                }
            }
        });
    }
}
