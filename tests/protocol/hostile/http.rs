//! HTTP peers that misbehave: many, slow, too large, out of step. They are bounded, and lock clients do not notice them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::fixture::{Fixture, costs_at_most};
use crate::support::http::{HttpClient, get};
use crate::support::waits::wait_until;

/// Connections that HTTP serves at the same time.
const CONNECTIONS_MAX: usize = 64;
/// Requests that may wait for a lock at the same time.
const WAITS_MAX: usize = 256;
/// Bytes of a request without its body.
const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a request's body.
const BODY_BYTES_MAX: usize = 16 * 1024;

fn fixture() -> Fixture {
    Fixture::with(&[("http-port", "auto"), ("http-admin", "yes")])
}

/// All that the server sends to a connection that has sent this.
fn answer_to(fixture: &Fixture, bytes: &[u8]) -> String {
    let mut client = HttpClient::to(fixture.server.http_addr());
    let mut answer = Vec::new();
    // The server may close before it has read everything.
    let _ = client.0.get_mut().write_all(bytes);
    let _ = client.0.get_mut().shutdown(std::net::Shutdown::Write);
    let _ = client.0.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn idle_and_slow_connections_keep_no_probe_out() {
    let mut fixture = fixture();
    let address = fixture.server.http_addr();
    let mut idle: Vec<HttpClient> = (0..CONNECTIONS_MAX).map(|_| HttpClient::to(address)).collect();
    for (n, client) in idle.iter_mut().enumerate() {
        match n % 3 {
            0 => {}
            1 => client.send(b"GET /healthz HTTP/1.1\r\nHost: loc"),
            _ => assert_eq!(client.ask("GET", "/healthz", "").status, 200),
        }
    }
    let mut probe = HttpClient::to(address);
    assert_eq!(probe.ask("GET", "/healthz", "").status, 200);
    assert!(idle[0].has_ended(), "it has waited for the longest");
    assert_eq!(idle[2].ask("GET", "/healthz", "").status, 200);
    // More than twice as many as there are places: each peer gets one, and the last ones keep theirs.
    let mut later: Vec<HttpClient> = (0..3 * CONNECTIONS_MAX).map(|_| HttpClient::to(address)).collect();
    assert_eq!(later.last_mut().unwrap().ask("GET", "/healthz", "").status, 200);
    assert!(probe.has_ended());
    fixture.goes_on();
}

#[test]
fn connections_beyond_the_limit_get_a_503_and_places_come_back() {
    const HALF: &[u8] = b"POST /api/break HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{";
    let mut fixture = fixture();
    let address = fixture.server.http_addr();
    let mut served: Vec<HttpClient> = (0..CONNECTIONS_MAX).map(|_| HttpClient::to(address)).collect();
    for client in &mut served {
        // The second request has begun when the first is answered.
        client.send(&[&b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], HALF].concat());
        assert_eq!(client.reply(true).status, 200);
    }
    for _ in 0..3 {
        let mut refused = HttpClient::to(address);
        let reply = refused.reply(true);
        assert_eq!((reply.status, reply.header("connection")), (503, Some("close")));
    }
    fixture.goes_on();
    drop(served.pop());
    until_served(address);
    served[0].send(b"}");
    assert_eq!(served[0].reply(true).status, 400);
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    costs_at_most(16, |look| {
        let mut fixture = fixture();
        let address = fixture.server.http_addr();
        let mut open = std::collections::VecDeque::new();
        for n in 0..10_000 {
            let mut stream = TcpStream::connect(address).expect("the server accepts");
            let _ = stream.write_all(if n % 2 == 0 { b"GET /metrics HT" } else { b"\x16\x03\x01\xff" });
            open.push_back(stream);
            if open.len() > 100 {
                open.pop_front();
            }
            if n % 1_000 == 0 {
                fixture.goes_on();
                look();
            }
        }
        drop(open);
        until_served(address);
        fixture.goes_on();
    });
}

#[test]
fn requests_that_wait_for_a_lock_keep_no_probe_out() {
    costs_at_most(32, |look| {
        let mut fixture = fixture();
        let address = fixture.server.http_addr();
        let ask = |client: &mut HttpClient, owner: usize| {
            let body = format!(r#"{{"action": "take", "owner": "{owner}", "wait_ms": 600000}}"#);
            client.post("/api/locks/held", "", &body);
        };
        assert_eq!(fixture.bystander.ask(b"SET held me NX PX 3600000\r\n"), "+OK");
        let mut waiting = Vec::new();
        for owner in 0..WAITS_MAX {
            let mut client = HttpClient::to(address);
            ask(&mut client, owner);
            waiting.push(client);
        }
        fixture.until("lock_waiters", |waiters| waiters == WAITS_MAX as u64);
        let mut further = HttpClient::to(address);
        ask(&mut further, WAITS_MAX);
        assert_eq!(further.reply(true).status, 503);
        let mut idle: Vec<HttpClient> = (0..CONNECTIONS_MAX).map(|_| HttpClient::to(address)).collect();
        assert_eq!(idle.last_mut().unwrap().ask("GET", "/healthz", "").status, 200);
        fixture.goes_on();
        look();
        drop(waiting.split_off(1));
        fixture.until("lock_waiters", |waiters| waiters == 1);
        assert_eq!(fixture.bystander.ask(b"DEL held\r\n"), ":1");
        assert_eq!(waiting[0].reply(true).status, 200);
        ask(&mut waiting[0], 0);
        assert_eq!(waiting[0].reply(true).status, 200, "and asks again on the same connection");
        fixture.goes_on();
    });
}

/// Asks for the health of the server until a connection is served.
fn until_served(address: SocketAddr) {
    let ask = || {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").ok()?;
        let mut head = [0; b"HTTP/1.0 200".len()];
        stream.read_exact(&mut head).ok()?;
        Some(head.ends_with(b" 200"))
    };
    wait_until("a place comes back", || ask() == Some(true));
}

#[test]
fn what_is_no_request_is_answered_with_an_error_and_a_closed_connection() {
    let mut fixture = fixture();
    for garbage in [
        &b"\x00\x01\x02\xff\xfe\r\n\r\n"[..],
        b"*1\r\n$4\r\nPING\r\n",
        b"GET /healthz HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5, 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ] {
        let answer = answer_to(&fixture, garbage);
        let shown = garbage.escape_ascii();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}: {answer}");
    }
    fixture.goes_on();
}

