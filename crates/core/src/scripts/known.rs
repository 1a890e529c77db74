//! The exact texts that clients are known to send, by their SHA-1: who sends a text, what for, and where it names the lock.
//!
//! Owns    the list. `tests/protocol/scripts/collect.py` collects the texts from the clients' packages, and
//!         `tests/protocol/scripts.rs` checks each row against its text. The texts belong to their authors and are not
//!         stored here, except for those of this project's client, `client/*.lua`.
//! Rule    a row says only what its text does. Locks that are a number of free permits (Redisson's Semaphore and
//!         CountDownLatch) do not say who holds them: their scripts are `other`.

use super::Inputs;
use super::sha::Sha;

/// One text of one client.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// SHA-1 of the text, as EVALSHA names it.
    pub sha1: &'static str,
    /// The client, and its name of the script: `client: script`.
    pub client: &'static str,
    /// What the script does to the lock.
    pub purpose: Purpose,
    /// Where the script's inputs name the lock, if it is about one lock or several locks of one owner.
    pub lock: Option<Lock>,
    /// Whether the script is native. The interpreter runs it otherwise.
    pub is_native: bool,
}

/// What a script does to a lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// Takes the lock if it is free. Some extend it if the owner has it already. The reply says whether the owner has it.
    Acquire(Granted),
    /// Ends the lock without asking for its owner.
    Break,
    /// Begins the lease anew, or adds to it, if the owner holds the lock.
    Extend,
    /// Only reads.
    Inspect,
    /// None of these, or about several locks of several owners.
    Other,
    Release,
}

/// The reply with which a script says that its caller has the lock. Any other reply is a refusal.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Granted {
    /// An array whose first element is -1.
    MinusOneFirst,
    /// Nil. A refusal is the time that is left.
    Nil,
    /// `OK`, as a status or as text.
    Ok,
    /// An array whose first element is 1.
    OneFirst,
    /// An integer above 0.
    Positive,
}

/// The kind of lock that a client builds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    Exclusive,
    /// Several owners, up to a limit.
    Permits,
    /// One owner, which may take it several times.
    Reentrant,
    /// Several readers.
    Shared,
}

/// Where the inputs of a script name the lock.
#[derive(Clone, Copy, Debug)]
pub struct Lock {
    pub kind: Kind,
    /// The key that exists as long as anybody holds the lock.
    pub key: Input,
    /// The owner. `None`: the script asks for none.
    pub owner: Option<Input>,
    /// The lease. `None`: the script sets none.
    pub lease: Option<Lease>,
}

/// A word of a script's inputs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Input {
    /// That element of ARGV, from 0.
    Arg(u8),
    /// Every element of KEYS.
    EachKey,
    /// That element of KEYS, from 0.
    Key(u8),
    /// The last element of ARGV.
    LastArg,
    /// For each element of KEYS, the element of ARGV that many places behind its index.
    PairedArg(u8),
}

/// The lease that a script sets.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    pub input: Input,
    pub unit: Unit,
}

/// What the number of a lease means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// Milliseconds from now.
    Millis,
    /// Milliseconds behind the end of the lease.
    MoreMillis,
    /// Seconds behind the end of the lease.
    MoreSeconds,
    /// Seconds from now.
    Seconds,
    /// Until that Unix time in milliseconds.
    Until,
}

impl Known {
    const fn new(sha1: &'static str, client: &'static str, purpose: Purpose) -> Self {
        Self { sha1, client, purpose, lock: None, is_native: true }
    }

    /// With the place of its lock. `key` is never `None`.
    const fn lock(
        mut self,
        kind: Kind,
        key: Option<Input>,
        owner: Option<Input>,
        lease: Option<Lease>,
    ) -> Self {
        self.lock = Some(Lock { kind, key: key.expect("a lock has a key"), owner, lease });
        self
    }

    const fn interpreted(mut self) -> Self {
        self.is_native = false;
        self
    }

    /// The text of that SHA-1, if it is known.
    pub fn find(sha: &Sha) -> Option<&'static Self> {
        KNOWN.iter().find(|known| known.sha1.as_bytes() == sha)
    }

    /// The client's name, without that of the script.
    pub fn library(&self) -> &'static str {
        self.client.rsplit_once(": ").map_or(self.client, |(library, _)| library)
    }

    /// The client's name of the script.
    pub fn script(&self) -> &'static str {
        self.client.rsplit_once(": ").map_or(self.client, |(_, script)| script)
    }

    /// The lock's keys in these inputs.
    pub fn keys<'a>(&self, inputs: Inputs<'a>) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (from, count) = match self.lock.map(|lock| lock.key) {
            Some(Input::Key(place)) => (usize::from(place), 1),
            Some(Input::EachKey) => (0, usize::MAX),
            _ => (0, 0),
        };
        inputs.keys.iter().skip(from).take(count)
    }
}

