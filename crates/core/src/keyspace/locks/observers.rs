//! Those who see what happens to locks, and what becomes of requests for them; and the two that every server has: sessions,
//! and messages to holders.
//!
//! Owns    [`LockObserver`], the push message `lock-lost`, and the channel `__lock__:key`.
//! Rule    the observers see the events of a call in their order at its end, before its shards are unlocked.
//! Rule    the holder of a lock is told of its end unless it has released the lock. A client that has not taken the lock
//!         by a LOCK command is told nothing.
//! Rule    the holder alone is told who has broken its lock; the channel has the REASON only.

use std::fmt::Debug;

use bytes::Bytes;
use redlatch_proto::resp::{Protocol, Reply};

use crate::keyspace::View;
use crate::locks::{LockChange, LockEvent, RequestEvent};
use crate::state::registries::Registries;

/// Sees what happens to locks. Called with the shards of the call locked: it may look, and send messages, but changes no key.
pub trait LockObserver: Debug + Send + Sync {
    /// Sees what has happened to a lock.
    fn see(&self, _event: &LockEvent, _view: &mut View<'_>, _registries: &Registries) {}

    /// Sees what a request for a lock has come to.
    fn asked(&self, _event: &RequestEvent, _view: &mut View<'_>, _registries: &Registries) {}

    /// A key that was no lock has expired. Called only while every event is wanted.
    fn key_expired(&self, _key: &Bytes) {}

    /// Whether it wants every event of every lock and every request. Otherwise it sees them while LOCK.LINT is on, and
    /// always the ends of locks that a LOCK command has granted and that have not been released; of requests, those that
    /// `ViewLocks::comes_to` names.
    fn wants_all(&self) -> bool {
        false
    }
}

/// What the observers see, in the order of the call.
#[derive(Debug)]
pub(in crate::keyspace) enum Observed {
    /// Something has happened to a lock.
    Change(LockEvent),
    /// A key that was no lock has expired.
    Expiry(Bytes),
    /// A request has come to something.
    Request(RequestEvent),
}

/// Takes locks out of their sessions that have ended, or belong to another session.
#[derive(Debug)]
pub(crate) struct Sessions;

impl LockObserver for Sessions {
    fn see(&self, event: &LockEvent, _view: &mut View<'_>, registries: &Registries) {
        let left = match &event.change {
            LockChange::Granted => None,
            LockChange::Renewed(before) => before.session.filter(|_| before.session != event.session),
            LockChange::Ended(..) => event.session,
        };
        if let Some(session) = left {
            registries.lock_sessions.forget(session, event.database, &event.key, event.token);
        }
    }
}

/// Tells the holder of a lock, and the subscribers of its channel, that the lock was lost.
#[derive(Debug)]
pub(crate) struct Messages;

impl LockObserver for Messages {
    fn see(&self, event: &LockEvent, _view: &mut View<'_>, registries: &Registries) {
        let LockChange::Ended(reason, breaker) = &event.change else { return };
        if !reason.is_loss() || !event.is_native {
            return;
        }
        if let Some(client) = registries.clients.get(event.client)
            && client.protocol() == Protocol::Resp3
        {
            let mut message = Vec::new();
            let mut push = Reply::new(&mut message, Protocol::Resp3);
            push.push(if breaker.is_some() { 7 } else { 4 });
            push.bulk(b"lock-lost");
            push.bulk(&event.key);
            push.integer(i64::try_from(event.token).unwrap_or(i64::MAX));
            push.bulk(reason.name().as_bytes());
            if let Some(breaker) = breaker {
                match &breaker.text {
                    Some(text) => push.bulk(text),
                    None => push.null(),
                }
                push.bulk(&breaker.user);
                push.bulk(breaker.peer.as_bytes());
            }
            client.deliver(&message);
        }
        let mut text = format!("lost {} {}", event.token, reason.name()).into_bytes();
        if let Some(said) = breaker.as_ref().and_then(|breaker| breaker.text.as_ref()) {
            text.push(b' ');
            text.extend_from_slice(said);
        }
        registries.channels.publish(&[b"__lock__:", &event.key[..]].concat(), &text);
    }
}
