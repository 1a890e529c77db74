//! Idle clients.

use std::time::Duration;

use redlatch::Server;
use redlatch::WallTime;

use super::fixture::{MIB, Peer};

const START: WallTime = WallTime::from_millis(1_700_000_000_000);

fn advance(server: &Server, seconds: u64) {
    server.clock().advance_blocking(Duration::from_secs(seconds));
}

#[test]
fn idle_clients_are_closed_except_subscribers_and_blocked_ones() {
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
    assert!(busy.text(b"INFO clients\r\n").contains("blocked_clients:1"), "and still waits");
}

#[test]
fn who_does_not_authenticate_in_time_gives_the_place_back() {
    let builder =
        Server::builder().manual_clock(START).set("requirepass", "secret").set("login-timeout", "30");
    let server = builder.start_blocking().unwrap();
    let [mut silent, mut wrong, mut known] = [(); 3].map(|()| Peer::to(server.addr()));
    assert_eq!(known.ask(b"AUTH secret\r\n"), "+OK");
    advance(&server, 1);
    assert!(wrong.ask(b"AUTH guess\r\n").starts_with("-WRONGPASS"));
    advance(&server, 29);
    assert!(wrong.ask(b"AUTH guess\r\n").starts_with("-WRONGPASS"), "30 seconds are not over");
    advance(&server, 3);
    assert!(silent.rest().is_empty() && wrong.rest().is_empty());
    assert_eq!(known.ask(b"PING\r\n"), "+PONG");
    // RESET logs the client out, and it has that long again.
    assert_eq!(known.ask(b"RESET\r\n"), "+RESET");
    advance(&server, 29);
    assert_eq!(known.ask(b"AUTH secret\r\n"), "+OK");
    advance(&server, 60);
    assert_eq!(known.ask(b"CONFIG SET login-timeout 0\r\n"), "+OK");
    let mut late = Peer::to(server.addr());
    advance(&server, 3600);
    assert_eq!(late.ask(b"AUTH secret\r\n"), "+OK");
}

#[test]
fn a_subscriber_behind_by_more_than_eight_mebibytes_has_a_minute_to_catch_up() {
    let server = Server::builder().manual_clock(START).start_blocking().unwrap();
    let [mut publisher, mut slow] = [(); 2].map(|()| Peer::to(server.addr()));
    slow.send(b"SUBSCRIBE news\r\n");
    (0..6).for_each(|_| drop(slow.line()));
    let message = "m".repeat(MIB);
    // Kernel buffers are not the server's memory: the output fits neither twice there nor once into 32 MiB.
    for _ in 0..24 {
        publisher.send(format!("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n${MIB}\r\n{message}\r\n").as_bytes());
        assert_eq!(publisher.line(), ":1");
    }
    advance(&server, 60);
    assert_eq!(publisher.ask(b"PUBLISH news hello\r\n"), ":1");
    advance(&server, 1);
    assert_eq!(publisher.ask(b"PUBLISH news hello\r\n"), ":0");
}
