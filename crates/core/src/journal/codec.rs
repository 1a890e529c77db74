//! Mutations as bytes, and back.
//!
//! Owns    the form of a [`Mutation`] on disk. The tags, and the order of the fields here, are version 4 of that form: a
//!         change of either needs another version of the journal.
//! Rule    a mutation is one tag byte and its fields. A number is a LEB128 varint, lowest bits first; bytes are their length
//!         and themselves; an option is 0, or 1 and its value; a score is the eight bytes of its bits, lowest first.
//! Rule    decoding is total: any bytes are a mutation or a [`DecodeError`]. It takes linear time, and no count that the
//!         bytes name is believed before as many elements were read.

use bytes::{Buf, BufMut, Bytes};
use redlatch_proto::clock::{Deadline, LockTime};

use super::{Edit, HashEdit, ListEdit, LockEdit, Mutation, SetEdit, SortedSetEdit, StreamEdit};
use crate::state::wait::Place;
use crate::types::list::End;
use crate::types::lock::{Grant, GrantDetails, Holder, LockKind};
use crate::types::stream::StreamId;
use crate::types::{Element, Hash, List, Lock, Object, Seed, Set, Shape, SortedSet, Stream};

/// Why bytes are not decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are no mutation.
    #[error("the bytes are no entry of a journal")]
    Damaged,
    /// An earlier program has written what this one cannot keep.
    #[error("holds {0}, which this program no longer supports")]
    Removed(&'static str),
}

pub(super) use DecodeError::Damaged;

/// Appends the bytes of a mutation.
pub fn encode(mutation: &Mutation<impl AsRef<[u8]>>, out: &mut Vec<u8>) {
    match mutation {
        Mutation::Clear { database } => {
            out.put_u8(tag::CLEAR);
            put_number(out, (*database).into());
        }
        Mutation::Edit { database, key, edit } => {
            put_head(out, tag::EDIT, *database, key);
            put_edit(out, edit);
        }
        Mutation::Grant { database, key, grant, details } => {
            let Grant { token, holder, since, lease_ms, renewals, is_native } = grant;
            put_head(out, tag::GRANT, *database, key);
            put_number(out, *token);
            put_number(out, *holder);
            put_number(out, since.as_millis());
            put_option(out, *lease_ms, |out, lease_ms| put_number(out, lease_ms.into()));
            let has_renewals = *renewals > 0;
            out.put_u8(u8::from(*is_native) | u8::from(has_renewals) << 1);
            if has_renewals {
                out.put_u8(*renewals);
            }
            put_session(out, details.session);
            put_words(out, details.meta.iter());
        }
        Mutation::Place { database, key, owner, place } => {
            put_head(out, tag::RANKED_PLACE, *database, key);
            put_bytes(out, owner);
            put_option(out, *place, |out, place| {
                put_number(out, place.number);
                put_number(out, place.rank.cast_unsigned());
            });
        }
        Mutation::PutObject { database, key, object, deadline } => {
            put_head(out, tag::PUT_OBJECT, *database, key);
            put_deadline(out, *deadline);
            put_object(out, object);
        }
        Mutation::Put { database, key, value, deadline } => {
            put_head(out, tag::PUT, *database, key);
            put_deadline(out, *deadline);
            put_bytes(out, value);
        }
        Mutation::Remove { database, key, expired } => {
            put_head(out, if *expired { tag::EXPIRE } else { tag::REMOVE }, *database, key);
        }
        Mutation::SetDeadline { database, key, deadline } => {
            put_head(out, tag::SET_DEADLINE, *database, key);
            put_deadline(out, *deadline);
        }
        Mutation::Swap { a, b } => {
            out.put_u8(tag::SWAP);
            put_number(out, (*a).into());
            put_number(out, (*b).into());
        }
    }
}

