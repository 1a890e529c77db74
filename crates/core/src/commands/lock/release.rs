//! LOCK.RELEASE, LOCK.EXTEND, LOCK.BREAK and LOCK.GUARD.

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::lock::REASON_BYTES_MAX;
use redlatch_proto::log_name::{LogName, NAME_BYTES_SHOWN};

use super::replies::{answer_hold, number};
use super::{millis_of, owner_of, take_token, token_of};
use crate::commands::{Call, Outcome};
use crate::keyspace::{Hold, Lease};
use crate::locks::{Breaker, EndReason, HolderRequest, RequestOutcome};
use crate::state::session::Session;
use crate::state::settings;

pub(super) fn release(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let key = call.args.word()?;
    let owner = owner_of(call.args.word()?)?;
    let token = take_token(&mut call.args)?;
    call.args.finish()?;

    let is_meant = |hold: &Hold| token.is_none_or(|token| token == hold.token);
    let is_released = call.view.locks().end_hold(key, owner, EndReason::Released, is_meant);
    if !is_released {
        call.comes_to(RequestOutcome::NotHeld(HolderRequest::Release), key, Some(owner));
    }

    call.reply.integer(i64::from(is_released));
    Ok(Outcome::Replied)
}

pub(super) fn extend(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let key = call.args.word()?;
    let owner = Bytes::copy_from_slice(owner_of(call.args.word()?)?);
    let is_same = call.args.take("SAME");
    let named_ms = match !is_same && call.args.take("LEASE") {
        true => Some(millis_of(call.args.integer()?, 1, "lease")?),
        false => None,
    };
    let token = take_token(&mut call.args)?;
    call.args.finish()?;

    let hold = call.view.locks().hold_of(key, &owner);
    let Some(hold) = hold.filter(|hold| token.is_none_or(|token| token == hold.token)) else {
        call.comes_to(RequestOutcome::NotHeld(HolderRequest::Extend), key, Some(&owner));
        call.reply.null_array();
        return Ok(Outcome::Replied);
    };
    // A lock of a session has no lease to extend.
    let lease_ms = match hold.session {
        Some(_) => None,
        None if is_same => Some(hold.lease_ms.ok_or_else(|| Refusal::said(NO_LEASE))?),
        None => named_ms.or_else(|| Some(call.shared.settings.get(settings::LOCK_LEASE))),
    };
    if let Some(millis) = lease_ms {
        let deadline = call.now.deadline_in(number(millis));
        call.view.locks().renew(key, &owner, (Some(deadline), lease_ms), None);
    }

    answer_hold(&mut call.reply, hold.token, lease_ms);
    Ok(Outcome::Replied)
}

pub(super) fn break_lock(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let name = call.args.word()?;
    if !call.args.take("TOKEN") {
        return Err(Refusal::Syntax);
    }
    let token = token_of(call.args.integer()?)?;
    let reason = match call.args.take("REASON") {
        true => Some(call.args.word()?).filter(|reason| !reason.is_empty()),
        false => None,
    };
    call.args.finish()?;
    if reason.is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
        return Err(Refusal::said(format!("ERR reason is longer than {REASON_BYTES_MAX} bytes")));
    }

    let breaker = breaker_of(call.session, reason);
    let is_broken = call.view.locks().break_hold(name, token, breaker);
    if is_broken {
        let (client, user) = (&call.session.client, LogName(call.session.account.name()));
        let (id, peer, key) = (client.id, &client.address.peer, LogName(name));
        // A text in quotes, whose blanks make no field.
        let said = String::from_utf8_lossy(reason.unwrap_or_default());
        tracing::info!(client = id, %user, peer, %key, token, reason = &*said, "A lock is broken");
        call.audit("break", |line| {
            line.text("key", name);
            line.number("token", token);
            line.text("reason", reason.unwrap_or_default());
        });
    }

    call.reply.integer(i64::from(is_broken));
    Ok(Outcome::Replied)
}

/// Who breaks a lock: the user and the address of the session.
pub(in crate::commands) fn breaker_of(session: &Session, text: Option<&[u8]>) -> Breaker {
    let user = session.account.name();
    Breaker {
        user: Bytes::copy_from_slice(&user[..user.len().min(NAME_BYTES_SHOWN)]),
        peer: session.client.address.peer.as_str().into(),
        text: text.map(Bytes::copy_from_slice),
    }
}

pub(super) fn guard(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let resource = call.args.word()?;
    let token = token_of(call.args.integer()?)?;
    call.args.finish()?;

    let entry = call.view.entry(resource);
    let highest =
        entry.string()?.map(|text| redlatch_proto::number::integer(text).ok_or(Refusal::NotAnInteger));
    let highest = highest.transpose()?.unwrap_or(0);
    if number(token) < highest {
        return Err(Refusal::said(format!("STALE token {token} is lower than {highest}")));
    }
    if number(token) > highest {
        entry.put(token.to_string().as_bytes(), Lease::Keep);
        call.view.event(b'$', "set", resource);
    }

    call.reply.integer(1);
    Ok(Outcome::Replied)
}

/// The answer to SAME where there is nothing that it can be.
const NO_LEASE: &str = "NOLEASE the lock has no lease: set one with LEASE";
