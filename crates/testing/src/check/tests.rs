//! Each rule of the checker with a history that breaks it, and with one that does not.

use super::*;

/// A history, written as lines: `at client what ...`. A request gets its reply where it is not said to wait.
///
/// `A SET k v NX`: a request; `A holds k 1 v 30000`, `A renews k 1 v 30000`, `A ends k 1 v`, `A ends k 1 v - deleted`,
/// `A expired k 1 v`: what became of a lock. `A refused k v`, `A waits k v`, `A misses k v releases`: what became of a
/// request that changed none. A change behind a request belongs to it. `A < text`: the reply to the last request of A.
fn history(lines: &[&str]) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    let mut last: Option<u64> = None;
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let (at, name, rest) = (words[0].parse().unwrap(), words[1], &words[2..]);
        let (name, node) = name.split_once('@').unwrap_or((name, "1"));
        let kind = match rest[0] {
            "holds" => EventKind::Granted,
            "renews" => EventKind::Renewed,
            "ends" => EventKind::Released,
            "expired" => EventKind::Expired,
            "refused" => EventKind::Refused,
            "waits" => EventKind::Waits,
            "misses" => EventKind::Missed,
            "disconnects" => EventKind::Disconnect,
            "<" => EventKind::Reply,
            _ => EventKind::Request,
        };
        let mut event = Event {
            id: events.len() as u64 + 1,
            at,
            client: Some(u64::from(name.as_bytes()[0])),
            node: node.parse().unwrap(),
            key: rest.get(1).map(|key| Bytes::copy_from_slice(key.as_bytes())),
            ..Event::new(kind)
        };
        match kind {
            EventKind::Request => {
                let words = if rest[0].starts_with("TEST.") { 2 } else { 1 };
                event.command = Some(rest[..words].join(" ").into());
                event.args =
                    rest[words..].iter().map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
                last = Some(event.id);
            }
            EventKind::Reply => {
                let own = |other: &&Event| other.kind == EventKind::Request && other.client == event.client;
                event.request = events.iter().rfind(own).map(|request| request.id);
                event.reply = Some(rest[1].to_owned());
            }
            EventKind::Disconnect => {}
            EventKind::Missed | EventKind::Refused | EventKind::Waits => {
                event.request = last;
                event.holder = Some(Bytes::copy_from_slice(rest[2].as_bytes()));
                event.text = rest.get(3).map(|text| (*text).to_owned());
            }
            _ => {
                event.request = last.filter(|_| kind != EventKind::Expired);
                event.token = Some(rest[2].parse().unwrap());
                event.holder = Some(Bytes::copy_from_slice(rest[3].as_bytes()));
                event.lease = rest.get(4).and_then(|lease| lease.parse().ok());
                event.text = rest.get(5).map(|text| (*text).to_owned());
            }
        }
        events.push(event);
    }
    events
}

fn rules(lines: &[&str]) -> Vec<&'static str> {
    check(&history(lines)).iter().map(|finding| finding.rule.name()).collect()
}

const NONE: [&str; 0] = [];

#[test]
fn a_lock_that_is_taken_extended_and_released_in_time_is_well_used() {
    let good = [
        "0 A SET k a NX PX 30000",
        "0 A holds k 1 a 30000",
        "0 A < OK",
        "10000 A EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 k a 30000",
        "10000 A renews k 1 a 30000",
        "15000 A DELIFEQ k a",
        "15000 A ends k 1 a",
        "15000 B SET k b NX PX 30000",
        "15000 B holds k 2 b 30000",
    ];
    assert_eq!(rules(&good), NONE);
}

#[test]
fn two_holders_are_found_while_the_lease_of_the_first_has_not_ended() {
    let second = |at: u64| format!("{at} C SET k c NX PX 30000");
    let holds = |at: u64| format!("{at} C holds k 2 c 30000");
    let run = |at, end: &[&str]| {
        let (second, holds) = (second(at), holds(at));
        let begin = ["0 A SET k a NX PX 30000", "0 A holds k 1 a 30000"];
        let all: Vec<&str> = begin.iter().chain(end).copied().chain([&second[..], &holds]).collect();
        rules(&all)
    };
    assert_eq!(run(20_000, &["10000 B LOCK.BREAK k", "10000 A ends k 1 a - broken"]), ["two-holders"]);
    assert_eq!(run(20_000, &[]), ["two-holders"], "its node has lost the lock");
    assert_eq!(run(20_000, &["10000 A expired k 1 a"]), ["two-holders"], "it has ended too early");
    assert_eq!(run(30_001, &["30001 A expired k 1 a"]), NONE);
    assert_eq!(run(20_000, &["10000 A DELIFEQ k a", "10000 A ends k 1 a"]), NONE);
    assert_eq!(run(20_000, &["10000 B FLUSHALL", "10000 A ends k 1 a - flushed"]), NONE);
}

