//! README.md and docs/ match the program: generated tables are current, and links lead to existing targets.
//!
//! What belongs here: statements of these pages that a program can check. The Rust examples of README.md are compiled
//! and run as documentation tests of the library.
//!
//! `UPDATE_README=1 cargo test --test suite readme` writes the generated tables anew, on every page.

mod clients;
mod errors;
#[cfg(feature = "cli")]
mod interface;
mod lock_commands;
#[cfg(feature = "http")]
mod metrics;
mod named;
mod options;
mod promises;
mod race;
mod terms;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use redlatch_core::commands::Command;
use redlatch_core::commands::row::Group;
use redlatch_core::scripts::KNOWN;
use redlatch_core::state::settings::{Kind, Setting};
use redlatch_core::state::settings_table;
use redlatch_proto::limits::LOCK_PREFIXES_MAX;
use redlatch_testing::commands::table;

use super::tidy::map;

/// A generated part of a page: the page, the name between its marks, and what makes its text.
type Section = (&'static str, &'static str, fn() -> String);

const SECTIONS: &[Section] = &[
    ("README.md", "badge", || badge(&field("repository"))),
    ("README.md", "figures", race::main_rows),
    ("docs/architecture.md", "crates", || drawn("src/lib.rs")),
    ("docs/architecture.md", "layers", || drawn("crates/core/src/lib.rs")),
    ("docs/benchmarks.md", "race", || format!("\n{}", race::tables())),
    ("docs/clients.md", "clients", clients::table),
    ("docs/clients.md", "suites", clients::suites),
    ("docs/commands.md", "commands", commands),
    #[cfg(feature = "cli")]
    ("docs/errors.md", "statuses", interface::statuses),
    #[cfg(feature = "http")]
    ("docs/metrics.md", "metrics", metrics::table),
    ("docs/http.md", "options", || options::table("true")),
    ("docs/replication.md", "clusters", race::clusters),
    ("docs/scripts.md", "scripts", scripts),
    ("docs/settings.md", "settings", settings),
    ("docs/shell.md", "options", || options::table("none")),
    #[cfg(feature = "cli")]
    ("docs/shell.md", "statuses", interface::statuses),
    ("SECURITY.md", "contact", contact),
];

/// A file that is generated as a whole, and what makes its text.
type Generated = (&'static str, fn() -> String);

const FILES: &[Generated] = &[
    #[cfg(feature = "cli")]
    (interface::FILE, interface::list),
    (".github/CODEOWNERS", owners),
    ("docs/promises.md", named::page),
    (lock_commands::PAGE, lock_commands::page),
    (options::OPENAPI, options::openapi),
    ("packages/clients/go/generated.go", terms::go),
    ("packages/clients/java/src/main/java/dev/redlatch/client/Generated.java", terms::java),
    ("packages/clients/node/lib/generated.d.ts", terms::node_types),
    ("packages/clients/node/lib/generated.js", terms::node),
    ("packages/clients/python/redlatch_client/_generated.py", terms::python),
    (race::PLOT, race::drawing),
    (race::TABLE, race::tables),
    (race::CLUSTER_TABLES, race::cluster_tables),
];

/// The limits for the README: short enough to read in one sitting.
const README_BYTES_MAX: usize = 15_000;
const README_WORDS_MAX: usize = 1_500;

mod readme {
    use super::*;

    #[test]
    fn generated_tables_are_those_of_the_program() {
        for (page, name, text) in SECTIONS {
            let old = read(page);
            keep(page, &old, replaced(page, &old, name, &text()));
        }
        for (file, text) in FILES {
            keep(file, &read(file), text());
        }
    }

    #[test]
    fn a_newcomer_reads_it_in_one_go_and_sees_the_picture() {
        let text = read("README.md");
        assert!(text.len() < README_BYTES_MAX, "{} bytes", text.len());
        let words = text.split_whitespace().count();
        assert!(words < README_WORDS_MAX, "{words} words");
        assert!(text.contains(&format!("]({})", race::PLOT)), "README.md shows the picture");
        let clients = crate::clients::table::clients().len();
        assert!(
            text.contains(&format!("[{clients} clients](docs/clients.md)")),
            "there are {clients} clients"
        );
    }

    #[test]
    fn the_badge_is_that_of_the_repository_if_there_is_one() {
        assert_eq!(badge(""), "");
        let checks = "https://example.org/redlatch/actions/workflows/ci.yml";
        let shown = format!("[![checks]({checks}/badge.svg)]({checks})\n");
        assert_eq!(badge("https://example.org/redlatch"), shown);
    }

    #[test]
    fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
        let mut links = 0;
        for page in pages() {
            let text = read(&page);
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for target in targets.filter(|target| !target.contains("://")) {
                let (file, heading) = target.split_once('#').unwrap_or((target, ""));
                let folder = Path::new(&page).parent().expect("a page is a file");
                let file = if file.is_empty() { page.clone().into() } else { folder.join(file) };
                assert!(root().join(&file).exists(), "{page} links to {target}");
                let is_there = heading.is_empty() || anchors(&read(&file)).contains(heading);
                assert!(is_there, "{page} links to {target}: there is no such heading");
                links += 1;
            }
        }
        assert!(links > 20, "the pages link to each other: {links}");
    }

    #[test]
    fn every_source_file_that_a_page_names_is_there() {
        let mut named = 0;
        for page in pages() {
            for word in read(&page).split('`').skip(1).step_by(2) {
                let is_path = ["src/", "crates/", "tests/", "benches/", "docs/"]
                    .iter()
                    .any(|start| word.starts_with(start));
                if is_path && !word.contains(['*', '<', ' ']) {
                    assert!(root().join(word).exists(), "{page} names {word}");
                    named += 1;
                }
            }
        }
        assert!(named > 10, "the pages name files: {named}");
    }

    #[test]
    fn every_page_of_docs_is_linked_to_from_the_readme() {
        let text = read("README.md");
        for page in pages().iter().filter(|page| page.starts_with("docs/")) {
            assert!(text.contains(&format!("]({page}")), "README.md does not link to {page}");
        }
    }

    #[test]
    fn the_settings_that_matter_are_settings_and_their_defaults_are_right() {
        let text = read("README.md");
        let (_, chapter) = text.split_once("\n## Settings that matter\n").expect("the chapter");
        let rows = chapter.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let rows: Vec<&str> = rows.take_while(|line| line.starts_with('|')).collect();
        assert!(!rows.is_empty());
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let name = cells[1].trim_matches('`');
            let setting = settings_table::ROWS.iter().find(|setting| setting.name == name);
            let setting = setting.unwrap_or_else(|| panic!("{name} is no setting"));
            if let Some(default) = cells[2].strip_prefix('`') {
                assert_eq!(default.trim_end_matches('`'), setting.default, "{name}");
            } else {
                assert!(["", "0"].contains(&setting.default), "{name}: {}", setting.default);
            }
        }
    }

    #[test]
    fn the_two_commands_that_it_gives_a_newcomer_are_run_by_ci() {
        let text = read("README.md");
        for (command, step) in [("cargo run --release", "release"), ("cargo test", "newcomer")] {
            assert!(text.lines().any(|line| line.trim_end() == command), "README.md gives `{command}`");
            let runs = read(format!(".ci/steps/{step}"));
            assert!(runs.lines().any(|line| line.contains(command)), "the step {step} runs `{command}`");
        }
    }
}

