//! The locks of a server: their holders, and what can be done to them by name.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redlatch_proto::lock::BUDGET_DEFAULT;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, timeout};

use super::acquire::Lock;
use super::cluster::{Master, unserved};
use super::connection::{Connection, is_unknown};
use super::connector::Connector;
use super::counts::Counts;
use super::dialect::{RELEASE, held_plainly};
use super::error::Error;
use super::retry::Retry;
use super::target::{Target, Trust};
use super::views::{Held, Waiting};
use crate::received::Reply;

/// The locks of one server: a redlatch, or any server that speaks its protocol. Or those of a Redis Cluster, of which one
/// node is named: the node that serves a key is asked for its lock.
///
/// Every lock that is held or waited for has a connection of its own.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use redlatch::Server;
/// use redlatch::lock::{Error, Locks};
///
/// let server = Server::builder().start().await?;
/// let locks = Locks::connect(&server.url()).await?;
///
/// let lease = Duration::from_secs(30);
/// let guard = locks.lock("lock:stock").acquire().lease(lease).wait(Duration::from_secs(5)).await?;
/// let again = locks.lock("lock:stock").acquire().await;
/// assert!(matches!(again, Err(Error::Held(_))));
///
/// tokio::select! {
///     () = work() => {}
///     lost = guard.lost() => panic!("stop: {lost}"),
/// }
/// assert!(guard.release().await?);
/// # Ok(()) }
/// # async fn work() {}
/// ```
#[derive(Clone, Debug)]
pub struct Locks {
    pub(super) connector: Connector,
    pub(super) budget: Duration,
    pub(super) counts: Counts,
    on_unavailable: OnUnavailable,
    opened: Arc<AtomicU64>,
    /// Is told why a wait is interrupted.
    tell: Option<fn(&Error)>,
}

