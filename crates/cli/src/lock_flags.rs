//! The subcommands for locks: their flags, as clap knows them, and what they ask for.

use std::ffi::OsString;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use redlatch_proto::lock::LEASE_DEFAULT;

use super::flags::{Action, with_settings};
use super::place::{Place, with_trust};
use super::run::{IfHeld, OnLost, Options};
use super::terms::{Kind, Terms};
use super::views::{Question, View, Wanted};
use super::{Fault, duration, hold_flags};

/// The names of the subcommands.
pub(super) const NAMES: &[&str] = &["run", "ls", "who", "mine", "wait", "break", "watch", "cluster"];

pub(super) fn commands() -> Vec<Command> {
    let views = [
        Command::new("ls")
            .about("Lists the locks that are held.")
            .arg(Arg::new("pattern").value_name("PATTERN").help("Only keys that match, as in SCAN.")),
        Command::new("who").about("Says who holds a lock; exits with 1 if nobody does.").arg(key()),
        Command::new("mine")
            .about("Lists the locks that an owner holds; exits with 1 if there are none.")
            .arg(hold_flags::owner()),
        Command::new("wait")
            .about("Returns when a lock is free; exits with 75 if it is held for longer than --timeout.")
            .arg(key())
            .arg(time("timeout", "How long to wait.", "no limit")),
        Command::new("break")
            .about("Takes a lock from its holder; exits with 1 if the token is no longer the current one.")
            .arg(key())
            .arg(
                Arg::new("token")
                    .long("token")
                    .value_name("TOKEN")
                    .required(true)
                    .value_parser(value_parser!(u64))
                    .help("The token of the hold to break, as redlatch who says it."),
            )
            .arg(Arg::new("reason").long("reason").value_name("TEXT").help("Why, for the server's log.")),
        Command::new("watch")
            .about("Looks at all locks again and again, and writes what was taken and freed since the last look.")
            .arg(Arg::new("pattern").value_name("PATTERN").help("Only keys that match, as in SCAN."))
            .arg(time("interval", "The time between two looks.", "1s")),
    ];
    let views = views.map(view);
    std::iter::once(with_url(run())).chain(views).chain([cluster()]).collect()
}

/// A subcommand that asks a server.
fn view(command: Command) -> Command {
    with_url(command.arg(json()).after_help(VIEW_CODES))
}

pub(super) fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Writes JSON.")
}

fn cluster() -> Command {
    let status = Command::new("status").about("Says which node leads, and since when.");
    let hand_over =
        Command::new("hand-over").about("Has another node lead. The one that leads goes on as a standby.");
    let accept = Command::new("accept-restored")
        .about("Lets nodes lead again after etcd was restored from a snapshot.")
        .arg(time("quarantine", "How long nothing is granted.", "for the longest lease that is known"))
        .after_help(ACCEPT_HELP);
    let import = Command::new("import")
        .about("Moves the locks of a stopped server's journal to a cluster that is not there yet.")
        .after_help(IMPORT_HELP);
    let export = Command::new("export")
        .about("Moves the locks of a cluster whose nodes are stopped to the journal of one server.")
        .after_help(EXPORT_HELP);
    Command::new("cluster")
        .about("Says which node of a cluster leads, changes that, and moves locks to and from a cluster.")
        .subcommand_required(true)
        .subcommands([status, hand_over].map(view))
        .subcommands([accept, import, export].map(with_settings))
}

/// The command that a subcommand runs, behind `--`.
pub(super) fn command_to_run() -> Arg {
    Arg::new("command")
        .value_name("CMD")
        .required(true)
        .num_args(1..)
        .last(true)
        .value_parser(value_parser!(OsString))
        .help("The command and its arguments.")
}

fn run() -> Command {
    let run = Command::new("run")
        .about("Runs a command under a lock.")
        .after_help(RUN_HELP)
        .arg(
            Arg::new("key")
                .value_name("KEY")
                .required(true)
                .num_args(1..)
                .value_parser(value_parser!(OsString))
                .help("The lock. Several are taken all or none."),
        )
        .arg(command_to_run())
        .arg(time(
            "wait",
            "How long to wait for a lock that is held, or for a server that does not serve.",
            "no limit; 0 with --if-held skip and fail",
        ))
        .arg(
            Arg::new("no-wait")
                .long("no-wait")
                .action(ArgAction::SetTrue)
                .conflicts_with("wait")
                .help("As --wait 0."),
        )
        .arg(time("lease", "How long the lock lasts if it is not renewed.", "30s"))
        .arg(one_of(
            "if-held",
            &["wait", "skip", "fail"],
            "What to do while the lock is held: wait, exit with 0, or exit with 75.",
            "wait",
        ))
        .arg(one_of(
            "on-lost",
            &["term", "kill", "warn"],
            "What the command gets when the lock is lost: SIGTERM and later SIGKILL, SIGKILL, or nothing.",
            "term",
        ))
        .arg(time("kill-grace", "The time between SIGTERM and SIGKILL.", "5s"))
        .arg(time("min-hold", "The lock stays held for at least so long after it was taken.", "0"));
    with_meta(with_kind(run))
}

