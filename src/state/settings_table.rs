//! The rows of the settings table.

use super::output_limits;
use super::settings::{Kind, Setting};
use crate::limits::{BULK_BYTES_MAX, DATABASES_MAX, REQUEST_BYTES_MAX};

/// Every setting, in the order in which `--help` lists them.
pub const ROWS: &[Setting] = &[
    at_start("bind", "127.0.0.1", Kind::Text, "Addresses to listen on, separated by spaces."),
    at_start("port", "6379", Kind::Port, "TCP port; 0: no TCP; auto: a free one, see port-file."),
    at_start(
        "port-file",
        "",
        Kind::Text,
        "File to write the TCP port to once the server accepts connections.",
    ),
    at_start("unixsocket", "", Kind::Text, "Path of a Unix socket to listen on as well."),
    at_start("unixsocketperm", "", Kind::Text, "Permissions of the Unix socket, in octal."),
    at_start("tls-port", "0", Kind::Port, "TCP port for TLS; 0: none; auto: a free one, see tls-port-file."),
    at_start("tls-port-file", "", Kind::Text, "Like port-file, for the TLS port."),
    live("tls-cert-file", "", Kind::Text, "Certificates of this server, its own first, in PEM."),
    live("tls-key-file", "", Kind::Text, "The key that belongs to them, in PEM and without a password."),
    live("tls-ca-cert-file", "", Kind::Text, "Authorities whose certificates clients may show, in PEM."),
    live("tls-ca-cert-dir", "", Kind::Text, "Directory with a file for each such authority."),
    live(
        "tls-auth-clients",
        "yes",
        Kind::OneOf(&["no", "yes", "optional"]),
        "Whether TLS clients must show a certificate; optional: they may, and then it must be good.",
    ),
    live("tls-protocols", "", Kind::Text, "TLSv1.2, TLSv1.3 or both, separated by a space; empty: both."),
    at_start(
        "http-port",
        "0",
        Kind::Port,
        "TCP port for HTTP: metrics and health; 0: none; auto: a free one, see http-port-file.",
    ),
    at_start("http-port-file", "", Kind::Text, "Like port-file, for the HTTP port."),
    at_start(
        "http-bind",
        "127.0.0.1",
        Kind::Text,
        "Addresses that HTTP listens on, and host names that requests may be for, separated by spaces.",
    ),
    at_start("http-unixsocket", "", Kind::Text, "Path of a Unix socket for HTTP."),
    live("http-token", "", Kind::Text, "Token that HTTP requests must show; empty: none."),
    at_start("http-admin", "no", Kind::Flag, "Whether HTTP requests may change something."),
    at_start("dir", "", Kind::Text, "Directory of the journal; empty: nothing outlives the server."),
    at_start(
        "appendonly",
        "auto",
        Kind::OneOf(&["auto", "yes", "no"]),
        "Whether there is a journal; auto: if there is a dir.",
    ),
    at_start(
        "appendfsync",
        "everysec",
        Kind::OneOf(&["everysec", "always", "no"]),
        "When the journal is synced to the disk; no: there is none, only the time until which locks may be held.",
    ),
    at_start(
        "horizon-max-lease",
        "60000",
        Kind::Integer(0, i32::MAX as i64),
        "Milliseconds of the longest lease that need not wait for the disk.",
    ),
    at_start(
        "startup-guard",
        "0",
        Kind::Integer(0, i32::MAX as i64),
        "Milliseconds in which no lock is granted after a start that finds no journal.",
    ),
    at_start("databases", "16", Kind::Integer(1, DATABASES_MAX as i64), "Number of databases for SELECT."),
    at_start("shards", "0", Kind::Integer(0, 1024), "Shards of the keyspace; 0: eight per core."),
    at_start("threads", "1", Kind::Integer(0, 256), "Threads that serve connections; 0: one per core."),
    live("maxclients", "10000", Kind::Integer(1, u32::MAX as i64), "Connections served at the same time."),
    live("requirepass", "", Kind::Text, "Password that clients must show; empty: none."),
    live(
        "protected-mode",
        "yes",
        Kind::Flag,
        "Whether connections from other machines are refused while no password is set.",
    ),
    at_start("aclfile", "", Kind::Text, "File with the users, for ACL LOAD and ACL SAVE; empty: none."),
    live("acllog-max-len", "128", Kind::Integer(0, 1_000_000), "Denials that ACL LOG remembers."),
    live(
        "acl-pubsub-default",
        "resetchannels",
        Kind::OneOf(&["allchannels", "resetchannels"]),
        "Channels that a new user may use: all, or none.",
    ),
    live(
        "lock-lease",
        "30000",
        Kind::Integer(1, i32::MAX as i64),
        "Milliseconds of a lease that LOCK.ACQUIRE does not name.",
    ),
    at_start(
        "lock-metrics-prefix",
        "",
        Kind::Prefixes,
        "Prefixes of keys, separated by spaces, whose locks the metrics count apart.",
    ),
    live("lock-lint", "no", Kind::Flag, "Whether LOCK.LINT notes what clients do wrong with locks."),
    at_start(
        "lock-history-len",
        "1000",
        Kind::Integer(0, 1_000_000),
        "Ends of locks that LOCK.EXPLAIN remembers; 0: none. Each takes 256 bytes at most.",
    ),
    live(
        "lock-delay",
        "0",
        Kind::Integer(0, i32::MAX as i64),
        "Milliseconds that the locks of a session outlive its connection, unless LOCK.ACQUIRE names them.",
    ),
    live(
        "lock-waiters-max",
        "10000",
        Kind::Integer(0, 10_000_000),
        "Requests that may wait for one lock; another is refused.",
    ),
    live(
        "lock-deadlock",
        "refuse",
        Kind::OneOf(&["refuse", "warn", "off"]),
        "If requests wait for each other's locks: the youngest is refused, or a line is logged, or nothing happens.",
    ),
    live(
        "lock-wait-warn",
        "1000",
        Kind::Integer(0, i32::MAX as i64),
        "Milliseconds after which a request that waits for a lock is logged, with the holder; 0: never.",
    ),
    live(
        "lock-held-warn",
        "0",
        Kind::Integer(0, i32::MAX as i64),
        "Milliseconds after which a lock that is held is logged, with the holder and who waits; 0: never.",
    ),
    live(
        "timeout",
        "0",
        Kind::Integer(0, i32::MAX as i64),
        "Seconds after which an idle client is closed; 0: never.",
    ),
    live(
        "tcp-keepalive",
        "300",
        Kind::Integer(0, i32::MAX as i64),
        "Seconds between TCP keep-alive probes; 0: none.",
    ),
    live(
        "proto-max-bulk-len",
        "536870912",
        Kind::Bytes(1 << 20, BULK_BYTES_MAX),
        "Bytes of the longest argument or string value.",
    ),
    live(
        "client-query-buffer-limit",
        "1073741824",
        Kind::Bytes(1 << 20, REQUEST_BYTES_MAX as u64),
        "Bytes of the longest request.",
    ),
    live(
        "client-output-buffer-limit",
        output_limits::DEFAULT,
        Kind::OutputLimits,
        "Bytes a client may leave unread: for each class a hard limit, a soft one, and its seconds.",
    ),
    live(
        "maxmemory",
        "0",
        Kind::Bytes(0, i64::MAX as u64),
        "Bytes in use above which commands that could need more are refused; 0: no limit.",
    ),
    live(
        "script-memory-limit",
        "268435456",
        Kind::Bytes(1 << 20, 1 << 40),
        "Bytes that a script may hold while it is interpreted.",
    ),
    live("notify-keyspace-events", "", Kind::Events, "Keyspace events to publish, by their letters."),
    live(
        "slowlog-log-slower-than",
        "10000",
        Kind::Integer(-1, i64::MAX),
        "Microseconds that make a command slow.",
    ),
    live(
        "busy-reply-threshold",
        "5000",
        Kind::Integer(0, i32::MAX as i64),
        "Milliseconds that a script may take before others are told BUSY, and it may be killed; 0: for ever.",
    ),
    live("slowlog-max-len", "128", Kind::Integer(0, 1_000_000), "Slow commands remembered."),
    live(
        "latency-monitor-threshold",
        "0",
        Kind::Integer(0, i64::MAX),
        "Milliseconds that make an event worth LATENCY's memory; 0: none.",
    ),
    live(
        "tracking-table-max-keys",
        "1000000",
        Kind::Integer(0, i64::MAX),
        "Keys remembered for clients with copies; 0: as many as they read.",
    ),
    live(
        "shutdown-timeout",
        "10",
        Kind::Integer(0, i32::MAX as i64),
        "Seconds that clients have to take their last replies when the server ends.",
    ),
    at_start(
        "supervised",
        "no",
        Kind::OneOf(&["no", "upstart", "systemd", "auto"]),
        "Whether systemd is told how the server is; auto: if systemd asks for it. upstart: as no.",
    ),
    live("loglevel", "notice", Kind::OneOf(&["debug", "verbose", "notice", "warning"]), "What is logged."),
    at_start("logfile", "", Kind::Text, "File that the log is appended to; empty: the standard output."),
    at_start(
        "log-format",
        "text",
        Kind::OneOf(&["text", "redis", "json"]),
        "The form of the log's lines: fields after the message, the lines of Redis, or an object of JSON.",
    ),
    at_start(
        "otlp-endpoint",
        "",
        Kind::Text,
        "OpenTelemetry collector that gets the spans, like http://127.0.0.1:4317; empty: none.",
    ),
    at_start(
        "enable-debug-command",
        "no",
        Kind::OneOf(&["no", "yes", "local"]),
        "Whether DEBUG may be used: no, yes, or by local connections.",
    ),
    at_start(
        "enable-test-commands",
        "no",
        Kind::OneOf(&["no", "yes", "local"]),
        "Whether TEST commands and namespaces may be used: no, yes, or by local connections.",
    ),
    at_start(
        "nodes",
        "1",
        Kind::Integer(1, 64),
        "Stores, each with a port of its own, for tests of clients that lock on several servers.",
    ),
];

const fn live(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { name, default, kind, live: true, help }
}

const fn at_start(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { name, default, kind, live: false, help }
}
