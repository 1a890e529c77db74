//! What a lock costs in a shard: time per operation, and resident bytes per lock at a million of them.
//!
//! A lock is a key of 24 bytes, a token of 36 (a UUID) and a lease. The bytes are printed before the first
//! benchmark, while the process has allocated nothing else, and only on systems with `/proc`.

use std::hint::black_box;

use ahash::RandomState;
use criterion::{Criterion, criterion_group, criterion_main};
use redlatch::internals::clock::{Deadline, LockTime};
use redlatch::internals::keyspace::shard::{EntryId, Shard};
use redlatch::internals::types::Seed;

/// Shards as a server has them, and the hash that spreads keys over them.
struct Locks {
    shards: Vec<Shard>,
    hasher: RandomState,
}

impl Locks {
    fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::new(16, Seed::of(7))).collect();
        Self { shards, hasher: RandomState::with_seeds(1, 2, 3, 4) }
    }

    fn with(count: u64) -> Self {
        let mut locks = Self::new();
        for n in 0..count {
            locks.acquire(&key(n), 30_000 + n % 30_000);
        }
        locks
    }

    fn acquire(&mut self, key: &[u8], deadline_ms: u64) -> EntryId {
        let (hash, shard) = self.place(key);
        shard.insert(0, hash, key, TOKEN, Some(deadline(deadline_ms)), 0)
    }

    fn find(&mut self, key: &[u8]) -> Option<EntryId> {
        let (hash, shard) = self.place(key);
        shard.find(0, hash, key)
    }

    fn renew(&mut self, key: &[u8], deadline_ms: u64) {
        let (hash, shard) = self.place(key);
        let id = shard.find(0, hash, key).expect("the lock is held");
        shard.set_deadline(id, Some(deadline(deadline_ms)));
    }

    fn release(&mut self, key: &[u8]) {
        let (hash, shard) = self.place(key);
        let id = shard.find(0, hash, key).expect("the lock is held");
        assert_eq!(shard.value(id), TOKEN);
        shard.remove(id, hash);
    }

    fn place(&mut self, key: &[u8]) -> (u64, &mut Shard) {
        let hash = self.hasher.hash_one(key);
        (hash, &mut self.shards[(hash >> (64 - SHARDS.ilog2())) as usize])
    }
}

fn key(n: u64) -> [u8; 24] {
    let mut key = *b"lock:stock:0000000000000";
    let mut rest = n;
    for digit in key[11..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn deadline(ms: u64) -> Deadline {
    Deadline::at(LockTime::from_millis(ms))
}

/// Bytes of this process in memory; `None` where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

fn memory(_: &mut Criterion) {
    let before = resident_bytes();
    let mut locks = Locks::with(LOCKS);
    let after = resident_bytes();
    let per_lock = |bytes: u64| bytes as f64 / LOCKS as f64;
    let used: usize = locks.shards.iter().map(Shard::used_bytes).sum();
    let resident = before.zip(after).map(|(before, after)| per_lock(after - before));
    println!("{LOCKS} locks: {resident:.1?} resident bytes each, {:.1} accounted for", per_lock(used as u64));

    (0..LOCKS).for_each(|n| locks.release(&key(n)));
    let used: usize = locks.shards.iter().map(Shard::used_bytes).sum();
    println!(
        "all released: {used} bytes accounted for, {:?} resident more than at first",
        resident_bytes().zip(before).map(|(now, before)| now.saturating_sub(before))
    );
}

fn time(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shard");
    let mut locks = Locks::with(LOCKS);
    let mut n = 0;
    // A stride that is no divisor, so that every step is at another page of memory.
    let mut next = move || {
        n = (n + 611_953) % LOCKS;
        n
    };

    group.bench_function("find", |bencher| bencher.iter(|| locks.find(black_box(&key(next())))));
    group.bench_function("find nothing", |bencher| {
        bencher.iter(|| locks.find(black_box(&key(LOCKS + next()))));
    });
    group.bench_function("renew later", |bencher| {
        let mut ms = 60_000;
        bencher.iter(|| {
            ms += 1;
            locks.renew(black_box(&key(next())), ms);
        });
    });
    group.bench_function("acquire and release among many", |bencher| {
        bencher.iter(|| {
            let key = key(LOCKS + next());
            locks.acquire(black_box(&key), 90_000);
            locks.release(black_box(&key));
        });
    });
    let mut alone = Locks::new();
    group.bench_function("acquire and release alone", |bencher| {
        bencher.iter(|| {
            alone.acquire(black_box(&key(1)), 90_000);
            alone.release(black_box(&key(1)));
        });
    });
    group.finish();
}

const SHARDS: usize = 16;
const LOCKS: u64 = 1_000_000;
const TOKEN: &[u8; 36] = b"3b241101-e2bb-4255-8caf-4136c566a962";

criterion_group!(benches, memory, time);
criterion_main!(benches);