/// Adds the flags for the kind of a lock.
pub(super) fn with_kind(command: Command) -> Command {
    let shared = Arg::new("shared")
        .long("shared")
        .action(ArgAction::SetTrue)
        .conflicts_with("permits")
        .help("Shares the lock with other readers.");
    command
        .arg(shared)
        .arg(number("permits", "Takes so many permits of a semaphore.").requires("of"))
        .arg(number("of", "How many permits the semaphore has.").requires("permits"))
}

/// Adds the flag for what a holder tells about itself.
pub(super) fn with_meta(command: Command) -> Command {
    let meta = Arg::new("meta")
        .long("meta")
        .value_name("FIELD=VALUE")
        .action(ArgAction::Append)
        .help("What those who ask for the holder see. May be repeated.");
    command.arg(meta)
}

/// Adds the flag for the server to ask, and those of [`with_trust`].
pub(super) fn with_url(command: Command) -> Command {
    let url = Arg::new("url")
        .long("url")
        .value_name("URL")
        .help("redis[s]://[[user]:password@]host[:port][/db] or unix:///path [env: REDLATCH_URL]");
    with_trust(command.arg(url))
}

pub(super) fn key() -> Arg {
    Arg::new("key").value_name("KEY").required(true).value_parser(value_parser!(OsString)).help("The lock.")
}

fn number(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("N").value_parser(value_parser!(u64).range(1..)).help(help)
}

pub(super) fn time(name: &'static str, help: &'static str, default: &'static str) -> Arg {
    let help = format!("{help} [default: {default}]");
    Arg::new(name).long(name).value_name("TIME").value_parser(duration::read).help(help)
}

fn one_of(name: &'static str, words: &'static [&str], help: &'static str, default: &'static str) -> Arg {
    let parser = PossibleValuesParser::new(words).map(|word| word);
    Arg::new(name).long(name).value_name("WORD").value_parser(parser).default_value(default).help(help)
}

/// What the arguments of a subcommand ask for.
///
/// # Errors
/// Arguments that do not fit together.
pub(super) fn read(name: &str, matches: &ArgMatches) -> Result<Action, Fault> {
    if name == "run" {
        return options(matches).map(Action::Run);
    }
    // Those subcommands of `cluster` that are not here are read as the flags of a node are.
    let (name, matches) = match matches.subcommand() {
        Some(("hand-over", hand_over)) => ("hand-over", hand_over),
        Some((_, status)) => (name, status),
        None => (name, matches),
    };
    let text = |name| matches.get_one::<String>(name).cloned();
    let time = |name| matches.get_one::<Duration>(name).copied();
    let key = || bytes_of(matches, "key");
    let pattern = || text("pattern").unwrap_or_else(|| "*".into());
    let question = match name {
        "ls" => Question::List(Wanted::Matching(pattern())),
        "mine" => Question::List(Wanted::OfOwner(hold_flags::owner_of(matches)?)),
        "cluster" => Question::Cluster,
        "hand-over" => Question::HandOver,
        "who" => Question::Who(key()),
        "wait" => Question::Wait(key(), time("timeout")),
        "break" => {
            let token = *matches.get_one::<u64>("token").expect("a required argument");
            Question::Break { key: key(), token, reason: text("reason") }
        }
        _ => Question::Watch(pattern(), time("interval").unwrap_or(Duration::from_secs(1))),
    };
    Ok(Action::View(View { place: Place::read(matches), json: matches.get_flag("json"), question }))
}

