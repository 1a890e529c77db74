//! The number of dependencies that the documents tell. Their licences, sources and versions are checked by cargo-deny: see
//! `.cargo/deny.toml`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates shipped with these features that are not ours, each with its version.
fn shipped(features: &[&str]) -> BTreeSet<String> {
    let all = built(env!("CARGO_PKG_NAME"), features).into_iter();
    all.filter(|package| !package.starts_with(env!("CARGO_PKG_NAME"))).collect()
}

/// The crates that a package with these features is built from, each with its version.
fn built(package: &str, features: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args([
            "tree", "--locked", "--package", package, "--edges", "normal,build", "--prefix", "none",
            "--format", "{p}",
        ])
        .args(features)
        .output()
        .expect("cargo, which runs this, starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo writes text");
    text.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
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

#[test]
fn neither_the_core_nor_a_build_without_the_feature_has_the_test_backend() {
    let has = |package, features: &[&str]| {
        built(package, features).iter().any(|name| name.starts_with("redlatch-testing "))
    };
    assert!(has("redlatch", &[]), "the program has it by default");
    assert!(!has("redlatch-core", &[]));
    let features = "cli,client,etcd,http,lua,mcp,otlp,server,tls,top";
    assert!(!has("redlatch", &["--no-default-features", "--features", features]));
}
