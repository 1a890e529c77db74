//! The configurable limits: the largest accepted value, the smallest refused one, and refused connections in INFO.

use std::time::Duration;

use redlatch::Server;
use redlatch::WallTime;

use super::fixture::{Fixture, MIB, Peer, costs_at_most};
use crate::support::waits::wait_until;

/// An `ECHO` request of a given total length in bytes.
fn echo(bytes: usize) -> Vec<u8> {
    let whole = |length: usize| format!("*2\r\n$4\r\nECHO\r\n${length}\r\n{}\r\n", "x".repeat(length));
    let spare = whole(0).len() + bytes.to_string().len() - 1;
    whole(bytes - spare).into_bytes()
}

#[test]
fn a_request_may_be_as_long_as_client_query_buffer_limit_says() {
    let mut fixture = Fixture::with(&[("client-query-buffer-limit", "1mb")]);
    let mut peer = fixture.peer();
    let longest = echo(MIB);
    assert_eq!(longest.len(), MIB);
    peer.send(&longest);
    peer.bulk();
    // The length alone decides; the body is never sent.
    peer.send(&echo(MIB + 1)[..100]);
    assert!(peer.rest().is_empty(), "closed without a word, as in Redis");
    assert_eq!(fixture.info("client_query_buffer_limit_disconnections"), 1);
    fixture.goes_on();
}

#[test]
fn an_argument_may_be_as_long_as_proto_max_bulk_len_says() {
    let mut fixture = Fixture::with(&[("proto-max-bulk-len", "1mb")]);
    let mut peer = fixture.peer();
    peer.send(format!("*2\r\n$4\r\nECHO\r\n${MIB}\r\n{}\r\n", "x".repeat(MIB)).as_bytes());
    assert_eq!(peer.bulk(), MIB);
    peer.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", MIB + 1).as_bytes());
    assert_eq!(peer.line(), "-ERR Protocol error: invalid bulk length");
    assert!(peer.rest().is_empty());
    fixture.goes_on();
}

#[test]
fn the_places_of_the_arguments_of_a_request_count_until_it_has_ended() {
    const ARGUMENTS: usize = 200_000;
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    peer.send(b"CLIENT SETNAME many\r\n");
    assert_eq!(peer.line(), "+OK");
    let mut beside_input = || {
        let list = fixture.bystander.text(b"CLIENT LIST\r\n");
        let line = list.lines().find(|line| line.contains(" name=many ")).expect("its line");
        let field = |name: &str| -> u64 {
            let value = line.split(' ').find_map(|field| field.strip_prefix(name));
            value.and_then(|value| value.parse().ok()).expect("a number")
        };
        (field("qbuf=") as usize, field("tot-mem=") - field("qbuf=") - field("qbuf-free="))
    };
    let before = beside_input().1;
    let (argument, head) = ("$0\r\n\r\n", format!("*{ARGUMENTS}\r\n"));
    let most = head + &argument.repeat(ARGUMENTS - 1);
    peer.send(most.as_bytes());
    wait_until("all has arrived", || beside_input().0 == most.len());
    let places = beside_input().1 - before;
    assert!(places >= 8 * ARGUMENTS as u64, "{places} bytes");
    assert!(peer.ask(argument.as_bytes()).starts_with("-ERR unknown command ''"));
    wait_until("they are given back", || beside_input().1 < before + 16_384);
    fixture.goes_on();
}

#[test]
fn before_authentication_the_limits_are_those_of_redis_to_the_byte() {
    let fixture = Fixture::with(&[("requirepass", "secret")]);
    let ten = |word: usize| {
        let words = format!("${word}\r\n{}\r\n", "x".repeat(word)).repeat(9);
        format!("*10\r\n$3\r\nGET\r\n{words}")
    };
    for (request, answer) in [
        (ten(1), "-NOAUTH"),
        (format!("*2\r\n$3\r\nGET\r\n$16384\r\n{}\r\n", "x".repeat(16384)), "-NOAUTH"),
        ("*2\r\n$3\r\nGET\r\n$16385\r\n".to_owned(), "-ERR Protocol error: unauthenticated bulk length"),
        ("*11\r\n".to_owned(), "-ERR Protocol error: unauthenticated multibulk length"),
        // The first ten words would take effect if they were carried out.
        (ten(1).replacen("*10", "*11", 1), "-ERR Protocol error: unauthenticated multibulk length"),
    ] {
        let said = fixture.peer().ask(request.as_bytes());
        // An arity error comes before NOAUTH; either proves that the request was read.
        assert!(
            said.starts_with(answer) || (answer == "-NOAUTH" && said.starts_with("-ERR wrong number")),
            "{said}"
        );
    }
}