fn options(matches: &ArgMatches) -> Result<Options, Fault> {
    let words = |name| matches.get_many::<OsString>(name).unwrap_or_default().cloned().collect::<Vec<_>>();
    let time = |name, default| matches.get_one::<Duration>(name).copied().unwrap_or(default);
    let word = |name| matches.get_one::<String>(name).map_or("", String::as_str);
    let if_held = match word("if-held") {
        "fail" => IfHeld::Fail,
        "skip" => IfHeld::Skip,
        _ => IfHeld::Wait,
    };
    let wait = match (matches.get_one::<Duration>("wait"), if_held) {
        (Some(wait), _) => Some(*wait),
        (None, IfHeld::Wait) if !matches.get_flag("no-wait") => None,
        (None, _) => Some(Duration::ZERO),
    };
    let lease = time("lease", LEASE_DEFAULT);
    if lease < LEASE_MIN {
        return Err(format!("--lease {lease:?}: must be at least {LEASE_MIN:?}; see redlatch run --help"));
    }
    Ok(Options {
        place: Place::read(matches),
        terms: Terms {
            keys: words("key").iter().map(|key| key.as_encoded_bytes().to_vec()).collect(),
            kind: kind_of(matches),
            lease,
            meta: meta_of(matches)?,
        },
        command: words("command"),
        wait,
        if_held,
        on_lost: match word("on-lost") {
            "kill" => OnLost::Kill,
            "warn" => OnLost::Warn,
            _ => OnLost::Term,
        },
        kill_grace: time("kill-grace", Duration::from_secs(5)),
        min_hold: time("min-hold", Duration::ZERO),
    })
}

/// The bytes of an argument that there must be.
pub(super) fn bytes_of(matches: &ArgMatches, name: &str) -> Vec<u8> {
    matches.get_one::<OsString>(name).map(|text| text.as_encoded_bytes().to_vec()).unwrap_or_default()
}

/// What the flags of [`with_kind`] say.
pub(super) fn kind_of(matches: &ArgMatches) -> Kind {
    let number = |name| matches.get_one::<u64>(name).copied();
    match (number("permits"), number("of")) {
        (Some(count), Some(limit)) => Kind::Permits { count, limit },
        _ if matches.get_flag("shared") => Kind::Shared,
        _ => Kind::Exclusive,
    }
}

/// What the flag of [`with_meta`] says.
///
/// # Errors
/// A text without a field.
pub(super) fn meta_of(matches: &ArgMatches) -> Result<Vec<(String, String)>, Fault> {
    matches.get_many::<String>("meta").unwrap_or_default().map(|meta| field(meta)).collect()
}

fn field(meta: &str) -> Result<(String, String), Fault> {
    let parts = meta.split_once('=').filter(|(field, _)| !field.is_empty());
    let (field, value) = parts.ok_or_else(|| format!("--meta '{meta}': must be FIELD=VALUE"))?;
    Ok((field.to_owned(), value.to_owned()))
}

/// A lease is renewed at each third of it.
const LEASE_MIN: Duration = Duration::from_millis(100);

const RUN_HELP: &str = "\
The exit status is that of the command: 128 and the signal's number if a signal ended it. Own codes:
  64   the options do not fit together
  69   no server could be asked
  75   the lock was not taken; the command did not run
  76   the lock was lost, and the command was ended for it
  126  the command could not be run
  127  there is no such command

The environment of the command has REDLATCH_KEY (several keys are separated by newlines), REDLATCH_OWNER, REDLATCH_TOKEN (the
fencing token; a server without LOCK commands has none) and REDLATCH_DEADLINE (Unix time in milliseconds at which the lock
ends unless it is renewed, which redlatch does at each third of the lease).

A server that restarts, or answers BUSY or OOM, is asked again until --wait has passed. Without --wait it is asked without a
limit, once it has answered at all; a server that has never answered is given up at once.

When renewals fail, SIGTERM reaches the command before the lock ends: by --kill-grace, but at most a third of the lease, and
a little more. SIGKILL follows after --kill-grace. So with a lease of three times --kill-grace the command has ended
before the server grants the lock to anybody else.";

const ACCEPT_HELP: &str = "\
Reads the settings of a node, and asks the same etcd. What was written after the snapshot is lost, and locks that were granted
after it are not known: the next node that leads grants nothing until they have ended. See docs/replication.md. Exits with 0
or 1; 64 for bad options.";

const IMPORT_HELP: &str = "\
Reads the settings of a node; --dir is that of the server. Keys, locks with their leases, tokens and functions go to the
cluster; a quarantine that the server would begin with is the cluster's. Afterwards no server starts on the directory. See
docs/replication-operate.md. Exits with 0 or 1; 64 for bad options.";

const EXPORT_HELP: &str = "\
Reads the settings of a node; --dir is where the server will keep its journal, and has none. Keys, locks with their leases,
tokens and functions go there. Afterwards no node joins the cluster. See docs/replication-operate.md. Exits with 0
or 1; 64 for bad options.";

const VIEW_CODES: &str =
    "Exit codes: 0; 1 for no or an error; 64 for bad options; 69 if a server could not be asked.";
