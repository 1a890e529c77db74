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

mod users {
    use super::*;

    #[test]
    fn users_come_from_lines_of_the_configuration() {
        let directory = Directory::new();
        let file = directory.write(
            "redlatch.conf",
            "port auto\nuser alice on >\"se cret\" ~lock:* +@all\nuser default off\n",
        );
        let server = Running::start(redlatch().arg(&file));
        assert!(server.ask("PING").starts_with("-NOAUTH"));
        let mut alice = connect(&server);
        assert_eq!(line(&mut alice, "AUTH alice 'se cret'"), "+OK\r\n");
        assert_eq!(line(&mut alice, "SET lock:1 x"), "+OK\r\n");
        assert!(line(&mut alice, "SET other x").starts_with("-NOPERM"));
    }

    #[test]
    fn what_is_wrong_with_users_is_said_at_the_start_without_their_passwords() {
        let directory = Directory::new();
        let file = directory.write("users.acl", "user bob on bogus\n");
        for (arguments, word) in [
            (&["--user", "alice on >secret bogus"][..], "user 'alice': 'bogus': Syntax error"),
            (&["--user", "alice !secret"], "user 'alice': The password hash"),
            (&["--user", "alice on", "--user", "alice on"], "user 'alice': is there twice"),
            (&["--aclfile", &file], "users.acl:1: Syntax error"),
            (&["--aclfile", "no/such.acl"], "no/such.acl"),
            (&["--aclfile", &file, "--user", "alice on"], "not in both"),
        ] {
            let said = refusal(&redlatch().args(["--port", "auto"]).args(arguments).output().unwrap());
            assert!(said.contains(word) && !said.contains("secret"), "{arguments:?}: {said}");
        }
    }

    #[test]
    fn the_acl_file_is_loaded_and_saved_as_a_whole() {
        let directory = Directory::new();
        let file = directory.write("users.acl", "user alice on >one ~* +@all\nuser carol on >one ~* +@all\n");
        let server = Running::start(redlatch().args(["--port", "auto", "--aclfile", &file]));
        let (mut alice, mut carol) = (connect(&server), connect(&server));
        assert_eq!(line(&mut alice, "AUTH alice one"), "+OK\r\n");
        assert_eq!(line(&mut carol, "AUTH carol one"), "+OK\r\n");

        // A bad file changes nothing.
        std::fs::write(&file, "user alice on\nuser bob bogus\n").unwrap();
        assert!(line(&mut alice, "ACL LOAD").starts_with("-ERR ") && line(&mut carol, "PING") == "+PONG\r\n");

        // A good one ends the connections of those that it does not have; the others go on with what they may do now.
        std::fs::write(&file, "user alice on >two ~a +@all\n").unwrap();
        assert_eq!(line(&mut alice, "ACL LOAD"), "+OK\r\n");
        assert!(line(&mut alice, "GET b").starts_with("-NOPERM"));
        assert_eq!(carol.read(&mut [0]).unwrap_or(0), 0, "carol is gone");

        assert_eq!(line(&mut alice, "ACL SETUSER bob on nopass ~* +@all"), "+OK\r\n");
        assert_eq!(line(&mut alice, "ACL SAVE"), "+OK\r\n");
        let text = std::fs::read_to_string(&file).unwrap();
        let bob = text.lines().find(|line| line.starts_with("user bob "));
        assert_eq!(bob, Some("user bob on nopass ~* resetchannels +@all"));
        assert!(!text.contains("two"), "passwords are kept as digests: {text}");
        let names: Vec<_> =
            std::fs::read_dir(directory.path("")).unwrap().map(|file| file.unwrap()).collect();
        assert_eq!(names.len(), 1, "no draft is left: {names:?}");

        // A place that cannot be written keeps what it has.
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        assert!(line(&mut alice, "ACL SAVE").starts_with("-ERR There was an error trying to save the ACLs"));
    }

    #[test]
    fn protected_mode_keeps_other_machines_out_while_there_is_no_password() {
        // The machine's address as others see it; nothing is sent to find out.
        let probe = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let own = probe.connect("198.51.100.1:9").and_then(|()| probe.local_addr());
        let Some(own) = own.ok().filter(|own| !own.ip().is_loopback()) else {
            println!("skipped: this machine has no address but the loopback");
            return;
        };
        let server = Running::start(redlatch().args(["--port", "auto", "--bind", "0.0.0.0"]));
        let port = server.address().rsplit(':').next().unwrap().parse().unwrap();
        let mut inside = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let outside = || {
            let mut stream = TcpStream::connect((own.ip(), port)).unwrap();
            line(&mut stream, "PING")[..5].to_owned()
        };
        assert_eq!(outside(), "-DENI");
        assert_eq!(line(&mut inside, "CONFIG SET protected-mode no"), "+OK\r\n");
        assert_eq!(outside(), "+PONG");
        assert_eq!(line(&mut inside, "CONFIG SET protected-mode yes requirepass secret"), "+OK\r\n");
        assert_eq!(outside(), "-NOAU");
        assert_eq!(line(&mut inside, "ACL SETUSER default nopass"), "+OK\r\n");
        assert_eq!(outside(), "-DENI");
    }

    fn connect(server: &Running) -> TcpStream {
        TcpStream::connect(server.address()).unwrap()
    }

    /// Sends a request and returns the first line of what comes back.
    fn line(stream: &mut TcpStream, request: &str) -> String {
        stream.write_all(format!("{request}\r\n").as_bytes()).unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\r\n") && stream.read(&mut byte).unwrap() == 1 {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }
}