/// Removes the bytes of one mutation from the front. Its key and value are slices of `from`.
///
/// What an object keeps is copied, so that no object keeps the whole journal in memory.
///
/// # Errors
/// The bytes are no mutation; how many of them were removed is not determined.
pub fn decode(from: &mut Bytes, seed: Seed) -> Result<Mutation, DecodeError> {
    let mut reader = Reader { from, seed };
    let tag = reader.byte()?;
    let database = reader.database()?;
    Ok(match tag {
        tag::CLEAR => Mutation::Clear { database },
        tag::EDIT => Mutation::Edit { database, key: reader.bytes()?, edit: reader.edit()? },
        tag::GRANT => {
            let key = reader.bytes()?;
            let (token, holder, since) = (reader.number()?, reader.number()?, reader.time()?);
            let (lease_ms, flags) = (reader.option(Reader::small)?, reader.byte()?);
            // Version 1 has no renewals.
            let renewals = match flags {
                0 | 1 => 0,
                2 | 3 => reader.byte()?,
                _ => return Err(Damaged),
            };
            let is_native = flags & 1 != 0;
            let grant = Grant { token, holder, since, lease_ms, renewals, is_native };
            let details = GrantDetails { session: reader.session()?, meta: reader.kept_words()? };
            Mutation::Grant { database, key, grant, details }
        }
        tag::PLACE | tag::RANKED_PLACE => {
            let (key, owner) = (reader.bytes()?, reader.bytes()?);
            let place = reader.option(|reader| {
                let number = reader.number()?;
                // Before version 4, the order is that of arrival: a replay knows when.
                let rank = if tag == tag::PLACE { i64::MAX } else { reader.number()?.cast_signed() };
                Ok(Place { rank, number })
            })?;
            Mutation::Place { database, key, owner, place }
        }
        tag::PUT_OBJECT => {
            let (key, deadline) = (reader.bytes()?, reader.deadline()?);
            Mutation::PutObject { database, key, object: reader.object()?, deadline }
        }
        tag::PUT => {
            let (key, deadline) = (reader.bytes()?, reader.deadline()?);
            Mutation::Put { database, key, value: reader.bytes()?, deadline }
        }
        tag::REMOVE => Mutation::Remove { database, key: reader.bytes()?, expired: false },
        tag::EXPIRE => Mutation::Remove { database, key: reader.bytes()?, expired: true },
        tag::SET_DEADLINE => {
            Mutation::SetDeadline { database, key: reader.bytes()?, deadline: reader.deadline()? }
        }
        tag::SWAP => Mutation::Swap { a: database, b: reader.database()? },
        _ => return Err(Damaged),
    })
}

/// The first byte of each mutation, edit, object and lesser choice. 0 is none of them: zeroed bytes are no mutation.
mod tag {
    pub(super) const CLEAR: u8 = 1;
    pub(super) const EDIT: u8 = 2;
    pub(super) const GRANT: u8 = 3;
    pub(super) const PUT_OBJECT: u8 = 4;
    pub(super) const PUT: u8 = 5;
    pub(super) const REMOVE: u8 = 6;
    pub(super) const EXPIRE: u8 = 7;
    pub(super) const SET_DEADLINE: u8 = 8;
    pub(super) const SWAP: u8 = 9;
    pub(super) const PLACE: u8 = 10;
    pub(super) const RANKED_PLACE: u8 = 11;

    pub(super) const HASH_DEADLINE: u8 = 1;
    pub(super) const HASH_REMOVE: u8 = 2;
    pub(super) const HASH_SET: u8 = 3;
    pub(super) const LIST_DROP: u8 = 4;
    pub(super) const LIST_INSERT: u8 = 5;
    pub(super) const LIST_KEEP: u8 = 6;
    pub(super) const LIST_PUSH: u8 = 7;
    pub(super) const LIST_REMOVE: u8 = 8;
    pub(super) const LIST_SET: u8 = 9;
    pub(super) const LOCK_PUT: u8 = 10;
    pub(super) const LOCK_REMOVE: u8 = 11;
    pub(super) const SET_INSERT: u8 = 12;
    pub(super) const SET_REMOVE: u8 = 13;
    pub(super) const SORTED_SET_INSERT: u8 = 14;
    pub(super) const SORTED_SET_REMOVE: u8 = 15;
    pub(super) const SORTED_SET_REMOVE_RANGE: u8 = 16;
    pub(super) const STREAM_APPEND: u8 = 17;
    pub(super) const STREAM_DELETE: u8 = 18;
    pub(super) const STREAM_TRIM: u8 = 19;

