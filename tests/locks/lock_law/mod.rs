//! One answer about one lock: every kind of lock, every way in which it ends or changes, every view of it.
//!
//! Belongs here  promises for all kinds and ways: rows and columns are in `table`, what is true in `model`, what
//!               must be shown in `views`.
//! Time          stands still; a way moves it.

mod asking;
mod model;
mod table;
mod views;
mod world;

use std::collections::BTreeMap;

use model::{Answer, Model, Reason, Role, place};
pub(crate) use table::REDISSON_LOCK;
use table::{KINDS, Kind, WAYS, Way};
use views::View;
use world::World;

use crate::support::reply::Reply;

/// The wall time at which a cell begins, in milliseconds.
const START_UNIX_MS: u64 = 1_700_000_001_000;
/// A wall time two minutes after it, in seconds.
const SECONDS: u64 = START_UNIX_MS / 1_000 + 121;
/// How long a lock has been held when a way begins, in milliseconds.
const HELD_MS: u64 = 1_500;
/// After the end of a lock, its holder asks for it so much later, in milliseconds.
const LATE_MS: u64 = 41;

/// The kinds whose cells are run again while a call waits for the lock: one of each form.
const AWAITED: &[&str] = &["SET NX", "exclusive", "session", "shared by two", "reentrant", "Redisson"];

/// A view that does not say what is true: kind and way, view, and both.
#[derive(Debug)]
struct Broken {
    kind: String,
    way: &'static str,
    view: String,
    expected: String,
    seen: String,
}

/// Runs one cell. `is_awaited`: a call waits for the lock.
fn cell(kind: &Kind, way: &Way, is_awaited: bool) -> Vec<Broken> {
    let (mut world, mut model, mut broken) = (World::start(), Model::new(), Vec::new());
    let name = if is_awaited { format!("{}, awaited", kind.name) } else { kind.name.to_owned() };
    let mut note = |stage: &str, views: Vec<View>| {
        broken.extend(views.into_iter().filter(|view| !view.agrees).map(|view| Broken {
            kind: name.clone(),
            way: way.name,
            view: format!("{stage}{}", view.name),
            expected: view.expected,
            seen: view.seen,
        }));
    };

    if !is_awaited {
        world.ask(Role::Watcher, &["CONFIG", "SET", "lock-lint", "yes"]);
        model.is_linted = true;
    }
    kind.takes.iter().for_each(|line| world.run(kind, line));
    kind.take(&mut model);
    if is_awaited {
        world.send(Role::Waiter, &["LOCK.ACQUIRE", "k", "next", "LEASE", "600000", "WAIT", "3600000"]);
        model.waits_for = Some(place("k"));
    }
    world.pass(HELD_MS);
    model.pass(HELD_MS);

    if !way.does.is_empty() {
        world.forget_events();
        model.events.clear();
    }
    world.answer = None;
    way.does.iter().for_each(|line| world.run(kind, line));
    (way.law)(&mut model);
    note("", vec![answer(&world, &model)]);
    note("", views::views(&mut world, &model, !model.is_restarted));
    world.assert_laws();
    if is_awaited {
        // It is the last look, because TEST.HISTORY takes the records of a copy for grants.
        if !model.is_restarted {
            note("", views::copied(&world, &model));
        }
        return broken;
    }

    note("", late(kind, &mut world, &mut model));
    if model.keys.values().all(|slot| slot.holds().is_empty()) {
        return broken;
    }
    let later = model.last_due().map_or(300_000, |due| due + 1 - model.now);
    world.pass(later);
    model.pass(later);
    note("later: ", views::views(&mut world, &model, false));
    world.assert_laws();
    broken
}

/// The reply to the last command: an error or none.
fn answer(world: &World, model: &Model) -> View {
    let seen = world.answer.as_ref().map_or(String::new(), Reply::spell_line);
    let is_error = matches!(world.answer, Some(Reply::Error(_)));
    let (expected, agrees) = match model.answer {
        Answer::Done => ("no error".to_owned(), !is_error),
        Answer::Refused(with) => (format!("an error with {with:?}"), is_error && seen.contains(with)),
    };
    View { name: "reply".to_owned(), expected, seen, agrees }
}

/// A holder that has lost its lock releases it: LOCK.HISTORY says how much too late. One that has handed it over is not late.
fn late(kind: &Kind, world: &mut World, model: &mut Model) -> Vec<View> {
    let is_lost = |end: &&model::End| {
        end.place == place("k") && end.hold.owner == "a" && end.reason != Reason::Released
    };
    let Some(end) = model.ends.iter().find(is_lost).cloned() else { return Vec::new() };
    // A script of an unchanged client fails on a value of another type.
    let is_blocked = !end.hold.is_native
        && match model.keys.get(&place("k")) {
            Some(model::Slot::Plain { value, .. }) => kind.name == "Redisson" || value.is_none(),
            _ => false,
        };
    if model.closed.contains(&Role::Holder) || end.hold.by != Role::Holder || is_blocked {
        return Vec::new();
    }
    world.pass(LATE_MS);
    model.pass(LATE_MS);
    world.run(kind, if end.hold.is_native { "h: LOCK.RELEASE k a" } else { "h: $RELEASE" });
    let expected = match end.reason {
        Reason::Transferred => "-".to_owned(),
        _ => (model.now - end.at).to_string(),
    };
    let seen = views::late(world, &end.place, end.hold.token);
    let agrees = expected == seen;
    vec![View { name: "late".to_owned(), expected, seen, agrees }]
}

/// Way, view and kind.
type Id = (String, String, String);

/// A line for each way and view that is wrong: the kinds, and what the first of them expects and shows.
fn listed(broken: &BTreeMap<Id, Broken>) -> String {
    let mut lines: BTreeMap<(&str, &str), (Vec<&str>, &Broken)> = BTreeMap::new();
    for ((way, view, kind), one) in broken {
        lines.entry((way, view)).or_insert_with(|| (Vec::new(), one)).0.push(kind);
    }
    let line = |((way, view), (kinds, one)): (&(&str, &str), &(Vec<&str>, &Broken))| {
        format!("{way} | {view} | {} | expected: {} | seen: {}\n", kinds.join("; "), one.expected, one.seen)
    };
    lines.iter().map(line).collect()
}

#[test]
fn every_view_says_the_same_of_every_lock() {
    let mut broken: BTreeMap<Id, Broken> = BTreeMap::new();
    for kind in KINDS {
        for way in WAYS {
            let mut all = cell(kind, way, false);
            if AWAITED.contains(&kind.name) {
                all.extend(cell(kind, way, true));
            }
            for one in all {
                broken.insert((one.way.to_owned(), one.view.clone(), one.kind.clone()), one);
            }
        }
    }
    assert!(broken.is_empty(), "{} views are wrong:\n{}", broken.len(), listed(&broken));
}
