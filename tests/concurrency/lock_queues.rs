//! LOCK commands of several connections at once: the hand-over of a lock.
//!
//! Belongs here: nobody is granted a lock twice, no wake-up is lost, no grant stays with a connection that is gone. Each
//!              client is a session of an engine, in a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use redlatch_core::commands::Shared;
use redlatch_core::engine::Engine;
use redlatch_core::keyspace::{Keyspace, Layout};
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_core::state::settings::Settings;
use redlatch_proto::clock::{Clock, LockTime, Now};
use redlatch_proto::resp::Request;
use shuttle::thread;

use crate::at;

/// Schedules tried of each law: an engine is larger than a keyspace.
const SCHEDULES: usize = 500;

fn under_every_schedule(law: impl Fn() + Send + Sync + 'static) {
    shuttle::check_random(law, SCHEDULES);
}

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Now {
        at(12)
    }

    fn micros(&self) -> u64 {
        12_000
    }

    fn wall_micros(&self) -> u64 {
        12_000
    }
}

fn engine() -> Engine {
    let layout = Layout { shards: 4, databases: 1, seed: 11, journal: None };
    let shared = Shared::new(Keyspace::new(layout, || {}), Settings::default(), Arc::new(Noon), 1);
    Engine::new(Arc::new(shared))
}

fn connect(engine: &Engine) -> Session {
    let id = engine.shared().registries.clients.next_id();
    engine.connect(Client::new(id, String::new(), String::new(), false, LockTime::from_millis(12)))
}

/// Sends a request; its reply is empty if it waits.
fn say(engine: &Engine, session: &mut Session, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let (mut batch, mut out) = (engine.batch(), Vec::new());
    engine.execute(session, Request::listed(&words), &mut batch, &mut out);
    engine.end_batch(session, batch);
    String::from_utf8(out).expect("an answer in ASCII")
}

/// The answer of a request that has waited, if there is one.
fn heard(engine: &Engine, session: &mut Session) -> String {
    let mut out = Vec::new();
    engine.resume(session, &mut out);
    String::from_utf8(out).expect("an answer in ASCII")
}

/// A client that has sent these requests.
fn client(engine: &Engine, lines: &[&str]) -> Session {
    let mut session = connect(engine);
    lines.iter().for_each(|line| drop(say(engine, &mut session, line)));
    session
}

/// Sends a request in a thread of its own; returns the client and the reply.
fn sends(engine: &Engine, mut session: Session, line: &'static str) -> thread::JoinHandle<(Session, String)> {
    let engine = engine.clone();
    thread::spawn(move || {
        let reply = say(&engine, &mut session, line);
        (session, reply)
    })
}

fn ends(engine: &Engine, mut session: Session) -> thread::JoinHandle<()> {
    let engine = engine.clone();
    thread::spawn(move || engine.disconnect(&mut session))
}

fn is_grant(reply: &str) -> bool {
    reply.starts_with("*6\r\n$5\r\ntoken\r\n")
}

/// Every client is gone, and nothing is left of their locks.
fn assert_nothing_is_left(engine: &Engine, sessions: impl IntoIterator<Item = Session>) {
    sessions.into_iter().for_each(|mut session| engine.disconnect(&mut session));
    let shared = engine.shared();
    assert_eq!((shared.keyspace.parked(), shared.locks.waits.len()), (0, 0), "requests that wait");
    assert!(shared.registries.lock_sessions.is_empty(), "sessions");
    shared.keyspace.assert_laws();
}

/// A release, the end of a client that waits, and a new request at the same time. Returns what the new request is told.
fn release_end_and_request(is_told: bool) -> String {
    let engine = engine();
    let holder = client(&engine, &["LOCK.ACQUIRE one holder"]);
    let first = client(&engine, &["LOCK.ACQUIRE one first WAIT 60000"]);
    let (engine, second) = (engine.clone(), connect(&engine));
    let release = sends(&engine, holder, "LOCK.RELEASE one holder");
    let request = sends(&engine, second, "LOCK.ACQUIRE one second WAIT 60000");
    // A server that is broken on purpose is not told that the client has gone.
    if is_told {
        ends(&engine, first).join().expect("an end");
    }
    let (holder, released) = release.join().expect("a release");
    let (mut second, mut reply) = request.join().expect("a request");
    assert_eq!(released, ":1\r\n");
    reply += &heard(&engine, &mut second);
    if is_told {
        assert!(is_grant(&reply), "the second is granted the lock, once: {reply:?}");
        let mut looks = connect(&engine);
        assert_eq!(say(&engine, &mut looks, "GET one"), "$6\r\nsecond\r\n");
        assert_nothing_is_left(&engine, [holder, second, looks]);
    }
    reply
}

#[test]
fn a_lock_whose_next_client_goes_is_handed_to_the_one_behind_it() {
    under_every_schedule(|| drop(release_end_and_request(true)));
}

