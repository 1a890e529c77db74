//! Whether a history can have been made by a server that keeps its promises. A pure function of the history.
//!
//! Rule    in doubt for the server. A call was carried out somewhere between the moment it was sent and the moment its
//!         answer was there; only what cannot be true wherever in between that was is held against the server. So a
//!         client or a machine that stalls makes the check see less, never wrongly.
//! Safety  everything but [`Law::Promptness`] is about order, and holds on a machine however loaded. Promptness is a
//!         measure of the machine as well: the figure is always there, and the caller decides what it is worth.

use std::collections::BTreeMap;

use super::history::{Answer, Ask, Call};

/// What was broken.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Law {
    /// A lease is there until it ends or is given back.
    Endurance,
    /// No two clients are owed the same lock at one moment.
    Exclusion,
    /// A later grant has a higher number.
    Fencing,
    /// A lease is gone [`LATE_MS_MAX`] after its end.
    Promptness,
    /// What was given back is not there.
    Release,
    /// A client that holds a lock has been granted it.
    Truth,
}

/// One violation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Broken {
    pub(crate) law: Law,
    pub(crate) what: String,
}

/// What was seen, and what of it cannot be.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) broken: Vec<Broken>,
    pub(crate) calls: usize,
    pub(crate) grants: usize,
    pub(crate) refusals: usize,
    pub(crate) extensions: usize,
    pub(crate) releases: usize,
    pub(crate) looks: usize,
    pub(crate) unanswered: usize,
    /// The longest that a key was surely there after the last moment at which its lease can have ended.
    pub(crate) latest_ns: u64,
}

impl Verdict {
    pub(crate) fn breaks(&self, law: Law) -> bool {
        self.broken.iter().any(|broken| broken.law == law)
    }

    /// What is broken whatever the machine was busy with.
    pub(crate) fn unsafe_findings(&self) -> Vec<&Broken> {
        self.broken.iter().filter(|broken| broken.law != Law::Promptness).collect()
    }

    fn find(&mut self, law: Law, what: String) {
        self.broken.push(Broken { law, what });
    }
}

/// How long after its end a lease may still be seen, on a machine with little to do.
pub(crate) const LATE_MS_MAX: u64 = 50;

/// A grant, and what became of it.
#[derive(Clone, Debug)]
struct Lease<'a> {
    lock: &'a str,
    token: &'a str,
    sent_ns: u64,
    /// When it was known to have been granted; none while nobody knows that it was.
    known_ns: Option<u64>,
    /// Before this moment it cannot have ended.
    end_min_ns: u64,
    /// After this moment it cannot be there; none where a call without an answer may have moved it.
    end_max_ns: Option<u64>,
    /// When it was known to have been given back.
    released_ns: Option<u64>,
    fence: Option<u64>,
}

/// Weighs the calls of all clients, in any order.
pub(crate) fn check(calls: &[Call]) -> Verdict {
    let mut verdict = Verdict { calls: calls.len(), ..Verdict::default() };
    let mut locks: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        locks.entry(&call.lock).or_default().push(call);
        verdict.count(call);
    }
    for calls in locks.values_mut() {
        calls.sort_by_key(|call| call.sent_ns);
        let leases = leases(calls, &mut verdict);
        sightings(calls, &leases, &mut verdict);
        let mut granted: Vec<&Lease<'_>> = leases.values().filter(|lease| lease.known_ns.is_some()).collect();
        granted.sort_by_key(|lease| lease.sent_ns);
        absences(calls, &granted, &mut verdict);
        exclusion(&granted, &mut verdict);
        fencing(&granted, &mut verdict);
    }
    verdict
}

impl Verdict {
    fn count(&mut self, call: &Call) {
        let counter = match (call.ask, call.heard().map(|(_, answer)| answer)) {
            (_, None) => &mut self.unanswered,
            (Ask::Acquire(_), Some(Answer::Yes | Answer::YesWithFence(_))) => &mut self.grants,
            (Ask::Acquire(_), _) => &mut self.refusals,
            (Ask::Extend(_), _) => &mut self.extensions,
            (Ask::Look, _) => &mut self.looks,
            (Ask::Release, _) => &mut self.releases,
        };
        *counter += 1;
    }

