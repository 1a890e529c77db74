//! What is wrong with the locks of a server, and with its settings: the findings of `redlatch doctor`.
//!
//! Rule    a finding says what was seen, and what to change. What the login hides is no finding: it is named apart.

use std::collections::BTreeMap;

use redlatch_core::commands::table;
use redlatch_core::keyspace::LockValue;
use tokio::time::Instant;

use super::observed::Reading;
use super::sweep::{LOCKS_MAX, Viewer};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Severity {
    Error,
    Warning,
    Note,
}

impl Severity {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something to know, or to change.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) rule: &'static str,
    /// The lock that it is about, and its owner if the value names one.
    pub(super) lock: Option<(Vec<u8>, Option<Vec<u8>>)>,
    pub(super) text: String,
    pub(super) advice: &'static str,
}

/// What was seen of the locks.
#[derive(Debug, Default)]
pub(super) struct Diagnosis {
    locks: BTreeMap<Vec<u8>, Seen>,
    /// Whether a pattern names the locks.
    has_pattern: bool,
    /// Whether there were more locks than [`LOCKS_MAX`] to say something about.
    is_full: bool,
}

/// What was seen of one lock.
#[derive(Debug, Default)]
struct Seen {
    owner: Option<Vec<u8>>,
    /// Whether it is a lock by its value, or else by its name alone.
    is_certain: bool,
    /// How often in a row it was read without a lease.
    endless: u32,
    /// How often its lease has ended without a release.
    expired: u32,
}

/// The facts of INFO and of CONFIG GET, by name.
pub(super) type Facts = BTreeMap<String, String>;

impl Viewer for Diagnosis {
    fn held(&mut self, key: &[u8], before: Option<&Reading>, now: &Reading) {
        if self.locks.len() >= LOCKS_MAX && !self.locks.contains_key(key) {
            self.is_full = true;
            return;
        }
        let seen = self.locks.entry(key.to_vec()).or_default();
        let has_expired =
            before.is_some_and(|before| before.has_expired() && owner(&before.value) != owner(&now.value));
        seen.expired += u32::from(has_expired);
        seen.owner = owner(&now.value);
        seen.is_certain = self.has_pattern || !matches!(now.value, LockValue::String(_));
        seen.endless = if now.ends.is_none() { seen.endless + 1 } else { 0 };
    }

    fn gone(&mut self, key: &[u8], before: &Reading) {
        let Some(seen) = self.locks.get_mut(key) else { return };
        seen.endless = 0;
        seen.expired += u32::from(before.has_expired());
        if seen.expired == 0 {
            self.locks.remove(key);
        }
    }
}

impl Diagnosis {
    /// Nothing was seen yet; `has_pattern`: a pattern names the locks.
    pub(super) fn new(has_pattern: bool) -> Self {
        Self { has_pattern, ..Self::default() }
    }

    /// The findings about single locks.
    pub(super) fn of_locks(&self) -> Vec<Finding> {
        let each = |(key, seen): (&Vec<u8>, &Seen)| {
            let lock = Some((key.clone(), seen.owner.clone()));
            let endless = (seen.endless > 1).then(|| Finding {
                severity: if seen.is_certain { Severity::Error } else { Severity::Warning },
                rule: "no-lease",
                lock: lock.clone(),
                text: match seen.is_certain {
                    true => "it has no lease: if its holder crashes, it stays".to_owned(),
                    false => "it has no lease, and is a lock by its name: a crash of its holder leaves it"
                        .to_owned(),
                },
                advice: "take it with SET key owner NX PX lease",
            });
            let expired = (seen.expired > 0).then(|| Finding {
                severity: Severity::Warning,
                rule: "lease-ended",
                lock,
                text: format!("its lease ended {} times without a release", seen.expired),
                advice: "if its holder did not crash, make the lease longer or renew it at a third",
            });
            endless.into_iter().chain(expired)
        };
        let full = self.is_full.then(|| Finding {
            severity: Severity::Note,
            rule: "left-out",
            lock: None,
            text: format!("there were more than {LOCKS_MAX} locks: some have no findings"),
            advice: "name fewer with --match PATTERN",
        });
        self.locks.iter().flat_map(each).chain(full).collect()
    }
}

/// The finding about an observation that was too short for the others.
pub(super) fn of_rounds(rounds: u64) -> Option<Finding> {
    (rounds < 2).then(|| Finding {
        severity: if rounds == 0 { Severity::Error } else { Severity::Warning },
        rule: "too-short",
        lock: None,
        text: format!("all keys were read {rounds} times, and twice are needed to see everything"),
        advice: "use a longer --for, a higher --rate or --match PATTERN",
    })
}

