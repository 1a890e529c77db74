//! The table of clients: what `tests/clients.rs` runs, and what README.md says was run.
//!
//! Owns    one row for each client library or tool: how it is run, and what its program here does with it.
//! Knows   the names of the projects beside it; nothing of how they are installed.
//! Rule    a version is never written here: it is read from the manifest that pins it.

/// One client library, or one tool, and how it is run.
#[derive(Clone, Copy)]
pub(crate) struct Client {
    /// As reported, and as selected on the command line.
    pub(crate) name: &'static str,
    pub(crate) language: Language,
    /// The directory in `tests/clients` that it lives in.
    pub(crate) project: &'static str,
    /// Program and arguments; a program with a `/` in it lies in the project's installation.
    pub(crate) command: &'static [&'static str],
    /// Server processes to start for it.
    pub(crate) servers: usize,
    /// Whether the servers have a TLS port, too, where clients must show a certificate.
    pub(crate) has_tls: bool,
    /// The packages under test, the client itself first, by their names in the project's manifest.
    pub(crate) packages: &'static [&'static str],
    /// The kinds of locks that its program takes, and what else it does, as README.md lists it.
    pub(crate) covers: &'static str,
}

/// In the order of README.md.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Language {
    Python,
    Node,
    Java,
    Go,
    Php,
    Ruby,
    Rust,
    Tool,
}

