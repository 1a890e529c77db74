//! Scripts: what a Lua text means to a lock server; where that is not known beforehand, Lua itself.
//!
//! Owns    the recogniser (lexer, shape, table), the native programs that recognised scripts land on, and the interpreter.
//! Knows   nothing of shards or connections: a script makes its calls through a trait, [`native::Calls`] for a program.
//! Source  Lua 5.1 reference manual; Redis 7.0 `script.c`, `script_lua.c` for conversions and error texts.

mod effort;
mod fold;
mod header;
mod known;
mod lexer;
pub mod library;
#[cfg(feature = "lua")]
pub mod lua;
pub mod native;
mod operands;
mod rows;
mod shape;
mod spellings;
mod table;
mod walk;

pub use effort::may_run_long;
pub use header::{Flags, Header, header};
pub use known::{KNOWN, Known};
pub use lexer::{SCRIPT_BYTES_MAX, TOKENS_MAX};
pub use shape::{DEPTH_MAX, HOLES_MAX, LOCALS_MAX, NotAShape, Operand, Shape};
pub use table::{KEYS_MAX, Recognised, recognise, texts, warm};
