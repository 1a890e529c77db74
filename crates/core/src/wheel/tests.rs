//! The laws of the wheel, compared with a model that is a sorted map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Entries as the wheel sees them, and the wheel.
#[derive(Default)]
struct Harness {
    wheel: Wheel,
    entries: Entries,
    /// Armed timers by deadline, then by order of arming.
    model: BTreeMap<(u64, usize), u32>,
    arms: usize,
}

#[derive(Default)]
struct Entries(Vec<(Timer, u64)>);

impl Timers for Entries {
    fn timer(&self, id: u32) -> Timer {
        self.0[id as usize].0
    }

    fn set_timer(&mut self, id: u32, timer: Timer) {
        self.0[id as usize].0 = timer;
    }

    fn deadline_ms(&self, id: u32) -> u64 {
        self.0[id as usize].1
    }
}

impl Harness {
    fn arm(&mut self, deadline_ms: u64) -> u32 {
        let id = self.entries.0.len() as u32;
        self.entries.0.push((Timer::CUT, deadline_ms));
        self.wheel.arm(id, &mut self.entries);
        self.arms += 1;
        self.model.insert((deadline_ms, self.arms), id);
        id
    }

    /// Cuts the `nth` armed timer, if there is one, and returns its id.
    fn cut(&mut self, nth: usize) -> Option<u32> {
        let key = *self.model.keys().nth(nth % self.model.len().max(1))?;
        let id = self.model.remove(&key).expect("the key is from the map");
        self.wheel.cut(id, &mut self.entries);
        Some(id)
    }

    fn renew(&mut self, nth: usize, later_ms: u64) {
        let Some(key) = self.model.keys().nth(nth % self.model.len().max(1)).copied() else {
            return;
        };
        let id = self.model.remove(&key).expect("the key is from the map");
        let deadline_ms = key.0.saturating_add(later_ms).min(u64::MAX - 1);
        self.entries.0[id as usize].1 = deadline_ms;
        self.model.insert((deadline_ms, key.1), id);
    }

    /// Removes the timers due by `now`. Returns them with their deadlines, in order.
    fn leave(&mut self, now: u64) -> Vec<(u64, u32)> {
        let mut left = Vec::new();
        loop {
            match self.wheel.next_due(LockTime::from_millis(now), &mut self.entries) {
                Step::Due(id) => {
                    left.push((self.entries.deadline_ms(id), id));
                    self.wheel.cut(id, &mut self.entries);
                }
                Step::Idle => return left,
                Step::Moved => {}
            }
        }
    }

    /// The timers that must be due by `now`.
    fn expected(&mut self, now: u64) -> Vec<(u64, u32)> {
        let rest = self.model.split_off(&(now, 0));
        let left = std::mem::replace(&mut self.model, rest);
        left.into_iter().map(|((deadline_ms, _), id)| (deadline_ms, id)).collect()
    }

    fn assert_laws(&self) {
        self.wheel.assert_laws(&self.entries, self.model.len());
    }
}

#[derive(Clone, Debug)]
enum Move {
    Arm(u64),
    Cut(usize),
    Pass(u64),
    Renew(usize, u64),
    Step(u8),
}

/// Durations of every magnitude, to cross the boundaries of every level.
fn span() -> BoxedStrategy<u64> {
    prop_oneof![
        4 => 0..200u64,
        4 => (0..64u32, any::<u64>()).prop_map(|(bits, any)| any >> bits),
        1 => Just(u64::MAX),
    ]
    .boxed()
}

fn short() -> BoxedStrategy<u64> {
    prop_oneof![3 => 0..100u64, 3 => 0..100_000u64, 1 => 0..1_000_000_000_000u64].boxed()
}

fn moves(spans: BoxedStrategy<u64>) -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        6 => spans.clone().prop_map(Move::Arm),
        1 => any::<usize>().prop_map(Move::Cut),
        3 => spans.clone().prop_map(Move::Pass),
        2 => (any::<usize>(), spans).prop_map(|(nth, later)| Move::Renew(nth, later)),
        1 => any::<u8>().prop_map(Move::Step),
    ];
    prop::collection::vec(one, 1..80)
}

fn play(moves: Vec<Move>) {
    let mut harness = Harness::default();
    let mut now = 0u64;
    for step in moves {
        match step {
            // A quarter of the spans looks back, so that timers armed too late are tried as well.
            Move::Arm(span) if span % 4 == 3 => drop(harness.arm(now.saturating_sub(span))),
            Move::Arm(span) => drop(harness.arm(now.saturating_add(span).min(u64::MAX - 1))),
            Move::Cut(nth) => drop(harness.cut(nth)),
            Move::Renew(nth, later) => harness.renew(nth, later),
            Move::Pass(span) => {
                now = now.saturating_add(span);
                if let Some(wakeup) = harness.wheel.next_wakeup().filter(|wakeup| wakeup.as_millis() > now) {
                    assert_eq!(harness.leave(now), [], "nothing to do before {wakeup:?}");
                }
                let (mut left, mut expected) = (harness.leave(now), harness.expected(now));
                let is_late = |pair: &(u64, u32)| harness.entries.0[pair.1 as usize].1 < now;
                assert!(left.iter().all(is_late), "never early");
                left.sort_unstable();
                expected.sort_unstable();
                assert_eq!(left, expected, "never late");
            }
            // A few steps of what is due, left half done: what comes next meets a slot in the middle of its
            // spreading.
            Move::Step(count) => {
                for _ in 0..count % 8 {
                    harness.wheel.next_due(LockTime::from_millis(now), &mut harness.entries);
                }
            }
        }
        harness.assert_laws();
    }
    assert_eq!(harness.leave(u64::MAX).len(), harness.model.len(), "in the end everything leaves");
    assert_eq!(harness.wheel.next_wakeup(), None);
}

