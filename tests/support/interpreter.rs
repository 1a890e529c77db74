//! What runs the scripts that are not native, in a build that has it.

use redlatch_core::scripts::interpreter::NewInterpreter;

#[cfg(feature = "lua")]
pub(crate) const INTERPRETER: Option<NewInterpreter> = Some(redlatch_lua::interpreter);
#[cfg(not(feature = "lua"))]
pub(crate) const INTERPRETER: Option<NewInterpreter> = None;
