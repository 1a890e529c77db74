//! The shapes of values, and how patterns match them.
//!
//! Knows   bytes; nothing of keys, clients or time.

mod big;
pub mod element;
pub mod extended;
pub mod glob;
pub mod list;
pub mod set;
