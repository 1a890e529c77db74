//! Rust source as far as the laws need it: code without comments and literals.
//!
//! Owns    a scanner, not a parser.

/// The text with blanks in place of comments, strings and characters; lines stay where they are.
pub(crate) fn blank(text: &str) -> String {
    blanked(text, |_| true)
}

/// The text with blanks in place of strings and characters alone.
pub(crate) fn without_literals(text: &str) -> String {
    blanked(text, |opaque| !is_comment(opaque))
}

/// The lines of a text that are neither blank, nor comment, nor test.
pub(crate) fn code_lines(text: &str) -> usize {
    let (code, shape) = (blanked(text, is_comment), blank(text));
    let mut lines = code.lines().zip(shape.lines()).filter(|(line, _)| !line.trim().is_empty());
    let mut count = 0;
    while let Some((line, _)) = lines.next() {
        if ["#[cfg(test)]", "#[cfg(all(test,"].iter().any(|mark| line.trim_start().starts_with(mark)) {
            let column = line.len() - line.trim_start().len();
            // The item ends where a line in the column of its attribute does.
            let is_end = |shape: &str| {
                shape.len() - shape.trim_start().len() == column && shape.trim_end().ends_with([';', '}'])
            };
            lines.by_ref().find(|(_, shape)| is_end(shape));
        } else {
            count += 1;
        }
    }
    count
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

fn is_comment(opaque: &[u8]) -> bool {
    opaque.starts_with(b"//") || opaque.starts_with(b"/*")
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
