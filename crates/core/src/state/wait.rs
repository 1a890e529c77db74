//! A command that waits: until when, for which keys, what it answers at its timeout, and who may end the wait.
//!
//! Owns    [`Wait`], of which a waiting command has one. Its session, its client and the queues of its keys hold it.
//! Rule    the first that takes the [`Claim`] ends the wait: a write that serves it, its timeout, CLIENT UNBLOCK, or the
//!         end of its connection. From then on all others ignore it.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use bytes::Bytes;
use redlatch_proto::clock::LockTime;
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Reply;

use super::clients::Client;
use crate::sync::AtomicBool;

/// The right to end one wait. It can be taken once.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

/// What a command waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitFor {
    /// The value of a key, or its timeout alone.
    Values,
    /// The lock of a key.
    Locks,
}

/// Where a wait stands in its queues, the same in all of them: behind every lower place.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Place {
    /// The instant of its arrival in lock time, less what its priority gains: milliseconds, which may be below zero.
    pub rank: i64,
    /// The number of the wait, which no other wait of the server has: that of a later wait is higher.
    pub number: u64,
}

impl Place {
    /// Before those of all waits.
    pub const FIRST: Self = Self { rank: i64::MIN, number: 0 };

    /// The place of a request that arrives now, and that its priority moves forward by `gain_ms` milliseconds.
    pub fn at(now: LockTime, gain_ms: u64, number: u64) -> Self {
        let since_origin = |millis: u64| i64::try_from(millis).unwrap_or(i64::MAX);
        Self { rank: since_origin(now.as_millis()).saturating_sub(since_origin(gain_ms)), number }
    }
}

/// How a wait has ended, as its connection sees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitEnd {
    /// It was answered by a write, or refused.
    Answered,
    Disconnected,
    TimedOut,
    /// CLIENT UNBLOCK, or a change that forbids the wait, has ended it.
    Unblocked,
}

#[derive(Debug)]
pub struct Wait {
    /// Its place in the queues. Its number is the name of the wait.
    pub place: Place,
    pub kind: WaitFor,
    /// When it times out; `None`: never.
    pub until: Option<LockTime>,
    /// What it answers at its timeout, encoded.
    pub answer: Vec<u8>,
    /// Whether CLIENT REPLY suppresses its answer, whatever ends the wait.
    pub is_muted: bool,
    /// The database of the keys it waits for.
    pub database: u16,
    /// The keys it waits for, if it waits for any.
    pub keys: Vec<Bytes>,
    /// Who may end the wait.
    pub claim: Claim,
    /// Whether it has left the queues of all its keys. Set before its client is answered.
    pub left: AtomicBool,
    /// Whether CLIENT UNBLOCK has ended it. Its connection answers as at the timeout.
    pub unblocked: AtomicBool,
}

impl Wait {
    /// Ends it before its timeout: its connection, which must be woken, answers as at the timeout. False if the wait is over.
    pub fn unblock(&self) -> bool {
        let is_mine = self.claim.take();
        if is_mine {
            self.unblocked.store(true, Release);
        }
        is_mine
    }

    /// Whether [`Wait::unblock`] has ended it.
    pub(crate) fn is_unblocked(&self) -> bool {
        self.unblocked.load(Acquire)
    }

    /// Notes that it has left the queues of all its keys. Its client is answered after that.
    pub fn leave(&self) {
        self.left.store(true, Relaxed);
    }

    /// Whether it has left the queues of all its keys, as the connection sees it that has got the answer.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Appends to `out` what the command answers at its timeout: `refusal`, or its usual answer.
    pub fn time_out(&self, refusal: Option<Vec<u8>>, out: &mut Vec<u8>) {
        if !self.is_muted {
            out.extend_from_slice(refusal.as_ref().unwrap_or(&self.answer));
        }
    }
}

impl Claim {
    /// Takes the claim; false if it was taken before.
    pub fn take(&self) -> bool {
        !self.0.swap(true, AcqRel)
    }

    /// Whether the wait is over, or about to be answered.
    pub fn is_taken(&self) -> bool {
        self.0.load(Acquire)
    }
}

/// A client that waits for the end of something that another thread does.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The client.
    pub client: Arc<Client>,
    /// The wait of its command.
    pub wait: Arc<Wait>,
}

impl Pending {
    /// Answers the client, unless it waits no more.
    pub fn answer(&self, write: impl FnOnce(&mut Reply<'_>)) {
        if self.wait.claim.take() {
            let mut bytes = Vec::new();
            write(&mut Reply::new(&mut bytes, self.client.protocol()));
            self.client.answer(&bytes);
        }
    }

    /// Answers with an error.
    pub fn refuse(&self, refusal: &Refusal) {
        self.answer(|reply| reply.error_bytes(&refusal.line()));
    }
}
