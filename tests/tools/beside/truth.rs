//! What a shadow shows of a server is what a redlatch shows that has served the same requests.
//!
//! Belongs here  the requests of lock clients, and the columns that docs/beside.md promises.
//! Time          leases end hours after the test, or are waited for. A checkpoint waits for readings.
//! Bounds        `BESIDE_REQUESTS` for a longer run, `SEED` for another one. `REDLATCH_SCRIPTS_DIR` has the scripts of the
//!               clients; without it, only those of this project are sent.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use redlatch_core::scripts::KNOWN;
use sha1::{Digest, Sha1};

use super::*;
use crate::protocol::scripts::collected;
use crate::support::reply::Reply;
use crate::support::rng::{Rng, number};
use crate::support::waits::PATIENCE;

/// What clients send: a command, or a known script, and its words. `%k` is the number of a key, `%o` an owner, `%id` one of
/// Redisson's, `%ms` and `%s` a lease, `%now` a Unix time, `%n` a number that no other request has. `%latch`, `%queue`,
/// `%times` and `%reader` are keys that Redisson keeps beside a lock.
const CALLS: &[(&str, &str)] = &[
    ("SET", "lock:py:%k %o NX PX %ms"),
    ("SET", "lock:py:%k %o NX"),
    ("redis-py Lock: extend", "1 lock:py:%k %o %ms 0"),
    ("redis-py Lock: reacquire", "1 lock:py:%k %o %ms"),
    ("redis-py Lock: release", "1 lock:py:%k %o"),
    ("SET", "lock:ion:%k %o NX EX %s"),
    ("python-redis-lock (ionelmc): extend", "1 lock:ion:%k %o %s"),
    ("python-redis-lock (ionelmc): unlock", "2 lock:ion:%k lock-signal:%k %o 1000"),
    ("SET", "lock:own:%k %o NX PX %ms"),
    ("redlatch::lock: extend", "1 lock:own:%k %o %ms"),
    ("redlatch::lock: release", "1 lock:own:%k %o"),
    ("redlock v4: lock", "1 lock:red:%k %o %ms"),
    ("redlock v4: lock", "2 lock:red:0 lock:red:1 %o %ms"),
    ("redlock v4: extend", "1 lock:red:%k %o %ms"),
    ("redlock v4: unlock", "1 lock:red:%k %o"),
    ("redlock v5 beta: acquire", "1 lock:red:%k %o %ms"),
    ("redlock v5 beta: release", "1 lock:red:%k %o"),
    ("set", "lock:sync:%k %o px %ms nx"),
    ("go-redsync/redsync: touch", "1 lock:sync:%k %o %ms"),
    ("go-redsync/redsync: touchWithSetNX", "1 lock:sync:%k %o %ms"),
    ("go-redsync/redsync: delete", "1 lock:sync:%k %o"),
    ("bsm/redislock: obtain", "1 lock:bsm:%k %o 8 %ms"),
    ("bsm/redislock: refresh", "1 lock:bsm:%k %o %ms"),
    ("bsm/redislock: release", "1 lock:bsm:%k %o"),
    ("SET", "lock:io:%k %o PX %ms NX"),
    ("@microfleet/ioredis-lock: pexpireifequal", "1 lock:io:%k %o %ms"),
    ("@microfleet/ioredis-lock: delifequal", "1 lock:io:%k %o"),
    ("SET", "mutex-lock:%k %o PX %ms NX"),
    ("redis-semaphore: mutex refresh", "1 mutex-lock:%k %o %ms"),
    ("redis-semaphore: mutex release", "1 mutex-lock:%k %o"),
    ("redis-semaphore: semaphore acquire", "1 semaphore:lock:%k 2 %o %ms %now"),
    ("redis-semaphore: semaphore refresh", "1 semaphore:lock:%k 2 %o %ms %now"),
    ("ZREM", "semaphore:lock:%k %o"),
    ("redis-semaphore: multi acquire", "1 multi:lock:%k 5 2 %o %ms %now"),
    ("redis-semaphore: multi release", "1 multi:lock:%k 2 %o"),
    ("Symfony Lock RedisStore: save", "1 symfony-lock:%k %now %o %ms"),
    ("Symfony Lock RedisStore: saveRead", "1 symfony-lock:%k %now %o %ms"),
    ("Symfony Lock RedisStore: putOffExpiration", "1 symfony-lock:%k %now %o %ms"),
    ("Symfony Lock RedisStore: delete", "1 symfony-lock:%k %o"),
    ("SETNX", "lock:old:%k %o"),
    ("EXPIRE", "lock:old:%k %s"),
    ("DEL", "lock:old:%k"),
    ("Redisson: Lock tryLock", "1 myLock:%k %ms %id"),
    ("Redisson: renewal", "1 myLock:%k %ms %id"),
    ("Redisson: Lock unlock", "3 myLock:%k c %latch 0 %ms %id publish 5000"),
    ("Redisson: Lock forceUnlock", "2 myLock:%k c 0 publish"),
    ("Redisson: FencedLock tryLock", "2 fencedLock:%k redisson_lock_token:{fencedLock:%k} %ms %id"),
    ("Redisson: Lock unlock", "3 fencedLock:%k c %latch 0 %ms %id publish 5000"),
    ("Redisson: SpinLock tryLock", "1 spinLock:%k %ms %id"),
    ("Redisson: SpinLock unlock", "2 spinLock:%k %latch %ms %id 5000"),
    ("Redisson: ReadLock tryLock", "2 rwLock:%k %reader %ms %id %id:write"),
    ("Redisson: ReadLock unlock", "5 rwLock:%k c %reader {rwLock:%k} %latch 0 %id publish 5000"),
    ("Redisson: WriteLock tryLock", "1 rwLock:%k %ms %id:write"),
    ("Redisson: WriteLock unlock", "3 rwLock:%k c %latch 0 %ms %id:write publish 5000"),
    ("Redisson: FairLock tryLock", "3 fairLock:%k %queue %times %ms %id %now 5000"),
    ("Redisson: FairLock tryLock (2)", "3 fairLock:%k %queue %times %ms %id 5000 %now"),
    ("Redisson: FairLock unlock", "5 fairLock:%k %queue %times c %latch 0 %ms %id %now publish 5000"),
    ("SET", "lock:short:%n %o NX PX 20"),
    // No locks.
    ("SET", "session:%k %o PX %ms"),
    ("HSET", "user:%k name %o"),
    ("LPUSH", "lock:list:%k %o"),
    ("ZADD", "limit:%k %now %o"),
    // Rejected.
    ("EVALSHA", "0000000000000000000000000000000000000000 1 lock:py:%k %o"),
    ("HGET", "lock:py:%k %o"),
    ("SET", "lock:py:%k"),
];
/// Requests between two checkpoints.
const STEP: u64 = 1_000;
/// Requests that a server is sent before it answers.
const BATCH: u64 = 50;
/// How much the leases of one lock may differ, apart from what sending requests and asking for views takes. Leases that
/// are set differ by more, nearly always.
const LEFT_MAX: Duration = Duration::from_secs(10);

