//! What docs/operations.md says of copies of `dir`: moved, taken from a server that runs, and lost.

use std::path::Path;
use std::process::Command;

use crate::support::binary::{Directory, Running, redlatch};

fn start(dir: &str, more: &[&str]) -> Running {
    Running::start(redlatch().args(["--port", "auto", "--dir", dir]).args(more))
}

fn copy(from: &str, to: &str) {
    let (from, to) = (Path::new(from).join("data"), Path::new(to).join("data"));
    std::fs::create_dir_all(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// The token of a lock that is taken now.
fn token(server: &Running, key: &str) -> u64 {
    let reply = server.ask(&format!("LOCK.ACQUIRE {key} me LEASE 60000"));
    let numbers = reply.lines().filter_map(|line| line.strip_prefix(':'));
    numbers.map(|number| number.parse().unwrap()).next().unwrap_or_else(|| panic!("no token: {reply}"))
}

fn quarantine_left_ms(server: &Running) -> u64 {
    let info = server.ask("INFO persistence");
    let left = info.lines().find_map(|line| line.strip_prefix("quarantine_left_ms:"));
    left.and_then(|left| left.parse().ok()).expect("INFO has it")
}

#[test]
fn a_directory_that_is_moved_after_a_stop_has_everything_and_nobody_waits() {
    let place = Directory::new();
    let (old, new) = (place.path("old"), place.path("new"));
    let server = start(&old, &[]);
    let first = token(&server, "lock:a");
    assert_eq!(server.ask("SET counter 7"), "+OK\r\n");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));

    copy(&old, &new);
    let server = start(&new, &[]);
    assert_eq!(quarantine_left_ms(&server), 0);
    assert_eq!(server.ask("GET counter"), "$1\r\n7\r\n");
    assert_eq!(server.ask("SET lock:a other NX PX 1000"), "$-1\r\n", "it is held");
    assert!(token(&server, "lock:b") > first);
}

#[test]
fn a_copy_of_a_server_that_runs_is_as_good_as_after_a_kill() {
    let place = Directory::new();
    let (old, new) = (place.path("old"), place.path("new"));
    let server = start(&old, &[]);
    token(&server, "lock:a");
    copy(&old, &new);
    assert_eq!(server.ask("SET later 1"), "+OK\r\n");
    let copied = start(&new, &[]);
    assert_eq!(copied.ask("SET lock:a other NX PX 1000"), "$-1\r\n", "it is held");
    assert_eq!(copied.ask("GET later"), "$-1\r\n", "a copy is as old as it is");
}

#[test]
fn a_start_with_nothing_waits_for_startup_guard_and_its_tokens_begin_again() {
    let place = Directory::new();
    let guarded = start(&place.path("guarded"), &["--startup-guard", "30000"]);
    assert!(quarantine_left_ms(&guarded) > 0);
    assert!(guarded.ask("LOCK.ACQUIRE k me").starts_with("-QUARANTINE "));
    assert_eq!(token(&start(&place.path("bare"), &[]), "k"), 1);
}

/// Runs the commands of a block of docs/durability.md, with the directories and the port of this test.
fn run_block(begins: &str, words: &[(&str, &str)]) {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/durability.md")).unwrap();
    let start = page.find(begins).unwrap_or_else(|| panic!("no block begins with {begins}"));
    let block = page[start..].split("```").next().unwrap();
    let script = words.iter().fold(block.to_owned(), |script, (from, to)| script.replace(from, to));
    let status = Command::new("sh").args(["-ec", &script]).status().unwrap();
    assert!(status.success(), "{script}");
}

/// A program that asks the server, as redis-cli does, which may not be here.
fn stand_in(place: &Directory, server: &Running) -> String {
    let (host, port) =
        server.address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
    let asks = format!("exec 3<>/dev/tcp/{host}/{port}\nprintf '%s\\r\\nQUIT\\r\\n' \"$*\" >&3\ncat <&3\n");
    format!("bash {}", place.write("ask", &asks))
}

#[test]
fn a_backup_of_a_server_that_runs_is_restored_where_another_one_was() {
    let place = Directory::new();
    let (dir, backup) = (place.path("dir"), place.path("backup"));
    let server = start(&dir, &[]);
    let words = [
        ("/var/lib/redlatch", dir.as_str()),
        ("/backup/redlatch", backup.as_str()),
        ("redis-cli", &stand_in(&place, &server)),
    ];
    assert_eq!(server.ask("SET counter 7"), "+OK\r\n");
    let early = token(&server, "lock:early");
    run_block("redis-cli BGREWRITEAOF", &words);
    let late = token(&server, "lock:late");
    assert!(late > early);
    server.kill();
    run_block("rm -rf /var/lib/redlatch/data", &words);

    let refuses = || {
        let refused = redlatch().args(["--port", "auto", "--dir", &dir]).output().unwrap();
        let says = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(says.contains("the journal is a backup, for the file identity is not its own"), "{says}");
    };
    refuses();
    place.write("dir/data/identity", &format!("redlatch data 1\nid {}\n", "ab".repeat(20)));
    refuses();
    let server = start(&dir, &["--startup-guard", "600000"]);
    assert_eq!(
        server.ask("GET counter\r\nSET lock:late me NX PX 1000"),
        "$1\r\n7\r\n$-1\r\n",
        "late may be held"
    );
    assert!(quarantine_left_ms(&server) > 500_000);
    server.kill();
    let server = start(&dir, &[]);
    assert!(quarantine_left_ms(&server) > 500_000, "it has been said once");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
}

#[test]
fn tokens_go_on_above_those_that_a_backup_does_not_know() {
    let place = Directory::new();
    let (old, new) = (place.path("old"), place.path("new"));
    // The shortest quarantine that there is.
    let (shortest, guard) = (["--horizon-max-lease", "0"], ["--startup-guard", "1"]);
    let server = start(&old, &shortest);
    let first = token(&server, "lock:a");
    copy(&old, &new);
    std::fs::remove_file(Path::new(&new).join("data/identity")).unwrap();
    let latest = token(&server, "lock:b");
    let server = start(&new, &[shortest, guard].concat());
    let reply = server.ask("LOCK.ACQUIRE lock:c me LEASE 1000 WAIT 600000");
    let next = reply.lines().find_map(|line| line.strip_prefix(':')).unwrap().parse::<u64>().unwrap();
    assert!(first < latest && latest + 1_000_000_000_000 < next, "{first} {latest} {next}");
}
