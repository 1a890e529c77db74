//! The programs of `examples/`, run as modules: each ends by itself, without an error.

use std::collections::BTreeSet;
use std::path::Path;

#[path = "../../examples/clock.rs"]
mod clock;
#[path = "../../examples/cluster.rs"]
mod cluster;
#[path = "../../examples/embedding.rs"]
mod embedding;
#[path = "../../examples/redlock.rs"]
mod redlock;
#[path = "../../examples/service.rs"]
mod service;

type Example = (&'static str, fn() -> Result<(), String>);

const EXAMPLES: &[Example] = &[
    ("clock", || clock::main().map_err(|error| error.to_string())),
    ("cluster", || cluster::main().map_err(|error| error.to_string())),
    ("embedding", || embedding::main().map_err(|error| error.to_string())),
    ("redlock", || redlock::main().map_err(|error| error.to_string())),
    ("service", || service::main().map_err(|error| error.to_string())),
];

#[test]
fn every_example_ends_without_an_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let files = std::fs::read_dir(folder).expect("the folder examples");
    let files: BTreeSet<String> = files
        .map(|file| file.expect("a file").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    let known: BTreeSet<String> = EXAMPLES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, known, "every example is run here");

    for (name, run) in EXAMPLES {
        println!("-- {name}");
        assert_eq!(run(), Ok(()), "{name}");
    }
}
