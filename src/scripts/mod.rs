//! Scripts: what a Lua text means to a lock server, without running Lua.
//!
//! Owns    the recogniser (lexer, shape, table) and the native programs that recognised scripts land on.
//! Knows   nothing of shards or connections: a native program makes its calls through [`native::Calls`].
//! Source  Lua 5.1 reference manual; Redis 7.0 `script.c`, `script_lua.c` for conversions and error texts.

mod fold;
mod known;
mod lexer;
#[cfg(feature = "lua")]
pub mod lua;
pub mod native;
mod operands;
mod rows;
mod shape;
mod spellings;
mod table;
mod walk;

pub use known::{KNOWN, Known};
pub use lexer::{SCRIPT_BYTES_MAX, TOKENS_MAX};
pub use shape::{DEPTH_MAX, HOLES_MAX, LOCALS_MAX, NotAShape, Operand, Shape};
pub use table::{KEYS_MAX, Recognised, recognise, texts, warm};
