//! The tests' random numbers: a seed repeats them, on every machine.

use std::env;
use std::ops::Range;

/// xorshift64*.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// From 0 up to `limit`, itself excluded.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.below_u64(limit as u64) as usize
    }

    /// Like [`Rng::below`], for times and other numbers that are not indexes.
    pub(crate) fn below_u64(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    /// True in one of `times` cases.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// The seeds of a test: that of the variable SEED, or as many as `variable` says, or `runs`, from FIRST or 0 on.
pub(crate) fn seeds(variable: &str, runs: u64) -> Range<u64> {
    if let Some(seed) = number("SEED") {
        return seed..seed + 1;
    }
    let (first, runs) = (number("FIRST").unwrap_or(0), number(variable).unwrap_or(runs));
    tally(&[("seeds", runs)]);
    first..first.saturating_add(runs)
}

/// Prints figures that a nightly run adds up for benches/history.jsonl.
pub(crate) fn tally(figures: &[(&str, u64)]) {
    let figures: Vec<String> = figures.iter().map(|(name, figure)| format!("\"{name}\": {figure}")).collect();
    println!("tally: {{{}}}", figures.join(", "));
}

/// The number in an environment variable.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text:?}")))
}
