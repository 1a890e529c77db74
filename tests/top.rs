//! `redlatch top`: the terminal view of a server, under a pseudo-terminal; without its feature, what it says.
//!
//! Belongs here  what a terminal sees, and that it is left as it was. The drawing itself is tested beside its code.
//! Time          no sleep: a test reads the terminal until it shows what it must.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use crate::support::binary::redlatch;

#[cfg(not(feature = "top"))]
#[test]
fn a_build_without_it_names_the_feature() {
    let output = redlatch().arg("top").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(64) && said.contains("--features top"), "{said}");
}

#[cfg(feature = "top")]
mod terminals {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::process::{Child, Command};

    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::{Termios, tcgetattr};
    use redlatch::Server;

    use super::*;
    use crate::support::binary::ask;

    /// `redlatch top` on a terminal of its own.
    struct Screen {
        process: Child,
        terminal: std::fs::File,
        /// Kept open: its settings are compared in the end.
        slave: std::os::fd::OwnedFd,
        before: Termios,
        seen: String,
    }

    impl Screen {
        fn start(url: &str) -> Self {
            let size = Winsize { ws_row: 30, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
            let pty = openpty(Some(&size), None).unwrap();
            let before = tcgetattr(&pty.slave).unwrap();
            let mut command = Command::new("setsid");
            command.args([
                "--ctty",
                env!("CARGO_BIN_EXE_redlatch"),
                "top",
                "--interval",
                "100ms",
                "--url",
                url,
            ]);
            command.env("TERM", "xterm");
            command.stdin(pty.slave.try_clone().unwrap()).stdout(pty.slave.try_clone().unwrap());
            let process = command.stderr(pty.slave.try_clone().unwrap()).spawn().unwrap();
            let terminal = std::fs::File::from(pty.master);
            Self { process, terminal, slave: pty.slave, before, seen: String::new() }
        }

        /// Reads the terminal until it has shown one of these texts.
        fn wait_for(&mut self, texts: &[&str]) {
            let mut bytes = [0; 4096];
            while !texts.iter().any(|text| self.seen.contains(text)) {
                let count = self.terminal.read(&mut bytes).unwrap();
                self.seen += &String::from_utf8_lossy(&bytes[..count]);
            }
            self.seen.clear();
        }

        fn press(&mut self, keys: &str) {
            self.terminal.write_all(keys.as_bytes()).unwrap();
        }

        /// Waits for the end; the terminal must be as it was.
        fn end(mut self) -> Option<i32> {
            // The end of the alternate screen.
            self.wait_for(&["\x1b[?1049l"]);
            let code = self.process.wait().unwrap().code();
            assert_eq!(tcgetattr(&self.slave).unwrap(), self.before, "the settings of the terminal");
            code
        }
    }

    impl Drop for Screen {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    #[test]
    fn it_shows_locks_and_losses_filters_and_leaves_the_terminal_as_it_was() {
        let server = Server::builder().start_blocking().unwrap();
        let ask = |request: &str| ask(TcpStream::connect(server.addr()).unwrap(), request);
        ask("LOCK.ACQUIRE lock:stock worker-1 LEASE 60000");
        let mut screen = Screen::start(&server.url());
        screen.wait_for(&["\x1b[?1049h"]);
        screen.wait_for(&["worker-1"]);
        assert_eq!(ask("LOCK.BREAK lock:stock TOKEN 1"), ":1\r\n");
        // A space that was there before is not written again.
        screen.wait_for(&["broken"]);
        screen.press("/n");
        screen.wait_for(&["n_"]);
        screen.press("\x1b");
        screen.wait_for(&["q ends"]);
        screen.press("q");
        assert_eq!(screen.end(), Some(0));
    }

    #[test]
    fn a_signal_ends_it_and_a_server_that_goes_is_named() {
        let server = Server::builder().start_blocking().unwrap();
        let mut screen = Screen::start(&server.url());
        screen.wait_for(&["commands/s"]);
        drop(server);
        // Either is written where nothing was before.
        screen.wait_for(&["closed", "refused", "reset"]);
        let id = screen.process.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        assert_eq!(screen.end(), Some(0));
    }

    #[test]
    fn without_a_terminal_it_refuses() {
        let output = redlatch().args(["top", "--interval", "1s"]).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let output = redlatch().args(["top", "--interval", "1ms"]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("at least 100ms"));
    }
}
