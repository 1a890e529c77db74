//! What a script costs that is not recognised: on the interpreter, from the bytes of its EVALSHA to those of its answer.
//!
//! One connection and no socket, as in `commands`. `cargo bench --bench scripts -- four` runs some of them. A count of
//! instructions is repeatable where a clock is not: `valgrind --tool=callgrind --toggle-collect='*Bare*send*'` on the binary
//! with `--test`.

#[path = "../tests/support/bare.rs"]
mod bare;

use std::hint::black_box;

use bare::{Bare, load, request};
use criterion::{Criterion, criterion_group, criterion_main};

/// Scripts, each with its words after the digest, and how its answer begins.
pub(crate) const SCRIPTS: &[(&str, &str, &[&str], &str)] = &[
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

fn scripts(criterion: &mut Criterion) {
    let mut bare = Bare::new();
    bare.send(&request(&["SET", "held", "token"]));
    let mut group = criterion.benchmark_group("script");
    for (name, text, words, answer) in SCRIPTS {
        let sha = load(&mut bare, text);
        let bytes = request(&[&["EVALSHA", &sha], *words].concat());
        // A bench of the wrong answer is worse than none.
        let got = String::from_utf8_lossy(bare.send(&bytes)).into_owned();
        assert!(got.starts_with(answer), "{name}: {got}");
        group.bench_function(*name, |bencher| bencher.iter(|| bare.send(black_box(&bytes)).len()));
    }
    group.finish();
}

criterion_group!(benches, scripts);
criterion_main!(benches);
