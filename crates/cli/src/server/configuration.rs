//! The sources of settings, and their precedence.
//!
//! Rule    default < file < standard input < environment < flags; within one source the last word wins.

use std::io::Read;
use std::path::Path;

use redlatch_core::state::directives;
use redlatch_core::state::settings::{self, Settings};
use redlatch_server::Builder;

use super::arguments::ServerArguments;
use super::file::{self, Directive, Found};
use super::variables;
use crate::common::Fault;

/// The allocator of the binary: see `main.rs`.
const ALLOCATOR: &str = if cfg!(target_env = "musl") { "mimalloc" } else { "libc" };

/// The checked settings that the server starts with.
#[derive(Debug, Default)]
pub(super) struct Configuration {
    /// Name and value, later ones over earlier ones; each fits its row.
    pub(super) settings: Vec<(&'static str, String)>,
    /// Users by name and rules.
    pub(super) users: Vec<(String, Vec<String>)>,
    /// Directives of redis.conf that do not apply, each once.
    pub(super) ignored: Vec<String>,
    /// The configuration file, if there is one.
    pub(super) file: Option<String>,
}

/// The directives of every source, weakest source first, not yet checked.
#[derive(Debug)]
pub(super) struct Sources {
    found: Found,
    file: Option<String>,
}

impl Sources {
    /// Reads every source that `arguments` and the environment name. A source that cannot be read does not keep the
    /// others from being read, because they may name the log file that the error belongs in.
    pub(super) fn read(arguments: &ServerArguments) -> Self {
        let mut found = Found::default();
        if let Some(path) = &arguments.file {
            file::load(Path::new(path), &mut found);
        }
        if arguments.reads_stdin {
            read_stdin(&mut found);
        }
        variables::read(std::env::vars_os(), &mut found);
        found.directives.extend(arguments.directives.iter().cloned());
        Self { found, file: arguments.file.clone() }
    }

    /// The directives, those of the weakest source first.
    pub(super) fn directives(&self) -> &[Directive] {
        &self.found.directives
    }

    /// The value with the highest precedence, not yet checked; empty if there is none.
    pub(super) fn value(&self, name: &str) -> String {
        let last = self.directives().iter().rev().find(|directive| directive.name == name);
        last.map(|directive| directive.words.join(" ")).unwrap_or_default()
    }

    /// The settings that the directives make.
    ///
    /// # Errors
    /// A source cannot be read, a name is unknown, or a value is not allowed: the first fault.
    pub(super) fn check(&self) -> Result<Configuration, Fault> {
        let (configuration, faults) = self.check_all();
        faults.into_iter().next().map_or(Ok(configuration), Err)
    }

    /// The settings that the directives make, without those that are not allowed, and every fault.
    pub(super) fn check_all(&self) -> (Configuration, Vec<Fault>) {
        let (configuration, faults) = check(self.directives());
        let faults = self.found.faults.iter().cloned().chain(faults).collect();
        (Configuration { file: self.file.clone(), ..configuration }, faults)
    }
}

fn read_stdin(found: &mut Found) {
    let mut text = Vec::new();
    match std::io::stdin().read_to_end(&mut text) {
        Ok(_) => file::parse(&text, "the standard input", found),
        Err(error) => found.faults.push(format!("cannot read the standard input: {error}")),
    }
}

/// The settings of those directives that are allowed, and the faults of the others.
fn check(directives: &[Directive]) -> (Configuration, Vec<Fault>) {
    let scratch = Settings::default();
    let mut configuration = Configuration::default();
    let read = directives.iter().map(|directive| configuration.take(directive, &scratch));
    let faults = read.filter_map(Result::err).collect();
    configuration.find_files_in(&scratch.get(settings::DIR));
    (configuration, faults)
}

/// The name and the rules of a directive `user`. One argument may hold the whole line: `--user 'alice on nopass'`.
pub(super) fn user(words: &[String]) -> Option<(String, Vec<String>)> {
    let line = words.join(" ");
    let words = match words.len() {
        1 => line.split_ascii_whitespace().map(str::to_owned).collect(),
        _ => words.to_vec(),
    };
    let mut words = words.into_iter();
    Some((words.next()?, words.collect()))
}

impl Configuration {
    /// Adds what a directive says. `scratch` gets each setting, to check its value.
    fn take(&mut self, directive: &Directive, scratch: &Settings) -> Result<(), Fault> {
        let Directive { name, words, origin } = directive;
        if name == "user" {
            let user = user(words).ok_or_else(|| format!("user: a name is missing ({origin})"))?;
            self.users.push(user);
            return Ok(());
        }
        let Some(row) = Settings::row(name) else {
            if !directives::is_of_redis(name) {
                return Err(format!("unknown setting '{name}' ({origin}); redlatch --help lists them all"));
            }
            if !self.ignored.contains(name) {
                self.ignored.push(name.clone());
            }
            return Ok(());
        };
        if words.is_empty() {
            return Err(format!("{name}: a value is missing ({origin})"));
        }
        // Several addresses may follow `bind`, and a class its limits; elsewhere a forgotten quote would change the
        // value silently.
        if words.len() > 1 && !matches!(row.name, "bind" | "client-output-buffer-limit") {
            return Err(format!("{name} '{}': must be one value ({origin})", words.join(" ")));
        }
        let value = words.join(" ");
        scratch.set(row.name, &value).map_err(|refused| format!("{refused} ({origin})"))?;
        self.settings.push((row.name, value));
        Ok(())
    }