#[test]
fn a_lock_that_ends_without_a_request_is_owed_unless_its_client_is_gone() {
    let run = |first: &[&str]| {
        // What ends a lock without a request comes first here: later changes would belong to the last request.
        let mut events = history(first);
        for event in events.iter_mut().filter(|event| event.kind == EventKind::Released) {
            event.request = None;
        }
        check(&events).iter().map(|finding| finding.rule.name()).collect::<Vec<_>>()
    };
    let crash =
        ["0 A SET k a NX PX 300", "0 A holds k 1 a 300", "0 A < OK", "9 A ends k 1 a", "9 B holds k 2 b 300"];
    assert_eq!(run(&crash), ["two-holders"], "its node has crashed");
    assert_eq!(run(&[crash[0], crash[1], crash[3], crash[4]]), NONE, "its client has read no reply");
    let session = ["0 A LOCK.ACQUIRE k a SESSION", "0 A holds k 1 a", "0 A < [token,1]", crash[3], crash[4]];
    assert_eq!(run(&session), NONE, "its session has ended");
}

#[test]
fn a_shared_lock_may_have_several_holders() {
    let shared = ["0 A holds k 1 a 30000 shared", "1 B holds k 2 b 30000 shared"];
    assert_eq!(rules(&shared), NONE);
}

#[test]
fn on_several_nodes_only_a_majority_holds_a_lock() {
    let first = ["0 A@1 holds k 1 a 30000", "0 A@2 holds k 1 a 30000", "0 A@3 holds k 1 a 30000"];
    let crashed = |nodes: &[&'static str]| {
        let mut lines = first.to_vec();
        lines.extend(nodes);
        rules(&lines)
    };
    assert_eq!(crashed(&["9 B@2 holds k 1 b 30000"]), NONE, "one node of three");
    let two = ["9 B@2 holds k 1 b 30000", "9 B@3 holds k 2 b 30000"];
    assert_eq!(crashed(&two), ["two-holders"]);
}

#[test]
fn a_lock_that_moves_goes_on_at_another_node() {
    let (taken, there) = ("0 A@3 holds k 1 a 30000", "5 A@3 ends k 1 a - moved");
    let released = [taken, there, "9 A@1 LOCK.RELEASE k a", "9 A@1 ends k 1 a"];
    assert_eq!(rules(&[&released[..], &["10 B@1 holds k 2 b 30000"]].concat()), NONE);
    let back =
        ["9 C@1 holds k 2 c 10", "9 C@1 LOCK.RELEASE k c", "9 C@1 ends k 2 c", "9 B@3 holds k 3 b 30000"];
    assert_eq!(rules(&[&released[..], &back].concat()), NONE);
    assert_eq!(rules(&[taken, there, "9 B@1 holds k 2 b 30000"]), ["two-holders"]);
    assert_eq!(rules(&[taken, there, "30001 A@1 expired k 1 a", "30001 B@1 holds k 2 b 9"]), NONE);
}

#[test]
fn a_release_by_another_client_is_found() {
    let taken = "0 A holds k 1 a 30000";
    let foreign = [taken, "5 B EVAL x 1 k", "5 A ends k 1 a - deleted"];
    assert_eq!(rules(&foreign), ["foreign-delete"]);
    let compares = [taken, "5 B EVAL x 1 k a", foreign[2]];
    assert_eq!(rules(&compares), NONE, "the script may compare the value");
    let missed = [taken, "5 B LOCK.RELEASE k b", "5 B misses k b releases"];
    assert_eq!(rules(&missed), ["foreign-delete"], "it was refused, and is wrong");
    assert_eq!(rules(&[taken, "5 B LOCK.EXTEND k b", "5 B misses k b extends"]), NONE);
    assert_eq!(rules(&[taken, "5 B LOCK.RELEASE k a", "5 A ends k 1 a"]), NONE, "another connection of A");
    assert_eq!(rules(&[taken, "5 A EVAL x 1 k", "5 A ends k 1 a"]), NONE);
    assert_eq!(rules(&[taken, "5 B LOCK.BREAK k", "5 A ends k 1 a - broken"]), NONE, "that is meant");
}