#[test]
fn an_intersection_looks_up_a_bounded_number_of_members() {
    const MEMBERS: usize = 1 << 10;
    const SOURCES: usize = (1 << 16) + 2;
    let mut fixture = Fixture::with(&[]);
    let mut peer = fixture.peer();
    let members: String = (0..MEMBERS).map(|member| format!(" {member}")).collect();
    assert_eq!(peer.ask(format!("SADD t{members}\r\n").as_bytes()), format!(":{MEMBERS}"));
    let names = "$1\r\nt\r\n".repeat(SOURCES);
    let request = format!("*{}\r\n$11\r\nZINTERSTORE\r\n$1\r\nd\r\n$5\r\n{SOURCES}\r\n{names}", SOURCES + 3);
    assert_eq!(peer.ask(request.as_bytes()), "-ERR value is out of range");
    assert_eq!(peer.ask(b"ZINTERSTORE d 2 t t\r\n"), format!(":{MEMBERS}"));
    fixture.goes_on();
}

#[test]
fn a_client_that_leaves_more_unread_than_its_class_may_is_dropped_and_counted() {
    const VALUE: usize = MIB / 16;
    let mut fixture = Fixture::with(&[("client-output-buffer-limit", "normal 1mb 0 0")]);
    fixture.server.keys().set("big", vec![b'v'; VALUE], None);
    // A client that reads is served however much it requests.
    let mut reader = fixture.peer();
    for _ in 0..200 {
        reader.send(b"GET big\r\n");
        assert_eq!(reader.bulk(), VALUE);
    }
    drop(reader);
    fixture.until("connected_clients", |clients| clients == 1);
    let mut peer = fixture.peer();
    peer.send(&b"GET big\r\n".repeat(3200));
    fixture.until("client_output_buffer_limit_disconnections", |dropped| dropped == 1);
    assert!(peer.rest().len() < 3200 * VALUE);
    fixture.goes_on();
}

#[test]
fn the_soft_limit_of_a_class_gives_its_clients_the_seconds_it_names() {
    const START: WallTime = WallTime::from_millis(1_700_000_000_000);
    let server = Server::builder().manual_clock(START).start_blocking().unwrap();
    server.keys().set("big", vec![b'v'; 16 * MIB], None);
    let [mut peer, slow] = [(); 2].map(|()| Peer::to(server.addr()));
    assert_eq!(peer.ask(b"CONFIG SET client-output-buffer-limit \"normal 0 1mb 5\"\r\n"), "+OK");
    slow.send(b"GET big\r\n");
    let advance = |seconds| server.clock().advance_blocking(Duration::from_secs(seconds));
    let mut clients = |seconds| {
        advance(seconds);
        peer.send(b"CLIENT LIST\r\n");
        let head = peer.line();
        let mut lines = 0;
        let mut left: usize = head[1..].parse().unwrap();
        while left > 0 {
            left -= peer.line().len() + 1;
            lines += 1;
        }
        peer.line();
        lines
    };
    assert_eq!([clients(1), clients(4), clients(2)], [2, 2, 1]);
}

/// Sends `request` with increasing numbers until memory is short; returns how often.
fn fill(peer: &mut Peer, request: impl Fn(usize) -> String) -> usize {
    for number in 0.. {
        peer.send(request(number).as_bytes());
        let answer = peer.line();
        if answer == "-OOM command not allowed when used memory > 'maxmemory'." {
            return number;
        }
        assert!(answer.starts_with([':', '+']), "{answer}");
        assert!(number < 1_000_000, "it is never refused");
    }
    unreachable!("the numbers last longer than the timeout")
}

#[test]
fn a_server_with_maxmemory_is_never_filled_beyond_it_and_never_gives_up_a_key() {
    costs_at_most(48, |look| {
        let mut fixture = Fixture::with(&[("maxmemory", "16mb")]);
        assert_eq!(fixture.bystander.ask(b"SET held me NX PX 30000\r\n"), "+OK");
        let value = "v".repeat(10_000);
        let mut peer = fixture.peer();
        let kinds: [&dyn Fn(usize) -> String; 5] = [
            &|n| format!("SET string:{n} {value}\r\n"),
            &|n| format!("HSET hash {n} {value}\r\n"),
            &|n| format!("RPUSH list {n}{value}\r\n"),
            &|n| format!("ZADD sorted 1 {n}{value}\r\n"),
            &|n| format!("SETRANGE string {} {value}\r\n", n * value.len()),
        ];
        for kind in kinds {
            let times = fill(&mut peer, kind);
            assert!((1000..3000).contains(&times), "{} bytes were taken", times * value.len());
            look();
            // The request's own buffer counted when it was refused, and may be released by now.
            let used = fixture.info("used_memory") + 2 * value.len() as u64;
            assert!(used > 16 * MIB as u64, "{used} bytes");
            assert_eq!(fixture.bystander.ask(b"GET held\r\n"), "$2");
            assert_eq!(fixture.bystander.line(), "me");
            assert_eq!(fixture.bystander.ask(b"FLUSHALL\r\n"), "+OK");
            assert_eq!(
                fixture.bystander.ask(b"SET held me NX PX 30000\r\n"),
                "+OK",
                "and there is room again"
            );
        }
        fixture.goes_on();
    });
}
