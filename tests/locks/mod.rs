//! Locks: who has one, until when, and what each view says of it. Writers that outlive their lease are in `fences/`.
//!
//! Belongs here  laws and promises of locks, on one server. Seeded runs of the engine are in `simulation/`.

mod allocation;
#[cfg(feature = "client")]
mod any_of;
#[cfg(feature = "lua")]
mod grants;
#[cfg(feature = "client")]
mod hand_over;
#[cfg(feature = "client")]
mod lock_client;
pub(crate) mod lock_law;
#[cfg(all(feature = "cli", unix))]
pub(crate) mod mutex;
mod quarantine;
