//! Journals that a log has written to a storage in memory: whole, cut, changed, of several files.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redlatch_proto::clock::Deadline;

use super::*;
use crate::journal::frame;
use crate::journal::log::{Log, Owed, Start, Storage};
use crate::journal::{Edit, HashEdit, Journal, Mutations, Record};

#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    files: BTreeMap<u64, Vec<u8>>,
    volume: Option<Volume>,
    is_full: bool,
    fails_to_sync: bool,
}

impl Storage for Memory {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.0.lock();
        if disk.is_full {
            return Err(io::Error::other("the disk is full"));
        }
        disk.files.last_entry().expect("a file was begun").get_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.0.lock().fails_to_sync { Err(io::Error::other("the disk is broken")) } else { Ok(()) }
    }

    fn begin(&self, number: u64) -> io::Result<()> {
        self.0.lock().files.insert(number, frame::first_line());
        Ok(())
    }

    fn remove_before(&self, number: u64) -> io::Result<()> {
        self.0.lock().files.retain(|file, _| *file >= number);
        Ok(())
    }

    fn volume(&self) -> Volume {
        self.0.lock().volume.unwrap_or(VOLUME)
    }
}

const BOOT: Machine = Machine { boot: Some([1; 16]), boot_ms: 500, volume: VOLUME };
const LATER: Machine = Machine { boot_ms: 2_500, ..BOOT };
const OTHER_BOOT: Machine = Machine { boot: Some([2; 16]), boot_ms: 9, ..BOOT };
/// The storage of [`Memory`].
const VOLUME: Volume =
    Volume { device: Some(7), disk: Some(0), file_system: Some(900), root_mount: Some(20), mount: Some(21) };
const TERMS: Terms = Terms {
    server: [7; 20],
    mode: Mode::EverySecond,
    fresh: at(77_000),
    startup_guard_ms: 0,
    lease_ms_max: 60_000,
    lacks: None,
};

const fn at(millis: u64) -> LockTime {
    LockTime::from_millis(millis)
}

/// A log at lock time 10,000, which is on the disk.
fn log(mode: Mode, memory: &Memory) -> Log {
    log_from(mode, memory, Horizon { token: 3, tokens_until: 3, ..Horizon::default() })
}

/// The same with more of its first horizon.
fn log_from(mode: Mode, memory: &Memory, horizon: Horizon) -> Log {
    let horizon = Horizon { now: at(10_000), boot_ms: 500, lease_ms_max: 60_000, ..horizon };
    let start = Start::of_first_file([7; 20], BOOT.boot, mode, horizon);
    let log = Log::start(Box::new(memory.clone()), start).unwrap();
    log.sync(at(10_000), 500).unwrap();
    log
}

fn append(log: &Log, (now, until): (u64, u64), mutations: &[Mutation]) {
    let (mutations, now, lasts_until) = (&mutations.iter().collect(), at(now), at(until));
    log.append(&Record { now, lasts_until, ends_at: lasts_until, mutations });
}

/// A key `key` is set until `until` at `now`.
fn put(log: &Log, key: &'static str, (now, until): (u64, u64)) -> u64 {
    let mutations = [Mutation::Put {
        database: 0,
        key: Bytes::from_static(key.as_bytes()),
        value: Bytes::from_static(b"me"),
        deadline: (until < u64::MAX).then(|| Deadline::at(at(until))),
    }];
    append(log, (now, until), &mutations);
    log.owed().synced
}

/// Where the frames with a horizon end, but for the first.
fn horizons(file: &[u8]) -> Vec<usize> {
    let mut frames = frame::Frames::open(file).unwrap().unwrap();
    let mut ends = Vec::new();
    while let Next::Frame(body) = frames.read().unwrap() {
        let items = items(body, Seed::of(1)).unwrap().unwrap();
        if !matches!(items[0], Item::Opened(_)) && items.iter().any(|item| matches!(item, Item::Horizon(_))) {
            ends.push(frames.bytes as usize);
        }
    }
    ends
}

fn removal_of(key: &'static str) -> [Mutation; 1] {
    [Mutation::Remove { database: 0, key: Bytes::from_static(key.as_bytes()), expired: false }]
}

fn files(memory: &Memory) -> Vec<(u64, io::Cursor<Vec<u8>>)> {
    memory.0.lock().files.iter().map(|(number, file)| (*number, io::Cursor::new(file.clone()))).collect()
}

/// What is found, and the keys that are restored.
fn found(memory: &Memory) -> (Found, Vec<String>) {
    let mut keys = Vec::new();
    let found = read(files(memory), Seed::of(1), &mut |_, mutations| {
        for mutation in mutations {
            if let Mutation::Put { key, .. } = mutation {
                keys.push(String::from_utf8(key.to_vec()).unwrap());
            }
        }
    });
    (found.unwrap(), keys)
}

/// Appends a frame to the first file, as a process does that should have ended.
fn write_late(memory: &Memory, put_body: impl FnOnce(&mut Vec<u8>)) {
    let mut late = Vec::new();
    frame::body_start(&mut late);
    put_body(&mut late);
    frame::seal(&mut late).unwrap();
    memory.0.lock().files.get_mut(&1).unwrap().extend(late);
}

