//! Metric families of the process: its threads and the runtimes of the workers.
//!
//! Source  `proc(5)` for the threads; tokio's stable runtime metrics.

use redlatch_core::commands::{Family, FamilyKind, Sample, Value};
use redlatch_platform::figures;
use tokio::runtime::RuntimeMetrics;

use crate::worker::Workers;

/// The families of the runtimes, one sample for each worker, and of the process.
pub(super) fn families(workers: &Workers) -> Vec<Family> {
    let of_workers = |name, help, kind, read: fn(&RuntimeMetrics) -> Value| {
        let samples = workers.runtimes.iter().enumerate().map(|(index, runtime)| Sample {
            label: Some(("worker", index.to_string())),
            value: read(&runtime.metrics()),
        });
        Family { name, help, kind, samples: samples.collect() }
    };
    let mut all = vec![
        of_workers(
            "worker_tasks",
            "Tasks of each worker: its connections, and a few of the server.",
            FamilyKind::Gauge,
            |metrics| Value::Integer(metrics.num_alive_tasks() as u64),
        ),
        of_workers(
            "worker_queue",
            "Tasks that other threads have handed to each worker, and that wait for it.",
            FamilyKind::Gauge,
            |metrics| Value::Integer(metrics.global_queue_depth() as u64),
        ),
        of_workers(
            "worker_busy_seconds",
            "Time that each worker was busy, and not waiting for sockets.",
            FamilyKind::Counter,
            |metrics| Value::Number(busy_seconds(metrics)),
        ),
    ];
    all.extend(threads_family());
    all
}

/// The family of the threads of the process; `None` where /proc cannot be read.
pub(super) fn threads_family() -> Option<Family> {
    figures::threads().map(|threads| Family {
        name: "process_threads",
        help: "Threads of the process.",
        kind: FamilyKind::Gauge,
        samples: vec![Sample { label: None, value: Value::Integer(threads) }],
    })
}

/// The time that the threads of a runtime were busy; a caller's runtime may have several.
fn busy_seconds(metrics: &RuntimeMetrics) -> f64 {
    (0..metrics.num_workers()).map(|thread| metrics.worker_total_busy_duration(thread).as_secs_f64()).sum()
}
