//! The exact texts that clients are known to send, by their SHA-1, and the row that each lands on.
//!
//! Owns    the list; `tests/scripts/collect.py` gathers the texts from the clients' own packages, and `tests/scripts.rs`
//!         holds the table to it. The texts themselves are their authors' and not kept here.

/// One text of one client.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// SHA-1 of the text, as EVALSHA names it.
    pub sha1: &'static str,
    /// Who sends it, and what for.
    pub client: &'static str,
    /// The row that it lands on.
    pub row: &'static str,
}

const fn known(sha1: &'static str, client: &'static str, row: &'static str) -> Known {
    Known { sha1, client, row }
}

/// The texts, by row.
pub const KNOWN: &[Known] = &[
    known("6d3dc0632cacc8cab081ab4f4b563966e1d780f8", "bull job locks: takeLock", "acquire"),
    known("862f31bf38e9b63ce28d6e9e5143551bb34ef981", "redlock 0.2 to 3 (Node): lock", "acquire"),
    known("e5a322e2634ef59a516e8ea150cb085afafee684", "redlock v4: lock", "acquire all"),
    known("96da70f7716f27d278a5218544df37fd8b0a5e4c", "redlock v5 beta: acquire", "acquire all"),
    known(
        "eb0c00d98f6f33b4262419a509002884540f30be",
        "bsm/redislock: obtain",
        "acquire all, or those with my token",
    ),
    known(
        "4227fa753143e6f652e2e185d254964b3a7413a5",
        "rq scheduler / maintenance lock: acquire_or_refresh",
        "acquire or refresh, seconds",
    ),
    known(
        "175897a4e379e99e79a54937be09226f76cdcfe5",
        "Spring Integration RedisLockRegistry: obtain",
        "acquire or refresh, told by a boolean",
    ),
    known("c75a9bf1538efcdb1f383acc3e273c5089d57e58", "aioredlock: set", "acquire or refresh, with an error"),
    known(
        "459cfa2e6c93bad7aa427b850f346bf836b2002d",
        "@upstash/lock: extend",
        "compare-and-add to a positive lease, seconds",
    ),
    known(
        "e03e083d81632b90688e6621ceb7b922dea67c5d",
        "coredis Lock (patterns.lock): extend",
        "compare-and-add to the lease",
    ),
    known(
        "a4e8783852e6b949f9ef3a97212805108459a890",
        "redis-py Lock: extend",
        "compare-and-add to the lease, or replace it",
    ),
    known(
        "7a1e2313543c636a6197704ea9dac88eceb31444",
        "redis-lock-py: extend",
        "compare-and-add to the lease, seconds",
    ),
    known(
        "da225123b2af4a41136fdba7ffac1e045e344da1",
        "@microfleet/ioredis-lock: delifequal",
        "compare-and-delete",
    ),
    known("59bc3e108ef7f99b02996a98489960c0edcc9945", "@upstash/lock: release", "compare-and-delete"),
    known(
        "0a87223fb92fcc2308021a1b6da07197448b6402",
        "@verrou/core (AdonisJS lock): delete",
        "compare-and-delete",
    ),
    known("eaf7d8b7cbe916e7dd43d9cd8f1110515658483f", "bull job locks: releaseLock", "compare-and-delete"),
    known("8193548d62b0cd9223df46482777b662a185e8d6", "bullmq job locks: releaseLock", "compare-and-delete"),
    known("b948f76fda6b97319d3426a2fb42b0d4f02c7146", "cashews redis lock: unlock", "compare-and-delete"),
    known(
        "ea535b5ce831428455ea063dc10eadacff025884",
        "coredis Lock (patterns.lock): release",
        "compare-and-delete",
    ),
    known(
        "647c65a442733a1aa440f99908d249d13b4d6c4a",
        "laravel RedisLock / PhpRedisLock / limiters: releaseLock",
        "compare-and-delete",
    ),
    known("5cc368fb92acd8fee3a986dc8e971d6cf28c3b44", "node-redis-warlock: parityDel", "compare-and-delete"),
    known(
        "d220654d7721ae520b15ed0e24a4cc97024efa08",
        "php-lock/lock RedisMutex: release",
        "compare-and-delete",
    ),
    known(
        "a4aada0b36710970eedaaaeec4a6b7d8c78c4f80",
        "pottery Redlock / AIORedlock: release",
        "compare-and-delete",
    ),
    known(
        "ff62909a2bffd84e70074a60e795f395ccb75ed7",
        "redis-lock (crate): single release",
        "compare-and-delete",
    ),
    known("e63c1bdcff89893c1242d737ef2971b3f2f9ea96", "redis-lock-py: spin release", "compare-and-delete"),
    known("c3f8721cbb97f72bc19e972846bd7aaf91901658", "redis-py Lock: release", "compare-and-delete"),
    known("7157921a7cc7cfba979acf6d63f073151df17d12", "redis-semaphore: mutex release", "compare-and-delete"),
    known("b6a796aa8d73bb4ce6e26afe648196d086a8d1f1", "redislock (npm): delifequal", "compare-and-delete"),
    known("544c68b7ffd46e5d7ccc58a27204557efba43310", "redlock (crate): unlock", "compare-and-delete"),
    known("fc03c85cef965af38f17fef05d68cc66c7d85c96", "redlock (glasslion): release", "compare-and-delete"),
    known(
        "cf0e94b2e9ffc7e04395cf88f7583fc309985910",
        "redlock 0.2 to 3 (Node), bsm/redislock 0.3 to 0.9: release",
        "compare-and-delete",
    ),
    known("e9b478387d9b08487f964382baf8443e7bd1aeb5", "redlock-ng: release", "compare-and-delete"),
    known(
        "4e92fdc63815b3a0a2dd1c1df3694de73607c88d",
        "redlock-py (SPSCommerce): unlock",
        "compare-and-delete",
    ),
    known(
        "fd83166fb3d7235e3ace652b700c9e217c1adc1f",
        "redlock-universal: delete_if_match",
        "compare-and-delete",
    ),
    known("00583931c4e4d483f6233879c133c71ed5393f9d", "redsync before 4.12: delete", "compare-and-delete"),
    known(
        "d44df6e1a0e76df1009084a91af26cc23ac035a9",
        "rq scheduler / maintenance lock: release",
        "compare-and-delete",
    ),
    known("daf86bbf8740dd3ca86733367a016364b2110627", "rslock: unlock", "compare-and-delete"),
    known(
        "bfb9f817b2e860fe4fc58656b2bf657d3fdc2be1",
        "sherlock RedisLock: release",
        "compare-and-delete by a result",
    ),
    known(
        "e950836ed1e694540c503ef9972b8de518044d3b",
        "go-redsync/redsync: delete",
        "compare-and-delete, -1 where missing",
    ),
    known(
        "3ee65fe8cbb7be7badd45039a1eb0861cfa89286",
        "redis-lock-py: release",
        "compare-and-delete, then a message",
    ),
    known(
        "90da91872223f85eb1376a17e3c4df21ace8c54b",
        "python-redis-lock (ionelmc): unlock",
        "compare-and-delete, then a signal in a list",
    ),
    known(
        "241e4ca540a1cc4ec1f32d9eb9f879e607d7e6e5",
        "aioredlock: unset",
        "compare-and-delete, told in three ways",
    ),
    known(
        "758ee2fc57c84a93a25cd712f592a1b4898d6c03",
        "walrus Lock: lock_release",
        "compare-and-delete, with a trimmed list",
    ),
    known(
        "fed16109024d968d9496e4140fe1355bac05ebff",
        "python-redis-lock (ionelmc): extend",
        "compare-and-expire a key that has a lease, told in three ways",
    ),
    known(
        "8a7fdef25bdef981900f982f5773edaf35000372",
        "sherlock RedisLock: renew",
        "compare-and-expire by a result",
    ),
    known(
        "bf3108245472c550b02852e1e425128e5eb399c4",
        "@microfleet/ioredis-lock: pexpireifequal",
        "compare-and-pexpire",
    ),
    known(
        "3950eadb2785a5afcc0daf9e56adc0bbd14017a4",
        "@verrou/core (AdonisJS lock): extend",
        "compare-and-pexpire",
    ),
    known(
        "879e0f7b8d83c3266d4e996627438c05dbda0b89",
        "Spring Integration RedisLockRegistry: renew",
        "compare-and-pexpire",
    ),
    known("d75bb8b5bd13532ddedd17762e772346e39b321e", "go-redsync/redsync: touch", "compare-and-pexpire"),
    known(
        "ba015a80261b616e7a62d35df0b8e3edbe6c9414",
        "pottery Redlock / AIORedlock: extend",
        "compare-and-pexpire",
    ),
    known("1cac51482acf5858da00f6d685d68f886cd6b6b2", "redis-py Lock: reacquire", "compare-and-pexpire"),
    known(
        "594683e49a64ebaf975caf5f8079a1d097c438f1",
        "redis-semaphore: mutex refresh",
        "compare-and-pexpire",
    ),
    known(
        "b8781a7c50e72ae869ca41c3fe9f504e365f3881",
        "redislock (npm): pexpireifequal",
        "compare-and-pexpire",
    ),
    known(
        "a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf",
        "redlock 0.2 to 3 (Node), bsm/redislock 0.3 to 0.9: extend",
        "compare-and-pexpire",
    ),
    known("20503cb22929c16ca7525d8fd1a5736f023dd629", "redlock-ng: extend", "compare-and-pexpire"),
    known(
        "e218d686a8f90368e5cd45074f06ce766cad9987",
        "redlock-universal: extend_if_match",
        "compare-and-pexpire",
    ),
    known(
        "411b7c153e0ab3ba59d6d1e36cc7858ebd76f2c5",
        "celery-redbeat: extend_to",
        "compare-and-pexpire a key that has a lease",
    ),
    known(
        "c000e088bd4aca36ab429d3b7a16fc736f4cb6f1",
        "redlock-universal: atomic_extend",
        "compare-and-pexpire with a least remaining lease",
    ),
    known(
        "78d3bb55c589f1b2edf66f3527f5017f8dfcd6bb",
        "node-redis-warlock: parityRelock",
        "compare-and-set existing, milliseconds",
    ),
    known("17a49af0c4b1a9034503fa84f3570f5ca76c4cbf", "rslock: extend", "compare-and-set, then 1"),
    known(
        "f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2",
        "Spring Integration RedisLockRegistry: spin unlock",
        "compare-and-unlink",
    ),
    known(
        "7a71e9443a2a41539fb115a5a27d5a748a871aed",
        "Spring Integration RedisLockRegistry: pubsub unlock",
        "compare-and-unlink, then a message",
    ),
    known("ce46f80993d5dac20dd066eb301a4e37994bdbed", "redlock v4: extend", "extend all"),
    known("aed6f382e410db8ba7926d4e5e9aab410bf2a78a", "redlock v5 beta: extend", "extend all"),
    known("5a22d7e8431313862816d4416b5e46dd70fc340d", "bsm/redislock: refresh", "extend all or none"),
    known(
        "51b433c3cc9a6ca991b3aefec63d23490c246318",
        "Redisson RSpinLock / RFencedLock / NonReentrant*: RedissonSpinLock.forceUnlockAsync",
        "forced delete",
    ),
    known(
        "f5f7bd3a3aa4a63c507c1155c5ea1219b350d992",
        "pottery Redlock / AIORedlock: acquired",
        "guarded pttl, never negative",
    ),
    known("f908d3f43dbcabc68fc0c9ecaf1fa4a285ecdb0a", "aioredlock: get_ttl", "guarded ttl, with an error"),
    known(
        "b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79",
        "go-redsync/redsync: touchWithSetNX",
        "refresh or acquire",
    ),
    known("0f0f23b9048b36752b5be114f357ba083449f908", "redlock v4: unlock", "release all"),
    known("e4612211c9f8f51c257e26e056b0a654b3187242", "redlock v5 beta: release", "release all"),
    known("9470c810040e272ee6c579d8d4331aaf6332a7b1", "bsm/redislock: release", "release all or none"),
    known(
        "afbc8014508f92e446b56567e8ba600e811c1bd5",
        "python-redis-lock (ionelmc): reset",
        "reset, with a signal in a list",
    ),
    known(
        "d893d8da0844b834c9c5a41fb79b469749e6f442",
        "walrus Lock: lock_acquire",
        "setnx, then a positive pexpire",
    ),
    known("7bcdefae3714859f68f1f2377bddae74a1af9391", "sherlock RedisLock: acquire", "setnx, then expire"),
    known("66e1084c2d842a7e8c271925aae90219fac4e129", "bsm/redislock: pttl", "the shortest lease of all"),
    known(
        "444506ed6079843ae4590ff6caf5f677dae3a35f",
        "Redisson RLock (reentrant) + watchdog: MasterSlaveConnectionManager.detectCluster",
        "two reads",
    ),
    known("994908155dadb1bed08a5af6dee7fedf956c4826", "redlock-universal: inspect", "value and lease"),
    known(
        "fa3d1aaa7e4145457755016a3d5daf72fa7a11bf",
        "rueidislock: acquire",
        "acquire and read, milliseconds",
    ),
    known(
        "3875d208d9e377969d2022550302cc83ad17b584",
        "rueidislock: acquire until",
        "acquire and read, until a time",
    ),
    known(
        "4384ed08baff4dd7071b6c78c516a2fded4ee3e7",
        "rueidislock: forced",
        "forced set and read, milliseconds",
    ),
    known(
        "c10e8119872659b926e8e28002d9b7fccbf15617",
        "rueidislock: forced until",
        "forced set and read, until a time",
    ),
    known("a08c9c69b7c07ae2485190873b90d128a23e502d", "laravel cache: add", "add with a lease"),
    known(
        "9f614a785a5f9ae8c6396c6b4bf94d2087342603",
        "RedLock.net: extend",
        "acquire or refresh, told in three ways",
    ),
    known("5c252c1a0eaeeb4522fbbb982baba4e74ddfcd0d", "redlock (Elixir): unlock", "compare-and-delete"),
    known("8e4905cee18e7c3188d10f2b8b170e403baed34f", "redlock-rb: unlock", "compare-and-delete"),
    known("194f3902b2dd08557818d09fc2e7682d91480e53", "ShedLock: del", "compare-and-delete"),
    known(
        "78d2ca48a6dc9ef6892059792a3a0c5237733d64",
        "redlock-rb: pttl",
        "value and lease, null where missing",
    ),
    known(
        "1b77b94aa78451d55dfa97e18819bfbfc596cb5b",
        "@sesamecare-oss/redlock: acquireLock",
        "acquire all, in a database",
    ),
    known(
        "820e9778d2b6733e9ed771e4be90ae73a95a6f3b",
        "@sesamecare-oss/redlock: extendLock",
        "extend all, in a database",
    ),
    known(
        "df51f6837dcfe303d334e6abea9aeae192bab216",
        "@sesamecare-oss/redlock: releaseLock",
        "release all, in a database",
    ),
    known(
        "02718596825c5bf6c57af391b4dc01a6d2d9d88a",
        "simple-redis-mutex: release",
        "compare-and-delete, then a message in JSON",
    ),
];
