//! Lua 5.1: whatever script is not recognised runs here.
//!
//! Owns    the interpreter's state, its sandbox, and the budgets that keep a script from holding the server.
//! Knows   commands only through a trait, as native programs do.
//! Source  Redis 7.0 `script_lua.c`, `eval.c`; Lua 5.1 reference manual.

#[allow(dead_code, reason = "the sandbox that installs them is on its way")]
mod auxiliary;
#[allow(dead_code, reason = "the sandbox that installs them is on its way")]
mod bit;
#[allow(dead_code, reason = "the sandbox that installs them is on its way")]
mod cjson;
#[allow(dead_code, reason = "the sandbox that installs them is on its way")]
mod cmsgpack;
#[allow(dead_code, reason = "the sandbox that installs them is on its way")]
mod structs;
