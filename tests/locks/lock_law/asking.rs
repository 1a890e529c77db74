//! One answer about one request: every way of asking for a lock, everything that keeps it from being granted, every view.
//!
//! Belongs here  requests that change no lock, and the ends of waits.
//! Rule          a way of asking and an obstacle are lines that clients send, as in `table`.
//! Time          stands still; a line of digits moves it.

use redlatch_core::commands::{Value, families};

use super::model::Role;
use super::table::KINDS;
use super::views::{field, integer, items, plain, text};
use super::world::World;
use crate::support::reply::Reply;
use crate::support::words::info_field;

/// Takes the lock as redlock's clients do, by a script that nobody knows.
const ACQUIRE: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 60000) then return 1 end return 0";

/// What keeps a request from its lock `k`.
struct Obstacle {
    name: &'static str,
    makes: &'static [&'static str],
    /// The lock is free, and a request waits for it. A script sees no queue.
    is_awaited: bool,
}

const OBSTACLES: &[Obstacle] = &[
    Obstacle { name: "a lock by SET NX", makes: &["h: SET k a NX PX 600000"], is_awaited: false },
    Obstacle { name: "an exclusive lock", makes: &["h: LOCK.ACQUIRE k a LEASE 600000"], is_awaited: false },
    Obstacle {
        name: "a shared lock",
        makes: &["h: LOCK.ACQUIRE k a LEASE 600000 SHARED"],
        is_awaited: false,
    },
    Obstacle { name: "a lock of Redisson", makes: &["h: $REDISSON-LOCK"], is_awaited: false },
    Obstacle { name: "a string", makes: &["h: SET k a"], is_awaited: false },
    Obstacle {
        name: "a request for it and another lock",
        makes: &[
            "h: LOCK.ACQUIRE held a LEASE 600000",
            "n: LOCK.MACQUIRE 2 held k next LEASE 600000 WAIT 600000",
        ],
        is_awaited: true,
    },
    Obstacle {
        name: "a request of a higher priority",
        makes: &[
            "h: LOCK.ACQUIRE held a LEASE 600000",
            "n: LOCK.MACQUIRE 2 held k next LEASE 600000 WAIT 600000 PRIORITY 2",
        ],
        is_awaited: true,
    },
];

/// A way of asking for `k` without waiting.
struct Way {
    name: &'static str,
    words: &'static [&'static str],
    /// It is sent in a transaction.
    is_nested: bool,
    /// The obstacles that do not keep it from the lock, or end it with an error.
    passes: &'static [&'static str],
}

