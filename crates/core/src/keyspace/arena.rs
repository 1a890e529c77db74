//! The memory of the entries: header, key and value of one entry side by side in one range of bytes.
//!
//! Owns    the pages, each an array of slots of one size, and every byte of every entry.
//! Knows   `block`; `wheel`, for the links of a timer; the form of a grant. Nothing of hashes or databases beyond a
//!         number it keeps.
//!
//! An entry costs [`HEADER_BYTES`], its key, its value, and at most a few bytes up to the next slot size. An entry that
//! is larger than the largest slot has a dedicated page, which grows by half. The memory of a page is touched
//! as its slots are first used. A page without entries is freed, except the last page of its slot size.

use prefetch_index::prefetch_index;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::block::Block;
use crate::locks::record::Packed;
use crate::wheel::{HEADS_FROM, Timer, Timers};

/// The pages of one shard.
#[derive(Debug)]
pub(super) struct Arena {
    pages: Vec<Page>,
    /// Numbers of pages that have been freed.
    vacant: Vec<u32>,
    /// For each slot size, the first of its partial pages: those that have a free slot.
    partial: [u32; STRIDES.len()],
    len: usize,
    /// Bytes of pages that have been touched.
    touched_bytes: usize,
}

/// The metadata of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryMeta {
    /// Its last millisecond; [`NO_DEADLINE`] if it never expires.
    pub(super) deadline_ms: u64,
    /// When it was last accessed, in seconds of the caller's clock.
    pub(super) stamp: u32,
    /// The number of its table; below [`TABLES_MAX`].
    pub(super) table: u16,
}

/// The fixed part of an entry. Nothing in it is aligned, so that entries pack densely.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    deadline_ms: U64,
    timer_prev: U32,
    timer_next: U32,
    stamp: U32,
    /// The table in the lower 12 bits; [`GRANTED`] and [`NATIVE`]; the highest two bits: the value's form.
    tag: U16,
    /// Who holds the lock, if the entry is [`GRANTED`].
    grant: Packed,
    /// In a page of slots: the length of the key, the length of the value. In a dedicated page: the two halves of the
    /// length of the key; the value is the rest.
    lengths: [U16; 2],
}

#[derive(Debug)]
struct Page {
    bytes: Block,
    /// Bytes of the slots used so far; zero in a dedicated page.
    used: u32,
    /// Bytes of one slot; in a dedicated page those of the entry.
    stride: u32,
    /// Neighbours in the list of partial pages of this slot size.
    partial_prev: u32,
    partial_next: u32,
    /// The first free slot. Each free slot holds the number of the next in its first two bytes.
    free: u16,
    live: u16,
    /// Index of `stride` in [`STRIDES`], or [`DEDICATED`].
    class: u8,
}

impl Arena {
    /// An arena without entries. It allocates nothing until it gets one.
    pub(super) const fn new() -> Self {
        let partial = [NO_PAGE; STRIDES.len()];
        Self { pages: Vec::new(), vacant: Vec::new(), partial, len: 0, touched_bytes: 0 }
    }

