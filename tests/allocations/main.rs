//! Allocations per command, counted by the allocator: exact, and equal on every machine.
//!
//! What belongs here: commands on the path of a lock client, each after it has been sent a few times, decoded and
//! carried out as the shell does it. A count that grows is a promise broken, not a slow day.

#[allow(dead_code, unused_imports, reason = "the suite uses the rest")]
#[path = "../support/mod.rs"]
mod support;

mod held;

use allocation_counter::measure;
use redlatch_core::scripts::Inputs;
use redlatch_core::scripts::native::Program;
use support::bare::{Bare, EXTEND, RELEASE, SHARDS, load, request};
use support::rng::tally;
use support::shapes::shapes;
use support::words::info_field;

/// Calls before the count begins: they size the buffers and build lazy tables.
const WARM_UP: usize = 20;
const COUNTED: usize = 1_000;

/// Allocations in [`COUNTED`] rounds of `requests`, each of which must have the reply next to it.
fn allocations(bare: &mut Bare, requests: &[(Vec<u8>, &str)]) -> u64 {
    let round = |bare: &mut Bare| {
        for (request, answer) in requests {
            let got = bare.send(request);
            assert_eq!(got, answer.as_bytes(), "{:?}", String::from_utf8_lossy(got));
        }
    };
    (0..WARM_UP).for_each(|_| round(bare));
    measure(|| (0..COUNTED).for_each(|_| round(bare))).count_total
}

/// A server on which `lock:stock` is held by `me` for a minute.
fn held() -> Bare {
    let mut bare = Bare::new();
    assert_eq!(bare.send(&acquire("me")), b"+OK\r\n");
    bare
}

fn acquire(token: &str) -> Vec<u8> {
    request(&["SET", "lock:stock", token, "NX", "PX", "60000"])
}

fn evalsha(sha: &str, args: &[&str]) -> Vec<u8> {
    let mut words = vec!["EVALSHA", sha, "1", "lock:stock"];
    words.extend_from_slice(args);
    request(&words)
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(vec![1_u8; 100]))).count_total, 1);
}

mod no_allocation_for {
    use super::*;

