//! Wrong passwords: from an address with many, the next login is looked at later, on the server's clock.

use std::time::Duration;

use redlatch::{Server, WallTime};

use super::fixture::Peer;
use crate::support::waits::wait_until;
use crate::support::words::info_field;

/// Wrong passwords that delay nothing.
const FREE: usize = 30;

/// A server that wants a password, and whose clock the test moves; and a client that has logged in.
fn server(settings: &[(&str, &str)]) -> (Server, Peer) {
    let builder = Server::builder().password("secret").set("login-timeout", "0");
    let builder = settings.iter().fold(builder, |builder, (name, value)| builder.set(*name, *value));
    let server = builder.manual_clock(WallTime::from_millis(1_700_000_000_000)).start_blocking().unwrap();
    let mut known = Peer::to(server.addr());
    assert_eq!(known.ask(b"AUTH secret\r\n"), "+OK");
    (server, known)
}

fn advance(server: &Server, millis: u64) {
    server.clock().advance_blocking(Duration::from_millis(millis));
}

/// Guesses as often as it costs nothing.
fn use_up(server: &Server) {
    let mut peer = Peer::to(server.addr());
    for _ in 0..FREE {
        assert!(peer.ask(b"AUTH guess\r\n").starts_with("-WRONGPASS"));
    }
}

/// Asks until so many requests are held.
fn until_held(known: &mut Peer, count: u64) {
    wait_until("so many are held", || {
        info_field(&known.text(b"INFO clients\r\n"), "blocked_clients") == count
    });
}

#[test]
fn after_thirty_wrong_passwords_an_address_has_one_guess_a_second() {
    let (server, mut known) = server(&[]);
    use_up(&server);
    let mut guessers: Vec<Peer> = (0..5).map(|_| Peer::to(server.addr())).collect();
    for (at, guesser) in guessers.iter().enumerate() {
        let login = if at % 2 == 0 { "AUTH guess" } else { "HELLO 3 AUTH default guess" };
        guesser.send(format!("{login}\r\n").as_bytes());
    }
    until_held(&mut known, 5);
    advance(&server, 999);
    until_held(&mut known, 5);
    for left in (0..5).rev() {
        advance(&server, 1 + 999 * u64::from(left < 4));
        until_held(&mut known, left);
    }
    assert!(guessers.iter_mut().all(|guesser| guesser.line().starts_with("-WRONGPASS")));
}

#[test]
fn a_right_password_waits_no_longer_than_a_guess_and_costs_nothing() {
    let (server, mut known) = server(&[]);
    use_up(&server);
    let mut right: Vec<Peer> = (0..5).map(|_| Peer::to(server.addr())).collect();
    right.iter().for_each(|peer| peer.send(b"AUTH secret\r\nPING\r\n"));
    until_held(&mut known, 5);
    assert_eq!(known.ask(b"PING\r\n"), "+PONG", "who has logged in is served");
    advance(&server, 1_000);
    for peer in &mut right {
        assert_eq!([peer.line(), peer.line()], ["+OK", "+PONG"]);
    }
    // Every password of this minute is forgotten after as many seconds.
    advance(&server, 30_000);
    use_up(&server);
}

#[test]
fn a_guess_in_a_transaction_is_refused_unseen() {
    let (server, mut known) = server(&[]);
    assert_eq!(known.ask(b"MULTI\r\n"), "+OK");
    for _ in 0..FREE + 2 {
        assert_eq!(known.ask(b"AUTH guess\r\n"), "+QUEUED");
    }
    assert_eq!(known.ask(b"EXEC\r\n"), format!("*{}", FREE + 2));
    for _ in 0..FREE {
        assert!(known.line().starts_with("-WRONGPASS"));
    }
    for _ in 0..2 {
        assert!(known.line().starts_with("-ERR too many wrong passwords"));
    }
    drop(server);
}

#[test]
fn nothing_is_delayed_if_that_is_asked_for_or_by_the_backend_of_a_test() {
    for settings in [&[("login-delay", "0")][..], &[("enable-test-commands", "yes")]] {
        let (server, mut known) = server(settings);
        (0..3).for_each(|_| use_up(&server));
        let mut next = Peer::to(server.addr());
        assert_eq!(next.ask(b"AUTH secret\r\n"), "+OK", "{settings:?}");
        assert_eq!(known.ask(b"PING\r\n"), "+PONG");
    }
}

#[test]
fn a_client_that_leaves_while_its_login_is_held_is_gone() {
    let (server, mut known) = server(&[]);
    use_up(&server);
    let guesser = Peer::to(server.addr());
    guesser.send(b"AUTH guess\r\n");
    until_held(&mut known, 1);
    drop(guesser);
    until_held(&mut known, 0);
}

#[test]
#[cfg(feature = "http")]
fn http_refuses_guesses_that_come_too_fast() {
    use crate::support::http::HttpClient;

    let (server, mut known) = server(&[("http-port", "auto")]);
    // In base64: ":guess", ":secret".
    let [wrong, right] = ["Omd1ZXNz", "OnNlY3JldA=="].map(|pair| format!("Authorization: Basic {pair}\r\n"));
    let mut client = HttpClient::to(server.http_addr());
    for _ in 0..FREE {
        assert_eq!(client.ask("GET", "/metrics", &wrong).status, 401);
    }
    let reply = client.ask("GET", "/metrics", &right);
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    assert_eq!(client.ask("GET", "/healthz", "").status, 200, "probes show no password");
    assert_eq!(known.ask(b"PING\r\n"), "+PONG");
    advance(&server, 1_000);
    assert_eq!(client.ask("GET", "/metrics", &right).status, 200);
}
