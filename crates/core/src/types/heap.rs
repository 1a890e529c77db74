//! How many bytes collections ask of the allocator, within a fifth: for sums, not for limits.

use bytes::Bytes;

/// Entries of a node of a B-tree of the standard library, when it is full.
const NODE_ENTRIES: usize = 11;

/// Bytes of a B-tree of so many entries of a type. A small one is a single node; nodes of others are about five eighths full.
pub const fn tree<T>(len: usize) -> usize {
    match len {
        0 => 0,
        1..=NODE_ENTRIES => NODE_ENTRIES * size_of::<T>(),
        len => len * size_of::<T>() * 8 / 5,
    }
}

/// Bytes of an entry of a large B-tree.
pub(crate) const fn in_tree<T>() -> usize {
    size_of::<T>() * 8 / 5
}

/// Bytes of an entry of a hash table: about five eighths of its places are used, and each has a byte of its hash.
pub(crate) const fn in_table<T>() -> usize {
    (size_of::<T>() + 1) * 8 / 5
}

/// Bytes of the contents of shared bytes that were copied once and cloned.
pub fn shared(bytes: &Bytes) -> usize {
    // Their length, their place and the number of clones.
    bytes.len() + 3 * size_of::<usize>()
}
