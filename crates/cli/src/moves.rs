//! `redlatch cluster import` and `export`: locks move from one server and its journal to a cluster, and back.
//!
//! Knows   the settings of a node: it asks the same etcd, with the same login. `dir` is the journal's.

use std::process::ExitCode;

use redlatch_core::state::settings::Settings;
use redlatch_server::process::{self, Moved};

use super::flags::Request;
use super::sources::Sources;
use super::{Fault, print, runtime, serve};

/// Where to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// To a cluster.
    In,
    /// To the journal of one server.
    Out,
}

impl Way {
    /// The way that this subcommand of `redlatch cluster` goes.
    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "import" => Some(Self::In),
            "export" => Some(Self::Out),
            _ => None,
        }
    }
}

/// Moves the locks, and says what follows.
///
/// # Errors
/// A setting that cannot be used, or what the directory or etcd says.
pub(super) fn run(way: Way, request: &Request) -> Result<ExitCode, Fault> {
    let configuration = Sources::read(request).check()?;
    let settings = Settings::default();
    let builder = serve::configured(&configuration, &settings)?;
    let runtime = runtime()?;
    let (moved, next) = match way {
        Way::In => (
            runtime.block_on(process::import(builder, settings)),
            "Start the nodes. No server starts on the directory any more.",
        ),
        Way::Out => (
            runtime.block_on(process::export(builder, settings)),
            "Start one server on the directory. No node joins the cluster any more.",
        ),
    };
    let moved = moved?;
    runtime.shutdown_background();
    print(said(moved, next).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What a move that has succeeded says.
fn said(moved: Option<Moved>, next: &str) -> String {
    let Some(Moved { keys, quarantine }) = moved else {
        return format!("An earlier call has moved them. {next}\n");
    };
    let mut text = format!("Moved with functions, tokens and lock time: {keys} keys. {next}\n");
    if let Some((left, why)) = quarantine {
        text += &format!("Nothing is granted for another {} ms, because {why}.\n", left.as_millis());
    }
    text
}
