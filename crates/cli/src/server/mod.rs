//! The process around one server, and the subcommands for its operator: `check-config`, `health` and, for clusters whose
//! nodes do not serve, `cluster accept-restored`, `import` and `export`.
//!
//! Owns    the settings and where they come from, the log, the signals, the end of the process.

mod arguments;
mod check_config;
mod cluster;
mod configuration;
mod daemon;
mod descriptors;
#[cfg(feature = "testing")]
mod explored;
mod file;
mod harness;
mod health;
mod log;
mod log_file;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "otlp_none.rs"]
mod otlp;
mod redis_cli;
mod serve;
mod served;
mod start;
mod systemd;
mod variables;

use crate::common::Subcommand;

pub(crate) use arguments::{ServerArguments, with_flags};
#[cfg(feature = "testing")]
pub(crate) use explored::SERVER_VARIABLE;
pub(crate) use log::log_to_stdout;
pub(crate) use redis_cli::run as redis_cli;
pub(crate) use start::run;

pub(crate) const SUBCOMMANDS: &[Subcommand] =
    &[check_config::CHECK_CONFIG, cluster::ACCEPT_RESTORED, cluster::IMPORT, cluster::EXPORT, health::HEALTH];
