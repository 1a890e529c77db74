//! Faults of the test backend over real connections: what the client of the fault sees, and what others see.
//!
//! Belongs here  each action, and how clients of locks meet it. Rules and their errors: `transcripts/test_faults.txt`.
//! Time          stands still, and moves by TEST.CLOCK. A test waits for replies and counters, never for time.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::ErrorKind;
use std::time::Duration;

use redlatch::{Server, When};

use crate::support::stream::{Peer, StreamClient};
use crate::support::waits::wait_until;

/// A server with a frozen clock, and the connection that its test gives orders on.
struct Bench {
    server: Server,
    control: Peer,
}

impl Bench {
    fn start() -> Self {
        let bench = Self::start_running();
        let mut bench = bench;
        bench.order("TEST.CLOCK FREEZE");
        bench
    }

    fn start_running() -> Self {
        let server =
            Server::builder().set("enable-test-commands", "yes").set("nodes", "2").start_blocking().unwrap();
        let control = Peer::to(server.addr());
        Self { server, control }
    }

    fn client(&self) -> Peer {
        Peer::to(self.server.addr())
    }

    /// Sends a TEST command whose reply is one line, which is not an error.
    fn order(&mut self, words: &str) -> String {
        let line = self.control.ask(format!("{words}\r\n").as_bytes());
        assert!(!line.starts_with('-'), "{words}: {line}");
        line
    }

    /// Adds a fault; returns its number.
    fn fault(&mut self, rule: &str) -> usize {
        self.order(&format!("TEST.FAULT ADD {rule}"))[1..].parse().unwrap()
    }

    fn advance(&mut self, millis: u64) {
        self.order(&format!("TEST.CLOCK ADVANCE {millis}"));
    }

    /// How many requests the fault has met, and at how many it has acted.
    fn counts(&mut self, id: usize) -> (u64, u64) {
        self.control.send(b"TEST.FAULT LIST\r\n");
        let faults: usize = self.control.line()[1..].parse().unwrap();
        let mut found = None;
        for _ in 0..faults {
            let _map = self.control.line();
            let id_of = self.value();
            let _rule = (self.value(), self.control.line());
            let (met, hits) = (self.value(), self.value());
            if id_of == format!(":{id}") {
                found = Some((met[1..].parse().unwrap(), hits[1..].parse().unwrap()));
            }
        }
        found.unwrap()
    }

    /// The first line of the value of the next pair of a map.
    fn value(&mut self) -> String {
        let _name = (self.control.line(), self.control.line());
        self.control.line()
    }

    /// Waits until the fault has acted.
    fn await_hit(&mut self, id: usize) {
        wait_until("the fault acts", || self.counts(id).1 > 0);
    }
}

/// The value of a key, as its client reads it; `None`: there is no such key.
fn get(client: &mut Peer, key: &str) -> Option<String> {
    match client.ask(format!("GET {key}\r\n").as_bytes()).as_str() {
        "$-1" => None,
        _ => Some(client.line()),
    }
}

/// Whether nothing has arrived. What has been handed to a local socket has arrived.
fn is_silent(peer: &Peer) -> bool {
    assert!(peer.0.buffer().is_empty());
    let stream = peer.stream();
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// All that arrives until the connection ends, as text.
fn rest(peer: &mut Peer) -> String {
    String::from_utf8(peer.rest()).unwrap()
}

#[test]
fn the_retry_of_a_lock_whose_reply_was_lost_finds_the_lock_held_by_itself() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND SET KEY lock:* NTH 1 DO DROP-AFTER");
    let mut client = bench.client();
    client.send(b"SET lock:1 mine NX PX 30000\r\n");
    assert_eq!(rest(&mut client), "");
    let mut client = bench.client();
    assert_eq!(client.ask(b"SET lock:1 mine NX PX 30000\r\n"), "$-1");
    assert_eq!(get(&mut client, "lock:1").as_deref(), Some("mine"));
    assert_eq!(client.ask(b"SET other mine NX\r\n"), "+OK");
    assert_eq!(bench.counts(id), (2, 1));
}

#[test]
fn a_request_that_is_dropped_before_it_is_carried_out_leaves_nothing() {
    let mut bench = Bench::start();
    bench.fault("COMMAND SET DO DROP-BEFORE");
    let mut client = bench.client();
    client.send(b"PING\r\nSET k v\r\nPING\r\n");
    assert_eq!(rest(&mut client), "+PONG\r\n");
    assert_eq!(get(&mut bench.client(), "k"), None);
}

