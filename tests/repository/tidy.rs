//! The sources keep to their rules: layers, banned words, `unsafe`, headers, sizes.
//!
//! Belongs here  laws on the text of a file that no lint and no rustfmt option checks. Between crates the compiler keeps the
//!               layers, and `clippy.toml` of a crate bans what it must not call.
//! Rule          every law is also shown a violation of itself, so that a checker which sees nothing fails.

mod code;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use code::{blank, code_lines, without_literals, words};

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
const REAL_CLOCKS: &[&str] = &[
    "tests/support/nodes.rs", "tests/support/real.rs", "tests/clients/", "tests/cluster/",
    "tests/tools/explore/libraries/", "tests/locks/mutex/", "tests/support/waits.rs",
];
/// Modules that sum and scale what clients have stored, for replies that anybody may ask for. One number must not end them
/// all, so clippy refuses arithmetic there that could overflow. A folder's `mod.rs` stands for the folder.
const STATISTICS: &[&str] = &[
    "core/src/commands/admin/mod.rs", "core/src/keyspace/counts.rs", "core/src/keyspace/view/survey.rs",
    "core/src/locks/counts.rs", "core/src/locks/lint.rs", "core/src/state/acl/log.rs",
    "core/src/state/latency.rs", "core/src/state/log_limiter.rs", "core/src/state/login_delays.rs",
    "core/src/state/metrics.rs", "core/src/state/polling.rs", "core/src/state/slowlog.rs",
    "server/src/http/api.rs", "server/src/http/contention.rs", "server/src/http/metrics.rs",
    "server/src/http/sampler.rs", "platform/src/figures.rs",
];
/// The folders of the sources whose modules have layers. The header of the `lib.rs` there has the map.
const LAYERED: &[&str] = &["crates/core/src/", "crates/cli/src/"];

/// One source file, as the laws see it.
pub(crate) struct Source {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text without comments and literals.
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank(text) }
    }

    /// The layers of its crate, and the one that the file belongs to.
    fn layer(&self) -> Option<(&'static Layers, usize)> {
        let in_folder = |folder: &&str| Some((self.path.strip_prefix(*folder)?, layers(folder)));
        let (inner, layers) = LAYERED.iter().find_map(in_folder)?;
        Some((layers, layer_of(layers, inner.split(['/', '.']).next()?)?))
    }

    /// The lines of code that say `word` on its own.
    fn lines_saying(&self, word: &str) -> Vec<usize> {
        let lines = self.code.lines().enumerate().filter(|(_, line)| says(line, word));
        lines.map(|(index, _)| index + 1).collect()
    }

    /// A file that no crate ships: a test, a bench or an example.
    fn is_test(&self) -> bool {
        let is_apart = |folder: &str| ["tests", "benches", "examples"].contains(&folder);
        self.path.split('/').any(is_apart) || self.path.ends_with("tests.rs")
    }

    fn waits_for_real_clocks(&self) -> bool {
        REAL_CLOCKS.iter().any(|prefix| self.path.starts_with(prefix))
    }
}

/// The map in the header of a crate's root.
pub(crate) fn map(root: &str) -> String {
    let source = sources().iter().find(|source| source.path == root).expect("the root of a crate");
    let (_, rest) = source.text.split_once("//! ```text\n").expect("a map in its header");
    let (map, _) = rest.split_once("//! ```\n").expect("the map ends");
    map.replace("//! ", "")
}

/// The modules of each layer of a crate, bottom first.
type Layers = Vec<Vec<String>>;

/// Those of one of [`LAYERED`], from its map.
fn layers(folder: &str) -> &'static Layers {
    static LAYERS: OnceLock<BTreeMap<&str, Layers>> = OnceLock::new();
    let of_each = || LAYERED.iter().map(|folder| (*folder, drawn(&map(&format!("{folder}lib.rs")))));
    &LAYERS.get_or_init(|| of_each().collect())[folder]
}

/// The rows of a map, `2  state/   what it is`, of which the last one is the bottom.
fn drawn(map: &str) -> Layers {
    let mut layers = Layers::new();
    for row in map.lines().rev() {
        let (layer, rest) = row.split_once("  ").expect("a layer and its modules");
        let layer: usize = layer.parse().expect("the number of a layer");
        let names = rest.split("  ").next().unwrap_or(rest).split_whitespace();
        layers.resize_with(layer + 1, Vec::new);
        layers[layer].extend(names.map(|name| name.trim_end_matches('/').to_owned()));
    }
    layers
}

fn layer_of(layers: &Layers, module: &str) -> Option<usize> {
    layers.iter().position(|layer| layer.iter().any(|name| name == module))
}

