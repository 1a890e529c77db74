//! Recovery: what the files of a journal say, and how a server goes on from there.
//!
//! Owns    the reading of files, which ends at the first thing that was not written like this, and the decision about lock
//!         time, tokens and quarantine.
//! Rule    what is restored is a prefix of what was written. Where the prefix may lack something that was promised, the
//!         quarantine lasts until every such promise has ended.
//! Rule    a storage that was attached or mounted again counts as a loss of power, also on the same boot. So does a sync that
//!         has failed.
//! Rule    a loss of power takes only what was not synced, and no reply has told of that but with a lease that ends before
//!         the durable horizon. Two horizons behind what cannot be read say that it was synced: the first of them was
//!         synced when the second was written. Then it is the disk that has lost something, and no horizon says enough.

use std::io::Read;

use bytes::Bytes;
use redlatch_proto::clock::LockTime;

use super::codec::DecodeError;
use super::frame::{self, Frames, Next, Unreadable};
use super::item::{Horizon, Item, Opened, Volume};
use super::log::{GRACE_MS, Start};
use super::{Mode, Mutation};
use crate::types::Seed;

/// How a journal ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ending {
    /// There is none.
    Nothing,
    /// The server had ended in good order.
    Stopped,
    /// The server was killed: the last frame is whole, or was cut short while it was written.
    Killed,
    /// The end cannot be read, or a sync had failed: what is missing was not synced.
    Torn,
    /// What is missing may have been synced.
    Damaged,
}

/// What the files of a journal say.
#[derive(Clone, Debug)]
pub struct Found {
    /// How it ends.
    pub ending: Ending,
    /// How the newest readable file begins.
    pub opened: Option<Opened>,
    /// The number of the newest file; zero: there is none.
    pub number: u64,
    /// Bytes of the newest file that were read.
    pub bytes: u64,
    /// The last horizon.
    pub horizon: Horizon,
    /// The latest lock time in it.
    pub now: LockTime,
    /// The libraries of functions.
    pub functions: Option<Bytes>,
    /// Where that file was stored.
    volume: Volume,
    /// Whether a sync has failed.
    has_failed_sync: bool,
    /// Whether the newest file has a frame that cannot be read.
    has_unreadable_frame: bool,
}

impl Found {
    /// Takes an end that is torn for damage where nothing can have torn it. `may_be_torn`: a loss of power takes from these
    /// files what was not synced. On the boot on which the newest file was begun, only a sync that fails changes its frames,
    /// and a storage that was attached or mounted again.
    pub fn settle(&mut self, machine: Machine, may_be_torn: bool) {
        let is_same = self.is_of_boot(machine) && self.change_of_volume(machine).is_none();
        let is_changed = is_same && self.has_unreadable_frame && !self.has_failed_sync;
        if self.ending == Ending::Torn && (!may_be_torn || is_changed) {
            self.ending = Ending::Damaged;
        }
    }

    /// Notes that a sync of this journal has failed, as something else than the journal says. The end may be missing then,
    /// however it reads.
    pub fn note_failed_sync(&mut self) {
        self.has_failed_sync = true;
        if matches!(self.ending, Ending::Killed | Ending::Stopped) {
            self.ending = Ending::Torn;
        }
    }

    /// What has changed if the storage was attached or mounted again on the boot on which the newest file was begun.
    pub fn change_of_volume(&self, machine: Machine) -> Option<&'static str> {
        machine.volume.change_since(&self.volume).filter(|_| self.is_of_boot(machine))
    }

    /// Whether the newest file was begun on this boot.
    fn is_of_boot(&self, machine: Machine) -> bool {
        machine.boot.is_some() && self.opened.as_ref().is_some_and(|opened| opened.boot == machine.boot)
    }
}

/// The machine that a server starts on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Identifies its boot; `None`: the system does not tell.
    pub boot: Option<[u8; 16]>,
    /// The clock of the boot, in milliseconds.
    pub boot_ms: u64,
    /// The storage of the journal.
    pub volume: Volume,
}

/// What a server starts with.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The id of the server.
    pub server: [u8; 20],
    /// When its replies leave.
    pub mode: Mode,
    /// Lock time where nothing is found.
    pub fresh: LockTime,
    /// How long nothing is granted then, or at least after damage, in milliseconds.
    pub startup_guard_ms: u64,
    /// The longest lease that does not wait for the disk, in milliseconds.
    pub lease_ms_max: u64,
    /// What is known of the promises that the journal lacks, if it is an older state of itself.
    pub lacks: Option<Lacks>,
}

