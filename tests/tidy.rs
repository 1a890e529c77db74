//! The sources keep to their rules: layers, banned calls and words, `unsafe`, headers, sizes.
//!
//! Belongs here  laws on the text of a file that no lint and no rustfmt option checks.
//! Rule          every law is also shown a violation of itself, so that a checker which sees nothing fails.

mod code;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use code::{Named, blank, paths, without_literals, words};

/// Lines of a file at most; longer files are split by subject.
const LINES_MAX: usize = 900;
/// Columns of code at most. A comment or a string that was wrapped by hand may end a little later.
const CODE_COLUMNS_MAX: usize = 110;
const COLUMNS_MAX: usize = 126;
/// Words that this field does not use, each with the usual one. They are looked for in names and comments.
const BANNED_WORDS: &[(&str, &str)] = &[
    ("aftermath", "effects"),
    ("aside", "offload"),
    ("bell", "waker"),
    ("berth", "slot"),
    ("browse", "keyspace scan"),
    ("campaign", "runner"),
    ("crew", "workers"),
    ("desk", "request processor"),
    ("dice", "rng"),
    ("fate", "outcome"),
    ("fates", "outcomes"),
    ("foresee", "prefetch"),
    ("house", "server context"),
    ("houses", "server contexts"),
    ("judge", "checker"),
    ("judged", "checked"),
    ("judges", "checks"),
    ("mail", "messages"),
    ("mailbox", "outbox"),
    ("muster", "spawn"),
    ("occupancy", "long call"),
    ("roster", "ready queue"),
    ("seat", "connection permit"),
    ("seats", "connection permits"),
    ("whoever", "the connection, the client, the caller"),
    ("workshop", "installer"),
];
/// Turns of phrase that hide the subject of a sentence.
const BANNED_PHRASES: &[&str] = &["the same, but", "what is to be"];
/// Files whose tests must wait for real time: that of a real server or of a client library.
const REAL_CLOCKS: &[&str] = &["tests/support/real.rs", "tests/clients/", "tests/cluster/", "tests/mutex/"];
/// Modules that sum and scale what clients have stored, for replies that anybody may ask for. One number must not end them
/// all, so clippy refuses arithmetic there that could overflow. A folder's `mod.rs` stands for the folder.
const STATISTICS: &[&str] = &[
    "src/commands/admin/mod.rs", "src/keyspace/counts.rs", "src/locks/counts.rs",
    "src/keyspace/view/survey.rs", "src/server/http/api.rs", "src/server/http/contention.rs",
    "src/server/http/metrics.rs", "src/server/http/sampler.rs", "src/server/probe.rs",
    "src/state/acl/log.rs", "src/state/latency.rs", "src/locks/lint.rs", "src/state/log_limiter.rs",
    "src/state/metrics.rs", "src/state/polling.rs", "src/state/slowlog.rs",
];
/// The modules of each layer, bottom first.
const LAYERS: &[&[&str]] = &[
    &["clock", "limits", "error", "number", "sync"],
    &["resp", "svg", "wheel", "types"],
    &["state"],
    &["keyspace", "journal", "locks", "replication"],
    &["scripts", "testing"],
    &["commands"],
    &["engine"],
    &["server", "client", "load", "cli"],
];
/// Above all layers: the names that `lib.rs` gives out.
const PUBLIC: usize = 8;
/// The layer of the shell: the only one with sockets, files, threads and the system clock.
const SHELL: usize = 7;
/// Modules that may import a neighbour on the same layer.
const NEIGHBOURS: &[(&str, &str)] = &[
    ("keyspace", "journal"),
    // The header of an entry is the record of a lock, and a lock is found by its key: they know each other.
    ("keyspace", "locks"),
    ("locks", "keyspace"),
    ("replication", "journal"),
    ("testing", "scripts"),
    ("cli", "client"),
    ("cli", "load"),
    ("cli", "server"),
    ("client", "server"),
    ("load", "client"),
    // A node of a cluster connects to etcd as clients do to a server: Trust and the handshake of TLS.
    ("server", "client"),
];
/// Modules that may use the crate by its public names, as a program that embeds it does.
const EMBEDDERS: &[&str] = &["cli"];
/// Paths that layers 0 to 6 never name, from their first segment on.
const IMPURE_PATHS: &[&[&str]] = &[
    &["socket2"],
    &["tokio"],
    &["getrandom"],
    &["rand"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "task"],
    &["std", "thread"],
    &["memmap2"],
];
/// Words that layers 0 to 6 never say. The standard library's maps iterate in an order of their own every time.
const IMPURE_WORDS: &[&str] =
    &["async", "await", "HashMap", "HashSet", "Instant", "SystemTime", "thread_rng", "thread_local"];

