//! A machine that crashes: the real engine, log and recovery on a disk in memory, with clients that go on believing.
//!
//! Faults  kills at any point, also inside a write, a sync or a start; losses of power with other boots; volumes that move
//!         to another machine, and disks that are detached and attached again on the same boot, with a loss or without; clean
//!         stops; disks that are slow, full, broken, dead or rotten; steps of the wall clock.
//! Laws    those of [`super::crash_clients`]; what was acknowledged as durable is there after a restart; after a kill on
//!         the same boot everything is there and nobody waits; a quarantine lasts no longer than the page says.
//! Time    real time is an event queue. Lock time is what the server makes of it.

mod laws;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use redlatch_core::commands::Shared;
use redlatch_core::engine::Engine;
use redlatch_core::journal::Mode;
use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::{GRACE_MS, Log, Owed, SyncError};
use redlatch_core::journal::recovery::{self, Ending, Found, Machine, Resume, Terms};
use redlatch_core::keyspace::{Copied, CopyCursor, Keyspace};
use redlatch_core::state::clients::Client as Peer;
use redlatch_core::state::settings::Settings;
use redlatch_core::types::Seed;
use redlatch_proto::clock::{Clock, LockTime};
use redlatch_proto::resp::Request as Words;

use super::crash_clients::{Client, Hold, LEASE_MS_MAX, Op, Register, Told};
use super::crash_disk::{Disk, Files, Life, SyncEnd};
use super::crash_server::{Connection, Defect, Server, ServerClock, resumed};
use super::parts::{Grants, State, grants, layout, standing};
use crate::support::interpreter::INTERPRETER;
use crate::support::rng::Rng;

const CLIENTS: usize = 4;
/// How long one run lasts, in milliseconds of real time.
const RUN_MS: u64 = 20_000;
const SYNC_EVERY_MS: u64 = 1_000;
/// Real time at the beginning of a run.
const BEGIN_MS: u64 = 1_700_000_000_000;
/// How long a server serves at most.
const CRASH_MS_MAX: u64 = 6_000;
/// What happens at some time.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Event {
    /// A client chooses what to do.
    Act(usize),
    /// The request of a client arrives at the server of that number.
    Arrive(usize, u64),
    /// The next step of the copy of the live keys.
    Copy,
    Crash,
    Deliver(usize, String),
    /// The server of that number writes its journal.
    Flush(u64),
    Kill,
    /// The keeper looks after the journal of the server of that number: because of the time, or because a reply waits.
    Keep(u64, bool),
    /// The disk is full, or is not any more.
    Space,
    Start,
    /// The wall clock is stepped.
    StepWall,
}

/// How the last process ended, the worst of all since the last that served.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum End {
    Stopped,
    Killed,
    /// The machine was another, with the same disk, or the disk was attached again.
    Moved,
    /// The power was lost, or the disk has failed or was torn off.
    PowerLost,
}

/// What must be done without the world being locked, because other events happen meanwhile.
enum Job {
    None,
    /// The live keys have been copied: they are synced, and older files are removed.
    EndCopy,
    Over,
    Start,
    Stop,
    Sync,
}

/// What must be found after the last end of a process.
struct Expected {
    /// How it ended, at worst, since the last that has served.
    end: Option<End>,
    has_served: bool,
    /// The state at the end, if all of it was in the journal.
    state: Option<(State, Grants)>,
    /// The boot, lock time and real time at the end.
    boot: Option<[u8; 16]>,
    time_ms: (u64, u64),
    quarantine_until: Option<LockTime>,
    /// Whether the end of a file cannot be read.
    is_torn: bool,
    /// Whether the disk has lost what was synced.
    is_rotten: bool,
}

