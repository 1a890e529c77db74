//! Seeded worlds on the engine itself, without a socket or a thread, and the laws that must hold in every one of them.
//!
//! Belongs here  what is true of every run, however the rng fall: mutual exclusion, leases kept to the millisecond,
//!               no missed alarm, replay = state, no copy out of date.
//! Time          a clock that only the world moves; one world per seed, `SEED=17 cargo test --test suite simulation`.
//! Canaries      clients and servers that are broken on purpose, which the same laws must catch: a law that misses
//!               them all is no law.

mod caches;
pub(crate) mod effects;
mod locks;
pub(crate) mod parts;
mod waits;

use locks::{BROKEN_PROTOCOLS, LockSimulation, Protocol};
use parts::Fault;

/// Worlds of a run that names no seed.
const SEEDS: u64 = 12;
/// Worlds in which a canary has its chance: what is broken must show in more than half of them.
const CANARY_SEEDS: u64 = 10;

fn seeds() -> Vec<u64> {
    match std::env::var("SEED") {
        Ok(seed) => vec![seed.parse().expect("SEED is a number")],
        Err(_) => (0..SEEDS).collect(),
    }
}

/// Runs every world; says which of them catch it, in a line of the table that `--nocapture` shows.
fn assert_caught(what: &str, run: impl Fn(u64) -> Result<(), String>) {
    let caught: Vec<(u64, String)> =
        (0..CANARY_SEEDS).filter_map(|seed| Some((seed, run(seed).err()?))).collect();
    let seeds: Vec<u64> = caught.iter().map(|(seed, _)| *seed).collect();
    let first = caught.first().map_or("", |(_, why)| why.as_str());
    println!("| {what} | {seeds:?} | {} |", first.chars().take(100).collect::<String>());
    assert!(seeds.len() as u64 > CANARY_SEEDS / 2, "{what} was caught in worlds {seeds:?} of {CANARY_SEEDS}");
}

mod locking {
    use super::*;

    #[test]
    fn no_two_clients_hold_the_same_lock_and_no_lease_ends_early_or_late() {
        for seed in seeds() {
            let outcome = LockSimulation::new(seed, Protocol::Sound, Fault::None).run();
            assert_eq!(outcome, Ok(()), "replay with SEED={seed}");
        }
    }

    #[test]
    fn every_broken_client_is_caught() {
        for protocol in BROKEN_PROTOCOLS {
            assert_caught(&format!("{protocol:?}"), |seed| {
                LockSimulation::new(seed, *protocol, Fault::None).run()
            });
        }
    }

    #[test]
    fn every_broken_server_is_caught() {
        let faults = [
            Fault::AnswersOneLate,
            Fault::ExpiresOneEarly,
            Fault::FollowsTheWall,
            Fault::LosesDeadlines,
            Fault::LosesExpiries,
            Fault::LosesRecords,
            Fault::NeverTicks,
            Fault::SleepsThroughTheAlarm,
        ];
        for fault in faults {
            assert_caught(&format!("{fault:?}"), |seed| {
                LockSimulation::new(seed, Protocol::Sound, fault).run()
            });
        }
    }

    #[test]
    fn a_seed_is_one_world() {
        let log = |seed| {
            let mut world = LockSimulation::new(seed, Protocol::Sound, Fault::None);
            world.run().expect("a lawful world");
            world.log().since(0)
        };
        assert_eq!(log(5), log(5));
        assert_ne!(log(5), log(6));
    }
}

mod replay {
    use super::*;

    #[test]
    fn the_journal_tells_all_of_every_command() {
        for seed in seeds() {
            assert_eq!(effects::run(seed, Fault::None), Ok(()), "replay with SEED={seed}");
        }
    }

    #[test]
    fn every_command_that_writes_takes_part() {
        assert_eq!(effects::commands_without_a_line(), [""; 0]);
    }

    #[test]
    fn every_lying_journal_is_caught() {
        let faults = [Fault::LosesDeadlines, Fault::LosesRecords, Fault::SwapsRecords];
        for fault in faults {
            assert_caught(&format!("{fault:?}"), |seed| effects::run(seed, fault));
        }
    }
}

mod caching {
    use super::*;
    use caches::{CARELESS, CacheSimulation, Carelessness};

    #[test]
    fn no_copy_is_other_than_a_fresh_read_once_the_messages_are_read() {
        for seed in seeds() {
            let outcome = CacheSimulation::new(seed, Carelessness::None, Fault::None).run();
            assert_eq!(outcome, Ok(()), "replay with SEED={seed}");
        }
    }

    #[test]
    fn every_careless_client_is_caught() {
        for carelessness in CARELESS {
            assert_caught(&format!("{carelessness:?}"), |seed| {
                CacheSimulation::new(seed, *carelessness, Fault::None).run()
            });
        }
    }

    #[test]
    fn a_server_that_expires_nothing_on_time_is_caught() {
        assert_caught("NeverTicks", |seed| {
            CacheSimulation::new(seed, Carelessness::None, Fault::NeverTicks).run()
        });
    }
}

mod waiting {
    use super::*;
    use waits::{DISORDERS, Disorder, QueueSimulation};

    #[test]
    fn who_came_first_is_served_first_and_nobody_waits_past_its_limit() {
        for seed in seeds() {
            let outcome = QueueSimulation::new(seed, Disorder::None).run();
            assert_eq!(outcome, Ok(()), "replay with SEED={seed}");
        }
    }

    #[test]
    fn every_line_in_disorder_is_caught() {
        for disorder in DISORDERS {
            assert_caught(&format!("{disorder:?}"), |seed| QueueSimulation::new(seed, *disorder).run());
        }
    }
}
