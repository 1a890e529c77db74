//! The shapes of values, and how patterns match them.
//!
//! Knows   bytes; nothing of keys, clients or time.

pub mod glob;
