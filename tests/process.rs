//! The binary as its operators and harnesses meet it: flags, environment, files, signals, exit codes.
//!
//! Owns    what concerns the process; what a server answers is the transcripts' matter.
//! Time    no sleep: a test waits for a line of the log or for the end of the process, and the ports are free ones.

#![cfg(feature = "cli")]
// A test ends where it is surprised; the helpers are part of the tests.
#![allow(clippy::unwrap_used)]

#[path = "support/binary.rs"]
mod binary;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use binary::{Directory, Running, ask, redlatch, refusal};

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
    fn the_log_follows_its_level_while_the_server_runs_and_goes_to_a_file() {
        let directory = Directory::new();
        let path = directory.path("log");
        let loud = Running::start(redlatch().args(["--port", "auto"]));
        assert_eq!(loud.ask("CONFIG SET loglevel warning"), "+OK\r\n");
        loud.signal("TERM");
        let (code, said) = loud.end_with_log();
        assert_eq!(code, Some(0));
        assert!(!said.contains("Ending"), "{said}");

        let bad = redlatch().args(["--port", "65536", "--logfile", &path]).output().unwrap();
        refusal(&bad);
        assert!(bad.stdout.is_empty());
        assert!(std::fs::read_to_string(&path).unwrap().contains("redlatch is starting"));
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
    fn a_server_that_nobody_could_connect_to_does_not_start() {
        let said = refusal(&redlatch().args(["--port", "0"]).output().unwrap());
        assert!(said.contains("port '0'"), "{said}");
    }

    #[test]
    fn several_words_are_no_single_value() {
        let said = refusal(&redlatch().args(["--requirepass", "a", "b"]).output().unwrap());
        assert!(said.contains("requirepass 'a b': must be one value"), "{said}");
    }

    #[test]
    fn a_terminal_that_goes_does_not_take_the_server_with_it() {
        let server = Running::start(redlatch().args(["--port", "auto"]));
        server.signal("HUP");
        assert_eq!(server.ask("ECHO here"), "$4\r\nhere\r\n");
        server.signal("TERM");
        assert_eq!(server.end(), Some(0));
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
