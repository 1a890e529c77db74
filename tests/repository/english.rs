//! The pages of docs/ become no harder to read: what a program can count of plain English, against a baseline.
//!
//! Counts    sentences of more than [`SENTENCE_WORDS_MAX`] words, cells of more than [`CELL_WORDS_MAX`], and [`WORDS`]
//!           that have a plainer one. Code is one word; examples and targets of links do not count.
//! Baseline  `english.txt` has the hits of each page. They may only become fewer:
//!           `UPDATE_README=1 cargo test --test suite -- english` then lowers them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const BASELINE: &str = "tests/repository/english.txt";
const SENTENCE_WORDS_MAX: usize = 30;
const CELL_WORDS_MAX: usize = 15;
/// Plainer: the name of the act, the number, "even if", "except", "next to", "again", "only", "cleanly".
const WORDS: &[&str] = &[
    "also if", "also where", "alone", "anew", "are told", "beside", "but for", "in good order", "is said",
    "is told", "of its own", "so long", "so many", "so much",
];
const KINDS: [&str; 3] = ["long sentences", "long cells", "words with a plainer one"];

#[test]
fn no_page_gains_a_long_sentence_a_long_cell_or_a_word_with_a_plainer_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let old = fs::read_to_string(root.join(BASELINE)).expect("the baseline");
    let old: BTreeMap<&str, &str> = old.lines().filter_map(|line| line.split_once(' ')).collect();
    let (mut new, mut errors) = (BTreeMap::new(), Vec::new());
    for page in fs::read_dir(root.join("docs")).expect("docs/").flatten() {
        let name = page.file_name().into_string().expect("ASCII");
        // A generated page repeats sentences of others.
        if !name.ends_with(".md") || name == "promises.md" {
            continue;
        }
        let limits = old.get(&*name).unwrap_or(&"0 0 0").split(' ').map(|n| n.parse().expect("a number"));
        let hits = hits(&fs::read_to_string(page.path()).expect("a page"));
        for ((hits, kind), limit) in hits.iter().zip(KINDS).zip(limits) {
            let (count, list) = (hits.len(), hits.join("\n  "));
            if count > limit {
                errors.push(format!("docs/{name}: {count} {kind}, {limit} before. One is new:\n  {list}"));
            }
            *new.entry(name.clone()).or_insert_with(String::new) += &format!(" {}", count.min(limit));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    if std::env::var_os("UPDATE_README").is_some() {
        let text: String = new.iter().map(|(name, counts)| format!("{name}{counts}\n")).collect();
        fs::write(root.join(BASELINE), text).expect("the baseline");
    }
}

fn hits(page: &str) -> [Vec<String>; 3] {
    let mut hits = <[Vec<String>; 3]>::default();
    for (is_cell, text) in blocks(page) {
        let plain = text.to_lowercase().split('`').step_by(2).collect::<Vec<_>>().join(" code ");
        let plain = plain.split(|c: char| !c.is_alphanumeric()).filter(|one| !one.is_empty());
        let plain = format!(" {} ", plain.collect::<Vec<_>>().join(" "));
        let found = WORDS.iter().filter(|word| plain.contains(&format!(" {word} ")));
        hits[2].extend(found.map(|word| format!("{word}: {text}")));
        let most = [SENTENCE_WORDS_MAX, CELL_WORDS_MAX][usize::from(is_cell)];
        let parts = if is_cell { vec![text] } else { sentences(&text) };
        hits[usize::from(is_cell)].extend(parts.into_iter().filter(|part| words(part) > most));
    }
    hits
}

/// The paragraphs, items of lists and cells of a page, each in one line and without the targets of links. True: a cell.
fn blocks(page: &str) -> Vec<(bool, String)> {
    let (mut blocks, mut is_code) = (vec![(false, String::new())], false);
    for line in page.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        if let Some(row) = line.strip_prefix("| ").filter(|_| !is_code) {
            blocks.extend(row.replace("\\|", "/").split(" |").map(|cell| (true, without_targets(cell))));
        }
        let is_item = line.starts_with(['-', '*', '1']);
        let is_text = !is_code && !is_fence && !line.starts_with(['#', '<', '!', '|']) && !line.is_empty();
        if !is_text || is_item {
            blocks.push((false, String::new()));
        }
        if is_text {
            let (_, last) = blocks.last_mut().expect("the first block");
            *last = without_targets(&format!("{last} {line}"));
        }
    }
    blocks
}

fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |shown, part| shown + "]" + part.split_once(')').map_or("", |(_, rest)| rest))
}

fn words(text: &str) -> usize {
    let code = text.split('`').skip(1).step_by(2).count();
    let plain = text.split('`').step_by(2).flat_map(str::split_whitespace);
    code + plain.filter(|word| word.contains(char::is_alphanumeric)).count()
}

fn sentences(text: &str) -> Vec<String> {
    let (mut parts, mut ticks) = (vec![String::new()], 0);
    for word in text.split_inclusive(' ') {
        parts.last_mut().expect("the first").push_str(word);
        ticks += word.matches('`').count();
        let is_end = word.trim_end_matches([' ', ')', '*', '"']).ends_with(['.', '?', '!']);
        if is_end && ticks.is_multiple_of(2) {
            parts.push(String::new());
        }
    }
    parts
}

#[test]
fn hits_are_found_in_text_and_not_in_code() {
    let long = "word ".repeat(31);
    let text = format!(
        "{long}\nends. A [`{long}`](so%20long.md#anew).\n\n| a | {long} |\n\n```sh\n{long} anew\n```\n- anew"
    );
    assert_eq!(hits(&text).map(|hits| hits.len()), [1, 1, 1]);
}
