//! One process of the crash simulation: its clock, its connections, and how it goes on from a journal.
//!
//! Owns    the defects of a server and of a start, which are canaries.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use redlatch_core::engine::Engine;
use redlatch_core::journal::log::{Log, Owed};
use redlatch_core::journal::recovery::{self, Ending, Found, Machine, Resume, Terms};
use redlatch_core::keyspace::{CopyCursor, Due, Keyspace};
use redlatch_core::state::session::Session;
use redlatch_proto::clock::{Clock, LockTime, Now};

use super::crash_clients::LONGEST_LEASE_MS;

/// How the server or its start is broken. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Defect {
    None,
    /// Replies do not wait for the disk.
    AnswersBeforeSync,
    /// Replies do not wait for the journal.
    AnswersBeforeWrite,
    /// Extends are allowed in quarantine.
    ExtendsInQuarantine,
    /// A start forgets the quarantine of the process before.
    ForgetsQuarantine,
    /// A start does not look for the mark of a failed sync outside of the disk.
    ForgetsFailedSyncs,
    /// Lock time jumps ahead at a reboot.
    JumpsAhead,
    /// A start does not know the horizon.
    NoHorizon,
    /// After a loss of power, tokens go on where the journal ends.
    RepeatsTokens,
    /// A start does not mind that the disk was attached again on the same boot.
    TrustsTheBoot,
    /// A start does not mind what a disk has lost that was synced.
    TrustsRottenDisks,
}

pub(super) const DEFECTS: &[Defect] = &[
    Defect::AnswersBeforeSync,
    Defect::AnswersBeforeWrite,
    Defect::ExtendsInQuarantine,
    Defect::ForgetsQuarantine,
    Defect::ForgetsFailedSyncs,
    Defect::JumpsAhead,
    Defect::NoHorizon,
    Defect::RepeatsTokens,
    Defect::TrustsTheBoot,
    Defect::TrustsRottenDisks,
];

/// Real time, in which all clients live, and the clock of the server that serves.
#[derive(Debug)]
pub(super) struct ServerClock {
    pub(super) real_ms: Arc<AtomicU64>,
    pub(super) wall_offset_ms: Arc<AtomicI64>,
    /// Lock time at this real time.
    pub(super) origin: (u64, u64),
    /// By how many millionths it is faster than real time.
    pub(super) faster_ppm: i64,
}

impl Clock for ServerClock {
    fn now(&self) -> Now {
        let (lock_ms, real_ms) = self.origin;
        let now_ms = self.real_ms.load(SeqCst);
        let lock_ms = lock_ms + passed_ms(now_ms - real_ms, self.faster_ppm);
        let wall_offset_ms = self.wall_offset_ms.load(SeqCst) + now_ms as i64 - lock_ms as i64;
        Now { lock: LockTime::from_millis(lock_ms), wall_offset_ms }
    }

    fn micros(&self) -> u64 {
        self.real_ms.load(SeqCst) * 1_000
    }

    fn wall_micros(&self) -> u64 {
        self.now().wall().as_millis() * 1_000
    }
}

/// What a clock counts in this real time, if it is faster by so many millionths.
pub(super) fn passed_ms(real_ms: u64, faster_ppm: i64) -> u64 {
    real_ms.saturating_add_signed(real_ms as i64 * faster_ppm / 1_000_000)
}

/// A connection as the server has it.
pub(super) struct Connection {
    pub(super) session: Session,
    pub(super) output: String,
    pub(super) owed: Owed,
}

pub(super) struct Server {
    pub(super) engine: Engine,
    pub(super) log: Arc<Log>,
    pub(super) connections: Vec<Connection>,
    pub(super) copy: Option<CopyCursor>,
    /// Whether a sync is asked for before its time.
    pub(super) is_sync_wanted: bool,
}

impl Server {
    pub(super) fn keyspace(&self) -> &Keyspace {
        &self.engine.shared().keyspace
    }

    pub(super) fn now(&self) -> Now {
        self.engine.shared().clock.now()
    }

    /// Removes what has expired, and finishes calls that have waited. Returns whether there are new replies.
    pub(super) fn finish_waits(&mut self) -> bool {
        while self.engine.tick() == Due::More {}
        let mut is_answered = false;
        for connection in &mut self.connections {
            let mut out = Vec::new();
            if connection.session.parked.is_some() {
                self.engine.resume(&mut connection.session, &mut out);
                connection.session.client.collect(&mut out);
            }
            if !out.is_empty() {
                connection.owed = self.log.owed();
                connection.output = String::from_utf8(out).expect("an answer in ASCII");
                is_answered = true;
            }
        }
        is_answered
    }
}

/// How the server goes on, with the defect of a start.
pub(super) fn resumed(found: &mut Found, machine: Machine, terms: &Terms, defect: Defect) -> Resume {
    match defect {
        Defect::ForgetsQuarantine => found.horizon.quarantine_until = LockTime::from_millis(0),
        Defect::NoHorizon => found.horizon.until = LockTime::from_millis(0),
        Defect::RepeatsTokens => found.horizon.tokens_until = found.horizon.token,
        Defect::TrustsRottenDisks if found.ending == Ending::Damaged => found.ending = Ending::Killed,
        _ => {}
    }
    // An operator says how long the longest lease is, which damage asks for.
    let startup_guard_ms = if found.ending == Ending::Damaged { LONGEST_LEASE_MS } else { 0 };
    let mut resume = recovery::resume(found, machine, &Terms { startup_guard_ms, ..*terms });
    let is_other_boot = found.opened.as_ref().is_some_and(|opened| opened.boot != machine.boot);
    if defect == Defect::JumpsAhead && is_other_boot {
        resume.now = resume.now + JUMP_MS;
        resume.quarantine = resume.quarantine.filter(|(until, _)| *until > resume.now);
    }
    resume
}

/// How far lock time jumps, where it does.
const JUMP_MS: u64 = 20_000;
