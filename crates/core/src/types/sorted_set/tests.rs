//! The laws of a sorted set, compared with a simple model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// A simple model of the set.
#[derive(Debug, Default)]
struct Model(BTreeMap<Vec<u8>, f64>);

impl Model {
    fn entries(&self) -> Vec<(&[u8], f64)> {
        let mut entries: Vec<_> = self.0.iter().map(|(member, score)| (member.as_slice(), *score)).collect();
        // The sort is stable, and the map is in the order of the members.
        entries.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap());
        entries
    }

    fn ranks(&self, is_inside: impl Fn(&[u8], f64) -> bool) -> Vec<usize> {
        let entries = self.entries();
        let inside = entries.iter().enumerate().filter(|(_, (member, score))| is_inside(member, *score));
        inside.map(|(rank, _)| rank).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, i8),
    Remove(u16),
    RemoveRange(u16, u16),
}

fn steps(members: u16, most: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..members, -9_i8..9).prop_map(|(member, score)| Step::Insert(member, score)),
        4 => (0..members).prop_map(Step::Remove),
        1 => (any::<u16>(), 0..20_u16).prop_map(|(from, len)| Step::RemoveRange(from, len)),
    ];
    proptest::collection::vec(step, 1..most)
}

fn name(member: u16) -> Vec<u8> {
    format!("{:x}", u32::from(member).wrapping_mul(2_654_435_761)).into_bytes()
}

fn play(set: &mut SortedSet, model: &mut Model, step: &Step) {
    match step {
        Step::Insert(member, score) => {
            let score = f64::from(*score) / 4.0;
            let old = model.0.insert(name(*member), score);
            assert_eq!(set.insert(&name(*member), score), old);
        }
        Step::Remove(member) => assert_eq!(set.remove(&name(*member)), model.0.remove(&name(*member))),
        Step::RemoveRange(from, len) => {
            let from = usize::from(*from) % (set.len() + 1);
            let to = (from + usize::from(*len)).min(set.len());
            let gone: Vec<_> = model.entries()[from..to].iter().map(|(member, _)| member.to_vec()).collect();
            gone.iter().for_each(|member| assert!(model.0.remove(member).is_some()));
            set.remove_range(from..to);
        }
    }
}

