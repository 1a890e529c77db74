//! docs/errors.md: each text that it lists stands in the sources, and it has each exit status of the program.

use super::promises::sources;
use super::{read, root};

const PAGE: &str = "docs/errors.md";

#[test]
fn every_text_of_the_index_stands_in_the_sources() {
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let texts: Vec<String> = files.into_iter().map(|file| one_line(&read(file))).collect();
    let is_said = |text: &str| {
        // What stands between angle brackets is another one in each message.
        let parts: Vec<&str> = text.split(['<', '>']).step_by(2).filter(|part| part.len() > 3).collect();
        assert!(!parts.is_empty(), "{text} is too short to be found");
        texts.iter().any(|source| parts.iter().all(|part| source.contains(part)))
    };
    let page = read(PAGE);
    let listed: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(listed.len() > 100, "{} texts", listed.len());
    for text in listed {
        assert!(is_said(text), "{PAGE}: no source has {text}");
    }
    assert!(!is_said("ERR the lock is <number> metres long"));
}

#[test]
fn every_exit_status_is_in_the_index() {
    let (page, codes) = (read(PAGE), read("crates/cli/src/common/exit.rs"));
    let codes = codes.lines().filter_map(|line| line.split_once(": u8 = ")?.1.strip_suffix(';'));
    let missing: Vec<&str> = codes.filter(|code| !page.contains(&format!("\n| {code} |"))).collect();
    assert!(missing.is_empty(), "{PAGE} has no row for {missing:?}");
}

/// A source whose texts go on over the end of a line without a break.
fn one_line(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |whole, part| whole + part.trim_start())
}