/// Promises that a journal lacks which was restored from an older state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lacks {
    /// How often it was restored, this time included.
    pub restores: u64,
    /// What is known of them, at least.
    pub promised: Promised,
    /// How long nothing is granted, in milliseconds. `None`: until what was promised has ended, for the longest lease and for
    /// the startup guard.
    pub quarantine_ms: Option<u64>,
}

/// What a server has promised.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Promised {
    /// Lock time.
    pub now: LockTime,
    /// No lease ends later.
    pub until: LockTime,
    /// The highest fencing token.
    pub token: u64,
}

impl Promised {
    /// What both tell.
    pub fn max(self, other: Self) -> Self {
        let (now, until) = (self.now.max(other.now), self.until.max(other.until));
        Self { now, until, token: self.token.max(other.token) }
    }
}

/// How a server goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Resume {
    /// Lock time.
    pub now: LockTime,
    /// Whether the keys of the journal are those of the server.
    pub restores: bool,
    /// The end of the quarantine and its reason.
    pub quarantine: Option<(LockTime, &'static str)>,
    /// All earlier fencing tokens are at most this.
    pub token: u64,
}

const TORN: &str = "the end of the journal is missing";
const REMOUNTED: &str = "the disk of the journal was attached or mounted again";
const DAMAGED: &str = "the journal is damaged";
const RESTORED: &str = "the log was restored from an older state";
/// How many tokens there are between two restores: more than a fast server gives out in a hundred days. There is room for
/// eight thousand restores below 2^53, from where on some languages round.
const TOKENS_LACKED: u64 = 1 << 40;

/// Receives the effects of one record, with the instant at which they were decided.
type Apply<'a> = dyn FnMut(LockTime, &[Mutation]) + 'a;

/// Reads the files of a journal, by their numbers, the earliest first. `apply` receives the effects that count,
/// in order, with the instants at which they were decided.
///
/// # Errors
/// The number of the file that is not read, and why.
pub fn read<R: Read>(
    files: Vec<(u64, R)>,
    seed: Seed,
    apply: &mut Apply<'_>,
) -> Result<Found, (u64, Unreadable)> {
    let mut reader = Reader::default();
    let mut parts = Vec::new();
    for (number, from) in files {
        reader.found.number = number;
        parts.push(Part::open(number, from, seed).map_err(|error| (number, error))?);
    }
    let foreign = parts.iter().find(|part| part.is_foreign);
    if let Some(foreign) = foreign.filter(|_| !parts.iter().any(Part::is_journal)) {
        return Err((foreign.number, Unreadable::Foreign));
    }
    let server = parts.iter().find_map(|part| Some(part.opened()?.server));
    if let Some(other) = parts.iter().find(|part| part.opened().is_some_and(|at| Some(at.server) != server)) {
        return Err((other.number, Unreadable::OtherServer));
    }
    leave_out_unread(&mut parts);
    // A server in memory mode has forgotten what the files before its own have kept.
    let forgotten =
        parts.iter().rposition(|part| part.opened().is_some_and(|opened| opened.mode == Mode::Memory));
    // A file that goes on from one that is missing does not say where another one ends.
    let end = |pair: &[Part<R>]| {
        let next = pair[1].opened().filter(|next| next.previous == pair[0].number)?;
        Some(next.previous_bytes)
    };
    let ends: Vec<_> = parts.windows(2).map(end).collect();
    let (mut before, count) = (None, parts.len());
    for index in 0..count {
        let part = &mut parts[index];
        let previous = part.opened().map(|opened| opened.previous);
        let is_next = before.is_none() || previous.is_none() || before == previous;
        before = Some(part.number);
        if is_next {
            let end = ends.get(index).copied().flatten();
            let is_last = index + 1 == count;
            let counts = forgotten.is_none_or(|forgotten| index > forgotten);
            reader.part(part, (end, is_last), seed, if counts { Some(&mut *apply) } else { None })?;
        } else {
            reader.found.ending = Ending::Torn;
        }
        if reader.found.ending == Ending::Torn {
            reader.look_behind(&mut parts[index..], seed)?;
            break;
        }
    }
    // Files that a copy had made needless may be back after a loss of power: only the end of all tells.
    if !reader.is_complete {
        reader.found.ending = Ending::Damaged;
    }
    Ok(reader.found)
}

