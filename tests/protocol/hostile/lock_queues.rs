//! LOCK commands under hostile clients: queues, names, sessions and numbers, on the engine without sockets.

use redlatch_core::engine::Flow;
use redlatch_core::keyspace::Due;
use redlatch_core::state::session::Session;
use redlatch_proto::resp::Request;

use super::fixture::{Fixture, costs_at_most};
use crate::simulation::parts::Machine;
use crate::support::reply::Reply;

/// Sends words of any bytes; returns the reply, which is empty if the request waits.
pub(super) fn ask(machine: &Machine, session: &mut Session, words: &[&[u8]]) -> Vec<u8> {
    let (mut batch, mut out) = (machine.engine.batch(), Vec::new());
    let flow = machine.engine.execute(session, Request::listed(words), &mut batch, &mut out);
    assert!(matches!(flow, Flow::Next | Flow::Wait), "{flow:?}");
    machine.engine.end_batch(session, batch);
    out
}

/// Sends a line of words.
pub(super) fn say(machine: &Machine, session: &mut Session, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8_lossy(&ask(machine, session, &words)).into_owned()
}

/// Clients that wait, each with a request that `line` gives for its number.
pub(super) fn waiting(machine: &Machine, count: usize, line: impl Fn(usize) -> String) -> Vec<Session> {
    let mut sessions: Vec<Session> = (0..count).map(|_| machine.connect()).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        assert_eq!(say(machine, session, &line(number)), "", "it waits");
    }
    sessions
}

pub(super) fn assert_nothing_is_left(machine: &Machine) {
    let shared = machine.engine.shared();
    assert_eq!(shared.keyspace.parked(), 0, "entries of queues");
    assert_eq!(shared.locks.waits.len(), 0, "requests");
    assert!(shared.registries.lock_sessions.is_empty(), "sessions");
    shared.keyspace.assert_laws();
}

#[test]
fn a_hundred_thousand_requests_for_one_lock_fill_its_queue_and_no_memory() {
    costs_at_most(192, |look| {
        let machine = Machine::unrecorded(1);
        let mut holder = machine.connect();
        say(&machine, &mut holder, "LOCK.ACQUIRE k holder LEASE 60000");
        let mut queue = waiting(&machine, 10_000, |n| format!("LOCK.ACQUIRE k owner-{n} WAIT 60000"));
        look();
        let refused = "-ERR 10000 requests wait for this lock already (lock-waiters-max)\r\n";
        let mut late = machine.connect();
        let several = say(&machine, &mut late, "LOCK.MACQUIRE 2 k other late WAIT 60000");
        assert_eq!(several, refused);
        for _ in 0..90_000 {
            let (mut batch, mut out) = (machine.engine.batch(), Vec::new());
            let words: [&[u8]; 5] = [b"LOCK.ACQUIRE", b"k", b"late", b"WAIT", b"60000"];
            machine.engine.execute(&mut late, Request::listed(&words), &mut batch, &mut out);
            assert_eq!(out, refused.as_bytes());
        }
        look();
        assert_eq!(machine.keyspace().parked(), 10_000);
        // One is woken, and then there is one place again.
        assert_eq!(say(&machine, &mut holder, "LOCK.RELEASE k holder"), ":1\r\n");
        let woken = queue.iter().filter(|session| session.client.has_messages()).count();
        assert_eq!((woken, queue[0].client.has_messages()), (1, true), "the first alone");
        machine.resume(&mut queue[0]);
        assert_eq!(say(&machine, &mut late, "LOCK.ACQUIRE k late WAIT 60000"), "");
        queue.push(late);
        queue.iter_mut().for_each(|session| machine.engine.disconnect(session));
        assert_nothing_is_left(&machine);
    });
}

