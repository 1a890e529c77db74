//! Numbers and lines that the pages promise, against the constants and the texts of the program.

use std::path::{Path, PathBuf};

use redlatch_core::replication::term;
use redlatch_core::state::settings::{self, Handle};
use redlatch_proto::limits::{
    HTTP_CONNECTIONS_MAX, HTTP_WAIT_MS_MAX, HTTP_WAITS_MAX, LARGE_BYTES, LINE_BYTES_MAX, LOCK_PREFIXES_MAX,
    REPLY_BYTES_MAX, UNAUTHENTICATED_ARGUMENTS_MAX, UNAUTHENTICATED_BULK_BYTES_MAX,
    UNAUTHENTICATED_REPLY_BYTES_MAX, UNREAD_REPLY_BYTES_MAX,
};
use redlatch_proto::lock::{
    ANSWER_MAX, BUDGET_DEFAULT, KEYS_MAX, META_BYTES_MAX, META_FIELDS_MAX, OWNER_BYTES_MAX, REASON_BYTES_MAX,
};
use redlatch_testing::{NAME_BYTES_MAX, NAMESPACES_MAX};

use super::{read, root};

/// The default of a setting that is a number, divided by a unit.
fn default<T>(setting: Handle<T>, unit: u64) -> u64 {
    let (name, text) = (setting.name(), setting.row().default);
    let number: u64 = text.parse().unwrap_or_else(|_| panic!("{name}: the default '{text}' is no number"));
    assert_eq!(number % unit, 0, "{name}: {number} is no multiple of {unit}");
    number / unit
}

/// A number as pages write it, with commas.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

#[test]
fn limits_and_defaults_in_sentences_are_those_of_the_program() {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    const GIB: u64 = 1024 * MIB;
    let security = [
        format!(
            "requests of {UNAUTHENTICATED_ARGUMENTS_MAX} arguments of {} KiB; leave {} KiB of answers unread",
            UNAUTHENTICATED_BULK_BYTES_MAX / KIB,
            UNAUTHENTICATED_REPLY_BYTES_MAX as u64 / KIB
        ),
        format!("hold up to {HTTP_CONNECTIONS_MAX} connections in slow requests"),
        format!("have up to {HTTP_WAITS_MAX} requests wait for locks"),
        format!("`maxclients` is {};", grouped(default(settings::MAXCLIENTS, 1))),
        format!("`maxclients-reserved` ({}) more", default(settings::MAXCLIENTS_RESERVED, 1)),
        format!("`login-timeout` ({} s)", default(settings::LOGIN_TIMEOUT, 1)),
        format!("A request line takes {} KiB", LINE_BYTES_MAX as u64 / KIB),
        format!("more than {} MiB of answers unread is not read from", UNREAD_REPLY_BYTES_MAX as u64 / MIB),
        format!(
            "A script may hold {} MiB (`script-memory-limit`)",
            default(settings::SCRIPT_MEMORY_LIMIT, MIB)
        ),
        format!("After {} s (`busy-reply-threshold`)", default(settings::BUSY_REPLY_THRESHOLD, 1_000)),
        format!("on large values ({} KiB)", LARGE_BYTES / KIB),
        format!("including EXEC, has at most {} GiB", REPLY_BYTES_MAX as u64 / GIB),
        format!("(`timeout` {})", default(settings::TIMEOUT, 1)),
    ];
    let locks = [
        format!("without `LEASE` it is the setting `lock-lease`, {} s", default(settings::LOCK_LEASE, 1_000)),
        format!("`lock-waiters-max` calls ({})", grouped(default(settings::LOCK_WAITERS_MAX, 1))),
        format!("`lock-history-len` ends of locks ({})", grouped(default(settings::LOCK_HISTORY_LEN, 1))),
        format!(
            "Owner {} KiB; meta {} KiB and {META_FIELDS_MAX} fields in all",
            OWNER_BYTES_MAX as u64 / KIB,
            META_BYTES_MAX as u64 / KIB
        ),
        format!("{} keys in a `LOCK.MACQUIRE`", grouped(KEYS_MAX as u64)),
        format!("the text, of at most {REASON_BYTES_MAX} bytes"),
        format!("by `tcp-keepalive` ({} s by default)", default(settings::TCP_KEEPALIVE, 1)),
    ];
    let others = [
        ("docs/settings.md", format!("HTTP serves {HTTP_CONNECTIONS_MAX} connections at a time")),
        ("docs/settings.md", format!("{HTTP_WAITS_MAX} more may [wait for a lock]")),
        ("docs/http.md", format!("{HTTP_WAITS_MAX} requests may wait at a time")),
        ("docs/http.md", format!("`wait_ms` (0; at most {})", grouped(HTTP_WAIT_MS_MAX))),
        ("docs/commands.md", format!("**A reply has at most {} GiB**", REPLY_BYTES_MAX as u64 / GIB)),
        ("docs/metrics.md", format!("in `lock-metrics-prefix`, at most {LOCK_PREFIXES_MAX}")),
        ("docs/scripts.md", format!("a value above {} KiB is interpreted", LARGE_BYTES / KIB)),
        ("docs/testing.md", format!("A name has 1 to {NAME_BYTES_MAX} bytes")),
        ("docs/testing.md", format!("at most {NAMESPACES_MAX} namespaces")),
        (
            "docs/logging.md",
            format!("`lock-wait-warn` milliseconds (default {};", default(settings::LOCK_WAIT_WARN, 1)),
        ),
        (
            "docs/logging.md",
            format!("`lock-held-warn` milliseconds (default {}:", default(settings::LOCK_HELD_WARN, 1)),
        ),
        (
            "docs/operations.md",
            format!("`shutdown-timeout` seconds, {} by default", default(settings::SHUTDOWN_TIMEOUT, 1)),
        ),
        (
            "docs/operations.md",
            format!("`lock-waiters-max` for each lock, {}", grouped(default(settings::LOCK_WAITERS_MAX, 1))),
        ),
        (
            "docs/durability.md",
            format!("| `horizon-max-lease` | {} ms |", default(settings::HORIZON_MAX_LEASE, 1)),
        ),
        (
            "docs/replication.md",
            format!("| `cluster-takeover` | {} ms;", default(settings::CLUSTER_TAKEOVER, 1)),
        ),
        (
            "docs/replication-inside.md",
            format!("up to {} MiB of it wait in memory", term::BUFFERED_BYTES_MAX / (1 << 20)),
        ),
        ("docs/using-locks.md", format!("**budget**, which is {} s by default", BUDGET_DEFAULT.as_secs())),
        (
            "docs/using-locks.md",
            format!("three limits: the library's limit, {} s, and the rest", ANSWER_MAX.as_secs()),
        ),
        (
            "docs/replication.md",
            format!("| `cluster-failover-hold` | {} ms:", default(settings::CLUSTER_FAILOVER_HOLD, 1)),
        ),
    ];
    let named = security.into_iter().map(|text| ("src/security.md", text));
    let named = named.chain(locks.into_iter().map(|text| ("docs/locks.md", text))).chain(others);
    for (page, sentence) in named {
        // A sentence may go over the end of a line.
        let text = read(page).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&sentence), "{page} does not say: {sentence}");
    }
}

