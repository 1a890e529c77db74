//! The audit log, in real files and on the error stream of a process.
//!
//! Belongs here  what a line has and when it is written. The form of a line, and what happens beyond the limits, is tested in
//!               `state::audit` and `server::audit_log`.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::Read;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::binary::{Directory, Running, redlatch};

/// The lines of a file.
fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A line without its time, its address and the number of its client, which are checked.
fn checked(line: &Value) -> Value {
    let mut line = line.clone();
    let object = line.as_object_mut().unwrap();
    assert!(object.remove("time").unwrap().as_u64() > Some(1_700_000_000_000));
    assert!(object.remove("addr").unwrap().as_str().unwrap().starts_with("127.0.0.1:"));
    assert!(object.remove("client").unwrap().is_u64());
    line
}

fn start(directory: &Directory, more: &[&str]) -> Running {
    let path = directory.path("audit.log");
    Running::start(redlatch().args(["--port", "auto", "--audit-log", &path]).args(more))
}

#[test]
fn each_line_says_who_has_done_what_from_where_and_none_has_a_password() {
    let directory = Directory::new();
    let acl = directory.write("users.acl", "user default on nopass ~* &* +@all\n");
    let server = start(&directory, &["--aclfile", &acl]);
    for (request, reply) in [
        ("ACL SETUSER ops on >secret1 ~* &* +@all", "+OK"),
        ("AUTH ops guess", "-WRONGPASS"),
        ("AUTH secret2 guess", "-WRONGPASS"),
        ("CONFIG SET nonsense 1", "-ERR"),
        ("SET lock:a me NX PX 60000", "+OK"),
        ("LOCK.BREAK lock:a TOKEN 7 REASON stuck", ":0"),
        ("LOCK.BREAK lock:a TOKEN 1 REASON stuck", ":1"),
        ("HELLO 2 AUTH ops secret1", "*14"),
        ("CONFIG SET http-token secret3 lock-lease 1000", "+OK"),
        ("CONFIG RESETSTAT", "+OK"),
        ("LOCK.LINT RESET", "+OK"),
        ("SLOWLOG RESET", "+OK"),
        ("LATENCY RESET", ":0"),
        ("ACL LOG RESET", "+OK"),
        ("ACL SAVE", "+OK"),
        ("ACL LOAD", "+OK"),
        ("ACL DELUSER ops nobody", ":1"),
        ("GET lock:a", "$-1"),
    ] {
        let answer = server.ask(request);
        assert!(answer.starts_with(reply), "{request}: {answer}");
    }
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));

    let path = directory.path("audit.log");
    let seen: Vec<Value> = lines(&path).iter().map(checked).collect();
    let by_default = |event: &str, fields: Value| {
        let mut line = json!({ "event": event, "user": "default" });
        line.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        line
    };
    let reset = |of: &str| by_default("reset", json!({ "of": of }));
    let rules = ["on", ">(hidden)", "~*", "&*", "+@all"];
    let expected = [
        by_default("acl-setuser", json!({ "name": "ops", "rules": rules })),
        by_default("login-failed", json!({ "name": "ops" })),
        by_default("login-failed", json!({ "name": null })),
        by_default("break", json!({ "key": "lock:a", "token": 1, "reason": "stuck" })),
        json!({ "event": "login", "user": "ops" }),
        by_default("config-set", json!({ "settings": ["http-token (hidden)", "lock-lease 1000"] })),
        reset("CONFIG RESETSTAT"),
        reset("LOCK.LINT"),
        reset("SLOWLOG"),
        reset("LATENCY"),
        reset("ACL LOG"),
        by_default("acl-save", json!({})),
        by_default("acl-load", json!({})),
        by_default("acl-deluser", json!({ "names": ["ops"] })),
    ];
    assert_eq!(seen, expected);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains("secret") && !text.contains("guess"), "{text}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_was_renamed_is_left_on_sighup() {
    let directory = Directory::new();
    let mut server = start(&directory, &[]);
    assert_eq!(server.ask("SLOWLOG RESET"), "+OK\r\n");
    let (path, old) = (directory.path("audit.log"), directory.path("audit.old"));
    std::fs::rename(&path, &old).unwrap();
    server.signal("HUP");
    server.wait_for("Certificates are reloaded");
    assert_eq!(server.ask("ACL LOG RESET"), "+OK\r\n");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    let of = |path: &str| lines(path).iter().map(|line| line["of"].clone()).collect::<Vec<_>>();
    // The thread that writes may have had the first line left when the file was renamed.
    assert_eq!([of(&old), of(&path)].concat(), ["SLOWLOG", "ACL LOG"]);
    assert!(of(&path).ends_with(&["ACL LOG".into()]));
}

