//! The quarantine, and a disk that takes no writes: what is refused, what works, and that both end.
//!
//! Belongs here  answers of single commands, transactions and scripts. Laws of known scripts:
//!               `tests/protocol/scripts/known.rs`.
//! Time          stands still until a test moves it.

use std::time::Duration;

use crate::support::bare::{EXTEND, RELEASE};
use crate::support::engine::EngineTarget;
use crate::support::target::{Link, Target};
use crate::support::words::{request, words};

/// How long the quarantine of most tests lasts.
const LEFT_MS: u64 = 5_000;

/// A server with keys from before its restart, in quarantine unless `is_over`.
struct Restarted {
    target: EngineTarget,
    link: Link,
}

impl Restarted {
    fn new() -> Self {
        let mut target = EngineTarget::start();
        let link = target.connect();
        let mut server = Self { target, link };
        for line in [
            "SET lock me PX 60000", "SET n 5", "HSET h f 2", "PEXPIRE h 60000", "RPUSH l a b c d e f",
            "SADD s a b c d", "ZADD z 1 a 2 b 3 c 4 d 5 e", "XADD x 1-1 f v",
            "LOCK.ACQUIRE native me LEASE 60000",
        ] {
            let reply = server.ask(line);
            assert!(!reply.starts_with('-'), "{line}: {reply}");
        }
        server
    }

    fn in_quarantine() -> Self {
        let server = Self::new();
        let until = server.target.now().lock + LEFT_MS;
        server.target.shared().begin_quarantine(until, "another boot");
        server
    }

    fn ask(&mut self, line: &str) -> String {
        let words = words(line).expect("a request");
        self.send(self.link, &words)
    }

    fn send<W: AsRef<[u8]>>(&mut self, link: Link, words: &[W]) -> String {
        self.target.send(link, &request(words));
        self.heard(link)
    }

    fn heard(&mut self, link: Link) -> String {
        self.target.heard(link).trim_end().replace("\r\n", " ")
    }

    fn pass(&mut self, millis: u64) {
        self.target.advance(Duration::from_millis(millis));
    }
}

fn refusal(left_ms: u64) -> String {
    format!(
        "-QUARANTINE this server may have forgotten locks: none is granted or extended for another {left_ms} ms"
    )
}

#[test]
fn what_would_grant_or_extend_answers_that_the_key_is_held() {
    for (line, answer) in [
        ("SET free me NX PX 100", "$-1"),
        ("SET lock me NX PX 100", "$-1"),
        ("SET lock you NX GET", "$2 me"),
        ("SETNX free me", ":0"),
        ("MSETNX free me other me", ":0"),
        ("MSETEX 2 free NX other me PX 9000 NX", ":0"),
        ("HSETNX h g 1", ":0"),
        ("EXPIRE lock 100", ":0"),
        ("PEXPIRE lock 100000", ":0"),
        ("EXPIREAT lock 9999999999", ":0"),
        ("PEXPIREAT lock 9999999999999", ":0"),
        ("PERSIST lock", ":0"),
        ("EXISTS free", ":1"),
        ("EXISTS free lock free", ":3"),
        ("TTL free", ":5"),
        ("PTTL free", ":5000"),
        ("EXPIRETIME free", ":1700000006"),
        ("PEXPIRETIME free", ":1700000006000"),
        ("PTTL lock", ":60000"),
        ("PTTL n", ":-1"),
    ] {
        assert_eq!(Restarted::in_quarantine().ask(line), answer, "{line}");
    }
}

#[test]
fn other_writes_that_make_or_lengthen_are_refused_and_change_nothing() {
    for line in [
        "SET free me", "SET lock me XX PX 100000", "SET lock me IFEQ me PX 100000", "SET free me NX GET",
        "SETEX lock 100 me", "GETSET lock you", "GETEX lock PX 100000", "GETEX lock PERSIST", "MSET free me",
        "MSETEX 1 free NX EX 9", "APPEND lock x", "INCR n", "INCRBY n 1", "INCRBY free -1",
        "INCRBYFLOAT n -1", "INCREX n BYINT -1", "DECR n", "HSET h g 1", "HINCRBY h f 1", "HINCRBY h g -1",
        "HINCRBY free f -1", "LPUSH l a", "LPUSHX l a", "LMOVE l l LEFT RIGHT", "SADD s e", "SMOVE s free a",
        "ZADD z 9 a", "ZINCRBY z 1 a", "ZINCRBY z -1 free", "XADD x * f v", "RENAME lock free",
        "RENAMENX lock free", "COPY lock free", "MOVE lock 1", "SWAPDB 0 1", "LOCK.ACQUIRE free me",
        "LOCK.ACQUIRE native me LEASE 100000", "LOCK.MACQUIRE 2 free other me",
        "LOCK.MACQUIRE 2 free other me ANY 1", "LOCK.EXTEND native me LEASE 100000",
        "LOCK.TRANSFER native me TO you", "LOCK.GUARD resource 7", "GETDEL lock",
    ] {
        let mut server = Restarted::in_quarantine();
        let before = contents(&mut server);
        assert_eq!(server.ask(line), refusal(LEFT_MS), "{line}");
        assert_eq!(contents(&mut server), before, "{line}");
    }
}