impl Locks {
    /// Connects to `redis[s]://[[user]:password@]host[:port][/database]`, to `unix:///path`, or to the master that
    /// Sentinels name: `redis[s]+sentinel://[[user]:password@]host[:port],.../name[/database]`.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::Unreachable`], or [`Error::Refused`] for the login.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_trusting(url, Trust::default()).await
    }

    /// The locks of the server at such a URL, which the first call connects to: the server may be away now.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn connect_lazily(url: &str) -> Result<Self, Error> {
        Ok(Self::at(Target::parse(url)?, Trust::default()))
    }

    /// Like [`Locks::connect`], with whom to trust behind a `rediss://` URL.
    ///
    /// # Errors
    /// As [`Locks::connect`].
    pub async fn connect_trusting(url: &str, trust: Trust) -> Result<Self, Error> {
        Self::to(Target::parse(url)?, trust).await
    }

    #[doc(hidden)]
    pub async fn to(target: Target, trust: Trust) -> Result<Self, Error> {
        let (locks, mut retry) =
            (Self::at(target, trust), Retry::of_call(BUDGET_DEFAULT, Some(Duration::ZERO)));
        let opened = async {
            while let Err(error) = locks.open().await {
                retry.again(error).await?;
            }
            Ok(())
        };
        within(BUDGET_DEFAULT, opened).await?;
        Ok(locks)
    }

    /// Like [`Locks::connect`], without asking whether the server is there.
    #[doc(hidden)]
    pub fn at(target: Target, trust: Trust) -> Self {
        Self::by(Connector::to(target, trust))
    }

    fn by(connector: Connector) -> Self {
        Self {
            connector,
            budget: BUDGET_DEFAULT,
            counts: Counts::default(),
            on_unavailable: OnUnavailable::default(),
            opened: Arc::default(),
            tell: None,
        }
    }

    /// Has the first error of each interruption of a wait told.
    #[doc(hidden)]
    #[must_use]
    pub fn telling(mut self, tell: fn(&Error)) -> Self {
        self.tell = Some(tell);
        self
    }

    /// The locks of a server that `open` connects to, over any asynchronous stream.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redlatch::Server::builder().start().await?;
    /// # let address = server.addr();
    /// use redlatch::lock::Locks;
    ///
    /// let locks = Locks::over(move || tokio::net::TcpStream::connect(address));
    /// let guard = locks.lock("lock:stock").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn over<F, O, S>(open: F) -> Self
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::with_login(open, Target::default())
    }

    #[doc(hidden)]
    pub fn with_login<F, O, S>(open: F, login: Target) -> Self
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::by(Connector::over(open, login))
    }

    /// How long a call may take, beside what it waits for a lock: connecting, logging in and all its requests
    /// together. Beyond it, the call fails with [`Error::Unreachable`]. Default: 5 s.
    ///
    /// A [`Locks::list`] has it for the connection; each of its requests may take five seconds.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = budget;
        self
    }

    /// What an acquisition comes to that no server has answered within its time. Default: [`OnUnavailable::Closed`].
    #[must_use]
    pub fn on_unavailable(mut self, on_unavailable: OnUnavailable) -> Self {
        self.on_unavailable = on_unavailable;
        self
    }

    /// How many guards were open: see [`OnUnavailable::Open`]. Clones count together.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Whether the caller goes on without a lock after these tries.
    pub(super) fn opens(&self, retry: &Retry) -> bool {
        self.on_unavailable == OnUnavailable::Open && !retry.was_told()
    }

    pub(super) fn count_open(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    /// The lock of one key.
    pub fn lock(&self, key: impl Into<Vec<u8>>) -> Lock<'_> {
        Lock::of(self, vec![key.into()])
    }

    /// The locks of several keys, taken all or none. A key that is named twice counts once.
    pub fn lock_all<K: Into<Vec<u8>>>(&self, keys: impl IntoIterator<Item = K>) -> Lock<'_> {
        Lock::of(self, keys.into_iter().map(Into::into).collect())
    }

    /// One of the locks of several keys: the one that is free, or becomes free first. With several free keys, it is the first
    /// that is named. [`Guard::key`](super::Guard::key) says which one it is. On a server without LOCK commands, the
    /// acquisition fails with [`Error::Unsupported`], unless there is one key only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redlatch::Server::builder().start().await?;
    /// # let locks = redlatch::lock::Locks::connect(&server.url()).await?;
    /// use redlatch::lock::Kind;
    ///
    /// let gpus = locks.any_of(["gpu:0", "gpu:1"]);
    /// let first = gpus.acquire().await?;
    /// assert_eq!(first.key(), b"gpu:0");
    /// // The next GPU is shared by at most four jobs.
    /// let quarter = gpus.acquire().mode("gpu:1", Kind::Permits { count: 1, limit: 4 }).await?;
    /// assert_eq!(quarter.key(), b"gpu:1");
    /// # Ok(()) }
    /// ```
    pub fn any_of<K: Into<Vec<u8>>>(&self, keys: impl IntoIterator<Item = K>) -> Lock<'_> {
        self.lock_all(keys).any()
    }

    /// Who holds a key; `None` if there is no such key. A key that is no lock is held by an unknown owner:
    /// [`Held::value_type`]. A server without LOCK commands tells the owner and the lease that is left.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn who(&self, key: impl AsRef<[u8]>) -> Result<Option<Held>, Error> {
        let key = key.as_ref();
        match self.ask(key, &[b"LOCK.WHO", key]).await {
            Ok(asked) => Ok(Held::read(&asked.reply)),
            Err(Error::Refused(text)) if is_unknown(&text) => {
                within(self.budget, async { self.who_on(&mut self.open_for(key).await?, key).await }).await
            }
            Err(error) => Err(error),
        }
    }

    /// Like [`Locks::who`], on a connection that is open.
    #[doc(hidden)]
    pub async fn who_on(&self, connection: &mut Connection, key: &[u8]) -> Result<Option<Held>, Error> {
        match connection.call(&[b"LOCK.WHO", key]).await {
            Ok(reply) => Ok(Held::read(&reply)),
            Err(Error::Refused(text)) if is_unknown(&text) => Ok(held_plainly(connection, key).await),
            Err(error) => Err(error),
        }
    }

    /// Every lock whose key matches the pattern, by key. The nodes of a cluster are asked one after the other.
    ///
    /// # Errors
    /// The server or a node cannot be asked, refuses, or has no LOCK commands; or slots of a cluster have no node.
    pub async fn list(&self, pattern: &str) -> Result<Vec<Held>, Error> {
        let mut found = Vec::new();
        for connection in &mut self.open_all().await? {
            found.extend(self.list_on(connection, pattern).await?);
        }
        found.sort_by(|one, other| one.key.cmp(&other.key));
        Ok(found)
    }

    /// Who waits for a key, in the order of its queue.
    ///
    /// # Errors
    /// The server cannot be asked, refuses, or has no LOCK commands.
    pub async fn waiters(&self, key: impl AsRef<[u8]>) -> Result<Vec<Waiting>, Error> {
        let key = key.as_ref();
        let reply = self.ask(key, &[b"LOCK.WAITERS", key]).await.map(|asked| asked.reply);
        Ok(native(reply, "LOCK.WAITERS")?.items().iter().map(Waiting::read).collect())
    }

    /// Takes a lock from its holder. False if `token` is no longer the current one.
    ///
    /// # Errors
    /// The server cannot be asked, refuses, or has no LOCK commands.
    pub async fn break_lock(
        &self,
        key: impl AsRef<[u8]>,
        token: u64,
        reason: Option<&str>,
    ) -> Result<bool, Error> {
        let token = token.to_string();
        let mut words: Vec<&[u8]> = vec![b"LOCK.BREAK", key.as_ref(), b"TOKEN", token.as_bytes()];
        words.extend(reason.iter().flat_map(|reason| [&b"REASON"[..], reason.as_bytes()]));
        let reply = within(self.budget, async {
            let mut connection = self.open_for(key.as_ref()).await?;
            native(connection.call(&words).await, "LOCK.BREAK")
        });
        Ok(reply.await?.integer() == Some(1))
    }

    /// Releases whatever `owner` holds of these keys: for a caller that does not know whether it was granted them,
    /// because it stopped waiting.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses.
    pub async fn release<K: Into<Vec<u8>>>(
        &self,
        keys: impl IntoIterator<Item = K>,
        owner: impl Into<Vec<u8>>,
    ) -> Result<bool, Error> {
        let (keys, owner): (Vec<Vec<u8>>, Vec<u8>) =
            (keys.into_iter().map(Into::into).collect(), owner.into());
        let released = async {
            let mut was_held = true;
            for key in &keys {
                was_held &= match self.ask(key, &[b"LOCK.RELEASE", key, &owner]).await {
                    Err(Error::Refused(text)) if is_unknown(&text) => {
                        let words: [&[u8]; 5] = [b"EVAL", RELEASE.as_bytes(), b"1", key, &owner];
                        self.ask(key, &words).await?.is_done()
                    }
                    asked => asked?.is_done(),
                };
            }
            Ok(was_held)
        };
        within(self.budget, released).await
    }

    /// The tries of a call that waits for so long.
    pub(super) fn retry(&self, wait: Option<Duration>) -> Retry {
        Retry::of_call(self.budget, wait).telling(self.tell)
    }

    /// Sends a request to the server of a key; again while that cannot be asked or does not serve, within the
    /// budget.
    pub(super) async fn ask(&self, key: &[u8], words: &[&[u8]]) -> Result<Asked, Error> {
        let (mut retry, mut may_be_done) = (self.retry(Some(Duration::ZERO)), false);
        let asked = async {
            loop {
                let (sent, answer) = match self.connector.connect_for(key).await {
                    Ok(mut connection) => (Instant::now(), connection.call(words).await),
                    Err(error) => {
                        retry.again(error).await?;
                        continue;
                    }
                };
                match answer {
                    Ok(reply) => return Ok(Asked { reply, sent, may_be_done }),
                    Err(error) => {
                        may_be_done |= !error.is_refusal();
                        retry.again(error).await?;
                    }
                }
            }
        };
        within(self.budget, asked).await
    }

    /// A connection for several calls: to any node of a cluster.
    #[doc(hidden)]
    pub async fn open(&self) -> Result<Connection, Error> {
        within(self.budget, self.connector.connect()).await
    }

    /// Like [`Locks::open`], to the node of a cluster that serves a key.
    #[doc(hidden)]
    pub async fn open_for(&self, key: &[u8]) -> Result<Connection, Error> {
        within(self.budget, self.connector.connect_for(key)).await
    }

    /// A connection to each node of a cluster that serves slots.
    #[doc(hidden)]
    pub async fn open_all(&self) -> Result<Vec<Connection>, Error> {
        let Nodes { serving, unserved } = self.nodes().await?;
        if let Some(slots) = unserved.first() {
            return Err(Error::Refused(no_node(slots)));
        }
        let mut connections = Vec::new();
        for mut node in serving {
            connections.push(node.open().await?);
        }
        Ok(connections)
    }

    /// The nodes of a cluster that serve slots; the server alone if it is in none.
    #[doc(hidden)]
    pub async fn nodes(&self) -> Result<Nodes, Error> {
        let masters = within(self.budget, self.connector.masters()).await?;
        let unserved = unserved(masters.iter().flat_map(|(master, ..)| &master.slots));
        let node = |(Master { target, slots }, connector, connection)| Node {
            address: target.address,
            slots,
            locks: Self { connector, ..self.clone() },
            connection,
        };
        Ok(Nodes { serving: masters.into_iter().map(node).collect(), unserved })
    }

    /// Like [`Locks::list`], on a connection that is open.
    #[doc(hidden)]
    pub async fn list_on(&self, connection: &mut Connection, pattern: &str) -> Result<Vec<Held>, Error> {
        self.list_where(connection, [b"MATCH", pattern.as_bytes()]).await
    }

    /// The locks that `owner` holds, each with this holder alone, on a connection that is open.
    #[doc(hidden)]
    pub async fn list_of_owner(&self, connection: &mut Connection, owner: &[u8]) -> Result<Vec<Held>, Error> {
        self.list_where(connection, [b"OWNER", owner]).await
    }

    /// The last holds that have ended, the first end first, on a connection that is open. None if the server does not tell.
    #[doc(hidden)]
    pub async fn ends_on(&self, connection: &mut Connection, pattern: &str) -> Result<Vec<Held>, Error> {
        let words = [&b"LOCK.HISTORY"[..], b"MATCH", pattern.as_bytes(), b"COUNT", ENDS_MAX];
        match connection.call(&words).await {
            Ok(reply) => Ok(reply.items().iter().rev().filter_map(Held::of_end).collect()),
            Err(Error::Refused(text)) if is_unknown(&text) || text.starts_with("NOPERM") => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn list_where(
        &self,
        connection: &mut Connection,
        [option, value]: [&[u8]; 2],
    ) -> Result<Vec<Held>, Error> {
        // As with SCAN, a key may come twice while the table grows.
        let mut found = BTreeMap::new();
        let mut cursor = b"0".to_vec();
        for _ in 0..LIST_STEPS_MAX {
            let words: [&[u8]; 7] = [b"LOCK.LIST", option, value, b"COUNT", LIST_STEP, b"CURSOR", &cursor];
            let reply = native(connection.call(&words).await, "LOCK.LIST")?;
            let [next, locks] = reply.items() else {
                return Err(Error::Broken("LOCK.LIST: not a list of two".to_owned()));
            };
            let held = locks.items().iter().filter_map(Held::read);
            found.extend(held.map(|held| (held.key.clone(), held)));
            cursor = next.text().unwrap_or(b"0").to_vec();
            if cursor == b"0" {
                return Ok(found.into_values().collect());
            }
        }
        Err(Error::Broken("LOCK.LIST: a list without end".to_owned()))
    }
}

/// What an acquisition comes to that no server has answered. Everything else is an answer, and never opens: the lock is
/// held, or the server refuses, also for a moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnUnavailable {
    /// It fails with [`Error::Unreachable`].
    #[default]
    Closed,
    /// It returns a guard without a lock, whose [`Guard::is_open`](super::Guard::is_open) is true: others may work at the
    /// same time. It is logged as a warning and counted by [`Locks::opened`], and [`Guard::fenced`](super::Guard::fenced)
    /// refuses it.
    Open,
}

