//! The keyspace: every key this server holds, spread over independent shards.
//!
//! Owns    entries, their deadlines and the tables that find them.
//! Knows   `clock`, `wheel`; nothing of commands or connections.
//! Time    comes in as an argument. A shard's own time never runs backwards.

mod arena;
pub mod shard;
mod table;
