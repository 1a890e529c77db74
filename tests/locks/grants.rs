//! Locks of unchanged clients: which commands make a key a lock, and what becomes of its grant.
//!
//! Rule    the clock stands still until a test moves it.

use std::collections::BTreeSet;

use redlatch_core::locks::Grant;

use crate::support::bare::{Bare, EXTEND, RELEASE, load, request};

/// Sends a command line; returns the reply.
fn send(bare: &mut Bare, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    String::from_utf8_lossy(bare.send(&request(&words))).into_owned()
}

/// The token under a key.
fn token(bare: &Bare, key: &str) -> Option<u64> {
    bare.grant(key).map(|grant| grant.token)
}

#[test]
fn a_key_that_is_stored_only_if_it_does_not_exist_is_a_lock() {
    for line in [
        "SET lock me NX",
        "SET lock me NX PX 10000",
        "SET lock me EX 10 NX GET",
        "SETNX lock me",
        "MSETNX lock me other me",
        "MSETEX 2 lock me other me NX PX 10000",
        "EVAL return(redis.call('set',KEYS[1],ARGV[1],'NX','PX',9)) 1 lock me",
        "EVAL return(redis.call('setnx',KEYS[1],ARGV[1])) 1 lock me",
        "EVAL return(string.rep('x',redis.call('setnx',KEYS[1],ARGV[1]))) 1 lock me",
    ] {
        let mut bare = Bare::new();
        send(&mut bare, line);
        let grant = bare.grant("lock").unwrap_or_else(|| panic!("{line}: no lock"));
        assert_eq!((grant.token, grant.holder, grant.renewals, grant.is_native), (1, 1, 0, false), "{line}");
        assert_eq!(grant.since.as_millis(), bare.now_ms(), "{line}");
    }
}

#[test]
fn a_key_that_might_have_existed_is_no_lock() {
    for line in [
        "SET lock me", "SET lock me PX 10000", "SET lock me IFNE you", "SET lock me IFDNE 0123456789abcdef",
        "MSETEX 1 lock me EX 10", "SETEX lock 10 me", "PSETEX lock 10000 me", "GETSET lock me",
        "MSET lock me", "APPEND lock me", "SETRANGE lock 0 me", "INCR lock", "INCRBYFLOAT lock 1",
        "INCREX lock EX 10", "HSET lock me 1", "HSETNX lock me 1", "LPUSH lock me", "SADD lock me",
        "ZADD lock NX 1 me",
    ] {
        let mut bare = Bare::new();
        let reply = send(&mut bare, line);
        assert!(!reply.starts_with('-') && send(&mut bare, "EXISTS lock") == ":1\r\n", "{line}: {reply}");
        assert_eq!(bare.grant("lock"), None, "{line}");
    }
}

// Shows P-tokens-rise.
#[test]
fn tokens_rise_from_grant_to_grant_and_a_refusal_takes_none() {
    let mut bare = Bare::new();
    send(&mut bare, "SET a me NX PX 10000");
    for line in ["SET a you NX", "SETNX a you", "MSETNX b you a you", "MSETEX 2 b you a you NX EX 9"] {
        send(&mut bare, line);
    }
    assert_eq!(token(&bare, "b"), None);
    send(&mut bare, "MSETNX b me c me");
    assert_eq!(["a", "b", "c"].map(|key| token(&bare, key)), [Some(1), Some(2), Some(3)]);
    bare.pass(10_001);
    assert_eq!(token(&bare, "a"), None, "the lease has ended");
    send(&mut bare, "SETNX a me");
    assert_eq!(token(&bare, "a"), Some(4));
}

#[test]
fn a_new_lease_renews_the_grant() {
    let mut bare = Bare::new();
    let extend = load(&mut bare, EXTEND);
    send(&mut bare, "SET lock me NX PX 10000");
    let first = bare.grant("lock").expect("granted");
    assert_eq!(first.lease_ms, Some(10_000));
    bare.pass(500);
    let by_script = format!("EVALSHA {extend} 1 lock me 4000");
    for (renewals, (line, lease_ms)) in (1..).zip([
        ("PEXPIRE lock 20000", Some(20_000)),
        ("EXPIRE lock 5", Some(5_000)),
        (&by_script, Some(4_000)),
        ("GETEX lock PX 3000", Some(3_000)),
        ("SET lock me XX PX 2000", Some(2_000)),
        ("SET lock me IFEQ me PX 6000", Some(6_000)),
        ("SET lock me IFDNE 0123456789abcdef PX 7000", Some(7_000)),
        ("MSETEX 1 lock me XX PX 8000", Some(8_000)),
        ("PEXPIRE lock 99999999999", Some(u32::MAX)),
        ("SET lock me", None),
    ]) {
        let reply = send(&mut bare, line);
        assert!(!reply.starts_with('-') && reply != ":0\r\n", "{line}: {reply}");
        let expected = Grant { renewals, lease_ms, ..first };
        assert_eq!(bare.grant("lock"), Some(expected), "{line}");
    }
}

#[test]
fn another_value_ends_the_grant() {
    for line in [
        "SET lock you", "SET lock you XX KEEPTTL", "SET lock you IFEQ me", "GETSET lock you",
        "SET lock you IFDNE 0123456789abcdef", "MSETEX 1 lock you XX", "MSET lock you", "SETEX lock 10 you",
        "APPEND lock x", "SETRANGE lock 0 x", "RENAME other lock", "COPY other lock REPLACE",
        "COPY set lock REPLACE", "DEL lock",
    ] {
        let mut bare = Bare::new();
        send(&mut bare, "SET other me");
        send(&mut bare, "SADD set a");
        send(&mut bare, "SET lock me NX PX 10000");
        let reply = send(&mut bare, line);
        assert!(!reply.starts_with('-'), "{line}: {reply}");
        assert_eq!(bare.grant("lock"), None, "{line}");
    }
}