/// Every page that people read, from the root of the repository.
fn pages() -> Vec<String> {
    let docs = std::fs::read_dir(root().join("docs")).expect("the folder docs");
    let docs = docs.map(|entry| format!("docs/{}", entry.expect("a file of docs").file_name().display()));
    // Pictures are no pages; the list of pages is checked by `repository`.
    let docs = docs.filter(|file| file.ends_with(".md") && file != "docs/SUMMARY.md");
    let others = [
        "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "benches/README.md",
        "src/security.md", "tests/README.md", "tests/protocol/transcripts/README.md",
    ];
    others.map(str::to_owned).into_iter().chain(docs).collect()
}

/// A field of Cargo.toml that tells of the project. Everything that is published takes it from there.
fn field(name: &str) -> String {
    let manifest = read("Cargo.toml");
    let value =
        manifest.lines().find_map(|line| line.strip_prefix(&format!("{name} = "))).expect("the field");
    let text = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let is_plain = |text: &&str| !text.contains(['"', '\\']);
    text.filter(is_plain).unwrap_or_else(|| panic!("{name} is not a plain string: {value}")).to_owned()
}

/// Where vulnerabilities are reported.
fn contact() -> String {
    match field("security").as_str() {
        "" => "There is no public place to report to yet: `security` in `Cargo.toml` is empty.".to_owned(),
        place => format!("Vulnerabilities are reported to {place}."),
    }
}

/// The state of the checks, of a repository at this address.
fn badge(repository: &str) -> String {
    match repository {
        "" => String::new(),
        place => {
            let checks = format!("{place}/actions/workflows/ci.yml");
            format!("[![checks]({checks}/badge.svg)]({checks})\n")
        }
    }
}

/// Who is asked for a review, by the address of the maintainer.
fn owners() -> String {
    match field("maintainer").split(['<', '>']).nth(1) {
        None => "# `maintainer` in Cargo.toml is empty: nobody is asked yet.\n".to_owned(),
        Some(address) => format!("* {address}\n"),
    }
}

/// Compares a file with what it should be, or writes it where `UPDATE_README` says so.
fn keep(file: &str, old: &str, new: String) {
    const UPDATE: &str = "UPDATE_README=1 cargo test --test suite readme";
    if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
        std::fs::write(root().join(file), new).expect("the page can be written");
        return;
    }
    if let Some((old, new)) = old.lines().zip(new.lines()).find(|(old, new)| old != new) {
        panic!("{file} says\n    {old}\nthe program says\n    {new}\n{UPDATE}");
    }
    assert!(old == new, "{file}: what is generated has another length: {UPDATE}");
}

