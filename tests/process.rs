//! The binary as its operators and harnesses meet it: flags, environment, files, signals, exit codes.
//!
//! Owns    what concerns the process; what a server answers is the transcripts' matter.
//! Time    no sleep: a test waits for a line of the log or for the end of the process, and the ports are free ones.

#![cfg(feature = "cli")]
// A test ends where it is surprised; the helpers are part of the tests.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The binary, without the settings that the environment of the tests may hold.
fn redlatch() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redlatch"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("REDLATCH_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("redlatch-process-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server that has said that it accepts connections.
struct Running {
    process: Child,
    log: BufReader<ChildStdout>,
    /// What it has logged so far.
    said: String,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let process = command.stdout(Stdio::piped()).spawn().unwrap();
        Self::wait(process)
    }

    fn wait(mut process: Child) -> Self {
        let mut log = BufReader::new(process.stdout.take().unwrap());
        let mut said = String::new();
        while !said.contains("Ready to accept connections") {
            let read = log.read_line(&mut said).unwrap();
            assert!(read > 0, "it ended before it accepted connections:\n{said}");
        }
        Self { process, log, said }
    }

    /// The TCP address that the log names.
    fn address(&self) -> String {
        let at = self.said.rfind("127.0.0.1:").expect("the log names the address");
        let end = |c: char| !(c.is_ascii_digit() || c == '.' || c == ':');
        self.said[at..].split(end).next().unwrap().to_owned()
    }

    fn ask(&self, request: &str) -> String {
        ask(TcpStream::connect(self.address()).unwrap(), request)
    }

    fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Waits for the end; returns the exit code.
    fn end(mut self) -> Option<i32> {
        self.log.read_to_string(&mut self.said).unwrap();
        self.process.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Sends one inline request and QUIT; returns all that is answered to the first.
fn ask(mut stream: impl Read + Write, request: &str) -> String {
    stream.write_all(format!("{request}\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.strip_suffix("+OK\r\n").expect("QUIT is answered last").to_owned()
}

/// The sentence with which the binary refuses to start.
fn refusal(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "one sentence: {said}");
    said.trim_end().to_owned()
}

const DATABASES: &str = "*2\r\n$9\r\ndatabases\r\n$1\r\n";

mod settings {
    use super::*;

    #[test]
    fn flags_win_over_the_environment_the_environment_over_a_file_the_file_over_the_default() {
        let directory = Directory::new();
        let file = directory.write("redlatch.conf", "# a comment\nport auto\ndatabases 3\n");
        let mut command = redlatch();
        command.arg(&file);
        assert!(
            Running::start(&mut command).ask("CONFIG GET databases").starts_with(&format!("{DATABASES}3"))
        );
        command.env("REDLATCH_DATABASES", "5");
        assert!(
            Running::start(&mut command).ask("CONFIG GET databases").starts_with(&format!("{DATABASES}5"))
        );
        command.args(["--databases", "7"]);
        assert!(
            Running::start(&mut command).ask("CONFIG GET databases").starts_with(&format!("{DATABASES}7"))
        );
    }

    #[test]
    fn a_configuration_comes_through_the_standard_input() {
        let mut process = redlatch().arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(b"port auto\nrequirepass \"two words\"\n").unwrap();
        let server = Running::wait(process);
        assert!(server.ask("PING").starts_with("-NOAUTH"));
        assert_eq!(server.ask("AUTH 'two words'"), "+OK\r\n");
    }

    #[test]
    fn several_words_in_one_argument_are_split() {
        let server = Running::start(redlatch().args(["--port auto --databases 4"]));
        assert!(server.ask("CONFIG GET databases").starts_with(&format!("{DATABASES}4")));
    }

    #[test]
    fn settings_that_do_not_apply_are_listed_once() {
        let mut command = redlatch();
        command.args([
            "--port",
            "auto",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "yes",
            "--save",
            "60",
            "1",
        ]);
        let server = Running::start(&mut command);
        let line = server.said.lines().find(|line| line.contains("appendonly")).expect("they are listed");
        assert!(line.contains("save appendonly daemonize"), "{line}");
        assert_eq!(server.said.matches("appendonly").count(), 1);
        assert_eq!(server.ask("PING"), "+PONG\r\n");
    }

    #[test]
    fn what_is_wrong_is_said_in_one_sentence_with_its_value_and_range() {
        for (arguments, words) in [
            (&["--databases", "0"][..], &["databases '0'", "between 1 and"][..]),
            (&["--port", "65536"], &["port '65536'", "between 0 and 65535"]),
            (&["--port", "many"], &["port 'many'", "between 0 and 65535"]),
            (&["--loglevel", "loud"], &["loglevel 'loud'", "debug, verbose, notice, warning"]),
            (&["--no-such-setting", "1"], &["no-such-setting"]),
            (&["--databases"], &["databases"]),
            (&["--requirepass \"open"], &["quotes"]),
            (&["no/such/file.conf"], &["no/such/file.conf"]),
        ] {
            let said = refusal(&redlatch().args(arguments).output().unwrap());
            for word in words {
                assert!(said.contains(word), "{arguments:?}: '{word}' is not in: {said}");
            }
        }
    }

    #[test]
    fn a_bad_line_and_a_bad_variable_are_named() {
        let directory = Directory::new();
        let file = directory.write("redlatch.conf", "port auto\ndatabases none\n");
        assert!(refusal(&redlatch().arg(&file).output().unwrap()).contains("line 2"));
        let said = refusal(&redlatch().env("REDLATCH_MAXCLIENTS", "0").output().unwrap());
        assert!(said.contains("REDLATCH_MAXCLIENTS"), "{said}");
    }
}

mod sockets {
    use super::*;

    #[test]
    fn a_port_in_use_is_one_sentence() {
        let server = Running::start(redlatch().args(["--port", "auto"]));
        let address = server.address();
        let port = address.rsplit(':').next().unwrap();
        let said = refusal(&redlatch().args(["--port", port]).output().unwrap());
        assert!(said.contains(&address) && said.contains("in use"), "{said}");
        assert_eq!(server.ask("PING"), "+PONG\r\n");
    }

    #[test]
    fn a_port_file_names_the_free_port_and_goes_with_the_server() {
        let directory = Directory::new();
        let file = directory.path("port");
        let server = Running::start(redlatch().args(["--port", "auto", "--port-file", &file]));
        let port = std::fs::read_to_string(&file).unwrap();
        assert_eq!(server.address(), format!("127.0.0.1:{}", port.trim_end()));
        server.signal("TERM");
        assert_eq!(server.end(), Some(0));
        assert!(!std::fs::exists(&file).unwrap());
    }

    #[test]
    fn without_tcp_a_unix_socket_serves_and_goes_with_the_server() {
        let directory = Directory::new();
        let path = directory.path("socket");
        let server = Running::start(redlatch().args(["--port", "0", "--unixsocket", &path]));
        assert_eq!(ask(UnixStream::connect(&path).unwrap(), "PING"), "+PONG\r\n");
        let health = redlatch().args(["health", &format!("unix://{path}")]).output().unwrap();
        assert!(health.status.success(), "{health:?}");
        server.signal("TERM");
        assert_eq!(server.end(), Some(0));
        assert!(!std::fs::exists(&path).unwrap());
    }
}

mod ends {
    use super::*;

    #[test]
    fn signals_and_shutdown_exit_with_0_and_close_connections() {
        for signal in ["TERM", "INT", "SHUTDOWN"] {
            let server = Running::start(redlatch().args(["--port", "auto"]));
            let mut idle = TcpStream::connect(server.address()).unwrap();
            idle.write_all(b"PING\r\n").unwrap();
            let mut answer = [0; 7];
            idle.read_exact(&mut answer).unwrap();
            if signal == "SHUTDOWN" {
                let mut other = TcpStream::connect(server.address()).unwrap();
                other.write_all(b"SHUTDOWN NOSAVE\r\n").unwrap();
            } else {
                server.signal(signal);
            }
            assert_eq!(server.end(), Some(0), "{signal}");
            assert_eq!(idle.read(&mut answer).unwrap(), 0, "{signal}");
        }
    }
}

mod subcommands {
    use super::*;

    fn printed(arguments: &[&str]) -> String {
        let output = redlatch().args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn the_version_is_one_that_harnesses_read() {
        for flag in ["-v", "--version"] {
            let said = printed(&[flag]);
            assert!(said.contains(" v=7.0.") && said.contains(env!("CARGO_PKG_VERSION")), "{said}");
        }
    }

    #[test]
    fn help_the_man_page_and_completions_know_every_setting() {
        let roff = |name: &str| name.replace('-', "\\-");
        let (help, man) = (printed(&["--help"]), printed(&["man"]));
        for row in redlatch::state::settings_table::ROWS {
            assert!(help.contains(&format!("--{} ", row.name)), "{}", row.name);
            assert!(man.contains(&roff(row.name)), "{}", row.name);
        }
        for shell in ["bash", "zsh", "fish"] {
            assert!(printed(&["completions", shell]).contains("port-file"), "{shell}");
        }
    }

    #[test]
    fn health_is_0_for_a_server_that_answers_and_1_for_any_other() {
        let server = Running::start(redlatch().args(["--port", "auto", "--requirepass", "se:cret"]));
        let address = server.address();
        let health =
            |login: &str| redlatch().args(["health", &format!("redis://{login}{address}")]).output().unwrap();
        assert!(health(":se%3Acret@").status.success());
        assert!(refusal(&health("")).contains("NOAUTH"));
        assert!(refusal(&health(":wrong@")).contains("WRONGPASS"));
        server.signal("TERM");
        let url = format!("redis://:se%3Acret@{address}");
        assert_eq!(server.end(), Some(0));
        refusal(&redlatch().args(["health", &url]).output().unwrap());
        refusal(&redlatch().args(["health", "http://localhost"]).output().unwrap());
    }

    #[test]
    fn the_log_follows_loglevel_while_the_server_runs() {
        let server = Running::start(redlatch().args(["--port", "auto", "--loglevel", "notice"]));
        assert_eq!(server.ask("CONFIG SET loglevel warning"), "+OK\r\n");
        server.signal("TERM");
        let mut server = server;
        server.log.read_to_string(&mut server.said).unwrap();
        assert!(!server.said.contains("Ending"), "a notice although the level is warning: {}", server.said);
    }
}
