//! The arguments of `redlatch load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Command, value_parser};
use redlatch_client::wire::random;

use super::command::{self, LoadOptions};
use super::plan::{Dialect, Hold, Keys, Node, Plan, rate, time};
use crate::common::exit::{NO, OVERLAP};
use crate::common::{Fault, ServerAddress, Subcommand, Task, task, with_url};

pub(super) const LOAD: Subcommand = Subcommand::new(
    "load",
    "Takes and releases locks as many clients do, and measures the times.",
    arguments,
    read,
)
.also(&[NO, OVERLAP]);

fn arguments(command: Command) -> Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    let number = |name, help| flag(name, "N", help).value_parser(value_parser!(usize));
    let moment = |name, help| flag(name, "TIME", help).value_parser(time);
    let dialects = PossibleValuesParser::new(Dialect::ALL.map(Dialect::name));
    let dialects = dialects.try_map(|name| Dialect::parse(&name));
    let formats = PossibleValuesParser::new(["text", "json"]).map(|name| name == "json");
    let command = command
        .after_help(LOAD_HELP)
        .arg(
            flag("dialect", "NAME", "How clients take a lock and wait for it.")
                .value_parser(dialects)
                .default_value("string"),
        )
        .arg(number("clients", "Number of clients, each with its own connection. [default: 50]"))
        .arg(
            flag(
                "keys",
                "KEYS",
                "Keys of the locks: KEY, uniform:COUNT, or zipf:EXPONENT:COUNT. [default: uniform:1000]",
            )
            .value_parser(Keys::parse),
        )
        .arg(
            flag(
                "hold",
                "HOLD",
                "How long a client holds a lock: const:TIME, exp:MEAN, or uniform:TIME:TIME. [default: 0]",
            )
            .value_parser(Hold::parse),
        )
        .arg(moment("lease", "Lease of a lock. The load does not renew it. [default: 30s]"))
        .arg(moment("wait", "Longest wait of a client for a lock. [default: no limit]"))
        .arg(moment("poll", "Mean pause between two tries of a client that polls. [default: 20ms]"))
        .arg(
            flag(
                "rate",
                "RATE",
                "Acquisitions that begin in a second, in an open loop: 5000/s. [default: closed loop]",
            )
            .value_parser(rate),
        )
        .arg(moment("duration", "Length of the load. [default: 10s]"))
        .arg(
            flag("count", "N", "Ends the load after N acquisitions. [default: no limit]")
                .value_parser(value_parser!(u64).range(1..)),
        )
        .arg(
            flag("nodes", "URL,URL", "Servers for --dialect redlock.")
                .value_delimiter(',')
                .conflicts_with("url"),
        )
        .arg(number("threads", "Number of threads, which share the clients. [default: 1]"))
        .arg(
            flag("seed", "N", "Seed for keys, holds and pauses. [default: random]")
                .value_parser(value_parser!(u64)),
        )
        .arg(
            flag("format", "FORMAT", "Format of the report on standard output.")
                .value_parser(formats)
                .default_value("text"),
        )
        .arg(
            flag("plot", "FILE", "Writes the report as a picture in SVG to this file, too.")
                .value_parser(value_parser!(PathBuf)),
        );
    with_url(command)
}

fn read(matches: &ArgMatches) -> Result<Task, Fault> {
    let urls: Vec<&String> = matches.get_many("nodes").unwrap_or_default().collect();
    let nodes = if urls.is_empty() {
        let (target, trust) = ServerAddress::read(matches).find()?;
        vec![Node { target, trust }]
    } else {
        let nodes = urls.into_iter().map(|url| Node::new(url, ServerAddress::trust(matches)));
        nodes.collect::<Result<_, _>>().map_err(|error| format!("--nodes: {error}"))?
    };
    let plan = Plan::new(nodes);
    let number = |name, default| matches.get_one::<usize>(name).copied().unwrap_or(default);
    let moment = |name| matches.get_one::<Duration>(name).copied();
    let plan = Plan {
        dialect: matches.get_one("dialect").copied().unwrap_or(plan.dialect),
        clients: number("clients", plan.clients),
        threads: number("threads", plan.threads),
        keys: matches.get_one("keys").cloned().unwrap_or(plan.keys),
        hold: matches.get_one("hold").copied().unwrap_or(plan.hold),
        lease: moment("lease").unwrap_or(plan.lease),
        wait: moment("wait"),
        poll: moment("poll").unwrap_or(plan.poll),
        rate: matches.get_one("rate").copied(),
        duration: moment("duration").unwrap_or(plan.duration),
        count: matches.get_one("count").copied(),
        seed: matches.get_one("seed").copied().unwrap_or_else(random),
        ..plan
    };
    plan.check().map_err(|fault| format!("{fault}; see redlatch load --help"))?;
    let options = LoadOptions {
        plan,
        is_json: matches.get_one("format").copied().unwrap_or(false),
        plot: matches.get_one("plot").cloned(),
    };
    Ok(task(move || command::run(&options)))
}

const LOAD_HELP: &str = "\
Dialects:
  string    SET NX PX with polling; a script releases the lock
  redlock   like string, on more than half of --nodes
  redisson  a hash and scripts; a client that waits subscribes to a channel
  native    LOCK.ACQUIRE with WAIT, and LOCK.RELEASE: the server keeps the queue
  list      BLPOP and RPUSH of one element; the load deletes and creates the lists of its keys

A TIME is 100us, 5ms, 1.5s, 2m or 1h. A number without a unit is in seconds. The keys are load:0, load:1, ..., or KEY.

Without --rate, each client begins again when it has released its lock. With --rate, acquisitions begin at fixed times,
even if no client is free. The latency counts from these times.

SIGINT, SIGTERM and SIGHUP end the load. It then prints its report up to that moment.";
