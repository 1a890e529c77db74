//! The faults of a namespace: which requests they meet, and what they do to them.

/// The faults of a namespace.
#[derive(Debug, Default)]
pub struct Faults {}
