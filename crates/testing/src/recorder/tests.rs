//! The recorder alone: its bounds, and the requests that it attributes changes to.

use std::sync::atomic::Ordering::Relaxed;

use redlatch_core::keyspace::{Keyspace, Layout, ShardSet};
use redlatch_core::locks::RefusedBy;
use redlatch_core::state::settings::Events;
use redlatch_proto::clock::{LockTime, Now};

use super::*;

/// A clock that tests set.
#[derive(Default)]
struct SetClock(std::sync::atomic::AtomicU64);

impl Clock for SetClock {
    fn now(&self) -> Now {
        Now { lock: LockTime::from_millis(self.0.load(Relaxed)), wall_offset_ms: 1_000_000 }
    }

    fn micros(&self) -> u64 {
        0
    }

    fn wall_micros(&self) -> u64 {
        0
    }
}

fn client(id: ClientId, name: &str) -> Client {
    let client = Client::new(id, "127.0.0.1:9".to_owned(), String::new(), false, LockTime::from_millis(1));
    client.names.lock().name = name.to_owned();
    client
}

fn moment(unix_ms: u64) -> Moment {
    Moment { node: 1, unix_ms, real_micros: 7 }
}

fn all(recorder: &Recorder) -> Vec<Event> {
    recorder.events(&Filter::default(), usize::MAX)
}

fn lines(recorder: &Recorder) -> Vec<String> {
    let shown = all(recorder);
    let shown = shown.iter().filter(|event| event.kind != EventKind::Connect);
    shown.map(|event| format!("{} {}", event.who(), event.what())).collect()
}

/// An event of the lock `k`, which `client` holds, by a call of `author`.
fn lock_event(change: LockChange, token: u64, (client, author): (ClientId, ClientId)) -> LockEvent {
    LockEvent {
        change,
        database: 0,
        key: Bytes::from_static(b"k"),
        owner: Some(Bytes::from_static(b"mine")),
        kind: LockKind::Exclusive,
        token,
        with: token,
        client,
        is_native: false,
        session: None,
        lease_ms: Some(100),
        author,
        is_nested: false,
    }
}

fn ended(reason: EndReason, token: u64, clients: (ClientId, ClientId)) -> LockEvent {
    lock_event(LockChange::Ended(reason, None), token, clients)
}

/// Shows an event to the observer of node 1.
fn show(recorder: &Arc<Recorder>, clock: &Arc<SetClock>, event: &LockEvent) {
    let keyspace = Keyspace::new(Layout { shards: 1, databases: 1, seed: 7, journal: None }, || {});
    let mut view = View::lock(&keyspace, ShardSet::Nothing, 0, clock.now(), Events::default());
    recorder.observer(1, clock.clone()).see(event, &mut view, &Registries::default());
}

/// The request of client 2 for `k` comes to this.
fn ask(recorder: &Arc<Recorder>, clock: &Arc<SetClock>, outcome: RequestOutcome) {
    let keyspace = Keyspace::new(Layout { shards: 1, databases: 1, seed: 7, journal: None }, || {});
    let mut view = View::lock(&keyspace, ShardSet::Nothing, 0, clock.now(), Events::default());
    let event = RequestEvent {
        outcome,
        database: 0,
        keys: Box::new([Bytes::from_static(b"k")]),
        owner: Some(Bytes::from_static(b"mine")),
        client: 2,
        is_nested: false,
        wait: None,
        is_long_poll: false,
        late: None,
    };
    recorder.observer(1, clock.clone()).asked(&event, &mut view, &Registries::default());
}

