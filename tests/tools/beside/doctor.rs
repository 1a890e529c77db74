//! `redlatch doctor`: each fault is found, and nothing is found where there is none.
//!
//! Belongs here  what the report says, and what it leaves out.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::hostile::{bulk, keys, scripted};
use super::*;

/// The report that has enough, as JSON. The observation is longer each time: this machine may be busy.
fn report_of(url: &str, more: &[&str], has_enough: impl Fn(&Value) -> bool) -> (Option<i32>, Value) {
    let mut last = Value::Null;
    for time in ["500ms", "2s", "8s", "32s"] {
        let words = ["doctor", url, "--for", time, "--rate", "1000/s", "--json"];
        let (code, said, told) = ended(redlatch().args(words).args(more));
        last = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{told}{said}"));
        if has_enough(&last) {
            return (code, last);
        }
    }
    panic!("{last:#}")
}

/// The report with a lock that has no lease.
fn report(url: &str, more: &[&str]) -> (Option<i32>, Value) {
    report_of(url, more, |report| {
        rules(report).contains(&"no-lease") && !rules(report).contains(&"too-short")
    })
}

fn rules(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["rule"].as_str().unwrap()).collect()
}

#[test]
fn a_lock_without_a_lease_is_an_error_whose_owner_is_shown_on_request_only() {
    let server = observed(&[]);
    server.ask("SETNX lock:a me-and-my-secret");
    server.ask("SET lock:b you NX PX 3600000");
    let (code, found) = report(&server.url(), &["--match", "lock:*"]);
    assert!(code == Some(1) && rules(&found).contains(&"no-lease"), "{found}");
    let finding = &found["findings"][0];
    assert_eq!((&finding["key"], &finding["owner"]), (&"lock:a".into(), &Value::Null));
    let (code, found) = report(&server.url(), &[]);
    assert!(code == Some(0) && rules(&found).contains(&"no-lease"), "by its name alone: {found}");
    let (_, found) = report(&server.url(), &["--show-owners", "--match", "lock:*"]);
    assert_eq!(found["findings"][0]["owner"], "me-and-my-secret");
    let text = ended(redlatch().args(["doctor", &server.url(), "--for", "1s"])).1;
    assert!(text.contains("no-lease") && !text.contains("secret"), "{text}");
}

#[test]
fn a_right_that_is_missing_is_named_and_the_rest_is_reported() {
    let directory = Directory::new();
    let password = directory.write("password", "secret\n");
    let server = observed(&[]);
    server.ask("SETNX lock:a me");
    server.ask("ACL SETUSER reader on >secret ~* +@all -info -config|get -time");
    let (code, found) = report(&server.url(), &["--user", "reader", "--password-file", &password]);
    assert_eq!((code, rules(&found)), (Some(0), vec!["no-lease"]), "{found}");
    assert_eq!(found["forbidden"], serde_json::json!(["CONFIG", "INFO", "TIME"]));
}

/// A server on which everything is wrong.
fn ill() -> String {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    static READ: AtomicU64 = AtomicU64::new(0);
    scripted(|words| {
        let asked = ASKED.fetch_add(1, Relaxed);
        Some(match (words[0], *words.get(1).unwrap_or(&"")) {
            ("INFO", "memory") => bulk("maxmemory:1\r\nmaxmemory_policy:allkeys-lru\r\n"),
            ("INFO", "persistence") => bulk("aof_enabled:0\r\n"),
            ("INFO", "replication") => bulk("role:slave\r\nconnected_slaves:1\r\n"),
            ("INFO", "commandstats") => {
                bulk(&format!("cmdstat_setnx:calls={asked},usec=1\r\ncmdstat_geoadd:calls=1,usec=1\r\n"))
            }
            ("TIME", _) => format!("*2\r\n:{}\r\n:0\r\n", 1_800_000_000 + 3_600 * asked),
            ("SCAN", _) => keys(words, "string", &["lock:stays", "lock:ends"]),
            ("GETRANGE", "lock:ends") if READ.fetch_add(1, Relaxed) % 2 == 1 => bulk(""),
            ("GETRANGE", _) => bulk("me"),
            ("PTTL", "lock:ends") => ":0\r\n".to_owned(),
            ("PTTL", _) => ":-1\r\n".to_owned(),
            _ => return None,
        })
    })
}

#[test]
fn an_observation_of_less_than_two_rounds_is_not_called_healthy() {
    let server = observed(&[]);
    (0..50).for_each(|number| drop(server.ask(&format!("SET lock:{number} me NX PX 3600000"))));
    // A request a second: not even one round.
    let words = ["doctor", &server.url(), "--for", "1s", "--rate", "1/s"];
    let (code, said, _) = ended(redlatch().args(words));
    assert!(code == Some(1) && said.contains("too-short") && !said.contains("Nothing was found"), "{said}");
}

#[test]
fn a_lease_that_ends_while_another_client_waits_for_the_lock_is_found() {
    static READ: AtomicU64 = AtomicU64::new(0);
    let url = scripted(|words| {
        Some(match words[0] {
            "SCAN" => keys(words, "string", &["lock:a"]),
            // Another owner each time, whose lease ends at once.
            "GETRANGE" => bulk(&format!("owner-{}", READ.fetch_add(1, Relaxed))),
            "PTTL" => ":0\r\n".to_owned(),
            _ => return None,
        })
    });
    let (code, found) = report_of(&url, &["--match", "lock:*"], |found| rules(found) == ["lease-ended"]);
    assert_eq!((code, &found["findings"][0]["key"]), (Some(0), &"lock:a".into()));
}

