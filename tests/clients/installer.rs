//! Where a project's packages are installed and its programs built: below cargo's target directory.
//!
//! Owns    `CARGO_TARGET_TMPDIR/clients/<project>`: a copy of the sources, the packages, and the
//!         stamp that says for which pinned versions they were installed. The sources stay clean.
//! Knows   the table of projects; nothing of servers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::Deserialize;

use super::process::run;

/// Clients that share a runtime, its packages and their pinned versions: a row of `projects.json`.
#[derive(Deserialize)]
pub(crate) struct Project {
    /// The directory in `tests/clients`.
    pub(crate) name: String,
    /// Other directories whose programs this project runs or uses, with its own package versions.
    borrows: Vec<String>,
    /// Commands that succeed if the toolchain is installed.
    probes: Vec<Vec<String>>,
    /// Commands that install and build, in order. Empty if nothing needs installing.
    install: Vec<Vec<String>>,
    /// Files and directories that determine the result of `install`.
    inputs: Vec<String>,
    /// Held while it is being prepared.
    #[serde(skip)]
    preparing: Mutex<()>,
}

fn projects() -> &'static [Project] {
    static PROJECTS: OnceLock<Vec<Project>> = OnceLock::new();
    PROJECTS.get_or_init(|| serde_json::from_str(include_str!("projects.json")).expect("a table of projects"))
}

/// A project that is ready to run.
pub(crate) struct Installer {
    dir: PathBuf,
}

/// Why a project cannot run.
pub(crate) enum Closed {
    Broken(String),
    /// A toolchain or its packages are not on this machine.
    Missing(String),
}

impl Installer {
    /// Looks for the toolchain and the packages of the project of that name. `REDLATCH_INSTALL_CLIENTS=1` installs the
    /// packages.
    pub(crate) fn open(project: &str) -> Result<Self, Closed> {
        let project = projects().iter().find(|row| row.name == project).expect("a project of the table");
        let _alone = project.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        let installer =
            Self { dir: Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(&project.name) };
        for source in project.borrows.iter().chain([&project.name]) {
            refresh(&source_dir(source), &installer.dir)
                .map_err(|error| Closed::Broken(format!("copying: {error}")))?;
        }
        for probe in &project.probes {
            match run(installer.command(probe), PROBE_TIME_MAX).map(|finished| finished.failure()) {
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => {
                    return Err(Closed::Missing(format!("`{}` does not run here", probe.join(" "))));
                }
            }
        }

        let stamp =
            stamp(&installer.dir, &project.inputs).map_err(|error| Closed::Broken(error.to_string()))?;
        let stamp_file = installer.dir.join(".installed");
        if project.install.is_empty() || fs::read(&stamp_file).is_ok_and(|installed| installed == stamp) {
            return Ok(installer);
        }
        if !is_set("REDLATCH_INSTALL_CLIENTS") {
            let reason = "its packages are not installed; REDLATCH_INSTALL_CLIENTS=1 installs them";
            return Err(Closed::Missing(reason.to_owned()));
        }
        installer.install(project)?;
        fs::write(&stamp_file, stamp).map_err(|error| Closed::Broken(format!("stamp: {error}")))?;
        Ok(installer)
    }

    fn install(&self, project: &Project) -> Result<(), Closed> {
        for step in &project.install {
            let finished = run(gently(&self.command(step)), INSTALL_TIME_MAX).map_err(Closed::Broken)?;
            if let Some(why) = finished.failure() {
                let said = finished.lines.join("\n    ");
                return Err(Closed::Broken(format!("`{}`: {why}\n    {said}", step.join(" "))));
            }
        }
        Ok(())
    }

    /// A command in the installation directory. A program with a `/` in its name is relative to it.
    pub(crate) fn command<W: AsRef<str>>(&self, words: &[W]) -> Command {
        let mut words = words.iter().map(AsRef::as_ref);
        let program = words.next().expect("a command has a program");
        let mut command =
            if program.contains('/') { Command::new(self.dir.join(program)) } else { Command::new(program) };
        command.args(words).current_dir(&self.dir);
        command
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// The same command, behind all others that want the processor: clients that run at the same time measure leases.
fn gently(command: &Command) -> Command {
    let mut gently = Command::new("nice");
    gently.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    if let Some(directory) = command.get_current_dir() {
        gently.current_dir(directory);
    }
    gently
}

/// Whether a variable of the environment is 1.
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| value == "1")
}

fn source_dir(project: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(project)
}

/// Copies only changed files, so that build tools see new times only for new text.
fn refresh(source: &Path, target: &Path) -> io::Result<()> {
    fs::create_dir_all(target)?;
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            if !MADE_BY_TOOLS.iter().any(|made| entry.file_name() == *made) {
                refresh(&from, &to)?;
            }
        } else {
            let text = fs::read(&from)?;
            if !fs::read(&to).is_ok_and(|old| old == text) {
                fs::write(&to, text)?;
            }
        }
    }
    Ok(())
}

/// The text of all inputs, one after the other, each with its path.
fn stamp(source: &Path, inputs: &[String]) -> io::Result<Vec<u8>> {
    let mut stamp = Vec::new();
    for input in inputs {
        add_to_stamp(&source.join(input), input, &mut stamp)?;
    }
    Ok(stamp)
}

fn add_to_stamp(path: &Path, name: &str, stamp: &mut Vec<u8>) -> io::Result<()> {
    if path.is_dir() {
        let mut names =
            fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort();
        for below in names {
            add_to_stamp(&path.join(&below), &format!("{name}/{}", below.to_string_lossy()), stamp)?;
        }
        return Ok(());
    }
    stamp.extend_from_slice(format!("== {name}\n").as_bytes());
    stamp.extend(fs::read(path)?);
    Ok(())
}

/// Directories that tools leave in a source tree when a project is tried by hand.
const MADE_BY_TOOLS: &[&str] = &["__pycache__", "bin", "node_modules", "target", "venv", "venv-apart"];
const PROBE_TIME_MAX: Duration = Duration::from_secs(60);
const INSTALL_TIME_MAX: Duration = Duration::from_secs(15 * 60);
