//! The exit statuses of all subcommands: for each status that a help text lists, something exits with it.
//!
//! Belongs here  a case for each subcommand and status. A status that takes more than a command line has its test elsewhere,
//!               and this file names it.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::thread;

use crate::support::binary::{Running, ended, redlatch};
use crate::support::waits::wait_until;

/// What a subcommand meets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Meets {
    /// A server where nobody holds a lock.
    Free,
    /// A server where `me` holds lock:a with the token TOKEN.
    Held,
    /// The same server, while a script runs that uses lock:a.
    Busy,
    /// A server that refuses the password.
    WrongPassword,
    /// A user without rights.
    NoRights,
    /// A server that answers each request with an error.
    Refusing,
    /// No server.
    Nobody,
    /// A limit of open files that leaves no runtime.
    NoFiles,
    /// A standard output that is full.
    FullOutput,
    /// A standard output that nobody reads, and a lock that is held.
    NoReader,
}

use Meets::{Busy, Free, FullOutput, Held, NoFiles, NoReader, NoRights, Nobody, Refusing, WrongPassword};

/// Subcommands that ask a server, with arguments that reach it.
const ASKING: &[(&str, &str)] = &[
    ("run", "--no-wait lock:a -- true"),
    ("take", "lock:a --for 1m --as me"),
    ("renew", "lock:a --as me"),
    ("release", "lock:a --as me"),
    ("mine", "--as me"),
    ("ls", ""),
    ("who", "lock:a"),
    ("wait", "lock:a --timeout 0"),
    ("break", "lock:a --token 1"),
    ("watch", ""),
    ("cluster status", ""),
    ("cluster hand-over", ""),
    ("load", "--clients 1 --count 1"),
    #[cfg(feature = "testing")]
    ("timeline", "URL"),
];

/// The statuses of each subcommand that asks a server.
const OF_ASKING: &[(u8, Meets)] = &[(69, Nobody), (77, WrongPassword), (79, Refusing)];

