//! Checks whether a correct lock server can have produced a history. A pure function of the history.
//!
//! Rule    the server carried out a call at some moment between its sending and its reply. A finding must hold for every
//!         such moment, so a stalled client or machine can hide a violation but never cause a false one.
//! Safety  every law but [`Law::Promptness`] is about order and holds under any load. Promptness also measures the
//!         machine: it is always computed, and the caller decides whether to assert it.

use std::collections::BTreeMap;

use super::history::{Answer, Ask, Call};

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Law {
    /// A lease lasts until it expires or is released.
    Endurance,
    /// No two clients hold one lock at one moment.
    Exclusion,
    /// Later holders have higher numbers, and a lease keeps its number.
    Fencing,
    /// A lease is gone [`LATE_MS_MAX`] after its end, and a session lock after the end of its connection.
    Promptness,
    /// A released lock is not held.
    Release,
    /// A client holds only a lock that was granted to it.
    Truth,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Broken {
    pub(crate) law: Law,
    pub(crate) what: String,
}

/// The findings and figures of one history.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) broken: Vec<Broken>,
    pub(crate) calls: usize,
    pub(crate) grants: usize,
    /// Grants after a wait in the queue.
    pub(crate) queued: usize,
    /// Grants that last as long as their connection.
    pub(crate) sessions: usize,
    /// Numbers that holders asked for.
    pub(crate) tokens: usize,
    pub(crate) refusals: usize,
    pub(crate) extensions: usize,
    pub(crate) releases: usize,
    pub(crate) looks: usize,
    pub(crate) unanswered: usize,
    /// The longest time that a key certainly existed after the latest possible end of its lease.
    pub(crate) latest_ns: u64,
}

impl Verdict {
    pub(crate) fn breaks(&self, law: Law) -> bool {
        self.broken.iter().any(|broken| broken.law == law)
    }

    /// The findings that do not depend on the load of the machine.
    pub(crate) fn unsafe_findings(&self) -> Vec<&Broken> {
        self.broken.iter().filter(|broken| broken.law != Law::Promptness).collect()
    }

    fn find(&mut self, law: Law, what: String) {
        self.broken.push(Broken { law, what });
    }
}

/// How long after its end a lease may still be seen on an idle machine.
pub(crate) const LATE_MS_MAX: u64 = 50;

/// A grant and its later events.
#[derive(Clone, Debug)]
struct Lease<'a> {
    lock: &'a str,
    token: &'a str,
    /// The earliest moment at which it can have been granted.
    since_min_ns: u64,
    /// When a client learned of the grant; `None` if no client has.
    known_ns: Option<u64>,
    /// The earliest possible end.
    end_min_ns: u64,
    /// The latest possible end; `None` if an unanswered call may have moved it.
    end_max_ns: Option<u64>,
    /// When a client learned of the release.
    released_ns: Option<u64>,
    fence: Option<u64>,
}

/// Checks the calls of all clients, in any order.
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
        granted.sort_by_key(|lease| lease.since_min_ns);
        absences(calls, &granted, &mut verdict);
        exclusion(&granted, &mut verdict);
        fencing(&granted, &mut verdict);
    }
    verdict
}

impl Verdict {
    fn count(&mut self, call: &Call) {
        let Some((_, answer)) = call.heard() else {
            self.unanswered += 1;
            return;
        };
        match call.ask {
            Ask::Acquire(_) | Ask::Session if matches!(answer, Answer::No | Answer::Holder(_)) => {
                self.refusals += 1;
            }
            Ask::Acquire(_) | Ask::Session => {
                self.grants += 1;
                self.sessions += usize::from(call.ask == Ask::Session);
                self.queued += usize::from(waited_ms(answer) > 0);
            }
            Ask::Extend(_) => self.extensions += 1,
            Ask::Look => self.looks += 1,
            Ask::Release | Ask::Hangup => self.releases += 1,
            Ask::Token => self.tokens += usize::from(*answer != Answer::No),
        }
    }

