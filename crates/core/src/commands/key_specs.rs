//! Facts of COMMAND INFO that are not in the row of a command: how it uses each key, hints for proxies, and ACL
//! categories that follow from neither its group nor its flags.
//!
//! Rule    for a command that is not listed here, [`access`] and [`category`] follow from its row.
//! Source  replies of Redis 7.0, and of Valkey 9.1 for the commands that only it has.

use crate::commands::row::{Flags, Group};
use crate::commands::{Command, Keys};

/// How the command uses the keys of its `index`-th key specification.
pub(super) fn access(command: &Command, index: usize) -> &'static [&'static str] {
    if let Some(listed) = find(ACCESS, &command.name).and_then(|keys| keys.get(index)) {
        return listed;
    }
    let flags = command.row.flags;
    match () {
        () if flags.has(Flags::READONLY) => &["RO", "access"],
        () if flags.has(Flags::WRITE) => &["RW", "update"],
        () => &["RW", "access", "update"],
    }
}

/// The positions of keys that a command uses in one way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Specification {
    /// The last key is `last` words behind the first, or counted from the end if negative.
    Range { begin: usize, last: i32, step: usize },
    /// The word at `begin` is the number of keys that follow.
    Counted { begin: usize, step: usize },
}

/// The key specifications of a command with these keys.
pub(super) fn specifications(keys: Keys) -> Vec<Specification> {
    match keys {
        Keys::Nowhere => Vec::new(),
        Keys::Counted { destination, count, step } => {
            let destination = destination.map(|begin| Specification::Range { begin, last: 0, step: 1 });
            destination.into_iter().chain([Specification::Counted { begin: count, step }]).collect()
        }
        // RENAME, COPY: two adjacent keys are used in different ways.
        Keys::Range { first, last, step: 1 } if last > first as i32 => {
            (first..=last as usize).map(|begin| Specification::Range { begin, last: 0, step: 1 }).collect()
        }
        Keys::Range { first, last, step } => {
            let last = if last < 0 { last } else { last.saturating_sub(first as i32) };
            vec![Specification::Range { begin: first, last, step }]
        }
    }
}

/// A note on its key specification.
pub(super) fn notes(command: &Command) -> Option<&'static str> {
    find(NOTES, &command.name).copied()
}

/// The positions of the shard channels of the command of this name, if it names any.
pub(super) fn channels(name: &str) -> Option<Keys> {
    find(CHANNELS, name).copied()
}

/// Hints for proxies and cluster clients.
pub(super) fn tips(command: &Command) -> &'static [&'static str] {
    find(TIPS, &command.name).copied().unwrap_or_default()
}

/// The ACL category of its group.
pub(super) fn category(command: &Command) -> Option<&'static str> {
    if !command.row.subcommands.is_empty() && command.name != "command" {
        return None;
    }
    let container = command.name.split('|').next().unwrap_or_default();
    find(CATEGORIES, container).copied().or(match command.row.group {
        Group::Connection => Some("connection"),
        Group::Generic => Some("keyspace"),
        Group::Hash => Some("hash"),
        Group::Scripting => Some("scripting"),
        Group::SortedSet => Some("sortedset"),
        Group::Stream => Some("stream"),
        Group::String => Some("string"),
        Group::List => Some("list"),
        Group::Lock => Some("lock"),
        Group::Set => Some("set"),
        Group::Transactions => Some("transaction"),
        Group::Cluster | Group::PubSub | Group::Sentinel | Group::Server | Group::Test => None,
    })
}

fn find<T>(table: &'static [(&str, T)], name: &str) -> Option<&'static T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, fact)| fact)
}

const CATEGORIES: &[(&str, &str)] = &[
    ("command", "connection"),
    ("asking", "connection"),
    ("readonly", "connection"),
    ("readwrite", "connection"),
    ("dbsize", "keyspace"),
    ("flushall", "keyspace"),
    ("flushdb", "keyspace"),
    ("swapdb", "keyspace"),
    ("wait", "connection"),
    ("waitaof", "connection"),
];