#[test]
fn a_server_that_could_not_be_read_for_a_while_is_said_to_be_so() {
    static READ: AtomicU64 = AtomicU64::new(0);
    let url = scripted(|words| {
        Some(match words[0] {
            "SCAN" => keys(words, "string", &["lock:a"]),
            "GETRANGE" if READ.fetch_add(1, Relaxed) % 20 == 1 => "no reply\r\n".to_owned(),
            "GETRANGE" => bulk("me"),
            "PTTL" => ":3600000\r\n".to_owned(),
            _ => return None,
        })
    });
    let has_both = |found: &Value| found["gaps"].as_u64() > Some(0) && found["rounds"].as_u64() > Some(1);
    report_of(&url, &["--match", "lock:*"], has_both);
}

#[test]
fn each_fault_that_is_planted_is_found() {
    let all =
        ["clock", "commands", "crash", "eviction", "failover", "lease-ended", "no-lease", "replica", "setnx"];
    let has_all = |report: &Value| all.iter().all(|rule| rules(report).contains(rule));
    let (code, found) = report_of(&ill(), &["--match", "lock:*"], has_all);
    assert!(code == Some(1) && rules(&found).len() == all.len(), "{found}");
}

/// Checks that nothing is found while clients of five kinds take, renew and release their locks.
fn check_healthy(url: &str) {
    let release =
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    let extend =
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end";
    let hold = "redis.call('hincrby',KEYS[1],ARGV[2],1) redis.call('pexpire',KEYS[1],ARGV[1])";
    let enter = "redis.call('zadd',KEYS[1],ARGV[1],ARGV[2]) redis.call('pexpire',KEYS[1],3600000)";
    let id = "285475da-9152-4c83-822a-67ee2f116a79:1";
    let works = [
        "SET lock:held me NX PX 3600000".to_owned(),
        format!("EVAL \"{extend}\" 1 lock:held me 3600000"),
        "SET lock:py me NX PX 60000".to_owned(),
        format!("EVAL \"{release}\" 1 lock:py me"),
        "set lock:sync me px 60000 nx".to_owned(),
        format!("EVAL \"{release}\" 1 lock:sync me"),
        format!("EVAL \"{hold}\" 1 myLock 60000 {id}"),
        "DEL myLock".to_owned(),
        format!("EVAL \"{enter}\" 1 semaphore:lock 1800000000000 me"),
        "ZREM semaphore:lock me".to_owned(),
    ];
    let has_seen = |report: &Value| report["rounds"].as_u64() > Some(1) && report["locks"].as_u64() > Some(0);
    thread::scope(|scope| {
        let doctor = scope.spawn(|| report_of(url, &[], has_seen));
        while !doctor.is_finished() {
            works.iter().for_each(|words| drop(told(url, words)));
        }
        let (code, found) = doctor.join().unwrap();
        assert!(code == Some(0) && rules(&found).is_empty(), "{found:#}");
    });
}

/// Settings with which a crash forgets nothing.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[test]
fn nothing_is_found_where_five_clients_do_as_they_should() {
    let directory = Directory::new();
    let (socket, files) = (directory.path("socket"), directory.path("files"));
    std::fs::create_dir(&files).unwrap();
    let server = observed(&[&["--unixsocket", &socket, "--dir", &files][..], &DURABLE].concat());
    check_healthy(&format!("unix://{socket}"));
    drop(server);
}

#[test]
#[ignore = "needs REDLATCH_REDIS_SERVER"]
fn nothing_is_found_on_a_real_redis_that_is_well() {
    check_healthy(&RealServer::try_start("redis", &DURABLE).unwrap().url());
}

#[test]
#[ignore = "needs REDLATCH_VALKEY_SERVER"]
fn nothing_is_found_on_a_real_valkey_that_is_well() {
    check_healthy(&RealServer::try_start("valkey", &DURABLE).unwrap().url());
}

#[test]
fn each_right_that_is_missing_is_named_and_the_rest_is_read() {
    let directory = Directory::new();
    let password = directory.write("password", "secret\n");
    let server = observed(&[]);
    LOCKS.iter().for_each(|words| drop(server.ask(words)));
    // Nothing is lost without these, and nothing can be read without SCAN.
    let unneeded = ["client", "hello", "ping"];
    let of_server = ["config|get", "dbsize", "info", "time"];
    let of_locks = ["getrange", "hgetall", "hlen", "object|encoding", "pttl", "zcard", "zrange"];
    for right in unneeded.iter().chain(&of_server).chain(&of_locks) {
        server.ask(&format!("ACL SETUSER reader reset on >secret ~* +@all -{right}"));
        let name = right.split('|').next().unwrap().to_uppercase();
        let names = if unneeded.contains(right) { vec![] } else { vec![name] };
        let is_named = |report: &Value| {
            report["rounds"].as_u64() > Some(0) && report["forbidden"] == serde_json::json!(names)
        };
        let (_, found) =
            report_of(&server.url(), &["--user", "reader", "--password-file", &password], is_named);
        let locks = found["locks"].as_u64().unwrap();
        assert!(if of_locks.contains(right) { locks < 3 } else { locks == 3 }, "{right}: {found}");
    }
}