/// Subcommand, arguments, status, and what it meets.
const CASES: &[(&str, &str, u8, Meets)] = &[
    ("run", "lock:a -- true", 0, Free),
    ("run", "--no-wait lock:a -- true", 75, Held),
    ("run", "--no-wait lock:a -- true", 77, NoRights),
    ("run", "--no-wait lock:a -- true", 79, Busy),
    ("run", "lock:a -- /", 126, Free),
    ("run", "lock:a -- /no/such/command", 127, Free),
    ("run", "--no-wait lock:a -- true", 71, NoFiles),
    ("take", "lock:a --for 1m --as me", 0, Free),
    ("take", "lock:a --for 1m --as you", 75, Held),
    ("take", "lock:a --for 1m --as me --shared", 79, Held),
    ("take", "lock:a --for 1m --as me", 77, NoRights),
    ("take", "lock:a --for 1m --as me", 79, Busy),
    ("take", "lock:a --for 1m --as me", 71, NoFiles),
    ("renew", "lock:a --as me", 0, Held),
    ("renew", "lock:a --as me", 76, Free),
    ("renew", "lock:a --as me", 77, NoRights),
    ("renew", "lock:a --as me", 79, Busy),
    ("renew", "lock:a --as me", 71, NoFiles),
    ("release", "lock:a --as me", 0, Held),
    ("release", "lock:a --as me", 76, Free),
    ("release", "lock:a --as me", 77, NoRights),
    ("release", "lock:a --as me", 79, Busy),
    ("release", "lock:a --as me", 71, NoFiles),
    ("mine", "--as me", 0, Held),
    ("mine", "--as me", 1, Free),
    ("mine", "--as me", 71, FullOutput),
    ("mine", "--as me", 77, NoRights),
    ("mine", "--as me", 79, Busy),
    ("ls", "", 0, Free),
    ("ls", "", 77, NoRights),
    ("ls", "", 79, Busy),
    ("who", "lock:a", 0, Held),
    ("who", "lock:a", 1, Free),
    ("who", "lock:a", 71, FullOutput),
    ("who", "lock:a", 77, NoRights),
    ("who", "lock:a", 79, Busy),
    ("wait", "lock:a --timeout 0", 0, Free),
    ("wait", "lock:a --timeout 0", 75, Held),
    ("wait", "lock:a --timeout 0", 77, NoRights),
    ("wait", "lock:a --timeout 0", 79, Busy),
    ("wait", "lock:a --timeout 0", 71, NoFiles),
    ("break", "lock:a --token TOKEN", 0, Held),
    ("break", "lock:a --token 1", 1, Free),
    ("break", "lock:a --token 99999", 75, Held),
    ("break", "lock:a --token 1", 77, NoRights),
    ("break", "lock:a --token 1", 79, Busy),
    ("break", "lock:a --token 1", 71, NoFiles),
    ("watch", "", 0, NoReader),
    ("watch", "", 77, NoRights),
    ("load", "--clients 1 --count 1", 0, Free),
    ("load", "--clients 1 --keys lock:a --wait 1ms --duration 100ms", 1, Held),
    ("ls", "", 71, NoFiles),
    ("watch", "", 71, NoFiles),
    ("cluster status", "", 71, NoFiles),
    ("cluster hand-over", "", 71, NoFiles),
    ("load", "--clients 1 --count 1", 71, FullOutput),
    ("fence sql", "postgres", 0, Free),
    ("fence sql", "postgres", 71, FullOutput),
    ("health", "URL", 0, Free),
    ("health", "URL", 1, Nobody),
    ("check-config", "", 0, Free),
    ("check-config", "--port no", 1, Free),
    ("cluster accept-restored", "--port no", 1, Free),
    ("cluster import", "--port no", 1, Free),
    ("cluster export", "--port no", 1, Free),
    #[cfg(feature = "testing")]
    ("timeline", "URL", 64, Free),
    #[cfg(feature = "testing")]
    ("timeline", "URL", 71, NoFiles),
    #[cfg(feature = "testing")]
    ("explore", "-- true", 2, Free),
    #[cfg(feature = "testing")]
    ("explore", "-- true", 71, NoFiles),
    ("beside", "URL", 69, Nobody),
    ("beside", "URL", 71, NoFiles),
    ("beside", "URL", 79, Refusing),
    ("doctor", "URL --for 5s --rate 1000/s", 0, Free),
    ("doctor", "URL --for 1ms", 1, Free),
    ("doctor", "URL --for 1ms", 69, Nobody),
    ("doctor", "URL --for 1ms", 71, NoFiles),
    ("doctor", "URL --for 1ms", 79, Refusing),
    #[cfg(feature = "mcp")]
    ("mcp", "", 71, NoFiles),
    #[cfg(feature = "top")]
    ("top", "", 71, NoFiles),
];

/// The statuses that have their tests elsewhere, and these tests.
const ELSEWHERE: &[(&str, &[u8], &str, &str)] = &[
    ("run", &[76], "tools/run.rs", "who_names_the_holder_and_break_takes_the_lock_from_it"),
    ("run", &[128], "tools/run.rs", "the_exit_status_is_that_of_the_command"),
    ("load", &[70], "tools/load.rs", "two_owners_at_once_are_found_and_change_the_exit_code"),
    ("cluster status", &[0], "cluster/groups.rs", "the_program_asks_the_leaders_of_all_groups"),
    ("cluster hand-over", &[0], "cluster/reach.rs", "a_leader_hands_over_when_it_is_asked_to"),
    ("cluster accept-restored", &[0], "cluster/restored.rs", "an_operator_may_say_so_where_no_node_can_know"),
    ("cluster import", &[0], "cluster/moved.rs", "locks_move_to_a_cluster_and_back_and_to_a_cluster_again"),
    ("cluster export", &[0], "cluster/moved.rs", "locks_move_to_a_cluster_and_back_and_to_a_cluster_again"),
    ("beside", &[0], "tools/beside.rs", "a_signal_ends_it"),
    ("beside", &[77], "tools/beside.rs", "a_server_that_is_none_or_refuses_the_login_has_its_exit_status"),
    ("doctor", &[77], "tools/beside.rs", "a_server_that_is_none_or_refuses_the_login_has_its_exit_status"),
    (
        "doctor",
        &[1],
        "tools/beside/doctor.rs",
        "a_lock_without_a_lease_is_an_error_whose_owner_is_shown_on_request_only",
    ),
    ("timeline", &[0], "testing/history.rs", "a_timeline_is_drawn_as_text_and_as_a_page"),
    ("explore", &[0], "tools/explore.rs", "within_a_run_of_another_search_nothing_is_explored"),
    ("explore", &[1], "tools/explore.rs", "as_a_page_each_finding_has_its_timeline"),
    ("explore", &[128], "tools/explore.rs", "a_search_that_is_interrupted_ends_what_runs"),
    ("mcp", &[0], "tools/mcp/hostile.rs", "more_calls_than_there_may_be_are_refused"),
    ("mcp", &[69], "tools/mcp/hostile.rs", "bad_options_and_a_host_that_breaks_off_have_exit_codes"),
    ("top", &[0], "tools/top.rs", "a_signal_ends_it_and_a_server_that_goes_is_named"),
    ("top", &[69, 77, 79], "tools/top.rs", "a_server_that_cannot_be_shown_has_its_exit_status"),
];

