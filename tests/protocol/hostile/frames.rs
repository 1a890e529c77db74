//! Malformed and endless frames, with the outcomes of Redis.

use std::io::Write;
use std::net::Shutdown;

use super::fixture::Fixture;
use super::outcomes::all_outcomes;

#[test]
fn broken_requests_end_as_they_end_in_redis() {
    let mut fixture = Fixture::set();
    all_outcomes(fixture.server.addr());
    fixture.goes_on();
}

#[cfg(feature = "cli")]
#[test]
#[ignore = "needs REDLATCH_REDIS_SERVER"]
fn against_real_servers_the_outcomes_are_the_same() {
    use crate::support::{real::program, server::Server};
    let redis = Server::start_program(&program("redis"), &std::env::temp_dir(), &[]).unwrap();
    all_outcomes((std::net::Ipv4Addr::LOCALHOST, redis.port()).into());
}

#[test]
fn a_request_may_arrive_byte_by_byte() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    for byte in b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\nGET k\r\n" {
        peer.send(&[*byte]);
    }
    assert_eq!((peer.line(), peer.bulk()), ("+OK".to_owned(), 4));
    fixture.goes_on();
}

#[test]
fn a_half_sent_request_has_no_effect_and_leaves_with_its_sender() {
    let mut fixture = Fixture::set();
    let peer = fixture.peer();
    peer.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\nv");
    fixture.until("connected_clients", |clients| clients == 2);
    peer.stream().shutdown(Shutdown::Write).unwrap();
    fixture.until("connected_clients", |clients| clients == 1);
    assert!(fixture.server.keys().is_empty());
    fixture.goes_on();
}

#[test]
fn nesting_and_endless_scripts_are_refused_without_recursion() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    for unit in ["(", "{", "[", "function() ", "if 1 then ", "not ", "- ", "a.", "--[[", "\"", "redis.call("]
    {
        let script = unit.repeat(100_000);
        peer.send(format!("*3\r\n$4\r\nEVAL\r\n${}\r\n{script}\r\n$1\r\n0\r\n", script.len()).as_bytes());
        let answer = peer.line();
        assert!(answer.starts_with("-ERR"), "{unit}: {answer}");
    }
    peer.send(&b"*1\r\n".repeat(100_000));
    assert_eq!(peer.line(), "-ERR Protocol error: expected '$', got '*'");
    fixture.goes_on();
}

#[test]
fn noise_of_many_kinds_leaves_the_server_standing() {
    use proptest::strategy::{Strategy, ValueTree};
    use proptest::test_runner::{Config, TestRunner};
    let mut fixture = Fixture::set();
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    let noise = proptest::collection::vec(proptest::arbitrary::any::<u8>(), 1..2000);
    for start in [&b""[..], b"*3\r\n", b"*2\r\n$4\r\n", b"EVAL \"", b"*1\r\n$1000\r\n", b"SET k "] {
        for _ in 0..20 {
            let bytes = noise.new_tree(&mut runner).expect("some noise").current();
            let mut peer = fixture.peer();
            peer.send(start);
            // The server may have closed already.
            let _ = peer.stream().write_all(&bytes);
            let _ = peer.stream().shutdown(Shutdown::Write);
            peer.rest();
        }
    }
    fixture.goes_on();
}
