//! `redlatch::lock`: a program that takes locks, from a server in its process or by a URL.
//!
//! Belongs here  the promises of guards: renewal, loss, release.
//! Time          the runtime's stands still and moves only when nothing else can happen; the server's is manual.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::time::Duration;

use redlatch::lock::{Error, Fence, Guard, HoldEvent, Locks, Lost, OnUnavailable};
use redlatch::{Server, WallTime, When};
use tokio::time::Instant;

use crate::support::stream::StreamClient;
use crate::support::waits::wait_until_async;

const START: WallTime = WallTime::from_millis(1_700_000_000_000);
const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);

async fn manual() -> (Server, Locks) {
    let server = Server::builder().manual_clock(START).start().await.unwrap();
    let locks = server.locks();
    (server, locks)
}

mod acquisitions {
    use super::*;

    #[tokio::test]
    async fn later_holders_have_higher_tokens() {
        let (_server, locks) = manual().await;
        let mut last = 0;
        for _ in 0..3 {
            let guard = locks.lock("a").acquire().await.unwrap();
            let token = guard.token().unwrap();
            assert!(guard.is_native() && token > last, "{token} after {last}");
            last = token;
            assert!(guard.release().await.unwrap());
        }
    }

    #[tokio::test]
    async fn a_refusal_names_the_holder() {
        let (_server, locks) = manual().await;
        let guard = locks.lock("a").acquire().owner("me").meta("job", "backup").await.unwrap();
        let Err(Error::Held(Some(held))) = locks.lock("a").acquire().await else { panic!("it is held") };
        let holder = &held.holders[0];
        assert_eq!((&held.key[..], &holder.owner[..], holder.token), (&b"a"[..], &b"me"[..], guard.token()));
        assert_eq!((holder.left_ms, &holder.meta[&b"job"[..]][..]), (Some(30_000), &b"backup"[..]));
        assert_eq!(locks.who("a").await.unwrap().as_ref(), Some(&*held));
        assert_eq!(locks.who("b").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_holder_learns_who_is_the_first_to_wait_and_with_which_priority() {
        let (server, locks) = manual().await;
        let (_hold, mut events) = locks.lock("a").acquire().hold_told().await.unwrap();
        let mut waiters = Vec::new();
        for (owner, priority, first) in
            [("one", 0, ("one", 0)), ("two", 5, ("two", 5)), ("three", 4, ("two", 5))]
        {
            let mut waiter = StreamClient::new(server.stream());
            let words = ["LOCK.ACQUIRE", "a", owner, "WAIT", "60000", "PRIORITY", &priority.to_string()];
            waiter.say(&words).await;
            waiters.push(waiter);
            let waiter = Some(first.0.as_bytes().to_vec());
            assert_eq!(events.next().await.unwrap(), HoldEvent::Contended { waiter, priority: first.1 });
        }
    }

    #[tokio::test]
    async fn a_user_who_may_not_ask_who_holds_a_lock_learns_it_from_the_refusal() {
        let rights = ["on", ">secret", "~*", "+@all", "-lock.who"];
        let builder = Server::builder().manual_clock(START).user("limited", rights);
        let server = builder.start().await.unwrap();
        let holder = server.locks().lock("a").acquire().owner("me").meta("job", "backup").await.unwrap();
        server.keys().set("b", "other", None);
        let locks = Locks::connect(&format!("redis://limited:secret@{}", server.addr())).await.unwrap();
        assert!(matches!(locks.who("a").await, Err(Error::Refused(_))));
        let refused = locks.lock("a").acquire().await.unwrap_err();
        assert!(
            refused.to_string().starts_with("a is held\n  key:    a\n  holder: me\n  job: backup\n"),
            "{refused}"
        );
        let Error::Held(Some(held)) = refused else { panic!("{refused}") };
        let first = &held.holders[0];
        assert_eq!((first.token, &first.meta[&b"job"[..]][..]), (holder.token(), &b"backup"[..]));
        assert!(holder.release().await.unwrap());
        locks.lock("a").acquire().await.unwrap();
    }

    #[tokio::test]
    async fn a_key_that_is_no_lock_is_held_by_an_unknown_owner() {
        let (server, locks) = manual().await;
        let mut client = StreamClient::new(server.stream());
        assert_eq!(client.ask_lines("SET plain hello\r\nRPUSH list x\r\n", 2).await, ["+OK", ":1"]);
        let refused = locks.lock("plain").acquire().await.unwrap_err();
        assert!(refused.to_string().contains("an unknown owner: not a lock, but a string"), "{refused}");
        for (key, value_type, owner) in [("plain", "string", "hello"), ("list", "list", "")] {
            let held = locks.who(key).await.unwrap().unwrap();
            assert_eq!((held.kind.as_str(), held.value_type.as_deref()), ("none", Some(value_type)));
            let [holder] = &held.holders[..] else { panic!("one holder: {held:?}") };
            assert_eq!((&holder.owner[..], holder.token, &holder.client), (owner.as_bytes(), None, &None));
        }
        assert_eq!(locks.list("*").await.unwrap(), []);
    }

    #[tokio::test]
    async fn readers_share_permits_add_up_and_several_keys_are_one() {
        let (_server, locks) = manual().await;
        let readers = (locks.lock("r").acquire().shared(), locks.lock("r").acquire().shared());
        let readers = (readers.0.await.unwrap(), readers.1.await.unwrap());
        assert!(matches!(locks.lock("r").acquire().await, Err(Error::Held(_))));

        let three = locks.lock("p").acquire().permits(3, 5).await.unwrap();
        assert!(matches!(locks.lock("p").acquire().permits(3, 5).await, Err(Error::Held(_))));
        let two = locks.lock("p").acquire().permits(2, 5).await.unwrap();

        // A key that is named twice counts once.
        let both = locks.lock_all(["x", "y", "x"]).acquire().await.unwrap();
        assert!(matches!(locks.lock("y").acquire().await, Err(Error::Held(_))));
        assert!(matches!(locks.lock_all(["x", "z"]).acquire().shared().await, Err(Error::Usage(_))));
        assert_eq!(locks.list("*").await.unwrap().len(), 4);
        for guard in [readers.0, readers.1, three, two, both] {
            assert!(guard.release().await.unwrap());
        }
        assert_eq!(locks.list("*").await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_lock_that_is_left_lasts_for_the_rest_of_its_time_and_does_not_count_as_expired() {
        let (server, locks) = manual().await;
        let rest = Duration::from_secs(5);
        for kind in 0..4 {
            let guard = match kind {
                0 => locks.lock("a").acquire().meta("job", "backup").await,
                1 => locks.lock("a").acquire().shared().await,
                2 => locks.lock("a").acquire().permits(2, 3).await,
                _ => locks.lock_all(["a", "b"]).acquire().await,
            };
            let (token, owner) = guard.as_ref().map(|guard| (guard.token(), guard.owner().to_vec())).unwrap();
            assert!(guard.unwrap().leave(rest).await.unwrap());
            // The server has seen the end of the connection.
            let left = loop {
                let held = locks.list("*").await.unwrap();
                if held.iter().all(|held| held.holders[0].left_ms.is_some()) {
                    break held;
                }
            };
            let holder = &left[0].holders[0];
            assert_eq!((holder.token, &holder.owner, holder.left_ms), (token, &owner, Some(5_000)), "{kind}");
            assert_eq!(holder.meta.len(), usize::from(kind == 0), "{holder:?}");
            server.clock().advance(rest).await;
            assert!(locks.who("a").await.unwrap().is_some(), "{kind}: its last millisecond");
            server.clock().advance(Duration::from_millis(1)).await;
            assert_eq!(locks.list("*").await.unwrap(), [], "{kind}");
        }
        let mut client = StreamClient::new(server.stream());
        let counted = client.ask_lines("INFO locks\r\n", 8).await;
        assert!(counted.contains(&"locks_expired:0".to_owned()), "{counted:?}");
    }

    #[tokio::test]
    async fn a_lock_that_was_lost_is_not_taken_anew_by_leaving_it() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        server.keys().remove("a");
        assert!(!guard.leave(LEASE).await.unwrap());
        assert_eq!(locks.list("*").await.unwrap(), []);
    }

    #[tokio::test]
    async fn a_wait_is_handed_the_lock_and_one_that_is_dropped_leaves_the_queue() {
        let (_server, locks) = manual().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        let first = tokio::spawn(locks.lock("a").acquire().wait(HOUR).into_future());
        wait_until_async("one waits", async || !locks.waiters("a").await.unwrap().is_empty()).await;
        let second = tokio::spawn(locks.lock("a").acquire().wait_forever().into_future());
        wait_until_async("two wait", async || locks.waiters("a").await.unwrap().len() >= 2).await;
        first.abort();
        wait_until_async("one waits", async || locks.waiters("a").await.unwrap().len() <= 1).await;
        assert!(guard.release().await.unwrap());
        assert!(second.await.unwrap().unwrap().release().await.unwrap());
    }

    #[tokio::test]
    async fn a_url_reaches_the_same_locks_with_its_password() {
        let server = Server::builder().password("open sesame").start().await.unwrap();
        let guard = server.locks().lock("a").acquire().owner("me").await.unwrap();
        let address = server.addr();
        let refused = Locks::connect(&format!("redis://{address}")).await.unwrap_err();
        assert!(matches!(&refused, Error::Refused(text) if text.starts_with("NOAUTH")), "{refused}");
        let locks = Locks::connect(&format!("redis://:open%20sesame@{address}")).await.unwrap();
        assert_eq!(locks.who("a").await.unwrap().unwrap().holders[0].token, guard.token());
        // Another database has other locks.
        let others = Locks::connect(&format!("redis://:open%20sesame@{address}/1")).await.unwrap();
        assert!(others.lock("a").acquire().await.unwrap().release().await.unwrap());
        assert!(locks.release(["a"], "me").await.unwrap());
        drop(server);
        assert!(matches!(Locks::connect("http://localhost").await, Err(Error::Url(_))));
    }
}

mod holds {
    use super::*;

    #[tokio::test]
    async fn a_hold_is_renewed_and_released_by_the_name_of_its_owner_alone() {
        let (server, locks) = manual().await;
        let hold = locks.lock("a").acquire().owner("me").lease(HOUR).hold().await.unwrap();
        assert_eq!((hold.token, hold.lease, hold.is_native), (Some(1), Some(HOUR), true));
        server.clock().advance(HOUR / 2).await;
        let others = server.locks();
        let renewed = others.renew("a", "me", None, None).await.unwrap().unwrap();
        assert_eq!((renewed.token, renewed.lease), (Some(1), Some(HOUR)), "as long as it was");
        assert_eq!(server.keys().lease("a"), Some(Some(HOUR)));
        assert_eq!(others.renew("a", "you", None, Some(LEASE)).await.unwrap(), None);
        assert_eq!(others.renew("a", "me", Some(2), Some(LEASE)).await.unwrap(), None);
        assert!(!others.release_token("a", "me", 2).await.unwrap());
        assert_eq!(server.keys().lease("a"), Some(Some(HOUR)), "the lock stays as it is");
        assert!(others.release_token("a", "me", 1).await.unwrap());
        assert_eq!(others.renew("a", "me", None, Some(LEASE)).await.unwrap(), None);
    }

    #[tokio::test]
    async fn readers_that_renew_at_the_same_time_do_not_keep_each_other_from_it() {
        const READERS: usize = 30;
        let (_server, locks) = manual().await;
        let mut tasks = tokio::task::JoinSet::new();
        for reader in 0..READERS {
            let (locks, owner) = (locks.clone(), reader.to_string());
            tasks.spawn(async move {
                let hold = locks.lock("a").acquire().shared().owner(owner.as_str()).hold().await.unwrap();
                for _ in 0..5 {
                    let renewed = locks.renew("a", &owner, hold.token, None).await.unwrap().unwrap();
                    assert_eq!(renewed.token, hold.token);
                }
            });
        }
        tasks.join_all().await;
        assert_eq!(locks.who("a").await.unwrap().unwrap().holders.len(), READERS);
    }

    #[tokio::test]
    async fn a_lock_of_a_session_is_held_for_as_long_as_its_connection() {
        let (server, locks) = manual().await;
        let mut client = StreamClient::new(server.stream());
        client.ask_lines("LOCK.ACQUIRE a me SESSION\r\n", 6).await;
        for lease in [None, Some(LEASE)] {
            let renewed = locks.renew("a", "me", None, lease).await.unwrap().unwrap();
            assert_eq!((renewed.lease, renewed.remaining()), (None, None));
        }
    }

    #[tokio::test]
    async fn a_user_who_may_only_extend_renews_by_token_and_as_before() {
        let rights = ["on", ">secret", "~*", "+lock.extend", "+hello", "+client"];
        let server = Server::builder().manual_clock(START).user("limited", rights).start().await.unwrap();
        let token = server.locks().lock("a").acquire().owner("me").hold().await.unwrap().token;
        let locks = Locks::connect(&format!("redis://limited:secret@{}", server.addr())).await.unwrap();
        assert!(locks.renew("a", "me", None, Some(HOUR)).await.unwrap().is_some());
        server.clock().advance(LEASE).await;
        assert!(locks.renew("a", "me", token, None).await.unwrap().is_some());
        assert_eq!(server.keys().lease("a"), Some(Some(HOUR)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_says_how_much_of_its_lease_is_left_on_this_machine() {
        let (_server, locks) = manual().await;
        let hold = locks.lock("a").acquire().owner("me").lease(HOUR).hold().await.unwrap();
        let renewed = locks.renew("a", "me", None, Some(2 * HOUR)).await.unwrap().unwrap();
        let second = Duration::from_secs(1);
        let left = [&hold, &renewed].map(|hold| hold.remaining().unwrap());
        for (left, lease) in left.into_iter().zip([HOUR, 2 * HOUR]) {
            assert!(left <= lease && left > lease - second, "{left:?} of {lease:?}");
        }
        tokio::time::advance(second).await;
        assert_eq!([hold, renewed].map(|hold| hold.remaining()), left.map(|left| Some(left - second)));
    }

    #[tokio::test]
    async fn a_key_that_was_not_taken_as_a_lock_is_renewed_without_a_token() {
        let (server, locks) = manual().await;
        let mut client = StreamClient::new(server.stream());
        assert_eq!(client.ask_lines("SET a me PX 1000\r\nSET b me\r\n", 2).await, ["+OK", "+OK"]);
        let renewed = locks.renew("a", "me", None, Some(LEASE)).await.unwrap().unwrap();
        assert_eq!((renewed.token, renewed.lease), (None, Some(LEASE)));
        // As long as it was: it had no length.
        let refused = locks.renew("b", "me", None, None).await.unwrap_err();
        assert!(matches!(refused, Error::Usage(_)), "{refused}");
    }

    /// Has the server answer every LOCK command of a hold with this error.
    fn refuse(server: &Server, text: &str) {
        for command in ["LOCK.ACQUIRE", "LOCK.EXTEND", "LOCK.RELEASE"] {
            server.faults().error(text, When::command(command)).unwrap();
        }
    }

    #[tokio::test]
    async fn a_server_without_lock_commands_renews_by_the_name_of_the_owner_and_knows_no_tokens() {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        refuse(&server, "ERR unknown command 'LOCK', with args beginning with: ");
        let locks = server.locks();
        let hold = locks.lock("a").acquire().owner("me").lease(LEASE).hold().await.unwrap();
        assert_eq!((hold.token, hold.lease, hold.is_native), (None, Some(LEASE), false));
        let renewed = locks.renew("a", "me", None, Some(HOUR)).await.unwrap().unwrap();
        assert_eq!((renewed.token, renewed.lease, renewed.is_native), (None, Some(HOUR), false));
        assert!(renewed.remaining() > Some(HOUR / 2) && renewed.remaining() <= Some(HOUR), "{renewed:?}");
        assert_eq!(locks.renew("a", "you", None, Some(LEASE)).await.unwrap(), None);
        for (token, lease) in [(Some(1), Some(LEASE)), (None, None)] {
            let refused = locks.renew("a", "me", token, lease).await.unwrap_err();
            assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        }
        let refused = locks.release_token("a", "me", 1).await.unwrap_err();
        assert!(matches!(refused, Error::Unsupported(_)), "{refused}");
        assert_eq!(server.keys().lease("a"), Some(Some(HOUR)), "the lock stays as it was renewed");
    }

    #[tokio::test]
    async fn a_refusal_of_a_server_with_lock_commands_is_the_answer() {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        let locks = server.locks();
        locks.lock("a").acquire().owner("me").lease(LEASE).hold().await.unwrap();
        refuse(&server, "NOPERM not you");
        let refused = |error: Error| {
            assert!(matches!(&error, Error::Refused(text) if text == "NOPERM not you"), "{error}")
        };
        refused(locks.renew("a", "me", None, None).await.unwrap_err());
        refused(locks.renew("a", "me", Some(1), Some(HOUR)).await.unwrap_err());
        refused(locks.release_token("a", "me", 1).await.unwrap_err());
        assert_eq!(server.keys().lease("a"), Some(Some(LEASE)));
    }
}

mod guards {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_guard_renews_its_lock_at_each_third_of_the_lease() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().lease(LEASE).await.unwrap();
        for _ in 0..10 {
            tokio::time::advance(LEASE / 3).await;
            wait_until_async("it is renewed", async || guard.remaining() >= LEASE).await;
            server.clock().advance(LEASE / 3).await;
        }
        assert!(guard.release().await.unwrap());
        assert_eq!(server.keys().get("a"), None);
    }

    #[tokio::test]
    async fn a_guard_that_is_dropped_releases_its_lock() {
        let (_server, locks) = manual().await;
        drop(locks.lock("a").acquire().lease(HOUR).await.unwrap());
        assert!(locks.lock("a").acquire().wait(HOUR).await.is_ok());
    }

    #[tokio::test]
    async fn a_lock_that_is_left_keeps_the_lease_it_is_left_with() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        assert!(guard.leave(HOUR).await.unwrap());
        assert_eq!(server.keys().lease("a"), Some(Some(HOUR)));
    }

    #[tokio::test]
    async fn a_guard_is_told_why_its_lock_is_lost() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        assert!(!locks.break_lock("a", guard.token().unwrap() + 1, None).await.unwrap());
        assert!(locks.break_lock("a", guard.token().unwrap(), Some("stuck")).await.unwrap());
        let Lost::Broken(by) = guard.lost().await else { panic!("it was broken") };
        assert_eq!((by.reason.as_deref(), by.user.as_deref()), (Some("stuck"), Some("default")));
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(!guard.release().await.unwrap());

        let guard = locks.lock("a").acquire().await.unwrap();
        assert!(server.keys().remove("a"));
        assert_eq!(guard.lost().await, Lost::Deleted);

        let guard = locks.lock("a").acquire().lease(LEASE).await.unwrap();
        server.clock().advance(LEASE + Duration::from_millis(1)).await;
        assert_eq!(guard.lost().await, Lost::Expired);
        // What the guard sends when it is dropped leaves a later hold of its owner alone.
        let owner = guard.owner().to_vec();
        let next = locks.lock("a").acquire().owner(owner).await.unwrap();
        assert!(!guard.release().await.unwrap());
        assert!(next.release().await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn a_loss_is_known_before_the_lease_ends_on_a_server_that_is_out_of_reach() {
        let (server, locks) = manual().await;
        let margin = Duration::from_secs(5);
        let sent = Instant::now();
        let by_default = locks.lock("a").acquire().lease(LEASE).await.unwrap();
        let guard = locks.lock("b").acquire().lease(LEASE).stop_before(margin).await.unwrap();
        drop(server);
        assert_eq!(guard.lost().await, Lost::Unrenewed);
        assert!(sent.elapsed() <= LEASE - margin, "{:?}", sent.elapsed());
        assert_eq!(guard.remaining(), Duration::ZERO);
        assert!(guard.release().await.is_err());
        assert_eq!(by_default.lost().await, Lost::Unrenewed);
        assert!(sent.elapsed() <= LEASE - Duration::from_secs(1), "{:?}", sent.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_is_lost_before_its_deadline_is_never_renewed_and_is_released_by_its_holder() {
        let (server, locks) = manual().await;
        let taken = locks.lock("a").acquire().lease(LEASE).stop_before(LEASE / 2).renew(false);
        let guard = taken.await.unwrap();
        let longer = guard.extend(Some(LEASE / 2)).await;
        assert!(matches!(longer, Err(Error::Usage(_))), "nothing would be left of the lease: {longer:?}");
        assert_eq!(guard.lost().await, Lost::Unrenewed);
        assert!(matches!(guard.extend(None).await, Err(Error::Lost { .. })));
        assert_eq!(
            server.keys().lease("a"),
            Some(Some(LEASE)),
            "nobody else is granted it while the program stops"
        );
        assert!(guard.release().await.unwrap());
        assert_eq!(server.keys().lease("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_that_needs_long_to_stop_is_renewed_sooner() {
        let (_server, locks) = manual().await;
        let guard = locks.lock("a").acquire().lease(LEASE).stop_before(LEASE * 9 / 10).await.unwrap();
        let lost = tokio::time::timeout(LEASE * 3, guard.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
    }

    #[tokio::test]
    async fn a_lock_is_lost_before_its_deadline_by_less_than_it_lasts() {
        let (_server, locks) = manual().await;
        let lock = locks.lock("a");
        for taken in
            [lock.acquire().lease(LEASE).stop_before(LEASE), lock.acquire().session(LEASE).stop_before(LEASE)]
        {
            assert!(matches!(taken.await, Err(Error::Usage(_))));
        }
        let without_a_deadline = lock.acquire().session(Duration::ZERO).stop_before(HOUR).await.unwrap();
        assert_eq!(without_a_deadline.remaining(), Duration::MAX);
        assert!(without_a_deadline.release().await.unwrap());
    }

    #[tokio::test]
    async fn a_guard_that_nobody_has_answered_is_open_if_the_program_wants_it() {
        let nobody =
            || async { Err::<tokio::net::TcpStream, _>(std::io::ErrorKind::ConnectionRefused.into()) };
        let closed = Locks::over(nobody).budget(Duration::from_millis(20));
        let refused = closed.lock("a").acquire().await.unwrap_err();
        let source = std::error::Error::source(&refused).and_then(|source| source.downcast_ref());
        let kind = source.map(std::io::Error::kind);
        assert_eq!(kind, Some(std::io::ErrorKind::ConnectionRefused), "{refused:?}");
        assert!(matches!(refused, Error::Unreachable { .. }));
        assert_eq!(closed.opened(), 0);

        let open = closed.clone().on_unavailable(OnUnavailable::Open);
        let guard = open.lock("a").acquire().lease(LEASE).await.unwrap();
        assert!(guard.is_open() && guard.token().is_none() && guard.check().is_ok());
        assert_eq!((guard.remaining(), open.opened()), (Duration::MAX, 1));
        guard.extend(None).await.unwrap();
        assert!(matches!(guard.fenced(Fence::Postgres), Err(Error::Unreachable { .. })));
        let watch = guard.watch();
        assert!(!guard.release().await.unwrap());
        assert_eq!(watch.lost().await, Lost::Released);
        assert!(!open.lock("a").acquire().await.unwrap().leave(LEASE).await.unwrap());
        assert_eq!(closed.opened(), 2, "clones count together");
        // A hold that outlives the process needs a server.
        assert!(matches!(open.lock("a").acquire().hold().await, Err(Error::Unreachable { .. })));
    }

    /// Takes a lock as `job-7`, whose loss is not told: its connection ends before it is broken. Another process takes the
    /// lock by the same name for an hour, with the token that is returned.
    async fn succeeded(server: &Server, locks: &Locks) -> (Guard, Option<u64>) {
        let guard = locks.lock("a").acquire().owner("job-7").lease(LEASE).await.unwrap();
        let mut operator = StreamClient::new(server.stream());
        assert_ne!(operator.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await, ":0");
        assert!(locks.break_lock("a", guard.token().unwrap(), None).await.unwrap());
        let other = locks.lock("a").acquire().owner("job-7").lease(HOUR).hold().await.unwrap();
        assert!(other.token > guard.token());
        (guard, other.token)
    }

    /// The token, the lease and the session of the only holder.
    async fn holder(locks: &Locks) -> (Option<u64>, Option<u64>, bool) {
        let held = locks.who("a").await.unwrap().unwrap();
        (held.holders[0].token, held.holders[0].lease_ms, held.holders[0].session)
    }

    #[tokio::test(start_paused = true)]
    async fn a_guard_does_not_renew_the_lock_of_a_later_holder_with_its_name() {
        let (server, locks) = manual().await;
        let (guard, other) = succeeded(&server, &locks).await;
        let lost = tokio::time::timeout(LEASE * 2, guard.lost()).await;
        assert_eq!(lost.ok(), Some(Lost::NotHeld));
        assert_eq!(holder(&locks).await, (other, Some(3_600_000), false));
        assert!(!guard.release().await.unwrap());
        assert_eq!(holder(&locks).await, (other, Some(3_600_000), false));
    }

    #[tokio::test]
    async fn a_guard_does_not_leave_the_lock_of_a_later_holder_with_its_name() {
        let (server, locks) = manual().await;
        let (guard, other) = succeeded(&server, &locks).await;
        assert!(!guard.leave(LEASE).await.unwrap());
        assert_eq!(holder(&locks).await, (other, Some(3_600_000), false));
    }

    #[tokio::test]
    async fn a_lock_that_is_lost_while_it_is_left_stays_that_of_the_later_holder() {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        let locks = server.locks();
        let guard = locks.lock("a").acquire().owner("job-7").lease(LEASE).await.unwrap();
        let token = guard.token().unwrap();
        // The request that makes it a lock of the session comes late.
        let late = Duration::from_secs(1);
        let fault = server.faults().delay(late, When::command("LOCK.ACQUIRE").times(1)).unwrap();
        let leaving = tokio::spawn(async move { guard.leave(LEASE).await });
        wait_until_async("the request is late", async || fault.hits() > 0).await;
        assert!(locks.break_lock("a", token, None).await.unwrap());
        let other = locks.lock("a").acquire().owner("job-7").lease(HOUR).hold().await.unwrap();
        server.clock().advance(late).await;
        leaving.await.unwrap().unwrap();
        assert_eq!(holder(&locks).await, (other.token, Some(3_600_000), false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_costs_no_lock_with_a_lease() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().lease(LEASE).await.unwrap();
        let mut operator = crate::support::stream::StreamClient::new(server.stream());
        assert_ne!(operator.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await, ":0");
        tokio::time::advance(LEASE / 3).await;
        wait_until_async("it is renewed", async || guard.remaining() >= LEASE).await;
        assert!(guard.release().await.unwrap());
    }
}

mod retries {
    use super::*;

    /// A server with faults, whose clock is manual.
    async fn faulty() -> (Server, Locks) {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        let locks = server.locks();
        (server, locks)
    }

    // Shows P-mcp-repeat-harmless, P-repeat-harmless.
    #[tokio::test]
    async fn a_request_whose_answer_is_lost_is_sent_again_and_is_the_same_grant() {
        let (server, locks) = faulty().await;
        let first = locks.lock("a").acquire().await.unwrap();
        let token = first.token().unwrap();
        assert!(first.release().await.unwrap());
        server.faults().drop_reply(When::command("LOCK.ACQUIRE").times(1)).unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        assert_eq!(guard.token(), Some(token + 1));
        server.faults().drop_reply(When::command("LOCK.EXTEND").times(1)).unwrap();
        guard.extend(Some(HOUR)).await.unwrap();
        assert_eq!(server.keys().lease("a"), Some(Some(HOUR)));
        server.faults().drop_reply(When::command("LOCK.RELEASE").times(1)).unwrap();
        assert!(guard.release().await.unwrap(), "the request whose answer was lost has released it");
        assert_eq!(locks.who("a").await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_asked_by_the_name_of_the_owner_is_asked_again() {
        let (server, locks) = faulty().await;
        let hold = locks.lock("a").acquire().owner("me").hold().await.unwrap();
        for command in ["LOCK.WHO", "LOCK.WAITERS", "LOCK.EXTEND", "LOCK.RELEASE"] {
            server.faults().drop_reply(When::command(command).times(1)).unwrap();
        }
        assert_eq!(locks.who("a").await.unwrap().unwrap().holders[0].token, hold.token);
        assert_eq!(locks.waiters("a").await.unwrap(), []);
        assert_eq!(locks.renew("a", "me", None, Some(HOUR)).await.unwrap().unwrap().token, hold.token);
        assert!(locks.release_token("a", "me", hold.token.unwrap()).await.unwrap());
        assert!(!locks.release(["a"], "me").await.unwrap(), "nothing is lost here");
    }

    #[tokio::test]
    async fn a_server_without_lock_commands_has_taken_the_lock_before_its_answer_was_lost() {
        let (server, locks) = faulty().await;
        server.faults().error("ERR unknown command 'LOCK.ACQUIRE'", When::command("LOCK.ACQUIRE")).unwrap();
        server.faults().drop_reply(When::command("SET").times(1)).unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        assert_eq!((guard.token(), server.keys().get("a").as_deref()), (None, Some(guard.owner())));
        let refused = locks.lock("a").acquire().await.unwrap_err();
        assert!(matches!(refused, Error::Held(_)), "{refused}");
    }

    #[tokio::test]
    async fn a_server_without_lock_commands_says_what_it_lacks() {
        let (server, locks) = faulty().await;
        for command in ["LOCK.ACQUIRE", "LOCK.MACQUIRE", "LOCK.SESSION"] {
            server.faults().error("ERR unknown command", When::command(command)).unwrap();
        }
        let lock = || locks.lock("a").acquire();
        for (acquire, lacking) in [
            (lock().shared(), "shared"),
            (lock().permits(1, 2), "permits"),
            (lock().reentrant(), "reentrant"),
            (lock().session(Duration::ZERO), "session"),
            (lock().meta("reason", "x"), "meta"),
            (locks.lock_all(["a", "b"]).acquire(), "several keys"),
        ] {
            let refused = acquire.await.unwrap_err();
            assert!(matches!(refused, Error::Unsupported(what) if what.contains(lacking)), "{refused}");
        }
    }

    #[tokio::test]
    async fn a_server_that_does_not_serve_for_a_moment_is_asked_again() {
        let (server, locks) = faulty().await;
        server.faults().error("OOM not now", When::command("LOCK.ACQUIRE").times(2)).unwrap();
        let guard = locks.lock("a").acquire().await.unwrap();
        server.faults().error("BUSY not now", When::command("LOCK.RELEASE").times(2)).unwrap();
        assert!(guard.release().await.unwrap());
        let fault = server.faults().error("BUSY not now", When::command("LOCK.ACQUIRE")).unwrap();
        let refused = locks.lock("a").acquire().await.unwrap_err();
        assert!(matches!(refused, Error::Refused(_)), "{refused}");
        assert_eq!(fault.hits(), 3);
    }

    #[tokio::test]
    async fn a_wait_goes_on_after_its_connection() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        let waiting = tokio::spawn(locks.lock("a").acquire().owner("me").wait(HOUR).into_future());
        let waits = async || !locks.waiters("a").await.unwrap().is_empty();
        wait_until_async("it waits", waits).await;
        let mut operator = StreamClient::new(server.stream());
        assert_ne!(operator.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await, ":0");
        wait_until_async("it waits again", waits).await;
        assert!(guard.release().await.unwrap());
        assert_eq!(waiting.await.unwrap().unwrap().owner(), b"me");
    }

    #[tokio::test]
    async fn a_lock_that_is_known_to_be_lost_is_released_by_one_try() {
        let (server, locks) = faulty().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        assert!(locks.break_lock("a", guard.token().unwrap(), None).await.unwrap());
        assert!(matches!(guard.lost().await, Lost::Broken(_)));
        let lost = guard.extend(None).await.unwrap_err();
        assert!(lost.to_string().starts_with("a is lost: it was broken by an operator"), "{lost}");
        let fault = server.faults().error("BUSY not now", When::command("LOCK.RELEASE")).unwrap();
        assert!(matches!(guard.release().await, Err(Error::Refused(_))));
        assert_eq!(fault.hits(), 1);
    }

    #[tokio::test]
    async fn a_wait_that_would_close_a_circle_has_an_error_of_its_own() {
        let (_server, locks) = manual().await;
        let _a = locks.lock("a").acquire().owner("a").await.unwrap();
        let _b = locks.lock("b").acquire().owner("b").await.unwrap();
        let _waiting = tokio::spawn(locks.lock("b").acquire().owner("a").wait(HOUR).into_future());
        wait_until_async("one waits", async || !locks.waiters("b").await.unwrap().is_empty()).await;
        let refused = locks.lock("a").acquire().owner("b").wait(HOUR).await.unwrap_err();
        assert!(matches!(refused, Error::Deadlock(_)), "{refused}");
    }

    #[tokio::test]
    async fn what_no_server_grants_is_refused_before_anything_is_sent() {
        let locks = Locks::over(|| async { Err::<tokio::net::TcpStream, _>(std::io::Error::other("sent")) });
        let lock = || locks.lock("a").acquire();
        for acquire in [
            lock().owner("x".repeat(1_025)),
            lock().owner(""),
            lock().meta("reason", "x".repeat(4_097)),
            lock().lease(Duration::ZERO),
            lock().lease(Duration::MAX),
            lock().shared().reentrant(),
            lock().permits(1, 2).shared(),
            lock().permits(0, 3),
            lock().permits(4, 3),
            lock().session(LEASE).lease(LEASE),
            locks.lock("").acquire(),
            locks.lock_all(["a", ""]).acquire(),
            locks.lock_all(Vec::<Vec<u8>>::new()).acquire(),
        ] {
            let refused = acquire.await.unwrap_err();
            assert!(matches!(refused, Error::Usage(_)), "{refused}");
        }
        for acquire in [lock().reentrant(), lock().session(LEASE)] {
            assert!(matches!(acquire.hold().await, Err(Error::Usage(_))));
        }
    }
}

mod kinds {
    use super::*;

    async fn times_held(locks: &Locks) -> Option<u64> {
        Some(locks.who("a").await.unwrap()?.holders[0].permits)
    }

    #[tokio::test]
    async fn a_reentrant_lock_is_free_after_as_many_releases() {
        let (_server, locks) = manual().await;
        let lock = locks.lock("a");
        let (one, two) =
            (lock.acquire().reentrant().await.unwrap(), lock.acquire().reentrant().await.unwrap());
        assert_eq!(times_held(&locks).await, Some(2));
        assert!(matches!(locks.lock("a").acquire().reentrant().await, Err(Error::Held(_))));
        assert!(two.release().await.unwrap());
        one.check().unwrap();
        assert!(one.release().await.unwrap());
        assert_eq!(times_held(&locks).await, None);
    }

    #[tokio::test]
    async fn a_reentrant_lock_whose_answer_is_lost_is_counted_once() {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        let locks = server.locks();
        let lost = |command| server.faults().drop_reply(When::command(command).times(1)).unwrap();
        let lock = locks.lock("a");
        let one = lock.acquire().reentrant().await.unwrap();
        let _lost = lost("LOCK.ACQUIRE");
        let two = lock.acquire().reentrant().await.unwrap();
        assert_eq!(times_held(&locks).await, Some(2));
        let _lost = lost("LOCK.RELEASE");
        assert!(two.release().await.unwrap());
        assert_eq!(times_held(&locks).await, Some(1));
        assert!(one.release().await.unwrap());
        assert_eq!(times_held(&locks).await, None);
    }

    #[tokio::test]
    async fn a_reentrant_hold_that_was_lost_is_none_of_those_that_count() {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        let locks = server.locks();
        let lock = locks.lock("a");
        let one = lock.acquire().reentrant().await.unwrap();
        assert!(locks.break_lock("a", one.token().unwrap(), None).await.unwrap());
        assert!(matches!(one.extend(None).await, Err(Error::Lost { .. })));
        server.faults().error("NOPERM not now", When::command("LOCK.RELEASE").times(1)).unwrap();
        assert!(matches!(one.release().await, Err(Error::Refused(_))));
        server.faults().drop_reply(When::command("LOCK.ACQUIRE").times(1)).unwrap();
        let two = lock.acquire().reentrant().await.unwrap();
        assert_eq!(times_held(&locks).await, Some(1));
        assert!(two.release().await.unwrap());
        assert_eq!(times_held(&locks).await, None);
    }

    #[tokio::test]
    async fn a_session_ends_with_its_connection() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().session(Duration::ZERO).await.unwrap();
        assert_eq!((guard.remaining(), server.keys().lease("a")), (Duration::MAX, Some(None)));
        assert!(matches!(guard.extend(None).await, Err(Error::Usage(_))));
        assert!(matches!(guard.leave(LEASE).await, Err(Error::Usage(_))));
        guard.check().unwrap();
        let mut operator = StreamClient::new(server.stream());
        assert_ne!(operator.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await, ":0");
        assert_eq!(guard.lost().await, Lost::Session);
        let next = locks.lock("a").acquire().session(Duration::ZERO).wait(HOUR).await.unwrap();
        assert!(next.release().await.unwrap());
        assert_eq!(locks.who("a").await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_session_with_a_delay_goes_on_over_another_connection() {
        let (server, locks) = manual().await;
        let guard = locks.lock("a").acquire().session(HOUR).await.unwrap();
        let mut operator = StreamClient::new(server.stream());
        assert_ne!(operator.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await, ":0");
        let goes_on = async || {
            let held = locks.who("a").await.unwrap().unwrap();
            assert_eq!(held.holders[0].token, guard.token());
            held.holders[0].session && held.holders[0].left_ms.is_none()
        };
        wait_until_async("it goes on", goes_on).await;
        guard.check().unwrap();
        assert!(guard.release().await.unwrap());
        assert_eq!(locks.who("a").await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn without_renewal_the_holder_is_told_at_its_deadline() {
        let (_server, locks) = manual().await;
        let guard = locks.lock("a").acquire().lease(LEASE).renew(false).await.unwrap();
        let (watch, sent) = (guard.watch(), Instant::now());
        assert_eq!(watch.lost().await, Lost::Unrenewed);
        assert!(sent.elapsed() <= LEASE, "{:?}", sent.elapsed());
        assert!(matches!(guard.extend(None).await, Err(Error::Lost { reason: Lost::Unrenewed, .. })));
        assert!(guard.release().await.unwrap(), "the server has counted it as held");
    }
}

mod failed_releases {
    use super::*;

    async fn refusing() -> (Server, Locks) {
        let server = Server::builder().manual_clock(START).tests(1).start().await.unwrap();
        server.faults().error("NOPERM not now", When::command("LOCK.RELEASE").key("[alm]")).unwrap();
        let locks = server.locks();
        (server, locks)
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_does_not_release_ends_with_its_lease_and_is_told() {
        let (_server, locks) = refusing().await;
        let guard = locks.lock("a").acquire().lease(LEASE).await.unwrap();
        let watch = guard.watch();
        assert!(matches!(guard.release().await, Err(Error::Refused(_))));
        watch.check().unwrap();
        assert_eq!(watch.lost().await, Lost::Unrenewed);
    }

    #[tokio::test]
    async fn a_session_whose_release_has_failed_ends_with_its_connection() {
        let (_server, locks) = refusing().await;
        let guard = locks.lock("a").acquire().session(Duration::ZERO).await.unwrap();
        let watch = guard.watch();
        assert!(matches!(guard.release().await, Err(Error::Refused(_))));
        assert_eq!(watch.lost().await, Lost::Session);
        wait_until_async("it is free", async || locks.who("a").await.unwrap().is_none()).await;
    }

    #[tokio::test]
    async fn a_lock_that_may_have_been_released_is_lost_at_once() {
        let (server, locks) = refusing().await;
        server.faults().drop_reply(When::command("LOCK.RELEASE").key("b").times(1)).unwrap();
        server.faults().error("NOPERM not now", When::command("LOCK.RELEASE").key("b")).unwrap();
        for lock in [locks.lock_all(["k", "l"]), locks.lock("b")] {
            let guard = lock.acquire().await.unwrap();
            let watch = guard.watch();
            assert!(matches!(guard.release().await, Err(Error::Refused(_))));
            assert_eq!(watch.lost().await, Lost::NotHeld);
        }
        let left = locks.list("*").await.unwrap();
        assert_eq!(left.iter().map(|held| &held.key[..]).collect::<Vec<_>>(), [b"l"]);
    }

    #[tokio::test]
    async fn a_lock_that_was_given_back_is_told_as_released() {
        let (_server, locks) = manual().await;
        let guard = locks.lock("a").acquire().await.unwrap();
        let watch = guard.watch();
        assert!(guard.release().await.unwrap());
        assert_eq!((watch.lost().await, watch.remaining()), (Lost::Released, Duration::ZERO));
    }
}

#[tokio::test]
async fn the_first_statement_of_a_transaction_has_the_token_of_the_lock() {
    let (_server, locks) = manual().await;
    let guard = locks.lock("a").acquire().await.unwrap();
    for fence in [Fence::Postgres, Fence::MySql, Fence::Sqlite] {
        let fenced = guard.fenced(fence).unwrap();
        assert!(fenced.statement.contains("redlatch_fence"), "{fenced:?}");
        assert_eq!(u64::try_from(fenced.token).ok(), guard.token());
    }
}
