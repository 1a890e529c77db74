//! Commands that are explored: each takes a lock, does its work, and releases the lock. All but the first have one bug.
//!
//! Rule    they are tests, so that this program can run itself. Without a server in REDIS_URL they do nothing.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};

use crate::support::bare::RELEASE;
use crate::support::ports::free_port;
use crate::support::wire::Link;

const KEY: &str = "orders";
const LEASE_MS: &str = "30000";
/// How often a server that restarts is asked again.
const TRIES: u32 = 20_000;

/// How often one of several servers that restarts is asked again. One that is down stays so.
const TRIES_OF_A_STORE: u32 = 1_000;

/// A connection to the server of REDIS_URL.
struct Client(Link);

impl Client {
    fn connect() -> io::Result<Self> {
        Self::to(&std::env::var("REDIS_URL").unwrap_or_default())
    }

    fn to(url: &str) -> io::Result<Self> {
        let address = url.trim_start_matches("redis://").parse().map_err(io::Error::other)?;
        Link::to(address).map(Self)
    }

    fn take(&mut self, owner: &str) -> io::Result<bool> {
        Ok(self.0.ask(&["SET", KEY, owner, "NX", "PX", LEASE_MS])?.as_str() == Some("OK"))
    }

    /// Connects as soon as the server, which may be about to restart, answers.
    fn connect_again() -> io::Result<Self> {
        let connect = || {
            let mut client = Self::connect()?;
            client.0.ask(&["PING"]).map(|_| client)
        };
        (0..TRIES).find_map(|_| connect().ok()).ok_or_else(|| io::Error::other("the server stays away"))
    }

    fn holds(&mut self, owner: &str) -> io::Result<bool> {
        Ok(self.0.ask(&["GET", KEY])?.as_str() == Some(owner))
    }

    /// Releases the lock; false if it was lost.
    fn release(&mut self, owner: &str) -> io::Result<bool> {
        Ok(self.0.ask(&["EVAL", RELEASE, "1", KEY, owner])? == OwnedFrame::Integer(1))
    }

    fn work(&mut self) -> io::Result<()> {
        self.0.ask(&["INCR", "work"]).map(drop)
    }

    /// The time of the server, in seconds.
    fn seconds(&mut self) -> io::Result<u64> {
        let OwnedFrame::Array(time) = self.0.ask(&["TIME"])? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        time[0].as_str().unwrap_or_default().parse().map_err(io::Error::other)
    }
}

/// The URLs of all servers.
fn urls() -> Vec<String> {
    let urls = std::env::var("REDIS_URLS").unwrap_or_default();
    urls.split(',').map(str::to_owned).collect()
}

/// A client of the cluster, connected to the node that serves the key.
struct Cluster(Client);

impl Cluster {
    /// Connects as soon as a node serves the key, which may be a replica that is about to take over.
    fn connect() -> io::Result<Self> {
        let serves = |url: &String| {
            let mut client = Client::to(url)?;
            let answer = client.0.ask(&["GET", KEY])?;
            let is_served = !matches!(answer, OwnedFrame::Error(_));
            is_served.then_some(Self(client)).ok_or_else(|| io::Error::other("another node serves it"))
        };
        let found = (0..TRIES).find_map(|_| urls().iter().find_map(|url| serves(url).ok()));
        found.ok_or_else(|| io::Error::other("no node serves the key"))
    }

    /// Asks the node that serves the key.
    ///
    /// # Errors
    /// The connection has ended: nobody knows whether the request was executed.
    fn ask(&mut self, words: &[&str]) -> io::Result<OwnedFrame> {
        let answer = self.0.0.ask(words)?;
        if answer.as_str().is_none_or(|text| !text.starts_with("MOVED ")) {
            return Ok(answer);
        }
        *self = Self::connect()?;
        self.0.0.ask(words)
    }

    /// Like [`Self::ask`]; a request whose connection ends is sent again.
    fn ask_again(&mut self, words: &[&str]) -> OwnedFrame {
        self.ask(words).unwrap_or_else(|_| {
            *self = Self::connect().unwrap();
            self.ask(words).unwrap()
        })
    }

    /// Takes the lock, also if the first reply is lost.
    fn take(owner: &str) -> Self {
        let mut cluster = Self::connect().unwrap();
        let answer = cluster.ask_again(&["SET", KEY, owner, "NX", "PX", LEASE_MS]);
        let is_taken =
            answer.as_str() == Some("OK") || cluster.ask_again(&["GET", KEY]).as_str() == Some(owner);
        assert!(is_taken, "somebody else holds it");
        cluster
    }
}

/// The process of a server that a program has started.
struct Started(Child);