#[test]
fn reading_or_refusing_leaves_the_grant_as_it_is() {
    let mut bare = Bare::new();
    let release = load(&mut bare, RELEASE);
    send(&mut bare, "SET lock me NX PX 10000");
    let granted = bare.grant("lock");
    let refused = format!("EVALSHA {release} 1 lock you");
    for line in [
        "GET lock", "DIGEST lock", "PTTL lock", "SET lock you IFEQ you", "MSETEX 2 lock you b you NX",
        "SET lock you NX", "SETNX lock you", "PEXPIRE lock 1 GT", &refused, "SETRANGE lock 0 m",
    ] {
        send(&mut bare, line);
        assert_eq!(bare.grant("lock"), granted, "{line}");
    }
    bare.send(&request(&["APPEND", "lock", ""]));
    assert_eq!(bare.grant("lock"), granted, "an empty APPEND");
    send(&mut bare, &format!("EVALSHA {release} 1 lock me"));
    assert_eq!(bare.grant("lock"), None);
}

#[test]
fn a_flushed_lock_is_gone_and_its_token_is_not_given_again() {
    let mut bare = Bare::new();
    send(&mut bare, "SET lock me NX");
    send(&mut bare, "FLUSHALL");
    send(&mut bare, "SET lock me NX");
    assert_eq!(token(&bare, "lock"), Some(2));
}

#[test]
fn a_client_that_is_refused_a_lock_again_and_again_polls_it() {
    let add = "EVAL return(redis.call('exists',KEYS[1])<1)and(redis.call('setex',KEYS[1],ARGV[2],ARGV[1])) 1 lock me 9";
    let text = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])";
    let known = load(&mut Bare::new(), text);
    for (line, does_poll) in [
        ("SET lock me NX PX 10000".to_owned(), true),
        ("SETNX lock me".to_owned(), true),
        ("EVAL return(redis.call('set',KEYS[1],ARGV[1],'NX')) 1 lock me".to_owned(), true),
        (format!("EVALSHA {known} 1 lock me 9"), true),
        (add.to_owned(), false),
        ("SET lock me XX".to_owned(), false),
        ("SET other me NX".to_owned(), false),
        ("GET lock".to_owned(), false),
    ] {
        let mut bare = Bare::new();
        load(&mut bare, text);
        send(&mut bare, "SET lock you");
        for _ in 0..3 {
            bare.pass(50);
            send(&mut bare, &line);
        }
        let polls = bare.polls("lock");
        assert_eq!(
            polls.map(|polls| (polls.refusals, polls.mean_ms)),
            does_poll.then_some((3, 50)),
            "{line}"
        );
        send(&mut bare, "DEL lock");
        send(&mut bare, &line);
        assert_eq!(bare.polls("lock"), None, "{line}: it has the lock");
    }
}

#[test]
fn steps_of_lock_list_show_every_lock_once_whatever_their_size() {
    let mut bare = Bare::new();
    for n in 0..200 {
        send(&mut bare, &format!("SET lock:{n} me NX PX 10000"));
        send(&mut bare, &format!("SET plain:{n} me PX 10000"));
    }
    for count in [1, 7, 16, 100, 100_000] {
        let (mut seen, mut cursor) = (BTreeSet::new(), "0".to_owned());
        loop {
            let reply = send(&mut bare, &format!("LOCK.LIST CURSOR {cursor} COUNT {count}"));
            let mut words = reply.split("\r\n").filter(|word| !word.starts_with(['*', '$', ':']));
            cursor = words.next().expect("a cursor").to_owned();
            let keys = words.clone().zip(words.skip(1)).filter(|(name, _)| *name == "key");
            let before = seen.len();
            let step: Vec<_> = keys.map(|(_, key)| key.to_owned()).collect();
            seen.extend(step.iter().cloned());
            assert_eq!(seen.len(), before + step.len(), "steps of {count}: a lock twice");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 200, "steps of {count}");
        assert!(seen.iter().all(|key| key.starts_with("lock:")), "steps of {count}: {seen:?}");
    }
}

#[test]
fn a_client_that_polls_faster_than_twenty_times_a_second_is_a_finding() {
    for (interval_ms, is_finding) in [(49, true), (50, false)] {
        let mut bare = Bare::new();
        send(&mut bare, "CONFIG SET lock-lint yes");
        send(&mut bare, "SET lock you");
        for _ in 0..40 {
            send(&mut bare, "SET lock me NX PX 1000");
            bare.pass(interval_ms);
        }
        let found = send(&mut bare, "LOCK.LINT");
        assert_eq!(found.contains("fast-polling"), is_finding, "{interval_ms} ms: {found}");
        assert_eq!(found.contains("count\r\n:2\r\n"), is_finding, "once for twenty refusals: {found}");
    }
}

#[test]
fn releases_of_all_locks_are_remembered_from_the_first_question_on() {
    for question in [&["LOCK.EXPLAIN lock:0"][..], &["MULTI", "LOCK.EXPLAIN lock:0", "EXEC"]] {
        let mut bare = Bare::new();
        let mut told = |key: &str, prepare: &[&str]| {
            send(&mut bare, &format!("SET {key} me NX"));
            send(&mut bare, &format!("DEL {key}"));
            prepare.iter().for_each(|line| drop(send(&mut bare, line)));
            send(&mut bare, &format!("LOCK.EXPLAIN {key}")).contains("released by me")
        };
        assert!(!told("lock:0", question), "before the first question");
        for n in 1..50 {
            assert!(told(&format!("lock:{n}"), &[]), "{question:?}: lock:{n}");
        }
    }
}
