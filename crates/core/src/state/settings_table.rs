//! The rows of the settings table, each with the handle by which its value is read: `settings.get(settings::LOCK_DELAY)`.

use redlatch_proto::limits::{BULK_BYTES_MAX, DATABASES_MAX, REQUEST_BYTES_MAX};
use redlatch_proto::lock::PRIORITY_MAX;

use super::output_limits;
use super::setting_value::Handle;
use super::settings::{Kind, REDIS_VERSION_DEFAULT, Setting};

/// `HANDLE: type = at_start or live("name", "default", kind, "help");` for each setting. A type that cannot hold every value
/// of its kind does not compile.
macro_rules! rows {
    ($($handle:ident: $type:ty = $when:ident($name:literal, $default:expr, $kind:expr, $help:literal);)*) => {
        /// Every setting, in the order in which `--help` lists them.
        pub const ROWS: &[Setting] = &[$($when($name, $default, $kind, $help)),*];

        /// The place of each handle's row in the table.
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place { $($handle),* }

        $(
            #[doc = $help]
            pub const $handle: Handle<$type> = Handle::new(Place::$handle as usize, $kind);
        )*

        /// Each handle as it is written, and the name of the row that it reads.
        #[cfg(test)]
        pub fn written() -> Vec<(&'static str, &'static str)> {
            vec![$((stringify!($handle), $handle.name())),*]
        }
    };
}

