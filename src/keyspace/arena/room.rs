//! The memory of one page.
//!
//! Why our own. An allocator gives memory back to the system when the end of its heap is free: of a million locks, all at
//! once, and nobody is served for ten milliseconds meanwhile. Slots come from the system, and go back to it, page by page.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes of one page, all of them there from the start; the system gives memory to those that are touched.
#[derive(Debug)]
pub(super) enum Room {
    /// As large as it will ever be.
    Mapped(MmapMut),
    /// It grows; or the system had no mapping left.
    Heap(Vec<u8>),
}

impl Room {
    /// Nothing.
    pub(super) const fn none() -> Self {
        Self::Heap(Vec::new())
    }

    /// So many zeros, for a page of slots.
    pub(super) fn of_zeros(len: usize) -> Self {
        MmapMut::map_anon(len).map_or_else(|_| Self::growing(len), Self::Mapped)
    }

    /// So many zeros, which may become more.
    pub(super) fn growing(len: usize) -> Self {
        Self::Heap(vec![0; len])
    }

    /// Becomes `len` bytes long: the first `keep` stay, zeros follow.
    pub(super) fn resize(&mut self, len: usize, keep: usize) {
        let Self::Heap(bytes) = self else { unreachable!("a page of slots keeps its size") };
        bytes.truncate(keep);
        if bytes.capacity() / 2 > len {
            bytes.shrink_to(len);
        }
        bytes.resize(len, 0);
    }

    /// Bytes of memory it may take.
    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Mapped(bytes) => bytes.len(),
            Self::Heap(bytes) => bytes.capacity(),
        }
    }
}

impl Deref for Room {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Heap(bytes) => bytes,
        }
    }
}

impl DerefMut for Room {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Mapped(bytes) => bytes,
            Self::Heap(bytes) => bytes,
        }
    }
}
