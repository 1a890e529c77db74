//! What is wrong in a run with a failure.
//!
//! Rule    what the run without failures does as well is not the failure's: it is a finding of that run alone.
//! Rule    a command that fails where the server has failed may be right. So a failure alone is a finding only where the
//!         server has done what it should, or where the user expects the command to survive.
//! Rule    what one of a pair of failures shows alone is no finding of the pair.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_core::locks::Rule;
use redlatch_testing::{Event, EventKind, Finding, shown};

use super::attempt::Attempt;
use super::case::{Case, Injection, Kind};
use super::point::Deed;
use super::problem::{Problem, ProblemKind, pattern, place, request_of};
use super::program::Ending;
use super::rival;
use super::servers::Servers;

/// What the run without failures has done.
#[derive(Debug, Default)]
pub(super) struct Baseline {
    /// The broken rules, each with the sentence that says it, by the ID of the problem.
    broken: BTreeMap<String, (Rule, String)>,
    /// The patterns of the locks that it leaves.
    left: BTreeSet<String>,
}

impl Baseline {
    pub(super) fn of(attempt: &Attempt) -> Self {
        let broken = attempt.findings().into_iter().map(|finding| {
            let rule = finding.rule;
            let problem = Problem::broken(finding, &attempt.events);
            (problem.id(), (rule, problem.text))
        });
        Self { broken: broken.collect(), left: left(attempt).map(lock).collect() }
    }

    /// What is worth a word without any failure, and no finding.
    pub(super) fn advice(&self) -> impl Iterator<Item = String> {
        let advice = self.broken.values().filter(|(rule, _)| ADVICE.contains(rule));
        advice.map(|(rule, text)| format!("{}: {text}", rule.name()))
    }

    /// What is wrong in a run of the case; nothing if a failure was not met. `expects` are the kinds of failures that the
    /// command must survive, by name.
    pub(super) fn compare(&self, attempt: &Attempt, case: &Case, expects: &[String]) -> Vec<Problem> {
        let without_failures = Self::default();
        let usual = if case.injections.is_empty() { &without_failures } else { self };
        let mut problems = if attempt.is_met { usual.problems(attempt, case, expects) } else { Vec::new() };
        problems.retain(|problem| !case.known.contains(&problem.kind));
        problems
    }

    fn problems(&self, attempt: &Attempt, case: &Case, expects: &[String]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let of_command = |kind, text| Problem { kind, place: case.place(), text, lines: Vec::new() };
        if attempt.ending == Ending::Hung {
            let text = format!("the command still ran after {:.1} s", attempt.took.as_secs_f64());
            return vec![of_command(ProblemKind::Hung, text)];
        }
        let has_passed = attempt.ending == Ending::Passed;
        let findings = attempt.findings();
        let is_lost = attempt.servers.is_held(nodes_that_have_lost(&findings, &attempt.events));
        for finding in findings {
            let is_excused = is_excused(&finding, attempt, case, is_lost);
            let problem = Problem::broken(finding, &attempt.events);
            if !is_excused && !self.broken.contains_key(&problem.id()) {
                problems.push(problem);
            }
        }
        if has_passed || !case.has(|injection| injection.point.deed == Deed::Release) {
            let left = left(attempt).filter(|event| !self.left.contains(&lock(event)));
            problems.extend(left.map(|event| left_by(event, attempt, case)));
        }
        if attempt.ending.has_failed() && must_survive(attempt, case, expects) {
            let text = format!("the command's end: {}", attempt.ending.text());
            problems.push(of_command(ProblemKind::Failed, text));
        }
        problems
    }
}

/// Whether what breaks a rule is what a command may do in this case. `is_lost`: the lock's lease has ended on so many of the
/// stores that it is held no more.
fn is_excused(finding: &Finding, attempt: &Attempt, case: &Case, is_lost: bool) -> bool {
    match finding.rule {
        // Advice, which a slow reply breaks.
        Rule::LateRenewal => true,
        // As long as the lock is not lost, it deletes its own.
        Rule::BlindDelete => case.injections.is_empty(),
        // What a command does that does not know it yet, and then notices it and fails; or what it does at one of several
        // stores, while it holds the lock on most. A release that takes long to arrive ends what was done in time.
        Rule::Late => {
            let is_delayed = |it: &Injection| it.kind == Kind::Delayed && it.point.deed == Deed::Release;
            attempt.ending != Ending::Passed || !is_lost || case.has(is_delayed)
        }
        // A lock that most of several stores have not granted is given back on all of them.
        Rule::ForeignDelete => {
            is_of_earlier_connection(&attempt.events, finding)
                || attempt.servers.are_apart() && finding.events.len() == REFUSED_DELETE
        }
        // The failure itself ends the lock before its lease.
        Rule::TwoHolders => case.has(|Injection { kind, .. }| {
            matches!(kind, Kind::RestartEmpty | Kind::Expired | Kind::FailOverEmpty)
        }),
        Rule::NeverServed | Rule::NoLease => false,
        // No history shows these.
        Rule::FastPolling | Rule::OppositeOrders | Rule::SharedValue | Rule::ShortLease => false,
    }
}