#[test]
fn the_page_of_the_log_has_every_line_of_the_program() {
    let page = read("docs/logging.md");
    let mut files = Vec::new();
    for folder in ["src", "crates"].map(|folder| root().join(folder)) {
        if folder.exists() {
            sources(&folder, &mut files);
        }
    }
    let mut lines = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a source is text");
        for message in ["warn!(", "info!(", "error!("].iter().flat_map(|name| messages(&text, name)) {
            let named = message.replace("oO0OoO0OoO0Oo", "").replace("{name}", "");
            let named = named.split([':', ';']).next().unwrap_or_default().trim();
            assert!(page.contains(named), "{}: docs/logging.md lacks the line '{message}'", file.display());
            lines += 1;
        }
    }
    assert!(lines > 50, "the search has found {lines} lines");
}

/// Adds the files of Rust below a folder.
pub(super) fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry of a folder").path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The messages of the calls of a macro of `tracing`: the last text of each call.
fn messages<'t>(source: &'t str, name: &str) -> Vec<&'t str> {
    source.split(&format!("tracing::{name}")).skip(1).filter_map(last_text).collect()
}

/// The last text before the parenthesis that closes a call.
fn last_text(call: &str) -> Option<&str> {
    let (mut depth, mut from, mut last) = (1_usize, None, None);
    let mut is_escaped = false;
    for (at, char) in call.char_indices() {
        match (from, char) {
            (Some(_), '\\') if !is_escaped => {
                is_escaped = true;
                continue;
            }
            (Some(start), '"') if !is_escaped => {
                last = Some(&call[start..at]);
                from = None;
            }
            (None, '"') => from = Some(at + 1),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            _ => {}
        }
        is_escaped = false;
        if depth == 0 {
            return last;
        }
    }
    None
}

#[test]
fn the_last_text_of_a_call_is_its_message() {
    let source = r#"tracing::warn!(%error, "A line: (a \"word\")"); f("no"); tracing::warn!(n = g(1), k = "v", "Other")"#;
    assert_eq!(messages(source, "warn!("), [r#"A line: (a \"word\")"#, "Other"]);
    assert!(messages(source, "info!(").is_empty());
}
