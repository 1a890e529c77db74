//! `redlatch beside` and `redlatch doctor`: the locks of another server, shown and checked by reading them.
//!
//! Belongs here  what is shown of a server, what is refused, what a server is asked, and what is said of bad servers.
//! Real server   the programs that `REDLATCH_REDIS_SERVER` and `REDLATCH_VALKEY_SERVER` name; elsewhere redlatch is observed.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

mod doctor;
mod hostile;
mod truth;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread;

use serde_json::Value;

use crate::support::binary::{Directory, Running, ask, ended, redlatch, signal};
#[cfg(feature = "tls")]
use crate::support::certificates::Authority;
#[cfg(feature = "tls")]
use crate::support::ports::free_port;
use crate::support::real::RealServer;
#[cfg(feature = "tls")]
use crate::support::real::STARTS_MAX;
use crate::support::waits::wait_until;
use crate::support::words::request;

/// Requests that a reader may send. None of them writes.
const READS: &[&str] = &[
    "client|no-touch", "client|setinfo", "client|tracking", "config|get", "dbsize", "getrange", "hello",
    "hgetall", "hlen", "info", "object|encoding", "ping", "pttl", "scan", "time", "zcard", "zrange",
];
/// Requests that count the others: the tests send them.
const COUNTING: &[&str] = &["config|resetstat", "quit"];

/// A lock of each type, and a key that is none.
const LOCKS: [&str; 6] = [
    "SET lock:a me NX PX 3600000",
    "HSET stock 285475da-9152-4c83-822a-67ee2f116a79:1 1",
    "PEXPIRE stock 3600000",
    "ZADD lock:pool 1800000000000 one",
    "PEXPIRE lock:pool 3600000",
    "SET session:1 x PX 3600000",
];

/// An observed redlatch.
fn observed(more: &[&str]) -> Running {
    Running::start(redlatch().args(["--port", "auto"]).args(more))
}

/// A server beside another one.
struct Shadow(Running);

impl Shadow {
    fn start(url: &str, more: &[&str]) -> Self {
        let mut command = redlatch();
        command.args(["beside", url]).args(more).stdout(Stdio::piped());
        if !more.contains(&"--rate") {
            command.args(["--rate", "1000/s"]);
        }
        let mut process = command.spawn().unwrap();
        let log = BufReader::new(process.stdout.take().unwrap());
        let mut running = Running { process, log, said: String::new() };
        running.wait_for("are shown at redis://");
        Self(running)
    }

    /// A shadow that is told changes, when it has read all that was there before this call.
    fn tracking(url: &str, more: &[&str]) -> Self {
        let shadow = Self::start(url, &[&["--by", "tracking", "--match", "*lock*"][..], more].concat());
        wait_until("all is read", || shadow.number("beside_in_gap") == 0);
        shadow
    }

    /// Waits until LOCK.WHO answers for `lock:a` with this text.
    fn wait_for_lock(&self, text: &str) {
        wait_until(text, || self.ask("LOCK.WHO lock:a").contains(text));
    }

    /// Waits until LOCK.WHO says that nobody holds `lock:a`.
    fn wait_until_free(&self) {
        wait_until("nobody holds it", || self.ask("LOCK.WHO lock:a") == "$-1\r\n");
    }

    /// What stands behind this text in its first line, up to a comma.
    fn address(&self, scheme: &str) -> String {
        let (_, rest) = self.0.said.split_once(scheme).unwrap();
        rest.split([',', '\n']).next().unwrap().to_owned()
    }

    fn ask(&self, request: &str) -> String {
        ask(TcpStream::connect(self.address(" at redis://")).unwrap(), request)
    }

    /// The output of `redlatch WORDS` for it.
    fn says(&self, words: &str) -> String {
        let url = format!("redis://{}", self.address(" at redis://"));
        ended(redlatch().args(words.split(' ')).args(["--url", &url])).1
    }

