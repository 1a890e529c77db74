//! The ACL categories of a command, derived from its group and its flags.
//!
//! Rule    a category is derived from the row; `key_specs` lists the exceptions.
//! Source  Redis 7.0 `server.c`, `setImplicitACLCategories`.

use crate::commands::Command;
use crate::commands::key_specs;
use crate::commands::row::Flags;

/// Every category, in the order in which Redis lists them.
pub(in crate::commands) const NAMES: [&str; 22] = [
    "keyspace", "read", "write", "set", "sortedset", "list", "hash", "string", "bitmap", "hyperloglog",
    "geo", "stream", "pubsub", "admin", "fast", "slow", "blocking", "dangerous", "connection", "transaction",
    "scripting", "lock",
];

/// The categories of a command, in that order.
pub(in crate::commands) fn categories(command: &Command) -> Vec<&'static str> {
    NAMES.into_iter().filter(|name| is_in(command, name)).collect()
}

/// Whether a command is in the category of that name.
pub(in crate::commands) fn is_in(command: &Command, name: &str) -> bool {
    let flags = command.row.flags;
    let group = key_specs::category(command);
    let is_admin = flags.has(Flags::ADMIN) || matches!(command.name.as_str(), "role" | "lastsave");
    match name {
        // A read-only script is not in the category: each of its calls is checked on its own.
        "read" => flags.has(Flags::READONLY) && group != Some("scripting"),
        "write" => flags.has(Flags::WRITE),
        "pubsub" => flags.has(Flags::PUBSUB),
        "admin" => is_admin,
        "fast" => flags.has(Flags::FAST),
        "slow" => !flags.has(Flags::FAST),
        "blocking" => flags.has(Flags::BLOCKING),
        "dangerous" => is_admin || flags.has(Flags::DANGEROUS),
        name => group == Some(name),
    }
}
