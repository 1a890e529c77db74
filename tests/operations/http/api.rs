//! `/api` and the page: what the engine tells, as JSON.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use redlatch::Server;
use serde_json::{Value, json};

use super::{post, server, told, value};
use crate::support::binary::{Directory, redlatch};
use crate::support::http::{HttpClient, get};
use crate::support::stream::Peer;
use crate::support::waits::wait_until;

/// A client of the server with these locks.
fn holder(server: &Server, keys: &[&str]) -> Peer {
    let mut peer = Peer::to(server.addr());
    for key in keys {
        assert_eq!(peer.ask(format!("SET {key} owner:{key} NX PX 60000\r\n").as_bytes()), "+OK");
    }
    peer
}

#[test]
fn locks_are_listed_page_by_page_and_filtered() {
    let server = server(&[]);
    let _holder = holder(&server, &["lock:a", "lock:b", "other"]);
    for count in ["0", "1001", "-1", "many"] {
        let reply = get(server.http_addr(), &format!("/api/locks?count={count}"));
        assert!(reply.status == 400 && reply.body.contains("from 1 to 1000"), "{count}: {reply:?}");
    }
    let all = told(&server, "/api/locks?count=1000");
    assert_eq!((all["cursor"].as_str(), all["locks"].as_array().map(Vec::len)), (Some("0"), Some(3)));
    let one = told(&server, "/api/locks?match=*%3Aa&count=1000");
    let lock = &one["locks"][0];
    assert_eq!((&lock["key"], &lock["holders"][0]["owner"]), (&json!("lock:a"), &json!("owner:lock:a")));
    assert_eq!(lock["holders"][0]["lease"], 60_000);
    for (path, count) in [
        ("owner=owner:other&count=1000", 1),
        ("held_longer_ms=3600000&count=1000", 0),
        ("held_longer_ms=0&count=1000", 3),
        ("waited_longer_ms=0&count=1000", 0),
    ] {
        let found = told(&server, &format!("/api/locks?{path}"));
        assert_eq!(found["locks"].as_array().map(Vec::len), Some(count), "{path}");
    }
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    loop {
        let page = told(&server, &format!("/api/locks?count=1&cursor={cursor}"));
        found += page["locks"].as_array().expect("locks").len();
        page["cursor"].as_str().expect("a cursor").clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 3);
}

#[test]
fn a_huge_key_or_value_hides_no_other_lock() {
    let server = server(&[]);
    let mut holder = holder(&server, &["lock:a", "lock:b"]);
    let huge = "x".repeat(17 * 1024 * 1024);
    let length = huge.len();
    holder.send(format!("*4\r\n$3\r\nSET\r\n${length}\r\n{huge}\r\n$1\r\nv\r\n$2\r\nNX\r\n").as_bytes());
    assert_eq!(holder.line(), "+OK");
    holder.send(format!("*4\r\n$3\r\nSET\r\n$6\r\nlock:c\r\n${length}\r\n{huge}\r\n$2\r\nNX\r\n").as_bytes());
    assert_eq!(holder.line(), "+OK");
    let keys = |locks: &Value| {
        let locks = locks.as_array().expect("locks");
        let mut keys: Vec<_> =
            locks.iter().map(|lock| lock["key"].as_str().expect("a key").to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&told(&server, "/api/locks?count=1000")["locks"]), ["lock:a", "lock:b", "lock:c"]);
    let (name, snapshot) = event(&mut viewer(&server));
    assert_eq!((name.as_str(), &snapshot["cut"]), ("snapshot", &json!(false)));
    assert_eq!(keys(&snapshot["locks"]), ["lock:a", "lock:b", "lock:c"]);
    assert!(
        told(&server, "/api/lock?key=lock:c")["who"]["holders"][0]["owner"].as_str().unwrap().len() <= 1024
    );
}

