//! Keys, owners and other texts of clients, as people read them: escaped in the log, on terminals and on the page.
//!
//! Rule    a line of the log stays one line, of bounded length, whatever clients send.
//! Rule    what a terminal or a page shows is what it looks like: nothing moves the cursor, and nothing turns text around.
//!         The page does so itself: `readable` in `page.js`.

use std::fmt;

/// Bytes of a name that the log and spans show.
pub const NAME_BYTES_SHOWN: usize = 64;

/// A name as the log shows it: the first [`NAME_BYTES_SHOWN`] bytes, escaped as in a byte string of Rust; `...` follows if
/// there are more. A space is `\x20`, so that no name looks like another field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogName<'n>(pub &'n [u8]);

impl fmt::Display for LogName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        for part in name[..name.len().min(NAME_BYTES_SHOWN)].split_inclusive(|byte| *byte == b' ') {
            match part.split_last() {
                Some((b' ', before)) => write!(f, "{}\\x20", before.escape_ascii())?,
                _ => write!(f, "{}", part.escape_ascii())?,
            }
        }
        if name.len() > NAME_BYTES_SHOWN { f.write_str("...") } else { Ok(()) }
    }
}

/// A text as a terminal shows it: each character that a reader cannot see, and each byte that is no UTF-8, is an escape of
/// Rust.
pub fn readable(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match u8::try_from(character) {
                Ok(byte) if byte.is_ascii_control() => shown.extend(byte.escape_ascii().map(char::from)),
                _ if is_hidden(character) => shown.extend(character.escape_default()),
                _ => shown.push(character),
            }
        }
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(&mut shown, format_args!("{}", chunk.invalid().escape_ascii()));
    }
    shown
}

/// A text as JSON shows it: the text itself, or escapes if it is not UTF-8. The exact bytes stand beside it then.
pub fn text_or_escapes(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), str::to_owned)
}

/// Appends a character to a text of JSON: one that a reader cannot see as JSON's escape. Quotes and backslashes are the
/// caller's to escape.
pub fn push_json(out: &mut String, character: char) {
    if !is_hidden(character) {
        out.push(character);
        return;
    }
    for unit in character.encode_utf16(&mut [0; 2]) {
        // Writing to a String cannot fail.
        let _ = fmt::Write::write_fmt(out, format_args!("\\u{unit:04x}"));
    }
}

/// Whether a character controls a terminal, has no width, or turns the text after it around.
pub fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_hidden_reaches_a_reader() {
        for (text, shown) in [
            (&b"lock:a \\ 'b'"[..], "lock:a \\ 'b'"),
            (b"\x1b[2J\x07a\nb", r"\x1b[2J\x07a\nb"),
            ("\u{e4}\u{4e2d}\u{1f512}".as_bytes(), "\u{e4}\u{4e2d}\u{1f512}"),
            ("a\u{202e}b\u{9b}c".as_bytes(), r"a\u{202e}b\u{9b}c"),
            (b"a\xff\xfeb", r"a\xff\xfeb"),
        ] {
            assert_eq!(readable(text), shown);
        }
    }

    #[test]
    fn a_name_is_escaped_and_cut() {
        assert_eq!(LogName(b"job:7").to_string(), "job:7");
        assert_eq!(LogName(b"a\"b\n\xff").to_string(), "a\\\"b\\n\\xff");
        assert_eq!(LogName(b" a owner=b").to_string(), "\\x20a\\x20owner=b");
        let long = [b'x'; NAME_BYTES_SHOWN + 1];
        assert_eq!(LogName(&long[1..]).to_string(), "x".repeat(64));
        assert_eq!(LogName(&long).to_string(), "x".repeat(64) + "...");
    }
}
