//! `redlatch check-config`: whether the server would start, and every reason why not.

use std::path::Path;
use std::process::ExitCode;

use clap::Command;
use redlatch_core::state::directives;
use redlatch_core::state::settings::{self, Settings};

use super::arguments::{ServerArguments, with_settings};
use super::configuration::{self, Sources};
use super::file::Directive;
use super::{otlp, serve, systemd};
use crate::common::{Fault, Subcommand, exit, print, warn};

pub(super) const CHECK_CONFIG: Subcommand = Subcommand::of_server(
    "check-config",
    "Checks the settings without a start of the server, and prints all faults.",
    arguments,
    |words| {
        let arguments = ServerArguments::read(words)?;
        Ok(Box::new(move || check(&arguments)))
    },
)
.misused(exit::NO)
.only(&[exit::DONE, exit::NO]);

fn arguments(command: Command) -> Command {
    let command = command
        .after_help(
            "Reads flags, environment and files as the server does, with the ACL file and the certificates. Binds no \
             address and opens no directory.",
        );
    with_settings(command)
}

/// Checks the configuration that `arguments` and the environment name. Prints every fault and every ignored directive, with
/// the place where it is written.
///
/// # Errors
/// The standard output cannot be written.
fn check(arguments: &ServerArguments) -> Result<ExitCode, Fault> {
    let sources = Sources::read(arguments);
    let (configuration, mut faults) = sources.check_all();
    let settings = Settings::default();
    // What single values are wrong has been said: the rest is checked with the values that are left.
    match configuration.builder(&settings) {
        Ok(builder) => {
            let later = builder.faults().into_iter().map(|fault| fault.to_string());
            let mut unreachable = serve::check_reachable(&settings, &systemd::inherited()?).err();
            if settings.get(settings::SUPERVISED) == "systemd" && unreachable.take().is_some() {
                // A check that a unit runs before the server does not get the sockets of the server.
                warn("warning: port '0': clients reach only sockets that systemd hands over to the server");
            }
            if settings.get(settings::APPENDFSYNC) == "always" && !has_journal(&settings) {
                let text =
                    "warning: appendfsync 'always' syncs nothing without a journal: see dir and appendonly";
                warn(&with_origin(text.to_owned(), sources.directives()));
            }
            let files = [settings::LOGFILE, settings::AUDIT_LOG];
            let log_files =
                files.into_iter().filter_map(|file| check_log_file(file.name(), &settings.get(file)).err());
            let spans = otlp::open(&settings.get(settings::OTLP_ENDPOINT)).err();
            let of_place = later.chain(unreachable).chain(log_files).chain(spans);
            faults.extend(of_place.map(|fault| with_origin(fault, sources.directives())));
        }
        Err(fault) => faults.push(fault),
    }
    for name in &configuration.ignored {
        let effect = match directives::is_protection(name) {
            true => "is ignored, and the server is less protected than Redis",
            false => "is ignored: it does not apply",
        };
        warn(&with_origin(format!("warning: {name} {effect}"), sources.directives()));
    }
    faults.iter().for_each(|fault| warn(fault));
    if faults.is_empty() {
        print(b"The configuration is good.\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// Whether the server would have a journal, on the disk or in etcd.
fn has_journal(settings: &Settings) -> bool {
    let has_place =
        [settings::DIR, settings::CLUSTER_ETCD].into_iter().any(|place| !settings.get(place).is_empty());
    match &*settings.get(settings::APPENDONLY) {
        "auto" => has_place,
        appendonly => appendonly == "yes",
    }
}

/// Checks that a log file may be opened, without creating it.
fn check_log_file(name: &str, path: &str) -> Result<(), Fault> {
    let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
    let is_there = folder.is_none_or(Path::is_dir) && !Path::new(path).is_dir();
    match path.is_empty() || is_there {
        true => Ok(()),
        false => Err(format!("{name} '{path}': must be a file in a directory that exists")),
    }
}

/// The fault with the place of the directive that it names, if there is one. The last directive of a name has the value.
fn with_origin(fault: String, directives: &[Directive]) -> String {
    let text = fault.strip_prefix("warning: ").unwrap_or(&fault);
    let (name, rest) = text.split_once([' ', ':']).unwrap_or((text, ""));
    let is_named = |directive: &&Directive| match name {
        "user" => {
            let user = if directive.name == "user" { configuration::user(&directive.words) } else { None };
            user.is_some_and(|(user, _)| rest.starts_with(&format!("'{user}'")))
        }
        name => directive.name == name,
    };
    match directives.iter().rev().find(is_named) {
        Some(directive) => format!("{fault} ({})", directive.origin),
        None => fault,
    }
}
