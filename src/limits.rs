//! The bounds that every input from the network meets, in one place.
//!
//! Source  the values are Redis 7's, so that a request it accepts is accepted here and one it refuses is refused.

/// Bytes of an inline request, or of the line that announces a count or a length.
pub const LINE_BYTES_MAX: usize = 64 * 1024;
/// Arguments of one request.
pub const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Bytes of one argument, before `proto-max-bulk-len` says otherwise.
pub const BULK_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// Bytes of one request in all, before `client-query-buffer-limit` says less.
pub const REQUEST_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Arguments of a request from a client that has yet to authenticate.
pub const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Bytes of an argument from a client that has yet to authenticate.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: u64 = 16 * 1024;
/// Bytes of the reply to one request, that to EXEC included; whoever asks for more is cut off. Redis has no such bound, and
/// goes on for as long as it has memory.
pub const REPLY_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Replies that pile up unread before a client's further requests wait, in bytes.
pub const UNREAD_REPLY_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The same for a client that has yet to authenticate; it is closed.
pub const UNAUTHENTICATED_REPLY_BYTES_MAX: usize = 1024;
/// Nanoseconds that one connection may use of a worker's time before other connections have their turn, as far as measured.
pub const WORK_MAX: u64 = 4_000_000;
/// Bytes above which a value, the arguments of a script or the requests of a transaction are large: what goes through them
/// runs on the script thread. An item of the keyspace, or of a list of listeners, counts as [`ITEM_BYTES`].
pub const LARGE_BYTES: u64 = 64 * 1024;
/// Bytes that a key counts as where a command goes through all keys, and a listener where it tells all listeners.
pub const ITEM_BYTES: u64 = 64;
/// Databases a server can have.
pub const DATABASES_MAX: u16 = 4096;
/// Shards of one keyspace.
pub const SHARDS_MAX: usize = 1024;

const _: () = assert!(SHARDS_MAX.is_power_of_two(), "the shard of a key is a mask of its hash");
const _: () = assert!(BULK_BYTES_MAX as usize <= REQUEST_BYTES_MAX);
/// Bytes that the requests of one transaction may take before EXEC.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 30;
/// Passwords, patterns and rules for commands that one ACL user may have in all.
pub const ACL_RULES_MAX: usize = 4096;
/// ACL users.
pub const ACL_USERS_MAX: usize = 65_536;
/// Bytes that ACL LOG keeps of what was asked for and of the name it was asked in.
pub const ACL_LOG_BYTES_MAX: usize = 1024;