/// One source file, as the laws see it.
struct Source {
    /// From the root of the repository, with `/`.
    path: String,
    text: String,
    /// The text without comments and literals.
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank(text) }
    }

    /// The module of layers 0 to 7 that the file belongs to.
    fn module(&self) -> Option<&str> {
        let inner = self.path.strip_prefix("src/")?;
        Some(inner.split_once('/').map_or(inner, |(module, _)| module).trim_end_matches(".rs"))
    }

    fn layer(&self) -> Option<usize> {
        layer_of(self.module()?)
    }

    /// The module that the file is, from the crate's root.
    fn module_path(&self) -> Vec<&str> {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path).trim_end_matches(".rs");
        let segments = inner.split('/').filter(|segment| !matches!(*segment, "mod" | "lib" | "main"));
        segments.collect()
    }

    /// The paths that the code names. Tests inside the file count: they must be pure as well.
    fn named(&self) -> Vec<Named> {
        paths(&self.code, &self.module_path())
    }

    /// The lines of code that say `word` on its own.
    fn lines_saying(&self, word: &str) -> Vec<usize> {
        let lines = self.code.lines().enumerate().filter(|(_, line)| says(line, word));
        lines.map(|(index, _)| index + 1).collect()
    }

    fn waits_for_real_clocks(&self) -> bool {
        REAL_CLOCKS.iter().any(|prefix| self.path.starts_with(prefix))
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn imports_upward(source: &Source) -> Vec<String> {
    let Some((module, layer)) = source.module().zip(source.layer()) else { return Vec::new() };
    let is_allowed = |other: &str| {
        let there = layer_of(other).unwrap_or(PUBLIC);
        there < layer
            || other == module
            || (there == PUBLIC && EMBEDDERS.contains(&module))
            || (layer == 0 && there == 0)
            || NEIGHBOURS.contains(&(module, other))
    };
    let named = source.named().into_iter().filter(|named| named.is_ours);
    let outward = named.filter(|named| named.segments.first().is_none_or(|other| !is_allowed(other)));
    outward
        .map(|named| format!("{}: layer {layer} names `{}`", named.line, named.segments.join("::")))
        .collect()
}

fn outside_the_map(source: &Source) -> Vec<String> {
    match source.module() {
        Some("lib" | "main") | None => Vec::new(),
        Some(module) if layer_of(module).is_some() => Vec::new(),
        Some(module) => vec![format!("1: `{module}` is on no layer of the map")],
    }
}

fn impure(source: &Source) -> Vec<String> {
    if source.layer().is_none_or(|layer| layer >= SHELL) {
        return Vec::new();
    }
    let is_impure = |named: &Named| {
        let starts =
            |path: &&[&str]| named.segments.iter().map(String::as_str).zip(*path).all(|(a, b)| a == *b);
        IMPURE_PATHS.iter().any(|path| named.segments.len() >= path.len() && starts(path))
    };
    let mut found: Vec<_> = source
        .named()
        .into_iter()
        .filter(is_impure)
        .map(|named| (named.line, named.segments.join("::")))
        .collect();
    for word in IMPURE_WORDS {
        found.extend(source.lines_saying(word).into_iter().map(|line| (line, (*word).to_owned())));
    }
    found.into_iter().map(|(line, what)| format!("{line}: a pure layer says `{what}`")).collect()
}

/// Whether the line contains `word` as a whole word.
fn says(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word)
        .any(|(at, _)| !line[..at].ends_with(is_name) && !line[at + word.len()..].starts_with(is_name))
}

