//! Random requests to redlatch and to a real server: the same replies, and the same contents in the end.
//!
//! Belongs here  what no transcript thought of. A disagreement, once found, is a transcript from then on: see
//!               `tests/transcripts/found_by_fuzzing.txt`.
//! Real server   where `REDLATCH_REDIS_SERVER` and `REDLATCH_VALKEY_SERVER` name its program; without them the runs say that
//!               they were skipped. With Valkey only the commands are tried that Redis 7.0 does not have.
//! Bounds        `WORLDS` and `STEPS` for a longer run, `FIRST` for other worlds than always; one world alone:
//!               `SEED=17 cargo test --test differential`.

#[path = "differential/mod.rs"]
mod differential;
// The engine and the real servers are those of the transcripts, which use more of what they can do.
#[path = "support/shapes.rs"]
mod shapes;
#[allow(dead_code)]
mod support;

use std::path::PathBuf;

use differential::campaign::{Campaign, Newer};

fn campaign(name: &'static str, newer: Newer) {
    let variable = format!("REDLATCH_{}_SERVER", name.to_uppercase());
    let Some(program) = std::env::var_os(&variable).map(PathBuf::from) else {
        eprintln!("skipped: {variable} is not set");
        return;
    };
    let report = Campaign::new(name, program, newer).run();
    assert!(report.is_empty(), "{}", report.join("\n\n"));
}

mod random_requests {
    use super::*;

    #[test]
    fn are_answered_as_by_redis() {
        campaign("redis", Newer::LeftOut);
    }

    #[test]
    fn that_redis_does_not_know_are_answered_as_by_valkey() {
        campaign("valkey", Newer::WithTheirTypes);
    }
}
