//! The reader of journals on any bytes, and on a real journal that is cut or changed.
//!
//! Laws    no panic, and no record that was not written; what is read of a damaged journal is a prefix of it, and a
//!         journal in which a frame is missing counts as damaged or as cut at its end.

use std::io::{self, Cursor};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use proptest::collection::vec;
use proptest::prelude::*;
use redlatch_core::journal::item::Horizon;
use redlatch_core::journal::log::{Log, Start, Storage};
use redlatch_core::journal::recovery::{self, Ending};
use redlatch_core::journal::{Journal, Mode, Mutation, Record, frame};
use redlatch_core::keyspace::{Keyspace, Layout};
use redlatch_core::types::Seed;
use redlatch_proto::clock::{Deadline, LockTime};

#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Storage for Memory {
    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.lock().extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn begin(&self, _: u64) -> io::Result<()> {
        *self.0.lock() = frame::first_line();
        Ok(())
    }

    fn remove_before(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A journal of some records, each in a frame of its own, and the records.
pub(crate) fn real(records: usize) -> (Vec<u8>, Vec<Vec<Mutation>>) {
    let memory = Memory::default();
    let horizon = Horizon { lease_ms_max: 60_000, ..Horizon::default() };
    let start = Start::of_first_file([7; 20], Some([1; 16]), Mode::EverySecond, horizon);
    let log = Log::start(Box::new(memory.clone()), start).expect("memory takes everything");
    let mut written = Vec::new();
    for number in 0..records as u64 {
        let now = LockTime::from_millis(1_000 + number);
        let key = Bytes::from(format!("key:{number}"));
        let mutation = match number % 3 {
            0 => Mutation::Remove { database: 0, key, expired: false },
            1 => Mutation::SetDeadline { database: 1, key, deadline: Some(Deadline::at(now + 500)) },
            _ => Mutation::Put { database: 0, key, value: Bytes::from(vec![b'v'; 9]), deadline: None },
        };
        let mutations = vec![mutation];
        let (lasts_until, changes) = (now + 500, &mutations.iter().collect());
        log.append(&Record { now, lasts_until, ends_at: lasts_until, mutations: changes });
        log.write();
        written.push(mutations);
        if number % 4 == 3 {
            log.sync(now, number).expect("memory is always synced");
        }
    }
    let file = memory.0.lock().clone();
    (file, written)
}

/// Reads files; returns how they end and the records. Everything is applied to a keyspace, too.
fn read(files: Vec<(u64, &[u8])>) -> Option<(Ending, Vec<Vec<Mutation>>)> {
    let keyspace = Keyspace::new(Layout { shards: 4, databases: 2, seed: 3, journal: None }, || {});
    let mut replay = keyspace.replay();
    let mut records = Vec::new();
    let files = files.into_iter().map(|(number, file)| (number, Cursor::new(file))).collect();
    let found = recovery::read(files, Seed::of(3), &mut |now, mutations| {
        replay.at(now);
        for mutation in mutations.iter().filter(|mutation| mutation.database() < keyspace.databases()) {
            replay.apply(mutation);
        }
        records.push(mutations.to_vec());
    });
    let found = found.ok()?;
    replay.finish(found.now, 0);
    keyspace.assert_laws();
    Some((found.ending, records))
}

/// Files of any bytes, mostly with a first line and frames whose checksums are right.
pub(crate) fn inputs() -> BoxedStrategy<Vec<u8>> {
    let body = prop_oneof![
        2 => vec(any::<u8>(), 1..60),
        3 => vec(0..24_u8, 1..60),
        3 => (real_body(), any::<prop::sample::Index>(), any::<u8>()).prop_map(|(mut body, at, byte)| {
            let at = at.index(body.len());
            body[at] = byte;
            body
        }),
    ];
    let framed = vec(body, 0..5).prop_map(|bodies| {
        // Every reader would refuse a body after one that it does not know, so the first is a right one.
        let mut file = [frame::first_line(), sealed(&first_body())].concat();
        bodies.iter().for_each(|body| file.extend(sealed(body)));
        file
    });
    prop_oneof![4 => framed, 1 => vec(any::<u8>(), 0..200)].boxed()
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::new();
    frame::body_start(&mut buffer);
    buffer.extend_from_slice(body);
    frame::seal(&mut buffer).expect("a short frame");
    buffer
}

/// The bodies of the frames of a real journal.
fn bodies() -> Vec<Vec<u8>> {
    let (file, _) = real(12);
    let mut frames = frame::Frames::open(&file[..]).expect("a journal").expect("a first line");
    let next = || match frames.read() {
        Ok(frame::Next::Frame(body)) => Some(body.to_vec()),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

fn first_body() -> Vec<u8> {
    bodies().swap_remove(0)
}

fn real_body() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(bodies())
}

/// Any bytes, as one file and as two.
pub(crate) fn check(bytes: &[u8]) {
    read(vec![(1, bytes)]);
    read(vec![(1, &bytes[..bytes.len() / 2]), (2, &bytes[bytes.len() / 2..])]);
    let (whole, written) = real(3);
    // What another file says does not change the records of the file before it.
    if let Some((_, records)) = read(vec![(1, &whole), (2, bytes)]) {
        assert!(records.starts_with(&written), "{records:?}");
    }
}

/// A journal of which every byte is cut off or changed.
pub(crate) fn check_damage() {
    let (whole, written) = real(12);
    let all = read(vec![(1, &whole)]).expect("a journal");
    assert_eq!(all, (Ending::Killed, written.clone()));
    for len in 0..whole.len() {
        let Some((ending, records)) = read(vec![(1, &whole[..len])]) else { continue };
        assert!(written.starts_with(&records), "{len}");
        assert!(matches!(ending, Ending::Nothing | Ending::Killed), "{len}: {ending:?}");
    }
    for at in 0..whole.len() {
        for flip in [1, 0x80, 0xff] {
            let mut changed = whole.clone();
            changed[at] ^= flip;
            let Some((_, records)) = read(vec![(1, &changed)]) else { continue };
            assert!(records.len() < written.len() || records == written, "{at}");
            assert!(written.starts_with(&records), "{at} {flip}");
        }
    }
}
