//! The directives of redis.conf that mean nothing here: there is no replica, no eviction, no RDB file.
//!
//! Rule    a known name is accepted at the start and listed once in the log, so that a server starts with a configuration for
//!         Redis. A name that Redis does not know is a typing error and refused.
//! Rule    CONFIG SET takes a directive of `IGNORED` and CONFIG GET gives it back; it has no effect. One of `FIXED` keeps
//!         its value: Redis cannot change it either, or another value would promise what this server does not do.
//! Source  the names that Redis 7.0 and Valkey 9.1 answer to `CONFIG GET *`, those of Redis 8.6 from its documentation, and
//!         those that redis.conf alone can have.

use std::collections::BTreeMap;

use parking_lot::RwLock;

use super::settings::{Kind, SettingError};

/// Whether Redis or Valkey has a directive of that name, in lower case, that means nothing here.
pub fn is_of_redis(name: &str) -> bool {
    FILE_ALONE.contains(&name) || ignored(name).is_some() || fixed(name).is_some()
}

/// Whether a server that ignores the directive is less protected than its operator expects.
pub fn is_protection(name: &str) -> bool {
    matches!(
        name,
        "hide-user-data-from-log" | "rename-command" | "tls-ciphers" | "tls-ciphersuites" | "unixsocketgroup"
    )
}

