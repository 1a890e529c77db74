//! Broken and endless frames, and the fates of Redis for them.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;

use super::fates::all_fates;
use super::scene::Scene;

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
    for unit in ["(", "{", "[", "function() ", "if 1 then ", "not ", "- ", "a.", "--[[", "\"", "redis.call("]
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
