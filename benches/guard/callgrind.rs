//! The run of this program under callgrind, and what callgrind has written.
//!
//! Owns    the simulated machine: caches of fixed sizes, so that counts do not depend on the processor.
//! Source  the format of callgrind's files, in the manual of valgrind.

use std::collections::BTreeMap;
use std::error::Error;
use std::ops::AddAssign;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::cases::{self, COUNTED};

/// Caches for instructions and for data, and the last one: bytes, ways, bytes of a line. The first ones have more ways than
/// those of processors: so what is missed depends on how much is touched, and hardly on where it lies.
const CACHES: [&str; 3] = ["--I1=32768,64,64", "--D1=32768,64,64", "--LL=8388608,16,64"];

/// What a round costs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Costs {
    /// Instructions that were executed.
    pub(crate) instructions: f64,
    /// Instructions that were not in the first cache.
    pub(crate) instruction_misses: f64,
    /// Reads and writes of data that was not in the first cache.
    pub(crate) data_misses: f64,
    /// Branches that were predicted wrong.
    pub(crate) branch_misses: f64,
}

impl Costs {
    /// The figures of a line, in the order of the file's events.
    pub(super) fn of(events: &[&str], figures: &[f64]) -> Self {
        let sum = |names: &[&str]| {
            let named = events.iter().zip(figures).filter(|(event, _)| names.contains(event));
            named.map(|(_, figure)| figure / f64::from(COUNTED)).sum()
        };
        Self {
            instructions: sum(&["Ir"]),
            instruction_misses: sum(&["I1mr"]),
            data_misses: sum(&["D1mr", "D1mw"]),
            branch_misses: sum(&["Bcm", "Bim"]),
        }
    }

    /// The same to a tenth.
    fn rounded(self) -> Self {
        let tenth = |figure: f64| (figure * 10.0).round() / 10.0;
        Self {
            instructions: tenth(self.instructions),
            instruction_misses: tenth(self.instruction_misses),
            data_misses: tenth(self.data_misses),
            branch_misses: tenth(self.branch_misses),
        }
    }
}

impl AddAssign for Costs {
    fn add_assign(&mut self, other: Self) {
        self.instructions += other.instructions;
        self.instruction_misses += other.instruction_misses;
        self.data_misses += other.data_misses;
        self.branch_misses += other.branch_misses;
    }
}

/// The costs of each case.
pub(crate) fn costs() -> Result<BTreeMap<String, Costs>, Box<dyn Error>> {
    let files = files()?;
    files.into_iter().map(|(name, text)| Ok((name, total(&text)?.rounded()))).collect()
}

/// What callgrind has written of each case.
pub(crate) fn files() -> Result<Vec<(String, String)>, Box<dyn Error>> {
    if cfg!(debug_assertions) {
        return Err("counts are of the optimised build: cargo bench --bench guard".into());
    }
    let folder = std::env::temp_dir().join(format!("redlatch-guard-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let files = files_in(&folder);
    std::fs::remove_dir_all(&folder)?;
    files
}

fn files_in(folder: &Path) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes", "--dump-before=*guard_mark*"])
        .args(CACHES)
        .arg(format!("--callgrind-out-file={}/count", folder.display()))
        .arg(std::env::current_exe()?)
        .arg("--run-all")
        .output()
        .map_err(|error| format!("valgrind counts the instructions, and cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let read = |(index, name): (usize, String)| {
        // Files are numbered from one, and every second ends with the rounds of a case.
        let file = folder.join(format!("count.{}", 2 * index + 2));
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok((name, text))
    };
    cases::names().into_iter().enumerate().map(read).collect()
}

fn total(text: &str) -> Result<Costs, Box<dyn Error>> {
    let line = |name| text.lines().find_map(|line| line.strip_prefix(name));
    let totals = line("totals:").ok_or("callgrind has counted nothing")?;
    let figures = totals.split_whitespace().map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    Ok(Costs::of(&events(text), &figures))
}

/// The names of the figures in a file.
pub(super) fn events(text: &str) -> Vec<&str> {
    let line = text.lines().find_map(|line| line.strip_prefix("events:"));
    line.unwrap_or_default().split_whitespace().collect()
}
