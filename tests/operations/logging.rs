//! What the log says of locks, and what spans there are, on an engine whose clock the test moves.
//!
//! Belongs here  lines and spans that depend on time or on several clients. The form of lines: `process`; spans on the wire:
//!               `otlp`.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{Interest, set_global_default, with_default};
use tracing::{Event, Metadata};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::fmt::{MakeWriter, Subscriber};

use crate::support::engine::EngineTarget;
use crate::support::target::{Link, Target};
use crate::support::words::request;

/// The lines of a log, shared by its writers.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// The lines since the last call.
    fn take(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        String::from_utf8(bytes).unwrap().lines().map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        self.clone()
    }
}

/// The subscriber of threads that have no other: it wants nothing, and is asked each time.
///
/// A place in the code that is met first by another test, in the moment in which this one begins, could otherwise count as
/// one that nobody wants.
struct AskedEachTime;

impl tracing::Subscriber for AskedEachTime {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::sometimes()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Runs `test` with a server, and a log to which `subscriber` writes.
fn with_log(
    subscriber: impl tracing::Subscriber + Send + Sync,
    lines: &Lines,
    test: impl FnOnce(&mut EngineTarget, &Lines),
) {
    // An error says that it is set already.
    let _ = set_global_default(AskedEachTime);
    with_default(subscriber, || {
        // Places that were met before it was set are asked anew.
        tracing::callsite::rebuild_interest_cache();
        test(&mut EngineTarget::start(), lines);
    });
}

/// Runs `test` with a server and the log that it writes at the level `notice`.
fn logged(test: impl FnOnce(&mut EngineTarget, &Lines)) {
    let lines = Lines::default();
    let log = Subscriber::builder().without_time().with_target(false).with_ansi(false);
    with_log(log.with_writer(lines.clone()).finish(), &lines, test);
}

fn send(server: &mut EngineTarget, link: Link, line: &str) {
    server.send(link, &request(&line.split(' ').collect::<Vec<_>>()));
}

fn set(server: &EngineTarget, name: &str, value: &str) {
    server.shared().settings.set(name, value).unwrap();
}

fn pass(server: &mut EngineTarget, millis: u64) {
    server.advance(Duration::from_millis(millis));
}

/// The lines with these words.
fn with<'l>(lines: &'l [String], words: &str) -> Vec<&'l str> {
    lines.iter().map(String::as_str).filter(|line| line.contains(words)).collect()
}

const WAITS: &str = "A request waits for a lock for long";
const WAITED: &str = "A request that has waited for a lock for long has ended";
const HELD: &str = "A lock is held for long";

mod waits {
    use super::*;