impl Lock {
    /// The owner that a call names for the `place`th of the lock's keys.
    pub fn owner<'a>(&self, inputs: Inputs<'a>, place: usize) -> Option<&'a [u8]> {
        self.owner?.of(inputs, place)
    }
}

impl Input {
    /// The word in these inputs, for the `place`th of the lock's keys.
    pub fn of<'a>(self, inputs: Inputs<'a>, place: usize) -> Option<&'a [u8]> {
        match self {
            Self::Arg(place) => inputs.args.iter().nth(usize::from(place)),
            Self::EachKey => inputs.keys.iter().nth(place),
            Self::Key(place) => inputs.keys.iter().nth(usize::from(place)),
            Self::LastArg => inputs.args.iter().last(),
            Self::PairedArg(offset) => inputs.args.iter().nth(usize::from(offset) + place),
        }
    }
}

impl Granted {
    /// Whether a reply, as it is encoded in RESP2 or RESP3, says so.
    pub fn is(self, reply: &[u8]) -> bool {
        match self {
            Self::MinusOneFirst => reply.starts_with(b"*2\r\n:-1\r\n"),
            Self::Nil => reply.starts_with(b"$-1\r\n") || reply.starts_with(b"_\r\n"),
            Self::Ok => reply == b"+OK\r\n" || reply == b"$2\r\nOK\r\n",
            Self::OneFirst => reply.starts_with(b"*2\r\n:1\r\n"),
            Self::Positive => matches!(reply, [b':', b'1'..=b'9', ..]),
        }
    }
}

const fn acquire(sha1: &'static str, client: &'static str, granted: Granted) -> Known {
    Known::new(sha1, client, Purpose::Acquire(granted))
}

const fn break_lock(sha1: &'static str, client: &'static str) -> Known {
    Known::new(sha1, client, Purpose::Break)
}

const fn extend(sha1: &'static str, client: &'static str) -> Known {
    Known::new(sha1, client, Purpose::Extend)
}

const fn inspect(sha1: &'static str, client: &'static str) -> Known {
    Known::new(sha1, client, Purpose::Inspect)
}

const fn other(sha1: &'static str, client: &'static str) -> Known {
    Known::new(sha1, client, Purpose::Other)
}

const fn release(sha1: &'static str, client: &'static str) -> Known {
    Known::new(sha1, client, Purpose::Release)
}

const fn lease(input: Option<Input>, unit: Unit) -> Option<Lease> {
    Some(Lease { input: input.expect("a lease is a word"), unit })
}

const fn ms(input: Option<Input>) -> Option<Lease> {
    lease(input, Unit::Millis)
}

const fn more_ms(input: Option<Input>) -> Option<Lease> {
    lease(input, Unit::MoreMillis)
}

const fn more_s(input: Option<Input>) -> Option<Lease> {
    lease(input, Unit::MoreSeconds)
}

const fn s(input: Option<Input>) -> Option<Lease> {
    lease(input, Unit::Seconds)
}

const fn until(input: Option<Input>) -> Option<Lease> {
    lease(input, Unit::Until)
}

// The words as a script's text names them, from 1.
const K1: Option<Input> = Some(Input::Key(0));
const K2: Option<Input> = Some(Input::Key(1));
const K3: Option<Input> = Some(Input::Key(2));
const EACH_KEY: Option<Input> = Some(Input::EachKey);
const A1: Option<Input> = Some(Input::Arg(0));
const A2: Option<Input> = Some(Input::Arg(1));
const A3: Option<Input> = Some(Input::Arg(2));
const A4: Option<Input> = Some(Input::Arg(3));
const A6: Option<Input> = Some(Input::Arg(5));
const SAME_ARG: Option<Input> = Some(Input::PairedArg(0));
const NEXT_ARG: Option<Input> = Some(Input::PairedArg(1));
const LAST_ARG: Option<Input> = Some(Input::LastArg);

use Granted::{MinusOneFirst, Nil, Ok, OneFirst, Positive};
use Kind::{Exclusive, Permits, Reentrant, Shared};

