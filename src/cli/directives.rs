//! The directives of redis.conf that do not apply to redlatch.
//!
//! Rule    a known name is accepted and listed once in the log, so that a server starts with a configuration for Redis. A
//!         name that Redis does not know is a typing error and refused.
//! Source  the names that Redis 7.0 answers to `CONFIG GET *`, and those that redis.conf alone can have.

/// Whether Redis 7 has a directive of that name, in lower case.
pub(super) fn is_of_redis(name: &str) -> bool {
    OF_REDIS.split_ascii_whitespace().any(|known| known == name)
}

/// Whether a server that ignores the directive is less protected than its operator expects.
pub(super) fn is_protection(name: &str) -> bool {
    matches!(name, "rename-command" | "tls-ciphers" | "tls-ciphersuites")
}

/// The names, separated by white space.
const OF_REDIS: &str = "
    active-defrag-cycle-max active-defrag-cycle-min
    active-defrag-ignore-bytes active-defrag-max-scan-fields active-defrag-threshold-lower
    active-defrag-threshold-upper active-expire-effort activedefrag activerehashing always-show-logo
    aof-disable-auto-gc aof-load-truncated aof-rewrite-incremental-fsync aof-timestamp-enabled
    aof-use-rdb-preamble aof_rewrite_cpulist appenddirname appendfilename
    auto-aof-rewrite-min-size auto-aof-rewrite-percentage bgsave_cpulist bind-source-addr bio_cpulist
    cluster-allow-pubsubshard-when-down cluster-allow-reads-when-down cluster-allow-replica-migration
    cluster-announce-bus-port cluster-announce-hostname cluster-announce-ip cluster-announce-port
    cluster-announce-tls-port cluster-config-file cluster-enabled cluster-link-sendbuf-limit
    cluster-migration-barrier cluster-node-timeout cluster-port cluster-preferred-endpoint-type
    cluster-replica-no-failover cluster-replica-validity-factor cluster-require-full-coverage
    cluster-slave-no-failover cluster-slave-validity-factor crash-log-enabled crash-memcheck-enabled
    daemonize dbfilename disable-thp dynamic-hz enable-debug-assert enable-module-command enable-protected-configs
    hash-max-listpack-entries hash-max-listpack-value hash-max-ziplist-entries hash-max-ziplist-value
    hll-sparse-max-bytes hz ignore-warnings io-threads io-threads-do-reads jemalloc-bg-thread
    latency-tracking latency-tracking-info-percentiles lazyfree-lazy-eviction lazyfree-lazy-expire
    lazyfree-lazy-server-del lazyfree-lazy-user-del lazyfree-lazy-user-flush lfu-decay-time
    lfu-log-factor list-compress-depth list-max-listpack-size list-max-ziplist-size loadmodule
    masterauth masteruser maxmemory-clients maxmemory-eviction-tenacity
    maxmemory-policy maxmemory-samples min-replicas-max-lag min-replicas-to-write min-slaves-max-lag
    min-slaves-to-write no-appendfsync-on-rewrite oom-score-adj oom-score-adj-values pidfile
    proc-title-template propagation-error-behavior rdb-del-sync-files
    rdb-save-incremental-fsync rdbchecksum rdbcompression rename-command repl-backlog-size
    repl-backlog-ttl repl-disable-tcp-nodelay repl-diskless-load repl-diskless-sync
    repl-diskless-sync-delay repl-diskless-sync-max-replicas repl-ping-replica-period
    repl-ping-slave-period repl-timeout replica-announce-ip replica-announce-port replica-announced
    replica-ignore-disk-write-errors replica-ignore-maxmemory replica-lazy-flush replica-priority
    replica-read-only replica-serve-stale-data replicaof sanitize-dump-payload save sentinel
    server_cpulist set-max-intset-entries set-proc-title shutdown-on-sigint shutdown-on-sigterm
    slave-announce-ip slave-announce-port slave-ignore-maxmemory slave-lazy-flush
    slave-priority slave-read-only slave-serve-stale-data slaveof socket-mark-id
    stop-writes-on-bgsave-error stream-node-max-bytes stream-node-max-entries syslog-enabled
    syslog-facility syslog-ident tcp-backlog tls-ciphers tls-ciphersuites tls-client-cert-file
    tls-client-key-file tls-client-key-file-pass tls-cluster tls-dh-params-file tls-key-file-pass
    tls-prefer-server-ciphers tls-replication tls-session-cache-size tls-session-cache-timeout
    tls-session-caching
    zset-max-listpack-entries zset-max-listpack-value zset-max-ziplist-entries zset-max-ziplist-value
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::settings_table::ROWS;

    #[test]
    fn no_setting_of_redlatch_is_in_the_list() {
        for row in ROWS {
            assert!(!is_of_redis(row.name), "{}", row.name);
        }
    }

    #[test]
    fn only_directives_of_redis_are_known() {
        for name in [
            "save", "appendfilename", "maxmemory-policy", "daemonize", "enable-debug-assert",
            "replica-announce-ip",
        ] {
            assert!(is_of_redis(name), "{name}");
        }
        for name in ["", "sav", "save appendonly", "no-such-directive"] {
            assert!(!is_of_redis(name), "{name}");
        }
    }
}
