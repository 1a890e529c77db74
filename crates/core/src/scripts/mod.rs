//! Scripts: the Lua texts that clients send.
//!
//! Owns    the two ways to run a script: natively, for the scripts of nearly all lock clients, or by the Lua interpreter.
//! Knows   nothing of shards or connections: a script makes its calls through a trait, [`native::Calls`] for a native one.
//! Source  Lua 5.1 reference manual; Redis 7.0 `script.c`, `script_lua.c` for conversions and error texts.
//!
//! # Where a script runs
//!
//! A native script runs where it arrives: it is bounded by a fixed number of steps and by the keys it names. Every
//! interpreted script, FCALL, and EXEC that holds one runs on the script thread; a single command whose values are large
//! runs there, too. A value is large above [`LARGE_BYTES`](redlatch_proto::limits::LARGE_BYTES).
//!
//! # What an interpreted script locks
//!
//! The shards of the keys that it declares. These are not all the keys it uses, and clients depend on that: BullMQ's
//! `extendLocks` builds the names of its keys from an argument, python-redis-lock's `reset_all` deletes what KEYS finds, and
//! the function library of the Rust crate `redis-lock` scans the whole keyspace and declares no key. Refusing undeclared
//! keys would break them (Dragonfly does, and needs `--default_lua_flags=allow-undeclared-keys` for BullMQ). So a script
//! that calls a command on a key of a shard that it has not locked
//!
//! - starts again, with every shard locked, if it has only read until then and is no part of EXEC;
//! - locks the missing shards beside its own otherwise, and its time moves on to theirs. It keeps its shards while it waits
//!   for others. No circle of waits comes of that: one script runs at a time, and a request that meets a shard that a
//!   script holds lets go of its own.
//!
//! The script, or the library of the function, is remembered: its next run locks every shard from the start.
//!
//! Every other client that needs a key of a locked shard waits until the script is over, without holding a thread, or gets
//! BUSY after `busy-reply-threshold`. SCRIPT KILL, FUNCTION KILL, SHUTDOWN and signals are served while the script runs.

mod header;
pub mod interpreter;
mod known;
mod lexer;
pub mod library;
pub mod native;
mod sha;

use redlatch_proto::resp::Words;

pub use header::{Flags, Header, header};
pub use known::{Granted, Input, KNOWN, Kind, Known, Lease, Lock, Purpose, Unit};
pub use lexer::SCRIPT_BYTES_MAX;
pub(crate) use sha::SHA_DIGITS;
pub use sha::{Sha, digest};

/// The KEYS and ARGV of a script, or the two arguments of a function.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `KEYS`, or a function's first argument.
    pub keys: Words<'a>,
    /// `ARGV`, or a function's second argument.
    pub args: Words<'a>,
}

impl<'a> Inputs<'a> {
    /// The number of KEYS and ARGV together.
    #[inline]
    pub(crate) fn word_count(&self) -> usize {
        self.keys.len() + self.args.len()
    }

    /// Bytes of KEYS and ARGV together.
    pub fn bytes(&self) -> u64 {
        self.keys.iter().chain(self.args.iter()).map(|word| word.len() as u64).sum()
    }

    /// Inputs of these KEYS and ARGV.
    pub fn new(keys: &'a [&'a [u8]], args: &'a [&'a [u8]]) -> Self {
        Self { keys: keys.into(), args: args.into() }
    }
}
