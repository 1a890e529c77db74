//! Lua 5.1: whatever script is not recognised runs here.
//!
//! Owns    the interpreter's state, its sandbox, and the budgets that keep a script from holding the server.
//! Knows   commands only through a trait, as native programs do.
//! Source  Redis 7.0 `script_lua.c`, `eval.c`; Lua 5.1 reference manual.

#[allow(dead_code)]
mod bit;
#[allow(dead_code)]
mod library;
#[allow(dead_code)]
mod structs;
