//! What a timer costs with 10^2 to 10^7 others armed: arming and cutting, firing, and asking for the next
//! wake-up.
//!
//! 10^7 timers are left out unless `REDLATCH_BENCH_LARGE` is set. Leases are 0 to 60 s, spread evenly.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use redlatch::internals::clock::LockTime;
use redlatch::internals::wheel::{Step, Timer, Timers, Wheel};

#[derive(Clone)]
struct Entries(Vec<(Timer, u64)>);

impl Timers for Entries {
    fn timer(&self, id: u32) -> Timer {
        self.0[id as usize].0
    }

    fn set_timer(&mut self, id: u32, timer: Timer) {
        self.0[id as usize].0 = timer;
    }

    fn deadline_ms(&self, id: u32) -> u64 {
        self.0[id as usize].1
    }
}

/// A wheel with `count` timers, and one entry more that is not armed.
fn crowd(count: u32) -> (Wheel, Entries) {
    let lease = |id: u32| u64::from(id.wrapping_mul(0x9e37_79b9)) % LEASE_MS;
    let mut entries = Entries((0..=count).map(|id| (Timer::CUT, lease(id))).collect());
    let mut wheel = Wheel::new();
    (0..count).for_each(|id| wheel.arm(id, &mut entries));
    (wheel, entries)
}

fn counts() -> impl Iterator<Item = u32> {
    let most = if std::env::var_os("REDLATCH_BENCH_LARGE").is_some() { 7 } else { 6 };
    (2..=most).map(|power| 10u32.pow(power))
}

fn arm_and_cut(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/arm and cut");
    for count in counts() {
        let (mut wheel, mut entries) = crowd(count);
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                wheel.arm(black_box(count), &mut entries);
                wheel.cut(black_box(count), &mut entries);
            });
        });
    }
    group.finish();
}

fn fire_all(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wheel/fire all");
    group.sample_size(10);
    for count in counts() {
        let full = crowd(count);
        group.throughput(Throughput::Elements(count.into()));
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter_batched(
                || (Wheel::clone(&full.0), full.1.clone()),
                |(mut wheel, mut entries)| {
                    loop {
                        match wheel.next_due(LockTime::from_millis(LEASE_MS), &mut entries) {
                            Step::Due(id) => wheel.cut(id, &mut entries),
                            Step::Idle => return (wheel, entries),
                            Step::Moved => {}
                        }
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn next_wakeup(criterion: &mut Criterion) {
    let (wheel, _) = crowd(1_000);
    criterion
        .bench_function("wheel/next wake-up", |bencher| bencher.iter(|| black_box(&wheel).next_wakeup()));
}

const LEASE_MS: u64 = 60_000;

criterion_group!(benches, arm_and_cut, fire_all, next_wakeup);
criterion_main!(benches);
