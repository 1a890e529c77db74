//! What each view of the server says of the locks of a cell, and what the model says that it must say.
//!
//! Owns    one spelling of a hold and of an end, in which views are compared.

use redlatch_core::commands::{Value, families};

use super::START_UNIX_MS;
use super::model::{End, Hold, Model, Place, Reason, Role, Slot};
use super::world::World;
use crate::support::reply::Reply;
use crate::support::words::info_field;

/// One view: what it is, what it must say, and what it says.
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) expected: String,
    pub(crate) seen: String,
    pub(crate) agrees: bool,
}

/// All views of a cell. `is_first`: also those that need not be seen again later.
pub(crate) fn views(world: &mut World, model: &Model, is_first: bool) -> Vec<View> {
    let mut all = Views(Vec::new());
    for at in &model.watched {
        all.of_place(world, model, at);
    }
    let databases: Vec<u16> = {
        let mut databases: Vec<u16> = model.watched.iter().map(|(database, _)| *database).collect();
        databases.dedup();
        databases
    };
    for database in databases {
        all.list(world, model, database);
    }
    all.messages(world, model);
    if model.waits_for.is_some() {
        all.graph(world, model);
    }
    all.counters(world, model);
    if is_first {
        all.rules(world, model);
        all.replay(world.replayed(), model, "replayed");
    }
    all.0
}

/// What a server says whose state comes from a copy of the keyspace.
pub(crate) fn copied(world: &World, model: &Model) -> Vec<View> {
    let mut all = Views(Vec::new());
    all.replay(world.copied(), model, "copied");
    all.0
}

struct Views(Vec<View>);

impl Views {
    fn push(&mut self, name: impl Into<String>, expected: impl Into<String>, seen: impl Into<String>) {
        let (name, expected, seen) = (name.into(), expected.into(), seen.into());
        let agrees = expected == seen;
        self.0.push(View { name, expected, seen, agrees });
    }

    fn of_place(&mut self, world: &mut World, model: &Model, at: &Place) {
        let (database, key) = (at.0, at.1.as_str());
        let named = |view: &str| name_at(view, at);
        let slot = model.keys.get(at);
        self.push(
            named("EXISTS"),
            u8::from(slot.is_some()).to_string(),
            plain(&world.view(database, &["EXISTS", key])),
        );
        self.push(named("PTTL"), pttl(model, slot), plain(&world.view(database, &["PTTL", key])));
        let reply = world.view(database, &["LOCK.WHO", key]);
        let seen = lock(world, &reply);
        self.push(named("WHO"), who(model, at, true), seen);
        let waits = model.waits_for.as_ref() == Some(at);
        let reply = world.view(database, &["LOCK.WAITERS", key]);
        let waiters =
            items(&reply).iter().map(|item| format!("{} {}", text(item, "owner"), text(item, "how")));
        let seen: Vec<String> = waiters.collect();
        let queued = waits.then(|| "next queued".to_owned());
        let polling = model.polled(at).map(|_| "- polling".to_owned());
        let expected: Vec<String> = queued.into_iter().chain(polling).collect();
        self.push(named("WAITERS"), expected.join(", "), seen.join(", "));
        let owners: Vec<&str> = match slot {
            Some(Slot::Lock { holds, .. }) => holds.iter().map(|hold| hold.owner.as_str()).collect(),
            _ => vec!["a"],
        };
        for owner in owners {
            let held = slot.map_or(&[][..], Slot::holds).iter().find(|hold| hold.owner == owner);
            let expected = held.map_or("-".to_owned(), |hold| hold.token.to_string());
            self.push(named("TOKEN"), expected, plain(&world.view(database, &["LOCK.TOKEN", key, owner])));
        }
        self.history(world, model, at);
        self.explain(world, model, at);
        if !model.is_restarted {
            self.test_history(world, model, at);
        }
    }

    fn list(&mut self, world: &mut World, model: &Model, database: u16) {
        let reply = world.view(database, &["LOCK.LIST", "COUNT", "1000"]);
        let Reply::List(_, step) = &reply else { panic!("{}", reply.spell()) };
        let mut seen: Vec<String> = items(&step[1])
            .iter()
            .map(|item| format!("{}: {}", text(item, "key"), lock(world, item)))
            .collect();
        seen.sort();
        let here = model.keys.keys().filter(|(other, _)| *other == database);
        // A value that is no lock is listed as long as a call waits for it.
        let is_listed = |at: &&Place| {
            matches!(model.keys[*at], Slot::Lock { .. }) || model.waits_for.as_ref() == Some(*at)
        };
        let locks = here.filter(is_listed).map(|at| format!("{}: {}", at.1, who(model, at, true)));
        let expected: Vec<String> = locks.collect();
        self.push(format!("LIST{}", suffix(database)), expected.join("; "), seen.join("; "));
    }