    pub(super) const HASH: u8 = 1;
    pub(super) const LIST: u8 = 2;
    pub(super) const LOCK: u8 = 3;
    pub(super) const SET: u8 = 4;
    pub(super) const SORTED_SET: u8 = 5;
    pub(super) const STREAM: u8 = 6;

    pub(super) const EXCLUSIVE: u8 = 1;
    pub(super) const REENTRANT: u8 = 2;
    pub(super) const SHARED: u8 = 3;
    pub(super) const PERMITS: u8 = 4;

    pub(super) const KEEP_LAST: u8 = 1;
    pub(super) const KEEP_FROM: u8 = 2;

    pub(super) const HEAD: u8 = 1;
    pub(super) const TAIL: u8 = 2;
}

fn put_head(out: &mut Vec<u8>, tag: u8, database: u16, key: &impl AsRef<[u8]>) {
    out.put_u8(tag);
    put_number(out, database.into());
    put_bytes(out, key);
}

fn put_edit(out: &mut Vec<u8>, edit: &Edit<impl AsRef<[u8]>>) {
    match edit {
        Edit::Hash(edit) => put_hash_edit(out, edit),
        Edit::List(edit) => put_list_edit(out, edit),
        Edit::Lock(LockEdit::Put(kind, owner, holder)) => {
            out.put_u8(tag::LOCK_PUT);
            put_kind(out, *kind);
            put_holder(out, owner, holder);
        }
        Edit::Lock(LockEdit::Remove(owner)) => put_tagged(out, tag::LOCK_REMOVE, owner),
        Edit::Set(SetEdit::Insert(member)) => put_tagged(out, tag::SET_INSERT, member),
        Edit::Set(SetEdit::Remove(member)) => put_tagged(out, tag::SET_REMOVE, member),
        Edit::SortedSet(SortedSetEdit::Insert { member, score }) => {
            put_tagged(out, tag::SORTED_SET_INSERT, member);
            out.put_u64_le(score.to_bits());
        }
        Edit::SortedSet(SortedSetEdit::Remove(member)) => put_tagged(out, tag::SORTED_SET_REMOVE, member),
        Edit::SortedSet(SortedSetEdit::RemoveRange { from, to }) => {
            out.put_u8(tag::SORTED_SET_REMOVE_RANGE);
            put_count(out, *from);
            put_count(out, *to);
        }
        Edit::Stream(edit) => put_stream_edit(out, edit),
    }
}

fn put_hash_edit(out: &mut Vec<u8>, edit: &HashEdit<impl AsRef<[u8]>>) {
    match edit {
        HashEdit::Remove(field) => put_tagged(out, tag::HASH_REMOVE, field),
        HashEdit::Set(field, value) => {
            put_tagged(out, tag::HASH_SET, field);
            put_bytes(out, value);
        }
    }
}

fn put_list_edit(out: &mut Vec<u8>, edit: &ListEdit<impl AsRef<[u8]>>) {
    match edit {
        ListEdit::Drop { end, count } => {
            out.put_u8(tag::LIST_DROP);
            put_end(out, *end);
            put_count(out, *count);
        }
        ListEdit::Insert { index, element } => {
            put_tagged(out, tag::LIST_INSERT, element);
            put_count(out, *index);
        }
        ListEdit::Keep { start, end } => {
            out.put_u8(tag::LIST_KEEP);
            put_count(out, *start);
            put_count(out, *end);
        }
        ListEdit::Push { end, element } => {
            put_tagged(out, tag::LIST_PUSH, element);
            put_end(out, *end);
        }
        ListEdit::Remove { element, end, count } => {
            put_tagged(out, tag::LIST_REMOVE, element);
            put_end(out, *end);
            put_count(out, *count);
        }
        ListEdit::Set { index, element } => {
            put_tagged(out, tag::LIST_SET, element);
            put_count(out, *index);
        }
    }
}