fn headless(source: &Source) -> Vec<String> {
    match source.text.lines().next() {
        Some(first) if first.starts_with("//! ") && first.len() > 12 => Vec::new(),
        _ => vec!["1: a module opens with its contract, `//! ...`".to_owned()],
    }
}

fn too_long(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let is_wide = |(line, code): &(&str, &str)| {
        // A line that rustfmt cannot wrap ends in a comment or a literal.
        let is_wrapped_by_hand = line.trim_end() != code.trim_end();
        code.trim_end().len() > CODE_COLUMNS_MAX && !is_wrapped_by_hand || line.chars().count() > COLUMNS_MAX
    };
    let both = source.text.lines().zip(source.code.lines()).enumerate();
    let wide = both.filter(|(_, both)| is_wide(both));
    let mut found: Vec<_> =
        wide.map(|(index, (line, _))| format!("{}: {} columns", index + 1, line.chars().count())).collect();
    if lines > LINES_MAX {
        found.push(format!("{lines}: over {LINES_MAX} lines"));
    }
    found
}

fn not_ascii(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate().filter(|(_, line)| !line.is_ascii());
    lines.map(|(index, _)| format!("{}: not ASCII", index + 1)).collect()
}

fn unfinished(source: &Source) -> Vec<String> {
    let words = ["todo", "unimplemented", "dbg"].map(|word| format!("{word}!"));
    let said = |line: &str| words.iter().any(|word| line.contains(word.as_str()));
    let lines = source.code.lines().enumerate().filter(|(_, line)| said(line));
    lines.map(|(index, line)| format!("{}: {}", index + 1, line.trim())).collect()
}

/// A sleep in a test is a defect: time is injected.
fn sleepy(source: &Source) -> Vec<String> {
    let is_test = source.path.starts_with("tests/") || source.path.starts_with("benches/");
    if !is_test || source.waits_for_real_clocks() {
        return Vec::new();
    }
    // A method of that name counts too: where it comes from cannot be seen here.
    source.lines_saying("sleep").into_iter().map(|line| format!("{line}: a test sleeps")).collect()
}

/// A module of statistics without the lints that keep its sums from overflowing.
fn may_overflow(source: &Source) -> Vec<String> {
    let words = ["deny", "arithmetic_side_effects", "disallowed_methods"];
    let denies = |line: &str| line.starts_with("#![") && words.iter().all(|word| line.contains(word));
    match STATISTICS.contains(&source.path.as_str()) && !source.code.lines().any(denies) {
        true => vec!["1: arithmetic that could overflow is not denied".to_owned()],
        false => Vec::new(),
    }
}

/// Values passed between layers have a named type.
fn untyped(source: &Source) -> Vec<String> {
    let lines =
        source.code.lines().enumerate().filter(|(_, line)| line.contains("Arc<dyn Any") && says(line, "Any"));
    lines.map(|(index, _)| format!("{}: `Arc<dyn Any>`", index + 1)).collect()
}

/// The manifest and both crate roots forbid `unsafe`; no attribute may try to lift that.
fn lifts_the_ban_on_unsafe_code(source: &Source) -> Vec<String> {
    let lines = source.code.lines().enumerate();
    let is_attribute = |line: &str| line.trim_start().starts_with('#') && line.contains("unsafe_code");
    let lifted = |line: &str| is_attribute(line) && !line.contains("forbid(unsafe_code)");
    let mut found: Vec<_> = lines
        .filter(|(_, line)| lifted(line))
        .map(|(index, line)| format!("{}: {}", index + 1, line.trim()))
        .collect();
    let is_root = matches!(source.path.as_str(), "src/lib.rs" | "src/main.rs");
    if is_root && !source.code.contains("#![forbid(unsafe_code)]") {
        found.push("1: a crate root says `#![forbid(unsafe_code)]`".to_owned());
    }
    found
}

fn metaphors(source: &Source) -> Vec<String> {
    let text = without_literals(&source.text);
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (_, instead) in words(line).filter_map(|word| banned(&word)) {
            found.push(format!("{}: say `{instead}`: {}", index + 1, line.trim()));
        }
        let lower = line.to_lowercase();
        let phrases = BANNED_PHRASES.iter().filter(|phrase| lower.contains(**phrase));
        found.extend(phrases.map(|phrase| format!("{}: `{phrase}`", index + 1)));
    }
    found
}

