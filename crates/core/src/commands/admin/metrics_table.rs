//! The rows of the metrics table, by the sections of INFO.
//!
//! Rule    fields that clients, redis_exporter or Redis Insight read are present, even if they are always zero here.
//! Source  Redis 7.0 `genRedisInfoString`: names and order.

use crate::commands::admin::metrics::{
    Metric, Snapshot, counter, fact, gauge, human, never, percent, seconds, secs, show, sum, zero,
};
use crate::commands::peers::Peers;
use crate::state::channels::Kind as Listening;
use crate::state::cluster::ClusterFacts;
use crate::state::ledger::Kind as Held;
use crate::state::running::Script;
use crate::state::settings;

/// One section of INFO.
pub(in crate::commands) struct Section {
    pub(in crate::commands) title: &'static str,
    /// Whether it is part of the default sections.
    pub(in crate::commands) is_default: bool,
    /// Its rows. A section without rows has one for each command, error or database.
    pub(in crate::commands) rows: &'static [Metric],
}

const fn section(title: &'static str, rows: &'static [Metric]) -> Section {
    Section { title, is_default: true, rows }
}

const fn on_request(title: &'static str) -> Section {
    Section { title, is_default: false, rows: &[] }
}

/// All sections, in Redis' order.
pub(in crate::commands) const SECTIONS: &[Section] = &[
    section("Server", SERVER),
    section("Clients", CLIENTS),
    section("Memory", MEMORY),
    section("Persistence", PERSISTENCE),
    section("Stats", STATS),
    section("Locks", LOCKS),
    section("Replication", REPLICATION),
    section("CPU", CPU),
    section("Modules", &[]),
    on_request("Commandstats"),
    section("Errorstats", &[]),
    on_request("Latencystats"),
    section("Cluster", &[fact("cluster_enabled", |seen| show(u8::from(seen.shared.cluster_enabled)))]),
    Section { title: "Nodes", is_default: false, rows: NODES },
    section("Keyspace", &[]),
];

const SERVER: &[Metric] = &[
    fact("redis_version", |seen| show(seen.shared.settings.get(settings::REDIS_VERSION))),
    never("redis_git_sha1", |_| show("00000000")),
    zero("redis_git_dirty"),
    never("redis_build_id", |_| show("0000000000000000")),
    fact("redis_mode", |seen| show(if seen.shared.cluster_enabled { "cluster" } else { "standalone" })),
    fact("redlatch_version", |_| show(env!("CARGO_PKG_VERSION"))),
    fact("os", |seen| show(&seen.process.system)),
    fact("arch_bits", |_| show(usize::BITS)),
    fact("monotonic_clock", |_| show("POSIX clock_gettime")),
    fact("multiplexing_api", |seen| show(seen.process.poller)),
    fact("process_id", |seen| show(seen.process.id)),
    never("process_supervised", |seen| {
        let supervised = seen.shared.settings.get(settings::SUPERVISED);
        // As in Redis, which does not look again what it has found.
        show(if supervised == "auto" { "unknown" } else { &supervised })
    }),
    fact("run_id", |seen| show(&seen.shared.instance.run_id)),
    fact("tcp_port", |seen| show(seen.shared.instance.main_port())),
    gauge(
        "tls_certificate_not_after_seconds",
        "Unix time at which the server's certificate ends; 0 without TLS.",
        |seen| show(seen.shared.instance.certificates_end()),
    ),
    fact("server_time_usec", |seen| show(seen.shared.clock.wall_micros())),
    gauge("uptime_in_seconds", "Seconds since the start.", |seen| show(seen.uptime_secs())),
    fact("uptime_in_days", |seen| show(seen.uptime_secs() / 86_400)),
    never("hz", |_| show(10)),
    never("configured_hz", |_| show(10)),
    fact("lru_clock", |seen| show((seen.shared.clock.wall_micros() / 1_000_000) & 0x00FF_FFFF)),
    fact("executable", |seen| show(&seen.process.executable)),
    fact("config_file", |seen| show(seen.shared.config_file().unwrap_or_default())),
    zero("io_threads_active"),
];