/// A machine, its server and its clients.
pub(super) struct World {
    defect: Defect,
    rng: Rng,
    real_ms: Arc<AtomicU64>,
    wall_offset_ms: Arc<AtomicI64>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
    disk: Disk,
    /// The boot of the machine, if the system tells, and when it was.
    boot: Option<[u8; 16]>,
    boot_since_ms: u64,
    boots: u8,
    /// Whether a sync has failed on this boot, as a file in memory says.
    is_marked: bool,
    mode: Mode,
    /// The process that runs, and what it serves once it has started.
    life: Option<Arc<Life>>,
    server: Option<Server>,
    servers: u64,
    /// The process is to end after the next request.
    ends_next: bool,
    clients: Vec<Client>,
    told: Told,
    expected: Expected,
    broken: Option<String>,
    has_rotted: bool,
    end_ms: u64,
}

type WorldHandle = Arc<Mutex<World>>;

/// Runs one world. Returns how often a server has started, or the first broken law.
pub(super) fn run(seed: u64, defect: Defect) -> Result<u64, String> {
    let world = Arc::new(Mutex::new(World::new(seed, defect)));
    loop {
        let job = world.lock().step(false);
        match job {
            Job::None => {}
            Job::EndCopy => end_copy(&world),
            Job::Over => return Ok(world.lock().servers),
            Job::Start => start(&world),
            Job::Stop => stop(&world),
            Job::Sync => {
                sync(&world);
            }
        }
        let world = world.lock();
        if let Some(why) = &world.broken {
            return Err(format!("{} ms, {:?}: {why}", world.now_ms() - BEGIN_MS, world.mode));
        }
    }
}

/// What happens while the disk syncs.
fn during_sync(world: &Weak<Mutex<World>>, life: &Life) -> SyncEnd {
    let Some(world) = world.upgrade() else { return SyncEnd::Works };
    let end_ms = {
        let mut world = world.lock();
        let now_ms = world.now_ms();
        now_ms
            + match world.rng.below(60) {
                0 => world.rng.below_u64(GRACE_MS + 3_000),
                1..4 => world.rng.below_u64(800),
                _ => world.rng.below_u64(20),
            }
    };
    loop {
        let mut world = world.lock();
        if life.is_over() || world.broken.is_some() {
            return SyncEnd::Fails;
        }
        if world.next_ms().is_none_or(|at_ms| at_ms > end_ms) {
            world.real_ms.fetch_max(end_ms, SeqCst);
            return match world.rng.below(500) {
                0 => SyncEnd::Fails,
                1 => SyncEnd::Dies,
                _ => SyncEnd::Works,
            };
        }
        world.step(true);
    }
}

/// Syncs the log of the server. Returns whether that has worked.
fn sync(world: &WorldHandle) -> bool {
    let (log, now, boot_ms) = {
        let world = world.lock();
        let Some(server) = &world.server else { return false };
        (Arc::clone(&server.log), server.now().lock, world.boot_ms())
    };
    let result = log.sync(now, boot_ms);
    let mut world = world.lock();
    match &result {
        Ok(()) => world.leave(),
        Err(SyncError::Write(_) | SyncError::Delayed(_)) => world.show_error(),
        Err(SyncError::Sync(_)) => world.fail(),
    }
    result.is_ok()
}

fn end_copy(world: &WorldHandle) {
    let Some(log) = world.lock().server.as_ref().map(|server| Arc::clone(&server.log)) else { return };
    log.end_copy();
    if sync(world) {
        log.remove_older().expect("the directory can be changed");
    }
}

/// The server ends in good order.
fn stop(world: &WorldHandle) {
    let (log, now, boot_ms) = {
        let mut world = world.lock();
        let Some(server) = &world.server else { return };
        let (log, now) = (Arc::clone(&server.log), server.now().lock);
        log.write();
        world.leave();
        world.server_ends(log.error().is_none());
        (log, now, world.boot_ms())
    };
    let result = log.stop(now, boot_ms);
    let mut world = world.lock();
    if world.life.is_none() {
        return;
    }
    match result {
        Ok(()) => {
            if world.rng.one_in(3) {
                world.change_machine();
            }
            world.process_ends(End::Stopped);
        }
        Err(_) if log.error().is_some() => world.process_ends(End::Killed),
        Err(_) => world.fail(),
    }
}