#[test]
fn the_oldest_events_go_when_there_are_too_many_or_too_large_ones() {
    let (recorder, sender) = (Recorder::default(), client(1, "a"));
    for at in 0..EVENTS_MAX as u64 {
        recorder.request(moment(at), &sender, "PING", &[], &[]);
        recorder.reply(moment(at), &sender, b"+PONG\r\n");
    }
    let events = all(&recorder);
    assert_eq!(
        (events.len(), events.last().map(|event| event.id)),
        (EVENTS_MAX, Some(2 * EVENTS_MAX as u64 + 1))
    );
    let large = vec![b'x'; 1 << 20];
    let args = [&large[..]; 2 * ARGS_MAX];
    for at in 0..40 {
        recorder.request(moment(at), &sender, "SET", &args, &[&large]);
        recorder.reply(moment(at), &sender, b"+OK\r\n");
    }
    let events = all(&recorder);
    assert!(events.iter().map(Event::bytes).sum::<usize>() <= BYTES_MAX);
    let request = &events[events.len() - 2];
    assert_eq!((request.args.len(), request.args[0].len()), (ARGS_MAX + 1, ARG_BYTES_MAX));
    assert_eq!(request.args[ARGS_MAX], "... (128 more arguments)");
    assert_eq!(recorder.0.lock().charge.bytes(), events.iter().map(Event::bytes).sum::<usize>());
}

#[test]
fn a_request_that_is_tried_again_is_recorded_once() {
    let (recorder, sender) = (Recorder::default(), client(1, "a"));
    recorder.request(moment(1), &sender, "TEST.CHECK", &[], &[]);
    recorder.reply(moment(1), &sender, b"*0\r\n");
    assert_eq!(all(&recorder), [], "who only looks leaves no trace");
    for _ in 0..3 {
        recorder.request(moment(1), &sender, "GET", &[b"k"], &[b"k"]);
    }
    recorder.reply(moment(2), &sender, b"$-1\r\n");
    recorder.reply(moment(2), &sender, b"$-1\r\n");
    recorder.request(moment(3), &sender, "GET", &[b"k"], &[b"k"]);
    recorder.unanswered(moment(3), &sender);
    recorder.request(moment(4), &sender, "TEST.HISTORY", &[], &[]);
    recorder.request(moment(4), &sender, "TEST.CLOCK ADVANCE", &[b"5"], &[]);
    assert_eq!(lines(&recorder), ["a GET k", "a -> nil", "a GET k", "a TEST.CLOCK ADVANCE 5"]);
}

#[test]
fn the_end_of_a_lock_is_put_down_to_the_request_that_made_it() {
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(SetClock::default()));
    let [holder, waiter, thief] = [(1, "a"), (2, "b"), (3, "c")].map(|(id, name)| client(id, name));
    recorder.request(moment(1), &holder, "SET", &[b"k", b"mine", b"NX"], &[b"k"]);
    show(&recorder, &clock, &lock_event(LockChange::Granted, 1, (1, 1)));
    recorder.reply(moment(1), &holder, b"+OK\r\n");
    recorder.request(moment(2), &waiter, "LOCK.ACQUIRE", &[b"k", b"b", b"WAIT", b"9"], &[b"k"]);
    recorder.request(moment(3), &thief, "DEL", &[b"k"], &[b"k"]);
    show(&recorder, &clock, &ended(EndReason::Deleted, 1, (1, 3)));
    show(&recorder, &clock, &lock_event(LockChange::Granted, 2, (2, 3)));
    recorder.reply(moment(3), &thief, b":1\r\n");
    let events = all(&recorder);
    let request_of = |kind, token| {
        let event = events.iter().find(|event| event.kind == kind && event.token == Some(token));
        let request = event.and_then(|event| event.request);
        events.iter().find(|event| Some(event.id) == request).and_then(|event| event.command.clone())
    };
    assert_eq!(request_of(EventKind::Granted, 1).as_deref(), Some("SET"));
    assert_eq!(request_of(EventKind::Released, 1).as_deref(), Some("DEL"));
    assert_eq!(request_of(EventKind::Granted, 2).as_deref(), Some("LOCK.ACQUIRE"), "it was served");
    let released = events.iter().find(|event| event.kind == EventKind::Released);
    assert_eq!(released.and_then(|event| event.text.as_deref()), Some("deleted"));
    clock.0.store(500, Relaxed);
    show(&recorder, &clock, &ended(EndReason::Expired, 2, (2, 0)));
    let last = all(&recorder).pop().expect("an event");
    assert_eq!(
        (last.kind, last.request, last.client, last.at),
        (EventKind::Expired, None, Some(2), 1_000_500)
    );
    // Who has gone is forgotten, with its request.
    recorder.disconnected(moment(4), 2);
    assert_eq!(recorder.0.lock().clients.len(), 2);
}

