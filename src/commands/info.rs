//! INFO: what the server says about itself, in sections.
//!
//! Owns    the table of sections, and what stands in each.
//! Rule    fields that Redis has and tools read are there even where they cannot be anything but zero here.
//! Source  Redis 7.0 `genRedisInfoString`: names, order, and which sections `default`, `all`, `everything` mean.

use std::fmt::{Display, Write as _};
use std::sync::atomic::Ordering::Relaxed;

use super::row::{Flags, Group, Row, text};
use super::{Call, Outcome, Shared, VERSION, table};
use crate::clock::LockTime;
use crate::error::Refusal;

pub(super) const ROWS: &[Row] = &[Row {
    name: "INFO",
    summary: "Returns facts and statistics about the server, by section.",
    since: "1.0.0",
    group: Group::Server,
    flags: Flags::LOADING.with(Flags::STALE).with(Flags::DANGEROUS).with(Flags::LINEAR),
    args: &[text("section").maybe().many()],
    subcommands: &[],
    run: info,
}];

/// One section: its title, whether it is shown when nobody asks for it, and what stands in it.
struct Section {
    title: &'static str,
    is_default: bool,
    write: fn(&mut Fields, &Shared, LockTime),
}

const SECTIONS: &[Section] = &[
    Section { title: "Server", is_default: true, write: server },
    Section { title: "Clients", is_default: true, write: clients },
    Section { title: "Memory", is_default: true, write: memory },
    Section { title: "Persistence", is_default: true, write: persistence },
    Section { title: "Stats", is_default: true, write: stats },
    Section { title: "Replication", is_default: true, write: replication },
    Section { title: "CPU", is_default: true, write: cpu },
    Section { title: "Modules", is_default: true, write: |_, _, _| {} },
    Section { title: "Commandstats", is_default: false, write: command_stats },
    Section { title: "Errorstats", is_default: true, write: error_stats },
    Section { title: "Latencystats", is_default: false, write: latency_stats },
    Section { title: "Cluster", is_default: true, write: |fields, _, _| fields.put("cluster_enabled", 0) },
    Section { title: "Keyspace", is_default: true, write: keyspace },
];

fn info(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut asked: Vec<&[u8]> = call.args.rest().collect();
    if asked.is_empty() {
        asked.push(b"default");
    }

    let mut fields = Fields::default();
    for section in SECTIONS.iter().filter(|section| section.is_among(&asked)) {
        if !fields.0.is_empty() {
            fields.0.push_str("\r\n");
        }
        // Writing to a String cannot fail.
        let _ = write!(fields.0, "# {}\r\n", section.title);
        (section.write)(&mut fields, call.shared, call.now.lock);
    }

    call.reply.verbatim(&fields.0);
    Ok(Outcome::Replied)
}

impl Section {
    fn is_among(&self, asked: &[&[u8]]) -> bool {
        let is = |word: &[u8], name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        asked.iter().any(|word| {
            is(word, self.title)
                || is(word, "all")
                || is(word, "everything")
                || (is(word, "default") && self.is_default)
        })
    }
}

/// The lines written so far.
#[derive(Default)]
struct Fields(String);

impl Fields {
    fn put(&mut self, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    fn put_bytes(&mut self, name: &str, bytes: u64) {
        self.put(name, bytes);
        self.put(&format!("{name}_human"), human(bytes));
    }

    fn zeros(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.put(name, 0));
    }
}

/// Bytes as people read them: `943.07K`.
fn human(bytes: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", UNITS[unit])
}

/// Bytes that all clients' buffers hold.
pub(super) fn client_bytes(shared: &Shared) -> u64 {
    let held = |client: &crate::state::clients::Client| {
        client.query_bytes.load(Relaxed) + client.reply_bytes.load(Relaxed)
    };
    shared.clients.all().iter().map(|client| held(client)).sum()
}

