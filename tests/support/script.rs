//! A transcript file, read: its header and its steps. `tests/protocol/transcripts/README.md` describes the format.
//!
//! Knows    where a file is wrong before any server sees it: every word and pattern is read once on loading.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::pattern::Pattern;
use super::words::{quoted, words};

#[derive(Debug)]
pub(crate) struct Transcript {
    pub(crate) path: PathBuf,
    pub(crate) lines: Vec<String>,
    /// The real server that has it all: `redis`, `valkey` or `none`; `tests`: none has, and the engine has TEST commands.
    pub(crate) needs: String,
    /// Whether the runner plays it twice, over RESP2 and over RESP3, with a HELLO before each client's first request.
    /// Otherwise it is played once, and its own HELLO lines select the protocol.
    pub(crate) over_both: bool,
    /// Whether the servers are in cluster mode.
    pub(crate) has_slots: bool,
    /// The replicas of each master of the cluster of three masters that it is played to; `None`: it is played to one server.
    pub(crate) nodes: Option<u16>,
    pub(crate) steps: Vec<Step>,
}

/// A line, or the lines of one pattern.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) line: usize,
    pub(crate) line_count: usize,
    /// All conditions must hold, or the step is skipped.
    pub(crate) marks: Vec<String>,
    pub(crate) action: Action,
}

#[derive(Debug)]
pub(crate) enum Action {
    Request { client: String, text: String },
    Raw { client: String, text: String },
    Turn { client: String },
    Speaks { client: String, protocol: u8 },
    Reply { text: String },
    Bytes { text: String },
    Closed,
    Silent,
    Advance(Duration),
    Let { name: String, plus: i64, unit: Unit },
}

/// Of the server's wall clock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Unit {
    Millis,
    Seconds,
}

impl Transcript {
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(path, &text)
    }

    /// Reads the text of a file.
    pub(crate) fn parse(path: &Path, text: &str) -> Result<Self, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut transcript = Self {
            path: path.to_owned(),
            lines,
            needs: String::new(),
            over_both: true,
            has_slots: false,
            nodes: None,
            steps: Vec::new(),
        };
        let mut relaxations = Vec::new();
        let mut at = transcript.header(&mut relaxations)?;
        while at < transcript.lines.len() {
            let step = transcript.step(at, &relaxations);
            match step.map_err(|why| format!("{}:{}: {why}", path.display(), at + 1))? {
                Some(step) => {
                    at += step.line_count;
                    transcript.steps.push(step);
                }
                None => at += 1,
            }
        }
        Ok(transcript)
    }

    /// The lines up to the first empty one; where the body begins.
    fn header(&mut self, relaxations: &mut Vec<String>) -> Result<usize, String> {
        let end = self.lines.iter().position(String::is_empty).unwrap_or(self.lines.len());
        let mut is_titled = false;
        for (at, line) in self.lines[..end].iter().enumerate() {
            let (key, value) = line.split_once(": ").unwrap_or((line, ""));
            match (key, value) {
                ("covers", _) => is_titled = true,
                ("needs", "redis" | "valkey" | "none" | "tests") => value.clone_into(&mut self.needs),
                ("protocol", "own") => self.over_both = false,
                ("mode", "cluster") => self.has_slots = true,
                ("mode", "nodes") => self.nodes = Some(0),
                ("mode", "replicas") => self.nodes = Some(1),
                ("relaxes", _) if value.contains(": ") => {
                    relaxations.push(value.split(": ").next().unwrap_or_default().to_owned());
                }
                _ if line.starts_with('#') => {}
                _ => return Err(format!("{}:{}: no such header", self.path.display(), at + 1)),
            }
        }
        if is_titled && !self.needs.is_empty() {
            return Ok(end);
        }
        Err(format!("{}:1: the header must say `covers:` and `needs:`", self.path.display()))
    }

    fn step(&self, line: usize, relaxations: &[String]) -> Result<Option<Step>, String> {
        let is_reply = self.lines[line].starts_with(' ');
        let mut text = self.lines[line].trim();
        if text.is_empty() || text.starts_with('#') && !text.starts_with("#t") && !text.starts_with("#f") {
            return Ok(None);
        }
        let mut marks = Vec::new();
        while let Some(rest) = text.strip_prefix('@') {
            let (mark, rest) = rest.split_once(' ').ok_or("a mark alone on its line")?;
            check_mark(mark, relaxations)?;
            marks.push(mark.split('(').next().unwrap_or_default().to_owned());
            text = rest.trim_start();
        }
        let mut line_count = 1;
        let action = if is_reply {
            match text.split_once(' ').unwrap_or((text, "")) {
                ("closed", "") => Action::Closed,
                ("silent", "") => Action::Silent,
                ("raw", bytes) => {
                    strings(&filled(bytes))?;
                    Action::Bytes { text: bytes.to_owned() }
                }
                _ => {
                    let mut text = text.to_owned();
                    while text != "?" && Pattern::parse(&filled(&text))?.is_none() {
                        let next = self.lines.get(line + line_count).ok_or("a bracket is still open")?;
                        text = format!("{text}\n{next}");
                        line_count += 1;
                    }
                    Action::Reply { text }
                }
            }
        } else {
            command(text)?
        };
        Ok(Some(Step { line, line_count, marks, action }))
    }
}

