//! One shard of the keyspace: entries, the tables that find them, and the wheel of their deadlines.
//!
//! Owns    the entries whose keys hash here, in every database, and what they cost.
//! Knows   `clock`, `wheel`, the arena and the table; nothing of commands, effects or waiting commands.
//! Time    comes in as an argument. A shard's own time never runs backwards.
//! Locks   none: the caller holds the mutex of the shard.
//!
//! The high bits of a key's hash choose the shard; a shard itself uses the low 32 bits only.

mod deadlines;
pub(super) mod grants;
mod objects;

use redlatch_proto::clock::{Deadline, LockTime};
use slab::Slab;

use super::arena::{Arena, EntryMeta, NO_DEADLINE, TABLES_MAX};
use super::table::Table;
use crate::locks::history::History;
use crate::types::{Object, Seed};
use crate::wheel::{Step, Timers, Wheel};

// In this order, so that the time is on the cache line of the lock: a script reads the time of every shard.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Shard {
    time: LockTime,
    arena: Arena,
    wheel: Wheel,
    /// Values that are not strings, by the number in their entry.
    objects: Slab<Object>,
    /// The seed of the hash tables inside of objects.
    seed: Seed,
    counted: objects::Counted,
    granted: grants::Granted,
    history: History,
    tables: Vec<Database>,
    /// Bytes that the tables hold.
    table_bytes: usize,
    /// The table of each database. Entries name their table, so two databases swap in one step.
    table_of: Vec<u16>,
    /// The database of each table.
    database_of: Vec<u16>,
    /// Whether keys stay when their deadlines have passed.
    keeps_ended: bool,
}

/// An entry of one shard, valid until the entry is removed or gets another id.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct EntryId(u32);

/// How a value was written. Only OBJECT ENCODING shows the difference between strings.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Form {
    /// A string that was set as a whole.
    Whole,
    /// A string: the text of a number that the server has computed.
    Computed,
    /// A string that was changed in place.
    Edited,
    /// An object: the bytes are its number.
    Object,
}

#[derive(Debug, Default)]
struct Database {
    table: Table,
    /// How many of the entries have a deadline.
    deadlines: usize,
}

impl Shard {
    /// An empty shard with databases 0 to `databases - 1`; at least one, at most [`DATABASES_MAX`].
    /// `seed` is the seed of the hash tables inside of objects.
    pub(crate) fn new(databases: usize, seed: Seed) -> Self {
        assert!((1..=DATABASES_MAX).contains(&databases), "{databases} databases");
        let numbers: Vec<u16> = (0..databases as u16).collect();
        Self {
            time: LockTime::from_millis(0),
            arena: Arena::new(),
            wheel: Wheel::new(),
            objects: Slab::new(),
            seed,
            counted: objects::Counted::default(),
            granted: grants::Granted::default(),
            history: History::default(),
            table_bytes: 0,
            tables: std::iter::repeat_with(Database::default).take(databases).collect(),
            table_of: numbers.clone(),
            database_of: numbers,
            keeps_ended: false,
        }
    }

    /// Sets the history that records the ends of its locks.
    pub(super) fn set_history(&mut self, history: History) {
        self.history = history;
    }

    /// The seed of the hash tables inside of objects.
    pub(crate) fn seed(&self) -> Seed {
        self.seed
    }

    /// Moves the shard's own time forward to `now`, never back, and returns it. The instant of a command is at least this.
    pub(crate) fn advance(&mut self, now: LockTime) -> LockTime {
        self.time = self.time.max(now);
        self.time
    }

    /// Stores an entry whose key is not in the shard.
    ///
    /// `stamp` is the second of the last access. A deadline of `u64::MAX` counts as the millisecond before it.
    pub(crate) fn insert(
        &mut self,
        db: u16,
        hash: u64,
        key: &[u8],
        value: &[u8],
        deadline: Option<Deadline>,
        stamp: u32,
    ) -> EntryId {
        let table = self.table_of[usize::from(db)];
        let id = self.arena.insert(EntryMeta { deadline_ms: millis(deadline), stamp, table }, key, value);
        let keys = &mut self.tables[usize::from(table)];
        let before = keys.table.heap_bytes();
        keys.table.insert(hash as u32, id);
        self.table_bytes = self.table_bytes - before + keys.table.heap_bytes();
        if deadline.is_some() {
            keys.deadlines += 1;
            self.arm(id);
        }
        EntryId(id)
    }

