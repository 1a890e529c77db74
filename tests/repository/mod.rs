//! The repository: sources, pages, dependencies and the steps of CI keep to their own rules.
//!
//! Belongs here  laws on files. No test here starts a server.

mod dependencies;
mod english;
mod files;
#[cfg(feature = "cli")]
mod race;
#[cfg(feature = "cli")]
mod readme;
mod stores;
mod tidy;
