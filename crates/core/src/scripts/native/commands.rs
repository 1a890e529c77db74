//! The commands that a native script may call, and where their keys are.
//!
//! Owns    that list. A script that calls another command is interpreted. No listed command blocks, uses keys other than
//!         its arguments, or stores more than it reads and is given.

/// Where the keys of a command are among its arguments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Keys {
    All,
    /// The first argument, the third, and so on.
    EveryOther,
    /// The first argument.
    First,
    /// No argument.
    None,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    pub(super) name: &'static str,
    pub(super) keys: Keys,
}

/// The command with that name, in any letter case, and its index in the list.
pub(super) fn find(name: &[u8]) -> Option<(usize, Listed)> {
    listed().enumerate().find(|(_, listed)| listed.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The names of all listed commands.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    listed().map(|listed| listed.name)
}

fn listed() -> impl Iterator<Item = Listed> {
    LISTED.iter().flat_map(|(keys, names)| names.iter().map(|name| Listed { name, keys: *keys }))
}

const LISTED: &[(Keys, &[&str])] = &[
    (
        Keys::First,
        &[
            "DECR", "DECRBY", "EXPIRE", "EXPIREAT", "GET", "GETDEL", "GETEX", "GETRANGE", "GETSET", "HDEL",
            "HEXISTS", "HGET", "HGETALL", "HINCRBY", "HKEYS", "HLEN", "HMGET", "HMSET", "HSET", "HSETNX",
            "HVALS", "INCR", "INCRBY", "LINDEX", "LLEN", "LPOP", "LPUSH", "LRANGE", "LREM", "LTRIM",
            "PERSIST", "PEXPIRE", "PEXPIREAT", "PSETEX", "PTTL", "RPOP", "RPUSH", "SADD", "SCARD", "SET",
            "SETEX", "SETNX", "SISMEMBER", "SMEMBERS", "SREM", "STRLEN", "TTL", "TYPE", "ZADD", "ZCARD",
            "ZCOUNT", "ZINCRBY", "ZRANGEBYSCORE", "ZRANGE", "ZRANK", "ZREM", "ZREMRANGEBYRANK",
            "ZREMRANGEBYSCORE", "ZREVRANGE", "ZREVRANK", "ZSCORE",
        ],
    ),
    (Keys::All, &["DEL", "EXISTS", "MGET", "UNLINK"]),
    (Keys::EveryOther, &["MSET", "MSETNX"]),
    (Keys::None, &["PUBLISH", "SELECT", "SPUBLISH", "TIME"]),
];
