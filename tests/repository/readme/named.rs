//! Promises by name: each promise of a page has an id, and each id has tests. docs/promises.md is generated from them.
//!
//! Ids           stand in backticks, in the item of a list or in the row of a table, in one of [`PLACES`].
//! Tests         name ids in a comment line directly above `#[test]`: `// Shows P-one-holder.`, several with commas.
//!               If the last column of a table is `test`, its rows name the tests, and comments do not repeat them.
//! Canaries      are tests that break something on purpose and assert that this is noticed: `// Breaks P-one-holder.`.
//! Rule          each error of the check has a test on made-up input below.

use std::collections::BTreeMap;

use crate::repository::tidy::{is_test, sources};

use super::{anchor, pages, read};

const FILE: &str = "docs/promises.md";
const INTRODUCTION: &str = "# Promises by name\n
This page is for readers who check a promise, and for contributors. It lists each promise with its id, and the tests that
fail if the promise is broken. A canary is a test that breaks something on purpose, and asserts that such a test notices
it. The page is generated from the pages that promise, and from comments above the tests. ";

/// Where promises stand: the page, the heading, and the mode in which they hold.
struct Place(&'static str, &'static str, &'static str);

const PLACES: &[Place] = &[
    Place("docs/locks.md", "What is promised, and what not", "every mode, while the server process runs"),
    Place("docs/durability.md", "What is promised", "one server; the promise names its mode"),
    Place(
        "docs/durability.md",
        "What shows it",
        "one server with a `dir`, if the promise names no other mode",
    ),
    Place("docs/replication.md", "What is promised", "several nodes on etcd"),
    Place("docs/mcp.md", "What is promised, and what is not", "`redlatch mcp`, on a server in any mode"),
    Place("src/security.md", "Known attacks", "every mode"),
    Place("src/security.md", "The Lua interpreter", "every mode, for scripts that Lua runs"),
];

struct Promise {
    id: String,
    place: &'static Place,
    sentence: String,
    /// The tests that its row names. None: comments name them.
    tests: Option<Vec<String>>,
}

/// A comment above a test.
struct Comment {
    path: String,
    test: String,
    is_canary: bool,
    ids: Vec<String>,
}

/// What pages and sources say, and what is wrong with one of them.
#[derive(Default)]
struct Found {
    promises: Vec<Promise>,
    comments: Vec<Comment>,
    errors: Vec<String>,
}

#[test]
fn each_promise_has_an_id_and_tests_and_tests_name_no_other_ids() {
    let found = everything();
    let errors = [&found.errors[..], &found.contradictions(is_test)].concat();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    for page in pages().iter().filter(|page| *page != FILE) {
        let text = read(page);
        let is_read = |line: &str| PLACES.iter().any(|place| place.0 == page && line[3..] == *place.1);
        let mut headings = text.lines().filter(|line| line.starts_with("## What is promised"));
        assert_eq!(headings.find(|line| !is_read(line)), None, "{page}: not in `PLACES`");
        if PLACES.iter().any(|place| place.0 == page) {
            let paths = text.split('`').filter_map(|word| word.rsplit_once("::"));
            // The shorter names are those of modules.
            let mut names = paths.map(|(_, name)| name).filter(|name| name.matches('_').count() > 2);
            assert_eq!(names.find(|name| !is_test(name)), None, "{page}: no test is called so");
        }
    }
}

fn everything() -> Found {
    let mut found = Found::default();
    for place in PLACES {
        let text = read(place.0);
        let (_, rest) = text.split_once(&format!("\n## {}\n", place.1)).expect("the heading");
        found.read_section(place, rest.split("\n#").next().unwrap_or(rest));
    }
    sources().iter().for_each(|source| found.read_source(&source.path, &source.text));
    found.comments.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

impl Found {
    /// Reads the promises of a section, up to the line `Not promised:`.
    fn read_section(&mut self, place: &'static Place, text: &str) {
        for (block, header) in blocks(text.split("\nNot promised:").next().unwrap_or(text)) {
            let words = block.split('`').skip(1).step_by(2);
            let ids: Vec<&str> = words.filter(|word| word.starts_with("P-")).collect();
            let plain = block.to_lowercase().split('`').step_by(2).collect::<String>();
            let is_absolute = ["never", "always", "at most"].iter().any(|words| plain.contains(words));
            let is_promise = header.is_some() || (is_item(&block) && block.contains(" **"));
            let error = match ids[..] {
                [id] => {
                    let (sentence, tests) = match &header {
                        Some(header) => read_row(header, &block),
                        None => (block.split_once(' ').expect("an item").1.to_owned(), None),
                    };
                    let sentence = sentence.replace("**", "").replace(&format!("`{id}`: "), "");
                    let sentence = without_links(&sentence.replace(&format!(" `{id}`"), ""));
                    self.promises.push(Promise { id: id.to_owned(), place, sentence, tests });
                    continue;
                }
                [] if is_promise => "a promise without an id",
                [] if is_absolute => "never, always or at most without an id",
                [] => continue,
                _ => "a promise with several ids",
            };
            self.errors.push(format!("{}: {error}: {block}", place.0));
        }
    }

    /// Reads the comments of a source.
    fn read_source(&mut self, path: &str, text: &str) {
        let mut lines = text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            let Some(named) = ids_named(line) else { continue };
            let mut below = lines.clone().skip_while(|line| ids_named(line).is_some());
            let first = below.next().unwrap_or_default();
            let head = below.find(|line| !line.starts_with("#[")).and_then(|line| line.split_once("fn "));
            match head.and_then(|(_, head)| head.split_once('(')) {
                Some((test, _)) if first == "#[test]" || first.starts_with("#[tokio::test") => {
                    let ids = named.trim_end_matches('.').split(", ").map(str::to_owned).collect();
                    let is_canary = line.starts_with("// Breaks");
                    let (path, test) = (path.to_owned(), test.to_owned());
                    self.comments.push(Comment { path, test, is_canary, ids });
                }
                _ => self.errors.push(format!("{path}: no test directly below: {line}")),
            }
        }
    }

    /// The comments that name an id: those above canaries, or those above other tests.
    fn naming(&self, id: &str, is_canary: bool) -> impl Iterator<Item = &Comment> {
        let comments = self.comments.iter().filter(move |comment| comment.is_canary == is_canary);
        comments.filter(move |comment| comment.ids.iter().any(|named| named == id))
    }

    /// What promises and tests say against each other.
    fn contradictions(&self, is_test: fn(&str) -> bool) -> Vec<String> {
        let mut errors = Vec::new();
        let mut known: BTreeMap<&str, &str> = BTreeMap::new();
        for Promise { id, place, tests, .. } in &self.promises {
            if let Some(other) = known.insert(id, place.0) {
                errors.push(format!("{id}: used twice, in {other} and {}", place.0));
            }
            let absent = tests.iter().flatten().filter(|name| !is_test(name));
            errors.extend(absent.map(|name| format!("{id}: no test is called {name}")));
            match (tests, self.naming(id, false).next()) {
                (Some(_), Some(Comment { test, .. })) => {
                    errors.push(format!("{id}: its row names its tests, and {test} names it again"));
                }
                (tests, None) if tests.iter().flatten().count() == 0 => {
                    errors.push(format!("{id}: no test shows it"));
                }
                _ => {}
            }
        }
        for Comment { test, ids, .. } in &self.comments {
            let unknown = ids.iter().filter(|id| !known.contains_key(id.as_str()));
            errors.extend(unknown.map(|id| format!("{id}: {test} names it, and no page has it")));
        }
        errors
    }
}

fn is_item(line: &str) -> bool {
    let marker = line.split_once(' ').map_or("", |(marker, _)| marker);
    let number = marker.strip_suffix('.').and_then(|number| number.parse::<u8>().ok());
    ["-", "*"].contains(&marker) || number.is_some()
}

/// The paragraphs, items and rows of a section, each on one line; a row with the header of its table.
fn blocks(text: &str) -> Vec<(String, Option<String>)> {
    let (mut blocks, mut header, mut is_open) = (Vec::<(String, Option<String>)>::new(), None, false);
    for line in text.lines() {
        header = header.filter(|_| line.starts_with('|'));
        if line.starts_with("|---") {
            header = blocks.pop().map(|(header, _)| header);
        } else if is_open && !is_item(line) && !line.is_empty() {
            let (block, _) = blocks.last_mut().expect("the open block");
            *block = format!("{block} {}", line.trim());
        } else if !line.is_empty() {
            blocks.push((line.to_owned(), header.clone()));
        }
        is_open = !line.is_empty() && !line.starts_with('|');
    }
    blocks
}

/// The sentence of a row, and its tests if the table has a column for them.
fn read_row(header: &str, row: &str) -> (String, Option<Vec<String>>) {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    let (names, mut cells) = (cells(header), cells(row));
    let tests = names.last().filter(|name| *name == "test").and_then(|_| cells.pop()).map(|cell| {
        let names = cell.split('`').skip(1).step_by(2);
        names.map(|name| name.rsplit("::").next().unwrap_or(name).to_owned()).collect()
    });
    let parts = names.iter().zip(&cells).map(|(name, cell)| match name.as_str() {
        "promise" => cell.clone(),
        name => format!("{name}: {cell}"),
    });
    (parts.collect::<Vec<_>>().join("; "), tests)
}

/// A text with the words of each link in the place of the link, which leads from its own page only.
fn without_links(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.remove(plain.rfind('[').expect("the words of a link"));
        plain.push_str(part.split_once(')').expect("the end of a link").1);
    }
    plain
}