const fn way(name: &'static str, words: &'static [&'static str]) -> Way {
    Way { name, words, is_nested: false, passes: &[] }
}

const WAYS: &[Way] = &[
    way("SET NX", &["SET", "k", "me", "NX"]),
    way("SET NX PX", &["SET", "k", "me", "NX", "PX", "60000"]),
    // GET fails where the value is no string.
    Way {
        passes: &["a shared lock", "a lock of Redisson"],
        ..way("SET NX GET", &["SET", "k", "me", "NX", "GET", "PX", "60000"])
    },
    way("SETNX", &["SETNX", "k", "me"]),
    way("MSETNX", &["MSETNX", "k", "me"]),
    way("MSETNX of two", &["MSETNX", "y", "me", "k", "me"]),
    way("MSETEX NX", &["MSETEX", "1", "k", "me", "NX", "PX", "60000"]),
    way("a script", &["EVAL", ACQUIRE, "1", "k", "me"]),
    Way { is_nested: true, ..way("SET NX in EXEC", &["SET", "k", "me", "NX"]) },
    way("LOCK.ACQUIRE", &["LOCK.ACQUIRE", "k", "me"]),
    way("LOCK.ACQUIRE WHY", &["LOCK.ACQUIRE", "k", "me", "WHY"]),
    Way { passes: &["a shared lock"], ..way("LOCK.ACQUIRE SHARED", &["LOCK.ACQUIRE", "k", "me", "SHARED"]) },
    Way {
        passes: &["a request for it and another lock"],
        ..way("LOCK.ACQUIRE PRIORITY", &["LOCK.ACQUIRE", "k", "me", "PRIORITY", "1"])
    },
    way("LOCK.ACQUIRE REENTRANT", &["LOCK.ACQUIRE", "k", "me", "REENTRANT"]),
    way("LOCK.ACQUIRE PERMITS", &["LOCK.ACQUIRE", "k", "me", "PERMITS", "1", "OF", "2"]),
    way("LOCK.MACQUIRE", &["LOCK.MACQUIRE", "2", "k", "y", "me"]),
    way("LOCK.MACQUIRE ANY 1", &["LOCK.MACQUIRE", "1", "k", "me", "ANY", "1"]),
    way("LOCK.MACQUIRE ANY 2", &["LOCK.MACQUIRE", "2", "y", "k", "me", "ANY", "2"]),
    Way {
        passes: &["a shared lock"],
        ..way("LOCK.MACQUIRE MODE", &["LOCK.MACQUIRE", "2", "y", "k", "me", "MODE", "2", "SHARED"])
    },
    Way { is_nested: true, ..way("LOCK.ACQUIRE WAIT in EXEC", &["LOCK.ACQUIRE", "k", "me", "WAIT", "1000"]) },
];

/// How often each request is made: once more than LOCK.LINT takes for fast polling.
const TIMES: usize = 21;
/// Milliseconds between two requests.
const PAUSE_MS: u64 = 10;

/// The requests for a lock that were refused, and those for locks of its prefix.
fn refused(world: &World) -> i64 {
    let families = families(world.shared());
    let family = families.iter().find(|family| family.name == "lock_refused").expect("a metric");
    match family.samples[0].value {
        Value::Integer(count) => i64::try_from(count).expect("a small number"),
        _ => panic!("refusals are counted"),
    }
}

/// How waits have ended, as the histogram counts them: granted, refused, abandoned.
fn ended_waits(world: &World) -> [u64; 3] {
    let families = families(world.shared());
    let family = families.iter().find(|family| family.name == "lock_wait_seconds").expect("a metric");
    ["granted", "refused", "abandoned"].map(|outcome| {
        let is_it = |label: &Option<(&str, _)>| format!("{label:?}").contains(outcome);
        let sample = family.samples.iter().find(|sample| is_it(&sample.label)).expect("an outcome");
        match &sample.value {
            Value::Durations(waits) => waits.count(),
            _ => panic!("waits are durations"),
        }
    })
}

/// The events about `k` by the client of a role that tell of requests, each as its kind.
fn told(world: &mut World, role: Role) -> Vec<String> {
    let events = world.events("k");
    let is_his = |event: &&Reply| {
        let client = field(event, "client");
        matches!(client, Some(Reply::Int(id)) if world.client(*id) == role.letter())
    };
    let kinds = items(&events).iter().filter(is_his).map(|event| text(event, "kind"));
    kinds.filter(|kind| ["granted", "refused", "waits", "missed"].contains(&kind.as_str())).collect()
}

/// The lines of LOCK.WAITERS: owner, client, how.
fn waiters(world: &mut World) -> Vec<String> {
    let reply = world.view(0, &["LOCK.WAITERS", "k"]);
    let line = |item: &Reply| {
        let client = field(item, "client").map_or("-", |client| world.client(integer(client, "id")));
        format!("{} {client} {}", text(item, "owner"), text(item, "how"))
    };
    items(&reply).iter().map(line).collect()
}

fn start() -> World {
    let mut world = World::start();
    world.ask(Role::Watcher, &["CONFIG", "SET", "lock-lint", "yes", "lock-waiters-max", "2"]);
    world
}

/// Makes a request; its reply must not be an error.
fn ask(world: &mut World, way: &Way) {
    if way.is_nested {
        world.ask(Role::Other, &["MULTI"]);
    }
    let mut reply = world.ask(Role::Other, way.words);
    if way.is_nested {
        reply = world.ask(Role::Other, &["EXEC"]);
    }
    assert!(!reply.spell().contains("ERR"), "{}: {}", way.name, reply.spell());
}

#[test]
fn every_view_says_the_same_of_a_request_that_is_refused() {
    let mut wrong = Vec::new();
    for (way, obstacle) in WAYS.iter().flat_map(|way| OBSTACLES.iter().map(move |one| (way, one))) {
        if way.passes.contains(&obstacle.name) {
            continue;
        }
        let mut world = start();
        let kind = KINDS.iter().find(|kind| kind.name == "Redisson").expect("a kind");
        obstacle.makes.iter().for_each(|line| world.run(kind, line));
        world.pass(1_000);
        world.forget_events();
        let before = refused(&world);
        let grants = granted(&mut world);

        for _ in 0..TIMES {
            ask(&mut world, way);
            world.pass(PAUSE_MS);
        }

        let mut check = |view: &str, expected: String, seen: String| {
            if expected != seen {
                wrong.push(format!(
                    "{} | {} | {view} | expected: {expected} | seen: {seen}",
                    way.name, obstacle.name
                ));
            }
        };
        check("lock_refused", TIMES.to_string(), (refused(&world) - before).to_string());
        check(
            "TEST.HISTORY",
            format!("{:?}", vec!["refused"; TIMES]),
            format!("{:?}", told(&mut world, Role::Other)),
        );
        let queued = obstacle.is_awaited.then(|| "next n queued".to_owned());
        let expected: Vec<String> = queued.into_iter().chain(["- o polling".to_owned()]).collect();
        check("LOCK.WAITERS", format!("{expected:?}"), format!("{:?}", waiters(&mut world)));
        let explained = world.view(0, &["LOCK.EXPLAIN", "k"]).spell();
        check("LOCK.EXPLAIN", "true".to_owned(), explained.contains("1 polling").to_string());
        let linted = world.view(0, &["LOCK.LINT"]);
        let found: Vec<String> = items(&linted).iter().map(|finding| text(finding, "rule")).collect();
        // What a script or transaction asks may be no polling.
        let is_linted = !way.is_nested && way.name != "a script";
        let is_found = found.iter().any(|rule| rule == "fast-polling");
        check("LOCK.LINT", is_linted.to_string(), is_found.to_string());
        check("locks_granted", grants.to_string(), granted(&mut world).to_string());
        world.assert_laws();
    }
    assert!(wrong.is_empty(), "{} views are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// How many grants there were.
fn granted(world: &mut World) -> u64 {
    info_field(&plain(&world.view(0, &["INFO", "locks"])), "locks_granted")
}

/// An end of a wait: what is done, and what is told of the request then.
struct End {
    name: &'static str,
    does: &'static [&'static str],
    /// The last event of the request; `None`: it has gone.
    tells: Option<&'static str>,
    /// How the histogram counts it.
    counts: [u64; 3],
    is_refused: bool,
}

const ENDS: &[End] = &[
    End {
        name: "granted",
        does: &["h: LOCK.RELEASE k a"],
        tells: Some("granted"),
        counts: [1, 0, 0],
        is_refused: false,
    },
    End { name: "timed out", does: &["+1001"], tells: Some("refused"), counts: [0, 1, 0], is_refused: true },
    End {
        name: "unblocked",
        does: &["$UNBLOCK"],
        tells: Some("refused"),
        counts: [0, 1, 0],
        is_refused: true,
    },
    End { name: "gone", does: &["close o"], tells: None, counts: [0, 0, 1], is_refused: false },
    End {
        name: "another type",
        does: &["h: DEL k", "h: LPUSH k x"],
        tells: Some("granted"),
        counts: [1, 0, 0],
        is_refused: false,
    },
    End {
        name: "replaced in one instant",
        does: &["h: MULTI", "h: DEL k", "h: LPUSH k x", "h: EXEC"],
        tells: Some("refused"),
        counts: [0, 1, 0],
        is_refused: true,
    },
];

#[test]
fn every_wait_has_one_end_in_every_view() {
    let asks: &[&[&str]] = &[
        &["LOCK.ACQUIRE", "k", "me", "WAIT", "1000"],
        &["LOCK.ACQUIRE", "k", "me", "SHARED", "WAIT", "1000"],
        &["LOCK.ACQUIRE", "k", "me", "WAIT", "1000", "WHY"],
        &["LOCK.ACQUIRE", "k", "me", "WAIT", "1000", "PRIORITY", "2"],
        &["LOCK.MACQUIRE", "2", "k", "y", "me", "WAIT", "1000"],
        &["LOCK.MACQUIRE", "1", "k", "me", "ANY", "1", "WAIT", "1000"],
        &["LOCK.MACQUIRE", "2", "k", "y", "me", "ANY", "2", "WAIT", "1000"],
        &["LOCK.MACQUIRE", "2", "k", "y", "me", "MODE", "2", "SHARED", "WAIT", "1000"],
    ];
    let kind = &KINDS[0];
    for (words, end) in asks.iter().flat_map(|words| ENDS.iter().map(move |end| (words, end))) {
        let name = format!("{words:?}, {}", end.name);
        let mut world = start();
        world.run(kind, "h: LOCK.ACQUIRE k a LEASE 600000");
        world.forget_events();
        let Reply::Int(id) = world.ask(Role::Other, &["CLIENT", "ID"]) else { panic!("no number") };
        assert!(world.send(Role::Other, words).is_none(), "{name}: it waits");
        assert_eq!((refused(&world), ended_waits(&world)), (0, [0; 3]), "{name}: nothing has ended");
        assert_eq!(told(&mut world, Role::Other), ["waits"], "{name}");
        assert_eq!(waiters(&mut world), ["me o queued"], "{name}");

        for line in end.does {
            match *line {
                "$UNBLOCK" => drop(world.ask(Role::Watcher, &["CLIENT", "UNBLOCK", &id.to_string()])),
                line => world.run(kind, line),
            }
        }

        assert_eq!(refused(&world), i64::from(end.is_refused), "{name}");
        assert_eq!(ended_waits(&world), end.counts, "{name}");
        let expected: Vec<&str> = ["waits"].into_iter().chain(end.tells).collect();
        assert_eq!(told(&mut world, Role::Other), expected, "{name}");
        assert!(waiters(&mut world).is_empty(), "{name}");
        world.assert_laws();
    }
}

#[test]
fn a_wait_that_finds_no_room_is_refused_in_every_view() {
    let mut world = start();
    let kind = &KINDS[0];
    world.run(kind, "h: LOCK.ACQUIRE k a LEASE 600000");
    world.send(Role::Waiter, &["LOCK.ACQUIRE", "k", "next", "WAIT", "600000"]);
    world.send(Role::Second, &["LOCK.ACQUIRE", "k", "second", "WAIT", "600000"]);
    world.forget_events();
    for n in 1..=3 {
        let reply = world.ask(Role::Other, &["LOCK.ACQUIRE", "k", "me", "WAIT", "1000"]);
        assert!(reply.spell().contains("lock-waiters-max"), "{}", reply.spell());
        assert_eq!(refused(&world), n);
        world.pass(PAUSE_MS);
    }
    assert_eq!(told(&mut world, Role::Other), ["refused"; 3]);
    assert_eq!(waiters(&mut world), ["next n queued", "second g queued", "- o polling"]);
}

#[test]
fn a_wait_that_is_a_deadlock_is_refused_in_every_view() {
    let mut world = start();
    let kind = &KINDS[0];
    world.run(kind, "h: LOCK.ACQUIRE k a LEASE 600000");
    world.run(kind, "o: LOCK.ACQUIRE other me LEASE 600000");
    world.send(Role::Holder, &["LOCK.ACQUIRE", "other", "a", "WAIT", "600000"]);
    world.forget_events();
    let reply = world.ask(Role::Other, &["LOCK.ACQUIRE", "k", "me", "WAIT", "600000"]);
    assert!(reply.spell().contains("DEADLOCK"), "{}", reply.spell());
    assert_eq!((refused(&world), ended_waits(&world)), (1, [0, 1, 0]));
    assert_eq!(told(&mut world, Role::Other), ["waits", "refused"]);
    assert!(waiters(&mut world).is_empty());
}

#[test]
fn a_request_of_who_does_not_hold_the_lock_is_told_by_every_view() {
    let late: &[(&str, &[&str])] = &[
        ("LOCK.RELEASE", &["LOCK.RELEASE", "k", "a"]),
        ("LOCK.EXTEND", &["LOCK.EXTEND", "k", "a"]),
        ("LOCK.TRANSFER", &["LOCK.TRANSFER", "k", "a", "TO", "b", "LEASE", "1000"]),
        ("DELIFEQ", &["DELIFEQ", "k", "a"]),
        ("a releasing script", &["EVAL", crate::support::bare::RELEASE, "1", "k", "a"]),
        ("an extending script", &["EVAL", crate::support::bare::EXTEND, "1", "k", "a", "30000"]),
    ];
    for (name, words) in late {
        let mut world = start();
        world.run(&KINDS[0], "h: LOCK.ACQUIRE k a LEASE 1000");
        world.pass(1_500);
        world.forget_events();
        world.ask(Role::Holder, words);
        assert_eq!(told(&mut world, Role::Holder), ["missed"], "{name}");
        let linted = world.view(0, &["LOCK.LINT"]);
        let rules: Vec<String> = items(&linted).iter().map(|finding| text(finding, "rule")).collect();
        assert!(rules.contains(&"late".to_owned()), "{name}: {rules:?}");
        let history = world.view(0, &["LOCK.HISTORY", "MATCH", "k"]);
        let late_ms = items(&history).first().map(|end| text(end, "late"));
        assert_eq!(late_ms.as_deref(), Some("500"), "{name}");
    }
}
