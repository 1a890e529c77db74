//! Channels: SUBSCRIBE, PUBLISH and similar.
//!
//! Rule    the confirmation of a subscription precedes the first message of its channel, and no message follows the
//!         confirmation of its end. CLIENT REPLY does not mute confirmations, which are pushes.
//! Source  Redis 7.0 `pubsub.c`.

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::limits::{ITEM_BYTES, LARGE_BYTES};
use redlatch_proto::resp::Reply;

use crate::commands::help;
use crate::commands::row::{Flags, Group, Row, channel, channel_pattern, pattern, text};
use crate::commands::{Call, Outcome, Shared};
use crate::state::channels::{Kind, write_confirmation};
use crate::state::session::{Replies, Session};

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::PubSub, "PSUBSCRIBE", "2.0.0", |call| subscribe(call, Kind::Pattern))
        .summary("Subscribes to all channels that match the patterns.")
        .flags(LISTENING)
        .args(&[channel_pattern("pattern").many()]),
    Row::new(Group::PubSub, "PUBLISH", "2.0.0", publish)
        .summary("Sends a message to the subscribers of a channel; returns their number.")
        .flags(PUBLISHING)
        .args(&[channel("channel"), text("message")]),
    Row::container(Group::PubSub, "PUBSUB", "2.8.0", SUBCOMMANDS)
        .summary("A container for commands about subscriptions."),
    Row::new(Group::PubSub, "PUNSUBSCRIBE", "2.0.0", |call| unsubscribe(call, Kind::Pattern))
        .summary("Unsubscribes from the patterns, or from all.")
        .flags(LISTENING)
        .args(&[pattern("pattern").maybe().many()]),
    Row::new(Group::PubSub, "SPUBLISH", "7.0.0", publish_to_shard)
        .summary("Sends a message to the subscribers of a shard channel; returns their number.")
        .flags(PUBLISHING)
        .args(&[channel("shardchannel"), text("message")]),
    Row::new(Group::PubSub, "SSUBSCRIBE", "7.0.0", |call| subscribe(call, Kind::Shard))
        .summary("Subscribes to shard channels.")
        .flags(LISTENING)
        .args(&[channel("shardchannel").many()]),
    Row::new(Group::PubSub, "SUBSCRIBE", "2.0.0", |call| subscribe(call, Kind::Channel))
        .summary("Subscribes to channels.")
        .flags(LISTENING)
        .args(&[channel("channel").many()]),
    Row::new(Group::PubSub, "SUNSUBSCRIBE", "7.0.0", |call| unsubscribe(call, Kind::Shard))
        .summary("Unsubscribes from the shard channels, or from all.")
        .flags(LISTENING)
        .args(&[text("shardchannel").maybe().many()]),
    Row::new(Group::PubSub, "UNSUBSCRIBE", "2.0.0", |call| unsubscribe(call, Kind::Channel))
        .summary("Unsubscribes from the channels, or from all.")
        .flags(LISTENING)
        .args(&[text("channel").maybe().many()]),
];

const SUBCOMMANDS: &[Row] = &[
    Row::new(Group::PubSub, "CHANNELS", "2.8.0", |call| channels(call, Kind::Channel))
        .summary("Lists the channels that have subscribers.")
        .flags(ASKING)
        .args(&[pattern("pattern").maybe()]),
    help::row(Group::PubSub).since("6.2.0"),
    Row::new(Group::PubSub, "NUMPAT", "2.8.0", numpat)
        .summary("Counts the patterns that have subscribers.")
        .flags(ASKING),
    Row::new(Group::PubSub, "NUMSUB", "2.8.0", |call| numsub(call, Kind::Channel))
        .summary("Counts the subscribers of each channel, without those of patterns.")
        .flags(ASKING)
        .args(&[text("channel").maybe().many()]),
    Row::new(Group::PubSub, "SHARDCHANNELS", "7.0.0", |call| channels(call, Kind::Shard))
        .summary("Lists the shard channels that have subscribers.")
        .flags(ASKING)
        .args(&[pattern("pattern").maybe()]),
    Row::new(Group::PubSub, "SHARDNUMSUB", "7.0.0", |call| numsub(call, Kind::Shard))
        .summary("Counts the subscribers of each shard channel.")
        .flags(ASKING)
        .args(&[text("shardchannel").maybe().many()]),
];

const ASKING: Flags = Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE);

const PUBLISHING: Flags =
    Flags::PUBSUB.with(Flags::LOADING).with(Flags::STALE).with(Flags::FAST).with(Flags::REPLICATED);

const LISTENING: Flags =
    Flags::PUBSUB.with(Flags::NOSCRIPT).with(Flags::LOADING).with(Flags::STALE).with(Flags::SUBSCRIBED);

/// The words of the confirmations of each kind: of its beginning and of its end.
fn words(kind: Kind) -> (&'static [u8], &'static [u8]) {
    match kind {
        Kind::Channel => (b"subscribe", b"unsubscribe"),
        Kind::Pattern => (b"psubscribe", b"punsubscribe"),
        Kind::Shard => (b"ssubscribe", b"sunsubscribe"),
    }
}

