//! Instructions per command, counted by callgrind: a command that has become more expensive fails, whatever the load.
//!
//! Owns    benches/guard.json: the instructions of the hottest commands, and the toolchain that compiled them.
//! Rule    seeds are fixed and the clock stands still: a build always counts the same.
//!
//! `cargo bench --bench guard` compares, `cargo bench --bench guard -- --record` writes new counts. Another toolchain than
//! the recorded one also changes the counts: the bound is wider then, with a warning.

#[allow(dead_code, unused_imports, reason = "tests use the rest")]
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};
use support::bare::{Bare, EXTEND, RELEASE, load, request};

/// Growth that fails, in percent.
const GROWTH_MAX: f64 = 5.0;
/// The growth that fails under another toolchain than the recorded one, in percent.
const FOREIGN_GROWTH_MAX: f64 = 15.0;
/// Locks held during the count.
const LOCKS: u32 = 10_000;
/// Rounds before the count begins.
const WARM_UP: u32 = 100;
const COUNTED: u32 = 1_000;
const TOKEN: &str = "3b241101-e2bb-4255-8caf-4136c566a962";

/// The counts of one architecture.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Record {
    toolchain: String,
    architecture: String,
    counts: BTreeMap<String, f64>,
}

type Fault = Box<dyn Error>;

/// The requests, and the prefix of each reply.
type Round = Vec<(Vec<u8>, &'static str)>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        [] => compare(),
        ["--record"] => record(),
        // The run of this program under callgrind.
        ["--run-all"] => run_all(),
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
        (
            "LOCK.ACQUIRE, LOCK.RELEASE",
            vec![
                (request(&["LOCK.ACQUIRE", "lock:new", TOKEN]), "*6\r\n"),
                (request(&["LOCK.RELEASE", "lock:new", TOKEN]), ":1\r\n"),
            ],
        ),
        (
            "two hand-overs of LOCK.ACQUIRE WAIT",
            vec![
                (request(&["LOCK.ACQUIRE", "lock:stock", "next", "WAIT", "9000"]), ""),
                (request(&["LOCK.RELEASE", "lock:stock", TOKEN]), ":1\r\n*6\r\n"),
                (request(&["LOCK.ACQUIRE", "lock:stock", TOKEN, "WAIT", "9000"]), ""),
                (request(&["LOCK.RELEASE", "lock:stock", "next"]), ":1\r\n*6\r\n"),
            ],
        ),
        ("release by EVALSHA refused", one(&["EVALSHA", &release, "1", "lock:stock", "me"], ":0\r\n")),
    ]
}

/// Those of them that change something, on a server with a journal, which is written after each request.
fn journal_cases(bare: &mut Bare) -> Vec<(&'static str, Round)> {
    let names = [
        ("SET NX PX granted, DEL", "SET NX PX granted, DEL, journal"),
        ("SET NX PX granted, release by EVALSHA", "SET NX PX granted, release by EVALSHA, journal"),
        ("extend by EVALSHA", "extend by EVALSHA, journal"),
        ("LOCK.ACQUIRE, LOCK.RELEASE", "LOCK.ACQUIRE, LOCK.RELEASE, journal"),
    ];
    let renamed = |(case, round)| {
        let (_, name) = names.iter().find(|(plain, _)| *plain == case)?;
        Some((*name, round))
    };
    cases(bare).into_iter().filter_map(renamed).collect()
}

/// Fills a server, on which `lock:stock` is then held by [`TOKEN`].
fn filled(mut bare: Bare) -> Bare {
    for n in 0..LOCKS {
        bare.send(&request(&["SET", &format!("lock:{n:012}"), TOKEN, "NX", "PX", "30000"]));
    }
    bare.send(&request(&["SET", "lock:stock", TOKEN, "NX", "PX", "30000"]));
    // The counter gains no digit during the count.
    bare.send(&request(&["SET", "fence", "100000"]));
    bare
}

/// Carries out every case, each between two marks.
fn run_all() -> Result<(), Fault> {
    let (mut bare, mut with_journal) = (filled(Bare::new()), filled(Bare::with_journal()));
    run(&cases(&mut bare), &mut bare)?;
    run(&journal_cases(&mut with_journal), &mut with_journal)
}

