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
use crate::common::{Fault, Subcommand, Task, duration, print, runtime};

pub(super) const ACCEPT_RESTORED: Subcommand = Subcommand::of_server(
    "cluster accept-restored",
    "Lets nodes lead again after etcd was restored from a snapshot.",
    |command| {
        let (help, default) = ("How long nothing is granted.", "for the longest lease that is known");
        with_settings(command.arg(time("quarantine", help, default)).after_help(ACCEPT_HELP))
    },
    |words| {
        let options = AcceptOptions::of(ServerArguments::read(words)?)?;
        Ok(Box::new(move || accept(&options)))
    },
);
pub(super) const IMPORT: Subcommand = Subcommand::of_server(
    "cluster import",
    "Moves the locks of a stopped server's journal to a cluster that is not there yet.",
    |command| with_settings(command.after_help(IMPORT_HELP)),
    |words| read_move(Way::In, words),
);
pub(super) const EXPORT: Subcommand = Subcommand::of_server(
    "cluster export",
    "Moves the locks of a cluster whose nodes are stopped to the journal of one server.",
    |command| with_settings(command.after_help(EXPORT_HELP)),
    |words| read_move(Way::Out, words),
);

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
        false => "Accepted, though no node has found that the log is older than what it knows.",
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

const ACCEPT_HELP: &str = "\
Reads the settings of a node, and asks the same etcd. What was written after the snapshot is lost, and locks that were granted
after it are not known: the next node that leads grants nothing until they have ended. See docs/replication.md. Exits with 0
or 1; 64 for bad options.";

const IMPORT_HELP: &str = "\
Reads the settings of a node; --dir is that of the server. Keys, locks with their leases, tokens and functions go to the
cluster; a quarantine that the server would begin with is the cluster's. Afterwards no server starts on the directory. See
docs/replication-operate.md. Exits with 0 or 1; 64 for bad options.";

const EXPORT_HELP: &str = "\
Reads the settings of a node; --dir is where the server will keep its journal, and has none. Keys, locks with their leases,
tokens and functions go there. Afterwards no node joins the cluster. See docs/replication-operate.md. Exits with 0
or 1; 64 for bad options.";