/// The texts of known scripts, by the names of the clients.
fn texts() -> BTreeMap<&'static str, Vec<u8>> {
    let own = [
        include_str!("../../../crates/client/src/extend.lua"),
        include_str!("../../../crates/client/src/release.lua"),
    ];
    let sha1 = |text: &str| Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect();
    let own: BTreeMap<String, Vec<u8>> = own.into_iter().map(|text| (sha1(text), text.into())).collect();
    let all = [own, collected().unwrap_or_default()];
    KNOWN
        .iter()
        .filter_map(|known| Some((known.client, all.iter().find_map(|texts| texts.get(known.sha1))?.clone())))
        .collect()
}

/// Draws requests.
struct Clients {
    rng: Rng,
    texts: BTreeMap<&'static str, Vec<u8>>,
    calls: Vec<(&'static str, &'static str)>,
    sent: u64,
    /// The keys of locks whose leases end at once.
    short: Vec<String>,
}

impl Clients {
    fn new() -> Self {
        let texts = texts();
        let can_send = |(name, _): &&(&'static str, _)| !name.contains(": ") || texts.contains_key(name);
        let calls: Vec<_> = CALLS.iter().filter(can_send).copied().collect();
        let rng = Rng::new(number("SEED").unwrap_or(0));
        Self { rng, texts, calls, sent: 0, short: Vec::new() }
    }

    fn next(&mut self) -> Vec<u8> {
        self.sent += 1;
        let (name, words) = self.rng.pick(&self.calls);
        let lease = 100 * (10 + self.rng.below_u64(90));
        let owner = self.rng.below(3);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let key = words.split(' ').nth(1).unwrap_or_default();
        let words = words
            .replace("%latch", &format!("redisson_unlock_latch:{{{key}}}:%n"))
            .replace("%queue", &format!("redisson_lock_queue:{{{key}}}"))
            .replace("%times", &format!("redisson_lock_timeout:{{{key}}}"))
            .replace("%reader", &format!("{{{key}}}:%id:rwlock_timeout"))
            .replace("%now", &now.to_string())
            .replace("%ms", &(lease * 1_000).to_string())
            .replace("%id", &format!("285475da-9152-4c83-822a-67ee2f116a79:{owner}"))
            .replace("%k", &self.rng.below(4).to_string())
            .replace("%o", &format!("worker-{owner}"))
            .replace("%n", &self.sent.to_string())
            .replace("%s", &lease.to_string());
        if words.contains(":short:") {
            self.short.extend(words.split(' ').next().map(str::to_owned));
        }
        let head = match self.texts.get(name) {
            Some(text) => vec![b"EVAL".to_vec(), text.clone()],
            None => vec![name.as_bytes().to_vec()],
        };
        request(&[head, words.split(' ').map(Into::into).collect()].concat())
    }
}

/// A connection over which many requests are sent at once.
struct Link<S> {
    stream: S,
    bytes: Vec<u8>,
}

impl<S: Read + Write> Link<S> {
    fn over(stream: S) -> Self {
        Self { stream, bytes: Vec::new() }
    }