/// The name and the default of an ignored directive, whose name may be in any letter case.
pub fn ignored(name: &str) -> Option<(&'static str, &'static str)> {
    IGNORED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

/// The name and the value of a fixed directive, whose name may be in any letter case.
pub fn fixed(name: &str) -> Option<(&'static str, &'static str)> {
    FIXED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied()
}

/// The values that CONFIG SET has given to ignored directives.
#[derive(Debug, Default)]
pub struct Directives(RwLock<BTreeMap<&'static str, String>>);

impl Directives {
    /// The normal form of a value for an ignored directive: of the kind that its default is of.
    ///
    /// # Errors
    /// [`SettingError::Value`] for a value of another kind.
    pub fn check((name, default): (&'static str, &str), value: &str) -> Result<String, SettingError> {
        let is_size = ["-size", "-bytes", "-value", "-limit"].iter().any(|unit| name.ends_with(unit));
        let kind = match default.parse::<i64>() {
            _ if matches!(default, "yes" | "no") && name != "oom-score-adj" => Kind::Flag,
            Ok(0..) if is_size => Kind::Bytes(0, u64::MAX),
            Ok(0..) => Kind::Integer(0, i64::from(i32::MAX)),
            Ok(_) => Kind::Integer(i64::from(i32::MIN), i64::from(i32::MAX)),
            Err(_) => Kind::Text,
        };
        kind.check(name, value, default)
    }

    /// Keeps values that were checked.
    pub fn keep(&self, values: impl IntoIterator<Item = (&'static str, String)>) {
        self.0.write().extend(values);
    }

    /// The names and values of all directives that CONFIG GET shows.
    pub fn all(&self) -> Vec<(&'static str, String)> {
        let kept = self.0.read();
        let value = |(name, default): &(&'static str, &str)| {
            (*name, kept.get(name).cloned().unwrap_or_else(|| (*default).to_owned()))
        };
        IGNORED
            .iter()
            .map(value)
            .chain(FIXED.iter().map(|(name, only)| (*name, (*only).to_owned())))
            .collect()
    }
}

/// Directives that only a file can hold.
const FILE_ALONE: &[&str] = &["enable-debug-assert", "loadmodule", "rename-command", "sentinel"];

/// Directives without an effect, and their defaults. The sizes at which OBJECT ENCODING changes are among them; they are
/// constants of `types`.
const IGNORED: &[(&str, &str)] = &[
    ("active-defrag-cycle-max", "25"),
    ("active-defrag-cycle-min", "1"),
    ("active-defrag-cycle-us", "500"),
    ("active-defrag-ignore-bytes", "104857600"),
    ("active-defrag-max-scan-fields", "1000"),
    ("active-defrag-threshold-lower", "10"),
    ("active-defrag-threshold-upper", "100"),
    ("active-expire-effort", "1"),
    ("activedefrag", "no"),
    ("activerehashing", "yes"),
    ("aof-disable-auto-gc", "no"),
    ("aof-load-corrupt-tail-max-size", "0"),
    ("aof-load-truncated", "yes"),
    ("aof-rewrite-incremental-fsync", "yes"),
    ("aof-timestamp-enabled", "no"),
    ("aof-use-rdb-preamble", "yes"),
    ("auto-aof-rewrite-min-size", "67108864"),
    ("auto-aof-rewrite-percentage", "100"),
    ("availability-zone", ""),
    ("bind-source-addr", ""),
    ("cluster-allow-pubsubshard-when-down", "yes"),
    ("cluster-allow-reads-when-down", "no"),
    ("cluster-allow-replica-migration", "yes"),
    ("cluster-announce-bus-port", "0"),
    ("cluster-announce-human-nodename", ""),
    ("cluster-blacklist-ttl", "60"),
    ("cluster-compatibility-sample-ratio", "0"),
    ("cluster-config-save-behavior", "sync"),
    ("cluster-link-sendbuf-limit", "0"),
    ("cluster-manual-failover-timeout", "5000"),
    ("cluster-migration-barrier", "1"),
    ("cluster-replica-no-failover", "no"),
    ("cluster-replica-validity-factor", "10"),
    ("cluster-require-full-coverage", "yes"),
    ("cluster-slave-no-failover", "no"),
    ("cluster-slave-validity-factor", "10"),
    ("cluster-slot-migration-handoff-max-lag-bytes", "1048576"),
    ("cluster-slot-migration-log-max-len", "1000"),
    ("cluster-slot-migration-write-pause-timeout", "10000"),
    ("cluster-slot-stats-enabled", "no"),
    ("commandlog-large-reply-max-len", "128"),
    ("commandlog-large-request-max-len", "128"),
    ("commandlog-reply-larger-than", "1048576"),
    ("commandlog-request-larger-than", "1048576"),
    ("crash-log-enabled", "yes"),
    ("crash-memcheck-enabled", "yes"),
    ("dual-channel-replication-enabled", "no"),
    ("dynamic-hz", "yes"),
    ("extended-redis-compatibility", "no"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("hash-seed", ""),
    ("hide-user-data-from-log", "yes"),
    ("hll-sparse-max-bytes", "3000"),
    ("hz", "10"),
    ("ignore-warnings", ""),
    ("jemalloc-bg-thread", "yes"),
    ("key-memory-histograms", "no"),
    ("latency-tracking", "yes"),
    ("latency-tracking-info-percentiles", "50 99 99.9"),
    ("lazyfree-lazy-eviction", "no"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-server-del", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("lfu-decay-time", "1"),
    ("lfu-log-factor", "10"),
    ("list-compress-depth", "0"),
    ("list-max-listpack-size", "-2"),
    ("list-max-ziplist-size", "-2"),
    ("locale-collate", ""),
    ("log-timestamp-format", "legacy"),
    ("lookahead", "16"),
    ("masterauth", ""),
    ("masteruser", ""),
    ("max-new-connections-per-cycle", "10"),
    ("max-new-tls-connections-per-cycle", "1"),
    ("maxmemory-eviction-tenacity", "10"),
    ("maxmemory-samples", "5"),
    ("min-replicas-max-lag", "10"),
    ("min-slaves-max-lag", "10"),
    ("mptcp", "no"),
    ("no-appendfsync-on-rewrite", "no"),
    ("oom-score-adj", "no"),
    ("oom-score-adj-values", "0 200 800"),
    ("prefetch-batch-max-size", "16"),
    ("primaryauth", ""),
    ("primaryuser", ""),
    ("proc-title-template", "{title} {listen-addr} {server-mode}"),
    ("propagation-error-behavior", "ignore"),
    ("rdb-del-sync-files", "no"),
    ("rdb-save-incremental-fsync", "yes"),
    ("rdb-version-check", "strict"),
    ("rdbcompression", "yes"),
    ("repl-backlog-size", "1048576"),
    ("repl-backlog-ttl", "3600"),
    ("repl-disable-tcp-nodelay", "no"),
    ("repl-diskless-load", "disabled"),
    ("repl-diskless-sync", "yes"),
    ("repl-diskless-sync-delay", "5"),
    ("repl-diskless-sync-max-replicas", "0"),
    ("repl-mptcp", "no"),
    ("repl-ping-replica-period", "10"),
    ("repl-ping-slave-period", "10"),
    ("repl-rdb-channel", "no"),
    ("repl-timeout", "60"),
    ("replica-announce-ip", ""),
    ("replica-announce-port", "0"),
    ("replica-announced", "yes"),
    ("replica-full-sync-buffer-limit", "0"),
    ("replica-ignore-disk-write-errors", "no"),
    ("replica-ignore-maxmemory", "yes"),
    ("replica-lazy-flush", "no"),
    ("replica-priority", "100"),
    ("replica-read-only", "yes"),
    ("replica-serve-stale-data", "yes"),
    ("sanitize-dump-payload", "no"),
    ("save", ""),
    ("set-max-intset-entries", "512"),
    ("set-max-listpack-entries", "128"),
    ("set-max-listpack-value", "64"),
    ("shutdown-on-sigint", "default"),
    ("shutdown-on-sigterm", "default"),
    ("slave-announce-ip", ""),
    ("slave-announce-port", "0"),
    ("slave-ignore-maxmemory", "yes"),
    ("slave-lazy-flush", "no"),
    ("slave-priority", "100"),
    ("slave-read-only", "yes"),
    ("slave-serve-stale-data", "yes"),
    ("slot-migration-max-failover-repl-bytes", "0"),
    ("stop-writes-on-bgsave-error", "yes"),
    ("stream-idmp-duration", "100"),
    ("stream-idmp-maxsize", "100"),
    ("stream-node-max-bytes", "4096"),
    ("stream-node-max-entries", "100"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
];

/// Directives that have one value.
const FIXED: &[(&str, &str)] = &[
    ("always-show-logo", "no"),
    ("aof-rewrite-cpulist", ""),
    ("aof_rewrite_cpulist", ""),
    ("appenddirname", ""),
    ("appendfilename", ""),
    ("bgsave-cpulist", ""),
    ("bgsave_cpulist", ""),
    ("bio-cpulist", ""),
    ("bio_cpulist", ""),
    ("cluster-announce-client-ipv4", ""),
    ("cluster-announce-client-ipv6", ""),
    ("cluster-announce-client-port", "0"),
    ("cluster-announce-client-tls-port", "0"),
    ("cluster-config-file", ""),
    ("cluster-databases", "1"),
    ("cluster-port", "0"),
    ("dbfilename", ""),
    ("disable-thp", "yes"),
    ("enable-module-command", "no"),
    ("enable-protected-configs", "no"),
    ("import-mode", "no"),
    ("io-threads", "1"),
    ("io-threads-do-reads", "no"),
    ("maxmemory-clients", "0"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-to-write", "0"),
    ("min-slaves-to-write", "0"),
    ("rdbchecksum", "yes"),
    ("rdma-bind", ""),
    ("rdma-completion-vector", "-1"),
    ("rdma-port", "0"),
    ("rdma-rx-size", "1048576"),
    ("replicaof", ""),
    ("server-cpulist", ""),
    ("server_cpulist", ""),
    ("set-proc-title", "yes"),
    ("slaveof", ""),
    ("socket-mark-id", "0"),
    ("syslog-enabled", "no"),
    ("syslog-facility", "local0"),
    ("syslog-ident", ""),
    ("tcp-backlog", "511"),
    ("tls-auto-reload-interval", "0"),
    ("tls-ciphers", ""),
    ("tls-ciphersuites", ""),
    ("tls-client-cert-file", ""),
    ("tls-client-key-file", ""),
    ("tls-client-key-file-pass", ""),
    ("tls-cluster", "no"),
    ("tls-dh-params-file", ""),
    ("tls-key-file-pass", ""),
    ("tls-prefer-server-ciphers", "no"),
    ("tls-replication", "no"),
    ("tls-session-cache-size", "20480"),
    ("tls-session-cache-timeout", "300"),
    ("tls-session-caching", "yes"),
    ("unixsocketgroup", ""),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::settings_table::ROWS;

    #[test]
    fn a_name_is_in_one_table() {
        let mut names: Vec<&str> = IGNORED.iter().chain(FIXED).map(|(name, _)| *name).collect();
        names.extend(FILE_ALONE.iter().copied().chain(ROWS.iter().map(|row| row.name)));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn only_directives_of_redis_are_known() {
        for name in
            ["save", "appendfilename", "maxmemory-policy", "enable-debug-assert", "replica-announce-ip"]
        {
            assert!(is_of_redis(name), "{name}");
        }
        for name in ["", "sav", "save appendonly", "no-such-directive"] {
            assert!(!is_of_redis(name), "{name}");
        }
    }

    #[test]
    fn a_default_is_a_value_of_its_own_kind() {
        for directive in IGNORED {
            assert_eq!(
                Directives::check(*directive, directive.1).as_deref(),
                Ok(directive.1),
                "{}",
                directive.0
            );
        }
    }
}