/// Servers for the cases.
struct Servers {
    free: Running,
    held: Running,
    busy: Running,
    guarded: Running,
    refusing: String,
}

impl Servers {
    fn start() -> Self {
        let start = |more: &[&str]| Running::start(redlatch().args(["--port", "auto"]).args(more));
        let (free, held) = (start(&[]), start(&[]));
        let busy = start(&["--busy-reply-threshold", "1"]);
        free.ask("ACL SETUSER limited on >secret ~* +hello +client");
        let mut script = busy.connect();
        script.write_all(b"EVAL 'while true do end' 1 lock:a\r\n").unwrap();
        wait_until("the server is busy", || busy.ask("GET lock:a").starts_with("-BUSY"));
        let guarded = start(&["--requirepass", "secret"]);
        Self { free, held, busy, guarded, refusing: refusing() }
    }

    /// The URL of what a case meets, and the token of the lock there.
    fn meet(&self, meets: Meets) -> (String, String) {
        self.free.ask("FLUSHALL");
        let token = self.held.ask("LOCK.ACQUIRE lock:a me LEASE 3600000 JUSTTOKEN");
        let url = match meets {
            Held | NoReader | FullOutput => self.held.url(),
            Busy => self.busy.url(),
            WrongPassword => format!("redis://:wrong@{}", self.guarded.address()),
            NoRights => format!("redis://limited:secret@{}", self.free.address()),
            Refusing => self.refusing.clone(),
            Nobody => "unix:///no/such/socket".to_owned(),
            Free | NoFiles => self.free.url(),
        };
        (url, token.trim_start_matches(':').trim_end().to_owned())
    }
}

/// The URL of a server that answers each request with an error, until the process of the test ends.
pub(super) fn refusing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let answer = |mut client: TcpStream| {
        while let Ok(1..) = client.read(&mut [0; 4096]) {
            let _ = client.write_all(b"-ERR out of order\r\n");
        }
    };
    thread::spawn(move || {
        listener.incoming().for_each(|client| drop(thread::spawn(move || answer(client.unwrap()))));
    });
    url
}

