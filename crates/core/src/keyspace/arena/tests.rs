//! The laws of the arena. What entries hold is tested through the shard.

use super::*;

const META: EntryMeta = EntryMeta { deadline_ms: NO_DEADLINE, stamp: 0, table: 0 };

#[test]
fn a_slot_size_is_at_most_twice_the_one_before() {
    // Or a value that has shrunk to less than half could be given a slot in the page it leaves.
    for pair in STRIDES.windows(2) {
        assert!(pair[0] < pair[1] && pair[1] <= pair[0] * 2, "{pair:?}");
    }
}

#[test]
fn entries_of_every_size_keep_their_bytes() {
    let mut arena = Arena::new();
    let sizes =
        (0..2_000).chain((2_000..40_000).step_by(111)).chain([16_327, 16_328, 16_329, 70_000, 100_000]);
    let ids: Vec<(u32, usize)> = sizes
        .map(|size| (arena.insert(META, &[1; 10][..size.min(10)], &vec![size as u8; size]), size))
        .collect();
    arena.assert_laws();
    for (id, size) in &ids {
        assert!(*id < HEADS_FROM);
        assert_eq!(arena.key(*id), &[1; 10][..*size.min(&10)]);
        assert!(arena.value(*id).len() == *size && arena.value(*id).iter().all(|byte| *byte == *size as u8));
        let waste = arena.bytes(*id) - HEADER_BYTES - size - size.min(&10);
        assert!(waste <= 3 + size / 2, "{size} bytes waste {waste}");
    }
    for (id, _) in ids {
        arena.remove(id);
    }
    arena.assert_laws();
}

#[test]
fn a_key_longer_than_a_slot_keeps_its_bytes_when_the_value_goes() {
    let mut arena = Arena::new();
    let key = vec![7; 100_000];
    let id = arena.insert(META, &key, b"value");
    assert_eq!((arena.key(id), arena.value(id)), (&key[..], &b"value"[..]));
    assert_eq!(arena.resize(id, 0, 0, 0), id);
    assert_eq!((arena.key(id), arena.value(id)), (&key[..], &b""[..]));
    assert_eq!(arena.resize(id, 9, 9, 0), id);
    assert_eq!((arena.key(id), arena.value(id)), (&key[..], &[0; 9][..]));
    arena.assert_laws();
}

#[test]
fn a_slot_that_is_free_is_used_before_a_new_one() {
    let mut arena = Arena::new();
    let ids: Vec<u32> = (0..3_000u32).map(|n| arena.insert(META, &n.to_le_bytes(), b"token")).collect();
    let touched = arena.touched_bytes;
    for id in ids.iter().step_by(3) {
        arena.remove(*id);
    }
    let again: Vec<u32> = (0..1_000u32).map(|n| arena.insert(META, &n.to_be_bytes(), b"TOKEN")).collect();
    assert_eq!(arena.touched_bytes, touched);
    assert!(again.iter().all(|id| ids.iter().step_by(3).any(|old| old == id)));
    assert!(ids.iter().skip(1).step_by(3).all(|id| arena.value(*id) == b"token"));
    arena.assert_laws();
}

#[test]
fn pages_without_entries_are_freed_except_one_of_each_size() {
    let mut arena = Arena::new();
    let ids: Vec<u32> = (0..20_000u32).map(|n| arena.insert(META, &n.to_le_bytes(), b"token")).collect();
    let other = arena.insert(META, b"other", &[0; 1_000]);
    let pages = arena.pages.len();
    assert!(pages > 10, "{pages} pages");
    for (n, id) in ids.iter().enumerate() {
        arena.remove(*id);
        if n % 1_000 == 0 {
            arena.assert_laws();
        }
    }
    assert_eq!(arena.pages.len() - arena.vacant.len(), 2);
    assert_eq!(arena.touched_bytes, arena.bytes(other));

    let again = arena.insert(META, b"lock", b"token");
    assert!(ids.contains(&again), "its number is reused");
    let large = arena.insert(META, b"lock", &[0; 100_000]);
    assert!((large >> SLOT_BITS) < pages as u32, "as are those of the freed pages");
    for id in [again, large, other] {
        arena.assert_laws();
        arena.remove(id);
    }
    assert!(arena.pages.is_empty(), "no page of many is kept once all entries have been removed");
}

#[test]
fn a_value_that_grows_is_filled_with_zeros_even_in_a_used_slot() {
    let mut arena = Arena::new();
    let old = arena.insert(META, b"lock", &[0xff; 40]);
    arena.remove(old);
    let id = arena.insert(META, b"lock", &[1; 39]);
    assert_eq!(id, old);
    assert_eq!(arena.resize(id, 20, 20, 0), id);
    assert_eq!(arena.resize(id, 40, 40, 0), id);
    assert_eq!(arena.value(id), [[1; 20], [0; 20]].concat());
}