#[test]
fn an_error_takes_the_place_of_a_request_in_a_pipeline() {
    let mut bench = Bench::start();
    bench.fault("COMMAND SET NTH 2 DO ERROR \"LOADING the dataset\"");
    let mut client = bench.client();
    client.send(b"SET a 1\r\nSET b 2\r\nSET c 3\r\n");
    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "-LOADING the dataset", "+OK"]);
    assert_eq!(get(&mut client, "b"), None);
    assert_eq!(get(&mut client, "c").as_deref(), Some("3"));
    // A client that has switched replies off gets no error either.
    bench.fault("COMMAND INCR DO ERROR \"ERR no\"");
    client.send(b"CLIENT REPLY SKIP\r\nINCR n\r\nPING\r\n");
    assert_eq!(client.line(), "+PONG");
}

#[test]
fn a_delayed_request_is_carried_out_at_its_time_and_holds_up_what_is_behind_it() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND SET DO DELAY 100");
    let mut client = bench.client();
    client.send(b"PING\r\nSET k v\r\nGET k\r\n");
    bench.await_hit(id);
    assert_eq!(client.line(), "+PONG");
    bench.advance(99);
    assert!(is_silent(&client));
    assert_eq!(get(&mut bench.client(), "k"), None);
    bench.advance(1);
    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "$1", "v"]);
    assert_eq!(bench.counts(id), (1, 1), "it meets its fault once");
}

#[test]
fn the_end_of_a_delay_is_a_deadline_of_the_clock() {
    let mut bench = Bench::start();
    let id = bench.fault("DO DELAY 30000");
    let mut client = bench.client();
    client.send(b"SET k v\r\n");
    bench.await_hit(id);
    let before: u64 = bench.order("TEST.CLOCK ADVANCE 0")[1..].parse().unwrap();
    bench.control.send(b"TEST.CLOCK SHOW\r\n");
    let shown: Vec<_> = (0..31).map(|_| bench.control.line()).collect();
    assert_eq!([&shown[20], &shown[24]], [":30000", "wait"], "{shown:?}");
    assert_eq!(bench.order("TEST.CLOCK NEXT"), format!(":{}", before + 30_000));
    assert_eq!(client.line(), "+OK");
}

#[test]
fn a_delayed_request_is_carried_out_although_its_client_has_gone() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND SET DO DELAY 100");
    let client = bench.client();
    client.send(b"SET k v\r\n");
    bench.await_hit(id);
    drop(client);
    bench.advance(100);
    assert_eq!(get(&mut bench.client(), "k").as_deref(), Some("v"));
}

#[test]
fn a_stalled_reply_is_late_and_its_effect_is_not() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND SET DO STALL 100");
    let mut client = bench.client();
    client.send(b"PING\r\nSET k v\r\nDEL k\r\n");
    bench.await_hit(id);
    assert_eq!(client.line(), "+PONG");
    bench.advance(99);
    assert!(is_silent(&client));
    assert_eq!(get(&mut bench.client(), "k").as_deref(), Some("v"), "the next request waits");
    bench.advance(1);
    assert_eq!([client.line(), client.line()], ["+OK", ":1"]);
}

#[test]
fn half_a_reply_ends_the_connection() {
    let mut bench = Bench::start();
    bench.fault("COMMAND GET DO HALF-REPLY");
    let mut client = bench.client();
    client.send(b"SET k 0123456789\r\nGET k\r\nGET k\r\n");
    assert_eq!(rest(&mut client), "+OK\r\n$10\r\n012");
}

#[test]
fn a_reset_is_no_ordinary_end() {
    let mut bench = Bench::start();
    bench.fault("COMMAND SET DO RESET");
    let mut client = bench.client();
    client.send(b"SET k v\r\n");
    let mut byte = [0];
    let error = std::io::Read::read(&mut client.0, &mut byte).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(get(&mut bench.client(), "k"), None);
}

