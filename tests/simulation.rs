//! Seeded simulations of the engine, without a socket or a thread, and the laws that hold in every one of them.
//!
//! Belongs here  laws of every random run: mutual exclusion, leases exact to the millisecond, no missed alarm, replay
//!               gives an equal state, no stale cached copy.
//! Time          moves only by calls of the simulation; `SEED=17 cargo test --test suite simulation` replays one seed,
//!               and `FIRST=1000` begins there.
//! Canaries      clients and servers that are broken on purpose: a law that catches none of them is no law.

mod caches;
mod crash;
mod crash_clients;
mod crash_disk;
mod crash_server;
pub(crate) mod effects;
mod late_timer;
mod linearizable;
mod lock_balance;
mod lock_model;
mod lock_queues;
mod locks;
mod moves;
mod moves_disk;
mod panics;
pub(crate) mod parts;
mod replicated;
mod replicated_etcd;
mod replicated_moves;
mod replicated_node;
mod replicated_terms;
mod waits;

use std::fmt::Debug;

use locks::{BROKEN_PROTOCOLS, LockSimulation, Protocol};
use parts::Fault;

use crate::support::rng::seeds;

/// Seeds of a test that names none, unless `SIMULATION_RUNS=500` says otherwise.
const SEEDS: u64 = 12;
/// Seeds per canary; it must be caught in more than half of them.
const CANARY_SEEDS: u64 = 10;

/// Runs every seed; each must keep all laws.
fn assert_lawful(run: impl Fn(u64) -> Result<(), String>) {
    for seed in seeds("SIMULATION_RUNS", SEEDS) {
        assert_eq!(run(seed), Ok(()), "replay with SEED={seed}");
    }
}

/// Runs each defect with every canary seed: more than half of the runs must break a law. With `--nocapture` it prints which.
fn assert_caught<T: Copy + Debug>(defects: &[T], run: impl Fn(u64, T) -> Result<(), String>) {
    for defect in defects {
        let caught: Vec<(u64, String)> =
            (0..CANARY_SEEDS).filter_map(|seed| Some((seed, run(seed, *defect).err()?))).collect();
        let seeds: Vec<u64> = caught.iter().map(|(seed, _)| *seed).collect();
        let first = caught.first().map_or("", |(_, why)| why.as_str());
        println!("| {defect:?} | {seeds:?} | {} |", first.chars().take(100).collect::<String>());
        assert!(
            seeds.len() as u64 > CANARY_SEEDS / 2,
            "{defect:?} was caught with {seeds:?} of {CANARY_SEEDS}"
        );
    }
}

/// Runs each defect with so many seeds, until one breaks a law. With `--nocapture` it prints which.
fn assert_caught_once<T: Copy + Debug>(defects: &[T], runs: u64, run: impl Fn(u64, T) -> Result<(), String>) {
    for defect in defects {
        let caught = (0..runs).find_map(|seed| Some((seed, run(seed, *defect).err()?)));
        let (seed, why) = caught.unwrap_or_else(|| panic!("{defect:?} harms nobody in {runs} runs"));
        println!("| {defect:?} | {seed} | {} |", why.chars().take(100).collect::<String>());
    }
}

mod locking {
    use super::*;

    // Shows P-lease-never-early, P-one-holder.
    #[test]
    fn no_two_clients_hold_the_same_lock_and_no_lease_ends_early_or_late() {
        assert_lawful(|seed| LockSimulation::new(seed, Protocol::Sound, Fault::None).run());
    }

    // Breaks P-one-holder.
    #[test]
    fn every_broken_client_is_caught() {
        assert_caught(BROKEN_PROTOCOLS, |seed, protocol| {
            LockSimulation::new(seed, protocol, Fault::None).run()
        });
    }

    // Breaks P-lease-never-early, P-one-holder.
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
        assert_caught(&faults, |seed, fault| LockSimulation::new(seed, Protocol::Sound, fault).run());
    }

    #[test]
    fn a_seed_gives_one_run() {
        let log = |seed| {
            let mut simulation = LockSimulation::new(seed, Protocol::Sound, Fault::None);
            simulation.run().expect("a lawful run");
            simulation.log().since(0)
        };
        assert_eq!(log(5), log(5));
        assert_ne!(log(5), log(6));
    }
}

mod replay {
    use super::*;

    #[test]
    fn the_journal_tells_all_of_every_command() {
        assert_lawful(|seed| effects::run(seed, Fault::None));
    }

    #[test]
    fn every_command_that_writes_takes_part() {
        assert_eq!(effects::commands_without_a_line(), [""; 0]);
    }