    fn history(&mut self, world: &mut World, model: &Model, at: &Place) {
        let reply = world.view(at.0, &["LOCK.HISTORY", "MATCH", &at.1, "COUNT", "100"]);
        let past = items(&reply).iter().map(|item| {
            let client = field(item, "client-id").map_or("?", |id| match id {
                Reply::Int(id) => world.client(*id),
                _ => "?",
            });
            let since = integer(item, "since") - START_UNIX_MS as i64;
            let [owner, token, held, lease, renewals, reason] =
                ["owner", "token", "held", "lease", "renewals", "reason"].map(|name| text(item, name));
            let why = if item.spell().contains(BREAK_TEXT) { " for its reason" } else { "" };
            format!("{owner}#{token} {client} since {since} held {held} lease {lease} renewed {renewals} {reason}{why}")
        });
        let seen: Vec<String> = past.collect();
        let mut ends: Vec<&End> = model.ends.iter().filter(|end| end.place == *at).collect();
        ends.sort_by_key(|end| std::cmp::Reverse((end.at, end.hold.token)));
        let expected: Vec<String> = ends
            .iter()
            .map(|end| {
                let Hold { owner, token, by, since, lease, renewals, .. } = &end.hold;
                let why = if end.text.is_some() { " for its reason" } else { "" };
                format!(
                    "{owner}#{token} {} since {since} held {} lease {} renewed {renewals} {}{why}",
                    by.letter(),
                    end.held_ms(),
                    or_dash(*lease),
                    end.reason.name(),
                )
            })
            .collect();
        self.push(name_at("HISTORY", at), expected.join("; "), seen.join("; "));
    }

    /// Sentences are compared by the facts in them.
    fn explain(&mut self, world: &mut World, model: &Model, at: &Place) {
        if matches!(model.keys.get(at), Some(Slot::Plain { .. })) {
            // The wording for what is no lock is another question.
            return;
        }
        let reply = world.view(at.0, &["LOCK.EXPLAIN", &at.1]);
        let seen: Vec<String> = items(&reply).iter().map(plain).collect();
        let mut expected: Vec<Vec<String>> = Vec::new();
        let waits = (model.waits_for.as_ref() == Some(at)).then(|| "1 in line".to_owned());
        let line = waits.is_some().then(|| vec!["first in line: next".to_owned()]);
        match model.keys.get(at) {
            Some(Slot::Lock { kind, limit, holds, .. }) => {
                expected.extend(holds.iter().map(|hold| held_facts(world, model, (kind, *limit), hold)));
            }
            _ => expected.push(vec!["free: nobody holds it".to_owned()]),
        }
        expected[0].extend(waits);
        expected[0].extend(model.polled(at).map(|_| "1 polling".to_owned()));
        expected.extend(line);
        let mut ends: Vec<&End> = model.ends.iter().filter(|end| end.place == *at).collect();
        ends.sort_by_key(|end| std::cmp::Reverse((end.at, end.hold.token)));
        expected.extend(ends.iter().map(|end| end_facts(world, model, end)));
        let agrees = seen.len() == expected.len()
            && seen
                .iter()
                .zip(&expected)
                .all(|(said, facts)| facts.iter().all(|fact| said.contains(fact.as_str())));
        let expected: Vec<String> = expected.iter().map(|facts| facts.join(" .. ")).collect();
        let (expected, seen) = (expected.join(" / "), seen.join(" / "));
        self.0.push(View { name: name_at("EXPLAIN", at), expected, seen, agrees });
    }