/// At how many nodes a lock is extended or released whose lease has ended there.
fn nodes_that_have_lost(findings: &[Finding], events: &[Event]) -> usize {
    let late = findings.iter().filter(|finding| finding.rule == Rule::Late);
    let ids: BTreeSet<u64> = late.filter_map(|finding| finding.events.last().copied()).collect();
    let nodes = events.iter().filter(|event| ids.contains(&event.id)).map(|event| event.node);
    nodes.collect::<BTreeSet<_>>().len()
}

/// Whether the command deletes a lock that it has taken on a connection which has gone since: it has connected again.
fn is_of_earlier_connection(events: &[Event], finding: &Finding) -> bool {
    let event = |at: usize| events.iter().find(|event| finding.events.get(at) == Some(&event.id));
    // The grant, the deletion, and what it ends; a release that is refused ends nothing.
    let (Some(granted), Some(deleted), Some(_)) = (event(0), event(1), event(2)) else { return false };
    let has_gone = |event: &Event| event.kind == EventKind::Disconnect && event.client == granted.client;
    &*granted.name != rival::NAME && events.iter().take_while(|event| event.id < deleted.id).any(has_gone)
}

/// Whether the command must not fail in this run.
fn must_survive(attempt: &Attempt, case: &Case, expects: &[String]) -> bool {
    let has_ended = |event: &Event| event.kind == EventKind::Expired && event.token.is_some();
    // Two late replies may take the whole lease.
    let is_lost = case.injections.len() > 1 && attempt.events.iter().any(has_ended);
    let is_excused = |Injection { kind, .. }: &Injection| {
        expects.iter().all(|name| name != kind.name()) && (is_lost || kind.excuses_failure())
    };
    !case.has(is_excused)
}

/// The grants that have not ended: of each lock the last. In a cluster it may go on at another node.
fn left(attempt: &Attempt) -> impl Iterator<Item = &Event> {
    let Attempt { events, servers, .. } = attempt;
    let is_of_lock = |event: &Event, other: &Event| {
        other.key == event.key && (other.node == event.node || *servers == Servers::Cluster)
    };
    let is_end = |event: &Event| matches!(event.kind, EventKind::Released | EventKind::Expired);
    let is_grant = |event: &Event| event.kind == EventKind::Granted && &*event.name != rival::NAME;
    events.iter().enumerate().filter(move |(_, event)| is_grant(event)).filter_map(move |(at, event)| {
        let later = events[at + 1..].iter().filter(|later| is_of_lock(event, later));
        let mut ends = later.filter(|later| is_end(later) || is_grant(later));
        ends.next().is_none().then_some(event)
    })
}

/// The lock that a grant leaves when the command has ended. The cause is the failure; without any, the request for the lock.
fn left_by(grant: &Event, attempt: &Attempt, case: &Case) -> Problem {
    let key = grant.key.as_deref();
    let place = match request_of(&attempt.events, grant.id) {
        Some(request) if case.injections.is_empty() => place(request, key),
        _ => case.place(),
    };
    let name = shown(key.unwrap_or_default(), KEY_CHARS_MAX);
    let text = format!("{name} is still locked when the command has ended");
    Problem { kind: ProblemKind::Left, place, text, lines: vec![grant.line()] }
}

fn lock(event: &Event) -> String {
    pattern(event.key.as_deref().unwrap_or_default())
}

/// Rules that a command may break without harm as long as nothing fails.
const ADVICE: [Rule; 2] = [Rule::BlindDelete, Rule::LateRenewal];
/// The events of a `foreign-delete` that the lock has survived: the grant, and the request. Else its end is the third.
const REFUSED_DELETE: usize = 2;
/// Characters of a key that are shown.
const KEY_CHARS_MAX: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_was_taken_before_a_new_connection_is_the_commands_own() {
        let is_own = |name: &str, goes: bool| {
            let event = |id, kind| Event { id, ..Event::new(kind) };
            let kind = if goes { EventKind::Disconnect } else { EventKind::Connect };
            let granted = Event { name: name.into(), ..event(1, EventKind::Granted) };
            let events =
                [granted, event(2, kind), event(3, EventKind::Request), event(4, EventKind::Released)];
            let (key, text, lines) = (Default::default(), String::new(), Vec::new());
            let finding = Finding { rule: Rule::ForeignDelete, key, text, events: vec![1, 3, 4], lines };
            is_of_earlier_connection(&events, &finding)
        };
        assert!(is_own("", true));
        assert!(!is_own("", false), "the other connection is still there");
        assert!(!is_own(rival::NAME, true), "the rival leaves its lock behind");
    }
}
