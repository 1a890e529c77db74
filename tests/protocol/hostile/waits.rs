//! Requests that wait for many locks: their memory and the work for them grow with their keys, not with the square of these.
//!
//! Source  work is counted in look-ups of entries, which a debug build counts. In a release build these sums are zero.

use redlatch_core::keyspace::Due;
use redlatch_core::state::ledger::Kind;
use redlatch_core::state::session::Session;

use super::lock_queues::{assert_nothing_is_left, say, waiting};
use crate::simulation::parts::Machine;

/// Locks of each request.
const KEYS: usize = 1_000;
/// Requests that wait for all of them.
const WAITERS: usize = 100;
/// Look-ups of a request for each of its locks, whatever happens to it: a few for its rules, its holders and its circle.
const LOOKUPS_PER_KEY: u64 = 12;

fn keys() -> String {
    (0..KEYS).map(|n| format!("key-{n:04}")).collect::<Vec<_>>().join(" ")
}

/// The look-ups that `act` makes.
fn lookups<R>(machine: &Machine, act: impl FnOnce() -> R) -> (u64, R) {
    let before = machine.keyspace().lookups();
    let result = act();
    (machine.keyspace().lookups() - before, result)
}

/// A server on which one client holds all locks, and others wait for all of them. Returns what each wait has cost.
fn besieged(seed: u64) -> (Machine, Session, Vec<Session>, Vec<u64>) {
    let machine = Machine::unrecorded(seed);
    let (mut holder, keys) = (machine.connect(), keys());
    let granted = say(&machine, &mut holder, &format!("LOCK.MACQUIRE {KEYS} {keys} holder LEASE 600000"));
    assert!(granted.starts_with("*6"), "{granted}");
    let (mut waiters, mut costs) = (Vec::new(), Vec::new());
    for n in 0..WAITERS {
        let line = |_| format!("LOCK.MACQUIRE {KEYS} {keys} owner-{n} LEASE 600000 WAIT 60000");
        let (cost, waiter) = lookups(&machine, || waiting(&machine, 1, line));
        costs.push(cost);
        waiters.extend(waiter);
    }
    assert_eq!(machine.keyspace().parked(), KEYS * WAITERS);
    (machine, holder, waiters, costs)
}

#[test]
fn a_request_for_a_thousand_locks_takes_memory_and_work_for_each_of_them_once() {
    let (machine, mut holder, mut waiters, costs) = besieged(21);
    assert!(costs.iter().all(|cost| *cost <= LOOKUPS_PER_KEY * KEYS as u64), "{costs:?}");
    assert!(costs[WAITERS - 1] <= costs[1] + WAITERS as u64, "the number of those before it costs nothing");
    let bytes = machine.keyspace().ledger().bytes(Kind::Waits) / (KEYS * WAITERS) as u64;
    assert!((40..160).contains(&bytes), "{bytes} bytes for each lock of each request");

    // The first request is looked at once more for each release, and looks at one lock until that is free.
    let releases = (0..KEYS).map(|n| format!("LOCK.RELEASE key-{n:04} holder"));
    let (cost, ()) = lookups(&machine, || {
        releases.for_each(|line| assert_eq!(say(&machine, &mut holder, &line), ":1\r\n"));
    });
    assert!(cost <= 2 * LOOKUPS_PER_KEY * KEYS as u64, "{cost} for {KEYS} releases and one grant");
    assert!(machine.resume(&mut waiters[0]).starts_with("*6\r\n$5\r\ntoken\r\n:2\r\n"));
    assert_eq!(machine.keyspace().parked(), KEYS * (WAITERS - 1));
    waiters.iter_mut().for_each(|session| machine.engine.disconnect(session));
    machine.engine.disconnect(&mut holder);
    assert_nothing_is_left(&machine);
    assert_eq!(machine.keyspace().ledger().bytes(Kind::Waits), 0);
}

