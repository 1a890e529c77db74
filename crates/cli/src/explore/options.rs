//! What a search is asked for, and the names that the command and its tests meet.

use std::ffi::OsString;
use std::time::Duration;

use super::servers::Servers;

/// What `redlatch explore` was asked for.
#[derive(Debug)]
pub(super) struct ExploreOptions {
    pub(super) command: Vec<OsString>,
    /// Whether the command stays, and runs the test for each line that it reads: see [`program`](super::program).
    pub(super) is_runner: bool,
    /// The variables in which the command finds the URL of its server.
    pub(super) variables: Vec<String>,
    pub(super) servers: Servers,
    /// How long one run may take.
    pub(super) timeout: Duration,
    /// How long all runs may take.
    pub(super) budget: Duration,
    /// How many cases are tried at a time: 1 to 64.
    pub(super) jobs: usize,
    /// Kinds of failures that the command must survive; [`Kind::name`](super::case::Kind::name).
    pub(super) expects: Vec<String>,
    /// The findings that do not count, by their IDs; [`Problem::id`](super::problem::Problem::id).
    pub(super) accepts: Vec<String>,
    /// Whether pairs of failures follow when each failure was tried alone.
    pub(super) with_pairs: bool,
    /// This case alone, as a finding names it.
    pub(super) case: Option<String>,
    /// The last case of an earlier search: those behind it are told.
    pub(super) after: Option<String>,
    pub(super) is_clock_auto: bool,
    pub(super) format: Format,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Format {
    Text,
    Json,
    Junit,
    Html,
}

/// The variable in which a command finds its URL unless it is told otherwise.
pub(super) const URL_VARIABLE: &str = "REDIS_URL";
/// The variable that tells a command what happens in its run. A runner's own is empty.
pub(super) const INJECTED_VARIABLE: &str = "REDLATCH_INJECTED";
/// How long one run may take unless it is told otherwise.
pub(super) const TIMEOUT: &str = "60s";
