//! Channels: SUBSCRIBE, PUBLISH and their kind.
//!
//! Rule    what lay in the mailbox before one of these commands is sent before its confirmation, and what comes later
//!         after it: the engine collects the mail before each of them.
//! Source  Redis 7.0 `pubsub.c`.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use super::row::{Flags, Group, Row, pattern, text};
use super::{Call, Outcome, Shared, help};
use crate::error::Refusal;
use crate::resp::Reply;
use crate::state::session::Session;

const LISTEN: Flags =
    Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::SUBSCRIBED);
const SPEAK: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE);

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "PUBLISH",
        summary: "Sends a message to everybody who listens to a channel.",
        flags: SPEAK.with(Flags::FAST),
        args: &[text("channel"), text("message")],
        run: publish,
        ..ROW
    },
    Row {
        name: "SUBSCRIBE",
        summary: "Listens to channels.",
        args: &[text("channel").many()],
        run: subscribe,
        ..ROW
    },
    Row {
        name: "UNSUBSCRIBE",
        summary: "Stops listening to channels, or to all of them.",
        args: &[text("channel").maybe().many()],
        run: unsubscribe,
        ..ROW
    },
    Row {
        name: "PSUBSCRIBE",
        summary: "Listens to all channels that fit a pattern.",
        args: &[pattern("pattern").many()],
        run: psubscribe,
        ..ROW
    },
    Row {
        name: "PUNSUBSCRIBE",
        summary: "Stops listening to patterns, or to all of them.",
        args: &[pattern("pattern").maybe().many()],
        run: punsubscribe,
        ..ROW
    },
    Row {
        name: "PUBSUB",
        summary: "A container for commands about who listens.",
        since: "2.8.0",
        flags: Flags::NONE,
        subcommands: &[
            Row {
                name: "CHANNELS",
                summary: "Lists the channels that somebody listens to.",
                since: "2.8.0",
                flags: SPEAK,
                args: &[pattern("pattern").maybe()],
                run: channels,
                ..ROW
            },
            Row {
                name: "NUMPAT",
                summary: "Counts the patterns that somebody listens to.",
                since: "2.8.0",
                flags: SPEAK,
                run: pattern_count,
                ..ROW
            },
            Row {
                name: "NUMSUB",
                summary: "Counts who listens to each of the channels.",
                since: "2.8.0",
                flags: SPEAK,
                args: &[text("channel").maybe().many()],
                run: listeners,
                ..ROW
            },
            help::row(Group::PubSub),
        ],
        run: super::container,
        ..ROW
    },
];

const ROW: Row = Row {
    name: "",
    summary: "",
    since: "2.0.0",
    group: Group::PubSub,
    flags: LISTEN,
    args: &[],
    subcommands: &[],
    run: publish,
};

/// What a client listens to: one channel, or all that fit a pattern.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Channel,
    Pattern,
}

fn publish(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let channel = call.args.word()?;
    let message = call.args.word()?;
    call.args.finish()?;

    let receivers = call.shared.channels.publish(channel, message);

    call.reply.count(receivers);
    Ok(Outcome::Replied)
}

fn subscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    join(call, Kind::Channel)
}

fn psubscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    join(call, Kind::Pattern)
}

fn unsubscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    leave(call, Kind::Channel)
}

fn punsubscribe(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    leave(call, Kind::Pattern)
}

fn join(call: &mut Call<'_, '_>, kind: Kind) -> Result<Outcome, Refusal> {
    for name in call.args.rest() {
        let (session, channels) = (&mut *call.session, &call.shared.channels);
        let (own, word) = match kind {
            Kind::Channel => (&mut session.channels, "subscribe"),
            Kind::Pattern => (&mut session.patterns, "psubscribe"),
        };
        let is_new = !own.iter().any(|known| known == name);
        let name = Bytes::copy_from_slice(name);
        if is_new {
            own.push(name.clone());
        }
        confirm(&mut call.reply, session, word, Some(&name));
        match kind {
            Kind::Channel if is_new => channels.subscribe(&name, &session.client),
            Kind::Pattern if is_new => channels.subscribe_pattern(&name, &session.client),
            _ => {}
        }
    }
    Ok(Outcome::Replied)
}

fn leave(call: &mut Call<'_, '_>, kind: Kind) -> Result<Outcome, Refusal> {
    let mut names: Vec<Bytes> = call.args.rest().map(Bytes::copy_from_slice).collect();
    let word = if kind == Kind::Channel { "unsubscribe" } else { "punsubscribe" };
    let session = &mut *call.session;
    if names.is_empty() {
        let own = if kind == Kind::Channel { &session.channels } else { &session.patterns };
        names.clone_from(own);
    }
    if names.is_empty() {
        confirm(&mut call.reply, session, word, None);
    }
    for name in names {
        drop_one(session, call.shared, kind, &name);
        confirm(&mut call.reply, session, word, Some(&name));
    }
    Ok(Outcome::Replied)
}

fn drop_one(session: &mut Session, shared: &Shared, kind: Kind, name: &Bytes) {
    match kind {
        Kind::Channel => {
            session.channels.retain(|known| known != name);
            shared.channels.unsubscribe(name, session.client.id);
        }
        Kind::Pattern => {
            session.patterns.retain(|known| known != name);
            shared.channels.unsubscribe_pattern(name, session.client.id);
        }
    }
}

/// Stops listening to everything without a word: RESET, and the end of a connection.
pub(crate) fn leave_all(session: &mut Session, shared: &Shared) {
    for name in session.channels.clone() {
        drop_one(session, shared, Kind::Channel, &name);
    }
    for name in session.patterns.clone() {
        drop_one(session, shared, Kind::Pattern, &name);
    }
    count(session);
}

fn count(session: &Session) {
    session.client.subscriptions.store(session.channels.len() as u32, Relaxed);
    session.client.patterns.store(session.patterns.len() as u32, Relaxed);
}

fn confirm(reply: &mut Reply<'_>, session: &Session, word: &str, name: Option<&[u8]>) {
    count(session);
    reply.push(3);
    reply.bulk(word.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.count(session.subscriptions());
}

fn channels(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let pattern = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::said(
            "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.",
        ));
    }

    call.reply.bulks(&call.shared.channels.active(pattern));
    Ok(Outcome::Replied)
}

fn pattern_count(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;

    call.reply.count(call.shared.channels.pattern_count());
    Ok(Outcome::Replied)
}

fn listeners(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.map(call.args.len());
    for channel in call.args.rest() {
        call.reply.bulk(channel);
        call.reply.count(call.shared.channels.listeners(channel));
    }
    Ok(Outcome::Replied)
}