fn subscribe(call: &mut Call<'_, '_>, kind: Kind) -> Result<Outcome, Refusal> {
    // SUBSCRIBE and PSUBSCRIBE are allowed inside EXEC, as in Redis.
    if kind == Kind::Shard && call.session.is_nested {
        return Err(Refusal::said("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    call.session.may_hold()?;

    for name in call.args.rest() {
        let name = Bytes::copy_from_slice(name);
        let (is_new, count) = call.session.client.subscriptions(|subscriptions| {
            (subscriptions.insert(kind, &name), subscriptions.counted_with(kind))
        });
        // The confirmation precedes the registration: messages may follow at once.
        confirm(call, words(kind).0, Some(&name), count);
        if is_new {
            call.shared.registries.channels.subscribe(kind, &name, &call.session.client);
        }
    }
    Ok(Outcome::Replied)
}

fn unsubscribe(call: &mut Call<'_, '_>, kind: Kind) -> Result<Outcome, Refusal> {
    let mut named: Vec<Bytes> = call.args.rest().map(Bytes::copy_from_slice).collect();
    if named.is_empty() {
        named = call.session.client.subscriptions(|all| all.of(kind).iter().cloned().collect());
    }

    for name in &named {
        let (was_here, count) = call.session.client.subscriptions(|subscriptions| {
            (subscriptions.remove(kind, name), subscriptions.counted_with(kind))
        });
        if was_here {
            call.shared.registries.channels.unsubscribe(kind, name, call.session.client.id);
        }
        catch_up(call);
        confirm(call, words(kind).1, Some(name), count);
    }
    if named.is_empty() {
        let count = call.session.client.subscriptions(|subscriptions| subscriptions.counted_with(kind));
        confirm(call, words(kind).1, None, count);
    }
    call.shared.registries.channels.shrink(kind);
    Ok(Outcome::Replied)
}

/// Confirms the beginning or the end of a subscription, with the number of subscriptions that are left.
fn confirm(call: &mut Call<'_, '_>, what: &[u8], name: Option<&[u8]>, count: usize) {
    let write = |reply: &mut Reply<'_>| write_confirmation(reply, what, name, count);
    match call.session.replies {
        Replies::On => write(&mut call.reply),
        // A confirmation is a push: CLIENT REPLY does not mute it.
        Replies::Off | Replies::Skip | Replies::SkipNext => {
            let mut push = Vec::new();
            write(&mut Reply::new(&mut push, call.session.protocol));
            call.session.client.deliver(&push);
        }
    }
}

/// Writes the messages in the outbox before the reply.
fn catch_up(call: &mut Call<'_, '_>) {
    // The replies of a muted session are removed from its output, and messages among them would be lost. The reply of
    // EXEC or of a script is an array that messages must not interrupt.
    let may_interrupt = call.session.replies == Replies::On && !call.session.is_nested;
    if may_interrupt && call.session.client.has_messages() {
        let mut messages = Vec::new();
        call.session.client.collect(&mut messages);
        call.reply.raw(&messages);
    }
}

/// Ends all subscriptions of a session without confirmations.
pub(crate) fn leave_all(session: &mut Session, shared: &Shared) {
    shared.registries.channels.leave(&session.client);
}

fn publish(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let channel = call.args.word()?;
    let message = call.args.word()?;

    if call.session.may_leave() && has_many_patterns(call.shared) {
        return Ok(Outcome::Offload);
    }
    call.view.publish_events(&call.shared.registries.channels);
    let receivers = call.shared.registries.channels.publish(channel, message);
    call.shared.peers.iter().for_each(|peers| peers.publish(channel, message));
    // A client that is subscribed to the channel itself gets the message before the reply.
    catch_up(call);

    call.reply.count(receivers);
    Ok(Outcome::Replied)
}

/// Whether there are so many patterns that messages are published on the script thread.
pub(crate) fn has_many_patterns(shared: &Shared) -> bool {
    let elsewhere = shared.peers.as_ref().map_or(0, |peers| peers.patterns_elsewhere());
    let patterns = shared.registries.channels.patterns().saturating_add(elsewhere);
    patterns.saturating_mul(ITEM_BYTES) > LARGE_BYTES
}

fn publish_to_shard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let channel = call.args.word()?;
    let message = call.args.word()?;

    call.view.publish_events(&call.shared.registries.channels);
    let receivers = call.shared.registries.channels.publish_to_shard(channel, message);
    call.shared.peers.iter().for_each(|peers| peers.publish_to_shard(channel, message));
    catch_up(call);

    call.reply.count(receivers);
    Ok(Outcome::Replied)
}

fn channels(call: &mut Call<'_, '_>, kind: Kind) -> Result<Outcome, Refusal> {
    let pattern = call.args.maybe_word();
    if !call.args.is_empty() {
        return Err(Refusal::subcommand_syntax("PUBSUB", call.args.request().word(1)));
    }

    call.reply.bulks(&call.shared.registries.channels.active(kind, pattern));
    Ok(Outcome::Replied)
}

fn numpat(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.reply.count(call.shared.registries.channels.count(Kind::Pattern));
    Ok(Outcome::Replied)
}

fn numsub(call: &mut Call<'_, '_>, kind: Kind) -> Result<Outcome, Refusal> {
    // The reply is a flat array in both protocols, as in Redis.
    call.reply.array(call.args.len().saturating_mul(2));
    for name in call.args.rest() {
        call.reply.bulk(name);
        call.reply.count(call.shared.registries.channels.listeners(kind, name));
    }
    Ok(Outcome::Replied)
}