#[test]
fn a_holder_that_pauses_past_its_lease_learns_it_from_the_next_reply() {
    let mut bench = Bench::start();
    bench.fault("COMMAND SET CLIENT holder DO PAUSE-CLIENT 5000");
    let (mut holder, mut other) = (bench.client(), bench.client());
    assert_eq!(holder.ask(b"CLIENT SETNAME holder\r\n"), "+OK");
    assert_eq!(holder.ask(b"SET lock holder NX PX 1000\r\n"), "+OK");
    // The holder writes while it is paused, as a thread does whose write was under way.
    holder.send(b"GET lock\r\n");
    bench.advance(1_000);
    assert_eq!(other.ask(b"SET lock other NX PX 9000\r\n"), "$-1");
    bench.advance(1);
    assert_eq!(other.ask(b"SET lock other NX PX 9000\r\n"), "+OK");
    bench.advance(3_998);
    assert!(is_silent(&holder));
    bench.advance(1);
    assert_eq!([holder.line(), holder.line()], ["$5", "other"]);
}

#[test]
fn a_paused_client_gets_its_messages_afterwards() {
    let mut bench = Bench::start();
    bench.fault("COMMAND SET DO PAUSE-CLIENT 100");
    let mut client = bench.client();
    client.send(b"HELLO 3\r\nSUBSCRIBE news\r\n");
    while client.line() != "subscribe" {}
    assert_eq!([client.line(), client.line(), client.line()], ["$4", "news", ":1"]);
    assert_eq!(client.ask(b"SET k v\r\n"), "+OK");
    assert_eq!(bench.control.ask(b"PUBLISH news extra\r\n"), ":1");
    bench.advance(99);
    assert!(is_silent(&client));
    bench.advance(1);
    let message: Vec<_> = (0..7).map(|_| client.line()).collect();
    assert_eq!(message, [">3", "$7", "message", "$4", "news", "$5", "extra"]);
    assert_eq!(client.ask(b"DEL k\r\n"), ":1");
}

#[test]
fn a_lease_ends_right_behind_its_request() {
    let mut bench = Bench::start();
    bench.fault("COMMAND SET KEY lock:* DO EXPIRE-KEY");
    let (mut listener, mut client) = (bench.client(), bench.client());
    assert_eq!(client.ask(b"CONFIG SET notify-keyspace-events Ex\r\n"), "+OK");
    listener.send(b"SUBSCRIBE __keyevent@0__:expired\r\n");
    (0..6).for_each(|_| _ = listener.line());
    assert_eq!(client.ask(b"SET lock:1 mine NX PX 30000\r\n"), "+OK");
    let event: Vec<_> = (0..7).map(|_| listener.line()).collect();
    assert_eq!(event[6], "lock:1", "{event:?}");
    assert_eq!(get(&mut client, "lock:1"), None);
    assert_eq!(client.ask(b"SET free mine NX PX 30000\r\n"), "+OK");
    assert_eq!(client.ask(b"PTTL free\r\n"), ":30000");
}

#[test]
fn a_lease_that_ends_behind_a_grant_lets_the_next_in_the_queue_in() {
    let mut bench = Bench::start();
    let [mut first, mut second, mut third] = [(); 3].map(|()| bench.client());
    first.send(b"LOCK.ACQUIRE k first LEASE 30000\r\n");
    assert_eq!((0..8).map(|_| first.line()).last().unwrap(), "$6", "token, lease, waited");
    first.line();
    let id = bench.fault("COMMAND LOCK.ACQUIRE NTH 1 DO EXPIRE-KEY");
    second.send(b"LOCK.ACQUIRE k second LEASE 30000 WAIT 60000\r\n");
    bench.await_hit(id);
    let third_is = bench.fault("COMMAND LOCK.ACQUIRE DO DELAY 1");
    third.send(b"LOCK.ACQUIRE k third LEASE 30000 WAIT 60000\r\n");
    bench.await_hit(third_is);
    bench.advance(1);
    assert!(is_silent(&second) && is_silent(&third));
    first.send(b"LOCK.RELEASE k first\r\n");
    // The second was granted the lock, and lost it at once.
    assert_eq!([second.line(), third.line()], ["*6", "*6"]);
    assert_eq!(bench.control.ask(b"PTTL k\r\n"), ":30000");
}