/// The findings about the server and its settings.
pub(super) fn of_server(facts: &Facts) -> Vec<Finding> {
    let fact = |name: &str| facts.get(name).map_or("", String::as_str);
    let mut found = Vec::new();
    let mut add = |severity, rule, text: String, advice| {
        found.push(Finding { severity, rule, lock: None, text, advice });
    };
    let (policy, limit) = (fact("maxmemory_policy"), fact("maxmemory"));
    if !["", "0"].contains(&limit) && !["", "noeviction"].contains(&policy) {
        let text = format!("maxmemory-policy is {policy}: a full server evicts locks that are held");
        add(Severity::Error, "eviction", text, "set maxmemory-policy noeviction, or keep locks elsewhere");
    }
    if fact("role") == "slave" {
        let text = "this is a replica: it shows locks late, and grants none".to_owned();
        add(Severity::Error, "replica", text, "take and read locks at the master");
    }
    if !["", "0"].contains(&fact("connected_slaves")) {
        let text = format!("{} replicas: a failover forgets the newest locks", fact("connected_slaves"));
        add(Severity::Note, "failover", text, "check a fencing token where the work is done");
    }
    let has_journal = fact("aof_enabled");
    match (has_journal, fact("appendfsync"), fact("save")) {
        ("0", _, "") if facts.contains_key("save") => {
            let text = "nothing is saved: a crash forgets all locks, and others get them at once".to_owned();
            add(
                Severity::Warning,
                "crash",
                text,
                "set appendonly yes, or delay the start by the longest lease",
            );
        }
        ("0", ..) => {
            let text = "there is no append-only file: a crash forgets the locks since the last snapshot";
            add(Severity::Warning, "crash", text.to_owned(), "set appendonly yes and appendfsync always");
        }
        ("1", "everysec" | "no", _) => {
            let text = format!("appendfsync is {}: a crash forgets the newest locks", fact("appendfsync"));
            add(Severity::Warning, "crash", text, "set appendfsync always, or delay the start");
        }
        _ => {}
    }
    found
}

/// What has changed in `commandstats` between the start and the end of the observation.
pub(super) fn of_commands(before: &Facts, after: &Facts) -> Vec<Finding> {
    let calls = |facts: &Facts, name: &str| -> u64 {
        let calls = facts.get(name).and_then(|stats| stats.strip_prefix("calls="));
        calls.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let more = |name: &str| calls(after, name).saturating_sub(calls(before, name));
    let setnx = more("cmdstat_setnx");
    let pairs = (setnx > 0).then(|| Finding {
        severity: Severity::Warning,
        rule: "setnx",
        lock: None,
        text: format!(
            "SETNX was called {setnx} times: it sets no lease, and a crash before EXPIRE leaves none"
        ),
        advice: "send SET key owner NX PX lease",
    });
    let lacking = after.keys().filter_map(|name| name.strip_prefix("cmdstat_"));
    let lacking: Vec<&str> = lacking.filter(|name| !is_known(name)).collect();
    let lacks = (!lacking.is_empty()).then(|| Finding {
        severity: Severity::Note,
        rule: "commands",
        lock: None,
        text: format!("redlatch lacks commands that were called here: {}", lacking.join(" ")),
        advice: "see whether the clients of locks send them, before they move",
    });
    pairs.into_iter().chain(lacks).collect()
}

/// Whether redlatch has a command, as `commandstats` names it: `client|list`.
fn is_known(name: &str) -> bool {
    let (command, subcommand) = name.split_once('|').map_or((name, None), |(a, b)| (a, Some(b)));
    table()
        .find(command.as_bytes())
        .is_some_and(|command| subcommand.is_none_or(|word| command.subcommand(word.as_bytes()).is_some()))
}

/// The steps of the server's clock.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// When it was read last, and how many microseconds it was ahead then, at least and at most.
    last: Option<(Instant, (i64, i64))>,
    /// How often it went forward or back, and the largest of these steps, in microseconds.
    steps: BTreeMap<&'static str, (u64, i64)>,
}

impl Clock {
    /// The clock was read, and was so many microseconds ahead, at least and at most.
    pub(super) fn note(&mut self, at: Instant, ahead: (i64, i64)) {
        let Some((earlier, before)) = self.last.replace((at, ahead)) else { return };
        // Clocks may drift by a thousandth.
        let slack = 1_000 + i64::try_from((at - earlier).as_micros() / 1_000).unwrap_or(i64::MAX);
        let ways =
            [("forward", ahead.0.saturating_sub(before.1)), ("back", before.0.saturating_sub(ahead.1))];
        for (way, micros) in ways.into_iter().filter(|(_, micros)| *micros > slack) {
            let (count, max) = self.steps.entry(way).or_default();
            (*count, *max) = (*count + 1, micros.max(*max));
        }
    }

    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> {
        self.steps.iter().map(|(way, (count, micros))| Finding {
            severity: Severity::Error,
            rule: "clock",
            lock: None,
            text: format!(
                "the clock of the server went {way} {count} times, by up to {} ms: leases end by it",
                micros / 1_000
            ),
            advice: "let the clock be slewed and never stepped",
        })
    }
}

