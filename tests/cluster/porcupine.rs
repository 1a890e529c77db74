//! The histories of the live checker, checked once more by Porcupine, a checker of linearizability that is not ours.
//!
//! Belongs here  the export of a history, and what becomes of the outcome. The model of a lock with leases is in Go:
//!               `tests/clients/porcupine/lease.go`. Other keys are checked in `registers`.
//! Skips         where Go, or the program, is not installed, the outcome is left out and that is printed. With
//!               REDLATCH_REQUIRE_CLIENTS=1 it must be there.

use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clients::installer::{Closed, Installer, is_set};
use crate::clients::process::run;
use crate::locks::mutex::history::{Answer, Ask, Call, read};
use crate::support::binary::Directory;

/// What Porcupine says of a history.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Outcome {
    Accepted,
    /// No order of the calls of this key is possible.
    Rejected(String),
}

/// Checks the calls of a run. `None`: Porcupine is not installed.
pub(super) fn check(calls: &[Call]) -> Option<Outcome> {
    check_lines(&lines(calls))
}

/// Checks a history: a call in JSON per line, as `tests/clients/porcupine/main.go` reads it.
pub(super) fn check_lines(lines: &str) -> Option<Outcome> {
    let installer = match Installer::open("porcupine") {
        Ok(installer) => installer,
        Err(Closed::Missing(why)) if !is_set("REDLATCH_REQUIRE_CLIENTS") => {
            println!("skipped: Porcupine: {why}");
            return None;
        }
        Err(Closed::Broken(why) | Closed::Missing(why)) => panic!("Porcupine: {why}"),
    };
    let directory = Directory::new();
    let history = directory.root().join("history");
    fs::write(&history, lines).expect("room for a history");
    let finished = run(installer.command(&["bin/check", &history.display().to_string()]), CHECK_TIME_MAX);
    let finished = finished.expect("the program starts");
    assert_eq!(finished.failure(), None, "{:?}", finished.lines);
    let [line] = &finished.lines[..] else { panic!("the program says {:?}", finished.lines) };
    match line.split_once(' ').unwrap_or((line, "")) {
        ("accepted", _) => Some(Outcome::Accepted),
        ("rejected", lock) => Some(Outcome::Rejected(lock.to_owned())),
        // An order was neither found nor ruled out in time.
        _ => panic!("Porcupine has not decided on the history: {line}"),
    }
}

/// A line in JSON for each call.
fn lines(calls: &[Call]) -> String {
    calls.iter().fold(String::new(), |mut lines, call| {
        let _ = writeln!(lines, "{}", line(call));
        lines
    })
}

fn line(call: &Call) -> Value {
    let (ask, lease_ms) = match call.ask {
        Ask::Acquire(lease_ms) => ("acquire", lease_ms),
        Ask::Extend(lease_ms) => ("extend", lease_ms),
        Ask::Hangup => ("hangup", 0),
        Ask::Look => ("look", 0),
        Ask::Release => ("release", 0),
        Ask::Session => ("session", 0),
        Ask::Token => ("token", 0),
    };
    let (answer, holder, fence, waited_ms) = match call.heard().map(|(_, answer)| answer) {
        None => ("", "", 0, 0),
        Some(Answer::Holder(holder)) => ("holder", holder.as_str(), 0, 0),
        Some(Answer::No) => ("no", "", 0, 0),
        Some(Answer::Nobody) => ("nobody", "", 0, 0),
        Some(Answer::Yes) => ("yes", "", 0, 0),
        Some(Answer::YesWithFence(fence)) => ("yes", "", *fence, 0),
        Some(Answer::YesAfter { fence, waited_ms }) => ("yes", "", *fence, *waited_ms),
    };
    json!({
        "lock": call.lock, "token": call.token, "ask": ask, "lease_ms": lease_ms, "sent_ns": call.sent_ns,
        "heard_ns": call.heard().map_or(0, |(heard_ns, _)| heard_ns), "answer": answer, "holder": holder,
        "fence": fence, "waited_ms": waited_ms,
    })
}

const CHECK_TIME_MAX: Duration = Duration::from_secs(300);

#[test]
#[ignore = "needs the packages of tests/clients/porcupine"]
fn every_kind_of_broken_history_is_rejected_by_porcupine() {
    // Times are in nanoseconds: a lease of 1 ms that was asked for at 10 lasts until 1,000,010 at least.
    let granted = "sent a 10 k acquire A 1\ngot a 20 yes 5\n";
    let accepted = |more: &str| {
        let calls = read(&format!("{granted}{more}")).expect("a history");
        check(&calls).map(|outcome| outcome == Outcome::Accepted)
    };
    let fine = [
        ("another one later", "sent b 30 k acquire B 1\ngot b 1000010 yes 6\n"),
        (
            "another one after a release",
            "sent r 30 k release A\ngot r 40 yes\nsent b 50 k acquire B 1\ngot b 60 yes 6\n",
        ),
        ("a release without an answer", "sent r 30 k release A\nsent b 50 k acquire B 1\ngot b 60 yes 6\n"),
        (
            "a request without an answer",
            "sent b 30 k acquire B 1\nsent l 1000020 k look -\ngot l 1000030 holder B\n",
        ),
        (
            "a session that has ended",
            "sent s 1000010 k session S\ngot s 1000020 yes 6\nsent h 1000030 k hangup S\n\
          got h 1000040 yes\nsent b 1000050 k acquire B 1\ngot b 1000060 yes 7\n",
        ),
    ];
    let broken = [
        ("granted twice", "sent b 30 k acquire B 1\ngot b 1000009 yes 6\n"),
        (
            "granted before an extension has ended",
            "sent e 30 k extend A 2\ngot e 40 yes\nsent b 50 k acquire B 1\ngot b 1000020 yes 6\n",
        ),
        ("forgotten", "sent l 30 k look -\ngot l 40 nobody\n"),
        (
            "kept after its release",
            "sent r 30 k release A\ngot r 40 yes\nsent l 50 k look -\ngot l 60 holder A\n",
        ),
        ("a lower number", "sent b 1000020 k acquire B 1\ngot b 1000030 yes 5\n"),
        ("held by nobody who asked", "sent l 30 k look -\ngot l 40 holder Z\n"),
        ("refused to its holder", "sent e 30 k extend A 2\ngot e 40 no\n"),
        (
            "a session that lasts",
            "sent s 1000010 k session S\ngot s 1000020 yes 6\nsent h 1000060 k hangup S\n\
          got h 1000070 yes\nsent b 1000030 k acquire B 1\ngot b 1000050 yes 7\n",
        ),
    ];
    for (name, more) in fine {
        assert_ne!(accepted(more), Some(false), "{name}");
    }
    for (name, more) in broken {
        assert_ne!(accepted(more), Some(true), "{name}");
    }
}
