//! The examples in Rust of docs/testing-examples.md; `packages/docs.py` compares them.

mod fencing;
mod lease;
mod redlock;
mod renewal;