/// Leaves out the files that none of the later ones goes on from: the start that could not read them has begun the next.
fn leave_out_unread<R: Read>(parts: &mut Vec<Part<R>>) {
    let mut last = u64::MAX;
    for index in (0..parts.len()).rev() {
        if parts[index].number > last {
            parts.remove(index);
        } else if let Some(opened) = parts[index].opened() {
            last = opened.previous;
        }
    }
}

struct Part<R> {
    number: u64,
    frames: Option<Frames<R>>,
    /// The items of its first frame.
    first: Vec<Item>,
    /// Whether its first frame is not one that was written.
    is_damaged: bool,
    /// Whether that is true of its first line.
    is_foreign: bool,
}

impl<R: Read> Part<R> {
    fn open(number: u64, mut from: R, seed: Seed) -> Result<Self, Unreadable> {
        let mut frames = match frame::read_first_line(&mut from) {
            Ok(bytes) => bytes.map(|bytes| Frames { from, bytes }),
            // A loss of power may have taken the first line of a new file.
            Err(Unreadable::Foreign) => {
                let frames = Some(Frames { from, bytes: 0 });
                return Ok(Self { number, frames, first: Vec::new(), is_damaged: true, is_foreign: true });
            }
            Err(error) => return Err(error),
        };
        let first = match &mut frames {
            Some(frames) => match frames.read()? {
                Next::Frame(body) => items(body, seed)?,
                Next::End | Next::Cut => Some(Vec::new()),
                Next::Damaged => None,
            },
            None => Some(Vec::new()),
        };
        let (is_damaged, first) = (first.is_none(), first.unwrap_or_default());
        Ok(Self { number, frames, first, is_damaged, is_foreign: false })
    }

    /// Whether its first line says that it is a journal.
    fn is_journal(&self) -> bool {
        self.frames.is_some() && !self.is_foreign
    }

    fn opened(&self) -> Option<&Opened> {
        match self.first.first() {
            Some(Item::Opened(opened)) if opened.number == self.number => Some(opened),
            _ => None,
        }
    }
}

struct Reader {
    found: Found,
    /// Whether the keys of the first file are all there.
    is_complete: bool,
}

impl Default for Reader {
    fn default() -> Self {
        let (horizon, now) = (Horizon::default(), LockTime::from_millis(0));
        let (opened, functions) = (None, None);
        let found = Found {
            ending: Ending::Nothing,
            opened,
            number: 0,
            bytes: 0,
            horizon,
            now,
            functions,
            volume: Volume::default(),
            has_failed_sync: false,
            has_unreadable_frame: false,
        };
        Self { found, is_complete: true }
    }
}

impl Reader {
    /// Reads a file up to `end`, if the next file says where it ends.
    fn part<R: Read>(
        &mut self,
        part: &mut Part<R>,
        (end, is_last): (Option<u64>, bool),
        seed: Seed,
        mut apply: Option<&mut Apply<'_>>,
    ) -> Result<(), (u64, Unreadable)> {
        let (number, opened) = (part.number, part.opened().cloned());
        let (Some(opened), Some(frames)) = (opened, &mut part.frames) else {
            // A new file has nothing until its first frame is there. The next file takes its place.
            if part.is_damaged || !part.first.is_empty() || !is_last {
                self.found.ending = Ending::Torn;
            } else {
                self.found.number = number - 1;
            }
            return Ok(());
        };
        if self.found.opened.is_none() && opened.previous_bytes > 0 {
            self.is_complete = false;
        }
        (self.found.opened, self.found.volume) = (Some(opened), Volume::default());
        self.found.ending = Ending::Killed;
        self.take(std::mem::take(&mut part.first), &mut apply);
        self.found.bytes = frames.bytes;
        while end.is_none_or(|end| frames.bytes < end) {
            match frames.read().map_err(|error| (number, error.into()))? {
                Next::Frame(body) => match items(body, seed).map_err(|error| (number, error))? {
                    Some(items) => {
                        self.take(items, &mut apply);
                        self.found.bytes = frames.bytes;
                    }
                    None => self.tear(end.is_none() && is_last),
                },
                Next::End if end.is_none() => break,
                // Of the newest file, a frame that was being written.
                Next::Cut if end.is_none() && is_last => {
                    self.found.ending = Ending::Killed;
                    break;
                }
                Next::Damaged => self.tear(end.is_none() && is_last),
                Next::End | Next::Cut => self.found.ending = Ending::Torn,
            }
            if self.found.ending == Ending::Torn {
                break;
            }
        }
        match end {
            // How it ends was known to the start that has begun the next file: that says how long the quarantine lasts.
            Some(end) if self.found.bytes == end => self.found.ending = Ending::Killed,
            Some(_) => self.found.ending = Ending::Torn,
            None => {}
        }
        Ok(())
    }