    #[test]
    fn a_long_wait_is_logged_once_with_both_sides_and_once_again_when_it_is_granted() {
        logged(|server, log| {
            let [holder, first, second] = [(); 3].map(|()| server.connect());
            send(server, holder, "LOCK.ACQUIRE job:1 A LEASE 60000");
            pass(server, 250);
            send(server, first, "CLIENT SETNAME worker-7");
            send(server, first, "LOCK.ACQUIRE job:1 B WAIT 60000");
            send(server, second, "LOCK.ACQUIRE job:1 C WAIT 1500");
            pass(server, 999);
            assert_eq!(log.take(), Vec::<String>::new(), "nobody has waited for a second");

            pass(server, 1);
            let said = log.take();
            let expected = format!(
                "WARN {WAITS} key=job:1 owner=B client=2 peer=\"127.0.0.1:50001\" name=\"worker-7\" waited_ms=1000 \
                 how=\"queued\" position=1 queue=2 holder=A holders=1 holder_client=1 holder_peer=\"127.0.0.1:50000\" \
                 token=1 held_ms=1250 left_ms=58750"
            );
            assert_eq!(said[0], expected);
            assert!(said[1].contains("owner=C ") && said[1].contains(" position=2 "), "{said:?}");
            assert_eq!(said.len(), 2);

            pass(server, 2_214);
            let ended =
                format!("WARN {WAITED} key=job:1 owner=C client=3 peer=\"127.0.0.1:50002\" waited_ms=1501");
            let said = log.take();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with(&ended[..ended.len() - 1]), "{said:?}");
            assert!(said[0].ends_with("outcome=\"timed out\""), "{said:?}");
            send(server, holder, "LOCK.RELEASE job:1 A");
            let ended = "client=2 peer=\"127.0.0.1:50001\" waited_ms=3214 outcome=\"granted\" token=2";
            assert_eq!(log.take(), [format!("WARN {WAITED} key=job:1 owner=B {ended}")]);
            send(server, first, "LOCK.RELEASE job:1 B");
            pass(server, 60_000);
            assert_eq!(log.take(), Vec::<String>::new());
        });
    }

    #[test]
    fn each_end_of_a_long_wait_says_how() {
        logged(|server, log| {
            let [holder, gone, unblocked, other] = [(); 4].map(|()| server.connect());
            send(server, holder, "LOCK.ACQUIRE job A");
            for link in [gone, unblocked] {
                send(server, link, "LOCK.ACQUIRE job B WAIT 60000");
            }
            pass(server, 1_000);
            assert_eq!(with(&log.take(), WAITS).len(), 2);
            server.cut(gone);
            send(server, other, "CLIENT UNBLOCK 3");
            let said = log.take();
            let outcomes: Vec<&str> =
                with(&said, WAITED).iter().filter_map(|line| line.split("outcome=").nth(1)).collect();
            assert_eq!(outcomes, ["\"disconnected\"", "\"unblocked\""]);
        });
    }

    #[test]
    fn of_several_locks_the_one_is_named_that_another_holds() {
        logged(|server, log| {
            let [holder, waiter] = [(); 2].map(|()| server.connect());
            send(server, waiter, "LOCK.ACQUIRE a B");
            send(server, holder, "LOCK.ACQUIRE b A");
            send(server, waiter, "LOCK.MACQUIRE 2 a b B WAIT 60000");
            pass(server, 1_000);
            let said = log.take();
            assert!(said[0].contains("key=b owner=B ") && said[0].contains("holder=A "), "{said:?}");
        });
    }

    #[test]
    fn the_limit_changes_while_requests_wait_and_zero_turns_it_off() {
        logged(|server, log| {
            let [holder, waiter] = [(); 2].map(|()| server.connect());
            set(server, "lock-wait-warn", "0");
            send(server, holder, "LOCK.ACQUIRE job A");
            send(server, waiter, "LOCK.ACQUIRE job B WAIT 600000");
            pass(server, 20_000);
            assert_eq!(log.take(), Vec::<String>::new());
            set(server, "lock-wait-warn", "30000");
            // The lease ends before.
            send(server, holder, "LOCK.EXTEND job A LEASE 600000");
            pass(server, 9_999);
            assert_eq!(log.take(), Vec::<String>::new());
            pass(server, 1);
            assert!(log.take()[0].contains("waited_ms=30000 "));
        });
    }

    #[test]
    fn a_storm_of_waiters_leaves_ten_lines_a_second_and_a_count() {
        logged(|server, log| {
            let holder = server.connect();
            send(server, holder, "LOCK.ACQUIRE job A LEASE 600000");
            for n in 0..600 {
                let link = server.connect();
                send(server, link, &format!("LOCK.ACQUIRE job owner-{n} WAIT 600000"));
            }
            pass(server, 1_000);
            assert_eq!(with(&log.take(), WAITS).len(), 10);
            pass(server, 1_000);
            assert_eq!(log.take(), ["WARN More requests wait for locks for long left_out=590"]);
            pass(server, 10_000);
            assert_eq!(log.take(), Vec::<String>::new());
            // Only what was logged is logged again.
            send(server, holder, "LOCK.RELEASE job A");
            assert_eq!(with(&log.take(), WAITED).len(), 1);
        });
    }

    #[test]
    fn many_long_waits_that_end_at_once_leave_ten_lines_and_a_count() {
        logged(|server, log| {
            let holder = server.connect();
            send(server, holder, "LOCK.ACQUIRE job A LEASE 600000");
            for wait_ms in [20_000, 18_000, 16_000] {
                for n in 0..10 {
                    let link = server.connect();
                    send(server, link, &format!("LOCK.ACQUIRE job owner-{n} WAIT {wait_ms}"));
                }
                pass(server, 2_000);
            }
            assert_eq!(with(&log.take(), WAITS).len(), 30);
            pass(server, 14_001);
            let said = log.take();
            assert_eq!(with(&said, "outcome=\"timed out\"").len(), 10, "{said:?}");
            pass(server, 1_000);
            assert_eq!(
                log.take(),
                ["WARN More requests that have waited for locks for long have ended left_out=20"]
            );
        });
    }

    #[test]
    fn names_in_a_line_are_escaped_and_cut() {
        logged(|server, log| {
            let [holder, waiter] = [(); 2].map(|()| server.connect());
            let (key, owner) = (format!("k\n{}", "x".repeat(100)), "o\x1b[31m".to_owned() + &"y".repeat(100));
            server.send(holder, &request(&["LOCK.ACQUIRE", &key, &owner, "LEASE", "60000"]));
            server.send(waiter, &request(&["LOCK.ACQUIRE", &key, "B", "WAIT", "60000"]));
            pass(server, 1_000);
            let said = log.take();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains(&format!("key=k\\n{}... ", "x".repeat(62))), "{said:?}");
            assert!(said[0].contains(&format!("holder=o\\x1b[31m{}... ", "y".repeat(58))), "{said:?}");
        });
    }

    #[test]
    fn a_client_that_polls_waits_too() {
        logged(|server, log| {
            let [holder, poller] = [(); 2].map(|()| server.connect());
            send(server, holder, "SET job A NX PX 60000");
            for _ in 0..15 {
                send(server, poller, "SET job B NX PX 60000");
                pass(server, 100);
            }
            let said = log.take();
            assert_eq!(said.len(), 1, "{said:?}");
            let words = "key=job owner=B client=2 peer=\"127.0.0.1:50001\" waited_ms=1000 how=\"polling\" holder=A holders=1 \
                         holder_client=1";
            assert!(said[0].contains(words), "{said:?}");
            // Another lock is not the one that it waits for.
            send(server, holder, "DEL job");
            send(server, poller, "SET job B NX PX 60000");
            let ended = "client=2 peer=\"127.0.0.1:50001\" waited_ms=1500 outcome=\"granted\" token=2";
            assert_eq!(log.take(), [format!("WARN {WAITED} key=job owner=B {ended}")]);
        });
    }

    #[test]
    fn a_client_that_polled_one_lock_and_takes_another_has_not_got_it() {
        logged(|server, log| {
            let [holder, poller] = [(); 2].map(|()| server.connect());
            send(server, holder, "SET job A NX PX 60000");
            for _ in 0..15 {
                send(server, poller, "SETNX job B");
                pass(server, 100);
            }
            assert_eq!(with(&log.take(), WAITS).len(), 1);
            send(server, poller, "SETNX other B");
            assert_eq!(log.take(), Vec::<String>::new());
        });
    }
}

