//! Sets against a sorted tree.

use std::collections::BTreeSet;

use super::*;

fn texts(set: &Set) -> Vec<String> {
    set.iter().map(|member| member.with_bytes(|bytes| String::from_utf8_lossy(bytes).into_owned())).collect()
}

fn set(members: &[&[u8]]) -> Set {
    let mut set = Set::new(Seed::of(7));
    members.iter().for_each(|member| {
        set.insert(member);
    });
    set
}

#[test]
fn integers_are_sorted_until_another_member_comes() {
    let mut set = set(&[b"30", b"-1", b"7", b"30"]);
    assert_eq!((texts(&set), set.encoding()), (vec!["-1".into(), "7".into(), "30".into()], "intset"));
    for no_integer in ["07", "+7", "", "7 ", "9223372036854775808"] {
        assert!(!set.contains(no_integer.as_bytes()), "{no_integer:?}");
    }
    assert!(set.insert(b"07") && !set.insert(b"7"));
    assert_eq!(set.encoding(), "hashtable");
    assert!(set.remove(b"07"));
    assert_eq!((texts(&set).len(), set.encoding()), (3, "hashtable"), "once bytes, always bytes");
}

#[test]
fn too_many_integers_become_a_table() {
    let mut set = Set::new(Seed::of(7));
    for integer in 0..INTEGERS_MAX {
        assert!(set.insert(integer.to_string().as_bytes()));
    }
    assert_eq!(set.encoding(), "intset");
    assert!(set.insert(b"-5"));
    assert_eq!((set.len(), set.encoding()), (INTEGERS_MAX + 1, "hashtable"));
    assert!((0..INTEGERS_MAX).all(|integer| set.contains(integer.to_string().as_bytes())));
}

#[test]
fn sets_are_equal_whatever_their_representation() {
    let mut once_words = set(&[b"1", b"2", b"x"]);
    once_words.remove(b"x");
    let integers = set(&[b"2", b"1"]);
    assert_eq!(once_words, integers);
    assert_eq!(integers, once_words);
    assert_ne!(integers, set(&[b"2", b"3"]));
}

#[test]
fn a_set_that_was_large_frees_its_memory() {
    let mut set = Set::new(Seed::of(7));
    for index in 0..10_000 {
        set.insert(format!("member {index}").as_bytes());
    }
    let large = set.heap_bytes();
    for index in 10..10_000 {
        assert!(set.remove(format!("member {index}").as_bytes()));
    }
    assert!(set.heap_bytes() * 20 < large && set.len() == 10, "{large} {}", set.heap_bytes());
}

#[test]
fn a_scan_misses_no_member_that_stays() {
    for seed in 1..=40_u64 {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut set = Set::new(Seed::of(7));
        let size = 1 + random(60);
        (0..size).for_each(|n| assert!(set.insert(format!("stays {n}").as_bytes())));
        (0..size).for_each(|n| assert!(set.insert(format!("goes {n}").as_bytes())));
        let mut seen = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = set.scan(cursor, random(6) as u64, |member| {
                seen.insert(member.with_bytes(<[u8]>::to_vec));
            });
            if cursor == 0 {
                break;
            }
            for _ in 0..random(4) {
                set.remove(format!("goes {}", random(size)).as_bytes());
                set.insert(format!("comes {}", random(90)).as_bytes());
            }
        }
        assert!((0..size).all(|n| seen.contains(format!("stays {n}").as_bytes())), "seed {seed}");
    }
    let set = set(&[b"a", b"b"]);
    for cursor in [u64::MAX, 1 << 40, 3] {
        assert_eq!(set.scan(cursor, u64::MAX, |_| {}), 0, "a cursor that no scan returned ends");
    }
}

/// Random edits, each done to a set and to a tree; small sets, large ones, words and integers.
#[test]
fn every_edit_has_the_effect_of_a_sorted_tree() {
    for seed in 1..=60_u64 {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let (mut set, mut model) = (Set::new(Seed::of(7)), BTreeSet::<Vec<u8>>::new());
        let kinds = random(4);
        for _ in 0..600 {
            let number = random([8, 20, 60, 600][kinds]);
            let word = match random(40) {
                0 if seed % 2 == 0 => format!("a member that is too long to stand in its place, {number}"),
                _ => number.to_string(),
            };
            match random(5) {
                0..=2 => assert_eq!(set.insert(word.as_bytes()), model.insert(word.into())),
                3 => assert_eq!(set.remove(word.as_bytes()), model.remove(word.as_bytes())),
                _ if !set.is_empty() => {
                    let member = set.take_at(random(set.len()));
                    assert!(model.remove(&*member), "{member:?}");
                }
                _ => {}
            }
            assert_eq!(set.len(), model.len());
        }
        assert!(model.iter().all(|word| set.contains(word)), "seed {seed}");
        assert!(set.iter().all(|member| member.with_bytes(|bytes| model.contains(bytes))), "seed {seed}");
        let long: usize = set.iter().map(|member| member.with_bytes(|b| Element::new(b).heap_bytes())).sum();
        match &set.form {
            Form::Integers(integers) => assert!(integers.is_sorted()),
            Form::Listed { long_bytes, .. } => assert_eq!(*long_bytes, long),
            Form::Indexed(hashed) => assert_eq!(hashed.long_bytes, long),
        }
    }
}