fn assert_same(set: &SortedSet, model: &Model) {
    set.assert_laws();
    let wanted = model.entries();
    assert_eq!(set.entries().collect::<Vec<_>>(), wanted);
    assert_eq!(set.entries().rev().collect::<Vec<_>>(), wanted.iter().rev().copied().collect::<Vec<_>>());
    for (rank, (member, score)) in wanted.iter().enumerate() {
        assert_eq!(set.rank(member), Some((rank, *score)));
        assert_eq!(set.score(member), Some(*score));
    }
    assert_eq!((set.rank(b"none"), set.score(b"none")), (None, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn it_behaves_like_the_model(
        small in steps(40, 300),
        large in steps(3_000, 3_000),
        ranges in proptest::collection::vec((-9_i8..9, any::<bool>(), -9_i8..9, any::<bool>()), 20),
    ) {
        for steps in [&small, &large] {
            let (mut set, mut model) = (SortedSet::new(Seed::of(7)), Model::default());
            for step in steps {
                play(&mut set, &mut model, step);
            }
            assert_same(&set, &model);
            for (min, is_min_open, max, is_max_open) in &ranges {
                let (min, max) = (f64::from(*min) / 4.0, f64::from(*max) / 4.0);
                let range = ScoreRange { min, is_min_open: *is_min_open, max, is_max_open: *is_max_open };
                let inside = |_: &[u8], score| {
                    (score > min || score == min && !is_min_open)
                        && (score < max || score == max && !is_max_open)
                };
                assert_eq!(set.ranks_by_score(&range).collect::<Vec<_>>(), model.ranks(inside));
            }
            let (from, to) = (set.len() / 3, set.len() / 2);
            assert_eq!(set.range(from..to).collect::<Vec<_>>(), model.entries()[from..to]);
            assert_eq!(set, set.clone());
        }
    }

    #[test]
    fn ranges_by_member_are_those_of_the_model(
        members in proptest::collection::btree_set(0..2_000_u16, 0..600),
        bounds in proptest::collection::vec((0..2_000_u16, any::<bool>(), 0..2_000_u16, any::<bool>()), 20),
    ) {
        let (mut set, mut model) = (SortedSet::new(Seed::of(7)), Model::default());
        members.iter().for_each(|member| play(&mut set, &mut model, &Step::Insert(*member, 0)));
        for (min, is_min_open, max, is_max_open) in bounds {
            let (min, max) = (name(min), name(max));
            let bound = |word, is_open| if is_open { LexBound::Open(word) } else { LexBound::Closed(word) };
            let range = LexRange { min: bound(&min, is_min_open), max: bound(&max, is_max_open) };
            let inside = |member: &[u8], _: f64| {
                (member > &min[..] || member == min && !is_min_open)
                    && (member < &max[..] || member == max && !is_max_open)
            };
            for is_from_the_end in [false, true] {
                let found: Vec<_> = set.ranks_by_member(&range, is_from_the_end).collect();
                assert_eq!(found, model.ranks(inside));
            }
        }
        let all = LexRange { min: LexBound::First, max: LexBound::Last };
        assert_eq!(set.ranks_by_member(&all, false), 0..set.len());
        let none = LexRange { min: LexBound::Last, max: LexBound::First };
        assert!(set.ranks_by_member(&none, true).is_empty());
    }
}

fn filled(members: u16) -> SortedSet {
    let mut set = SortedSet::new(Seed::of(7));
    (0..members).for_each(|member| assert_eq!(set.insert(&name(member), f64::from(member)), None));
    set
}

#[test]
fn the_form_changes_at_the_129th_member_or_a_long_one_and_never_back() {
    let mut set = filled(128);
    assert_eq!(set.encoding(), "listpack");
    assert_eq!(set.insert(&name(7), 9.0), Some(7.0));
    assert_eq!(set.encoding(), "listpack");
    set.insert(b"one more", 0.0);
    assert_eq!(set.encoding(), "skiplist");
    set.remove_range(1..set.len());
    assert_eq!((set.len(), set.encoding()), (1, "skiplist"));
    set.assert_laws();

    let mut set = SortedSet::new(Seed::of(7));
    set.insert(&[b'x'; 64], 1.0);
    assert_eq!(set.encoding(), "listpack");
    set.insert(&[b'x'; 65], 1.0);
    assert_eq!((set.len(), set.encoding()), (2, "skiplist"));
    set.assert_laws();
}

#[test]
fn a_small_set_forgets_the_sign_of_zero_and_a_large_one_does_not() {
    for (members, is_kept) in [(3, false), (300, true)] {
        let mut set = filled(members);
        set.insert(b"zero", -0.0);
        assert_eq!(set.score(b"zero").map(f64::is_sign_negative), Some(is_kept));
        assert_eq!(set.insert(b"zero", 0.0).map(f64::is_sign_negative), Some(is_kept));
        set.assert_laws();
    }
}

#[test]
fn scores_that_only_rise_or_only_fall_keep_the_laws() {
    for sign in [1.0, -1.0] {
        let mut set = SortedSet::new(Seed::of(7));
        for member in 0..2_000_u16 {
            set.insert(&name(member), sign * f64::from(member));
        }
        set.assert_laws();
        for member in 0..1_990_u16 {
            let expected = if sign > 0.0 { 0 } else { set.len() - 1 };
            assert_eq!(set.rank(&name(member)).map(|(rank, _)| rank), Some(expected));
            set.remove(&name(member));
        }
        set.assert_laws();
    }
}

#[test]
fn infinite_scores_stand_at_the_ends() {
    let mut set = filled(300);
    set.insert(b"high", f64::INFINITY);
    set.insert(b"low", f64::NEG_INFINITY);
    assert_eq!(set.rank(b"low"), Some((0, f64::NEG_INFINITY)));
    assert_eq!(set.rank(b"high"), Some((301, f64::INFINITY)));
    let range =
        ScoreRange { min: f64::NEG_INFINITY, is_min_open: true, max: f64::INFINITY, is_max_open: true };
    assert_eq!(set.ranks_by_score(&range), 1..301);
}

#[test]
fn a_scan_visits_every_member_that_stays() {
    let mut set = filled(1_000);
    let mut seen = std::collections::BTreeSet::new();
    let (mut cursor, mut round) = (0, 0);
    loop {
        cursor = set.scan(cursor, 7, |member, _| {
            seen.insert(member.to_vec());
        });
        if cursor == 0 {
            break;
        }
        // Every third member goes during the scan, some seen and some not; others come.
        set.remove(&name(round * 3));
        set.insert(&name(30_000 + round), 0.5);
        round += 1;
    }
    assert!((0..1_000).filter(|member| member % 3 != 0).all(|member| seen.contains(&name(member))));
    assert_eq!(set.scan(u64::MAX, 10, |_, _| {}), set.len() as u64 - 10);
    assert_eq!(filled(5).scan(3, 1, |_, _| {}), 0);
}

#[test]
fn where_scores_differ_a_range_by_member_depends_on_the_end_from_which_it_is_read() {
    let from = |members: &[&[u8; 1]]| {
        let mut set = SortedSet::new(Seed::of(7));
        members
            .iter()
            .zip(1_i16..)
            .for_each(|(member, score)| assert_eq!(set.insert(*member, score.into()), None));
        set
    };
    // Found by asking the real server.
    let ranks = |set: &SortedSet, min: &[u8; 1], max: &[u8; 1]| {
        let range = LexRange { min: LexBound::Closed(min), max: LexBound::Closed(max) };
        [false, true].map(|is_from_the_end| set.ranks_by_member(&range, is_from_the_end))
    };
    let set = from(&[b"c", b"a", b"d", b"b"]);
    assert_eq!(ranks(&set, b"b", b"c"), [0..2, 2..4]);
    assert_eq!(ranks(&set, b"c", b"b"), [0..0, 0..0]);
    assert_eq!(ranks(&from(&[b"c", b"a", b"d"]), b"b", b"d"), [0..3, 2..3]);
    let set = from(&[b"x", b"m", b"a"]);
    assert_eq!(ranks(&set, b"b", b"y"), [0..0, 0..0]);
    assert_eq!(ranks(&set, b"a", b"n"), [0..0, 0..0]);
}
