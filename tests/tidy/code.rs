//! Rust source as far as the laws need it: code without comments and literals, and the paths that it names.
//!
//! Owns    a scanner, not a parser: it knows `::`, the braces of a `use`, and the modules that stand inside a file.

/// A path as the code names it, its `use` braces opened up and `super`, `self`, `crate` resolved.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Named {
    /// The line on which it begins, from 1.
    pub(crate) line: usize,
    /// Whether it lies in this crate, and then counts from its root.
    pub(crate) is_ours: bool,
    pub(crate) segments: Vec<String>,
}

/// The text with blanks in place of comments, strings and characters; lines stay where they are.
pub(crate) fn blank(text: &str) -> String {
    blanked(text, |_| true)
}

/// The text with blanks in place of strings and characters alone.
pub(crate) fn without_literals(text: &str) -> String {
    blanked(text, |opaque| !opaque.starts_with(b"//") && !opaque.starts_with(b"/*"))
}

/// The words of names and sentences, in lower case: `ReadyQueue` and `ready_queue` are two words each.
pub(crate) fn words(line: &str) -> impl Iterator<Item = String> {
    let mut found = vec![String::new()];
    let mut was_lower = false;
    for letter in line.chars() {
        if !letter.is_ascii_alphanumeric() || (letter.is_ascii_uppercase() && was_lower) {
            found.push(String::new());
        }
        if letter.is_ascii_alphanumeric() {
            found.last_mut().expect("a word was begun").push(letter.to_ascii_lowercase());
        }
        was_lower = letter.is_ascii_lowercase();
    }
    found.into_iter().filter(|word| !word.is_empty())
}

fn blanked(text: &str, is_blank: impl Fn(&[u8]) -> bool) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = at + opaque(&bytes[at..], at > 0 && is_word(bytes[at - 1]));
        if end == at {
            out.push(char::from(bytes[at]));
            at += 1;
        } else {
            let blank = is_blank(&bytes[at..end]);
            let shown = |byte: &u8| if *byte == b'\n' || !blank { char::from(*byte) } else { ' ' };
            out.extend(bytes[at..end].iter().map(shown));
            at = end;
        }
    }
    out
}

/// How many bytes at the front are a comment, a string or a character; 0 for none.
fn opaque(rest: &[u8], is_inside_word: bool) -> usize {
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment(rest),
        [b'"', ..] => quoted(rest, b'"'),
        [b'\'', b'\\', ..] | [b'\'', _, b'\'', ..] => quoted(rest, b'\''),
        [b'r', b'"' | b'#', ..] | [b'b' | b'c', b'r', b'"' | b'#', ..] if !is_inside_word => raw_string(rest),
        _ => 0,
    }
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> usize {
    let word = rest.iter().position(|byte| matches!(byte, b'"' | b'#')).unwrap_or(0);
    let hashes = rest[word..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(word + hashes) != Some(&b'"') {
        return 0;
    }
    let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = word + hashes + 1;
    let end = rest[body..].windows(close.len()).position(|window| window == close);
    end.map_or(rest.len(), |end| body + end + close.len())
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (at, depth) = (at + 2, depth + 1),
            [b'*', b'/', ..] if depth == 1 => return at + 2,
            [b'*', b'/', ..] => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    rest.len()
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Every path that the file names. `module` is the module that the file is, from the crate's root.
pub(crate) fn paths(code: &str, module: &[&str]) -> Vec<Named> {
    let tokens = tokens(code);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        module: module.iter().map(|s| (*s).to_owned()).collect(),
        named: vec![],
    };
    reader.file();
    reader.named
}

/// Words, `::` and single signs, each with its line.
fn tokens(code: &str) -> Vec<(usize, &str)> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let word = rest.bytes().take_while(|byte| is_word(*byte)).count();
            let len = match word {
                0 if rest.starts_with("::") => 2,
                0 => rest.chars().next().map_or(1, char::len_utf8),
                word => word,
            };
            tokens.push((index + 1, &rest[..len]));
            rest = rest[len..].trim_start();
        }
    }
    tokens
}

struct Reader<'a> {
    tokens: &'a [(usize, &'a str)],
    at: usize,
    /// The module that the reader is in.
    module: Vec<String>,
    named: Vec<Named>,
}

impl<'a> Reader<'a> {
    fn file(&mut self) {
        // Where each open brace began a module inside the file.
        let mut braces = Vec::new();
        while let Some(word) = self.word(0) {
            match word {
                "mod" if self.word(2) == Some("{") => {
                    self.module.extend(self.word(1).map(str::to_owned));
                    braces.push(true);
                    self.at += 3;
                }
                "{" => {
                    braces.push(false);
                    self.at += 1;
                }
                "}" => {
                    if braces.pop() == Some(true) {
                        self.module.pop();
                    }
                    self.at += 1;
                }
                word if is_word(word.as_bytes()[0]) => self.path(&[]),
                _ => self.at += 1,
            }
        }
    }

    /// Reads a path with everything in its braces.
    fn path(&mut self, before: &[String]) {
        let mut path = before.to_vec();
        let line = self.tokens[self.at].0;
        while let Some(word) = self.word(0).filter(|word| is_word(word.as_bytes()[0])) {
            path.push(word.to_owned());
            self.at += 1;
            if self.word(0) != Some("::") {
                break;
            }
            self.at += 1;
            match self.word(0) {
                Some("{") => return self.list(&path),
                Some("*") => path.push("*".to_owned()),
                _ => {}
            }
        }
        self.name(line, path);
    }

    fn list(&mut self, before: &[String]) {
        self.at += 1;
        while let Some(word) = self.word(0) {
            match word {
                "}" => {
                    self.at += 1;
                    return;
                }
                word if is_word(word.as_bytes()[0]) => self.path(before),
                _ => self.at += 1,
            }
        }
    }

    fn name(&mut self, line: usize, path: Vec<String>) {
        let supers = path.iter().take_while(|segment| *segment == "super").count();
        let (base, rest) = match path.first().map(String::as_str) {
            // `pub(crate)`, `self.field`: words, not paths.
            Some("crate" | "self" | "super") if path.len() == 1 => return,
            Some("crate") => (&[][..], &path[1..]),
            Some("self") => (&self.module[..], &path[1..]),
            Some("super") => (&self.module[..self.module.len().saturating_sub(supers)], &path[supers..]),
            _ => return self.named.push(Named { line, is_ours: false, segments: path }),
        };
        let segments = base.iter().chain(rest).cloned().collect();
        self.named.push(Named { line, is_ours: true, segments });
    }

    fn word(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).map(|(_, word)| *word)
    }
}
