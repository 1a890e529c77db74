//! Locks that move into a cluster and out of it, while the move is killed at each of its steps.
//!
//! Laws    after each kill the locks can be used where they were, or where they go, or nowhere; and who does not start says
//!         what to run. No server starts with nothing while the cluster is gone. To run the move again always ends it: then
//!         every lock is held by the same token, and later tokens are higher.
//! Faults  [`Trouble`] at each step: a kill, also with a loss of power, a full disk, an etcd that does not answer, and
//!         transactions of the killed process that arrive later.
//! Canaries the order of the steps that exports had first, and others: [`Order`].

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use redlatch_core::commands::Shared;
use redlatch_core::engine::Engine;
use redlatch_core::journal::Mode;
use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::{Log, Storage};
use redlatch_core::journal::recovery::{self, Ending, Machine, Resume, Terms};
use redlatch_core::keyspace::{Copied, CopyCursor, Keyspace};
use redlatch_core::replication::cluster::{Agreed, Cluster, JoinError, Keys, Member, Part};
use redlatch_core::replication::etcd::{Etcd, Operation, Transaction};
use redlatch_core::replication::marks::{self, Mark};
use redlatch_core::replication::moving::{self, Arrival, Departure, MoveError, Pace, Prefix};
use redlatch_core::replication::restored::Memory;
use redlatch_core::replication::standby::Standby;
use redlatch_core::replication::term::Term;
use redlatch_core::state::clients::Client;
use redlatch_core::state::settings::Settings;
use redlatch_proto::clock::{Clock, LockTime};
use redlatch_proto::resp::Request;

use super::crash_server::ServerClock;
use super::moves_disk::{Disk, Life, OpenDisk, TROUBLES, Trouble, Wire};
use super::parts::{DATABASES, layout};
use super::replicated_etcd::Near;
use crate::support::interpreter::INTERPRETER;
use crate::support::rng::Rng;

/// Which way the locks move.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Way {
    Export,
    Import,
}

/// The order of the steps. All but the first are canaries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Order {
    Sound,
    /// The mark of an export is taken away before the locks have left etcd.
    EndsBeforeItLeaves,
    /// No node joins the cluster any more, and the directory does not say so before the end.
    LeavesBeforeItMarks,
    /// The cluster is there before the directory says so.
    ArrivesBeforeItMarks,
    /// Marks are not synced.
    SyncsNoMarks,
}

/// The canaries of each way.
pub(super) const DEFECTS: &[(Way, Order)] = &[
    (Way::Export, Order::EndsBeforeItLeaves),
    (Way::Export, Order::LeavesBeforeItMarks),
    (Way::Export, Order::SyncsNoMarks),
    (Way::Import, Order::ArrivesBeforeItMarks),
    (Way::Import, Order::SyncsNoMarks),
];

const TAKEOVER_MS: u64 = 1_000;
/// The lease of the locks that are moved: no run is as long.
const LEASE: &str = "6000000";
/// Steps above which a move does not end.
const STEPS_MAX: usize = 1_000;

/// Where the locks can be used, and why not.
#[derive(Debug)]
enum Found {
    Nothing,
    Refused(String),
    Usable,
}

struct World {
    way: Way,
    order: Order,
    rng: Rng,
    etcd: Arc<Near>,
    disk: Disk,
    real_ms: Arc<AtomicU64>,
    /// The locks that are held, with their tokens.
    held: BTreeMap<String, u64>,
    /// The highest token.
    token: u64,
    taken: u64,
    ids: u8,
}

/// Troubles each step of one move, one after the other, each in a world of its own. Returns how many steps there are.
pub(super) fn run(seed: u64, way: Way, order: Order) -> Result<usize, String> {
    for step in 1..STEPS_MAX {
        let mut is_over = false;
        for (trouble, power_fails) in
            TROUBLES.iter().flat_map(|trouble| [(*trouble, false), (*trouble, true)])
        {
            let mut world = World::new(seed, way, order);
            let steps = world.go_through((step, trouble), power_fails);
            is_over |= steps.map_err(|why| format!("{way:?}, {trouble:?} at step {step}: {why}"))? < step;
        }
        if is_over {
            return Ok(step - 1);
        }
    }
    Err(format!("{way:?}: more than {STEPS_MAX} steps"))
}

impl World {
    fn new(seed: u64, way: Way, order: Order) -> Self {
        Self {
            way,
            order,
            rng: Rng::new(seed),
            etcd: Arc::default(),
            disk: Disk::default(),
            real_ms: Arc::new(AtomicU64::new(1_000_000)),
            held: BTreeMap::new(),
            token: 0,
            taken: 0,
            ids: 0,
        }
    }