    #[test]
    fn every_lying_journal_is_caught() {
        assert_caught(&[Fault::LosesDeadlines, Fault::LosesRecords, Fault::SwapsRecords], |seed, fault| {
            effects::run(seed, fault)
        });
    }
}

mod timing {
    use super::*;

    // Shows P-lease-never-early.
    #[test]
    fn what_a_request_sees_depends_on_its_instant_and_not_on_the_timer_of_expiry() {
        assert_lawful(|seed| late_timer::run(seed, Fault::None));
    }

    // Breaks P-lease-never-early.
    #[test]
    fn every_server_whose_requests_see_another_instant_is_caught() {
        assert_caught(&[Fault::AnswersOneLate, Fault::ExpiresOneEarly], late_timer::run);
    }
}

mod caching {
    use super::*;
    use caches::{CARELESS, CacheSimulation, Carelessness};

    #[test]
    fn a_cached_copy_equals_a_fresh_read_once_the_messages_are_read() {
        assert_lawful(|seed| CacheSimulation::new(seed, Carelessness::None, Fault::None).run());
    }

    #[test]
    fn every_careless_client_is_caught() {
        assert_caught(CARELESS, |seed, carelessness| {
            CacheSimulation::new(seed, carelessness, Fault::None).run()
        });
    }

    #[test]
    fn a_server_that_expires_nothing_on_time_is_caught() {
        assert_caught(&[Fault::NeverTicks], |seed, fault| {
            CacheSimulation::new(seed, Carelessness::None, fault).run()
        });
    }
}

mod waiting {
    use super::*;
    use waits::{DISORDERS, Disorder, QueueSimulation};

    // Shows P-first-come.
    #[test]
    fn waiting_clients_are_served_in_order_and_never_past_their_limit() {
        assert_lawful(|seed| QueueSimulation::new(seed, Disorder::None).run());
    }

    // Breaks P-first-come.
    #[test]
    fn every_broken_queue_is_caught() {
        assert_caught(DISORDERS, |seed, disorder| QueueSimulation::new(seed, disorder).run());
    }
}

mod queueing {
    use super::*;
    use lock_queues::{DEFECTS, Defect, LockQueueSimulation, Names};

    // Shows P-first-come, P-no-dead-client, P-one-holder, P-priority-bounded, P-tokens-rise.
    #[test]
    fn locks_are_granted_in_order_with_rising_tokens_and_every_loss_is_told() {
        for names in [Names::Own, Names::Shared] {
            assert_lawful(|seed| LockQueueSimulation::new(seed, names, Defect::None).run());
        }
    }

    // Breaks P-first-come, P-no-dead-client, P-priority-bounded, P-tokens-rise.
    #[test]
    fn every_broken_lock_queue_is_caught() {
        assert_caught(DEFECTS, |seed, defect| LockQueueSimulation::new(seed, Names::Own, defect).run());
    }
}

mod crashing {
    use super::*;
    use crash_server::{DEFECTS, Defect};

    /// Runs of the law, unless `CRASH_RUNS=6000` says otherwise.
    const RUNS: u64 = 80;
    /// Runs in which a canary must be caught once: most crashes of a broken server harm nobody.
    const CANARY_RUNS: u64 = 500;

    // Shows P-always-keeps-all, P-always-torn-end, P-everysec-keeps-data, P-everysec-one-holder, P-quarantine-bounded.
    #[test]
    fn no_lock_is_granted_twice_and_nothing_durable_is_lost() {
        let mut starts = 0;
        for seed in seeds("CRASH_RUNS", RUNS) {
            match crash::run(seed, Defect::None) {
                Ok(of_run) => starts += of_run,
                Err(why) => panic!("replay with SEED={seed}: {why}"),
            }
        }
        println!("{starts} starts");
    }

    // Breaks P-disk-attached-again, P-everysec-keeps-data, P-everysec-one-holder, P-failed-sync, P-quarantine-grants-nothing.
    #[test]
    fn every_broken_recovery_is_caught() {
        assert_caught_once(DEFECTS, CANARY_RUNS, |seed, defect| crash::run(seed, defect).map(drop));
    }
}

mod moving {
    use super::*;
    use moves::{DEFECTS, Order, Way};

    /// Seeds of the law, each of which troubles every step, unless `MOVE_RUNS=100` says otherwise.
    const RUNS: u64 = 8;
    /// Seeds in which a canary must be caught once.
    const CANARY_RUNS: u64 = 8;

