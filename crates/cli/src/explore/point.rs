//! The lock commands of a run.
//!
//! Rule    a lock command is found again by its name and its number among the commands of that name, because names of locks
//!         may be drawn anew in each run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redlatch_testing::{Event, EventKind, shown};

use super::problem::place;
use super::rival;

/// A lock command of a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Point {
    /// Its name, in upper case.
    pub(super) command: String,
    /// Its number among the commands of this name, from 1 on.
    pub(super) nth: u64,
    /// What it does to a lock.
    pub(super) deed: Deed,
    /// Its number among the commands that do the same, from 1 on.
    pub(super) nth_of_deed: u64,
    /// The lease that counts when it is executed.
    pub(super) lease: Duration,
    /// Whether another client asks for locks behind it.
    pub(super) has_company: bool,
    /// Whether it asks for a script that the server does not have yet: it does nothing.
    pub(super) lacks_script: bool,
    /// The node that it was sent to.
    pub(super) node: u16,
    /// The request, for people.
    pub(super) line: String,
    /// The request and its lock, for the ID of a problem.
    pub(super) place: String,
}

/// What a lock command does.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Deed {
    Acquire,
    Extend,
    Release,
    /// It is refused, waits, listens for a release, or comes too late.
    Other,
}

impl Point {
    /// The lock commands of a run, in their order.
    pub(super) fn all(events: &[Event]) -> Vec<Self> {
        Self::behind(events, 0)
    }

    /// The command and its number, in one word.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.command.replace(' ', "|"), self.nth)
    }

    /// What the command does to a lock, and its number: a name that stays where another command is used for the same.
    pub(super) fn lasting_name(&self) -> String {
        let deed = match self.deed {
            Deed::Acquire => "acquire",
            Deed::Extend => "extend",
            Deed::Release => "release",
            Deed::Other => return self.name(),
        };
        match self.lacks_script {
            true => self.name(),
            false => format!("{deed}:{}", self.nth_of_deed),
        }
    }

    /// The lock commands of another run behind this one, which may have been lost there.
    pub(super) fn later(&self, events: &[Event]) -> Vec<Self> {
        self.own(events).map_or_else(Vec::new, |event| Self::behind(events, event.id))
    }

    /// The request as a run has it, for people: names and owners may be drawn anew in each.
    pub(super) fn line_in(&self, events: &[Event]) -> String {
        self.own(events).map_or_else(|| self.line.clone(), line)
    }

    /// The command in another run.
    fn own<'e>(&self, events: &'e [Event]) -> Option<&'e Event> {
        let is_own = |(event, nth): &(&Event, u64)| {
            event.command.as_deref() == Some(&*self.command) && *nth == self.nth
        };
        counted(events).into_iter().find(is_own).map(|(event, _)| event)
    }

    /// The lock commands of a run behind the request of this number.
    fn behind(events: &[Event], request: u64) -> Vec<Self> {
        let deeds = deeds(events);
        let (mut lease, mut points, mut counts) = (LEASE_DEFAULT, Vec::new(), BTreeMap::new());
        if deeds.is_empty() {
            return points;
        }
        let (requests, unknown) = (counted(events), unknown_scripts(events, &deeds));
        for &(event, nth) in &requests {
            let Some(command) = event.command.as_deref() else { continue };
            let listens = LISTENING.contains(&command).then_some(Deed::Other);
            let without_lease = || Some((unknown.get(&event.id).copied().or(listens)?, None));
            let Some((deed, its_lease)) = deeds.get(&event.id).copied().or_else(without_lease) else {
                continue;
            };
            lease = its_lease.map_or(lease, Duration::from_millis);
            let nth_of_deed: &mut u64 = counts.entry(deed).or_default();
            *nth_of_deed += u64::from(!unknown.contains_key(&event.id));
            if event.id <= request {
                continue;
            }
            let is_other = |later: &&Event| later.client != event.client && deeds.contains_key(&later.id);
            points.push(Self {
                command: command.to_owned(),
                nth,
                deed,
                nth_of_deed: *nth_of_deed,
                lease,
                has_company: requests.iter().any(|(later, _)| later.id > event.id && is_other(later)),
                lacks_script: unknown.contains_key(&event.id),
                node: event.node,
                line: line(event),
                place: place(event, event.key.as_deref()),
            });
        }
        points
    }
}

/// The requests that the failures meet, each with its number among those of its command: faults count every request, also an
/// EVALSHA of a script that the server does not know yet.
fn counted<'e>(events: &'e [Event]) -> Vec<(&'e Event, u64)> {
    let is_met = |event: &&Event| event.kind == EventKind::Request && &*event.name != rival::NAME;
    let mut counts = BTreeMap::<&'e str, u64>::new();
    let number = |event: &'e Event| {
        let nth = counts.entry(event.command.as_deref()?).or_default();
        *nth += 1;
        Some((event, *nth))
    };
    events.iter().filter(is_met).filter_map(number).collect()
}

/// What each request about a lock does, and the lease that it gives.
fn deeds(events: &[Event]) -> BTreeMap<u64, (Deed, Option<u64>)> {
    let mut deeds = BTreeMap::<u64, (Deed, Option<u64>)>::new();
    for event in events {
        let deed = match event.kind {
            EventKind::Granted => Deed::Acquire,
            EventKind::Renewed => Deed::Extend,
            EventKind::Released => Deed::Release,
            EventKind::Refused | EventKind::Waits | EventKind::Missed => Deed::Other,
            _ => continue,
        };
        if let Some(request) = event.request {
            let known = deeds.entry(request).or_insert((deed, event.lease));
            *known = (known.0.min(deed), known.1.or(event.lease));
        }
    }
    deeds
}

