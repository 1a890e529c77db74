//! The laws of the known texts: each row says what its text does.
//!
//! Owns    calls of a script as its client makes them, made from its row: KEYS, the owner, the lease, and numbers elsewhere.
//! Rule    the laws of texts need `REDLATCH_SCRIPTS_DIR`, the laws of rows do not.

use std::collections::BTreeSet;

use redlatch_core::scripts::{Granted, Input, Inputs, KNOWN, Kind, Known, Lock, Purpose, Unit};

use super::collected;
use super::runner::{ScriptRunner, WALL_MS};

const KEYS: [&[u8]; 5] = [b"k1", b"k2", b"k3", b"k4", b"k5"];
const OWNER: &str = "owner-1";
const LEASE_MS: i64 = 40_000;

/// One call of a script.
struct Calling {
    keys: Vec<&'static [u8]>,
    args: Vec<String>,
}

impl Calling {
    /// Calls a script as its client does.
    fn new(known: &Known, lock: Lock, text: &str) -> Self {
        let is_about_all = lock.key == Input::EachKey;
        let keys = KEYS[..if is_about_all { 2 } else { KEYS.len() }].to_vec();
        let listed = [lock.owner, lock.lease.map(|lease| lease.input)];
        let paired = listed.iter().flatten().any(|input| matches!(input, Input::PairedArg(_)));
        let count = if paired { keys.len() + 1 } else { words_used(text, "ARGV") };
        // Equal arguments are equally far from the end in the scripts of one client.
        let mut call = Self { keys, args: (0..count).map(|at| (10 + count - at).to_string()).collect() };
        for (at, arg) in call.args.iter_mut().enumerate() {
            if text.replace(' ', "").contains(&format!("redis.call(ARGV[{}],", at + 1)) {
                *arg = "publish".to_owned();
            }
        }
        if known.client == "redlock-rb: lock" {
            call.args[2] = "yes".to_owned();
        }
        for place in 0..call.keys.len() {
            if let Some(owner) = lock.owner {
                call.set(owner, place, OWNER.to_owned());
            }
        }
        if let Some(lease) = lock.lease {
            let lease_text = match lease.unit {
                Unit::Millis | Unit::MoreMillis => LEASE_MS,
                Unit::Seconds | Unit::MoreSeconds => LEASE_MS / 1000,
                Unit::Until => WALL_MS + LEASE_MS,
            };
            call.set(lease.input, 0, lease_text.to_string());
        }
        call
    }

    fn set(&mut self, input: Input, place: usize, word: String) {
        let at = match input {
            Input::Arg(at) => usize::from(at),
            Input::LastArg => self.args.len() - 1,
            Input::PairedArg(offset) => usize::from(offset) + place,
            Input::Key(at) => return self.keys[usize::from(at)] = word.leak().as_bytes(),
            Input::EachKey => panic!("a key is neither owner nor lease"),
        };
        self.args[at] = word;
    }

    fn run(&self, runner: &mut ScriptRunner, text: &str) -> String {
        let count = self.keys.len().to_string();
        let mut words = vec![b"EVAL".as_slice(), text.as_bytes(), count.as_bytes()];
        words.extend(&self.keys);
        words.extend(self.args.iter().map(String::as_bytes));
        String::from_utf8_lossy(&runner.send(&words)).into_owned()
    }

    /// The keys of its lock.
    fn locks(&self, known: &Known) -> Vec<Vec<u8>> {
        let inputs = Inputs::new(&self.keys, &[]);
        known.keys(inputs).map(<[u8]>::to_vec).collect()
    }
}

/// The highest index of KEYS or ARGV in a script's text, from 1. A loop from an index to the end counts as that index.
fn words_used(text: &str, name: &str) -> usize {
    let number = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let text = text.replace(' ', "");
    let (element, end) = (format!("{name}["), format!(",#{name}"));
    let indices = text.match_indices(&element).filter_map(|(at, found)| {
        let rest = &text[at + found.len()..];
        rest[..number(rest)].parse().ok()
    });
    let loops = text.match_indices(&end).filter_map(|(at, _)| {
        let digits = text[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
        text[at - digits..at].parse().ok()
    });
    indices.chain(loops).max().unwrap_or(0)
}

/// What a key holds, in one text.
fn contents(runner: &mut ScriptRunner, key: &[u8]) -> String {
    let looks: [&[&[u8]]; 3] =
        [&[b"GET", key], &[b"HGETALL", key], &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]];
    let seen = looks.map(|words| String::from_utf8_lossy(&runner.send(words)).into_owned());
    seen.into_iter().filter(|seen| !seen.starts_with('-')).collect()
}