fn put_stream_edit(out: &mut Vec<u8>, edit: &StreamEdit<impl AsRef<[u8]>>) {
    match edit {
        StreamEdit::Append { id, words } => {
            out.put_u8(tag::STREAM_APPEND);
            put_id(out, *id);
            put_words(out, words.iter());
        }
        StreamEdit::Trim { len_max } => {
            out.put_u8(tag::STREAM_TRIM);
            out.put_u8(tag::KEEP_LAST);
            put_number(out, *len_max);
            // A limit, which earlier programs had.
            put_number(out, 0);
        }
    }
}

/// Writes an object. Its kind of storage is written too where a client may see it and the elements do not determine it.
fn put_object(out: &mut Vec<u8>, object: &Object) {
    match object {
        Object::Hash(hash) => {
            out.put_u8(tag::HASH);
            out.put_u8((hash.encoding() == "hashtable").into());
            put_count(out, hash.len());
            for (field, value) in hash.iter() {
                put_bytes(out, field);
                put_bytes(out, value);
                // Earlier programs had deadlines of fields.
                put_deadline(out, None);
            }
        }
        Object::List(list) => {
            out.put_u8(tag::LIST);
            put_words(out, list.iter());
        }
        Object::Lock(lock) => {
            out.put_u8(tag::LOCK);
            put_kind(out, lock.kind());
            put_count(out, lock.len());
            lock.holders().for_each(|(owner, holder)| put_holder(out, owner, holder));
        }
        Object::Set(set) => {
            out.put_u8(tag::SET);
            out.put_u8((!set.is_integers()).into());
            put_count(out, set.len());
            set.iter().for_each(|member| member.with_bytes(|member| put_bytes(out, member)));
        }
        Object::SortedSet(set) => {
            out.put_u8(tag::SORTED_SET);
            out.put_u8((set.encoding() == "skiplist").into());
            put_count(out, set.len());
            for (member, score) in set.entries() {
                put_bytes(out, member);
                out.put_u64_le(score.to_bits());
            }
        }
        Object::Stream(stream) => {
            out.put_u8(tag::STREAM);
            put_id(out, stream.last_id());
            put_count(out, stream.len());
            for (id, words) in stream.entries() {
                put_id(out, id);
                put_words(out, words.iter().map(Element::as_bytes));
            }
        }
    }
}

fn put_kind(out: &mut Vec<u8>, kind: LockKind) {
    match kind {
        LockKind::Exclusive => out.put_u8(tag::EXCLUSIVE),
        LockKind::Reentrant => out.put_u8(tag::REENTRANT),
        LockKind::Shared => out.put_u8(tag::SHARED),
        LockKind::Permits(limit) => {
            out.put_u8(tag::PERMITS);
            put_number(out, limit.into());
        }
    }
}

fn put_holder(out: &mut Vec<u8>, owner: &impl AsRef<[u8]>, holder: &Holder) {
    let Holder { token, client, permits, since, deadline, lease_ms, renewals, session, meta } = holder;
    put_bytes(out, owner);
    put_number(out, *token);
    put_number(out, *client);
    put_number(out, (*permits).into());
    put_number(out, since.as_millis());
    put_deadline(out, *deadline);
    put_option(out, *lease_ms, put_number);
    put_number(out, (*renewals).into());
    put_session(out, *session);
    put_words(out, meta.iter());
}

fn put_session(out: &mut Vec<u8>, session: Option<(u64, u64)>) {
    put_option(out, session, |out, (session, linger_ms)| {
        put_number(out, session);
        put_number(out, linger_ms);
    });
}

fn put_tagged(out: &mut Vec<u8>, tag: u8, bytes: &impl AsRef<[u8]>) {
    out.put_u8(tag);
    put_bytes(out, bytes);
}

