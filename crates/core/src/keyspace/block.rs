//! Blocks of memory: of the allocator while they are small, mappings of their own when they are large.
//!
//! Owns    how the pages of the arena and the words of a table get their memory, and give it back.
//! Rule    a large block goes back to the system when it is dropped. An allocator keeps what is below its last live block,
//!         and holes of sizes that nobody asks for: with a lock every 100 ms beside them, a million leases left 92 % of
//!         their memory behind when they had ended. With mappings it is 2 %.

use std::ops::{Deref, DerefMut};

use memmap2::{MmapMut, MmapOptions};

/// A block of bytes, whose length stays.
#[derive(Debug)]
pub(super) enum Block {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl Block {
    /// A block of this many bytes, all zero. A large one takes no memory until its bytes are written.
    pub(super) fn zeroed(len: usize) -> Self {
        mapping(MmapOptions::new().len(len), len).map_or_else(|| Self::Heap(vec![0; len]), Self::Mapped)
    }

    /// A block of this many bytes, all of which are `byte`.
    pub(super) fn filled(len: usize, byte: u8) -> Self {
        match mapping(MmapOptions::new().len(len).populate(), len) {
            Some(mut bytes) => {
                bytes.fill(byte);
                Self::Mapped(bytes)
            }
            None => Self::Heap(vec![byte; len]),
        }
    }

    /// A block without bytes.
    pub(super) const fn empty() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Default for Block {
    fn default() -> Self {
        Self::empty()
    }
}

// Both arms read the same two words of the block, so this is no branch.
impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

/// A mapping for a large block; `None` for a small one, and if the system has no more mappings.
fn mapping(options: &MmapOptions, len: usize) -> Option<MmapMut> {
    if len < MAPPED_FROM { None } else { options.map_anon().ok() }
}

/// Bytes from which on a block is a mapping. Of a smaller one, half a page of the system on average would be too much waste.
const MAPPED_FROM: usize = 32 * 1024;