#[test]
fn ten_thousand_clients_that_wait_leave_at_once() {
    let machine = Machine::unrecorded(2);
    let mut holder = machine.connect();
    say(&machine, &mut holder, "LOCK.MACQUIRE 3 a b c holder LEASE 60000");
    let lines = |n: usize| match n % 3 {
        0 => format!("LOCK.MACQUIRE 3 a b c owner-{n} SESSION WAIT 60000"),
        1 => format!("LOCK.ACQUIRE a owner-{n} SHARED SESSION WAIT 60000"),
        _ => format!("LOCK.ACQUIRE b owner-{n} PERMITS 2 OF 3 WAIT 60000"),
    };
    let mut sessions = waiting(&machine, 10_000, lines);
    assert_eq!(machine.keyspace().parked(), 10_000 + 2 * 3_334);
    let (first, last) = sessions.split_at_mut(5_000);
    first.iter_mut().chain(last.iter_mut().rev()).for_each(|session| machine.engine.disconnect(session));
    assert_eq!(machine.keyspace().parked(), 0);
    assert_eq!(say(&machine, &mut holder, "LOCK.RELEASE a holder"), ":1\r\n", "it has kept its lock");
    machine.engine.disconnect(&mut holder);
    assert_nothing_is_left(&machine);
}

#[test]
fn ten_thousand_readers_are_woken_by_one_release_and_leave_in_any_order() {
    let machine = Machine::unrecorded(3);
    let mut writer = machine.connect();
    say(&machine, &mut writer, "LOCK.ACQUIRE k writer LEASE 60000");
    let mut readers =
        waiting(&machine, 10_000, |n| format!("LOCK.ACQUIRE k reader-{n} SHARED SESSION WAIT 60000"));
    say(&machine, &mut writer, "LOCK.RELEASE k writer");
    for reader in &mut readers {
        assert!(machine.resume(reader).starts_with("*6\r\n$5\r\ntoken\r\n:"), "it reads with the others");
    }
    assert_eq!(machine.keyspace().parked(), 0);
    let (first, last) = readers.split_at_mut(5_000);
    first.iter_mut().chain(last.iter_mut().rev()).for_each(|reader| machine.engine.disconnect(reader));
    assert_eq!(say(&machine, &mut writer, "EXISTS k"), ":0\r\n", "the last one has left");
    assert_nothing_is_left(&machine);
}

#[test]
fn twenty_thousand_leases_of_one_lock_end_one_after_the_other() {
    let machine = Machine::unrecorded(4);
    let mut client = machine.connect();
    for number in 0..20_000 {
        say(&machine, &mut client, &format!("LOCK.ACQUIRE k {number} SHARED LEASE {}", 100 + number % 10));
    }
    say(&machine, &mut client, "LOCK.ACQUIRE k last SHARED LEASE 60000");
    machine.clock.advance(200);
    while machine.tick() == Due::More {}
    let answer = say(&machine, &mut client, "LOCK.WHO k");
    assert_eq!(answer.matches("owner").count(), 1, "one holder is left");
    assert_eq!(say(&machine, &mut client, "LOCK.RELEASE k last"), ":1\r\n");
    assert_nothing_is_left(&machine);
}