fn quarantine_ms(resume: &Resume) -> Option<u64> {
    resume.quarantine.map(|(until, _)| until.as_millis())
}

#[test]
fn after_a_kill_everything_goes_on_exactly() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    log.sync(at(10_200), 700).unwrap();
    put(&log, "b", (10_300, 40_300));
    log.write();
    put(&log, "unwritten", (10_400, 40_400));
    let (found, keys) = found(&memory);
    assert_eq!((found.ending, keys), (Ending::Killed, vec!["a".to_owned(), "b".to_owned()]));
    let resume = resume(&found, LATER, &TERMS);
    // 1,800 ms after the horizon that was written at 10,200.
    assert_eq!((resume.now, resume.restores, resume.quarantine), (at(12_000), true, None));
    assert_eq!(resume.token, 3);
}

#[test]
fn after_another_boot_nothing_is_granted_until_the_horizon() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    log.sync(at(10_200), 700).unwrap();
    let (found, keys) = found(&memory);
    assert_eq!(keys, ["a"]);
    // A lease of 30 s that begins five seconds after the horizon is covered.
    let until = 10_200 + 30_000 + GRACE_MS;
    let for_long = |machine| Machine { boot_ms: 900_000, ..machine };
    let unknown = Machine { boot: None, ..for_long(BOOT) };
    let clock_went_back = Machine { boot_ms: 699, ..BOOT };
    for machine in [OTHER_BOOT, for_long(OTHER_BOOT), unknown, clock_went_back] {
        let resume = resume(&found, machine, &TERMS);
        assert_eq!((resume.now, resume.restores), (at(10_200), true), "{machine:?}");
        assert_eq!(resume.quarantine, Some((at(until), "the machine was restarted")), "{machine:?}");
        assert_eq!(resume.token, 3 + (1 << 20));
    }
}

#[test]
fn a_journal_and_a_machine_whose_boot_is_unknown_are_not_of_the_same_boot() {
    let memory = Memory::default();
    let horizon = Horizon { now: at(10_000), boot_ms: 500, until: at(50_000), ..Horizon::default() };
    let start = Start::of_first_file([7; 20], None, Mode::EverySecond, horizon);
    Log::start(Box::new(memory.clone()), start).unwrap().sync(at(10_000), 500).unwrap();
    let unknown = Machine { boot: None, ..LATER };
    let resume = resume(&found(&memory).0, unknown, &TERMS);
    assert_eq!((resume.now, resume.quarantine.is_some()), (at(10_000), true));
}

// Shows P-clean-stop.
#[test]
fn after_an_end_in_good_order_another_boot_goes_on_exactly() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    log.stop(at(11_000), 1_500).unwrap();
    let (found, _) = found(&memory);
    assert_eq!(found.ending, Ending::Stopped);
    let resume = resume(&found, OTHER_BOOT, &TERMS);
    assert_eq!((resume.now, resume.restores, resume.quarantine, resume.token), (at(11_000), true, None, 3));
    write_late(&memory, |body| Item::Record { now: at(11_100), mutations: Vec::new() }.encode(body));
    assert_eq!(self::found(&memory).0.ending, Ending::Killed, "a process that should have ended has not");
}

#[test]
fn in_memory_mode_a_lease_that_is_shortened_is_promised_though_the_one_before_was_too_long() {
    let memory = Memory::default();
    let log = log(Mode::Memory, &memory);
    append(&log, (10_500, 90_000), &[]);
    let mutations = &Mutations::default();
    log.append(&Record { now: at(10_600), lasts_until: at(90_000), ends_at: at(15_000), mutations });
    log.stop(at(11_000), 1_500).unwrap();
    assert_eq!(found(&memory).0.horizon.until, at(15_000));
}

// Shows P-memory-forgets.
#[test]
fn what_memory_mode_has_granted_is_waited_for() {
    let memory = Memory::default();
    let log = log(Mode::Memory, &memory);
    put(&log, "a", (10_100, 40_100));
    assert!(log.needs_sync(), "there was no lease that long");
    log.sync(at(10_200), 700).unwrap();
    assert_eq!(put(&log, "forever", (10_300, u64::MAX)), 1, "a key without a lease waits for nothing");
    log.stop(at(11_000), 1_500).unwrap();
    let (found, keys) = found(&memory);
    assert_eq!(keys, Vec::<String>::new());
    for machine in [LATER, OTHER_BOOT] {
        let resume = resume(&found, machine, &TERMS);
        let reason = "the locks of the server before were not kept";
        assert_eq!((resume.restores, resume.quarantine), (false, Some((at(40_100), reason))));
    }
}