const ACCESS: &[(&str, &[&[&str]])] = &[
    ("setnx", &[&["OW", "insert"]]),
    ("setex", &[&["OW", "update"]]),
    ("psetex", &[&["OW", "update"]]),
    ("getdel", &[&["RW", "access", "delete"]]),
    ("getex", &[&["RW", "access", "update"]]),
    ("getset", &[&["RW", "access", "update"]]),
    ("mset", &[&["OW", "update"]]),
    ("msetnx", &[&["OW", "insert"]]),
    ("msetex", &[&["OW", "update"]]),
    ("strlen", &[&["RO"]]),
    ("append", &[&["RW", "insert"]]),
    ("incr", &[&["RW", "access", "update"]]),
    ("decr", &[&["RW", "access", "update"]]),
    ("incrby", &[&["RW", "access", "update"]]),
    ("decrby", &[&["RW", "access", "update"]]),
    ("incrbyfloat", &[&["RW", "access", "update"]]),
    ("increx", &[&["RW", "access", "update"]]),
    ("set", &[&["RW", "access", "update", "variable_flags"]]),
    ("watch", &[&["RO"]]),
    ("hdel", &[&["RW", "delete"]]),
    ("hexists", &[&["RO"]]),
    ("hgetdel", &[&["RW", "access", "delete"]]),
    ("hincrby", &[&["RW", "access", "update"]]),
    ("hincrbyfloat", &[&["RW", "access", "update"]]),
    ("hlen", &[&["RO"]]),
    ("hsetnx", &[&["RW", "insert"]]),
    ("hstrlen", &[&["RO"]]),
    ("del", &[&["RM", "delete"]]),
    ("unlink", &[&["RM", "delete"]]),
    ("exists", &[&["RO"]]),
    ("touch", &[&["RO"]]),
    ("type", &[&["RO"]]),
    ("rename", &[&["RW", "access", "delete"], &["OW", "update"]]),
    ("renamenx", &[&["RW", "access", "delete"], &["OW", "insert"]]),
    ("copy", &[&["RO", "access"], &["OW", "update"]]),
    ("move", &[&["RW", "access", "update"]]),
    ("xadd", &[&["RW", "update"]]),
    ("xtrim", &[&["RW", "delete"]]),
    ("zcard", &[&["RO"]]),
    ("zincrby", &[&["RW", "access", "update"]]),
    ("zinterstore", &[&["OW", "update"], &["RO", "access"]]),
    ("zmpop", &[&["RW", "access", "delete"]]),
    ("zpopmax", &[&["RW", "access", "delete"]]),
    ("zpopmin", &[&["RW", "access", "delete"]]),
    ("zrangestore", &[&["OW", "update"], &["RO", "access"]]),
    ("zrem", &[&["RW", "delete"]]),
    ("zremrangebylex", &[&["RW", "delete"]]),
    ("zremrangebyrank", &[&["RW", "delete"]]),
    ("zremrangebyscore", &[&["RW", "delete"]]),
    ("object|encoding", &[&["RO"]]),
    ("object|idletime", &[&["RO"]]),
    ("object|freq", &[&["RO"]]),
    ("object|refcount", &[&["RO"]]),
    ("memory|usage", &[&["RO"]]),
    ("delifeq", &[&["RM", "delete"]]),
    ("delex", &[&["RW", "delete"]]),
    ("lpush", &[&["RW", "insert"]]),
    ("rpush", &[&["RW", "insert"]]),
    ("lpushx", &[&["RW", "insert"]]),
    ("rpushx", &[&["RW", "insert"]]),
    ("lpop", &[&["RW", "access", "delete"]]),
    ("rpop", &[&["RW", "access", "delete"]]),
    ("llen", &[&["RO"]]),
    ("lrem", &[&["RW", "delete"]]),
    ("ltrim", &[&["RW", "delete"]]),
    ("linsert", &[&["RW", "insert"]]),
    ("lmove", &[&["RW", "access", "delete"], &["RW", "insert"]]),
    ("rpoplpush", &[&["RW", "access", "delete"], &["RW", "insert"]]),
    ("lmpop", &[&["RW", "access", "delete"]]),
    ("blpop", &[&["RW", "access", "delete"]]),
    ("brpop", &[&["RW", "access", "delete"]]),
    ("blmove", &[&["RW", "access", "delete"], &["RW", "insert"]]),
    ("brpoplpush", &[&["RW", "access", "delete"], &["RW", "insert"]]),
    ("blmpop", &[&["RW", "access", "delete"]]),
    ("bzpopmin", &[&["RW", "access", "delete"]]),
    ("bzpopmax", &[&["RW", "access", "delete"]]),
    ("bzmpop", &[&["RW", "access", "delete"]]),
    ("sadd", &[&["RW", "insert"]]),
    ("srem", &[&["RW", "delete"]]),
    ("scard", &[&["RO"]]),
    ("sismember", &[&["RO"]]),
    ("spop", &[&["RW", "access", "delete"]]),
    ("smove", &[&["RW", "access", "delete"], &["RW", "insert"]]),
    ("spublish", &[&["not_key"]]),
    ("ssubscribe", &[&["not_key"]]),
    ("sunsubscribe", &[&["not_key"]]),
];

const CHANNELS: &[(&str, Keys)] = &[
    ("spublish", Keys::Range { first: 1, last: 1, step: 1 }),
    ("ssubscribe", Keys::Range { first: 1, last: -1, step: 1 }),
    ("sunsubscribe", Keys::Range { first: 1, last: -1, step: 1 }),
];

