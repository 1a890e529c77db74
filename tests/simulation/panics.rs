//! A command that panics in the middle of a transaction or of a script: what it leaves.
//!
//! Laws    what came before it stays, as the change of any call: recorded, due at its deadline, given to who waits for it.
//!         What comes after it is not executed. No shard stays locked.

use std::panic::{AssertUnwindSafe, catch_unwind};

use redlatch_core::state::session::Session;

use super::parts::{Fault, Machine, Replica, State, standing};

/// Sends requests until one panics.
fn until_panic(machine: &Machine, session: &mut Session, requests: &[&[&str]]) {
    let mut batch = machine.engine.batch();
    let ended = catch_unwind(AssertUnwindSafe(|| {
        for request in requests {
            machine.call(session, &mut batch, request);
        }
    }));
    assert!(ended.is_err(), "nothing has panicked");
}

fn keys(state: &State) -> Vec<&str> {
    state.keys().map(|(_, key)| std::str::from_utf8(key).expect("a key in ASCII")).collect()
}

#[track_caller]
fn assert_left_in_order(requests: &[&[&str]]) {
    let machine = Machine::new(1, Fault::PanicsAtTime);
    let [mut waiting, mut other] = [machine.connect(), machine.connect()];
    let mut batch = machine.engine.batch();
    assert_eq!(machine.offer(&mut waiting, &mut batch, &["BLPOP", "queue", "0"]), "");
    machine.tick();

    until_panic(&machine, &mut machine.connect(), requests);

    machine.keyspace().assert_laws();
    let state = standing(machine.keyspace(), machine.clock.truth());
    assert_eq!(keys(&state), ["before"], "what came before has happened, and nothing else");
    let mut replica = Replica::new();
    replica.follow(&machine.log);
    assert_eq!(replica.remains(), state, "the journal says the same");
    assert_eq!(machine.resume(&mut waiting), "*2\r\n$5\r\nqueue\r\n$1\r\nx\r\n");
    assert!(machine.has_rung(), "the ticker wakes in time for the new deadline");
    machine.clock.advance(101);
    machine.tick();
    assert_eq!(standing(machine.keyspace(), machine.clock.truth()), State::new());
    let mut batch = machine.engine.batch();
    assert_eq!(machine.call(&mut other, &mut batch, &["SET", "before", "2", "NX"]), "+OK\r\n");
}

#[test]
fn a_transaction_that_panics_leaves_what_it_has_done_in_order() {
    assert_left_in_order(&[
        &["MULTI"],
        &["SET", "before", "1", "PX", "100"],
        &["RPUSH", "queue", "x"],
        &["TIME"],
        &["SET", "after", "1"],
        &["EXEC"],
    ]);
}

#[test]
fn a_script_that_panics_leaves_what_it_has_done_in_order() {
    let text = "redis.call('SET', KEYS[1], '1', 'PX', '100') redis.call('RPUSH', KEYS[2], 'x')
                redis.pcall('TIME') redis.call('SET', KEYS[3], '1') return 1";
    assert_left_in_order(&[&["EVAL", text, "3", "before", "queue", "after"]]);
}
