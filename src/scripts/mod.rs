//! Scripts: what a Lua text means to a lock server.
//!
//! Owns    the two ways to run one: plain scripts, which nearly all lock clients send, natively; all others by Lua itself.
//! Knows   nothing of shards or connections: a script makes its calls through a trait, [`plain::Calls`] for a plain one.
//! Source  Lua 5.1 reference manual; Redis 7.0 `script.c`, `script_lua.c` for conversions and error texts.

mod effort;
mod header;
mod known;
mod lexer;
pub mod library;
#[cfg(feature = "lua")]
pub mod lua;
pub mod plain;

pub use effort::may_run_long;
pub use header::{Flags, Header, header};
pub use known::{KNOWN, Known};
pub use lexer::{SCRIPT_BYTES_MAX, TOKENS_MAX};