    /// One move with this trouble, and what comes after it. Returns the steps of the process that was in trouble.
    fn go_through(&mut self, trouble: (usize, Trouble), power_fails: bool) -> Result<usize, String> {
        for _ in 0..1 + self.rng.below(2) {
            match self.way {
                Way::Export => self.lead()?,
                Way::Import => self.serve_alone()?,
            }
        }
        let life = Life::with(Some(trouble));
        let wire = Wire::new(&self.etcd, &life);
        // An error says that the move is to be run again, if it is not over.
        let _ = self.moves(&wire);
        if power_fails && life.is_dead() {
            self.disk.lose_power(&mut self.rng);
        }
        let late = self.rng.below(3);
        for moment in 0..2 {
            if late == moment {
                wire.deliver();
            }
            self.check()?;
            if moment == 0 && self.rng.one_in(2) {
                self.go_on()?;
            }
        }
        let again = Wire::new(&self.etcd, &Life::with(None));
        self.moves(&again).map_err(|error| format!("run again: {error}"))?;
        wire.deliver();
        self.check()?;
        match (self.way, self.cluster()?, self.directory()?) {
            (Way::Export, Found::Refused(_), Found::Usable)
            | (Way::Import, Found::Usable, Found::Refused(_)) => {}
            (_, cluster, directory) => return Err(format!("run again: {cluster:?}, {directory:?}")),
        }
        self.go_on()?;
        match self.moves(&again) {
            Ok(false) => Ok(life.steps()),
            other => Err(format!("run again when it is over: {other:?}")),
        }
    }

    /// The law.
    fn check(&self) -> Result<(), String> {
        let (cluster, directory) = (self.cluster()?, self.directory()?);
        match (self.way, &cluster, &directory) {
            // Where they were.
            (Way::Export, Found::Usable, Found::Nothing | Found::Refused(_))
            | (Way::Import, Found::Nothing | Found::Refused(_), Found::Usable)
            // Where they go.
            | (Way::Export, Found::Refused(_), Found::Usable)
            | (Way::Import, Found::Usable, Found::Refused(_)) => Ok(()),
            (_, Found::Refused(one), Found::Refused(other))
                if [one, other].iter().all(|why| why.contains("again")) => Ok(()),
            _ => Err(format!("cluster: {cluster:?}, directory: {directory:?}")),
        }
    }