    /// Removes an entry; `hash` is the hash of its key. Returns its object, if its value is not a string: dropping a
    /// large object takes time, so the caller drops it after unlocking the shard.
    pub(crate) fn remove(&mut self, id: EntryId, hash: u64) -> Option<Object> {
        let object = self.take_object(id);
        let keys = &mut self.tables[usize::from(self.arena.table(id.0))];
        let before = keys.table.heap_bytes();
        let was_here = keys.table.remove(hash as u32, id.0);
        self.table_bytes = self.table_bytes - before + keys.table.heap_bytes();
        debug_assert!(was_here, "{id:?}: removed with the hash of another key");
        if self.arena.deadline_ms(id.0) != NO_DEADLINE {
            keys.deadlines -= 1;
            self.wheel.cut(id.0, &mut self.arena);
        }
        self.uncount_grant(id);
        self.arena.remove(id.0);
        object
    }

    /// Replaces a string by another; deadline and stamp stay. Returns the new id of the entry. If the value is an
    /// object, the caller takes it first with [`Shard::take_object`].
    pub(crate) fn set_value(&mut self, id: EntryId, hash: u64, value: &[u8]) -> EntryId {
        debug_assert_ne!(self.form(id), Form::Object, "an object would be lost");
        let new = self.arena.resize(id.0, value.len(), 0, 0);
        self.arena.value_mut(new).copy_from_slice(value);
        self.arena.set_form(new, Form::Whole as u8);
        self.renamed(id, hash, new)
    }

    /// Adds bytes at the end of the value. Returns the new id of the entry.
    pub(crate) fn append(&mut self, id: EntryId, hash: u64, tail: &[u8]) -> EntryId {
        let old_len = self.arena.value(id.0).len();
        let len = old_len + tail.len();
        // Half as much again, so that a value built byte by byte moves a few times only.
        let new = self.arena.resize(id.0, len, old_len, len / 2);
        self.arena.value_mut(new)[old_len..].copy_from_slice(tail);
        self.arena.set_form(new, Form::Edited as u8);
        self.renamed(id, hash, new)
    }

    /// Cuts the value to `len` bytes or fills it up with zeros. Returns the new id of the entry.
    pub(crate) fn resize(&mut self, id: EntryId, hash: u64, len: usize) -> EntryId {
        let new = self.arena.resize(id.0, len, len, 0);
        self.arena.set_form(new, Form::Edited as u8);
        self.renamed(id, hash, new)
    }

    /// The value, to be changed in place; its length stays.
    pub(crate) fn value_mut(&mut self, id: EntryId) -> &mut [u8] {
        self.arena.value_mut(id.0)
    }

    /// Sets the second of the last access.
    pub(crate) fn set_stamp(&mut self, id: EntryId, stamp: u32) {
        self.arena.set_stamp(id.0, stamp);
    }

    /// The next entry that is due at `now`, earliest first: it has expired, or elements of its object have. The caller
    /// removes the entry, or removes the elements and rearms it.
    ///
    /// Each timer visited takes one from `budget`. `None` with budget left means that nothing more is due; `None` with
    /// no budget left means that there may be more.
    pub(crate) fn due(&mut self, now: LockTime, budget: &mut u32) -> Option<EntryId> {
        let now = self.advance(now);
        while *budget > 0 {
            *budget -= 1;
            match self.wheel.next_due(now, &mut self.arena) {
                Step::Due(id) => return Some(EntryId(id)),
                Step::Idle => {
                    // No timer was visited; budget left means that nothing more is due.
                    *budget += 1;
                    return None;
                }
                Step::Moved => {}
            }
        }
        None
    }

    /// Removes every entry of a database and frees its memory.
    pub(crate) fn clear(&mut self, db: u16) {
        let index = self.table_of[usize::from(db)];
        let keys = std::mem::take(&mut self.tables[usize::from(index)]);
        self.table_bytes -= keys.table.heap_bytes();
        if keys.table.len() == self.arena.len() {
            self.arena.clear();
            self.wheel.clear();
            self.objects = Slab::new();
            self.counted = objects::Counted::default();
            self.granted.clear();
            return;
        }
        for id in keys.table.ids() {
            self.take_object(EntryId(id));
            self.wheel.cut(id, &mut self.arena);
            self.uncount_grant(EntryId(id));
            self.arena.remove(id);
        }
    }

