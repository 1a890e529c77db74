//! A node of the replicated simulation: what the shell of a node does, on a thread that blocks.
//!
//! Owns    the order of its steps: join, look, seize, load, serve, keep, stop, release.

use std::sync::Arc;

use redlatch_core::journal::Mode;
use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::{Log, SyncError};
use redlatch_core::journal::recovery::{self, Machine, Terms};
use redlatch_core::keyspace::{Copied, CopyCursor, Keyspace};
use redlatch_core::replication::cluster::{Agreed, Cluster, JoinError, Keys, Member, Part};
use redlatch_core::replication::restored::{self, Memory};
use redlatch_core::replication::standby::{SightError, Standby};
use redlatch_core::replication::term::Term;
use redlatch_proto::clock::{Clock, LockTime};

use super::crash_clients::LEASE_MS_MAX;
use super::parts::{DATABASES, layout};
use super::replicated::{Defect, TAKEOVER_MS};
use super::replicated_etcd::Port;

pub(super) const PREFIX: &str = "locks/";
/// The port of the first node.
const PORT: usize = 7_000;
/// How often a standby looks, and how often a leader commits without a request.
const LOOK_EVERY_MS: u64 = 100;
const HEARTBEAT_MS: u64 = 300;
/// How long after a call that has failed etcd is asked again.
const AGAIN_MS: u64 = 40;

/// The life of a process.
pub(super) fn run(port: &Arc<Port>, incarnation: u64) {
    let mut id = [0; 20];
    id[..8].copy_from_slice(&incarnation.to_le_bytes());
    let part = port.part();
    let agreed = Agreed { takeover_ms: TAKEOVER_MS, databases: DATABASES, part };
    let cluster = loop {
        match Cluster::join(&**port, keys(part), agreed.clone(), id) {
            Ok(cluster) => break cluster,
            Err(JoinError::Etcd(_)) => {}
            Err(error) => return port.fail(&error.to_string()),
        }
        if !port.pause(AGAIN_MS) {
            return;
        }
    };
    let member =
        Member { id: format!("{}-{incarnation}", port.node), addresses: vec![address_of(port.node)] };
    let mut standby = Standby::new(cluster.clone(), member.clone(), port.memory());
    loop {
        standby.be_second(!port.is_first());
        let sight = standby.look(&**port, || port.boot());
        port.remember(*standby.memory());
        if let Ok(sight) = &sight {
            port.note_leader(sight.leader.as_ref());
        }
        match sight {
            Ok(sight) if sight.is_due => {
                // Without an answer, the next look tells.
                if let Ok(Some(term)) = standby.seize(Arc::clone(port) as _) {
                    lead(port, &term);
                    standby = Standby::new(cluster.clone(), member.clone(), port.memory());
                }
            }
            Ok(sight) if sight.is_restored && port.world.lock().restores == 0 => {
                return port.fail("the log counts as restored");
            }
            Ok(sight) if sight.is_restored && port.defect() == Defect::AcceptsRestored => {
                // If it fails, the next look tells.
                let _ = restored::accept(&**port, &cluster.keys, Some(0));
            }
            Ok(_) | Err(SightError::Etcd(_)) => {}
            Err(error) => return port.fail(&error.to_string()),
        }
        if !port.pause(LOOK_EVERY_MS) {
            return;
        }
    }
}

/// The names of the keys of a group.
pub(super) fn keys(part: Part) -> Keys {
    match part.groups {
        1 => Keys::under(PREFIX),
        _ => Keys::under(&format!("{PREFIX}{}/", part.group)),
    }
}

/// What a node announces.
pub(super) fn address_of(node: usize) -> String {
    format!("127.0.0.1:{}", PORT + node)
}