    fn late(&mut self, lease: &Lease<'_>, seen_ns: u64) {
        let Some(late_ns) = lease.end_max_ns.and_then(|end_ns| seen_ns.checked_sub(end_ns)) else { return };
        self.latest_ns = self.latest_ns.max(late_ns);
        if late_ns > LATE_MS_MAX * NANOS_PER_MS {
            self.find(Law::Promptness, format!("{late_ns} ns after its end: {lease:?}"));
        }
    }
}

/// Every lease that was granted or may have been, by token, with all that its own client did to it.
fn leases<'a>(calls: &[&'a Call], verdict: &mut Verdict) -> BTreeMap<&'a str, Lease<'a>> {
    let mut leases: BTreeMap<&str, Lease<'_>> = BTreeMap::new();
    for call in calls {
        match (call.ask, leases.get_mut(call.token.as_str())) {
            (Ask::Acquire(lease_ms), None) => {
                if let Some(lease) = acquired(call, lease_ms) {
                    leases.insert(&call.token, lease);
                }
            }
            (Ask::Acquire(_), Some(lease)) => {
                verdict.find(Law::Truth, format!("a token is used twice: {lease:?} and {call:?}"));
            }
            (Ask::Extend(lease_ms), Some(lease)) => extend(lease, call, lease_ms, verdict),
            (Ask::Release, Some(lease)) => release(lease, call, verdict),
            (Ask::Extend(_) | Ask::Release, None) if call.heard().is_some_and(|(_, a)| *a == Answer::Yes) => {
                verdict.find(Law::Truth, format!("done to a lease that was never granted: {call:?}"));
            }
            (Ask::Extend(_) | Ask::Look | Ask::Release, _) => {}
        }
    }
    // A client that has seen it knows that it was granted, though its own client was never told.
    for call in calls {
        let Some((heard_ns, Answer::Holder(token))) = call.heard() else { continue };
        if let Some(lease) = leases.get_mut(token.as_str()) {
            lease.known_ns.get_or_insert(heard_ns);
        }
    }
    leases
}

fn acquired(call: &Call, lease_ms: u64) -> Option<Lease<'_>> {
    let lease_ns = lease_ms * NANOS_PER_MS;
    let lease = Lease {
        lock: &call.lock,
        token: &call.token,
        sent_ns: call.sent_ns,
        known_ns: None,
        end_min_ns: call.sent_ns + lease_ns,
        end_max_ns: None,
        released_ns: None,
        fence: None,
    };
    let granted = |heard_ns, fence| {
        let end_max_ns = Some(heard_ns + lease_ns);
        Some(Lease { known_ns: Some(heard_ns), end_max_ns, fence, ..lease.clone() })
    };
    match call.heard() {
        Some((heard_ns, Answer::Yes)) => granted(heard_ns, None),
        Some((heard_ns, Answer::YesWithFence(fence))) => granted(heard_ns, Some(*fence)),
        Some(_) => None,
        None => Some(lease),
    }
}

fn extend(lease: &mut Lease<'_>, call: &Call, lease_ms: u64, verdict: &mut Verdict) {
    let lease_ns = lease_ms * NANOS_PER_MS;
    match call.heard() {
        Some((heard_ns, Answer::Yes)) => {
            verdict.late(lease, call.sent_ns);
            lease.known_ns.get_or_insert(heard_ns);
            // An extension of which nobody heard may still come, and make it end earlier again.
            let is_settled = lease.end_max_ns.is_some();
            let end_min_ns = call.sent_ns + lease_ns;
            lease.end_min_ns = if is_settled { end_min_ns } else { lease.end_min_ns.min(end_min_ns) };
            lease.end_max_ns = is_settled.then_some(heard_ns + lease_ns);
        }
        Some((heard_ns, _)) => must_have_ended(lease, call, heard_ns, verdict),
        None => {
            lease.end_min_ns = lease.end_min_ns.min(call.sent_ns + lease_ns);
            lease.end_max_ns = None;
        }
    }
}

fn release(lease: &mut Lease<'_>, call: &Call, verdict: &mut Verdict) {
    match call.heard() {
        Some((heard_ns, Answer::Yes)) => {
            verdict.late(lease, call.sent_ns);
            lease.known_ns.get_or_insert(heard_ns);
            lease.released_ns = Some(heard_ns);
        }
        Some((heard_ns, _)) => must_have_ended(lease, call, heard_ns, verdict),
        None => {}
    }
    lease.end_min_ns = lease.end_min_ns.min(call.sent_ns);
}

