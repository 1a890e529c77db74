//! The flags: one for each row of the settings table, in the syntax of redis-server.
//!
//! Owns    [`Action`], what the arguments ask for, and the clap command that help, man page and completions come
//!         from.
//! Rule    an argument that starts with `--` opens a directive, and what follows up to the next one are its words; an
//!         argument of several words is split first, so that one argument may be a whole command line.
//! Source  Redis 7.0 `server.c`, main.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Arg, ArgAction, Command, value_parser};
use redlatch_core::state::settings::{Kind, REDIS_VERSION_DEFAULT, Setting};
use redlatch_core::state::settings_table::ROWS;

use super::file::{self, Directive};
use super::place::{Place, with_trust};
use super::sources::variable;
use super::{
    Fault, accept_restored, explore, explore_flags, fence, harness, hold, hold_flags, load_command,
    load_flags, lock_flags, mcp_flags, moves, run, timeline, views,
};

/// The action that the arguments ask for.
#[derive(Debug)]
pub(super) enum Action {
    /// Let the nodes of a cluster lead again after a restore of etcd.
    AcceptRestored(accept_restored::Options),
    Move(moves::Way, Request),
    /// Say whether the server would start with these settings.
    CheckConfig(Request),
    /// Run a command with every failure at every lock command.
    Explore(explore::Options),
    /// Ask a running server whether it is alive.
    Health(Place),
    /// Take, renew or release a lock that outlives this process.
    Hold(hold::Options),
    /// Take and release locks, and measure it.
    Load(Box<load_command::Options>),
    /// Give an agent locks as tools.
    Mcp(mcp_flags::Options),
    /// Say that a subcommand for locks was misused.
    Misused(Fault),
    /// Print this and be done.
    Print(String),
    /// Run a command under a lock.
    Run(run::Options),
    Serve(Request),
    Timeline(timeline::TimelineOptions),
    /// Watch a running server on the terminal, and ask it so often.
    Top(Place, Duration),
    /// Ask a running server about its locks.
    View(views::View),
}

/// The settings and files that the arguments name.
#[derive(Debug, Default, Eq, PartialEq)]
pub(super) struct Request {
    pub(super) file: Option<String>,
    /// Whether the standard input is a configuration file.
    pub(super) reads_stdin: bool,
    /// What the flags say, in order.
    pub(super) directives: Vec<Directive>,
    /// What the process itself is to do.
    pub(super) process: harness::Flags,
}

/// Reads the arguments behind the program's name.
///
/// # Errors
/// An argument that is neither a flag nor a configuration file, or quotes that do not match.
pub(super) fn read(arguments: &[OsString]) -> Result<Action, Fault> {
    match arguments.first().and_then(|first| first.to_str()) {
        Some("-v" | "-V" | "--version") => Ok(Action::Print(version())),
        Some("check-config") if !asks_for_help(arguments) => {
            serve(&lossy(&arguments[1..])).map(Action::CheckConfig)
        }
        Some("cluster") if !asks_for_help(arguments) => of_cluster(arguments),
        Some("-h" | "--help" | "help" | "check-config" | "health" | "completions" | "man") => {
            subcommand(arguments)
        }
        Some(name) if NAMES.iter().any(|names| names.contains(&name)) => {
            Ok(subcommand(arguments).unwrap_or_else(Action::Misused))
        }
        _ => serve(&lossy(arguments)).map(Action::Serve),
    }
}

/// What `redlatch cluster` is asked for: most of it takes the settings of a node.
fn of_cluster(arguments: &[OsString]) -> Result<Action, Fault> {
    let word = arguments.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let request = || serve(&lossy(&arguments[2..]));
    let action = if word == "accept-restored" {
        request().and_then(accept_restored::Options::of).map(Action::AcceptRestored)
    } else if let Some(way) = moves::Way::of(word) {
        request().map(|request| Action::Move(way, request))
    } else {
        subcommand(arguments)
    };
    Ok(action.unwrap_or_else(Action::Misused))
}

fn asks_for_help(arguments: &[OsString]) -> bool {
    arguments.iter().any(|argument| argument == "--help" || argument == "-h")
}

fn lossy(arguments: &[OsString]) -> Vec<String> {
    arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect()
}

/// Harnesses look for ` v=` and the Redis version whose replies they may expect.
fn version() -> String {
    format!(
        "redlatch v={REDIS_VERSION_DEFAULT} bits={} redlatch={}\n",
        usize::BITS,
        env!("CARGO_PKG_VERSION")
    )
}

