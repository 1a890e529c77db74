//! The checker of locks: what is wrong in a history, as TEST.CHECK shows it.
//!
//! Owns    how mistakes show in a history. The rules are those of LOCK.LINT, see `locks::lint`;
//!         docs/test-history.md lists them.
//! Rule    a finding names the events that show it. What a history does not show is not found.
//! Rule    a lock that is taken on several nodes (Redlock) has two holders if both have a majority of them.
//! Rule    a master and the replica that takes over from it are one node. The replica may not know what was granted last.
//! Rule    a lock that has moved between the nodes of a cluster is one lock, wherever it is.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use redlatch_core::locks::{EndReason, Rule};

use super::event::{Event, EventKind, shown};

/// Something that is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The broken rule.
    pub rule: Rule,
    /// The lock.
    pub key: Bytes,
    /// What happened, in a sentence.
    pub text: String,
    /// The events that show it.
    pub events: Vec<u64>,
    /// These events, a line for each.
    pub lines: Vec<String>,
}

/// Whether a lock goes to another node with its slot.
fn moves(event: &Event) -> bool {
    event.kind == EventKind::Released && event.text.as_deref() == Some(EndReason::Moved.name())
}

/// What is wrong in a history. The events are in the order of their numbers.
pub fn check(events: &[Event]) -> Vec<Finding> {
    let mut checker = Checker::new(events);
    for event in events {
        checker.see(event);
    }
    checker.end();
    checker.findings
}

/// A lock that somebody has, or had.
struct Held<'e> {
    granted: &'e Event,
    /// The grant, or the last renewal.
    latest: &'e Event,
    lease_ms: Option<u64>,
    has_had_lease: bool,
    /// How it has ended.
    end: Option<(End, &'e Event)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// The lease has ended.
    Expired,
    /// The holder has released it, or everything was deleted.
    Own,
    /// Somebody else has ended it.
    Foreign,
}

struct Checker<'e> {
    events: &'e [Event],
    requests: BTreeMap<u64, &'e Event>,
    /// The requests that wait for locks, each with its locks.
    waits: BTreeMap<u64, Vec<&'e Bytes>>,
    /// The reply to each request.
    replies: BTreeMap<u64, &'e Event>,
    /// The end of the connection of each request that got no reply before it.
    gone: BTreeMap<u64, &'e Event>,
    /// The locks that have moved with their slots.
    moved: BTreeSet<&'e Bytes>,
    /// The replicas that have taken over, each with the node that it has taken over from.
    failovers: Vec<(u16, u16)>,
    /// Every hold of each lock, by its place.
    held: BTreeMap<(&'e Bytes, u16), Vec<Held<'e>>>,
    /// The nodes on which each lock is taken.
    nodes: BTreeMap<&'e Bytes, BTreeSet<u16>>,
    /// The requests that step the wall clock, with the milliseconds that all steps so far add up to.
    steps: Vec<(u64, i64)>,
    findings: Vec<Finding>,
}

impl<'e> Checker<'e> {
    fn new(events: &'e [Event]) -> Self {
        let of = |kind| events.iter().filter(move |event| event.kind == kind);
        let requests = of(EventKind::Request).map(|event| (event.id, event)).collect();
        let mut waits: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (request, key) in of(EventKind::Waits).filter_map(|event| event.request.zip(event.key.as_ref())) {
            waits.entry(request).or_default().push(key);
        }
        let replies = of(EventKind::Reply).filter_map(|event| Some((event.request?, event))).collect();
        let gone = gone_without_reply(events, &replies);
        let moved: BTreeSet<_> =
            events.iter().filter(|event| moves(event)).filter_map(|event| event.key.as_ref()).collect();
        let failovers =
            events.iter().filter_map(|event| Some((event.node, event.failed_master()?))).collect();
        let (held, nodes, steps, findings) = Default::default();
        let mut checker =
            Self { events, requests, waits, replies, gone, moved, failovers, held, nodes, steps, findings };
        for event in of(EventKind::Granted) {
            if let Some(key) = &event.key {
                let (_, node) = checker.place(event, key);
                checker.nodes.entry(key).or_default().insert(node);
            }
        }
        checker
    }

