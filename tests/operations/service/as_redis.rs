//! The binary in the place of redis-server and redis-cli: its log, its pidfile, its start in the background, health checks.

use std::io::Read;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

use crate::support::binary::{Directory, Running, ask, redlatch};
use crate::support::waits::wait_until;

/// The binary under another name.
fn named(name: &str) -> Command {
    let mut command = redlatch();
    command.arg0(format!("/usr/local/bin/{name}"));
    command
}

#[test]
fn under_the_name_of_redis_the_log_has_the_lines_of_redis_unless_a_setting_says_otherwise() {
    for (name, format, is_redis) in [
        ("redis-server", "auto", true),
        ("valkey-server", "auto", true),
        ("redis-server", "text", false),
        ("redlatch", "auto", false),
        ("redlatch", "redis", true),
    ] {
        let server = Running::start(named(name).args(["--port", "auto", "--log-format", format]));
        let is_line_of_redis = server.said.contains(" * Ready to accept connections ");
        assert_eq!(is_line_of_redis, is_redis, "{name}, {format}: {}", server.said);
    }
    let server = Running::start(named("redis-server").args(["--port", "auto"]));
    assert!(server.said.contains(" * Ready to accept connections "), "{}", server.said);
}

#[test]
fn a_pidfile_has_the_number_of_the_process_until_that_ends() {
    let directory = Directory::new();
    let dir = directory.path("dir");
    // As in Redis, a relative path is below `dir`.
    let mut command = redlatch();
    command.args(["--port", "auto", "--dir", &dir, "--pidfile", "server.pid"]);
    let server = Running::start(&mut command);
    let file = format!("{dir}/server.pid");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{}\n", server.process.id()));
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    assert!(!std::fs::exists(&file).unwrap());

    let nowhere = directory.path("no/such/server.pid");
    let mut server = Running::start(redlatch().args(["--port", "auto", "--pidfile", &nowhere]));
    assert!(server.said.contains("The pidfile cannot be written"), "{}", server.said);
    server.process.kill().unwrap();
}

/// The end of a process that this one has not started.
fn end(pid: &str) {
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
}

#[test]
fn a_server_in_the_background_is_ready_when_the_program_that_started_it_returns() {
    let directory = Directory::new();
    let [pid, port, log] = ["pid", "port", "log"].map(|name| directory.path(name));
    let text = format!("port auto\nport-file {port}\npidfile {pid}\nlogfile {log}\ndaemonize yes\n");
    let file = directory.write("redis.conf", &text);
    // The output is read to its end: the server in the background keeps no stream open.
    let Output { status, stdout, stderr } =
        named("redis-server").args([&file, "--max-lifetime", "1m"]).output().unwrap();
    assert!(status.success() && stdout.is_empty() && stderr.is_empty(), "{stdout:?} {stderr:?}");
    let [port, id] = [&port, &pid].map(|file| std::fs::read_to_string(file).unwrap().trim().to_owned());
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert_eq!(ask(connect(), "PING"), "+PONG\r\n");
    assert!(ask(connect(), "CONFIG GET daemonize").contains("yes"));
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(
        said.contains(" * Ready to accept connections ") && said.starts_with(&format!("{id}:M ")),
        "{said}"
    );
    end(&id);
    wait_until("the pidfile is gone", || !std::fs::exists(&pid).unwrap());
}

#[test]
fn a_server_that_cannot_start_in_the_background_says_why_and_the_exit_code_tells() {
    let other = Running::start(redlatch().args(["--port", "auto"]));
    let address = other.address();
    let (_, port) = address.rsplit_once(':').unwrap();
    for (arguments, words) in [
        (&["--port", port, "--daemonize", "yes"][..], "in use"),
        (&["--daemonize", "yes", "--databases", "0"], "databases '0'"),
        (&["-", "--daemonize", "yes"], "daemonize 'yes': must be no"),
    ] {
        let Output { status, stdout, stderr } = redlatch().args(arguments).output().unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.starts_with("redlatch: ") && said.contains(words) && stdout.is_empty(), "{said}");
    }
}

