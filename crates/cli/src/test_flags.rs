//! The arguments of `redlatch timeline` and `redlatch replay`.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command};
use redlatch_core::testing::Extent;

use super::flags::Action;
use super::history::Source;
use super::place::{Place, with_trust};
use super::{replay, timeline};

/// The names of the subcommands.
pub(super) const NAMES: &[&str] = &["replay", "timeline"];

pub(super) fn commands() -> [Command; 2] {
    let source = |help: &'static str| Arg::new("source").required(true).help(help);
    let format = PossibleValuesParser::new(["text", "html", "json"]).map(|name| match name.as_str() {
        "html" => timeline::Format::Html,
        "json" => timeline::Format::Json,
        _ => timeline::Format::Text,
    });
    let timeline =
        Command::new("timeline")
            .about("Draws what clients did to locks, a lane for each client.")
            .arg(
                source("A file of TEST.RECORD, or the URL of a server with --enable-test-commands.")
                    .value_name("FILE|URL"),
            )
            .arg(
                Arg::new("format")
                    .long("format")
                    .value_name("FORMAT")
                    .value_parser(format)
                    .default_value("text")
                    .help("How it is written."),
            )
            .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help(
                "Every step, and not only the last ones that fit a screen [env: REDLATCH_TIMELINE=all]",
            ));
    let replay = Command::new("replay")
        .about("Sends recorded requests again, and shows replies that differ.")
        .after_help("Exits with 0 if all replies are as recorded, with 1 if some differ.")
        .arg(source("A file of TEST.RECORD.").value_name("FILE"))
        .arg(
            Arg::new("against")
                .long("against")
                .value_name("URL")
                .help("The server to send to [default: one in this process, whose clock moves as recorded]"),
        );
    [with_trust(timeline), with_trust(replay)]
}

/// What the arguments of a subcommand ask for.
pub(super) fn read(name: &str, matches: &ArgMatches) -> Action {
    let word = |name| matches.get_one::<String>(name).cloned();
    let source = word("source").expect("a required argument");
    let trust = Place::trust(matches);
    if name == "timeline" {
        let format = *matches.get_one("format").expect("an argument with a default");
        let wanted = std::env::var(Extent::VARIABLE).ok();
        let extent = if matches.get_flag("all") { Extent::All } else { Extent::of(wanted.as_deref()) };
        return Action::Timeline(timeline::Options { source: Source::of(&source, trust), format, extent });
    }
    let against = word("against").map(|url| Place { url: Some(url), trust });
    Action::Replay(replay::Options { source: Source::File(source), against })
}
