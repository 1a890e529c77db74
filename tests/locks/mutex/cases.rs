//! Hand-made histories: correct ones that the checker must accept, and for each law wrong ones that it must reject.
//!
//! Time    milliseconds; a call `at(10..12)` was sent at 10 and answered at 12.

use std::ops::Range;

use super::checker::{Law, check};
use super::history::{Answer, Ask, Call};

fn call(token: &str, ask: Ask, at: Range<u64>, answer: Answer) -> Call {
    Call { answer: Some((at.end * MS, answer)), ..cut(token, ask, at.start) }
}

/// A call without an answer.
fn cut(token: &str, ask: Ask, sent_ms: u64) -> Call {
    Call { lock: "stock".to_owned(), token: token.to_owned(), ask, sent_ns: sent_ms * MS, answer: None }
}

fn granted(token: &str, at: Range<u64>, lease_ms: u64) -> Call {
    call(token, Ask::Acquire(lease_ms), at, Answer::Yes)
}

fn fenced(token: &str, at: Range<u64>, fence: u64) -> Call {
    call(token, Ask::Acquire(1), at, Answer::YesWithFence(fence))
}

fn released(token: &str, at: Range<u64>) -> Call {
    call(token, Ask::Release, at, Answer::Yes)
}

fn extended(token: &str, at: Range<u64>, lease_ms: u64) -> Call {
    call(token, Ask::Extend(lease_ms), at, Answer::Yes)
}

/// A grant after a wait in the queue.
fn queued(token: &str, at: Range<u64>, waited_ms: u64, fence: u64) -> Call {
    call(token, Ask::Acquire(10), at, Answer::YesAfter { fence, waited_ms })
}

fn session(token: &str, at: Range<u64>, fence: u64) -> Call {
    call(token, Ask::Session, at, Answer::YesAfter { fence, waited_ms: 0 })
}

fn hung_up(token: &str, at: Range<u64>) -> Call {
    call(token, Ask::Hangup, at, Answer::Yes)
}

fn numbered(token: &str, at: Range<u64>, fence: u64) -> Call {
    call(token, Ask::Token, at, Answer::YesWithFence(fence))
}

fn refused(token: &str, ask: Ask, at: Range<u64>) -> Call {
    call(token, ask, at, Answer::No)
}

fn saw(token: &str, at: Range<u64>) -> Call {
    call("-", Ask::Look, at, Answer::Holder(token.to_owned()))
}

fn saw_nobody(at: Range<u64>) -> Call {
    call("-", Ask::Look, at, Answer::Nobody)
}

#[track_caller]
fn assert_good(calls: &[Call]) {
    assert_eq!(check(calls).broken, []);
}

#[track_caller]
fn assert_breaks(law: Law, calls: &[Call]) {
    let verdict = check(calls);
    assert!(verdict.breaks(law), "{law:?} is not among {:?}", verdict.broken);
    assert!(verdict.broken.iter().all(|broken| broken.law == law), "{:?}", verdict.broken);
    // The processes may return their histories in any order.
    let reversed: Vec<Call> = calls.iter().rev().cloned().collect();
    assert_eq!(check(&reversed), verdict);
}

mod exclusion {
    use super::*;

    #[test]
    fn a_lock_goes_from_one_to_the_next() {
        assert_good(&[granted("a", 0..2, 10), released("a", 5..6), granted("b", 6..7, 10)]);
        assert_good(&[granted("a", 0..2, 10), granted("b", 11..12, 10)]);
    }

    #[test]
    fn two_that_overlap_are_found_in_either_order() {
        assert_breaks(Law::Exclusion, &[granted("a", 0..2, 10), granted("b", 3..4, 10)]);
        assert_breaks(Law::Exclusion, &[granted("a", 0..4, 10), granted("b", 1..3, 10)]);
        assert_breaks(Law::Exclusion, &[granted("a", 0..2, 10), granted("b", 8..9, 10)]);
    }

    #[test]
    fn a_grant_whose_answer_came_late_may_have_been_made_after_the_end() {
        assert_good(&[granted("a", 0..2, 10), granted("b", 3..10, 10)]);
        assert_good(&[granted("a", 0..30, 10), granted("b", 3..5, 10)]);
    }

    #[test]
    fn a_release_under_way_may_already_have_been_carried_out() {
        assert_good(&[granted("a", 0..2, 10), released("a", 3..9), granted("b", 4..5, 10)]);
        assert_good(&[granted("a", 0..2, 10), cut("a", Ask::Release, 3), granted("b", 4..5, 10)]);
        assert_breaks(Law::Exclusion, &[granted("a", 0..2, 10), granted("b", 3..4, 10), released("a", 5..6)]);
    }