#[test]
fn a_request_that_is_sent_twice_is_answered_once() {
    let mut bench = Bench::start();
    bench.fault("COMMAND INCR DO DUPLICATE");
    bench.fault("COMMAND SET DO DUPLICATE");
    let mut client = bench.client();
    client.send(b"INCR n\r\nPING\r\n");
    assert_eq!([client.line(), client.line()], [":2", "+PONG"]);
    // A proxy that retries tells the holder that somebody else has the lock.
    assert_eq!(client.ask(b"SET lock mine NX PX 30000\r\n"), "$-1");
    assert_eq!(get(&mut client, "lock").as_deref(), Some("mine"));
}

#[test]
fn a_request_that_waits_is_sent_twice_when_it_has_been_served() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND BLPOP DO DUPLICATE");
    let (mut client, mut other) = (bench.client(), bench.client());
    client.send(b"BLPOP q 10\r\nPING\r\n");
    bench.await_hit(id);
    assert_eq!(other.ask(b"RPUSH q x\r\n"), ":1");
    assert!(is_silent(&client));
    bench.advance(9_999);
    assert_eq!(other.ask(b"RPUSH q y\r\n"), ":1");
    let reply: Vec<_> = (0..6).map(|_| client.line()).collect();
    assert_eq!(reply, ["*2", "$1", "q", "$1", "y", "+PONG"]);
    assert_eq!(bench.counts(id), (1, 1));
}

#[test]
fn the_reply_to_a_request_that_waited_is_lost_too() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND BLPOP DO DROP-AFTER");
    let (mut client, mut other) = (bench.client(), bench.client());
    client.send(b"BLPOP q 10\r\n");
    bench.await_hit(id);
    assert_eq!(other.ask(b"RPUSH q x y\r\n"), ":2");
    assert_eq!(rest(&mut client), "");
    assert_eq!(other.ask(b"LLEN q\r\n"), ":1");
}

#[test]
fn the_reply_to_a_request_that_waited_is_late_too() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND BLPOP DO STALL 50");
    let (mut client, mut other) = (bench.client(), bench.client());
    client.send(b"BLPOP q 10\r\n");
    bench.await_hit(id);
    assert_eq!(other.ask(b"RPUSH q x\r\n"), ":1");
    bench.advance(49);
    assert!(is_silent(&client));
    assert_eq!(other.ask(b"LLEN q\r\n"), ":0");
    bench.advance(1);
    assert_eq!(client.line(), "*2");
    // The end of a wait is stalled like any other reply.
    let id = bench.fault("COMMAND BRPOP DO STALL 50");
    let mut client = bench.client();
    client.send(b"BRPOP q 1\r\n");
    bench.await_hit(id);
    bench.advance(1_049);
    assert!(is_silent(&client));
    bench.advance(1);
    assert_eq!(client.line(), "*-1");
}

#[test]
fn what_is_queued_is_met_together_with_its_exec() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND SET KEY lock:* DO DROP-AFTER");
    let mut client = bench.client();
    client.send(b"MULTI\r\nSET lock:1 a\r\nSET lock:2 b\r\nEXEC\r\n");
    assert_eq!(rest(&mut client), "+OK\r\n+QUEUED\r\n+QUEUED\r\n");
    assert_eq!(get(&mut bench.client(), "lock:2").as_deref(), Some("b"));
    assert_eq!(bench.counts(id), (1, 1));

    bench.order("TEST.FAULT CLEAR");
    bench.fault("COMMAND EXEC NTH 1 DO ERROR \"LOADING soon\"");
    let mut client = bench.client();
    client.send(b"MULTI\r\nSET k v\r\nEXEC\r\nEXEC\r\n");
    let replies: Vec<_> = (0..4).map(|_| client.line()).collect();
    assert_eq!(replies, ["+OK", "+QUEUED", "-LOADING soon", "-ERR EXEC without MULTI"]);
    assert_eq!(get(&mut client, "k"), None);

    bench.fault("KEY k DO EXPIRE-KEY");
    client.send(b"MULTI\r\nSET k v\r\nEXEC\r\nEXISTS k\r\n");
    let replies: Vec<_> = (0..5).map(|_| client.line()).collect();
    assert_eq!(replies, ["+OK", "+QUEUED", "*1", "+OK", ":0"]);
}

