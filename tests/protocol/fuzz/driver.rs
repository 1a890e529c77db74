//! The driver of all fuzz targets: it tries the corpus first, then new inputs, and keeps the smallest failing one.
//!
//! Owns    the corpus, one file per input: `tests/protocol/fuzz/corpus/TARGET/NAME`.
//! Rule    without variables every run tries the same inputs; `FUZZ_SECONDS=600` adds other inputs for that time,
//!         `FUZZ_SEED=7` tries others than `FUZZ_SEED=0`, and `FUZZ_CASES=20` limits the number of new ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

/// Calls `check`, which panics on a defect, with every corpus input of `target`, then with `cases` inputs made by `inputs`
/// or by mutation of the corpus.
///
/// # Panics
/// At the first input on which `check` panics; the reduced input is written into the corpus.
pub(crate) fn fuzz(target: &str, cases: u32, inputs: BoxedStrategy<Vec<u8>>, check: impl Fn(&[u8])) {
    let kept = corpus(target);
    for (name, input) in &kept {
        println!("{target}: {name}, of {} bytes", input.len());
        check(input);
    }
    let changed = changed(kept.into_iter().map(|(_, input)| input).collect());
    let inputs = prop_oneof![3 => inputs, 1 => changed].boxed();
    // Fewer cases where each is slow, as under valgrind.
    let cases =
        std::env::var("FUZZ_CASES").map_or(cases, |text| text.parse().expect("FUZZ_CASES is a number"));
    let seconds = std::env::var("FUZZ_SECONDS").map(|text| text.parse().expect("FUZZ_SECONDS is a number"));
    let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(0));
    for round in 0_u64.. {
        if let Err((why, input)) = search(cases, round, &inputs, &check) {
            let kept = keep(target, &input);
            panic!("{target}: {why}\n{}\nkept as {kept}", input.escape_ascii());
        }
        if Instant::now() >= end {
            println!("{target}: tally: {{\"inputs\": {}}}", (round + 1) * u64::from(cases));
            break;
        }
    }
}

/// Calls `check` with a number of inputs.
///
/// # Errors
/// The panic, and the smallest input found that causes it.
pub(crate) fn search(
    cases: u32,
    round: u64,
    inputs: &BoxedStrategy<Vec<u8>>,
    check: impl Fn(&[u8]),
) -> Result<(), (String, Vec<u8>)> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let mut seed = [0; 32];
    let first = std::env::var("FUZZ_SEED").map(|text| text.parse().expect("FUZZ_SEED is a number"));
    seed[8..16].copy_from_slice(&first.unwrap_or(0_u64).to_le_bytes());
    seed[..8].copy_from_slice(&round.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let outcome = runner.run(inputs, |input| {
        check(&input);
        Ok(())
    });
    match outcome {
        Ok(()) => Ok(()),
        Err(TestError::Fail(why, input)) => Err((why.to_string(), input)),
        Err(TestError::Abort(why)) => panic!("no inputs: {why}"),
    }
}

/// Corpus inputs with pieces removed, doubled, exchanged or replaced.
fn changed(kept: Vec<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    if kept.is_empty() {
        return proptest::collection::vec(any::<u8>(), 0..64).boxed();
    }
    let piece = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..4),
        proptest::sample::select(kept.clone()).prop_flat_map(part),
    ];
    let change = (any::<prop::sample::Index>(), 0..8_usize, piece);
    let changes = proptest::collection::vec(change, 1..5);
    (proptest::sample::select(kept), changes)
        .prop_map(|(mut input, changes)| {
            for (at, taken, piece) in changes {
                let at = at.index(input.len() + 1);
                let end = (at + taken).min(input.len());
                input.splice(at..end, piece);
            }
            input
        })
        .boxed()
}

fn part(input: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    (0..=input.len(), 0..=input.len()).prop_map(move |(a, b)| input[a.min(b)..a.max(b)].to_vec())
}

/// The corpus of a target, which another crate of the repository may have.
fn folder(target: &str) -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|above| above.join("tests/protocol/fuzz/corpus"));
    folders.find(|folder| folder.is_dir()).expect("the repository has it").join(target)
}

/// The corpus inputs and their file names, sorted.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder(target)).expect("every target has a corpus");
    let paths = entries.map(|entry| entry.expect("an entry of a folder").path());
    let mut kept: Vec<_> = paths
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a file of the corpus"))
        })
        .collect();
    kept.sort();
    kept
}

/// Writes a found input into the corpus; returns its path.
fn keep(target: &str, input: &[u8]) -> String {
    let number = input
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let path = folder(target).join(format!("found-{number:016x}"));
    match fs::write(&path, input) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("nothing, since {}: {error}", path.display()),
    }
}
