//! The history of a namespace: requests, replies, expiries, grants and faults, as many as fit.

/// The history of a namespace.
#[derive(Debug, Default)]
pub struct Recorder {}
