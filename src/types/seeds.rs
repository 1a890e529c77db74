//! Seeds for the indexes inside values.
//!
//! Rule    whoever sends fields and members must not be able to choose them so that they collide. So the seeds come from
//!         where this process happens to lie in memory, which differs from start to start; and nothing that anybody
//!         is shown depends on them: what is kept in an index is kept in the order in which it came.

use std::ptr;

use ahash::RandomState;

/// A hasher for one index.
pub(super) fn hasher() -> RandomState {
    let on_the_stack = 0_u8;
    let stack = ptr::from_ref(&on_the_stack) as usize as u64;
    let program = ptr::from_ref(&IN_THE_PROGRAM) as usize as u64;
    RandomState::with_seeds(stack, program, stack.rotate_left(32) ^ program, ODD)
}

static IN_THE_PROGRAM: u64 = ODD;
/// Any odd number: no seed is to be zero.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
