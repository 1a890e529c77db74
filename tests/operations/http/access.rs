//! Who gets an answer: hosts, passwords, tokens, methods.

use super::server;
use crate::support::http::{HttpClient, HttpReply, get};

/// "Authorization: Basic" for a name and a password.
pub(super) fn basic(pair: &str) -> String {
    use std::fmt::Write as _;
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in pair.as_bytes().chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        for at in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize]);
            write!(text, "{}", if at > chunk.len() { '=' } else { digit }).unwrap();
        }
    }
    format!("Authorization: Basic {text}\r\n")
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn every_response_tells_browsers_to_load_nothing_from_elsewhere_and_to_keep_nothing() {
    let server = server(&[]);
    for path in ["/healthz", "/metrics", "/nowhere"] {
        let reply = get(server.http_addr(), path);
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("x-frame-options", "DENY"),
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}: {name}");
        }
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'self';"), "{path}: {policy}");
    }
}

#[test]
fn unknown_paths_and_methods_are_refused_on_a_connection_that_goes_on() {
    let server = server(&[]);
    let mut client = HttpClient::to(server.http_addr());
    assert_eq!(client.ask("GET", "/nowhere", "").status, 404);
    assert_eq!(client.ask("GET", "/healthz/", "").status, 404);
    let reply = client.ask("POST", "/healthz", "Content-Length: 0\r\n");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")));
    let reply = client.ask("HEAD", "/healthz", "");
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("3")));
    assert_eq!(client.ask("GET", "/healthz?from=probe", "").status, 200);
}

#[test]
fn a_request_for_another_host_is_refused() {
    let server = server(&[("http-bind", "127.0.0.1 locks.example.com")]);
    let ask = |host: &str| -> HttpReply {
        let mut client = HttpClient::to(server.http_addr());
        client.send(format!("GET /healthz HTTP/1.1\r\n{host}\r\n").as_bytes());
        client.reply(true)
    };
    for host in ["localhost", "127.0.0.1:9", "[::1]:9", "LOCKS.example.com"] {
        assert_eq!(ask(&format!("Host: {host}\r\n")).status, 200, "{host}");
    }
    let reply = ask("Host: evil.example\r\n");
    assert_eq!(reply.status, 421);
    assert!(reply.body.contains("http-bind"), "{}", reply.body);
    for hosts in ["", "Host: localhost\r\nHost: evil.example\r\n"] {
        assert_eq!(ask(hosts).status, 400, "{hosts}");
    }
}

#[test]
fn health_is_open_and_figures_need_the_token() {
    let server = server(&[("http-token", "open sesame")]);
    let ask = |path: &str, headers: &str| HttpClient::to(server.http_addr()).ask("GET", path, headers);
    assert_eq!(ask("/healthz", "").status, 200);
    assert_eq!(ask("/readyz", "").status, 200);
    for shown in [
        String::new(),
        bearer("open"),
        bearer("open sesame!"),
        bearer(""),
        basic("default:"),
        basic("default:wrong"),
        basic("open sesame"),
        "Authorization: open sesame\r\n".to_owned(),
        "Authorization: Basic !!!\r\n".to_owned(),
    ] {
        let reply = ask("/metrics", &shown);
        assert_eq!(reply.status, 401, "{shown}");
        assert!(reply.header("www-authenticate").unwrap().starts_with("Basic "), "{shown}");
    }
    for shown in [bearer("open sesame"), basic("anyone:open sesame"), basic(":open sesame")] {
        assert_eq!(ask("/metrics", &shown).status, 200, "{shown}");
    }
}

#[test]
fn a_password_is_asked_for_where_lock_clients_need_one() {
    let server = redlatch::Server::builder()
        .set("http-port", "auto")
        .password("secret")
        .user("operator", ["on", ">spanner", "~*", "&*", "+@all"])
        .user("worker", ["on", ">shovel", "~lock:*", "+@all"])
        .user("guest", ["on", "nopass", "~*", "&*", "+@all"])
        .start_blocking()
        .unwrap();
    let ask = |headers: &str| HttpClient::to(server.http_addr()).ask("GET", "/metrics", headers).status;
    for (pair, status) in [
        ("default:secret", 200),
        (":secret", 200),
        ("operator:spanner", 200),
        ("worker:shovel", 403),
        ("guest:", 401),
        ("operator:secret", 401),
        ("nobody:secret", 401),
    ] {
        assert_eq!(ask(&basic(pair)), status, "{pair}");
    }
    assert_eq!((ask(""), ask(&bearer("secret"))), (401, 401));
}

#[test]
fn a_token_that_is_set_while_the_server_runs_is_asked_for_at_once() {
    let server = server(&[]);
    let mut client = HttpClient::to(server.http_addr());
    assert_eq!(client.ask("GET", "/metrics", "").status, 200);
    let mut peer = crate::support::stream::Peer::to(server.addr());
    assert_eq!(peer.ask(b"CONFIG SET http-token new\r\n"), "+OK");
    assert_eq!(client.ask("GET", "/metrics", "").status, 401);
    assert_eq!(client.ask("GET", "/metrics", &bearer("new")).status, 200);
}
