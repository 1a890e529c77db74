//! The state of a server apart from its keys: clients, sessions, channels, users, settings and metrics.
//!
//! Owns    clients and their outboxes, sessions, channels, settings, metrics, the slow log.
//! Knows   the layers below; nothing of commands.
//! Rule    state that other threads read is atomic or behind its own lock. A thread that holds one of these locks takes
//!         no other one and locks no shard.

pub mod acl;
pub mod audit;
pub mod beside;
pub mod channels;
pub mod clients;
pub mod cluster;
pub mod directives;
pub mod latency;
pub mod ledger;
pub mod lock_sessions;
pub mod log_limiter;
pub mod login_delays;
pub mod metrics;
pub mod monitors;
pub mod node_key;
pub(crate) mod output_limits;
pub mod polling;
pub mod proposal;
pub mod quarantine;
pub mod registries;
pub mod running;
pub(crate) mod search_budget;
pub mod session;
mod setting_value;
pub mod settings;
pub(crate) mod settings_file;
pub mod settings_table;
pub mod slot_groups;
pub mod slot_map;
pub mod slowlog;
pub mod trace;
pub mod tracking;
pub mod transaction;
pub mod wait;
pub(crate) mod wrong_passwords;