fn imports_upward(source: &Source) -> Vec<String> {
    let Some((layers, layer)) = source.layer() else { return Vec::new() };
    let mut found = Vec::new();
    for (index, line) in source.code.lines().enumerate() {
        for (_, named) in line.match_indices("crate::").map(|(at, word)| line[at..].split_at(word.len())) {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let module = named.split(|c| !is_name(c)).next().unwrap_or_default();
            if layer_of(layers, module).is_none_or(|there| there > layer) {
                found.push(format!("{}: layer {layer} names `crate::{module}`", index + 1));
            }
        }
    }
    found
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

/// A sleep in a test is a defect: time is injected. A loop that asks again is in `support::waits`.
fn sleepy(source: &Source) -> Vec<String> {
    let is_test = source.path.starts_with("tests/") || source.path.starts_with("benches/");
    if !is_test || source.waits_for_real_clocks() {
        return Vec::new();
    }
    // A method of that name counts too: where it comes from cannot be seen here.
    let sleeps = source.lines_saying("sleep").into_iter().map(|line| format!("{line}: a test sleeps"));
    // A scheduler that chooses interleavings has its own.
    let yields = if source.path.starts_with("tests/concurrency/") {
        Vec::new()
    } else {
        source.lines_saying("yield_now")
    };
    sleeps.chain(yields.into_iter().map(|line| format!("{line}: a test asks again by itself"))).collect()
}

/// A module of statistics without the lint that keeps its sums from overflowing, or with `sum`, which the lint does not see.
fn may_overflow(source: &Source) -> Vec<String> {
    if !source.path.strip_prefix("crates/").is_some_and(|path| STATISTICS.contains(&path)) {
        return Vec::new();
    }
    let lines = source
        .code
        .lines()
        .enumerate()
        .filter(|(_, line)| line.contains(".sum()") || line.contains(".sum::"));
    let mut found: Vec<_> = lines.map(|(index, _)| format!("{}: say `number::total`", index + 1)).collect();
    if !source.code.lines().any(|line| line == "#![deny(clippy::arithmetic_side_effects)]") {
        found.push("1: arithmetic that could overflow is not denied".to_owned());
    }
    found
}

/// A source that asks which system it runs on. The crate for that is `platform`; tests may know where they run.
fn asks_for_the_system(source: &Source) -> Vec<String> {
    if !source.path.starts_with("crates/") || source.path.starts_with("crates/platform/") {
        return Vec::new();
    }
    let signs = ["cfg(unix", "cfg(windows", "target_os", "std::os::", "\"/proc/"];
    let shipped = source.text.lines().zip(source.code.lines()).enumerate();
    let shipped = shipped.take_while(|(_, (_, code))| *code != "#[cfg(test)]");
    let asking = shipped.filter(|(_, (text, _))| signs.iter().any(|sign| text.contains(sign)));
    asking.map(|(index, (text, _))| format!("{}: {}", index + 1, text.trim())).collect()
}

/// Values passed between layers have a named type.
fn untyped(source: &Source) -> Vec<String> {
    let lines =
        source.code.lines().enumerate().filter(|(_, line)| line.contains("Arc<dyn Any") && says(line, "Any"));
    lines.map(|(index, _)| format!("{}: `Arc<dyn Any>`", index + 1)).collect()
}

/// The manifests and all crate roots forbid `unsafe`; no attribute may try to lift that.
fn lifts_the_ban_on_unsafe_code(source: &Source) -> Vec<String> {
    let lines = source.code.lines().enumerate();
    let is_attribute = |line: &str| line.trim_start().starts_with('#') && line.contains("unsafe_code");
    let lifted = |line: &str| is_attribute(line) && !line.contains("forbid(unsafe_code)");
    let mut found: Vec<_> = lines
        .filter(|(_, line)| lifted(line))
        .map(|(index, line)| format!("{}: {}", index + 1, line.trim()))
        .collect();
    let is_root = ["src/lib.rs", "src/main.rs"].iter().any(|root| source.path.ends_with(root))
        && !source.path.starts_with("tests/");
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

pub(crate) fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for folder in ["src", "crates", "examples", "tests", "benches"] {
            walk(&root.join(folder), &["rs"], &mut files);
        }
        let source = |file: PathBuf| {
            let inner = file.strip_prefix(root).expect("a file below the root");
            let text = fs::read_to_string(&file).expect("a source file is text");
            Source::new(&inner.to_string_lossy().replace('\\', "/"), &text)
        };
        files.into_iter().map(source).collect()
    })
}

/// The lines of code below a folder, in any language.
fn lines_below(folder: &str) -> usize {
    const LANGUAGES: &[&str] = &["cjs", "go", "java", "js", "mjs", "php", "py", "rb", "rs", "sh", "ts"];
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), LANGUAGES, &mut files);
    let texts = files.iter().map(|file| fs::read_to_string(file).expect("a source file is text"));
    let is_code = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !["//", "/*", "* ", "*/", "# "].iter().any(|mark| line.starts_with(mark))
    };
    texts.map(|text| text.lines().filter(is_code).count()).sum()
}