    #[test]
    fn an_extension_moves_the_end() {
        let extended = extended("a", 5..6, 20);
        assert_breaks(Law::Exclusion, &[granted("a", 0..2, 10), extended.clone(), granted("b", 15..16, 9)]);
        assert_good(&[granted("a", 0..2, 10), extended, granted("b", 25..26, 9)]);
        let shortened = super::extended("a", 5..6, 1);
        assert_good(&[granted("a", 0..2, 10), shortened, granted("b", 7..8, 10)]);
    }

    #[test]
    fn an_extension_without_an_answer_may_come_at_any_time() {
        let cut = cut("a", Ask::Extend(1), 3);
        let later = extended("a", 4..5, 40);
        assert_good(&[granted("a", 0..2, 30), cut.clone(), granted("b", 8..9, 9)]);
        assert_good(&[granted("a", 0..2, 30), cut, later, granted("b", 8..9, 9)]);
    }

    #[test]
    fn a_grant_that_only_others_saw_is_one() {
        let unheard = cut("a", Ask::Acquire(20), 0);
        assert_good(&[unheard.clone(), granted("b", 3..4, 5)]);
        assert_breaks(Law::Exclusion, &[unheard, saw("a", 2..3), granted("b", 4..5, 5)]);
    }

    #[test]
    fn a_lease_begins_when_the_wait_has_ended() {
        assert_good(&[granted("a", 0..2, 50), queued("b", 1..55, 52, 2)]);
        assert_breaks(Law::Exclusion, &[queued("b", 1..55, 52, 2), granted("a", 57..58, 10)]);
        assert_breaks(Law::Exclusion, &[granted("a", 0..2, 50), queued("b", 1..45, 30, 2)]);
    }

    #[test]
    fn a_session_lasts_until_its_connection_ends() {
        assert_breaks(Law::Exclusion, &[session("a", 0..2, 1), granted("b", 900..901, 10)]);
        assert_good(&[session("a", 0..2, 1), hung_up("a", 899..902), granted("b", 900..901, 10)]);
        assert_good(&[session("a", 0..2, 1), cut("a", Ask::Hangup, 899), granted("b", 900..901, 10)]);
        assert_good(&[session("a", 0..2, 1), released("a", 5..6), granted("b", 7..8, 10)]);
        // Nobody knows when the connection has ended: perhaps before the lock was asked for.
        assert_good(&[session("a", 3..5, 1), hung_up("a", 1..9), granted("b", 6..7, 10)]);
    }

    #[test]
    fn locks_have_nothing_to_do_with_each_other() {
        let other = Call { lock: "other".to_owned(), ..granted("b", 3..4, 10) };
        assert_good(&[granted("a", 0..2, 10), other]);
    }
}

mod endurance {
    use super::*;

    #[test]
    fn a_lease_that_its_client_finds_gone_in_its_time_is_found() {
        for ask in [Ask::Release, Ask::Extend(5)] {
            assert_breaks(Law::Endurance, &[granted("a", 0..2, 10), refused("a", ask, 5..9)]);
            // The lease may have ended before the reply.
            assert_good(&[granted("a", 0..2, 10), refused("a", ask, 5..10)]);
        }
    }

    #[test]
    fn a_running_lease_that_a_client_does_not_see_is_found() {
        assert_breaks(Law::Endurance, &[granted("a", 0..2, 10), saw_nobody(3..4)]);
        assert_good(&[granted("a", 0..2, 10), saw_nobody(2..4)]);
        assert_good(&[granted("a", 0..2, 10), saw_nobody(3..10)]);
        assert_good(&[granted("a", 0..2, 10), cut("a", Ask::Release, 2), saw_nobody(3..4)]);
    }

    #[test]
    fn a_refusal_tells_who_holds_the_lock_instead() {
        let told = call("c", Ask::Acquire(5), 3..4, Answer::Holder("a".to_owned()));
        assert_good(&[granted("a", 0..2, 10), told.clone()]);
        let unheard = cut("b", Ask::Acquire(1), 0);
        let told = Call { answer: Some((4 * MS, Answer::Holder("b".to_owned()))), ..told };
        assert_breaks(Law::Endurance, &[granted("a", 1..2, 10), told, unheard]);
    }

    #[test]
    fn a_grant_without_a_reply_need_not_be_seen() {
        assert_good(&[cut("a", Ask::Acquire(10), 0), saw_nobody(3..4), refused("a", Ask::Release, 5..6)]);
    }
}

mod promptness {
    use super::*;

