//! LATENCY and SLOWLOG: slow commands and events.
//!
//! Source  Redis 7.0 `latency.c`, `slowlog.c`.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;

use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, integer, text};
use crate::commands::table::Table;
use crate::commands::{Call, Command, Outcome};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::container(Group::Server, "LATENCY", "2.8.13", LATENCY)
        .summary("A container for commands about what took long."),
    Row::container(Group::Server, "SLOWLOG", "2.2.12", SLOWLOG)
        .summary("A container for commands about the slow log."),
];

const LATENCY: &[Row] = &[
    Row::new(Group::Server, "HISTOGRAM", "7.0.0", histogram)
        .summary(
            "Returns histograms of the durations of commands. Fast commands are sampled: one call in 61 is timed.",
        )
        .flags(FLAGS)
        .args(&[text("command").maybe().many()]),
    Row::new(Group::Server, "HISTORY", "2.8.13", history)
        .summary("Returns the spikes of an event, oldest first.")
        .flags(FLAGS)
        .args(&[text("event")]),
    Row::new(Group::Server, "LATEST", "2.8.13", latest)
        .summary("Returns the latest spike of every event.")
        .flags(FLAGS),
    Row::new(Group::Server, "RESET", "2.8.13", reset)
        .summary("Deletes the spikes of some or all events.")
        .flags(FLAGS)
        .args(&[text("event").maybe().many()]),
    help::row(Group::Server).since("2.8.13"),
];

const SLOWLOG: &[Row] = &[
    Row::new(Group::Server, "GET", "2.2.12", slowlog_get)
        .summary("Returns the newest entries of the slow log: ten, or as many as asked for, -1 for all.")
        .flags(SLOWLOG_FLAGS)
        .args(&[integer("count").maybe()]),
    Row::new(Group::Server, "LEN", "2.2.12", slowlog_len)
        .summary("Returns how many entries the slow log has.")
        .flags(SLOWLOG_FLAGS),
    Row::new(Group::Server, "RESET", "2.2.12", slowlog_reset)
        .summary("Empties the slow log.")
        .flags(SLOWLOG_FLAGS),
    help::row(Group::Server).since("6.2.0"),
];

const SLOWLOG_FLAGS: Flags = Flags::ADMIN.with(Flags::LOADING).with(Flags::STALE);

const FLAGS: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE);

fn latest(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    let events = call.shared.stats.latency.events();
    call.reply.array(events.len());
    for (name, event) in events {
        let last = event.spikes.back().copied();
        call.reply.array(4);
        call.reply.bulk(name.as_bytes());
        call.reply.integer(last.map_or(0, |spike| spike.unix_secs as i64));
        call.reply.integer(last.map_or(0, |spike| spike.millis as i64));
        call.reply.integer(event.longest_millis as i64);
    }
    Ok(Outcome::Replied)
}

fn history(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    call.args.finish()?;

    let event = call.shared.stats.latency.event(name).map(|(_, event)| event).unwrap_or_default();
    call.reply.array(event.spikes.len());
    for spike in event.spikes {
        call.reply.array(2);
        call.reply.integer(spike.unix_secs as i64);
        call.reply.integer(spike.millis as i64);
    }
    Ok(Outcome::Replied)
}

fn reset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let latency = &call.shared.stats.latency;
    let forgotten = if call.args.is_empty() {
        latency.forget_all()
    } else {
        call.args.rest().filter(|name| latency.forget(name)).count()
    };

    call.audit("reset", |line| line.text("of", b"LATENCY"));
    call.reply.count(forgotten);
    Ok(Outcome::Replied)
}

fn histogram(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let asked: Vec<&Command> = if call.args.is_empty() {
        call.shared.commands.all().collect()
    } else {
        call.args.rest().flat_map(|name| measured(call.shared.commands, name)).collect()
    };

    let stats = |command: &Command| &call.shared.stats.commands[usize::from(command.index)];
    let known: Vec<_> = asked
        .into_iter()
        .map(|command| (command, stats(command).cumulative()))
        .filter(|(_, steps)| !steps.is_empty())
        .collect();
    call.reply.map(known.len());
    for (command, steps) in known {
        call.reply.bulk(command.name.as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(steps.last().map_or(0, |(_, sum)| *sum as i64));
        call.reply.bulk(b"histogram_usec");
        call.reply.map(steps.len());
        for (micros, sum) in steps {
            call.reply.integer(micros as i64);
            call.reply.integer(sum as i64);
        }
    }
    Ok(Outcome::Replied)
}

/// The command of that name, or its subcommands if it is a container.
fn measured(commands: &'static Table, name: &[u8]) -> Vec<&'static Command> {
    let mut parts = name.splitn(2, |byte| *byte == b'|');
    let Some(command) = commands.find(parts.next().unwrap_or_default()) else { return Vec::new() };
    match parts.next() {
        Some(subcommand) => command.subcommand(subcommand).into_iter().collect(),
        None => std::iter::once(command).chain(&command.subcommands).collect(),
    }
}

fn slowlog_get(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    const COUNT_DEFAULT: i64 = 10;
    let count = match call.args.maybe_word() {
        Some(word) => number::integer(word)
            .filter(|count| *count >= -1)
            .ok_or_else(|| Refusal::said("ERR count should be greater than or equal to -1"))?,
        None => COUNT_DEFAULT,
    };
    if !call.args.is_empty() {
        let text = "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.";
        return Err(Refusal::said(text));
    }

    let calls = call.shared.stats.slowlog.newest(usize::try_from(count).unwrap_or(usize::MAX));
    call.reply.array(calls.len());
    for slow in calls {
        call.reply.array(6);
        call.reply.integer(slow.id as i64);
        call.reply.integer(slow.unix_secs as i64);
        call.reply.integer(slow.micros as i64);
        call.reply.bulks(&slow.words);
        call.reply.bulk(slow.peer.as_bytes());
        call.reply.bulk(slow.client_name.as_bytes());
    }
    Ok(Outcome::Replied)
}

fn slowlog_len(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.reply.count(call.shared.stats.slowlog.len());
    Ok(Outcome::Replied)
}

fn slowlog_reset(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.shared.stats.slowlog.reset();
    call.audit("reset", |line| line.text("of", b"SLOWLOG"));
    call.reply.ok();
    Ok(Outcome::Replied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::table;

    #[test]
    fn a_container_is_measured_by_its_subcommands() {
        assert!(measured(table(), b"config").iter().any(|command| command.name == "config|get"));
        assert_eq!(measured(table(), b"config|get").len(), 1);
        assert!(measured(table(), b"nope").is_empty());
    }
}