    /// Queued calls, and the owners that they wait for.
    fn graph(&mut self, world: &mut World, model: &Model) {
        let Some(at) = &model.waits_for else { return };
        let reply = world.view(at.0, &["LOCK.GRAPH"]);
        let edges = items(&reply).iter().map(|edge| {
            let held_by = field(edge, "held-by").map_or(&[][..], items).iter().map(plain);
            format!(
                "{} waits for {} of {}",
                text(edge, "owner"),
                text(edge, "waits-for"),
                sorted(held_by).join("+")
            )
        });
        let seen: Vec<String> = edges.collect();
        let owners = match model.keys.get(at) {
            Some(Slot::Plain { value: Some(value), .. }) => vec![value.clone()],
            // What is said of a value that is no lock is open.
            Some(Slot::Plain { value: None, .. }) => return,
            Some(Slot::Lock { holds, .. }) => holds.iter().map(|hold| hold.owner.clone()).collect(),
            _ => Vec::new(),
        };
        let expected = format!("next waits for {} of {}", at.1, owners.join("+"));
        self.push("GRAPH", expected, seen.join(", "));
    }

    /// Whether somebody has ended the lock of another client. In live traffic a script or transaction may have compared the
    /// value; in a test a flush is meant.
    fn rules(&mut self, world: &mut World, model: &Model) {
        if !model.is_linted {
            return;
        }
        let is_foreign = |end: &&End| end.by.is_some_and(|by| by != end.hold.by);
        for (view, command) in [("LINT", "LOCK.LINT"), ("CHECK", "TEST.CHECK")] {
            let is_live = view == "LINT";
            let keys = model.ends.iter().filter(is_foreign).filter_map(|end| match end.reason {
                Reason::Deleted if !is_live || !end.is_nested => Some(end.place.1.clone()),
                // All keys.
                Reason::Flushed if is_live => Some("*".to_owned()),
                _ => None,
            });
            let mut expected = sorted(keys);
            expected.dedup();
            let reply = world.view(0, &[command]);
            let found = items(&reply).iter().filter(|finding| text(finding, "rule") == "foreign-delete");
            let mut seen = sorted(found.map(|finding| text(finding, "key")));
            seen.dedup();
            self.push(view, expected.join(", "), seen.join(", "));
        }
    }

    fn test_history(&mut self, world: &mut World, model: &Model, at: &Place) {
        let reply = world.events(&at.1);
        let kinds = ["granted", "renewed", "released", "expired"];
        let of_locks = items(&reply).iter().filter(|event| {
            kinds.contains(&text(event, "kind").as_str())
                && field(event, "token").is_some_and(|token| *token != Reply::Null)
        });
        let seen: Vec<String> = of_locks
            .map(|event| ["kind", "token", "holder"].map(|name| text(event, name)).join(" "))
            .collect();
        let here = model.events.iter().filter(|(place, _)| place.1 == at.1);
        let expected: Vec<String> = here.map(|(_, event)| event.clone()).collect();
        // A key has one history, whatever its database is.
        if at.0 == 0 {
            self.push(name_at("TEST.HISTORY", at), expected.join(", "), seen.join(", "));
        }
    }

    fn messages(&mut self, world: &World, model: &Model) {
        let heard = |role: Role| world.heard.get(&role).map_or(&[][..], Vec::as_slice);
        let spelled = |message: &Reply| match message {
            Reply::List(_, words) => {
                let why = if message.spell().contains(BREAK_TEXT) { " for its reason" } else { "" };
                let words: Vec<String> = words.iter().take(4).map(plain).collect();
                format!("{}{why}", words.join(" "))
            }
            other => other.spell(),
        };
        for role in [Role::Holder, Role::Second, Role::Other, Role::Waiter] {
            let told = model
                .ends
                .iter()
                .filter(|end| end.is_told && end.hold.by == role && !model.closed.contains(&role));
            let expected: Vec<String> = sorted(told.map(|end| {
                let why = if end.text.is_some() { " for its reason" } else { "" };
                format!("lock-lost {} {} {}{why}", end.place.1, end.hold.token, end.reason.name())
            }));
            let seen = sorted(heard(role).iter().map(spelled));
            self.push(format!("push to {}", role.letter()), expected.join(", "), seen.join(", "));
        }
        let told = model.ends.iter().filter(|end| end.is_told);
        let expected = sorted(told.map(|end| {
            let why = end.text.map(|text| format!(" {text}")).unwrap_or_default();
            format!("__lock__:{} lost {} {}{why}", end.place.1, end.hold.token, end.reason.name())
        }));
        let seen = sorted(heard(Role::Listener).iter().map(|message| match message {
            Reply::List(_, words) => format!("{} {}", plain(&words[2]), plain(&words[3])),
            other => other.spell(),
        }));
        self.push("channel", expected.join(", "), seen.join(", "));
    }