fn server(fields: &mut Fields, shared: &Shared, now: LockTime) {
    let process = shared.process();
    let uptime_secs = now.millis_since(shared.started) / 1000;
    fields.put("redis_version", VERSION);
    fields.put("redis_git_sha1", "00000000");
    fields.put("redis_git_dirty", 0);
    fields.put("redis_build_id", "0000000000000000");
    fields.put("redis_mode", "standalone");
    fields.put("redlatch_version", env!("CARGO_PKG_VERSION"));
    fields.put("os", &process.system);
    fields.put("arch_bits", usize::BITS);
    fields.put("monotonic_clock", "POSIX clock_gettime");
    fields.put("multiplexing_api", "epoll");
    fields.put("process_id", process.id);
    fields.put("process_supervised", "no");
    fields.put("run_id", &shared.run_id);
    fields.put("tcp_port", shared.port.load(Relaxed));
    fields.put("server_time_usec", shared.clock.wall_micros());
    fields.put("uptime_in_seconds", uptime_secs);
    fields.put("uptime_in_days", uptime_secs / 86_400);
    fields.put("hz", 10);
    fields.put("configured_hz", 10);
    fields.put("lru_clock", (shared.clock.wall_micros() / 1_000_000) & 0x00FF_FFFF);
    fields.put("executable", &process.executable);
    fields.put("config_file", "");
    fields.put("io_threads_active", 0);
}

fn clients(fields: &mut Fields, shared: &Shared, _: LockTime) {
    let all = shared.clients.all();
    let most =
        |bytes: fn(&crate::state::clients::Client) -> u64| all.iter().map(|client| bytes(client)).max();
    fields.put("connected_clients", shared.clients.len());
    fields.put("cluster_connections", 0);
    fields.put("maxclients", shared.settings.integer("maxclients"));
    let input = most(|client| client.query_bytes.load(Relaxed));
    fields.put("client_recent_max_input_buffer", input.unwrap_or(0));
    let output = most(|client| client.reply_bytes.load(Relaxed));
    fields.put("client_recent_max_output_buffer", output.unwrap_or(0));
    // Those that a pause holds back are blocked too, and have no place in the timeout table.
    fields.put("blocked_clients", all.iter().filter(|client| client.is_held.load(Relaxed)).count());
    fields.put("tracking_clients", 0);
    let waiting = all.iter().filter(|client| client.waits_until().is_some()).count();
    fields.put("clients_in_timeout_table", waiting);
}

fn memory(fields: &mut Fields, shared: &Shared, _: LockTime) {
    let process = shared.process();
    let (dataset, buffers) = (shared.keyspace.counts().bytes as u64, client_bytes(shared));
    let used = dataset + buffers;
    let peak = shared.metrics.peak_bytes.see(used);
    let resident = if process.resident_bytes > 0 { process.resident_bytes } else { used };
    let ratio = resident as f64 / used.max(1) as f64;
    fields.put_bytes("used_memory", used);
    fields.put_bytes("used_memory_rss", resident);
    fields.put_bytes("used_memory_peak", peak);
    fields.put("used_memory_peak_perc", format!("{:.2}%", 100.0 * used as f64 / peak.max(1) as f64));
    fields.put("used_memory_overhead", buffers);
    fields.put("used_memory_startup", 0);
    fields.put("used_memory_dataset", dataset);
    fields.put("used_memory_dataset_perc", format!("{:.2}%", 100.0 * dataset as f64 / used.max(1) as f64));
    fields.put("allocator_allocated", used);
    fields.put("allocator_active", resident);
    fields.put("allocator_resident", resident);
    fields.put_bytes("total_system_memory", process.machine_bytes);
    fields.put_bytes("used_memory_lua", 0);
    let (scripts, script_bytes) = shared.scripts.size();
    fields.put_bytes("used_memory_scripts", script_bytes as u64);
    fields.put("used_memory_scripts_eval", script_bytes);
    fields.put("number_of_cached_scripts", scripts);
    fields.zeros(&["used_memory_vm_eval", "number_of_functions", "number_of_libraries"]);
    fields.put_bytes("maxmemory", 0);
    fields.put("maxmemory_policy", "noeviction");
    fields.put("allocator_frag_ratio", "1.00");
    fields.put("allocator_frag_bytes", 0);
    fields.put("allocator_rss_ratio", "1.00");
    fields.put("allocator_rss_bytes", 0);
    fields.put("rss_overhead_ratio", "1.00");
    fields.put("rss_overhead_bytes", 0);
    fields.put("mem_fragmentation_ratio", format!("{ratio:.2}"));
    fields.put("mem_fragmentation_bytes", resident.saturating_sub(used));
    fields.zeros(&["mem_not_counted_for_evict", "mem_replication_backlog", "mem_total_replication_buffers"]);
    fields.put("mem_clients_slaves", 0);
    fields.put("mem_clients_normal", buffers);
    fields.zeros(&["mem_cluster_links", "mem_aof_buffer"]);
    fields.put("mem_allocator", "libc");
    fields.zeros(&["active_defrag_running", "lazyfree_pending_objects", "lazyfreed_objects"]);
}