    fn late(&mut self, lease: &Lease<'_>, seen_ns: u64) {
        let Some(late_ns) = lease.end_max_ns.and_then(|end_ns| seen_ns.checked_sub(end_ns)) else { return };
        self.latest_ns = self.latest_ns.max(late_ns);
        if late_ns > LATE_MS_MAX * NANOS_PER_MS {
            self.find(Law::Promptness, format!("{late_ns} ns after its end: {lease:?}"));
        }
    }
}

/// Every lease that was or may have been granted, by token, with all calls of its own client.
fn leases<'a>(calls: &[&'a Call], verdict: &mut Verdict) -> BTreeMap<&'a str, Lease<'a>> {
    let mut leases: BTreeMap<&str, Lease<'_>> = BTreeMap::new();
    let (acquisitions, others): (Vec<&Call>, Vec<&Call>) =
        calls.iter().copied().partition(|call| matches!(call.ask, Ask::Acquire(_) | Ask::Session));
    for call in acquisitions {
        if let Some(lease) = leases.get(call.token.as_str()) {
            verdict.find(Law::Truth, format!("a token is used twice: {lease:?} and {call:?}"));
        } else if let Some(lease) = acquired(call) {
            leases.insert(&call.token, lease);
        }
    }
    for call in others {
        match (call.ask, leases.get_mut(call.token.as_str())) {
            (Ask::Extend(lease_ms), Some(lease)) => extend(lease, call, lease_ms, verdict),
            // A connection whose end is not known exactly may have ended before the server had the request for the lock.
            (Ask::Hangup, Some(lease)) => hang_up(lease, call),
            (Ask::Release, Some(lease)) => release(lease, call, verdict),
            (Ask::Token, Some(lease)) => number(lease, call, verdict),
            (Ask::Extend(_) | Ask::Release | Ask::Token, None)
                if call.heard().is_some_and(|(_, answer)| *answer != Answer::No) =>
            {
                verdict.find(Law::Truth, format!("done to a lease that was never granted: {call:?}"));
            }
            _ => {}
        }
    }
    // Another client that saw the token proves the grant, even if the owner got no reply.
    for call in calls {
        let Some((heard_ns, Answer::Holder(token))) = call.heard() else { continue };
        if let Some(lease) = leases.get_mut(token.as_str()) {
            lease.known_ns.get_or_insert(heard_ns);
        }
    }
    leases
}

fn acquired(call: &Call) -> Option<Lease<'_>> {
    let lease_ns = if let Ask::Acquire(lease_ms) = call.ask { lease_ms * NANOS_PER_MS } else { SESSION_NS };
    // The server counts the wait in whole milliseconds: up to one of them may not have passed.
    let waited_ms = call.heard().map_or(0, |(_, answer)| waited_ms(answer)).saturating_sub(1);
    let since_min_ns = call.sent_ns + waited_ms * NANOS_PER_MS;
    let lease = Lease {
        lock: &call.lock,
        token: &call.token,
        since_min_ns,
        known_ns: None,
        end_min_ns: since_min_ns + lease_ns,
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
        Some((heard_ns, Answer::YesWithFence(fence) | Answer::YesAfter { fence, .. })) => {
            granted(heard_ns, Some(*fence))
        }
        Some(_) => None,
        None => Some(lease),
    }
}

fn waited_ms(answer: &Answer) -> u64 {
    if let Answer::YesAfter { waited_ms, .. } = answer { *waited_ms } else { 0 }
}