const CLIENTS: &[Metric] = &[
    gauge("connected_clients", "Clients connected.", |seen| show(seen.shared.registries.clients.len())),
    zero("cluster_connections"),
    gauge("maxclients", "Clients that may be connected at the same time.", |seen| {
        show(seen.shared.settings.get(settings::MAXCLIENTS))
    }),
    gauge("client_recent_max_input_buffer", "Bytes of the longest input buffer of a client.", |seen| {
        show(seen.longest_buffers[0])
    }),
    gauge("client_recent_max_output_buffer", "Bytes of the longest output buffer of a client.", |seen| {
        show(seen.longest_buffers[1])
    }),
    gauge("blocked_clients", "Clients whose call waits, or is held back.", |seen| show(seen.held)),
    gauge("tracking_clients", "Clients that get invalidations of copies.", |seen| {
        show(seen.shared.registries.tracking.len())
    }),
    gauge("clients_in_timeout_table", "Clients whose call waits for a limited time.", |seen| {
        show(seen.waiting)
    }),
];

const MEMORY: &[Metric] = &[
    gauge("used_memory", "Bytes of keys, values, scripts, clients, and what is held for clients.", |seen| {
        show(seen.used_bytes)
    }),
    fact("used_memory_human", |seen| human(seen.used_bytes)),
    gauge("used_memory_rss", "Bytes that the process has in RAM.", |seen| show(seen.resident_bytes)),
    fact("used_memory_rss_human", |seen| human(seen.resident_bytes)),
    gauge("used_memory_peak", "Most bytes that were in use whenever this figure was read.", |seen| {
        show(seen.peak_bytes)
    }),
    fact("used_memory_peak_human", |seen| human(seen.peak_bytes)),
    fact("used_memory_peak_perc", |seen| percent(seen.used_bytes, seen.peak_bytes)),
    gauge("used_memory_overhead", "Bytes of clients' buffers.", |seen| show(seen.buffer_bytes)),
    zero("used_memory_startup"),
    gauge("used_memory_dataset", "Bytes of keys and values.", |seen| show(seen.counts.bytes)),
    fact("used_memory_dataset_perc", |seen| percent(seen.counts.bytes as u64, seen.used_bytes)),
    fact("allocator_allocated", |seen| show(seen.used_bytes)),
    fact("allocator_active", |seen| show(seen.resident_bytes)),
    fact("allocator_resident", |seen| show(seen.resident_bytes)),
    fact("total_system_memory", |seen| show(seen.process.machine_bytes)),
    fact("total_system_memory_human", |seen| human(seen.process.machine_bytes)),
    gauge(
        "used_memory_libraries",
        "Bytes of libraries of functions, without what they hold in Lua.",
        |seen| show(seen.held(Held::Libraries)),
    ),
    gauge("used_memory_lock_history", "Bytes of ends of locks that are remembered.", |seen| {
        show(seen.held(Held::LockHistory))
    }),
    gauge("used_memory_lock_sessions", "Bytes of sessions of locks.", |seen| {
        show(seen.held(Held::LockSessions))
    }),
    gauge(
        "used_memory_namespaces",
        "Bytes of other namespaces, and of histories and faults of all.",
        |seen| show(seen.held(Held::Namespaces)),
    ),
    gauge("used_memory_scripts_parsed", "Bytes of parsed scripts beside their texts.", |seen| {
        show(seen.held(Held::Scripts))
    }),
    gauge("used_memory_subscriptions", "Bytes of subscriptions to channels and patterns.", |seen| {
        show(seen.held(Held::Subscriptions))
    }),
    gauge("used_memory_tracking", "Bytes of keys and prefixes that CLIENT TRACKING tracks.", |seen| {
        show(seen.held(Held::Tracking))
    }),
    gauge("used_memory_transactions", "Bytes of requests that wait for EXEC.", |seen| {
        show(seen.held(Held::Transactions))
    }),
    gauge("used_memory_users", "Bytes of ACL users and their rules.", |seen| show(seen.held(Held::Users))),
    gauge("used_memory_waits", "Bytes of requests that wait for keys, and of their queues.", |seen| {
        show(seen.held(Held::Waits))
    }),
    gauge("used_memory_watches", "Bytes of keys that clients watch.", |seen| show(seen.held(Held::Watches))),
    gauge("used_memory_lua", "Bytes of the interpreter of scripts, as of the end of the last one.", |seen| {
        show(seen.held(Held::Lua))
    }),
    fact("used_memory_lua_human", |seen| human(seen.shared.scripts.interpreter.memory() as u64)),
    gauge("used_memory_scripts", "Bytes of the texts of loaded scripts.", |seen| {
        show(seen.shared.scripts.cache.size().1)
    }),
    fact("used_memory_scripts_human", |seen| human(seen.shared.scripts.cache.size().1 as u64)),
    fact("used_memory_scripts_eval", |seen| show(seen.shared.scripts.cache.size().1)),
    gauge("number_of_cached_scripts", "Scripts that are loaded.", |seen| {
        show(seen.shared.scripts.cache.size().0)
    }),
    fact("used_memory_vm_eval", |seen| show(seen.shared.scripts.interpreter.memory())),
    gauge("number_of_functions", "Functions that can be called.", |seen| {
        show(seen.shared.scripts.libraries.counts().1)
    }),
    gauge("number_of_libraries", "Libraries that are loaded.", |seen| {
        show(seen.shared.scripts.libraries.counts().0)
    }),
    gauge("maxmemory", "Bytes in use above which commands that could need more are refused.", |seen| {
        show(seen.shared.settings.get(settings::MAXMEMORY))
    }),
    fact("maxmemory_human", |seen| human(seen.shared.settings.get(settings::MAXMEMORY))),
    never("maxmemory_policy", |_| show("noeviction")),
    never("allocator_frag_ratio", |_| show("1.00")),
    zero("allocator_frag_bytes"),
    never("allocator_rss_ratio", |_| show("1.00")),
    zero("allocator_rss_bytes"),
    never("rss_overhead_ratio", |_| show("1.00")),
    zero("rss_overhead_bytes"),
    fact("mem_fragmentation_ratio", |seen| {
        format!("{:.2}", seen.resident_bytes as f64 / seen.used_bytes.max(1) as f64)
    }),
    fact("mem_fragmentation_bytes", |seen| show(seen.resident_bytes.saturating_sub(seen.used_bytes))),
    zero("mem_not_counted_for_evict"),
    zero("mem_replication_backlog"),
    zero("mem_total_replication_buffers"),
    zero("mem_clients_slaves"),
    fact("mem_clients_normal", |seen| show(seen.buffer_bytes)),
    zero("mem_cluster_links"),
    zero("mem_aof_buffer"),
    fact("mem_allocator", |seen| show(seen.process.allocator)),
    zero("active_defrag_running"),
    zero("lazyfree_pending_objects"),
    zero("lazyfreed_objects"),
];