#[test]
fn keys_and_owners_of_any_bytes_come_back_as_they_were_and_break_no_reply() {
    let names: [&[u8]; 7] =
        [b"\r\n", b"\0", b"\xff\xfe", b" a b ", b"*1\r\n$4\r\nQUIT\r\n", b"-ERR\n", b"\"'\\{}"];
    for protocol in ["2", "3"] {
        let machine = Machine::unrecorded(5);
        let [mut one, mut two, mut three] = [(); 3].map(|()| machine.connect());
        for session in [&mut one, &mut two, &mut three] {
            say(&machine, session, &format!("HELLO {protocol}"));
        }
        let whole = |bytes: &[u8], holds: &[&[u8]]| {
            let read = Reply::read(bytes).expect("a frame").map(|(_, length)| length);
            assert_eq!(
                read,
                Some(bytes.len()),
                "one frame and no more: {:?}",
                bytes.escape_ascii().to_string()
            );
            for name in holds {
                let framed = [format!("${}\r\n", name.len()).as_bytes(), name, b"\r\n"].concat();
                let is_there = bytes.windows(framed.len()).any(|window| window == framed);
                assert!(
                    is_there,
                    "{:?} in {:?}",
                    name.escape_ascii().to_string(),
                    bytes.escape_ascii().to_string()
                );
            }
        };
        for (key, owner) in names.iter().flat_map(|key| names.iter().map(move |owner| (*key, *owner))) {
            let other = [key, b"2"].concat();
            let rival = [owner, b"2"].concat();
            let meta: [&[u8]; 3] = [b"META", owner, key];
            whole(&ask(&machine, &mut one, &[&[b"LOCK.ACQUIRE", key, owner], &meta[..]].concat()), &[]);
            whole(&ask(&machine, &mut two, &[b"LOCK.ACQUIRE", &other, &rival, b"SHARED"]), &[]);
            assert!(ask(&machine, &mut one, &[b"LOCK.ACQUIRE", &other, owner, b"WAIT", b"99"]).is_empty());
            whole(&ask(&machine, &mut three, &[b"LOCK.WHO", key]), &[key, owner]);
            whole(&ask(&machine, &mut three, &[b"LOCK.WAITERS", &other]), &[owner]);
            whole(&ask(&machine, &mut three, &[b"LOCK.GRAPH"]), &[owner, &rival, &other]);
            whole(
                &ask(&machine, &mut three, &[b"LOCK.LIST", b"OWNER", owner, b"COUNT", b"99"]),
                &[key, owner],
            );
            whole(&ask(&machine, &mut three, &[b"CLIENT", b"LIST"]), &[]);
            assert!(ask(&machine, &mut two, &[b"LOCK.ACQUIRE", key, &rival, b"WAIT", b"99"]).is_empty());
            let circle = machine.resume(&mut two);
            assert!(circle.starts_with("-DEADLOCK "), "{circle:?}");
            whole(circle.as_bytes(), &[]);
            whole(&ask(&machine, &mut three, &[b"LOCK.ACQUIRE", key, b"third", b"WHY"]), &[owner, key]);
            let token = machine.keyspace().tokens().to_string();
            let words = [b"LOCK.BREAK", &other[..], b"TOKEN", token.as_bytes(), b"REASON", owner];
            assert_eq!(ask(&machine, &mut three, &words), b":1\r\n");
            let granted = machine.resume(&mut one);
            whole(granted.as_bytes(), &[]);
            let mut told = Vec::new();
            two.client.collect(&mut told);
            if protocol == "3" {
                whole(&told, &[&other]);
            }
            assert_eq!(ask(&machine, &mut one, &[b"LOCK.RELEASE", &other, owner]), b":1\r\n");
            assert_eq!(ask(&machine, &mut one, &[b"LOCK.RELEASE", key, owner]), b":1\r\n");
        }
        [one, two, three].iter_mut().for_each(|session| machine.engine.disconnect(session));
        assert_nothing_is_left(&machine);
    }
}

#[test]
fn owners_and_meta_may_be_as_long_as_the_limits_say() {
    let machine = Machine::unrecorded(6);
    let mut client = machine.connect();
    let text = vec![b'x'; 4097];
    let mut starts = |words: &[&[u8]], start: &str| {
        let answer = ask(&machine, &mut client, words);
        assert!(answer.starts_with(start.as_bytes()), "{start}: {:?}", String::from_utf8_lossy(&answer));
    };
    starts(&[b"LOCK.ACQUIRE", b"k", &text[..1024]], "*6");
    starts(&[b"LOCK.RELEASE", b"k", &text[..1024]], ":1");
    starts(&[b"LOCK.ACQUIRE", b"k", &text[..1025]], "-ERR owner is longer than 1024 bytes");
    starts(&[b"LOCK.MACQUIRE", b"1", b"k", &text[..1025]], "-ERR owner is longer than 1024 bytes");
    starts(&[b"LOCK.RELEASE", b"k", &text[..1025]], "-ERR owner is longer");
    starts(&[b"LOCK.EXTEND", b"k", &text[..1025]], "-ERR owner is longer");
    starts(&[b"LOCK.ACQUIRE", b"k", b"me", b"META", b"f", &text[..4095]], "*6");
    starts(
        &[b"LOCK.ACQUIRE", b"k", b"me", b"META", b"f", &text[..4096]],
        "-ERR meta is longer than 4096 bytes",
    );
    // Many short fields are no way around the limit.
    let mut words: Vec<&[u8]> = vec![b"LOCK.ACQUIRE", b"k", b"me", b"META"];
    words.extend(std::iter::repeat_n(&b""[..], 100_000));
    starts(&words, "-ERR meta");
}

