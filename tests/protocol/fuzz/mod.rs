//! Untrusted bytes: every parser that faces the network, and whole sessions, on random inputs.
//!
//! Belongs here  laws for any input, checked by an oracle that is slower and simpler than the tested code. `fuzz/` holds some
//!               of them against libFuzzer's inputs, too.
//! Corpus        `tests/protocol/fuzz/corpus/TARGET/`: inputs tried first on every run. A new failure is reduced and
//!               written there; commit the file to keep it.
//!
//! ```text
//! cargo test --test suite fuzz                               the corpus and fixed new inputs
//! FUZZ_SECONDS=600 cargo test --test suite fuzz::scripts     one target, with other inputs for ten minutes
//! FUZZ_SECONDS=600 cargo test --lib cli::file                the settings file, which is private to the crate
//! ```

mod decoder;
mod driver;
mod glob;
mod journal;
mod numbers;
#[cfg(feature = "lua")]
mod scripts;
mod sessions;

#[cfg(feature = "lua")]
use std::cell::RefCell;

use proptest::strategy::Strategy;

#[cfg(feature = "lua")]
use crate::protocol::scripts::law::Pair;
use crate::simulation::parts;
use driver::{fuzz, search};

#[test]
fn no_bytes_make_the_decoder_panic() {
    fuzz("decoder", 1_500, decoder::inputs(), decoder::check);
}

#[test]
fn glob() {
    fuzz("glob", 5_000, glob::inputs(), glob::check);
}

#[test]
fn no_bytes_make_the_reader_of_journals_panic() {
    fuzz("journal", 1_000, journal::inputs(), journal::check);
}

#[test]
fn a_damaged_journal_has_no_record_that_was_not_written() {
    journal::check_damage();
}

#[test]
fn numbers() {
    fuzz("numbers", 4_000, numbers::inputs(), numbers::check);
}

#[cfg(feature = "lua")]
#[test]
fn scripts() {
    let pair = RefCell::new(Pair::new());
    fuzz("scripts", 1_000, scripts::inputs(), |text| scripts::compare(&mut pair.borrow_mut(), text, text));
    let cases = pair.borrow().cases;
    let is_short = std::env::var_os("FUZZ_CASES").is_some();
    assert!(is_short || cases >= 500, "{cases} runs of native scripts");
}

#[cfg(feature = "lua")]
#[test]
fn a_script_catches_an_operator_that_is_misread() {
    let pair = RefCell::new(Pair::new());
    let outcome = search(200, 0, &scripts::inputs().no_shrink().boxed(), |text| {
        let misread = String::from_utf8_lossy(text).replace("==", "~=");
        scripts::compare(&mut pair.borrow_mut(), text, misread.as_bytes());
    });
    outcome.expect_err("two hundred scripts in which == might be ~=");
}

#[test]
fn sessions() {
    fuzz("sessions", 300, sessions::inputs(), sessions::check);
}

#[test]
fn a_session_catches_a_journal_that_lies() {
    let outcome = search(100, 0, &sessions::inputs().no_shrink().boxed(), |input| {
        // One record in fifty is lost; frequent small writes make as many.
        sessions::check_with(&input.repeat(8), parts::Fault::LosesRecords);
    });
    let (why, input) = outcome.expect_err("a hundred sessions in which nothing is missed");
    assert!(why.contains(sessions::LIES), "{why}: {}", input.escape_ascii());
}