/// A process starts as the server does: it reads the journal, begins a new file and syncs it before it serves.
fn start(world: &WorldHandle) {
    let (life, files, found_files, mut machine, terms, defect, (is_marked, real_ms)) = {
        let mut locked = world.lock();
        let life = Life::new();
        locked.life = Some(Arc::clone(&life));
        if locked.rng.one_in(8) {
            let delay_ms = locked.rng.below_u64(30);
            locked.schedule(delay_ms, Event::Crash);
        }
        let (handle, of_sync) = (Arc::downgrade(world), Arc::clone(&life));
        let files =
            Files::new(locked.disk.clone(), Arc::clone(&life), move || during_sync(&handle, &of_sync));
        let machine = Machine { boot: locked.boot, boot_ms: locked.boot_ms(), volume: locked.disk.volume() };
        let terms = Terms {
            server: [7; 20],
            mode: locked.mode,
            fresh: LockTime::from_millis(locked.wall_ms()),
            startup_guard_ms: 0,
            lease_ms_max: LEASE_MS_MAX,
            lacks: None,
        };
        let (defect, real_ms) = (locked.defect, locked.now_ms());
        (life, files, locked.disk.files(), machine, terms, defect, (locked.is_marked, real_ms))
    };
    let mut keyspace = Keyspace::new(layout(None), || {});
    let mut replay = keyspace.replay();
    let found = recovery::read(found_files, keyspace.seed(), &mut |now, mutations| {
        replay.at(now);
        mutations.iter().filter(|_| terms.mode != Mode::Memory).for_each(|mutation| replay.apply(mutation));
    });
    let mut found = match found {
        Ok(found) => found,
        Err((number, why)) => {
            world.lock().broken = Some(format!("file {number} {why}"));
            return;
        }
    };
    if defect == Defect::TrustsTheBoot {
        machine.volume = Volume::default();
    }
    if is_marked && defect != Defect::ForgetsFailedSyncs {
        found.note_failed_sync();
    }
    found.settle(machine, true);
    {
        // A start that dies before it serves may have seen it, too, and have begun a quarantine.
        let expected = &mut world.lock().expected;
        expected.is_torn |= expected.end == Some(End::PowerLost) && found.ending == Ending::Torn;
    }
    let resume = resumed(&mut found, machine, &terms, defect);
    replay.finish(resume.now, 0);
    keyspace.raise_tokens(resume.token);
    let begin = recovery::beginning(&found, &resume, machine, &terms, keyspace.tokens());
    let Ok(log) = Log::start(Box::new(files), begin) else {
        return world.lock().start_fails(&life);
    };
    let log = Arc::new(log);
    keyspace.set_journal(Arc::clone(&log) as _);
    let clock = {
        let world = world.lock();
        let (real_ms, wall_offset_ms) = (Arc::clone(&world.real_ms), Arc::clone(&world.wall_offset_ms));
        let origin = (resume.now.as_millis(), world.now_ms());
        Arc::new(ServerClock { real_ms, wall_offset_ms, origin, faster_ppm: 0 })
    };
    let is_doubtful = matches!(found.ending, Ending::Torn | Ending::Damaged);
    if is_doubtful {
        let mut cursor = CopyCursor::default();
        while keyspace.copy(&mut cursor, clock.now().lock) != Copied::All {}
        log.end_copy();
    }
    let boot_ms = world.lock().boot_ms();
    let synced = log.sync(clock.now().lock, boot_ms);
    if is_doubtful && synced.is_ok() {
        log.remove_older().expect("the directory can be changed");
    }
    match synced {
        Ok(()) => {
            let mut world = world.lock();
            world.is_marked = false;
            world.serve(keyspace, log, clock, (&found, &resume, real_ms));
        }
        Err(SyncError::Write(_) | SyncError::Delayed(_)) => world.lock().start_fails(&life),
        Err(SyncError::Sync(_)) => world.lock().fail(),
    }
}