rows! {
    BIND: String = at_start("bind", "127.0.0.1", Kind::Text, "Addresses to listen on, separated by spaces.");
    PORT: String = at_start("port", "6379", Kind::Port,
        "TCP port; 0: no TCP; auto: a free one, see port-file.");
    PORT_FILE: String = at_start("port-file", "", Kind::Text,
        "File to write the TCP port to once the server accepts connections.");
    UNIXSOCKET: String = at_start("unixsocket", "", Kind::Text,
        "Path of a Unix socket to listen on as well.");
    UNIXSOCKETPERM: String = at_start("unixsocketperm", "", Kind::Text,
        "Permissions of the Unix socket, in octal.");
    TLS_PORT: String = at_start("tls-port", "0", Kind::Port,
        "TCP port for TLS; 0: none; auto: a free one, see tls-port-file.");
    TLS_PORT_FILE: String = at_start("tls-port-file", "", Kind::Text, "Like port-file, for the TLS port.");
    TLS_CERT_FILE: String = live("tls-cert-file", "", Kind::Text,
        "Certificates of this server, its own first, in PEM.");
    TLS_KEY_FILE: String = live("tls-key-file", "", Kind::Text,
        "The key that belongs to them, in PEM and without a password.");
    TLS_CA_CERT_FILE: String = live("tls-ca-cert-file", "", Kind::Text,
        "Authorities whose certificates clients may show, in PEM.");
    TLS_CA_CERT_DIR: String = live("tls-ca-cert-dir", "", Kind::Text,
        "Directory with a file for each such authority.");
    TLS_AUTH_CLIENTS: String = live("tls-auth-clients", "yes", Kind::OneOf(&["no", "yes", "optional"]),
        "Whether TLS clients must show a certificate; optional: they may, and then it must be good.");
    TLS_AUTH_CLIENTS_USER: String = live("tls-auth-clients-user", "off", Kind::OneOf(&["off", "CN", "URI"]),
        "What names the user in the certificate of a TLS client, which logs in by it: the common name, or a URI.");
    TLS_PROTOCOLS: String = live("tls-protocols", "", Kind::Text,
        "TLSv1.2, TLSv1.3 or both, separated by a space; empty: both.");
    HTTP_PORT: String = at_start("http-port", "0", Kind::Port,
        "TCP port for HTTP: metrics and health; 0: none; auto: a free one, see http-port-file.");
    HTTP_PORT_FILE: String = at_start("http-port-file", "", Kind::Text, "Like port-file, for the HTTP port.");
    HTTP_BIND: String = at_start("http-bind", "127.0.0.1", Kind::Text,
        "Addresses that HTTP listens on, and host names that requests may be for, separated by spaces.");
    HTTP_UNIXSOCKET: String = at_start("http-unixsocket", "", Kind::Text, "Path of a Unix socket for HTTP.");
    HTTP_TOKEN: String = live("http-token", "", Kind::Text,
        "Token that HTTP requests must show; empty: none.");
    HTTP_ADMIN: bool = at_start("http-admin", "no", Kind::Flag,
        "Whether HTTP requests may change something.");
    DIR: String = at_start("dir", "", Kind::Text,
        "Directory of the journal; empty: nothing outlives the server.");
    APPENDONLY: String = at_start("appendonly", "auto", Kind::OneOf(&["auto", "yes", "no"]),
        "Whether there is a journal; auto: if there is a dir.");
    APPENDFSYNC: String = at_start("appendfsync", "everysec", Kind::OneOf(&["everysec", "always", "no"]),
        "When the journal of dir is synced to the disk; no: there is only the time until which locks may be held.");
    HORIZON_MAX_LEASE: u64 = at_start("horizon-max-lease", "60000", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds of the longest lease that need not wait for the disk.");
    STARTUP_GUARD: u64 = at_start("startup-guard", "0", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds in which no lock is granted after a start whose journal is missing or says too little.");
    CLUSTER_ETCD: String = at_start("cluster-etcd", "", Kind::Text,
        "Endpoints of the etcd that keeps the locks of several nodes, separated by commas; empty: one node by itself.");
    CLUSTER_PREFIX: String = at_start("cluster-prefix", "/redlatch/", Kind::Text,
        "What the keys of the cluster begin with in etcd.");
    CLUSTER_NAME: String = at_start("cluster-name", "mymaster", Kind::Text,
        "Name of the cluster for clients that ask by SENTINEL who leads.");
    CLUSTER_ANNOUNCE: String = at_start("cluster-announce", "", Kind::Text,
        "Address at which other nodes and clients reach this one, as host:port; empty: the first of bind, and port.");
    CLUSTER_GROUPS: u16 = at_start("cluster-groups", "1", Kind::Integer(1, 64),
        "Groups of slots that the nodes on etcd share out, each with a leader and a port of its own; on all nodes alike.");
    CLUSTER_TAKEOVER: u64 = at_start("cluster-takeover", "1000", Kind::Integer(300, 600_000),
        "Milliseconds without a commit of the leader after which another node leads; the same on all nodes.");
    CLUSTER_FAILOVER_HOLD: u64 = at_start("cluster-failover-hold", "3000", Kind::Integer(0, 600_000),
        "Milliseconds that new connections wait while no node leads.");
    CLUSTER_ETCD_USER: String = at_start("cluster-etcd-user", "", Kind::Text, "User of etcd; empty: none.");
    CLUSTER_ETCD_PASSWORD: String = at_start("cluster-etcd-password", "", Kind::Text,
        "Password of the user of etcd.");
    CLUSTER_ETCD_CA_CERT: String = at_start("cluster-etcd-ca-cert", "", Kind::Text,
        "Authorities that etcd's certificate is from, in PEM.");
    CLUSTER_ETCD_CERT: String = at_start("cluster-etcd-cert", "", Kind::Text,
        "Certificate that etcd is shown, in PEM; empty: none.");
    CLUSTER_ETCD_KEY: String = at_start("cluster-etcd-key", "", Kind::Text,
        "The key that belongs to it, in PEM.");
    CLUSTER_ENABLED: bool = at_start("cluster-enabled", "no", Kind::Flag,
        "Whether clients in cluster mode are served: this server has all 16384 slots, or its nodes share them out.");
    CLUSTER_NODE_TIMEOUT: u64 = at_start("cluster-node-timeout", "15000", Kind::Integer(0, i64::MAX),
        "Milliseconds without an answer after which a node of a cluster in a test has failed.");
    CLUSTER_REPLICAS: u16 = at_start("cluster-replicas", "0", Kind::Integer(0, 20),
        "Replicas of each master in the cluster of a test: the last ones of its nodes.");
    CLUSTER_ANNOUNCE_IP: String = live("cluster-announce-ip", "", Kind::Host { has_colons: true },
        "Address that cluster clients are told; empty: the one at which each has reached this server.");
    CLUSTER_ANNOUNCE_PORT: u16 = live("cluster-announce-port", "0", Kind::Integer(0, u16::MAX as i64),
        "Port that cluster clients are told; 0: port. Each further node has the next one.");
    CLUSTER_ANNOUNCE_TLS_PORT: u16 = live("cluster-announce-tls-port", "0", Kind::Integer(0, u16::MAX as i64),
        "Port that cluster clients on TLS are told; 0: tls-port.");
    CLUSTER_ANNOUNCE_HOSTNAME: String = live(
        "cluster-announce-hostname", "", Kind::Host { has_colons: false },
        "Host name that cluster clients are told beside the address; empty: none.");
    CLUSTER_PREFERRED_ENDPOINT_TYPE: String = live(
        "cluster-preferred-endpoint-type", "ip", Kind::OneOf(&["ip", "hostname", "unknown-endpoint"]),
        "What CLUSTER SLOTS names in the first place; unknown-endpoint: clients stay with the address they have.");
    DATABASES: u16 = at_start("databases", "16", Kind::Integer(1, DATABASES_MAX as i64),
        "Number of databases for SELECT.");
    SHARDS: usize = at_start("shards", "0", Kind::Integer(0, 1024),
        "Shards of the keyspace; 0: eight per core.");
    THREADS: usize = at_start("threads", "1", Kind::Integer(0, 256),
        "Threads that serve connections; 0: one per core.");
    MAXCLIENTS: u64 = live("maxclients", "10000", Kind::Integer(1, u32::MAX as i64),
        "Connections served at the same time.");
    MAXCLIENTS_RESERVED: u64 = live("maxclients-reserved", "8", Kind::Integer(0, 1_000),
        "Connections served beyond maxclients if they come from the same machine: probes and operators.");
    LOGIN_TIMEOUT: u64 = live("login-timeout", "60", Kind::Integer(0, i32::MAX as i64),
        "Seconds after which a client is closed that must authenticate and has not; 0: never.");
    LOGIN_DELAY: u64 = live("login-delay", "1000", Kind::Integer(0, 60_000),
        "Milliseconds that each wrong password beyond 30 delays the next login from its address; 0: nothing.");
    REQUIREPASS: String = live("requirepass", "", Kind::Text,
        "Password that clients must show; empty: none.");
    PROTECTED_MODE: bool = live("protected-mode", "yes", Kind::Flag,
        "Whether connections from other machines are refused while no password is set.");
    ACLFILE: String = at_start("aclfile", "", Kind::Text,
        "File with the users, for ACL LOAD and ACL SAVE; empty: none.");
    ACLLOG_MAX_LEN: usize = live("acllog-max-len", "128", Kind::Integer(0, 1_000_000),
        "Denials that ACL LOG remembers.");
    ACL_PUBSUB_DEFAULT: String = live(
        "acl-pubsub-default", "resetchannels", Kind::OneOf(&["allchannels", "resetchannels"]),
        "Channels that a new user may use: all, or none.");
    LOCK_LEASE: u64 = live("lock-lease", "30000", Kind::Integer(1, i32::MAX as i64),
        "Milliseconds of a lease that LOCK.ACQUIRE does not name.");
    LOCK_METRICS_PREFIX: String = at_start("lock-metrics-prefix", "", Kind::Prefixes,
        "Prefixes of keys, separated by spaces, whose locks the metrics count apart.");
    LOCK_LINT: bool = live("lock-lint", "no", Kind::Flag,
        "Whether LOCK.LINT notes what clients do wrong with locks.");
    LOCK_HISTORY_LEN: usize = at_start("lock-history-len", "1000", Kind::Integer(0, 1_000_000),
        "Ends of locks that LOCK.EXPLAIN remembers; 0: none. Each takes 256 bytes, of a broken lock up to 600 more.");
    LOCK_DELAY: u64 = live("lock-delay", "0", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds that the locks of a session outlive its connection, unless LOCK.ACQUIRE names them.");
    LOCK_WAITERS_MAX: usize = live("lock-waiters-max", "10000", Kind::Integer(0, 10_000_000),
        "Requests that may wait for one lock; another is refused.");
    LOCK_PRIORITY_AGEING: u64 = live("lock-priority-ageing", "10000", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds that a step of PRIORITY moves a request forward; 0: none.");
    LOCK_PRIORITY_MAX: u8 = live("lock-priority-max", "9", Kind::Integer(0, PRIORITY_MAX as i64),
        "The highest PRIORITY of a user whose rules name none.");
    LOCK_DEADLOCK: String = live("lock-deadlock", "refuse", Kind::OneOf(&["refuse", "warn", "off"]),
        "If requests wait for each other's locks: the youngest is refused, or a line is logged, or nothing happens.");
    LOCK_WAIT_WARN: u64 = live("lock-wait-warn", "1000", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds after which a request that waits for a lock is logged, with the holder; 0: never.");
    LOCK_HELD_WARN: u64 = live("lock-held-warn", "0", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds after which a lock that is held is logged, with the holder and who waits; 0: never.");
    TIMEOUT: u64 = live("timeout", "0", Kind::Integer(0, i32::MAX as i64),
        "Seconds after which an idle client is closed; 0: never.");
    TCP_KEEPALIVE: u64 = live("tcp-keepalive", "300", Kind::Integer(0, i32::MAX as i64),
        "Seconds between TCP keep-alive probes; 0: none.");
    PROTO_MAX_BULK_LEN: u64 = live("proto-max-bulk-len", "536870912", Kind::Bytes(1 << 20, BULK_BYTES_MAX),
        "Bytes of the longest argument or string value.");
    CLIENT_QUERY_BUFFER_LIMIT: u64 = live(
        "client-query-buffer-limit", "1073741824", Kind::Bytes(1 << 20, REQUEST_BYTES_MAX as u64),
        "Bytes of the longest request.");
    CLIENT_OUTPUT_BUFFER_LIMIT: String = live(
        "client-output-buffer-limit", output_limits::DEFAULT, Kind::OutputLimits,
        "Bytes a client may leave unread: for each class a hard limit, a soft one, and its seconds.");
    MAXMEMORY: u64 = live("maxmemory", "0", Kind::Bytes(0, i64::MAX as u64),
        "Bytes in use above which commands that could need more are refused; 0: no limit.");
    SCRIPT_MEMORY_LIMIT: usize = live("script-memory-limit", "268435456", Kind::Bytes(1 << 20, 1 << 40),
        "Bytes that a script may hold while it is interpreted.");
    NOTIFY_KEYSPACE_EVENTS: String = live("notify-keyspace-events", "", Kind::Events,
        "Keyspace events to publish, by their letters.");
    SLOWLOG_LOG_SLOWER_THAN: i64 = live("slowlog-log-slower-than", "10000", Kind::Integer(-1, i64::MAX),
        "Microseconds that make a command slow.");
    BUSY_REPLY_THRESHOLD: u64 = live("busy-reply-threshold", "5000", Kind::Integer(0, i32::MAX as i64),
        "Milliseconds that a script may take before others are told BUSY, and it may be killed; 0: for ever.");
    SLOWLOG_MAX_LEN: usize = live("slowlog-max-len", "128", Kind::Integer(0, 1_000_000),
        "Slow commands remembered.");
    LATENCY_MONITOR_THRESHOLD: u64 = live("latency-monitor-threshold", "0", Kind::Integer(0, i64::MAX),
        "Milliseconds that make an event worth LATENCY's memory; 0: none.");
    TRACKING_TABLE_MAX_KEYS: usize = live("tracking-table-max-keys", "1000000", Kind::Integer(0, i64::MAX),
        "Keys remembered for clients with copies; 0: as many as they read.");
    SHUTDOWN_TIMEOUT: u64 = live("shutdown-timeout", "10", Kind::Integer(0, i32::MAX as i64),
        "Seconds that clients have to take their last replies when the server ends.");
    SUPERVISED: String = at_start("supervised", "no", Kind::OneOf(&["no", "upstart", "systemd", "auto"]),
        "Whether systemd is told how the server is; auto: if systemd asks for it. upstart: as no.");
    DAEMONIZE: bool = at_start("daemonize", "no", Kind::Flag,
        "Whether the server runs in the background; the program returns when it is ready.");
    PIDFILE: String = at_start("pidfile", "", Kind::Text,
        "File to write the number of the process to once the server accepts connections.");
    LOGLEVEL: String = live("loglevel", "notice", Kind::OneOf(&["debug", "verbose", "notice", "warning"]),
        "What is logged.");
    LOGFILE: String = at_start("logfile", "", Kind::Text,
        "File that the log is appended to; empty: the standard output.");
    LOG_FORMAT: String = at_start("log-format", "auto", Kind::OneOf(&["auto", "text", "redis", "json"]),
        "Format of log lines; auto: text, or redis if started as redis-server or valkey-server.");
    AUDIT_LOG: String = at_start("audit-log", "", Kind::Text,
        "File for lines about logins, broken locks, users and settings; stderr: the error stream; empty: none.");
    OTLP_ENDPOINT: String = at_start("otlp-endpoint", "", Kind::Text,
        "OpenTelemetry collector that gets the spans, like http://127.0.0.1:4317; empty: none.");
    REDIS_VERSION: String = at_start("redis-version", REDIS_VERSION_DEFAULT, Kind::Version,
        "Version of Redis that INFO, HELLO and scripts tell clients, which some use to choose commands.");
    ENABLE_DEBUG_COMMAND: String = at_start(
        "enable-debug-command", "no", Kind::OneOf(&["no", "yes", "local"]),
        "Whether DEBUG may be used: no, yes, or by local connections.");
    ENABLE_TEST_COMMANDS: String = at_start(
        "enable-test-commands", "no", Kind::OneOf(&["no", "yes", "local"]),
        "Whether TEST commands and namespaces may be used: no, yes, or by local connections.");
    NODES: usize = at_start("nodes", "1", Kind::Integer(1, 64),
        "Stores, each with a port of its own, for tests of clients that lock on several servers.");
}

const fn live(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { name, default, kind, live: true, help }
}

const fn at_start(name: &'static str, default: &'static str, kind: Kind, help: &'static str) -> Setting {
    Setting { name, default, kind, live: false, help }
}