    /// The output of `redlatch WORDS --json` for it.
    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.says(&format!("{words} --json"))).unwrap_or_default()
    }

    /// A line of INFO.
    fn number(&self, name: &str) -> u64 {
        let info = self.ask("INFO beside");
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name}: {info}")).parse().unwrap()
    }

    /// Waits until everything that was there before this call has been read.
    fn read_all(&self) {
        let rounds = self.number("beside_rounds");
        for more in 1..=2 {
            wait_until("a round", || self.number("beside_rounds") >= rounds + more);
        }
    }
}

/// The calls that a server has counted, by its answer to INFO.
fn calls(info: &str) -> Vec<&str> {
    let names = info.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split(':').next());
    names.collect()
}

/// Asks a server at the URL of a Unix socket.
fn told(url: &str, request: &str) -> String {
    ask(UnixStream::connect(url.strip_prefix("unix://").unwrap()).unwrap(), request)
}

/// Takes a lock with a short lease again and again, until the shadow has seen its end from near: this machine may be busy.
fn lease_ends(shadow: &Shadow, tell: impl Fn(&str) -> String) {
    wait_until("the end of a lease is seen", || {
        tell("SET lock:short she NX PX 1000");
        shadow.ask("LOCK.HISTORY").contains("$7\r\nexpired\r\n")
    });
}

mod shown {
    use super::*;

