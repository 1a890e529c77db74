//! What the subcommands share: streams, signals and exit codes of the process, the server to ask, the form of a subcommand.
//!
//! Rule    this is the bottom of the crate: nothing here imports from the other folders.

pub(crate) mod arguments;
pub(crate) mod descriptors;
pub(crate) mod duration;
pub(crate) mod exit;
mod process;
mod server_address;
mod subcommand;

pub(crate) use process::{Fault, print, runtime, signals, warn};
pub(crate) use server_address::{ServerAddress, with_trust, with_url};
pub(crate) use subcommand::{Reader, Subcommand, Task, task};