#[test]
fn a_lock_that_is_released_and_taken_again_is_looked_at_once() {
    let (machine, mut holder, mut waiters, _) = besieged(22);
    // Each time another lock is the one that is free.
    for n in [0, KEYS - 1, KEYS / 2, 0, KEYS - 1] {
        let (cost, _) = lookups(&machine, || {
            assert_eq!(say(&machine, &mut holder, &format!("LOCK.RELEASE key-{n:04} holder")), ":1\r\n");
            assert_eq!(say(&machine, &mut holder, &format!("SET key-{n:04} holder PX 600000")), "+OK\r\n");
        });
        assert!(cost < 50, "{cost}");
    }
    waiters.iter_mut().for_each(|session| machine.engine.disconnect(session));
}

#[test]
fn requests_that_time_out_or_lose_their_connection_leave_at_the_cost_of_their_keys() {
    let (machine, _holder, mut waiters, _) = besieged(23);
    let bound = (LOOKUPS_PER_KEY as usize * KEYS * WAITERS / 2) as u64;
    let (first, last) = waiters.split_at_mut(WAITERS / 2);
    let (cost, ()) = lookups(&machine, || {
        first.iter_mut().for_each(|session| machine.engine.disconnect(session));
    });
    assert!(cost <= bound, "{cost} when connections end");
    machine.clock.advance(60_001);
    while machine.tick() == Due::More {}
    let (cost, ()) = lookups(&machine, || {
        last.iter_mut().for_each(|session| assert_eq!(machine.resume(session), "*-1\r\n"));
    });
    assert!(cost <= bound, "{cost} when waits time out");
    assert_nothing_is_left(&machine);
    assert_eq!(machine.keyspace().ledger().bytes(Kind::Waits), 0);
}

// Of 1,000 locks 998 are free, and the first of the queue needs one more: each change of its queue makes the server look at
// all of these locks again.
#[test]
fn a_request_for_many_of_a_thousand_locks_looks_at_a_lock_when_that_changes() {
    let machine = Machine::unrecorded(25);
    let (mut holder, keys, bound) = (machine.connect(), keys(), LOOKUPS_PER_KEY * KEYS as u64);
    say(&machine, &mut holder, &format!("LOCK.MACQUIRE {KEYS} {keys} holder LEASE 600000"));
    let any = |n: usize| format!("LOCK.MACQUIRE {KEYS} {keys} owner-{n} ANY 999 WAIT 60000 JUSTTOKEN");
    let (cost, mut waiters) = lookups(&machine, || waiting(&machine, 4, any));
    assert!(cost <= 4 * bound, "{cost} to wait");
    let (cost, ()) = lookups(&machine, || {
        for n in 0..KEYS - 2 {
            assert_eq!(say(&machine, &mut holder, &format!("LOCK.RELEASE key-{n:04} holder")), ":1\r\n");
        }
    });
    assert!(cost <= 2 * bound, "{cost} for the releases of all locks but two");
    // One behind it leaves, and then the first.
    for at in [2, 0] {
        let (cost, ()) = lookups(&machine, || machine.engine.disconnect(&mut waiters[at]));
        assert!(cost <= 2 * bound, "{cost} when request {at} leaves");
    }
    let (cost, _) = lookups(&machine, || say(&machine, &mut holder, "LOCK.RELEASE key-0998 holder"));
    assert!(cost <= 3 * bound, "{cost} for the grant");
    assert!(
        machine.resume(&mut waiters[1]).starts_with("*1998\r\n$8\r\nkey-0000\r\n:2\r\n"),
        "its 999 locks"
    );
    let bytes = machine.keyspace().ledger().bytes(Kind::Waits) / KEYS as u64;
    assert!(bytes < 600, "{bytes} bytes for each lock of the only request that waits, and its queue");
    waiters.iter_mut().for_each(|session| machine.engine.disconnect(session));
    machine.engine.disconnect(&mut holder);
    assert_nothing_is_left(&machine);
    assert_eq!(machine.keyspace().ledger().bytes(Kind::Waits), 0);
}