    pub(crate) fn swap(&mut self, a: u16, b: u16) {
        self.table_of.swap(usize::from(a), usize::from(b));
        for db in [a, b] {
            self.database_of[usize::from(self.table_of[usize::from(db)])] = db;
        }
    }

    /// The entry of a key, whether or not its deadline has passed.
    pub(crate) fn find(&self, db: u16, hash: u64, key: &[u8]) -> Option<EntryId> {
        let table = &self.keys(db).table;
        table.find(hash as u32, |id| self.arena.key(id) == key).map(EntryId)
    }

    /// Asks for the memory of the word that finds a key; false if the shard is so small that it is not worth it.
    #[inline]
    pub(super) fn prefetch_word(&self, db: u16, hash: u64) -> bool {
        self.keys(db).table.prefetch(hash as u32)
    }

    /// Asks for the memory of the first entry with this hash.
    #[inline]
    pub(super) fn prefetch_entry(&self, db: u16, hash: u64) {
        if let Some(id) = self.keys(db).table.find(hash as u32, |_| true) {
            self.arena.prefetch(id);
        }
    }

    /// The key of an entry.
    pub(crate) fn key(&self, id: EntryId) -> &[u8] {
        self.arena.key(id.0)
    }

    /// The value of an entry.
    pub(crate) fn value(&self, id: EntryId) -> &[u8] {
        self.arena.value(id.0)
    }

    /// How the value was written.
    pub(crate) fn form(&self, id: EntryId) -> Form {
        match self.arena.form(id.0) {
            form if form == Form::Computed as u8 => Form::Computed,
            form if form == Form::Edited as u8 => Form::Edited,
            form if form == Form::Object as u8 => Form::Object,
            _ => Form::Whole,
        }
    }

    /// Sets how the value was written.
    pub(crate) fn set_form(&mut self, id: EntryId, form: Form) {
        self.arena.set_form(id.0, form as u8);
    }