    /// Stores an entry, its timer cut, and returns its id, which is below [`HEADS_FROM`].
    ///
    /// # Panics
    /// With more than 2^21 pages, which is 128 GiB of slots.
    pub(super) fn insert(&mut self, meta: EntryMeta, key: &[u8], value: &[u8]) -> u32 {
        let id = self.allocate(HEADER_BYTES + key.len() + value.len());
        let (page, at) = self.locate_mut(id);
        let mut header = Header {
            deadline_ms: meta.deadline_ms.into(),
            timer_prev: Timer::CUT.prev.into(),
            timer_next: Timer::CUT.next.into(),
            stamp: meta.stamp.into(),
            tag: (meta.table & TABLE_BITS).into(),
            grant: Packed::NONE,
            lengths: [U16::ZERO; 2],
        };
        header.set_lengths(page.class, key.len(), value.len());

        let range = &mut page.bytes[at..];
        range[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        range[HEADER_BYTES..][..key.len()].copy_from_slice(key);
        range[HEADER_BYTES + key.len()..][..value.len()].copy_from_slice(value);
        id
    }

    /// Removes an entry. Its id may be reused.
    pub(super) fn remove(&mut self, id: u32) {
        let number = id >> SLOT_BITS;
        self.len -= 1;
        if self.len == 0 && self.pages.len() > PAGES_KEPT_MAX {
            *self = Self::new();
            return;
        }

        let page = &mut self.pages[number as usize];
        if page.class == DEDICATED {
            self.free_page(number);
            return;
        }
        let was_full = !page.has_free_slot();
        let at = page.offset(id);
        page.bytes[at..at + 2].copy_from_slice(&page.free.to_le_bytes());
        page.free = (id & SLOT_MASK) as u16;
        page.live -= 1;
        let is_empty = page.live == 0;
        if was_full {
            self.link_partial(number);
        }
        if is_empty {
            self.retire(number);
        }
    }

    /// Gives the value a new length: keeps its first `keep` bytes, fills the rest with zeros.
    ///
    /// Returns the new id of the entry. If the id has changed, the header has been copied, and the caller
    /// updates the table and the wheel. A new slot is larger by `spare` bytes, so that the value can grow in place.
    pub(super) fn resize(&mut self, id: u32, len: usize, keep: usize, spare: usize) -> u32 {
        let (page, at) = self.locate(id);
        let (key_len, value_len) = page.header(at).lengths(page);
        let need = HEADER_BYTES + key_len + len;
        let keep = HEADER_BYTES + key_len + keep.min(value_len).min(len);
        if page.class == DEDICATED && need > STRIDE_MAX {
            self.resize_dedicated(id, need, keep);
            return id;
        }
        let stride = page.stride as usize;
        let wasteful = spare == 0 && need * 2 < stride && stride > SHRINK_FROM;
        if page.class != DEDICATED && need <= stride && !wasteful {
            let (page, at) = self.locate_mut(id);
            page.bytes[at + keep..at + need].fill(0);
            let class = page.class;
            page.header_mut(at).set_lengths(class, key_len, len);
            return id;
        }
        self.relocate(id, key_len, len, keep, spare)
    }

    /// The value, to be changed in place; its length stays.
    pub(super) fn value_mut(&mut self, id: u32) -> &mut [u8] {
        let (page, at) = self.locate_mut(id);
        let (key_len, value_len) = page.header(at).lengths(page);
        &mut page.bytes[at + HEADER_BYTES + key_len..][..value_len]
    }

    /// Sets the last millisecond of the entry; [`NO_DEADLINE`] if it never expires.
    pub(super) fn set_deadline_ms(&mut self, id: u32, deadline_ms: u64) {
        self.header_mut(id).deadline_ms = deadline_ms.into();
    }

    /// Sets the second of the last access.
    pub(super) fn set_stamp(&mut self, id: u32, stamp: u32) {
        self.header_mut(id).stamp = stamp.into();
    }

    /// Makes the entry a lock that was granted so.
    pub(super) fn set_grant(&mut self, id: u32, grant: Packed, is_native: bool) {
        let header = self.header_mut(id);
        let flags = if is_native { GRANTED | NATIVE } else { GRANTED };
        header.tag = (header.tag.get() & !NATIVE | flags).into();
        header.grant = grant;
    }

    /// The entry is no lock any more.
    pub(super) fn clear_grant(&mut self, id: u32) {
        let header = self.header_mut(id);
        header.tag = (header.tag.get() & !(GRANTED | NATIVE)).into();
    }

    /// The grant of an entry, to be changed, if the entry is a lock.
    pub(super) fn grant_mut(&mut self, id: u32) -> Option<&mut Packed> {
        let header = self.header_mut(id);
        (header.tag.get() & GRANTED != 0).then_some(&mut header.grant)
    }

    /// Removes every entry and frees all memory.
    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    /// The key of an entry.
    pub(super) fn key(&self, id: u32) -> &[u8] {
        let (page, at) = self.locate(id);
        let (key_len, _) = page.header(at).lengths(page);
        &page.bytes[at + HEADER_BYTES..][..key_len]
    }

    /// The value of an entry.
    pub(super) fn value(&self, id: u32) -> &[u8] {
        let (page, at) = self.locate(id);
        let (key_len, value_len) = page.header(at).lengths(page);
        &page.bytes[at + HEADER_BYTES + key_len..][..value_len]
    }

    /// Asks for the memory of an entry: its header and its key.
    #[inline]
    pub(super) fn prefetch(&self, id: u32) {
        let (page, at) = self.locate(id);
        prefetch_index(&*page.bytes, at);
        prefetch_index(&*page.bytes, at + LINE_BYTES);
    }

    /// The second of the last access.
    pub(super) fn stamp(&self, id: u32) -> u32 {
        self.header(id).stamp.get()
    }

    /// Sets two bits that the arena keeps for the shard. They are zero in a new entry.
    pub(super) fn set_form(&mut self, id: u32, form: u8) {
        let header = self.header_mut(id);
        let tag = header.tag.get() & !(0b11 << FORM_SHIFT);
        header.tag = (tag | u16::from(form & 0b11) << FORM_SHIFT).into();
    }

    /// The bits that [`Arena::set_form`] has set.
    pub(super) fn form(&self, id: u32) -> u8 {
        (self.header(id).tag.get() >> FORM_SHIFT) as u8
    }

    /// The grant of the entry and whether it is native, if the entry is a lock.
    pub(super) fn grant(&self, id: u32) -> Option<(&Packed, bool)> {
        let header = self.header(id);
        let tag = header.tag.get();
        (tag & GRANTED != 0).then_some((&header.grant, tag & NATIVE != 0))
    }

    /// Whether the entry is a lock.
    pub(super) fn is_granted(&self, id: u32) -> bool {
        self.header(id).tag.get() & GRANTED != 0
    }

    /// The number of the table the entry is in.
    pub(super) fn table(&self, id: u32) -> u16 {
        self.header(id).tag.get() & TABLE_BITS
    }

    /// Bytes that the entry takes: its slot, or its dedicated page.
    pub(super) fn bytes(&self, id: u32) -> usize {
        let (page, _) = self.locate(id);
        if page.class == DEDICATED { page.bytes.len() + size_of::<Page>() } else { page.stride as usize }
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory touched by the pages and their list.
    pub(super) fn heap_bytes(&self) -> usize {
        self.touched_bytes
            + self.pages.capacity() * size_of::<Page>()
            + self.vacant.capacity() * size_of::<u32>()
    }

    /// Panics if an invariant is broken. For tests.
    pub(super) fn assert_laws(&self) {
        let live: usize = self.pages.iter().map(|page| usize::from(page.live)).sum();
        assert_eq!(live, self.len, "as many live slots as entries");
        let touched: usize = self.pages.iter().map(Page::touched).sum();
        assert_eq!(touched, self.touched_bytes, "touched bytes");
        for (class, first) in self.partial.iter().enumerate() {
            let (mut number, mut prev) = (*first, NO_PAGE);
            while number != NO_PAGE {
                let page = &self.pages[number as usize];
                assert_eq!(
                    (page.class as usize, page.partial_prev),
                    (class, prev),
                    "page {number}: in its list"
                );
                assert!(page.has_free_slot(), "page {number}: a full page among the partial pages");
                (prev, number) = (number, page.partial_next);
            }
        }
        for (number, page) in self.pages.iter().enumerate().filter(|(_, page)| page.class != DEDICATED) {
            let used = page.used as usize / page.stride as usize;
            let mut free = 0;
            let mut slot = page.free;
            while slot != NO_SLOT {
                slot = page.next_free(slot);
                free += 1;
            }
            assert_eq!(used - free, usize::from(page.live), "page {number}: slots used, free and live");
        }
    }

    fn header(&self, id: u32) -> &Header {
        let (page, at) = self.locate(id);
        page.header(at)
    }

    fn header_mut(&mut self, id: u32) -> &mut Header {
        let (page, at) = self.locate_mut(id);
        page.header_mut(at)
    }

    fn locate(&self, id: u32) -> (&Page, usize) {
        let page = &self.pages[(id >> SLOT_BITS) as usize];
        (page, page.offset(id))
    }

    fn locate_mut(&mut self, id: u32) -> (&mut Page, usize) {
        let page = &mut self.pages[(id >> SLOT_BITS) as usize];
        let at = page.offset(id);
        (page, at)
    }

    /// Allocates a slot or a page for an entry of `need` bytes with its header, and counts it as live. The bytes of the
    /// slot are arbitrary.
    fn allocate(&mut self, need: usize) -> u32 {
        self.len += 1;
        let class = STRIDES.partition_point(|stride| usize::from(*stride) < need);
        if class == STRIDES.len() {
            let number = self.take_page(Page::dedicated(need));
            return number << SLOT_BITS;
        }

        let number = match self.partial[class] {
            NO_PAGE => {
                let number = self.take_page(Page::of_class(class));
                self.link_partial(number);
                number
            }
            number => number,
        };
        let page = &mut self.pages[number as usize];
        let (slot, fresh_bytes) = page.take_slot();
        let is_full = !page.has_free_slot();
        self.touched_bytes += fresh_bytes;
        if is_full {
            self.unlink_partial(number);
        }
        number << SLOT_BITS | u32::from(slot)
    }

    fn take_page(&mut self, page: Page) -> u32 {
        self.touched_bytes += page.touched();
        if let Some(number) = self.vacant.pop() {
            self.pages[number as usize] = page;
            return number;
        }
        let number = self.pages.len();
        assert!(number < PAGES_MAX, "a shard has fewer than {PAGES_MAX} pages");
        self.pages.push(page);
        number as u32
    }

    /// Frees the memory of a page that has no entry and is in no list.
    fn free_page(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        self.touched_bytes -= page.touched();
        *page = Page::vacant();
        self.vacant.push(number);
    }

    /// Frees a page that has lost its last entry, unless it is the only partial page of its slot size.
    fn retire(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        if page.partial_prev != NO_PAGE || page.partial_next != NO_PAGE {
            self.unlink_partial(number);
            self.free_page(number);
            return;
        }
        self.touched_bytes -= page.touched();
        page.used = 0;
        page.free = NO_SLOT;
    }

    fn link_partial(&mut self, number: u32) {
        let first = &mut self.partial[self.pages[number as usize].class as usize];
        let next = std::mem::replace(first, number);
        if next != NO_PAGE {
            self.pages[next as usize].partial_prev = number;
        }
        let page = &mut self.pages[number as usize];
        (page.partial_prev, page.partial_next) = (NO_PAGE, next);
    }

    fn unlink_partial(&mut self, number: u32) {
        let page = &mut self.pages[number as usize];
        let (class, prev, next) = (page.class, page.partial_prev, page.partial_next);
        (page.partial_prev, page.partial_next) = (NO_PAGE, NO_PAGE);
        match prev {
            NO_PAGE => self.partial[class as usize] = next,
            prev => self.pages[prev as usize].partial_next = next,
        }
        if next != NO_PAGE {
            self.pages[next as usize].partial_prev = prev;
        }
    }

    /// Changes the size of an entry in a dedicated page. Its first `keep` bytes stay.
    fn resize_dedicated(&mut self, id: u32, need: usize, keep: usize) {
        let page = &mut self.pages[(id >> SLOT_BITS) as usize];
        self.touched_bytes -= page.touched();
        let room = page.bytes.len();
        if need > room || need < room / 2 {
            // Half as much again, so that a value built byte by byte moves a few times only.
            let mut bytes = Block::zeroed(if need > room { need + need / 2 } else { need });
            bytes[..keep].copy_from_slice(&page.bytes[..keep]);
            page.bytes = bytes;
        } else {
            page.bytes[keep..need].fill(0);
        }
        page.stride = need as u32;
        self.touched_bytes += page.touched();
    }

    /// Moves an entry to a slot of another size, with its first `keep` bytes.
    fn relocate(&mut self, id: u32, key_len: usize, len: usize, keep: usize, spare: usize) -> u32 {
        let need = HEADER_BYTES + key_len + len;
        // A dedicated page gets spare room when it first grows.
        let with_spare = need.saturating_add(spare);
        let new = self.allocate(if with_spare <= STRIDE_MAX { with_spare } else { need });

        let numbers = [(id >> SLOT_BITS) as usize, (new >> SLOT_BITS) as usize];
        let [from, to] =
            self.pages.get_disjoint_mut(numbers).expect("slots of different sizes are in different pages");
        let (from_at, to_at) = (from.offset(id), to.offset(new));
        to.bytes[to_at..][..keep].copy_from_slice(&from.bytes[from_at..][..keep]);
        to.bytes[to_at..][keep..need].fill(0);
        let class = to.class;
        to.header_mut(to_at).set_lengths(class, key_len, len);
        self.remove(id);
        new
    }
}

impl Timers for Arena {
    fn timer(&self, id: u32) -> Timer {
        let header = self.header(id);
        Timer { prev: header.timer_prev.get(), next: header.timer_next.get() }
    }

    fn set_timer(&mut self, id: u32, timer: Timer) {
        let header = self.header_mut(id);
        header.timer_prev = timer.prev.into();
        header.timer_next = timer.next.into();
    }

    fn deadline_ms(&self, id: u32) -> u64 {
        self.header(id).deadline_ms.get()
    }
}

impl Header {
    fn set_lengths(&mut self, class: u8, key_len: usize, value_len: usize) {
        self.lengths = match class {
            DEDICATED => [U16::new(key_len as u16), U16::new((key_len >> 16) as u16)],
            _ => [U16::new(key_len as u16), U16::new(value_len as u16)],
        };
    }

    /// The lengths of key and value of an entry in `page`.
    fn lengths(&self, page: &Page) -> (usize, usize) {
        let [first, second] = &self.lengths;
        let (first, second) = (usize::from(first.get()), usize::from(second.get()));
        match page.class {
            DEDICATED => {
                let key_len = second << 16 | first;
                (key_len, page.stride as usize - HEADER_BYTES - key_len)
            }
            _ => (first, second),
        }
    }
}

impl Page {
    fn of_class(class: usize) -> Self {
        let stride = STRIDES[class];
        let bytes = Block::zeroed(slots_per_page(stride) * usize::from(stride));
        Self { bytes, stride: stride.into(), live: 0, class: class as u8, ..Self::vacant() }
    }

    /// A page for one entry of `need` bytes.
    fn dedicated(need: usize) -> Self {
        let stride = u32::try_from(need).expect("an entry is smaller than 4 GiB");
        Self { bytes: Block::zeroed(need), stride, live: 1, ..Self::vacant() }
    }

    const fn vacant() -> Self {
        Self {
            bytes: Block::empty(),
            used: 0,
            stride: 0,
            partial_prev: NO_PAGE,
            partial_next: NO_PAGE,
            free: NO_SLOT,
            live: 0,
            class: DEDICATED,
        }
    }

    /// Takes a free slot; returns it and how many bytes of it have never been touched.
    fn take_slot(&mut self) -> (u16, usize) {
        self.live += 1;
        let stride = self.stride as usize;
        match self.free {
            NO_SLOT => {
                let slot = self.used / self.stride;
                self.used += self.stride;
                (slot as u16, stride)
            }
            slot => {
                self.free = self.next_free(slot);
                (slot, 0)
            }
        }
    }

    fn has_free_slot(&self) -> bool {
        self.free != NO_SLOT
            || (self.used as usize) < slots_per_page(self.stride as u16) * self.stride as usize
    }

    fn next_free(&self, slot: u16) -> u16 {
        let at = usize::from(slot) * self.stride as usize;
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    fn offset(&self, id: u32) -> usize {
        (id & SLOT_MASK) as usize * self.stride as usize
    }

    fn header(&self, at: usize) -> &Header {
        let range = &self.bytes[at..at + HEADER_BYTES];
        Header::ref_from_bytes(range).expect("a header is any bytes of its length")
    }

    fn header_mut(&mut self, at: usize) -> &mut Header {
        let range = &mut self.bytes[at..at + HEADER_BYTES];
        Header::mut_from_bytes(range).expect("a header is any bytes of its length")
    }

    fn touched(&self) -> usize {
        if self.class == DEDICATED { self.bytes.len() } else { self.used as usize }
    }
}

const fn slots_per_page(stride: u16) -> usize {
    let slots = PAGE_BYTES / stride as usize;
    if slots < SLOTS_MAX { slots } else { SLOTS_MAX }
}

/// The slot sizes: close together for the sizes of locks, an eighth to a quarter apart above.
const fn strides() -> [u16; STRIDES_LEN] {
    let mut strides = [0; STRIDES_LEN];
    let (mut stride, mut index) = (STRIDE_MIN, 0);
    while stride <= STRIDE_MAX {
        strides[index] = stride as u16;
        stride += step_after(stride);
        index += 1;
    }
    assert!(index == STRIDES_LEN, "STRIDES_LEN counts the slot sizes");
    strides
}

const fn step_after(stride: usize) -> usize {
    match stride {
        0..128 => 2,
        128..256 => 8,
        256..512 => 16,
        512..1024 => 32,
        1024..2048 => 128,
        2048..4096 => 256,
        _ => 2048,
    }
}

/// A deadline that never passes.
pub(super) const NO_DEADLINE: u64 = u64::MAX;
/// How many tables an entry can name.
pub(super) const TABLES_MAX: usize = 1 << 12;
/// Bytes of an entry without its key and value.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes that come into a cache together.
const LINE_BYTES: usize = 64;

const TABLE_BITS: u16 = TABLES_MAX as u16 - 1;
/// The entry is a lock, and its header says who holds it.
const GRANTED: u16 = 1 << 12;
/// The lock was granted by a LOCK command.
const NATIVE: u16 = 1 << 13;
const FORM_SHIFT: u32 = 14;
const SLOT_BITS: u32 = 10;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
const SLOTS_MAX: usize = 1 << SLOT_BITS;
const PAGES_MAX: usize = (HEADS_FROM >> SLOT_BITS) as usize;
const PAGE_BYTES: usize = 64 * 1024;
const STRIDE_MIN: usize = 48;
const STRIDE_MAX: usize = 16 * 1024;
const STRIDES_LEN: usize = 111;
const STRIDES: [u16; STRIDES_LEN] = strides();
/// An entry keeps a slot of up to this size even if it has shrunk to less than half of the slot.
const SHRINK_FROM: usize = 64;
/// An arena without entries keeps its pages unless it has more pages than this. So a lock that is taken and
/// released again and again does not allocate, and the memory of many locks is freed when they have ended.
const PAGES_KEPT_MAX: usize = 4;
/// The class of a dedicated page, and of a freed page.
const DEDICATED: u8 = u8::MAX;
const NO_PAGE: u32 = u32::MAX;
const NO_SLOT: u16 = u16::MAX;

const _: () = assert!(HEADER_BYTES == 46, "every byte counts: a server may hold millions of locks");
const _: () = assert!(STRIDE_MIN >= 2, "a free slot holds the number of the next");
const _: () = assert!(STRIDES_LEN < DEDICATED as usize);
const _: () = assert!(STRIDES[STRIDES_LEN - 1] as usize == STRIDE_MAX);
const _: () = assert!(STRIDE_MAX <= u16::MAX as usize, "lengths in a slot have 16 bits");

#[cfg(test)]
mod tests;
