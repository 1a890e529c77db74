//! The configuration file: lines of directives, as in redis.conf.
//!
//! Owns    [`Directive`], a name and its words, and the way from text to directives.
//! Rule    a line is empty, a comment that starts with `#`, or a name and words; words may be quoted as in redis-cli.
//! Source  Redis 7.0 `config.c`, loadServerConfigFromString.

use std::path::Path;

use redlatch_proto::resp::words;

use crate::common::Fault;

/// A name and what follows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) words: Vec<String>,
    /// Where it was written, for the sentence that refuses it.
    pub(super) origin: String,
}

/// How deep files may include each other.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Faults after which no further file is included.
const FAULTS_MAX: usize = 100;

/// What files and other texts say.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) directives: Vec<Directive>,
    /// The lines that cannot be read, the files that cannot, and files that include each other without end.
    pub(super) faults: Vec<Fault>,
}

/// Adds to `found` the directives of a file and of the files that it includes.
pub(super) fn load(path: &Path, found: &mut Found) {
    load_into(path, None, 0, found);
}

/// Adds to `found` the directives of a text that `origin` names.
pub(super) fn parse(text: &[u8], origin: &str, found: &mut Found) {
    parse_into(text, origin, 0, found);
}

/// `included` is the line that names the file, if one does.
fn load_into(path: &Path, included: Option<&str>, depth: usize, found: &mut Found) {
    match std::fs::read(path) {
        Ok(text) => parse_into(&text, &path.display().to_string(), depth, found),
        Err(error) => {
            let line = included.map(|line| format!(" ({line})")).unwrap_or_default();
            found
                .faults
                .push(format!("cannot read the configuration file '{}': {error}{line}", path.display()));
        }
    }
}

fn parse_into(text: &[u8], origin: &str, depth: usize, found: &mut Found) {
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let origin = format!("line {} of {origin}", index + 1);
        let directive = match directive(line, &origin) {
            Ok(Some(directive)) => directive,
            Ok(None) => continue,
            Err(fault) => {
                found.faults.push(fault);
                continue;
            }
        };
        if directive.name != "include" {
            found.directives.push(directive);
            continue;
        }
        for path in &directive.words {
            if depth < INCLUDE_DEPTH_MAX {
                load_into(Path::new(path), Some(&origin), depth + 1, found);
            } else {
                let fault = format!("more than {INCLUDE_DEPTH_MAX} files include each other ({origin})");
                found.faults.push(fault);
            }
            // Files that include each other twice would be read without end.
            if found.faults.len() >= FAULTS_MAX {
                return;
            }
        }
    }
}

/// The name and the words of one line; none when it has no word.
///
/// # Errors
/// When its quotes do not match.
pub(super) fn directive(line: &[u8], origin: &str) -> Result<Option<Directive>, Fault> {
    let words = words(line).map_err(|_| format!("unbalanced quotes ({origin})"))?;
    let mut words = words.iter().map(|word| String::from_utf8_lossy(word).into_owned());
    let Some(name) = words.next() else { return Ok(None) };
    let name = name.to_ascii_lowercase();
    Ok(Some(Directive { name, words: words.collect(), origin: origin.to_owned() }))
}

#[cfg(test)]
#[allow(dead_code, reason = "the targets in `tests/protocol/fuzz` want the rest")]
#[path = "../../../../tests/protocol/fuzz/driver.rs"]
mod driver;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &[u8], origin: &str) -> Result<Vec<Directive>, Fault> {
        let mut found = Found::default();
        super::parse(text, origin, &mut found);
        found.faults.into_iter().next().map_or(Ok(found.directives), Err)
    }

    /// Lines of words with and without quotes, and random bytes.
    fn texts() -> BoxedStrategy<Vec<u8>> {
        const SCRAPS: &[&str] = &[
            "port", "save", "user", " ", "\t", "\n", "\r\n", "#", "\"", "'", "\\", "\\x41", "\\xg", "\\n",
            "7000", "\0", "\u{e9}", "\"a b\"", "'a\\'b'",
        ];
        let scraps = vec(prop::sample::select(SCRAPS), 0..30).prop_map(|scraps| scraps.concat().into_bytes());
        prop_oneof![4 => scraps, 1 => vec(any::<u8>(), 0..60)].boxed()
    }

    /// Directives that are written with every byte of every word escaped are read as equal directives.
    fn are_read_back(text: &[u8]) {
        // Included files are not tested here, and some device files never end.
        if text.to_ascii_lowercase().windows(7).any(|word| word == b"include") {
            return;
        }
        let lines = text.split(|byte| *byte == b'\n').count();
        let Ok(found) = parse(text, "test") else { return };
        assert!(found.len() <= lines, "{} directives in {lines} lines", found.len());
        let escaped = |word: &str| word.bytes().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
        let quoted = |word: &str| format!("\"{}\"", escaped(word));
        let written: String = found
            .iter()
            .map(|directive| {
                let words: Vec<String> = directive.words.iter().map(|word| quoted(word)).collect();
                format!("{} {}\n", quoted(&directive.name), words.join(" "))
            })
            .collect();
        let again = parse(written.as_bytes(), "test").expect("escaped directives are well-formed");
        let without_origin = |found: Vec<Directive>| -> Vec<_> {
            found.into_iter().map(|directive| (directive.name, directive.words)).collect()
        };
        assert_eq!(without_origin(again), without_origin(found));
    }

    #[test]
    fn directives_are_read_back_as_they_are_written() {
        driver::fuzz("settings", 2_000, texts(), are_read_back);
    }

    fn names_and_words(text: &str) -> Vec<(String, Vec<String>)> {
        let found = parse(text.as_bytes(), "test").unwrap();
        found.into_iter().map(|directive| (directive.name, directive.words)).collect()
    }

    #[test]
    fn a_line_is_a_name_and_words() {
        let found = names_and_words("# comment\r\n\n  PORT 7000\r\nbind 127.0.0.1 ::1\nsave \"\"");
        let expected = [("port", vec!["7000"]), ("bind", vec!["127.0.0.1", "::1"]), ("save", vec![""])];
        let expected =
            expected.map(|(name, words)| (name.to_owned(), words.iter().map(|w| w.to_string()).collect()));
        assert_eq!(found, expected);
    }

    #[test]
    fn quotes_keep_spaces_and_a_comment_sign_together() {
        let found = names_and_words("requirepass \"a # b\\x41\"\nrequirepass 'it\\'s'");
        assert_eq!(found[0].1, ["a # bA"]);
        assert_eq!(found[1].1, ["it's"]);
    }

    #[test]
    fn an_open_quote_is_refused_with_its_line() {
        let refused = parse(b"port 1\nrequirepass \"open\n", "x.conf").unwrap_err();
        assert_eq!(refused, "unbalanced quotes (line 2 of x.conf)");
    }
}