fn subcommand(arguments: &[OsString]) -> Result<Action, Fault> {
    let words = std::iter::once(OsStr::new("redlatch")).chain(arguments.iter().map(OsString::as_os_str));
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if !error.use_stderr() => return Ok(Action::Print(error.render().to_string())),
        Err(error) => return Err(one_sentence(&error.render().to_string())),
    };
    match matches.subcommand() {
        Some(("health", matches)) => Ok(Action::Health(Place::read(matches))),
        Some(("completions", matches)) => {
            let shell = *matches.get_one::<clap_complete::Shell>("shell").expect("a required argument");
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "redlatch", &mut script);
            Ok(Action::Print(String::from_utf8_lossy(&script).into_owned()))
        }
        Some(("man", matches)) => man(matches.get_one::<String>("page")),
        Some(("explore", matches)) => Ok(explore_flags::read(matches)),
        Some((name, matches)) if fence::NAMES.contains(&name) => Ok(fence::read(matches)),
        Some((name, matches)) if hold_flags::NAMES.contains(&name) => hold_flags::read(name, matches),
        Some((name, matches)) if load_flags::NAMES.contains(&name) => load_flags::read(name, matches),
        Some((name, matches)) if mcp_flags::NAMES.contains(&name) => mcp_flags::read(matches),
        Some((name, matches)) if timeline::NAMES.contains(&name) => {
            Ok(Action::Timeline(timeline::read(matches)))
        }
        Some((name, matches)) => lock_flags::read(name, matches),
        None => Err("a subcommand is missing; see redlatch --help".into()),
    }
}

/// The man page of the program, or of one subcommand.
fn man(name: Option<&String>) -> Result<Action, Fault> {
    let mut command = command();
    command.build();
    let command = match name {
        None => command,
        Some(name) => {
            let page = command.find_subcommand(name).cloned();
            let page = page.ok_or_else(|| format!("no subcommand '{name}'; see redlatch --help"))?;
            page.name(format!("redlatch-{name}"))
        }
    };
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command).render(&mut page);
    rendered.map_err(|error| format!("cannot write the man page: {error}"))?;
    Ok(Action::Print(String::from_utf8_lossy(&page).into_owned()))
}

/// The first paragraph of what clap says, without its `error: `.
fn one_sentence(text: &str) -> Fault {
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    format!("{}; see redlatch --help", lines.join(" ").trim_start_matches("error: "))
}

