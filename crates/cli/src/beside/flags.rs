//! The arguments of `redlatch beside` and `redlatch doctor`.

use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::doctor::{self, DoctorOptions};
use super::login::Login;
use super::shadow::{self, ShadowOptions};
use crate::common::arguments::time;
use crate::common::exit::NO;
use crate::common::{Fault, ServerAddress, Subcommand, Task, task, with_trust};

pub(super) const BESIDE: Subcommand = Subcommand::new(
    "beside",
    "Shows the locks of another server, such as Redis, by reading them.",
    |command| {
        let depths = PossibleValuesParser::new(["reading", "tracking"]);
        let depth =
            flag("by", "DEPTH", "How the locks are observed; tracking needs --match.").value_parser(depths);
        let port = |name, what| flag(name, "N", what).value_parser(clap::value_parser!(u16).range(1..));
        observed(command)
            .arg(depth.default_value("reading").requires_if("tracking", "match"))
            .arg(port("port", "Port on 127.0.0.1 for clients. [default: a free one]"))
            .arg(port("http-port", "Port on 127.0.0.1 for the page and metrics. [default: a free one]"))
    },
    |matches| {
        let port = |name| matches.get_one::<u16>(name).map_or_else(|| "auto".to_owned(), u16::to_string);
        let options = ShadowOptions {
            login: login(matches)?,
            rate: rate_of(matches),
            pattern: pattern_of(matches),
            is_tracking: matches.get_one::<String>("by").is_some_and(|depth| depth == "tracking"),
            port: port("port"),
            http_port: port("http-port"),
        };
        Ok(task(move || shadow::run(options)))
    },
);
pub(super) const DOCTOR: Subcommand = Subcommand::new(
    "doctor",
    "Observes a server for a while, and reports risks to its locks.",
    |command| {
        let switch = |name: &'static str, help: &'static str| {
            Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
        };
        observed(command)
            .arg(time("for", "Length of the observation.", "60s"))
            .arg(switch("json", "Prints the report as JSON."))
            .arg(switch("show-owners", "Prints the owners of locks, which may be secrets."))
    },
    diagnosed,
)
.also(&[NO]);

fn diagnosed(matches: &ArgMatches) -> Result<Task, Fault> {
    let options = DoctorOptions {
        login: login(matches)?,
        time: matches.get_one::<Duration>("for").copied().unwrap_or(Duration::from_secs(60)),
        rate: rate_of(matches),
        pattern: pattern_of(matches),
        json: matches.get_flag("json"),
        shows_owners: matches.get_flag("show-owners"),
    };
    Ok(task(move || doctor::run(options)))
}

/// Adds the arguments that say which server is observed, and how.
fn observed(command: Command) -> Command {
    let url = Arg::new("url")
        .value_name("URL")
        .required(true)
        .help("redis[s]://host[:port][/db] or unix:///path, without a login");
    let pattern = "Pattern of the keys that are locks. [default: recognised by name and value]";
    let file = "File whose first line is the password. [env: REDLATCH_OBSERVED_PASSWORD]";
    with_trust(
        command
            .arg(url)
            .arg(flag("user", "NAME", "User of the login. [default: default]"))
            .arg(flag("password-file", "FILE", file))
            .arg(flag("match", "PATTERN", pattern))
            .arg(
                flag("rate", "N/s", "Most requests to send in a second, up to 1000/s.")
                    .value_parser(rate)
                    .default_value("200/s"),
            ),
    )
}

fn flag(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

fn login(matches: &ArgMatches) -> Result<Login, Fault> {
    let word = |name| matches.get_one::<String>(name);
    let url = word("url").expect("a required argument");
    Login::read(url, word("user"), word("password-file"), ServerAddress::trust(matches))
}

fn pattern_of(matches: &ArgMatches) -> Option<String> {
    matches.get_one::<String>("match").cloned()
}

fn rate_of(matches: &ArgMatches) -> u32 {
    *matches.get_one::<u32>("rate").expect("an argument with a default")
}

/// Reads a rate: `200/s`, or a bare number.
fn rate(text: &str) -> Result<u32, Fault> {
    let number = text.strip_suffix("/s").unwrap_or(text).parse().ok();
    number.filter(|rate| (1..=1000).contains(rate)).ok_or_else(|| "must be from 1/s to 1000/s".to_owned())
}