    fn counters(&mut self, world: &mut World, model: &Model) {
        let locks = || {
            model.keys.values().filter_map(|slot| match slot {
                Slot::Lock { kind, .. } => Some(*kind),
                Slot::Plain { .. } => None,
            })
        };
        let ends_of = |reason| model.ends.iter().filter(|end| end.reason == reason).count();
        let (held, waiting) = (locks().count(), usize::from(model.waits_for.is_some()));
        let (expired, deleted) = (ends_of(Reason::Expired), ends_of(Reason::Deleted));
        let info = plain(&world.view(0, &["INFO", "locks"]));
        let [granted, seen_held, waiters, seen_expired] =
            ["locks_granted", "locks_held", "lock_waiters", "locks_expired"]
                .map(|name| info_field(&info, name));
        self.push(
            "INFO",
            format!("granted {} held {held} waiting {waiting} expired {expired}", model.tokens),
            format!("granted {granted} held {seen_held} waiting {waiters} expired {seen_expired}"),
        );

        let families = families(world.shared());
        let samples = |name: &str| {
            let found = families.iter().find(|family| family.name == name);
            found.map_or(&[][..], |family| &family.samples[..]).iter()
        };
        let by_kind = |name: &str| -> Vec<String> {
            sorted(samples(name).filter_map(|sample| match (&sample.label, sample.value) {
                (Some((_, kind)), Value::Integer(count)) if count > 0 => Some(format!("{kind}:{count}")),
                _ => None,
            }))
        };
        let one = |name: &str| -> String {
            samples(name).next().map_or("?".to_owned(), |sample| match sample.value {
                Value::Integer(count) => count.to_string(),
                Value::Number(number) => number.to_string(),
                Value::Durations(all) => format!("{} sum {}", all.count(), all.total_ms()),
            })
        };
        let mut held: Vec<(&str, u64)> = Vec::new();
        for kind in locks() {
            match held.iter_mut().find(|(name, _)| *name == kind) {
                Some((_, count)) => *count += 1,
                None => held.push((kind, 1)),
            }
        }
        let counted = |counts: &[(&str, u64)]| {
            sorted(counts.iter().map(|(kind, count)| format!("{kind}:{count}"))).join(" ")
        };
        let granted: Vec<(&str, u64)> = model.granted.iter().map(|(kind, count)| (*kind, *count)).collect();
        self.push("metrics held", counted(&held), by_kind("locks_held").join(" "));
        self.push("metrics acquired", counted(&granted), by_kind("lock_acquired").join(" "));
        self.push("metrics expired", expired.to_string(), one("locks_expired"));
        self.push("metrics deleted by others", deleted.to_string(), one("locks_deleted_by_others"));
        let sum: u64 = model.ends.iter().map(End::held_ms).sum();
        self.push("metrics hold", format!("{} sum {sum}", model.ends.len()), one("lock_hold_seconds"));
    }

    /// A server whose state comes from the journal says the same.
    fn replay(&mut self, mut replayed: World, model: &Model, name: &str) {
        for at in &model.watched {
            let (database, key) = (at.0, at.1.as_str());
            let slot = model.keys.get(at);
            let exists = plain(&replayed.view(database, &["EXISTS", key]));
            let left = plain(&replayed.view(database, &["PTTL", key]));
            let expected = format!("exists {} left {}", u8::from(slot.is_some()), pttl(model, slot));
            self.push(name_at(&format!("{name} key"), at), expected, format!("exists {exists} left {left}"));
            let reply = replayed.view(database, &["LOCK.WHO", key]);
            let closed = Role::ALL.into_iter().chain([Role::Nobody]).collect();
            let nobody = Model { waits_for: None, closed, ..model.clone() };
            let expected = who(&nobody, at, false);
            self.push(name_at(&format!("{name} WHO"), at), expected, lock(&replayed, &reply));
        }
    }
}

