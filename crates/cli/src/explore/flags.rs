//! The arguments of `redlatch explore`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::case::Kind;
use super::options::{ExploreOptions, Format, TIMEOUT, URL_VARIABLE};
use super::problem::Problem;
use super::search;
use super::servers::Servers;
use crate::common::arguments::command_to_run;
use crate::common::{Fault, Subcommand, Task, duration, task};

pub(super) const EXPLORE: Subcommand = Subcommand::new(
    "explore",
    "Runs a test again and again, with another failure of the server at another lock command each time.",
    arguments,
    read,
);

fn arguments(command: Command) -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let time = |name, default: &'static str, help| {
        option(name, "TIME", help).value_parser(duration::read).default_value(default)
    };
    let format =
        PossibleValuesParser::new(["text", "json", "junit", "html"]).map(|name| match name.as_str() {
            "json" => Format::Json,
            "junit" => Format::Junit,
            "html" => Format::Html,
            _ => Format::Text,
        });
    command
        .after_help("Exits with 0 if nothing is found, with 1 if something is, with 2 if it could not run.")
        .arg(
            option("env", "NAME", "A variable in which the command finds the URL of its server.")
                .action(ArgAction::Append)
                .default_value(URL_VARIABLE),
        )
        .arg(
            option("nodes", "N", "How many servers there are; REDIS_URLS has their URLs, with commas.")
                .value_parser(value_parser!(u16).range(1..=64))
                .default_value("1"),
        )
        .arg(
            Arg::new("cluster")
                .long("cluster")
                .action(ArgAction::SetTrue)
                .conflicts_with("nodes")
                .help("The server is a Redis Cluster of three masters, with a replica of each."),
        )
        .arg(time("timeout", TIMEOUT, "How long one run may take."))
        .arg(time("budget", "10m", "How long all runs may take."))
        .arg(
            option("jobs", "N", "How many cases are tried at a time, each with a server of its own.")
                .value_parser(value_parser!(u16).range(1..=64))
                .default_value("1"),
        )
        .arg(
            option(
                "expect",
                "KIND",
                "A kind of failure that the command must survive: then it is a finding if it fails.",
            )
            .action(ArgAction::Append)
            .value_parser(PossibleValuesParser::new(Kind::ALL.map(Kind::name))),
        )
        .arg(
            option("accept", "ID", "A finding, by its ID, that is printed and does not count.")
                .action(ArgAction::Append)
                .value_parser(Problem::read_id),
        )
        .arg(
            Arg::new("pairs")
                .long("pairs")
                .action(ArgAction::SetTrue)
                .conflicts_with("case")
                .help("After each failure alone, pairs of them: at two lock commands of one run."),
        )
        .arg(
            Arg::new("runner")
                .long("runner")
                .action(ArgAction::SetTrue)
                .help("The command is a runner: it stays, and runs the test for each line that it reads."),
        )
        .arg(option("case", "CASE", "This case alone, as a finding names it."))
        .arg(
            option("after", "CASE", "Go on behind this case, as a search says whose budget is spent.")
                .conflicts_with("case"),
        )
        .arg(
            option(
                "clock",
                "CLOCK",
                "real, or auto: it goes to the next deadline whenever all clients are silent.",
            )
            .value_parser(PossibleValuesParser::new(["real", "auto"]))
            .default_value("real"),
        )
        .arg(
            option(
                "format",
                "FORMAT",
                "How findings are written: text, JSON, one in a line, the XML of JUnit, or a page.",
            )
            .value_parser(format)
            .default_value("text"),
        )
        .arg(command_to_run())
}

/// What the arguments ask for.
fn read(matches: &ArgMatches) -> Result<Task, Fault> {
    let words = |name| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
    let is = |name, value| matches.get_one::<String>(name).is_some_and(|word| word == value);
    let options = ExploreOptions {
        command: matches.get_many("command").into_iter().flatten().cloned().collect(),
        is_runner: matches.get_flag("runner"),
        variables: words("env"),
        servers: match matches.get_flag("cluster") {
            true => Servers::Cluster,
            false => Servers::Stores(*matches.get_one("nodes").expect("it has a default")),
        },
        timeout: *matches.get_one("timeout").expect("it has a default"),
        budget: *matches.get_one("budget").expect("it has a default"),
        jobs: usize::from(*matches.get_one::<u16>("jobs").expect("it has a default")),
        expects: words("expect"),
        accepts: words("accept"),
        with_pairs: matches.get_flag("pairs"),
        case: matches.get_one("case").cloned(),
        after: matches.get_one("after").cloned(),
        is_clock_auto: is("clock", "auto"),
        format: *matches.get_one("format").expect("it has a default"),
    };
    Ok(task(move || search::run(options)))
}