#[test]
fn many_keys_and_extreme_numbers_are_answered() {
    let machine = Machine::unrecorded(7);
    let [mut one, mut two] = [(); 2].map(|()| machine.connect());
    let keys: Vec<String> = (0..1_000).map(|n| format!("key-{n}")).collect();
    let all = keys.join(" ");
    let granted = say(&machine, &mut one, &format!("LOCK.MACQUIRE 1000 {all} me LEASE 60000"));
    assert!(granted.starts_with("*6\r\n$5\r\ntoken\r\n:1\r\n"), "{granted}");
    let waits = format!("LOCK.MACQUIRE 1000 {all} you LEASE 60000 WAIT 60000");
    assert_eq!(say(&machine, &mut two, &waits), "");
    for (number, key) in keys.iter().rev().enumerate() {
        assert!(!two.client.has_messages(), "{number} of 1000 are free");
        assert_eq!(say(&machine, &mut one, &format!("LOCK.RELEASE {key} me")), ":1\r\n");
    }
    assert!(machine.resume(&mut two).starts_with("*6\r\n$5\r\ntoken\r\n:2\r\n"));
    assert_eq!(machine.keyspace().parked(), 0);
    assert_eq!(say(&machine, &mut two, &format!("DEL {all}")), ":1000\r\n");
    let repeated = "k ".repeat(1_000);
    assert!(say(&machine, &mut one, &format!("LOCK.MACQUIRE 1000 {repeated}me")).starts_with("*6"));

    for count in ["0", "-1", "3", "4294967296", "9223372036854775807", "-9223372036854775808", "x", ""] {
        let answer = say(&machine, &mut one, &format!("LOCK.MACQUIRE {count} a b c"));
        assert!(answer.starts_with("-ERR "), "{count}: {answer}");
    }
    for line in [
        "LOCK.ACQUIRE n me LEASE 0",
        "LOCK.ACQUIRE n me LEASE -1",
        "LOCK.ACQUIRE n me LEASE 9223372036854775807",
        "LOCK.ACQUIRE n me WAIT -1",
        "LOCK.ACQUIRE n me WAIT 9223372036854775807",
        "LOCK.ACQUIRE n me SESSION DELAY -1",
        "LOCK.ACQUIRE n me SESSION DELAY 9223372036854775807",
        "LOCK.ACQUIRE n me PERMITS 0 OF 1",
        "LOCK.ACQUIRE n me PERMITS 1 OF 4294967296",
        "LOCK.ACQUIRE n me PERMITS -1 OF -1",
        "LOCK.ACQUIRE n me PERMITS 9223372036854775807 OF 9223372036854775807",
        "LOCK.BREAK n TOKEN 0",
        "LOCK.BREAK n TOKEN -9223372036854775808",
        "LOCK.GUARD n -1",
        "LOCK.LIST COUNT 0",
        "LOCK.LIST COUNT -1",
        "LOCK.LIST CURSOR x",
        "LOCK.LIST HELD-LONGER -1",
    ] {
        let answer = say(&machine, &mut one, line);
        assert!(answer.starts_with("-ERR "), "{line}: {answer}");
    }
    // The largest that are allowed.
    assert!(say(&machine, &mut one, "LOCK.ACQUIRE n me LEASE 70368744177664").starts_with("*6"));
    assert_eq!(say(&machine, &mut two, "LOCK.ACQUIRE n you WAIT 70368744177664"), "");
    assert!(say(&machine, &mut one, "LOCK.ACQUIRE p a PERMITS 2147483647 OF 2147483647").starts_with("*6"));
    assert_eq!(say(&machine, &mut one, "LOCK.ACQUIRE p b PERMITS 2147483647 OF 2147483647"), "*-1\r\n");
    assert!(say(&machine, &mut one, "LOCK.LIST COUNT 9223372036854775807").starts_with("*2\r\n$1\r\n0\r\n"));
    assert!(say(&machine, &mut one, "LOCK.LIST CURSOR 18446744073709551615").starts_with('*'));
    assert_eq!(say(&machine, &mut one, "LOCK.GUARD g 9223372036854775807"), ":1\r\n");
    assert!(say(&machine, &mut one, "LOCK.GUARD g 9223372036854775806").starts_with("-STALE "));
    [one, two].iter_mut().for_each(|session| machine.engine.disconnect(session));
    assert_nothing_is_left(&machine);
}

