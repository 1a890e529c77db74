//! Wrong passwords: from an address with many, the next login is looked at later, on the server's clock.

use std::ops::Range;
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

/// Guesses something else for each number.
fn guess(server: &Server, numbers: Range<usize>) {
    let mut peer = Peer::to(server.addr());
    for n in numbers {
        assert!(peer.ask(format!("AUTH guess-{n}\r\n").as_bytes()).starts_with("-WRONGPASS"));
    }
}

/// Guesses as often as it costs nothing.
fn use_up(server: &Server) {
    guess(server, 0..FREE);
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
        let login = if at % 2 == 0 { "AUTH other" } else { "HELLO 3 AUTH default other" };
        guesser.send(format!("{login}-{at}\r\n").as_bytes());
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
    guess(&server, 100..100 + FREE);
}

#[test]
fn a_new_connection_waits_for_one_delay_though_twenty_guess_in_loops() {
    let (server, mut known) = server(&[]);
    let mut guessers: Vec<Peer> = (0..20).map(|_| Peer::to(server.addr())).collect();
    for (n, guesser) in guessers.iter_mut().enumerate() {
        assert!(guesser.ask(format!("AUTH first-{n}\r\n").as_bytes()).starts_with("-WRONGPASS"));
    }
    guess(&server, 20..FREE);
    for (n, guesser) in guessers.iter().enumerate() {
        (0..9).for_each(|next| guesser.send(format!("AUTH next-{next}-{n}\r\n").as_bytes()));
    }
    until_held(&mut known, 20);
    for round in 1..=3 {
        let right = Peer::to(server.addr());
        right.send(b"AUTH secret\r\n");
        until_held(&mut known, 21);
        advance(&server, 1_000);
        assert_eq!({ right }.line(), "+OK");
        // A right one costs nothing, so that a guess is looked at as well.
        until_held(&mut known, 20);
        assert_eq!(info_field(&known.text(b"INFO stats\r\n"), "acl_access_denied_auth"), 30 + round);
    }
}

#[test]
fn a_guess_in_a_transaction_is_refused_unseen() {
    let (server, mut known) = server(&[]);
    assert_eq!(known.ask(b"MULTI\r\n"), "+OK");
    for n in 0..FREE + 2 {
        assert_eq!(known.ask(format!("AUTH guess-{n}\r\n").as_bytes()), "+QUEUED");
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
fn a_wrong_password_that_is_repeated_is_no_guess_and_delays_nobody() {
    let (server, mut known) = server(&[]);
    // A pool with the password of yesterday, and users that do not exist.
    let mut pool: Vec<Peer> = (0..5).map(|_| Peer::to(server.addr())).collect();
    for n in 0..200 {
        let peer = &mut pool[n % 5];
        assert!(peer.ask(b"AUTH yesterday\r\n").starts_with("-WRONGPASS"));
        assert!(peer.ask(b"HELLO 3 AUTH nobody yesterday\r\n").starts_with("-WRONGPASS"));
    }
    assert_eq!(Peer::to(server.addr()).ask(b"AUTH secret\r\n"), "+OK");
    // Also where guesses are delayed it is refused at once, and a right one waits for guesses alone.
    guess(&server, 2..FREE);
    for n in 0..200 {
        let peer = &mut pool[n % 5];
        assert!(peer.ask(b"AUTH yesterday\r\n").starts_with("-WRONGPASS"));
    }
    let right = Peer::to(server.addr());
    right.send(b"AUTH secret\r\n");
    until_held(&mut known, 1);
    advance(&server, 1_000);
    until_held(&mut known, 0);
    assert_eq!({ right }.line(), "+OK");
}

#[test]
fn a_wrong_password_that_becomes_the_right_one_is_looked_at() {
    let (server, mut known) = server(&[]);
    let mut peer = Peer::to(server.addr());
    for _ in 0..2 {
        assert!(peer.ask(b"AUTH next\r\n").starts_with("-WRONGPASS"));
        assert!(peer.ask(b"AUTH alice next\r\n").starts_with("-WRONGPASS"));
    }
    assert_eq!(known.ask(b"CONFIG SET requirepass next\r\n"), "+OK");
    assert_eq!(known.ask(b"ACL SETUSER alice on >next ~* +@all\r\n"), "+OK");
    assert_eq!(peer.ask(b"AUTH next\r\n"), "+OK");
    assert_eq!(peer.ask(b"AUTH alice next\r\n"), "+OK");
    // The password of another user stays wrong, and more than are remembered are looked at again.
    assert!(peer.ask(b"AUTH bob next\r\n").starts_with("-WRONGPASS"));
    let last = (0..100).map(|n| peer.ask(format!("AUTH alice {}\r\n", n % 20).as_bytes())).last().unwrap();
    assert!(last.starts_with("-WRONGPASS"));
}

#[test]
fn distinct_guesses_are_looked_at_once_a_second_whatever_comes_between() {
    let (server, mut known) = server(&[]);
    use_up(&server);
    let guessers: Vec<Peer> = (0..40).map(|_| Peer::to(server.addr())).collect();
    for (n, guesser) in guessers.iter().enumerate() {
        guesser.send(format!("AUTH other-{n}\r\n").as_bytes());
    }
    let mut repeater = Peer::to(server.addr());
    for left in (30..40).rev() {
        advance(&server, 1_000);
        until_held(&mut known, left);
        assert!(repeater.ask(b"AUTH guess-29\r\n").starts_with("-WRONGPASS"), "it was looked at before");
    }
}

#[test]
fn nothing_is_delayed_if_that_is_asked_for_or_by_the_backend_of_a_test() {
    for settings in [&[("login-delay", "0")][..], &[("enable-test-commands", "yes")]] {
        let (server, mut known) = server(settings);
        guess(&server, 0..3 * FREE);
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
    // The same one again is no guess, whatever waits.
    for _ in 0..2 * FREE {
        assert_eq!(client.ask("GET", "/metrics", &wrong).status, 401);
    }
    assert_eq!(client.ask("GET", "/metrics", &right).status, 200);
    guess(&server, 1..FREE);
    assert_eq!(client.ask("GET", "/metrics", &wrong).status, 401);
    let reply = client.ask("GET", "/metrics", &right);
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")));
    assert_eq!(client.ask("GET", "/healthz", "").status, 200, "probes show no password");
    assert_eq!(known.ask(b"PING\r\n"), "+PONG");
    advance(&server, 1_000);
    assert_eq!(client.ask("GET", "/metrics", &right).status, 200);
}