    /// Whether nodes have the locks.
    fn cluster(&self) -> Result<Found, String> {
        // A node would found a cluster.
        if self.etcd.store.lock().value(&keys().cluster()).is_none() {
            return Ok(Found::Nothing);
        }
        match Cluster::join(&*self.etcd, keys(), agreed(), [0; 20]) {
            Ok(_) => Ok(Found::Usable),
            Err(JoinError::Moving(why)) => Ok(Found::Refused(why.to_owned())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether a server by itself has the locks.
    fn directory(&self) -> Result<Found, String> {
        match marks::refusal(|name| self.disk.has(name)) {
            Some(why) => Ok(Found::Refused(why.to_owned())),
            None if self.disk.journal().is_empty() => Ok(Found::Nothing),
            None => Ok(Found::Usable),
        }
    }

    /// The locks are used where they can be.
    fn go_on(&mut self) -> Result<(), String> {
        if let Found::Usable = self.cluster()? {
            self.lead()?;
        }
        if let Found::Usable = self.directory()? {
            self.serve_alone()?;
        }
        Ok(())
    }

    /// A node leads for a while.
    fn lead(&mut self) -> Result<(), String> {
        let id = self.fresh_id();
        let cluster =
            Cluster::join(&*self.etcd, keys(), agreed(), id).map_err(|error| format!("a node: {error}"))?;
        let me = Member { id: format!("node-{}", id[0]), addresses: Vec::new() };
        let mut standby = Standby::new(cluster, me, Memory::default());
        let etcd: Arc<dyn Etcd> = Arc::clone(&self.etcd) as _;
        let term = loop {
            let boot = || Duration::from_millis(self.real_ms.load(SeqCst));
            let sight = standby.look(&*etcd, boot).map_err(|error| error.to_string())?;
            if sight.is_due
                && let Ok(Some(term)) = standby.seize(Arc::clone(&etcd))
            {
                break term;
            }
            self.real_ms.fetch_add(100, SeqCst);
        };
        let files = term.load().map_err(|error| error.to_string())?;
        let has_stopped = self.serve(files, Box::new(term.clone()), id)?;
        if has_stopped {
            term.release().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// A server by itself uses the directory for a while.
    fn serve_alone(&mut self) -> Result<(), String> {
        let id = self.fresh_id();
        let storage = OpenDisk::new(&self.disk, &Life::with(None));
        self.serve(self.disk.journal(), Box::new(storage), id).map(drop)
    }

    /// Checks what is held, and grants more. Returns whether the server has stopped in good order: else it is killed.
    fn serve(
        &mut self,
        files: Vec<(u64, Cursor<Vec<u8>>)>,
        storage: Box<dyn Storage>,
        id: [u8; 20],
    ) -> Result<bool, String> {
        let Restored { keyspace, log, clock, resume } =
            restore(files, storage, id, false, &self.real_ms).map_err(|error| format!("a start: {error}"))?;
        if let Some(quarantine) = resume.quarantine {
            return Err(format!("a quarantine: {quarantine:?}"));
        }
        let shared = Shared::new(keyspace, Settings::default(), Arc::clone(&clock) as _, 1)
            .with_log(Arc::clone(&log))
            .with_interpreter(INTERPRETER);
        let engine = Engine::new(Arc::new(shared));
        for (key, token) in &self.held {
            let other = ask(&engine, &["LOCK.ACQUIRE", key, "another", "LEASE", "1000", "JUSTTOKEN"]);
            let mine = ask(&engine, &["LOCK.ACQUIRE", key, "me", "LEASE", LEASE, "JUSTTOKEN"]);
            if other.starts_with(':') || mine != format!(":{token}\r\n") {
                return Err(format!("{key} with token {token}: another gets {other:?}, its holder {mine:?}"));
            }
        }
        for _ in 0..1 + self.rng.below(3) {
            self.taken += 1;
            let key = format!("lock {}", self.taken);
            let reply = ask(&engine, &["LOCK.ACQUIRE", &key, "me", "LEASE", LEASE, "JUSTTOKEN"]);
            let token: Option<u64> = reply.strip_prefix(':').and_then(|reply| reply.trim_end().parse().ok());
            let Some(token) = token.filter(|token| *token > self.token) else {
                return Err(format!("{reply:?} after token {}", self.token));
            };
            self.token = token;
            if self.rng.one_in(3) {
                ask(&engine, &["LOCK.RELEASE", &key, "me"]);
            } else {
                self.held.insert(key, token);
            }
        }
        log.write();
        let now = clock.now().lock;
        log.sync(now, now.as_millis()).map_err(|error| error.to_string())?;
        let stops = self.rng.one_in(2);
        if stops {
            log.stop(now, now.as_millis()).map_err(|error| error.to_string())?;
        }
        self.real_ms.fetch_add(self.rng.below_u64(100), SeqCst);
        Ok(stops)
    }

    fn fresh_id(&mut self) -> [u8; 20] {
        self.ids += 1;
        [self.ids; 20]
    }

    /// A process moves the locks. Returns whether they were where they come from.
    fn moves(&mut self, wire: &Arc<Wire>) -> Result<bool, MoveError> {
        let ids = [self.fresh_id(), self.fresh_id()];
        let mut disk = OpenDisk::new(&self.disk, &wire.life);
        disk.syncs_no_marks = self.order == Order::SyncsNoMarks;
        let prefix = Prefix { etcd: Arc::clone(wire) as _, keys: keys(), agreed: agreed() };
        let moved = match self.way {
            Way::Export => self.exports(prefix, &disk, ids),
            Way::Import => self.imports(prefix, &disk, ids[0]),
        };
        Ok(moved?.is_some())
    }

    fn exports(&self, from: Prefix, disk: &OpenDisk, ids: [[u8; 20]; 2]) -> Result<Option<()>, MoveError> {
        let real_ms = &self.real_ms;
        let pause = || _ = real_ms.fetch_add(100, SeqCst);
        let pace = Pace { pause, now: || Duration::from_millis(real_ms.load(SeqCst)) };
        let copy = |term: &Term| {
            let files = term.load().map_err(|error| error.to_string())?;
            restore(files, Box::new(disk.clone()), ids[0], true, real_ms)?.stop()
        };
        let etcd = Arc::clone(&from.etcd);
        let begin = || Departure::begin(from.clone(), disk, ids, pace);
        match self.order {
            Order::EndsBeforeItLeaves => {
                let Some(departure) = begin()? else { return Ok(None) };
                departure.mark()?;
                copy(&departure.term).map_err(MoveError::Copy)?;
                departure.end()?;
                departure.leave()?;
                Ok(Some(()))
            }
            Order::LeavesBeforeItMarks => {
                let Some(departure) = begin()? else { return Ok(None) };
                let text = self.etcd.store.lock().value(&keys().cluster()).expect("a cluster");
                let value = [&b"leaving "[..], &text].concat().into();
                let then = vec![Operation::Put { key: keys().cluster(), value }];
                etcd.transact(&Transaction { then, ..Transaction::default() })?;
                copy(&departure.term).map_err(MoveError::Copy)?;
                departure.leave()?;
                Mark::Exported(ids[0]).put(disk)?;
                Ok(Some(()))
            }
            _ => moving::export(from, disk, ids, pace, copy),
        }
    }

    fn imports(&self, to: Prefix, disk: &OpenDisk, id: [u8; 20]) -> Result<Option<()>, MoveError> {
        let image = || {
            let image = OpenDisk::new(&Disk::default(), &Life::with(None));
            let files = self.disk.journal();
            restore(files, Box::new(image.clone()), id, true, &self.real_ms)?.stop()?;
            let (number, bytes) = image.disk.journal().pop().expect("the copy");
            Ok(((), number, bytes.into_inner()))
        };
        if self.order != Order::ArrivesBeforeItMarks || Mark::of(disk)? != Mark::Absent {
            return moving::import(to, disk, id, image);
        }
        let ((), number, bytes) = image().map_err(MoveError::Copy)?;
        let arrival = Arrival::begin(to, id)?;
        let head = arrival.put(number, &bytes)?;
        arrival.end(head)?;
        Mark::Moved(id).put(disk)?;
        Ok(Some(()))
    }
}

fn keys() -> Keys {
    Keys::under("a/")
}

fn agreed() -> Agreed {
    Agreed { takeover_ms: TAKEOVER_MS, databases: DATABASES, part: Part::default() }
}

/// A keyspace that goes on from a journal.
struct Restored {
    keyspace: Keyspace,
    log: Arc<Log>,
    clock: Arc<ServerClock>,
    resume: Resume,
}

impl Restored {
    fn stop(self) -> Result<(), String> {
        let now = self.clock.now().lock;
        self.log.stop(now, now.as_millis()).map_err(|error| error.to_string())
    }
}

/// Goes on from the files of a journal as a server does that starts. `copies`: the new file has all live keys.
fn restore(
    files: Vec<(u64, Cursor<Vec<u8>>)>,
    storage: Box<dyn Storage>,
    server: [u8; 20],
    copies: bool,
    real_ms: &Arc<AtomicU64>,
) -> Result<Restored, String> {
    let machine = Machine { boot: None, boot_ms: 0, volume: Volume::default() };
    let mut terms = Terms {
        server,
        mode: Mode::Always,
        fresh: LockTime::from_millis(real_ms.load(SeqCst)),
        startup_guard_ms: 0,
        lease_ms_max: 60_000,
        lacks: None,
    };
    let mut keyspace = Keyspace::new(layout(None), || {});
    let (mut replay, is_copied) = (keyspace.replay(), copies && !files.is_empty());
    let found = recovery::read(files, keyspace.seed(), &mut |now, mutations| {
        replay.at(now);
        mutations.iter().for_each(|mutation| replay.apply(mutation));
    });
    let found = found.map_err(|(number, why)| format!("file {number}: {why}"))?;
    if matches!(found.ending, Ending::Torn | Ending::Damaged) {
        return Err(format!("the journal is {:?}", found.ending));
    }
    terms.server = found.opened.as_ref().map_or(server, |opened| opened.server);
    let resume = recovery::resume(&found, machine, &terms);
    replay.finish(resume.now, 0);
    keyspace.raise_tokens(resume.token);
    let start = recovery::beginning(&found, &resume, machine, &terms, keyspace.tokens());
    let log = Arc::new(Log::start(storage, start).map_err(|error| error.to_string())?);
    keyspace.set_journal(Arc::clone(&log) as _);
    let origin = (resume.now.as_millis(), real_ms.load(SeqCst));
    let clock =
        ServerClock { real_ms: Arc::clone(real_ms), wall_offset_ms: Arc::default(), origin, faster_ppm: 0 };
    let (clock, now) = (Arc::new(clock), resume.now);
    if is_copied {
        let mut cursor = CopyCursor::default();
        while keyspace.copy(&mut cursor, now) != Copied::All {
            log.write();
        }
        log.write();
        log.end_copy();
        log.sync(now, now.as_millis()).map_err(|error| error.to_string())?;
        log.remove_older().map_err(|error| error.to_string())?;
    }
    log.sync(now, now.as_millis()).map_err(|error| error.to_string())?;
    Ok(Restored { keyspace, log, clock, resume })
}

/// The reply to one request on a connection of its own.
fn ask(engine: &Engine, words: &[&str]) -> String {
    let id = engine.shared().registries.clients.next_id();
    let now = engine.shared().clock.now().lock;
    let mut session = engine.connect(Client::new(id, "w".into(), "s".into(), false, now));
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let (mut batch, mut out) = (engine.batch(), Vec::new());
    engine.execute(&mut session, Request::listed(&words), &mut batch, &mut out);
    engine.end_batch(&mut session, batch);
    String::from_utf8(out).expect("an answer in ASCII")
}
