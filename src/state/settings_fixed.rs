//! Settings of redis.conf that tools read and that have a fixed value here: there is no replica or eviction.
//!
//! Rule    CONFIG GET shows them. CONFIG SET accepts their fixed value and refuses any other. The sizes at which OBJECT
//!         ENCODING changes are among them; they are constants of `types`.

pub const FIXED: &[(&str, &str)] = &[
    ("active-expire-effort", "1"),
    ("activedefrag", "no"),
    ("activerehashing", "yes"),
    ("always-show-logo", "no"),
    ("aof-use-rdb-preamble", "yes"),
    ("appendfilename", ""),
    ("auto-aof-rewrite-min-size", "67108864"),
    ("auto-aof-rewrite-percentage", "100"),
    ("cluster-enabled", "no"),
    ("daemonize", "no"),
    ("dbfilename", ""),
    ("dynamic-hz", "yes"),
    ("enable-module-command", "no"),
    ("enable-protected-configs", "no"),
    ("hash-max-listpack-entries", "512"),
    ("hash-max-listpack-value", "64"),
    ("hash-max-ziplist-entries", "512"),
    ("hash-max-ziplist-value", "64"),
    ("hz", "10"),
    ("io-threads", "1"),
    ("io-threads-do-reads", "no"),
    ("latency-tracking", "yes"),
    ("lazyfree-lazy-eviction", "no"),
    ("lazyfree-lazy-expire", "no"),
    ("lazyfree-lazy-user-del", "no"),
    ("lazyfree-lazy-user-flush", "no"),
    ("list-max-listpack-size", "-2"),
    ("list-max-ziplist-size", "-2"),
    ("masterauth", ""),
    ("masteruser", ""),
    ("maxmemory-clients", "0"),
    ("maxmemory-policy", "noeviction"),
    ("maxmemory-samples", "5"),
    ("min-replicas-to-write", "0"),
    ("pidfile", ""),
    ("rdbchecksum", "yes"),
    ("rdbcompression", "yes"),
    ("repl-backlog-size", "1048576"),
    ("replica-read-only", "yes"),
    ("replica-serve-stale-data", "yes"),
    ("replicaof", ""),
    ("save", ""),
    ("set-max-intset-entries", "512"),
    ("slaveof", ""),
    ("stop-writes-on-bgsave-error", "yes"),
    ("stream-node-max-bytes", "4096"),
    ("stream-node-max-entries", "100"),
    ("tcp-backlog", "511"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("zset-max-ziplist-entries", "128"),
    ("zset-max-ziplist-value", "64"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::settings::Settings;

    #[test]
    fn nothing_is_both_fixed_and_settable() {
        for (at, (name, _)) in FIXED.iter().enumerate() {
            assert!(Settings::row(name).is_none(), "{name}: is a setting");
            assert!(FIXED[..at].iter().all(|(other, _)| other != name), "{name}: twice");
        }
    }
}
