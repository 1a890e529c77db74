//! `redlatch run` and the questions about locks, as shells and service managers use them.
//!
//! Belongs here  exit codes, signals, the environment, streams, and what happens when the lock or the server goes.
//! Time          no sleep: a test waits for a line, for the end of a process or of its output. Leases are short where one
//!               must end, and long where it must not.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod hostile;
mod restarts;
mod windows;

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::support::binary::{Running, ended, redlatch, signal};
use crate::support::real::RealServer;
use crate::support::stream::Peer;
use crate::support::waits::wait_until;
use crate::support::words::request;

fn server() -> Running {
    Running::start(redlatch().args(["--port", "auto"]))
}

/// `redlatch run --url URL ARGUMENTS`.
fn run(url: &str, arguments: &[&str]) -> Command {
    let mut command = redlatch();
    command.args(["run", "--url", url]).args(arguments);
    command
}

/// Whether this process ignores a signal, and so does all that it starts: a shell ignores SIGINT for what it runs in the
/// background, nohup SIGHUP.
fn is_ignored(name: &str) -> bool {
    let number = Command::new("kill").args(["-l", name]).output().unwrap().stdout;
    let number: u32 = String::from_utf8(number).unwrap().trim().parse().unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    mask & (1 << (number - 1)) != 0
}

/// A `redlatch run` whose command runs, in lines.
struct Holder {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts it, and waits for the first line of the command, which must be `ready`.
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut holder = Self { process, lines };
        assert_eq!(holder.line(), "ready");
        holder
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Closes its standard input and waits for its end; returns the exit code, and what it said on its error stream.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.process.stdin.take());
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.process.wait().unwrap().code(), said)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command that holds the lock until its standard input is closed.
const HOLD: &[&str] = &["--", "sh", "-c", "echo ready; cat >/dev/null"];

mod commands {
    use super::*;

    #[test]
    fn the_exit_status_is_that_of_the_command() {
        let server = server();
        for (script, code) in [("true", 0), ("exit 7", 7), ("kill -KILL $$", 137), ("kill -TERM $$", 143)] {
            let (got, said, told) = ended(run(&server.url(), &["lock:a", "--", "sh", "-c", script]));
            assert_eq!(got, Some(code), "{script}: {said}{told}");
        }
        for (command, code) in [("/no/such/command", 127), ("/", 126)] {
            assert_eq!(ended(run(&server.url(), &["lock:a", "--", command])).0, Some(code), "{command}");
            assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n", "the lock is released");
        }
    }

