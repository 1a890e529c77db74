//! The bounds of all input from the network.
//!
//! Source  the values are Redis 7's, so that a request it accepts is accepted here and one it refuses is refused.

/// Bytes of an inline request, or of the line that announces a count or a length.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
pub const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Bytes of one argument; the default of `proto-max-bulk-len`.
pub const BULK_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of one request; the default and maximum of `client-query-buffer-limit`.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Arguments of a request from a client that has not authenticated.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Bytes of an argument from a client that has not authenticated.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16 * 1024;
/// Bytes of the reply to one request, EXEC included. A client that asks for more is disconnected. Redis has no such bound.
pub const REPLY_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Bytes of unsent replies from which on the further requests of a client wait.
pub const UNREAD_REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Bytes of unsent replies from which on a client that has not authenticated is disconnected.
pub const UNAUTHENTICATED_REPLY_BYTES_MAX: usize = 1024;
/// Nanoseconds that one connection may use of a worker's time before other connections have their turn, as far as measured.
pub const TURN_NANOS_MAX: u64 = 4_000_000;
/// Bytes above which a value, the arguments of a script or the requests of a transaction are large: a command on them
/// runs on the script thread. An item of the keyspace, or of a list of listeners, counts as [`ITEM_BYTES`].
pub const LARGE_BYTES: u64 = 64 * 1024;
/// Bytes that count for each key in a command over all keys, and for each listener in a message to all listeners.
pub const ITEM_BYTES: u64 = 64;
/// Databases a server can have.
pub const DATABASES_MAX: u16 = 4096;
pub const SHARDS_MAX: usize = 1024;

const _: () = assert!(SHARDS_MAX.is_power_of_two(), "the shard of a key is a mask of its hash");
const _: () = assert!(BULK_BYTES_MAX as usize <= REQUEST_BYTES_MAX);
/// Bytes of the queued requests of one transaction.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 30;
/// Passwords, patterns and rules for commands of one ACL user, in all.
pub const ACL_RULES_MAX: usize = 4096;
/// ACL users.
pub const ACL_USERS_MAX: usize = 65_536;
/// Bytes of the object and of the user name in an entry of ACL LOG.
pub const ACL_LOG_BYTES_MAX: usize = 1024;

/// Prefixes of keys by which locks are counted. Each makes a few time series of a monitoring system, and is compared with the
/// key of every grant.
pub const LOCK_PREFIXES_MAX: usize = 64;
/// HTTP connections at the same time. Enough for a few viewers, scrapers and probes; a connection takes a descriptor and some
/// kilobytes, which must not come out of what lock clients need. Another connection gets a 503 and is closed.
pub const HTTP_CONNECTIONS_MAX: usize = 64;
/// Requests by HTTP that wait for a lock at the same time. Each has a connection beside [`HTTP_CONNECTIONS_MAX`], and a place
/// among `maxclients`.
pub const HTTP_WAITS_MAX: usize = 256;
/// The longest wait of one request by HTTP, in milliseconds: proxies and clients give up longer ones.
pub const HTTP_WAIT_MS_MAX: u64 = 10 * 60 * 1000;
