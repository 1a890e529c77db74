//! Pairs of failures: which there are, and in which order they are tried.
//!
//! Rule    the second failure is at a lock command behind the first one, of the run with the first one: there may be
//!         commands, such as a retry, that only a failure leads to.
//! Rule    first failures that have led to a new order of lock events come before those that have not.

use std::collections::{BTreeMap, BTreeSet};

use redlatch_testing::{Event, EventKind};

use super::case::{Case, Injection};
use super::point::Point;
use super::problem::ProblemKind;
use super::servers::Servers;

/// A failure that was tried alone.
pub(super) struct Single {
    injection: Injection,
    /// The problems that it has shown.
    problems: BTreeSet<ProblemKind>,
    trace: Trace,
}

/// What a run with one failure tells about those with a second one.
pub(super) struct Trace {
    order: Order,
    /// The lock commands behind the failure.
    later: Vec<Point>,
}

/// What happened to locks in a run. Locks are numbered as they come, because their names may be drawn anew in each run.
pub(super) type Order = Vec<(EventKind, usize)>;

/// The lock events of a run.
pub(super) fn order(events: &[Event]) -> Order {
    let mut locks = BTreeMap::new();
    let number = |event: &Event| {
        let next = locks.len();
        let lock = locks.entry((event.node, event.key.clone())).or_insert(next);
        (event.kind, *lock)
    };
    events.iter().filter(|event| is_about_lock(event)).map(number).collect()
}

fn is_about_lock(event: &Event) -> bool {
    use EventKind::{Expired, Granted, Missed, Refused, Released, Renewed, Waits};
    matches!(event.kind, Expired | Granted | Missed | Refused | Released | Renewed | Waits)
}

impl Trace {
    /// That of a run with a failure at this lock command, if with any.
    pub(super) fn of(events: &[Event], point: Option<&Point>) -> Self {
        Self { order: order(events), later: point.map_or_else(Vec::new, |point| point.later(events)) }
    }
}

impl Single {
    pub(super) fn new(injection: Injection, problems: BTreeSet<ProblemKind>, trace: Trace) -> Self {
        Self { injection, problems, trace }
    }
}

/// All pairs, in the order in which they are tried. `usual` is the order of lock events without failures.
pub(super) fn all(singles: &[Single], usual: &Order, servers: Servers) -> impl Iterator<Item = Case> {
    let by_name: BTreeMap<String, &Single> =
        singles.iter().map(|single| (single.injection.to_string(), single)).collect();
    let mut orders = BTreeSet::from([usual]);
    let (new, known): (Vec<_>, Vec<_>) =
        singles.iter().partition(|single| orders.insert(&single.trace.order));
    let firsts = new.into_iter().chain(known);
    firsts
        .flat_map(move |first| Injection::all(&first.trace.later, servers).map(move |second| (first, second)))
        .map(move |(first, second)| {
            let alone = by_name.get(&second.to_string());
            let known = first.problems.iter().chain(alone.iter().flat_map(|single| &single.problems));
            let known = known.copied().collect();
            Case { injections: vec![first.injection.clone(), second], known }
        })
}

#[cfg(test)]
mod tests {
    use redlatch_core::locks::Rule;

    use super::*;

    fn event(kind: EventKind, key: &'static str) -> Event {
        Event { key: Some(key.into()), ..Event::new(kind) }
    }

    /// A run with two SETs, which are granted one after the other.
    fn points() -> Vec<Point> {
        let request = |id| Event { id, command: Some("SET".into()), ..event(EventKind::Request, "a") };
        let granted = |id, request| Event { id, request: Some(request), ..event(EventKind::Granted, "a") };
        Point::all(&[request(1), granted(2, 1), request(3), granted(4, 3)])
    }

    fn single(
        injection: Injection,
        problem: Option<ProblemKind>,
        events: &[Event],
        later: &[Point],
    ) -> Single {
        let trace = Trace { order: order(events), later: later.to_vec() };
        Single::new(injection, problem.into_iter().collect(), trace)
    }

    #[test]
    fn names_of_locks_do_not_make_an_order_but_which_lock_it_is_does() {
        use EventKind::{Granted, Released, Request};
        let run = |keys: [&'static str; 3]| {
            let kinds = [Granted, Granted, Released];
            order(&std::iter::zip(kinds, keys).map(|(kind, key)| event(kind, key)).collect::<Vec<_>>())
        };
        assert_eq!(run(["a", "b", "a"]), run(["x", "y", "x"]));
        assert_ne!(run(["a", "b", "a"]), run(["a", "b", "b"]));
        assert_eq!(order(&[event(Request, "a")]), []);
    }

    #[test]
    fn pairs_of_a_new_order_come_first_and_know_what_each_failure_shows_alone() {
        let points = points();
        let (granted, expired) = (event(EventKind::Granted, "a"), event(EventKind::Expired, "a"));
        let (usual, new) = ([granted.clone()], [granted, expired]);
        let injections: Vec<_> = Injection::all(&points, Servers::Stores(1)).collect();
        let (first, last) = (injections[0].clone(), injections[injections.len() - 1].clone());
        let singles = [
            single(first.clone(), Some(ProblemKind::Left), &usual, &points[1..]),
            single(injections[1].clone(), None, &new, &points[1..]),
            single(last.clone(), Some(ProblemKind::Broken(Rule::Late)), &usual, &[]),
        ];
        let pairs: Vec<_> = all(&singles, &order(&usual), Servers::Stores(1)).collect();
        let half = pairs.len() / 2;
        assert_eq!(
            half,
            injections.len() / 2,
            "each failure at the second SET, behind each of two at the first"
        );
        assert!(pairs[..half].iter().all(|pair| pair.injections[0] == injections[1]), "its order was new");
        assert!(pairs[half..].iter().all(|pair| pair.injections[0] == first));
        assert_eq!(pairs[half].known, BTreeSet::from([ProblemKind::Left]));
        let both = &pairs[pairs.len() - 1];
        assert_eq!(both.to_string(), format!("{first}+{last}"));
        assert_eq!(both.known, BTreeSet::from([ProblemKind::Left, ProblemKind::Broken(Rule::Late)]));
    }
}