    #[test]
    fn arguments_and_streams_reach_the_command_untouched() {
        let server = server();
        let mut command =
            run(&server.url(), &["lock:a", "--", "sh", "-c", "cat; printf '<%s>' \"$@\"; echo no >&2"]);
        let odd = OsString::from_vec(vec![b'\xff', b'=']);
        command.args(["sh", "two words", "", "--help", "-", "--"]).arg(odd);
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        process.stdin.take().unwrap().write_all(b"in\0put\n").unwrap();
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.stdout, b"in\0put\n<two words><><--help><-><--><\xff=>");
        assert!(output.stderr.ends_with(b"no\n"), "{output:?}");
    }

    #[test]
    fn the_environment_names_the_lock() {
        let server = server();
        let script = "echo ready; echo $REDLATCH_KEY; echo $REDLATCH_OWNER; echo $REDLATCH_TOKEN; \
                      echo $REDLATCH_DEADLINE; cat >/dev/null";
        let mut command = run(&server.url(), &["lock:a", "--", "sh", "-c", script]);
        command.env("REDLATCH_TOKEN", "of an outer lock");
        let mut holder = Holder::start(command);
        assert_eq!(holder.line(), "lock:a");
        let owner = holder.line();
        assert_eq!(server.ask("GET lock:a"), format!("${}\r\n{owner}\r\n", owner.len()));
        let token = server.ask(&format!("LOCK.TOKEN lock:a {owner}"));
        assert_eq!(format!(":{}\r\n", holder.line()), token);
        let deadline: u64 = holder.line().parse().unwrap();
        // The deadline is that of the server, as far as the clock of the wall is read twice.
        let expires: u64 =
            server.ask("PEXPIRETIME lock:a").trim_start_matches(':').trim_end().parse().unwrap();
        assert!(deadline.abs_diff(expires) < 10_000, "{deadline} and {expires}");
        assert_eq!(holder.end().0, Some(0));
    }

    #[test]
    fn bad_options_are_told_from_the_command() {
        let server = server();
        for arguments in [
            &["lock:a"][..],
            &["--lease", "soon", "lock:a", "--", "true"],
            &["--lease", "1ms", "lock:a", "--", "true"],
            &["--shared", "--permits", "1", "--of", "2", "lock:a", "--", "true"],
            &["--permits", "1", "lock:a", "--", "true"],
            &["--meta", "noise", "lock:a", "--", "true"],
            &["--shared", "lock:a", "lock:b", "--", "true"],
            &["--wait", "1s", "--no-wait", "lock:a", "--", "true"],
            &["--one-of", "lock:a", "lock:b", "--", "true"],
            &["--one-of", "{1..1001}", "--", "true"],
            &["--one-of", "lock:a", "--why", "tests", "--", "true"],
            &["--", "true"],
        ] {
            let (code, _, said) = ended(run(&server.url(), arguments));
            assert_eq!((code, said.lines().count()), (Some(64), 1), "{arguments:?}: {said}");
        }
        assert_eq!(ended(run("http://localhost", &["lock:a", "--", "true"])).0, Some(64));
    }

    #[test]
    fn what_the_command_leaves_running_ends_with_it() {
        let server = server();
        // The output ends when the last process that has it has ended.
        let (code, stdout, _) =
            ended(run(&server.url(), &["lock:a", "--", "sh", "-c", "tail -f /dev/null & echo done"]));
        assert_eq!((code, stdout.as_str()), (Some(0), "done\n"));
    }

    #[test]
    fn help_completions_and_the_man_page_know_every_flag() {
        let printed = |arguments: &[&str]| {
            let mut command = redlatch();
            command.args(arguments);
            let (code, stdout, stderr) = ended(command);
            assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
            stdout
        };
        let (help, man) = (printed(&["run", "--help"]), printed(&["man", "run"]));
        let completions = printed(&["completions", "bash"]);
        for flag in
            ["shared", "permits", "of", "wait", "no-wait", "lease", "if-held", "on-lost", "kill-grace"]
                .into_iter()
                .chain(["min-hold", "meta", "url"])
        {
            assert!(help.contains(&format!("--{flag}")), "{flag}");
            assert!(man.contains(&flag.replace('-', "\\-")), "{flag}");
            assert!(completions.contains(&format!("--{flag}")), "{flag}");
        }
        let all = printed(&["--help"]);
        for name in ["run", "ls", "who", "wait", "break", "watch"] {
            assert!(all.contains(&format!("\n  {name} ")), "{name}");
            assert!(printed(&["man", name]).contains(&format!("redlatch\\-{name}")), "{name}");
            assert!(printed(&[name, "--help"]).contains("--url"), "{name}");
        }
    }
}

mod holding {
    use super::*;

    #[test]
    fn the_lock_is_held_while_the_command_runs_and_no_longer() {
        let server = server();
        let holder = Holder::start(run(&server.url(), &[&["lock:a"], HOLD].concat()));
        assert_eq!(server.ask("EXISTS lock:a"), ":1\r\n");
        assert_eq!(server.ask("SET lock:a other NX PX 1000"), "$-1\r\n");
        assert_eq!(holder.end().0, Some(0));
        assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n");
    }