#[test]
fn work_after_the_lease_is_found() {
    let late =
        ["0 A holds k 1 a 100", "101 A expired k 1 a", "150 A LOCK.RELEASE k a", "150 A misses k a releases"];
    let findings = check(&history(&late));
    assert_eq!((findings[0].rule, &findings[0].events[..]), (Rule::Late, &[1, 2, 3][..]));
    assert!(findings[0].text.contains("releases k 49 ms after"), "{}", findings[0].text);
    assert!(findings[0].lines[1].contains("the lease of k has ended"), "{:?}", findings[0].lines);
    assert_eq!(findings.len(), 1);
    let findings = check(&history(&[late[0], "50 A LOCK.RELEASE k a", late[1], late[3]]));
    assert_eq!((findings[0].rule, &findings[0].events[..]), (Rule::Late, &[1, 2, 3][..]), "it was delayed");
    assert!(findings[0].text.contains("releases k 49 ms after"), "{}", findings[0].text);
    let script = [late[0], late[1], "150 A EVAL text 1 k a"];
    assert_eq!(rules(&script), ["late"], "a script that is not known");
    let taken = [script[0], script[1], script[2], "150 A holds k 2 a 100"];
    assert_eq!(rules(&taken), NONE, "the script takes the lock");
    let tells = [script[0], script[1], script[2], late[3]];
    assert_eq!(rules(&tells), ["late"], "it is known what the script does");
    let again = [late[0], late[1], "120 A holds k 2 a 100", late[2]];
    assert_eq!(rules(&again), NONE, "it has taken the lock again");
    assert_eq!(rules(&["0 A holds k 1 a 100", "50 A LOCK.RELEASE k a", "50 A ends k 1 a"]), NONE);
}

#[test]
fn an_extension_in_the_last_third_of_the_lease_is_late() {
    let at = |at: u64| rules(&["0 A holds k 1 a 300", &format!("{at} A renews k 1 a 300")]);
    assert_eq!([at(200).len(), at(201).len(), at(299).len()], [0, 1, 1]);
    assert_eq!(at(299), ["late-renewal"]);
    let stepped = ["0 A holds k 1 a 300", "9 B TEST.CLOCK STEP-WALL 250", "259 A renews k 1 a 300"];
    assert_eq!(rules(&stepped), NONE, "a step of the wall clock is no time");
}

#[test]
fn a_delete_without_comparison_is_found_even_by_the_holder() {
    let taken = "0 A holds k 1 a 30000";
    assert_eq!(rules(&[taken, "5 A DEL k", "5 A ends k 1 a"]), ["blind-delete"]);
    assert_eq!(rules(&[taken, "5 B DEL k", "5 A ends k 1 a - deleted"]), ["foreign-delete", "blind-delete"]);
    assert_eq!(rules(&[taken, "5 A DELEX k IFEQ a", "5 A ends k 1 a"]), NONE);
    assert_eq!(rules(&[taken, "5 A DELEX k IFDEQ e6c632b61e964e1f", "5 A ends k 1 a"]), NONE);
    assert_eq!(rules(&["5 A DEL k"]), NONE, "it was no lock");
}

#[test]
fn a_lock_that_never_gets_a_lease_is_found() {
    assert_eq!(rules(&["0 A SETNX k a", "0 A holds k 1 a"]), ["no-lease"]);
    let later = ["0 A SETNX k a", "0 A holds k 1 a", "1 A EXPIRE k 30", "1 A renews k 1 a 30000"];
    assert_eq!(rules(&later), NONE);
    assert_eq!(rules(&["0 A LOCK.ACQUIRE k a SESSION", "0 A holds k 1 a"]), NONE);
    assert_eq!(rules(&["0 A holds k 1 a - session"]), NONE);
}