    /// The lock that an event is about, and its node; 0: it has moved. Of a master and its replica it is the lower number, so
    /// that they are one node from the beginning of the history.
    fn place(&self, event: &Event, key: &'e Bytes) -> (&'e Bytes, u16) {
        if self.moved.contains(key) {
            return (key, 0);
        }
        let pairs = || self.failovers.iter();
        // Each round finds those that one more failover joins.
        let joined = pairs().fold(BTreeSet::from([event.node]), |mut found, _| {
            let near = pairs().filter(|(a, b)| found.contains(a) || found.contains(b));
            found.extend(near.flat_map(|(a, b)| [*a, *b]).collect::<Vec<_>>());
            found
        });
        (key, joined.first().copied().unwrap_or(event.node))
    }

    /// Whether a replica that grants a lock again has taken over from the node that has granted it before.
    fn lost_by_failover(&self, before: &Event, event: &Event) -> String {
        match before.node == event.node || self.failovers.is_empty() {
            true => String::new(),
            false => format!(": node {} has taken over from node {} without it", event.node, before.node),
        }
    }

    fn see(&mut self, event: &'e Event) {
        match (event.kind, &event.key) {
            (EventKind::Request, _) => self.requested(event),
            (EventKind::Granted, Some(key)) => self.granted(event, key),
            (EventKind::Renewed, Some(key)) => self.renewed(event, key),
            (EventKind::Missed, Some(key)) => self.missed(event, key),
            _ if moves(event) => {}
            (EventKind::Released | EventKind::Expired, Some(key)) if event.token.is_some() => {
                self.ended(event, key);
                self.freed(event, key);
            }
            _ => {}
        }
    }

    /// The time of the event on a clock that nobody steps.
    fn time(&self, event: &Event) -> u64 {
        let steps = self.steps.iter().rfind(|(id, _)| *id < event.id);
        event.at.saturating_add_signed(steps.map_or(0, |(_, millis)| millis.saturating_neg()))
    }

    fn find(&mut self, rule: Rule, key: &Bytes, text: String, events: &[&Event]) {
        let mut events: Vec<&Event> = events.to_vec();
        events.sort_by_key(|event| event.id);
        events.dedup_by_key(|event| event.id);
        let lines = events.iter().map(|event| event.line()).collect();
        let events = events.iter().map(|event| event.id).collect();
        self.findings.push(Finding { rule, key: key.clone(), text, events, lines });
    }

    fn requested(&mut self, event: &'e Event) {
        if event.command.as_deref() == Some("TEST.CLOCK STEP-WALL") {
            let millis = event.args.first().and_then(|millis| redlatch_proto::number::integer(millis));
            let before = self.steps.last().map_or(0, |(_, millis)| *millis);
            self.steps.push((event.id, before.saturating_add(millis.unwrap_or(0))));
        }
        let is_known = event.text.is_some();
        if is_script(event) && !is_known && !self.has_changed_locks(event) {
            // It may extend or release locks that its words name, under names that they may be.
            let words: BTreeSet<&Bytes> = event.args.iter().skip(1).collect();
            for key in &words {
                self.asked_by_owner((event, event), key, &words, "runs a script on");
            }
        }
    }

    /// A request extends or releases a lock that its owner does not hold.
    fn missed(&mut self, event: &'e Event, key: &'e Bytes) {
        let request = event.request.and_then(|request| self.requests.get(&request)).copied().unwrap_or(event);
        let does = event.text.as_deref().unwrap_or_default();
        self.asked_by_owner((request, event), key, &event.holder.iter().collect(), does);
    }

    /// One of these owners extends or releases a lock. `arrived`: a request may have been delayed.
    fn asked_by_owner(
        &mut self,
        (event, arrived): (&'e Event, &'e Event),
        key: &Bytes,
        owners: &BTreeSet<&Bytes>,
        does: &str,
    ) {
        let Some(holds) = self.held.get(&self.place(event, key)) else { return };
        let (who, name) = (event.who(), shown(key, 40));
        let is_owned =
            |held: &&Held<'_>| held.granted.holder.as_ref().is_some_and(|own| owners.contains(own));
        match holds.iter().rfind(is_owned) {
            Some(Held { granted, latest, end: Some((End::Expired, end)), .. }) => {
                let late = self.time(arrived).saturating_sub(self.time(end));
                let text = format!("{who} {does} {name} {late} ms after its lease has ended");
                let events = [*granted, *latest, *end, event];
                self.find(Rule::Late, key, text, &events);
            }
            None if does == "releases" && self.events.first().is_some_and(|first| first.id == 1) => {
                if let Some(held) = holds.iter().rfind(|held| held.end.is_none()) {
                    let granted = held.granted;
                    let text = format!("{who} releases {name}, which {} holds", granted.who());
                    self.find(Rule::ForeignDelete, key, text, &[granted, event]);
                }
            }
            _ => {}
        }
    }