#[test]
fn a_quarantine_outlives_a_kill_inside_it() {
    let memory = Memory::default();
    let horizon = Horizon { quarantine_until: at(45_000), ..Horizon::default() };
    drop(log_from(Mode::EverySecond, &memory, horizon));
    let resume_at = |machine: Machine| resume(&found(&memory).0, machine, &TERMS);
    assert_eq!(quarantine_ms(&resume_at(LATER)), Some(45_000));
    let much_later = Machine { boot_ms: 40_000, ..BOOT };
    assert_eq!((resume_at(much_later).now, resume_at(much_later).quarantine), (at(49_500), None));
}

// Shows P-everysec-keeps-data.
#[test]
fn what_the_horizon_does_not_cover_waits_for_the_disk() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    assert_eq!(put(&log, "first", (10_000, 40_000)), 1, "no lease was expected");
    log.sync(at(10_000), 500).unwrap();
    assert_eq!(put(&log, "alike", (10_001, 40_001)), 1, "covered");
    assert_eq!(put(&log, "released", (10_002, 0)), 1, "nothing is promised");
    assert_eq!(put(&log, "last covered", (14_999, 45_000)), 1);
    assert_eq!(put(&log, "longer", (15_000, 45_001)), 5);
    assert_eq!(put(&log, "forever", (15_000, u64::MAX)), 6);
    log.sync(at(15_000), 5_500).unwrap();
    assert!(log.has(log.owed(), || 0));
    assert_eq!(put(&log, "short after five seconds", (20_001, 20_002)), 7, "the last sync is too old");
    let owed = log.owed();
    log.write();
    assert!(!log.has(owed, || 0));
    log.sync(at(20_002), 10_500).unwrap();
    assert!(log.has(owed, || 0));
    // Long leases are not expected again after two minutes.
    log.sync(at(140_000), 130_500).unwrap();
    let found = found(&memory).0;
    assert_eq!(found.horizon.until, at(140_000));
    assert_eq!(resume(&found, OTHER_BOOT, &TERMS).quarantine, None, "no lease goes on");
}

#[test]
fn every_cut_and_every_changed_byte_leaves_a_prefix() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    for key in ["a", "b", "c"] {
        put(&log, key, (10_100, 40_100));
        log.sync(at(10_200), 700).unwrap();
    }
    let whole = memory.0.lock().files[&1].clone();
    // Behind what comes later, there are fewer than two horizons.
    let synced = horizons(&whole)[1];
    let all = ["a", "b", "c"];
    for at in 0..whole.len() {
        memory.0.lock().files.insert(1, whole[..at].to_vec());
        let (cut, keys) = found(&memory);
        assert!(all.starts_with(&keys.iter().map(String::as_str).collect::<Vec<_>>()), "{at}");
        assert_ne!(cut.ending, Ending::Damaged, "a cut at {at} is what a kill leaves");
        if at < frame::first_line().len() {
            continue;
        }
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        memory.0.lock().files.insert(1, changed);
        let (changed, keys) = found(&memory);
        assert!(all.starts_with(&keys.iter().map(String::as_str).collect::<Vec<_>>()), "{at}");
        let resume = resume(&changed, LATER, &TERMS);
        assert_eq!(changed.ending, if at < synced { Ending::Damaged } else { Ending::Torn }, "{at}");
        assert!(keys.is_empty() || resume.quarantine.is_some(), "{at}");
    }
}

#[test]
fn a_copy_makes_the_files_before_it_needless() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    log.begin_copy(at(10_200), 700).unwrap();
    put(&log, "b", (10_300, 40_300));
    log.write();
    assert_eq!(found(&memory).1, ["a", "b"], "the copy is not complete");
    let first = memory.0.lock().files.remove(&1).unwrap();
    assert_eq!(found(&memory).0.ending, Ending::Damaged, "the first file was needed");
    memory.0.lock().files.insert(1, first);
    put(&log, "a", (10_100, 40_100));
    log.end_copy();
    log.sync(at(10_400), 900).unwrap();
    log.remove_older().unwrap();
    let (found, keys) = found(&memory);
    assert_eq!((found.ending, found.number, keys), (Ending::Killed, 2, vec!["b".to_owned(), "a".to_owned()]));
}

