//! A build without the feature `testing`: it has no test backend, and no setting brings one back.
//!
//! Belongs here  what is true without the feature alone. The step `features` of `.ci/run` builds and runs it.

#![cfg(not(feature = "testing"))]
#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use redlatch::Server;
use redlatch_core::commands::row::Group;
use redlatch_testing::commands::table;

/// Sends requests, and returns the first line of each reply.
fn first_lines(server: &Server, requests: &[String]) -> Vec<String> {
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    let lines = requests.iter().map(|request| {
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        line
    });
    lines.collect()
}

#[test]
fn a_build_without_the_test_backend_knows_no_test_command() {
    let server = Server::builder().start_blocking().unwrap();
    let of_tests = table().commands().iter().filter(|command| command.row.group == Group::Test);
    let names: Vec<&str> = of_tests.map(|command| command.row.name).collect();
    assert!(names.len() > 5, "{names:?}");
    let requests: Vec<String> = names.iter().map(|name| format!("{name} HELP")).collect();
    for (request, line) in requests.iter().zip(first_lines(&server, &requests)) {
        assert!(line.starts_with("-ERR unknown command 'TEST."), "{request}: {line}");
    }
    let asked = ["COMMAND LIST FILTERBY PATTERN test.*", "AUTH namespace:x"].map(str::to_owned);
    let lines = first_lines(&server, &asked);
    assert_eq!(lines[0], "*0\r\n");
    assert!(lines[1].starts_with("-ERR AUTH <password> called without any password"), "{}", lines[1]);
}

#[test]
fn no_setting_brings_the_test_backend_back() {
    for (setting, value) in
        [("enable-test-commands", "yes"), ("enable-test-commands", "local"), ("nodes", "2")]
    {
        let error = Server::builder().set(setting, value).start_blocking().unwrap_err().to_string();
        assert_eq!(error, format!("{setting} '{value}': this build has no test commands"));
    }
}

#[cfg(feature = "cli")]
#[test]
fn the_subcommands_over_the_test_backend_say_that_this_build_lacks_it() {
    for subcommand in [&["explore", "--", "true"][..], &["timeline", "redis://127.0.0.1:1"]] {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_redlatch")).args(subcommand).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("lacks the feature 'testing'"), "{subcommand:?}: {text}");
        assert_eq!(output.status.code(), Some(64), "{subcommand:?}");
    }
}
