//! Where the program has its memory from: small pieces from mimalloc, large ones from the system.
//!
//! Owns    the one `unsafe` of the command line. What it buys: interpreted scripts, which take and give back many small
//!         pieces, cost 5 to 9 percent less. Why not for all: what mimalloc has had of large pieces it keeps for a while, and
//!         of a million locks that end at once too much stayed, tables above all: `benches/README.md`.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

use mimalloc::MiMalloc;

/// The allocator of the binary.
#[derive(Clone, Copy, Debug)]
pub struct Allocator;

/// Bytes of the largest piece that is small.
const SMALL_BYTES_MAX: usize = 4096;

/// Whose a piece of so many bytes is: that alone decides, so that whoever gives it back finds the same.
fn is_small(bytes: usize) -> bool {
    bytes <= SMALL_BYTES_MAX
}

// SAFETY: each piece is one allocator's for as long as its layout stays the same, and the caller names the layout whenever
// it changes or gives back a piece. One that moves to the other side is copied to a new piece of the other allocator.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe { if is_small(layout.size()) { MiMalloc.alloc(layout) } else { System.alloc(layout) } }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller says.
        unsafe {
            if is_small(layout.size()) { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as the caller says; the layout is the one that it was taken with.
        unsafe {
            if is_small(layout.size()) {
                MiMalloc.dealloc(piece, layout)
            } else {
                System.dealloc(piece, layout)
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller says: the layout is the one that it was taken with, and `bytes`, rounded up to its alignment,
        // are no more than a layout may have. Both pieces have as many bytes as are copied, and do not overlap.
        unsafe {
            match (is_small(layout.size()), is_small(bytes)) {
                (true, true) => MiMalloc.realloc(piece, layout, bytes),
                (false, false) => System.realloc(piece, layout, bytes),
                _ => {
                    let moved = self.alloc(Layout::from_size_align_unchecked(bytes, layout.align()));
                    if !moved.is_null() {
                        ptr::copy_nonoverlapping(piece, moved, bytes.min(layout.size()));
                        self.dealloc(piece, layout);
                    }
                    moved
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_keeps_its_bytes_as_it_grows_and_shrinks_to_either_side() {
        for align in [1, 8, 16, 64, 4096] {
            let mut layout = Layout::from_size_align(1, align).unwrap();
            // SAFETY: the layout is always that of the piece, and is not empty.
            unsafe {
                let mut piece = Allocator.alloc(layout);
                *piece = 7;
                let mut filled = 1;
                for bytes in [100, 4095, 4096, 4097, 5000, 100_000, 4096, 4097, 17, 1 << 20, 1] {
                    piece = Allocator.realloc(piece, layout, bytes);
                    layout = Layout::from_size_align(bytes, align).unwrap();
                    assert_eq!(piece.addr() % align, 0);
                    filled = filled.min(bytes);
                    for at in 0..filled {
                        assert_eq!(*piece.add(at), if at == 0 { 7 } else { at as u8 }, "{bytes} bytes");
                    }
                    for at in 1..bytes {
                        *piece.add(at) = at as u8;
                    }
                    filled = bytes;
                }
                Allocator.dealloc(piece, layout);
                let zeroed = Layout::from_size_align(10_000, align).unwrap();
                let piece = Allocator.alloc_zeroed(zeroed);
                assert!((0..10_000).all(|at| *piece.add(at) == 0));
                Allocator.dealloc(piece, zeroed);
            }
        }
    }
}