mod holds {
    use super::*;

    #[test]
    fn a_long_hold_is_logged_once_with_the_first_that_waits() {
        logged(|server, log| {
            set(server, "lock-held-warn", "5000");
            set(server, "lock-wait-warn", "0");
            let [holder, waiter] = [(); 2].map(|()| server.connect());
            send(server, holder, "SELECT 3");
            send(server, holder, "SET lock A NX PX 60000");
            send(server, waiter, "SELECT 3");
            send(server, waiter, "LOCK.ACQUIRE lock B WAIT 60000");
            pass(server, 4_999);
            assert_eq!(log.take(), Vec::<String>::new());
            pass(server, 1_001);
            let said = log.take();
            assert_eq!(said.len(), 1, "{said:?}");
            let words = format!(
                "WARN {HELD} key=lock kind=\"exclusive\" owner=A client=1 peer=\"127.0.0.1:50000\" token=1 held_ms="
            );
            assert!(said[0].starts_with(&words), "{said:?}");
            let words = "renewals=0 waiters=1 waiter=B waiter_client=2 waiter_peer=\"127.0.0.1:50001\"";
            assert!(said[0].ends_with(words), "{said:?}");
            pass(server, 30_000);
            assert_eq!(log.take(), Vec::<String>::new(), "once");
        });
    }