#[test]
fn a_full_disk_holds_replies_and_a_broken_one_is_remembered() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    memory.0.lock().is_full = true;
    put(&log, "a", (10_100, 40_100));
    let owed = log.owed();
    log.write();
    assert_eq!((log.has(owed, || 0), log.error().as_deref()), (false, Some("the disk is full")));
    append(&log, (10_100, 0), &removal_of("a"));
    assert_eq!(log.owed(), owed, "a release is answered");
    let edit = |edit| Mutation::Edit { database: 0, key: Bytes::from_static(b"h"), edit: Edit::Hash(edit) };
    let count = HashEdit::Set(Bytes::from_static(b"me"), Bytes::from_static(b"0"));
    let removal = Mutation::Remove { database: 0, key: Bytes::from_static(b"h"), expired: false };
    let last_hold = [edit(count.clone()), removal];
    let field = [edit(HashEdit::Remove(Bytes::from_static(b"me")))];
    for mutations in [&last_hold[..], &field] {
        append(&log, (10_100, 0), mutations);
        assert_eq!(log.owed(), owed, "a release inside of a hash is answered");
    }
    append(&log, (16_000, u64::MAX), &removal_of("a"));
    assert_eq!(log.owed(), owed, "nor long after the last sync, whatever lease it had");
    append(&log, (10_100, 0), &[edit(count)]);
    assert_ne!(log.owed(), owed, "what changes a count is not");
    let owed = log.owed();
    assert!(matches!(log.sync(at(10_200), 700), Err(crate::journal::log::SyncError::Write(_))));
    memory.0.lock().is_full = false;
    log.retry();
    assert_eq!((log.has(Owed { synced: 0, ..owed }, || 0), log.error()), (true, None));
    assert_eq!(found(&memory).1, ["a"]);
    memory.0.lock().fails_to_sync = true;
    assert!(matches!(log.sync(at(10_200), 700), Err(crate::journal::log::SyncError::Sync(_))));
    let (found, keys) = found(&memory);
    assert_eq!((found.ending, keys), (Ending::Torn, vec!["a".to_owned()]));
    let resume = resume(&found, LATER, &TERMS);
    // What was not synced was promised to nobody, or ends before the horizon.
    assert_eq!(quarantine_ms(&resume), Some(found.horizon.until.as_millis()));
    assert!(found.horizon.until > at(40_100));
}

// Shows P-always-torn-end, P-quarantine-bounded.
#[test]
fn a_torn_end_costs_no_more_than_the_horizon_and_nothing_where_all_waited_for_the_disk() {
    for mode in [Mode::EverySecond, Mode::Always] {
        let memory = Memory::default();
        let log = log(mode, &memory);
        put(&log, "a", (10_100, 11_100));
        log.sync(at(10_200), 700).unwrap();
        let synced = memory.0.lock().files[&1].clone();
        put(&log, "b", (10_300, 11_300));
        log.write();
        let written = memory.0.lock().files[&1].clone();
        let mut hole = written.clone();
        hole[synced.len()..synced.len() + 20].fill(0);
        for torn in [[&synced[..], &[0; 150]].concat(), [&synced[..], &[0x5a; 150]].concat(), hole] {
            memory.0.lock().files.insert(1, torn);
            let (found, keys) = found(&memory);
            assert_eq!((found.ending, keys), (Ending::Torn, vec!["a".to_owned()]));
            let resume = resume(&found, OTHER_BOOT, &TERMS);
            let expected = (mode == Mode::EverySecond).then_some(10_200 + 1_000 + GRACE_MS);
            assert_eq!(quarantine_ms(&resume), expected, "{mode:?}");
        }
    }
}

#[test]
fn an_unreadable_frame_on_the_boot_of_its_file_is_damage_unless_a_sync_has_failed() {
    for (fails, expected) in [(false, Ending::Damaged), (true, Ending::Torn)] {
        let memory = Memory::default();
        let log = log(Mode::Always, &memory);
        put(&log, "a", (10_100, 40_100));
        log.sync(at(10_200), 700).unwrap();
        let start = memory.0.lock().files[&1].len();
        put(&log, "b", (10_300, 40_300));
        memory.0.lock().fails_to_sync = fails;
        assert_eq!(log.sync(at(10_400), 900).is_err(), fails);
        memory.0.lock().files.get_mut(&1).unwrap()[start + 12] ^= 1;
        let unknown = Machine { boot: None, ..BOOT };
        let again = Machine { volume: Volume { disk: Some(1), ..VOLUME }, ..LATER };
        for (machine, settled) in
            [(LATER, expected), (OTHER_BOOT, Ending::Torn), (unknown, Ending::Torn), (again, Ending::Torn)]
        {
            let (mut found, keys) = found(&memory);
            assert_eq!((found.ending, keys), (Ending::Torn, vec!["a".to_owned()]));
            found.settle(machine, true);
            assert_eq!(found.ending, settled, "a sync fails: {fails}, on {machine:?}");
            found.note_failed_sync();
            assert_eq!(found.ending, settled, "what counts as damage already stays damage");
        }
        let mut marked = found(&memory).0;
        marked.note_failed_sync();
        marked.settle(LATER, true);
        assert_eq!(marked.ending, Ending::Torn, "a mark that is not in the journal");
        let mut found = found(&memory).0;
        found.settle(OTHER_BOOT, false);
        assert_eq!(found.ending, Ending::Damaged, "these files are never torn");
    }
}

#[test]
fn a_file_that_lost_its_first_line_is_refused_only_where_no_other_is_a_journal() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    for now in [10_200, 10_400, 10_600] {
        put(&log, "a", (now, now + 1_000));
        log.sync(at(now), 700).unwrap();
    }
    memory.0.lock().files.insert(3, vec![0x5a; 165]);
    assert_eq!(found(&memory).0.ending, Ending::Torn, "the second start has lost its file");
    memory.0.lock().files.get_mut(&1).unwrap()[frame::first_line().len() + 12] ^= 1;
    assert_eq!(found(&memory).0.ending, Ending::Damaged, "the first frame of the journal cannot be read");
    memory.0.lock().files.remove(&1);
    let refused = read(files(&memory), Seed::of(1), &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused, (3, Unreadable::Foreign)), "{refused:?}");
}

