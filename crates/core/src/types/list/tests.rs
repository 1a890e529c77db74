//! Lists against a plain vector.

use super::*;

fn list(words: &[&str]) -> List {
    let mut list = List::new();
    words.iter().for_each(|word| list.push(End::Tail, word.as_bytes()));
    list
}

fn words(list: &List) -> Vec<String> {
    list.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn elements_are_removed_from_the_given_end() {
    let full = list(&["a", "b", "a", "c", "a"]);
    for (end, limit, count, left) in [
        (End::Head, 1, 1, vec!["b", "a", "c", "a"]),
        (End::Tail, 1, 1, vec!["a", "b", "a", "c"]),
        (End::Head, 2, 2, vec!["b", "c", "a"]),
        (End::Tail, 2, 2, vec!["a", "b", "c"]),
        (End::Head, usize::MAX, 3, vec!["b", "c"]),
        (End::Tail, 0, 0, vec!["a", "b", "a", "c", "a"]),
    ] {
        let mut list = full.clone();
        assert_eq!(list.remove(b"a", end, limit), count);
        assert_eq!(words(&list), left, "{end:?} {limit}");
    }
    assert_eq!(full.clone().remove(b"nope", End::Head, 9), 0);
}

#[test]
fn a_range_beyond_the_list_is_cut_to_it() {
    let full = list(&["a", "b", "c"]);
    for (start, end, left) in [
        (0, 99, vec!["a", "b", "c"]),
        (1, 2, vec!["b"]),
        (2, 1, vec![]),
        (9, 99, vec![]),
        (0, 0, vec![]),
        (1, usize::MAX, vec!["b", "c"]),
    ] {
        let mut list = full.clone();
        list.keep(start, end);
        assert_eq!(words(&list), left, "{start}..{end}");
    }
    let mut list = full;
    list.insert(99, b"d");
    list.insert(0, b"_");
    assert_eq!(words(&list), ["_", "a", "b", "c", "d"]);
    assert!(!list.set(5, b"x") && list.set(4, b"D"));
    list.drop_from(End::Head, 2);
    list.drop_from(End::Tail, 1);
    assert_eq!(words(&list), ["b", "c"]);
    list.drop_from(End::Tail, usize::MAX);
    assert!(list.is_empty());
}

#[test]
fn a_list_that_was_long_frees_its_memory() {
    let mut list = List::new();
    for _ in 0..10_000 {
        list.push(End::Tail, b"element");
    }
    assert!(list.heap_bytes() >= 240_000);
    for _ in 0..9_990 {
        list.pop(End::Head);
    }
    assert!(list.heap_bytes() < 4_000, "{}", list.heap_bytes());
}

/// Random edits, each done to a list and to a vector.
#[test]
fn every_edit_has_the_effect_of_a_vector() {
    for seed in 1..=50_u64 {
        let mut state = seed;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let (mut list, mut model) = (List::new(), Vec::<Vec<u8>>::new());
        for _ in 0..400 {
            let word = vec![b'a' + random(3) as u8; [1, 30][random(2)]];
            let at = random(model.len() + 2);
            match random(8) {
                0 | 1 => {
                    list.push(End::Head, &word);
                    model.insert(0, word);
                }
                2 | 3 => {
                    list.push(End::Tail, &word);
                    model.push(word);
                }
                4 => {
                    let popped = list.pop(End::Head).map(|element| element.to_vec());
                    assert_eq!(popped, (!model.is_empty()).then(|| model.remove(0)));
                }
                5 => {
                    list.insert(at, &word);
                    model.insert(at.min(model.len()), word);
                }
                6 => assert_eq!(list.set(at, &word), model.get_mut(at).map(|place| *place = word).is_some()),
                _ => {
                    let limit = random(3);
                    let mut left = limit;
                    model.retain(|element| {
                        let goes = left > 0 && *element == word;
                        left -= usize::from(goes);
                        !goes
                    });
                    assert_eq!(list.remove(&word, End::Head, limit), limit - left);
                }
            }
            assert!(list.iter().eq(model.iter().map(Vec::as_slice)), "seed {seed}");
            let long: usize = list.elements.iter().map(Element::heap_bytes).sum();
            assert_eq!(list.long_bytes, long, "seed {seed}");
        }
    }
}