#[test]
fn a_session_cannot_be_guessed() {
    let machine = Machine::unrecorded(8);
    let [mut owner, mut thief] = [(); 2].map(|()| machine.connect());
    say(&machine, &mut owner, "LOCK.ACQUIRE k me SESSION");
    let id = say(&machine, &mut owner, "LOCK.SESSION ID").lines().nth(1).unwrap().to_owned();
    assert_eq!(id.len(), 16);
    let near = format!("{:016x}", u64::from_str_radix(&id, 16).unwrap() ^ 1);
    let long = format!("0{id}");
    let signed = format!("+{id}");
    for guess in [&near, "", "0", "-1", "ffffffffffffffff", "10000000000000000", &id[1..], &long, &signed] {
        let answer = ask(&machine, &mut thief, &[b"LOCK.SESSION", b"ATTACH", guess.as_bytes()]);
        assert_eq!(answer, b"-ERR no such session\r\n", "{guess}");
    }
    for guess in 0..1_000_u64 {
        let guess = format!("{:016x}", guess.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_eq!(
            say(&machine, &mut thief, &format!("LOCK.SESSION ATTACH {guess}")),
            "-ERR no such session\r\n"
        );
    }
    assert_eq!(
        ask(&machine, &mut thief, &[b"LOCK.SESSION", b"ATTACH", b"\xff"]),
        b"-ERR no such session\r\n"
    );
    assert_eq!(machine.engine.shared().registries.lock_sessions.len(), 1, "guesses begin no session");
    // Two sessions that begin one after the other have unrelated ids.
    let other = say(&machine, &mut thief, "LOCK.SESSION ID");
    assert_ne!(other.lines().nth(1).unwrap()[..8], id[..8]);
    [owner, thief].iter_mut().for_each(|session| machine.engine.disconnect(session));
    assert_nothing_is_left(&machine);
}

#[test]
fn sockets_that_close_while_they_wait_hand_the_lock_to_the_next_that_is_there() {
    let mut fixture = Fixture::set();
    let mut holder = fixture.peer();
    assert_eq!(holder.ask(b"LOCK.ACQUIRE k holder\r\n"), "*6");
    let waiters: Vec<_> = (0..500).map(|_| fixture.peer()).collect();
    for (number, waiter) in waiters.iter().enumerate() {
        waiter.send(format!("LOCK.ACQUIRE k owner-{number} WAIT 60000\r\n").as_bytes());
    }
    fixture.until("lock_waiters", |waiters| waiters == 500);
    let mut last = fixture.peer();
    last.send(b"LOCK.ACQUIRE k last WAIT 60000\r\n");
    fixture.until("lock_waiters", |waiters| waiters == 501);
    drop(waiters);
    fixture.until("lock_waiters", |waiters| waiters == 1);
    (0..5).for_each(|_| drop(holder.line()));
    holder.send(b"LOCK.RELEASE k holder\r\n");
    assert_eq!(last.line(), "*6");
    fixture.goes_on();
}