#[test]
fn a_server_that_systemd_supervises_or_a_harness_waits_for_stays_in_the_foreground() {
    let directory = Directory::new();
    let socket = directory.path("notify");
    let _listens = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    let mut command = redlatch();
    command.args(["--port", "auto", "--daemonize", "yes", "--supervised", "auto"]);
    drop(Running::start(command.env("NOTIFY_SOCKET", socket)));

    let mut command = redlatch();
    command.args(["--port", "auto", "--daemonize", "yes", "--ready-json", "--exit-with-parent"]);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    process.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"{");
    process.kill().unwrap();
    process.wait().unwrap();
}

/// What redis-cli prints and exits with, and what it says on the error stream.
fn cli(arguments: &[&str]) -> (String, Option<i32>, String) {
    let Output { status, stdout, stderr } = named("redis-cli").args(arguments).output().unwrap();
    (String::from_utf8(stdout).unwrap(), status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn redis_cli_prints_a_reply_as_redis_cli_does() {
    let server = Running::start(redlatch().args(["--port", "auto"]));
    let address = server.address();
    let (_, port) = address.rsplit_once(':').unwrap();
    for (request, printed) in [
        (&["ping"][..], "PONG\n"),
        (&["get", "none"], "\n"),
        (&["set", "a key", "a value"], "OK\n"),
        (&["get", "a key"], "a value\n"),
        (&["incr", "n"], "1\n"),
        (&["mget", "a key", "none", "n"], "a value\n\n1\n"),
        (&["mget", "a key", "none"], "a value\n\n"),
        (&["keys", "nothing*"], "\n"),
        (&["config", "get", "databases"], "databases\n16\n"),
        (&["incr", "a key"], "ERR value is not an integer or out of range\n\n"),
    ] {
        let words = [&["-h", "localhost", "-p", port, "--no-auth-warning"], request].concat();
        assert_eq!(cli(&words), (printed.to_owned(), Some(0), String::new()), "{request:?}");
    }
    let info = cli(&["-p", port, "info", "server"]).0;
    assert!(info.starts_with("# Server\r\n") && info.ends_with("\r\n"), "{info}");
    let (printed, code, said) = cli(&["-p", port, "-e", "incr", "a key"]);
    assert_eq!((&*printed, code), ("", Some(1)), "{said}");
}

#[test]
fn redis_cli_logs_in_and_says_what_is_refused() {
    let server = Running::start(redlatch().args(["--port", "auto", "--requirepass", "secret"]));
    let address = server.address();
    let (_, port) = address.rsplit_once(':').unwrap();
    let refused = "NOAUTH Authentication required.\n\n";
    assert_eq!(cli(&["-p", port, "ping"]), (refused.to_owned(), Some(0), String::new()));
    for login in [&["-a", "secret"][..], &["--user", "default", "--pass", "secret"]] {
        let words = [&["-p", port], login, &["ping"]].concat();
        assert_eq!(cli(&words), ("PONG\n".to_owned(), Some(0), String::new()));
    }
    let (printed, code, said) = cli(&["-p", port, "-a", "wrong", "ping"]);
    assert_eq!((&*printed, code), (refused, Some(0)));
    assert!(said.contains("AUTH failed: WRONGPASS"), "{said}");
    let mut with_variable = named("redis-cli");
    let output = with_variable.args(["-p", port, "ping"]).env("REDISCLI_AUTH", "secret").output().unwrap();
    assert_eq!(output.stdout, b"PONG\n");
    server.kill();
    for (arguments, words) in [
        (&["-p", port, "ping"][..], "Could not connect to Redis at 127.0.0.1:"),
        (&["--bigkeys"], "Unrecognized option or bad number of args for: '--bigkeys'"),
        (&["-p"], "a value is missing for '-p'"),
        (&[], "no prompt"),
    ] {
        let (printed, code, said) = cli(arguments);
        assert_eq!((&*printed, code), ("", Some(1)), "{arguments:?}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}
