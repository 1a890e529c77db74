//! README.md against the program: what it lists is what the tables hold, and what it tells people to run is run.
//!
//! What belongs here: anything that README.md says and a program can check. Its Rust examples are compiled and run as
//! documentation tests of the library.
//!
//! `UPDATE_README=1 cargo test --test readme` writes the generated tables anew.

#[path = "readme/clients.rs"]
mod clients;
#[path = "readme/race.rs"]
mod race;
#[path = "clients/table.rs"]
#[allow(dead_code, reason = "some columns are for the run alone")]
mod table_of_clients;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use redlatch::commands::row::Group;
use redlatch::commands::{Command, table};
use redlatch::scripts::KNOWN;
use redlatch::state::settings::{Kind, Setting};
use redlatch::state::settings_table;

mod readme {
    use super::*;

    #[test]
    fn its_tables_are_those_of_the_program() {
        let old = read("README.md");
        let sections = [
            ("clients", clients::table()),
            ("commands", commands()),
            ("race", format!("\n{}", race::tables())),
            ("scripts", scripts()),
            ("settings", settings()),
        ];
        let new = sections.iter().fold(old.clone(), |text, (name, lines)| replaced(&text, name, lines));
        if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
            std::fs::write(root().join("README.md"), new).unwrap();
            return;
        }
        let stale = old.lines().zip(new.lines()).find(|(old, new)| old != new);
        if let Some((old, new)) = stale {
            panic!(
                "README.md says\n    {old}\nthe tables say\n    {new}\nUPDATE_README=1 cargo test --test readme"
            );
        }
        assert_eq!(
            old, new,
            "a generated table has another length: UPDATE_README=1 cargo test --test readme"
        );
    }

    #[test]
    fn what_is_drawn_of_the_race_is_what_it_has_found() {
        for (file, text) in [(race::PLOT, race::drawing()), (race::TABLE, race::tables())] {
            if std::env::var("UPDATE_README").is_ok_and(|value| value == "1") {
                std::fs::write(root().join(file), text).unwrap();
            } else {
                assert!(
                    read(file) == text,
                    "{file} is not of these results: UPDATE_README=1 cargo test --test readme"
                );
            }
        }
        assert!(read("README.md").contains(&format!("]({})", race::PLOT)), "README.md shows the picture");
    }

    #[test]
    fn every_file_that_it_links_to_is_there() {
        let text = read("README.md");
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let files: Vec<&str> = targets.filter(|to| !to.starts_with('#') && !to.contains("://")).collect();
        assert!(!files.is_empty(), "it links to the licenses at least");
        for file in files {
            assert!(root().join(file).exists(), "README.md links to {file}");
        }
    }

    #[test]
    fn every_place_in_itself_that_it_links_to_is_there() {
        let text = read("README.md");
        let anchors: BTreeSet<String> =
            text.lines().filter_map(|line| line.strip_prefix("##")).map(anchor).collect();
        for target in text.split("](#").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(anchors.contains(target), "README.md has no heading for #{target}");
        }
    }

    #[test]
    fn the_two_commands_that_it_gives_a_newcomer_are_run_by_ci() {
        let (text, ci) = (read("README.md"), read(".ci/run"));
        for command in ["cargo run --release", "cargo test"] {
            assert!(text.lines().any(|line| line.trim_end() == command), "README.md gives `{command}`");
            assert!(ci.lines().any(|line| line.contains(command)), ".ci/run runs `{command}`");
        }
    }
}

/// The commands by chapter, each with its arguments.
fn commands() -> String {
    const CHAPTERS: [(Group, &str); 12] = [
        (Group::String, "Strings"),
        (Group::Hash, "Hashes"),
        (Group::List, "Lists"),
        (Group::Set, "Sets"),
        (Group::SortedSet, "Sorted sets"),
        (Group::Stream, "Streams"),
        (Group::Generic, "Keys"),
        (Group::Transactions, "Transactions"),
        (Group::Scripting, "Scripts"),
        (Group::PubSub, "Channels"),
        (Group::Connection, "Connection"),
        (Group::Server, "Server"),
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

/// A command that stands alone, or its subcommands. HELP, which all of those have, is mentioned once, in prose.
fn lines(command: &Command) -> Vec<String> {
    let line = |command: &Command| {
        format!("| `{}` | {} |\n", escaped(&command.usage()), escaped(command.row.summary))
    };
    let subcommands = command.subcommands.iter().filter(|command| command.row.name != "HELP").map(line);
    // Of those that have subcommands, COMMAND alone is a command without one, too.
    let is_own = command.subcommands.is_empty() || command.row.name == "COMMAND";
    is_own.then(|| line(command)).into_iter().chain(subcommands).collect()
}

/// The clients whose scripts are known, and those scripts.
fn scripts() -> String {
    // By the client in lower case: how it is written, and its scripts.
    let mut clients: BTreeMap<String, (&str, BTreeSet<&str>)> = BTreeMap::new();
    for known in KNOWN {
        let (client, what) = known.client.rsplit_once(": ").expect("`client: script`");
        let (_, scripts) = clients.entry(client.to_lowercase()).or_insert((client, BTreeSet::new()));
        scripts.insert(what);
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
        Kind::Events => "letters of `KEg$lshzxetdmnA`".into(),
    }
}

/// `text` with what lies between the two marks of `name` replaced.
fn replaced(text: &str, name: &str, lines: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: generated -->\n"), format!("<!-- end of {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("README.md has no {begin}"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("README.md has no {end}"));
    format!("{before}{begin}{lines}\n{end}{after}")
}

/// What a heading is linked by, as GitHub derives it.
fn anchor(heading: &str) -> String {
    let heading = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// A bar ends a cell, even between backticks.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