fn persistence(fields: &mut Fields, shared: &Shared, _: LockTime) {
    fields.zeros(&[
        "loading",
        "async_loading",
        "current_cow_peak",
        "current_cow_size",
        "current_cow_size_age",
    ]);
    fields.put("current_fork_perc", "0.00");
    fields.zeros(&["current_save_keys_processed", "current_save_keys_total", "rdb_changes_since_last_save"]);
    fields.put("rdb_bgsave_in_progress", 0);
    // Nothing was ever saved: as in a Redis that has not saved since its start.
    fields.put("rdb_last_save_time", shared.started.as_millis() / 1000);
    fields.put("rdb_last_bgsave_status", "ok");
    fields.put("rdb_last_bgsave_time_sec", -1);
    fields.put("rdb_current_bgsave_time_sec", -1);
    fields.zeros(&[
        "rdb_saves",
        "rdb_last_cow_size",
        "rdb_last_load_keys_expired",
        "rdb_last_load_keys_loaded",
    ]);
    fields.zeros(&["aof_enabled", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]);
    fields.put("aof_last_rewrite_time_sec", -1);
    fields.put("aof_current_rewrite_time_sec", -1);
    fields.put("aof_last_bgrewrite_status", "ok");
    fields.zeros(&["aof_rewrites", "aof_rewrites_consecutive_failures"]);
    fields.put("aof_last_write_status", "ok");
    fields.zeros(&["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"]);
}