fn run(cases: &[(&str, Round)], bare: &mut Bare) -> Result<(), Fault> {
    for (name, requests) in cases {
        for (bytes, answer) in requests.iter().cycle().take(requests.len() * WARM_UP as usize) {
            let got = String::from_utf8_lossy(bare.send(bytes)).into_owned();
            if !got.starts_with(answer) {
                return Err(format!("{name} answers {got}").into());
            }
        }
        guard_mark();
        for _ in 0..COUNTED {
            for (bytes, _) in requests {
                black_box(bare.send(black_box(bytes)));
            }
        }
        guard_mark();
    }
    Ok(())
}

/// Callgrind finds this function by name: before each call it writes and resets its counts.
#[inline(never)]
fn guard_mark() {
    black_box(());
}

fn counts() -> Result<Record, Fault> {
    if cfg!(debug_assertions) {
        return Err("counts are of the optimised build: cargo bench --bench guard".into());
    }
    let folder = std::env::temp_dir().join(format!("redlatch-guard-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let counts = counts_in(&folder);
    std::fs::remove_dir_all(&folder)?;
    let toolchain = said_by("rustc", &["--version"])?;
    Ok(Record { toolchain, architecture: std::env::consts::ARCH.to_owned(), counts: counts? })
}

/// Runs this program under callgrind, with its files in `folder`.
fn counts_in(folder: &Path) -> Result<BTreeMap<String, f64>, Fault> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--dump-before=*guard_mark*"])
        .arg(format!("--callgrind-out-file={}/count", folder.display()))
        .arg(std::env::current_exe()?)
        .arg("--run-all")
        .output()
        .map_err(|error| format!("valgrind counts the instructions, and cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let mut counts = BTreeMap::new();
    let mut bare = Bare::new();
    let all = cases(&mut bare).into_iter().chain(journal_cases(&mut bare));
    for (index, (name, _)) in all.enumerate() {
        // Files are numbered from one, and every second ends with the rounds of a case.
        let file = folder.join(format!("count.{}", 2 * index + 2));
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let total = text.lines().find_map(|line| line.strip_prefix("totals:"));
        let total: f64 = total.ok_or("callgrind has counted nothing")?.trim().parse()?;
        counts.insert(name.to_owned(), (total / f64::from(COUNTED) * 10.0).round() / 10.0);
    }
    Ok(counts)
}

/// Compares the counts with the record.
fn compare() -> Result<(), Fault> {
    let records = read()?;
    let now = counts()?;
    let known = records.iter().find(|record| record.architecture == now.architecture);
    let known = known.ok_or_else(|| format!("no counts for {}; {HOW_TO_RECORD}", now.architecture))?;
    let is_foreign = known.toolchain != now.toolchain;
    let growth_max = if is_foreign { FOREIGN_GROWTH_MAX } else { GROWTH_MAX };
    println!("instructions per round, and growth since the record; {growth_max} % is too much");
    let (mut dearer, mut is_stale) = (Vec::new(), false);
    for (case, count) in &now.counts {
        let before = known.counts.get(case).ok_or_else(|| format!("{case} is new; {HOW_TO_RECORD}"))?;
        let growth = (count / before - 1.0) * 100.0;
        println!("{count:>10.1} {growth:>+7.1} %  {case}");
        if growth > growth_max {
            dearer.push(format!("{case} takes {count} instructions instead of {before}"));
        }
        // An improvement that is not recorded could be lost again without notice.
        is_stale |= growth < -growth_max;
    }
    if is_stale {
        println!("some take much less than the record says; {HOW_TO_RECORD}");
    }
    if is_foreign {
        println!("warning: counted with {}, recorded with {}:", now.toolchain, known.toolchain);
        println!("the bound is {growth_max} % for that, instead of {GROWTH_MAX} %; {HOW_TO_RECORD}");
    }
    if dearer.is_empty() { Ok(()) } else { Err(format!("{}; {HOW_TO_RECORD}", dearer.join("; ")).into()) }
}

const HOW_TO_RECORD: &str = "to take what is now for what is meant: cargo bench --bench guard -- --record";

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