#[test]
fn garbage_behind_a_request_ends_the_pipeline_after_its_response() {
    let fixture = fixture();
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = answer_to(&fixture, format!("{request}{request}\x01garbage\r\n\r\n{request}").as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 2, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 400").count(), 1, "{answer}");
    assert!(answer.trim_end().rsplit("HTTP/1.1").next().unwrap().starts_with(" 400"), "{answer}");
}

#[test]
fn a_long_pipeline_is_answered_in_order() {
    const REQUESTS: usize = 10_000;
    let mut fixture = fixture();
    let mut client = HttpClient::to(fixture.server.http_addr());
    let mut sender = client.0.get_ref().try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        for n in 0..REQUESTS {
            let path = if n % 3 == 0 { "readyz" } else { "healthz" };
            let request = format!("GET /{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            sender.write_all(request.as_bytes()).expect("the server keeps reading");
        }
    });
    for n in 0..REQUESTS {
        assert_eq!(client.reply(true).body, if n % 3 == 0 { "ready\n" } else { "ok\n" });
    }
    writer.join().unwrap();
    fixture.goes_on();
}

#[test]
fn heads_and_bodies_have_a_limit() {
    let mut fixture = fixture();
    // Just beyond a limit, so that the server has read everything when it closes, and the system passes its answer on.
    let refused = |bytes: String| {
        let mut client = HttpClient::to(fixture.server.http_addr());
        client.send(bytes.as_bytes());
        let reply = client.reply(true);
        assert!(client.has_ended(), "{}", reply.head);
        reply.status
    };
    let head = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n";
    assert_eq!(refused(format!("{head}X: {}", "x".repeat(HEAD_BYTES_MAX))), 431);
    assert_eq!(refused(format!("GET /{}", "x".repeat(HEAD_BYTES_MAX))), 431);
    assert_eq!(refused(format!("{head}{}\r\n", "A: b\r\n".repeat(64))), 431, "too many headers");
    // Only a route that reads a body waits for one.
    assert_eq!(refused(format!("{head}Content-Length: 1\r\n\r\n")), 413);
    let head = "POST /api/break HTTP/1.1\r\nHost: localhost\r\n";
    assert_eq!(refused(format!("{head}Content-Length: {}\r\n\r\n", BODY_BYTES_MAX + 1)), 413);
    let chunk = format!("{BODY_BYTES_MAX:x}\r\n{}\r\n", "x".repeat(BODY_BYTES_MAX));
    assert_eq!(refused(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}1\r\nx")), 413);

    let mut client = HttpClient::to(fixture.server.http_addr());
    let most = format!("Content-Length: {BODY_BYTES_MAX}\r\n\r\n{}", "x".repeat(BODY_BYTES_MAX));
    client.send(format!("{head}{most}").as_bytes());
    assert_eq!(client.reply(true).status, 400);
    fixture.goes_on();
}

#[test]
fn a_peer_that_reads_nothing_costs_little() {
    costs_at_most(32, |look| {
        let mut fixture = fixture();
        let mut peers = Vec::new();
        for _ in 0..16 {
            let stream = TcpStream::connect(fixture.server.http_addr()).unwrap();
            stream.set_nonblocking(true).unwrap();
            // Until both buffers of the system are full: the server does not read what it cannot answer.
            let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
            while (&stream).write_all(&request).is_ok() {}
            peers.push(stream);
        }
        fixture.goes_on();
        assert_eq!(get(fixture.server.http_addr(), "/healthz").status, 200);
        look();
    });
}

#[test]
fn a_script_that_holds_the_keyspace_keeps_no_probe_waiting() {
    let fixture = fixture();
    let mut busy = fixture.peer();
    busy.send(b"SET k v\r\nEVAL 'redis.call(\"GET\", \"k\") while true do end' 0\r\n");
    assert_eq!(busy.line(), "+OK");
    let mut scraper = HttpClient::to(fixture.server.http_addr());
    // The script runs once SCRIPT KILL would find it; a kill that comes too early answers NOTBUSY.
    scraper.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(get(fixture.server.http_addr(), "/healthz").status, 200);
    let mut killer = fixture.peer();
    wait_until("a script runs", || killer.ask(b"SCRIPT KILL\r\n") == "+OK");
    let answer = busy.line();
    assert!(answer.starts_with("-ERR ") && answer.contains("killed"), "{answer}");
    assert_eq!(scraper.reply(true).status, 200);
}