fn stats(fields: &mut Fields, shared: &Shared, now: LockTime) {
    let metrics = &shared.metrics;
    let counts = shared.keyspace.counts();
    let traffic = metrics.traffic();
    let [commands, input, output] = metrics.rates.per_sec(now.as_millis(), traffic);
    fields.put("total_connections_received", metrics.connections.get());
    fields.put("total_commands_processed", traffic[0]);
    fields.put("instantaneous_ops_per_sec", commands as u64);
    fields.put("total_net_input_bytes", traffic[1]);
    fields.put("total_net_output_bytes", traffic[2]);
    fields.zeros(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"]);
    fields.put("instantaneous_input_kbps", format!("{:.2}", input / 1024.0));
    fields.put("instantaneous_output_kbps", format!("{:.2}", output / 1024.0));
    fields.put("instantaneous_input_repl_kbps", "0.00");
    fields.put("instantaneous_output_repl_kbps", "0.00");
    fields.put("rejected_connections", metrics.rejected_connections.get());
    fields.zeros(&["sync_full", "sync_partial_ok", "sync_partial_err"]);
    fields.put("expired_keys", counts.expired);
    fields.put("expired_stale_perc", "0.00");
    fields.zeros(&["expired_time_cap_reached_count", "expire_cycle_cpu_milliseconds", "evicted_keys"]);
    fields.zeros(&["evicted_clients", "total_eviction_exceeded_time", "current_eviction_exceeded_time"]);
    fields.put("keyspace_hits", counts.hits);
    fields.put("keyspace_misses", counts.misses);
    fields.put("pubsub_channels", shared.channels.channel_count());
    fields.put("pubsub_patterns", shared.channels.pattern_count());
    fields.zeros(&["pubsubshard_channels", "latest_fork_usec", "total_forks", "migrate_cached_sockets"]);
    fields.zeros(&["slave_expires_tracked_keys", "active_defrag_hits", "active_defrag_misses"]);
    fields.zeros(&["active_defrag_key_hits", "active_defrag_key_misses", "total_active_defrag_time"]);
    fields.zeros(&["current_active_defrag_time", "tracking_total_keys", "tracking_total_items"]);
    fields.zeros(&["tracking_total_prefixes", "unexpected_error_replies"]);
    fields.put("total_error_replies", metrics.errors.get());
    fields.put("dump_payload_sanitizations", 0);
    fields.put("acl_access_denied_auth", metrics.denied_auth.get());
}

fn replication(fields: &mut Fields, shared: &Shared, _: LockTime) {
    fields.put("role", "master");
    fields.put("connected_slaves", 0);
    fields.put("master_failover_state", "no-failover");
    fields.put("master_replid", &shared.run_id);
    fields.put("master_replid2", "0".repeat(40));
    fields.put("master_repl_offset", 0);
    fields.put("second_repl_offset", -1);
    fields.put("repl_backlog_active", 0);
    fields.put("repl_backlog_size", 1 << 20);
    fields.zeros(&["repl_backlog_first_byte_offset", "repl_backlog_histlen"]);
}

fn cpu(fields: &mut Fields, shared: &Shared, _: LockTime) {
    let process = shared.process();
    let secs = |micros: u64| format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    fields.put("used_cpu_sys", secs(process.kernel_micros));
    fields.put("used_cpu_user", secs(process.user_micros));
    fields.put("used_cpu_sys_children", secs(0));
    fields.put("used_cpu_user_children", secs(0));
}

fn command_stats(fields: &mut Fields, shared: &Shared, _: LockTime) {
    for command in table().all() {
        let stats = &shared.stats[usize::from(command.index)];
        let (calls, micros) = (stats.calls.get(), stats.micros.get());
        let (rejected, failed) = (stats.rejected.get(), stats.failed.get());
        if calls + rejected + failed > 0 {
            let each = micros as f64 / calls.max(1) as f64;
            let text = format!(
                "calls={calls},usec={micros},usec_per_call={each:.2},rejected_calls={rejected},failed_calls={failed}"
            );
            fields.put(&format!("cmdstat_{}", command.name), text);
        }
    }
}

fn error_stats(fields: &mut Fields, shared: &Shared, _: LockTime) {
    for (code, count) in shared.metrics.error_codes.all() {
        fields.put(&format!("errorstat_{code}"), format_args!("count={count}"));
    }
}

fn latency_stats(fields: &mut Fields, shared: &Shared, _: LockTime) {
    for command in table().all() {
        let histogram = &shared.stats[usize::from(command.index)].histogram;
        if histogram.cumulative().is_empty() {
            continue;
        }
        let parts = [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)]
            .map(|(name, percent)| format!("{name}={:.3}", histogram.percentile(percent)));
        fields.put(&format!("latency_percentiles_usec_{}", command.name), parts.join(","));
    }
}

fn keyspace(fields: &mut Fields, shared: &Shared, _: LockTime) {
    for database in 0..shared.keyspace.databases() {
        let (keys, deadlines) = shared.keyspace.size(database);
        if keys > 0 {
            fields.put(&format!("db{database}"), format_args!("keys={keys},expires={deadlines},avg_ttl=0"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_as_people_read_them() {
        let seen = [0, 1023, 1024, 965_704, 1 << 20, u64::MAX].map(human);
        assert_eq!(seen, ["0B", "1023B", "1.00K", "943.07K", "1.00M", "16384.00P"]);
    }

    #[test]
    fn a_section_is_found_by_any_of_its_names() {
        let shown = |asked: &[&[u8]]| SECTIONS.iter().filter(|section| section.is_among(asked)).count();
        assert_eq!(shown(&[b"KEYSPACE"]), 1);
        assert_eq!(shown(&[b"keyspace", b"cpu", b"nope"]), 2);
        assert_eq!(shown(&[b"all"]), SECTIONS.len());
        assert_eq!(shown(&[b"default"]), SECTIONS.len() - 2);
    }
}
