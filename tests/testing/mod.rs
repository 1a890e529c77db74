//! redlatch inside tests: the server in process, its clock, namespaces, faults, histories and test clusters.
//!
//! Belongs here  what the author of a test uses: the crate's public names, and TEST commands over real connections.

#[cfg(feature = "server")]
mod embedding;
#[cfg(feature = "client")]
mod examples;
#[cfg(feature = "server")]
mod faults;
#[cfg(feature = "cli")]
mod history;
#[cfg(feature = "server")]
mod test_backend;