#[rustfmt::skip] // A table: one or two lines a text.
pub const KNOWN: &[Known] = &[
    release("da225123b2af4a41136fdba7ffac1e045e344da1", "@microfleet/ioredis-lock: delifequal")
        .lock(Exclusive, K1, A1, None),
    extend("bf3108245472c550b02852e1e425128e5eb399c4", "@microfleet/ioredis-lock: pexpireifequal")
        .lock(Exclusive, K1, A1, ms(A2)),
    acquire("1b77b94aa78451d55dfa97e18819bfbfc596cb5b", "@sesamecare-oss/redlock: acquireLock", Positive)
        .lock(Exclusive, EACH_KEY, A2, ms(A3)),
    extend("820e9778d2b6733e9ed771e4be90ae73a95a6f3b", "@sesamecare-oss/redlock: extendLock")
        .lock(Exclusive, EACH_KEY, A2, ms(A3)),
    release("df51f6837dcfe303d334e6abea9aeae192bab216", "@sesamecare-oss/redlock: releaseLock")
        .lock(Exclusive, EACH_KEY, A2, None),
    extend("459cfa2e6c93bad7aa427b850f346bf836b2002d", "@upstash/lock: extend")
        .lock(Exclusive, K1, A1, more_s(A2)),
    release("59bc3e108ef7f99b02996a98489960c0edcc9945", "@upstash/lock: release")
        .lock(Exclusive, K1, A1, None),
    release("0a87223fb92fcc2308021a1b6da07197448b6402", "@verrou/core (AdonisJS lock): delete")
        .lock(Exclusive, K1, A1, None),
    extend("3950eadb2785a5afcc0daf9e56adc0bbd14017a4", "@verrou/core (AdonisJS lock): extend")
        .lock(Exclusive, K1, A1, ms(A2)),
    inspect("f908d3f43dbcabc68fc0c9ecaf1fa4a285ecdb0a", "aioredlock: get_ttl").lock(Exclusive, K1, A1, None),
    acquire("c75a9bf1538efcdb1f383acc3e273c5089d57e58", "aioredlock: set", Ok)
        .lock(Exclusive, K1, A1, ms(A2)),
    release("241e4ca540a1cc4ec1f32d9eb9f879e607d7e6e5", "aioredlock: unset").lock(Exclusive, K1, A1, None),
    acquire("eb0c00d98f6f33b4262419a509002884540f30be", "bsm/redislock: obtain", Ok)
        .lock(Exclusive, EACH_KEY, A1, ms(A3)),
    inspect("66e1084c2d842a7e8c271925aae90219fac4e129", "bsm/redislock: pttl")
        .lock(Exclusive, EACH_KEY, A1, None),
    extend("5a22d7e8431313862816d4416b5e46dd70fc340d", "bsm/redislock: refresh")
        .lock(Exclusive, EACH_KEY, A1, ms(A2)),
    release("9470c810040e272ee6c579d8d4331aaf6332a7b1", "bsm/redislock: release")
        .lock(Exclusive, EACH_KEY, A1, None),
    extend("6a65f96b064fa3b8de709567d25e9d87a8cdcea6", "bull job locks: extendLock")
        .lock(Exclusive, K1, A1, ms(A2)),
    release("eaf7d8b7cbe916e7dd43d9cd8f1110515658483f", "bull job locks: releaseLock")
        .lock(Exclusive, K1, A1, None),
    acquire("6d3dc0632cacc8cab081ab4f4b563966e1d780f8", "bull job locks: takeLock", Positive)
        .lock(Exclusive, K1, A1, ms(A2)),
    extend("dc9605328a4cc37f68acbf27cdd42e393f7b762e", "bullmq job locks: extendLock")
        .lock(Exclusive, K1, A1, ms(A2)),
    other("c35baf769e5dc3d9194b2bceca04ab59f7c510f7", "bullmq job locks: extendLocks").interpreted(),
    release("8193548d62b0cd9223df46482777b662a185e8d6", "bullmq job locks: releaseLock")
        .lock(Exclusive, K1, A1, None),
    release("b948f76fda6b97319d3426a2fb42b0d4f02c7146", "cashews redis lock: unlock")
        .lock(Exclusive, K1, A1, None),
    extend("411b7c153e0ab3ba59d6d1e36cc7858ebd76f2c5", "celery-redbeat: extend_to")
        .lock(Exclusive, K1, A1, ms(A2)),
    extend("e03e083d81632b90688e6621ceb7b922dea67c5d", "coredis Lock (patterns.lock): extend")
        .lock(Exclusive, K1, A1, more_ms(A2)),
    release("ea535b5ce831428455ea063dc10eadacff025884", "coredis Lock (patterns.lock): release")
        .lock(Exclusive, K1, A1, None),
    release("e950836ed1e694540c503ef9972b8de518044d3b", "go-redsync/redsync: delete")
        .lock(Exclusive, K1, A1, None),
    extend("d75bb8b5bd13532ddedd17762e772346e39b321e", "go-redsync/redsync: touch")
        .lock(Exclusive, K1, A1, ms(A2)),
    acquire("b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79", "go-redsync/redsync: touchWithSetNX", Positive)
        .lock(Exclusive, K1, A1, ms(A2)),
    acquire("a08c9c69b7c07ae2485190873b90d128a23e502d", "laravel cache: add", Ok)
        .lock(Exclusive, K1, A1, s(A2)),
    other("420ca604de4310d8301943a71390ee669720d640", "laravel ConcurrencyLimiter: lock").interpreted(),
    release("a50243715157b186c5162c69e02eff3bf0c7994a", "laravel ConcurrencyLimiter: release")
        .lock(Exclusive, K1, A1, None),
    release("647c65a442733a1aa440f99908d249d13b4d6c4a",
        "laravel RedisLock / PhpRedisLock / limiters: releaseLock").lock(Exclusive, K1, A1, None),
    release("5cc368fb92acd8fee3a986dc8e971d6cf28c3b44", "node-redis-warlock: parityDel")
        .lock(Exclusive, K1, A1, None),
    extend("78d3bb55c589f1b2edf66f3527f5017f8dfcd6bb", "node-redis-warlock: parityRelock")
        .lock(Exclusive, K1, K3, ms(K2)),
    release("d220654d7721ae520b15ed0e24a4cc97024efa08", "php-lock/lock RedisMutex: release")
        .lock(Exclusive, K1, A1, None),
    inspect("f5f7bd3a3aa4a63c507c1155c5ea1219b350d992", "pottery Redlock / AIORedlock: acquired")
        .lock(Exclusive, K1, A1, None),
    extend("ba015a80261b616e7a62d35df0b8e3edbe6c9414", "pottery Redlock / AIORedlock: extend")
        .lock(Exclusive, K1, A1, ms(A2)),
    release("a4aada0b36710970eedaaaeec4a6b7d8c78c4f80", "pottery Redlock / AIORedlock: release")
        .lock(Exclusive, K1, A1, None),
    extend("fed16109024d968d9496e4140fe1355bac05ebff", "python-redis-lock (ionelmc): extend")
        .lock(Exclusive, K1, A1, s(A2)),
    break_lock("afbc8014508f92e446b56567e8ba600e811c1bd5", "python-redis-lock (ionelmc): reset")
        .lock(Exclusive, K1, None, None),
    other("b121d3548d693116c3851b63befe947e49f28c7c", "python-redis-lock (ionelmc): reset all").interpreted(),
    release("90da91872223f85eb1376a17e3c4df21ace8c54b", "python-redis-lock (ionelmc): unlock")
        .lock(Exclusive, K1, A1, None),
    release("ff62909a2bffd84e70074a60e795f395ccb75ed7", "redis-lock (crate): single release")
        .lock(Exclusive, K1, A1, None),
    extend("7a1e2313543c636a6197704ea9dac88eceb31444", "redis-lock-py: extend")
        .lock(Exclusive, K1, A1, more_s(A2)),
    release("3ee65fe8cbb7be7badd45039a1eb0861cfa89286", "redis-lock-py: release")
        .lock(Exclusive, K1, A1, None),
    release("e63c1bdcff89893c1242d737ef2971b3f2f9ea96", "redis-lock-py: spin release")
        .lock(Exclusive, K1, A1, None),
    extend("a4e8783852e6b949f9ef3a97212805108459a890", "redis-py Lock: extend")
        .lock(Exclusive, K1, A1, more_ms(A2)),
    extend("1cac51482acf5858da00f6d685d68f886cd6b6b2", "redis-py Lock: reacquire")
        .lock(Exclusive, K1, A1, ms(A2)),
    release("c3f8721cbb97f72bc19e972846bd7aaf91901658", "redis-py Lock: release")
        .lock(Exclusive, K1, A1, None),
    acquire("10c1c2e05e7c48aa5824d227b8c51abcde87b18e", "redis-semaphore: multi acquire", Positive)
        .lock(Permits, K1, A3, ms(A4)),
    extend("2327bcdc5edb5b8687f6d19b5e1f42b815ebddab", "redis-semaphore: multi refresh")
        .lock(Permits, K1, A3, ms(A4)),
    release("0bd1010c98f1ddd70a6024fd374489a8ea3d2c12", "redis-semaphore: multi release")
        .lock(Permits, K1, A2, None),
    extend("594683e49a64ebaf975caf5f8079a1d097c438f1", "redis-semaphore: mutex refresh")
        .lock(Exclusive, K1, A1, ms(A2)),
    release("7157921a7cc7cfba979acf6d63f073151df17d12", "redis-semaphore: mutex release")
        .lock(Exclusive, K1, A1, None),
    acquire("43ebdb49120d170e08af560cb4e46e36f8585936", "redis-semaphore: semaphore acquire", Positive)
        .lock(Permits, K1, A2, ms(A3)),
    extend("999a49a1d07671a8027165641001f5bad44608b3", "redis-semaphore: semaphore refresh")
        .lock(Permits, K1, A2, ms(A3)),
    release("b6a796aa8d73bb4ce6e26afe648196d086a8d1f1", "redislock (npm): delifequal")
        .lock(Exclusive, K1, A1, None),
    extend("b8781a7c50e72ae869ca41c3fe9f504e365f3881", "redislock (npm): pexpireifequal")
        .lock(Exclusive, K1, A1, ms(A2)),
    other("38060fab26b0e7c5982a5cfd7ad542e44d3da19b", "Redisson: CountDownLatch countDown"),
    other("47aed1b8133417c9bc009ffc08602e37ed4a1bb3", "Redisson: CountDownLatch delete"),
    other("2a52d54a6f35bc8af5e84a2930b2ca1aa2a15892", "Redisson: CountDownLatch trySetCount"),
    other("444506ed6079843ae4590ff6caf5f677dae3a35f", "Redisson: detectCluster"),
    break_lock("9f004091f2597ace3c2e75f8b32c7adf985f412e", "Redisson: FasterMultiLock forceUnlock")
        .lock(Reentrant, K1, None, None),
    inspect("b9e070cb84c0ed3944b58dcb4ddf45af7adeb9c8", "Redisson: FasterMultiLock isHeldByThread")
        .lock(Reentrant, K1, A2, None),
    inspect("25ede9b3422ba7c8d75cc43d73a4d90331598aa0", "Redisson: FasterMultiLock isLocked")
        .lock(Reentrant, K1, None, None),
    acquire("eba4f75b2998ef1ead8e55019d89d93d85dadf60", "Redisson: FasterMultiLock tryLock", Nil)
        .lock(Reentrant, K1, A3, ms(A1)),
    acquire("6f6c8d62862d8d76ea41fc769938285c3aca3005", "Redisson: FasterMultiLock tryLockOnce", Positive)
        .lock(Reentrant, K1, A3, ms(A2)),
    release("5088a04fb08aa002f465f0f90b35ed8da9b27a3c", "Redisson: FasterMultiLock unlock")
        .lock(Reentrant, K1, A1, None),
    acquire("49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45", "Redisson: FencedLock tryLock", MinusOneFirst)
        .lock(Reentrant, K1, A2, ms(A1)),
    acquire("46b5551ba403d6152a7a6eca122e08728d6c8c66", "Redisson: FencedLock tryLock (2)", Nil)
        .lock(Reentrant, K1, A2, ms(A1)),
    break_lock("605e338249a7a1d40df83b04f7658354f883b41b", "Redisson: Lock forceUnlock")
        .lock(Reentrant, K1, None, None),
    acquire("149c5a8bf18676fd99e9e6e24923bd64d9b62f94", "Redisson: Lock tryLock", Nil)
        .lock(Reentrant, K1, A2, ms(A1)),
    release("6866459238a13a701d42f4971f12d9f3a50e2442", "Redisson: Lock unlock")
        .lock(Reentrant, K1, A3, None),
    acquire("3daa7be6cf69d9309ad990442e83bf25094f9b22", "Redisson: NonReentrantLock tryLock", Nil)
        .lock(Exclusive, K1, A2, ms(A1)),
    acquire("d20501c26a30adf6fb0fe9883bbbcc497e6157e2", "Redisson: FairLock tryLock", Nil)
        .lock(Reentrant, K1, A2, ms(A1)).interpreted(),
    acquire("8f6ed299ffd259f0539c20f89253998c0777ea75", "Redisson: FairLock tryLock (2)", Nil)
        .lock(Reentrant, K1, A2, ms(A1)).interpreted(),
    other("d1ddef65ad80886b5d36e023c99930044ddd653a", "Redisson: FairLock acquireFailed").interpreted(),
    release("367f80bd2e300e411fb0936d9b601e5bcb3fd4b6", "Redisson: FairLock unlock")
        .lock(Reentrant, K1, A3, None).interpreted(),
    break_lock("71ed11d4e4818119ac560b3d670a7f08256afc46", "Redisson: FairLock forceUnlock")
        .lock(Reentrant, K1, None, None).interpreted(),
    acquire("5bea9498faee85066db11f2f8bf80fccbf222eaf", "Redisson: NonReentrantFairLock tryLock", Nil)
        .lock(Exclusive, K1, A2, ms(A1)).interpreted(),
    acquire("46724422f148047badd768b1b1a3d750d86bded2", "Redisson: NonReentrantFairLock tryLock (2)", Nil)
        .lock(Exclusive, K1, A2, ms(A1)).interpreted(),
    inspect("6f0b0be79a0c146c778cb14f40c10eb5b706e574", "Redisson: PermitExpirableSemaphore acquiredPermits")
        .lock(Permits, K2, None, None),
    other("ec6fb1cd5f66817424e8fe70fee7929391b7c6f0", "Redisson: PermitExpirableSemaphore addPermits"),
    inspect("26b3972b2c9e617556282f404cb79709d746a713", "Redisson: PermitExpirableSemaphore availablePermits")
        .lock(Permits, K2, None, None),
    inspect("8be95cb5221cc7ee883cacb8859a8b32ef501a0e", "Redisson: PermitExpirableSemaphore getLeaseTime")
        .lock(Permits, K2, A1, None),
    inspect("e242db5c1c68811b0d26a41937dcf22415b6d872", "Redisson: PermitExpirableSemaphore getPermits")
        .lock(Permits, K2, None, None),
    other("494d8561fee0cdb033f6c28d74c052c52189a578", "Redisson: PermitExpirableSemaphore setPermits"),
    acquire("992c96b09a3d8ea0b37f5dc12e5347a44d93909d", "Redisson: PermitExpirableSemaphore tryAcquire", Ok)
        .lock(Permits, K2, A6, until(A2)),
    release("4ce079451bee2993ce00c8a4e205b536c6ccad67", "Redisson: PermitExpirableSemaphore tryRelease")
        .lock(Permits, K3, A1, None),
    release("cf3ab77b1c0ae1226ae0e06e5cb18ee75f56c96b", "Redisson: PermitExpirableSemaphore tryRelease (2)")
        .lock(Permits, K3, A4, None),
    extend("2298b02cc67a89f2a638e47503db3675c73d77f5", "Redisson: PermitExpirableSemaphore updateLeaseTime")
        .lock(Permits, K2, A1, until(A2)),
    break_lock("27dbe744e95c1d854a7f556cc6817030de2d0d01", "Redisson: ReadLock forceUnlock")
        .lock(Shared, K1, None, None),
    inspect("8ad44f1ba014938c20da38206b6d496c85ec1aed", "Redisson: ReadLock isLocked")
        .lock(Shared, K1, None, None),
    acquire("95553a6ff11176c18e71344e89d116b06fd6f753", "Redisson: ReadLock tryLock", Nil)
        .lock(Shared, K1, A2, ms(A1)),
    release("6e1b10e11ac0a3ed8e902562ecd32ce01b553039", "Redisson: ReadLock unlock")
        .lock(Shared, K1, A2, None).interpreted(),
    extend("6a3d31570dc6f4b0bd32bcdc8e75667747c6f635", "Redisson: renewal")
        .lock(Reentrant, EACH_KEY, NEXT_ARG, ms(A1)),
    other("38d2b478dfbe264ab67c221b7e4be62245f00ba0", "Redisson: renewal of read locks").interpreted(),
    extend("935362a31ac5b3d6f7c5c3f1e26d9a012f87f2bd", "Redisson: renewal of multi-locks")
        .lock(Reentrant, K1, A3, ms(A1)),
    other("98238d408c6755085344670d3a2ddaa55cf177a9", "Redisson: Semaphore addPermits"),
    other("c87766d572855e9461c4ecd453db5d1cbab6119e", "Redisson: Semaphore drainPermits"),
    other("ae27582488dd01f4e238cc0733a12146d410eb44", "Redisson: Semaphore release"),
    other("6883802454c09d455e3234c8b01549adf1fb8b4c", "Redisson: Semaphore releaseIfExists"),
    other("c7dc9d189c1715465a31a06ddbc008585e0c20be", "Redisson: Semaphore tryAcquire"),
    other("241ce4e87e652b4f9b39d33cbcd7df9ee8ed906c", "Redisson: Semaphore trySetPermits"),
    other("38bf99884eb94708a40a9aabacb15b4c5f16e804", "Redisson: Semaphore trySetPermits (2)"),
    break_lock("51b433c3cc9a6ca991b3aefec63d23490c246318", "Redisson: SpinLock forceUnlock")
        .lock(Reentrant, K1, None, None),
    acquire("dad0f8d619e548e04f21fb48d50be5034df3adae", "Redisson: SpinLock tryLock", Nil)
        .lock(Reentrant, K1, A2, ms(A1)),
    release("73ac2729af29ea9a975f95e8097f7ee9a74cce3d", "Redisson: SpinLock unlock")
        .lock(Reentrant, K1, A2, None),
    break_lock("2e2cb2a3b13e2e80e4236ef6a25beaf365dba608", "Redisson: WriteLock forceUnlock")
        .lock(Reentrant, K1, None, None),
    acquire("6306ba3bf1f563b284bed52d305fce615c6664d9", "Redisson: WriteLock tryLock", Nil)
        .lock(Reentrant, K1, A2, ms(A1)),
    release("21f5fb0f8ddfa9be5c3e0c9757c128796add75c6", "Redisson: WriteLock unlock")
        .lock(Reentrant, K1, A3, None),
    extend("8dc1f5e47c51534be7db40e44c0f599f6a477f74", "redlatch::lock: extend").lock(Exclusive, K1, A1, ms(A2)),
    release("a4531ced16624ae8c7f85b8074174d90ed321267", "redlatch::lock: release").lock(Exclusive, K1, A1, None),
    release("544c68b7ffd46e5d7ccc58a27204557efba43310", "redlock (crate): unlock")
        .lock(Exclusive, K1, A1, None),
    release("5c252c1a0eaeeb4522fbbb982baba4e74ddfcd0d", "redlock (Elixir): unlock")
        .lock(Exclusive, K1, A1, None),
    release("fc03c85cef965af38f17fef05d68cc66c7d85c96", "redlock (glasslion): release")
        .lock(Exclusive, K1, A1, None),
    extend("a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf",
        "redlock 0.2 to 3 (Node), bsm/redislock 0.3 to 0.9: extend").lock(Exclusive, K1, A1, ms(A2)),
    release("cf0e94b2e9ffc7e04395cf88f7583fc309985910",
        "redlock 0.2 to 3 (Node), bsm/redislock 0.3 to 0.9: release").lock(Exclusive, K1, A1, None),
    acquire("862f31bf38e9b63ce28d6e9e5143551bb34ef981", "redlock 0.2 to 3 (Node): lock", Ok)
        .lock(Exclusive, K1, A1, ms(A2)),
    extend("ce46f80993d5dac20dd066eb301a4e37994bdbed", "redlock v4: extend")
        .lock(Exclusive, EACH_KEY, A1, ms(A2)),
    acquire("e5a322e2634ef59a516e8ea150cb085afafee684", "redlock v4: lock", Positive)
        .lock(Exclusive, EACH_KEY, A1, ms(A2)),
    release("0f0f23b9048b36752b5be114f357ba083449f908", "redlock v4: unlock")
        .lock(Exclusive, EACH_KEY, A1, None),
    acquire("96da70f7716f27d278a5218544df37fd8b0a5e4c", "redlock v5 beta: acquire", Positive)
        .lock(Exclusive, EACH_KEY, A1, ms(A2)),
    extend("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", "redlock v5 beta: extend")
        .lock(Exclusive, EACH_KEY, A1, ms(A2)),
    release("e4612211c9f8f51c257e26e056b0a654b3187242", "redlock v5 beta: release")
        .lock(Exclusive, EACH_KEY, A1, None),
    extend("20503cb22929c16ca7525d8fd1a5736f023dd629", "redlock-ng: extend").lock(Exclusive, K1, A1, ms(A2)),
    release("e9b478387d9b08487f964382baf8443e7bd1aeb5", "redlock-ng: release").lock(Exclusive, K1, A1, None),
    release("4e92fdc63815b3a0a2dd1c1df3694de73607c88d", "redlock-py (SPSCommerce): unlock")
        .lock(Exclusive, K1, A1, None),
    acquire("ceb2b2062e40c51a2b3963fd078bc71f11bdc65c", "redlock-rb: lock", Ok)
        .lock(Exclusive, K1, A1, ms(A2)),
    inspect("78d2ca48a6dc9ef6892059792a3a0c5237733d64", "redlock-rb: pttl").lock(Exclusive, K1, None, None),
    release("8e4905cee18e7c3188d10f2b8b170e403baed34f", "redlock-rb: unlock").lock(Exclusive, K1, A1, None),
    extend("c000e088bd4aca36ab429d3b7a16fc736f4cb6f1", "redlock-universal: atomic_extend")
        .lock(Exclusive, K1, A1, ms(A3)),
    acquire("514d8d1b08387624661da2a9098d3949b633eb3a", "redlock-universal: batch_acquire", OneFirst)
        .lock(Exclusive, EACH_KEY, SAME_ARG, ms(LAST_ARG)),
    release("fd83166fb3d7235e3ace652b700c9e217c1adc1f", "redlock-universal: delete_if_match")
        .lock(Exclusive, K1, A1, None),
    extend("e218d686a8f90368e5cd45074f06ce766cad9987", "redlock-universal: extend_if_match")
        .lock(Exclusive, K1, A1, ms(A2)),
    inspect("994908155dadb1bed08a5af6dee7fedf956c4826", "redlock-universal: inspect")
        .lock(Exclusive, K1, None, None),
    acquire("9f614a785a5f9ae8c6396c6b4bf94d2087342603", "RedLock.net: extend", Positive)
        .lock(Exclusive, K1, A1, ms(A2)),
    release("00583931c4e4d483f6233879c133c71ed5393f9d", "redsync before 4.12: delete")
        .lock(Exclusive, K1, A1, None),
    acquire("4227fa753143e6f652e2e185d254964b3a7413a5",
        "rq scheduler / maintenance lock: acquire_or_refresh", Positive).lock(Exclusive, K1, A1, s(A2)),
    release("d44df6e1a0e76df1009084a91af26cc23ac035a9", "rq scheduler / maintenance lock: release")
        .lock(Exclusive, K1, A1, None),
    extend("17a49af0c4b1a9034503fa84f3570f5ca76c4cbf", "rslock: extend").lock(Exclusive, K1, A1, ms(A2)),
    release("daf86bbf8740dd3ca86733367a016364b2110627", "rslock: unlock").lock(Exclusive, K1, A1, None),
    acquire("fa3d1aaa7e4145457755016a3d5daf72fa7a11bf", "rueidislock: acquire", Ok)
        .lock(Exclusive, K1, A1, ms(A2)),
    acquire("3875d208d9e377969d2022550302cc83ad17b584", "rueidislock: acquire until", Ok)
        .lock(Exclusive, K1, A1, until(A2)),
    acquire("4384ed08baff4dd7071b6c78c516a2fded4ee3e7", "rueidislock: forced", Ok)
        .lock(Exclusive, K1, A1, ms(A2)),
    acquire("c10e8119872659b926e8e28002d9b7fccbf15617", "rueidislock: forced until", Ok)
        .lock(Exclusive, K1, A1, until(A2)),
    extend("852ba6ec6104340ced36643283c856d4698569e4", "rueidislock: extend")
        .lock(Exclusive, K1, A1, until(A2)),
    release("9eb62214c9af87ae5f9a9f12bb4520281c0d2ae1", "rueidislock: delkey").lock(Exclusive, K1, A1, None),
    release("194f3902b2dd08557818d09fc2e7682d91480e53", "ShedLock: del").lock(Exclusive, K1, A1, None),
    extend("67256370c2d1c87e2250898075542b1a7fa5b917", "ShedLock: upd").lock(Exclusive, K1, A1, ms(A2)),
    acquire("7bcdefae3714859f68f1f2377bddae74a1af9391", "sherlock RedisLock: acquire", Positive)
        .lock(Exclusive, K1, A1, s(A2)),
    release("bfb9f817b2e860fe4fc58656b2bf657d3fdc2be1", "sherlock RedisLock: release")
        .lock(Exclusive, K1, A1, None),
    extend("8a7fdef25bdef981900f982f5773edaf35000372", "sherlock RedisLock: renew")
        .lock(Exclusive, K1, A1, s(A2)),
    release("02718596825c5bf6c57af391b4dc01a6d2d9d88a", "simple-redis-mutex: release")
        .lock(Exclusive, K1, A1, None),
    acquire("175897a4e379e99e79a54937be09226f76cdcfe5",
        "Spring Integration RedisLockRegistry: obtain", Positive).lock(Exclusive, K1, A1, ms(A2)),
    release("7a71e9443a2a41539fb115a5a27d5a748a871aed", "Spring Integration RedisLockRegistry: pubsub unlock")
        .lock(Exclusive, K1, A1, None),
    extend("879e0f7b8d83c3266d4e996627438c05dbda0b89", "Spring Integration RedisLockRegistry: renew")
        .lock(Exclusive, K1, A1, ms(A2)),
    release("f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2", "Spring Integration RedisLockRegistry: spin unlock")
        .lock(Exclusive, K1, A1, None),
    other("c481d49b4a48e48a9eeacd5d51655b5fcbb19925", "Symfony Lock RedisStore: check of TIME"),
    release("a70f7f5087a0cb2c2c9ca50d1f64e234c2628f0c", "Symfony Lock RedisStore: delete")
        .lock(Exclusive, K1, A1, None),
    inspect("3b6bdbbe16f821f49177b16c7707f331f015a779", "Symfony Lock RedisStore: exists")
        .lock(Exclusive, K1, A2, None),
    extend("63be12a3515941092212f15c08327d60916de9fa", "Symfony Lock RedisStore: putOffExpiration")
        .lock(Exclusive, K1, A2, ms(A3)),
    acquire("6fdee501a3714553b74c0d67687b921b90b05d18", "Symfony Lock RedisStore: save", Positive)
        .lock(Exclusive, K1, A2, ms(A3)),
    acquire("b5745b5be27d9033eb5d3eb254df2faf502b88df", "Symfony Lock RedisStore: saveRead", Positive)
        .lock(Shared, K1, A2, ms(A3)),
    acquire("d893d8da0844b834c9c5a41fb79b469749e6f442", "walrus Lock: lock_acquire", Positive)
        .lock(Exclusive, K1, A1, ms(A2)),
    release("758ee2fc57c84a93a25cd712f592a1b4898d6c03", "walrus Lock: lock_release")
        .lock(Exclusive, K1, A1, None),
];
