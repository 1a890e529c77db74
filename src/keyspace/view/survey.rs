//! A survey of a database: every entry, for replay checks and the embedding API.
//!
//! Rule    a survey changes nothing: it shows entries that have expired and are not removed yet, and does not remove them.

use super::View;
use crate::clock::Deadline;
use crate::types::Object;

/// One entry of a database.
#[derive(Clone, Copy, Debug)]
pub struct EntryRef<'v> {
    /// The key.
    pub key: &'v [u8],
    /// Its value, if that is a string; empty otherwise.
    pub string: &'v [u8],
    /// Its value, if that is no string.
    pub object: Option<&'v Object>,
    /// The last millisecond in which the key lives, if it has a deadline, which may have passed.
    pub deadline: Option<Deadline>,
}

impl View<'_> {
    /// Visits every entry of the database in the locked shards, expired or not, in no order. Nothing is counted, and no key
    /// counts as used.
    pub fn survey(&mut self, mut visit: impl FnMut(EntryRef<'_>)) {
        let database = self.database;
        self.locked.each(|_, held| {
            let (shard, mut cursor) = (&held.shard, 0);
            loop {
                cursor = shard.scan(database, cursor, &mut |id| {
                    let object = shard.object(id);
                    let string = if object.is_some() { &[] } else { shard.value(id) };
                    visit(EntryRef { key: shard.key(id), string, object, deadline: shard.deadline(id) });
                });
                if cursor == 0 {
                    break;
                }
            }
        });
    }
}