const PERSISTENCE: &[Metric] = &[
    zero("loading"),
    zero("async_loading"),
    zero("current_cow_peak"),
    zero("current_cow_size"),
    zero("current_cow_size_age"),
    never("current_fork_perc", |_| show("0.00")),
    zero("current_save_keys_processed"),
    zero("current_save_keys_total"),
    gauge("rdb_changes_since_last_save", "Changes in the journal that are not synced to the disk.", |seen| {
        show(seen.journal(|journal| journal.unsynced))
    }),
    zero("rdb_bgsave_in_progress"),
    // The disk is synced: the journal is no RDB file, and no other value of one changes.
    fact("rdb_last_save_time", |seen| show(seen.saved_unix_secs())),
    never("rdb_last_bgsave_status", |_| show("ok")),
    never("rdb_last_bgsave_time_sec", |_| show(-1)),
    never("rdb_current_bgsave_time_sec", |_| show(-1)),
    zero("rdb_saves"),
    zero("rdb_last_cow_size"),
    zero("rdb_last_load_keys_expired"),
    zero("rdb_last_load_keys_loaded"),
    fact("aof_enabled", |seen| show(u8::from(seen.journal.is_some()))),
    gauge(
        "aof_rewrite_in_progress",
        "1 while the live keys are copied to a new file of the journal.",
        |seen| show(seen.journal(|journal| journal.is_copying.into())),
    ),
    zero("aof_rewrite_scheduled"),
    never("aof_last_rewrite_time_sec", |_| show(-1)),
    never("aof_current_rewrite_time_sec", |_| show(-1)),
    never("aof_last_bgrewrite_status", |_| show("ok")),
    zero("aof_rewrites"),
    zero("aof_rewrites_consecutive_failures"),
    fact("aof_last_write_status", |seen| {
        show(if seen.shared.locks.quarantine.disk_error().is_some() { "err" } else { "ok" })
    }),
    zero("aof_last_cow_size"),
    zero("module_fork_in_progress"),
    zero("module_fork_last_cow_size"),
    gauge("quarantine_active", "1 while no lock is granted or extended.", |seen| {
        show(u8::from(seen.quarantine_left_ms().is_some()))
    }),
    gauge("quarantine_left_ms", "Milliseconds until locks are granted again.", |seen| {
        show(seen.quarantine_left_ms().unwrap_or(0))
    }),
    fact("quarantine_reason", |seen| show(seen.shared.locks.quarantine.reason())),
    gauge("aof_current_size", "Bytes of the journal.", |seen| show(seen.journal(|journal| journal.bytes))),
    gauge("aof_base_size", "Bytes of the live keys when they were last copied to a new file.", |seen| {
        show(seen.journal(|journal| journal.copied_bytes))
    }),
    gauge("horizon_left_ms", "Milliseconds for which the disk knows that locks may be held.", |seen| {
        let horizon = seen.journal.as_ref().map_or(seen.now, |journal| journal.horizon);
        show(horizon.millis_since(seen.now))
    }),
];