    #[test]
    fn a_read() {
        let mut bare = held();
        let requests = [
            (request(&["GET", "lock:stock"]), "$2\r\nme\r\n"),
            (request(&["get", "nobody:here"]), "$-1\r\n"),
            (request(&["EXISTS", "lock:stock"]), ":1\r\n"),
            (request(&["PING"]), "+PONG\r\n"),
            (request(&["PTTL", "lock:stock"]), ":60000\r\n"),
            (request(&["DEL", "nobody:here"]), ":0\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_read_over_resp3() {
        let mut bare = held();
        bare.send(&request(&["HELLO", "3"]));
        let requests = [(request(&["GET", "nobody:here"]), "_\r\n")];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_lock_that_another_client_holds() {
        let mut bare = held();
        let requests = [
            (acquire("you"), "$-1\r\n"),
            (request(&["SETNX", "lock:stock", "you"]), ":0\r\n"),
            (request(&["set", "lock:stock", "you", "ex", "60", "nx"]), "$-1\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_lease_that_is_extended() {
        let mut bare = held();
        let requests = [
            (request(&["PEXPIRE", "lock:stock", "60000"]), ":1\r\n"),
            (request(&["SET", "lock:stock", "me", "XX", "PX", "60000"]), "+OK\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    /// A re-entrant lock is a hash: one field per holder, with its hold count.
    #[test]
    fn a_hash_lock_that_is_held_again_and_asked_about() {
        let mut bare = Bare::new();
        assert_eq!(bare.send(&request(&["HSET", "lock", "holder:1", "1", "mode", "write"])), b":2\r\n");
        assert_eq!(bare.send(&request(&["PEXPIRE", "lock", "60000"])), b":1\r\n");
        let requests = [
            (request(&["HEXISTS", "lock", "holder:1"]), ":1\r\n"),
            (request(&["HINCRBY", "lock", "holder:1", "1"]), ":2\r\n"),
            (request(&["PEXPIRE", "lock", "60000"]), ":1\r\n"),
            (request(&["HGET", "lock", "mode"]), "$5\r\nwrite\r\n"),
            (request(&["HSET", "lock", "mode", "read"]), ":0\r\n"),
            (request(&["HINCRBY", "lock", "holder:1", "-1"]), ":1\r\n"),
            (request(&["HSET", "lock", "mode", "write"]), ":0\r\n"),
            (request(&["HSETNX", "lock", "mode", "read"]), ":0\r\n"),
            (request(&["HLEN", "lock"]), ":2\r\n"),
            (request(&["HDEL", "lock", "holder:2"]), ":0\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    /// A semaphore is a sorted set: its holders, scored by time.
    #[test]
    fn a_semaphore_that_is_refreshed_and_asked_about() {
        let mut bare = Bare::new();
        assert_eq!(
            bare.send(&request(&["ZADD", "s", "1700000000000", "me", "1700000000001", "you"])),
            b":2\r\n"
        );
        let requests = [
            (request(&["ZREMRANGEBYSCORE", "s", "-inf", "1690000000000"]), ":0\r\n"),
            (request(&["ZCARD", "s"]), ":2\r\n"),
            (request(&["ZADD", "s", "XX", "CH", "1700000000009", "me"]), ":1\r\n"),
            (request(&["ZADD", "s", "XX", "CH", "1700000000000.5", "me"]), ":1\r\n"),
            (request(&["ZSCORE", "s", "me"]), "$15\r\n1700000000000.5\r\n"),
            (request(&["ZRANK", "s", "me"]), ":0\r\n"),
            (request(&["ZCOUNT", "s", "-inf", "+inf"]), ":2\r\n"),
            (request(&["ZRANGE", "s", "0", "0"]), "*1\r\n$2\r\nme\r\n"),
            (request(&["ZREM", "s", "nobody"]), ":0\r\n"),
            (request(&["ZADD", "s", "XX", "CH", "1700000000000", "me"]), ":1\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_script_that_extends_a_lease() {
        let mut bare = held();
        let sha = load(&mut bare, EXTEND);
        let requests = [
            (evalsha(&sha, &["me", "60000"]), ":1\r\n"),
            (evalsha(&sha, &["you", "60000"]), ":0\r\n"),
            (evalsha(&sha.to_uppercase(), &["me", "60000"]), ":1\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_script_that_releases_a_lock_and_a_lock_taken_again() {
        let mut bare = held();
        let sha = load(&mut bare, RELEASE);
        let requests = [
            (evalsha(&sha, &["you"]), ":0\r\n"),
            (evalsha(&sha, &["me"]), ":1\r\n"),
            (evalsha(&sha, &["me"]), ":0\r\n"),
            (acquire("me"), "+OK\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn any_lock_script_but_those_that_answer_with_arrays_or_have_lists() {
        let (mut tried, acquire) = (0, acquire("me"));
        for (name, text) in shapes() {
            let mut bare = held();
            let sha = load(&mut bare, &text);
            let program = Program::read(text.as_bytes()).expect("a native script");
            for token in ["me", "you"] {
                let args = [token, "60000", "60000", "publish", "60000"];
                // A call whose arguments do not fit the program is interpreted; lock clients send none.
                let fits = program.fits(Inputs::new(&[b"lock:stock"], &args.map(str::as_bytes)));
                let call = evalsha(&sha, &args);
                let makes_lists = ["{", "zrange", "'mget'", "'time'"].iter().any(|word| text.contains(word));
                let answer = bare.send(&call).first().copied();
                if !fits || makes_lists || matches!(answer, Some(b'*' | b'-')) {
                    continue;
                }
                tried += 1;
                let mut take_and_call = || {
                    bare.send(&acquire);
                    bare.send(&call);
                };
                (0..WARM_UP).for_each(|_| take_and_call());
                assert_eq!(measure(take_and_call).count_total, 0, "{name}, called by {token}: {text}");
            }
        }
        assert!(tried > 40, "{tried} calls were tried");
    }

    /// Redisson's lock: taken, taken again, let go in two steps, and the latch that remembers the answer.
    #[test]
    fn a_hash_lock_that_scripts_take_and_release() {
        let mut bare = Bare::new();
        let mut script = |name: &str| {
            let all = shapes();
            let (_, text) = all.iter().find(|(own, _)| own.contains(name)).expect("a script of that name");
            load(&mut bare, text)
        };
        let take = script("RedissonLock.tryLockInnerAsync");
        let release = script("RedissonLock.unlockInnerAsync");
        let take = request(&["EVALSHA", &take, "1", "lock", "30000", "me"]);
        let keys = ["lock", "channel", "latch"];
        let words = [&["EVALSHA", release.as_str(), "3"][..], &keys, &["0", "30000", "me", "publish", "1"]];
        let release = request(&words.concat());
        let requests = [
            (take.clone(), "$-1\r\n"),
            (take, "$-1\r\n"),
            (release.clone(), ":0\r\n"),
            (request(&["DEL", "latch"]), ":1\r\n"),
            (release, ":1\r\n"),
            (request(&["DEL", "latch"]), ":1\r\n"),
        ];
        let count = allocations(&mut bare, &requests);
        // A hash is made and dropped in each round, and nothing beyond it.
        assert!(count <= HASH_ALLOCATIONS * COUNTED as u64, "{count} in {COUNTED} rounds");
    }

    const HASH_ALLOCATIONS: u64 = 8;

    #[test]
    fn a_script_by_its_text() {
        let mut bare = held();
        let requests = [
            (request(&["EVAL", RELEASE, "1", "lock:stock", "you"]), ":0\r\n"),
            (request(&["EVAL", EXTEND, "1", "lock:stock", "me", "60000"]), ":1\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_compare_and_delete_without_a_script() {
        let mut bare = held();
        let requests = [
            (request(&["DELIFEQ", "lock:stock", "you"]), ":0\r\n"),
            (request(&["SET", "lock:stock", "me", "IFEQ", "me", "PX", "60000"]), "+OK\r\n"),
            (request(&["DELEX", "lock:stock", "IFEQ", "me"]), ":1\r\n"),
            (acquire("me"), "+OK\r\n"),
        ];
        assert_eq!(allocations(&mut bare, &requests), 0);
    }

    #[test]
    fn a_fencing_counter() {
        let mut bare = Bare::new();
        // The number gains no digit during the test: a longer one may move to a larger slot, in a new page.
        bare.send(&request(&["SET", "fence", "100000"]));
        let incr = request(&["INCR", "fence"]);
        bare.send(&incr);
        let count =
            |bare: &mut Bare| (0..COUNTED).for_each(|_| assert!(bare.send(&incr).starts_with(b":10")));
        assert_eq!(measure(|| count(&mut bare)).count_total, 0);
        assert_eq!(bare.send(&request(&["GET", "fence"])), b"$6\r\n101001\r\n");
    }

    #[test]
    fn a_pipeline_of_different_commands() {
        let mut bare = held();
        let mut bytes = Vec::new();
        for _ in 0..100 {
            bytes.extend_from_slice(&request(&["GET", "lock:stock"]));
            bytes.extend_from_slice(&acquire("you"));
        }
        let answers = "$2\r\nme\r\n$-1\r\n".repeat(100);
        assert_eq!(allocations(&mut bare, &[(bytes, &answers)]), 0);
    }
}

mod a_granted_lock {
    use super::*;

    /// Locks granted, all of them new.
    const LOCKS: u64 = 20_000;

    fn grants() -> Vec<Vec<u8>> {
        let key = |n| format!("lock:{n:020}");
        let token = "01234567-89ab-cdef-0123-456789abcdef";
        (0..LOCKS).map(|n| request(&["SET", &key(n), token, "NX", "PX", "30000"])).collect()
    }

    fn grant_all(bare: &mut Bare, grants: &[Vec<u8>]) {
        grants.iter().for_each(|grant| assert_eq!(bare.send(grant), b"+OK\r\n"));
    }

    #[test]
    fn costs_at_most_one_allocation_amortised() {
        let (mut bare, grants) = (held(), grants());
        let cost = measure(|| grant_all(&mut bare, &grants));
        assert!(cost.count_total > 0, "memory for {LOCKS} locks came from somewhere");
        assert!(cost.count_total <= LOCKS, "{} allocations for {LOCKS} locks", cost.count_total);
    }

    /// The store's own count of its memory: its slots come from the system, past the counting allocator. Without the history,
    /// which takes its places at the first end of a lock.
    fn used_bytes(bare: &mut Bare) -> i64 {
        let answer = bare.send(&request(&["INFO", "memory"])).to_vec();
        let text = String::from_utf8(answer).expect("INFO is text");
        info_field(&text, "used_memory") as i64 - info_field(&text, "used_memory_lock_history") as i64
    }

    #[test]
    fn gives_its_memory_back_when_its_lease_has_ended() {
        let (mut bare, grants) = (Bare::new(), grants());
        let before = used_bytes(&mut bare);
        let mut live_and_die = || {
            let mut held = 0;
            let heap = measure(|| {
                grant_all(&mut bare, &grants);
                held = used_bytes(&mut bare) - before;
                bare.pass(30_001);
            });
            (heap.bytes_current, held, used_bytes(&mut bare) - before)
        };
        let (heap_first, held_first, left_first) = live_and_die();
        let (heap_second, held_second, left_second) = live_and_die();
        assert!(held_first > 90 * LOCKS as i64, "{held_first} bytes held {LOCKS} locks");
        tally(&[("bytes_a_lock", held_first as u64 / LOCKS)]);
        let more = held_second - held_first;
        assert!(more * 1000 < held_first, "{more} bytes more held the same locks again");
        assert!(left_first < KEPT_BYTES_MAX, "{left_first} bytes are left");
        assert!(heap_first < KEPT_BYTES_MAX, "{heap_first} bytes of heap are left");
        assert!(left_second <= left_first, "{} bytes more are left each time", left_second - left_first);
        assert!(heap_second <= 0, "{heap_second} bytes of heap more are left each time");
        assert_eq!(bare.send(&request(&["DBSIZE"])), b":0\r\n");
    }

    /// Memory that the shards keep for their next locks: a page of 64 KiB and small tables each.
    const KEPT_BYTES_MAX: i64 = SHARDS as i64 * 72 * 1024;
}