/// The strings of a raw line, one after the other.
pub(crate) fn strings(text: &str) -> Result<Vec<u8>, String> {
    let mut rest = text.trim();
    let mut bytes = Vec::new();
    while !rest.is_empty() {
        let (string, after) = quoted(rest)?;
        bytes.extend_from_slice(&string);
        rest = after.trim_start();
    }
    Ok(bytes)
}

/// `name> words`, `name>> strings`, `name<`, `name speaks 3`, `advance 5 ms`, `let x = unix_ms + 5`.
fn command(text: &str) -> Result<Action, String> {
    let parts: Vec<&str> = text.split(' ').collect();
    match parts[..] {
        ["advance", count, "ms"] => {
            let count = count.parse().map_err(|_| format!("{count:?} is no number of milliseconds"))?;
            return Ok(Action::Advance(Duration::from_millis(count)));
        }
        ["let", name, "=", unit @ ("unix_ms" | "unix"), sign @ ("+" | "-"), count] => {
            let count: i64 = count.parse().map_err(|_| format!("{count:?} is no number"))?;
            let unit = if unit == "unix" { Unit::Seconds } else { Unit::Millis };
            let plus = if sign == "+" { count } else { -count };
            return Ok(Action::Let { name: name.to_owned(), plus, unit });
        }
        [client, "speaks", protocol @ ("2" | "3")] => {
            let protocol = if protocol == "2" { 2 } else { 3 };
            return Ok(Action::Speaks { client: client.to_owned(), protocol });
        }
        _ => {}
    }
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (client, rest) = text.split_at(end);
    let client = client.to_owned();
    if client.is_empty() {
        return Err(format!("what is {text:?}"));
    }
    if rest == "<" {
        return Ok(Action::Turn { client });
    }
    if let Some(rest) = rest.strip_prefix(">> ") {
        strings(&filled(rest))?;
        return Ok(Action::Raw { client, text: rest.to_owned() });
    }
    let rest = rest.strip_prefix("> ").ok_or_else(|| format!("what is {text:?}"))?;
    words(&filled(rest))?;
    Ok(Action::Request { client, text: rest.to_owned() })
}

fn check_mark(mark: &str, relaxations: &[String]) -> Result<(), String> {
    let (mark, reason) = mark.split_once('(').unwrap_or((mark, ""));
    match mark {
        _ if reason.is_empty() && MARKS.contains(&mark) => Ok(()),
        "redlatch" if relaxations.iter().any(|known| reason.strip_suffix(')') == Some(known)) => Ok(()),
        "redlatch" => Err("@redlatch must name a relaxation of the header: @redlatch(name)".to_owned()),
        _ => Err(format!("no mark is called {mark:?}")),
    }
}

/// The text with a digit in place of every `${name}`, for checks before the names have values.
fn filled(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        out.push('1');
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    out + rest
}

/// The marks that need no reason.
const MARKS: [&str; 9] =
    ["resp2", "resp3", "redis", "valkey", "real", "manual", "running", "x86_64", "aarch64"];

#[cfg(test)]
mod loading {
    use super::*;

    #[test]
    fn a_file_that_says_nothing_sensible_is_refused_with_its_line() {
        let header = "covers: x\nneeds: redis\n\n";
        for (text, line) in [
            ("needs: redis\n\na> PING", 1),
            ("covers: x\nneeds: mongo\n\na> PING", 2),
            (&format!("{header}a PING"), 4),
            (&format!("{header}a> PING\n   +PONG\n   what"), 6),
            (&format!("{header}a> \"PING"), 4),
            (&format!("{header}a> PING\n   [:1,"), 5),
            (&format!("{header}a> PING\n   @redlatch +PONG"), 5),
            (&format!("{header}a> PING\n   @mongo +PONG"), 5),
            (&format!("{header}advance 5 min"), 4),
        ] {
            let error = Transcript::parse(Path::new("t"), text).expect_err(text);
            assert!(error.starts_with(&format!("t:{line}: ")), "{text:?} gave {error:?}");
        }
    }
}