const STATS: &[Metric] = &[
    counter("total_connections_received", "Connections accepted.", |seen| {
        show(seen.shared.stats.metrics.connections.get())
    }),
    counter("total_commands_processed", "Commands carried out.", |seen| show(seen.traffic[0])),
    gauge("instantaneous_ops_per_sec", "Commands carried out in a second.", |seen| {
        show(seen.rates[0] as u64)
    }),
    counter("total_net_input_bytes", "Bytes received.", |seen| show(seen.traffic[1])),
    counter("total_net_output_bytes", "Bytes sent.", |seen| show(seen.traffic[2])),
    zero("total_net_repl_input_bytes"),
    zero("total_net_repl_output_bytes"),
    gauge("instantaneous_input_kbps", "Kibibytes received in a second.", |seen| {
        format!("{:.2}", seen.rates[1] / 1024.0)
    }),
    gauge("instantaneous_output_kbps", "Kibibytes sent in a second.", |seen| {
        format!("{:.2}", seen.rates[2] / 1024.0)
    }),
    never("instantaneous_input_repl_kbps", |_| show("0.00")),
    never("instantaneous_output_repl_kbps", |_| show("0.00")),
    counter("rejected_connections", "Connections refused because of maxclients.", |seen| {
        show(seen.shared.stats.metrics.rejected_connections.get())
    }),
    zero("sync_full"),
    zero("sync_partial_ok"),
    zero("sync_partial_err"),
    counter("expired_keys", "Keys removed because their lease had ended.", |seen| show(seen.counts.expired)),
    never("expired_stale_perc", |_| show("0.00")),
    zero("expired_time_cap_reached_count"),
    zero("expire_cycle_cpu_milliseconds"),
    zero("evicted_keys"),
    zero("evicted_clients"),
    zero("total_eviction_exceeded_time"),
    zero("current_eviction_exceeded_time"),
    counter("client_query_buffer_limit_disconnections", "Clients closed for too long a request.", |seen| {
        show(seen.shared.stats.metrics.query_limit_disconnections.get())
    }),
    counter(
        "client_output_buffer_limit_disconnections",
        "Clients closed for what they left unread.",
        |seen| show(seen.shared.settings.output_limits().disconnections.get()),
    ),
    counter("keyspace_hits", "Reads that found their key.", |seen| show(seen.counts.hits)),
    counter("keyspace_misses", "Reads that did not.", |seen| show(seen.counts.misses)),
    gauge("pubsub_channels", "Channels with subscribers.", |seen| {
        show(seen.shared.registries.channels.count(Listening::Channel))
    }),
    gauge("pubsub_patterns", "Patterns with subscribers.", |seen| {
        show(seen.shared.registries.channels.count(Listening::Pattern))
    }),
    gauge("pubsubshard_channels", "Shard channels with subscribers.", |seen| {
        show(seen.shared.registries.channels.count(Listening::Shard))
    }),
    zero("latest_fork_usec"),
    zero("total_forks"),
    zero("migrate_cached_sockets"),
    zero("slave_expires_tracked_keys"),
    zero("active_defrag_hits"),
    zero("active_defrag_misses"),
    zero("active_defrag_key_hits"),
    zero("active_defrag_key_misses"),
    zero("total_active_defrag_time"),
    zero("current_active_defrag_time"),
    gauge("tracking_total_keys", "Keys of which a client keeps a copy.", |seen| {
        show(seen.counts.tracked_keys)
    }),
    gauge("tracking_total_items", "Copies that clients keep.", |seen| show(seen.counts.copies)),
    gauge("tracking_total_prefixes", "Prefixes of keys whose changes clients track.", |seen| {
        show(seen.shared.registries.tracking.prefix_count())
    }),
    zero("unexpected_error_replies"),
    counter("total_error_replies", "Error replies.", |seen| show(seen.shared.stats.metrics.errors.get())),
    zero("dump_payload_sanitizations"),
    gauge("running_script_seconds", "Seconds since the script that runs began; 0 if none runs.", |seen| {
        seconds(seen.running_script().map_or(0, |(_, age_ms)| age_ms))
    }),
    fact("running_script", |seen| seen.running_script().map_or_else(String::new, about_script)),
    counter("slow_scripts", "Scripts that have run for longer than busy-reply-threshold.", |seen| {
        show(seen.shared.scripts.running.slow.get())
    }),
    counter(
        "acl_access_denied_auth",
        "Failed authentications, and commands refused without authentication.",
        |seen| show(seen.shared.stats.metrics.denied_auth.get()),
    ),
    counter("acl_access_denied_cmd", "Commands refused because the user may not send them.", |seen| {
        show(seen.shared.stats.metrics.denied_command.get())
    }),
    counter("acl_access_denied_key", "Commands refused because the user may not use a key.", |seen| {
        show(seen.shared.stats.metrics.denied_key.get())
    }),
    counter(
        "acl_access_denied_channel",
        "Commands refused because the user may not use a channel.",
        |seen| show(seen.shared.stats.metrics.denied_channel.get()),
    ),
    counter(
        "acl_access_denied_tls_cert",
        "TLS certificates of clients that name no user who is on: tls-auth-clients-user.",
        |seen| show(seen.shared.stats.metrics.denied_certificate.get()),
    ),
];