/// The ids of a comment line: what stands behind its verb.
fn ids_named(line: &str) -> Option<&str> {
    let named = line.strip_prefix("// Shows ").or_else(|| line.strip_prefix("// Breaks "));
    named.filter(|named| named.starts_with("P-"))
}

/// The text of [`FILE`].
pub(super) fn page() -> String {
    let found = everything();
    let mut text = format!("{INTRODUCTION}There are {} promises.\n", found.promises.len());
    for place in PLACES {
        let Place(page, heading, mode) = place;
        let link = page.strip_prefix("docs/").map_or(format!("../{page}"), str::to_owned);
        let name = page.rsplit(['/', '.']).nth(1).unwrap_or(page);
        let target = format!("{link}#{}", anchor(heading));
        text += &format!("\n## {name}: {heading}\n\nHolds in: {mode}. From [{page}]({target}).\n");
        for promise in found.promises.iter().filter(|promise| std::ptr::eq(promise.place, place)) {
            let Promise { id, sentence, tests, .. } = promise;
            let exclusion = ["except ", "unless "].iter().find_map(|word| {
                let rest = sentence.split_once(&format!(" {word}"))?.1.split(['.', ';', ':']).next()?;
                Some(format!("{word}{rest}"))
            });
            let named = |is_canary| {
                let naming = found.naming(id, is_canary);
                naming.map(|comment| format!("`{}` in `{}`", comment.test, comment.path)).collect::<Vec<_>>()
            };
            let of_row = tests.iter().flatten().map(|name| format!("`{name}`"));
            let lists = [Vec::from_iter(exclusion), of_row.chain(named(false)).collect(), named(true)];
            text += &format!("\n### {id}\n\n{sentence}\n\n");
            for (what, list) in ["Excluded", "Tests", "Canaries"].iter().zip(lists) {
                let line = format!("- {what}: {}\n", list.join(", "));
                text += if list.is_empty() { "" } else { &line };
            }
        }
    }
    text
}