    #[test]
    fn each_holder_of_a_shared_lock_is_long_at_its_own_time() {
        logged(|server, log| {
            set(server, "lock-held-warn", "5000");
            let link = server.connect();
            send(server, link, "LOCK.ACQUIRE lock A LEASE 600000 SHARED");
            pass(server, 10_000);
            send(server, link, "LOCK.ACQUIRE lock B LEASE 600000 SHARED");
            let said = log.take();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("owner=A "), "{said:?}");
            pass(server, 10_000);
            let said = log.take();
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("owner=B "), "{said:?}");
        });
    }

    #[test]
    fn nothing_is_due_for_a_lock_that_was_logged_or_when_there_is_none() {
        logged(|server, log| {
            set(server, "lock-held-warn", "5000");
            // Before that the server is too young for a long hold.
            pass(server, 10_000);
            assert_eq!(server.due(), None);
            let link = server.connect();
            send(server, link, "SETNX lock A");
            assert!(server.due().is_some());
            pass(server, 10_000);
            assert_eq!(with(&log.take(), HELD).len(), 1);
            assert_eq!(server.due(), None);
        });
    }

    #[test]
    fn many_long_holds_leave_ten_lines_a_second_and_a_count() {
        logged(|server, log| {
            let link = server.connect();
            for n in 0..1_000 {
                send(server, link, &format!("SET lock:{n} A NX PX 600000"));
            }
            pass(server, 60_000);
            assert_eq!(log.take(), Vec::<String>::new(), "it is off");
            set(server, "lock-held-warn", "5000");
            pass(server, 10_000);
            let said = log.take();
            let left_out: usize =
                said.iter().filter_map(|line| line.split("left_out=").nth(1)?.parse::<usize>().ok()).sum();
            assert_eq!(with(&said, HELD).len() + left_out, 1_000, "{said:?}");
            assert!(with(&said, HELD).len() <= 20, "{said:?}");
        });
    }
}

#[test]
fn a_failed_login_names_the_user_only_if_there_is_one_and_never_a_password() {
    logged(|server, log| {
        let link = server.connect();
        send(server, link, "ACL SETUSER alice on >secret");
        send(server, link, "AUTH alice guess");
        pass(server, 10_000);
        send(server, link, "AUTH guess alice");
        let said = log.take();
        let line = |user| {
            format!("WARN A login has failed client=1 peer=\"127.0.0.1:50000\" user=\"{user}\" times=1")
        };
        assert_eq!(said, [line("alice"), line("(unknown)")]);
    });
}

mod spans {
    use super::*;

    /// Runs `test` with a server and a log of all spans: when they are made and when they end.
    fn traced(test: impl FnOnce(&mut EngineTarget, &Lines)) {
        let lines = Lines::default();
        let log = Subscriber::builder().without_time().with_target(false).with_ansi(false);
        let log = log.with_max_level(tracing::Level::TRACE).with_span_events(FmtSpan::NEW | FmtSpan::CLOSE);
        with_log(log.with_writer(lines.clone()).finish(), &lines, test);
    }