#[test]
fn a_start_that_lost_the_first_line_of_its_file_in_its_first_sync_leaves_a_torn_end() {
    let memory = Memory::default();
    let first = log(Mode::EverySecond, &memory);
    put(&first, "a", (10_100, 40_100));
    first.sync(at(10_200), 700).unwrap();
    drop(going_on(&memory, LATER, Mode::EverySecond));
    memory.0.lock().files.get_mut(&2).unwrap()[0] ^= 1;
    let (found, keys) = found(&memory);
    assert_eq!((found.ending, keys), (Ending::Torn, vec!["a".to_owned()]));
}

#[test]
fn damage_in_the_middle_is_told_from_a_torn_end_by_the_syncs_behind_it() {
    for mode in [Mode::EverySecond, Mode::Always] {
        let memory = Memory::default();
        let log = log(mode, &memory);
        put(&log, "a", (10_100, 40_100));
        log.sync(at(10_200), 700).unwrap();
        let start = memory.0.lock().files[&1].len();
        put(&log, "long", (10_300, 610_300));
        log.write();
        let end = memory.0.lock().files[&1].len();
        let ending = || {
            let mut disk = memory.0.lock();
            let whole = disk.files[&1].clone();
            disk.files.get_mut(&1).unwrap()[start..end].fill(0);
            drop(disk);
            let found = found(&memory).0;
            memory.0.lock().files.insert(1, whole);
            found
        };
        assert_eq!(ending().ending, Ending::Torn);
        log.sync(at(11_000), 1_500).unwrap();
        assert_eq!(ending().ending, Ending::Torn, "the power may have failed in this sync");
        log.sync(at(12_000), 2_500).unwrap();
        let found = ending();
        assert_eq!(found.ending, Ending::Damaged);
        let resume_with = |startup_guard_ms| resume(&found, LATER, &Terms { startup_guard_ms, ..TERMS });
        assert_eq!(resume_with(0).quarantine, Some((resume_with(0).now + 65_000, DAMAGED)));
        assert_eq!(quarantine_ms(&resume_with(600_000)), Some(resume_with(0).now.as_millis() + 600_000));
        assert_eq!(resume_with(0).token, 77_000_000, "tokens go on above all that may be lost");
    }
}

#[test]
fn releases_that_cannot_be_written_are_answered_when_what_is_written_is_synced() {
    for mode in [Mode::EverySecond, Mode::Always] {
        let memory = Memory::default();
        let log = log(mode, &memory);
        put(&log, "a", (10_100, u64::MAX));
        log.write();
        // Appended before anybody knows that the disk is full.
        append(&log, (10_100, u64::MAX), &removal_of("a"));
        let owed = log.owed();
        memory.0.lock().is_full = true;
        log.write();
        assert!(log.is_failing() && !log.is_stuck() && !log.has(owed, || 0));
        assert!(log.sync(at(10_200), 700).is_err());
        assert!(log.has(owed, || 0), "{mode:?}");
        put(&log, "b", (10_300, 10_400));
        log.retry();
        assert!(log.is_stuck() && !log.has(log.owed(), || 0));
        memory.0.lock().is_full = false;
        log.retry();
        log.sync(at(10_500), 1_000).unwrap();
        assert!(log.has(log.owed(), || 0) && !log.has_error());
    }
}

#[test]
fn an_error_that_the_next_write_repeats_is_known_once() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    memory.0.lock().is_full = true;
    log.write();
    memory.0.lock().is_full = false;
    log.sync(at(10_200), 700).unwrap();
    assert!(!log.has_error() && log.take_failure().is_some());
    assert_eq!(log.take_failure(), None);
}

