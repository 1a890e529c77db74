//! Honest clients of a server that is attacked: they get their locks, nobody else does, and the server forgets the attack.
//!
//! Belongs here  that attackers take nothing from others. What an attack costs the server is in `tests/protocol/hostile`.
//! Time          real, and never waited for: after each attack the clients must be granted further locks.
//!
//! ```text
//! MUTEX_SECONDS=60 cargo test --test suite mutex::under_attack -- --nocapture
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::thread::scope;
use std::time::{Duration, Instant};

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use super::attacks::{ATTACKER, ATTACKER_PASSWORD, ATTACKS, MAXCLIENTS, MAXMEMORY, break_in};
use super::checker::{Verdict, check};
use super::client::{FENCES, HONEST_PASSWORD, HONEST_USER, LOCKS};
use super::harness::Besieged;
use super::{report, seed};
use crate::support::binary::Directory;
use crate::support::rng::number;
use crate::support::server::Server;
use crate::support::waits::wait_until;
use crate::support::wire::Link;
use crate::support::words::info_field;

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs several addresses of this machine")]
fn attackers_take_no_lock_and_keep_no_client_from_one() {
    let mut target = Target::set();
    let (address, before) = (target.address, target.used_memory());
    let mut clients = Besieged::start(&address, seed()).expect("processes that start");
    target.grants_go_on(&mut clients, "before the attacks");
    let end = Instant::now() + Duration::from_secs(number("MUTEX_SECONDS").unwrap_or(0));
    loop {
        for (name, attack) in ATTACKS {
            let held = attack(address).unwrap_or_else(|error| panic!("{name}: {error}"));
            target.grants_go_on(&mut clients, name);
            drop(held);
            target.grants_go_on(&mut clients, &format!("after {name}"));
        }
        // Together they refuse each other memory and places: what becomes of each is not asserted.
        scope(|scope| {
            let attacks: Vec<_> = ATTACKS.iter().map(|(_, attack)| scope.spawn(|| attack(address))).collect();
            let held: Vec<_> =
                attacks.into_iter().map(|attack| attack.join().expect("no attack panics")).collect();
            assert_eq!(target.admin.ask(&["PING"]).ok(), Some(OwnedFrame::SimpleString(b"PONG".to_vec())));
            drop(held);
        });
        target.grants_go_on(&mut clients, "after all attacks together");
        if Instant::now() >= end {
            break;
        }
    }
    let verdict = check(&clients.end().expect("no client has lost a connection or got an error"));
    report("under attack", &verdict);
    let found = verdict.unsafe_findings();
    assert!(found.is_empty(), "{} violations, the first is {:?}", found.len(), found[0]);
    let Verdict { queued, sessions, tokens, extensions, releases, .. } = verdict;
    assert!([queued, sessions, tokens, extensions, releases].iter().all(|count| *count > 0), "{verdict:?}");
    target.has_forgotten_all(before);
}

#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "needs several addresses of this machine")]
fn an_attacker_that_may_delete_the_locks_is_caught() {
    let mut target = Target::set();
    target.admin_does(&["ACL", "SETUSER", ATTACKER, "~lock:*"]);
    let address = target.address;
    let mut clients = Besieged::start(&address, seed()).expect("processes that start");
    target.grants_go_on(&mut clients, "before the attack");
    let mut attacker = break_in(address).expect("a login");
    let wanted = clients.grants().expect("clients that run") + 20 * PROGRESS;
    while clients.grants().expect("clients that run") < wanted {
        LOCKS.iter().for_each(|lock| drop(attacker.ask(&["DEL", lock]).expect("an answer")));
    }
    let verdict = check(&clients.end().expect("no client has lost a connection or got an error"));
    report("with an attacker that may delete the locks", &verdict);
    assert!(!verdict.unsafe_findings().is_empty(), "{verdict:?}");
}

/// A server with limits, users, and a connection of its administrator.
struct Target {
    address: SocketAddr,
    admin: Link,
    server: Server,
    _directory: Directory,
}