/// The errors that the check has for a section of a page and for a source.
fn errors_of(section: &str, source: &str) -> Vec<String> {
    let mut found = Found::default();
    found.read_section(&PLACES[0], section);
    found.read_source("x.rs", source);
    [&found.errors[..], &found.contradictions(|name| name == "there")].concat()
}

const PAGE: &str = "- **One.** `P-a` It never ends.\n\nText with `always`.\n\n| promise | test |\n|---|---|\n\
                    | `P-b` at most 3 | `m::there` |\n\nNot promised:\n\n- **It** never sleeps.\n";
const SOURCE: &str =
    "// Shows P-a.\n#[test]\n#[ignore = \"\"]\nfn there() {}\n    // Breaks P-a, P-b.\n#[test]\nfn f() {}";

#[test]
fn a_page_and_a_source_that_agree_have_no_error() {
    assert_eq!(errors_of(PAGE, SOURCE), [""; 0]);
}

#[test]
fn an_id_without_a_test_is_an_error() {
    assert_eq!(errors_of(PAGE, ""), ["P-a: no test shows it"]);
    assert_eq!(errors_of(PAGE, &SOURCE.replace("Shows", "Breaks")), ["P-a: no test shows it"]);
    assert_eq!(errors_of(&PAGE.replace("`m::there`", "-"), SOURCE), ["P-b: no test shows it"]);
    assert_eq!(errors_of(&PAGE.replace("there", "gone"), SOURCE), ["P-b: no test is called gone"]);
}

#[test]
fn an_unknown_id_in_a_test_is_an_error() {
    let errors = errors_of(PAGE, &SOURCE.replace("Breaks P-a", "Breaks P-c"));
    assert_eq!(errors, ["P-c: f names it, and no page has it"]);
}

#[test]
fn an_id_that_is_used_twice_is_an_error() {
    let errors = errors_of(&PAGE.replace("P-b", "P-a"), "");
    assert_eq!(errors[1], "P-a: used twice, in docs/locks.md and docs/locks.md");
    let errors = errors_of(&PAGE.replace("`P-b`", "`P-b` `P-c`"), SOURCE);
    assert!(errors[0].starts_with("docs/locks.md: a promise with several ids: | `P-b` `P-c`"), "{errors:?}");
}

#[test]
fn a_promise_without_an_id_is_an_error() {
    for line in ["- **It** ends.", "It always\nends.", "- At most 2."] {
        let errors = errors_of(&format!("{line}\n\n{PAGE}"), SOURCE);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("without an id"), "{errors:?}");
    }
}

#[test]
fn a_comment_that_is_not_directly_above_a_test_or_repeats_a_row_is_an_error() {
    let errors = errors_of(PAGE, &format!("{SOURCE}\n// Shows P-a.\nfn g() {{}}"));
    assert_eq!(errors, ["x.rs: no test directly below: // Shows P-a."]);
    let errors = errors_of(PAGE, &SOURCE.replace("Shows P-a", "Shows P-a, P-b"));
    assert_eq!(errors, ["P-b: its row names its tests, and there names it again"]);
}