#[test]
fn what_follows_a_failed_sync_counts_after_the_next_kill_too() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    memory.0.lock().fails_to_sync = true;
    assert!(log.sync(at(10_200), 700).is_err());
    memory.0.lock().fails_to_sync = false;
    let (first, _) = found(&memory);
    assert_eq!(first.ending, Ending::Torn);
    let opened =
        Opened { number: 2, previous: 1, previous_bytes: first.bytes, ..first.opened.clone().unwrap() };
    let horizon = Horizon { quarantine_until: at(75_000), ..first.horizon };
    let start = Start { lease_ms_max: 60_000, opened, horizon, functions: None };
    let next = Log::start(Box::new(memory.clone()), start).unwrap();
    put(&next, "b", (11_000, u64::MAX));
    next.sync(at(11_000), 1_500).unwrap();
    let (second, keys) = found(&memory);
    assert_eq!((second.ending, keys), (Ending::Killed, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(quarantine_ms(&resume(&second, LATER, &TERMS)), Some(75_000), "the quarantine goes on");
}

#[test]
fn an_empty_new_file_and_a_journal_of_others() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    log.write();
    for torn in [Vec::new(), b"redlatch jour".to_vec(), [frame::first_line(), vec![9, 0, 0]].concat()] {
        memory.0.lock().files.insert(2, torn);
        let (found, keys) = found(&memory);
        assert_eq!((found.ending, found.number, keys), (Ending::Killed, 1, vec!["a".to_owned()]));
    }
    memory.0.lock().files.insert(3, frame::first_line());
    assert_eq!(found(&memory).0.ending, Ending::Torn);
    memory.0.lock().files.remove(&3);
    let whole = memory.0.lock().files[&1].clone();
    let cut = whole[..whole.len() - 1].to_vec();
    memory.0.lock().files.insert(1, cut);
    assert_eq!(found(&memory).0.ending, Ending::Torn, "a frame is being written in the newest file only");
    *memory.0.lock() = Disk { files: [(2, whole)].into(), ..Disk::default() };
    let (renamed, keys) = found(&memory);
    assert_eq!((renamed.ending, keys.len()), (Ending::Damaged, 0), "it says that it is another file");
    let (nothing, _) = found(&Memory::default());
    assert_eq!((nothing.ending, nothing.number), (Ending::Nothing, 0));
    assert_eq!(
        resume(&nothing, BOOT, &TERMS),
        Resume { now: at(77_000), restores: false, quarantine: None, token: 0 }
    );
    let guarded = Terms { startup_guard_ms: 5, ..TERMS };
    assert_eq!(quarantine_ms(&resume(&nothing, BOOT, &guarded)), Some(77_005));
    assert_eq!(resume(&nothing, BOOT, &guarded).token, 77_000_000, "no lower than what nothing tells of");
}

#[test]
fn an_older_state_goes_on_behind_all_that_may_have_been_promised_since() {
    let memory = Memory::default();
    let log = log(Mode::Always, &memory);
    put(&log, "a", (10_100, 40_100));
    log.sync(at(10_200), 600).unwrap();
    let found = found(&memory).0;
    let token = found.horizon.tokens_until;
    let on = |lacks| resume(&found, LATER, &Terms { mode: Mode::Always, lacks: Some(lacks), ..TERMS });
    let unknown = on(Lacks { restores: 1, ..Lacks::default() });
    assert!(unknown.restores && unknown.token > token + 1_000_000_000);
    assert!(on(Lacks { restores: 2, ..Lacks::default() }).token > unknown.token + 1_000_000_000);
    assert_eq!(quarantine_ms(&unknown), Some(unknown.now.as_millis() + 60_000 + GRACE_MS));
    let promised = Promised { now: at(500_000), until: at(900_000), token: 7 << 40 };
    let known = on(Lacks { restores: 1, promised, quarantine_ms: None });
    assert_eq!((known.now, quarantine_ms(&known), known.token), (at(500_000), Some(900_000), 8 << 40));
    let edge = Promised { token: 1 << 40, ..promised };
    let edge = on(Lacks { restores: 1, promised: edge, quarantine_ms: None });
    assert_eq!(edge.token, 2 << 40, "the first token of a restored log may have been given out");
    let short = on(Lacks { restores: 1, promised, quarantine_ms: Some(10) });
    assert_eq!(quarantine_ms(&short), Some(500_010), "the operator knows better");
    let (nothing, _) = self::found(&Memory::default());
    let terms = Terms { lacks: Some(Lacks { restores: 1, promised, quarantine_ms: None }), ..TERMS };
    assert_eq!(quarantine_ms(&resume(&nothing, BOOT, &terms)), Some(900_000), "also where nothing is left");
}

/// A log that goes on from what was found, in a new file.
fn going_on(memory: &Memory, machine: Machine, mode: Mode) -> Log {
    let found = found(memory).0;
    let resume = resume(&found, machine, &TERMS);
    let start = beginning(&found, &resume, machine, &Terms { mode, ..TERMS }, resume.token);
    let log = Log::start(Box::new(memory.clone()), start).unwrap();
    log.sync(resume.now, machine.boot_ms).unwrap();
    log
}

