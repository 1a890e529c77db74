//! Instructions per command, counted by callgrind: a command that has grown dearer fails here, on any machine, in any weather.
//!
//! Owns    benches/guard.json: what each of the hottest commands takes, and the toolchain that this belongs to.
//! Rule    one process per count, with fixed seeds and a clock that stands still: the same build counts the same twice.
//!
//! `cargo bench --bench guard` compares, `cargo bench --bench guard -- --record` writes the counts anew. Where the
//! toolchain is not that of the record, its choices are in the counts as well: they get a wider bound, and it is said.

#[path = "../tests/support/bare.rs"]
#[allow(dead_code, reason = "time stands still here")]
mod bare;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use bare::{Bare, EXTEND, RELEASE, load, request};
use serde::{Deserialize, Serialize};

/// Growth that fails, in percent.
const GROWTH_MAX: f64 = 5.0;
/// The same, under another toolchain than the one of the record.
const FOREIGN_GROWTH_MAX: f64 = 15.0;
/// Locks that are held meanwhile.
const LOCKS: u32 = 10_000;
/// What is counted is the difference between these many rounds: starts and warm-ups cancel out.
const ROUNDS: [u32; 2] = [200, 1_200];
const TOKEN: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

/// The counts of one architecture.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Record {
    toolchain: String,
    architecture: String,
    /// Instructions by case.
    counts: BTreeMap<String, f64>,
}

type Fault = Box<dyn Error>;