    fn granted(&mut self, event: &'e Event, key: &'e Bytes) {
        let lease_ms = event.lease;
        let held =
            Held { granted: event, latest: event, lease_ms, has_had_lease: lease_ms.is_some(), end: None };
        let is_shared = event.text.as_deref() == Some("shared");
        let before = if is_shared { None } else { self.other_majority(event, key) };
        let place = self.place(event, key);
        let holds = self.held.entry(place).or_default();
        // A node that has crashed has lost the lock.
        holds.push(held);
        if let Some((first, left_ms)) = before {
            let (name, other) = (shown(key, 40), first.who());
            let lost = self.lost_by_failover(first, event);
            let has = match left_ms {
                u64::MAX => format!("which {other} holds without a lease"),
                left_ms => format!("whose lease {other} has for {left_ms} ms more"),
            };
            let text = format!("{} gets {name}, {has}{lost}", event.who());
            self.find(Rule::TwoHolders, key, text, &[first, event]);
        }
    }

    /// If the grant gives its owner a majority of the nodes of a lock, and another owner has one: a grant of the other,
    /// and the milliseconds that are left of its lease.
    fn other_majority(&self, event: &'e Event, key: &'e Bytes) -> Option<(&'e Event, u64)> {
        let nodes = self.nodes.get(key)?;
        let majority = nodes.len() / 2 + 1;
        // The nodes that each owner may rely on.
        let mut owed: BTreeMap<&Option<Bytes>, Vec<(&'e Event, u64)>> = BTreeMap::new();
        for node in nodes {
            for held in self.held.get(&(key, *node)).into_iter().flatten() {
                if let Some(left_ms) = self.left_ms(held, event) {
                    owed.entry(&held.granted.holder).or_default().push((held.latest, left_ms));
                }
            }
        }
        let own = owed.remove(&event.holder).map_or(0, |own| own.len()) + 1;
        if own < majority {
            return None;
        }
        let other = owed.into_values().find(|holds| holds.len() >= majority)?;
        other.into_iter().min_by_key(|(_, left_ms)| *left_ms)
    }

    /// What its holder may believe to be left of its lease at the time of an event; `None` if it has ended.
    fn left_ms(&self, held: &Held<'e>, event: &Event) -> Option<u64> {
        if held.granted.text.as_deref() == Some("shared") || matches!(held.end, Some((End::Own, _))) {
            return None;
        }
        match held.lease_ms {
            Some(lease_ms) => {
                let until = self.time(held.latest).saturating_add(lease_ms);
                until.checked_sub(self.time(event)).filter(|left_ms| *left_ms > 0)
            }
            None if held.end.is_none() => None,
            None => Some(u64::MAX),
        }
    }

    fn renewed(&mut self, event: &'e Event, key: &'e Bytes) {
        let place = self.place(event, key);
        let Some(holds) = self.held.get_mut(&place) else { return };
        let Some(held) = holds.iter_mut().rfind(|held| held.granted.token == event.token) else { return };
        let (before, lease_ms) = (held.latest, held.lease_ms);
        held.latest = event;
        held.lease_ms = event.lease;
        held.has_had_lease |= event.lease.is_some();
        let Some(lease_ms) = lease_ms else { return };
        let passed = self.time(event).saturating_sub(self.time(before));
        if passed.saturating_mul(3) > lease_ms.saturating_mul(2) {
            let left = lease_ms.saturating_sub(passed);
            let name = shown(key, 40);
            let text =
                format!("{} extends {name} with {left} ms of its {lease_ms} ms lease left", event.who());
            self.find(Rule::LateRenewal, key, text, &[before, event]);
        }
    }

    fn ended(&mut self, event: &'e Event, key: &'e Bytes) {
        let holds = self.held.get(&self.place(event, key)).map_or(&[][..], |holds| &holds[..]);
        let Some(at) = holds.iter().rposition(|held| held.granted.token == event.token) else { return };
        let (granted, has_had_lease) = (holds[at].granted, holds[at].has_had_lease);
        let author = event.request.and_then(|request| self.requests.get(&request)).copied();
        let reason = event.text.as_deref().and_then(|text| EndReason::named(text.as_bytes()));
        let (end, is_blind) = match author {
            _ if event.kind == EventKind::Expired => (End::Expired, false),
            // No request: a session has ended, a client is gone without having read its grant, or a node has crashed.
            None => {
                let is_unread = granted.request.is_some_and(|request| !self.replies.contains_key(&request));
                (if is_unread || self.is_of_session(granted) { End::Own } else { End::Foreign }, false)
            }
            Some(author) => {
                let is_blind = deletes_blindly(author);
                let is_own = match reason {
                    Some(EndReason::Broken) => is_same_client(author, event),
                    Some(EndReason::Deleted) => is_same_client(author, event) || may_compare(author, event),
                    _ => true,
                };
                (if is_own { End::Own } else { End::Foreign }, is_blind)
            }
        };
        let is_meant = reason == Some(EndReason::Broken);
        let place = self.place(event, key);
        if let Some(held) = self.held.get_mut(&place).and_then(|holds| holds.get_mut(at)) {
            held.end = Some((end, event));
        }
        self.check_lease(granted, has_had_lease);
        let (Some(author), name) = (author, shown(key, 40)) else { return };
        let (who, holder) = (author.who(), granted.who());
        if end == End::Foreign && !is_meant {
            let text = format!("{who} ends {name}, which {holder} holds");
            self.find(Rule::ForeignDelete, key, text, &[granted, author, event]);
        }
        if is_blind {
            let text = format!("{who} deletes {name} without a comparison of its value");
            self.find(Rule::BlindDelete, key, text, &[granted, author, event]);
        }
    }

    /// Whether a lock ends with its connection.
    fn is_of_session(&self, granted: &Event) -> bool {
        let request = granted.request.and_then(|request| self.requests.get(&request));
        let names_session = request.is_some_and(|request| has_word(request, b"SESSION"));
        names_session || granted.text.as_deref() == Some("session")
    }

    /// A lock has ended, or the history: it may never have had a lease.
    fn check_lease(&mut self, granted: &'e Event, has_had_lease: bool) {
        let is_leased = has_had_lease || self.is_of_session(granted);
        if let Some(key) = granted.key.as_ref().filter(|_| !is_leased) {
            let text = format!("{} takes {} without a lease", granted.who(), shown(key, 40));
            self.find(Rule::NoLease, key, text, &[granted]);
        }
    }

    /// A lock may have become free: those who wait for it ought to get it. Of a request for several locks that is said only
    /// once all are free, also with ANY: the history does not say how many it needs.
    fn freed(&mut self, event: &'e Event, key: &'e Bytes) {
        if !self.is_free(event, key) || self.withheld(event).contains(key) {
            return;
        }
        let waiting: Vec<&'e Event> = self.waiting(event, key);
        for request in waiting {
            let end = self.end_of(request);
            let Some(last) = end.or(self.events.last()) else { continue };
            let (until, own) = (last.id, [key]);
            let keys = self.waits.get(&request.id).map_or(&own[..], |keys| &keys[..]);
            let is_taken = self.events.iter().any(|other| {
                let is_grant = other.kind == EventKind::Granted
                    && other.key.as_ref().is_some_and(|key| keys.contains(&key));
                is_grant && other.node == event.node && (event.id..=until).contains(&other.id)
            });
            let waited = last.at.saturating_sub(event.at);
            if !is_taken && waited > 0 {
                let (who, name) = (request.who(), shown(key, 40));
                let text = format!("{who} waits {waited} ms more for {name}, which is free");
                let events: Vec<_> = [Some(request), Some(event), end].into_iter().flatten().collect();
                self.find(Rule::NeverServed, key, text, &events);
            }
        }
    }

    /// Whether nobody holds a lock.
    fn is_free(&self, event: &Event, key: &'e Bytes) -> bool {
        let holds = self.held.get(&self.place(event, key));
        holds.into_iter().flatten().all(|held| held.end.is_some())
    }

    /// The locks of the requests for several that rightly wait at the time of an event: one of their locks is held, or
    /// another such request waits for it. Who is before whom in a queue is not known here, so nobody ought to get these.
    fn withheld(&self, event: &'e Event) -> BTreeSet<&'e Bytes> {
        let waits = self.waits.range(..event.id).filter(|(id, keys)| {
            let request = self.requests.get(id).filter(|_| keys.len() > 1);
            request.is_some_and(|request| request.node == event.node && self.is_open(request, event))
        });
        let (mut found, mut waits) = (BTreeSet::new(), waits.map(|(_, keys)| keys).collect::<Vec<_>>());
        loop {
            let is_served = |key: &&'e Bytes| self.is_free(event, key) && !found.contains(key);
            let (served, kept): (Vec<_>, Vec<_>) =
                waits.into_iter().partition(|keys| keys.iter().all(is_served));
            if kept.is_empty() {
                return found;
            }
            found.extend(kept.into_iter().flatten().copied());
            waits = served;
        }
    }

    /// Whether a request has no reply at the time of an event.
    fn is_open(&self, request: &Event, event: &Event) -> bool {
        self.end_of(request).is_none_or(|end| end.id > event.id)
    }

    /// The requests that are blocked at the time of an event, by clients that wait for this lock.
    fn waiting(&self, event: &'e Event, key: &Bytes) -> Vec<&'e Event> {
        let earlier = self.requests.range(..event.id).rev();
        let blocked = earlier.filter(|(id, request)| {
            let waits_itself = self.waits.get(id).is_some_and(|keys| keys.contains(&key));
            let is_pop = request.command.as_deref().is_some_and(|command| BLOCKING.contains(&command));
            self.is_open(request, event)
                && request.node == event.node
                && (waits_itself || (is_pop && self.was_refused(request, key)))
        });
        blocked.map(|(_, request)| *request).collect()
    }

    /// The reply to a request, or the end of its connection.
    fn end_of(&self, request: &Event) -> Option<&'e Event> {
        self.replies.get(&request.id).or_else(|| self.gone.get(&request.id)).copied()
    }

    /// Whether the client was refused this lock when it asked for it last, before this request.
    fn was_refused(&self, request: &Event, key: &Bytes) -> bool {
        let mut earlier = self.events.iter().rev().skip_while(|event| event.id >= request.id);
        let answer = earlier.find(|event| {
            let is_answer = matches!(event.kind, EventKind::Granted | EventKind::Refused);
            is_answer && event.key.as_ref() == Some(key) && is_same_client(event, request)
        });
        answer.is_some_and(|answer| answer.kind == EventKind::Refused)
    }

    /// Whether a request has got or renewed a lock, or was to extend or release one: then it is known what it does.
    fn has_changed_locks(&self, request: &Event) -> bool {
        let tells =
            |event: &Event| matches!(event.kind, EventKind::Granted | EventKind::Missed | EventKind::Renewed);
        self.events.iter().any(|event| event.request == Some(request.id) && tells(event))
    }

    fn end(&mut self) {
        let open = self.held.values().flatten().filter(|held| held.end.is_none());
        let open: Vec<_> = open.map(|held| (held.granted, held.has_had_lease)).collect();
        for (granted, has_had_lease) in open {
            self.check_lease(granted, has_had_lease);
        }
    }
}

/// The requests that have no reply, each with the end of its connection.
fn gone_without_reply<'e>(
    events: &'e [Event],
    replies: &BTreeMap<u64, &'e Event>,
) -> BTreeMap<u64, &'e Event> {
    let (mut open, mut gone) = (BTreeMap::<_, Vec<u64>>::new(), BTreeMap::new());
    for event in events.iter().filter(|event| event.client.is_some()) {
        let connection = (event.node, event.client);
        match event.kind {
            EventKind::Request if !replies.contains_key(&event.id) => {
                open.entry(connection).or_default().push(event.id);
            }
            EventKind::Disconnect => {
                gone.extend(open.remove(&connection).into_iter().flatten().map(|request| (request, event)));
            }
            _ => {}
        }
    }
    gone
}