impl Target {
    fn set() -> Self {
        let directory = Directory::new();
        let (maxclients, maxmemory) = (MAXCLIENTS.to_string(), MAXMEMORY.to_string());
        let settings = [
            ["--requirepass", ADMIN_PASSWORD],
            ["--maxclients", &maxclients],
            ["--maxclients-reserved", "0"],
            ["--maxmemory", &maxmemory],
            ["--script-memory-limit", "8mb"],
            // Unread output counts for maxmemory: without a limit two readers leave no memory for locks.
            ["--client-output-buffer-limit", "normal 4mb 0 0 pubsub 4mb 0 0"],
            // The attackers end their scripts, however long that takes: no request is told BUSY meanwhile.
            ["--busy-reply-threshold", "0"],
        ];
        let settings = settings.concat().iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let server = Server::start_redlatch(directory.root(), &settings).expect("a server that starts");
        let address = (Ipv4Addr::LOCALHOST, server.port()).into();
        let admin = Link::to(address).expect("a server that accepts");
        let mut target = Self { address, admin, server, _directory: directory };
        target.admin_does(&["AUTH", ADMIN_PASSWORD]);
        let mut user = |name, password: &str, rights: &[&str]| {
            let password = format!(">{password}");
            let words = [&["ACL", "SETUSER", name, "on", &password], rights].concat();
            target.admin_does(&[&words[..], &["+@all", "-@admin", "-@dangerous"]].concat());
        };
        user(HONEST_USER, HONEST_PASSWORD, &["~lock:*", &format!("~{FENCES}")]);
        user(ATTACKER, ATTACKER_PASSWORD, &["~attack:*", "&attack:*"]);
        target.admin_does(&["ACL", "SETUSER", ATTACKER, "+monitor", "+info", "+lock.break"]);
        target
    }

    fn admin_does(&mut self, words: &[&str]) {
        let answer = self.admin.ask(words).expect("a server that answers");
        assert_eq!(answer, OwnedFrame::SimpleString(b"OK".to_vec()), "{words:?}");
    }

    /// Asks until the clients have been granted further locks.
    fn grants_go_on(&mut self, clients: &mut Besieged<'_>, when: &str) {
        let grants =
            |clients: &mut Besieged<'_>| clients.grants().unwrap_or_else(|error| panic!("{when}: {error}"));
        let wanted = grants(clients) + PROGRESS;
        wait_until(&format!("{when}: further locks are granted"), || {
            assert!(self.admin.ask(&["PING"]).is_ok(), "{when}: {:?}", self.server.last_words(20));
            grants(clients) >= wanted
        });
    }

    fn info(&mut self, field: &str) -> u64 {
        let answer = self.admin.ask(&["INFO"]).expect("a server that answers");
        info_field(answer.as_str().expect("INFO is text"), field)
    }

    /// Without what it remembers of ended locks, whose number is bounded.
    fn used_memory(&mut self) -> u64 {
        self.info("used_memory") - self.info("used_memory_lock_history")
    }

    /// Asserts that nothing is left of clients that have gone, once their keys and scripts are removed.
    fn has_forgotten_all(&mut self, before: u64) {
        let is_gone = |target: &mut Self, field: &str, most: u64| {
            wait_until(field, || target.info(field) <= most);
        };
        is_gone(self, "connected_clients", 1);
        for kind in ["lock_sessions", "subscriptions", "tracking", "transactions", "waits", "watches"] {
            is_gone(self, &format!("used_memory_{kind}"), 0);
        }
        self.admin_does(&["FLUSHALL"]);
        self.admin_does(&["SCRIPT", "FLUSH"]);
        let after = self.used_memory();
        assert!(after <= before + SLACK, "{before} bytes have become {after}");
        assert!(!self.server.has_ended());
        let log = self.server.last_words(usize::MAX);
        assert!(!log.iter().any(|line| line.contains("panic")), "{log:#?}");
    }
}

const ADMIN_PASSWORD: &str = "admin-password";
/// Grants that the clients must get before the next attack.
const PROGRESS: usize = 20;
/// Bytes that tables and buffers may keep.
const SLACK: u64 = 64 * 1024;