fn ttl_ms(runner: &mut ScriptRunner, key: &[u8]) -> i64 {
    let reply = runner.send(&[b"PTTL", key]);
    String::from_utf8_lossy(&reply[1..]).trim_end().parse().expect("an integer")
}

/// The rows with a lock whose texts are collected.
fn rows() -> Vec<(&'static Known, Lock, String)> {
    let collected = collected().expect("REDLATCH_SCRIPTS_DIR names the collected texts");
    let text = |known: &Known| String::from_utf8(collected.get(known.sha1)?.clone()).ok();
    KNOWN.iter().filter_map(|known| Some((known, known.lock?, text(known)?))).collect()
}

/// The acquire script of the structure that a script of the same client works on: the first word of the name is the same.
fn acquirer<'r>(rows: &'r [(&Known, Lock, String)], of: &Known) -> Option<&'r (&'r Known, Lock, String)> {
    let structure = |known: &Known| {
        match known.client {
            "Redisson: renewal" => "Redisson: Lock",
            "Redisson: renewal of multi-locks" => "Redisson: FasterMultiLock",
            client => client.rsplit_once(' ').map_or(client, |(front, _)| front),
        }
        .trim_end_matches(" tryLock")
        .to_owned()
    };
    let is_acquire = |known: &Known| matches!(known.purpose, Purpose::Acquire(_));
    rows.iter().find(|(known, ..)| is_acquire(known) && structure(known) == structure(of))
}

/// Makes a state in which the owner holds the locks that a script works on.
fn hold(runner: &mut ScriptRunner, rows: &[(&Known, Lock, String)], known: &Known, call: &Calling) {
    runner.send(&[b"FLUSHALL"]);
    match acquirer(rows, known) {
        Some((acquire, lock, text)) => {
            runner.send(&[b"SET", b"k1", b"100"]);
            if lock.kind != Kind::Permits || lock.key == Input::Key(0) {
                runner.send(&[b"DEL", b"k1"]);
            }
            let mut acquisition = Calling::new(acquire, *lock, text);
            acquisition.run(runner, text);
            if known.lock.is_some_and(|lock| lock.key == Input::EachKey) && lock.key == Input::Key(0) {
                acquisition.keys[0] = KEYS[1];
                acquisition.run(runner, text);
            }
            // Redisson's permits are in KEYS[2] of some scripts, and in KEYS[3] of others.
            for key in call.locks(known) {
                runner.send(&[b"RENAMENX", b"k2", &key]);
            }
        }
        None => {
            for key in call.locks(known) {
                runner.send(&[b"SET", &key, OWNER.as_bytes()]);
            }
        }
    }
}

#[test]
fn a_known_acquire_script_grants_the_lock_once_to_its_caller() {
    let text = "return redis.call('exists',KEYS[1])<1 and redis.call('setex',KEYS[1],ARGV[2],ARGV[1])";
    let mut runner = ScriptRunner::new();
    let add = |runner: &mut ScriptRunner, text: &str, owner: &str| {
        runner.send(&[b"EVAL", text.as_bytes(), b"1", b"k1", owner.as_bytes(), b"40"])
    };
    assert_eq!(add(&mut runner, text, "a"), b"+OK\r\n");
    let first = runner.grant(b"k1").expect("granted");
    assert_eq!((first.token, first.holder, first.lease_ms), (1, 1, Some(40_000)));
    assert_eq!(add(&mut runner, text, "b"), b"$-1\r\n");
    assert_eq!(runner.grant(b"k1"), Some(first), "a refusal changes nothing");
    runner.send(&[b"DEL", b"k1"]);
    assert_eq!(runner.grant(b"k1"), None);
    add(&mut runner, text, "b");
    assert_eq!(runner.grant(b"k1").map(|grant| grant.token), Some(2));
    runner.send(&[b"DEL", b"k1"]);
    add(&mut runner, &format!("{text} -- not known"), "b");
    assert_eq!(runner.grant(b"k1"), None, "a key that an unknown script has stored is no lock");
}

