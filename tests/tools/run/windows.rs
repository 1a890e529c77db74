//! The program for Windows: `redlatch run`, and a server that ends with its parent. Other tests of these use shells, signals
//! and processes of Unix.
//!
//! Needs   TEST_PROGRAM: what starts that program on this machine, and its path as the last word.

use std::io::Read;
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{run, server};
use crate::support::binary::{Running, ended, program};

/// A server that nobody ends would end by itself, so that no test waits for ever.
const LIFETIME: Duration = Duration::from_secs(60);

/// The path of the program, for a command that it runs.
fn path() -> String {
    let words = program();
    words.get_args().last().unwrap().to_str().unwrap().to_owned()
}

/// Waits until nobody writes to the output of a server any more, and checks that it has not ended for its age.
fn is_gone(mut server: Running, since: Instant) {
    let address = server.address();
    server.log.read_to_string(&mut String::new()).unwrap();
    assert!(since.elapsed() < LIFETIME / 2, "it ended by itself");
    assert!(TcpStream::connect(address).is_err(), "it serves no more");
}

fn lifetime() -> String {
    format!("{}s", LIFETIME.as_secs())
}

#[test]
#[ignore = "needs a TEST_PROGRAM for Windows"]
fn the_exit_status_and_the_environment_are_those_of_the_command() {
    let server = server();
    for code in [0, 7] {
        let exit = format!("exit {code}");
        let (got, _, told) = ended(run(&server.url(), &["lock:a", "--", "cmd", "/c", &exit]));
        assert_eq!(got, Some(code), "{told}");
    }
    let echo = ["lock:a", "--", "cmd", "/c", "echo %REDLATCH_TOKEN%"];
    assert_eq!(ended(run(&server.url(), &echo)).1.trim(), "3");
    assert_eq!(ended(run(&server.url(), &["lock:a", "--", "no-such-command"])).0, Some(127));
    assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n", "the lock is released");
}

#[test]
#[ignore = "needs a TEST_PROGRAM for Windows"]
fn what_the_command_has_started_ends_with_a_lock_that_is_lost() {
    let (server, program, lifetime) = (server(), path(), lifetime());
    let url = server.url();
    let inner =
        ["run", "--url", &url, "lock:b", "--", &program, "--port", "auto", "--max-lifetime", &lifetime];
    let mut outer = run(&url, &["lock:a", "--", &program]);
    let started = Running::start(outer.args(inner));
    let since = Instant::now();
    assert_eq!(server.ask("DEL lock:a"), ":1\r\n");
    is_gone(started, since);
}

#[test]
#[ignore = "needs a TEST_PROGRAM for Windows"]
fn a_server_ends_with_its_parent() {
    let (path, lifetime) = (path(), lifetime());
    let mut shell = Command::new(program().get_program());
    let server = [&path, "--port", "auto", "--exit-with-parent", "--max-lifetime", &lifetime];
    let mut child = Running::start(shell.args(["cmd", "/c"]).args(server));
    let since = Instant::now();
    child.process.kill().unwrap();
    is_gone(child, since);
}