    #[test]
    fn a_lease_that_is_seen_long_after_its_end_is_found() {
        assert_breaks(Law::Promptness, &[granted("a", 0..2, 10), saw("a", 63..64)]);
        assert_breaks(Law::Promptness, &[granted("a", 0..2, 10), extended("a", 63..64, 5)]);
        assert_breaks(Law::Promptness, &[granted("a", 0..2, 10), released("a", 63..64)]);
        let verdict = check(&[granted("a", 0..2, 10), saw("a", 63..64)]);
        assert_eq!((verdict.latest_ns, verdict.unsafe_findings().len()), (51 * MS, 0));
    }

    #[test]
    fn a_session_that_outlives_its_connection_is_found() {
        assert_breaks(Law::Promptness, &[session("a", 0..2, 1), hung_up("a", 5..6), saw("a", 57..58)]);
        assert_good(&[session("a", 0..2, 1), hung_up("a", 5..6), saw("a", 50..58)]);
        assert_good(&[session("a", 0..2, 1), saw("a", 57..58)]);
    }

    #[test]
    fn a_look_that_may_have_been_in_time_is_no_proof() {
        assert_good(&[granted("a", 0..2, 10), saw("a", 62..90)]);
        assert_good(&[granted("a", 0..60, 10), saw("a", 70..71)]);
        assert_good(&[granted("a", 0..2, 10), extended("a", 5..6, 90), saw("a", 70..71)]);
        assert_good(&[granted("a", 0..2, 10), cut("a", Ask::Extend(500), 5), saw("a", 300..301)]);
    }
}

mod release {
    use super::*;

    #[test]
    fn a_released_lock_is_not_seen_again() {
        let given_back = [granted("a", 0..2, 90), released("a", 3..4)];
        assert_breaks(Law::Release, &[&given_back[..], &[saw("a", 5..6)]].concat());
        assert_good(&[&given_back[..], &[saw("a", 4..6)]].concat());
    }
}

mod truth {
    use super::*;

    #[test]
    fn no_client_holds_a_lock_it_was_not_granted() {
        assert_breaks(Law::Truth, &[saw("a", 5..6)]);
        assert_breaks(Law::Truth, &[refused("a", Ask::Acquire(10), 0..2), saw("a", 5..6)]);
        assert_breaks(Law::Truth, &[released("a", 5..6)]);
        assert_breaks(Law::Truth, &[extended("a", 5..6, 10)]);
        assert_breaks(Law::Truth, &[numbered("a", 5..6, 1)]);
    }
}

mod fencing {
    use super::*;

    #[test]
    fn numbers_rise_in_the_order_of_time() {
        assert_good(&[fenced("a", 0..2, 1), fenced("b", 4..5, 2), fenced("c", 9..10, 7)]);
        // The order of the two calls is unknown.
        assert_good(&[fenced("a", 0..8, 2), fenced("b", 4..6, 1)]);
    }

    #[test]
    fn a_number_that_falls_or_comes_twice_is_found() {
        assert_breaks(Law::Fencing, &[fenced("a", 0..2, 2), fenced("b", 4..5, 1)]);
        assert_breaks(Law::Fencing, &[fenced("a", 0..2, 2), fenced("b", 4..5, 2)]);
        assert_breaks(Law::Fencing, &[fenced("a", 0..2, 9), fenced("b", 4..5, 10), fenced("c", 7..8, 9)]);
        assert_breaks(Law::Fencing, &[fenced("a", 0..8, 2), fenced("b", 4..6, 2)]);
    }

    #[test]
    fn numbers_rise_from_holder_to_holder_though_the_later_one_asked_first() {
        let first = [session("a", 3..4, 5), released("a", 90..91)];
        assert_good(&[&first[..], &[queued("b", 1..92, 89, 6)]].concat());
        let first = call("a", Ask::Acquire(10), 3..4, Answer::YesWithFence(5));
        let second = session("b", 2..30, 4);
        assert_breaks(Law::Fencing, &[first.clone(), released("a", 5..6), second]);
        assert_good(&[first, released("a", 5..6), session("b", 2..30, 6)]);
    }

    #[test]
    fn a_lease_keeps_its_number() {
        assert_good(&[granted("a", 0..2, 10), numbered("a", 3..4, 7), numbered("a", 5..6, 7)]);
        assert_breaks(
            Law::Fencing,
            &[granted("a", 0..2, 10), numbered("a", 3..4, 7), numbered("a", 5..6, 8)],
        );
        assert_breaks(Law::Fencing, &[queued("a", 0..2, 0, 6), numbered("a", 3..4, 7)]);
        let lost = call("a", Ask::Token, 3..4, Answer::No);
        assert_breaks(Law::Endurance, &[granted("a", 0..2, 10), lost]);
    }
}

const MS: u64 = 1_000_000;