/// The requests for a known script of locks that the server does not have yet: a client sends it then, or loads it. One whose
/// script releases a lock is part of the release.
fn unknown_scripts(events: &[Event], deeds: &BTreeMap<u64, (Deed, Option<u64>)>) -> BTreeMap<u64, Deed> {
    let is_missing = |reply: &&Event| reply.reply.as_ref().is_some_and(|text| text.starts_with("-NOSCRIPT"));
    let missing: BTreeSet<_> = events.iter().filter(is_missing).filter_map(|reply| reply.request).collect();
    let is_known = |request: &&Event| request.kind == EventKind::Request && request.text.is_some();
    let requests: Vec<&Event> = events.iter().filter(is_known).collect();
    let deed = |(at, request): (usize, &&Event)| {
        let again = requests[at + 1..].iter().find(|later| later.text == request.text)?;
        let (deed, _) = deeds.get(&again.id)?;
        let deed = if *deed == Deed::Release { Deed::Release } else { Deed::Other };
        missing.contains(&request.id).then_some((request.id, deed))
    };
    requests.iter().enumerate().filter_map(deed).collect()
}

/// A request without the text of a script, for people.
fn line(event: &Event) -> String {
    let is_script = event.command.as_deref().is_some_and(|command| command.starts_with("EVAL"));
    let words = event.args.iter().skip(usize::from(is_script)).map(|word| shown(word, WORD_CHARS_MAX));
    let purpose = event.text.iter().filter(|_| is_script).map(|text| format!("({text})"));
    let name = event.command.iter().map(ToString::to_string);
    name.chain(purpose).chain(words).collect::<Vec<_>>().join(" ")
}

/// Commands by which a client that waits for a lock hears of its release.
const LISTENING: &[&str] = &["BLPOP", "BRPOP", "BRPOPLPUSH", "PSUBSCRIBE", "SSUBSCRIBE", "SUBSCRIBE"];
/// The lease of a lock command about which nothing is known.
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// Characters of a word that are shown.
const WORD_CHARS_MAX: usize = 40;

#[cfg(test)]
pub(super) mod tests {
    use super::super::case::Case;
    use super::super::servers::Servers;
    use super::*;

    pub(crate) fn event(id: u64, kind: EventKind, command: &str, request: Option<u64>) -> Event {
        let command = (!command.is_empty()).then(|| command.into());
        Event { id, command, request, ..Event::new(kind) }
    }

    #[test]
    fn a_script_that_was_unknown_is_no_lock_command_and_is_counted_as_faults_count_it() {
        let unknown = Event {
            reply: Some("-NOSCRIPT No matching script".to_owned()),
            ..event(2, EventKind::Reply, "EVALSHA", Some(1))
        };
        let events = [
            event(1, EventKind::Request, "EVALSHA", None),
            unknown,
            event(3, EventKind::Request, "EVALSHA", None),
            Event { lease: Some(500), ..event(4, EventKind::Granted, "", Some(3)) },
            event(5, EventKind::Request, "GET", None),
            event(6, EventKind::Request, "EVALSHA", None),
            event(7, EventKind::Released, "", Some(6)),
        ];
        let points = Point::all(&events);
        let known: Vec<_> = points.iter().map(|point| (&*point.command, point.nth, point.deed)).collect();
        assert_eq!(known, [("EVALSHA", 2, Deed::Acquire), ("EVALSHA", 3, Deed::Release)]);
        let lasting: Vec<_> = points.iter().map(Point::lasting_name).collect();
        assert_eq!(lasting, ["acquire:1", "release:1"]);
        assert!(
            points.iter().all(|point| point.lease == Duration::from_millis(500)),
            "that of the grant holds until the next"
        );
    }

    #[test]
    fn a_request_for_a_lock_script_that_the_server_lacks_is_a_lock_command() {
        let points = |text: Option<&str>| {
            let request = |id| Event {
                text: text.map(str::to_owned),
                ..event(id, EventKind::Request, "EVALSHA", None)
            };
            let answer =
                Event { reply: Some("-NOSCRIPT".to_owned()), ..event(2, EventKind::Reply, "", Some(1)) };
            let events = [request(1), answer, request(3), event(4, EventKind::Released, "", Some(3))];
            let points = Point::all(&events);
            let cases = Case::all(&points[..1], Servers::Stores(1)).len();
            assert_eq!(points[points.len() - 1].lasting_name(), "release:1");
            (cases, points.iter().map(|point| (point.nth, point.deed)).collect::<Vec<_>>())
        };
        let known = points(Some("release"));
        assert_eq!(known, (6, vec![(1, Deed::Release), (2, Deed::Release)]), "nothing moves the time there");
        assert_eq!(points(None).1, [(2, Deed::Release)], "nobody knows what it is for");
    }

    #[test]
    fn behind_a_lost_command_are_those_of_the_program_and_not_of_the_rival() {
        let granted =
            |id, request| Event { lease: Some(500), ..event(id, EventKind::Granted, "", Some(request)) };
        let usual = [event(1, EventKind::Request, "SET", None), granted(2, 1)];
        let events = [
            event(1, EventKind::Request, "SET", None),
            Event { name: rival::NAME.into(), ..event(2, EventKind::Request, "SET", None) },
            granted(3, 2),
            event(4, EventKind::Request, "SET", None),
            granted(5, 4),
        ];
        let later = Point::all(&usual)[0].later(&events);
        assert_eq!(later.iter().map(|point| (&*point.command, point.nth)).collect::<Vec<_>>(), [("SET", 2)]);
        assert_eq!(later[0].later(&events), []);
    }
}
