//! Where settings come from, and which source wins.
//!
//! Rule    default < file < standard input < environment < flags; within one source the last word wins.

use std::io::Read;
use std::path::Path;

use super::file::{self, Directive};
use super::flags::Request;
use super::{Fault, directives};
use crate::state::settings::Settings;
use crate::state::settings_table::ROWS;

/// What the server is to be started with.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// Name and value, later ones over earlier ones; each fits its row.
    pub(super) settings: Vec<(&'static str, String)>,
    /// Users by name and rules.
    pub(super) users: Vec<(String, Vec<String>)>,
    /// Directives of redis.conf that do not apply, each once.
    pub(super) ignored: Vec<String>,
    /// The configuration file, if there is one.
    pub(super) file: Option<String>,
}

/// Collects the settings from every source that `request` and the environment name.
///
/// # Errors
/// A file that cannot be read, a name that nobody knows, a value that does not fit.
pub(super) fn gather(request: &Request) -> Result<Gathered, Fault> {
    let mut all = Vec::new();
    if let Some(path) = &request.file {
        all.extend(file::load(Path::new(path))?);
    }
    if request.reads_stdin {
        let mut text = Vec::new();
        std::io::stdin()
            .read_to_end(&mut text)
            .map_err(|error| format!("cannot read the standard input: {error}"))?;
        all.extend(file::parse(&text, "the standard input")?);
    }
    all.extend(environment(|name| std::env::var(name).ok()));
    all.extend(request.directives.iter().cloned());
    Ok(Gathered { file: request.file.clone(), ..check(all)? })
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

fn check(directives: Vec<Directive>) -> Result<Gathered, Fault> {
    let scratch = Settings::default();
    let mut gathered = Gathered::default();
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
            gathered.users.push((user, words.collect()));
            continue;
        }
        let Some(row) = Settings::row(&name) else {
            if !directives::is_foreign(&name) {
                return Err(format!("unknown setting '{name}' ({origin}); redlatch --help lists them all"));
            }
            if !gathered.ignored.contains(&name) {
                gathered.ignored.push(name);
            }
            continue;
        };
        if words.is_empty() {
            return Err(format!("{name}: a value is missing ({origin})"));
        }
        // Several addresses may follow `bind`, and a class its limits; elsewhere a forgotten quote would change the value
        // silently.
        if words.len() > 1 && !matches!(row.name, "bind" | "client-output-buffer-limit") {
            return Err(format!("{name} '{}': must be one value ({origin})", words.join(" ")));
        }
        let value = words.join(" ");
        scratch.set(row.name, &value).map_err(|refused| format!("{refused} ({origin})"))?;
        gathered.settings.push((row.name, value));
    }
    Ok(gathered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directive(name: &str, words: &[&str]) -> Directive {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Directive { name: name.to_owned(), words, origin: "test".to_owned() }
    }

    #[test]
    fn what_does_not_apply_is_listed_once() {
        let all =
            vec![directive("save", &[""]), directive("port", &["7000"]), directive("save", &["60", "1"])];
        let gathered = check(all).unwrap();
        assert_eq!(gathered.settings, [("port", "7000".to_owned())]);
        assert_eq!(gathered.ignored, ["save"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
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