fn put_words(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item: AsRef<[u8]>>) {
    put_count(out, words.len());
    words.for_each(|word| put_bytes(out, word));
}

fn put_end(out: &mut Vec<u8>, end: End) {
    out.put_u8(match end {
        End::Head => tag::HEAD,
        End::Tail => tag::TAIL,
    });
}

fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_number(out, id.ms);
    put_number(out, id.seq);
}

fn put_deadline(out: &mut Vec<u8>, deadline: Option<Deadline>) {
    put_option(out, deadline, |out, deadline| put_number(out, deadline.as_millis()));
}

fn put_option<T>(out: &mut Vec<u8>, option: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    out.put_u8(option.is_some().into());
    if let Some(value) = option {
        put(out, value);
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    put_count(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    put_number(out, count as u64);
}

/// Appends a number as a varint: seven bits a byte, lowest first, the high bit set in every byte but the last.
pub(super) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Removes a varint from the front.
///
/// # Errors
/// The bytes end too early, or the number has more than 64 bits.
pub(super) fn take_number(from: &mut Bytes) -> Result<u64, DecodeError> {
    let mut number = 0;
    for (place, byte) in from.iter().take(VARINT_BYTES_MAX).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if bits << (7 * place) >> (7 * place) != bits {
            return Err(Damaged);
        }
        number |= bits << (7 * place);
        if byte & 0x80 == 0 {
            from.advance(place + 1);
            return Ok(number);
        }
    }
    Err(Damaged)
}

/// Bytes of the longest varint.
const VARINT_BYTES_MAX: usize = 10;

/// A deadline of a hash field, which no command sets any more.
const FIELD_DEADLINE: DecodeError = DecodeError::Removed("a lease of a hash field (HEXPIRE)");

/// A removal of entries that no command makes any more.
const STREAM_REMOVAL: DecodeError = DecodeError::Removed("a removal by XDEL or MINID");

/// Reads fields from the front of the bytes.
struct Reader<'a> {
    from: &'a mut Bytes,
    seed: Seed,
}