/// A request that was answered.
pub(super) struct Asked {
    pub(super) reply: Reply,
    /// When it was sent the last time.
    pub(super) sent: Instant,
    /// Whether it was sent before, and its answer lost: it may have been carried out.
    may_be_done: bool,
}

impl Asked {
    /// Whether it, or one before it, has released the lock.
    pub(super) fn is_done(&self) -> bool {
        self.reply.integer() == Some(1) || self.may_be_done
    }
}

/// The nodes of a cluster.
#[derive(Debug)]
pub struct Nodes {
    /// Those that serve slots, in the order of these.
    pub serving: Vec<Node>,
    /// The slots that none serves.
    pub unserved: Vec<RangeInclusive<u16>>,
}

/// A node of a cluster, or a server that is in none.
#[derive(Debug)]
pub struct Node {
    /// Where it is reached.
    pub address: String,
    /// The slots that it serves.
    pub slots: Vec<RangeInclusive<u16>>,
    /// Asks this node.
    pub locks: Locks,
    /// A connection to it that is open already.
    connection: Option<Connection>,
}

impl Node {
    /// A connection to this node for several calls.
    ///
    /// # Errors
    /// The node cannot be reached or trusted, or refuses the login.
    pub async fn open(&mut self) -> Result<Connection, Error> {
        match self.connection.take() {
            Some(open) => Ok(open),
            None => self.locks.open().await,
        }
    }
}