    #[test]
    fn locks_have_their_owner_and_lease_and_no_token_and_other_keys_are_not_kept() {
        let server = observed(&[]);
        server.ask("SET lock:a job-1 NX PX 3600000");
        server.ask("SET session:1 secret PX 3600000");
        server.ask("HSET stock 285475da-9152-4c83-822a-67ee2f116a79:1 2");
        server.ask("PEXPIRE stock 3600000");
        server.ask("HSET user:1 name Ann");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        let locks = shadow.json("ls");
        let held: Vec<_> = locks
            .as_array()
            .unwrap()
            .iter()
            .map(|lock| {
                let holder = &lock["holders"][0];
                assert!(holder["token"].is_null() && holder["left"].as_u64().unwrap() <= 3_600_000, "{lock}");
                (
                    lock["key"].as_str().unwrap(),
                    lock["kind"].as_str().unwrap(),
                    holder["owner"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(held.len(), 2, "{locks}");
        assert!(held.contains(&("lock:a", "exclusive", "job-1")), "{locks}");
        assert!(held.contains(&("stock", "reentrant", "285475da-9152-4c83-822a-67ee2f116a79:1")), "{locks}");
        assert_eq!(shadow.ask("DBSIZE"), ":2\r\n");
        assert!(shadow.ask("LOCK.WHO lock:a").contains("$5\r\nknown\r\n$4\r\nread\r\n"));
        assert!(shadow.ask("LOCK.EXPLAIN lock:a").contains("read from redis://127.0.0.1:"));
        assert!(shadow.json("who lock:a")["holders"][0]["renewals"] == 0);
    }

    #[test]
    fn with_a_pattern_every_string_that_fits_is_a_lock() {
        let server = observed(&[]);
        server.ask("SET jobs:nightly host-1 PX 3600000");
        server.ask("SET lock:a me PX 3600000");
        let shadow = Shadow::start(&server.url(), &["--match", "jobs:*"]);
        shadow.read_all();
        let locks = shadow.json("ls");
        assert_eq!(locks.as_array().unwrap().len(), 1, "{locks}");
        assert_eq!(locks[0]["holders"][0]["owner"], "host-1");
    }

    #[test]
    fn renewals_and_releases_are_seen_and_ends_are_inferred() {
        let server = observed(&[]);
        server.ask("SET lock:a me NX PX 60000");
        server.ask("SET lock:b you NX PX 60000");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        server.ask("PEXPIRE lock:a 3600000");
        server.ask("DEL lock:b");
        shadow.read_all();
        let who = shadow.json("who lock:a");
        assert!(who["holders"][0]["left"].as_u64().unwrap() > 3_000_000, "{who}");
        assert_eq!(who["holders"][0]["renewals"], 1, "{who}");
        let history = shadow.ask("LOCK.HISTORY");
        assert!(
            history.contains("$6\r\nlock:b\r\n")
                && history.contains("$8\r\nreleased\r\n")
                && history.contains("$8\r\ninferred\r\n"),
            "{history}"
        );
        assert!(!history.contains("$6\r\nlock:a\r\n"), "a renewal is no end: {history}");
    }

    #[test]
    fn a_lease_that_ends_is_seen_by_a_reading_of_its_key() {
        let server = observed(&[]);
        let shadow = Shadow::start(&server.url(), &[]);
        lease_ends(&shadow, |words| server.ask(words));
    }

    #[test]
    fn a_lock_goes_on_until_it_is_read_again_whatever_the_clock_of_the_shadow_says() {
        let server = observed(&["--enable-test-commands", "local"]);
        assert!(server.ask("TEST.CLOCK FREEZE").starts_with(':'));
        server.ask("SET lock:a me NX PX 1");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        let requests = shadow.number("beside_requests");
        // Far more readings than a millisecond has: the lease has ended by every clock but that of the observed server.
        wait_until("time passes", || shadow.number("beside_requests") > requests + 200);
        assert_eq!(shadow.json("who lock:a")["holders"][0]["owner"], "me");
        assert_eq!(shadow.ask("LOCK.HISTORY"), "*0\r\n");
        server.pass(2);
        shadow.read_all();
        assert_eq!(shadow.ask("LOCK.WHO lock:a"), "$-1\r\n");
        let history = shadow.ask("LOCK.HISTORY");
        assert!(history.contains("$6\r\nlock:a\r\n") && history.contains("$7\r\nexpired\r\n"), "{history}");
    }

    #[test]
    fn a_clock_that_jumps_changes_what_is_left_of_a_lease_and_ends_no_lock() {
        let server = observed(&["--enable-test-commands", "local"]);
        assert!(server.ask("TEST.CLOCK FREEZE").starts_with(':'));
        server.ask("SET lock:a me NX PX 7200000");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        server.pass(3_600_000);
        shadow.read_all();
        let holder = shadow.json("who lock:a")["holders"][0].clone();
        assert!(holder["owner"] == "me" && holder["left"].as_u64().unwrap() <= 3_600_000, "{holder}");
        assert_eq!(shadow.ask("LOCK.HISTORY"), "*0\r\n");
    }

    #[test]
    fn a_lock_that_goes_hours_before_its_end_was_released_and_one_with_other_holders_is_another() {
        let server = observed(&[]);
        server.ask("ZADD lock:pool 1800000000000 one 1800000000000 two");
        server.ask("PEXPIRE lock:pool 3600000");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        let change = "ZREM lock:pool one two\r\nZADD lock:pool 1800000000000 three 1800000000000 four";
        server.ask(&format!("MULTI\r\n{change}\r\nPEXPIRE lock:pool 3600000\r\nEXEC"));
        shadow.read_all();
        let history = shadow.ask("LOCK.HISTORY");
        assert!(history.contains("lock:pool") && history.contains("$8\r\nreleased\r\n"), "{history}");
    }

    #[test]
    fn ordinary_data_is_no_lock() {
        let server = observed(&[]);
        server.ask("HSET cart product:17 2");
        server.ask("ZADD limit:ann 1800000000 a");
        server.ask("PEXPIRE limit:ann 3600000");
        server.ask("SET leaderboard:cache x");
        server.ask("SET lockout:ann 3");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        assert_eq!(shadow.ask("DBSIZE"), ":0\r\n");
        assert_eq!(shadow.ask("LOCK.LINT"), "*0\r\n");
    }

    #[test]
    fn a_lock_that_may_not_be_read_any_more_is_inferred_and_not_released() {
        let directory = Directory::new();
        let password = directory.write("password", "secret\n");
        let server = observed(&[]);
        server.ask("SET lock:a me NX PX 3600000");
        server.ask("ACL SETUSER reader on >secret ~* +@all");
        let shadow = Shadow::start(&server.url(), &["--user", "reader", "--password-file", &password]);
        shadow.read_all();
        server.ask("ACL SETUSER reader -pttl");
        shadow.read_all();
        assert!(shadow.ask("LOCK.WHO lock:a").contains("$8\r\ninferred\r\n"));
        assert!(shadow.ask("LOCK.EXPLAIN lock:a").contains("inferred, because it could not be read again"));
        assert!(shadow.json("who lock:a")["holders"][0]["known"] == "inferred");
        assert!(shadow.says("ls").contains("me (inferred)"));
        assert_eq!(shadow.ask("LOCK.HISTORY"), "*0\r\n");
        server.ask("ACL SETUSER reader +pttl");
        shadow.read_all();
        assert!(shadow.ask("LOCK.WHO lock:a").contains("$4\r\nread\r\n"));
    }

    #[test]
    fn a_lock_without_a_lease_is_a_finding_of_lint() {
        let server = observed(&[]);
        server.ask("SETNX lock:a me");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        let lint = shadow.ask("LOCK.LINT");
        assert!(lint.contains("no-lease") && lint.contains("lock:a"), "{lint}");
    }

    #[test]
    fn metrics_say_where_they_come_from() {
        let server = observed(&[]);
        server.ask("SET lock:a me NX PX 3600000");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        let mut page = TcpStream::connect(shadow.address(", http://")).unwrap();
        page.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        page.read_to_string(&mut text).unwrap();
        assert!(text.contains(r#"redlatch_locks_held{source="beside",kind="exclusive"} 1"#), "{text}");
        assert!(text.contains(r#"redlatch_beside_in_gap{source="beside"} 0"#), "{text}");
    }

    #[test]
    fn keys_and_owners_of_any_bytes_are_shown_and_those_beyond_the_bounds_are_not() {
        let server = observed(&[]);
        let long = "x".repeat(1_025);
        let mut link = server.connect();
        for (key, owner) in [
            (&b"lock:\x00\xff\r\n"[..], &b"\x01\xfe\r\n"[..]),
            (b"lock:long", long.as_bytes()),
            (format!("lock:{long}").as_bytes(), b"me"),
            (b"lock:empty", b""),
        ] {
            write!(link, "*3\r\n$3\r\nSET\r\n${}\r\n", key.len()).unwrap();
            link.write_all(key).unwrap();
            write!(link, "\r\n${}\r\n", owner.len()).unwrap();
            link.write_all(owner).unwrap();
            link.write_all(b"\r\n").unwrap();
            link.read_exact(&mut [0; 5]).unwrap();
        }
        server.ask(&format!("HSET hash:lock a:1 1 b:1 {long}"));
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        assert_eq!(shadow.ask("DBSIZE"), ":1\r\n");
        let locks = shadow.json("ls");
        assert!(locks[0]["key"].as_str().unwrap().starts_with("lock:"), "{locks}");
    }
}

/// CLIENT TRACKING: the server tells which keys change. Rounds are a minute apart then, so that pushes show what is shown.
mod tracking {
    use super::*;

    /// Checks what pushes show of a server.
    pub(super) fn check(url: &str, tell: impl Fn(&str) -> String) {
        tell("FLUSHALL");
        tell("SET lock:old me NX PX 3600000");
        let shadow = Shadow::tracking(url, &[]);
        assert!(shadow.ask("INFO beside").contains("beside_by:tracking"));
        let rounds = shadow.number("beside_rounds");
        tell("SET lock:a me NX PX 3600000");
        shadow.wait_for_lock("$2\r\nme\r\n");
        tell("PEXPIRE lock:a 7200000");
        shadow.wait_for_lock("renewals\r\n:1\r\n");
        tell("MULTI\r\nDEL lock:a\r\nSET lock:a you PX 3600000\r\nEXEC");
        shadow.wait_for_lock("$3\r\nyou\r\n");
        let owner = "285475da-9152-4c83-822a-67ee2f116a79:1";
        tell(&format!("MULTI\r\nDEL lock:a\r\nHSET lock:a {owner} 1\r\nPEXPIRE lock:a 3600000\r\nEXEC"));
        shadow.wait_for_lock(owner);
        tell("MULTI\r\nDEL lock:a\r\nZADD lock:a 1800000000000 one\r\nPEXPIRE lock:a 3600000\r\nEXEC");
        shadow.wait_for_lock("$3\r\none\r\n");
        tell("DEL lock:a");
        shadow.wait_until_free();
        tell("LPUSH lock:list x");
        let history = shadow.ask("LOCK.HISTORY MATCH lock:a");
        assert_eq!(history.matches("$8\r\nreleased\r\n").count(), 4, "{history}");
        assert_eq!(history.matches("$8\r\ninferred\r\n").count(), 4, "{history}");
        assert_eq!(shadow.number("beside_rounds"), rounds, "no round has shown it");
        assert_eq!((shadow.ask("DBSIZE"), shadow.number("beside_gaps")), (":1\r\n".to_owned(), 0));
        tell("FLUSHALL");
        wait_until("the flush", || shadow.ask("DBSIZE") == ":0\r\n");
        wait_until("all is read", || shadow.number("beside_in_gap") == 0);
        assert_eq!(shadow.number("beside_gaps"), 1);
    }

    #[test]
    fn grants_renewals_releases_and_a_flush_show_without_a_round() {
        let server = observed(&[]);
        check(&server.url(), |words| server.ask(words));
    }

    #[test]
    fn a_lock_whose_key_has_changed_is_inferred_until_it_is_read_again() {
        let server = observed(&[]);
        server.ask("SET lock:a me NX PX 3600000");
        let shadow = Shadow::tracking(&server.url(), &["--rate", "5/s"]);
        let who = || shadow.ask("LOCK.WHO lock:a");
        wait_until("it is inferred", || {
            server.ask("PEXPIRE lock:a 3600000");
            who().contains("$8\r\ninferred\r\n")
        });
        wait_until("it is read again", || who().contains("$4\r\nread\r\n"));
        assert_eq!(shadow.number("beside_gaps"), 0);
    }

    #[test]
    fn a_server_that_starts_again_is_read_again_and_asked_for_changes_again() {
        let directory = Directory::new();
        let socket = directory.path("socket");
        let url = format!("unix://{socket}");
        let server = observed(&["--unixsocket", &socket]);
        server.ask("SET lock:b me NX PX 3600000");
        let shadow = Shadow::tracking(&url, &[]);
        server.kill();
        wait_until("the gap is seen", || shadow.number("beside_in_gap") == 1);
        assert!(shadow.ask("LOCK.WHO lock:b").contains("$8\r\ninferred\r\n"));
        let server = observed(&["--unixsocket", &socket]);
        wait_until("the gap is over", || shadow.number("beside_in_gap") == 0);
        assert_eq!((shadow.ask("LOCK.WHO lock:b"), shadow.number("beside_gaps")), ("$-1\r\n".to_owned(), 1));
        let rounds = shadow.number("beside_rounds");
        server.ask("SET lock:a me NX PX 3600000");
        shadow.wait_for_lock("$2\r\nme\r\n");
        assert_eq!(shadow.number("beside_rounds"), rounds, "no round has shown it");
    }

    #[test]
    fn without_the_right_to_be_told_changes_the_server_is_read_in_rounds() {
        let directory = Directory::new();
        let password = directory.write("password", "secret\n");
        let server = observed(&[]);
        server.ask("ACL SETUSER reader on >secret ~* +@all -client|tracking");
        let login = ["--user", "reader", "--password-file", &password];
        let shadow = Shadow::tracking(&server.url(), &login);
        assert!(shadow.0.said.contains("what=\"CLIENT TRACKING\""), "{}", shadow.0.said);
        server.ask("SET lock:a me NX PX 3600000");
        shadow.read_all();
        assert_eq!(shadow.json("who lock:a")["holders"][0]["owner"], "me");
        assert!(shadow.ask("INFO beside").contains("beside_by:reading"));
    }

    #[test]
    fn it_needs_a_pattern() {
        let (code, _, told) = ended(redlatch().args(["beside", "redis://localhost:1", "--by", "tracking"]));
        assert!(code == Some(64) && told.contains("--match"), "{told}");
    }
}

mod refused {
    use super::*;

    #[test]
    fn every_command_that_would_change_a_lock_is_refused_by_name() {
        let server = observed(&[]);
        server.ask("SET lock:a me NX PX 3600000");
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.read_all();
        for (words, name) in [
            ("SET lock:a you", "SET"),
            ("DEL lock:a", "DEL"),
            ("FLUSHALL", "FLUSHALL"),
            ("LOCK.ACQUIRE lock:b you", "LOCK.ACQUIRE"),
            ("LOCK.RELEASE lock:a me", "LOCK.RELEASE"),
            ("LOCK.BREAK lock:a TOKEN 1", "LOCK.BREAK"),
            ("LOCK.GUARD lock:a 1", "LOCK.GUARD"),
            ("LOCK.TOKEN lock:a me", "LOCK.TOKEN"),
            ("EVAL \"return redis.call('del',KEYS[1])\" 1 lock:a", "DEL"),
        ] {
            let said = shadow.ask(words);
            let expected =
                format!("READONLY {name} is refused: this server only shows the locks of redis://");
            assert!(said.starts_with('-') && said.contains(&expected), "{words}: {said}");
        }
        assert_eq!(shadow.json("who lock:a")["holders"][0]["owner"], "me");
    }

    #[test]
    fn a_login_in_the_url_is_refused_and_not_repeated() {
        for words in ["beside", "doctor"] {
            let (code, _, told) = ended(redlatch().args([words, "redis://:hunter2@localhost:1"]));
            assert!(code == Some(64) && told.contains("--password-file"), "{told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }

    #[test]
    fn a_server_that_is_none_or_refuses_the_login_has_its_exit_status() {
        let directory = Directory::new();
        let wrong = directory.write("wrong", "hunter3\n");
        let guarded = observed(&["--requirepass", "hunter2"]);
        let web = TcpListener::bind("127.0.0.1:0").unwrap();
        let web_url = format!("redis://{}", web.local_addr().unwrap());
        thread::spawn(move || {
            for stream in web.incoming() {
                let _ = stream.unwrap().write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        for command in ["beside", "doctor"] {
            let status = |words: &[&str]| ended(redlatch().arg(command).args(words));
            let (code, _, told) = status(&["unix:///no/such/socket"]);
            assert!(code == Some(69) && told.contains("/no/such/socket"), "{told}");
            let (code, _, told) = status(&[&web_url]);
            assert!(code == Some(69) && told.contains("not a reply"), "{told}");
            let (code, _, told) = status(&[&guarded.url(), "--password-file", &wrong]);
            assert!(code == Some(77) && !told.contains("hunter"), "{told}");
            let (code, _, told) = status(&[&guarded.url()]);
            assert!(code == Some(77) && told.contains("NOAUTH"), "{told}");
        }
    }

    #[test]
    fn the_rights_that_the_page_names_are_enough() {
        let page = include_str!("../../docs/beside.md");
        let rights =
            page.split("ACL SETUSER reader on >password").nth(1).unwrap().split("```").next().unwrap();
        let rights = rights.replace('\n', " ") + " +client|tracking +ping +client|setinfo +client|no-touch";
        let directory = Directory::new();
        let password = directory.write("password", "secret\n");
        let server = observed(&[]);
        LOCKS.iter().for_each(|words| drop(server.ask(words)));
        assert_eq!(server.ask(&format!("ACL SETUSER reader on >secret {rights}")), "+OK\r\n");
        let login = ["--user", "reader", "--password-file", &password];
        let shadow = Shadow::tracking(&server.url(), &login);
        shadow.wait_for_lock("$2\r\nme\r\n");
        signal(&shadow.0.process, "TERM");
        let (_, log) = shadow.0.end_with_log();
        assert!(!log.contains("refuses a part"), "{log}");
        let words = ["doctor", &server.url(), "--for", "1s", "--json"];
        let (_, said, told) = ended(redlatch().args(words).args(login));
        assert!(said.contains("\"forbidden\": []"), "{said}{told}");
    }

    #[test]
    fn a_right_without_which_nothing_can_be_read_ends_it_and_any_other_is_named_once() {
        let directory = Directory::new();
        let password = directory.write("password", "secret\n");
        let server = observed(&[]);
        server.ask("SET lock:a me NX PX 3600000");
        server.ask("ACL SETUSER reader on >secret ~* +@all -pttl -info");
        let login = ["--user", "reader", "--password-file", &password];
        let mut shadow = Shadow::start(&server.url(), &login);
        shadow.0.wait_for("what=\"PTTL\"");
        assert_eq!(shadow.ask("DBSIZE"), ":0\r\n");
        server.ask("ACL SETUSER reader -scan");
        let (code, log) = shadow.0.end_with_log();
        assert!(code == Some(77) && log.matches("what=\"PTTL\"").count() == 1, "{log}");
    }

    #[test]
    fn more_keys_than_are_read_without_a_pattern_ask_for_one() {
        let server = observed(&[]);
        let mut request = format!("*{}\r\n$4\r\nMSET\r\n", 2 * 100_001 + 1);
        for number in 0..100_001 {
            request.push_str(&format!("$6\r\n{number:06}\r\n$1\r\nx\r\n"));
        }
        let mut link = server.connect();
        link.write_all(request.as_bytes()).unwrap();
        link.read_exact(&mut [0; 5]).unwrap();
        let (code, _, told) = ended(redlatch().args(["beside", &server.url()]));
        assert!(code == Some(64) && told.contains("100001 keys") && told.contains("--match"), "{told}");
    }
}

mod gaps {
    use super::*;

    #[test]
    fn a_signal_ends_it() {
        let server = observed(&[]);
        let shadow = Shadow::start(&server.url(), &[]);
        shadow.0.signal("TERM");
        assert_eq!(shadow.0.end(), Some(0));
    }

    #[test]
    fn while_the_server_cannot_be_read_locks_are_inferred_and_afterwards_all_is_read_again() {
        let directory = Directory::new();
        let socket = directory.path("socket");
        let start = || observed(&["--unixsocket", &socket]);
        let url = format!("unix://{socket}");
        let server = start();
        server.ask("SET lock:a me NX PX 3600000");
        let shadow = Shadow::start(&url, &[]);
        shadow.read_all();
        server.kill();
        wait_until("the gap is seen", || shadow.number("beside_in_gap") == 1);
        assert!(shadow.ask("LOCK.WHO lock:a").contains("$8\r\ninferred\r\n"));
        assert_eq!(shadow.ask("LOCK.HISTORY"), "*0\r\n", "nobody has seen an end");
        let server = start();
        server.ask("SET lock:b you NX PX 3600000");
        wait_until("the gap is over", || shadow.number("beside_in_gap") == 0);
        shadow.read_all();
        assert_eq!(shadow.ask("LOCK.WHO lock:a"), "$-1\r\n");
        assert_eq!(shadow.json("who lock:b")["holders"][0]["owner"], "you");
        assert_eq!(shadow.number("beside_gaps"), 1);
    }
}

mod secrets {
    use super::*;

    #[test]
    fn a_password_comes_from_a_file_or_the_environment_and_is_shown_nowhere() {
        let directory = Directory::new();
        let file = directory.write("password", "hunter2\n");
        let server = observed(&["--requirepass", "hunter2"]);
        let shadow = Shadow::start(&server.url(), &["--password-file", &file]);
        shadow.read_all();
        let seen = [shadow.ask("INFO everything"), shadow.ask("CONFIG GET *"), shadow.0.said.clone()];
        assert!(seen.iter().all(|text| !text.contains("hunter2")));
        let report = ended(
            redlatch()
                .args(["doctor", &server.url(), "--for", "100ms"])
                .env("REDLATCH_OBSERVED_PASSWORD", "hunter2"),
        );
        assert!(report.0 == Some(0) && !report.1.contains("hunter2"), "{report:?}");
    }
}

mod asked {
    use super::*;

    /// The requests of a reader and of a doctor to a server with a lock of each kind.
    fn observe(url: &str) {
        let shadow = Shadow::start(url, &[]);
        shadow.read_all();
        let (_, report, told) = ended(redlatch().args(["doctor", url, "--for", "100ms"]));
        assert!(report.contains(" locks among "), "{report}{told}");
        Shadow::tracking(url, &[]);
    }

    fn check(info: &str) {
        let sent: Vec<&str> = calls(info).into_iter().filter(|name| !COUNTING.contains(name)).collect();
        let unknown: Vec<_> = sent.iter().filter(|name| !READS.contains(name)).collect();
        assert!(
            unknown.is_empty()
                && ["client|tracking", "hgetall", "zrange"].iter().all(|name| sent.contains(name)),
            "{unknown:?}: {sent:?}"
        );
    }

    #[test]
    fn no_request_writes() {
        let server = observed(&[]);
        LOCKS.iter().for_each(|words| drop(server.ask(words)));
        assert_eq!(server.ask("CONFIG RESETSTAT"), "+OK\r\n");
        observe(&server.url());
        check(&server.ask("INFO commandstats"));
    }

    fn real(name: &'static str) {
        let server = RealServer::start(name);
        let url = server.url();
        LOCKS.iter().for_each(|words| drop(told(&url, words)));
        let shadow = Shadow::start(&url, &[]);
        shadow.read_all();
        let locks = shadow.json("ls");
        let mut held: Vec<&str> =
            locks.as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap()).collect();
        held.sort_unstable();
        assert_eq!(held, ["lock:a", "lock:pool", "stock"], "{locks}");
        lease_ends(&shadow, |words| told(&url, words));
        drop(shadow);
        told(&url, "CONFIG SET maxmemory 100mb");
        told(&url, "CONFIG SET maxmemory-policy allkeys-lru");
        let (code, report, _) = ended(redlatch().args(["doctor", &url, "--for", "1s"]));
        assert!(code == Some(1) && report.contains("eviction") && report.contains("crash"), "{report}");
        assert_eq!(told(&url, "CONFIG RESETSTAT"), "+OK\r\n");
        observe(&url);
        check(&told(&url, "INFO commandstats"));
        tracking::check(&url, |words| told(&url, words));
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn a_real_redis_is_shown_and_checked_without_a_write() {
        real("redis");
    }

    #[cfg(feature = "tls")]
    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn a_real_redis_is_shown_over_tls() {
        let (directory, authority) = (Directory::new(), Authority::new("locks"));
        let (certificate, key) = authority.vouch("redis");
        let files = [("ca", &authority.pem), ("certificate", &certificate), ("key", &key)];
        let [ca, certificate, key] = files.map(|(name, text)| directory.write(name, text));
        let start = || {
            let port = free_port().to_string();
            let server = ["--tls-port", &port, "--tls-cert-file", &certificate, "--tls-key-file", &key];
            let clients = ["--tls-ca-cert-file", &ca, "--tls-auth-clients", "no"];
            Some((RealServer::try_start("redis", &[&server[..], &clients].concat())?, port))
        };
        // Another program may take the port first.
        let (server, port) = (0..STARTS_MAX).find_map(|_| start()).unwrap();
        told(&server.url(), "SET lock:a me NX PX 3600000");
        let shadow = Shadow::tracking(&format!("rediss://localhost:{port}"), &["--cacert", &ca]);
        shadow.wait_for_lock("$2\r\nme\r\n");
        told(&server.url(), "DEL lock:a");
        shadow.wait_until_free();
        assert_eq!(shadow.number("beside_gaps"), 0);
    }

    #[test]
    #[ignore = "needs REDLATCH_VALKEY_SERVER"]
    fn a_real_valkey_is_shown_and_checked_without_a_write() {
        real("valkey");
    }
}
