//! Servers that say what no real one says, or nothing.
//!
//! Belongs here  wrong answers, missing commands, silence, a dead connection, and keys and owners of any bytes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::*;

/// A server that answers each request as `reply` says; `None`: it lacks the command.
pub(super) fn scripted(reply: fn(&[&str]) -> Option<String>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || answer(stream.unwrap(), reply));
        }
    });
    url
}

/// Answers the requests of one connection.
fn answer(mut stream: TcpStream, reply: fn(&[&str]) -> Option<String>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while let Some(count) = lines.next() {
        let count: usize = count.strip_prefix('*').unwrap().parse().unwrap();
        // Each word has a line with its length before it.
        let words: Vec<String> = lines.by_ref().take(2 * count).skip(1).step_by(2).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = reply(&words).unwrap_or_else(|| format!("-ERR unknown command '{}'\r\n", words[0]));
        if stream.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

pub(super) fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn list<'t>(texts: impl IntoIterator<Item = &'t str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(bulk).collect();
    format!("*{}\r\n{}", texts.len(), texts.concat())
}

/// The answer to SCAN: these keys, if they are of the type that is asked for.
pub(super) fn keys(words: &[&str], of: &str, keys: &[&str]) -> String {
    let keys = if words[7] == of { keys } else { &[] };
    format!("*2\r\n{}{}", bulk("0"), list(keys.iter().copied()))
}

#[test]
fn a_command_that_is_missing_is_named_and_the_rest_is_read() {
    let url = scripted(|words| match words[0] {
        "SCAN" => Some(keys(words, "string", &["lock:a"])),
        "STRLEN" => Some(":2\r\n".to_owned()),
        "GETRANGE" => Some(bulk("me")),
        "PTTL" => Some(":3600000\r\n".to_owned()),
        _ => None,
    });
    let shadow = Shadow::start(&url, &[]);
    shadow.read_all();
    assert_eq!(shadow.json("who lock:a")["holders"][0]["owner"], "me");
    drop(shadow);
    let (code, report, told) = ended(redlatch().args(["doctor", &url, "--for", "1s", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap_or_else(|_| panic!("{told}"));
    assert_eq!(code, Some(0), "{report}");
    assert_eq!(report["forbidden"], serde_json::json!(["CONFIG", "DBSIZE", "INFO", "TIME"]));
}

#[test]
fn values_that_are_larger_than_was_said_or_without_a_holder_are_no_locks() {
    let url = scripted(|words| match (words[0], *words.get(1).unwrap_or(&"")) {
        ("SCAN", _) => Some(match words[7] {
            "string" => keys(words, "string", &["lock:now", "lock:huge"]),
            "hash" => keys(words, "hash", &["hash"]),
            _ => keys(words, "zset", &["lock:empty", "lock:odd"]),
        }),
        ("STRLEN" | "HLEN" | "ZCARD", _) => Some(":2\r\n".to_owned()),
        ("OBJECT", _) => Some(bulk("listpack")),
        ("GETRANGE", "lock:huge") => Some(bulk(&"x".repeat(100_000))),
        ("GETRANGE", _) => Some(bulk("me")),
        ("HGETALL", _) => {
            let owner = |thread: u32| format!("285475da-9152-4c83-822a-67ee2f116a79:{thread}");
            let fields: Vec<_> = (0..17).flat_map(|thread| [owner(thread), "1".to_owned()]).collect();
            Some(list(fields.iter().map(String::as_str)))
        }
        ("ZRANGE", "lock:odd") => Some(list(["one", "two"])),
        ("ZRANGE", _) => Some(list([])),
        ("PTTL", _) => Some(":0\r\n".to_owned()),
        _ => None,
    });
    let shadow = Shadow::start(&url, &[]);
    shadow.read_all();
    assert_eq!(shadow.ask("DBSIZE"), ":1\r\n");
    assert_eq!(shadow.json("who lock:now")["holders"][0]["owner"], "me");
}

#[test]
fn a_key_whose_reply_breaks_the_connection_is_skipped_and_is_one_gap() {
    let url = scripted(|words| match (words[0], *words.get(1).unwrap_or(&"")) {
        ("SCAN", _) => Some(keys(words, "string", &["lock:bad", "lock:good"])),
        ("STRLEN", _) => Some(":2\r\n".to_owned()),
        ("GETRANGE", "lock:bad") => Some("HTTP/1.1\r\n".to_owned()),
        ("GETRANGE", _) => Some(bulk("me")),
        ("PTTL", _) => Some(":3600000\r\n".to_owned()),
        _ => None,
    });
    let mut shadow = Shadow::start(&url, &[]);
    shadow.0.wait_for("All locks of the observed server are read");
    assert_eq!(shadow.json("who lock:good")["holders"][0]["owner"], "me");
    assert_eq!(shadow.number("beside_gaps"), 1);
    assert_eq!(shadow.0.said.matches("The observed server cannot be read").count(), 1);
}

#[test]
fn a_server_that_speaks_resp2_only_is_read_in_rounds() {
    let url = scripted(|words| match words[0] {
        "CLIENT" => Some("+OK\r\n".to_owned()),
        "SCAN" => Some(keys(words, "string", &[])),
        _ => None,
    });
    let shadow = Shadow::tracking(&url, &[]);
    shadow.read_all();
    assert!(shadow.ask("INFO beside").contains("beside_by:reading"));
}

#[test]
fn more_changes_than_are_kept_are_a_gap_after_which_all_is_read() {
    let url = scripted(|words| match words[0] {
        "HELLO" => Some("*0\r\n".to_owned()),
        "CLIENT" if words[1] == "TRACKING" => {
            let keys: Vec<_> = (0..1_001).map(|number| format!("lock:{number:04}")).collect();
            let changed = list(keys.iter().map(String::as_str));
            Some(format!("+OK\r\n>1\r\n:1\r\n>2\r\n{}{changed}", bulk("invalidate")))
        }
        "SCAN" => Some(keys(words, "string", &["lock:a"])),
        "GETRANGE" => Some(bulk(if words[1] == "lock:a" { "me" } else { "" })),
        "PTTL" => Some(":3600000\r\n".to_owned()),
        _ => None,
    });
    let shadow = Shadow::tracking(&url, &[]);
    assert_eq!((shadow.number("beside_gaps"), shadow.number("beside_rounds")), (1, 2));
    assert_eq!(shadow.json("who lock:a")["holders"][0]["owner"], "me");
}

#[test]
fn a_key_that_changes_with_each_reading_does_not_stop_the_round() {
    let url = scripted(|words| match words[0] {
        "HELLO" => Some("*0\r\n".to_owned()),
        "CLIENT" => Some("+OK\r\n".to_owned()),
        "SCAN" => Some(keys(words, "string", &["lock:a"])),
        "GETRANGE" => Some(format!(">2\r\n{}{}{}", bulk("invalidate"), list(["lock:a"]), bulk("me"))),
        "PTTL" => Some(":3600000\r\n".to_owned()),
        _ => None,
    });
    let shadow = Shadow::tracking(&url, &[]);
    wait_until("it is read again and again", || shadow.number("beside_changes") > 10);
    assert_eq!(shadow.json("who lock:a")["holders"][0]["owner"], "me");
}

#[test]
fn a_server_that_becomes_a_replica_is_a_gap_after_which_all_is_read() {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let url = scripted(|words| {
        Some(match (words[0], *words.get(1).unwrap_or(&"")) {
            ("INFO", "replication") if ASKED.fetch_add(1, Relaxed) < 3 => bulk("role:master\r\n"),
            ("INFO", "replication") => bulk("role:slave\r\n"),
            ("SCAN", _) => keys(words, "string", &["lock:a"]),
            ("GETRANGE", _) => bulk("me"),
            ("PTTL", _) => ":3600000\r\n".to_owned(),
            _ => return None,
        })
    });
    let shadow = Shadow::start(&url, &[]);
    wait_until("one gap", || shadow.number("beside_gaps") == 1 && shadow.number("beside_in_gap") == 0);
    shadow.read_all();
    assert_eq!(shadow.number("beside_gaps"), 1);
    assert!(shadow.json("who lock:a")["holders"][0]["owner"] == "me");
}

#[test]
fn a_connection_that_has_died_while_nothing_changes_is_noticed() {
    let url = scripted(|words| match words[0] {
        "HELLO" => Some("*0\r\n".to_owned()),
        "CLIENT" => Some("+OK\r\n".to_owned()),
        "SCAN" => Some(keys(words, "string", &[])),
        "PING" => Some("HTTP/1.1\r\n".to_owned()),
        _ => None,
    });
    let shadow = Shadow::tracking(&url, &[]);
    wait_until("the gap", || shadow.number("beside_gaps") > 0);
}

#[test]
fn a_port_that_says_nothing_is_no_server() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let (code, _, told) = ended(redlatch().args(["doctor", &format!("redis://{address}")]));
    assert!(code == Some(69) && told.contains(&address), "{told}");
}

#[test]
fn a_node_of_a_cluster_is_refused_wherever_it_says_so() {
    let at_login = scripted(|words| (words[0] == "HELLO").then(|| list(["mode", "cluster"])));
    let in_info = scripted(|words| (words[0] == "INFO").then(|| bulk("redis_mode:cluster\r\n")));
    for url in [at_login, in_info] {
        for command in ["beside", "doctor"] {
            let (code, _, told) = ended(redlatch().args([command, &url]));
            assert!(code == Some(64) && told.contains("cluster mode"), "{told}");
        }
    }
}

#[test]
fn keys_and_owners_with_escape_sequences_and_of_a_megabyte_reach_no_terminal() {
    let server = observed(&[]);
    let mut link = server.connect();
    let long = "x".repeat(1024 * 1024);
    for (key, owner) in [
        (&b"lock:\x1b[31m\x00\xff\r\n"[..], &b"\x1b]0;me\x07\xfe\x00"[..]),
        (b"lock:long", long.as_bytes()),
        (format!("lock:{long}").as_bytes(), b"me"),
    ] {
        link.write_all(&request(&[b"SETNX", key, owner])).unwrap();
        link.read_exact(&mut [0; 4]).unwrap();
    }
    let shadow = Shadow::start(&server.url(), &["--match", "lock:*"]);
    shadow.read_all();
    assert_eq!(shadow.ask("DBSIZE"), ":1\r\n");
    let at = format!("redis://{}", shadow.address(" at redis://"));
    let report = |time| {
        let words = ["doctor", &server.url(), "--for", time, "--show-owners", "--match", "lock:*"];
        Some(ended(redlatch().args(words)).1).filter(|report| report.contains("no-lease"))
    };
    let report = ["1s", "4s", "16s", "64s"].into_iter().find_map(report).expect("a finding");
    let shown = [report, ended(redlatch().args(["ls", "--url", &at])).1, shadow.0.said.clone()];
    for text in shown {
        assert!(text.contains("redis://") || text.contains("lock:"), "{text}");
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text:?}");
    }
}
