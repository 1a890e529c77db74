//! `redlatch check-config`: every fault with its place, no effect.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::binary::{Directory, Running, ask, redlatch};
use crate::support::real::RealServer;

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
fn a_variable_that_nothing_reads_is_a_fault() {
    let mut command = check(&[]);
    command.env("REDLATCH_REQUIRE_PASS", "secret").env("REDLATCH_FOO", "1").env("REDLATCH_SERVICE_HOST", "h");
    let said = faults(&command.output().unwrap());
    let named = |name: &str| format!("redlatch: nothing reads the variable {name}\n");
    let meant = "REDLATCH_REQUIRE_PASS: did you mean REDLATCH_REQUIREPASS?";
    assert_eq!(said, named("REDLATCH_FOO") + &named(meant));
}

/// The names of variables in the files of a folder, and below it.
fn variables_in(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        return entries.for_each(|entry| variables_in(&entry.unwrap().path(), found));
    }
    let text = std::fs::read(path).unwrap();
    let text = String::from_utf8_lossy(&text);
    let is_of_name = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let rests =
        text.split("REDLATCH_").skip(1).filter_map(|rest| rest.split(|c: char| !is_of_name(c)).next());
    found.extend(rests.filter(|rest| !rest.is_empty()).map(|rest| format!("REDLATCH_{rest}")));
}

/// All variables that pages, packages and programs name may be there when a server starts.
#[test]
fn variables_of_pages_packages_and_programs_are_known() {
    let mut found = BTreeSet::new();
    for folder in
        ["docs", "examples", "packages", "Dockerfile", ".ci", "crates/cli/src", "crates/testing/src"]
    {
        variables_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut found);
    }
    // A code, a placeholder, what tests of this check are given, and what manifests rename before a server sees it.
    let others = ["OPEN_HOLD", "NO_VARIABLE", "PASSWORD", "FOO", "REQUIRE_PASS"];
    let named = found.iter().filter(|name| !others.contains(&&name["REDLATCH_".len()..]));
    let mut command = check(&["--port", "auto"]);
    command.envs(named.map(|name| (name, "x")));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let unknown: Vec<&str> = said.lines().filter(|line| line.contains("nothing reads")).collect();
    assert!(found.len() > 40 && unknown.is_empty(), "{unknown:#?}");
}

#[cfg(all(feature = "http", feature = "tls"))]
#[test]
fn settings_that_would_share_a_port_or_a_file_are_a_fault() {
    let tls = ["--tls-auth-clients", "no", "--tls-port"];
    for (arguments, words) in [
        (&["--port", "7000", "--http-port", "7000"][..], "http-port '7000': must differ from port"),
        (&[&["--port", "7000"][..], &tls, &["7000"]].concat(), "tls-port '7000': must differ from port"),
        (
            &[&["--http-port", "7000"][..], &tls, &["7000"]].concat(),
            "http-port '7000': must differ from tls-port",
        ),
        (
            &["--port", "7000", "--http-port", "7000", "--http-bind", "0.0.0.0"],
            "http-port '7000': must differ from port",
        ),
        (
            &["--unixsocket", "s", "--http-unixsocket", "s"],
            "http-unixsocket 's': must differ from unixsocket",
        ),
        (&["--port-file", "p", "--pidfile", "p"], "port-file 'p': must differ from pidfile"),
    ] {
        let said = faults(&check(arguments).output().unwrap());
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
    let said = faults(&check(&["--http-bind", "foo bar"]).output().unwrap());
    assert!(said.contains("http-bind 'foo bar': must name at least one IP address"), "{said}");
    let elsewhere = ["--port", "7000", "--http-port", "7000", "--bind", "127.0.0.2"];
    is_good(&check(&elsewhere).output().unwrap());
    is_good(&check(&["--http-bind", "locks", "--http-unixsocket", "s"]).output().unwrap());
    is_good(&check(&["--port", "auto", "--http-port", "auto"]).output().unwrap());
}

#[test]
fn a_sync_without_a_journal_is_a_warning() {
    for (arguments, is_warned) in [
        (&[][..], true),
        (&["--dir", "d"], false),
        (&["--appendonly", "yes"], false),
        (&["--dir", "d", "--appendonly", "no"], true),
    ] {
        let said = is_good(&check(&[&["--appendfsync", "always"], arguments].concat()).output().unwrap());
        let expected = "redlatch: warning: appendfsync 'always' syncs nothing without a journal";
        assert_eq!(said.starts_with(expected), is_warned, "{arguments:?}: {said}");
    }
}

#[test]
fn names_that_redis_and_valkey_have_today_are_known() {
    let directory = Directory::new();
    let lines = "port auto\nlookahead 16\nset-max-listpack-entries 128\nlog-timestamp-format legacy\n\
                 commandlog-execution-slower-than 10000\ncluster-databases 1\nstream-idmp-maxsize 100\n\
                 hide-user-data-from-log yes\nunixsocketgroup locks\n";
    let file = directory.write("valkey.conf", lines);
    let said = is_good(&check(&[&file]).output().unwrap());
    for name in ["hide-user-data-from-log", "unixsocketgroup"] {
        assert!(said.contains(&format!("{name} is ignored, and the server is less protected")), "{said}");
    }
    assert_eq!(said.lines().count(), 7, "{said}");
}

/// Needs the programs of REDLATCH_REDIS_SERVER and REDLATCH_VALKEY_SERVER.
#[test]
#[ignore = "needs a real Redis and Valkey"]
fn every_name_of_a_real_server_is_known() {
    let directory = Directory::new();
    for name in ["redis", "valkey"] {
        let server = RealServer::start(name);
        let path = server.url().replace("unix://", "");
        let said = ask(UnixStream::connect(path).unwrap(), "CONFIG GET *");
        let values: Vec<&str> = said.split("\r\n").skip(2).step_by(2).collect();
        let names = values.chunks(2).map(|pair| pair[0]).filter(|name| !name.is_empty());
        let lines: Vec<String> = names.map(|name| format!("{name} \"\"\n")).collect();
        assert!(lines.len() > 150, "{said}");
        let file = directory.write("all.conf", &lines.concat());
        let output = check(&[&file]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let unknown: Vec<&str> = said.lines().filter(|line| line.contains("unknown setting")).collect();
        assert!(unknown.is_empty(), "{name}: {unknown:#?}");
    }
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
