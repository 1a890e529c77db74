//! The command line as a whole: the flags of the server, and all subcommands.
//!
//! Owns    [`Action`], what the arguments ask for, and the clap command that help, man pages and completions come from.
//! Rule    a subcommand is a row of the folder that it is in; here they are put together.

use std::ffi::{OsStr, OsString};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use redlatch_core::state::settings::REDIS_VERSION_DEFAULT;

use super::common::exit::{self, MISUSED};
use super::common::{Fault, Reader, Subcommand, Task};
use super::server::{self, ServerArguments};
use super::{beside, explore, load, locks, mcp};

/// The action that the arguments ask for.
pub(super) enum Action {
    /// Say that a subcommand was misused, and exit with this code.
    Misused(u8, Fault),
    /// Print this and be done.
    Print(String),
    /// Do the work of a subcommand.
    Run(Task),
    Serve(ServerArguments),
}

/// The subcommands of all folders.
const SUBCOMMANDS: [&[Subcommand]; 6] = [
    locks::SUBCOMMANDS,
    beside::SUBCOMMANDS,
    load::SUBCOMMANDS,
    mcp::SUBCOMMANDS,
    explore::SUBCOMMANDS,
    server::SUBCOMMANDS,
];

/// Words that begin the names of several subcommands, and what these are for.
const GROUPS: [(&str, &str); 2] = [
    ("cluster", "Shows and changes the leader of a cluster, and moves locks to and from a cluster."),
    ("fence", "Prints SQL for a database that checks fencing tokens."),
];

/// Reads the arguments behind the program's name.
///
/// # Errors
/// An argument that is neither a flag nor a configuration file, or quotes that do not match.
pub(super) fn read(arguments: &[OsString]) -> Result<Action, Fault> {
    if let Some((row, rest)) = named(arguments) {
        return Ok(
            subcommand(row, rest, arguments).unwrap_or_else(|fault| Action::Misused(row.misused, fault))
        );
    }
    match arguments.first().and_then(|first| first.to_str()) {
        Some("-v" | "-V" | "--version") => Ok(Action::Print(version())),
        Some("-h" | "--help" | "help" | "completions" | "man") => parsed(arguments, about_itself),
        Some(word) if GROUPS.iter().any(|(group, _)| *group == word) => {
            let asked = parsed(arguments, |_| Err(format!("'{word}' needs a subcommand")));
            Ok(asked.unwrap_or_else(|fault| Action::Misused(MISUSED, fault)))
        }
        _ => ServerArguments::read(&lossy(arguments)).map(Action::Serve),
    }
}

fn subcommands() -> impl Iterator<Item = &'static Subcommand> {
    SUBCOMMANDS.into_iter().flatten()
}

/// The subcommand that the arguments begin with, and the arguments after its name.
fn named(arguments: &[OsString]) -> Option<(&'static Subcommand, &[OsString])> {
    subcommands().find_map(|row| {
        let (name, rest) = arguments.split_at_checked(row.name.split(' ').count())?;
        let is_named = row.name.split(' ').zip(name).all(|(word, argument)| argument == word);
        is_named.then_some((row, rest))
    })
}

/// What a subcommand is asked for by the arguments after its name, `rest`.
fn subcommand(row: &Subcommand, rest: &[OsString], arguments: &[OsString]) -> Result<Action, Fault> {
    match row.reader {
        Reader::Clap(read) => parsed(arguments, |matches| read(innermost(matches)).map(Action::Run)),
        Reader::Server(_) if asks_for_help(rest) => parsed(arguments, |_| Err("--help is no value".into())),
        Reader::Server(read) => read(&lossy(rest)).map(Action::Run),
    }
}

/// What `act` makes of the arguments; or the help, if they ask for that.
fn parsed(
    arguments: &[OsString],
    act: impl FnOnce(&ArgMatches) -> Result<Action, Fault>,
) -> Result<Action, Fault> {
    let words = std::iter::once(OsStr::new("redlatch")).chain(arguments.iter().map(OsString::as_os_str));
    match command().try_get_matches_from(words) {
        Ok(matches) => act(&matches),
        Err(error) if !error.use_stderr() => Ok(Action::Print(error.render().to_string())),
        Err(error) => Err(one_sentence(&error.render().to_string())),
    }
}

/// The arguments of the subcommand, or of its subcommand.
fn innermost(mut matches: &ArgMatches) -> &ArgMatches {
    while let Some((_, inner)) = matches.subcommand() {
        matches = inner;
    }
    matches
}

