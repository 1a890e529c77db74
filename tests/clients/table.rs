//! The table of clients: `tests/clients/main.rs` runs it, and docs/clients.md is generated from it.
//!
//! Owns    `table.json`, a row for each client library or tool: how it is run, and the features that its program uses.
//! Knows   the names of the projects in this directory; nothing of how they are installed.
//! Rule    the table has no versions: they are read from the manifests that pin them.

use std::sync::OnceLock;

use serde::Deserialize;

/// A client library or tool, and how it is run.
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
    /// The program that mixes the client with native holders of its locks, run after the other on servers of its own.
    /// Only redlatch has such holders.
    #[serde(default)]
    pub(crate) native: Vec<String>,
    /// The program that ends its two servers, which are started again: see [`restarts`](super::restarts). Run last. Only
    /// redlatch has a quarantine.
    #[serde(default)]
    pub(crate) restarts: Vec<String>,
    /// Server processes to start for it.
    #[serde(default = "one")]
    pub(crate) servers: usize,
    /// Whether the servers have a TLS port, too, where clients must show a certificate.
    #[serde(default)]
    pub(crate) has_tls: bool,
    /// Whether the servers are in cluster mode, each with all slots.
    #[serde(default)]
    pub(crate) has_slots: bool,
    /// Nodes of each server, with TEST commands if there are several.
    #[serde(default = "one")]
    pub(crate) nodes: usize,
    /// Whether the servers have an HTTP port, too, that may change things.
    #[serde(default)]
    pub(crate) has_http: bool,
    /// The packages under test, the client itself first, by their names in the project's manifest.
    pub(crate) packages: Vec<String>,
    /// The kinds of locks that its program takes, and its other features, as docs/clients.md lists them.
    pub(crate) covers: String,
}

impl Client {
    /// The words of all its commands.
    pub(crate) fn words(&self) -> impl Iterator<Item = &String> {
        self.command.iter().chain(&self.native).chain(&self.restarts)
    }
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
