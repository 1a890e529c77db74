//! Where the costs of a request arise: by the source file of each instruction, inlined ones included.
//!
//! Rule    what the standard library costs counts to the file of ours around it.

use std::collections::{BTreeMap, HashMap};
use std::error::Error;

use super::callgrind::{self, Costs};

/// The stages of a request, in its order, each with the beginnings of its files' paths.
const STAGES: &[(&str, &[&str])] = &[
    (
        "decode",
        &["proto/src/resp/decode", "proto/src/resp/request", "proto/src/resp/inline", "proto/src/number"],
    ),
    ("row", &["core/src/commands/table", "core/src/commands/row"]),
    ("gates", &["core/src/engine/", "core/src/commands/quarantine", "core/src/state/"]),
    ("hash", &["ahash", "hashbrown", "dashmap"]),
    (
        "shards",
        &[
            "core/src/keyspace/locked", "core/src/keyspace/view", "core/src/keyspace/mod", "parking_lot",
            "lock_api",
        ],
    ),
    ("search", &["core/src/keyspace/shard.rs", "core/src/keyspace/table"]),
    (
        "entry",
        &[
            "core/src/keyspace/arena", "core/src/keyspace/entry", "core/src/keyspace/shard/deadlines",
            "core/src/wheel",
        ],
    ),
    ("locks", &["core/src/locks/", "core/src/keyspace/", "core/src/commands/lock/"]),
    ("script", &["core/src/scripts/", "core/src/commands/script/"]),
    ("command", &["core/src/commands/", "core/src/types"]),
    ("encode", &["proto/src/resp/encode", "proto/src/resp/element"]),
    ("the guard itself", &["benches/guard", "tests/support"]),
];
const OTHERS: &str = "copies, allocation, drops";

/// The cases whose stages are shown, with a shorter name.
const SHOWN: &[(&str, &str)] = &[
    ("SET NX PX refused, another lock each time", "refused"),
    ("release by EVALSHA, SET NX PX granted, another lock each time", "release + acquire"),
    ("extend by EVALSHA, another lock each time", "extend"),
    ("release by EVALSHA refused, another lock each time", "release refused"),
];

/// Prints the stages of some cases as a table: instructions / misses of data / mispredicted branches.
pub(crate) fn print() -> Result<(), Box<dyn Error>> {
    let files: HashMap<String, String> = callgrind::files()?.into_iter().collect();
    let shown: Vec<_> = SHOWN.iter().map(|(case, _)| of_stages(&files[*case])).collect();
    let names: Vec<_> = SHOWN.iter().map(|(_, name)| *name).collect();
    println!("| stage | {} |\n| --- |{}", names.join(" | "), " ---: |".repeat(names.len()));
    for stage in STAGES.iter().map(|(stage, _)| *stage).chain([OTHERS]) {
        let cells = shown.iter().map(|stages| stages.get(stage).copied().unwrap_or_default());
        let cell = |costs: Costs| {
            format!("{:.0} / {:.1} / {:.1}", costs.instructions, costs.data_misses, costs.branch_misses)
        };
        println!("| {stage} | {} |", cells.map(cell).collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

/// The costs of each stage in one of callgrind's files.
fn of_stages(text: &str) -> BTreeMap<&'static str, Costs> {
    let (events, mut stages, mut names) = (callgrind::events(text), BTreeMap::new(), HashMap::new());
    let (mut stage, mut is_call) = (OTHERS, false);
    for line in text.lines() {
        if let Some((kind, name)) = line.split_once('=') {
            match kind {
                "fl" | "fi" | "fe" => stage = stage_of(named(&mut names, name), kind, stage),
                // The file of a called function may be mentioned here first.
                "cfi" | "cfl" => drop(named(&mut names, name)),
                "calls" => is_call = true,
                _ => {}
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            // The line behind a call has what the called function costs.
            if !std::mem::take(&mut is_call) {
                let figures: Vec<f64> =
                    line.split_whitespace().skip(1).filter_map(|figure| figure.parse().ok()).collect();
                *stages.entry(stage).or_default() += Costs::of(&events, &figures);
            }
        }
    }
    stages
}

/// The name that callgrind abbreviates by a number in brackets after its first mention.
fn named<'t>(names: &mut HashMap<&'t str, &'t str>, text: &'t str) -> &'t str {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    if name.is_empty() {
        names.get(number).copied().unwrap_or_default()
    } else {
        names.insert(number, name).map_or(name, |_| name)
    }
}

/// The stage of a file. The standard library, inlined, belongs to what is around it.
fn stage_of(file: &str, kind: &str, around: &'static str) -> &'static str {
    let found = STAGES.iter().find(|(_, parts)| parts.iter().any(|part| file.contains(part)));
    let is_inlined_library = kind != "fl" && (file.contains("/rustc/") || file.contains("library/"));
    match found {
        Some((stage, _)) => stage,
        None if is_inlined_library => around,
        None => OTHERS,
    }
}