// Breaks P-no-dead-client.
#[test]
fn a_grant_that_stays_with_a_client_that_is_gone_is_caught() {
    let caught = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&caught);
    under_every_schedule(move || {
        let reply = release_end_and_request(false);
        count.fetch_add(usize::from(!is_grant(&reply)), SeqCst);
    });
    assert!(caught.load(SeqCst) > 0, "no schedule of {SCHEDULES} catches it");
}

#[test]
fn a_request_that_is_ended_and_one_behind_it_are_not_both_granted() {
    under_every_schedule(|| {
        let engine = engine();
        let holder = client(&engine, &["LOCK.ACQUIRE one holder"]);
        let mut first = client(&engine, &["LOCK.ACQUIRE one first WAIT 60000"]);
        let mut second = client(&engine, &["LOCK.ACQUIRE one second WAIT 60000"]);
        let release = sends(&engine, holder, "LOCK.RELEASE one holder");
        let id = first.client.id;
        let operator = {
            let (engine, mut operator) = (engine.clone(), connect(&engine));
            thread::spawn(move || {
                let reply = say(&engine, &mut operator, &format!("CLIENT UNBLOCK {id}"));
                (operator, reply)
            })
        };
        let (holder, released) = release.join().expect("a release");
        let (operator, unblocked) = operator.join().expect("an operator");
        assert_eq!(released, ":1\r\n");
        let replies = [heard(&engine, &mut first), heard(&engine, &mut second)];
        match unblocked.as_str() {
            ":1\r\n" => assert!(replies[0] == "*-1\r\n" && is_grant(&replies[1]), "{replies:?}"),
            _ => assert!(is_grant(&replies[0]) && replies[1].is_empty(), "{replies:?}"),
        }
        assert_nothing_is_left(&engine, [holder, first, second, operator]);
    });
}

#[test]
fn several_locks_are_taken_at_once_however_they_become_free() {
    under_every_schedule(|| {
        let engine = engine();
        let one = client(&engine, &["LOCK.ACQUIRE one a"]);
        let three = client(&engine, &["LOCK.ACQUIRE three b"]);
        let mut both = client(&engine, &["LOCK.MACQUIRE 2 one three both WAIT 60000"]);
        let late = connect(&engine);
        let threads = [
            sends(&engine, one, "LOCK.RELEASE one a"),
            sends(&engine, three, "LOCK.RELEASE three b"),
            sends(&engine, late, "LOCK.MACQUIRE 2 three one late WAIT 60000"),
        ];
        let mut sessions: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
        assert!(is_grant(&heard(&engine, &mut both)), "it has waited for both");
        let (late, reply) = sessions.last_mut().expect("three");
        assert_eq!(reply.clone() + &heard(&engine, late), "", "it waits behind it");
        assert_eq!(say(&engine, &mut both, "LOCK.RELEASE one both"), ":1\r\n");
        assert_eq!(heard(&engine, late), "", "it needs the other, too");
        assert_eq!(say(&engine, &mut both, "LOCK.RELEASE three both"), ":1\r\n");
        assert!(is_grant(&heard(&engine, late)));
        assert_nothing_is_left(&engine, sessions.into_iter().map(|(session, _)| session).chain([both]));
    });
}

#[test]
fn any_of_several_locks_is_granted_once_however_they_become_free() {
    under_every_schedule(|| {
        let engine = engine();
        let one = client(&engine, &["LOCK.ACQUIRE one a"]);
        let three = client(&engine, &["LOCK.ACQUIRE three b"]);
        let mut first = client(&engine, &["LOCK.MACQUIRE 2 one three first ANY 1 WAIT 60000"]);
        let mut both = client(&engine, &["LOCK.MACQUIRE 2 three one both ANY 2 WAIT 60000"]);
        let threads = [
            sends(&engine, one, "LOCK.RELEASE one a"),
            sends(&engine, three, "LOCK.RELEASE three b"),
            sends(&engine, connect(&engine), "LOCK.MACQUIRE 2 three one late ANY 1 WAIT 60000"),
        ];
        let mut sessions: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
        let granted = heard(&engine, &mut first);
        let own = if granted.contains("one") { "one" } else { "three" };
        assert!(granted.contains("locks") && granted.contains(own), "it has got the first: {granted}");
        assert_eq!(heard(&engine, &mut both), "", "it needs the other, too");
        let (late, reply) = sessions.last_mut().expect("three");
        assert_eq!(reply.clone() + &heard(&engine, late), "", "it waits behind them");
        assert_eq!(say(&engine, &mut first, &format!("LOCK.RELEASE {own} first")), ":1\r\n");
        assert!(heard(&engine, &mut both).contains("locks"), "it has both");
        assert_eq!(heard(&engine, late), "", "nothing is free");
        assert_eq!(say(&engine, &mut both, "LOCK.RELEASE one both"), ":1\r\n");
        assert!(heard(&engine, late).contains("one"), "the lock that is free");
        assert_eq!(say(&engine, &mut both, "LOCK.RELEASE three both"), ":1\r\n");
        let sessions = sessions.into_iter().map(|(session, _)| session);
        assert_nothing_is_left(&engine, sessions.chain([first, both]));
    });
}