/// Whether two events are about one client: one connection, or connections with one name.
fn is_same_client(a: &Event, b: &Event) -> bool {
    let is_connection = a.node == b.node && a.client.is_some() && a.client == b.client;
    is_connection || (!a.name.is_empty() && a.name == b.name)
}

/// Whether a request deletes its keys whatever their values are.
fn deletes_blindly(request: &Event) -> bool {
    match request.command.as_deref() {
        Some("DEL" | "GETDEL" | "UNLINK") => true,
        Some("DELEX") => !has_word(request, b"IFEQ") && !has_word(request, b"IFDEQ"),
        _ => false,
    }
}

/// Whether a request is a script that names the value of a lock, so that it may have compared it.
fn may_compare(request: &Event, ended: &Event) -> bool {
    is_script(request) && request.args.iter().skip(1).any(|word| ended.holder.as_ref() == Some(word))
}

fn is_script(request: &Event) -> bool {
    matches!(request.command.as_deref(), Some("EVAL" | "EVALSHA"))
}

fn has_word(request: &Event, word: &[u8]) -> bool {
    request.args.iter().any(|other| other.eq_ignore_ascii_case(word))
}

/// Commands that block until somebody sends something: what lock clients wait with.
const BLOCKING: &[&str] =
    &["BLPOP", "BRPOP", "BLMOVE", "BRPOPLPUSH", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "XREAD"];

#[cfg(test)]
mod tests;
