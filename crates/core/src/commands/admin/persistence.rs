//! What is on the disk: SAVE, BGSAVE, BGREWRITEAOF, LASTSAVE, WAITAOF.
//!
//! Rule    a reply that says that something is on the disk leaves when it is there. Without a journal nothing is ever there.
//! Source  Redis 7.0; WAITAOF of Redis 7.2.

use redlatch_proto::error::Refusal;
use redlatch_proto::number;
use redlatch_proto::resp::Reply;

use crate::commands::quarantine::check_disk;
use crate::commands::row::{Flags, Group, Row, integer, token};
use crate::commands::{Call, Outcome, Shared};
use crate::journal::Mode;
use crate::journal::log::Log;

const SAVES: Flags = Flags::ADMIN.with(Flags::NOSCRIPT).with(Flags::NO_ASYNC_LOADING);

pub(in crate::commands) const ROWS: &[Row] = &[
    Row::new(Group::Server, "SAVE", "1.0.0", save)
        .summary("Answers when every change so far is on the disk. Refused without a journal.")
        .flags(SAVES.with(Flags::NO_MULTI)),
    Row::new(Group::Server, "BGSAVE", "1.0.0", background_save)
        .summary("Answers when every change so far is on the disk, like SAVE.")
        .flags(SAVES)
        .args(&[token("schedule", "SCHEDULE").maybe()]),
    Row::new(Group::Server, "BGREWRITEAOF", "1.0.0", rewrite)
        .summary("Copies the live keys to a new file of the journal, and removes the old one.")
        .flags(SAVES),
    Row::new(Group::Server, "LASTSAVE", "1.0.0", last_save)
        .summary("Returns the Unix second of the last sync; without a journal, that of the start.")
        .flags(Flags::LOADING.with(Flags::STALE).with(Flags::FAST).with(Flags::DANGEROUS)),
    Row::new(Group::Generic, "WAITAOF", "7.2.0", wait_aof)
        .summary("Waits until every change so far is on the disk; for replicas, of which there are none, until the timeout.")
        // As WAIT in Redis 7.0: a script does not wait.
        .flags(Flags::BLOCKING.with(Flags::NOSCRIPT))
        .args(&[integer("numlocal"), integer("numreplicas"), integer("timeout")]),
];

/// The log, if it keeps changes.
pub(in crate::commands) fn journal(shared: &Shared) -> Option<&Log> {
    shared.log.as_deref().filter(|log| log.mode() != Mode::Memory)
}

fn needed<'k>(call: &Call<'_, 'k>) -> Result<&'k Log, Refusal> {
    let text = || Refusal::said("ERR nothing is kept on the disk: start the server with a dir");
    journal(call.shared).ok_or_else(text)
}

/// Holds the reply until everything is on the disk.
///
/// # Errors
/// The error of the disk.
fn hold_reply(call: &Call<'_, '_>, log: &Log) -> Result<(), Refusal> {
    check_disk(call.shared)?;
    log.hold_reply(call.now.lock);
    Ok(())
}

fn save(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;
    hold_reply(call, needed(call)?)?;

    call.reply.ok();
    Ok(Outcome::Replied)
}

fn background_save(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    if !call.args.is_empty() && (!call.args.take("SCHEDULE") || !call.args.is_empty()) {
        return Err(Refusal::Syntax);
    }
    hold_reply(call, needed(call)?)?;

    call.reply.status("Background saving started");
    Ok(Outcome::Replied)
}

fn rewrite(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    call.args.finish()?;
    if !needed(call)?.request_copy() {
        return Err(Refusal::said("ERR Background append only file rewriting already in progress"));
    }

    call.reply.status("Background append only file rewriting started");
    Ok(Outcome::Replied)
}

fn last_save(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let saved = journal(call.shared).map_or(call.shared.instance.started, |log| log.status().synced_at);
    let ago_ms = call.now.lock.millis_since(saved);

    call.reply.integer((call.now.wall().as_millis().saturating_sub(ago_ms) / 1000) as i64);
    Ok(Outcome::Replied)
}

fn wait_aof(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let local = call.args.integer()?;
    let replicas_word = call.args.word()?;
    let timeout_word = call.args.word()?;
    call.args.finish()?;
    if !(0..=1).contains(&local) {
        return Err(Refusal::said("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = number::integer(replicas_word)
        .filter(|replicas| *replicas >= 0)
        .ok_or_else(|| Refusal::said("ERR value is out of range, must be positive"))?;
    let timeout_ms = super::timeout(timeout_word)?;
    let log = journal(call.shared);
    if local == 1 && log.is_none() {
        let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
        return Err(Refusal::said(text));
    }

    let is_there = log.is_some_and(|log| local == 1 || log.status().unsynced == 0);
    if let Some(log) = log.filter(|_| local == 1) {
        // The disk takes milliseconds: the timeout is not looked at.
        hold_reply(call, log)?;
    }
    let answer = |reply: &mut Reply<'_>| {
        reply.array(2);
        reply.integer(i64::from(is_there));
        reply.integer(0);
    };
    if replicas == 0 {
        answer(&mut call.reply);
        return Ok(Outcome::Replied);
    }
    Ok(super::park(call, timeout_ms, answer))
}
