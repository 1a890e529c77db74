//! The names that clients of TEST commands share with the server: commands, faults, events, fields, flags.
//!
//! Owns    the list of them, which `packages/interface.py` compares each package with.
//! Source  the tables of the server, and for the fields of replies a server that runs.

use std::collections::BTreeSet;

use bytes::Bytes;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use redlatch::{Event, EventKind, NodeState, Server};
use redlatch_core::commands::row::{Arg, Group, Kind};
use redlatch_core::state::settings_table;
use redlatch_testing::Mode;
use redlatch_testing::commands::{parse_fault, table};

use crate::support::binary::redlatch;
use crate::support::wire::Link;

/// The list, from the root of the repository.
pub(crate) const FILE: &str = "packages/interface.json";

/// What the names are names of, and the names.
type Names = (String, Vec<String>);

/// The list as JSON.
pub(crate) fn list() -> String {
    let names = |what: &str, names: &[&str]| -> Names {
        (what.to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
    };
    let conditions: Vec<&str> =
        arguments("TEST.FAULT|ADD").iter().filter(|arg| !is_action(arg)).flat_map(tokens).collect();
    let filters: Vec<&str> = arguments("TEST.HISTORY").iter().flat_map(tokens).collect();

    let mut lists = commands();
    lists.extend([
        names("fault actions", &actions()),
        names("fault conditions", &conditions),
        names("history filters", &filters),
        names("event kinds", &EventKind::ALL.map(EventKind::name)),
        names("event fields", &event_fields()),
        names("clock modes", &Mode::ALL.map(Mode::name)),
        names("node states", &NodeState::ALL.map(NodeState::name)),
    ]);
    lists.extend(reply_fields());
    lists.push(("flags".to_owned(), flags().into_iter().collect()));
    let lines: Vec<String> = lists.iter().map(|(what, names)| format!("  {what:?}: {names:?}")).collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// The TEST commands, and for each that has subcommands a list of them. HELP is for people.
fn commands() -> Vec<Names> {
    let of_tests = || table().commands().iter().filter(|command| command.row.group == Group::Test);
    let all = of_tests().map(|command| command.row.name.to_owned()).collect();
    let containers = of_tests().filter(|command| !command.subcommands.is_empty()).map(|command| {
        let names = command.subcommands.iter().map(|command| command.row.name);
        (command.row.name.to_owned(), names.filter(|name| *name != "HELP").map(str::to_owned).collect())
    });
    [("commands".to_owned(), all)].into_iter().chain(containers).collect()
}

/// The arguments of a command; of a subcommand that is named with a bar.
fn arguments(name: &str) -> &'static [Arg] {
    let command = table().all().find(|command| command.name.eq_ignore_ascii_case(name));
    command.unwrap_or_else(|| panic!("no command {name}")).row.args
}

/// The fixed words of an argument.
fn tokens(arg: &Arg) -> Vec<&'static str> {
    let inner = match arg.kind {
        Kind::Block(args) | Kind::OneOf(args) => args.iter().flat_map(tokens).collect(),
        _ => Vec::new(),
    };
    arg.token.into_iter().chain(inner).collect()
}

fn is_action(arg: &Arg) -> bool {
    arg.token == Some("DO")
}

/// What a fault can do. Panics if the parser of faults takes other words than the grammar has.
fn actions() -> Vec<&'static str> {
    let action =
        arguments("TEST.FAULT|ADD").iter().find(|arg| is_action(arg)).expect("a fault does something");
    let actions = tokens(action).split_off(1);
    for action in &actions {
        let parsed = [vec!["DO", action], vec!["DO", action, "1"]].into_iter().find_map(|words| {
            let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
            parse_fault(&words, 1).ok()
        });
        assert_eq!(parsed.map(|rule| rule.action.name()), Some(*action), "a fault may do {action}");
    }
    actions
}

/// The fields of an event that has all of them.
fn event_fields() -> Vec<&'static str> {
    let bytes = Bytes::from_static(b"x");
    let event = Event {
        id: 1,
        kind: EventKind::Request,
        at: 1,
        real: 1,
        node: 1,
        client: Some(1),
        name: "x".into(),
        library: "x".into(),
        request: Some(1),
        command: Some("x".into()),
        args: vec![bytes.clone()],
        key: Some(bytes.clone()),
        reply: Some("x".into()),
        token: Some(1),
        holder: Some(bytes),
        lease: Some(1),
        fault: Some(1),
        text: Some("x".into()),
    };
    event.fields().into_iter().map(|(name, _)| name).collect()
}

/// The fields of the replies that are maps, from a server with a fault, two kinds of deadlines, and a lock that is
/// deleted without a comparison.
fn reply_fields() -> Vec<Names> {
    let server = Server::builder().tests(1).start_blocking().expect("a server starts");
    let connect = || Link::to(server.addr()).expect("a connection");
    let (mut test, mut waiting) = (connect(), connect());
    let mut ask = |line: &str| test.ask_line(line).expect("a reply");
    ask("TEST.CLOCK FREEZE");
    ask("TEST.FAULT ADD COMMAND GET DO RESET");
    ask("SET lock mine NX PX 60000");
    ask("DEL lock");
    ask("SET lease mine PX 60000");
    waiting.send(&["BLPOP", "list", "70"]).expect("the server reads");
    // BLPOP has arrived when its end is the second deadline.
    let (clock, deadlines) = loop {
        let clock = ask("TEST.CLOCK SHOW");
        let deadlines = items(&items(&clock)[7]).to_vec();
        if deadlines.len() == 2 {
            break (clock, deadlines);
        }
    };
    let first = |frame: OwnedFrame| items(&frame).first().cloned().expect("one at least");
    let maps = [
        ("clock fields", vec![clock]),
        ("deadline fields", deadlines),
        ("fault fields", vec![first(ask("TEST.FAULT LIST"))]),
        ("finding fields", vec![first(ask("TEST.CHECK"))]),
        ("namespace fields", vec![first(ask("TEST.NAMESPACE LIST"))]),
        ("node fields", vec![first(ask("TEST.NODE LIST"))]),
    ];
    maps.map(|(what, maps)| (what.to_owned(), fields(&maps))).to_vec()
}

/// The names of the fields of these maps, each once.
fn fields(maps: &[OwnedFrame]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for pair in maps.iter().flat_map(|map| items(map).chunks_exact(2)) {
        let name = pair[0].to_string().expect("a name");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn items(frame: &OwnedFrame) -> &[OwnedFrame] {
    match frame {
        OwnedFrame::Array(items) => items,
        other => panic!("no list: {other:?}"),
    }
}

/// The exit statuses and their meanings, as `--help` prints them, in rows.
pub(super) fn statuses() -> String {
    let help = redlatch().arg("--help").output().expect("the program runs").stdout;
    let help = String::from_utf8(help).expect("text");
    let (_, statuses) = help.split_once("\nExit statuses:\n").expect("a list of exit statuses");
    let rows = statuses.lines().filter_map(|line| line.trim_start().split_once(' '));
    let rows: Vec<String> =
        rows.map(|(status, meaning)| format!("| {status} | {} |", meaning.trim_start())).collect();
    format!("| status | meaning |\n|---|---|\n{}", rows.join("\n"))
}

/// The flags of the program: settings, and those of `--help` that are no settings.
fn flags() -> BTreeSet<String> {
    let help = redlatch().arg("--help").output().expect("the program runs").stdout;
    let help = String::from_utf8(help).expect("text");
    let flags = help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split(' ').next());
    flags.chain(settings_table::ROWS.iter().map(|row| row.name)).map(str::to_owned).collect()
}