const NOTES: &[(&str, &str)] = &[
    ("getex", "RW and UPDATE because it changes the TTL"),
    ("set", "RW and ACCESS due to the optional `GET` argument"),
    ("xadd", "UPDATE instead of INSERT because of the optional trimming feature"),
    ("eval", "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
    ("eval_ro", "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
    ("fcall", "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE"),
    ("fcall_ro", "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS"),
];

const TIPS: &[(&str, &[&str])] = &[
    ("ping", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    ("client|list", &["nondeterministic_output"]),
    ("client|info", &["nondeterministic_output"]),
    ("mget", &["request_policy:multi_shard"]),
    ("mset", &["request_policy:multi_shard", "response_policy:all_succeeded"]),
    ("msetnx", &["request_policy:multi_shard", "response_policy:agg_min"]),
    ("msetex", &["request_policy:multi_shard", "response_policy:all_succeeded"]),
    ("del", &["request_policy:multi_shard", "response_policy:agg_sum"]),
    ("unlink", &["request_policy:multi_shard", "response_policy:agg_sum"]),
    ("exists", &["request_policy:multi_shard", "response_policy:agg_sum"]),
    ("touch", &["request_policy:multi_shard", "response_policy:agg_sum"]),
    ("hgetall", &["nondeterministic_output_order"]),
    ("hkeys", &["nondeterministic_output_order"]),
    ("hscan", &["nondeterministic_output"]),
    ("hvals", &["nondeterministic_output_order"]),
    ("keys", &["request_policy:all_shards", "nondeterministic_output_order"]),
    ("scan", &["nondeterministic_output", "request_policy:special"]),
    ("randomkey", &["request_policy:all_shards", "nondeterministic_output"]),
    ("ttl", &["nondeterministic_output"]),
    ("pttl", &["nondeterministic_output"]),
    ("object|encoding", &["nondeterministic_output"]),
    ("object|idletime", &["nondeterministic_output"]),
    ("object|freq", &["nondeterministic_output"]),
    ("object|refcount", &["nondeterministic_output"]),
    ("dbsize", &["request_policy:all_shards", "response_policy:agg_sum"]),
    ("flushdb", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    ("flushall", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    ("script|flush", &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ("script|kill", &["request_policy:all_shards", "response_policy:one_succeeded"]),
    ("script|exists", &["request_policy:all_shards", "response_policy:agg_logical_and"]),
    ("script|load", &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ("function|delete", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    ("function|flush", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    ("function|kill", &["request_policy:all_shards", "response_policy:one_succeeded"]),
    ("function|list", &["nondeterministic_output_order"]),
    ("function|load", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    ("function|stats", &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    ("info", &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    ("command", &["nondeterministic_output_order"]),
    ("command|info", &["nondeterministic_output_order"]),
    ("command|docs", &["nondeterministic_output_order"]),
    ("command|list", &["nondeterministic_output_order"]),
    ("config|set", &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ("time", &["nondeterministic_output"]),
    ("lastsave", &["nondeterministic_output"]),
    ("cluster|count-failure-reports", &["nondeterministic_output"]),
    ("cluster|getkeysinslot", &["nondeterministic_output"]),
    ("cluster|info", &["nondeterministic_output"]),
    ("cluster|links", &["nondeterministic_output"]),
    ("cluster|myshardid", &["nondeterministic_output"]),
    ("cluster|nodes", &["nondeterministic_output"]),
    ("cluster|replicas", &["nondeterministic_output"]),
    ("cluster|shards", &["nondeterministic_output"]),
    ("cluster|slaves", &["nondeterministic_output"]),
    ("cluster|slots", &["nondeterministic_output"]),
    ("xadd", &["nondeterministic_output"]),
    ("xtrim", &["nondeterministic_output"]),
    ("zscan", &["nondeterministic_output"]),
    ("wait", &["request_policy:all_shards", "response_policy:agg_min"]),
    ("memory|purge", &["request_policy:all_shards", "response_policy:all_succeeded"]),
    (
        "memory|malloc-stats",
        &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ),
    ("memory|stats", &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    ("memory|doctor", &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    ("module|list", &["nondeterministic_output_order"]),
    ("latency|latest", &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    ("latency|reset", &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ("latency|history", &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"]),
    (
        "latency|histogram",
        &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ),
    ("slowlog|reset", &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ("slowlog|get", &["request_policy:all_nodes", "nondeterministic_output"]),
    ("slowlog|len", &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"]),
    ("client|setinfo", &["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ("waitaof", &["request_policy:all_shards", "response_policy:agg_min"]),
    ("smembers", &["nondeterministic_output_order"]),
    ("spop", &["nondeterministic_output"]),
    ("srandmember", &["nondeterministic_output"]),
    ("sscan", &["nondeterministic_output"]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    #[test]
    fn no_command_is_listed_twice() {
        let names = |table: &[&'static str]| {
            for (at, name) in table.iter().enumerate() {
                assert!(!table[..at].contains(name), "{name}: twice");
            }
        };
        names(&ACCESS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        names(&NOTES.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        names(&TIPS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn every_key_has_a_use() {
        for command in table().all() {
            assert!(!access(command, 0).is_empty() && !access(command, 9).is_empty(), "{}", command.name);
        }
    }
}
