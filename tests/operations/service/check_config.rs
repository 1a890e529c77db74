//! `redlatch check-config`: every fault with its place, no effect.

use std::net::TcpListener;
use std::process::{Command, Output};

use crate::support::binary::{Directory, Running, redlatch};

fn check(arguments: &[&str]) -> Command {
    let mut command = redlatch();
    command.arg("check-config").args(arguments);
    command
}

/// What it says about a configuration with faults.
fn faults(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    said
}

#[track_caller]
fn is_good(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(output.stdout, b"The configuration is good.\n");
    said
}

#[test]
fn a_good_configuration_is_good_although_its_port_is_taken_and_its_directory_is_in_use() {
    let directory = Directory::new();
    let dir = directory.path("dir");
    let _server = Running::start(redlatch().args(["--port", "auto", "--dir", &dir]));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let text =
        format!("port {port}\ndir {dir}\nuser alice on nopass ~* +@all\nlogfile {}\n", directory.path("log"));
    let file = directory.write("redlatch.conf", &text);
    assert_eq!(is_good(&check(&[&file]).output().unwrap()), "");
    assert!(!std::fs::exists(directory.path("log")).unwrap(), "no log is opened");
    let fresh = directory.path("fresh");
    is_good(&check(&["--port", "auto", "--dir", &fresh]).output().unwrap());
    assert!(!std::fs::exists(fresh).unwrap(), "no directory is made");
}

#[test]
fn an_endpoint_that_no_build_can_send_spans_to_is_a_fault() {
    let said =
        faults(&check(&["--port", "auto", "--otlp-endpoint", "ftp://127.0.0.1:4317"]).output().unwrap());
    assert!(said.starts_with("redlatch: otlp-endpoint 'ftp://127.0.0.1:4317': must be "), "{said}");
}

#[test]
fn a_port_that_only_systemd_can_hold_is_a_fault_unless_systemd_supervises_the_server() {
    let alone = faults(&check(&["--port", "0"]).output().unwrap());
    assert!(alone.contains("port '0': must be above 0"), "{alone}");
    // ExecStartPre does not get the sockets that ExecStart gets.
    let said = is_good(&check(&["--port", "0", "--supervised", "systemd"]).output().unwrap());
    assert!(said.contains("warning: port '0'") && said.contains("hands over"), "{said}");
}

#[test]
fn every_fault_is_named_with_its_place() {
    let directory = Directory::new();
    let included = directory.write("more.conf", "maxclients none\n");
    let lines = [
        "databases 0",
        "no-such-setting 1",
        "requirepass \"open",
        "timeout",
        "port 1 2",
        &format!("include {included}"),
        "include /no/such/file.conf",
        "user",
        "user alice on nonsense",
        "user alice on nopass",
        "bind nowhere",
        "unixsocket s",
        "unixsocketperm 9",
        "logfile /no/such/folder/log",
    ];
    let file = directory.write("redlatch.conf", &lines.join("\n"));
    let mut command = check(&[&file, "--slowlog-max-len", "x"]);
    command.env("REDLATCH_THREADS", "many");
    let said = faults(&command.output().unwrap());
    for (words, place) in [
        ("databases '0': must be between 1 and", "line 1 of"),
        ("unknown setting 'no-such-setting'", "line 2 of"),
        ("unbalanced quotes", "line 3 of"),
        ("timeout: a value is missing", "line 4 of"),
        ("port '1 2': must be one value", "line 5 of"),
        ("maxclients 'none'", &format!("line 1 of {included}")),
        ("'/no/such/file.conf'", "line 7 of"),
        ("user: a name is missing", "line 8 of"),
        ("user 'alice': 'nonsense'", "line"),
        ("user 'alice': is there twice", "line 10 of"),
        ("bind 'nowhere'", "line 11 of"),
        ("unixsocketperm '9'", "line 13 of"),
        ("logfile '/no/such/folder/log'", "line 14 of"),
        ("threads 'many'", "REDLATCH_THREADS"),
        ("slowlog-max-len 'x'", "flag --slowlog-max-len"),
    ] {
        let line =
            said.lines().find(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}: {said}"));
        assert!(line.starts_with("redlatch: ") && line.contains(place), "{line}");
    }
    assert_eq!(said.lines().count(), 15, "{said}");
}

#[test]
fn ignored_directives_are_warnings_with_their_place() {
    let directory = Directory::new();
    let file = directory.write("redis.conf", "port auto\nsave 60 1\nrename-command FLUSHALL \"\"\n");
    let said = is_good(&check(&[&file]).output().unwrap());
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("warning: save is ignored") && lines[0].contains("line 2 of"), "{said}");
    assert!(
        lines[1].contains("warning: rename-command is ignored, and the server is less protected"),
        "{said}"
    );
    assert_eq!(lines.len(), 2, "{said}");
}

#[test]
fn files_of_users_and_certificates_are_read() {
    let directory = Directory::new();
    let users = directory.write("users.acl", "user alice on nopass\nuser bob on nonsense\nbob\n");
    let arguments = ["--aclfile", &users, "--tls-port", "auto", "--tls-cert-file", "/no/such.crt"];
    let arguments = [&arguments[..], &["--tls-auth-clients", "no"]].concat();
    let said = faults(&check(&arguments).output().unwrap());
    for words in [&format!("{users}:2:"), &format!("{users}:3 "), "/no/such.crt"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = faults(&check(&["--aclfile", &users, "--user", "carol on nopass"]).output().unwrap());
    assert!(said.contains("users are in the ACL file or in the configuration"), "{said}");
    let good = directory.write("good.acl", "user alice on >secret ~* +@all\n");
    is_good(&check(&["--aclfile", &good]).output().unwrap());
}

#[test]
fn faults_that_only_the_start_would_meet_are_named() {
    for (arguments, words) in [
        (&["--port", "0"][..], "no client could connect"),
        (&["--enable-test-commands", "local", "--dir", "d"], "keeps nothing on the disk (flag --dir)"),
        (&["--unknown"], "unknown setting 'unknown'"),
        (&["-port", "1"], "'-port'"),
        (&["a", "b"], "unexpected argument 'b'"),
        (&["/no/such/file.conf"], "/no/such/file.conf"),
    ] {
        let said = faults(&check(arguments).output().unwrap());
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let help = check(&["--help"]).output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("check-config"));
}

#[test]
fn files_that_include_each_other_without_end_are_a_bounded_number_of_faults() {
    let directory = Directory::new();
    let path = directory.path("loop.conf");
    directory.write("loop.conf", &format!("include {path}\ninclude {path}\n"));
    let said = faults(&check(&[&path]).output().unwrap());
    assert!(said.lines().all(|line| line.contains("files include each other")), "{said}");
    assert_eq!(said.lines().count(), 100);
}

#[test]
fn what_is_good_starts_and_what_is_not_does_not() {
    let directory = Directory::new();
    for (text, is_good) in [
        ("port auto\n", true),
        ("port auto\nuser default on >x ~* +@all\n", true),
        ("port auto\nbind 127.0.0.1 nowhere\n", false),
        ("port auto\nuser a on (~x\n", false),
        ("port auto\ntls-port auto\n", false),
        ("port 0\n", false),
    ] {
        let file = directory.write("redlatch.conf", text);
        assert_eq!(check(&[&file]).output().unwrap().status.success(), is_good, "{text}");
        match is_good {
            true => drop(Running::start(redlatch().arg(&file))),
            false => assert!(!redlatch().arg(&file).output().unwrap().status.success(), "{text}"),
        }
    }
}