/// The map in the header of a crate.
fn drawn(root: &str) -> String {
    format!("```text\n{}```", map(root))
}

/// The commands by chapter, each with its arguments.
fn commands() -> String {
    const CHAPTERS: [(Group, &str); 16] = [
        (Group::String, "Strings"),
        (Group::Hash, "Hashes"),
        (Group::List, "Lists"),
        (Group::Set, "Sets"),
        (Group::SortedSet, "Sorted sets"),
        (Group::Stream, "Streams"),
        (Group::Lock, "Locks"),
        (Group::Generic, "Keys"),
        (Group::Transactions, "Transactions"),
        (Group::Scripting, "Scripts"),
        (Group::PubSub, "Channels"),
        (Group::Connection, "Connection"),
        (Group::Server, "Server"),
        (Group::Cluster, "Cluster"),
        (Group::Sentinel, "Sentinel"),
        (Group::Test, "Test backend"),
    ];
    let mut text = String::new();
    let mut listed = 0;
    for (group, title) in CHAPTERS {
        let of_group = table().commands().iter().filter(|command| command.row.group == group);
        let mut lines: Vec<String> = of_group.flat_map(lines).collect();
        listed += table().commands().iter().filter(|command| command.row.group == group).count();
        lines.sort();
        if !lines.is_empty() {
            write!(text, "\n### {title}\n\n| command | what it does |\n|---|---|\n{}", lines.concat())
                .expect("a String takes everything");
        }
    }
    assert_eq!(listed, table().commands().len(), "every command is in a chapter");
    text
}

/// A command without subcommands, or its subcommands. HELP, which every container has, is described once, in prose.
fn lines(command: &Command) -> Vec<String> {
    let line = |command: &Command| {
        format!("| `{}` | {} |\n", escaped(&command.usage()), escaped(command.row.summary))
    };
    let subcommands = command.subcommands.iter().filter(|command| command.row.name != "HELP").map(line);
    // COMMAND is the only container that is also a command.
    let is_own = command.subcommands.is_empty() || command.row.name == "COMMAND";
    is_own.then(|| line(command)).into_iter().chain(subcommands).collect()
}

/// The clients whose scripts are known, and those scripts.
fn scripts() -> String {
    // By the client in lower case: its usual spelling, and its scripts.
    let mut clients: BTreeMap<String, (&str, BTreeSet<String>)> = BTreeMap::new();
    for known in KNOWN {
        let (client, what) = known.client.rsplit_once(": ").expect("`client: script`");
        let (_, scripts) = clients.entry(client.to_lowercase()).or_insert((client, BTreeSet::new()));
        let way = if known.is_native { "" } else { " (interpreted)" };
        scripts.insert(format!("{what}{way}"));
    }
    let mut text = String::from("\n| client | its scripts |\n|---|---|\n");
    for (client, scripts) in clients.into_values() {
        let scripts = scripts.into_iter().collect::<Vec<_>>().join(", ");
        text.push_str(&format!("| {} | {} |\n", escaped(client), escaped(&scripts)));
    }
    text
}

/// The settings in the order of `--help`.
fn settings() -> String {
    let mut text = String::from(
        "\n| setting | default | may be | while running | what it is |\n|---|---|---|---|---|\n",
    );
    for row in settings_table::ROWS {
        let default = if row.default.is_empty() { String::new() } else { format!("`{}`", row.default) };
        let live = if row.live { "yes" } else { "no" };
        let bounds = escaped(&bounds(row));
        text.push_str(&format!(
            "| `{}` | {default} | {bounds} | {live} | {} |\n",
            row.name,
            escaped(row.help)
        ));
    }
    text
}

fn bounds(row: &Setting) -> String {
    match row.kind {
        Kind::Text => "text".into(),
        Kind::Port => "auto, or 0 to 65535".into(),
        Kind::Flag => "yes, no".into(),
        Kind::Integer(min, i64::MAX) => format!("{min} or more"),
        Kind::Integer(min, max) => format!("{min} to {max}"),
        Kind::Bytes(min, max) => format!("{min} to {max} bytes"),
        Kind::OneOf(words) => words.join(", "),
        Kind::OutputLimits => "class, hard, soft, seconds; repeated".into(),
        Kind::Host { .. } => "an address or a name".to_owned(),
        Kind::Version => "three numbers".into(),
        Kind::Prefixes => format!("{LOCK_PREFIXES_MAX} words"),
        Kind::Events => "letters of `KEg$lshzxetdmnA`".into(),
    }
}

/// The text of `page` with what lies between the two marks of `name` replaced.
fn replaced(page: &str, text: &str, name: &str, lines: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{page} has no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{page} has no {end}"));
    format!("{before}{begin}{lines}\n{end}{after}")
}

/// The anchors of a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    text.lines().filter(|line| line.starts_with('#')).map(anchor).collect()
}

/// The anchor of a heading, as GitHub derives it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A bar ends a cell, even between backticks.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn read(file: impl AsRef<Path>) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
