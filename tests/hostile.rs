//! Clients that mean harm, over real sockets: what becomes of them, what it costs, and that nobody else notices.
//!
//! Belongs here  broken and endless frames, floods, slow readers, half-closed sockets; bytes alone stand in
//!               `fuzz/decoder.rs`. The fates in [`FATES`] are those of Redis 7.0, and are held against the server that
//!               `REDLATCH_REDIS_SERVER` names.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use redlatch::Server;

/// Longer than anything here takes: who waits for it has found a defect.
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1024 * 1024;

/// A connection that fails instead of waiting for ever.
struct Peer(BufReader<TcpStream>);

impl Peer {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_nodelay(true).expect("a socket takes the option");
        Self(BufReader::new(stream))
    }

    fn stream(&self) -> &TcpStream {
        self.0.get_ref()
    }

    fn send(&self, bytes: &[u8]) {
        self.stream().write_all(bytes).expect("the server takes what it is sent");
    }

    /// The next line without its CRLF.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("a line");
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    fn ask(&mut self, request: &[u8]) -> String {
        self.send(request);
        self.line()
    }

    /// The next bulk string's length; its bytes are dropped.
    fn bulk(&mut self) -> usize {
        let head = self.line();
        let length: usize = head.strip_prefix('$').and_then(|n| n.parse().ok()).expect("a bulk string");
        let copied = std::io::copy(&mut self.0.by_ref().take(length as u64 + 2), &mut std::io::sink());
        assert_eq!(copied.expect("its bytes"), length as u64 + 2);
        length
    }

    /// All that is said until the server closes.
    fn rest(&mut self) -> Vec<u8> {
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
struct Scene {
    server: Server,
    bystander: Peer,
}

impl Scene {
    fn set() -> Self {
        Self::with(&[])
    }

    fn with(settings: &[(&str, &str)]) -> Self {
        let builder =
            settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(*name, *value));
        let server = builder.start_blocking().expect("a server starts");
        let bystander = Peer::to(server.addr());
        Self { server, bystander }
    }

    fn peer(&self) -> Peer {
        Peer::to(self.server.addr())
    }

    /// Somebody else can still take a lock and give it back.
    fn goes_on(&mut self) {
        assert_eq!(self.bystander.ask(b"SET lock me NX PX 30000\r\n"), "+OK");
        assert_eq!(self.bystander.ask(b"DEL lock\r\n"), ":1");
        assert_eq!(self.peer().ask(b"PING\r\n"), "+PONG", "and newcomers are welcome");
        self.server.assert_laws();
    }

    /// Asks until the number in a field of INFO is as wanted; the peer's own patience ends it.
    fn until(&mut self, field: &str, wanted: impl Fn(u64) -> bool) {
        let started = std::time::Instant::now();
        while !wanted(self.info(field)) {
            assert!(started.elapsed() < PATIENCE, "{field} stays {}", self.info(field));
            std::thread::yield_now();
        }
    }

    fn info(&mut self, field: &str) -> u64 {
        self.bystander.send(b"INFO clients\r\n");
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
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident set");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// Runs `act` in a process of its own, where no other test's memory lies about; fails when, whenever `act` calls its
/// argument, memory has grown by more than `most_mib`.
fn costs_at_most(most_mib: usize, act: impl FnOnce(&mut dyn FnMut())) {
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

/// What becomes of a connection that sent something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It is closed.
    Closed,
    /// It goes on: a PING behind is answered.
    Open,
}
use Fate::{Closed, Open};

/// Requests, the answer in all, and the fate: as Redis 7.0.15 answers.
const FATES: &[(&[u8], &[u8], Fate)] = &[
    (b"*1\r\n:1\r\n", b"-ERR Protocol error: expected '$', got ':'\r\n", Closed),
    (b"*1\r\n*1\r\n*1\r\n*1\r\n", b"-ERR Protocol error: expected '$', got '*'\r\n", Closed),
    (b"*1\r\n\xff1\r\n", b"-ERR Protocol error: expected '$', got '\xff'\r\n", Closed),
    (b"*1\r\n\r\n$4\r\n", b"-ERR Protocol error: expected '$', got ' '\r\n", Closed),
    (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*01\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*+1\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*-0\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*2147483648\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*99999999999999999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n", Closed),
    (b"*1\r\n$-1\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$-0\r\n\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$x\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"*1\r\n$536870913\r\n", b"-ERR Protocol error: invalid bulk length\r\n", Closed),
    (b"PING\r\n*1\r\n:1\r\n", b"+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n", Closed),
    (b"SET \"a\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", Closed),
    (b"SET \"a\"b\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", Closed),
    (b"ECHO 'a\r\n", b"-ERR Protocol error: unbalanced quotes in request\r\n", Closed),
    (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", b"", Closed),
    (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"", Closed),
    (b"PING\r\nPOST /\r\nPING\r\n", b"", Closed),
    (b"*2\r\n$5\r\nHOST:\r\n$1\r\na\r\n", b"", Closed),
    (b"QUIT\r\nPING\r\n", b"+OK\r\n", Closed),
    (b"*0\r\n*-1\r\n*-5\r\n\r\n\n", b"", Open),
    (b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", b"+PONG\r\n+PONG\r\n", Open),
    (b"*1\rx$4\rxPING\r\n", b"+PONG\r\n", Open),
    (b"\tPING\t\nPING\n", b"+PONG\r\n+PONG\r\n", Open),
    (b"\x0bPING\x0b\r\n", b"-ERR unknown command 'PING\x0b', with args beginning with: \r\n", Open),
    (b"ECHO \xff\xfe\r\n", b"$2\r\n\xff\xfe\r\n", Open),
    (b"ECHO \"\\x41\\xzz\"\r\n", b"$4\r\nAxzz\r\n", Open),
    (b"*1\r\n$0\r\n\r\n", b"-ERR unknown command '', with args beginning with: \r\n", Open),
    (b"*1\r\n$3\r\na\0b\r\n", b"-ERR unknown command 'a', with args beginning with: \r\n", Open),
    (
        b"*2\r\n$6\r\nfoo\r\nb\r\n$5\r\na\r\nb\xff\r\n",
        b"-ERR unknown command 'foo  b', with args beginning with: 'a  b\xff' \r\n",
        Open,
    ),
];

/// Lines that never end: their beginning, and the answer once they pass 64 KiB.
const ENDLESS: &[(&[u8], &[u8])] = &[
    (b"", b"-ERR Protocol error: too big inline request\r\n"),
    (b"*", b"-ERR Protocol error: too big mbulk count string\r\n"),
    (b"*1\r\n$", b"-ERR Protocol error: too big bulk count string\r\n"),
];

fn meets_its_fate(address: SocketAddr, bytes: &[u8], answer: &[u8], fate: Fate) {
    let mut peer = Peer::to(address);
    let said = bytes[..bytes.len().min(40)].escape_ascii();
    peer.send(bytes);
    let mut heard = vec![];
    if fate == Open {
        peer.send(b"ECHO goes-on\r\n");
        let end = b"$7\r\ngoes-on\r\n";
        while !heard.ends_with(end) {
            let mut byte = [0];
            peer.0.read_exact(&mut byte).unwrap_or_else(|error| panic!("{said}: {error}"));
            heard.push(byte[0]);
        }
        heard.truncate(heard.len() - end.len());
    } else {
        heard = peer.rest();
    }
    assert_eq!(heard.escape_ascii().to_string(), answer.escape_ascii().to_string(), "{said}");
}

fn all_fates(address: SocketAddr) {
    for (bytes, answer, fate) in FATES {
        meets_its_fate(address, bytes, answer, *fate);
    }
    for (start, answer) in ENDLESS {
        // Sent whole and no further, so that nothing is left unread and the answer is not lost to a reset.
        let line = [start, &vec![b'1'; 64 * 1024 + 1][..]].concat();
        meets_its_fate(address, &line, answer, Closed);
    }
}

mod frames {
    use super::*;

    #[test]
    fn broken_requests_meet_the_fate_they_meet_in_redis() {
        let mut scene = Scene::set();
        all_fates(scene.server.addr());
        scene.goes_on();
    }

    #[test]
    fn redis_itself_deals_out_these_fates() {
        let Some(program) = std::env::var_os("REDLATCH_REDIS_SERVER").filter(|path| !path.is_empty()) else {
            return;
        };
        // Redis cannot choose a free port by itself; whoever takes this one in between fails the test.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut redis = std::process::Command::new(program)
            .args(["--bind", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no", "--logfile", ""])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("the real server starts");
        let mut log = BufReader::new(redis.stdout.take().expect("its output is piped"));
        let mut line = String::new();
        while !line.contains("eady to accept connections") {
            line.clear();
            assert!(log.read_line(&mut line).expect("a log is text") > 0, "the real server ended");
        }
        let outcome = std::panic::catch_unwind(|| all_fates(address));
        redis.kill().expect("it still runs");
        redis.wait().expect("it has ended");
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }

    #[test]
    fn a_request_may_arrive_byte_by_byte() {
        let mut scene = Scene::set();
        let mut peer = scene.peer();
        for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\nGET k\r\n" {
            peer.send(&[*byte]);
        }
        assert_eq!((peer.line(), peer.bulk()), ("+OK".to_owned(), 4));
        scene.goes_on();
    }

    #[test]
    fn a_half_sent_request_has_no_effect_and_leaves_with_its_sender() {
        let mut scene = Scene::set();
        let peer = scene.peer();
        peer.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nv");
        scene.until("connected_clients", |clients| clients == 2);
        peer.stream().shutdown(Shutdown::Write).unwrap();
        scene.until("connected_clients", |clients| clients == 1);
        assert!(scene.server.keys().is_empty());
        scene.goes_on();
    }

    #[test]
    fn nesting_and_endless_scripts_are_refused_without_recursion() {
        let mut scene = Scene::set();
        let mut peer = scene.peer();
        for unit in
            ["(", "{", "[", "function() ", "if 1 then ", "not ", "- ", "a.", "--[[", "\"", "redis.call("]
        {
            let script = unit.repeat(100_000);
            peer.send(format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).as_bytes());
            let answer = peer.line();
            assert!(answer.starts_with("-ERR"), "{unit}: {answer}");
        }
        peer.send(&b"*1\r\n".repeat(100_000));
        assert_eq!(peer.line(), "-ERR Protocol error: expected '$', got '*'");
        scene.goes_on();
    }

    #[test]
    fn noise_of_many_kinds_leaves_the_server_standing() {
        use proptest::strategy::{Strategy, ValueTree};
        use proptest::test_runner::{Config, TestRunner};
        let mut scene = Scene::set();
        let mut runner = TestRunner::new_with_rng(
            Config::default(),
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
        );
        let noise = proptest::collection::vec(proptest::arbitrary::any::<u8>(), 1..2000);
        for start in [&b""[..], b"*3\r\n", b"*2\r\n$4\r\n", b"EVAL \"", b"*1\r\n$1000\r\n", b"SET k "] {
            for _ in 0..20 {
                let bytes = noise.new_tree(&mut runner).expect("some noise").current();
                let mut peer = scene.peer();
                peer.send(start);
                // It may have been closed by then.
                let _ = peer.stream().write_all(&bytes);
                let _ = peer.stream().shutdown(Shutdown::Write);
                peer.rest();
            }
        }
        scene.goes_on();
    }
}

mod floods {
    use super::*;

    #[test]
    fn what_two_hundred_connections_claim_costs_nothing() {
        costs_at_most(32, |look| {
            let mut scene = Scene::set();
            let peers: Vec<Peer> = (0..200).map(|_| scene.peer()).collect();
            for (index, peer) in peers.iter().enumerate() {
                let count = if index % 2 == 0 { "*2147483647" } else { "*3" };
                peer.send(format!("{count}\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nabc").as_bytes());
            }
            scene.until("connected_clients", |clients| clients == 201);
            scene.goes_on();
            look();
        });
    }

    #[test]
    fn what_a_large_request_needed_is_not_kept_for_the_next_byte() {
        costs_at_most(128, |look| {
            let mut scene = Scene::set();
            let value = vec![b'v'; 16 * MIB];
            let mut peers = Vec::new();
            for _ in 0..16 {
                let mut peer = scene.peer();
                peer.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", value.len()).as_bytes());
                peer.send(&value);
                peer.send(b"\r\n*");
                assert_eq!(peer.bulk(), value.len());
                peers.push(peer);
            }
            scene.goes_on();
            look();
        });
    }

    #[test]
    fn a_pipeline_of_a_hundred_thousand_is_answered_in_order() {
        let mut scene = Scene::set();
        let mut peer = scene.peer();
        let sender = peer.stream().try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            (&sender).write_all(&b"INCR n\r\n".repeat(100_000)).expect("the server keeps reading");
        });
        for expected in 1..=100_000 {
            assert_eq!(peer.line(), format!(":{expected}"));
        }
        writer.join().unwrap();
        scene.goes_on();
    }

    #[test]
    fn a_hundred_thousand_channels_are_joined_and_left_at_once() {
        let mut scene = Scene::set();
        let mut peer = scene.peer();
        let channels: String = (100_000..200_000).map(|n| format!("$6\r\n{n}\r\n")).collect();
        let sender = peer.stream().try_clone().unwrap();
        let writer = std::thread::spawn(move || {
            let requests = format!("*100001\r\n$9\r\nSUBSCRIBE\r\n{channels}UNSUBSCRIBE\r\nPING\r\n");
            (&sender).write_all(requests.as_bytes()).expect("the server keeps reading");
        });
        for left in (1..=100_000).chain((0..100_000).rev()) {
            let lines: Vec<String> = (0..6).map(|_| peer.line()).collect();
            assert_eq!(lines[5], format!(":{left}"));
        }
        assert_eq!(peer.line(), "+PONG");
        writer.join().unwrap();
        scene.goes_on();
    }

    #[test]
    fn before_authentication_little_may_be_said_and_little_left_unread() {
        let mut scene = Scene::with(&[("requirepass", "secret")]);
        for (bytes, answer) in [
            (&b"*11\r\n"[..], "-ERR Protocol error: unauthenticated multibulk length\r\n"),
            (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
        ] {
            let mut peer = scene.peer();
            peer.send(bytes);
            assert_eq!(String::from_utf8_lossy(&peer.rest()), answer);
        }
        let peer = scene.peer();
        let flood = b"GET k\r\n".repeat(10_000);
        // Nobody reads the answers, so that the server hangs up.
        while peer.stream().write_all(&flood).is_ok() {}
        assert_eq!(scene.bystander.ask(b"AUTH secret\r\n"), "+OK");
        assert_eq!(scene.bystander.ask(b"SET lock me NX\r\n"), "+OK");
    }
}

mod slow_readers {
    use super::*;

    #[test]
    fn requests_of_a_client_that_does_not_read_wait() {
        costs_at_most(128, |look| {
            // Less than the output that is gathered before it is sent, so that the server's input runs empty.
            const VALUE: usize = MIB / 16;
            const REQUESTS: usize = 3200;
            let mut scene = Scene::set();
            scene.server.keys().set("big", vec![b'v'; VALUE], None);
            let mut peer = scene.peer();
            for _ in 0..REQUESTS {
                peer.send(b"GET big\r\n");
                assert_eq!(scene.bystander.ask(b"PING\r\n"), "+PONG");
                look();
            }
            for _ in 0..REQUESTS {
                assert_eq!(peer.bulk(), VALUE);
            }
            assert_eq!(peer.ask(b"PING\r\n"), "+PONG");
        });
    }

    #[test]
    fn what_has_been_read_is_let_go_although_more_is_always_to_come() {
        costs_at_most(128, |look| {
            const VALUE: usize = MIB;
            let mut scene = Scene::set();
            scene.server.keys().set("big", vec![b'v'; VALUE], None);
            let mut peer = scene.peer();
            // Sixteen ahead all the time: the output never runs empty.
            for _ in 0..16 {
                peer.send(b"GET big\r\n");
            }
            for _ in 0..300 {
                peer.send(b"GET big\r\n");
                assert_eq!(peer.bulk(), VALUE);
                look();
            }
            scene.goes_on();
        });
    }

    #[test]
    fn a_subscriber_that_does_not_read_is_dropped() {
        costs_at_most(160, |look| {
            let mut scene = Scene::set();
            let mut peer = scene.peer();
            peer.send(b"SUBSCRIBE news\r\n");
            (0..6).for_each(|_| drop(peer.line()));
            let message = vec![b'm'; MIB];
            for sent in 0.. {
                scene.bystander.send(format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${MIB}\r\n").as_bytes());
                scene.bystander.send(&message);
                if scene.bystander.ask(b"\r\n") == ":0" {
                    break;
                }
                assert!(sent < 128, "still subscribed after {sent} MiB");
                look();
            }
            scene.goes_on();
        });
    }
}

mod idlers {
    use redlatch::clock::WallTime;

    use super::*;

    const START: WallTime = WallTime::from_millis(1_700_000_000_000);

    fn advance(server: &Server, seconds: u64) {
        server.clock().advance_blocking(Duration::from_secs(seconds));
    }

    #[test]
    fn who_is_idle_for_longer_than_the_timeout_is_closed_but_for_subscribers_and_those_who_wait() {
        let builder = Server::builder().manual_clock(START).set("timeout", "10");
        let server = builder.start_blocking().unwrap();
        let [mut idle, mut busy, mut subscriber, mut waiting] = [(); 4].map(|()| Peer::to(server.addr()));
        subscriber.send(b"SUBSCRIBE news\r\n");
        (0..6).for_each(|_| drop(subscriber.line()));
        waiting.send(b"PING\r\nWAIT 1 0\r\n");
        assert_eq!((idle.ask(b"PING\r\n"), waiting.line()), ("+PONG".to_owned(), "+PONG".to_owned()));
        advance(&server, 9);
        assert_eq!((busy.ask(b"PING\r\n"), busy.ask(b"PING\r\n")), ("+PONG".to_owned(), "+PONG".to_owned()));
        advance(&server, 2);
        assert!(idle.rest().is_empty());
        assert_eq!(busy.ask(b"PUBLISH news hello\r\n"), ":1");
        assert_eq!((subscriber.line(), subscriber.bulk()), ("*3".to_owned(), 7));
        assert!(Peer::to(server.addr()).ask(b"CLIENT LIST\r\n").starts_with('$'));
        busy.send(b"INFO clients\r\n");
        let length: usize = busy.line()[1..].parse().unwrap();
        let mut text = vec![0; length];
        busy.0.read_exact(&mut text).unwrap();
        assert!(String::from_utf8(text).unwrap().contains("blocked_clients:1"), "and still waits");
    }

    #[test]
    fn a_subscriber_behind_by_more_than_eight_mebibytes_has_a_minute_to_catch_up() {
        let server = Server::builder().manual_clock(START).start_blocking().unwrap();
        let [mut publisher, mut slow] = [(); 2].map(|()| Peer::to(server.addr()));
        slow.send(b"SUBSCRIBE news\r\n");
        (0..6).for_each(|_| drop(slow.line()));
        let message = "m".repeat(MIB);
        // What the kernel holds of it is not the server's; twice it does not fit there, nor once into 32 MiB.
        for _ in 0..24 {
            publisher
                .send(format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${MIB}\r\n{message}\r\n").as_bytes());
            assert_eq!(publisher.line(), ":1");
        }
        advance(&server, 60);
        assert_eq!(publisher.ask(b"PUBLISH news hello\r\n"), ":1");
        advance(&server, 1);
        assert_eq!(publisher.ask(b"PUBLISH news hello\r\n"), ":0");
    }
}

mod pauses {
    use super::*;

    #[test]
    fn clients_that_leave_while_they_are_held_back_are_gone_and_their_requests_undone() {
        let mut scene = Scene::set();
        assert_eq!(scene.bystander.ask(b"CLIENT PAUSE 9223372036854775807 WRITE\r\n"), "+OK");
        let held: Vec<Peer> = (0..20).map(|_| scene.peer()).collect();
        for peer in &held {
            peer.send(b"SET k v\r\nSET k v\r\n");
        }
        scene.until("connected_clients", |clients| clients == 21);
        drop(held);
        scene.until("connected_clients", |clients| clients == 1);
        assert_eq!(scene.bystander.ask(b"CLIENT UNPAUSE\r\n"), "+OK");
        assert!(scene.server.keys().is_empty());
        scene.goes_on();
    }

    #[test]
    fn a_client_that_floods_while_it_is_held_back_is_not_read_from() {
        costs_at_most(64, |look| {
            let mut scene = Scene::set();
            assert_eq!(scene.bystander.ask(b"CLIENT PAUSE 9223372036854775807 WRITE\r\n"), "+OK");
            let peer = scene.peer();
            let sender = peer.stream().try_clone().unwrap();
            sender.set_nonblocking(true).unwrap();
            let flood = b"SET k 0123456789\r\n".repeat(10_000);
            let mut refused = 0;
            while refused < 100 {
                match (&sender).write(&flood) {
                    Ok(_) => refused = 0,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        refused += 1;
                    }
                }
                assert_eq!(scene.bystander.ask(b"GET k\r\n"), "$-1");
                look();
            }
            assert_eq!(scene.bystander.ask(b"CLIENT UNPAUSE\r\n"), "+OK");
            drop((peer, sender));
            scene.goes_on();
        });
    }
}