/// Every client, in the order of a run.
pub(crate) const CLIENTS: &[Client] = &[
    Client {
        name: "redis-py",
        packages: &["redis"],
        covers: "`Lock` from threads, with and without a lease; fences by INCR",
        ..python(&["venv/bin/python", "redis_py.py"])
    },
    Client {
        name: "redis-py-asyncio",
        packages: &["redis"],
        covers: "`Lock` from asyncio tasks",
        ..python(&["venv/bin/python", "redis_py_asyncio.py"])
    },
    Client {
        name: "redis-py-acl",
        packages: &["redis"],
        covers: "`Lock` of a user with a password who may touch `lock:*` alone; the rest is refused with NOPERM",
        ..python(&["venv/bin/python", "redis_py_acl.py"])
    },
    Client {
        name: "redis-py-tls",
        packages: &["redis"],
        covers: "`rediss://` with and without a certificate of its own: `Lock`, pipelines, BLPOP, pub/sub, large values",
        has_tls: true,
        ..python(&["venv/bin/python", "redis_py_tls.py"])
    },
    Client {
        name: "redis-py-suite",
        packages: &["redis"],
        covers: "redis-py's own tests of locks, scripts, pipelines and transactions, with threads and asyncio",
        ..suite(&["venv/bin/python", "suite.py", "redis"])
    },
    Client {
        name: "walrus-suite",
        packages: &["walrus", "redis"],
        covers: "walrus' own tests of locks, rate limits, containers, counters and caches",
        ..suite(&["venv/bin/python", "suite.py", "walrus"])
    },
    Client {
        name: "python-redis-lock",
        packages: &["python-redis-lock", "redis"],
        covers: "`Lock` whose waiters sleep in BLPOP, with and without a lease, renewed, reset, reset all",
        ..python(&["venv/bin/python", "python_redis_lock.py"])
    },
    Client {
        name: "redis-lock-py",
        packages: &["redis-lock-py", "redis"],
        covers: "`RedisLock` whose waiters subscribe, from threads and from asyncio tasks; `RedisSpinLock`",
        ..python(&["venv-apart/bin/python", "redis_lock_py.py"])
    },
    Client {
        name: "aioredlock",
        packages: &["aioredlock", "aioredis"],
        covers: "`Lock` with a lease and with automatic extension",
        ..python(&["venv-apart/bin/python", "aioredlock_lock.py"])
    },
    Client {
        name: "coredis",
        packages: &["coredis"],
        covers: "`Lock` over RESP3",
        ..python(&["venv/bin/python", "coredis_lock.py"])
    },
    Client {
        name: "sherlock",
        packages: &["sherlock", "redis"],
        covers: "`RedisLock`, renewed, in a namespace",
        ..python(&["venv/bin/python", "sherlock_lock.py"])
    },
    Client {
        name: "valkey-py",
        packages: &["valkey"],
        covers: "`Lock` from threads and from asyncio tasks",
        ..python(&["venv/bin/python", "valkey_py.py"])
    },
    Client {
        name: "walrus",
        packages: &["walrus", "redis"],
        covers: "`Lock` whose waiters sleep in BLPOP; `RateLimit` and `RateLimitLua`",
        ..python(&["venv/bin/python", "walrus_lock.py"])
    },
    Client {
        name: "portalocker",
        packages: &["portalocker", "redis"],
        covers: "`RedisLock`: exclusive, shared, fenced; one that is killed, one that does not answer",
        ..python(&["venv/bin/python", "portalocker_lock.py"])
    },
    Client {
        name: "django-redis",
        packages: &["django-redis", "Django", "python-redis-lock"],
        covers: "`cache.lock()` and the cache; the cache of python-redis-lock",
        ..python(&["venv/bin/python", "django_redis_lock.py"])
    },
    Client {
        name: "celery-once",
        packages: &["celery_once", "celery"],
        covers: "`QueueOnce` with a worker: refused, graceful, with a lease, unlocked before the run",
        ..python(&["venv/bin/python", "celery_once_lock.py"])
    },
    Client {
        name: "celery-redbeat",
        packages: &["celery-redbeat", "celery"],
        covers: "three beats of which one ticks: extended, handed over, lapsed; entries",
        ..python(&["venv/bin/python", "redbeat_lock.py"])
    },
    Client {
        name: "kombu",
        packages: &["kombu", "redis"],
        covers: "`Mutex`, and the transport that uses it: acknowledged, restored, by rank, fanout",
        ..python(&["venv/bin/python", "kombu_mutex.py"])
    },
    Client {
        name: "huey",
        packages: &["huey", "redis"],
        covers: "`lock_task` and `rate_limit` on all four storages, with consumers",
        ..python(&["venv/bin/python", "huey_lock.py"])
    },
    Client {
        name: "dramatiq",
        packages: &["dramatiq", "redis"],
        covers: "`ConcurrentRateLimiter` as mutex and semaphore, bucket, window, `Barrier`, a worker",
        ..python(&["venv/bin/python", "dramatiq_limits.py"])
    },
    Client {
        name: "redlock-py",
        packages: &["redlock-py", "redis"],
        covers: "Redlock on one server",
        ..python(&["venv/bin/python", "redlock_py.py"])
    },
    Client {
        name: "pottery",
        packages: &["pottery", "redis"],
        covers: "`Redlock` on one server",
        ..python(&["venv/bin/python", "pottery_redlock.py"])
    },
    Client {
        name: "redlock-of-five",
        packages: &["pottery", "redis"],
        covers: "`Redlock` over five servers, of which one is killed",
        servers: 5,
        ..python(&["venv/bin/python", "redlock_of_five.py"])
    },
    Client {
        name: "ioredis-redlock-4",
        packages: &["redlock4", "ioredis"],
        covers: "`Redlock` on one key and on several, over RESP3",
        ..node(&["node", "redlock4.js"])
    },
    Client {
        name: "ioredis-redlock-5",
        packages: &["redlock5", "ioredis"],
        covers: "`Redlock` on one key and on several, `using` with its automatic extension, over RESP2",
        ..node(&["node", "redlock5.js"])
    },
    Client {
        name: "node-redis",
        packages: &["redis"],
        covers: "SET NX PX and scripts by hand, over RESP2 and RESP3; fences by INCR",
        ..node(&["node", "node-redis.js"])
    },
    Client {
        name: "redis-semaphore",
        packages: &["redis-semaphore", "ioredis"],
        covers: "`Mutex` with its refresh and its lost lock",
        ..node(&["node", "redis-semaphore.js"])
    },
    Client {
        name: "redis-semaphore-kinds",
        packages: &["redis-semaphore", "ioredis"],
        covers: "`Semaphore`, `MultiSemaphore`; over three servers `RedlockMutex`, `RedlockSemaphore`, ...",
        servers: 3,
        ..node(&["node", "redis-semaphore-kinds.js"])
    },
    Client {
        name: "sesamecare-redlock",
        packages: &["@sesamecare-oss/redlock", "ioredis"],
        covers: "`Redlock` on one server and over three, on several keys, in another database, `using`",
        servers: 3,
        ..node(&["node", "sesamecare-redlock.js"])
    },
    Client {
        name: "redlock-universal",
        packages: &["redlock-universal", "ioredis", "redis"],
        covers: "its locks on ioredis, lean, on node-redis, over three servers; batches; automatic extension",
        servers: 3,
        ..node(&["node", "redlock-universal.js"])
    },
    Client {
        name: "ioredis-lock",
        packages: &["@microfleet/ioredis-lock", "ioredis5"],
        covers: "`Lock` on ioredis 5",
        ..node(&["node", "ioredis-lock.js"])
    },
    Client {
        name: "simple-redis-mutex",
        packages: &["simple-redis-mutex", "redis"],
        covers: "`lock` whose waiters subscribe, `tryLock`, its fences",
        ..node(&["node", "simple-redis-mutex.js"])
    },
    Client {
        name: "node-redis-warlock",
        packages: &["node-redis-warlock", "redis3"],
        covers: "`lock`, `optimistic`, `touch` on node-redis 3",
        ..node(&["node", "warlock.js"])
    },
    Client {
        name: "verrou",
        packages: &["@verrou/core", "ioredis5"],
        covers: "the locks of AdonisJS: with a lease and without, `run`, restored, by force",
        ..node(&["node", "verrou.js"])
    },
    Client {
        name: "bullmq",
        packages: &["bullmq", "ioredis"],
        covers: "a job's lock by hand, renewed by workers, lost by one that stalls; retries, delays, schedules",
        ..node(&["node", "bullmq.js"])
    },
    Client {
        name: "redsync",
        packages: &["github.com/go-redsync/redsync/v4", "github.com/redis/go-redis/v9"],
        covers: "`Mutex` on go-redis",
        ..go(&["bin/locks", "redsync"])
    },
    Client {
        name: "redsync-redigo",
        packages: &["github.com/go-redsync/redsync/v4", "github.com/gomodule/redigo"],
        covers: "`Mutex` on redigo",
        ..go(&["bin/locks", "redsync-redigo"])
    },
    Client {
        name: "redsync-rueidis",
        packages: &["github.com/go-redsync/redsync/v4", "github.com/redis/rueidis"],
        covers: "`Mutex` on rueidis",
        ..go(&["bin/locks", "redsync-rueidis"])
    },
    Client {
        name: "rueidislock",
        packages: &["github.com/redis/rueidis"],
        covers: "`Locker` that waits for invalidations, of releases and of leases that end; NOLOOP; polling; by force",
        ..go(&["bin/locks", "rueidislock"])
    },
    Client {
        name: "redislock",
        packages: &["github.com/bsm/redislock", "github.com/redis/go-redis/v9"],
        covers: "`Lock` on one key and on several",
        ..go(&["bin/locks", "redislock"])
    },
    Client {
        name: "jedis",
        packages: &["jedis"],
        covers: "SET NX PX and scripts by hand, over RESP2 and RESP3",
        ..java(&["java", "-cp", "target/classes:target/lib/*", "JedisLock"])
    },
    Client {
        name: "lettuce",
        packages: &["lettuce-core"],
        covers: "SET NX PX and scripts by hand, over RESP2 and RESP3",
        ..java(&["java", "-cp", "target/classes:target/lib/*", "LettuceLock"])
    },
    Client {
        name: "redis-rs",
        packages: &["redis"],
        covers: "SET NX PX, scripts and transactions by hand, a waiter that subscribes, over RESP2 and RESP3",
        ..rust(&["target/debug/locks", "redis-rs"])
    },
    Client {
        name: "redisson",
        project: "redisson",
        servers: 5,
        packages: &["redisson"],
        covers: REDISSON,
        ..java(&["java", "-cp", "target/classes:target/lib/*", "RedissonLocks"])
    },
    Client {
        name: "redisson-3",
        project: "redisson3",
        servers: 5,
        packages: &["redisson"],
        covers: REDISSON,
        ..java(&["java", "-cp", "target/classes:target/lib/*", "RedissonLocks"])
    },
    Client {
        name: "spring-integration",
        project: "spring",
        packages: &["spring-integration-redis", "lettuce-core"],
        covers: "`RedisLockRegistry` in both modes, spinning and subscribed; leases, renewed by a scheduler",
        ..java(&["java", "-cp", "target/classes:target/lib/*", "SpringLocks", "integration"])
    },
    Client {
        name: "shedlock",
        project: "spring",
        packages: &["shedlock-provider-redis-spring", "lettuce-core"],
        covers: "jobs at most for so long, at least for so long, extended; with safe updates and without",
        ..java(&["java", "-cp", "target/classes:target/lib/*", "SpringLocks", "shedlock"])
    },
    Client {
        name: "shedlock-jedis",
        packages: &["shedlock-provider-redis-jedis4", "jedis"],
        covers: "jobs at most for so long, at least for so long, extended",
        ..java(&["java", "-cp", "target/classes:target/lib/*", "ShedLockOnJedis"])
    },
    Client {
        name: "phpredis",
        language: Language::Php,
        covers: "SET NX PX, Laravel's SET EX NX, scripts, WATCH and MULTI by hand; of Debian",
        ..tool("php", &["php", "phpredis.php"])
    },
    Client {
        name: "symfony-lock",
        language: Language::Php,
        servers: 3,
        covers: "`RedisStore`: exclusive, shared, promoted; `CombinedStore` over three servers; of Debian",
        ..tool("php", &["php", "symfony_lock.php"])
    },
    Client {
        name: "predis",
        language: Language::Php,
        covers: "SET NX PX, scripts, WATCH and MULTI, pipelines, BLPOP by hand; of Debian",
        ..tool("laravel", &["php", "predis.php"])
    },
    Client {
        name: "laravel",
        language: Language::Php,
        covers: "the locks of its cache, funnels and throttles, on Predis and on phpredis; of Debian",
        ..tool("laravel", &["php", "laravel.php"])
    },
    Client {
        name: "redis-rb",
        language: Language::Ruby,
        covers: "SET NX PX, scripts, WATCH and MULTI, BLPOP, SUBSCRIBE by hand; of Debian",
        ..tool("ruby", &["ruby", "redis_rb.rb"])
    },
    Client {
        name: "redis-rb-redlock",
        language: Language::Ruby,
        servers: 3,
        covers: "the Redlock algorithm over three servers, of which one is lost",
        ..tool("ruby", &["ruby", "redlock.rb"])
    },
    Client {
        name: "rslock",
        packages: &["rslock", "redis"],
        covers: "`Lock` and `LockGuard`",
        ..rust(&["target/debug/locks", "rslock"])
    },
    Client {
        name: "redlock-rs",
        packages: &["redlock"],
        covers: "`RedLock` and its guard, on one server and over three",
        servers: 3,
        ..rust(&["target/debug/locks", "redlock"])
    },
    Client {
        name: "fred",
        packages: &["fred"],
        covers: "SET NX PX, scripts and transactions by hand, a waiter that subscribes, over RESP2 and RESP3",
        ..rust(&["target/debug/locks", "fred"])
    },
    Client {
        name: "redis-cli",
        covers: "commands as arguments and from a pipe, `--scan`, `--stat`, `--latency`, `--bigkeys`",
        ..tool("cli", &["sh", "redis-cli.sh"])
    },
    Client {
        name: "redis-cli-tls",
        covers: "`--tls` with and without a certificate of its own; redis-benchmark's `--tls`, pipelined",
        has_tls: true,
        ..tool("cli", &["sh", "redis-cli-tls.sh"])
    },
    Client {
        name: "redis-cli-prompt",
        covers: "the prompt on a terminal",
        ..tool("prompt", &["python3", "prompt.py"])
    },
    Client {
        name: "redis-benchmark",
        covers: "its default run, and the commands of a lock, one at a time and pipelined",
        ..tool("cli", &["sh", "redis-benchmark.sh"])
    },
];