fn serve(arguments: &[String]) -> Result<Request, Fault> {
    let mut request = Request::default();
    let mut words = split(arguments)?;
    // First, as a file would be, or last, as in Redis.
    for end in [0, words.len().saturating_sub(1)] {
        if words.get(end).is_some_and(|word| word == "-") {
            request.reads_stdin = true;
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
    request.file = words.next_if(|word| !word.starts_with("--"));
    while let Some(flag) = words.next() {
        let Some(flag) = flag.strip_prefix("--") else {
            return Err(format!("unexpected argument '{flag}'; see redlatch --help"));
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
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
        if !request.process.read(&directive.name, &directive.words)? {
            request.directives.push(directive);
        }
    }
    Ok(request)
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

/// The command line as clap knows it, from the settings table.
fn command() -> Command {
    let health = Command::new("health").about("Asks a running server for a PONG; exits with 0 or 1.").arg(
        Arg::new("url").value_name("URL").help("redis[s]://[[user]:password@]host[:port] or unix:///path."),
    );
    let check = Command::new("check-config")
        .about("Says whether the server would start with these settings, and names every fault.")
        .after_help(
            "Reads flags, environment and file as the server does, the ACL file and the certificates as well. Binds \
             nothing and opens no directory. Exits with 0 or 1.",
        );
    let check = with_settings(check);
    let shells =
        Arg::new("shell").required(true).help("The shell.").value_parser(value_parser!(clap_complete::Shell));
    with_settings(Command::new("redlatch"))
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .about("A lock server that speaks the Redis protocol.")
        .after_help(AFTER_HELP)
        .args_conflicts_with_subcommands(true)
        .args(harness::flags())
        .arg(
            Arg::new("version")
                .short('v')
                .short_alias('V')
                .long("version")
                .action(ArgAction::SetTrue)
                .help("Prints the version."),
        )
        .subcommands(lock_flags::commands())
        .subcommands(hold_flags::commands())
        .subcommands(load_flags::commands())
        .subcommand(mcp_flags::command())
        .subcommand(timeline::command())
        .subcommand(explore_flags::command())
        .subcommand(fence::command())
        .subcommand(check)
        .subcommand(with_trust(health))
        .subcommand(Command::new("completions").about("Prints a shell's completions.").arg(shells))
        .subcommand(
            Command::new("man").about("Prints the man page, or that of a subcommand.").arg(
                Arg::new("page").value_name("SUBCOMMAND").help("The subcommand, as in redlatch man run."),
            ),
        )
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

/// The subcommands that exit with 64 if they are misused.
const NAMES: [&[&str]; 7] = [
    explore_flags::NAMES,
    fence::NAMES,
    hold_flags::NAMES,
    load_flags::NAMES,
    lock_flags::NAMES,
    mcp_flags::NAMES,
    timeline::NAMES,
];

const AFTER_HELP: &str = "\
A flag wins over the environment, the environment over a file, a file over the default.
Settings of redis.conf that do not apply here are accepted, and listed once in the log.";

#[cfg(test)]
mod tests {
    use super::*;

    fn served(arguments: &[&str]) -> Request {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        serve(&arguments).unwrap()
    }

    fn pairs(request: &Request) -> Vec<(String, String)> {
        request.directives.iter().map(|found| (found.name.clone(), found.words.join(" "))).collect()
    }

    #[test]
    fn clap_accepts_the_command() {
        command().debug_assert();
    }

    fn printed(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        match read(&arguments) {
            Ok(Action::Print(text)) => text,
            other => panic!("{arguments:?} prints nothing: {other:?}"),
        }
    }

    #[test]
    fn each_kind_of_database_has_its_fence() {
        let fences = ["postgres", "mysql", "sqlite"].map(|kind| printed(&["fence", "sql", kind]));
        let has = ["CREATE OR REPLACE FUNCTION", "CREATE PROCEDURE", "CREATE TRIGGER"];
        assert!(fences.iter().zip(has).all(|(fence, word)| fence.contains(word)), "{fences:?}");
        assert_eq!(printed(&["fence", "sql", "mariadb"]), fences[1]);
    }

    /// A man page as text: without the backslashes of its hyphens.
    fn page(arguments: &[&str]) -> String {
        printed(&[&["man"], arguments].concat()).replace('\\', "")
    }

    #[test]
    fn the_man_pages_and_the_completions_name_every_subcommand_and_every_flag() {
        let mut root = command();
        root.build();
        let bash = printed(&["completions", "bash"]);
        let others: Vec<String> =
            ["zsh", "fish", "elvish"].iter().map(|shell| printed(&["completions", shell])).collect();
        let subcommands = root.get_subcommands().filter(|command| command.get_name() != "help");
        let mut all: Vec<(&Command, String)> = vec![(&root, page(&[]))];
        for command in subcommands {
            let name = command.get_name();
            assert!(all[0].1.contains(&format!("redlatch-{name}(1)")), "the man page names {name}");
            assert!(bash.contains(&format!("redlatch,{name})")), "bash completes {name}");
            assert!(others.iter().all(|script| script.contains(name)), "all shells complete {name}");
            assert!(command.get_about().is_some(), "{name} says what it does");
            all.push((command, page(&[name])));
        }
        for (command, page) in &all {
            for arg in command.get_arguments() {
                let (name, help) = (command.get_name(), arg.get_help().map(ToString::to_string));
                let help = help.unwrap_or_else(|| panic!("{name} {}: has no help", arg.get_id()));
                let first = help.split(['.', ';', '\'']).next().expect("a first part");
                assert!(page.contains(first), "{name}: {first}");
                if let Some(long) = arg.get_long() {
                    assert!(page.contains(&format!("--{long}")), "{name}: the page names --{long}");
                    assert!(bash.contains(&format!("--{long}")), "{name}: bash completes --{long}");
                }
            }
        }
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
        let request = served(&["--save", "", "--bind", "127.0.0.1", "::1", "--requirepass=two words"]);
        let expected = [("save", ""), ("bind", "127.0.0.1 ::1"), ("requirepass", "two words")];
        assert_eq!(pairs(&request), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn one_argument_may_hold_several_flags() {
        let request = served(&["--port 7000 --loglevel verbose"]);
        assert_eq!(pairs(&request)[1], ("loglevel".to_owned(), "verbose".to_owned()));
    }

    #[test]
    fn a_file_comes_first_and_a_dash_first_or_last() {
        for (arguments, file) in [
            (&["redis.conf", "--port", "0", "-"][..], Some("redis.conf")),
            (&["--port", "0", "-"], None),
            (&["-", "--port", "0"], None),
            (&["-", "redis.conf", "--port", "0"], Some("redis.conf")),
        ] {
            let request = served(arguments);
            assert_eq!((request.file.as_deref(), request.reads_stdin), (file, true), "{arguments:?}");
            assert_eq!(pairs(&request), [("port".to_owned(), "0".to_owned())], "{arguments:?}");
        }
    }

    #[test]
    fn the_refusal_of_a_flag_with_one_dash_names_the_flag_with_two() {
        let refused = serve(&["-port".to_owned(), "7000".to_owned()]).unwrap_err();
        assert!(refused.contains("'-port'") && refused.contains("--port"), "{refused}");
    }
}