impl World {
    fn new(seed: u64, defect: Defect) -> Self {
        let mut rng = Rng::new(seed);
        // What no mode but the default one can do wrong is not looked for in the others.
        let mode = match rng.below(8) {
            0 if defect == Defect::None => Mode::Always,
            1 if defect == Defect::None => Mode::Memory,
            _ => Mode::EverySecond,
        };
        let boot = (!rng.one_in(8)).then_some([0; 16]);
        // Where the system says that a disk was attached again, the mark of a failed sync is not needed.
        let is_attachment_known = !rng.one_in(4) && defect != Defect::ForgetsFailedSyncs;
        let expected = Expected {
            end: None,
            has_served: false,
            state: None,
            boot: None,
            time_ms: (0, 0),
            quarantine_until: None,
            is_torn: false,
            is_rotten: false,
        };
        let mut world = Self {
            defect,
            rng,
            real_ms: Arc::new(AtomicU64::new(BEGIN_MS)),
            wall_offset_ms: Arc::default(),
            events: BinaryHeap::new(),
            scheduled: 0,
            disk: Disk::new(is_attachment_known),
            boot,
            boot_since_ms: BEGIN_MS / 2,
            boots: 0,
            is_marked: false,
            mode,
            life: None,
            server: None,
            servers: 0,
            ends_next: false,
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            told: Told::default(),
            expected,
            broken: None,
            has_rotted: false,
            end_ms: BEGIN_MS + RUN_MS,
        };
        world.schedule(0, Event::Start);
        (0..CLIENTS).for_each(|who| world.schedule(0, Event::Act(who)));
        for event in [Event::Space, Event::StepWall, Event::StepWall] {
            let delay_ms = world.rng.below_u64(RUN_MS * 2);
            world.schedule(delay_ms, event);
        }
        world
    }

    fn now_ms(&self) -> u64 {
        self.real_ms.load(SeqCst)
    }

    fn boot_ms(&self) -> u64 {
        self.now_ms() - self.boot_since_ms
    }

    fn wall_ms(&self) -> u64 {
        self.now_ms().saturating_add_signed(self.wall_offset_ms.load(SeqCst))
    }