    /// A frame cannot be read.
    fn tear(&mut self, is_in_newest: bool) {
        self.found.ending = Ending::Torn;
        self.found.has_unreadable_frame |= is_in_newest;
    }

    fn take(&mut self, items: Vec<Item>, apply: &mut Option<&mut Apply<'_>>) {
        for item in items {
            // What comes after the end in good order, or after a failed sync, came from a process that should have ended.
            if self.found.ending != Ending::Torn {
                self.found.ending = Ending::Killed;
            }
            match item {
                Item::Opened(_) => {}
                Item::Record { now, mutations } => {
                    self.found.now = self.found.now.max(now);
                    if let Some(apply) = apply {
                        apply(now, &mutations);
                    }
                }
                Item::Horizon(horizon) => self.horizon(horizon),
                Item::Functions(dump) => self.found.functions = Some(dump),
                Item::Copied => self.is_complete = true,
                Item::Stopped(horizon) => {
                    self.horizon(horizon);
                    self.found.ending = Ending::Stopped;
                }
                Item::Tainted => (self.found.ending, self.found.has_failed_sync) = (Ending::Torn, true),
                Item::Volume(volume) => self.found.volume = volume,
            }
        }
    }

    fn horizon(&mut self, horizon: Horizon) {
        self.found.now = self.found.now.max(horizon.now);
        self.found.horizon = horizon;
    }

    /// Counts the horizons behind the place where the reading has ended, and looks for a sync that has failed.
    fn look_behind<R: Read>(&mut self, parts: &mut [Part<R>], seed: Seed) -> Result<(), (u64, Unreadable)> {
        let (mut horizons, mut has_failed_sync) = (0, false);
        for part in parts {
            let Some(frames) = &mut part.frames else { continue };
            let search = frames.search(|body| {
                let items = items(body, seed).ok().flatten().unwrap_or_default();
                // The horizon with which a file begins is not that of a sync.
                if !matches!(items.first(), Some(Item::Opened(_))) {
                    horizons += items
                        .iter()
                        .filter(|item| matches!(item, Item::Horizon(_) | Item::Stopped(_)))
                        .count();
                }
                has_failed_sync |= items.contains(&Item::Tainted);
            });
            search.map_err(|error| (part.number, error.into()))?;
        }
        self.found.has_failed_sync |= has_failed_sync;
        // The first frame is synced before the next one is written. Behind another, the horizon of the sync may be there in
        // which it was lost.
        if horizons > usize::from(self.found.opened.is_some()) {
            self.found.ending = Ending::Damaged;
        }
        Ok(())
    }
}

/// The items of a frame; `None`: they are damaged.
fn items(mut body: Bytes, seed: Seed) -> Result<Option<Vec<Item>>, Unreadable> {
    let mut items = Vec::new();
    while !body.is_empty() {
        match Item::decode(&mut body, seed) {
            Ok(item) => items.push(item),
            Err(DecodeError::Damaged) => return Ok(None),
            Err(DecodeError::Removed(what)) => return Err(Unreadable::Removed(what)),
        }
    }
    Ok(Some(items))
}

/// How a server goes on from what was found.
pub fn resume(found: &Found, machine: Machine, start: &Terms) -> Resume {
    let resume = resume_whole(found, machine, start);
    start.lacks.map_or(resume, |lacks| lacks.resume(resume, found, start))
}

