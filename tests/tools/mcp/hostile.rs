//! What a host may send by mistake or on purpose, and servers that do not serve.

use serde_json::{Value, json};

use super::host::{Host, server};
use crate::support::binary::{ended, redlatch};
use crate::support::waits::wait_until;

/// The most memory that a process has had, in bytes, if the system tells.
fn peak_bytes(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[test]
fn what_is_no_message_is_answered_and_the_locks_stay() {
    let server = server();
    let mut host = Host::of(&server, "agent");
    host.done("take", json!({ "key": "db" }));
    let deep = "[".repeat(100_000);
    for (line, code) in [
        ("garbage", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,", -32700),
        (&*deep, -32700),
        ("\u{0}\u{1b}[2J", -32700),
        ("[]", -32600),
        ("7", -32600),
        ("{}", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
    ] {
        host.write(format!("{line}\n").as_bytes());
        assert_eq!(host.next()["error"]["code"], code, "{:.40}", line);
    }
    host.write(b"\n\r\n  \n\xff\xfe\n");
    assert_eq!(host.next()["error"]["code"], -32700);
    assert_eq!(host.request("nothing/known", json!({}))["error"]["code"], -32601);
    assert_eq!(host.done("renew", json!({ "key": "db" }))["token"], 1);
}

#[test]
fn a_message_without_an_end_takes_no_memory() {
    let server = server();
    let mut host = Host::of(&server, "agent");
    host.done("take", json!({ "key": "db" }));
    host.write(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"");
    let part = vec![b'x'; 1 << 20];
    (0..100).for_each(|_| host.write(&part));
    host.write(b"\n");
    let answer = host.next();
    assert_eq!(answer["error"]["code"], -32600);
    assert!(answer["error"]["message"].as_str().unwrap().contains("more than 1048576 bytes"), "{answer}");
    assert_eq!(host.done("renew", json!({ "key": "db" }))["token"], 1);
    if let Some(peak) = peak_bytes(host.process.id()) {
        assert!(peak < 100 << 20, "{peak} bytes for a message of {} bytes", part.len() * 100);
    }
}

#[test]
fn arguments_that_cannot_be_used_are_named_and_nothing_is_asked() {
    let server = server();
    let mut host = Host::of(&server, "agent");
    let long = "x".repeat(1025);
    let many: Value =
        (0..65).map(|number| (format!("f{number}"), json!("1"))).collect::<serde_json::Map<_, _>>().into();
    for (tool, arguments, part) in [
        ("take", json!({}), "key: is missing"),
        ("take", json!({ "key": 7 }), "key: must be a text"),
        ("take", json!({ "key": "" }), "key: must be a text that is not empty"),
        ("take", json!({ "key": "a", "lease": "-5s" }), "lease: must be a time"),
        ("take", json!({ "key": "a", "lease": -5 }), "lease: must be a time"),
        ("take", json!({ "key": "a", "lease": "0" }), "lease: 0: must be at least 1ms"),
        ("take", json!({ "key": "a", "lease": "99999999999h" }), "at most 365 days"),
        ("take", json!({ "key": "a", "agent": long }), "agent: a name has 1 to 1024 bytes"),
        ("take", json!({ "key": "a", "why": "x".repeat(4096) }), "at most 64 fields of 4096 bytes in all"),
        ("take", json!({ "key": "a", "meta": many }), "at most 64 fields of 4096 bytes in all"),
        ("take", json!({ "key": "a", "meta": { "n": 1 } }), "meta: must be an object of texts"),
        ("take", json!({ "key": "a", "permits": 1 }), "permits: needs of"),
        ("take", json!({ "key": "a", "of": 1 }), "of: needs permits"),
        (
            "take",
            json!({ "key": "a", "why": "a", "meta": { "reason": "b" } }),
            "why: is the field 'reason' of meta",
        ),
        ("take", json!({ "key": "a", "permits": 1, "of": 2, "shared": true }), "shared: excludes permits"),
        ("take", json!({ "key": "a", "for": "10m" }), "unknown argument 'for': take has key, one_of, lease"),
        ("renew", json!({ "key": "a", "token": "of another server" }), "token: must be a whole number"),
        ("release", json!({ "key": "a", "token": -1 }), "token: must be a whole number"),
        ("list", json!({ "mine": true, "pattern": "*" }), "mine: excludes pattern"),
        ("wait", json!({ "key": "a", "timeout": "soon" }), "timeout: must be a time"),
        ("who", json!({ "key": ["a", "b"] }), "key: must be a text"),
    ] {
        let called = host.call(tool, arguments.clone());
        assert!(called.is_error && called.value.is_null(), "{arguments}: {called:?}");
        assert!(called.text.contains(part), "{part}: {}", called.text);
    }
    let unknown = host.request("tools/call", json!({ "name": "break", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(
        unknown["error"]["message"].as_str().unwrap().contains("unknown tool 'break': there are take, renew")
    );
    for params in [json!({}), json!({ "name": 7 }), json!({ "name": "who", "arguments": "db" }), json!([])] {
        let answer = host.request("tools/call", params.clone());
        assert!(answer["error"]["code"].is_i64(), "{params}: {answer}");
    }
    assert_eq!(server.ask("DBSIZE"), ":0\r\n");
    assert_eq!(host.close().0, Some(0));
}

// Shows P-mcp-hidden-characters.
#[test]
fn names_that_nobody_should_have_are_cut_and_shown_without_hidden_characters() {
    let server = server();
    let mut host = Host::of(&server, &format!("\u{1b}[2J\u{202e}{}", "n".repeat(100_000)));
    let taken = host.call("take", json!({ "key": "a\u{1b}[2J", "why": "\u{202e}x" }));
    let owner = taken.value["owner"].as_str().unwrap();
    assert!(owner.len() < 100 && !owner.contains('\u{1b}'), "{owner}");
    let seen = Host::of(&server, "").call("take", json!({ "key": "a\u{1b}[2J" }));
    assert!(!taken.text.contains('\u{1b}') && !seen.text.contains(['\u{1b}', '\u{202e}']), "{seen:?}");
    assert!(seen.value["owner"].as_str().unwrap().starts_with("agent-"), "{seen:?}");
}

#[test]
fn more_calls_than_there_may_be_are_refused() {
    let server = server();
    let mut host = Host::of(&server, "agent");
    server.ask("LOCK.ACQUIRE db somebody LEASE 3600000");
    for number in 0..100 {
        host.begin("take", json!({ "key": "db", "wait": "1h", "agent": number.to_string() }));
    }
    (0..100).for_each(|_| drop(host.waits()));
    let refused = host.call("who", json!({ "key": "db" }));
    assert!(refused.is_error && refused.text.starts_with("100 calls are at work already"), "{refused:?}");
    assert_eq!(host.close().0, Some(0));
    wait_until("nobody waits", || server.ask("LOCK.WAITERS db") == "*0\r\n");
}

// Shows P-mcp-rights.
#[test]
fn a_user_who_may_not_ask_for_the_holder_is_told_nothing_of_it() {
    let server = server();
    server.ask("ACL SETUSER limited on >secret %W~lock:* +lock.acquire +lock.release +hello +client");
    let mut one = Host::of(&server, "one");
    one.done("take", json!({ "key": "lock:a", "why": "secrets" }));
    let url = format!("redis://limited:secret@{}", server.address());
    let mut other = Host::begun(redlatch().args(["mcp", "--url", &url]), "other");
    for (tool, arguments) in [
        ("take", json!({ "key": "lock:a" })),
        ("take", json!({ "key": "lock:a", "wait": "1ms" })),
        ("renew", json!({ "key": "lock:a" })),
        ("release", json!({ "key": "lock:a" })),
        ("who", json!({ "key": "lock:a" })),
        ("list", json!({})),
        ("explain", json!({ "key": "lock:a" })),
    ] {
        let called = other.call(tool, arguments);
        assert!(called.is_error, "{tool}: {called:?}");
        let said = format!("{}{}", called.text, called.value);
        assert!(!said.contains("one-") && !said.contains("secrets"), "{tool}: {said}");
    }
    assert_eq!(other.done("take", json!({ "key": "lock:b" }))["taken"], true, "without LOCK.SESSION, too");
}

#[test]
fn bad_options_and_a_host_that_breaks_off_have_exit_codes() {
    let server = server();
    for (arguments, part) in [
        (&["--url", "http://localhost"][..], "http"),
        (&["--as", ""], "--as: a name has 1 to 1024 bytes"),
        (&["extra"], "extra"),
        (&["--lease", "1m"], "--lease"),
    ] {
        let (code, said, refused) = ended(redlatch().arg("mcp").args(arguments));
        assert_eq!((code, said.as_str(), refused.lines().count()), (Some(64), "", 1), "{refused}");
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let (code, said, refused) = ended(redlatch().args(["mcp", "--url", &server.url()]));
    assert_eq!((code, said.as_str(), refused.lines().count()), (Some(69), "", 1), "{refused}");
    let mut early = Host::started(redlatch().args(["mcp", "--url", &server.url()]));
    early.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(early.close(), (Some(69), String::new()));
}
