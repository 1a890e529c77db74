//! What a server knows besides its keys: who is connected, how it is set, what it has counted.
//!
//! Owns    clients and their outboxes, sessions, channels, settings, metrics, what was slow.
//! Knows   the floors below; nothing of commands.
//! Rule    what other threads may look at is atomic or behind its own lock; none of those locks is held while another
//!         is taken, and none while a shard is being locked.

pub mod acl;
pub mod audience;
pub mod channels;
pub mod claim;
pub mod clients;
pub mod latency;
pub mod log_limiter;
pub mod metrics;
pub mod monitors;
pub mod output_limits;
pub mod proposal;
pub mod running;
pub mod session;
pub mod settings;
pub mod settings_file;
pub mod settings_fixed;
pub mod settings_table;
pub mod slowlog;
pub mod tracking;
pub mod transaction;