/// Every key with its value and its deadline.
fn contents(server: &mut Restarted) -> Vec<String> {
    let lines = [
        "GET lock", "PTTL lock", "GET n", "HGETALL h", "PTTL h", "LRANGE l 0 -1", "SMEMBERS s",
        "ZRANGE z 0 -1 WITHSCORES", "TYPE x", "GET native", "PTTL native", "DBSIZE",
    ];
    lines.into_iter().map(|line| server.ask(line)).collect()
}

#[test]
fn what_only_removes_works() {
    for (line, answer) in [
        ("DEL lock free", ":1"),
        ("UNLINK lock", ":1"),
        ("GETDEL n", "$1 5"),
        ("DELEX lock IFEQ me", ":1"),
        ("INCRBY n -1", ":4"),
        ("HDEL h f", ":1"),
        ("HGETDEL free FIELDS 1 f", "*1 $-1"),
        ("HINCRBY h f -1", ":1"),
        ("LPOP l", "$1 a"),
        ("RPOP l", "$1 f"),
        ("BLPOP l 1", "*2 $1 l $1 a"),
        ("LREM l 0 a", ":1"),
        ("LTRIM l 0 0", "+OK"),
        ("SREM s a", ":1"),
        ("ZREM z a", ":1"),
        ("ZINCRBY z -1 b", "$1 1"),
        ("ZPOPMIN z", "*2 $1 a $1 1"),
        ("ZREMRANGEBYSCORE z 1 2", ":2"),
        ("XTRIM x MAXLEN 0", ":1"),
        ("LOCK.RELEASE native me", ":1"),
        ("LOCK.BREAK native TOKEN 1", ":1"),
        ("FLUSHALL", "+OK"),
        ("FLUSHDB", "+OK"),
    ] {
        assert_eq!(Restarted::in_quarantine().ask(line), answer, "{line}");
    }
}

#[test]
fn reads_see_what_is_there() {
    for (line, answer) in [
        ("PING", "+PONG"),
        ("GET lock", "$2 me"),
        ("DIGEST free", "$-1"),
        ("GET free", "$-1"),
        ("GETEX lock", "$2 me"),
        ("TYPE free", "+none"),
        ("HEXISTS h g", ":0"),
        ("HGET h f", "$1 2"),
        ("DBSIZE", ":8"),
        ("LOCK.TOKEN native me", ":1"),
    ] {
        assert_eq!(Restarted::in_quarantine().ask(line), answer, "{line}");
    }
    let info = Restarted::in_quarantine().ask("INFO persistence");
    for field in ["quarantine_active:1", "quarantine_left_ms:5000", "quarantine_reason:another boot"] {
        assert!(info.contains(field), "{info}");
    }
}

#[test]
fn it_ends_by_itself_after_its_last_millisecond() {
    let mut server = Restarted::in_quarantine();
    server.pass(LEFT_MS);
    assert_eq!(server.ask("SET free me"), refusal(0));
    assert_eq!(server.ask("PTTL free"), ":0");
    server.pass(1);
    assert_eq!(server.ask("PTTL free"), ":-2");
    assert_eq!(server.ask("SET free me NX PX 100"), "+OK");
    assert_eq!(server.ask("LOCK.EXTEND native me LEASE 60000"), "*4 $5 token :1 $5 lease :60000");
    assert!(server.ask("INFO persistence").contains("quarantine_active:0"));
}

#[test]
fn a_transaction_answers_as_its_commands_do_alone() {
    let mut server = Restarted::in_quarantine();
    for line in ["SET free me NX", "INCR n", "LOCK.ACQUIRE free me WAIT 100", "DEL lock"] {
        if line.starts_with("SET") {
            assert_eq!(server.ask("MULTI"), "+OK");
        }
        assert_eq!(server.ask(line), "+QUEUED");
    }
    let refusal = refusal(LEFT_MS);
    assert_eq!(server.ask("EXEC"), format!("*4 $-1 {refusal} {refusal} :1"));
}