proptest! {
    #[test]
    fn timers_of_any_deadline_leave_on_their_millisecond(moves in moves(span())) {
        play(moves);
    }

    #[test]
    fn timers_of_everyday_deadlines_leave_on_their_millisecond(moves in moves(short())) {
        play(moves);
    }

    #[test]
    fn timers_leave_by_deadline_and_then_in_the_order_of_arming(
        spans in prop::collection::vec(short(), 1..60), pauses in prop::collection::vec(short(), 1..20),
    ) {
        let mut harness = Harness::default();
        for span in spans {
            harness.arm(span);
        }
        let mut now = 0;
        for pause in pauses {
            now += pause;
            let expected = harness.expected(now);
            prop_assert_eq!(harness.leave(now), expected);
        }
    }
}

#[test]
fn a_timer_leaves_in_the_first_millisecond_after_its_deadline() {
    for deadline in [0, 1, 63, 64, 65, 4095, 4096, 1 << 36, (1 << 60) - 1, 1 << 60, u64::MAX - 1] {
        let mut harness = Harness::default();
        let id = harness.arm(deadline);
        assert_eq!(harness.leave(deadline), [], "{deadline}: still living");
        assert_eq!(harness.leave(deadline + 1), [(deadline, id)], "{deadline}: gone");
    }
}

#[test]
fn a_timer_armed_after_its_deadline_leaves_at_once() {
    let mut harness = Harness::default();
    assert_eq!(harness.leave(1_000), []);
    let late = [harness.arm(5), harness.arm(999)];
    assert_eq!(harness.leave(1_000), [(5, late[0]), (999, late[1])]);
    let same = harness.arm(1_000);
    assert_eq!(harness.leave(1_000), []);
    assert_eq!(harness.leave(1_001), [(1_000, same)]);
}

#[test]
fn a_deadline_that_moves_later_costs_one_move() {
    let mut harness = Harness::default();
    let id = harness.arm(10);
    harness.entries.0[id as usize].1 = 5_000;
    let now = LockTime::from_millis(11);
    assert_eq!(harness.wheel.next_due(now, &mut harness.entries), Step::Moved);
    assert_eq!(harness.wheel.next_due(now, &mut harness.entries), Step::Idle);
    assert_eq!(harness.leave(5_000), []);
    assert_eq!(harness.leave(5_001), [(5_000, id)]);
}

#[test]
fn a_crowded_slot_is_spread_one_timer_at_a_time() {
    let mut harness = Harness::default();
    for _ in 0..1_000 {
        harness.arm(10_000);
    }
    let now = LockTime::from_millis(9_999);
    let mut moves = 0;
    while harness.wheel.next_due(now, &mut harness.entries) == Step::Moved {
        moves += 1;
        harness.assert_laws();
        assert!(harness.wheel.next_wakeup().is_some());
    }
    assert!((1_000..=3_000).contains(&moves), "{moves} steps: each moves one timer one level at a time");
    assert_eq!(harness.leave(10_001).len(), 1_000);
}

#[test]
fn a_due_timer_stays_until_it_is_cut() {
    let mut harness = Harness::default();
    let id = harness.arm(3);
    let now = LockTime::from_millis(9);
    assert_eq!(harness.wheel.next_due(now, &mut harness.entries), Step::Due(id));
    assert_eq!(harness.wheel.next_due(now, &mut harness.entries), Step::Due(id));
    assert_eq!(harness.wheel.next_wakeup(), Some(LockTime::from_millis(4)));
    harness.wheel.cut(id, &mut harness.entries);
    harness.wheel.cut(id, &mut harness.entries);
    assert_eq!(harness.wheel.next_due(now, &mut harness.entries), Step::Idle);
    assert!(harness.wheel.is_empty());
}

#[test]
fn an_empty_wheel_catches_up_so_that_a_near_deadline_is_near() {
    let now = 1_700_000_000_000;
    let mut harness = Harness::default();
    harness.wheel.catch_up(LockTime::from_millis(now));
    let id = harness.arm(now + 9);
    let late = harness.arm(now - 1);
    assert_eq!(harness.leave(now), [(now - 1, late)]);
    harness.wheel.catch_up(LockTime::from_millis(now + 500));
    assert_eq!(harness.leave(now + 9), [], "a timer keeps the wheel where it is");
    assert_eq!(harness.leave(now + 10), [(now + 9, id)]);
    assert!(harness.wheel.heap_bytes() <= 2 * SLOTS * size_of::<Timer>());
    harness.wheel.catch_up(LockTime::from_millis(5));
    let late = harness.arm(3);
    assert_eq!(harness.leave(now + 10), [(3, late)], "and it never goes back");
}

#[test]
fn a_wheel_of_near_deadlines_allocates_low_levels_only() {
    let mut harness = Harness::default();
    assert_eq!(harness.wheel.heap_bytes(), 0);
    harness.arm(60_000);
    assert!(harness.wheel.heap_bytes() <= 3 * SLOTS * size_of::<Timer>());
}