const REDISSON: &str = "`RLock`, reentrant, with a lease and with its watchdog; fair with a dead waiter in the queue, \
    read/write, spin, fenced and non-reentrant locks; multi-locks on servers and on values, RedLock with a server \
    lost; `RSemaphore`, `RPermitExpirableSemaphore`, `RCountDownLatch`";

const fn python(command: &'static [&'static str]) -> Client {
    Client { language: Language::Python, ..tool("python", command) }
}

/// A client's own tests.
const fn suite(command: &'static [&'static str]) -> Client {
    Client { language: Language::Python, ..tool("suites", command) }
}

const fn node(command: &'static [&'static str]) -> Client {
    Client { language: Language::Node, ..tool("node", command) }
}

const fn go(command: &'static [&'static str]) -> Client {
    Client { language: Language::Go, ..tool("go", command) }
}

const fn java(command: &'static [&'static str]) -> Client {
    Client { language: Language::Java, ..tool("java", command) }
}

const fn rust(command: &'static [&'static str]) -> Client {
    Client { language: Language::Rust, ..tool("rust", command) }
}

/// What the machine brings: its version is that of the machine.
const fn tool(project: &'static str, command: &'static [&'static str]) -> Client {
    Client {
        name: "",
        language: Language::Tool,
        project,
        command,
        servers: 1,
        has_tls: false,
        packages: &[],
        covers: "",
    }
}
