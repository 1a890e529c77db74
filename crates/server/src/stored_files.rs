//! The ACL file and the configuration file, as ACL LOAD, ACL SAVE and CONFIG REWRITE use them, and the users at the
//! start.
//!
//! Rule    a file is replaced as a whole: a new file in its directory is written, synced, and renamed to its name.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use redlatch_core::commands::Shared;
use redlatch_core::state::acl::SetError;
use redlatch_core::state::acl::file::Store;
use redlatch_platform::files;

use super::StartError;

/// A user's name and rules, as in a line `user` of the configuration.
pub(super) type UserLine = (String, Vec<String>);

/// Creates the users of the configuration, or those of the ACL file.
///
/// # Errors
/// A rule is wrong, a user is defined twice, the file cannot be read, or there are users in both places.
pub(super) fn install_users(shared: &Shared, lines: &[UserLine]) -> Result<(), StartError> {
    if shared.has_acl_file() && !lines.is_empty() {
        let text = "aclfile: users are in the ACL file or in the configuration, not in both";
        return Err(StartError::Unusable(text.into()));
    }
    (0..lines.len()).try_for_each(|at| install_user(shared, lines, at))?;
    load_acl_file(shared)
}

/// Every fault that [`install_users`] would meet first.
pub(super) fn user_faults(shared: &Shared, lines: &[UserLine]) -> Vec<StartError> {
    let mut faults: Vec<_> =
        (0..lines.len()).filter_map(|at| install_user(shared, lines, at).err()).collect();
    match faults.is_empty() {
        true => faults.extend(install_users(shared, lines).err()),
        false => faults.extend(load_acl_file(shared).err()),
    }
    faults
}

/// Creates the user of the line `at`.
fn install_user(shared: &Shared, lines: &[UserLine], at: usize) -> Result<(), StartError> {
    let (name, rules) = &lines[at];
    let refused = |why: String| StartError::Unusable(format!("user '{name}': {why}"));
    if lines[..at].iter().any(|(known, _)| known == name) {
        return Err(refused("is there twice".into()));
    }
    let words = std::iter::once("reset").chain(rules.iter().map(String::as_str)).map(str::as_bytes);
    let made = shared.access.acl.set(name.as_bytes(), words, shared.acl_terms());
    made.map(drop).map_err(|error| match error {
        // The text taken for a name may contain a password.
        SetError::Name => {
            StartError::Unusable("user: a name cannot contain spaces or null characters".into())
        }
        error => refused(reason(&error)),
    })
}

fn load_acl_file(shared: &Shared) -> Result<(), StartError> {
    let loaded = shared.load_acl_file();
    loaded.map(drop).map_err(|error| StartError::Unusable(String::from_utf8_lossy(&error).into_owned()))
}

/// The text of the error. A rule that contains a password is left out.
fn reason(error: &SetError) -> String {
    match error {
        SetError::Name | SetError::Users => "there are too many users".into(),
        SetError::Parenthesis(word) => format!("the parenthesis of '{}' is not closed", word.escape_ascii()),
        SetError::Rule(rule, error) if matches!(rule.first(), Some(b'<' | b'>' | b'#' | b'!')) => {
            error.to_string()
        }
        SetError::Rule(rule, error) => format!("'{}': {error}", rule.escape_ascii()),
    }
}

/// The ACL file.
#[derive(Debug)]
pub(super) struct AclFile {
    path: PathBuf,
    name: String,
}

impl AclFile {
    pub(super) fn new(name: String) -> Self {
        Self { path: PathBuf::from(&name), name }
    }

    /// Writes `text` to a new file at `draft`. Only its owner may read it, unless the old file had a mode that lets others
    /// in, but not all: that is kept.
    fn write_draft(&self, draft: &Path, text: &[u8]) -> io::Result<()> {
        let mut file = files::private(OpenOptions::new().write(true).create_new(true)).open(draft)?;
        files::share_as(&file, &self.path)?;
        file.write_all(text)?;
        file.sync_all()
    }

    fn replace(&self, draft: &Path, text: &[u8]) -> io::Result<()> {
        self.write_draft(draft, text)?;
        fs::rename(draft, &self.path)?;
        // A rename is durable once its folder is synced.
        files::sync_directory(self.path.parent().unwrap_or(&self.path))
    }
}

/// The configuration file. One that no longer exists is created.
#[derive(Debug)]
pub(super) struct ConfigFile(pub(super) AclFile);

impl Store for ConfigFile {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        match fs::read(&self.0.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map_err(|error| error.to_string()),
        }
    }

    fn write(&self, text: &[u8]) -> Result<(), String> {
        self.0.write(text)
    }
}

impl Store for AclFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        fs::read(&self.path).map_err(|error| error.to_string())
    }

    fn write(&self, text: &[u8]) -> Result<(), String> {
        let draft = PathBuf::from(format!("{}.tmp-{}", self.name, std::process::id()));
        self.replace(&draft, text).map_err(|error| {
            let _ = fs::remove_file(&draft);
            error.to_string()
        })
    }
}
