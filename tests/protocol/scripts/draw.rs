//! Small random states and arguments for lock scripts.
//!
//! Owns    the random contents of keys and ARGV: mostly the types that scripts expect.

use crate::support::rng::{Rng, number};

pub(crate) struct Draw(Rng);

impl Draw {
    /// The sequence of the seed in `SEED`, or of 1.
    pub(crate) fn new() -> Self {
        Self::of_seed(number("SEED").unwrap_or(1))
    }

    /// The sequence of that seed.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self(Rng::new(seed))
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn of<'a>(&mut self, words: &[&'a [u8]]) -> &'a [u8] {
        words[self.below(words.len())]
    }

    /// Commands that make a small state of these keys.
    pub(crate) fn state(&mut self, keys: &[&[u8]]) -> Vec<Vec<Vec<u8>>> {
        let mut commands: Vec<Vec<&[u8]>> = Vec::new();
        for key in keys {
            match self.below(11) {
                0..=3 => continue,
                4 => commands.push(vec![b"RPUSH", key, self.of(VALUES), self.of(VALUES)]),
                5 | 6 => {
                    let mode = self.of(&[b"read", b"write", b"1"]);
                    commands.push(vec![b"HSET", key, self.of(VALUES), self.of(COUNTS), b"mode", mode]);
                }
                7 | 8 => {
                    let [first, second] = [self.of(COUNTS), self.of(COUNTS)];
                    commands.push(vec![b"ZADD", key, first, self.of(VALUES), second, self.of(VALUES)]);
                }
                9 => commands.push(vec![b"SET", key, self.of(COUNTS)]),
                _ => commands.push(vec![b"SET", key, self.of(VALUES)]),
            }
            if self.below(2) == 0 {
                commands.push(vec![b"PEXPIRE", key, self.of(&[b"1", b"70000", b"90000"])]);
            }
        }
        commands.into_iter().map(|words| words.into_iter().map(<[u8]>::to_vec).collect()).collect()
    }

    /// ARGV for a script: tokens and numbers, and a command name for a script that calls a command by ARGV.
    pub(crate) fn args(&mut self, script: &str) -> Vec<&'static [u8]> {
        let count = 1 + self.below(7);
        let drawn = |at: usize, draw: &mut Self| {
            let names_command = ["redis.call(", "redis.pcall("]
                .iter()
                .any(|call| script.replace(' ', "").contains(&format!("{call}ARGV[{at}],")));
            match draw.below(10) {
                _ if names_command => draw.of(&[b"publish", b"SPUBLISH"]),
                0..=3 => draw.of(VALUES),
                4..=7 => draw.of(COUNTS),
                _ => draw.of(NUMBERS),
            }
        };
        (1..=count).map(|at| drawn(at, self)).collect()
    }
}

/// Contents of keys, and tokens.
const VALUES: &[&[u8]] =
    &[b"mine", b"mine", b"mine", b"other", b"mine-and-more", b"0", b"1", b"7", b"", b"a\0b"];
const COUNTS: &[&[u8]] = &[b"0", b"1", b"2", b"3", b"5", b"1000", b"30000", b"100000", b"1.5", b"-1"];
/// Leases, counts and flags, valid and invalid.
const NUMBERS: &[&[u8]] = &[
    b"100000", b"1", b"-1", b"ten", b" 1e5", b"1.5", b"1e300", b"9223372036854775807", b"123456789012345678",
    b"no", b"", b"0x10", b"inf", b"nan", b"10\0",
];