/// Says that slots have no node, as a server refuses their keys.
pub fn no_node(slots: &RangeInclusive<u16>) -> String {
    format!("CLUSTERDOWN no node serves the slots {} to {}", slots.start(), slots.end())
}

fn native(reply: Result<Reply, Error>, command: &'static str) -> Result<Reply, Error> {
    match reply {
        Err(Error::Refused(text)) if is_unknown(&text) => Err(Error::Unsupported(command)),
        reply => reply,
    }
}

/// What a call comes to, which must end within its budget.
pub(super) async fn within<T>(
    budget: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = timeout(budget, call).await;
    answer.unwrap_or_else(|_| Err(Error::unreachable(format!("no answer within {budget:?}"))))
}

/// Randomness from the system, taken from the standard library's hash seeds.
pub fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Keys that the server looks at in one step of a list.
const LIST_STEP: &[u8] = b"1000";
/// Ends of locks that are asked for.
const ENDS_MAX: &[u8] = b"1000";
/// Steps of a list at most.
const LIST_STEPS_MAX: usize = 100_000;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    /// How a server serves nobody.
    #[derive(Clone, Copy, Debug)]
    enum Peer {
        /// Nothing connects: packets are dropped, or the name is looked up.
        Dropped,
        Refused,
        Silent,
        /// It logs in, and stops in the middle of the answer to a LOCK command.
        Stopped,
    }

    fn locks_of(peer: Peer) -> Locks {
        let servers = Arc::new(Mutex::new(Vec::new()));
        Locks::over(move || {
            let (client, server) = duplex(4096);
            match peer {
                Peer::Stopped => drop(tokio::spawn(stop(server))),
                _ => servers.lock().unwrap().push(server),
            }
            async move {
                match peer {
                    Peer::Dropped => pending().await,
                    Peer::Refused => Err(io::ErrorKind::ConnectionRefused.into()),
                    Peer::Silent | Peer::Stopped => Ok(client),
                }
            }
        })
    }

    /// Answers each request of a login, which comes by itself.
    async fn stop(mut server: DuplexStream) {
        let mut request = vec![0; 4096];
        loop {
            let length = server.read(&mut request).await.unwrap();
            let is_lock = request[..length].windows(5).any(|word| word == b"LOCK.");
            let answer: &[u8] = if is_lock { b"*2\r\n$5\r\ntok" } else { b"+OK\r\n" };
            server.write_all(answer).await.unwrap();
            if is_lock {
                return pending().await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_at_its_budget() {
        let (budget, wait) = (Duration::from_millis(500), Duration::from_secs(3));
        for peer in [Peer::Dropped, Peer::Refused, Peer::Silent, Peer::Stopped] {
            let locks = locks_of(peer).budget(budget);
            let lock = locks.lock("k");
            let begun = Instant::now();
            let is_unreachable = [
                matches!(locks.who("k").await, Err(Error::Unreachable { .. })),
                matches!(locks.release(["k"], "owner").await, Err(Error::Unreachable { .. })),
                matches!(locks.renew("k", "owner", None, None).await, Err(Error::Unreachable { .. })),
                matches!(locks.release_token("k", "owner", 7).await, Err(Error::Unreachable { .. })),
                matches!(locks.break_lock("k", 7, None).await, Err(Error::Unreachable { .. })),
                matches!(locks.waiters("k").await, Err(Error::Unreachable { .. })),
                matches!(lock.acquire().await, Err(Error::Unreachable { .. })),
                matches!(lock.acquire().wait(wait).await, Err(Error::Unreachable { .. })),
            ];
            assert_eq!(is_unreachable, [true; 8], "{peer:?}");
            assert!(
                begun.elapsed() <= budget * 8 + wait + Duration::from_millis(50),
                "{peer:?}: {:?}",
                begun.elapsed()
            );
        }
    }
}