fn walk(folder: &Path, extensions: &[&str], files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("a folder of the repository");
    for entry in entries {
        let path = entry.expect("an entry of a folder").path();
        // Files that clients' own tools build or fetch are not ours.
        let is_foreign = path.ends_with("target") || path.ends_with("node_modules");
        let is_source = |extension: &OsStr| extensions.iter().any(|known| extension == *known);
        if path.is_dir() && !is_foreign {
            walk(&path, extensions, files);
        } else if path.extension().is_some_and(is_source) {
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
        "crates/core/src/state/clients.rs",
        &[
            "use crate::keyspace::View;",
            "fn f(x: crate::commands::Row) {}",
            "let url = \"redis://\"; crate::engine::start()",
            "use crate::*;",
            "use crate::attic::Thing;",
        ],
        &[
            "use super::channels::Channels;",
            "/* use crate::engine; /* and */ crate::commands */",
            "let text = \"crate::engine\"; let raw = r#\"\"crate::commands\"#; let quote = '\"'; let c = 'x';",
            "use crate::types::Object;",
            "use crate::state::session;",
            "// see crate::engine",
            "pub(crate) fn f() {}",
        ],
    );
    assert_law(
        imports_upward,
        "crates/cli/src/locks/run.rs",
        &["use crate::flags::read;", "use crate::mcp::SUBCOMMANDS;", "use crate::Fault;"],
        &["use crate::common::Fault;", "use crate::locks::texts;"],
    );
    uphold(imports_upward);
}

#[test]
fn the_map_of_a_crate_shows_every_module_once() {
    for folder in LAYERED {
        let root = sources().iter().find(|source| source.path == format!("{folder}lib.rs")).expect("a crate");
        println!("{folder}\n\n{}", map(&root.path));
        let declared =
            root.code.lines().filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "));
        // A feature may have two modules of one name.
        let declared: BTreeSet<&str> = declared.map(|name| name.trim_end_matches(';')).collect();
        let mut drawn: Vec<&str> = layers(folder).iter().flatten().map(String::as_str).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, declared.into_iter().collect::<Vec<_>>(), "{folder}");
        assert!(layers(folder).iter().all(|layer| !layer.is_empty()), "{folder}: a layer without modules");
    }
}

/// Prints the code lines of each crate, and of what is beside the crates.
#[test]
fn code_lines_are_neither_blank_nor_comment_nor_test() {
    let text = "//! A file.\n\nuse x; // y\n/* no\ncode */\nconst X: &str = \"\n// code\n\";\n\
                #[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn f() {\n    }\n}\n\
                impl X {\n    #[cfg(test)]\n    fn g(\n    ) {\n    }\n    fn h() {}\n}\n";
    assert_eq!(code_lines(text), 7);
    assert_eq!(code_lines("#[cfg(test)]\nmod tests;\nmod x;\n"), 1);

    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let inner = source.path.strip_prefix("crates/").unwrap_or(&source.path);
        *counts.entry(inner.split('/').next().unwrap_or(inner)).or_default() += code_lines(&source.text);
    }
    counts.iter().for_each(|(name, lines)| println!("{lines:>7}  {name}"));
    println!("{:>7}  in all crates", counts.values().sum::<usize>());
    for folder in ["tests", "benches", "packages"] {
        println!("{:>7}  in {folder}, tests included", lines_below(folder));
    }
    assert!(counts.len() > 5, "{counts:?}");
}

/// Whether a test has this name.
pub(crate) fn is_test(name: &str) -> bool {
    let head = format!("fn {name}(");
    sources().iter().filter_map(|source| source.text.split_once(&head)).any(|(before, _)| {
        let above = before.rsplit_once('\n').map_or("", |(above, _)| above);
        let mut attributes =
            above.lines().rev().take_while(|line| line.trim().starts_with('#')).map(str::trim);
        attributes.any(|line| line == "#[test]" || line.starts_with("#[tokio::test"))
    })
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
    let calls =
        ["std::thread::sleep(x)", "tokio::time::sleep(x).await", "use std::thread::sleep;", "yield_now()"];
    assert_law(
        sleepy,
        "tests/engine.rs",
        &calls,
        &["advance(x)", "// no sleep", "\"DEBUG sleep\"", "sleeps(1)"],
    );
    assert_law(sleepy, "crates/server/src/ticker.rs", &[], &calls);
    uphold(sleepy);
}

#[test]
fn statistics_cannot_overflow() {
    let denied = "#![deny(clippy::arithmetic_side_effects)]";
    let sums = format!("{denied}\nlet x: u64 = numbers.iter().sum();");
    let path = format!("crates/{}", STATISTICS[0]);
    assert_law(may_overflow, &path, &["mod x;", "// x\n#![deny(clippy::all)]", &sums], &[denied]);
    assert_law(may_overflow, "crates/core/src/types/list.rs", &[], &["mod x;"]);
    uphold(may_overflow);
    let is_there = |path: &str| sources().iter().any(|source| source.path == format!("crates/{path}"));
    let missing = STATISTICS.iter().filter(|path| !is_there(path));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new(), "renamed?");
}

#[test]
fn one_crate_knows_the_system() {
    let asking = [
        "#[cfg(unix)]", "use std::os::fd::AsFd;", "#[cfg(not(target_os = \"linux\"))]",
        "read(\"/proc/stat\")",
    ];
    assert_law(
        asks_for_the_system,
        "crates/server/src/x.rs",
        &asking,
        &["os()", "#[cfg(test)]\nuse std::os::fd::AsFd;"],
    );
    assert_law(asks_for_the_system, "crates/platform/src/x.rs", &[], &asking);
    uphold(asks_for_the_system);
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