#[test]
fn a_lock_is_told_with_its_waiters_and_its_history_also_if_its_key_is_no_text() {
    let server = server(&[]);
    let mut first = holder(&server, &[]);
    told(&server, "/api/lock?key=anything");
    let key = "\"lock:\\xff*\"";
    assert_eq!(first.ask(format!("SET {key} one NX PX 60000\r\n").as_bytes()), "+OK");
    assert_eq!(first.ask(format!("DEL {key}\r\n").as_bytes()), ":1");
    assert_eq!(first.ask(format!("SET {key} two NX PX 60000\r\n").as_bytes()), "+OK");
    let second = Peer::to(server.addr());
    second.send(format!("LOCK.ACQUIRE {key} three WAIT 60000\r\n").as_bytes());
    let lock = loop {
        let lock = told(&server, "/api/lock?key=lock%3A%FF*");
        if lock["waiting"] == 1 {
            break lock;
        }
    };
    assert_eq!((&lock["key"], &lock["key_base64"]), (&json!(r"lock:\xff*"), &json!("bG9jazr/Kg==")));
    assert_eq!(lock["who"]["holders"][0]["owner"], "two");
    assert_eq!(
        (&lock["waiters"][0]["owner"], &lock["waiters"][0]["how"]),
        (&json!("three"), &json!("queued"))
    );
    assert_eq!(
        (&lock["history"][0]["owner"], &lock["history"][0]["reason"]),
        (&json!("one"), &json!("released"))
    );
    assert!(lock["explain"][0].as_str().is_some_and(|told| told.starts_with("held by two")), "{lock}");
    let same = told(&server, "/api/lock?key_base64=bG9jazr%2FKg%3D%3D");
    assert_eq!(same["who"]["holders"][0]["token"], lock["who"]["holders"][0]["token"]);
    assert_eq!(told(&server, "/api/lock?key=lock:x")["history"], json!([]), "the star is no pattern");

    let graph = told(&server, "/api/graph");
    assert_eq!(graph["waits"][0]["held-by"], json!(["two"]));
    let contention = told(&server, "/api/contention");
    let key = &contention["keys"][0];
    assert_eq!(
        (&key["key_base64"], &key["waiters"], &key["holds"]),
        (&json!("bG9jazr/Kg=="), &json!(1), &json!(1))
    );
}

