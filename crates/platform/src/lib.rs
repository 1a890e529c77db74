//! What differs between operating systems. No other crate asks which system it runs on.
//!
//! Belongs here  each thing that the system decides: sockets by path, who may read a file, signals, processes that belong
//!               together, the boot, figures of this process.
//! Rule          a system that lacks something says so where it is asked for, by name.
//! Rule          a file holds all systems' ways of one thing, side by side.

#![forbid(unsafe_code)]

#[cfg(feature = "server")]
pub mod boot;
#[cfg(feature = "program")]
pub mod command;
#[cfg(feature = "program")]
pub mod descriptors;
#[cfg(feature = "server")]
pub mod figures;
#[cfg(feature = "server")]
pub mod files;
#[cfg(feature = "program")]
pub mod output;
#[cfg(feature = "program")]
pub mod parent;
#[cfg(feature = "server")]
pub mod ports;
#[cfg(feature = "program")]
pub mod signals;
#[cfg(feature = "program")]
pub mod systemd;
#[cfg(feature = "program")]
pub mod texts;
#[cfg(feature = "program")]
pub mod timer;
pub mod unix_socket;
#[cfg(feature = "server")]
pub mod volume;

/// The error of something that this system does not have.
#[cfg(not(unix))]
fn unsupported(what: &str) -> std::io::Error {
    let text = format!("there are no {what} on {}", std::env::consts::OS);
    std::io::Error::new(std::io::ErrorKind::Unsupported, text)
}
