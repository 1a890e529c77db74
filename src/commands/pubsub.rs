//! Channels: SUBSCRIBE, PUBLISH and their kind.
//!
//! Rule    a confirmation precedes the first message of its channel, and no message of a channel follows the
//!         confirmation that it was left.
//! Source  Redis 7.0 `pubsub.c`.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::row::{Flags, Group, Row, pattern, text};
use super::{Call, Outcome, Shared, help};
use crate::error::Refusal;
use crate::state::session::{Replies, Session};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "PSUBSCRIBE",
        summary: "Listens to all channels that fit the patterns.",
        flags: LISTENING,
        args: &[pattern("pattern").many()],
        run: psubscribe,
        ..ROW
    },
    Row {
        name: "PUBLISH",
        summary: "Sends a message to everybody who listens to the channel; says to how many.",
        flags: Flags::PUBSUB
            .with(Flags::LOADING)
            .with(Flags::STALE)
            .with(Flags::FAST)
            .with(Flags::REPLICATED),
        args: &[text("channel"), text("message")],
        run: publish,
        ..ROW
    },
    Row {
        name: "PUBSUB",
        summary: "Tells who listens.",
        since: "2.8.0",
        flags: Flags::NONE,
        subcommands: SUBCOMMANDS,
        ..ROW
    },
    Row {
        name: "PUNSUBSCRIBE",
        summary: "Leaves the patterns, or all of them.",
        flags: LISTENING,
        args: &[pattern("pattern").maybe().many()],
        run: punsubscribe,
        ..ROW
    },
    Row {
        name: "SUBSCRIBE",
        summary: "Listens to the channels.",
        flags: LISTENING,
        args: &[text("channel").many()],
        run: subscribe,
        ..ROW
    },
    Row {
        name: "UNSUBSCRIBE",
        summary: "Leaves the channels, or all of them.",
        flags: LISTENING,
        args: &[text("channel").maybe().many()],
        run: unsubscribe,
        ..ROW
    },
];

const SUBCOMMANDS: &[Row] = &[
    Row {
        name: "CHANNELS",
        summary: "Lists the channels that somebody listens to.",
        args: &[pattern("pattern").maybe()],
        run: channels,
        ..ASKING
    },
    help::row(Group::PubSub),
    Row { name: "NUMPAT", summary: "Counts the patterns that somebody listens to.", run: numpat, ..ASKING },
    Row {
        name: "NUMSUB",
        summary: "Counts who listens to each channel, patterns aside.",
        args: &[text("channel").maybe().many()],
        run: numsub,
        ..ASKING
    },
];

const ROW: Row = Row {
    name: "",
    summary: "",
    since: "2.0.0",
    group: Group::PubSub,
    flags: Flags::NONE,
    args: &[],
    subcommands: &[],
    run: numpat,
};

const ASKING: Row =
    Row { since: "2.8.0", flags: Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE), ..ROW };

const LISTENING: Flags =
    Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::SUBSCRIBED);

fn subscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    for channel in call.args.rest() {
        if !call.session.channels.contains(channel) {
            let channel = Bytes::copy_from_slice(channel);
            call.shared.audience.channels.subscribe(&channel, &call.session.client);
            call.session.channels.insert(channel);
        }
        confirm(call, b"subscribe", Some(channel));
    }
    Ok(Outcome::Replied)
}

fn psubscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    for pattern in call.args.rest() {
        if !call.session.patterns.contains(pattern) {
            let pattern = Bytes::copy_from_slice(pattern);
            call.shared.audience.channels.subscribe_pattern(&pattern, &call.session.client);
            call.session.patterns.insert(pattern);
        }
        confirm(call, b"psubscribe", Some(pattern));
    }
    Ok(Outcome::Replied)
}

fn unsubscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut named: Vec<Bytes> = call.args.rest().map(Bytes::copy_from_slice).collect();
    if named.is_empty() {
        named.extend(call.session.channels.iter().cloned());
    }

    for channel in &named {
        call.shared.audience.channels.unsubscribe(channel, call.session.client.id);
        call.session.channels.remove(channel);
        catch_up(call);
        confirm(call, b"unsubscribe", Some(channel));
    }
    if named.is_empty() {
        confirm(call, b"unsubscribe", None);
    }
    Ok(Outcome::Replied)
}

fn punsubscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let mut named: Vec<Bytes> = call.args.rest().map(Bytes::copy_from_slice).collect();
    if named.is_empty() {
        named.extend(call.session.patterns.iter().cloned());
    }

    for pattern in &named {
        call.shared.audience.channels.unsubscribe_pattern(pattern, call.session.client.id);
        call.session.patterns.remove(pattern);
        catch_up(call);
        confirm(call, b"punsubscribe", Some(pattern));
    }
    if named.is_empty() {
        confirm(call, b"punsubscribe", None);
    }
    Ok(Outcome::Replied)
}

/// Tells the client what it has joined or left, and how much it listens to now.
fn confirm(call: &mut Call<'_, '_>, what: &[u8], name: Option<&[u8]>) {
    note(call.session);
    call.reply.push(3);
    call.reply.bulk(what);
    match name {
        Some(name) => call.reply.bulk(name),
        None => call.reply.null(),
    }
    call.reply.count(call.session.subscriptions());
}

/// Puts the messages that have come so far in front of the reply that is to be written.
fn catch_up(call: &mut Call<'_, '_>) {
    // A muted session's replies are cut from its output, and messages would go with them.
    if call.session.replies == Replies::On && call.session.client.has_mail() {
        let mut mail = Vec::new();
        call.session.client.collect(&mut mail);
        call.reply.raw(&mail);
    }
}

/// Shows others how much the session listens to.
fn note(session: &Session) {
    session.client.subscriptions.store(u32::try_from(session.subscriptions()).unwrap_or(u32::MAX), Relaxed);
    session.client.patterns.store(u32::try_from(session.patterns.len()).unwrap_or(u32::MAX), Relaxed);
}

/// Ends all subscriptions of a session, without a word.
pub(crate) fn leave_all(session: &mut Session, shared: &Shared) {
    for channel in std::mem::take(&mut session.channels) {
        shared.audience.channels.unsubscribe(&channel, session.client.id);
    }
    for pattern in std::mem::take(&mut session.patterns) {
        shared.audience.channels.unsubscribe_pattern(&pattern, session.client.id);
    }
    note(session);
}

fn publish(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let channel = call.args.word()?;
    let message = call.args.word()?;

    let receivers = call.shared.audience.channels.publish(channel, message);
    // Who listens to itself hears the message before it is told how many did.
    catch_up(call);

    call.reply.count(receivers);
    Ok(Outcome::Replied)
}

fn channels(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pattern = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::subcommand_syntax("PUBSUB", call.args.request().word(1)));
    }

    call.reply.bulks(&call.shared.audience.channels.active(pattern));
    Ok(Outcome::Replied)
}

fn numpat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.count(call.shared.audience.channels.pattern_count());
    Ok(Outcome::Replied)
}

fn numsub(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    // A flat array in both protocols, as in Redis.
    call.reply.array(2 * call.args.len());
    for channel in call.args.rest() {
        call.reply.bulk(channel);
        call.reply.count(call.shared.audience.channels.listeners(channel));
    }
    Ok(Outcome::Replied)
}
