//! The arguments of the server: a flag for each row of the settings table, in the syntax of redis-server.
//!
//! Rule    an argument that starts with `--` opens a directive, and what follows up to the next one are its words; an
//!         argument of several words is split first, so that one argument may be a whole command line.
//! Source  Redis 7.0 `server.c`, main.

use clap::builder::PossibleValue;
use clap::{Arg, Command};
use redlatch_core::state::settings::{Kind, Setting};
use redlatch_core::state::settings_table::ROWS;

use super::file::{self, Directive};
use super::harness::{self, HarnessFlags};
use crate::common::Fault;

/// The settings and files that the arguments name.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct ServerArguments {
    pub(super) file: Option<String>,
    /// Whether the standard input is a configuration file.
    pub(super) reads_stdin: bool,
    /// What the flags say, in order.
    pub(super) directives: Vec<Directive>,
    pub(super) harness: HarnessFlags,
}

impl ServerArguments {
    /// Reads the arguments behind the program's name, or behind that of a subcommand.
    ///
    /// # Errors
    /// An argument that is neither a flag nor a configuration file, or quotes that do not match.
    pub(crate) fn read(arguments: &[String]) -> Result<Self, Fault> {
        let mut read = Self::default();
        let mut words = split(arguments)?;
        // First, as a file would be, or last, as in Redis.
        for end in [0, words.len().saturating_sub(1)] {
            if words.get(end).is_some_and(|word| word == "-") {
                read.reads_stdin = true;
                words.remove(end);
            }
        }
        let mut words = words.into_iter().peekable();
        if let Some(short) = words.peek().filter(|word| is_short_flag(word)) {
            let long = short.trim_start_matches('-');
            return Err(format!(
                "unknown flag '{short}': flags have two dashes, as in --{long}; see redlatch --help"
            ));
        }
        read.file = words.next_if(|word| !word.starts_with("--"));
        while let Some(flag) = words.next() {
            let Some(flag) = flag.strip_prefix("--") else {
                return Err(format!("unexpected argument '{flag}'; see redlatch --help"));
            };
            let (name, value) =
                flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let mut directive = Directive {
                name: name.to_ascii_lowercase(),
                words: value.map(str::to_owned).into_iter().collect(),
                origin: format!("flag --{name}"),
            };
            if value.is_none() {
                while let Some(word) = words.next_if(|word| !word.starts_with("--")) {
                    directive.words.push(word);
                }
            }
            if !read.harness.read(&directive.name, &directive.words)? {
                read.directives.push(directive);
            }
        }
        Ok(read)
    }
}

/// Whether the word is a flag with one dash, which no flag but -h, -v and -V has.
fn is_short_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && !word.starts_with("--")
}

/// Splits an argument that holds a flag and its words; a flag with `=` keeps the spaces of its value.
fn split(arguments: &[String]) -> Result<Vec<String>, Fault> {
    let mut words = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let flag = argument.split_ascii_whitespace().next().unwrap_or_default();
        if argument.starts_with("--") && flag != argument && !flag.contains('=') {
            let found = file::directive(argument.as_bytes(), &format!("argument {argument}"))?;
            words.extend(found.into_iter().flat_map(|found| std::iter::once(found.name).chain(found.words)));
        } else {
            words.push(argument.clone());
        }
    }
    Ok(words)
}

/// Adds all flags of the server: the settings, and what a harness asks for.
pub(crate) fn with_flags(command: Command) -> Command {
    with_settings(command).args(harness::flags())
}

/// Adds the file and the flags of all settings.
pub(super) fn with_settings(command: Command) -> Command {
    let file = Arg::new("file")
        .value_name("FILE")
        .help("Settings in redis.conf's syntax; - reads the standard input.");
    command.arg(file).args(ROWS.iter().map(flag))
}

fn flag(row: &'static Setting) -> Arg {
    let default = if row.default.is_empty() { "none" } else { row.default };
    let help = format!("{} [default: {default}] [env: {}]", row.help, variable(row.name));
    let flag = Arg::new(row.name).long(row.name).value_name("VALUE").help(help).allow_hyphen_values(true);
    match row.kind {
        Kind::OneOf(words) => flag.value_parser(words.iter().map(PossibleValue::new).collect::<Vec<_>>()),
        _ => flag,
    }
}

/// What the names of variables of this program begin with.
pub(super) const VARIABLE_PREFIX: &str = "REDLATCH_";

/// The name of the variable that sets a setting: `REDLATCH_PORT_FILE` for `port-file`.
pub(super) fn variable(setting: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", setting.to_ascii_uppercase().replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(arguments: &[&str]) -> ServerArguments {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        ServerArguments::read(&arguments).unwrap()
    }

    fn pairs(read: &ServerArguments) -> Vec<(String, String)> {
        read.directives.iter().map(|found| (found.name.clone(), found.words.join(" "))).collect()
    }

    #[test]
    fn a_flag_and_its_value_can_be_written_in_several_ways() {
        let same = [&["--port", "7000"][..], &["--port 7000"], &["--port=7000"], &["--PORT", "7000"]];
        for arguments in same {
            assert_eq!(pairs(&served(arguments)), [("port".to_owned(), "7000".to_owned())], "{arguments:?}");
        }
    }

    #[test]
    fn several_words_and_empty_words_belong_to_the_flag_before_them() {
        let read = served(&["--save", "", "--bind", "127.0.0.1", "::1", "--requirepass=two words"]);
        let expected = [("save", ""), ("bind", "127.0.0.1 ::1"), ("requirepass", "two words")];
        assert_eq!(pairs(&read), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn one_argument_may_hold_several_flags() {
        let read = served(&["--port 7000 --loglevel verbose"]);
        assert_eq!(pairs(&read)[1], ("loglevel".to_owned(), "verbose".to_owned()));
    }

    #[test]
    fn a_file_comes_first_and_a_dash_first_or_last() {
        for (arguments, file) in [
            (&["redis.conf", "--port", "0", "-"][..], Some("redis.conf")),
            (&["--port", "0", "-"], None),
            (&["-", "--port", "0"], None),
            (&["-", "redis.conf", "--port", "0"], Some("redis.conf")),
        ] {
            let read = served(arguments);
            assert_eq!((read.file.as_deref(), read.reads_stdin), (file, true), "{arguments:?}");
            assert_eq!(pairs(&read), [("port".to_owned(), "0".to_owned())], "{arguments:?}");
        }
    }

    #[test]
    fn the_refusal_of_a_flag_with_one_dash_names_the_flag_with_two() {
        let refused = ServerArguments::read(&["-port".to_owned(), "7000".to_owned()]).unwrap_err();
        assert!(refused.contains("'-port'") && refused.contains("--port"), "{refused}");
    }
}
