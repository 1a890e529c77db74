//! Who may end a wait: a write that serves it, its own time limit, CLIENT UNBLOCK, or the end of its connection.
//!
//! Rule    whoever takes the claim ends the wait, and nobody else does anything to it afterwards.

use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::sync::AtomicBool;

/// The right to end one wait, to be taken once.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

impl Claim {
    /// A claim that nobody has taken; so begins every wait.
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Takes it; false when somebody else has.
    pub fn take(&self) -> bool {
        !self.0.swap(true, AcqRel)
    }

    /// Whether somebody has.
    pub fn is_taken(&self) -> bool {
        self.0.load(Acquire)
    }
}
