//! What one command costs from its bytes to the bytes of its answer: decoded, admitted, carried out, encoded.
//!
//! One connection and 100,000 locks of somebody else; no socket. Each sample is a batch of its own, so that the share
//! of a command in a pipeline is less: see the last two. `cargo bench --bench commands -- GET` runs some of them.

#[allow(dead_code, unused_imports, reason = "tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use support::bare::{Bare, EXTEND, RELEASE, load, request};

/// Locks that are held meanwhile.
const LOCKS: u32 = 100_000;
const TOKEN: &str = "3b241101-e2bb-4255-8caf-4136c566a962";
const DEPTH: u64 = 16;

/// A server that is not empty, on which `lock:stock` is held by [`TOKEN`].
fn server() -> Bare {
    let mut bare = Bare::new();
    for n in 0..LOCKS {
        bare.send(&request(&["SET", &format!("lock:{n:012}"), TOKEN, "NX", "PX", "30000"]));
    }
    bare.send(&request(&["SET", "lock:stock", TOKEN, "NX", "PX", "30000"]));
    bare
}

/// Requests that leave the keys as they found them, and what the last of them answers.
fn commands(bare: &mut Bare) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let [release, extend] = [RELEASE, EXTEND].map(|text| load(bare, text));
    let all = |requests: &[&[&str]]| requests.iter().flat_map(|words| request(words)).collect::<Vec<_>>();
    let take = ["SET", "lock:new", TOKEN, "NX", "PX", "30000"];
    let release_new = ["EVALSHA", &release, "1", "lock:new", TOKEN];
    vec![
        ("GET", all(&[&["GET", "lock:stock"]]), "$36\r\n3b241101-e2bb-4255-8caf-4136c566a962\r\n"),
        ("GET nothing", all(&[&["GET", "lock:new"]]), "$-1\r\n"),
        ("SET NX contended", all(&[&["SET", "lock:stock", "me", "NX", "PX", "30000"]]), "$-1\r\n"),
        ("SET NX granted, then DEL", all(&[&take, &["DEL", "lock:new"]]), "+OK\r\n:1\r\n"),
        ("SET NX granted, then a release by EVALSHA", all(&[&take, &release_new]), "+OK\r\n:1\r\n"),
        ("DEL nothing", all(&[&["DEL", "lock:new"]]), ":0\r\n"),
        ("PEXPIRE", all(&[&["PEXPIRE", "lock:stock", "30000"]]), ":1\r\n"),
        ("an extension by EVALSHA", evalsha(&extend, &[TOKEN, "30000"]), ":1\r\n"),
        ("a refused release by EVALSHA", evalsha(&release, &["me"]), ":0\r\n"),
        ("a command that there is not", all(&[&["NOSUCH"]]), "-ERR "),
        ("INCR", all(&[&["INCR", "fence"]]), ":"),
    ]
}

fn evalsha(sha: &str, args: &[&str]) -> Vec<u8> {
    request(&[&["EVALSHA", sha, "1", "lock:stock"], args].concat())
}

fn one(criterion: &mut Criterion) {
    let mut bare = server();
    let mut group = criterion.benchmark_group("command");
    for (name, bytes, answer) in commands(&mut bare) {
        // A bench of the wrong answer is worse than none.
        let got = String::from_utf8_lossy(bare.send(&bytes)).into_owned();
        assert!(got.starts_with(answer), "{name}: {got}");
        group.bench_function(name, |bencher| bencher.iter(|| bare.send(black_box(&bytes)).len()));
    }
    group.finish();
}

fn pipeline(criterion: &mut Criterion) {
    let mut bare = server();
    let mut group = criterion.benchmark_group("pipeline of 16");
    group.throughput(Throughput::Elements(DEPTH));
    for (name, bytes, _) in commands(&mut bare) {
        if matches!(name, "GET" | "SET NX contended") {
            let bytes = bytes.repeat(DEPTH as usize);
            group.bench_function(name, |bencher| bencher.iter(|| bare.send(black_box(&bytes)).len()));
        }
    }
    group.finish();
}

/// Locks that end all at once, and a tick that finds nothing due.
fn expiry(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("expiry");
    group.bench_function("a tick with nothing due", |bencher| {
        let mut bare = server();
        bencher.iter(|| bare.pass(0));
    });
    group.throughput(Throughput::Elements(u64::from(LOCKS)));
    group.sample_size(10);
    group.bench_function("100,000 locks in one moment", |bencher| {
        let end = |mut bare: Bare| {
            bare.pass(30_001);
            bare
        };
        bencher.iter_batched(server, end, criterion::BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, one, pipeline, expiry);
criterion_main!(benches);