#[test]
fn all_clients_of_a_node_that_crashes_have_gone_before_their_locks_end() {
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(SetClock::default()));
    let on_other_node = Moment { node: 2, ..moment(1) };
    for (moment, id, name) in [(moment(1), 1, "a"), (moment(1), 2, "b"), (on_other_node, 3, "c")] {
        recorder.request(moment, &client(id, name), "LOCK.ACQUIRE", &[b"k", b"x", b"WAIT", b"9"], &[b"k"]);
    }
    show(&recorder, &clock, &lock_event(LockChange::Granted, 1, (1, 1)));
    recorder.crashed(moment(2));
    show(&recorder, &clock, &ended(EndReason::Released, 1, (1, 0)));
    // Their connections notice it later.
    recorder.disconnected(moment(3), 1);
    let events = all(&recorder);
    let last: Vec<_> = events.iter().skip(7).map(|event| (event.kind, event.client, event.request)).collect();
    let gone = |client| (EventKind::Disconnect, Some(client), None);
    assert_eq!(last, [gone(1), gone(2), (EventKind::Released, Some(1), None)]);
}

#[test]
fn a_request_that_changes_no_lock_says_what_it_asked_for() {
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(SetClock::default()));
    recorder.request(moment(1), &client(2, "b"), "LOCK.EXTEND", &[b"k", b"mine"], &[b"k"]);
    let outcomes = [
        RequestOutcome::NotHeld(HolderRequest::Extend),
        RequestOutcome::NotHeld(HolderRequest::Release),
        RequestOutcome::Refused(RefusedBy::Held),
        RequestOutcome::Waits,
    ];
    for outcome in outcomes {
        ask(&recorder, &clock, outcome);
    }
    let expected = [
        "b LOCK.EXTEND k mine", "b extends k, which it does not hold",
        "b releases k, which it does not hold", "b is refused k", "b waits for k",
    ];
    assert_eq!(lines(&recorder), expected);
    let events = all(&recorder);
    let of_request = events.iter().filter(|event| event.request == Some(2) && event.client == Some(2));
    assert_eq!(of_request.filter(|event| event.holder.as_deref() == Some(b"mine")).count(), 4);
}

#[test]
fn the_lock_of_a_client_that_has_gone_ends_under_its_name() {
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(SetClock::default()));
    recorder.request(moment(1), &client(2, "rival"), "SET", &[b"k", b"mine"], &[b"k"]);
    show(&recorder, &clock, &lock_event(LockChange::Granted, 1, (2, 2)));
    recorder.disconnected(moment(4), 2);
    show(&recorder, &clock, &ended(EndReason::Deleted, 1, (2, 5)));
    assert_eq!(lines(&recorder).last().unwrap(), "rival holds k no more, token 1");
}

#[test]
fn an_event_says_whether_a_lock_is_shared_or_of_a_session() {
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(SetClock::default()));
    let granted = lock_event(LockChange::Granted, 1, (1, 1));
    show(&recorder, &clock, &LockEvent { kind: LockKind::Shared, ..granted.clone() });
    show(&recorder, &clock, &LockEvent { session: Some(9), lease_ms: None, ..granted.clone() });
    show(&recorder, &clock, &granted);
    show(&recorder, &clock, &ended(EndReason::Released, 1, (1, 1)));
    let events = all(&recorder);
    let texts: Vec<_> = events.iter().map(|event| event.text.as_deref()).collect();
    assert_eq!(texts, [Some("shared"), Some("session"), None, None]);
    let leases: Vec<_> = events.iter().map(|event| event.lease).collect();
    assert_eq!(leases, [Some(100), None, Some(100), None]);
}

#[test]
fn a_fault_names_the_request_that_it_has_met() {
    let (recorder, sender) = (Recorder::default(), client(1, "a"));
    recorder.request(moment(1), &sender, "PING", &[], &[]);
    recorder.fault(moment(1), &sender, 4, "DROP-AFTER".to_owned());
    let events = all(&recorder);
    assert_eq!((events[2].fault, events[2].request), (Some(4), Some(events[1].id)));
}
