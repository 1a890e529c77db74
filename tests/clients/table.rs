//! The table of clients: what `tests/clients.rs` runs, and what docs/clients.md says was run.
//!
//! Owns    `table.json`, a row for each client library or tool: how it is run, and what its program here does with it.
//! Knows   the names of the projects beside it; nothing of how they are installed.
//! Rule    a version is never written there: it is read from the manifest that pins it.

use std::sync::OnceLock;

use serde::Deserialize;

/// One client library, or one tool, and how it is run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    /// As reported, and as selected on the command line.
    pub(crate) name: String,
    pub(crate) language: Language,
    /// The directory in `tests/clients` that it lives in.
    pub(crate) project: String,
    /// Program and arguments; a program with a `/` in it lies in the project's installation.
    pub(crate) command: Vec<String>,
    /// Server processes to start for it.
    #[serde(default = "one")]
    pub(crate) servers: usize,
    /// Whether the servers have a TLS port, too, where clients must show a certificate.
    #[serde(default)]
    pub(crate) has_tls: bool,
    /// The packages under test, the client itself first, by their names in the project's manifest.
    pub(crate) packages: Vec<String>,
    /// The kinds of locks that its program takes, and what else it does, as docs/clients.md lists it.
    pub(crate) covers: String,
}

/// In the order of docs/clients.md.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Language {
    Python,
    Node,
    Java,
    Go,
    Php,
    Ruby,
    Rust,
    Tool,
}

/// Every client, in the order of a run.
pub(crate) fn clients() -> &'static [Client] {
    static CLIENTS: OnceLock<Vec<Client>> = OnceLock::new();
    CLIENTS.get_or_init(|| serde_json::from_str(include_str!("table.json")).expect("a table of clients"))
}

const fn one() -> usize {
    1
}
