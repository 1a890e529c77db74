//! The laws of the table, compared with a model that is a map.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A table and what it must hold: the hash of each id.
#[derive(Default)]
struct Harness {
    table: Table,
    hashes: BTreeMap<u32, u32>,
    next_id: u32,
}

impl Harness {
    fn insert(&mut self, hash: u32) -> u32 {
        let id = self.next_id;
        self.next_id += 1;
        self.table.insert(hash, id);
        self.hashes.insert(id, hash);
        id
    }

    fn remove(&mut self, id: u32) {
        let hash = self.hashes.remove(&id).expect("the id is in the map");
        assert!(self.table.remove(hash, id));
        assert!(!self.table.remove(hash, id), "{id}: only once");
    }

    fn remove_nth(&mut self, nth: usize) {
        if let Some(id) = self.hashes.keys().nth(nth % self.hashes.len().max(1)).copied() {
            self.remove(id);
        }
    }

    fn assert_laws(&self) {
        self.table.assert_laws(|id| self.hashes[&id]);
        assert_eq!(self.table.len(), self.hashes.len());
        for (id, hash) in &self.hashes {
            assert_eq!(self.table.find(*hash, |other| other == *id), Some(*id));
            assert_eq!(self.table.find(*hash, |_| false), None);
        }
    }

    /// A whole scan that calls `between` after each step. Returns every visit.
    fn scan(&mut self, mut between: impl FnMut(&mut Self)) -> Vec<u32> {
        let (mut visits, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self.table.scan(cursor, |id| visits.push(id));
            if cursor == 0 {
                return visits;
            }
            between(self);
        }
    }
}

/// Hashes of every kind: spread out, crowded at either end, and equal.
fn hash() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => any::<u32>(),
        1 => 0..50u32,
        1 => (0..50u32).prop_map(|low| u32::MAX - low),
        1 => Just(u32::MAX),
        1 => (0..8u32).prop_map(|high| high << 29),
    ]
}

/// One change of a table: a hash is inserted, or the nth entry is removed.
fn changes(len: usize) -> impl Strategy<Value = Vec<Result<u32, usize>>> {
    let one = prop_oneof![3 => hash().prop_map(Ok), 2 => any::<usize>().prop_map(Err)];
    prop::collection::vec(one, 0..len)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_table_finds_its_entries_and_no_others(changes in changes(400)) {
        let mut harness = Harness::default();
        for change in changes {
            match change {
                Ok(hash) => drop(harness.insert(hash)),
                Err(nth) => harness.remove_nth(nth),
            }
        }
        harness.assert_laws();
    }

    #[test]
    fn a_scan_visits_what_stays_exactly_once(
        stays in prop::collection::vec(hash(), 0..200), comes in changes(400), burst in 1..20usize,
    ) {
        let mut harness = Harness::default();
        let stays: BTreeSet<u32> = stays.into_iter().map(|hash| harness.insert(hash)).collect();
        let mut comes = comes.into_iter();
        let visits = harness.scan(|harness| {
            for change in comes.by_ref().take(burst) {
                match change {
                    Ok(hash) => drop(harness.insert(hash)),
                    Err(nth) => {
                        let passing = harness.hashes.keys().filter(|id| !stays.contains(id));
                        let passing: Vec<u32> = passing.copied().collect();
                        if let Some(id) = passing.get(nth % passing.len().max(1)) {
                            harness.remove(*id);
                        }
                    }
                }
            }
        });
        let seen: BTreeSet<u32> = visits.iter().copied().collect();
        prop_assert_eq!(seen.len(), visits.len(), "nothing twice");
        prop_assert!(stays.is_subset(&seen), "nothing left out");
    }

    #[test]
    fn any_cursor_ends(hashes in prop::collection::vec(hash(), 0..100), cursor in any::<u64>()) {
        let mut harness = Harness::default();
        for hash in hashes {
            harness.insert(hash);
        }
        let mut cursor = cursor;
        for _ in 0..=harness.table.len() {
            let next = harness.table.scan(cursor, |_| ());
            prop_assert!(next == 0 || next > cursor && next <= u64::from(u32::MAX), "a scan moves on");
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        prop_assert_eq!(cursor, 0);
    }
}

#[test]
fn a_scan_survives_growth_and_shrinkage_between_its_steps() {
    let mut harness = Harness::default();
    let stays: Vec<u32> = (0..300u32).map(|n| harness.insert(scramble(n.into()) as u32)).collect();
    let mut passing = Vec::new();
    let mut steps = 0;
    let (mut least, mut most) = (usize::MAX, 0);
    let visits = harness.scan(|harness| {
        steps += 1;
        // Forty entries are added at each of twenty steps, then all are removed, and so on.
        if steps % 40 < 20 {
            passing.extend((0..40u64).map(|n| harness.insert(scramble(steps << 32 | n) as u32)));
        } else {
            passing.drain(..passing.len().min(80)).for_each(|id| harness.remove(id));
        }
        (least, most) = (least.min(harness.table.buckets), most.max(harness.table.buckets));
    });
    assert!(most > least * 2, "the table grew and shrank: {least} to {most} buckets");
    assert!(stays.iter().all(|id| visits.iter().filter(|visit| *visit == id).count() == 1));
}

#[test]
fn a_random_entry_is_about_as_likely_as_any_other() {
    let mut harness = Harness::default();
    for n in 0..100u64 {
        harness.insert(scramble(n) as u32);
    }
    let mut counts = [0u32; 100];
    for entropy in 0..100_000u64 {
        counts[harness.table.random(entropy).expect("the table has entries") as usize] += 1;
    }
    let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
    assert!(least > Some(850) && most < Some(1_150), "{least:?} to {most:?} of 1,000");
}

#[test]
fn a_random_entry_is_found_among_many_gaps() {
    let mut table = Table::default();
    assert_eq!(table.random(1), None);
    for id in 0..50_000 {
        table.insert(scramble(id.into()) as u32, id);
    }
    for id in 1..50_000 {
        table.remove(scramble(id.into()) as u32, id);
    }
    assert!((0..1_000).all(|entropy| table.random(entropy) == Some(0)));
    assert!(table.heap_bytes() < 1_000, "{} bytes for one entry", table.heap_bytes());
}

#[test]
fn a_table_that_has_grown_is_more_than_half_full() {
    let mut table = Table::default();
    for id in 0..100_000u32 {
        table.insert(scramble(id.into()) as u32, id);
        let bytes = table.heap_bytes();
        assert!(bytes < (id as usize + 1) * 8 * 2 + 4_096, "{bytes} bytes for {id}");
    }
}

#[test]
fn a_smallest_table_allocates_once() {
    let mut table = Table::default();
    assert_eq!(table.heap_bytes(), 0);
    table.insert(5, 1);
    let words = table.block.as_ptr();
    for id in 0..100 {
        assert!(table.remove(5, if id == 0 { 1 } else { id - 1 + 10 }));
        table.insert(5, id + 10);
    }
    assert_eq!(table.block.as_ptr(), words);
}

#[test]
fn an_entry_gets_another_id_in_its_place() {
    let mut table = Table::default();
    table.insert(7, 1);
    table.insert(7, 2);
    assert!(table.rename(7, 1, 9));
    assert!(!table.rename(7, 1, 9));
    assert!(!table.rename(8, 2, 9));
    assert_eq!(table.ids().collect::<BTreeSet<_>>(), BTreeSet::from([2, 9]));
}