/// Restores what the log has, and serves until another node leads or the node is to stop.
fn lead(port: &Arc<Port>, term: &Term) {
    let Ok(files) = term.load() else { return };
    let machine = Machine { boot: None, boot_ms: 0, volume: Volume::default() };
    let terms = Terms {
        server: [7; 20],
        mode: Mode::Always,
        fresh: LockTime::from_millis(port.wall_ms()),
        startup_guard_ms: 0,
        lease_ms_max: LEASE_MS_MAX,
        lacks: term.lacks().filter(|_| port.defect() != Defect::LacksNothing),
    };
    let mut keyspace = Keyspace::new(layout(None), || {});
    let mut replay = keyspace.replay();
    let found = recovery::read(files, keyspace.seed(), &mut |now, mutations| {
        replay.at(now);
        mutations.iter().for_each(|mutation| replay.apply(mutation));
    });
    let found = match found {
        Ok(found) => found,
        Err((number, why)) => return port.fail(&format!("file {number} {why}")),
    };
    let mut resume = recovery::resume(&found, machine, &terms);
    if port.defect() == Defect::JumpsAhead && found.opened.is_some() {
        resume.now = resume.now + 2_000;
    }
    let session_locks = replay.finish(resume.now, TAKEOVER_MS).session_locks;
    keyspace.raise_tokens(resume.token);
    let start = recovery::beginning(&found, &resume, machine, &terms, keyspace.tokens());
    let log = Arc::new(Log::start(Box::new(term.clone()), start).expect("nothing is written yet"));
    keyspace.set_journal(Arc::clone(&log) as _);
    let clock = port.clock_from(resume.now);
    // Nothing is served before the new file is in the log.
    loop {
        match log.sync(clock.now().lock, port.boot_ms()) {
            Ok(()) => break,
            Err(SyncError::Sync(_)) => return,
            Err(_) if port.pause(AGAIN_MS) => {}
            Err(_) => return,
        }
    }
    if port.is_dead() {
        return;
    }
    // Without an answer, the next leader begins with a quarantine, too.
    let _ = term.end_restore();
    if port.is_dead() {
        return;
    }
    let started = (&found, &resume, session_locks);
    port.world.lock().serve(port.node, keyspace, Arc::clone(&log), Arc::clone(&clock), started);
    let is_released = keep(port, term, &log, &*clock) && log.stop(clock.now().lock, port.boot_ms()).is_ok();
    if is_released {
        // If it fails, the others wait.
        let _ = term.release();
    }
}

/// Commits until the term is over. Returns whether the node is to stop.
fn keep(port: &Port, term: &Term, log: &Log, clock: &dyn Clock) -> bool {
    let (mut copy, mut is_copied, mut pause_ms) = (CopyCursor::default(), false, HEARTBEAT_MS);
    loop {
        if !port.pause(pause_ms) {
            return false;
        }
        port.world.lock().look_at_balance(port.node);
        if port.world.lock().stops(port.node) {
            log.write();
            port.world.lock().term_ends(port.node);
            return true;
        }
        // A file is large enough for a copy after some megabytes. The copies of a run are of another age.
        if !log.is_copying() && port.world.lock().rng.one_in(15) {
            log.begin_copy(clock.now().lock, port.boot_ms()).expect("there is room");
        }
        if log.is_copying() && !is_copied {
            is_copied = port.world.lock().copy(port.node, &mut copy) == Copied::All;
            if is_copied {
                log.end_copy();
            }
        }
        let synced = log.sync(clock.now().lock, port.boot_ms());
        port.remember(Memory { promised: log.promised(clock.now().lock), ..term.memory() });
        match synced {
            Ok(()) if port.is_dead() => return false,
            Ok(()) => {
                port.world.lock().leave(port.node);
                if std::mem::take(&mut is_copied) {
                    copy = CopyCursor::default();
                    // What is not removed now is removed after the next copy.
                    let _ = log.remove_older();
                }
                pause_ms = if log.is_copying() { 3 } else { HEARTBEAT_MS };
            }
            Err(SyncError::Sync(_)) => {
                if !port.is_dead() {
                    port.world.lock().term_fails(port.node);
                }
                return false;
            }
            Err(_) => pause_ms = AGAIN_MS,
        }
    }
}
