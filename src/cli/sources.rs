//! The sources of settings, and their precedence.
//!
//! Rule    default < file < standard input < environment < flags; within one source the last word wins.

use std::io::Read;
use std::path::Path;

use super::file::{self, Directive};
use super::flags::Request;
use super::{Fault, directives};
use crate::state::settings::Settings;
use crate::state::settings_table::ROWS;

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
    directives: Vec<Directive>,
    /// The first source that could not be read to its end.
    fault: Option<Fault>,
    file: Option<String>,
}

impl Sources {
    /// Reads every source that `request` and the environment name. A source that cannot be read does not keep the
    /// others from being read, because they may name the log file that the error belongs in.
    pub(super) fn read(request: &Request) -> Self {
        let mut directives = Vec::new();
        let read = request.file.as_ref().map_or(Ok(()), |path| file::load(Path::new(path), &mut directives));
        let read = read.and_then(|()| match request.reads_stdin {
            true => read_stdin(&mut directives),
            false => Ok(()),
        });
        directives.extend(environment(|name| std::env::var(name).ok()));
        directives.extend(request.directives.iter().cloned());
        Self { directives, fault: read.err(), file: request.file.clone() }
    }

    /// The value with the highest precedence, not yet checked; empty if there is none.
    pub(super) fn value(&self, name: &str) -> String {
        let last = self.directives.iter().rev().find(|directive| directive.name == name);
        last.map(|directive| directive.words.join(" ")).unwrap_or_default()
    }

    /// The settings that the directives make.
    ///
    /// # Errors
    /// A source cannot be read, a name is unknown, or a value is not allowed.
    pub(super) fn check(self) -> Result<Configuration, Fault> {
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(Configuration { file: self.file, ..check(self.directives)? }),
        }
    }
}

fn read_stdin(found: &mut Vec<Directive>) -> Result<(), Fault> {
    let mut text = Vec::new();
    let read = std::io::stdin().read_to_end(&mut text);
    read.map_err(|error| format!("cannot read the standard input: {error}"))?;
    file::parse(&text, "the standard input", found)
}

/// The name of the variable that sets a setting: `REDLATCH_PORT_FILE` for `port-file`.
pub(super) fn variable(setting: &str) -> String {
    format!("REDLATCH_{}", setting.to_ascii_uppercase().replace('-', "_"))
}

fn environment(read: impl Fn(&str) -> Option<String>) -> Vec<Directive> {
    let mut found = Vec::new();
    for row in ROWS {
        let name = variable(row.name);
        // An empty variable counts as not set. Kubernetes sets REDLATCH_PORT=tcp://.. for a service called redlatch.
        let value = read(&name).filter(|value| !value.is_empty() && !value.starts_with("tcp://"));
        if let Some(value) = value {
            found.push(Directive { name: row.name.to_owned(), words: vec![value], origin: name });
        }
    }
    found
}

fn check(directives: Vec<Directive>) -> Result<Configuration, Fault> {
    let scratch = Settings::default();
    let mut configuration = Configuration::default();
    for Directive { name, words, origin } in directives {
        if name == "user" {
            // One argument may hold the whole line: `--user 'alice on nopass'`.
            let line = words.join(" ");
            let words = if words.len() == 1 {
                line.split_ascii_whitespace().map(str::to_owned).collect()
            } else {
                words
            };
            let mut words = words.into_iter();
            let user = words.next().ok_or_else(|| format!("user: a name is missing ({origin})"))?;
            configuration.users.push((user, words.collect()));
            continue;
        }
        let Some(row) = Settings::row(&name) else {
            if !directives::is_of_redis(&name) {
                return Err(format!("unknown setting '{name}' ({origin}); redlatch --help lists them all"));
            }
            if !configuration.ignored.contains(&name) {
                configuration.ignored.push(name);
            }
            continue;
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
        configuration.settings.push((row.name, value));
    }
    configuration.find_acl_file_in(&scratch.text("dir"));
    Ok(configuration)
}

impl Configuration {
    /// Redis reads a relative `aclfile` from the directory `dir`.
    fn find_acl_file_in(&mut self, directory: &str) {
        let files = self.settings.iter_mut().filter(|(name, _)| *name == "aclfile");
        let Some((_, file)) = files.last() else { return };
        if !file.is_empty() && Path::new(file).is_relative() {
            *file = Path::new(directory).join(&*file).to_string_lossy().into_owned();
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
        let configuration = check(all).unwrap();
        assert_eq!(configuration.settings, [("port", "7000".to_owned())]);
        assert_eq!(configuration.ignored, ["save"]);
    }

    #[test]
    fn a_relative_acl_file_is_in_the_directory_dir() {
        let found = |directory: &str, file: &str| {
            let configuration =
                check(vec![directive("aclfile", &[file]), directive("dir", &[directory])]).unwrap();
            configuration.settings[0].1.clone()
        };
        assert_eq!(found("/var/lib/redis", "users.acl"), "/var/lib/redis/users.acl");
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
            assert_eq!(check(vec![directive(name, words)]).unwrap_err(), said);
        }
        let refused = check(vec![directive("databases", &["0"])]).unwrap_err();
        assert!(refused.starts_with("databases '0': must be between 1 and ") && refused.ends_with(" (test)"));
    }

    #[test]
    fn a_variable_that_is_empty_or_from_kubernetes_counts_as_not_set() {
        let read = |name: &str| match name {
            "REDLATCH_PORT" => Some("tcp://10.0.0.1:6379".to_owned()),
            "REDLATCH_PORT_FILE" => Some(String::new()),
            "REDLATCH_REQUIREPASS" => Some("secret".to_owned()),
            _ => None,
        };
        let found = environment(read);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].name.as_str(), found[0].origin.as_str()),
            ("requirepass", "REDLATCH_REQUIREPASS")
        );
    }
}