/// What LOCK.WHO must say.
fn who(model: &Model, at: &Place, with_queue: bool) -> String {
    let waits = with_queue && model.waits_for.as_ref() == Some(at);
    let polls = model.polled(at).filter(|_| with_queue);
    let waiting = usize::from(waits) + usize::from(polls.is_some());
    let polls = polls.map_or(String::new(), |polls| format!(", {polls} polls"));
    match model.keys.get(at) {
        Some(Slot::Lock { kind, limit, holds, .. }) => {
            let limit = limit.map_or(String::new(), |limit| format!(" of {limit}"));
            let holders: Vec<String> = holds.iter().map(|hold| holder(model, hold)).collect();
            format!("{kind}{limit} [{}] {waiting} waiting{polls}", holders.join(", "))
        }
        // A value that is no lock is held by an unknown owner.
        Some(Slot::Plain { value, until }) => {
            let (value, left) =
                (value.as_deref().unwrap_or("-"), or_dash(until.map(|until| until - model.now)));
            let holder = format!("{value}#- x1 gone since - held - lease - left {left} renewed 0");
            format!("none [{holder}] {waiting} waiting{polls}")
        }
        None => "nil".to_owned(),
    }
}

fn holder(model: &Model, hold: &Hold) -> String {
    let Hold { owner, token, by, since, lease, until, renewals, permits, delay, meta, .. } = hold;
    let client = if model.closed.contains(by) { "gone" } else { by.letter() };
    let (held, left) = (model.now - since, until.map(|until| until - model.now));
    let session = if delay.is_some() { " session" } else { "" };
    let meta = meta.map_or(String::new(), |meta| format!(" {meta}"));
    format!(
        "{owner}#{token} x{permits} {client} since {since} held {held} lease {} left {} renewed {renewals}{session}{meta}",
        or_dash(*lease),
        or_dash(left),
    )
}

/// What a map of LOCK.WHO or LOCK.LIST says.
fn lock(world: &World, reply: &Reply) -> String {
    if matches!(reply, Reply::Null) {
        return "nil".to_owned();
    }
    let Some(holders) = field(reply, "holders") else { return reply.spell() };
    let holders: Vec<String> = items(holders)
        .iter()
        .map(|hold| {
            let client = match field(hold, "client") {
                Some(client @ Reply::Map(_)) => world.client(integer(client, "id")),
                _ => "gone",
            };
            let since = match field(hold, "since") {
                Some(Reply::Int(since)) => (since - START_UNIX_MS as i64).to_string(),
                _ => "-".to_owned(),
            };
            let [owner, token, permits, held, lease, left, renewals, session] =
                ["owner", "token", "permits", "held", "lease", "left", "renewals", "session"]
                    .map(|name| text(hold, name));
            let session = if session == "1" { " session" } else { "" };
            let pairs = match field(hold, "meta") {
                Some(Reply::Map(pairs)) => &pairs[..],
                _ => &[],
            };
            let meta: String =
                pairs.iter().map(|(name, value)| format!(" {} {}", plain(name), plain(value))).collect();
            format!(
                "{owner}#{token} x{permits} {client} since {since} held {held} lease {lease} left {left} \
                 renewed {renewals}{session}{meta}"
            )
        })
        .collect();
    let limit = match text(reply, "limit").as_str() {
        "-" => String::new(),
        limit => format!(" of {limit}"),
    };
    let polls = match text(reply, "polls").as_str() {
        "0" => String::new(),
        polls => format!(", {polls} polls"),
    };
    let (kind, waiters) = (text(reply, "kind"), text(reply, "waiters"));
    format!("{kind}{limit} [{}] {waiters} waiting{polls}", holders.join(", "))
}

fn held_facts(world: &World, model: &Model, (kind, limit): (&str, Option<u64>), hold: &Hold) -> Vec<String> {
    let is_gone = model.closed.contains(&hold.by);
    let client = match hold.by {
        Role::Nobody => "an unknown client".to_owned(),
        _ if is_gone => "gone".to_owned(),
        by => world.address(by),
    };
    let mut facts = vec![format!("held by {} (", hold.owner), client];
    facts.push(format!("since {}", &clock(hold.since)[..8]));
    match kind {
        "permits" => facts.push(format!("{} of {} permits", hold.permits, or_dash(limit))),
        "reentrant" => facts.push(format!("taken {}", times(hold.permits))),
        "shared" => facts.push("shared".to_owned()),
        _ => {}
    }
    match (hold.until, hold.delay) {
        (Some(until), None) => {
            let left = duration(until - model.now);
            facts.push(format!("lease ends in {left}, renewed {}", times(hold.renewals)));
        }
        (Some(until), Some(_)) => facts.push(format!("ends in {}", duration(until - model.now))),
        (None, Some(_)) => facts.push("until its connection ends".to_owned()),
        (None, None) => facts.push("without a lease".to_owned()),
    }
    facts
}