#[test]
fn every_row_is_in_one_form() {
    let mut seen = BTreeSet::new();
    for known in KNOWN {
        assert!(known.sha1.len() == 40 && known.sha1.bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
        assert!(seen.insert(known.sha1), "{} is there twice", known.sha1);
        assert!(known.client.contains(": "), "{}: `client: script`", known.client);
        let sha = known.sha1.as_bytes().try_into().expect("40 digits");
        assert_eq!(Known::find(&sha).map(|found| found.client), Some(known.client));
        let has = |owner: bool, lease: bool| {
            known.lock.is_some_and(|lock| lock.owner.is_some() == owner && lock.lease.is_some() == lease)
        };
        match known.purpose {
            Purpose::Acquire(_) | Purpose::Extend => assert!(has(true, true), "{}", known.client),
            Purpose::Release => assert!(has(true, false), "{}", known.client),
            Purpose::Break => assert!(has(false, false), "{}", known.client),
            Purpose::Inspect => assert!(known.lock.is_some(), "{}", known.client),
            Purpose::Other => assert!(known.lock.is_none(), "{}", known.client),
        }
    }
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn every_row_names_words_that_its_text_uses() {
    for (known, lock, text) in rows() {
        for input in [Some(lock.key), lock.owner, lock.lease.map(|lease| lease.input)].into_iter().flatten() {
            let is_used = match input {
                Input::Arg(at) => usize::from(at) < words_used(&text, "ARGV"),
                Input::Key(at) => usize::from(at) < words_used(&text, "KEYS"),
                Input::EachKey => text.contains("KEYS)") || text.contains("#KEYS"),
                Input::LastArg => text.contains("ARGV[#ARGV]"),
                Input::PairedArg(0) => text.contains("ARGV[i]"),
                Input::PairedArg(offset) => text.contains(&format!("ARGV[i + {offset}]")),
            };
            assert!(is_used, "{}: {input:?}", known.client);
        }
    }
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn an_acquire_script_leaves_the_owner_in_the_lock_for_its_lease() {
    let (mut runner, mut count) = (ScriptRunner::new(), 0);
    for (known, lock, text) in rows() {
        let Purpose::Acquire(granted) = known.purpose else { continue };
        count += 1;
        runner.send(&[b"FLUSHALL"]);
        let call = Calling::new(known, lock, &text);
        if lock.key == Input::Key(1) {
            assert!(!granted.is(call.run(&mut runner, &text).as_bytes()), "{}: no permits", known.client);
            runner.send(&[b"SET", b"k1", b"100"]);
        }
        let reply = call.run(&mut runner, &text);
        assert!(granted.is(reply.as_bytes()), "{}: {reply}", known.client);
        for key in call.locks(known) {
            let held = contents(&mut runner, &key);
            assert!(held.contains(OWNER), "{}: {held}", known.client);
            let until = (WALL_MS + LEASE_MS).to_string();
            let has_lease = ttl_ms(&mut runner, &key) == LEASE_MS || held.contains(&until);
            assert!(has_lease, "{}: {} ms, {held}", known.client, ttl_ms(&mut runner, &key));
            let grant = runner.grant(&key).unwrap_or_else(|| panic!("{}: has no grant", known.client));
            assert_eq!((grant.holder, grant.renewals, grant.is_native), (1, 0, false), "{}", known.client);
            let told = runner.send(&[b"LOCK.EXPLAIN", &key, b"OWNER", OWNER.as_bytes()]);
            let told = String::from_utf8_lossy(&told).into_owned();
            // These make several owners of one, or hide its name.
            let names_owner =
                !["FasterMultiLock", "multi acquire"].iter().any(|one| known.client.contains(one));
            assert_eq!(told.contains("held by you"), names_owner, "{}: {told}", known.client);
            assert_eq!(told.contains(", shared"), lock.kind == Kind::Shared || lock.kind == Kind::Permits);
            let is_timed = ttl_ms(&mut runner, &key) == LEASE_MS;
            assert_eq!(grant.lease_ms, is_timed.then_some(LEASE_MS as u32), "{}", known.client);
        }
        let mut other = Calling::new(known, lock, &text);
        for place in 0..other.keys.len() {
            other.set(lock.owner.expect("an acquire names the owner"), place, "owner-2".to_owned());
        }
        let is_forced = known.client.contains("forced");
        if matches!(lock.kind, Kind::Exclusive | Kind::Reentrant) && !is_forced {
            let reply = other.run(&mut runner, &text);
            assert!(!granted.is(reply.as_bytes()), "{}: granted to another: {reply}", known.client);
        }
    }
    assert!(count >= 30, "{count} acquire scripts");
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn in_quarantine_an_acquire_script_is_refused_and_leaves_nothing() {
    const LEFT_MS: u64 = 5_000;
    let mut runner = ScriptRunner::new();
    for (known, lock, text) in rows() {
        let Purpose::Acquire(granted) = known.purpose else { continue };
        runner.send(&[b"FLUSHALL"]);
        if lock.key == Input::Key(1) {
            runner.send(&[b"SET", b"k1", b"100"]);
        }
        let before = runner.send(&[b"DBSIZE"]);
        runner.quarantine(Some(LEFT_MS));
        let reply = Calling::new(known, lock, &text).run(&mut runner, &text);
        runner.quarantine(None);
        assert!(!granted.is(reply.as_bytes()), "{}: {reply}", known.client);
        assert_eq!(runner.send(&[b"DBSIZE"]), before, "{}: {reply}", known.client);
        // Redisson waits for the time that is left.
        assert!(granted != Granted::Nil || reply == format!(":{LEFT_MS}\r\n"), "{}: {reply}", known.client);
    }
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn in_quarantine_an_extend_script_is_refused_and_leaves_the_lease() {
    let (mut runner, rows) = (ScriptRunner::new(), rows());
    for (known, lock, text) in &rows {
        if known.purpose != Purpose::Extend {
            continue;
        }
        let call = Calling::new(known, *lock, text);
        hold(&mut runner, &rows, known, &call);
        let seen = |runner: &mut ScriptRunner| {
            let keys = call.locks(known);
            keys.iter().map(|key| (contents(runner, key), ttl_ms(runner, key))).collect::<Vec<_>>()
        };
        let before = seen(&mut runner);
        runner.quarantine(Some(5_000));
        let reply = call.run(&mut runner, text);
        runner.quarantine(None);
        assert_eq!(seen(&mut runner), before, "{}: {reply}", known.client);
        let is_refused = [":0", "$-1", "*0", "*-1", "-", ":-1"].iter().any(|start| reply.starts_with(start))
            || reply.starts_with('*') && !reply.contains(":1\r\n");
        // This one answers 1 if its owner does not hold the lock.
        let is_refused = if known.client.contains("ionelmc") { reply == ":1\r\n" } else { is_refused };
        assert!(is_refused, "{}: {reply}", known.client);
    }
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn a_release_or_break_script_removes_the_hold() {
    removes_the_hold(None);
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn in_quarantine_a_release_or_break_script_removes_the_hold() {
    removes_the_hold(Some(5_000));
}

fn removes_the_hold(quarantine: Option<u64>) {
    let (mut runner, rows) = (ScriptRunner::new(), rows());
    for (known, lock, text) in &rows {
        if !matches!(known.purpose, Purpose::Break | Purpose::Release) {
            continue;
        }
        let call = Calling::new(known, *lock, text);
        hold(&mut runner, &rows, known, &call);
        for key in call.locks(known) {
            let held = contents(&mut runner, &key);
            assert!(!held.is_empty() && held.contains(OWNER), "{}: {held}", known.client);
        }
        runner.quarantine(quarantine);
        let reply = call.run(&mut runner, text);
        runner.quarantine(None);
        assert!(!reply.starts_with("-QUARANTINE"), "{}: {reply}", known.client);
        for key in call.locks(known) {
            let held = contents(&mut runner, &key);
            let is_there = ttl_ms(&mut runner, &key) != -2;
            assert!(is_there || runner.grant(&key).is_none(), "{}", known.client);
            let is_lower = lock.kind == Kind::Permits && held.matches(OWNER).count() < 14;
            assert!(is_lower || !held.contains(OWNER), "{}: {reply}, {held}", known.client);
        }
    }
}

#[test]
#[ignore = "needs REDLATCH_SCRIPTS_DIR, filled by tests/protocol/scripts/collect.py"]
fn an_extend_script_changes_the_lease_of_the_owner_only() {
    let (mut runner, rows) = (ScriptRunner::new(), rows());
    for (known, lock, text) in &rows {
        if known.purpose != Purpose::Extend {
            continue;
        }
        for is_owner in [true, false] {
            let mut call = Calling::new(known, *lock, text);
            hold(&mut runner, &rows, known, &call);
            let keys = call.locks(known);
            let before: Vec<_> = keys
                .iter()
                .map(|key| {
                    runner.send(&[b"PEXPIRE", key, b"20000"]);
                    contents(&mut runner, key)
                })
                .collect();
            for place in 0..if is_owner { 0 } else { call.keys.len() } {
                call.set(lock.owner.expect("an extend names the owner"), place, "owner-2".to_owned());
            }
            if let Some(lease) = lock.lease.filter(|lease| lease.unit == Unit::Until) {
                call.set(lease.input, 0, (WALL_MS + LEASE_MS + 1).to_string());
            }
            let reply = call.run(&mut runner, text);
            for (key, before) in keys.iter().zip(before) {
                let (ttl_ms, after) = (ttl_ms(&mut runner, key), contents(&mut runner, key));
                let has_changed = ttl_ms != 20_000 || after != before;
                assert_eq!(has_changed, is_owner, "{}: {reply}, {ttl_ms}, {before} {after}", known.client);
            }
        }
    }
}