    /// Sends requests; returns how many were rejected.
    fn send(&mut self, requests: &[Vec<u8>]) -> usize {
        self.stream.write_all(&requests.concat()).unwrap();
        let replies = requests.iter().map(|_| self.reply().expect("a reply"));
        replies.filter(|reply| matches!(reply, Reply::Error(_))).count()
    }

    fn ask(&mut self, words: &[&str]) -> Reply {
        self.stream.write_all(&request(words)).unwrap();
        self.reply().expect("a reply")
    }

    /// The next reply; `None`: the server has closed the connection.
    fn reply(&mut self) -> Option<Reply> {
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some((reply, taken)) = Reply::read(&self.bytes).unwrap() {
                self.bytes.drain(..taken);
                return Some(reply);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn link_to(url: &str) -> Link<UnixStream> {
    let path = url.strip_prefix("unix://").unwrap();
    let mut stream = None;
    wait_until("the server accepts", || {
        stream = UnixStream::connect(path).ok();
        stream.is_some()
    });
    let stream = stream.unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Link::over(stream)
}

/// What the columns say of one lock that both depths promise, and how much of its lease is left.
type Lock = ((Value, Value, BTreeMap<String, Value>), Option<u64>);

/// The locks of a server by their keys.
fn view(url: &str) -> BTreeMap<String, Lock> {
    let (_, said, told) = ended(redlatch().args(["ls", "--json", "--url", url]));
    let locks: Vec<Value> = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{told}{said}"));
    let lock = |lock: Value| {
        let holders = lock["holders"].as_array().unwrap();
        let owners = holders.iter().map(|holder| (holder["owner"].to_string(), holder["permits"].clone()));
        let columns = (lock["kind"].clone(), lock["limit"].clone(), owners.collect());
        (lock["key"].as_str().unwrap().to_owned(), (columns, holders[0]["left"].as_u64()))
    };
    locks.into_iter().map(lock).collect()
}

/// The servers of a run.
struct Run {
    clients: Clients,
    /// What has served the same requests.
    reference: (Running, Link<TcpStream>),
    /// What is observed: its URL.
    url: String,
    observed: Link<UnixStream>,
    shadows: [Shadow; 2],
    /// The longest time in which both were sent the same requests.
    sending: Duration,
    /// Requests that were rejected by the one and by the other.
    rejected: (usize, usize),
    /// Locks that checkpoints have seen, by kind.
    seen: BTreeMap<String, usize>,
}

impl Run {
    fn new(url: &str) -> Self {
        let reference = observed(&[]);
        let link = reference.connect();
        link.set_read_timeout(Some(PATIENCE)).unwrap();
        let tracking = Shadow::start(url, &["--by", "tracking", "--match", "*[Ll]ock*"]);
        wait_until("all is read", || tracking.number("beside_in_gap") == 0);
        Self {
            clients: Clients::new(),
            reference: (reference, Link::over(link)),
            url: url.to_owned(),
            observed: link_to(url),
            shadows: [Shadow::start(url, &[]), tracking],
            sending: Duration::ZERO,
            rejected: (0, 0),
            seen: BTreeMap::new(),
        }
    }

    /// Sends both servers the same requests.
    fn send(&mut self, requests: &[Vec<u8>]) {
        let begun = Instant::now();
        self.rejected.0 += self.reference.1.send(requests);
        self.rejected.1 += self.observed.send(requests);
        self.sending = self.sending.max(begun.elapsed());
    }

    /// Sends random requests, with a checkpoint after each step.
    fn serve(&mut self, count: u64) {
        for _ in 0..count.div_ceil(STEP) {
            for _ in 0..STEP / BATCH {
                let requests: Vec<_> = (0..BATCH).map(|_| self.clients.next()).collect();
                self.send(&requests);
            }
            self.checkpoint();
        }
    }

    /// Compares the views, when all that was sent has been read.
    fn checkpoint(&mut self) {
        let short = std::mem::take(&mut self.clients.short);
        let exist: Vec<&str> = std::iter::once("EXISTS").chain(short.iter().map(String::as_str)).collect();
        if !short.is_empty() {
            let none = Reply::Int(0);
            wait_until("leases end", || {
                self.reference.1.ask(&exist) == none && self.observed.ask(&exist) == none
            });
        }
        self.shadows[0].read_all();
        // The keys that have changed take turns: when the second mark is read, so are all that changed before the first.
        for _ in 0..2 {
            self.mark();
        }
        let asked = Instant::now();
        let expected = view(&self.reference.0.url());
        for shadow in &self.shadows {
            let locks = shadow.ask("LOCK.LIST COUNT 100000");
            assert!(locks.contains("$4\r\nread\r\n") && !locks.contains("inferred"), "{locks}");
            let shown = view(&format!("redis://{}", shadow.address(" at redis://")));
            let slack = LEFT_MAX + self.sending + asked.elapsed();
            compare(&shown, &expected, slack, &shadow.ask("INFO beside"));
        }
        for ((kind, ..), _) in expected.values() {
            *self.seen.entry(kind.to_string()).or_default() += 1;
        }
    }

    /// Takes a lock, and waits until both shadows show that it is taken.
    fn mark(&mut self) {
        self.clients.sent += 1;
        let owner = format!("mark-{}", self.clients.sent);
        let set = ["SET", "lock:mark", &owner, "NX", "PX", "3600000"];
        self.send(&[request(&["DEL", "lock:mark"]), request(&set)]);
        for shadow in &self.shadows {
            wait_until("the mark", || shadow.ask("LOCK.WHO lock:mark").contains(&owner));
        }
    }

    /// Does what both shadows must notice, and waits until they have read everything again.
    fn gap(&mut self, cause: impl FnOnce(&mut Self)) {
        let before = self.shadows.each_ref().map(|shadow| shadow.number("beside_gaps"));
        cause(self);
        for (shadow, before) in self.shadows.iter().zip(before) {
            wait_until("the gap is over", || {
                shadow.number("beside_gaps") > before && shadow.number("beside_in_gap") == 0
            });
        }
        self.checkpoint();
    }

    /// Serves requests; between them the connections of the shadows are cut, and the server starts again as `restart` does.
    fn check(mut self, requests: u64, restart: impl FnOnce(&mut Self)) {
        self.serve(requests / 3);
        self.gap(|run| drop(run.observed.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])));
        self.serve(requests / 3);
        self.gap(|run| {
            restart(run);
            run.observed = link_to(&run.url);
            run.reference.1.ask(&["FLUSHALL"]);
        });
        self.serve(requests - 2 * (requests / 3));
        let Self { clients, rejected, seen, .. } = &self;
        println!(
            "{} requests of {} shapes, rejected {rejected:?}, seen {seen:?}",
            clients.sent,
            clients.calls.len()
        );
        assert!(rejected.0 == rejected.1 && rejected.0 > 0, "{rejected:?}");
        // Locks of other kinds are those of scripts.
        let kinds = if clients.texts.len() > 10 { 3 } else { 1 };
        assert!(seen.len() >= kinds, "{seen:?}");
    }
}

/// Checks that a shadow shows what is expected. Leases may differ by `slack`.
fn compare(shown: &BTreeMap<String, Lock>, expected: &BTreeMap<String, Lock>, slack: Duration, info: &str) {
    let is_alike = |key: &&String| match (shown.get(*key), expected.get(*key)) {
        (Some((columns, left)), Some((others, other))) if columns == others => match (left, other) {
            (Some(left), Some(other)) => Duration::from_millis(left.abs_diff(*other)) < slack,
            (left, other) => left == other,
        },
        _ => false,
    };
    let keys = shown.keys().chain(expected.keys());
    let other: BTreeMap<_, _> =
        keys.filter(|key| !is_alike(key)).map(|key| (key, (shown.get(key), expected.get(key)))).collect();
    assert!(other.is_empty(), "shown, expected: {other:#?}\n{info}");
}

#[test]
fn a_shadow_shows_what_a_redlatch_shows_that_has_served_the_same_requests() {
    let directory = Directory::new();
    let socket = directory.path("socket");
    let mut server = Some(observed(&["--unixsocket", &socket]));
    let run = Run::new(&format!("unix://{socket}"));
    run.check(number("BESIDE_REQUESTS").unwrap_or(3 * STEP), |_| {
        server.take().unwrap().kill();
        server = Some(observed(&["--unixsocket", &socket]));
    });
}

fn real(name: &'static str) {
    let server = RealServer::start(name);
    let run = Run::new(&server.url());
    run.check(number("BESIDE_REQUESTS").unwrap_or(100_000), |run| {
        run.observed.stream.write_all(&request(&["DEBUG", "RESTART"])).unwrap();
        assert_eq!(run.observed.reply(), None, "the server ends");
    });
}

#[test]
#[ignore = "needs REDLATCH_REDIS_SERVER"]
fn a_shadow_of_a_real_redis_shows_it_too() {
    real("redis");
}

#[test]
#[ignore = "needs REDLATCH_VALKEY_SERVER"]
fn a_shadow_of_a_real_valkey_shows_it_too() {
    real("valkey");
}