fn banned(word: &str) -> Option<&'static (&'static str, &'static str)> {
    BANNED_WORDS.iter().find(|(banned, _)| *banned == word)
}

/// The files of a folder that name each other in a circle; `mod.rs`, which joins them, does not count.
fn circles(folder: &str, sources: &[Source]) -> BTreeSet<String> {
    let file = |source: &Source| {
        let name = source.path.strip_prefix(folder)?.strip_prefix('/')?.strip_suffix(".rs")?;
        (!name.contains('/') && name != "mod").then(|| name.to_owned())
    };
    let names: BTreeSet<String> = sources.iter().filter_map(file).collect();
    let depth = folder.matches('/').count();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let Some(from) = file(source) else { continue };
        let inner = folder.strip_prefix("src/").unwrap_or(folder);
        let named = source.named().into_iter().filter(|named| named.is_ours);
        let inside = named.filter(|named| named.segments.join("/").starts_with(&format!("{inner}/")));
        let to = inside.filter_map(|named| named.segments.get(depth).cloned());
        edges.insert(from.clone(), to.filter(|to| *to != from && names.contains(to)).collect());
    }
    // A file without edges is in no circle; the files left in the end are.
    while let Some(end) = edges.iter().find(|(_, to)| to.is_empty()).map(|(from, _)| from.clone()) {
        edges.remove(&end);
        edges.values_mut().for_each(|to| to.retain(|name| *name != end));
    }
    edges.into_keys().collect()
}

type Law = fn(&Source) -> Vec<String>;