/// The status of `redlatch WORDS`, and what it prints to its error stream.
fn status(words: &str, url: &str, meets: Meets) -> (Option<i32>, String) {
    let mut command = redlatch();
    if meets == NoFiles {
        let program = command.get_program().to_owned();
        command = Command::new("sh");
        command.args(["-c", "ulimit -n 4 && exec \"$0\" \"$@\""]).arg(program);
    }
    command.args(words.split_whitespace()).env("REDLATCH_URL", url);
    let output: Stdio = match meets {
        FullOutput => File::create("/dev/full").unwrap().into(),
        NoReader => OwnedFd::from(UnixStream::pair().unwrap().0).into(),
        _ => Stdio::piped(),
    };
    let Output { status, stderr, .. } = command
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// The help text of a subcommand, or of the program.
fn help(name: &str) -> String {
    ended(redlatch().args(name.split_whitespace()).arg("--help")).1
}

/// The statuses that a help text lists, and their meanings.
fn listed(name: &str) -> Vec<(u8, String)> {
    let help = help(name);
    let (_, statuses) = help.split_once("\nExit statuses:\n").unwrap_or_else(|| panic!("{name}: {help}"));
    let rows = statuses.lines().map(|line| line.trim_start().split_once(' ').unwrap());
    rows.map(|(status, meaning)| (status.parse().unwrap(), meaning.trim_start().to_owned())).collect()
}

/// The subcommands that the help of the program, or of a group, lists.
fn subcommands(group: &str) -> Vec<String> {
    let help = help(group);
    let (_, rest) = help.split_once("\nCommands:\n").unwrap();
    let names = rest.lines().take_while(|line| !line.is_empty());
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names
        .filter(|name| !["", "help", "man", "completions"].contains(name))
        .map(|name| format!("{group} {name}").trim_start().to_owned())
        .collect()
}

/// All subcommands of this build.
fn all() -> Vec<String> {
    let groups = ["cluster", "fence"];
    let is_there = |name: &String| match &**name {
        "mcp" => cfg!(feature = "mcp"),
        "top" => cfg!(feature = "top"),
        name => !groups.contains(&name),
    };
    let one_word = subcommands("").into_iter().filter(is_there);
    one_word.chain(groups.into_iter().flat_map(subcommands)).collect()
}

/// All cases: subcommand, arguments, status, and what it meets.
fn cases() -> Vec<(String, &'static str, u8, Meets)> {
    let asking = |(name, words): &(&'static str, &'static str)| {
        let (name, words) = (*name, *words);
        OF_ASKING.iter().map(move |(status, meets)| (name.to_owned(), words, *status, *meets))
    };
    let own = CASES.iter().map(|(name, words, status, meets)| ((*name).to_owned(), *words, *status, *meets));
    // These two exit with 1.
    let mut misused = all();
    misused.retain(|name| !["health", "check-config"].contains(&&**name));
    // A flag of the server has two dashes.
    let misused = misused.into_iter().map(|name| (name, "-%", 64, Free));
    ASKING.iter().flat_map(asking).chain(own).chain(misused).collect()
}

#[test]
fn each_status_that_a_help_text_lists_has_a_case_and_one_meaning() {
    let table = listed("");
    let shown: BTreeSet<(String, u8)> =
        cases().into_iter().map(|(name, _, status, _)| (name, status)).collect();
    let is_elsewhere = |name: &str, status: u8| {
        ELSEWHERE.iter().any(|(other, statuses, ..)| *other == name && statuses.contains(&status))
    };
    for name in all() {
        let listed = listed(&name);
        for row in &listed {
            let has_case = shown.contains(&(name.clone(), row.0)) || is_elsewhere(&name, row.0);
            assert!(has_case, "{name}: no case exits with {}", row.0);
            assert!(table.contains(row), "{name}: {row:?}");
        }
        for (_, status) in shown.iter().filter(|(other, _)| *other == name) {
            assert!(listed.iter().any(|(listed, _)| listed == status), "{name}: its help lacks {status}");
        }
    }
    for (.., file, test) in ELSEWHERE {
        let source = std::fs::read_to_string(format!("{}/tests/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "{file} has no {test}");
    }
}

#[test]
fn every_case_exits_with_its_status() {
    let servers = Servers::start();
    let mut wrong = Vec::new();
    for (name, words, expected, meets) in cases() {
        let (url, token) = servers.meet(meets);
        let words = format!("{name} {}", words.replace("URL", &url).replace("TOKEN", &token));
        let (code, told) = status(&words, &url, meets);
        if code != Some(expected.into()) {
            wrong.push(format!("{words} ({meets:?}): {code:?}, not {expected}: {told}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn an_empty_key_or_pattern_is_a_wrong_argument() {
    let server = Running::start(redlatch().args(["--port", "auto"]));
    for words in [
        &["run", "", "--", "true"][..],
        &["run", "lock:a", "", "--", "true"],
        &["take", "", "--for", "1m", "--as", "me"],
        &["renew", "", "--as", "me"],
        &["release", "", "--as", "me"],
        &["who", ""],
        &["wait", ""],
        &["break", "", "--token", "1"],
        &["ls", ""],
        &["watch", ""],
    ] {
        let (code, _, told) = ended(redlatch().args(words).env("REDLATCH_URL", server.url()));
        assert_eq!((code, told.lines().count()), (Some(64), 1), "{words:?}: {told}");
    }
    assert!(server.ask("INFO locks").contains("\r\nlocks_granted:0\r\n"));
}
