//! Scripts: what a Lua text means to a lock server.
//!
//! Owns    the two ways to run one: plain scripts, which nearly all lock clients send, natively; all others by Lua itself.
//! Knows   nothing of shards or connections: a script makes its calls through a trait, [`plain::Calls`] for a plain one.
//! Source  Lua 5.1 reference manual; Redis 7.0 `script.c`, `script_lua.c` for conversions and error texts.

pub mod effort;
mod header;
mod known;
mod lexer;
pub mod library;
#[cfg(feature = "lua")]
pub mod lua;
pub mod plain;
mod sha;

use crate::resp::Words;

pub use effort::{Brief, Effort, Sizes, effort};
pub use header::{Flags, Header, header};
pub use known::{KNOWN, Known};
pub use lexer::{SCRIPT_BYTES_MAX, TOKENS_MAX};
pub use sha::{SHA_DIGITS, Sha, digest};

/// What a script or a function is called on.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// `KEYS`, or a function's first argument.
    pub keys: Words<'a>,
    /// `ARGV`, or a function's second argument.
    pub args: Words<'a>,
}

impl<'a> Inputs<'a> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.keys.len() + self.args.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> u64 {
        self.keys.iter().chain(self.args.iter()).map(|word| word.len() as u64).sum()
    }

    /// These KEYS and ARGV.
    pub fn new(keys: &'a [&'a [u8]], args: &'a [&'a [u8]]) -> Self {
        Self { keys: keys.into(), args: args.into() }
    }
}
