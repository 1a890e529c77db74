//! Inline requests: a line of words, as typed into telnet.
//!
//! Source  quoting rules of Redis' `sdssplitargs`: double quotes with escapes, single quotes with `\'` alone, and a
//!         closing quote must be followed by a space or the end.

use super::request::Span;
use crate::error::ProtocolError;

/// Splits `line` into words: their bytes go to `scratch`, their positions to `spans`.
pub(super) fn split(line: &[u8], scratch: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), ProtocolError> {
    let mut rest = trim(line);
    while !rest.is_empty() {
        let start = scratch.len() as u32;
        rest = word(rest, scratch)?;
        spans.push(Span { start, end: scratch.len() as u32 });
        rest = trim(rest);
    }
    Ok(())
}

/// The words of a line, as redis-cli, telnet and redis.conf quote them.
///
/// # Errors
/// [`ProtocolError::Quotes`] when a quote does not end, or is followed by anything but a space.
pub fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let (mut scratch, mut spans) = (Vec::new(), Vec::new());
    split(line, &mut scratch, &mut spans)?;
    Ok(spans.iter().map(|span| scratch[span.start as usize..span.end as usize].to_vec()).collect())
}

/// Takes one word off the front; returns what follows it.
fn word<'a>(mut rest: &'a [u8], scratch: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [] => return Ok(rest),
            [b' ' | b'\n' | b'\r' | b'\t' | 0, tail @ ..] => return Ok(tail),
            [b'"', quoted @ ..] => return double_quoted(quoted, scratch),
            [b'\'', quoted @ ..] => return single_quoted(quoted, scratch),
            [byte, tail @ ..] => {
                scratch.push(*byte);
                rest = tail;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], scratch: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::Quotes),
            [b'\\', b'x', high, low, tail @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                scratch.push(hex(*high) << 4 | hex(*low));
                tail
            }
            [b'\\', escaped, tail @ ..] => {
                scratch.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                tail
            }
            [b'"', tail @ ..] => return closed(tail),
            [byte, tail @ ..] => {
                scratch.push(*byte);
                tail
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], scratch: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        rest = match rest {
            [] => return Err(ProtocolError::Quotes),
            [b'\\', b'\'', tail @ ..] => {
                scratch.push(b'\'');
                tail
            }
            [b'\'', tail @ ..] => return closed(tail),
            [byte, tail @ ..] => {
                scratch.push(*byte);
                tail
            }
        }
    }
}

/// A closing quote ends the word, so a space or the end must follow it.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_space(*byte) => Err(ProtocolError::Quotes),
        _ => Ok(rest),
    }
}

/// C's `isspace`: two bytes more than those that end a word.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn trim(line: &[u8]) -> &[u8] {
    &line[line.iter().take_while(|byte| is_space(**byte)).count()..]
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Result<Vec<String>, ProtocolError> {
        let words = super::words(line.as_bytes())?;
        Ok(words.iter().map(|word| word.escape_ascii().to_string()).collect())
    }

    #[test]
    fn words_are_unquoted() {
        assert_eq!(
            words(r#"  SET "a b" 'c\'d' "\x41\n\q" e"#).unwrap(),
            ["SET", "a b", "c\\'d", "A\\nq", "e"]
        );
        assert_eq!(words(r#"a"b c""#).unwrap(), ["ab c"]);
        assert_eq!(words("").unwrap(), Vec::<String>::new());
        assert_eq!(words("\x0b\x0c a\x0bb\x0c c").unwrap(), ["a\\x0bb\\x0c", "c"]);
    }

    #[test]
    fn quotes_must_balance_and_end_a_word() {
        for line in [r#""a"#, r"'a", r#""a"b"#, r"'a'b", r#""\"#] {
            assert_eq!(words(line), Err(ProtocolError::Quotes), "{line}");
        }
    }
}