#[test]
fn scripts_that_take_a_lock_see_that_it_is_held() {
    let reentrant = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
        redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil end \
        return redis.call('pttl', KEYS[1])";
    // The second is interpreted: it uses a function that native scripts do not have.
    for prefix in ["", "local _ = string.rep('x', 3) "] {
        let mut server = Restarted::in_quarantine();
        let link = server.link;
        let script = format!("{prefix}{reentrant}");
        assert_eq!(server.send(link, &["EVAL", &script, "1", "free", "60000", "me"]), ":5000");
        let reply = server.send(link, &["EVAL", &script, "1", "h", "60000", "f"]);
        assert!(reply.starts_with(&refusal(LEFT_MS)), "a hold is not taken again: {reply}");
        let nx = format!("{prefix}return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])");
        assert_eq!(server.send(link, &["EVAL", &nx, "1", "free", "me", "60000"]), "$-1");
        assert_eq!(server.ask("DBSIZE"), ":8");
    }
}

#[test]
fn scripts_that_release_work_and_scripts_that_extend_do_not() {
    for prefix in ["", "local _ = string.rep('x', 3) "] {
        let mut server = Restarted::in_quarantine();
        let link = server.link;
        let [release, extend] = [RELEASE, EXTEND].map(|text| format!("{prefix}{text}"));
        let reply = server.send(link, &["EVAL", &extend, "1", "lock", "me", "90000"]);
        assert!(reply.starts_with(&refusal(LEFT_MS)), "{reply}");
        assert_eq!(server.ask("PTTL lock"), ":60000");
        assert_eq!(server.send(link, &["EVAL", &release, "1", "lock", "you"]), ":0");
        assert_eq!(server.send(link, &["EVAL", &release, "1", "lock", "me"]), ":1");
        assert_eq!(server.ask("GET lock"), "$-1");
    }
}

#[test]
fn lock_requests_wait_for_its_end_and_are_served_in_order() {
    let mut server = Restarted::in_quarantine();
    let [first, second, late] = [(); 3].map(|()| server.target.connect());
    let acquire = |wait: &'static str, owner: &'static str| {
        ["LOCK.ACQUIRE", "native", owner, "LEASE", "100", "WAIT", wait]
    };
    assert_eq!(server.send(late, &acquire("1000", "late")), "");
    assert_eq!(server.send(first, &acquire("60000", "first")), "");
    assert_eq!(server.send(second, &acquire("60000", "second")), "");
    server.pass(1_000);
    assert_eq!(server.heard(late), "*-1", "its wait ends in the quarantine");
    assert_eq!(server.ask("LOCK.RELEASE native me"), ":1");
    assert_eq!(server.heard(first), "", "a release in the quarantine grants nothing");
    server.pass(LEFT_MS - 1_000);
    assert_eq!(server.heard(first), "");
    server.pass(1);
    assert_eq!(server.heard(first), "*6 $5 token :2 $5 lease :100 $6 waited :5001");
    assert_eq!(server.heard(second), "");
    server.pass(101);
    assert_eq!(server.heard(second), "*6 $5 token :3 $5 lease :100 $6 waited :5102");
}

#[test]
fn while_the_disk_fails_removals_and_reads_work_and_other_writes_do_not() {
    let mut server = Restarted::new();
    server.target.shared().locks.quarantine.set_disk_error("No space left on device");
    let misconf = "-MISCONF Errors writing to the AOF file: No space left on device";
    for line in [
        "PING", "SET free me NX", "SETNX free me", "EXPIRE lock 100", "INCR n", "HSET h g 1",
        "LOCK.ACQUIRE free me", "LOCK.ACQUIRE free me WAIT 1000", "LOCK.EXTEND native me LEASE 100",
        "LOCK.TRANSFER native me TO you",
    ] {
        assert_eq!(server.ask(line), misconf, "{line}");
    }
    for (line, answer) in [
        ("EXISTS free", ":0"),
        ("PTTL free", ":-2"),
        ("GET lock", "$2 me"),
        ("DEL lock", ":1"),
        ("HINCRBY h f -1", ":1"),
        ("LOCK.RELEASE native me", ":1"),
    ] {
        assert_eq!(server.ask(line), answer, "{line}");
    }
}

#[test]
fn a_request_that_waits_is_served_when_the_disk_has_room_again() {
    let mut server = Restarted::new();
    let waiting = server.target.connect();
    assert_eq!(server.send(waiting, &["LOCK.ACQUIRE", "native", "you", "LEASE", "100", "WAIT", "60000"]), "");
    server.target.shared().locks.quarantine.set_disk_error("No space left on device");
    assert_eq!(server.ask("LOCK.RELEASE native me"), ":1");
    server.pass(10);
    assert_eq!(server.heard(waiting), "");
    server.target.shared().locks.quarantine.clear_disk_error();
    server.pass(1);
    assert_eq!(server.heard(waiting), "*6 $5 token :2 $5 lease :100 $6 waited :10");
    assert_eq!(server.ask("PING"), "+PONG");
}