#[test]
fn it_goes_to_the_standard_error_if_that_is_asked_for() {
    let mut command = redlatch();
    command.args(["--port", "auto", "--audit-log", "stderr"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Running::wait(command.spawn().unwrap());
    let mut said = server.process.stderr.take().unwrap();
    assert_eq!(server.ask("SLOWLOG RESET"), "+OK\r\n");
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(checked(&line), json!({ "event": "reset", "user": "default", "of": "SLOWLOG" }));
}

#[test]
fn a_disk_that_is_full_delays_and_fails_no_request() {
    let server = Running::start(redlatch().args(["--port", "auto", "--audit-log", "/dev/full"]));
    for _ in 0..3 {
        assert_eq!(server.ask("SLOWLOG RESET"), "+OK\r\n");
    }
    server.signal("TERM");
    let (code, log) = server.end_with_log();
    assert_eq!(code, Some(0));
    assert_eq!(log.matches("The audit log cannot be written").count(), 1, "{log}");
}

#[test]
fn a_server_of_the_library_has_one_if_it_is_asked_for() {
    let directory = Directory::new();
    let path = directory.path("audit.log");
    let server = redlatch::Server::builder().set("audit-log", &path).start_blocking().unwrap();
    let answer =
        crate::support::binary::ask(std::net::TcpStream::connect(server.addr()).unwrap(), "SLOWLOG RESET");
    assert_eq!(answer, "+OK\r\n");
    server.stop();
    server.join();
    assert_eq!(checked(&lines(&path)[0]), json!({ "event": "reset", "user": "default", "of": "SLOWLOG" }));

    let refused = redlatch::Server::builder().set("audit-log", "/").start_blocking().unwrap_err();
    assert!(refused.to_string().starts_with("audit-log '/': "), "{refused}");
}

#[test]
#[cfg(feature = "http")]
fn a_break_and_a_wrong_password_by_http_have_the_user_and_the_address_of_the_request() {
    let directory = Directory::new();
    let path = directory.path("audit.log");
    let builder = redlatch::Server::builder().set("http-port", "auto").set("http-admin", "yes");
    let server = builder.password("secret").set("audit-log", &path).start_blocking().unwrap();
    let mut peer = crate::support::stream::Peer::to(server.addr());
    assert_eq!(peer.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(peer.ask(b"SET lock:a me NX PX 60000\r\n"), "+OK");
    let body = json!({ "key": "lock:a", "token": 1, "reason": "stuck" }).to_string();
    // In base64: ":guess", ":secret".
    for (pair, status) in [("Omd1ZXNz", 401), ("OnNlY3JldA==", 200)] {
        let mut client = crate::support::http::HttpClient::to(server.http_addr());
        let head = format!("Authorization: Basic {pair}\r\nContent-Length: {}\r\n", body.len());
        client.send(format!("POST /api/break HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{body}").as_bytes());
        assert_eq!(client.reply(true).status, status);
    }
    server.stop();
    server.join();
    let found = lines(&path);
    let seen: Vec<Value> = found.iter().map(checked).collect();
    let expected = [
        json!({ "event": "login", "user": "default" }),
        json!({ "event": "login-failed", "user": "", "name": null }),
        json!({ "event": "break", "user": "default", "key": "lock:a", "token": 1, "reason": "stuck" }),
    ];
    assert_eq!(seen, expected);
    assert_eq!((&found[1]["client"], &found[2]["client"]), (&json!(0), &json!(0)));
}