    #[test]
    fn a_command_is_inside_of_its_connection_and_names_its_key_and_its_error_but_no_value() {
        traced(|server, log| {
            let link = server.connect();
            send(server, link, "SET key hidden");
            send(server, link, "LPUSH key hidden");
            server.cut(link);
            let said = log.take();
            let connection = "connection{client=1 peer=\"127.0.0.1:50000\"}";
            assert!(said[0].contains(&format!("{connection}: new")), "{said:?}");
            let set = format!("{connection}:command{{command=\"set\" key=key client=1}}: close");
            assert_eq!(with(&said, &set).len(), 1, "{said:?}");
            let failed = "command=\"lpush\" key=key client=1 error=WRONGTYPE}: close";
            assert_eq!(with(&said, failed).len(), 1, "{said:?}");
            assert!(said.last().unwrap().contains(&format!("{connection}: close")), "{said:?}");
            assert!(!said.concat().contains("hidden"), "{said:?}");
        });
    }

    #[test]
    fn a_wait_ends_with_its_outcome_and_its_grant_is_inside_of_it() {
        traced(|server, log| {
            let [holder, waiter] = [(); 2].map(|()| server.connect());
            send(server, holder, "LOCK.ACQUIRE job A");
            send(server, waiter, "LOCK.ACQUIRE job B WAIT 60000");
            pass(server, 500);
            send(server, holder, "LOCK.RELEASE job A");
            let said = log.take();
            let wait = "wait{key=job keys=1 owner=B client=2 kind=\"exclusive\" position=1 holder=A holder_client=1 \
                        holder_token=1";
            assert_eq!(with(&said, &format!("{wait}}}: new")).len(), 1, "{said:?}");
            let grants = with(&said, "grant{");
            let inside = format!(
                "{wait}}}:grant{{key=job keys=1 owner=B client=2 kind=\"exclusive\" token=2 lease_ms=30000}}"
            );
            assert!(grants.iter().any(|line| line.contains(&format!("{inside}: close"))), "{said:?}");
            let ended = format!("{wait} outcome=\"granted\" token=2 waited_ms=500}}: close");
            assert_eq!(with(&said, &ended).len(), 1, "{said:?}");
        });
    }

    #[test]
    fn a_grant_by_set_nx_or_by_a_known_script_is_inside_of_its_command() {
        let try_lock = crate::locks::lock_law::REDISSON_LOCK;
        let eval = |server: &mut EngineTarget, link, owner: &str| {
            server.send(link, &request(&["EVAL", try_lock, "1", "hash", "5000", owner]));
        };
        traced(|server, log| {
            let [holder, other] = [(); 2].map(|()| server.connect());
            send(server, holder, "SET job A NX PX 7000");
            send(server, other, "SET job B NX PX 7000");
            send(server, holder, "SETNX second A");
            send(server, holder, "SET third A");
            eval(server, holder, "A:1");
            eval(server, other, "B:1");
            eval(server, holder, "A:1");
            let said = log.take();
            let said = with(&said, "grant{").into_iter().filter(|line| line.contains(": new"));
            let grant = |command, key, facts| {
                format!(
                    "command{{command=\"{command}\" key={key} client=1}}:\
                     grant{{key={key} keys=1 owner={facts}}}: new"
                )
            };
            let expected = [
                grant("set", "job", "A client=1 kind=\"exclusive\" token=1 lease_ms=7000"),
                grant("setnx", "second", "A client=1 kind=\"exclusive\" token=2"),
                grant("eval", "hash", "A:1 client=1 kind=\"reentrant\" token=3 lease_ms=5000"),
            ];
            let said: Vec<_> = said.collect();
            assert_eq!(
                said.len(),
                expected.len(),
                "a refusal and a lock that is held already make none: {said:?}"
            );
            for (said, expected) in said.iter().zip(&expected) {
                assert!(said.contains(expected), "{said}, not {expected}");
            }
        });
    }
}
