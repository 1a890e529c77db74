//! Whether locks are granted, and why not: `/readyz` says it, and a metric has a value for each reason.
//!
//! Owns    [`REASONS`], a row for each reason that the server knows of itself.

use redlatch_proto::clock::LockTime;

use crate::commands::Shared;

/// A reason why locks are not granted.
struct Reason {
    /// The label of the metric.
    name: &'static str,
    /// What is said of it, if it is so now.
    says: fn(&Shared, LockTime) -> Option<String>,
}

const REASONS: &[Reason] = &[
    Reason {
        name: "stopping",
        says: |shared, _| {
            shared.stop.has_begun.load(std::sync::atomic::Ordering::SeqCst).then(|| "stopping".into())
        },
    },
    Reason {
        name: "journal",
        says: |shared, _| {
            shared
                .locks
                .quarantine
                .disk_error()
                .map(|error| format!("the journal cannot be written: {error}"))
        },
    },
    Reason {
        name: "etcd",
        says: |shared, _| {
            let is_late = shared.cluster.as_ref().is_some_and(|cluster| cluster.is_late());
            is_late.then(|| "etcd does not take the log: nothing is answered until it does".into())
        },
    },
    Reason { name: "script", says: slow_script },
    Reason {
        name: "quarantine",
        says: |shared, now| {
            let until = shared.locks.quarantine.until(now)?;
            let (left_ms, reason) = (until.millis_since(now), shared.locks.quarantine.reason());
            Some(format!("quarantine: no lock is granted or extended for another {left_ms} ms ({reason})"))
        },
    },
    Reason {
        name: "memory",
        says: |shared, _| {
            shared.is_short_of_memory().then(|| "maxmemory: requests that could need memory get -OOM".into())
        },
    },
    Reason {
        name: "pause",
        says: |shared, now| {
            let until = shared.pause.holds(|| true, now)?;
            Some(format!("a pause holds requests up for another {} ms", until.millis_since(now)))
        },
    },
];

/// The script that has run for longer than `busy-reply-threshold`.
fn slow_script(shared: &Shared, now: LockTime) -> Option<String> {
    let (script, age_ms) = shared.scripts.running.script_and_age(now)?;
    shared.settings.busy_millis().filter(|limit| age_ms >= *limit)?;
    let (client, kill) = (script.client.id, if script.is_function() { "FUNCTION" } else { "SCRIPT" });
    Some(format!(
        "a script ({}) of client {client} has run for {age_ms} ms: locks in its shards cannot be had ({kill} KILL ends it)",
        script.name
    ))
}

impl Shared {
    /// Why locks are not granted now, as far as the server knows; `None`: they are.
    pub fn reason_not_ready(&self, now: LockTime) -> Option<String> {
        REASONS.iter().find_map(|reason| (reason.says)(self, now))
    }

    /// Every reason, and whether locks are not granted because of it.
    pub(super) fn reasons_not_ready(&self, now: LockTime) -> impl Iterator<Item = (&'static str, bool)> {
        REASONS.iter().map(move |reason| (reason.name, (reason.says)(self, now).is_some()))
    }
}
