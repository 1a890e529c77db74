//! LOCK.TRANSFER: an owner hands its lock over to another one.
//!
//! Rule    the old hold ends and the new one begins in one call, with the shard of the key locked: nobody sees the lock free.
//! Rule    a request of the new owner that waits for this lock alone is answered before all others, on its own terms. Without
//!         such a request the new owner has the lock for a lease, and no connection.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::error::Refusal;

use super::replies::answer_hold;
use super::{millis_of, owner_of, take_token};
use crate::commands::{Call, Outcome};
use crate::keyspace::{View, Waiter, attempt};
use crate::locks::{EndReason, HolderRequest, LockRequest, Priority, RequestOutcome, Term};
use crate::state::wait::Place;

pub(super) fn transfer(call: &mut Call<'_, '_>) -> Result<Outcome, Refusal> {
    let key = call.args.word()?;
    let owner = owner_of(call.args.word()?)?;
    if !call.args.take("TO") {
        return Err(Refusal::Syntax);
    }
    let new = owner_of(call.args.word()?)?;
    let token = take_token(&mut call.args)?;
    let lease_ms = match call.args.take("LEASE") {
        true => Some(millis_of(call.args.integer()?, 1, "lease")?),
        false => None,
    };
    call.args.finish()?;
    if owner == new {
        return Err(Refusal::said("ERR a lock cannot be transferred to its own owner"));
    }
    let hold = call.view.locks().hold_of(key, owner);
    if hold.is_none_or(|hold| token.is_some_and(|token| token != hold.token)) {
        call.comes_to(RequestOutcome::NotHeld(HolderRequest::Transfer), key, Some(owner));
        return Err(Refusal::said(NOT_HELD));
    }
    if call.view.locks().hold_of(key, new).is_some() {
        return Err(Refusal::said("ERR the new owner holds this lock already"));
    }

    match (take_request(call.view, key, owner, new), lease_ms) {
        (Some(waiter), _) => {
            end(call.view, key, owner);
            call.view.queues().hand_over(&waiter);
        }
        (None, Some(lease_ms)) => grant(call.view, key, owner, (new, lease_ms))?,
        (None, None) => return Err(Refusal::said(NO_LEASE)),
    }

    match call.view.locks().hold_of(key, new) {
        Some(hold) => answer_hold(&mut call.reply, hold.token, hold.lease_ms),
        // Its session has ended in this instant.
        None => call.reply.null_array(),
    }
    Ok(Outcome::Replied)
}

/// The first request of the new owner that can be answered with the lock, which nothing else answers from now on.
fn take_request(view: &mut View<'_>, key: &[u8], owner: &[u8], new: &[u8]) -> Option<Arc<Waiter>> {
    let is_its = |waiter: &&Arc<Waiter>| waiter.serve.asker().is_some_and(|asker| asker.owner == new);
    let waiters = view.queues().lock_waiters(key).filter(is_its);
    let waiters: Vec<_> = waiters.filter(|waiter| waiter.serve.takes_over()).cloned().collect();
    waiters.into_iter().find(|waiter| {
        let mode = waiter.serve.asker().map(|asker| asker.request.mode_at(0));
        mode.is_some_and(|mode| view.locks().is_open_without(key, owner, mode)) && waiter.wait.claim.take()
    })
}

fn end(view: &mut View<'_>, key: &[u8], owner: &[u8]) {
    view.locks().end_hold(key, owner, EndReason::Transferred, |_| true);
}

/// Gives the new owner, which does not wait for this lock alone, what the owner holds.
fn grant(
    view: &mut View<'_>,
    key: &[u8],
    owner: &[u8],
    (new, lease_ms): (&[u8], u64),
) -> Result<(), Refusal> {
    let mode = view.locks().mode_of(key, owner);
    let (owner_of_next, term) = (Bytes::copy_from_slice(new), Term::Lease(lease_ms));
    let (meta, client, priority, several) = (Box::default(), 0, Priority::default(), None);
    let request = LockRequest { mode, owner: owner_of_next, term, meta, client, priority, several };
    end(view, key, owner);
    attempt(view, key, &request, Place::FIRST)?;
    view.queues().serve_owner(key, new);
    Ok(())
}

const NOT_HELD: &str = "NOTHELD the owner does not hold this lock, or not with this token";
/// The answer without LEASE where nothing else says how long the lock lasts.
const NO_LEASE: &str = "NOLEASE no wait of the new owner can be answered: set a lease with LEASE";