    /// The server that it describes. Stores its settings in `settings`, too.
    ///
    /// # Errors
    /// A value is not allowed.
    pub(super) fn builder(&self, settings: &Settings) -> Result<Builder, Fault> {
        let mut builder = Builder::new().allocator(ALLOCATOR);
        for (name, value) in &self.settings {
            settings.set(name, value).map_err(|refused| refused.to_string())?;
            builder = builder.set(*name, value);
        }
        for (name, rules) in &self.users {
            builder = builder.user(name, rules);
        }
        if let Some(file) = &self.file {
            // A relative path would be another file after a change of the working directory.
            let path = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
            builder = builder.config_file(path.to_string_lossy());
        }
        Ok(builder)
    }

    /// In Redis, a relative `aclfile` or `pidfile` is in the directory `dir`.
    fn find_files_in(&mut self, directory: &str) {
        for (name, file) in &mut self.settings {
            let is_in_dir = matches!(*name, "aclfile" | "pidfile");
            if is_in_dir && !file.is_empty() && Path::new(&*file).is_relative() {
                *file = Path::new(directory).join(&*file).to_string_lossy().into_owned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(name: &str, words: &[&str]) -> Directive {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Directive { name: name.to_owned(), words, origin: "test".to_owned() }
    }

    #[test]
    fn directives_without_a_meaning_are_listed_once() {
        let all =
            vec![directive("save", &[""]), directive("port", &["7000"]), directive("save", &["60", "1"])];
        let configuration = check(&all).0;
        assert_eq!(configuration.settings, [("port", "7000".to_owned())]);
        assert_eq!(configuration.ignored, ["save"]);
    }

    #[test]
    fn a_relative_acl_or_pid_file_is_in_the_directory_dir() {
        let found = |directory: &str, file: &str| {
            let configuration = check(&[directive("aclfile", &[file]), directive("dir", &[directory])]).0;
            configuration.settings[0].1.clone()
        };
        assert_eq!(found("/var/lib/redis", "users.acl"), "/var/lib/redis/users.acl");
        let pid = check(&[directive("dir", &["/run/redis"]), directive("pidfile", &["server.pid"])]).0;
        assert_eq!(pid.settings[1].1, "/run/redis/server.pid");
        assert_eq!(found("/var/lib/redis", "/etc/users.acl"), "/etc/users.acl");
        assert_eq!(found("/var/lib/redis", ""), "");
        assert_eq!(found("", "users.acl"), "users.acl");
    }

    #[test]
    fn an_error_names_its_source() {
        for (name, words, said) in [
            ("nosuch", &["1"][..], "unknown setting 'nosuch' (test); redlatch --help lists them all"),
            ("databases", &[], "databases: a value is missing (test)"),
        ] {
            assert_eq!(check(&[directive(name, words)]).1, [said]);
        }
        let refused = &check(&[directive("databases", &["0"])]).1[0];
        assert!(refused.starts_with("databases '0': must be between 1 and ") && refused.ends_with(" (test)"));
    }
}