#[test]
fn a_request_with_a_priority_and_the_one_that_it_may_pass_are_not_both_granted() {
    under_every_schedule(|| {
        let engine = engine();
        let holder = client(&engine, &["LOCK.ACQUIRE one holder"]);
        let mut first = client(&engine, &["LOCK.ACQUIRE one first WAIT 60000"]);
        let release = sends(&engine, holder, "LOCK.RELEASE one holder");
        let request = sends(&engine, connect(&engine), "LOCK.ACQUIRE one urgent PRIORITY 9 WAIT 60000");
        let (mut holder, released) = release.join().expect("a release");
        let (mut urgent, reply) = request.join().expect("a request");
        assert_eq!(released, ":1\r\n");
        let replies = [heard(&engine, &mut first), reply + &heard(&engine, &mut urgent)];
        let (owner, other) = match is_grant(&replies[0]) {
            true => ("first", &mut urgent),
            false => ("urgent", &mut first),
        };
        assert!(is_grant(&replies[0]) != is_grant(&replies[1]), "one of them has it: {replies:?}");
        assert_eq!(say(&engine, &mut holder, &format!("LOCK.RELEASE one {owner}")), ":1\r\n");
        assert!(is_grant(&heard(&engine, other)), "the other is next");
        assert_nothing_is_left(&engine, [holder, first, urgent]);
    });
}

#[test]
fn a_lock_that_is_transferred_goes_to_its_successor_however_it_asks() {
    under_every_schedule(|| {
        let engine = engine();
        let holder = client(&engine, &["LOCK.ACQUIRE one holder"]);
        let mut first = client(&engine, &["LOCK.ACQUIRE one first WAIT 60000"]);
        let transfer = sends(&engine, holder, "LOCK.TRANSFER one holder TO next LEASE 60000");
        let request = sends(&engine, connect(&engine), "LOCK.ACQUIRE one next WAIT 60000");
        let (holder, transferred) = transfer.join().expect("a transfer");
        let (mut next, reply) = request.join().expect("a request");
        assert!(transferred.contains("token\r\n:2\r\n"), "{transferred}");
        let granted = reply + &heard(&engine, &mut next);
        assert!(granted.starts_with("*6\r\n$5\r\ntoken\r\n:2\r\n"), "one token, once: {granted}");
        assert_eq!(heard(&engine, &mut first), "", "it has been passed");
        assert_eq!(say(&engine, &mut next, "LOCK.RELEASE one next"), ":1\r\n");
        assert!(is_grant(&heard(&engine, &mut first)));
        assert_nothing_is_left(&engine, [holder, first, next]);
    });
}

#[test]
fn the_end_of_a_session_and_a_release_hand_over_once() {
    under_every_schedule(|| {
        let engine = engine();
        let holder = client(&engine, &["LOCK.ACQUIRE one me SESSION", "LOCK.ACQUIRE three me SESSION"]);
        let mut first = client(&engine, &["LOCK.ACQUIRE one first SESSION WAIT 60000"]);
        let mut second = client(&engine, &["LOCK.ACQUIRE one second SESSION WAIT 60000"]);
        let release = sends(&engine, connect(&engine), "LOCK.RELEASE one me");
        let end = ends(&engine, holder);
        let (mut other, _) = release.join().expect("a release");
        end.join().expect("an end");
        assert!(is_grant(&heard(&engine, &mut first)), "the first has it");
        assert_eq!(heard(&engine, &mut second), "", "the second has not");
        assert_eq!(say(&engine, &mut other, "EXISTS one three"), ":1\r\n");
        engine.disconnect(&mut first);
        assert!(is_grant(&heard(&engine, &mut second)));
        assert_nothing_is_left(&engine, [second, other]);
    });
}

#[test]
fn a_session_that_is_attached_while_its_connection_ends_keeps_its_locks() {
    under_every_schedule(|| {
        let engine = engine();
        let mut holder = client(&engine, &["LOCK.ACQUIRE one me SESSION DELAY 50"]);
        let id = say(&engine, &mut holder, "LOCK.SESSION ID").lines().nth(1).expect("an id").to_owned();
        let end = ends(&engine, holder);
        let mut next = connect(&engine);
        assert_eq!(say(&engine, &mut next, &format!("LOCK.SESSION ATTACH {id}")), ":1\r\n");
        end.join().expect("an end");
        assert_eq!(say(&engine, &mut next, "PTTL one"), ":-1\r\n", "it does not end after the delay");
        assert_eq!(say(&engine, &mut next, "LOCK.RELEASE one me"), ":1\r\n");
        assert_nothing_is_left(&engine, [next]);
    });
}
