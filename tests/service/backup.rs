//! What docs/operations.md says of copies of `dir`: moved, taken from a server that runs, and lost.

use std::path::Path;

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