    fn schedule(&mut self, delay_ms: u64, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((self.now_ms() + delay_ms, self.scheduled, event)));
    }

    /// The client, which has no request, acts at another time than it had planned.
    fn plan(&mut self, who: usize, delay_ms: u64) {
        self.events.retain(|Reverse((_, _, event))| *event != Event::Act(who));
        self.schedule(delay_ms, Event::Act(who));
    }

    fn next_ms(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at_ms, ..))| *at_ms)
    }

    /// The next event. While the disk syncs, what would sync it again comes later.
    fn step(&mut self, is_in_sync: bool) -> Job {
        let Some(Reverse((at_ms, _, event))) = self.events.pop() else { return Job::Over };
        self.real_ms.fetch_max(at_ms, SeqCst);
        if self.now_ms() > self.end_ms {
            return Job::Over;
        }
        let job = match event {
            Event::Start | Event::Keep(..) | Event::Copy if is_in_sync => {
                self.schedule(5, event);
                Job::None
            }
            Event::Act(who) => self.act(who),
            Event::Arrive(who, number) => self.arrive(who, number),
            Event::Copy => self.copy(),
            Event::Crash => self.crash(is_in_sync),
            Event::Deliver(who, reply) => self.deliver(who, &reply),
            Event::Flush(number) => self.flush(number),
            Event::Kill => {
                self.crash_as(End::Killed);
                Job::None
            }
            Event::Keep(number, is_wanted) => self.keep(number, is_wanted),
            Event::Space => self.change_space(),
            Event::Start => Job::Start,
            Event::StepWall => {
                let step_ms = self.rng.below_u64(7_200_000) as i64 - 3_600_000;
                self.wall_offset_ms.fetch_add(step_ms, SeqCst);
                Job::None
            }
        };
        self.look_after_waits();
        job
    }

    fn act(&mut self, who: usize) -> Job {
        let now_ms = self.now_ms();
        if self.server.is_some() {
            self.clients[who].act(who, now_ms, &self.told, &mut self.rng);
        }
        let (number, delay_ms) = (self.servers, self.rng.below_u64(5));
        if self.clients[who].request.is_some() {
            self.schedule(delay_ms, Event::Arrive(who, number));
        } else {
            let delay_ms = 50 + self.rng.below_u64(700);
            self.schedule(delay_ms, Event::Act(who));
        }
        Job::None
    }

    /// The server executes a request. Its reply waits as in the processor of a connection.
    fn arrive(&mut self, who: usize, number: u64) -> Job {
        if number != self.servers {
            return Job::None;
        }
        let (Some(server), Some(request)) = (&mut self.server, &self.clients[who].request) else {
            return Job::None;
        };
        let (now, quarantine) = (server.now(), &server.engine.shared().locks.quarantine);
        let lifted = quarantine.until(now.lock).filter(|_| {
            self.defect == Defect::ExtendsInQuarantine && matches!(request.op, Op::Extend { .. })
        });
        if lifted.is_some() {
            quarantine.end();
        }
        let before = server.log.owed();
        let connection = &mut server.connections[who];
        let words: Vec<&[u8]> = request.words.iter().map(|word| word.as_bytes()).collect();
        let (mut batch, mut out) = (server.engine.batch(), Vec::new());
        server.engine.execute(&mut connection.session, Words::listed(&words), &mut batch, &mut out);
        server.engine.end_batch(&mut connection.session, batch);
        let after = server.log.owed();
        if before != after || (self.mode == Mode::Always && !out.is_empty()) {
            connection.owed = after;
        }
        if let Some(until) = lifted {
            server.engine.shared().locks.quarantine.begin(until, "the quarantine goes on");
        }
        connection.output = String::from_utf8(out).expect("an answer in ASCII");
        if let Op::Write { value, lease_ms } = request.op
            && !connection.output.starts_with('-')
        {
            let until_ms = lease_ms.map(|lease_ms| now.lock.as_millis() + lease_ms);
            self.clients[who].pending = Some(Register { value, until_ms });
        }
        self.answer_later();
        if std::mem::take(&mut self.ends_next) {
            self.crash_now();
        }
        Job::None
    }

    /// The replies of this moment leave with the next write.
    fn answer_later(&mut self) {
        let (number, delay_ms) = (self.servers, self.rng.below_u64(3));
        self.schedule(delay_ms, Event::Flush(number));
        if self.defect == Defect::AnswersBeforeWrite {
            self.leave();
        }
    }

    fn flush(&mut self, number: u64) -> Job {
        if let Some(server) = self.server.as_ref().filter(|_| number == self.servers) {
            server.log.write();
            self.leave();
        }
        Job::None
    }

    /// Sends the replies that may leave, and asks for a sync where one waits.
    fn leave(&mut self) {
        let Some(server) = &mut self.server else { return };
        let mut left = Vec::new();
        for (who, connection) in server.connections.iter_mut().enumerate() {
            let owed = match self.defect {
                Defect::AnswersBeforeSync => Owed { synced: 0, ..connection.owed },
                Defect::AnswersBeforeWrite => Owed::default(),
                _ => connection.owed,
            };
            if !connection.output.is_empty() && server.log.has(owed, || 0) {
                left.push((who, std::mem::take(&mut connection.output)));
            }
        }
        let is_wanted = server.log.needs_sync() && !server.is_sync_wanted;
        server.is_sync_wanted |= is_wanted;
        let is_failing = server.log.is_failing();
        for (who, reply) in left {
            let client = &mut self.clients[who];
            if let Some(request) = &mut client.request {
                request.is_answered = true;
                let is_removal = matches!(request.op, Op::Write { value: None, .. });
                client.removed = client.removed.or((is_failing && is_removal).then_some(client.register));
            }
            let delay_ms = 1 + self.rng.below_u64(5);
            self.schedule(delay_ms, Event::Deliver(who, reply));
        }
        if is_wanted {
            let (number, delay_ms) = (self.servers, self.rng.below_u64(3));
            self.schedule(delay_ms, Event::Keep(number, true));
        }
    }

    /// Removes what has expired, and finishes calls that have waited.
    fn look_after_waits(&mut self) {
        let Some(server) = &mut self.server else { return };
        if server.finish_waits() {
            self.answer_later();
        }
    }

    fn deliver(&mut self, who: usize, reply: &str) -> Job {
        let now_ms = self.now_ms();
        match self.clients[who].hear(reply, now_ms, &mut self.told) {
            Ok(Some(hold)) => self.believe(who, &hold),
            Ok(None) => {}
            Err(why) => self.broken = Some(format!("client {who}: {why}")),
        }
        let delay_ms = self.rng.below_u64(700);
        self.schedule(delay_ms, Event::Act(who));
        Job::None
    }

    /// A client believes in a lock from now on: no other does.
    fn believe(&mut self, who: usize, hold: &Hold) {
        let now_ms = self.now_ms();
        for (other, client) in self.clients.iter().enumerate() {
            let theirs = client.hold.as_ref().filter(|theirs| theirs.key == hold.key && other != who);
            if let Some(theirs) = theirs.filter(|theirs| theirs.until_ms >= now_ms) {
                self.broken = Some(format!("client {who} has {hold:?}, and client {other} {theirs:?}"));
                return;
            }
        }
        // A loss of power at this moment may bring back the lease before this one, whose client is late.
        let Some(server) = &self.server else { return };
        let unsynced_ms = server.now().lock.millis_since(server.log.status().synced_at);
        let is_late = |other: &Client| {
            let theirs = other.hold.as_ref().filter(|theirs| theirs.key == hold.key);
            theirs.is_some_and(|theirs| theirs.until_ms < now_ms && now_ms - theirs.until_ms < unsynced_ms)
        };
        if self.clients.iter().any(is_late) && self.rng.one_in(2) {
            self.crash_as(End::PowerLost);
        }
    }

    /// The keeper of the journal: once a second, and when a reply waits.
    fn keep(&mut self, number: u64, is_wanted: bool) -> Job {
        let boot_ms = self.boot_ms();
        let Some(server) = self.server.as_mut().filter(|_| number == self.servers) else { return Job::None };
        let (log, now) = (Arc::clone(&server.log), server.now().lock);
        if is_wanted {
            server.is_sync_wanted = false;
            return if log.needs_sync() { Job::Sync } else { Job::None };
        }
        if log.error().is_some() {
            log.retry();
        }
        if self.mode == Mode::Always && log.is_stuck() {
            // Other replies would wait for what cannot be written.
            self.crash_as(End::Killed);
            return Job::None;
        }
        // A file is large enough for a copy after 64 MiB. The copies of a run are of another age.
        if !log.is_copying() && self.mode != Mode::Memory && self.rng.one_in(12) {
            // On a full disk the log goes on in its file.
            let _ = log.begin_copy(now, boot_ms);
        }
        if log.is_copying() && server.copy.is_none() {
            server.copy = Some(CopyCursor::default());
            self.schedule(1, Event::Copy);
        }
        self.show_error();
        self.schedule(SYNC_EVERY_MS, Event::Keep(number, false));
        if log.needs_sync() || log.is_sync_due(now) { Job::Sync } else { Job::None }
    }

    fn copy(&mut self) -> Job {
        let Some(server) = &mut self.server else { return Job::None };
        let now = server.now().lock;
        let Some(mut cursor) = server.copy.take() else { return Job::None };
        let copied = server.keyspace().copy(&mut cursor, now);
        server.log.write();
        if server.log.error().is_some() {
            return Job::None;
        }
        if copied == Copied::All {
            return Job::EndCopy;
        }
        server.copy = Some(cursor);
        let delay_ms = self.rng.below_u64(4);
        self.schedule(delay_ms, Event::Copy);
        Job::None
    }

    fn change_space(&mut self) -> Job {
        let is_full = self.rng.one_in(2);
        self.disk.set_full(is_full);
        if is_full {
            let delay_ms = self.rng.below_u64(4_000);
            self.schedule(delay_ms, Event::Space);
        }
        Job::None
    }

    /// Tells the commands whether the journal can be written.
    fn show_error(&self) {
        let Some(server) = &self.server else { return };
        let quarantine = &server.engine.shared().locks.quarantine;
        match server.log.error() {
            Some(error) => quarantine.set_disk_error(&error),
            None => quarantine.clear_disk_error(),
        }
    }

    fn crash(&mut self, is_in_sync: bool) -> Job {
        if self.life.is_none() {
            return Job::None;
        }
        if self.server.is_some() && self.rng.one_in(4) {
            if is_in_sync {
                self.schedule(5, Event::Crash);
                return Job::None;
            }
            return Job::Stop;
        }
        if self.server.is_some() && self.rng.one_in(2) {
            self.ends_next = true;
        } else {
            self.crash_now();
        }
        Job::None
    }

    fn crash_now(&mut self) {
        let end = match self.rng.below(8) {
            0..4 if self.boot.is_some() => End::Killed,
            0..5 => End::Moved,
            _ => End::PowerLost,
        };
        self.crash_as(end);
    }

    /// The process is killed, the volume moves, or the power fails.
    fn crash_as(&mut self, end: End) {
        let Some(life) = self.life.clone() else { return };
        if let Some(server) = &self.server
            && self.rng.one_in(3)
        {
            life.end_in_write(self.rng.below(200));
            server.log.write();
        }
        life.end();
        self.server_ends(end != End::PowerLost);
        if end == End::PowerLost {
            self.expected.is_torn |= self.disk.lose_power(&mut self.rng);
        }
        self.rot();
        if end != End::Killed {
            self.change_machine();
        }
        self.process_ends(end);
    }

    /// The disk loses what it had synced, once at most: the wall clock, on which tokens go on, may be set back later.
    fn rot(&mut self) {
        let is_wanted = matches!(self.defect, Defect::None | Defect::TrustsRottenDisks);
        if !is_wanted || self.has_rotted || self.mode == Mode::Memory || !self.rng.one_in(6) {
            return;
        }
        let is_damaged = |files| {
            let found = recovery::read(files, Seed::of(1), &mut |_, _| {});
            found.is_ok_and(|found| found.ending == Ending::Damaged)
        };
        self.has_rotted = self.disk.rot(&mut self.rng, is_damaged);
        if self.has_rotted {
            (self.expected.is_rotten, self.expected.state) = (true, None);
            self.clients.iter_mut().for_each(Client::may_lose_lock);
        }
    }

    /// A sync has failed: the system has thrown away what was not synced, and the process ends.
    fn fail(&mut self) {
        let Some(life) = &self.life else { return };
        life.end();
        self.server_ends(false);
        (self.expected.is_torn, self.is_marked) = (true, true);
        self.disk.attach_again();
        self.process_ends(End::PowerLost);
    }

    fn start_fails(&mut self, life: &Life) {
        if !life.is_over() {
            self.process_ends(End::Killed);
        }
    }

    /// The machine boots, another one takes its disk, or the disk is attached again on the same boot.
    fn change_machine(&mut self) {
        let is_seen = self.disk.attach_again() && self.boot.is_some();
        if !is_seen || self.rng.one_in(2) {
            self.reboot();
        }
    }

    /// The machine boots, or another one takes its disk.
    fn reboot(&mut self) {
        self.boots += 1;
        self.is_marked = false;
        let (boots, age_ms) = (self.boots, self.rng.below_u64(40_000));
        self.boot = self.boot.map(|_| [boots; 16]);
        self.boot_since_ms = self.now_ms() - age_ms;
    }

    /// Nobody is served any more. `is_kept` says whether what was written stays.
    fn server_ends(&mut self, is_kept: bool) {
        let Some(server) = self.server.take() else { return };
        let now = server.now();
        let is_written = !server.log.is_pending() && !server.log.is_failing();
        let is_whole = is_kept && self.mode != Mode::Memory && is_written && !self.expected.is_rotten;
        self.expected.state =
            is_whole.then(|| (standing(server.keyspace(), now), grants(server.keyspace(), now)));
        self.expected.boot = self.boot;
        self.expected.time_ms = (now.lock.as_millis(), self.now_ms());
        self.expected.quarantine_until = server.engine.shared().locks.quarantine.until(now.lock);
        for who in 0..CLIENTS {
            self.clients[who].lose_request();
            // Clients with a request have no other plans.
            if self.clients[who].request.is_none() {
                let delay_ms = self.rng.below_u64(300);
                self.plan(who, delay_ms);
            }
        }
        self.ends_next = false;
    }

    /// A process has started, and serves.
    fn serve(
        &mut self,
        keyspace: Keyspace,
        log: Arc<Log>,
        clock: Arc<ServerClock>,
        (found, resume, read_ms): (&Found, &Resume, u64),
    ) {
        let now = clock.now();
        if self.defect == Defect::None
            && let Err(why) = self.check_start(found, resume, read_ms)
        {
            self.broken = Some(format!("{why}: {:?}, {found:?}, {resume:?}", self.expected.end));
        }
        if let Err(why) = self.check_keys(&keyspace, now, resume.restores) {
            self.broken = Some(format!("{why}: {:?}, {found:?}, {resume:?}", self.expected.end));
        }
        let shared = Shared::new(keyspace, Settings::default(), clock, self.servers)
            .with_log(Arc::clone(&log))
            .with_interpreter(INTERPRETER);
        if let Some((until, reason)) = resume.quarantine {
            shared.locks.quarantine.begin(until, reason);
        }
        let engine = Engine::new(Arc::new(shared));
        let connect = |_| {
            let id = engine.shared().registries.clients.next_id();
            let session = engine.connect(Peer::new(id, "w".into(), "s".into(), false, now.lock));
            Connection { session, output: String::new(), owed: Owed::default() }
        };
        let connections = (0..CLIENTS).map(connect).collect();
        self.server = Some(Server { engine, log, connections, copy: None, is_sync_wanted: false });
        self.servers += 1;
        (self.expected.end, self.expected.has_served) = (None, true);
        (self.expected.is_torn, self.expected.is_rotten) = (false, false);
        let (number, delay_ms) = (self.servers, self.rng.below_u64(CRASH_MS_MAX));
        self.schedule(SYNC_EVERY_MS, Event::Keep(number, false));
        self.schedule(delay_ms, Event::Crash);
        if resume.quarantine.is_some() && self.boot.is_some() && self.rng.one_in(2) {
            let delay_ms = self.rng.below_u64(400);
            self.schedule(delay_ms, Event::Kill);
        }
        // Clients that could not reach the server have tried again and again.
        for who in 0..CLIENTS {
            if self.clients[who].request.is_none() {
                let delay_ms = self.rng.below_u64(200);
                self.plan(who, delay_ms);
            }
        }
    }

    fn process_ends(&mut self, end: End) {
        self.life = None;
        self.expected.end = self.expected.end.max(Some(end));
        if end == End::PowerLost {
            self.expected.state = None;
            if self.mode != Mode::Always {
                self.clients.iter_mut().for_each(Client::may_lose_lock);
            }
        }
        if self.mode == Mode::Memory {
            self.clients.iter_mut().for_each(Client::lose_long_lease);
        }
        let outage_ms = if self.rng.one_in(4) { 8_000 } else { 600 };
        let delay_ms = self.rng.below_u64(outage_ms);
        self.schedule(delay_ms, Event::Start);
    }
}