fn extend(lease: &mut Lease<'_>, call: &Call, lease_ms: u64, verdict: &mut Verdict) {
    let lease_ns = lease_ms * NANOS_PER_MS;
    match call.heard() {
        Some((heard_ns, Answer::Yes)) => {
            verdict.late(lease, call.sent_ns);
            lease.known_ns.get_or_insert(heard_ns);
            // An extension without a reply may still be carried out and shorten the lease.
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

/// The connection of a session was closed between the two times of the call.
fn hang_up(lease: &mut Lease<'_>, call: &Call) {
    lease.end_min_ns = lease.end_min_ns.min(call.sent_ns);
    lease.end_max_ns =
        call.heard().map(|(heard_ns, _)| lease.end_max_ns.map_or(heard_ns, |end_ns| end_ns.min(heard_ns)));
}

/// The owner asked for the number of its lease.
fn number(lease: &mut Lease<'_>, call: &Call, verdict: &mut Verdict) {
    match call.heard() {
        Some((heard_ns, Answer::YesWithFence(fence))) => {
            verdict.late(lease, call.sent_ns);
            lease.known_ns.get_or_insert(heard_ns);
            if *lease.fence.get_or_insert(*fence) != *fence {
                verdict.find(Law::Fencing, format!("another number, {call:?}, of {lease:?}"));
            }
        }
        Some((heard_ns, _)) => must_have_ended(lease, call, heard_ns, verdict),
        None => {}
    }
}

/// The owner was told that its lease is gone.
fn must_have_ended(lease: &Lease<'_>, call: &Call, heard_ns: u64, verdict: &mut Verdict) {
    if lease.known_ns.is_some() && heard_ns < lease.end_min_ns {
        verdict.find(Law::Endurance, format!("{call:?} of {lease:?}"));
    }
}

/// For each holder that a client saw: the token was granted, not released, and did not end long ago.
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

/// For each time that a client saw no holder, or another one: no lease certainly lasted throughout the call.
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
            Answer::No | Answer::Yes | Answer::YesAfter { .. } | Answer::YesWithFence(_) => continue,
        };
        for lease in running.iter().filter(|lease| heard_ns < lease.end_min_ns && lease.token != seen) {
            verdict.find(Law::Endurance, format!("{call:?} did not see {lease:?}"));
        }
    }
}

/// Finds two leases of which neither can have ended before the other was granted.
fn exclusion(granted: &[&Lease<'_>], verdict: &mut Verdict) {
    let known = |lease: &Lease<'_>| lease.known_ns.unwrap_or(u64::MAX);
    for (index, first) in granted.iter().enumerate() {
        for second in granted[index + 1..].iter().take_while(|second| second.since_min_ns < first.end_min_ns)
        {
            let first_is_over = known(second) >= first.end_min_ns;
            let second_came_first = second.since_min_ns <= known(first) && known(first) >= second.end_min_ns;
            if !first_is_over && !second_came_first {
                let lock = first.lock;
                verdict.find(Law::Exclusion, format!("{lock} was granted twice: {first:?} and {second:?}"));
            }
        }
    }
}

/// A grant made after another was known has the higher number; no number repeats; numbers rise from holder to holder.
fn fencing(granted: &[&Lease<'_>], verdict: &mut Verdict) {
    let fenced = || granted.iter().filter_map(|lease| Some((lease.fence?, *lease)));
    let mut known: Vec<_> = fenced().collect();
    known.sort_by_key(|(_, lease)| lease.known_ns);
    let mut known = known.into_iter().peekable();
    let mut highest: Option<(u64, &Lease<'_>)> = None;
    let mut seen = BTreeMap::new();
    for (fence, lease) in fenced() {
        while let Some(before) = known.next_if(|(_, before)| before.known_ns < Some(lease.since_min_ns)) {
            highest = highest.into_iter().chain([before]).max_by_key(|(fence, _)| *fence);
        }
        if let Some((_, before)) = highest.filter(|(before, _)| *before >= fence) {
            verdict.find(Law::Fencing, format!("{lease:?} after {before:?}"));
        } else if let Some(other) = seen.insert(fence, lease) {
            verdict.find(Law::Fencing, format!("{lease:?} and {other:?}"));
        }
    }
    // Leases that still lasted when they became known: they held the lock in this order, whatever they overlapped before.
    let mut held: Vec<_> = fenced()
        .filter(|(_, lease)| lease.known_ns.is_some_and(|known_ns| known_ns < lease.end_min_ns))
        .collect();
    held.sort_by_key(|(_, lease)| lease.known_ns);
    for pair in held.windows(2).filter(|pair| pair[0].0 >= pair[1].0) {
        verdict.find(Law::Fencing, format!("{:?} held before {:?}", pair[0].1, pair[1].1));
    }
}

const NANOS_PER_MS: u64 = 1_000_000;
const SESSION_NS: u64 = 24 * 60 * 60 * 1_000 * NANOS_PER_MS;
