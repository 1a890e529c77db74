//! What each of the hottest commands costs, counted by callgrind: one that has become more expensive fails.
//!
//! Owns    benches/guard.json: the costs, the toolchain that compiled them, and the instructions at an earlier revision.
//! Rule    seeds are fixed and the clock stands still: a build always counts the same.
//!
//! `cargo bench --bench guard` compares, `cargo bench --bench guard -- --record` writes new counts, and `-- --stages`
//! prints where they arise. Another toolchain than the recorded one also changes the counts: the bound is wider then, with
//! a warning.

mod callgrind;
mod cases;
mod stages;
#[allow(dead_code, unused_imports, reason = "tests use the rest")]
#[path = "../../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use callgrind::Costs;
use serde::{Deserialize, Serialize};

/// Growth of a command's instructions that fails, in percent.
const GROWTH_MAX: f64 = 5.0;
/// The growth that fails under another toolchain than the recorded one, in percent.
const FOREIGN_GROWTH_MAX: f64 = 15.0;
/// Growth of all instructions since the earlier revision that fails, in percent: each change may take a little.
const SUM_GROWTH_MAX: f64 = 9.5;
/// More reads and writes of a round that miss the first cache which fail: one line of an entry more is one. What else is
/// missed changes with the layout of the program, so it is shown and held to nothing.
const MORE_DATA_MISSES_MAX: f64 = 0.7;
/// The same in percent, where that is more: where the heap begins differs between machines.
const DATA_MISSES_GROWTH_MAX: f64 = 10.0;

/// The costs on one architecture.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Record {
    toolchain: String,
    architecture: String,
    since: Since,
    costs: BTreeMap<String, Costs>,
}

/// What the sum of all instructions is held to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Since {
    revision: String,
    instructions: BTreeMap<String, f64>,
}

type Fault = Box<dyn Error>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => compare(),
        ["--record"] => record(),
        ["--stages"] => stages::print(),
        // The run of this program under callgrind.
        ["--run-all"] => cases::run_all(),
        _ => Err("cargo bench --bench guard [-- --record | --stages]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("guard: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// The costs of this build, held to the same earlier revision as those that are known.
fn now(known: Option<&Record>) -> Result<Record, Fault> {
    let since = known.map(|known| known.since.clone()).unwrap_or_default();
    let toolchain = said_by("rustc", &["--version"])?;
    Ok(Record {
        toolchain,
        architecture: std::env::consts::ARCH.to_owned(),
        since,
        costs: callgrind::costs()?,
    })
}

/// Compares the costs with the record.
fn compare() -> Result<(), Fault> {
    let records = read()?;
    let known = records.iter().find(|record| record.architecture == std::env::consts::ARCH);
    let known = known.ok_or_else(|| format!("no counts for {}; {HOW_TO_RECORD}", std::env::consts::ARCH))?;
    let now = now(Some(known))?;
    let is_foreign = known.toolchain != now.toolchain;
    let growth_max = if is_foreign { FOREIGN_GROWTH_MAX } else { GROWTH_MAX };
    println!("instructions per round, and growth since the record; {growth_max} % is too much");
    println!(
        "misses per round of instructions, of data, and of branches; {MORE_DATA_MISSES_MAX} more of data, or \
         {DATA_MISSES_GROWTH_MAX} % if that is more, are too many"
    );
    let mut dearer = Vec::new();
    for (case, costs) in &now.costs {
        let before = known.costs.get(case).ok_or_else(|| format!("{case} is new; {HOW_TO_RECORD}"))?;
        dearer.extend(growth(case, costs, before, growth_max));
    }
    let (sum, revision) = (sum_growth(&now), &now.since.revision);
    println!("{sum:>+18.1} %  instructions of all that were counted at {revision}");
    if sum > SUM_GROWTH_MAX {
        dearer.push(format!("all together take {sum:.1} % more instructions than at {revision}"));
    }
    let instructions: BTreeMap<&str, f64> =
        now.costs.iter().map(|(case, costs)| (case.as_str(), costs.instructions)).collect();
    println!("tally: {}", serde_json::json!({ "instructions": instructions }));
    if is_foreign {
        println!("warning: counted with {}, recorded with {}:", now.toolchain, known.toolchain);
        println!("the bound is {growth_max} % for that, instead of {GROWTH_MAX} %; {HOW_TO_RECORD}");
    }
    if dearer.is_empty() { Ok(()) } else { Err(format!("{}; {HOW_TO_RECORD}", dearer.join("; ")).into()) }
}

/// Prints the costs of a case. Returns what has grown too much.
fn growth(case: &str, costs: &Costs, before: &Costs, growth_max: f64) -> Vec<String> {
    let Costs { instructions, instruction_misses, data_misses, branch_misses } = costs;
    let growth = (instructions / before.instructions - 1.0) * 100.0;
    // An improvement that is not recorded could be lost again without notice.
    let stale = if growth < -growth_max { ", much less than recorded" } else { "" };
    let misses = format!("{instruction_misses:>7.1} {data_misses:>5.1} {branch_misses:>6.1}");
    println!("{instructions:>10.1} {growth:>+7.1} % {misses}  {case}{stale}");
    let dearer = || format!("{case} takes {instructions} instructions instead of {}", before.instructions);
    let missing = || format!("{case} misses {data_misses} times data instead of {}", before.data_misses);
    let more_misses_max = MORE_DATA_MISSES_MAX.max(before.data_misses * DATA_MISSES_GROWTH_MAX / 100.0);
    let misses_more = data_misses - before.data_misses > more_misses_max;
    [(growth > growth_max).then(dearer), misses_more.then(missing)].into_iter().flatten().collect()
}

/// How many percent more instructions all cases together take than at the earlier revision.
fn sum_growth(now: &Record) -> f64 {
    let counted =
        now.since.instructions.iter().filter_map(|(case, before)| Some((now.costs.get(case)?, before)));
    let (after, before) =
        counted.fold((0.0, 0.0), |sums, (costs, before)| (sums.0 + costs.instructions, sums.1 + before));
    if before > 0.0 { (after / before - 1.0) * 100.0 } else { 0.0 }
}

const HOW_TO_RECORD: &str = "to take what is now for what is meant: cargo bench --bench guard -- --record";

/// Takes today's costs for this architecture as those to come will be held to. The earlier revision stays.
fn record() -> Result<(), Fault> {
    let mut records = read().unwrap_or_default();
    let known = records.iter().find(|record| record.architecture == std::env::consts::ARCH);
    let now = now(known)?;
    records.retain(|record| record.architecture != now.architecture);
    now.costs.iter().for_each(|(case, costs)| println!("{:>10.1}  {case}", costs.instructions));
    records.push(now);
    std::fs::write(file(), serde_json::to_string_pretty(&records)? + "\n")?;
    Ok(())
}

fn read() -> Result<Vec<Record>, Fault> {
    let text = std::fs::read_to_string(file()).map_err(|error| format!("{}: {error}", file().display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/guard.json")
}

fn said_by(program: &str, arguments: &[&str]) -> Result<String, Fault> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