    #[test]
    fn a_move_that_is_killed_at_any_step_leaves_one_copy_and_ends_when_it_is_run_again() {
        for way in [Way::Export, Way::Import] {
            let mut steps = 0;
            for seed in seeds("MOVE_RUNS", RUNS) {
                match moves::run(seed, way, Order::Sound) {
                    Ok(of_run) => steps += of_run,
                    Err(why) => panic!("replay with SEED={seed}: {why}"),
                }
            }
            println!("{way:?}: {steps} steps");
        }
    }

    #[test]
    fn every_other_order_of_the_steps_is_caught() {
        assert_caught_once(DEFECTS, CANARY_RUNS, |seed, (way, order)| moves::run(seed, way, order).map(drop));
    }
}

mod replicating {
    use super::*;
    use replicated::{DEFECTS, Defect, GROUP_DEFECTS, RESTORE_DEFECTS};

    /// Runs of the law, unless `REPLICATED_RUNS=2000` says otherwise.
    const RUNS: u64 = 150;
    /// Runs of several groups, unless `GROUP_RUNS=1000` says otherwise.
    const GROUP_RUNS: u64 = 60;
    /// Runs in which etcd is restored, each of which lasts longer, unless `RESTORED_RUNS=300` says otherwise.
    const RESTORED_RUNS: u64 = 40;
    /// Runs in which a canary must be caught once: most faults find a broken node at a time at which it harms nobody.
    const CANARY_RUNS: u64 = 2_000;

    // Shows P-answered-stays, P-leases-never-shorter, P-reads-linearizable, P-replicated-one-holder.
    // Shows P-replicated-tokens-rise, P-session-told-first, P-takeover-knows-all.
    #[test]
    fn nodes_that_follow_each_other_serve_one_set_of_locks() {
        let (mut leaders, mut replies) = (0, 0);
        for seed in seeds("REPLICATED_RUNS", RUNS) {
            match replicated::run(seed, Defect::None) {
                Ok(stats) => {
                    (leaders, replies) = (leaders + stats.leaders, replies + stats.replies);
                    // Some minutes of heartbeats would be hundreds, and copies remove what came before them.
                    assert!(stats.keys < 300, "{} keys with SEED={seed}", stats.keys);
                }
                Err(why) => panic!("replay with SEED={seed}: {why}"),
            }
        }
        println!("{leaders} leaders, {replies} replies");
    }

    /// Each group keeps the laws of one, clients that ask elsewhere are sent on, and no group waits for another.
    #[test]
    fn groups_of_slots_have_leaders_of_their_own() {
        let (mut leaders, mut replies, mut rerouted) = (0, 0, 0);
        for seed in seeds("GROUP_RUNS", GROUP_RUNS) {
            match replicated::run_in_groups(seed, Defect::None) {
                Ok(stats) => {
                    (leaders, replies) = (leaders + stats.leaders, replies + stats.replies);
                    rerouted += stats.rerouted;
                }
                Err(why) => panic!("replay with SEED={seed}: {why}"),
            }
        }
        println!("{leaders} leaders, {replies} replies, {rerouted} of them by other groups");
        assert!(rerouted > 0, "no client has asked another group");
    }

    #[test]
    fn every_broken_node_of_groups_is_caught() {
        assert_caught_once(GROUP_DEFECTS, CANARY_RUNS, |seed, defect| {
            replicated::run_in_groups(seed, defect).map(drop)
        });
    }

    // Shows P-replicated-one-holder, P-replicated-tokens-rise.
    #[test]
    fn a_restored_etcd_grants_no_lock_again() {
        let mut leaders = 0;
        for seed in seeds("RESTORED_RUNS", RESTORED_RUNS) {
            match replicated::run_with_restores(seed, Defect::None) {
                Ok(stats) => leaders += stats.leaders,
                Err(why) => panic!("replay with SEED={seed}: {why}"),
            }
        }
        println!("{leaders} leaders");
    }

    // Breaks P-replicated-one-holder, P-replicated-tokens-rise.
    #[test]
    fn every_node_that_accepts_a_restored_etcd_is_caught() {
        assert_caught_once(RESTORE_DEFECTS, CANARY_RUNS, |seed, defect| {
            replicated::run_with_restores(seed, defect).map(drop)
        });
    }

    // Breaks P-answered-stays, P-leases-never-shorter, P-reads-linearizable, P-replicated-one-holder, P-session-told-first.
    #[test]
    fn every_broken_node_is_caught() {
        assert_caught_once(DEFECTS, CANARY_RUNS, |seed, defect| replicated::run(seed, defect).map(drop));
    }
}
