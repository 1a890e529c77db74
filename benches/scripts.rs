//! What a script costs, run natively and on the interpreter: from the bytes of its EVALSHA to those of its answer.
//!
//! One connection and no socket, as in `commands`. `cargo bench --bench scripts -- four` runs some of them. A count of
//! instructions is repeatable where a clock is not: `valgrind --tool=callgrind --toggle-collect='*Bare*send*'` on the binary
//! with `--test`.

#[allow(dead_code, unused_imports, reason = "tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use support::bare::{Bare, load, request};

/// Scripts, each with its words after the digest, and how its answer begins.
const SCRIPTS: &[(&str, &str, &[&str], &str)] = &[
    ("a number", "return 1", &["0"], ":1\r\n"),
    ("one get", "return redis.call('get', KEYS[1])", &["1", "held"], "$5\r\ntoken\r\n"),
    (
        "four gets",
        "redis.call('get', KEYS[1]) redis.call('get', KEYS[1]) redis.call('get', KEYS[1]) \
         return redis.call('get', KEYS[1])",
        &["1", "held"],
        "$5\r\ntoken\r\n",
    ),
    (
        "a loop of five gets",
        "local n = 0 for i = 1, 5 do if redis.call('get', KEYS[1]) then n = n + 1 end end return n",
        &["1", "held"],
        ":5\r\n",
    ),
    (
        "a value copied into a hash",
        "local v = redis.call('get', KEYS[2]) if v then redis.call('hset', KEYS[1], ARGV[1], v) end \
         return redis.call('hget', KEYS[1], ARGV[1])",
        &["2", "copy", "held", "field"],
        "$5\r\ntoken\r\n",
    ),
    (
        "a reentrant lock",
        "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then \
         redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return {ok = 'taken'} end \
         return redis.call('pttl', KEYS[1])",
        &["1", "reentrant", "30000", "me"],
        "+taken\r\n",
    ),
    ("a list of ten", "return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}", &["0"], "*10\r\n"),
    ("an error that is caught", "return redis.pcall('incr', KEYS[1]).err", &["1", "held"], "$42\r\n"),
];

/// Scripts of lock clients, by their names in `shapes.txt`, with the words after the digest. The state that each finds is the
/// one that it leaves.
const OF_CLIENTS: &[(&str, &[&str])] = &[
    ("RedissonLock.tryLockInnerAsync", &["1", "reentrant", "30000", "me"]),
    (
        "RedissonLock.unlockInnerAsync",
        &["3", "reentrant", "channel", "latch", "0", "30000", "me", "publish", "30000"],
    ),
    ("LockTask.buildChunk", &["1", "reentrant", "30000", "me"]),
    ("RedissonFencedLock.tryLockInnerAsync", &["2", "reentrant", "fence", "30000", "me"]),
    ("RedissonReadLock.tryLockInnerAsync", &["2", "shared", "timeouts", "30000", "me", "me:write"]),
    ("RedissonSemaphore.tryAcquireAsync0", &["1", "permits", "0"]),
    (
        "RedissonPermitExpirableSemaphore.availablePermitsAsync",
        &["3", "permits", "holders", "channel", "0", "publish"],
    ),
    ("semaphore acquire", &["1", "holders", "10", "me", "30000", "1700000000000"]),
    ("multi acquire", &["1", "holders", "10", "2", "me", "30000", "1700000000000"]),
    ("bull job locks: extendLock", &["2", "held", "stalled", "token", "30000", "job"]),
    ("@upstash/lock: release", &["1", "held", "somebody else"]),
];

/// A statement that keeps a script from being run natively, and does nothing.
const DETOUR: &str = "local unseen = function() end ";

fn scripts(criterion: &mut Criterion) {
    let mut bare = Bare::new();
    bare.send(&request(&["SET", "held", "token"]));
    bare.send(&request(&["SET", "permits", "5"]));
    let of_clients = support::shapes::shapes();
    let mut group = criterion.benchmark_group("script");
    let own = SCRIPTS.iter().map(|(name, text, words, answer)| (*name, *text, *words, *answer));
    let others = OF_CLIENTS.iter().map(|(name, words)| {
        let found = of_clients.iter().find(|(own, _)| own.contains(name));
        let (own, text) = found.unwrap_or_else(|| panic!("{name} is not among the shapes"));
        (*own, text.as_str(), *words, "")
    });
    for (name, text, words, answer) in own.chain(others) {
        for (way, text) in [("as it is", text.to_owned()), ("interpreted", format!("{DETOUR}{text}"))] {
            let sha = load(&mut bare, &text);
            let bytes = request(&[&["EVALSHA", &sha], words].concat());
            // A bench of the wrong answer is worse than none.
            let got = String::from_utf8_lossy(bare.send(&bytes)).into_owned();
            assert!(got.starts_with(answer) && !got.starts_with('-'), "{name}: {got}");
            group.bench_function(format!("{name}, {way}"), |bencher| {
                bencher.iter(|| bare.send(black_box(&bytes)).len());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, scripts);
criterion_main!(benches);