/// The owner, if the value names one.
fn owner(value: &LockValue) -> Option<Vec<u8>> {
    match value {
        LockValue::String(owner) => Some(owner.clone()),
        LockValue::Hash(fields) => match &fields[..] {
            [(owner, _)] => Some(owner.clone()),
            _ => None,
        },
        LockValue::SortedSet(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn rules(found: &[Finding]) -> Vec<&'static str> {
        found.iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn each_setting_that_endangers_locks_is_found_and_a_sound_server_has_none() {
        for (pairs, expected) in [
            (&[("maxmemory", "100"), ("maxmemory_policy", "volatile-lru")][..], &["eviction"][..]),
            (&[("maxmemory", "100"), ("maxmemory_policy", "noeviction")], &[]),
            (&[("maxmemory", "0"), ("maxmemory_policy", "allkeys-lru")], &[]),
            (&[("role", "slave")], &["replica"]),
            (&[("role", "master"), ("connected_slaves", "2")], &["failover"]),
            (&[("aof_enabled", "0"), ("save", "")], &["crash"]),
            (&[("aof_enabled", "0")], &["crash"]),
            (&[("aof_enabled", "1"), ("appendfsync", "everysec")], &["crash"]),
            (&[("aof_enabled", "1"), ("appendfsync", "always"), ("connected_slaves", "0")], &[]),
            (&[], &[]),
        ] {
            assert_eq!(rules(&of_server(&facts(pairs))), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_lease_that_ends_without_a_release_and_a_lock_without_a_lease_are_found() {
        let now = Instant::now();
        let reading = |ends: Option<Instant>| Reading {
            value: LockValue::String(b"me".to_vec()),
            at: now,
            ends: ends.map(|end| (end, end)),
        };
        let mut seen = Diagnosis::new(true);
        let (ended, later) = (reading(Some(now)), reading(now.checked_add(Duration::from_secs(3_600))));
        seen.held(b"lock:expired", None, &ended);
        seen.gone(b"lock:expired", &ended);
        seen.held(b"lock:released", None, &later);
        seen.gone(b"lock:released", &later);
        let endless = reading(None);
        seen.held(b"lock:fresh", None, &endless);
        seen.held(b"lock:stays", None, &endless);
        seen.held(b"lock:stays", Some(&endless), &endless);
        let found = seen.of_locks();
        assert_eq!(rules(&found), ["lease-ended", "no-lease"]);
        assert_eq!(found[1].severity, Severity::Error);
        assert!(!seen.locks.contains_key(&b"lock:released"[..]), "what has no finding is not kept");
        assert_eq!(found[1].lock, Some((b"lock:stays".to_vec(), Some(b"me".to_vec()))));
    }

    #[test]
    fn a_lock_by_its_name_alone_is_no_error() {
        let endless = Reading { value: LockValue::String(b"me".to_vec()), at: Instant::now(), ends: None };
        let mut seen = Diagnosis::new(false);
        seen.held(b"lock:a", None, &endless);
        seen.held(b"lock:a", Some(&endless), &endless);
        let [found] = &seen.of_locks()[..] else { panic!() };
        assert!(found.severity == Severity::Warning && found.text.contains("by its name"), "{found:?}");
    }

    #[test]
    fn more_locks_than_are_kept_are_a_note() {
        let mut seen = Diagnosis::new(true);
        let held = Reading { value: LockValue::String(b"me".to_vec()), at: Instant::now(), ends: None };
        (0..LOCKS_MAX).for_each(|number| seen.held(format!("{number}").as_bytes(), None, &held));
        assert!(seen.of_locks().is_empty());
        seen.held(b"one more", None, &held);
        assert_eq!(rules(&seen.of_locks()), ["left-out"]);
    }

    #[test]
    fn setnx_counts_from_the_start_of_the_observation_and_commands_that_redlatch_lacks_are_named() {
        let before = facts(&[("cmdstat_setnx", "calls=7,usec=1"), ("cmdstat_get", "calls=1,usec=1")]);
        assert!(of_commands(&before, &before).is_empty());
        let after = facts(&[("cmdstat_setnx", "calls=9,usec=1"), ("cmdstat_geoadd", "calls=1,usec=1")]);
        let found = of_commands(&before, &after);
        assert_eq!(rules(&found), ["setnx", "commands"]);
        assert!(found[0].text.contains(" 2 times") && found[1].text.ends_with(": geoadd"), "{found:?}");
    }

    #[test]
    fn a_step_of_the_clock_is_found_and_a_slow_reply_is_none() {
        let start = Instant::now();
        let steps = |readings: &[(i64, i64)]| {
            let mut clock = Clock::default();
            for (secs, ahead) in (0..).zip(readings) {
                clock.note(start + Duration::from_secs(secs), *ahead);
            }
            clock.findings().map(|finding| finding.text).collect::<Vec<_>>()
        };
        assert!(steps(&[(0, 900), (100, 90_000), (500, 1_500)]).is_empty());
        let [forth] = &steps(&[(0, 900), (3_600_900, 3_700_000)])[..] else { panic!() };
        assert!(forth.contains("forward 1 times, by up to 3600 ms"), "{forth}");
        let readings: Vec<_> =
            (0..1_000).map(|reading| (reading % 2 * 5_000_000, reading % 2 * 5_000_000)).collect();
        let [back, forth] = &steps(&readings)[..] else { panic!("each step is kept") };
        assert!(back.contains("back 499 times, by up to 5000 ms"), "{back}");
        assert!(forth.contains("forward 500 times"), "{forth}");
    }
}
