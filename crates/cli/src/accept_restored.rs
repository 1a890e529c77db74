//! `redlatch cluster accept-restored`: after a restore of etcd, nodes may lead again.
//!
//! Knows   the settings of a node: it asks the same etcd, with the same login.

use std::process::ExitCode;
use std::time::Duration;

use redlatch_core::state::settings::Settings;

use super::flags::Request;
use super::sources::Sources;
use super::{Fault, duration, print, runtime, serve};

/// What the arguments ask for.
#[derive(Debug)]
pub(super) struct Options {
    request: Request,
    /// How long nothing is granted. `None`: as long as what is known asks for.
    quarantine: Option<Duration>,
}

impl Options {
    /// Takes `--quarantine` from the flags of a node.
    ///
    /// # Errors
    /// It is no time.
    pub(super) fn of(mut request: Request) -> Result<Self, Fault> {
        let found = request.directives.iter().rposition(|directive| directive.name == "quarantine");
        let quarantine = found.map(|at| request.directives.remove(at).words.join(" "));
        let read =
            |text: String| duration::read(&text).map_err(|fault| format!("--quarantine '{text}': {fault}"));
        Ok(Self { quarantine: quarantine.map(read).transpose()?, request })
    }
}

/// Accepts it, and says what follows.
///
/// # Errors
/// A setting that cannot be used, or what etcd says.
pub(super) fn accept(options: &Options) -> Result<ExitCode, Fault> {
    let configuration = Sources::read(&options.request).check()?;
    let settings = Settings::default();
    serve::configured(&configuration, &settings)?;
    let runtime = runtime()?;
    let accepted = redlatch_server::process::accept_restored(&settings, options.quarantine);
    let was_found = runtime.block_on(accepted)?;
    runtime.shutdown_background();
    let found = match was_found {
        true => "Accepted.",
        false => "Accepted, though no node has found that the log is older than what it knows.",
    };
    print(format!("{found} The next node that leads begins with a quarantine.\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
