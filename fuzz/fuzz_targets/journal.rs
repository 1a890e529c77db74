//! The reader of journals on inputs that libFuzzer makes, held to the laws of `tests/protocol/fuzz/journal.rs`.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "cargo test makes inputs of its own")]
#[path = "../../tests/protocol/fuzz/journal.rs"]
mod laws;

fuzz_target!(|bytes: &[u8]| laws::check(bytes));
