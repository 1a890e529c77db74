//! Floods: large claims, many requests, many channels, and everything an unauthenticated client may send.

use std::io::Write;

use super::fixture::{Fixture, MIB, Peer, costs_at_most};

#[test]
fn claimed_lengths_of_two_hundred_connections_cost_no_memory() {
    costs_at_most(32, |look| {
        let mut fixture = Fixture::set();
        let peers: Vec<Peer> = (0..200).map(|_| fixture.peer()).collect();
        for (index, peer) in peers.iter().enumerate() {
            let count = if index % 2 == 0 { "*2147483647" } else { "*3" };
            peer.send(format!("{count}\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000000\r\nabc").as_bytes());
        }
        fixture.until("connected_clients", |clients| clients == 201);
        fixture.goes_on();
        look();
    });
}

#[test]
fn the_buffer_of_a_large_request_is_released() {
    costs_at_most(128, |look| {
        let mut fixture = Fixture::set();
        let value = vec![b'v'; 16 * MIB];
        let mut peers = Vec::new();
        for _ in 0..16 {
            let mut peer = fixture.peer();
            peer.send(format!("*2\r\n$4\r\nECHO\r\n${}\r\n", value.len()).as_bytes());
            peer.send(&value);
            peer.send(b"\r\n*");
            assert_eq!(peer.bulk(), value.len());
            peers.push(peer);
        }
        fixture.goes_on();
        look();
    });
}

#[test]
fn a_pipeline_of_a_hundred_thousand_is_answered_in_order() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
    let sender = peer.stream().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        (&sender).write_all(&b"INCR n\r\n".repeat(100_000)).expect("the server keeps reading");
    });
    for expected in 1..=100_000 {
        assert_eq!(peer.line(), format!(":{expected}"));
    }
    writer.join().unwrap();
    fixture.goes_on();
}

#[test]
fn a_hundred_thousand_channels_are_joined_and_left_at_once() {
    let mut fixture = Fixture::set();
    let mut peer = fixture.peer();
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
    fixture.goes_on();
}

#[test]
fn before_authentication_little_may_be_said_and_little_left_unread() {
    let mut fixture = Fixture::with(&[("requirepass", "secret")]);
    for (bytes, answer) in [
        (&b"*11\r\n"[..], "-ERR Protocol error: unauthenticated multibulk length\r\n"),
        (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", "-ERR Protocol error: unauthenticated bulk length\r\n"),
    ] {
        let mut peer = fixture.peer();
        peer.send(bytes);
        assert_eq!(String::from_utf8_lossy(&peer.rest()), answer);
    }
    let peer = fixture.peer();
    let flood = b"GET k\r\n".repeat(10_000);
    // The replies are not read, so the server closes.
    while peer.stream().write_all(&flood).is_ok() {}
    assert_eq!(fixture.bystander.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(fixture.bystander.ask(b"SET lock me NX\r\n"), "+OK");
}