    #[test]
    fn a_lock_that_is_held_is_refused_with_all_that_is_known_and_the_command_does_not_run() {
        let server = server();
        let holder = Holder::start(run(&server.url(), &[&["lock:a"], HOLD].concat()));
        for arguments in [&["--no-wait"][..], &["--wait", "0"], &["--wait", "10ms"], &["--if-held", "fail"]] {
            let arguments = [arguments, &["lock:a", "--", "echo", "ran"]].concat();
            let (code, stdout, said) = ended(run(&server.url(), &arguments));
            assert_eq!((code, stdout.as_str()), (Some(75), ""), "{arguments:?}: {said}");
            for part in ["lock:a is held", "key:    lock:a", "holder: ", "lease:  ", "queue:  "] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
        let skipped = ended(run(&server.url(), &["--if-held", "skip", "lock:a", "--", "echo", "ran"]));
        assert_eq!((skipped.0, skipped.1.as_str()), (Some(0), ""));
        assert_eq!(holder.end().0, Some(0));
    }

    #[test]
    fn it_waits_for_the_lock_as_long_as_it_takes() {
        let server = server();
        let first = Holder::start(run(&server.url(), &[&["lock:a"], HOLD].concat()));
        let mut second = run(&server.url(), &["lock:a", "--", "echo", "ran"]);
        let second = second.stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(first.end().0, Some(0));
        assert_eq!(second.wait_with_output().unwrap().stdout, b"ran\n");
    }

    #[test]
    fn a_signal_ends_the_wait_and_the_queue_knows() {
        let server = server();
        let first = Holder::start(run(&server.url(), &[&["lock:a"], HOLD].concat()));
        let mut second = run(&server.url(), &["lock:a", "--", "echo", "ran"]);
        let mut second = second.stdout(Stdio::piped()).spawn().unwrap();
        // It has connected, and caught its signals before.
        wait_until("somebody waits", || server.ask("LOCK.WAITERS lock:a") != "*0\r\n");
        signal(&second, "TERM");
        assert_eq!(second.wait().unwrap().code(), Some(143));
        assert_eq!(first.end().0, Some(0));
        assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n");
    }

    #[test]
    fn min_hold_leaves_the_lock_for_the_rest_of_its_time() {
        let server = server();
        let (code, said, told) = ended(run(&server.url(), &["--min-hold", "1h", "lock:a", "--", "true"]));
        assert_eq!(code, Some(0), "{said}{told}");
        // It has no TTL until the server has seen the end of the connection.
        let left = loop {
            match server.ask("PTTL lock:a").trim_start_matches(':').trim_end().parse::<i64>().unwrap() {
                -1 => {}
                left => break left,
            }
        };
        assert!(left > 3_000_000 && left <= 3_600_000, "{left}");
    }

    #[test]
    fn a_lock_that_min_hold_leaves_does_not_count_as_lost_when_it_ends() {
        let server = server();
        for options in [&["lock:a"][..], &["--shared", "lock:b"], &["lock:c", "lock:d"]] {
            let options = [&["--min-hold", "1s"], options, &["--", "true"]].concat();
            assert_eq!(ended(run(&server.url(), &options)).0, Some(0), "{options:?}");
        }
        wait_until("the locks are free", || server.ask("EXISTS lock:a lock:b lock:c lock:d") == ":0\r\n");
        let counted = server.ask("INFO locks");
        assert!(counted.contains("\r\nlocks_expired:0\r\n"), "{counted}");
    }

    #[test]
    fn several_keys_are_taken_all_or_none() {
        let server = server();
        let holder = Holder::start(run(&server.url(), &[&["lock:b", "lock:a"], HOLD].concat()));
        assert_eq!(server.ask("EXISTS lock:a lock:b"), ":2\r\n");
        let (code, _, said) = ended(run(&server.url(), &["--no-wait", "lock:c", "lock:a", "--", "true"]));
        assert_eq!(code, Some(75), "{said}");
        assert!(said.contains("lock:a is held"), "{said}");
        assert_eq!(server.ask("EXISTS lock:c"), ":0\r\n");
        assert_eq!(holder.end().0, Some(0));
        assert_eq!(server.ask("EXISTS lock:a lock:b"), ":0\r\n");
    }

    #[test]
    fn one_of_several_keys_is_told_to_the_command_and_held_alone() {
        let server = server();
        let arguments = [
            "--one-of",
            "port:{5173..5199}",
            "--",
            "sh",
            "-c",
            "echo ready; echo $REDLATCH_KEY; \
                          echo $REDLATCH_TOKEN; cat >/dev/null",
        ];
        let mut holders: Vec<Holder> =
            (0..2).map(|_| Holder::start(run(&server.url(), &arguments))).collect();
        let lines: Vec<String> =
            holders.iter_mut().flat_map(|holder| [holder.line(), holder.line()]).collect();
        assert_eq!(lines, ["port:5173", "1", "port:5174", "2"]);
        assert_eq!(server.ask("EXISTS port:5173 port:5174 port:5175"), ":2\r\n");
        let arguments = ["--one-of", "port:{5173,5174}", "--no-wait", "--", "echo", "ran"];
        let (code, stdout, said) = ended(run(&server.url(), &arguments));
        assert_eq!((code, stdout.as_str()), (Some(75), ""));
        assert!(said.contains("not run: none of 2 locks is free: port:5173 is held"), "{said}");
        for holder in holders {
            assert_eq!(holder.end().0, Some(0));
        }
        assert_eq!(server.ask("DBSIZE"), ":0\r\n");
    }

    #[test]
    fn a_signal_ends_a_wait_for_one_of_several_in_each_queue() {
        let server = server();
        let first = Holder::start(run(&server.url(), &[&["lock:a", "lock:b"], HOLD].concat()));
        let mut second = run(&server.url(), &["--one-of", "lock:{a,b}", "--", "echo", "ran"]);
        let mut second = second.stdout(Stdio::piped()).spawn().unwrap();
        wait_until("somebody waits", || server.ask("LOCK.WAITERS lock:b") != "*0\r\n");
        signal(&second, "TERM");
        assert_eq!(second.wait().unwrap().code(), Some(143));
        assert_eq!(server.ask("LOCK.WAITERS lock:a\r\nLOCK.WAITERS lock:b"), "*0\r\n*0\r\n");
        assert_eq!(first.end().0, Some(0));
        assert_eq!(server.ask("DBSIZE"), ":0\r\n");
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn a_plain_redis_serves_exclusive_locks_without_a_token_and_it_says_so() {
        let real = RealServer::start("redis");
        let holder = Holder::start(run(
            &real.url(),
            &[&["lock:a", "--lease", "1s", "--kill-grace", "0"], HOLD].concat(),
        ));
        let (code, _, said) = ended(run(&real.url(), &["--wait", "1500ms", "lock:a", "--", "true"]));
        assert_eq!(code, Some(75), "the lock is renewed: {said}");
        let second = run(&real.url(), &["lock:a", "--", "sh", "-c", "echo \"<$REDLATCH_TOKEN>\""]);
        let (code, said) = holder.end();
        assert!(code == Some(0) && said.contains("no LOCK commands"), "{said}");
        assert_eq!(ended(second).1, "<>\n");
        assert_eq!(ended(run(&real.url(), &["lock:a", "lock:b", "--", "true"])).0, Some(64));
    }
}

mod signals {
    use super::*;

    #[test]
    fn signals_reach_the_command() {
        let server = server();
        let names = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "WINCH"];
        let names: Vec<&str> = names.into_iter().filter(|name| !is_ignored(name)).collect();
        // It does not block: a shell may miss a signal that comes just before it does.
        let traps: String = names.iter().map(|name| format!("trap 'echo {name}; n=1$n' {name}; ")).collect();
        let script = format!(
            "{traps} echo ready; until [ ${{#n}} = {} ] || [ $SECONDS -gt 60 ]; do :; done",
            names.len()
        );
        let mut holder = Holder::start(run(&server.url(), &["lock:a", "--", "bash", "-c", &script]));
        for name in names {
            signal(&holder.process, name);
            assert_eq!(holder.line(), name);
        }
        assert_eq!(holder.end().0, Some(0));
    }

    #[test]
    fn sigterm_leaves_no_orphan() {
        let server = server();
        let mut holder = Holder::start(run(
            &server.url(),
            &["lock:a", "--", "sh", "-c", "echo ready; echo $$; tail -f /dev/null"],
        ));
        let command = holder.line();
        signal(&holder.process, "TERM");
        let mut rest = String::new();
        holder.lines.read_to_string(&mut rest).unwrap();
        assert_eq!(holder.end().0, Some(143));
        let probe = Command::new("kill").args(["-0", &command]).stderr(Stdio::null()).status().unwrap();
        assert!(!probe.success(), "{command} is gone");
        assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_signal_that_was_ignored_before_stays_ignored() {
        let server = server();
        let hold = ["--", "sh", "-c", "echo ready; cat >/dev/null; grep SigIgn /proc/self/status"];
        let url = server.url();
        let inner = [&["run", "--url", &url, "lock:a"], &hold[..]].concat();
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_redlatch")]).args(inner);
        let mut holder = Holder::start(command);
        signal(&holder.process, "HUP");
        drop(holder.process.stdin.take());
        let mask = holder.line().trim_start_matches("SigIgn:").trim().to_owned();
        assert_eq!(u64::from_str_radix(&mask, 16).unwrap() & 1, 1, "{mask}");
        assert_eq!(holder.end().0, Some(0));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_terminal_is_the_commands_and_control_c_reaches_it_alone() {
        if is_ignored("INT") {
            // A shell cannot trap a signal that is ignored from the start.
            return;
        }
        let server = server();
        let pty = nix::pty::openpty(None, None).unwrap();
        let script = "trap 'echo got INT; exit 3' INT; read line; echo read $line; until [ $SECONDS -gt 60 ]; do :; done";
        // setsid makes the terminal the controlling one of a session, as a login does.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_redlatch"), "run", "--url", &server.url(), "lock:a"]);
        command.args(["--", "bash", "-c", script]);
        command.stdin(pty.slave.try_clone().unwrap()).stdout(pty.slave.try_clone().unwrap());
        let mut process = command.stderr(pty.slave).spawn().unwrap();
        drop(command);
        let mut terminal = std::fs::File::from(pty.master);
        terminal.write_all(b"words\n").unwrap();
        let mut lines = BufReader::new(terminal.try_clone().unwrap());
        wait_for(&mut lines, "read words");
        terminal.write_all(b"\x03").unwrap();
        wait_for(&mut lines, "got INT");
        assert_eq!(process.wait().unwrap().code(), Some(3));
        assert_eq!(server.ask("EXISTS lock:a"), ":0\r\n");
    }

    fn wait_for(lines: &mut impl BufRead, words: &str) {
        let mut said = String::new();
        while !said.contains(words) {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
    }
}

mod loss {
    use super::*;

    #[test]
    fn sigterm_comes_before_the_lease_ends_on_a_server_that_does_not_answer() {
        let server = server();
        // SIGTERM is due 2.3 s before the lease ends.
        let options = ["--lease", "6s", "--kill-grace", "6s", "lock:a"];
        let script = "trap 'echo TERM' TERM; echo ready; tail -f /dev/null & wait $!; cat >/dev/null";
        let mut holder =
            Holder::start(run(&server.url(), &[&options[..], &["--", "bash", "-c", script]].concat()));
        server.signal("STOP");
        assert_eq!(holder.line(), "TERM");
        server.signal("CONT");
        assert_eq!(server.ask("EXISTS lock:a"), ":1\r\n", "the server has not granted it to anybody else");
        let (code, said) = holder.end();
        assert_eq!(code, Some(76), "{said}");
        assert!(said.contains("about to be lost: no renewal has succeeded in time"), "{said}");
    }

    #[test]
    fn sigkill_follows_where_sigterm_is_ignored() {
        let server = server();
        let script = "trap '' TERM; echo ready; exec tail -f /dev/null";
        for options in [&["--kill-grace", "100ms"][..], &["--on-lost", "kill"]] {
            let options = [options, &["--lease", "500ms", "lock:a", "--", "sh", "-c", script]].concat();
            let holder = Holder::start(run(&server.url(), &options));
            server.signal("STOP");
            let (code, said) = holder.end();
            server.signal("CONT");
            assert_eq!(code, Some(76), "{said}");
            wait_until("the lock is free", || server.ask("EXISTS lock:a") == ":0\r\n");
        }
    }

    #[test]
    fn a_lock_that_is_deleted_ends_the_command() {
        let server = server();
        let script = "echo ready; exec tail -f /dev/null";
        let holder = Holder::start(run(&server.url(), &["lock:a", "--", "sh", "-c", script]));
        assert_eq!(server.ask("DEL lock:a"), ":1\r\n");
        let (code, said) = holder.end();
        assert_eq!(code, Some(76), "{said}");
        assert!(said.contains("the lock is lost"), "{said}");
    }

    #[test]
    fn with_warn_the_command_goes_on() {
        let server = server();
        let options = ["--on-lost", "warn", "lock:a"];
        let mut holder = Holder::start(run(&server.url(), &[&options[..], HOLD].concat()));
        assert_eq!(server.ask("DEL lock:a"), ":1\r\n");
        let mut said = String::new();
        BufReader::new(holder.process.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert!(said.contains("the lock is lost: its key was deleted or overwritten"), "{said}");
        assert_eq!(holder.end().0, Some(0));
    }

    #[test]
    fn a_renewed_lock_outlives_its_first_lease() {
        let server = server();
        let options = ["--lease", "900ms", "--kill-grace", "0", "lock:a"];
        let holder = Holder::start(run(&server.url(), &[&options[..], HOLD].concat()));
        // Another client waits for longer than the lease, and is refused.
        let (code, _, said) = ended(run(&server.url(), &["--wait", "2s", "lock:a", "--", "true"]));
        assert_eq!(code, Some(75), "{said}");
        assert_eq!(holder.end().0, Some(0));
    }
}

mod views {
    use super::*;

    fn asked(server: &Running, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = redlatch();
        command.args(arguments).args(["--url", &server.url()]);
        ended(command)
    }

    fn json(text: &str) -> serde_json::Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn who_names_the_holder_and_break_takes_the_lock_from_it() {
        let server = server();
        assert_eq!(asked(&server, &["who", "lock:a"]).0, Some(1));
        let options =
            ["--meta", "job=backup", "lock:a", "--", "sh", "-c", "echo ready; exec tail -f /dev/null"];
        let holder = Holder::start(run(&server.url(), &options));
        let (code, said, _) = asked(&server, &["who", "lock:a", "--json"]);
        let held = json(&said);
        assert_eq!((code, &held["key"], &held["kind"]), (Some(0), &"lock:a".into(), &"exclusive".into()));
        let first = &held["holders"][0];
        assert_eq!(
            (&first["meta"]["job"], &first["client"]["lib-name"]),
            (&"backup".into(), &"redlatch".into())
        );
        let token = first["token"].as_u64().unwrap();

        let refused = ended(run(&server.url(), &["--no-wait", "lock:a", "--", "true"])).2;
        assert!(refused.contains(&format!("redlatch break lock:a --token {token}")), "{refused}");
        let wrong = (token + 1).to_string();
        assert_eq!(asked(&server, &["break", "lock:a", "--token", &wrong]).0, Some(75));
        let broken = asked(&server, &["break", "lock:a", "--token", &token.to_string(), "--reason", "stuck"]);
        assert_eq!(broken.0, Some(0), "{broken:?}");
        let (code, said) = holder.end();
        assert!(code == Some(76) && said.contains("broken by an operator (default, 127.0.0.1:"), "{said}");
        assert!(said.contains("): stuck"), "{said}");
        let free = asked(&server, &["break", "lock:a", "--token", &token.to_string()]);
        assert_eq!((free.0, free.1.as_str()), (Some(1), "lock:a is free: nobody holds it\n"));
        let free = asked(&server, &["break", "lock:a", "--token", "7", "--json"]);
        assert_eq!((free.0, &json(&free.1)["free"]), (Some(1), &true.into()));
    }

    #[test]
    fn ls_lists_the_locks_of_a_pattern() {
        let server = server();
        server.ask("SET lock:a me NX PX 60000\r\nSET lock:b you NX PX 60000\r\nSET other me NX PX 60000");
        let (code, said, _) = asked(&server, &["ls", "lock:*", "--json"]);
        let found = json(&said);
        let keys: Vec<_> = found.as_array().unwrap().iter().map(|held| held["key"].clone()).collect();
        assert_eq!((code, keys), (Some(0), vec!["lock:a".into(), "lock:b".into()]));
        let lines = asked(&server, &["ls"]).1;
        assert!(lines.lines().count() == 4 && lines.contains("other") && lines.contains("you"), "{lines}");
    }

    #[test]
    fn ls_writes_a_table_with_a_row_for_each_holder() {
        let server = server();
        server.ask(
            "LOCK.ACQUIRE lock:a me LEASE 60000\r\nLOCK.ACQUIRE pool:long-name one LEASE 60000 PERMITS 2 OF 5\r\n\
             LOCK.ACQUIRE pool:long-name another-one LEASE 60000 PERMITS 1 OF 5",
        );
        let (code, said, _) = asked(&server, &["ls"]);
        let lines: Vec<&str> = said.lines().collect();
        let titles = ["LOCK", "KIND", "HOLDER", "TOKEN", "HELD", "LEASE", "WAITING", "CLIENT"];
        assert_eq!((code, lines[0].split_whitespace().collect::<Vec<_>>()), (Some(0), titles.to_vec()));
        assert_eq!(lines.len(), 4, "{said}");
        let columns = ["KIND", "HOLDER"].map(|title| lines[0].find(title).unwrap());
        for (line, [kind, owner]) in lines[1..].iter().zip([
            ["exclusive", "me"],
            ["permits 2/5", "one"],
            ["permits 1/5", "another-one"],
        ]) {
            assert!(line[columns[0]..].starts_with(kind) && line[columns[1]..].starts_with(owner), "{said}");
        }
        assert_eq!(asked(&server, &["ls", "none:*"]).1.lines().count(), 1, "the header alone");
    }

    #[test]
    fn what_clients_write_into_a_lock_moves_no_cursor_and_turns_no_text_around() {
        let server = server();
        let words: [&[u8]; 8] = [
            b"LOCK.ACQUIRE",
            b"lock:\xff\x1b[2J",
            "eve\u{202e}\u{9b}bob\n  token:  7".as_bytes(),
            b"LEASE",
            b"60000",
            b"META",
            b"note\n  token: ",
            b"x\x1b]0;t\x07\r\n  token:  8",
        ];
        let mut peer = Peer::to(server.address().parse().unwrap());
        assert!(peer.ask(&request(&words)).starts_with('*'));
        let key = OsString::from_vec(words[1].to_vec());
        for question in [&["who"][..], &["ls"], &["watch", "--interval", "10ms"], &["run", "--no-wait"]] {
            for format in [&[][..], &["--json"]] {
                let mut command = redlatch();
                command.args(question).args(["--url", &server.url()]).stdout(Stdio::piped());
                let said = match question[0] {
                    "run" if format.is_empty() => {
                        let ended = command.arg(&key).args(["--", "true"]).output().unwrap();
                        String::from_utf8(ended.stderr).unwrap()
                    }
                    "run" => continue,
                    "watch" => {
                        let mut watches = command.args(format).spawn().unwrap();
                        let mut line = String::new();
                        BufReader::new(watches.stdout.take().unwrap()).read_line(&mut line).unwrap();
                        watches.kill().unwrap();
                        watches.wait().unwrap();
                        line
                    }
                    name => {
                        command.args(format).args((name == "who").then_some(&key));
                        String::from_utf8(command.output().unwrap().stdout).unwrap()
                    }
                };
                let hidden = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
                assert!(!said.is_empty() && !said.contains(hidden), "{question:?}: {said:?}");
                let forged = said.lines().filter(|line| line.trim_start().starts_with("token:"));
                assert!(forged.count() <= 1, "{question:?}: {said}");
                if !format.is_empty() {
                    let value = json(&said);
                    let held = if question[0] == "ls" { &value[0] } else { &value };
                    assert_eq!(held["key_base64"], "bG9jazr/G1sySg==");
                    assert_eq!(held["holders"][0]["owner"], "eve\u{202e}\u{9b}bob\n  token:  7");
                }
            }
        }
    }

    #[test]
    fn wait_returns_when_the_lock_is_free() {
        let server = server();
        let holder = Holder::start(run(&server.url(), &[&["lock:a"], HOLD].concat()));
        assert_eq!(asked(&server, &["wait", "lock:a", "--timeout", "0"]).0, Some(75));
        let mut waits = redlatch();
        let waits = waits.args(["wait", "lock:a", "--url", &server.url()]).stdout(Stdio::piped());
        let waits = waits.spawn().unwrap();
        assert_eq!(holder.end().0, Some(0));
        let waited = waits.wait_with_output().unwrap();
        assert_eq!((waited.status.code(), &waited.stdout[..]), (Some(0), &b"lock:a is free\n"[..]));
    }

    #[test]
    fn a_key_that_is_no_lock_is_held_by_an_unknown_owner_in_every_answer() {
        let server = server();
        server.ask("SET plain hello\r\nRPUSH list x\r\nPEXPIRE list 60000");
        for (key, value_type) in [("plain", "string"), ("list", "list")] {
            let owner = format!("an unknown owner: not a lock, but a {value_type}");
            let (code, said, _) = asked(&server, &["who", key]);
            assert!(code == Some(0) && said.contains(&format!("holder: {owner}\n")), "{said}");
            assert_eq!(said.contains("value:  hello\n"), key == "plain", "{said}");
            let held = json(&asked(&server, &["who", key, "--json"]).1);
            assert_eq!((&held["kind"], &held["type"]), (&"none".into(), &value_type.into()));
            assert_eq!(held["holders"][0]["left"].is_null(), key == "plain", "{held}");
            let (code, said, _) = asked(&server, &["wait", key, "--timeout", "0"]);
            assert_eq!((code, said), (Some(75), format!("{key} is held by {owner}\n")));
            let waited = json(&asked(&server, &["wait", key, "--timeout", "0", "--json"]).1);
            assert_eq!((&waited["free"], &waited["type"]), (&false.into(), &value_type.into()));
        }
        let (code, _, said) = ended(run(&server.url(), &["--no-wait", "plain", "--", "true"]));
        let refused =
            "plain is held\n  key:    plain\n  holder: an unknown owner: not a lock, but a string\n";
        assert!(code == Some(75) && said.contains(refused), "{said}");
        let (code, _, said) = ended(run(&server.url(), &["--no-wait", "list", "--", "true"]));
        assert!(code == Some(79) && said.contains("WRONGTYPE"), "{said}");
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn a_value_of_a_plain_redis_that_is_no_string_is_held_by_an_unknown_owner() {
        let real = RealServer::start("redis");
        let mut link = UnixStream::connect(real.url().trim_start_matches("unix://")).unwrap();
        link.write_all(b"RPUSH list x\r\n").unwrap();
        link.read_exact(&mut [0; 4]).unwrap();
        let mut who = redlatch();
        who.args(["who", "list", "--url", &real.url()]);
        let (code, said, _) = ended(who);
        assert!(code == Some(0) && said.contains("an unknown owner: not a lock, but a list"), "{said}");
    }

    /// A `redlatch watch`, and what reads its next event.
    fn watching(server: &Running) -> (Child, impl FnMut() -> serde_json::Value) {
        let mut watches = redlatch();
        watches.args(["watch", "--json", "--interval", "10ms", "--url", &server.url()]);
        let mut watches = watches.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(watches.stdout.take().unwrap());
        let event = move || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            json(&line)
        };
        (watches, event)
    }

    #[test]
    fn watch_writes_a_line_for_every_change() {
        let server = server();
        let (mut watches, mut event) = watching(&server);
        let mut next = || {
            let event = event();
            [&event["event"], &event["key"]].map(|value| value.as_str().unwrap().to_owned())
        };
        server.ask("SET lock:a me NX PX 60000");
        assert_eq!(next(), ["held", "lock:a"]);
        server.ask("DEL lock:a");
        assert_eq!(next(), ["free", "lock:a"]);
        watches.kill().unwrap();
        watches.wait().unwrap();
    }

    #[test]
    fn watch_sees_every_lock_that_is_taken_and_released_between_two_looks() {
        let server = server();
        let (mut watches, mut event) = watching(&server);
        let mut next = || {
            let event = event();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            [&event["event"], &event["key"], &event["holders"][0]["owner"]].map(text)
        };
        server.ask("LOCK.ACQUIRE lock:held me");
        assert_eq!(next(), ["held", "lock:held", "me"]);
        // Both requests are one batch, between which no other client is served.
        let pairs: Vec<String> =
            (0..50).map(|n| format!("LOCK.ACQUIRE lock:{n} me\r\nLOCK.RELEASE lock:{n} me")).collect();
        server.ask(&pairs.join("\r\n"));
        let mut seen: Vec<[String; 3]> = (0..100).map(|_| next()).collect();
        for pair in seen.chunks(2) {
            assert_eq!([&*pair[0][0], &*pair[1][0], &*pair[0][2]], ["held", "free", "me"], "{pair:?}");
            assert_eq!(pair[0][1], pair[1][1]);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 100, "each is told once");
        server.ask("LOCK.RELEASE lock:held me");
        assert_eq!(next(), ["free", "lock:held", "me"]);
        watches.kill().unwrap();
        watches.wait().unwrap();
    }
}
