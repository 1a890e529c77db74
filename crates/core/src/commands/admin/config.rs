//! CONFIG: the settings of the running server.
//!
//! Source  Redis 7.0 `config.c`: names are checked before values, all values are taken or none.

use std::sync::atomic::Ordering::Relaxed;

use redlatch_proto::error::Refusal;

use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, block, pattern, text};
use crate::commands::{Call, Outcome, Shared};
use crate::state::directives::{self, Directives};
use crate::state::settings::{self, SettingError, Settings, shown};
use crate::types::glob;

pub(in crate::commands) const ROWS: &[Row] = &[Row::container(Group::Server, "CONFIG", "2.0.0", SUBCOMMANDS)
    .summary("A container for commands about the server's settings.")];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::Server, "GET", "2.0.0", get)
        .summary("Returns the settings whose names match the patterns, with their values.")
        .flags(FLAGS)
        .args(&[pattern("parameter").many()]),
    Row::new(Group::Server, "SET", "2.0.0", set)
        .summary("Sets one or more settings, all or none.")
        .flags(FLAGS)
        .args(&[block("data", &[text("parameter"), text("value")]).many()]),
    Row::new(Group::Server, "RESETSTAT", "2.0.0", reset_statistics)
        .summary("Starts the statistics of INFO again at zero.")
        .flags(FLAGS.with(Flags::SUMS)),
    Row::new(Group::Server, "REWRITE", "2.8.0", rewrite)
        .summary(
            "Writes the settings, and users, to the configuration file that the server was started with.",
        )
        .flags(FLAGS.with(Flags::OFFLOAD)),
    help::row(Group::Server),
];

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

fn get(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let patterns: Vec<_> = call.args.rest().collect();

    let mut found: Vec<(String, String)> = Vec::new();
    let all = all(call.shared);
    for pattern in patterns {
        let is_glob = pattern.iter().any(|byte| b"[*?".contains(byte));
        for (name, value) in
            all.iter().filter(|(name, _)| glob::matches_ignoring_case(pattern, name.as_bytes()))
        {
            if found.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
                continue;
            }
            // A setting asked for by its exact name is answered in the letter case of the request.
            let shown =
                if is_glob { (*name).to_owned() } else { String::from_utf8_lossy(pattern).into_owned() };
            // A password that is not for clients is shown to none.
            let value = if *name == "cluster-etcd-password" { settings::shown(name, value) } else { value };
            found.push((shown, value.to_owned()));
        }
    }

    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.bulk(name.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    Ok(Outcome::Replied)
}

/// Every setting and its value, including directives without an effect.
fn all(shared: &Shared) -> Vec<(&'static str, String)> {
    let mut all = shared.settings.fitting(&[b"*"]);
    for (name, value) in &mut all {
        // `auto` was replaced by a number.
        match *name {
            "port" => *value = shared.instance.port.load(Relaxed).to_string(),
            "tls-port" => *value = shared.instance.tls_port.load(Relaxed).to_string(),
            _ => {}
        }
    }
    all.extend(shared.settings.directives.all());
    all
}

fn set(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut words = Vec::with_capacity(call.args.len());
    for word in call.args.rest() {
        words.push(std::str::from_utf8(word).map_err(|_| Refusal::Syntax)?);
    }
    if words.len() % 2 != 0 {
        return Err(Refusal::Syntax);
    }
    let pairs: Vec<(&str, &str)> = words.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    let (settable, ignored) = checked(&pairs, call.shared)?;

    call.shared.settings.set_live(&settable).map_err(wrong_value)?;
    call.shared.settings.directives.keep(ignored);
    for (name, value) in &settable {
        let value = shown(name, value);
        tracing::debug!(client = call.session.client.id, setting = name, value, "CONFIG SET");
    }
    call.audit("config-set", |line| {
        let pairs = settable.iter().map(|(name, value)| format!("{name} {}", shown(name, value)));
        line.list("settings", pairs);
    });
    if let Some((_, password)) = settable.iter().find(|(name, _)| name.eq_ignore_ascii_case("requirepass")) {
        call.shared.access.acl.use_password(password.as_bytes(), call.shared.commands);
    }

    call.reply.ok();
    Ok(Outcome::Replied)
}

/// Settings that only the start can change, and that Redis can change live: they take the value that they have.
const KEPT: &[&str] = &["appendfsync", "appendonly", "bind", "dir", "port", "tls-port"];

/// Names and values for the settings, and for the directives without an effect.
type Checked<'a> = (Vec<(&'a str, &'a str)>, Vec<(&'static str, String)>);

/// The pairs of those that can change. All names are checked.
///
/// # Errors
/// A name is unknown, given twice, or cannot be set to that value at run time.
fn checked<'a>(pairs: &[(&'a str, &'a str)], shared: &Shared) -> Result<Checked<'a>, Refusal> {
    let (mut settable, mut ignored) = (Vec::with_capacity(pairs.len()), Vec::new());
    let is_kept = |name: &str, value: &str| {
        let is_it = |(known, now): &(&str, String)| *known == name && now.eq_ignore_ascii_case(value);
        KEPT.contains(&name) && all(shared).iter().any(is_it)
    };
    for (at, (name, value)) in pairs.iter().enumerate() {
        let row = Settings::row(name);
        let (directive, fixed) = (directives::ignored(name), directives::fixed(name));
        if row.is_none() && directive.is_none() && fixed.is_none() {
            let text = format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
            return Err(Refusal::said(text));
        }
        if row.is_some_and(|row| !row.live && !is_kept(row.name, value)) {
            return Err(refused(name, "can't set immutable config"));
        }
        if pairs[..at].iter().any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            return Err(refused(name, "duplicate parameter"));
        }
        match (row, directive, fixed) {
            (Some(row), ..) if row.live => settable.push((*name, *value)),
            (_, Some(directive), _) => {
                ignored.push((directive.0, Directives::check(directive, value).map_err(wrong_value)?));
            }
            (_, _, Some((_, only))) if !only.eq_ignore_ascii_case(value) => {
                return Err(refused(name, &format!("this server knows no other value than '{only}'")));
            }
            _ => {}
        }
    }
    Ok((settable, ignored))
}

fn wrong_value(error: SettingError) -> Refusal {
    match error {
        SettingError::Value { name, reply, .. } => refused(name, &reply),
        error => refused("", &error.to_string()),
    }
}

fn refused(name: &str, why: &str) -> Refusal {
    Refusal::said(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

fn reset_statistics(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.view.whole().reset_counts()?;
    call.shared.stats.metrics.reset();
    call.shared.scripts.running.slow.reset();
    call.shared.settings.output_limits().disconnections.reset();
    call.shared.stats.commands.iter().for_each(crate::state::metrics::CommandStats::reset);
    call.audit("reset", |line| line.text("of", b"CONFIG RESETSTAT"));

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn rewrite(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;
    if call.shared.config_file().is_none() {
        return Err(Refusal::said("ERR The server is running without a config file"));
    }

    call.shared.save_config_file().map_err(|error| {
        tracing::warn!(%error, "CONFIG REWRITE failed");
        Refusal::said(format!("ERR Rewriting config file: {error}"))
    })?;
    tracing::info!("CONFIG REWRITE executed with success.");
    call.audit("config-rewrite", |_| {});

    call.reply.ok();
    Ok(Outcome::Replied)
}