#[cfg(feature = "lua")]
#[test]
fn a_script_on_the_script_thread_meets_its_fault_once() {
    let mut bench = Bench::start();
    let text = "for i = 1, 3 do redis.call('incr', KEYS[1]) end return string.rep('x', 6)";
    let eval = format!("*4\r\n$4\r\nEVAL\r\n${}\r\n{text}\r\n$1\r\n1\r\n$1\r\nk\r\n", text.len());
    let mut client = bench.client();
    let lost = bench.fault("COMMAND EVAL KEY k NTH 1 DO HALF-REPLY");
    let twice = bench.fault("COMMAND EVAL NTH 2 DO DUPLICATE");
    client.send(eval.as_bytes());
    assert_eq!(rest(&mut client), "$6\r\nxx");
    let mut client = bench.client();
    client.send(eval.as_bytes());
    assert_eq!([client.line(), client.line()], ["$6", "xxxxxx"]);
    assert_eq!(get(&mut client, "k").as_deref(), Some("9"));
    assert_eq!((bench.counts(lost), bench.counts(twice)), ((2, 1), (2, 1)));
}

#[test]
fn a_script_is_known_by_its_sha() {
    let mut bench = Bench::start();
    // SHA-1 of `return 1`.
    bench.fault("SCRIPT E0E1F9FABFC9D4800C877A703B823AC0578FF8DB DO ERROR \"NOSCRIPT lost\"");
    let mut client = bench.client();
    client.send(b"EVAL \"return 1\" 0\r\nEVAL \"return 2\" 0\r\nEVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0\r\n");
    let answers = [client.line(), client.line(), client.line()];
    assert_eq!(answers[..2], ["-NOSCRIPT lost", ":2"]);
    assert_eq!(answers[2], "-NOSCRIPT No matching script. Please use EVAL.", "it was never loaded");
    assert_eq!(client.ask(b"SCRIPT LOAD \"return 1\"\r\n"), "$40");
    client.line();
    let sent = client.ask(b"EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0\r\n");
    assert_eq!(sent, "-NOSCRIPT lost");
}

#[test]
fn a_fault_of_a_script_is_not_spent_on_a_script_that_does_not_run() {
    let mut bench = Bench::start();
    // SHA-1 of `return 1`, in any letter case.
    let sha = "E0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let id = bench.fault(&format!("SCRIPT {sha} TIMES 1 DO ERROR \"ERR met\""));
    let mut client = bench.client();
    let evalsha = format!("EVALSHA {sha} 0\r\n");
    // As clients do: by its digest at first, and with its text if the server does not know it.
    let unknown = client.ask(evalsha.as_bytes());
    assert!(unknown.starts_with("-NOSCRIPT No matching"), "{unknown}");
    assert_eq!(bench.counts(id), (0, 0));
    client.ask(b"SCRIPT LOAD \"return 1\"\r\n");
    client.line();
    assert_eq!(client.ask(evalsha.as_bytes()), "-ERR met");
    assert_eq!(client.ask(evalsha.as_bytes()), ":1");
    assert_eq!(bench.counts(id), (2, 1));
}

#[test]
fn neither_test_commands_nor_the_entrance_to_a_namespace_are_met() {
    let mut bench = Bench::start();
    let id = bench.fault("DO ERROR \"ERR met\"");
    let mut client = bench.client();
    assert_eq!(client.ask(b"PING\r\n"), "-ERR met");
    assert_eq!(client.ask(b"NO.SUCH command\r\n"), "-ERR met");
    assert_eq!(client.ask(b"AUTH namespace:default\r\n"), "+OK");
    assert_eq!(client.ask(b"AUTH namespace:other\r\n"), "+OK");
    assert_eq!(client.ask(b"PING\r\n"), "+PONG", "the faults of a namespace are its own");
    assert_eq!(bench.counts(id), (2, 2));
}

#[test]
fn a_fault_of_one_node_spares_the_others() {
    let mut bench = Bench::start();
    bench.fault("NODE 2 COMMAND SET DO ERROR \"ERR down\"");
    let nodes = bench.server.node_addrs();
    let [mut one, mut two] = [Peer::to(nodes[0]), Peer::to(nodes[1])];
    assert_eq!([one.ask(b"SET k v\r\n"), two.ask(b"SET k v\r\n")], ["+OK", "-ERR down"]);
}

