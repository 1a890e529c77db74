//! The dependencies of the crate: licences, duplicate versions, sources, and their number.
//!
//! Owns    the reading of `cargo tree`, `Cargo.lock` and `.cargo/deny.toml`, as far as these checks need them.
//! Rule    the rules are read from cargo-deny's own file, so the tool and this test agree; dev-dependencies are exempt.
//! Known vulnerabilities are found by `cargo deny check advisories`: see `.cargo/deny.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates shipped with these features: name, version and licence of each crate that is not ours.
fn shipped(features: &[&str]) -> BTreeSet<(String, String, String)> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "tree",
            "--locked",
            "--package",
            env!("CARGO_PKG_NAME"),
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--format",
            "{p}|{l}",
        ])
        .args(features)
        .output()
        .expect("cargo, which runs this, starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes text");
    let crates = text.lines().filter_map(|line| {
        let (package, licence) = line.trim_end_matches(" (*)").split_once('|')?;
        let mut words = package.split(' ');
        let (name, version) = (words.next()?.to_owned(), words.next()?.trim_start_matches('v').to_owned());
        Some((name, version, licence.to_owned()))
    });
    crates.filter(|(name, ..)| !name.starts_with(env!("CARGO_PKG_NAME"))).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The strings of a list in cargo-deny's file.
fn denied(list: &str) -> Vec<String> {
    let text = read(".cargo/deny.toml");
    let (_, rest) = text.split_once(&format!("\n{list} = [\n")).expect("the list is there");
    let (items, _) = rest.split_once("\n]").expect("the list ends");
    items.lines().filter_map(|line| line.split('"').nth(1)).map(str::to_owned).collect()
}

/// Whether an SPDX expression can be met with the licences that are allowed. AND binds closer than OR.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // `/` is the old spelling of OR. No crate nests brackets: an outer bracket holds alternatives.
    let flat = expression.replace('/', " OR ");
    let parts = outer_parts(&flat);
    let is_met = |part: &&str| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        part.split(" OR ")
            .any(|one| one.split(" AND ").all(|name| allowed.iter().any(|allowed| allowed == name.trim())))
    };
    !parts.is_empty() && parts.iter().all(is_met)
}

/// Splits the expression at each AND next to a bracket.
fn outer_parts(expression: &str) -> Vec<&str> {
    let cut = expression.split(") AND ").flat_map(|part| part.split(" AND ("));
    cut.filter(|part| !part.trim().is_empty()).collect()
}

#[test]
fn licences_are_those_that_are_allowed() {
    let allowed = denied("allow");
    let crates = shipped(&["--all-features"]);
    assert!(crates.len() > 20, "cargo tree lists what there is: {crates:?}");
    for (name, version, licence) in crates {
        assert!(is_allowed(&licence, &allowed), "{name} {version} comes under {licence:?}");
    }
}

#[test]
fn an_expression_of_licences_is_read_as_it_is_meant() {
    let allowed = ["MIT", "ISC"].map(str::to_owned);
    for (expression, expected) in [
        ("MIT", true),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0/MIT", true),
        ("GPL-3.0", false),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0 OR MIT AND ISC", true),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("(MIT OR GPL-3.0) AND GPL-3.0", false),
        ("GPL-3.0 AND (MIT OR ISC)", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression:?}");
    }
}

#[test]
fn a_crate_comes_twice_only_where_that_is_written_down() {
    let skipped = denied("skip");
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version, _) in shipped(&["--all-features"]) {
        versions.entry(name).or_default().insert(version);
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let is_skipped = |version: &&String| {
            let fits = |skip: &String| {
                let (of, prefix) = skip.split_once('@').expect("a name and a version");
                of == name && (version.as_str() == prefix || version.starts_with(&format!("{prefix}.")))
            };
            skipped.iter().any(fits)
        };
        let left = versions.len() - versions.iter().filter(is_skipped).count();
        assert!(left <= 1, "{name} comes as {versions:?}");
    }
}

#[test]
fn everything_comes_from_one_registry() {
    let lock = read("Cargo.lock");
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    let ours = format!("name = \"{}", env!("CARGO_PKG_NAME"));
    for package in packages.iter().filter(|package| !package.contains(&ours)) {
        let is_known = package.contains("source = \"registry+https://github.com/rust-lang/crates.io-index\"");
        assert!(is_known && package.contains("checksum = \""), "an unknown source: {package}");
    }
    assert!(packages.len() > 20);
}

#[test]
fn the_documents_say_how_many_there_are() {
    let mut text = read("docs/architecture.md");
    for (what, features) in [
        ("the core alone", &["--no-default-features"][..]),
        ("the server as a library", &["--no-default-features", "--features", "server"]),
        ("the program", &[]),
    ] {
        let head = format!("| {what} | ");
        let (before, rest) =
            text.split_once(&head).unwrap_or_else(|| panic!("docs/architecture.md has no row {head}"));
        let (_, after) = rest.split_once(" |").expect("a row ends");
        text = format!("{before}{head}{} |{after}", shipped(features).len());
    }
    if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
        std::fs::write(root().join("docs/architecture.md"), text)
            .expect("docs/architecture.md can be written");
        return;
    }
    assert!(
        text == read("docs/architecture.md"),
        "it counts otherwise: UPDATE_README=1 cargo test --test suite dependencies"
    );
}