impl Lacks {
    /// How a server goes on from an older state, which by itself would go on like this.
    fn resume(self, resume: Resume, found: &Found, start: &Terms) -> Resume {
        let Self { restores, promised, quarantine_ms } = self;
        let now = resume.now.max(promised.now);
        let lease_ms = found.horizon.lease_ms_max.max(start.lease_ms_max);
        let until = match quarantine_ms {
            Some(millis) => now + millis,
            None => promised.until.max(now + start.startup_guard_ms.max(lease_ms + GRACE_MS)),
        };
        let until = resume.quarantine.map_or(until, |(earlier, _)| earlier.max(until));
        let token = resume.token.max(found.horizon.tokens_until).max(promised.token);
        // Of an earlier restore, no node that is left may know how far it went.
        let floor = restores.saturating_mul(TOKENS_LACKED);
        let token = if token < floor { floor } else { token.saturating_add(TOKENS_LACKED) };
        Resume { now, quarantine: Some((until, RESTORED)), token, ..resume }
    }
}

/// As [`resume`], if nothing lacks.
fn resume_whole(found: &Found, machine: Machine, start: &Terms) -> Resume {
    let (is_damaged, is_torn) = (found.ending == Ending::Damaged, found.ending == Ending::Torn);
    // What nothing tells of may last as long, and its tokens are below the microseconds of the clock.
    let damage_ms = found.horizon.lease_ms_max.max(start.lease_ms_max) + GRACE_MS;
    let guard_ms = start.startup_guard_ms.max(if is_damaged { damage_ms } else { 0 });
    let unknown_token = start.fresh.as_millis() * 1_000;
    let Some(opened) = &found.opened else {
        let reason = if is_damaged { DAMAGED } else { "nothing was found, and startup-guard is set" };
        let quarantine = (guard_ms > 0).then_some((start.fresh + guard_ms, reason));
        let token = if guard_ms > 0 { unknown_token } else { 0 };
        return Resume { now: start.fresh, restores: false, quarantine, token };
    };
    let horizon = &found.horizon;
    let is_same_boot = found.is_of_boot(machine) && machine.boot_ms >= horizon.boot_ms;
    let is_same_volume = found.change_of_volume(machine).is_none();
    let passed_ms = if is_same_boot { machine.boot_ms - horizon.boot_ms } else { 0 };
    let now = found.now.max(horizon.now + passed_ms);
    let is_kept = is_same_boot && is_same_volume && !is_torn;
    let is_exact = !is_damaged && (found.ending == Ending::Stopped || opened.mode == Mode::Always || is_kept);
    let is_forgotten = start.mode == Mode::Memory || opened.mode == Mode::Memory;
    let mut until = horizon.quarantine_until;
    let mut reason = "an earlier quarantine has not ended";
    if !is_exact || is_forgotten {
        until = until.max(horizon.until);
        reason = match (is_damaged, is_forgotten) {
            (true, _) => DAMAGED,
            (_, true) => "the locks of the server before were not kept",
            _ if is_torn => TORN,
            _ if is_same_boot => REMOUNTED,
            _ => "the machine was restarted",
        };
    }
    let mut token = if is_exact && !is_forgotten { horizon.token } else { horizon.tokens_until };
    if is_damaged {
        until = until.max(now + guard_ms);
        token = token.max(unknown_token);
    }
    let quarantine = (until > now).then_some((until, reason));
    Resume { now, restores: !is_forgotten, quarantine, token }
}

/// How the log of a server begins that goes on so. `token`: all earlier fencing tokens are at most this.
pub fn beginning(found: &Found, resume: &Resume, machine: Machine, terms: &Terms, token: u64) -> Start {
    let opened = Opened {
        server: terms.server,
        number: found.number + 1,
        previous: found.opened.as_ref().map_or(0, |opened| opened.number),
        previous_bytes: found.bytes,
        boot: machine.boot,
        mode: terms.mode,
    };
    let horizon = Horizon {
        now: resume.now,
        boot_ms: machine.boot_ms,
        until: found.horizon.until.max(resume.now),
        quarantine_until: resume.quarantine.map_or(LockTime::from_millis(0), |(until, _)| until),
        token,
        tokens_until: token,
        lease_ms_max: terms.lease_ms_max,
    };
    let functions = found.functions.clone().filter(|_| resume.restores);
    Start { lease_ms_max: terms.lease_ms_max, opened, horizon, functions }
}

#[cfg(test)]
mod tests;