#[test]
fn a_journal_goes_on_behind_files_that_could_not_be_read() {
    let memory = Memory::default();
    let first = log(Mode::EverySecond, &memory);
    put(&first, "a", (10_100, 40_100));
    first.write();
    put(&first, "lost", (10_200, 40_200));
    first.begin_copy(at(10_300), 800).unwrap();
    put(&first, "unread", (10_400, 40_400));
    first.write();
    // The power fails. Of the first file the last frame is missing, and the second is there.
    let len = memory.0.lock().files[&1].len();
    memory.0.lock().files.get_mut(&1).unwrap().truncate(len - 1);
    let (damaged, keys) = found(&memory);
    assert_eq!((damaged.ending, damaged.number, keys), (Ending::Torn, 2, vec!["a".to_owned()]));
    let next = going_on(&memory, OTHER_BOOT, Mode::EverySecond);
    put(&next, "b", (10_500, 40_500));
    next.write();
    let (whole, keys) = found(&memory);
    assert_eq!((whole.ending, keys), (Ending::Killed, vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn what_is_written_behind_the_end_that_the_next_file_names_does_not_count() {
    let memory = Memory::default();
    let first = log(Mode::EverySecond, &memory);
    put(&first, "a", (10_100, 40_100));
    first.write();
    drop(going_on(&memory, LATER, Mode::EverySecond));
    write_late(&memory, |body| Item::Record { now: at(90_000), mutations: Vec::new() }.encode(body));
    let (found, keys) = found(&memory);
    assert_eq!((found.ending, keys), (Ending::Killed, vec!["a".to_owned()]));
    assert!(found.now < at(90_000));
}

#[test]
fn an_unreadable_frame_before_the_newest_file_is_a_torn_end_on_any_boot() {
    for is_whole in [true, false] {
        let memory = Memory::default();
        drop(log(Mode::EverySecond, &memory));
        write_late(&memory, |body| body.push(0xff));
        memory.0.lock().files.insert(2, frame::first_line());
        *memory.0.lock().files.get_mut(&1).unwrap().last_mut().unwrap() ^= u8::from(!is_whole);
        let mut found = found(&memory).0;
        found.settle(LATER, true);
        assert_eq!(found.ending, Ending::Torn, "the frame is whole: {is_whole}");
        memory.0.lock().files.remove(&2);
        let mut newest = self::found(&memory).0;
        newest.settle(LATER, true);
        assert_eq!(newest.ending, Ending::Damaged, "the frame is whole: {is_whole}");
    }
}

#[test]
fn files_that_are_back_after_a_loss_of_power_are_no_damage() {
    let memory = Memory::default();
    let first = log(Mode::EverySecond, &memory);
    put(&first, "a", (10_100, 40_100));
    first.write();
    let second = going_on(&memory, LATER, Mode::EverySecond);
    put(&second, "b", (10_500, 40_500));
    second.write();
    let third = going_on(&memory, LATER, Mode::EverySecond);
    put(&third, "c", (10_600, 40_600));
    third.end_copy();
    third.sync(at(10_700), 2_600).unwrap();
    memory.0.lock().files.remove(&1);
    let (back, keys) = found(&memory);
    assert_eq!((back.ending, keys), (Ending::Killed, vec!["b".to_owned(), "c".to_owned()]));
    memory.0.lock().files.remove(&2);
    assert_eq!(found(&memory).0.ending, Ending::Killed);
}

// Shows P-always-keeps-all.
#[test]
fn a_server_that_always_waits_for_the_disk_needs_no_quarantine() {
    let memory = Memory::default();
    let log = log(Mode::Always, &memory);
    put(&log, "a", (10_100, 40_100));
    log.sync(at(10_200), 700).unwrap();
    put(&log, "nobody knows", (10_300, 40_300));
    log.write();
    let (found, _) = found(&memory);
    let again = resume(&found, OTHER_BOOT, &TERMS);
    assert_eq!((again.restores, again.quarantine), (true, None));
    // What it has promised is in its journal, which memory mode does not keep.
    let forgets = resume(&found, OTHER_BOOT, &Terms { mode: Mode::Memory, ..TERMS });
    assert!(quarantine_ms(&forgets) >= Some(40_100));
}

#[test]
fn a_lease_above_the_limit_waits_for_the_disk_even_if_a_horizon_covers_it() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "usual", (10_000, 70_000));
    log.sync(at(10_000), 500).unwrap();
    assert_eq!(put(&log, "usual", (10_100, 70_100)), 1);
    assert_eq!(put(&log, "long", (10_200, 70_201)), 3);
}

#[test]
fn a_missing_file_does_not_hide_what_is_in_the_file_before_it() {
    let memory = Memory::default();
    let first = log(Mode::EverySecond, &memory);
    put(&first, "a", (10_100, 40_100));
    first.write();
    put(&first, "b", (10_200, 40_200));
    first.write();
    // Two starts that were killed before they had synced anything, and then the power fails.
    drop(going_on(&memory, LATER, Mode::EverySecond));
    drop(going_on(&memory, LATER, Mode::EverySecond));
    memory.0.lock().files.remove(&2);
    let (gap, keys) = found(&memory);
    assert_eq!((gap.ending, keys), (Ending::Torn, vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn what_only_an_earlier_program_could_keep_is_refused_by_name() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    // The field `f` of the hash `k` gets a deadline.
    let mutations =
        &Mutations { bytes: vec![2, 0, 1, b'k', 1, 1, b'f', 1, 9], count: 1, ..Mutations::default() };
    log.append(&Record { now: at(10_001), lasts_until: at(10_001), ends_at: at(10_001), mutations });
    log.sync(at(10_002), 501).unwrap();
    let (number, refused) = read(files(&memory), Seed::of(1), &mut |_, _| {}).unwrap_err();
    let says = "holds a lease of a hash field (HEXPIRE), which this program no longer supports";
    assert_eq!((number, refused.to_string().as_str()), (1, says));
}

/// What a machine knows of the storage: each number as [`VOLUME`] has it, another one, or unknown.
fn volumes() -> Vec<Volume> {
    let choices = |number: Option<u64>| [number, number.map(|number| number + 1), None];
    let all = (0..3_usize.pow(5)).map(|mut chosen| {
        let mut choose = |number| {
            let index = chosen % 3;
            chosen /= 3;
            choices(number)[index]
        };
        Volume {
            device: choose(VOLUME.device),
            disk: choose(VOLUME.disk),
            file_system: choose(VOLUME.file_system),
            root_mount: choose(VOLUME.root_mount),
            mount: choose(VOLUME.mount),
        }
    });
    all.collect()
}

#[test]
fn every_combination_of_witnesses_says_whether_the_storage_was_attached_again() {
    let is_other = |now: Option<u64>, then: Option<u64>| now.is_some() && now != then;
    for volume in volumes() {
        let mount = volume.root_mount == VOLUME.root_mount && is_other(volume.mount, VOLUME.mount);
        let expected = [
            (is_other(volume.device, VOLUME.device), "device"),
            (is_other(volume.disk, VOLUME.disk), "disk"),
            (is_other(volume.file_system, VOLUME.file_system), "file system"),
            (mount, "mount"),
        ];
        let expected = expected.into_iter().find_map(|(is_other, name)| is_other.then_some(name));
        assert_eq!(volume.change_since(&VOLUME), expected, "{volume:?}");
        assert_eq!(VOLUME.change_since(&volume), expected, "{volume:?}");
        assert_eq!(volume.change_since(&Volume::default()), None, "{volume:?}");
    }
}

#[test]
fn a_storage_that_was_attached_again_is_as_a_loss_of_power_in_each_mode() {
    for mode in [Mode::EverySecond, Mode::Always] {
        let memory = Memory::default();
        let log = log(mode, &memory);
        put(&log, "a", (10_100, 40_100));
        log.sync(at(10_200), 700).unwrap();
        let killed = found(&memory).0;
        let until = killed.horizon.until;
        for volume in volumes() {
            let machine = Machine { volume, ..LATER };
            let resume = resume(&killed, machine, &TERMS);
            let is_lost = volume.change_since(&VOLUME).is_some() && mode == Mode::EverySecond;
            let reason = "the disk of the journal was attached or mounted again";
            assert_eq!(resume.quarantine, is_lost.then_some((until, reason)), "{mode:?}, {volume:?}");
            assert_eq!(resume.token, if is_lost { killed.horizon.tokens_until } else { 3 }, "{volume:?}");
            assert_eq!((resume.now, resume.restores), (at(12_000), true), "lock time goes on with the boot");
        }
        let mut marked = killed.clone();
        marked.note_failed_sync();
        let is_lost = mode == Mode::EverySecond;
        assert_eq!(resume(&marked, LATER, &TERMS).quarantine, is_lost.then_some((until, TORN)), "{mode:?}");
        log.stop(at(11_000), 1_500).unwrap();
        let again = Machine { volume: Volume { disk: Some(9), ..VOLUME }, ..LATER };
        let mut stopped = found(&memory).0;
        assert_eq!(resume(&stopped, again, &TERMS).quarantine, None, "the end in good order was synced");
        stopped.note_failed_sync();
        assert_eq!(resume(&stopped, LATER, &TERMS).quarantine.is_some(), is_lost, "its sync has failed");
    }
}

#[test]
fn a_new_file_says_where_it_is_stored() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    let again = Volume { file_system: Some(901), ..VOLUME };
    memory.0.lock().volume = Some(again);
    log.begin_copy(at(10_200), 700).unwrap();
    assert_eq!(found(&memory).0.change_of_volume(Machine { volume: again, ..LATER }), None);
    assert_eq!(found(&memory).0.change_of_volume(LATER), Some("file system"));
    assert_eq!(found(&memory).0.change_of_volume(OTHER_BOOT), None, "the boot says enough");
}

#[test]
fn a_journal_of_a_version_without_a_volume_needs_no_quarantine() {
    let memory = Memory::default();
    let log = log(Mode::EverySecond, &memory);
    put(&log, "a", (10_100, 40_100));
    log.sync(at(10_200), 700).unwrap();
    let newest = memory.0.lock().files[&1].clone();
    let mut older = b"redlatch journal 2\n".to_vec();
    let mut frames = frame::Frames::open(&newest[..]).unwrap().unwrap();
    while let Next::Frame(body) = frames.read().unwrap() {
        let mut buffer = Vec::new();
        frame::body_start(&mut buffer);
        let items = items(body, Seed::of(1)).unwrap().unwrap().into_iter();
        items.filter(|item| !matches!(item, Item::Volume(_))).for_each(|item| item.encode(&mut buffer));
        frame::seal(&mut buffer).unwrap();
        older.extend_from_slice(&buffer);
    }
    assert!(older.len() < newest.len());
    memory.0.lock().files.insert(1, older);
    let (found, keys) = found(&memory);
    assert_eq!((found.ending, keys), (Ending::Killed, vec!["a".to_owned()]));
    assert_eq!(resume(&found, LATER, &TERMS).quarantine, None);
}