/// What is sent, and how each answer begins.
type Round = Vec<(Vec<u8>, &'static str)>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => compare(),
        ["--record"] => record(),
        // What this program is asked by itself, under callgrind.
        ["--rounds", case, rounds] => run(case, rounds),
        _ => Err("cargo bench --bench guard [-- --record]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("guard: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Rounds by name, each of which leaves the server as it found it.
fn cases(bare: &mut Bare) -> Vec<(&'static str, Round)> {
    let [release, extend] = [RELEASE, EXTEND].map(|text| load(bare, text));
    let take = || (request(&["SET", "lock:new", TOKEN, "NX", "PX", "30000"]), "+OK\r\n");
    let one = |words: &[&str], answer| vec![(request(words), answer)];
    vec![
        ("PING", one(&["PING"], "+PONG\r\n")),
        ("GET", one(&["GET", "lock:stock"], "$36\r\n3b241101-e2bb-4255-8caf-4136c566a962\r\n")),
        ("EXISTS", one(&["EXISTS", "lock:stock"], ":1\r\n")),
        ("PTTL", one(&["PTTL", "lock:stock"], ":30000\r\n")),
        ("PEXPIRE", one(&["PEXPIRE", "lock:stock", "30000"], ":1\r\n")),
        ("INCR", one(&["INCR", "fence"], ":")),
        ("SET NX PX refused", one(&["SET", "lock:stock", "me", "NX", "PX", "30000"], "$-1\r\n")),
        ("SET NX PX granted, DEL", vec![take(), (request(&["DEL", "lock:new"]), ":1\r\n")]),
        (
            "SET NX PX granted, release by EVALSHA",
            vec![take(), (request(&["EVALSHA", &release, "1", "lock:new", TOKEN]), ":1\r\n")],
        ),
        ("extend by EVALSHA", one(&["EVALSHA", &extend, "1", "lock:stock", TOKEN, "30000"], ":1\r\n")),
        ("extend by EVAL", one(&["EVAL", EXTEND, "1", "lock:stock", TOKEN, "30000"], ":1\r\n")),
        ("release by EVALSHA refused", one(&["EVALSHA", &release, "1", "lock:stock", "me"], ":0\r\n")),
    ]
}

/// A server that is not empty, on which `lock:stock` is held by [`TOKEN`].
fn server() -> Bare {
    let mut bare = Bare::new();
    for n in 0..LOCKS {
        bare.send(&request(&["SET", &format!("lock:{n:012}"), TOKEN, "NX", "PX", "30000"]));
    }
    bare.send(&request(&["SET", "lock:stock", TOKEN, "NX", "PX", "30000"]));
    // It gains no digit while it is counted.
    bare.send(&request(&["SET", "fence", "100000"]));
    bare
}

/// Carries out a case so many times.
fn run(name: &str, rounds: &str) -> Result<(), Fault> {
    let mut bare = server();
    let (_, requests) =
        cases(&mut bare).into_iter().find(|(case, _)| *case == name).ok_or_else(|| format!("no {name}"))?;
    for (bytes, answer) in &requests {
        let got = String::from_utf8_lossy(bare.send(bytes)).into_owned();
        if !got.starts_with(answer) {
            return Err(format!("{name} answers {got}").into());
        }
    }
    for _ in 0..rounds.parse::<u32>()? {
        for (bytes, _) in &requests {
            black_box(bare.send(black_box(bytes)));
        }
    }
    Ok(())
}

/// What every case takes now.
fn counts() -> Result<Record, Fault> {
    if cfg!(debug_assertions) {
        return Err("counts are of the optimised build: cargo bench --bench guard".into());
    }
    let mut counts = BTreeMap::new();
    for (name, _) in cases(&mut Bare::new()) {
        let [few, many] = ROUNDS.map(|rounds| instructions(name, rounds));
        let per_round = (many? as f64 - few? as f64) / f64::from(ROUNDS[1] - ROUNDS[0]);
        counts.insert(name.to_owned(), (per_round * 10.0).round() / 10.0);
    }
    let toolchain = said_by("rustc", &["--version"])?;
    Ok(Record { toolchain, architecture: std::env::consts::ARCH.to_owned(), counts })
}

/// Instructions that this program takes for so many rounds of a case, its start included.
fn instructions(case: &str, rounds: u32) -> Result<u64, Fault> {
    let out = std::env::temp_dir().join(format!("redlatch-guard-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", &format!("--callgrind-out-file={}", out.display())])
        .arg(std::env::current_exe()?)
        .args(["--rounds", case, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind counts the instructions, and cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(format!("{case}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let text = std::fs::read_to_string(&out)?;
    std::fs::remove_file(&out)?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals:"));
    Ok(totals.ok_or("callgrind has counted nothing")?.trim().parse()?)
}

/// Holds the counts to those of the record.
fn compare() -> Result<(), Fault> {
    let records = read()?;
    let now = counts()?;
    let known = records.iter().find(|record| record.architecture == now.architecture);
    let known = known.ok_or_else(|| format!("no counts for {}; {HOW_TO_RECORD}", now.architecture))?;
    let is_foreign = known.toolchain != now.toolchain;
    let growth_max = if is_foreign { FOREIGN_GROWTH_MAX } else { GROWTH_MAX };
    println!("instructions per round, and growth since the record; {growth_max} % is too much");
    let mut dearer = Vec::new();
    for (case, count) in &now.counts {
        let before = known.counts.get(case).ok_or_else(|| format!("{case} is new; {HOW_TO_RECORD}"))?;
        let growth = (count / before - 1.0) * 100.0;
        println!("{count:>10.1} {growth:>+7.1} %  {case}");
        if growth > growth_max {
            dearer.push(format!("{case} takes {count} instructions instead of {before}"));
        }
    }
    if is_foreign {
        println!("warning: counted with {}, recorded with {};", now.toolchain, known.toolchain);
        println!("the bound is wider for that. {HOW_TO_RECORD}");
    }
    if dearer.is_empty() { Ok(()) } else { Err(format!("{}; {HOW_TO_RECORD}", dearer.join("; ")).into()) }
}

const HOW_TO_RECORD: &str = "when that is meant: cargo bench --bench guard -- --record";

/// Takes today's counts for this architecture as those to come will be held to.
fn record() -> Result<(), Fault> {
    let now = counts()?;
    let mut records = read().unwrap_or_default();
    records.retain(|record| record.architecture != now.architecture);
    now.counts.iter().for_each(|(case, count)| println!("{count:>10.1}  {case}"));
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