fn end_facts(world: &World, model: &Model, end: &End) -> Vec<String> {
    let at = clock(end.at);
    let by = |end: &End| match end.by {
        Some(by) if !model.closed.contains(&by) => world.address(by),
        _ => "gone".to_owned(),
    };
    let owner = end.hold.owner.clone();
    let mut facts = match end.reason {
        Reason::Released => {
            let held = duration(end.held_ms());
            return vec![format!("released by {owner} at {at}, after {held}")];
        }
        Reason::Expired => {
            let lease = end.hold.lease.map_or(String::new(), duration);
            vec![format!("lost: the lease of {lease}"), owner, format!("ended at {at}")]
        }
        Reason::Session => vec!["lost: the session".to_owned(), owner, format!("ended at {at}")],
        Reason::Transferred => {
            vec![format!("transferred: the lock of {owner} ("), format!("at {at} by {}", by(end))]
        }
        Reason::Broken => {
            vec!["lost: ".to_owned(), owner, format!("broken at {at} by default from {}", by(end))]
        }
        Reason::Deleted => {
            vec!["lost: ".to_owned(), owner, format!("deleted or overwritten at {at} by {}", by(end))]
        }
        Reason::Flushed => vec!["lost: ".to_owned(), owner, format!("flushed at {at} by {}", by(end))],
    };
    facts.extend(end.text.map(str::to_owned));
    facts
}

/// The time of day of a moment of a cell, with milliseconds.
fn clock(at: u64) -> String {
    let millis = START_UNIX_MS + at;
    let seconds = millis / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60, millis % 1_000)
}

/// Milliseconds in the words of LOCK.EXPLAIN.
fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0 => format!("{millis} ms"),
        1..60 if millis % 1_000 < 100 => format!("{seconds} s"),
        1..60 => format!("{seconds}.{} s", millis % 1_000 / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

fn pttl(model: &Model, slot: Option<&Slot>) -> String {
    match slot {
        None => "-2".to_owned(),
        Some(slot) => slot.until().map_or("-1".to_owned(), |until| (until - model.now).to_string()),
    }
}

fn name_at(view: &str, at: &Place) -> String {
    let key = if at.1 == "k" { String::new() } else { format!(" {}", at.1) };
    format!("{view}{key}{}", suffix(at.0))
}

fn suffix(database: u16) -> String {
    if database == 0 { String::new() } else { format!(" in database {database}") }
}

fn sorted(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = all.collect();
    all.sort();
    all
}

fn or_dash(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

pub(crate) fn field<'r>(map: &'r Reply, name: &str) -> Option<&'r Reply> {
    let Reply::Map(pairs) = map else { return None };
    pairs.iter().find(|(key, _)| *key == Reply::Bulk(name.as_bytes().to_vec())).map(|(_, value)| value)
}

pub(crate) fn integer(map: &Reply, name: &str) -> i64 {
    match field(map, name) {
        Some(Reply::Int(number)) => *number,
        other => panic!("{name}: {other:?}"),
    }
}

/// A field as text; `-`: it is null, or not there.
pub(crate) fn text(map: &Reply, name: &str) -> String {
    field(map, name).map_or("-".to_owned(), plain)
}

pub(crate) fn plain(reply: &Reply) -> String {
    match reply {
        Reply::Int(number) => number.to_string(),
        Reply::Null | Reply::NilBulk | Reply::NilArray => "-".to_owned(),
        Reply::Bulk(text) | Reply::Simple(text) | Reply::Verbatim(_, text) => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => other.spell(),
    }
}

pub(crate) fn items(reply: &Reply) -> &[Reply] {
    match reply {
        Reply::List(_, items) => items,
        _ => &[],
    }
}

/// Newest late request of the holder `a` of a key, in milliseconds after the end of its lock.
pub(crate) fn late(world: &mut World, at: &Place, token: u64) -> String {
    let reply = world.view(at.0, &["LOCK.HISTORY", "MATCH", &at.1, "COUNT", "100"]);
    let past = items(&reply).iter().find(|item| text(item, "token") == token.to_string());
    past.map_or("no such end".to_owned(), |item| text(item, "late"))
}

/// The reason in the LOCK.BREAK of a way.
pub(crate) const BREAK_TEXT: &str = "deploy-7";
