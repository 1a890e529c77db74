//! Where the observed server is, and the login for it.
//!
//! Rule    a password among the arguments is refused: every user of the machine can read them.

use redlatch_client::Trust;
use redlatch_client::wire::{Target, Transport};

use crate::common::Fault;

/// The observed server, and the login for it.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) target: Target,
    pub(super) trust: Trust,
}

/// The variable with the password, unless a file has it.
const VARIABLE: &str = "REDLATCH_OBSERVED_PASSWORD";

impl Login {
    /// Reads the password from this file, or from the environment.
    ///
    /// # Errors
    /// The URL cannot be used, or has a login; the password cannot be read, or a user has none.
    pub(super) fn read(
        url: &str,
        user: Option<&String>,
        password_file: Option<&String>,
        trust: Trust,
    ) -> Result<Self, Fault> {
        if url.contains('@') && !url.starts_with("unix:///") {
            return Err(format!(
                "the URL has a login, which others can read in the list of processes: \
                 use --user NAME, and --password-file FILE or the variable {VARIABLE}"
            ));
        }
        let mut target = Target::parse(url).map_err(|error| error.to_string())?;
        if target.sentinels.is_some() {
            return Err("Sentinels are not followed: name the server".to_owned());
        }
        target.password = match password_file {
            Some(file) => of_file(file)?,
            None => std::env::var(VARIABLE).unwrap_or_default(),
        };
        target.user = user.cloned().unwrap_or_default();
        if user.is_some() && target.password.is_empty() {
            return Err(format!("--user needs --password-file FILE or the variable {VARIABLE}"));
        }
        Ok(Self { target, trust })
    }

    /// The URL, without the login.
    pub(super) fn url(&self) -> String {
        let scheme = match self.target.transport {
            Transport::Tcp => "redis",
            Transport::Tls => "rediss",
            Transport::Unix => "unix",
        };
        format!("{scheme}://{}", self.target.address)
    }
}

/// The first line of a file.
fn of_file(file: &str) -> Result<String, Fault> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("--password-file {file}: {error}"))?;
    let password = text.lines().next().unwrap_or_default();
    match password.is_empty() {
        true => Err(format!("--password-file {file}: its first line is empty")),
        false => Ok(password.to_owned()),
    }
}