    /// The name of the type of an entry's value.
    pub(crate) fn type_name(&self, id: EntryId) -> &'static str {
        self.object(id).map_or("string", |object| object.shape().type_name())
    }

    /// The second of the last access.
    pub(crate) fn stamp(&self, id: EntryId) -> u32 {
        self.arena.stamp(id.0)
    }

    /// The database an entry is in now.
    pub(crate) fn db(&self, id: EntryId) -> u16 {
        self.database_of[usize::from(self.arena.table(id.0))]
    }

    /// The shard's own time: the latest instant of a call on it.
    pub(crate) fn time(&self) -> LockTime {
        self.time
    }

    /// A moment before which [`Shard::due`] finds nothing to do; `None` when no entry has a deadline.
    pub(crate) fn next_wakeup(&self) -> Option<LockTime> {
        self.wheel.next_wakeup()
    }

    /// How many entries a database has, including expired ones that were not yet removed.
    pub(crate) fn len(&self, db: u16) -> usize {
        self.keys(db).table.len()
    }

    /// How many entries of a database have a deadline.
    pub(crate) fn deadlines(&self, db: u16) -> usize {
        self.keys(db).deadlines
    }

    /// One step of a scan of a database: visits an entry, rarely a few, and returns the next cursor.
    ///
    /// A scan begins at 0 and has ended when 0 is returned. Cursors are below 2^32. An entry that is in the database
    /// during the whole scan is visited exactly once.
    pub(crate) fn scan(&self, db: u16, cursor: u64, visit: &mut dyn FnMut(EntryId)) -> u64 {
        self.keys(db).table.scan(cursor, |id| visit(EntryId(id)))
    }

    /// How many tables there are: one for each database.
    pub(crate) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// Like [`Shard::scan`], of the table with this index: its entries stay in it when databases are swapped. `visit` gets
    /// the database that the table is now.
    pub(crate) fn scan_table(&self, index: usize, cursor: u64, visit: &mut dyn FnMut(u16, EntryId)) -> u64 {
        let database = self.database_of[index];
        self.tables[index].table.scan(cursor, |id| visit(database, EntryId(id)))
    }

    /// An entry of a database chosen by `entropy`; `None` when the database is empty.
    pub(crate) fn random(&self, db: u16, entropy: u64) -> Option<EntryId> {
        self.keys(db).table.random(entropy).map(EntryId)
    }

    /// Bytes that an entry takes: its slot, header and key included, and its word in the table.
    pub(crate) fn bytes(&self, id: EntryId) -> usize {
        let object = |object: &Object| size_of::<Object>() + object.shape().heap_bytes();
        self.arena.bytes(id.0) + size_of::<u64>() + self.object(id).map_or(0, object)
    }

    /// Bytes of memory that the tables take.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table_bytes
    }

    /// Bytes of memory this shard has in use, tables and wheel included.
    pub(crate) fn used_bytes(&self) -> usize {
        let lists =
            self.tables.capacity() * size_of::<Database>() + 2 * self.table_of.capacity() * size_of::<u16>();
        let slots = self.objects.capacity() * size_of::<Object>();
        let fixed = self.wheel.heap_bytes() + lists + slots;
        fixed + self.arena.heap_bytes() + self.table_bytes + self.object_bytes() + self.granted.details_bytes
    }

    /// Panics if an invariant is broken; `hash` is the hash that its keys were stored with. For tests and simulation.
    pub(crate) fn assert_laws(&self, hash: impl Fn(&[u8]) -> u64) {
        self.arena.assert_laws();
        let mut total = 0;
        let mut armed = 0;
        let (mut objects, mut held, mut native) = (0, 0, 0);
        for (index, keys) in self.tables.iter().enumerate() {
            keys.table.assert_laws(|id| hash(self.arena.key(id)) as u32);
            let mut deadlines = 0;
            for id in keys.table.ids() {
                let key = self.arena.key(id);
                assert_eq!(
                    usize::from(self.arena.table(id)),
                    index,
                    "{key:?}: the table it names is the one it is in"
                );
                let has_timer = self.arena.deadline_ms(id) != NO_DEADLINE;
                assert_eq!(self.arena.timer(id).is_armed(), has_timer, "{key:?}: a timer iff a deadline");
                self.assert_timer_laws(EntryId(id));
                armed += usize::from(has_timer);
                deadlines += usize::from(self.deadline(EntryId(id)).is_some());
                held += usize::from(self.arena.is_granted(id));
                native += usize::from(self.is_native(EntryId(id)));
                if let Some(object) = self.object(EntryId(id)) {
                    assert!(!object.shape().is_empty(), "{key:?}: an object without elements");
                    objects += 1;
                }
            }
            assert_eq!(deadlines, keys.deadlines, "table {index}: entries with a deadline");
            let db = self.database_of[index];
            assert_eq!(usize::from(self.table_of[usize::from(db)]), index, "database {db}: one table");
            total += keys.table.len();
        }
        let table_bytes: usize = self.tables.iter().map(|keys| keys.table.heap_bytes()).sum();
        assert_eq!(table_bytes, self.table_bytes, "bytes of tables");
        let object_bytes: usize = self.objects.iter().map(|(_, object)| object.shape().heap_bytes()).sum();
        assert_eq!(object_bytes, self.object_bytes(), "bytes of objects");
        assert_eq!(total, self.arena.len(), "every entry is in one table");
        assert_eq!(objects, self.objects.len(), "every object has an entry");
        self.granted.assert_laws(held, native);
        assert_eq!(self.wheel.is_empty(), armed == 0, "timers iff deadlines");
        self.wheel.assert_laws(&self.arena, armed);
    }

    fn keys(&self, db: u16) -> &Database {
        &self.tables[usize::from(self.table_of[usize::from(db)])]
    }

    fn arm(&mut self, id: u32) {
        self.wheel.catch_up(self.time);
        self.wheel.arm(id, &mut self.arena);
    }

    /// Updates the table and the wheel if an entry has another id.
    fn renamed(&mut self, old: EntryId, hash: u64, new: u32) -> EntryId {
        if new != old.0 {
            let table = &mut self.tables[usize::from(self.arena.table(new))].table;
            let was_here = table.rename(hash as u32, old.0, new);
            debug_assert!(was_here, "{old:?}: renamed with the hash of another key");
            self.wheel.rename(new, &mut self.arena);
        }
        EntryId(new)
    }
}

fn millis(deadline: Option<Deadline>) -> u64 {
    deadline.map_or(NO_DEADLINE, |deadline| deadline.as_millis().min(NO_DEADLINE - 1))
}

/// The most databases a server can have.
pub const DATABASES_MAX: usize = TABLES_MAX;

#[cfg(test)]
mod tests;