impl Reader<'_> {
    fn edit(&mut self) -> Result<Edit, DecodeError> {
        Ok(match self.byte()? {
            tag::HASH_DEADLINE => return Err(FIELD_DEADLINE),
            tag::HASH_REMOVE => Edit::Hash(HashEdit::Remove(self.bytes()?)),
            tag::HASH_SET => Edit::Hash(HashEdit::Set(self.bytes()?, self.bytes()?)),
            tag @ tag::LIST_DROP..=tag::LIST_SET => Edit::List(self.list_edit(tag)?),
            tag::LOCK_PUT => {
                let kind = self.kind()?;
                let (owner, holder) = self.holder()?;
                Edit::Lock(LockEdit::Put(kind, owner, holder))
            }
            tag::LOCK_REMOVE => Edit::Lock(LockEdit::Remove(self.bytes()?)),
            tag::SET_INSERT => Edit::Set(SetEdit::Insert(self.bytes()?)),
            tag::SET_REMOVE => Edit::Set(SetEdit::Remove(self.bytes()?)),
            tag::SORTED_SET_INSERT => {
                Edit::SortedSet(SortedSetEdit::Insert { member: self.bytes()?, score: self.score()? })
            }
            tag::SORTED_SET_REMOVE => Edit::SortedSet(SortedSetEdit::Remove(self.bytes()?)),
            tag::SORTED_SET_REMOVE_RANGE => {
                let (from, to) = self.range()?;
                Edit::SortedSet(SortedSetEdit::RemoveRange { from, to })
            }
            tag @ tag::STREAM_APPEND..=tag::STREAM_TRIM => Edit::Stream(self.stream_edit(tag)?),
            _ => return Err(Damaged),
        })
    }

    fn list_edit(&mut self, tag: u8) -> Result<ListEdit, DecodeError> {
        Ok(match tag {
            tag::LIST_DROP => ListEdit::Drop { end: self.end()?, count: self.index()? },
            tag::LIST_INSERT => ListEdit::Insert { element: self.bytes()?, index: self.index()? },
            tag::LIST_KEEP => {
                let (start, end) = self.range()?;
                ListEdit::Keep { start, end }
            }
            tag::LIST_PUSH => ListEdit::Push { element: self.bytes()?, end: self.end()? },
            tag::LIST_REMOVE => {
                ListEdit::Remove { element: self.bytes()?, end: self.end()?, count: self.index()? }
            }
            tag::LIST_SET => ListEdit::Set { element: self.bytes()?, index: self.index()? },
            _ => return Err(Damaged),
        })
    }

    fn stream_edit(&mut self, tag: u8) -> Result<StreamEdit, DecodeError> {
        Ok(match tag {
            tag::STREAM_APPEND => {
                let (id, words) = (self.id()?, self.words()?);
                if id == StreamId::MIN || words.len() % 2 != 0 {
                    return Err(Damaged);
                }
                StreamEdit::Append { id, words }
            }
            tag::STREAM_TRIM => match self.byte()? {
                tag::KEEP_LAST => {
                    let len_max = self.number()?;
                    self.number()?;
                    StreamEdit::Trim { len_max }
                }
                tag::KEEP_FROM => return Err(STREAM_REMOVAL),
                _ => return Err(Damaged),
            },
            tag::STREAM_DELETE => return Err(STREAM_REMOVAL),
            _ => return Err(Damaged),
        })
    }

    /// An object that is not empty.
    fn object(&mut self) -> Result<Object, DecodeError> {
        let object = match self.byte()? {
            tag::HASH => self.hash()?.into(),
            tag::LIST => self.list()?.into(),
            tag::LOCK => self.lock()?.into(),
            tag::SET => self.set()?.into(),
            tag::SORTED_SET => self.sorted_set()?.into(),
            tag::STREAM => self.stream()?.into(),
            _ => return Err(Damaged),
        };
        let object: Object = object;
        if object.shape().is_empty() { Err(Damaged) } else { Ok(object) }
    }

    fn hash(&mut self) -> Result<Hash, DecodeError> {
        let mut hash = Hash::new(self.seed);
        if self.flag()? {
            hash.become_table();
        }
        for _ in 0..self.count()? {
            let (field, value, deadline) = (self.bytes()?, self.bytes()?, self.deadline()?);
            if deadline.is_some() {
                return Err(FIELD_DEADLINE);
            }
            if !hash.set(&field, &value) {
                return Err(Damaged);
            }
        }
        Ok(hash)
    }

    fn list(&mut self) -> Result<List, DecodeError> {
        let mut list = List::new();
        for _ in 0..self.count()? {
            list.push(End::Tail, &self.bytes()?);
        }
        Ok(list)
    }

    fn lock(&mut self) -> Result<Lock, DecodeError> {
        let (mut lock, kind) = (Lock::new(self.seed), self.kind()?);
        for _ in 0..self.count()? {
            let (owner, holder) = self.holder()?;
            if lock.holder(&owner).is_some() {
                return Err(Damaged);
            }
            lock.put(kind, &owner, holder);
        }
        Ok(lock)
    }

    fn set(&mut self) -> Result<Set, DecodeError> {
        let mut set = Set::new(self.seed);
        if self.flag()? {
            set.become_table();
        }
        for _ in 0..self.count()? {
            if !set.insert(&self.bytes()?) {
                return Err(Damaged);
            }
        }
        Ok(set)
    }

    fn sorted_set(&mut self) -> Result<SortedSet, DecodeError> {
        let mut set = SortedSet::new(self.seed);
        if self.flag()? {
            set.become_skiplist();
        }
        for _ in 0..self.count()? {
            let (member, score) = (self.bytes()?, self.score()?);
            if set.insert(&member, score).is_some() {
                return Err(Damaged);
            }
        }
        Ok(set)
    }

    fn stream(&mut self) -> Result<Stream, DecodeError> {
        let (mut stream, last_id) = (Stream::new(), self.id()?);
        for _ in 0..self.count()? {
            let (id, words) = (self.id()?, self.words()?);
            if id <= stream.last_id() || words.len() % 2 != 0 {
                return Err(Damaged);
            }
            let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
            stream.append(id, &words);
        }
        if last_id < stream.last_id() {
            return Err(Damaged);
        }
        stream.raise_last_id(last_id);
        Ok(stream)
    }

    fn kind(&mut self) -> Result<LockKind, DecodeError> {
        Ok(match self.byte()? {
            tag::EXCLUSIVE => LockKind::Exclusive,
            tag::REENTRANT => LockKind::Reentrant,
            tag::SHARED => LockKind::Shared,
            tag::PERMITS => LockKind::Permits(self.small()?),
            _ => return Err(Damaged),
        })
    }

    /// An owner and what is known of it. A lock keeps both, so both are copied.
    fn holder(&mut self) -> Result<(Bytes, Holder), DecodeError> {
        let owner = Bytes::copy_from_slice(&self.bytes()?);
        let holder = Holder {
            token: self.number()?,
            client: self.number()?,
            permits: self.small()?,
            since: self.time()?,
            deadline: self.deadline()?,
            lease_ms: self.option(Self::number)?,
            renewals: self.small()?,
            session: self.session()?,
            meta: self.kept_words()?,
        };
        Ok((owner, holder))
    }

    fn session(&mut self) -> Result<Option<(u64, u64)>, DecodeError> {
        self.option(|reader| Ok((reader.number()?, reader.number()?)))
    }

    fn kept_words(&mut self) -> Result<Box<[Bytes]>, DecodeError> {
        Ok(self.words()?.iter().map(|word| Bytes::copy_from_slice(word)).collect())
    }

    fn words(&mut self) -> Result<Vec<Bytes>, DecodeError> {
        (0..self.count()?).map(|_| self.bytes()).collect()
    }

    fn end(&mut self) -> Result<End, DecodeError> {
        match self.byte()? {
            tag::HEAD => Ok(End::Head),
            tag::TAIL => Ok(End::Tail),
            _ => Err(Damaged),
        }
    }

    fn id(&mut self) -> Result<StreamId, DecodeError> {
        Ok(StreamId { ms: self.number()?, seq: self.number()? })
    }

    fn score(&mut self) -> Result<f64, DecodeError> {
        let score = f64::from_bits(self.from.try_get_u64_le().map_err(|_| Damaged)?);
        if score.is_nan() { Err(Damaged) } else { Ok(score) }
    }

    /// The ends of a range. The second is not below the first.
    fn range(&mut self) -> Result<(usize, usize), DecodeError> {
        let (from, to) = (self.index()?, self.index()?);
        if from <= to { Ok((from, to)) } else { Err(Damaged) }
    }

    fn deadline(&mut self) -> Result<Option<Deadline>, DecodeError> {
        self.option(|reader| reader.time().map(Deadline::at))
    }

    fn time(&mut self) -> Result<LockTime, DecodeError> {
        self.number().map(LockTime::from_millis)
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        Ok(if self.flag()? { Some(read(self)?) } else { None })
    }

    fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Damaged),
        }
    }

    fn bytes(&mut self) -> Result<Bytes, DecodeError> {
        let len = self.count()?;
        Ok(self.from.split_to(len))
    }

    /// A number of elements that follow, each of at least one byte: it is not above the number of the bytes.
    fn count(&mut self) -> Result<usize, DecodeError> {
        let count = self.index()?;
        if count <= self.from.len() { Ok(count) } else { Err(Damaged) }
    }

    fn index(&mut self) -> Result<usize, DecodeError> {
        self.number()?.try_into().map_err(|_| Damaged)
    }

    fn database(&mut self) -> Result<u16, DecodeError> {
        self.number()?.try_into().map_err(|_| Damaged)
    }

    fn small(&mut self) -> Result<u32, DecodeError> {
        self.number()?.try_into().map_err(|_| Damaged)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        take_number(self.from)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.from.try_get_u8().map_err(|_| Damaged)
    }
}

#[cfg(test)]
mod tests;
