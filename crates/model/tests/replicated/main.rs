//! The protocol of the replicated mode, explored exhaustively: every order of its steps, up to the bounds of the model.
//!
//! Belongs here  rules that two nodes, two clients and one lock show. That the program follows the protocol is what
//!               `simulation::replicating` and `cluster::live` show, with the real code.
//! Canaries      a mutant for each rule: without it a promise must be broken.
//! Read          `cargo test --package redlatch-model -- --nocapture` prints the steps by which each mutant is caught. Nodes
//!               and clients have no names: from one step to the next, 0 and 1 may have changed places.

mod mutants;
mod protocol;

use mutants::{Mutant, ROWS};
use protocol::{POSSIBLE, Protocol};
use stateright::{Checker, HasDiscoveries, Model};

// Shows P-answered-stays, P-reads-linearizable, P-replicated-one-holder, P-replicated-tokens-rise.
#[test]
fn every_order_of_the_steps_keeps_the_promises() {
    let checker = Protocol { mutant: Mutant::None }.checker().threads(THREADS).spawn_bfs().join();
    println!("{} states, up to {} steps", checker.unique_state_count(), checker.max_depth());
    assert!(checker.is_done(), "something was not explored");
    let mut found: Vec<_> = checker.discoveries().into_keys().collect();
    let mut possible = POSSIBLE.to_vec();
    found.sort_unstable();
    possible.sort_unstable();
    assert_eq!(found, possible, "all that must be possible, and no broken promise");
}

// Breaks P-answered-stays, P-reads-linearizable, P-replicated-one-holder, P-replicated-tokens-rise.
#[test]
fn a_protocol_without_one_of_its_rules_breaks_a_promise() {
    for row in ROWS {
        let promise = row.breaks.name();
        let is_caught = HasDiscoveries::AnyOf([promise].into());
        let checker = Protocol { mutant: row.mutant }
            .checker()
            .threads(THREADS)
            .finish_when(is_caught)
            .spawn_dfs()
            .join();
        let found = checker.discovery(promise);
        let path = found.unwrap_or_else(|| panic!("{:?} keeps the promise: {promise}", row.mutant));
        let steps = path.into_actions();
        println!("{:?} ({}; {}): {promise}: {steps:?}", row.mutant, row.left_out, row.rule_is_in);
    }
}

const THREADS: usize = 2;