impl Started {
    /// Starts the `redis-server` of the search path, as fixtures do. Returns its address, too.
    fn redis() -> (Self, String) {
        let port = free_port();
        let mut command = Command::new("redis-server");
        let server = command.args(["--port", &port.to_string(), "--save", ""]).stdout(Stdio::piped()).spawn();
        let mut server = Self(server.unwrap());
        let log = BufReader::new(server.0.stdout.take().unwrap());
        let is_ready = |line: io::Result<String>| line.unwrap().contains("Ready to accept connections");
        assert!(log.lines().any(is_ready), "it does not become ready");
        (server, format!("redis://127.0.0.1:{port}"))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn owner() -> String {
    format!("process-{}", std::process::id())
}

/// Takes the lock. If nobody knows whether that has happened, the lock is given back before it fails.
fn take_or_clean_up(owner: &str) -> io::Result<Client> {
    let mut client = Client::connect()?;
    match client.take(owner) {
        Ok(true) => Ok(client),
        Ok(false) => Err(io::Error::other("somebody else holds it")),
        Err(error) => {
            // The server may be about to restart.
            let released =
                (0..TRIES).any(|_| Client::connect().and_then(|mut client| client.release(owner)).is_ok());
            assert!(released, "the server stays away");
            Err(error)
        }
    }
}

/// A server of several, each with a store of its own.
struct Store {
    url: String,
    client: Option<Client>,
}

impl Store {
    fn all() -> Vec<Self> {
        urls().into_iter().map(|url| Self { url, client: None }).collect()
    }

    /// Asks it. A request whose connection ends is sent again if the server may be about to restart.
    fn ask(&mut self, tries: u32, ask: impl Fn(&mut Client) -> io::Result<bool>) -> bool {
        let mut once = || {
            let client = match &mut self.client {
                Some(client) => client,
                none => none.insert(Client::to(&self.url)?),
            };
            let answer = ask(client);
            if answer.is_err() {
                self.client = None;
            }
            answer
        };
        (0..tries).find_map(|_| once().ok()).unwrap_or(false)
    }
}

/// Takes a lock that most of several servers must grant, and releases it on each of them. Returns on how many.
fn redlock(release: impl Fn(&mut Client) -> io::Result<bool>) -> usize {
    let (mut stores, owner) = (Store::all(), owner());
    let taken =
        stores.iter_mut().filter_map(|store| store.ask(1, |client| client.take(&owner)).then_some(()));
    let is_taken = 2 * taken.count() > urls().len();
    // If it was not granted, it is given back where it may have been.
    let released = stores.iter_mut().filter_map(|store| store.ask(TRIES_OF_A_STORE, &release).then_some(()));
    let released = released.count();
    assert!(is_taken, "it was not granted");
    released
}

/// Makes each program a test, which does nothing unless it is explored.
macro_rules! programs {
    ($($(#[$note:meta])* fn $name:ident() $body:block)*) => {$(
        $(#[$note])*
        #[test]
        #[ignore = "a program that the tests of explore run"]
        fn $name() {
            if std::env::var("REDIS_URL").is_ok() && std::env::var("REDLATCH_INJECTED").is_ok() $body
        }
    )*};
}

programs! {
    fn right() {
        let mut client = take_or_clean_up(&owner()).unwrap();
        client.work().unwrap();
        assert!(client.release(&owner()).unwrap(), "the lock was lost while the work was done");
    }

    fn forgets_a_lock_whose_reply_is_lost() {
        let mut client = Client::connect().unwrap();
        assert!(client.take(&owner()).unwrap());
        client.work().unwrap();
        assert!(client.release(&owner()).unwrap());
    }

    fn deletes_the_lock_of_the_next_holder() {
        let mut client = take_or_clean_up(&owner()).unwrap();
        client.work().unwrap();
        client.0.ask(&["DEL", KEY]).unwrap();
    }

    fn deletes_the_lock_in_a_server_of_its_own() {
        let (_server, url) = Started::redis();
        let mut client = Client::to(&url).unwrap();
        assert!(client.take(&owner()).unwrap());
        client.work().unwrap();
        client.0.ask(&["DEL", KEY]).unwrap();
    }

    fn looks_at_its_lock_before_it_deletes_it() {
        let mut client = take_or_clean_up(&owner()).unwrap();
        client.work().unwrap();
        assert!(client.holds(&owner()).unwrap(), "the lock was lost while the work was done");
        client.0.ask(&["DEL", KEY]).unwrap();
    }

    /// One client holds the lock. Another one is refused, and then listens for the message of its release.
    fn listens_after_it_was_refused_and_does_not_look_again() {
        let mut holder = take_or_clean_up(&owner()).unwrap();
        let (is_refused, refusal) = std::sync::mpsc::channel();
        let waiter = std::thread::spawn(move || {
            let mut waiter = Client::connect().unwrap();
            if !waiter.take("waiter").unwrap() {
                let mut listener = Client::connect().unwrap();
                listener.0.send(&["SUBSCRIBE", "released"]).unwrap();
                is_refused.send(()).unwrap();
                (0..2).for_each(|_| drop(listener.0.next().unwrap()));
                assert!(waiter.take("waiter").unwrap());
            }
            waiter.release("waiter").unwrap();
        });
        // What was sent before has arrived when so many replies have come.
        let is_refused = refusal.recv();
        (0..20).for_each(|_| holder.work().unwrap());
        holder.release(&owner()).unwrap();
        holder.0.ask(&["PUBLISH", "released", ""]).unwrap();
        is_refused.unwrap();
        waiter.join().unwrap();
    }

    fn ignores_that_its_lock_was_lost() {
        let mut client = take_or_clean_up(&owner()).unwrap();
        client.work().unwrap();
        client.release(&owner()).unwrap();
    }

    fn measures_its_lease_with_the_wall_clock() {
        let mut client = take_or_clean_up(&owner()).unwrap();
        let end = Client::connect().unwrap().seconds().unwrap() + 30;
        client.work().unwrap();
        let is_lost = !client.release(&owner()).unwrap();
        assert!(!is_lost && client.seconds().unwrap() <= end, "the lease was over");
    }

    fn forgets_its_lock_when_its_retry_is_lost_as_well() {
        let mut client = Client::connect().unwrap();
        let mut is_taken = client.take(&owner());
        if is_taken.is_err() {
            // It may have been granted, and then the lock is its own.
            client = Client::connect_again().unwrap();
            is_taken = client.take(&owner());
            if is_taken.as_ref().is_ok_and(|is_taken| !is_taken) {
                is_taken = client.holds(&owner());
            }
        }
        assert!(is_taken.unwrap());
        client.work().unwrap();
        assert!(client.release(&owner()).unwrap());
    }

    fn waits_for_its_own_lock() {
        let mut client = Client::connect().unwrap();
        // The first reply may be lost, and then the lock is its own.
        while !client.take(&owner()).unwrap_or(false) {
            client = Client::connect().unwrap();
        }
        client.work().unwrap();
        assert!(client.release(&owner()).unwrap());
    }

    fn releases_a_lock_of_lock_commands_with_del() {
        let owner = owner();
        let take = |client: &mut Client| client.0.ask(&["LOCK.ACQUIRE", KEY, &owner, "LEASE", LEASE_MS]);
        let mut client = Client::connect().unwrap();
        let answer = take(&mut client).or_else(|_| {
            // The same owner may ask again.
            client = Client::connect_again()?;
            take(&mut client)
        });
        assert!(!matches!(answer.unwrap(), OwnedFrame::Null | OwnedFrame::Error(_)));
        client.work().unwrap();
        client.0.ask(&["DEL", KEY]).unwrap();
    }

    fn works_longer_than_its_lease() {
        let mut client = Client::connect().unwrap();
        client.0.ask(&["SET", KEY, &owner(), "NX", "PX", "1"]).unwrap();
        while client.holds(&owner()).unwrap() {}
        client.release(&owner()).unwrap();
    }

    fn deletes_a_lock_that_another_client_holds() {
        let _holder = take_or_clean_up(&owner()).unwrap();
        Client::connect().unwrap().0.ask(&["DEL", KEY]).unwrap();
    }

    fn leaves_its_lock_to_the_end_of_the_lease() {
        Client::connect().unwrap().take(&owner()).unwrap();
    }

    fn takes_a_lock_of_an_unknown_kind() {
        let mut client = Client::connect().unwrap();
        client.0.ask(&["HSETNX", KEY, "owner", &owner()]).unwrap();
        client.0.ask(&["HDEL", KEY, "owner"]).unwrap();
    }

    fn shuts_its_server_down() {
        let mut client = take_or_clean_up(&owner()).unwrap();
        assert!(client.release(&owner()).unwrap());
        // It may be down already.
        let _ = client.0.ask(&["SHUTDOWN", "NOSAVE"]);
        let is_down = || Client::connect().and_then(|mut client| client.work()).is_err();
        assert!((0..TRIES).any(|_| is_down()));
    }

    fn right_on_most_of_several_servers() {
        let released = redlock(|client| client.release(&owner()));
        assert!(2 * released > urls().len(), "the lock was lost while the work was done");
    }

    fn deletes_the_next_holders_lock_on_several_servers() {
        redlock(|client| client.0.ask(&["DEL", KEY]).map(|_| true));
    }

    fn right_in_a_cluster() {
        let released = Cluster::take(&owner()).ask_again(&["EVAL", RELEASE, "1", KEY, &owner()]);
        assert_eq!(released, OwnedFrame::Integer(1), "the lock was lost");
    }

    fn deletes_the_lock_of_who_got_it_after_a_fail_over() {
        Cluster::take(&owner()).ask_again(&["DEL", KEY]);
    }
}