#[test]
fn bytes_that_are_not_utf_8_are_the_same_on_the_port_and_in_json_of_the_program() {
    let server = server(&[]);
    let mut first = holder(&server, &[]);
    let taken = r#"LOCK.ACQUIRE "lock:\xff" "me\xfe" META "job\xfd" "back\xfcup" job backup"#;
    assert!(first.ask(format!("{taken}\r\n").as_bytes()).starts_with('*'));
    let second = Peer::to(server.addr());
    second.send(b"LOCK.ACQUIRE \"lock:\\xff\" \"you\\xfe\" WAIT 60000\r\n");
    let graph = loop {
        let graph = told(&server, "/api/graph");
        if graph["total"] == 1 {
            break graph["waits"][0].clone();
        }
    };
    assert_eq!((&graph["held-by"], &graph["held-by_base64"]), (&json!([r"me\xfe"]), &json!(["bWX+"])));
    assert_eq!((&graph["owner"], &graph["owner_base64"]), (&json!(r"you\xfe"), &json!("eW91/g==")));

    let said = |arguments: &[&str]| {
        let mut command = redlatch();
        command.args(arguments).args(["--json", "--url", &server.url()]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let port = [
        told(&server, "/api/lock?key=lock%3A%FF")["who"].clone(),
        told(&server, "/api/locks?count=1000")["locks"][0].clone(),
    ];
    let program = [said(&["ls", "lock:*"])[0].clone(), said(&["watch", "--interval", "10ms"])];
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let mut told_by_who = names(&port[0]);
    assert!(told_by_who.insert("type".to_owned()), "LOCK.WHO tells it of a key that is no lock only");
    assert_eq!(names(&program[0]), told_by_who);
    assert_eq!(names(&program[0]["holders"][0]), names(&port[0]["holders"][0]));
    for lock in port.iter().chain(&program) {
        assert!(lock["waiters"] == 1 && lock["waited"].is_u64() && lock["polls"] == 0, "{lock}");
        let holder = &lock["holders"][0];
        assert_eq!((&lock["key"], &lock["key_base64"]), (&json!(r"lock:\xff"), &json!("bG9jazr/")), "{lock}");
        assert_eq!(
            (&holder["owner"], &holder["owner_base64"]),
            (&json!(r"me\xfe"), &json!("bWX+")),
            "{lock}"
        );
        assert_eq!(holder["meta"], json!({ "job": "backup", r"job\xfd": r"back\xfcup" }), "{lock}");
        let mut exact = holder["meta_base64"].as_array().unwrap().clone();
        exact.sort_by_key(Value::to_string);
        assert_eq!(exact, [json!(["am9i", "YmFja3Vw"]), json!(["am9i/Q==", "YmFja/x1cA=="])], "{lock}");
    }
}

#[test]
fn a_key_that_is_no_lock_is_told_with_its_type() {
    let server = server(&[]);
    assert_eq!(holder(&server, &[]).ask(b"RPUSH list x\r\n"), ":1");
    let list = told(&server, "/api/lock?key=list");
    assert_eq!((&list["who"]["kind"], &list["who"]["type"]), (&json!("none"), &json!("list")));
    assert_eq!(list["explain"], json!(["held by an unknown owner: not a lock, but a list, without a lease"]));
    assert_eq!(told(&server, "/api/locks")["locks"], json!([]));
}

#[test]
fn a_server_that_is_full_of_clients_is_looked_at_and_that_moves_no_figure_of_clients() {
    let server = server(&[("maxclients", "1"), ("maxclients-reserved", "0"), ("http-admin", "yes")]);
    let mut only = holder(&server, &["lock:a"]);
    let figures = || {
        // The bytes of a reply are counted after they are sent.
        let families = ["command", "connect", "error", "keyspace", "net_input", "rejected"];
        let text = server.metrics();
        let is_of_clients = |line: &&str| {
            let name = line.strip_prefix("redlatch_").unwrap_or_default();
            families.iter().any(|family| name.starts_with(family))
        };
        text.lines().filter(is_of_clients).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(only.ask(b"PING\r\n"), "+PONG");
    let before = figures();
    assert!(before.iter().any(|line| line == "redlatch_connections_received_total 1"), "{before:?}");

    for path in ["clients", "contention", "graph", "lint", "lock?key=lock:a", "lock?key=none", "locks"] {
        told(&server, &format!("/api/{path}"));
    }
    assert_eq!(event(&mut viewer(&server)).1["locks"][0]["key"], "lock:a");
    let body = json!({ "key": "lock:a", "token": 1 }).to_string();
    assert_eq!(value(&post(&server, "/api/break", "", &body)), json!({ "broken": true }));
    assert_eq!(figures(), before);
}

#[test]
fn lint_and_clients_are_told() {
    let server = server(&[("lock-lint", "yes")]);
    server.keys().set("lock:of-this-program", "me", None);
    assert_eq!(told(&server, "/api/lint")["findings"], json!([]), "it is no mistake of a client");
    let mut client = holder(&server, &[]);
    assert_eq!(client.ask(b"CLIENT SETNAME worker\r\n"), "+OK");
    assert_eq!(client.ask(b"SET lock:endless me NX\r\n"), "+OK");
    let lint = told(&server, "/api/lint");
    assert_eq!((&lint["enabled"], &lint["findings"][0]["rule"]), (&json!(true), &json!("no-lease")));
    assert_eq!(client.ask(b"CONFIG SET lock-lint no\r\n"), "+OK");
    let lint = told(&server, "/api/lint");
    let rules = [&lint["findings"][0]["rule"], &lint["findings"][1]["rule"]];
    assert_eq!((&lint["enabled"], rules), (&json!(false), [&json!("off"), &json!("no-lease")]));
    let clients = told(&server, "/api/clients");
    assert_eq!((&clients["total"], &clients["clients"][0]["name"]), (&json!(1), &json!("worker")));
    assert!(clients["clients"][0]["id"].is_number(), "{clients}");
}

#[test]
fn a_lock_is_broken_with_its_token_alone_and_only_where_changes_are_allowed() {
    let body = |token: u64| json!({ "key": "lock:a", "token": token }).to_string();
    let closed = server(&[]);
    let _holder = holder(&closed, &["lock:a"]);
    assert_eq!(post(&closed, "/api/break", "", &body(1)).status, 403);
    assert_eq!(get(closed.http_addr(), "/api/break").status, 405);
    assert!(closed.keys().get("lock:a").is_some());

    let open = server(&[("http-admin", "yes")]);
    let _holder = holder(&open, &["lock:a"]);
    assert_eq!(post(&open, "/api/break", "Origin: http://evil.example\r\n", &body(1)).status, 403);
    for wrong in [
        "", "{}", "[]", "{\"key\":\"lock:a\"}", "{\"key\":7,\"token\":1}",
        "{\"key\":\"lock:a\",\"token\":-1}",
    ] {
        let reply = post(&open, "/api/break", "", wrong);
        assert_eq!(reply.status, 400, "{wrong}");
        assert!(value(&reply)["error"].is_string());
    }
    for (wrong, said) in [
        (r#"{"key":"lock:a","token":1,"token":2}"#, ": 'token' is given twice"),
        (r#"{"key":"lock:a","key_base64":"bG9jazph","token":1}"#, "key: is given twice, also as key_base64"),
    ] {
        let reply = post(&open, "/api/break", "", wrong);
        let error = value(&reply)["error"].clone();
        assert!(reply.status == 400 && error.as_str().is_some_and(|error| error.contains(said)), "{error}");
    }
    let refused = json!({ "broken": false, "free": false });
    assert_eq!(value(&post(&open, "/api/break", "", &body(2))), refused);
    assert!(open.keys().get("lock:a").is_some());
    assert_eq!(
        value(&post(&open, "/api/break", "Origin: http://localhost\r\n", &body(1))),
        json!({ "broken": true })
    );
    assert!(open.keys().get("lock:a").is_none());
    assert_eq!(value(&post(&open, "/api/break", "", &body(1))), json!({ "broken": false, "free": true }));
}

#[test]
fn who_has_broken_a_lock_is_told_by_user_and_address_also_of_a_request_by_http() {
    let server = server(&[("http-admin", "yes"), ("http-token", "secret")]);
    let _holder = holder(&server, &["lock:a", "lock:b"]);
    let mut client = holder(&server, &[]);
    assert_eq!(client.ask(b"ACL SETUSER ops on >pw ~* &* +@all\r\n"), "+OK");
    // In base64: "ops:pw".
    let basic = "Authorization: Basic b3BzOnB3\r\n".to_owned();
    let bearer = "Authorization: Bearer secret\r\n".to_owned();
    let body = |key: &str, token: u64| json!({ "key": key, "token": token, "reason": "stuck" }).to_string();
    for (login, key, token) in [(&basic, "lock:a", 1), (&bearer, "lock:b", 2)] {
        let reply = post(&server, "/api/break", login, &body(key, token));
        assert_eq!(value(&reply), json!({ "broken": true }));
    }

    let ends = |key: &str| {
        let path = format!("/api/lock?key={key}");
        value(&HttpClient::to(server.http_addr()).ask("GET", &path, &bearer))
    };
    let (by_user, by_token) = (ends("lock:a"), ends("lock:b"));
    let end = &by_user["history"][0];
    assert_eq!(
        (&end["by-user"], &end["text"], &end["by-id"]),
        (&json!("ops"), &json!("stuck"), &Value::Null)
    );
    assert!(end["by-addr"].as_str().is_some_and(|addr| addr.starts_with("127.0.0.1:")), "{end}");
    let told = by_user["explain"][1].as_str().unwrap_or_default();
    assert!(told.contains(" by ops from 127.0.0.1:") && told.ends_with(": stuck"), "{told}");
    assert_eq!(by_token["history"][0]["by-user"], "HTTP token");

    let long = json!({ "key": "lock:a", "token": 1, "reason": "x".repeat(257) }).to_string();
    assert_eq!(post(&server, "/api/break", &basic, &long).status, 400);
}

#[test]
fn a_break_is_in_the_journal_when_it_is_answered() {
    let (directory, copy) = (Directory::new(), Directory::new());
    let (written, copied) = (directory.path("data"), copy.path("data"));
    let server = server(&[("http-admin", "yes"), ("dir", &written)]);
    let _holder = holder(&server, &["lock:a", "lock:b"]);
    let body = json!({ "key": "lock:a", "token": 1 }).to_string();
    assert_eq!(value(&post(&server, "/api/break", "", &body)), json!({ "broken": true }));

    // What a crash would leave.
    assert!(Command::new("cp").args(["-r", &written, &copied]).status().expect("cp").success());
    let again = self::server(&[("dir", &copied)]);
    assert_eq!((again.keys().get("lock:a"), again.keys().get("lock:b").is_some()), (None, true));
}

#[test]
fn the_page_is_for_everybody_and_what_it_shows_is_not() {
    let server = server(&[("requirepass", "secret"), ("http-admin", "yes")]);
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/page.js", "text/javascript; charset=utf-8"),
        ("/style.css", "text/css; charset=utf-8"),
        ("/icon.svg", "image/svg+xml"),
    ] {
        let reply = get(server.http_addr(), path);
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(kind)), "{path}");
        // The leaders of other groups are told by the server.
        let mut hosts = reply.body.split("http://").skip(1);
        assert!(
            hosts.all(|rest| rest.starts_with("${")) || path == "/icon.svg",
            "{path} asks another server"
        );
    }
    for path in ["clients", "contention", "events", "graph", "groups", "lint", "lock?key=a", "locks"] {
        assert_eq!(get(server.http_addr(), &format!("/api/{path}")).status, 401, "{path}");
    }
    assert_eq!(post(&server, "/api/break", "", "{}").status, 401);
    // ":secret" in base64. HTTP has its own rights, whatever the default user may do.
    let login = "Authorization: Basic OnNlY3JldA==\r\n";
    let reply = HttpClient::to(server.http_addr()).ask("GET", "/api/locks", login);
    assert_eq!(value(&reply)["locks"], json!([]));
}

#[test]
fn what_a_route_does_not_know_is_a_bad_request() {
    let server = server(&[]);
    for path in [
        "locks?keys=a", "locks?count=1001", "locks?count=1&count=2", "locks?cursor=x", "lock", "lint?reset",
        "graph?a", "groups?a", "events?a", "lock?key=a&key_base64=YQ%3D%3D",
    ] {
        let reply = get(server.http_addr(), &format!("/api/{path}"));
        assert_eq!(reply.status, 400, "{path}");
        assert!(
            value(&reply)["error"].as_str().is_some_and(|error| error.starts_with("parameter")),
            "{path}"
        );
    }
}

#[test]
fn what_a_path_without_parameters_says_names_no_empty_list() {
    let server = server(&[("http-admin", "yes")]);
    for path in ["contention", "graph", "groups", "lint", "clients", "events"] {
        let said = value(&get(server.http_addr(), &format!("/api/{path}?x=1")));
        assert_eq!(said, json!({ "error": "parameter 'x': this path has no parameters" }), "{path}");
    }
    let said = value(&get(server.http_addr(), "/api/lock?x=1"));
    assert_eq!(said, json!({ "error": "parameter 'x': must be one of key, key_base64" }));
}

#[test]
fn a_percent_sign_that_is_no_escape_is_a_bad_request() {
    let server = server(&[("http-admin", "yes")]);
    let _holder = holder(&server, &["lock:%ZZ"]);
    let expected = json!({ "error": "the target must have two hexadecimal digits after each %" });
    for path in ["lock?key=lock:%ZZ", "lock?key=%", "locks?match=%4", "locks?%G1=a"] {
        let reply = get(server.http_addr(), &format!("/api/{path}"));
        assert_eq!((reply.status, value(&reply)), (400, expected.clone()), "{path}");
    }
    let body = json!({ "action": "take", "owner": "me" }).to_string();
    let reply = post(&server, "/api/locks/lock:%ZZ", "", &body);
    assert_eq!((reply.status, value(&reply)), (400, expected));
    let found = told(&server, "/api/lock?key=lock:%25ZZ");
    assert_eq!(found["who"]["holders"][0]["owner"], "owner:lock:%ZZ");
}

#[test]
fn a_header_that_says_who_asks_is_there_once() {
    let server = server(&[("http-admin", "yes")]);
    let _holder = holder(&server, &["lock:a"]);
    let own = "Origin: http://localhost\r\n";
    let evil = "Origin: http://evil.example\r\n";
    let site = "Sec-Fetch-Site: same-origin\r\n";
    let login = "Authorization: Bearer a\r\n";
    for headers in [
        format!("{own}{evil}"),
        format!("{evil}{own}"),
        format!("{own}{own}"),
        format!("{site}Sec-Fetch-Site: cross-site\r\n"),
        format!("{login}{login}"),
    ] {
        let body = json!({ "key": "lock:a", "token": 1 }).to_string();
        let replies = [
            HttpClient::to(server.http_addr()).ask("GET", "/api/locks", &headers),
            HttpClient::to(server.http_addr()).ask("GET", "/metrics", &headers),
            post(&server, "/api/break", &headers, &body),
            post(
                &server,
                "/api/locks/lock:b",
                &headers,
                &json!({ "action": "take", "owner": "me" }).to_string(),
            ),
        ];
        for reply in replies {
            assert!(
                reply.status == 400 && reply.body.contains("Origin and Sec-Fetch-Site once"),
                "{reply:?}"
            );
        }
    }
    assert_eq!(
        told(&server, "/api/locks")["locks"].as_array().map(Vec::len),
        Some(1),
        "nothing has happened"
    );
    let once = HttpClient::to(server.http_addr()).ask("GET", "/api/locks", &format!("{own}{site}{login}"));
    assert_eq!(once.status, 200);
}

#[test]
fn the_first_waits_are_told_however_long_all_are() {
    let server = server(&[]);
    let mut holders = holder(&server, &[]);
    for number in 0..100 {
        let owner = format!("{number:01024}");
        let words = format!("LOCK.ACQUIRE pool {owner} LEASE 600000 JUSTTOKEN PERMITS 1 OF 100\r\n");
        assert!(holders.ask(words.as_bytes()).starts_with(':'));
    }
    // Each wait has 100 KiB of holders.
    let waiters: Vec<Peer> = (0..200).map(|_| Peer::to(server.addr())).collect();
    for (number, waiter) in waiters.iter().enumerate() {
        let words = format!("LOCK.ACQUIRE pool waiter-{number} WAIT 600000 PERMITS 1 OF 100\r\n");
        waiter.send(words.as_bytes());
    }
    wait_until("all wait", || told(&server, "/api/lock?key=pool")["waiting"] == 200);
    let graph = told(&server, "/api/graph");
    assert_eq!(graph["total"], 200);
    let waits = graph["waits"].as_array().expect("a list");
    assert!((150..200).contains(&waits.len()), "{} of 16 MiB", waits.len());
    assert_eq!(waits[0]["waits-for"], "pool");
    assert_eq!(waits[0]["held-by"].as_array().map(Vec::len), Some(100));
}

#[test]
#[cfg(feature = "lua")]
fn a_script_that_holds_everything_costs_a_503_and_no_more() {
    let server = server(&[("busy-reply-threshold", "1")]);
    let script = Peer::to(server.addr());
    script.send(b"EVAL \"redis.call('keys', '*') while true do redis.sha1hex('x') end\" 0\r\n");
    let reply = loop {
        let reply = get(server.http_addr(), "/api/locks");
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!(reply.status, 503);
    assert!(value(&reply)["error"].as_str().is_some_and(|error| error.contains("BUSY")), "{reply:?}");
    assert_eq!(get(server.http_addr(), "/healthz").status, 200);
    let ready = get(server.http_addr(), "/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("SCRIPT KILL ends it"), "{ready:?}");
    let clients = value(&get(server.http_addr(), "/api/clients"));
    let running = |client: &&Value| client["script"].as_str().is_some_and(|script| script.len() == 40);
    let clients = clients["clients"].as_array().expect("a list");
    assert_eq!(clients.iter().filter(running).count(), 1, "{clients:?}");
    // The script looks at the clock now and then.
    let metrics = loop {
        let metrics = get(server.http_addr(), "/metrics");
        assert_eq!(metrics.status, 200);
        if metrics.body.contains("redlatch_slow_scripts_total 1\n") {
            break metrics;
        }
    };
    for name in
        ["redlatch_running_script_seconds", "redlatch_counters_age_seconds", "redlatch_slow_scripts_total"]
    {
        let line = metrics.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert!(line.is_some_and(|value| value.parse::<f64>().expect("a number") > 0.0), "{name}: {line:?}");
    }
    assert_eq!(Peer::to(server.addr()).ask(b"SCRIPT KILL\r\n"), "+OK");
    // The script ends at its next look at the clock.
    wait_until("the list is served", || get(server.http_addr(), "/api/locks").status == 200);
    assert_eq!(get(server.http_addr(), "/readyz").status, 200);
}

/// The next event of a viewer: its name and its data.
pub(super) fn event(viewer: &mut HttpClient) -> (String, Value) {
    let mut name = String::new();
    loop {
        let mut line = String::new();
        assert!(viewer.0.read_line(&mut line).expect("a line") > 0, "the stream has ended");
        // Between the lines of events are those of chunks.
        if let Some(found) = line.strip_prefix("event: ") {
            found.trim_end().clone_into(&mut name);
        } else if let Some(data) = line.strip_prefix("data: ") {
            return (name, serde_json::from_str(data).expect("JSON"));
        }
    }
}

pub(super) fn viewer(server: &Server) -> HttpClient {
    let mut viewer = HttpClient::to(server.http_addr());
    viewer.send(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    viewer
}

#[test]
fn a_viewer_gets_all_locks_and_then_what_changes() {
    let server = server(&[]);
    let mut holder = holder(&server, &["lock:a", "lock:b"]);
    let mut first = viewer(&server);
    let (name, snapshot) = event(&mut first);
    assert_eq!((name.as_str(), &snapshot["admin"]), ("snapshot", &json!(false)));
    assert_eq!(snapshot["locks"].as_array().map(Vec::len), Some(2));
    assert_eq!((&snapshot["totals"]["locks"], &snapshot["totals"]["clients"]), (&json!(2), &json!(1)));
    let lock = &snapshot["locks"][0]["holders"][0];
    let lease = lock["until"].as_u64().zip(lock["since"].as_u64()).map(|(until, since)| until - since);
    assert_eq!((lease, lock.get("held")), (Some(60_000), None));

    assert_eq!(holder.ask(b"DEL lock:a\r\n"), ":1");
    assert_eq!(holder.ask(b"SET lock:c me NX PX 1000000\r\n"), "+OK");
    let (mut changed, mut removed) = (Vec::new(), Vec::new());
    while changed.is_empty() || removed.is_empty() {
        let (name, mut change) = event(&mut first);
        assert_eq!(name, "change");
        changed.append(change["locks"].as_array_mut().expect("locks"));
        removed.append(change["removed"].as_array_mut().expect("keys"));
    }
    assert_eq!((changed.len(), &changed[0]["key"]), (1, &json!("lock:c")));
    assert_eq!(removed, [json!({ "key": "lock:a" })]);

    let (name, snapshot) = event(&mut viewer(&server));
    assert_eq!((name.as_str(), snapshot["locks"].as_array().map(Vec::len)), ("snapshot", Some(2)));
}

#[test]
fn a_viewer_whose_password_or_token_is_changed_gets_no_more() {
    let server = server(&[("requirepass", "secret"), ("http-token", "first")]);
    let mut client = Peer::to(server.addr());
    assert_eq!(client.ask(b"AUTH secret\r\n"), "+OK");
    assert_eq!(client.ask(b"ACL SETUSER spy on >spanner ~* &* +@all\r\n"), "+OK");
    // In base64: ":secret", "spy:spanner".
    let shown = ["Bearer first", "Basic OnNlY3JldA==", "Basic c3B5OnNwYW5uZXI="];
    let mut viewers = shown.map(|shown| {
        let mut viewer = HttpClient::to(server.http_addr());
        let head = format!("Host: localhost\r\nAuthorization: {shown}\r\n\r\n");
        viewer.send(format!("GET /api/events HTTP/1.1\r\n{head}").as_bytes());
        assert_eq!(event(&mut viewer).0, "snapshot");
        viewer
    });
    let changes = ["CONFIG SET http-token second", "CONFIG SET requirepass open", "ACL SETUSER spy -@all"];
    for ended in 0..changes.len() {
        assert_eq!(client.ask(format!("{}\r\n", changes[ended]).as_bytes()), "+OK");
        // Others still follow.
        viewers[ended + 1..].iter_mut().for_each(|viewer| drop(event(viewer)));
        let mut line = String::new();
        while line != "0\r\n" {
            line.clear();
            assert!(viewers[ended].0.read_line(&mut line).expect("a line") > 0, "not the end of a body");
        }
    }
}

#[test]
fn sixteen_may_view_and_one_who_leaves_makes_room() {
    let server = server(&[]);
    let mut viewers: Vec<HttpClient> = (0..16).map(|_| viewer(&server)).collect();
    for viewer in &mut viewers {
        assert_eq!(event(viewer).0, "snapshot");
    }
    let mut looks = HttpClient::to(server.http_addr());
    let reply = looks.ask("HEAD", "/api/events", "");
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/event-stream")));
    let reply = get(server.http_addr(), "/api/events");
    assert_eq!((reply.status, &value(&reply)["error"]), (503, &json!("there are 16 viewers already")));
    drop(viewers.pop());
    loop {
        let mut next = viewer(&server);
        let mut line = String::new();
        next.0.read_line(&mut line).expect("a line");
        if line.starts_with("HTTP/1.1 200") {
            break;
        }
    }
}