#[test]
fn a_client_that_waits_for_a_free_lock_is_found() {
    let begin = [
        "0 A holds k 1 a 100", "1 B SET k b NX PX 100", "1 B refused k b", "1 B < nil", "2 B BLPOP signal 0",
        "101 A expired k 1 a",
    ];
    let with = |more: &[&'static str]| {
        let mut lines = begin.to_vec();
        lines.extend(more);
        rules(&lines)
    };
    assert_eq!(with(&["900 C PING"]), ["never-served"], "nobody pushes when a lease ends");
    assert_eq!(with(&["900 B < nil"]), ["never-served"], "until its timeout");
    assert_eq!(with(&["101 B < [signal,1]"]), NONE);
    assert_eq!(with(&["900 C SET k c NX PX 100", "900 C holds k 2 c 100"]), NONE, "it is not free any more");
    assert_eq!(rules(&[begin[0], begin[4], begin[5], "900 C PING"]), NONE, "it waits for something else");
    let queued = [begin[0], "1 B LOCK.ACQUIRE k b LEASE 9 WAIT 999", "1 B waits k b", begin[5]];
    let then = |more: &[&'static str]| rules(&[&queued[..], more].concat());
    assert_eq!(then(&["900 C PING"]), ["never-served"]);
    assert_eq!(then(&["101 B holds k 2 b 9", "900 C PING"]), NONE);
    assert_eq!(then(&["500 B disconnects", "900 C PING"]), ["never-served"], "until it left");
    let left = [queued[0], queued[1], queued[2], "50 B disconnects", begin[5], "900 C PING"];
    assert_eq!(rules(&left), NONE, "it did not wait any more");
}

#[test]
fn a_request_for_several_locks_ought_to_be_served_once_all_are_free() {
    let held = ["0 A holds a 1 a 5000", "0 B holds b 2 b 5000"];
    let waits = ["1 C LOCK.MACQUIRE 2 a b c WAIT 999", "1 C waits a c", "1 C waits b c"];
    let frees = |name: &str, key: &str, token: u8| {
        let owner = name.to_lowercase();
        [format!("9 {name} LOCK.RELEASE {key} {owner}"), format!("9 {name} ends {key} {token} {owner}")]
    };
    let (a, b) = (frees("A", "a", 1), frees("B", "b", 2));
    let run = |parts: &[&[&str]]| rules(&[&held[..], &parts.concat()].concat());
    let (a, b) = (a.each_ref().map(|line| &line[..]), b.each_ref().map(|line| &line[..]));
    let later = ["1000 C < nil"];
    assert_eq!(run(&[&waits, &a, &later]), NONE, "the other one is held");
    assert_eq!(run(&[&waits, &a, &b, &later]), ["never-served"]);
    assert_eq!(run(&[&waits, &a, &b, &["9 C holds a 3 c 99", "9 C holds b 3 c 99"], &later]), NONE);
    assert_eq!(
        run(&[&waits, &a, &b, &["9 D holds b 3 d 99"], &later]),
        NONE,
        "another request was before it"
    );
    let any = ["1 C LOCK.MACQUIRE 2 a b c ANY 1 WAIT 999", waits[1], waits[2]];
    assert_eq!(run(&[&any, &a, &b, &later]), ["never-served"]);
    // It keeps a lock that is free from those behind it.
    let behind = ["2 D LOCK.ACQUIRE a d WAIT 999", "2 D waits a d"];
    assert_eq!(
        run(&[&waits, &behind, &a, &["1000 D < nil"], &later]),
        NONE,
        "it is behind C, which waits for b"
    );
    let between = ["2 E LOCK.MACQUIRE 2 a e e WAIT 999", "2 E waits a e", "2 E waits e e"];
    let last = [
        "3 D LOCK.ACQUIRE e d WAIT 999", "3 D waits e d", "3 F holds e 9 f 99", "4 F LOCK.RELEASE e f",
        "4 F ends e 9 f",
    ];
    assert_eq!(
        run(&[&waits, &between, &last, &["1000 D < nil"], &later]),
        NONE,
        "it is behind E, which is behind C"
    );
}

#[test]
fn a_crash_leaves_nobody_waiting() {
    let lines = ["0 A holds k 1 a 100", "1 B LOCK.ACQUIRE k b WAIT 999", "1 B waits k b"];
    let ends = ["2 A ends k 1 a - flushed"];
    // The clients of a node that crashes have gone before their locks end.
    let crash = [&lines[..], &["2 A disconnects", "2 B disconnects"], &ends, &["9 C PING"]].concat();
    assert_eq!(rules(&crash), NONE);
    // A request would have made it free.
    let request = [&lines[..], &["2 C FLUSHALL"], &ends, &["9 B disconnects"]].concat();
    assert_eq!(rules(&request), ["never-served"]);
}