/// Owners of which each holds a lock and waits for that of the next. Returns the answer to the last, which closes the circle,
/// and the look-ups for it.
fn circle(owners: usize) -> (String, u64) {
    let machine = Machine::unrecorded(24);
    let mut sessions: Vec<Session> = (0..owners).map(|_| machine.connect()).collect();
    for (n, session) in sessions.iter_mut().enumerate() {
        say(&machine, session, &format!("LOCK.ACQUIRE key-{n} owner-{n} LEASE 600000"));
    }
    let (last, others) = sessions.split_last_mut().unwrap();
    for (n, session) in others.iter_mut().enumerate() {
        let next = n + 1;
        assert_eq!(say(&machine, session, &format!("LOCK.ACQUIRE key-{next} owner-{n} WAIT 60000")), "");
    }
    let owner = owners - 1;
    let line = format!("LOCK.ACQUIRE key-0 owner-{owner} WAIT 60000");
    let (cost, said) = lookups(&machine, || say(&machine, last, &line));
    assert_eq!(said, "");
    let answer = if last.client.has_messages() { machine.resume(last) } else { String::new() };
    if answer.is_empty() {
        machine.clock.advance(60_001);
        while machine.tick() == Due::More {}
        assert_eq!(machine.resume(last), "*-1\r\n", "its timeout ends it");
    }
    (answer, cost)
}

#[test]
fn a_circle_of_three_thousand_owners_is_refused_and_a_larger_one_ends_by_its_timeout() {
    let (answer, _) = circle(3_000);
    assert!(
        answer.starts_with("-DEADLOCK key-0 (held by owner-0) -> key-1 (held by owner-1) -> "),
        "{answer}"
    );
    assert!(answer.ends_with(" -> 2984 more -> key-0\r\n") && answer.len() < 2_000, "{answer}");
    let (answer, cost) = circle(4_000);
    assert_eq!(answer, "", "docs/waiting.md says how far the search goes");
    assert!(cost < 30_000, "{cost} look-ups");
}

#[test]
fn the_searches_of_one_client_for_circles_have_a_budget_in_each_second() {
    let machine = Machine::unrecorded(25);
    let mut chain: Vec<Session> = (0..3_500).map(|_| machine.connect()).collect();
    for (n, session) in chain.iter_mut().enumerate() {
        say(&machine, session, &format!("LOCK.ACQUIRE key-{n} owner-{n} LEASE 600000"));
    }
    for (n, session) in chain.iter_mut().enumerate().rev().skip(1) {
        let next = n + 1;
        assert_eq!(say(&machine, session, &format!("LOCK.ACQUIRE key-{next} owner-{n} WAIT 600000")), "");
    }
    let (mut client, mut other) = (machine.connect(), machine.connect());
    let (cost, ()) = lookups(&machine, || {
        for _ in 0..100 {
            assert_eq!(say(&machine, &mut client, "LOCK.ACQUIRE key-0 guest WAIT 1"), "");
            machine.clock.advance(2);
            assert_eq!(machine.resume(&mut client), "*-1\r\n");
        }
    });
    assert!(cost < 40_000, "{cost} look-ups for 100 requests in 200 ms");

    // Others close circles as before; this client does again a second later.
    say(&machine, &mut client, "LOCK.ACQUIRE mine guest LEASE 600000");
    say(&machine, &mut other, "LOCK.ACQUIRE theirs other LEASE 600000");
    assert_eq!(say(&machine, &mut other, "LOCK.ACQUIRE mine other WAIT 600000"), "");
    assert_eq!(say(&machine, &mut client, "LOCK.ACQUIRE theirs guest WAIT 1"), "");
    assert!(!client.client.has_messages(), "the budget of this second is used up");
    machine.clock.advance(1_000);
    assert_eq!(machine.resume(&mut client), "*-1\r\n");
    assert_eq!(say(&machine, &mut client, "LOCK.ACQUIRE theirs guest WAIT 1"), "");
    assert!(
        machine.resume(&mut client).starts_with("-DEADLOCK theirs (held by other) -> mine (held by guest)")
    );
}