fn uphold(law: Law) {
    let mut broken = Vec::new();
    let sources = sources();
    assert!(sources.len() > 50, "the walk over the repository has found {} files", sources.len());
    for source in sources {
        broken.extend(law(source).into_iter().map(|what| format!("{}:{what}", source.path)));
    }
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in ["src", "tests", "benches"] {
            walk(&root.join(folder), &mut files);
        }
        let source = |file: PathBuf| {
            let inner = file.strip_prefix(root).expect("a file below the root");
            let text = fs::read_to_string(&file).expect("a source file is text");
            Source::new(&inner.to_string_lossy().replace('\\', "/"), &text)
        };
        files.into_iter().map(source).collect()
    })
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder of the repository");
    for entry in entries {
        let path = entry.expect("an entry of a folder").path();
        // Files that clients' own tools build or fetch are not ours.
        let is_foreign = path.ends_with("target") || path.ends_with("node_modules");
        if path.is_dir() && !is_foreign {
            walk(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// A law that finds nothing in the text it must refuse, or something in the text it must let pass, is no law.
fn assert_law(law: Law, path: &str, refused: &[&str], passed: &[&str]) {
    for text in refused {
        assert!(!law(&Source::new(path, text)).is_empty(), "let pass: {text}");
    }
    for text in passed {
        assert_eq!(law(&Source::new(path, text)), Vec::<String>::new(), "refused: {text}");
    }
}

#[test]
fn layers_import_only_downward() {
    assert_law(
        imports_upward,
        "src/state/clients.rs",
        &[
            "use crate::keyspace::View;",
            "use crate::{clock, engine::Engine};",
            "fn f(x: crate::commands::Row) {}",
            "use crate::{\n    clock::Now,\n    keyspace::{ShardSet, View},\n};",
            "use super::super::engine::Engine;",
            "mod tests { mod inner { use super::super::super::super::server::Server; } }",
            "let url = \"redis://\"; crate::server::start()",
            "use crate::Server;",
            "use crate::*;",
        ],
        &[
            "use super::channels::Channels;",
            "mod tests { use super::*; use super::super::session::Session; }",
            "use self::inner::Thing;",
            "/* use crate::engine; /* and */ crate::server */",
            "let text = \"crate::engine\"; let raw = r#\"\"crate::server\"#; let quote = '\"'; let c = 'x';",
            "fn f<'a>(x: &'a str) -> &'a str { x }",
            "use crate::clock::Now;",
            "use crate::state::session;",
            "// see crate::engine",
            "pub(crate) fn f() {}",
        ],
    );
    assert_law(
        imports_upward,
        "src/wheel/mod.rs",
        &["use crate::resp::Reply;"],
        &["use crate::clock::Deadline;"],
    );
    assert_law(imports_upward, "src/journal/mod.rs", &["use crate::keyspace::View;"], &[]);
    uphold(imports_upward);
}

#[test]
fn the_map_in_the_library_shows_every_module_on_its_layer() {
    let sources = sources();
    let map = sources.iter().find(|source| source.path == "src/lib.rs").expect("the library");
    let mut drawn = Vec::new();
    for line in map.text.lines() {
        // `//! 1  resp/ wheel/ types/   what they are`
        let Some((layer, rest)) = line.trim_start_matches("//! ").split_once("  ") else { continue };
        let Ok(layer) = layer.parse::<usize>() else { continue };
        let names = rest.split("   ").next().unwrap_or(rest).split_whitespace();
        drawn.extend(names.map(|name| (name.trim_end_matches(".rs").trim_end_matches('/'), layer)));
    }
    for source in sources {
        let Some(module) = source.module() else { continue };
        let layer = layer_of(module).unwrap_or(PUBLIC);
        assert!(drawn.contains(&(module, layer)), "{module}: on layer {layer}, and the map says {drawn:?}");
    }
    assert!(LAYERS.len() == PUBLIC && drawn.len() > LAYERS.len());
}

#[test]
fn every_test_that_the_chapter_on_security_names_is_there() {
    let chapter = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/security.md"))
        .expect("the chapter on security");
    let (_, known) = chapter.split_once("## Known attacks").expect("the table of known attacks");
    let (known, _) = known.split_once("\n## Reporting").expect("the chapter on reporting");
    let rows = known.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| test |"));
    let sources = sources();
    let is_test = |name: &str| {
        let head = format!("fn {name}(");
        sources.iter().filter_map(|source| source.text.split_once(&head)).any(|(before, _)| {
            let attributes = before
                .rsplit_once('\n')
                .map_or("", |(above, _)| above)
                .lines()
                .rev()
                .take_while(|line| line.trim().starts_with('#'));
            let mut attributes = attributes.map(str::trim);
            attributes.any(|line| line == "#[test]" || line.starts_with("#[tokio::test"))
        })
    };
    for row in rows {
        let tests = row.trim_end_matches(" |").rsplit_once("| ").expect("a column of tests").1;
        let names: Vec<&str> = tests.split(", ").map(|name| name.trim_matches('`')).collect();
        assert!(!names.is_empty() && !names[0].is_empty(), "no test: {row}");
        for name in names {
            assert!(is_test(name), "no test is called {name}");
        }
    }
    assert!(!is_test("no_test_is_called_so"));
}

#[test]
fn every_module_is_on_a_layer() {
    assert_law(outside_the_map, "src/attic/mod.rs", &["//! Things."], &[]);
    uphold(outside_the_map);
}

#[test]
fn layers_below_the_shell_are_pure() {
    assert_law(
        impure,
        "src/engine/mod.rs",
        &[
            "let now = Instant::now();",
            "use std::fs::File;",
            "tokio::spawn(x)",
            "let map: HashMap<u8, u8> = Default::default();",
            "std::thread::spawn",
            "use std::{\n    collections::BTreeMap,\n    net::{IpAddr, TcpStream},\n};",
            "async fn f() {}",
        ],
        &[
            "let instant = 1; // Instant", "fn instantly() {}", "struct InstantOf;", "DashMap::new()",
            "use std::{fmt, mem};", "flag(\"async\")", "let net = self.net;",
        ],
    );
    assert_law(impure, "src/server/clock.rs", &[], &["Instant::now()"]);
    uphold(impure);
}

#[test]
fn a_module_opens_with_its_contract() {
    assert_law(headless, "src/lib.rs", &["", "use std::fmt;", "//!\n", "//! Stub"], &["//! The keyspace.\n"]);
    uphold(headless);
}

#[test]
fn files_and_lines_are_short() {
    let (long, wide) = ("\n".repeat(LINES_MAX + 1), "x".repeat(CODE_COLUMNS_MAX + 1));
    let comment = format!("// {}", "x".repeat(COLUMNS_MAX - 2));
    let passed = &comment[..COLUMNS_MAX];
    assert_law(too_long, "src/lib.rs", &[&long, &wide, &comment], &[&long[1..], &wide[1..], passed]);
    uphold(too_long);
}

#[test]
fn sources_are_ascii() {
    assert_law(not_ascii, "src/lib.rs", &["// \u{2014}"], &["// -"]);
    uphold(not_ascii);
}

#[test]
fn nothing_is_left_unfinished() {
    let [todo, dbg] = ["todo", "dbg"].map(|word| format!("    {word}!()"));
    assert_law(unfinished, "src/lib.rs", &[&todo, &dbg], &["// todo", "let todo = 1;"]);
    uphold(unfinished);
}

#[test]
fn no_test_sleeps() {
    let calls = ["std::thread::sleep(x)", "tokio::time::sleep(x).await", "use std::thread::sleep;"];
    assert_law(
        sleepy,
        "tests/engine.rs",
        &calls,
        &["advance(x)", "// no sleep", "\"DEBUG sleep\"", "sleeps(1)"],
    );
    assert_law(sleepy, "src/server/ticker.rs", &[], &calls);
    uphold(sleepy);
}

#[test]
fn statistics_cannot_overflow() {
    let denied = "#![deny(clippy::arithmetic_side_effects, clippy::disallowed_methods)]";
    assert_law(may_overflow, STATISTICS[0], &["mod x;", "// x\n#![deny(clippy::all)]"], &[denied]);
    assert_law(may_overflow, "src/types/list.rs", &[], &["mod x;"]);
    uphold(may_overflow);
    let missing = STATISTICS.iter().filter(|path| sources().iter().all(|source| source.path != **path));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "renamed?");
}

#[test]
fn nothing_is_passed_as_any() {
    assert_law(untyped, "tests/x.rs", &["x: Arc<dyn Any + Send>"], &["// dyn Any", "dyn Anything"]);
    uphold(untyped);
}

#[test]
fn unsafe_code_is_forbidden() {
    let lifted = ["#![allow(unsafe_code)]", "#[expect(unsafe_code)]", "#[allow(missing_docs, unsafe_code)]"];
    assert_law(
        lifts_the_ban_on_unsafe_code,
        "tests/x.rs",
        &lifted,
        &["// allow(unsafe_code)", "#![forbid(unsafe_code)]"],
    );
    assert_law(lifts_the_ban_on_unsafe_code, "src/lib.rs", &["mod clock;"], &["#![forbid(unsafe_code)]"]);
    uphold(lifts_the_ban_on_unsafe_code);
}

#[test]
fn words_are_those_of_the_field() {
    assert_law(
        metaphors,
        "tests/x.rs",
        &["/// Whoever asks.", "fn seat_of() {}", "struct DeskOf;", "// The same, but later."],
        &["\"the house\"", "fn household() {}", "// a seated client"],
    );
    uphold(metaphors);
}

#[test]
fn files_of_a_folder_do_not_import_each_other_in_a_circle() {
    let planted = |path, text| Source::new(path, text);
    let circle = [
        planted("src/commands/list/push.rs", "use super::pop::take;"),
        planted("src/commands/list/pop.rs", "use crate::commands::list::push::put;"),
        planted("src/commands/list/range.rs", "use super::pop::take;"),
        planted("src/commands/list/trim.rs", "use super::Row;"),
    ];
    let found = circles("src/commands/list", &circle);
    assert!(found.contains("push") && found.contains("pop") && !found.contains("trim"), "{found:?}");
    let sources = sources();
    let folder = |source: &Source| source.path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let folders: BTreeSet<String> = sources.iter().filter_map(folder).collect();
    for folder in folders.iter().filter(|folder| folder.starts_with("src/commands")) {
        assert_eq!(circles(folder, sources), BTreeSet::new(), "{folder}");
    }
}
