//! The shapes of values, and how patterns match them.
//!
//! Knows   bytes and, for what ends by itself, `clock`; nothing of keys, clients or of what time it is.

mod big;
pub mod extended;
pub mod glob;
pub mod hash;

pub use hash::Hash;
