//! Everything that a script can reach, called with numbers at the edges: the fuzz target `calls`, and its corpus.
//!
//! ```text
//! cargo test -p redlatch-lua --test calls                     the corpus and fixed new inputs
//! FUZZ_CASES=60000 cargo test -p redlatch-lua --test calls    a million calls; `.ci/run memory` makes them with sanitizers
//! ```

#[path = "../../../tests/protocol/fuzz/calls.rs"]
mod calls;
#[path = "../../../tests/protocol/fuzz/driver.rs"]
mod driver;

use std::cell::{Cell, RefCell};

/// Inputs of a bare `cargo test`.
const CASES: u32 = 200;

#[test]
fn no_call_breaks_the_interpreter() {
    let (interpreter, made) = (RefCell::new(calls::interpreter()), Cell::new(0));
    driver::fuzz("calls", CASES, calls::inputs(), |bytes| {
        made.set(made.get() + calls::check(&mut **interpreter.borrow_mut(), bytes));
    });
    println!("{} calls", made.get());
    assert!(made.get() > 100, "{} calls", made.get());
}
