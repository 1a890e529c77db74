//! The table of docs/clients.md: one row per client that `tests/clients/main.rs` runs.
//!
//! Owns    reading a version from the manifest that pins it.
//! Knows   the table of clients and the manifests in `tests/clients/`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{escaped, read, root};
use crate::clients::table::{Client, Language, clients};

/// The clients by language, then by name.
pub(crate) fn table() -> String {
    let mut clients: Vec<&Client> = clients().iter().collect();
    clients.sort_by_key(|client| (client.language, &client.name));
    let mut text =
        String::from("\n| client | language | tested with | what it does here |\n|---|---|---|---|\n");
    for client in clients {
        let packages: Vec<String> = client.packages.iter().map(|package| pinned(client, package)).collect();
        let language = match client.language {
            Language::Php => String::from("PHP"),
            Language::Tool => String::from("a tool"),
            language => format!("{language:?}"),
        };
        let cells = [&*client.name, &language, &packages.join(", "), &client.covers].map(escaped).join(" | ");
        text.push_str(&format!("| {cells} |\n"));
    }
    text
}

/// How many libraries run their own tests, and which commands these need that redlatch lacks.
pub(crate) fn suites() -> String {
    let table: Vec<Value> = serde_json::from_str(&read("tests/clients/compare/table.json")).expect("rows");
    let run: Vec<&Value> = table.iter().filter(|row| row["skipped"].is_null()).collect();
    let mut text = format!(
        "\nThe own tests of {} libraries run, and pass as on Redis. Only tests of these need a command that redlatch \
         lacks:\n\n\
         | library | because redlatch lacks |\n|---|---|\n",
        run.len()
    );
    for row in run {
        let lacks: Vec<&str> =
            row["lacks"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !lacks.is_empty() {
            let (name, version) = (row["name"].as_str(), row["version"].as_str());
            let (name, version) = (name.expect("a name"), version.expect("a version"));
            text.push_str(&format!("| {name} {version} | {} |\n", lacks.join(", ")));
        }
    }
    text
}

/// The published name of `package`, and the version that the project's manifest pins.
fn pinned(client: &Client, package: &str) -> String {
    let folder = format!("tests/clients/{}", client.project);
    let version = MANIFESTS.iter().find_map(|(manifest, version)| {
        let is_there = root().join(&folder).join(manifest).exists();
        is_there.then(|| version(&read(format!("{folder}/{manifest}")), package))?
    });
    let version = version.unwrap_or_else(|| panic!("{}: {folder} pins no {package}", client.name));
    // npm's alias: `npm:redlock@4.2.0` under another name.
    if let Some((package, version)) = version.strip_prefix("npm:").and_then(|alias| alias.rsplit_once('@')) {
        return format!("{package} {version}");
    }
    let is_major = |word: &str| word.strip_prefix('v').is_some_and(|n| n.parse::<u32>().is_ok());
    let short = package.rsplit('/').find(|word| !is_major(word));
    // The scope of an npm package is part of its name; the host and the owner of a Go module are not.
    let shown = if package.starts_with('@') { package } else { short.unwrap_or(package) };
    format!("{shown} {}", version.trim_start_matches(['v', '=']))
}

type Version = fn(&str, &str) -> Option<String>;

/// The files that pin versions, each with its reader.
const MANIFESTS: &[(&str, Version)] = &[
    ("requirements.txt", required),
    ("requirements-apart.txt", required),
    ("package.json", |text, package| quoted_after(text, &format!("\"{package}\": \""))),
    ("go.mod", |text, package| {
        text.lines().find_map(|line| line.trim().strip_prefix(package)?.strip_prefix(' ').map(str::to_owned))
    }),
    ("pom.xml", |text, package| {
        let (_, rest) = text.split_once(&format!("<artifactId>{package}</artifactId>"))?;
        let (_, rest) = rest.split_once("<version>")?;
        rest.split_once("</version>").map(|(version, _)| version.to_owned())
    }),
    ("Cargo.toml", |text, package| {
        let line = text.lines().find(|line| line.starts_with(&format!("{package} = ")))?;
        quoted_after(line, "\"=")
    }),
];

fn required(text: &str, package: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(package)?.strip_prefix("==").map(str::to_owned))
}

fn quoted_after(text: &str, mark: &str) -> Option<String> {
    text.split_once(mark)?.1.split_once('"').map(|(version, _)| version.to_owned())
}

#[test]
fn every_client_says_what_it_does_and_runs_a_program_that_is_here() {
    let mut names = BTreeSet::new();
    for client in clients() {
        assert!(names.insert(&client.name), "{} is listed twice", client.name);
        assert!(!client.covers.is_empty(), "{}: docs/clients.md needs to know what it does", client.name);
        let folder = root().join("tests/clients").join(&client.project);
        for script in client.words().filter(|word| SCRIPTS.iter().any(|end| word.ends_with(end))) {
            assert!(folder.join(script).exists(), "{}: {script} is not there", client.name);
        }
    }
}

#[test]
fn every_program_beside_the_table_is_run_by_a_client() {
    let shared = [
        "checks.py", "checks.js", "checks.sh", "checks.rb", "checks.php", "chromium.py",
        "phpredis_by_hand.php", "predis_by_hand.php",
    ];
    let projects: BTreeSet<&str> = clients().iter().map(|client| &*client.project).collect();
    for project in projects {
        let folder = root().join("tests/clients").join(project);
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().expect("an ASCII name");
            if SCRIPTS.iter().any(|end| name.ends_with(end)) && !shared.contains(&name.as_str()) {
                let runs =
                    |client: &Client| client.project == project && client.words().any(|word| *word == name);
                assert!(clients().iter().any(runs), "tests/clients/{project}/{name} is run by no client");
            }
        }
    }
}

/// File extensions of programs that need no compiler.
const SCRIPTS: &[&str] = &[".py", ".js", ".sh", ".rb", ".php"];
