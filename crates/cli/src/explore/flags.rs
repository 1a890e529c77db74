//! The arguments of `redlatch explore`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::case::Kind;
use super::options::{ExploreOptions, Format, TIMEOUT, URL_VARIABLE};
use super::problem::Problem;
use super::search;
use super::servers::Servers;
use crate::common::arguments::command_to_run;
use crate::common::exit::{DONE, MISUSED, NO, NOT_EXPLORED, SIGNALLED, SYSTEM};
use crate::common::{Fault, Subcommand, Task, duration, task};

pub(super) const EXPLORE: Subcommand = Subcommand::new(
    "explore",
    "Runs a test many times, each time with a different failure at a different lock command.",
    arguments,
    read,
)
.only(&[DONE, NO, NOT_EXPLORED, MISUSED, SYSTEM, SIGNALLED]);

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
        .arg(
            option("env", "NAME", "Environment variable with the URL of the server, for the command. May be repeated.")
                .action(ArgAction::Append)
                .default_value(URL_VARIABLE),
        )
        .arg(
            option("nodes", "N", "Number of servers. REDIS_URLS has their URLs, with commas between them.")
                .value_parser(value_parser!(u16).range(1..=64))
                .default_value("1"),
        )
        .arg(
            Arg::new("cluster")
                .long("cluster")
                .action(ArgAction::SetTrue)
                .conflicts_with("nodes")
                .help("The server is a Redis Cluster: three masters, each with a replica."),
        )
        .arg(time("timeout", TIMEOUT, "Longest time of one run. A longer run counts as hung."))
        .arg(time("budget", "10m", "Longest time of all runs."))
        .arg(
            option("jobs", "N", "Number of cases to run in parallel, each with its own server.")
                .value_parser(value_parser!(u16).range(1..=64))
                .default_value("1"),
        )
        .arg(
            option(
                "expect",
                "KIND",
                "The command must survive this kind of failure. If it fails, this is a finding. May be repeated.",
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
                .help("After the single failures, injects two failures at two lock commands of one run."),
        )
        .arg(
            Arg::new("runner")
                .long("runner")
                .action(ArgAction::SetTrue)
                .help("The command is a runner: one process that runs the test for each line on its standard input."),
        )
        .arg(option("case", "CASE", "Runs only this case, as a finding names it."))
        .arg(
            option("after", "CASE", "Resumes after this case. A search prints it when its budget ends.")
                .conflicts_with("case"),
        )
        .arg(
            option(
                "clock",
                "CLOCK",
                "real, or auto: when all clients are silent, the clock moves to the next deadline.",
            )
            .value_parser(PossibleValuesParser::new(["real", "auto"]))
            .default_value("real"),
        )
        .arg(
            option(
                "format",
                "FORMAT",
                "Format of the findings: text, lines of JSON, the XML of JUnit, or an HTML page.",
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