/// What the program says about itself: a shell's completions, a man page.
fn about_itself(matches: &ArgMatches) -> Result<Action, Fault> {
    match matches.subcommand() {
        Some(("completions", matches)) => {
            let shell = *matches.get_one::<clap_complete::Shell>("shell").expect("a required argument");
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command(), "redlatch", &mut script);
            Ok(Action::Print(String::from_utf8_lossy(&script).into_owned()))
        }
        Some((_, matches)) => man(matches.get_one::<String>("page")),
        None => Err("a subcommand is missing; see redlatch --help".into()),
    }
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

/// The command line as clap knows it: the flags of the server, and the rows of all subcommands.
fn command() -> Command {
    let shells = Arg::new("shell")
        .required(true)
        .help("Name of the shell.")
        .value_parser(value_parser!(clap_complete::Shell));
    let page = Arg::new("page").value_name("SUBCOMMAND").help("Name of the subcommand: redlatch man run.");
    let version = Arg::new("version")
        .short('v')
        .short_alias('V')
        .long("version")
        .action(ArgAction::SetTrue)
        .help("Prints the version.");
    server::with_flags(Command::new("redlatch"))
        .version(env!("CARGO_PKG_VERSION"))
        .disable_version_flag(true)
        .about("A lock server that speaks the Redis protocol.")
        .after_help(format!("{AFTER_HELP}\n\n{}", exit::meanings(|_| true)))
        .args_conflicts_with_subcommands(true)
        .arg(version)
        .subcommands(subcommands().filter(|row| !row.name.contains(' ')).map(|row| described(row, row.name)))
        .subcommands(GROUPS.map(group))
        .subcommand(Command::new("completions").about("Prints the completions for a shell.").arg(shells))
        .subcommand(
            Command::new("man").about("Prints the man page of redlatch or of a subcommand.").arg(page),
        )
}

fn described(row: &Subcommand, word: &'static str) -> Command {
    let command = (row.arguments)(Command::new(word).about(row.about));
    let help = command.get_after_help().map(|help| format!("{help}\n\n")).unwrap_or_default();
    command.after_help(help + &exit::meanings(|status| row.can_exit_with(status)))
}

fn group((name, about): (&'static str, &'static str)) -> Command {
    let rows = subcommands().filter_map(|row| match row.name.split_once(' ') {
        Some((group, word)) if group == name => Some(described(row, word)),
        _ => None,
    });
    Command::new(name).about(about).subcommand_required(true).subcommands(rows)
}

const AFTER_HELP: &str = "\
A flag overrides the environment, the environment overrides a file, a file overrides the default.
redlatch accepts settings of redis.conf that it does not need, and lists them in the log once.";

#[cfg(test)]
mod tests {
    use redlatch_core::state::settings_table::ROWS;

    use super::*;

    #[test]
    fn clap_accepts_the_command() {
        command().debug_assert();
    }

    fn printed(arguments: &[&str]) -> String {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        match read(&arguments) {
            Ok(Action::Print(text)) => text,
            _ => panic!("{arguments:?} prints nothing"),
        }
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

    /// The help texts of a command and of its subcommands, without those of settings.
    fn texts(command: &Command) -> Vec<String> {
        let is_setting = |arg: &&Arg| ROWS.iter().any(|row| row.name == arg.get_id().as_str());
        let args = command.get_arguments().filter(|arg| !is_setting(arg)).filter_map(Arg::get_help);
        let own = args.chain(command.get_about()).chain(command.get_after_help()).map(ToString::to_string);
        own.chain(command.get_subcommands().flat_map(texts)).collect()
    }

    #[test]
    fn help_is_in_short_sentences_with_nouns() {
        let banned =
            ["so many", "so long", "beside", "anew", "alone", "again and again", "those", "whoever", "what"];
        for text in texts(&command()) {
            // A row of a list is a sentence, too, and so is a heading.
            let flowing = text.replace("\n\n", ". ").replace("\n  ", ". ").replace('\n', " ");
            for sentence in flowing.split(". ") {
                assert!(sentence.split_whitespace().count() <= 25, "{sentence}");
            }
            let words = format!(" {} ", text.to_lowercase().replace(|c: char| !c.is_alphabetic(), " "));
            let found = banned.into_iter().find(|word| words.contains(&format!(" {word} ")));
            assert_eq!(found, None, "{text}");
        }
    }
}
