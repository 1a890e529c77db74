//! `redlatch cluster accept-restored`, `import` and `export`: changes to a cluster that does not serve.
//!
//! Knows   the settings of a node: it asks the same etcd, with the same login. `dir` is the journal that locks move
//!         from or to.

use std::process::ExitCode;
use std::time::Duration;

use redlatch_core::state::settings::Settings;
use redlatch_server::process::{self, Moved};

use super::arguments::{ServerArguments, with_settings};
use super::configuration::Sources;
use crate::common::arguments::time;
use crate::common::{Fault, Subcommand, Task, duration, exit, print, runtime};

pub(super) const ACCEPT_RESTORED: Subcommand = Subcommand::of_server(
    "cluster accept-restored",
    "Lets nodes lead again after a restore of etcd from a snapshot.",
    |command| {
        let (help, default) = ("How long the cluster grants no lock.", "the longest known lease");
        with_settings(command.arg(time("quarantine", help, default)).after_help(ACCEPT_HELP))
    },
    |words| {
        let options = AcceptOptions::of(ServerArguments::read(words)?)?;
        Ok(Box::new(move || accept(&options)))
    },
)
.only(MOVES);
pub(super) const IMPORT: Subcommand = Subcommand::of_server(
    "cluster import",
    "Moves the locks of a stopped server to a new cluster.",
    |command| with_settings(command.after_help(IMPORT_HELP)),
    |words| read_move(Way::In, words),
)
.only(MOVES);
pub(super) const EXPORT: Subcommand = Subcommand::of_server(
    "cluster export",
    "Moves the locks of a stopped cluster to the journal of one server.",
    |command| with_settings(command.after_help(EXPORT_HELP)),
    |words| read_move(Way::Out, words),
)
.only(MOVES);

const MOVES: &[u8] = &[exit::DONE, exit::NO, exit::MISUSED];

fn read_move(way: Way, words: &[String]) -> Result<Task, Fault> {
    let arguments = ServerArguments::read(words)?;
    Ok(Box::new(move || move_locks(way, &arguments)))
}

/// What the arguments of `cluster accept-restored` ask for.
struct AcceptOptions {
    arguments: ServerArguments,
    /// How long nothing is granted. `None`: as long as what is known asks for.
    quarantine: Option<Duration>,
}

impl AcceptOptions {
    /// Takes `--quarantine` from the flags of a node.
    ///
    /// # Errors
    /// It is no time.
    fn of(mut arguments: ServerArguments) -> Result<Self, Fault> {
        let found = arguments.directives.iter().rposition(|directive| directive.name == "quarantine");
        let quarantine = found.map(|at| arguments.directives.remove(at).words.join(" "));
        let read =
            |text: String| duration::read(&text).map_err(|fault| format!("--quarantine '{text}': {fault}"));
        Ok(Self { quarantine: quarantine.map(read).transpose()?, arguments })
    }
}

/// Accepts it, and says what follows.
///
/// # Errors
/// A setting that cannot be used, or what etcd says.
fn accept(options: &AcceptOptions) -> Result<ExitCode, Fault> {
    let configuration = Sources::read(&options.arguments).check()?;
    let settings = Settings::default();
    configuration.builder(&settings)?;
    let runtime = runtime()?;
    let accepted = redlatch_server::process::accept_restored(&settings, options.quarantine);
    let was_found = runtime.block_on(accepted)?;
    runtime.shutdown_background();
    let found = match was_found {
        true => "Accepted.",
        false => "Accepted, but no node has found that the log is too old.",
    };
    print(format!("{found} The next node that leads begins with a quarantine.\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Where locks move to.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// To a cluster.
    In,
    /// To the journal of one server.
    Out,
}

/// Moves the locks, and says what follows.
///
/// # Errors
/// A setting that cannot be used, or what the directory or etcd says.
fn move_locks(way: Way, arguments: &ServerArguments) -> Result<ExitCode, Fault> {
    let configuration = Sources::read(arguments).check()?;
    let settings = Settings::default();
    let builder = configuration.builder(&settings)?;
    let runtime = runtime()?;
    let (moved, next) = match way {
        Way::In => (
            runtime.block_on(process::import(builder, settings)),
            "Start the nodes. From now on, no server starts on the directory.",
        ),
        Way::Out => (
            runtime.block_on(process::export(builder, settings)),
            "Start one server on the directory. From now on, no node joins the cluster.",
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
        return format!("An earlier call has moved the locks. {next}\n");
    };
    let mut text = format!("Moved {keys} keys, with functions, tokens and lock time. {next}\n");
    if let Some((left, why)) = quarantine {
        text += &format!("No lock is granted for another {}, because {why}.\n", duration::written(left));
    }
    text
}

const ACCEPT_HELP: &str = "\
Reads the settings of a node, and connects to its etcd. Changes after the snapshot are lost, and locks that were granted
after it are unknown. So the next leader grants no lock until these locks have ended. See docs/replication.md.";

const IMPORT_HELP: &str = "\
Reads the settings of a node; --dir is the directory of the server. Moves keys, locks with their leases, tokens and functions
to the cluster. If the server would begin with a quarantine, the cluster begins with it. Afterwards, no server starts on the
directory. See docs/replication-operate.md.";

const EXPORT_HELP: &str = "\
Reads the settings of a node; --dir is a directory without a journal, for the new server. Moves keys, locks with their leases,
tokens and functions to it. Afterwards, no node joins the cluster. See docs/replication-operate.md.";