/// Its own client was told that the lease is not there.
fn must_have_ended(lease: &Lease<'_>, call: &Call, heard_ns: u64, verdict: &mut Verdict) {
    if lease.known_ns.is_some() && heard_ns < lease.end_min_ns {
        verdict.find(Law::Endurance, format!("{call:?} of {lease:?}"));
    }
}

/// Every time that somebody saw a holder: that token was granted, not given back, and is not long over.
fn sightings(calls: &[&Call], leases: &BTreeMap<&str, Lease<'_>>, verdict: &mut Verdict) {
    for call in calls {
        let Some((_, Answer::Holder(token))) = call.heard() else { continue };
        match leases.get(token.as_str()) {
            None => verdict.find(Law::Truth, format!("nobody was granted what was seen: {call:?}")),
            Some(lease) if lease.released_ns.is_some_and(|released_ns| released_ns < call.sent_ns) => {
                verdict.find(Law::Release, format!("{call:?} saw {lease:?}"));
            }
            Some(lease) => verdict.late(lease, call.sent_ns),
        }
    }
}

/// Every time that somebody saw no holder, or another: no lease surely ran all the while.
fn absences(calls: &[&Call], granted: &[&Lease<'_>], verdict: &mut Verdict) {
    let mut coming = granted.to_vec();
    coming.sort_by_key(|lease| lease.known_ns);
    let mut coming = coming.into_iter().peekable();
    let mut running: Vec<&Lease<'_>> = Vec::new();
    for call in calls {
        while let Some(lease) = coming.next_if(|lease| lease.known_ns < Some(call.sent_ns)) {
            running.push(lease);
        }
        running.retain(|lease| lease.end_min_ns > call.sent_ns);
        let Some((heard_ns, answer)) = call.heard() else { continue };
        let seen = match answer {
            Answer::Holder(token) => token.as_str(),
            Answer::Nobody => "",
            Answer::No | Answer::Yes | Answer::YesWithFence(_) => continue,
        };
        for lease in running.iter().filter(|lease| heard_ns < lease.end_min_ns && lease.token != seen) {
            verdict.find(Law::Endurance, format!("{call:?} did not see {lease:?}"));
        }
    }
}

/// No two leases of which neither can have ended before the other was granted.
fn exclusion(granted: &[&Lease<'_>], verdict: &mut Verdict) {
    let known = |lease: &Lease<'_>| lease.known_ns.unwrap_or(u64::MAX);
    for (index, first) in granted.iter().enumerate() {
        for second in granted[index + 1..].iter().take_while(|second| second.sent_ns < first.end_min_ns) {
            let first_is_over = known(second) >= first.end_min_ns;
            let second_came_first = second.sent_ns <= known(first) && known(first) >= second.end_min_ns;
            if !first_is_over && !second_came_first {
                let lock = first.lock;
                verdict.find(Law::Exclusion, format!("{lock} was granted twice: {first:?} and {second:?}"));
            }
        }
    }
}

/// A grant that began after another was known has the higher number; no number comes twice.
fn fencing(granted: &[&Lease<'_>], verdict: &mut Verdict) {
    let fenced = || granted.iter().filter_map(|lease| Some((lease.fence?, *lease)));
    let mut known: Vec<_> = fenced().collect();
    known.sort_by_key(|(_, lease)| lease.known_ns);
    let mut known = known.into_iter().peekable();
    let mut highest: Option<(u64, &Lease<'_>)> = None;
    let mut seen = BTreeMap::new();
    for (fence, lease) in fenced() {
        while let Some(before) = known.next_if(|(_, before)| before.known_ns < Some(lease.sent_ns)) {
            highest = highest.into_iter().chain([before]).max_by_key(|(fence, _)| *fence);
        }
        if let Some((_, before)) = highest.filter(|(before, _)| *before >= fence) {
            verdict.find(Law::Fencing, format!("{lease:?} after {before:?}"));
        } else if let Some(other) = seen.insert(fence, lease) {
            verdict.find(Law::Fencing, format!("{lease:?} and {other:?}"));
        }
    }
}

const NANOS_PER_MS: u64 = 1_000_000;