#[test]
fn a_held_connection_can_be_killed_and_ends_with_its_namespace_and_with_the_server() {
    let mut bench = Bench::start();
    let id = bench.fault("COMMAND SET TIMES 1 DO PAUSE-CLIENT 1000");
    let mut client = bench.client();
    let number = client.ask(b"CLIENT ID\r\n");
    assert_eq!(client.ask(b"SET k v\r\n"), "+OK");
    assert_eq!(bench.counts(id), (1, 1));
    assert_eq!(bench.control.ask(format!("CLIENT KILL ID {}\r\n", &number[1..]).as_bytes()), ":1");
    assert_eq!(rest(&mut client), "");

    let mut client = bench.client();
    assert_eq!(client.ask(b"AUTH namespace:other\r\n"), "+OK");
    assert_eq!(client.ask(b"TEST.FAULT ADD COMMAND SET DO PAUSE-CLIENT 3600000\r\n"), ":1");
    assert_eq!(client.ask(b"SET k v\r\n"), "+OK");
    assert_eq!(bench.order("TEST.NAMESPACE DROP other"), ":1");
    assert_eq!(rest(&mut client), "");

    let id = bench.fault("COMMAND SET DO DELAY 1000");
    let mut client = bench.client();
    client.send(b"SET k w\r\n");
    bench.await_hit(id);
    bench.server.stop();
    assert_eq!(rest(&mut client), "");
}

#[test]
fn a_clock_that_runs_ends_a_delay_by_itself_and_so_does_an_automatic_one() {
    let mut bench = Bench::start_running();
    bench.fault("COMMAND SET DO DELAY 5");
    bench.fault("COMMAND DEL DO STALL 3600000");
    let mut client = bench.client();
    assert_eq!(client.ask(b"SET k v\r\n"), "+OK");
    assert_eq!(bench.order("TEST.CLOCK AUTO ON IDLE 1"), "+OK");
    assert_eq!(client.ask(b"DEL k\r\n"), ":1");
}

#[tokio::test]
async fn a_rust_test_holds_faults_by_the_names_that_other_languages_use() {
    let server = Server::builder().tests(2).start().await.unwrap();
    let (faults, other) = (server.faults(), server.namespace("other").unwrap());
    let lost = faults.drop_reply(When::command("SET").key("lock:*").nth(1)).unwrap();
    faults.delay(Duration::from_secs(30), When::any().node(2)).unwrap();
    faults.pause_client(Duration::from_secs(60), When::any().script("acquire").client("worker-*")).unwrap();
    faults.error("LOADING soon", When::any().probability(0.5, 7).times(3)).unwrap();
    let rules = ["GET", "DEL"].map(|name| other.faults().reset(When::command(name).every(2)).unwrap().id());
    assert_eq!(rules, [1, 2], "a namespace has its own");
    let mut client = StreamClient::new(server.stream());
    client.send("SET lock:1 mine NX PX 30000\r\n").await;
    assert!(client.has_ended().await);
    assert_eq!(server.keys().get("lock:1").as_deref(), Some(&b"mine"[..]));
    assert_eq!((lost.met(), lost.hits()), (1, 1));
    let wrong = faults.stall(Duration::ZERO, When::any()).unwrap_err().to_string();
    assert_eq!(wrong, "STALL must be a whole number from 1 to 31536000000");
    assert!(lost.remove() && !lost.remove());
    assert_eq!(faults.clear(), 3);
}

#[test]
fn the_faults_of_the_documentation_are_faults() {
    let mut bench = Bench::start();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/testing.md")).unwrap();
    let rules: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("TEST.FAULT ADD ")).collect();
    let rules: Vec<_> = rules.into_iter().filter(|rule| !rule.starts_with('[')).collect();
    assert!(rules.len() >= 5);
    rules.iter().for_each(|rule| _ = bench.fault(rule));
}

#[test]
fn a_plan_of_too_many_faults_is_refused_beyond_its_limit() {
    let bench = Bench::start();
    let mut client = bench.client();
    let (mut added, mut refused) = (0, 0);
    for _ in 0..10 {
        client.send("TEST.FAULT ADD COMMAND SET DO RESET\r\n".repeat(1_000).as_bytes());
        for _ in 0..1_000 {
            match client.line().as_str() {
                "-ERR a namespace has 1000 faults at most; TEST.FAULT CLEAR removes them" => refused += 1,
                line => {
                    added += 1;
                    assert_eq!(line, format!(":{added}"));
                }
            }
        }
    }
    assert_eq!((added, refused), (1_000, 9_000));
    assert_eq!(client.ask(b"TEST.FAULT CLEAR\r\n"), ":1000");
}