const LOCKS: &[Metric] = &[
    sum("locks_granted", "Fencing tokens given out, one for each grant.", |seen| {
        show(seen.shared.keyspace.tokens())
    }),
    sum("locks_held", "Keys that are locks.", |seen| show(seen.counts.locks.all_held())),
    gauge("lock_waiters", "Calls in the queues of locks.", |seen| show(seen.counts.lock_waiters)),
    sum("locks_refused", "Requests for a lock that was held, which were not granted.", |seen| {
        show(seen.counts.locks.refused)
    }),
    counter("locks_expired", "Locks that ended because their lease had ended.", |seen| {
        show(seen.counts.locks.expired)
    }),
    gauge(
        "counters_age_seconds",
        "Age of the oldest counters of keys and locks: of a shard that a script holds; 0: all are of now.",
        |seen| seconds(seen.counts.as_of.map_or(0, |as_of| seen.now.millis_since(as_of))),
    ),
];

/// The script that runs, in one field of INFO. The name, which may contain any of the separators, is last.
fn about_script((script, age_ms): (Script, u64)) -> String {
    let (kind, client) = (if script.is_function() { "function" } else { "sha1" }, &script.client);
    let name = client.names.lock().name.clone();
    format!(
        "{kind}={},age_ms={age_ms},client={},addr={},name={name}",
        script.name, client.id, client.address.peer
    )
}

