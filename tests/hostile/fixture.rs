//! The fixture of every test here: a server, somebody who behaves, and peers who may not.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use redlatch::Server;

/// Longer than anything here takes: who waits for it has found a defect.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const MIB: usize = 1024 * 1024;

/// A connection that fails instead of waiting for ever.
pub(crate) struct Peer(pub(crate) BufReader<TcpStream>);

impl Peer {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a socket takes the option");
        Self(BufReader::new(stream))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.stream().write_all(bytes).expect("the server takes what it is sent");
    }

    /// The next line without its CRLF.
    pub(crate) fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("a line");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    pub(crate) fn ask(&mut self, request: &[u8]) -> String {
        self.send(request);
        self.line()
    }

    /// The next bulk string's length; its bytes are dropped.
    pub(crate) fn bulk(&mut self) -> usize {
        let head = self.line();
        let length: usize = head.strip_prefix('$').and_then(|n| n.parse().ok()).expect("a bulk string");
        let copied = std::io::copy(&mut self.0.by_ref().take(length as u64 + 2), &mut std::io::sink());
        assert_eq!(copied.expect("its bytes"), length as u64 + 2);
        length
    }

    /// All that is said until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => {}
            // What the server left unread when it closed turns the close into a reset.
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
        }
        rest
    }
}

/// A server, and somebody who behaves.
pub(crate) struct Fixture {
    pub(crate) server: Server,
    pub(crate) bystander: Peer,
}

impl Fixture {
    pub(crate) fn set() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(settings: &[(&str, &str)]) -> Self {
        let builder =
            settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(*name, *value));
        let server = builder.start_blocking().expect("a server starts");
        let bystander = Peer::to(server.addr());
        Self { server, bystander }
    }

    pub(crate) fn peer(&self) -> Peer {
        Peer::to(self.server.addr())
    }

    /// Somebody else can still take a lock and give it back.
    pub(crate) fn goes_on(&mut self) {
        assert_eq!(self.bystander.ask(b"SET lock me NX PX 30000\r\n"), "+OK");
        assert_eq!(self.bystander.ask(b"DEL lock\r\n"), ":1");
        assert_eq!(self.peer().ask(b"PING\r\n"), "+PONG", "and arrivals are welcome");
        self.server.assert_laws();
    }

    /// Asks until the number in a field of INFO is as wanted; the peer's own patience ends it.
    pub(crate) fn until(&mut self, field: &str, wanted: impl Fn(u64) -> bool) {
        let started = std::time::Instant::now();
        while !wanted(self.info(field)) {
            assert!(started.elapsed() < PATIENCE, "{field} stays {}", self.info(field));
            std::thread::yield_now();
        }
    }

    pub(crate) fn info(&mut self, field: &str) -> u64 {
        self.bystander.send(b"INFO\r\n");
        let head = self.bystander.line();
        let length: usize = head[1..].parse().expect("a bulk string");
        let mut text = vec![0; length + 2];
        self.bystander.0.read_exact(&mut text).expect("its bytes");
        let text = String::from_utf8(text).expect("INFO is text");
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {text}"))
    }
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident set");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Runs `act` in a process of its own, where no other test's memory lies about; fails when, whenever `act` calls its
/// argument, memory has grown by more than `most_mib`.
pub(crate) fn costs_at_most(most_mib: usize, act: impl FnOnce(&mut dyn FnMut())) {
    const ALONE: &str = "REDLATCH_TEST_ALONE";
    let name = std::thread::current().name().expect("a test's thread has its name").to_owned();
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        let (before, mut most) = (resident(), 0);
        act(&mut || most = most.max(resident().saturating_sub(before)));
        assert!(most <= most_mib * MIB, "{} MiB, where {most_mib} are enough", most / MIB);
        return;
    }
    let program = std::env::current_exe().expect("a test knows its program");
    let output = std::process::Command::new(program)
        .args(["--exact", &name, "--nocapture", "--test-threads", "1"])
        .env(ALONE, &name)
        .output()
        .expect("a test's program starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
