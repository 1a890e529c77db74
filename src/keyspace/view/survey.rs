//! All that a database holds, as it stands.
//!
//! Rule    a survey changes nothing: what has ended and has not left yet is still seen, and does not leave because of it.

use super::View;
use crate::clock::Deadline;
use crate::types::Object;

/// One entry of a database, as it stands.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'v> {
    /// The key.
    pub key: &'v [u8],
    /// Its value, if that is a string; empty otherwise.
    pub string: &'v [u8],
    /// Its value, if that is no string.
    pub object: Option<&'v Object>,
    /// The last millisecond in which the key lives, if it ends at all; the moment may have passed.
    pub deadline: Option<Deadline>,
}

impl View<'_> {
    /// Visits every entry of the database that is in the shards locked, ended or not, in no order. Nothing is counted,
    /// and no key counts as used.
    pub fn survey(&mut self, mut visit: impl FnMut(Standing<'_>)) {
        let database = self.database;
        self.locked.each(|_, held| {
            let (shard, mut cursor) = (&held.shard, 0);
            loop {
                cursor = shard.scan(database, cursor, &mut |id| {
                    let object = shard.object(id);
                    let string = if object.is_some() { &[] } else { shard.value(id) };
                    visit(Standing { key: shard.key(id), string, object, deadline: shard.deadline(id) });
                });
                if cursor == 0 {
                    break;
                }
            }
        });
    }
}