/// The other nodes of a test's cluster.
fn peers<'s>(seen: &'s Snapshot<'_>) -> Option<&'s Peers> {
    seen.shared.peers.as_ref()
}

const REPLICATION: &[Metric] = &[
    fact("role", |seen| show(if peers(seen).is_some_and(Peers::is_replica) { "slave" } else { "master" })),
    fact("connected_slaves", |seen| show(peers(seen).map_or(0, |peers| peers.replicas(peers.me).len()))),
    never("master_failover_state", |_| show("no-failover")),
    fact("master_replid", |seen| show(&seen.shared.instance.run_id)),
    never("master_replid2", |_| "0".repeat(40)),
    fact("master_repl_offset", |seen| show(peers(seen).map_or(0, |peers| peers.offset(peers.me)))),
    never("second_repl_offset", |_| show(-1)),
    zero("repl_backlog_active"),
    never("repl_backlog_size", |_| show(1 << 20)),
    zero("repl_backlog_first_byte_offset"),
    zero("repl_backlog_histlen"),
];

const NODES: &[Metric] = &[
    gauge("cluster_nodes", "Nodes that share a log in etcd; 0: the server is by itself.", |seen| {
        show(seen.cluster(|cluster| cluster.others().len() as u64 + 1))
    }),
    gauge("cluster_epoch", "The epoch in which this node leads.", |seen| {
        show(seen.cluster(|cluster| cluster.epoch().unsigned_abs()))
    }),
    gauge("cluster_head", "Entries that the log in etcd has had.", |seen| {
        show(seen.cluster(ClusterFacts::head))
    }),
    counter("cluster_commits", "Commits of this node to etcd.", |seen| {
        show(seen.cluster(|cluster| cluster.commits().0))
    }),
    counter(
        "cluster_commit_seconds",
        "Seconds that these commits took, from the request to the answer.",
        |seen| secs(seen.cluster(|cluster| cluster.commits().1)),
    ),
];

const CPU: &[Metric] = &[
    counter("used_cpu_sys", "Seconds of CPU spent in the kernel.", |seen| secs(seen.process.kernel_micros)),
    counter("used_cpu_user", "Seconds of CPU spent in the server itself.", |seen| {
        secs(seen.process.user_micros)
    }),
    never("used_cpu_sys_children", |_| secs(0)),
    never("used_cpu_user_children", |_| secs(0)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::admin::metrics::Kind;

    #[test]
    fn each_kind_of_memory_that_is_held_for_clients_has_a_metric() {
        for kind in Held::ALL {
            let name = format!("used_memory_{}", kind.name().replace('.', "_"));
            assert!(MEMORY.iter().any(|row| row.name == name && row.kind == Kind::Gauge), "{name}");
        }
    }

    #[test]
    fn names_are_unique_and_counters_and_gauges_have_a_help_sentence() {
        let rows: Vec<_> = SECTIONS.iter().flat_map(|section| section.rows).collect();
        for (index, row) in rows.iter().enumerate() {
            assert!(rows[..index].iter().all(|other| other.name != row.name), "{}: twice", row.name);
            let moves = matches!(row.kind, Kind::Counter | Kind::Gauge | Kind::Sum);
            assert_eq!(row.help.ends_with('.'), moves, "{}: no sentence", row.name);
        }
    }
}
