//! Random requests to redlatch and to a real server: equal replies, and equal contents at the end.
//!
//! Belongs here  random runs. A disagreement that was found becomes a transcript: see
//!               `tests/protocol/transcripts/found_by_fuzzing.txt`.
//! Real server   the programs that `REDLATCH_REDIS_SERVER` and `REDLATCH_VALKEY_SERVER` name. With Valkey only the commands
//!               that Redis 7.0 lacks are tried.
//! Bounds        `RUNS` and `STEPS` for a longer test, `FIRST` for other seeds; one run alone:
//!               `SEED=17 cargo test --test suite against_real_servers::random -- --ignored`.

mod client;
mod comparison;
mod draws;
mod grammar;
mod libraries;
mod listening;
mod plan;
mod relaxed;
mod runner;
mod scripts;
mod words;

pub(crate) use grammar::request;
pub(crate) use relaxed::LEFT_OUT;
use runner::{Newer, Runner};

fn run(name: &'static str, newer: Newer, has_slots: bool) {
    let report = Runner::new(name, newer, has_slots).run();
    assert!(
        report.is_empty(),
        "{}",
        report.join(
            "

"
        )
    );
}

mod against_real_servers {
    use super::*;

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn random_requests_are_answered_as_by_redis() {
        run("redis", Newer::LeftOut, false);
    }

    #[test]
    #[ignore = "needs REDLATCH_REDIS_SERVER"]
    fn random_requests_in_cluster_mode_are_answered_as_by_redis() {
        run("redis", Newer::LeftOut, true);
    }

    #[test]
    #[ignore = "needs REDLATCH_VALKEY_SERVER"]
    fn random_requests_that_redis_does_not_know_are_answered_as_by_valkey() {
        run("valkey", Newer::WithTheirTypes, false);
    }
}
