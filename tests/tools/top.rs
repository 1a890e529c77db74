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
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::process::{Child, Command};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::{Termios, tcgetattr};
    use redlatch::Server;
    use redlatch_cli::load::svg::Svg;

    use super::*;
    use crate::support::binary::{ask, signal};
    use crate::support::waits::{PATIENCE, wait_until};
    use crate::tools::statuses::refusing;

    const ROWS: u16 = 20;
    const COLUMNS: u16 = 110;

    /// `redlatch top` on a terminal of its own.
    struct Screen {
        process: Child,
        keys: std::fs::File,
        written: mpsc::Receiver<Vec<u8>>,
        shown: vt100::Parser,
        /// Kept open: its settings are compared in the end.
        slave: std::os::fd::OwnedFd,
        before: Termios,
    }

    impl Screen {
        fn start(url: &str) -> Self {
            let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
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
            let keys = std::fs::File::from(pty.master);
            let (tell, written) = mpsc::channel();
            let mut output = keys.try_clone().unwrap();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                // An error says that nobody has the terminal open any more.
                while let Ok(count) = output.read(&mut bytes) {
                    if tell.send(bytes[..count].to_vec()).is_err() {
                        break;
                    }
                }
            });
            let shown = vt100::Parser::new(ROWS.try_into().unwrap(), COLUMNS.try_into().unwrap(), 0);
            Self { process, keys, written, shown, slave: pty.slave, before }
        }

        /// Reads the terminal until it shows what it must.
        fn wait_until(&mut self, what: &str, is_shown: impl Fn(&vt100::Screen) -> bool) {
            let end = Instant::now() + PATIENCE;
            while !is_shown(self.shown.screen()) {
                let left = end.saturating_duration_since(Instant::now());
                match self.written.recv_timeout(left) {
                    Ok(bytes) => self.shown.process(&bytes),
                    Err(error) => panic!("no '{what}': {error}:\n{}", self.shown.screen().contents()),
                }
            }
        }

        /// Reads the terminal until it shows one of these texts.
        fn wait_for(&mut self, texts: &[&str]) {
            self.wait_until(&texts.join("', '"), |screen| {
                let shown = screen.contents();
                texts.iter().any(|text| shown.contains(text))
            });
        }

        fn press(&mut self, keys: &str) {
            self.keys.write_all(keys.as_bytes()).unwrap();
        }

        /// Waits for the end; the terminal must be as it was. Returns the exit code, and what was shown last.
        fn end(mut self) -> (Option<i32>, String) {
            let mut last = String::new();
            while self.shown.screen().alternate_screen() {
                last = self.shown.screen().contents();
                let bytes = self.written.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no end: {last}"));
                self.shown.process(&bytes);
            }
            let code = self.process.wait().unwrap().code();
            assert_eq!(tcgetattr(&self.slave).unwrap(), self.before, "the settings of the terminal");
            (code, last)
        }
    }

    impl Drop for Screen {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// What stands before a server, and hands requests on until it is told to keep them.
    struct Gate {
        address: SocketAddr,
        is_shut: Arc<AtomicBool>,
        /// A message for each request that was kept.
        kept: mpsc::Receiver<()>,
    }

    impl Gate {
        fn before(server: SocketAddr) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (address, is_shut) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
            let (tell, kept) = mpsc::channel();
            let shut = is_shut.clone();
            std::thread::spawn(move || {
                let (mut client, _) = listener.accept().unwrap();
                let mut server = TcpStream::connect(server).unwrap();
                let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut answers, &mut to_client));
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    let handed_on = match shut.load(Ordering::SeqCst) {
                        true => tell.send(()).is_ok(),
                        false => server.write_all(&bytes[..count]).is_ok(),
                    };
                    if !handed_on {
                        break;
                    }
                }
            });
            Self { address, is_shut, kept }
        }

        /// Hands nothing on from now. Returns when a request is kept.
        fn shut(&self) {
            self.is_shut.store(true, Ordering::SeqCst);
            self.kept.recv_timeout(PATIENCE).unwrap();
        }
    }

    #[test]
    fn it_shows_locks_and_losses_filters_and_leaves_the_terminal_as_it_was() {
        let server = Server::builder().start_blocking().unwrap();
        let ask = |request: &str| ask(TcpStream::connect(server.addr()).unwrap(), request);
        ask("LOCK.ACQUIRE lock:stock worker-1 LEASE 60000");
        let mut screen = Screen::start(&server.url());
        screen.wait_until("the alternate screen", |screen| screen.alternate_screen());
        screen.wait_for(&["worker-1"]);
        assert_eq!(ask("LOCK.BREAK lock:stock TOKEN 1"), ":1\r\n");
        screen.wait_for(&["lock:stock  1 broken"]);
        screen.press("/n");
        screen.wait_for(&["filter: n_"]);
        screen.press("\x1b");
        screen.wait_for(&["q ends"]);
        screen.press("q");
        assert_eq!(screen.end().0, Some(0));
    }

    #[test]
    fn a_signal_ends_it_and_a_server_that_goes_is_named() {
        let server = Server::builder().start_blocking().unwrap();
        let mut screen = Screen::start(&server.url());
        screen.wait_for(&["commands/s"]);
        drop(server);
        screen.wait_for(&["closed", "refused", "reset"]);
        signal(&screen.process, "TERM");
        assert_eq!(screen.end().0, Some(0));
    }

    #[test]
    fn keys_count_while_the_server_does_not_answer() {
        let server = Server::builder().start_blocking().unwrap();
        let gate = Gate::before(server.addr());
        let mut screen = Screen::start(&format!("redis://{}", gate.address));
        screen.wait_for(&["commands/s"]);
        gate.shut();
        screen.press("p");
        screen.wait_for(&["PAUSED"]);
        screen.press("q");
        let (code, last) = screen.end();
        assert_eq!(code, Some(0));
        assert!(!last.contains("no answer"), "it has waited for the answer: {last}");
    }

    #[test]
    fn a_server_that_cannot_be_shown_has_its_exit_status() {
        let guarded = Server::builder().set("requirepass", "secret").start_blocking().unwrap();
        let wrong = format!("redis://:wrong@{}", guarded.addr());
        for (url, status) in [("unix:///no/such/socket", 69), (&*wrong, 77), (&*refusing(), 79)] {
            assert_eq!(Screen::start(url).end().0, Some(status), "{url}");
        }
    }

    #[test]
    fn without_a_terminal_it_refuses() {
        let output = redlatch().args(["top", "--interval", "1s"]).output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
        let output = redlatch().args(["top", "--interval", "1ms"]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stderr).contains("at least 100ms"));
    }

    /// Sends a request; what is answered is not read.
    fn tell(mut client: &TcpStream, request: &str) {
        client.write_all(format!("{request}\r\n").as_bytes()).unwrap();
    }

    #[test]
    fn the_picture_in_the_documents_shows_what_it_shows() {
        let server = Server::builder().start_blocking().unwrap();
        let [billing, shipping, first, second] =
            ["redis-py", "redisson", "redsync", "redsync"].map(|library| {
                let client = TcpStream::connect(server.addr()).unwrap();
                tell(&client, &format!("CLIENT SETINFO LIB-NAME {library}"));
                client
            });
        for key in ["lock:invoice:1841", "lock:invoice:1842", "lock:invoice:1850", "report"] {
            tell(&billing, &format!("SET {key} worker-7 NX PX 600000"));
        }
        tell(&shipping, "LOCK.ACQUIRE lock:stock host-3:1 LEASE 600000");
        tell(&shipping, "LOCK.ACQUIRE lock:labels host-3:1 LEASE 600000");
        let ask = |request: &str| ask(TcpStream::connect(server.addr()).unwrap(), request);
        wait_until("six locks are held", || ask("LOCK.LIST COUNT 1000").matches("\r\nkey\r\n").count() >= 6);
        tell(&first, "LOCK.ACQUIRE lock:stock host-8:4 WAIT 600000");
        tell(&second, "LOCK.ACQUIRE lock:stock host-9:2 WAIT 600000");
        let mut screen = Screen::start(&server.url());
        screen.wait_for(&["lock:stock"]);
        let token = ask("LOCK.TOKEN lock:labels host-3:1");
        let token = token.trim_start_matches(':').trim_end();
        assert_eq!(ask(&format!("LOCK.BREAK lock:labels TOKEN {token}")), ":1\r\n");
        screen.wait_until("a lost lock, and how long the first waits", |screen| {
            let shown = screen.contents();
            let waits = shown.lines().any(|line| line.starts_with("lock:stock") && line.ends_with(" s"));
            waits && shown.contains(&format!("lock:labels  {token} broken")) && shown.contains("locks: 5,")
        });
        compare(&picture(screen.shown.screen()));
        screen.press("q");
        assert_eq!(screen.end().0, Some(0));
    }

    /// The picture of a screen.
    fn picture(screen: &vt100::Screen) -> String {
        const CELL: [f64; 2] = [7.8, 18.0];
        const STYLE: &str = "text{font:13px monospace;fill:#24292f}.b{font-weight:bold}.u{text-decoration:underline}\
            .r{fill:#57606a}text.i{fill:#fff}.p{fill:#fff}\
            @media(prefers-color-scheme:dark){text{fill:#d1d7e0}.p{fill:#0d1117}.r{fill:#9198a1}text.i{fill:#0d1117}}";
        let (width, height) = (f64::from(COLUMNS + 2) * CELL[0], f64::from(ROWS + 1) * CELL[1]);
        let mut svg = Svg::new(width, height, "redlatch top: locks, their holders and who waits", STYLE);
        svg.rectangle("p", [0.0, 0.0], [width, height]);
        for row in 0..ROWS {
            let cells = (0..COLUMNS).filter_map(|column| Some((column, screen.cell(row, column)?)));
            let cells: Vec<_> = cells
                .map(|(column, cell)| {
                    let text = if cell.has_contents() { cell.contents() } else { " " };
                    let class = match (cell.inverse(), cell.underline(), cell.bold()) {
                        (true, ..) => "i",
                        (_, true, _) => "u",
                        (_, _, true) => "b",
                        _ => "",
                    };
                    (column, text, class)
                })
                .collect();
            let y = f64::from(row + 1) * CELL[1];
            for run in cells.chunk_by(|one, next| one.2 == next.2) {
                let (column, _, class) = run[0];
                if class == "i" {
                    let place = [f64::from(column + 1) * CELL[0], y - 13.0];
                    svg.rectangle("r", place, [run.len() as f64 * CELL[0], CELL[1]]);
                }
                // Words far from each other are texts of their own: then their columns are straight in any font.
                let text: String = run.iter().map(|(_, text, _)| *text).collect();
                for (start, words) in columns(&text) {
                    svg.text(class, [f64::from(column + 1 + start) * CELL[0], y], "start", words);
                }
            }
        }
        svg.finish() + "\n"
    }

    /// The parts of a line between two spaces or more, and the column of each.
    fn columns(line: &str) -> Vec<(u16, &str)> {
        let mut column = 0;
        let parts = line.split("  ").map(|part| {
            let (start, words) = (column, part.trim_start());
            column += part.chars().count() + 2;
            ((start + part.chars().count() - words.chars().count()) as u16, words.trim_end())
        });
        parts.filter(|(_, words)| !words.is_empty()).collect()
    }

    /// The text with one 0 in place of each number: whole seconds have no decimal.
    fn without_numbers(text: &str) -> String {
        let parts = text.split(|letter: char| letter.is_ascii_digit() || letter == '.');
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
    }

    /// Compares the words of a picture, without numbers, with those of the picture in the documents; or writes that anew.
    fn compare(picture: &str) {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/top.svg");
        if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
            std::fs::write(path, picture).unwrap();
        }
        let words = |svg: &str| -> Vec<String> {
            let lines = svg.lines().filter(|line| line.starts_with("<text"));
            let texts = lines.filter_map(|line| line.split_once('>')?.1.strip_suffix("</text>"));
            texts.map(without_numbers).collect()
        };
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(
            words(picture),
            words(&kept),
            "docs/top.svg shows something else: UPDATE_README=1 cargo test --all-features --test suite top"
        );
    }
}
