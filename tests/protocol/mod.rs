//! The Redis protocol: replies, scripts and calls that wait, and what hostile clients can do with them.
//!
//! Belongs here  what a client sends and gets, whatever it does with locks.

#[cfg(feature = "server")]
mod blocking;
#[cfg(all(feature = "cli", unix))]
mod cluster_mode;
pub(crate) mod differential;
mod fuzz;
#[cfg(feature = "server")]
mod hostile;
#[cfg(all(feature = "server", feature = "lua"))]
mod long_calls;
#[cfg(feature = "lua")]
mod lua_libraries;
pub(crate) mod scripts;
mod transcripts;
