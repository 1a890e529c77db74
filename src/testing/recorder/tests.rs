//! The recorder alone: its bounds, the requests that it attributes changes to, and what a sink receives.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::*;
use crate::clock::{LockTime, Now};
use crate::journal::{Edit, HashEdit, Mutation};
use crate::types::lock::{Holder, LockKind};

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

fn append(journal: &dyn Journal, number: u64, mutations: &[Mutation]) {
    let mutations = &mutations.iter().collect();
    journal.append(&Record { number, now: LockTime::from_millis(0), lasts_until: LockTime::MAX, mutations });
}

fn grant(token: u64, holder: ClientId) -> Mutation {
    let (database, key, lease_ms) = (0, Bytes::from_static(b"k"), Some(100));
    let since = LockTime::from_millis(0);
    let (is_native, session, meta) = (false, None, Box::default());
    Mutation::Grant { database, key, token, holder, since, lease_ms, is_native, session, meta }
}

fn put(value: &'static str) -> Mutation {
    let (key, value) = (Bytes::from_static(b"k"), Bytes::from_static(value.as_bytes()));
    Mutation::Put { database: 0, key, value, deadline: None }
}

fn removed(expired: bool) -> Mutation {
    Mutation::Remove { database: 0, key: Bytes::from_static(b"k"), expired }
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
    assert_eq!(recorder.0.lock().bytes, events.iter().map(Event::bytes).sum::<usize>());
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
    let journal = recorder.journal(1, clock.clone(), None);
    let [holder, waiter, thief] = [(1, "a"), (2, "b"), (3, "c")].map(|(id, name)| client(id, name));
    recorder.request(moment(1), &holder, "SET", &[b"k", b"mine", b"NX"], &[b"k"]);
    append(&*journal, 0, &[put("mine"), grant(1, 1)]);
    recorder.reply(moment(1), &holder, b"+OK\r\n");
    recorder.request(moment(2), &waiter, "LOCK.ACQUIRE", &[b"k", b"b", b"WAIT", b"9"], &[b"k"]);
    recorder.waits(moment(2), &waiter);
    recorder.request(moment(3), &thief, "DEL", &[b"k"], &[b"k"]);
    append(&*journal, 1, &[removed(false), put("b"), grant(2, 2)]);
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
    clock.0.store(500, Relaxed);
    append(&*journal, 2, &[removed(true)]);
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
fn a_value_that_changes_ends_a_lock_and_a_new_deadline_renews_it() {
    let recorder = Arc::new(Recorder::default());
    let journal = recorder.journal(1, Arc::new(SetClock::default()), None);
    let deadline = |at| Some(crate::clock::Deadline::at(LockTime::from_millis(at)));
    let set_deadline =
        |at| Mutation::SetDeadline { database: 0, key: Bytes::from_static(b"k"), deadline: deadline(at) };
    append(&*journal, 0, &[put("mine"), grant(1, 0), set_deadline(300)]);
    append(&*journal, 1, &[put("another")]);
    append(&*journal, 2, &[set_deadline(400), removed(false), removed(true)]);
    let field = Edit::Hash(HashEdit::Set("owner".into(), "1".into()));
    let edit = Mutation::Edit { database: 0, key: Bytes::from_static(b"k"), edit: field };
    append(&*journal, 3, &[edit, set_deadline(100), grant(2, 0), Mutation::Swap { a: 0, b: 3 }]);
    append(&*journal, 4, &[Mutation::Clear { database: 0 }]);
    append(&*journal, 5, &[Mutation::Clear { database: 3 }]);
    let seen = lines(&recorder);
    assert_eq!(
        seen,
        [
            "nobody holds k, token 1 for 100 ms", "nobody renews k, token 1 for 300 ms",
            "nobody holds k no more, token 1", "nobody k has expired", "nobody holds k, token 2 for 100 ms",
            "nobody holds k no more, token 2",
        ]
    );
    let events = all(&recorder);
    assert_eq!(events[4].holder.as_deref(), Some(&b"owner"[..]), "the field of the hash");
}

#[test]
fn holders_of_a_shared_lock_come_and_go_by_themselves() {
    let (recorder, clock) = (Arc::new(Recorder::default()), Arc::new(SetClock::default()));
    let journal = recorder.journal(1, clock.clone(), None);
    let edit = |edit| Mutation::Edit { database: 0, key: Bytes::from_static(b"k"), edit: Edit::Lock(edit) };
    let put = |owner: &'static str, token, until| {
        let holder = Holder {
            token,
            client: 0,
            permits: 1,
            since: LockTime::from_millis(0),
            deadline: Some(crate::clock::Deadline::at(LockTime::from_millis(until))),
            lease_ms: Some(until),
            renewals: 0,
            session: None,
            meta: Box::default(),
        };
        edit(crate::journal::LockEdit::Put(LockKind::Shared, owner.into(), holder))
    };
    let leave = |owner: &'static str| edit(crate::journal::LockEdit::Remove(owner.into()));
    append(&*journal, 0, &[put("a", 1, 50)]);
    append(&*journal, 1, &[put("b", 2, 90)]);
    append(&*journal, 2, &[put("a", 1, 70)]);
    append(&*journal, 3, &[put("a", 1, 70)]);
    clock.0.store(71, Relaxed);
    append(&*journal, 4, &[leave("a")]);
    append(&*journal, 5, &[leave("b"), removed(false)]);
    let kinds: Vec<_> = all(&recorder).iter().map(|event| (event.kind, event.token)).collect();
    use EventKind::{Expired, Granted, Released, Renewed};
    let expected = [(Granted, 1), (Granted, 2), (Renewed, 1), (Expired, 1), (Released, 2)];
    assert_eq!(kinds, expected.map(|(kind, token)| (kind, Some(token))));
    assert_eq!(all(&recorder)[0].text.as_deref(), Some("shared"));
}

#[test]
fn a_sink_receives_each_event_until_it_is_told_to_stop() {
    struct Lines(Arc<AtomicUsize>);
    impl EventSink for Lines {
        fn write(&mut self, line: &str) {
            assert!(line.starts_with("{\"id\":") && !line.contains('\n'));
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (recorder, sender, count) = (Recorder::default(), client(1, "a"), Arc::new(AtomicUsize::new(0)));
    assert_eq!(recorder.end_writing(), None);
    assert!(recorder.begin_writing(Box::new(Lines(Arc::clone(&count)))));
    assert!(!recorder.begin_writing(Box::new(Lines(Arc::clone(&count)))));
    recorder.request(moment(1), &sender, "PING", &[], &[]);
    recorder.fault(moment(1), &sender, 4, "DROP-AFTER".to_owned());
    assert_eq!((recorder.end_writing(), count.load(Relaxed)), (Some(3), 3));
    recorder.reply(moment(1), &sender, b"+PONG\r\n");
    assert_eq!(count.load(Relaxed), 3);
    let events = all(&recorder);
    assert_eq!((events[2].fault, events[2].request), (Some(4), Some(events[1].id)));
}
