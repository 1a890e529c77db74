//! Replies as text: `OK`, `1`, `nil`, `-ERR no`, `[a, 2]`.
//!
//! Rule    the text says what a client library would return. So RESP2 and RESP3 have equal texts.

/// The first reply in the bytes as text, at most 500 characters. Pushes before it are skipped. Empty if there is
/// none.
pub fn reply_text(bytes: &[u8]) -> String {
    let mut frames = Frames { bytes, text: String::new() };
    while frames.bytes.first() == Some(&b'>') {
        if frames.next(0).is_none() {
            return String::new();
        }
        frames.text.clear();
    }
    // A reply that is cut off has the text up to there.
    let _ = frames.next(0);
    shortened_text(frames.text)
}

/// The text with at most 500 characters.
pub fn shortened_text(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(CHARS_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

struct Frames<'a> {
    bytes: &'a [u8],
    text: String,
}

impl<'a> Frames<'a> {
    /// Appends the next frame. `None` if it is not whole.
    fn next(&mut self, depth: usize) -> Option<()> {
        let (kind, line) = self.line()?;
        let number = std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok());
        match kind {
            b'+' | b':' | b',' | b'(' => self.push(line),
            b'#' => self.push(if line == b"t" { b"1" } else { b"0" }),
            b'-' => {
                self.text.push('-');
                self.push(line);
            }
            b'_' => self.push(b"nil"),
            b'$' | b'!' | b'=' => match usize::try_from(number?) {
                Ok(length) => {
                    let content = self.bytes.get(..length)?;
                    self.bytes = self.bytes.get(length + 2..)?;
                    if kind == b'!' {
                        self.text.push('-');
                    }
                    self.push(if kind == b'=' { content.get(4..).unwrap_or(content) } else { content });
                }
                Err(_) => self.push(b"nil"),
            },
            b'*' | b'~' | b'>' | b'%' => match usize::try_from(number?) {
                Ok(count) => self.list(if kind == b'%' { count.saturating_mul(2) } else { count }, depth)?,
                Err(_) => self.push(b"nil"),
            },
            _ => return None,
        }
        Some(())
    }

    fn list(&mut self, count: usize, depth: usize) -> Option<()> {
        self.text.push('[');
        for at in 0..count {
            if depth == DEPTH_MAX {
                return None;
            }
            if at > 0 {
                self.text.push_str(", ");
            }
            self.next(depth + 1)?;
        }
        self.text.push(']');
        Some(())
    }

    /// The first byte of a line, and the others.
    fn line(&mut self) -> Option<(u8, &'a [u8])> {
        let end = self.bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let (line, rest) = (&self.bytes[..end], &self.bytes[end + 2..]);
        self.bytes = rest;
        line.split_first().map(|(kind, line)| (*kind, line))
    }

    fn push(&mut self, bytes: &[u8]) {
        // What is far beyond the limit is cut off in any case.
        if self.text.len() < 4 * CHARS_MAX {
            self.text.push_str(&String::from_utf8_lossy(&bytes[..bytes.len().min(4 * CHARS_MAX)]));
        }
    }
}

/// Characters of a text.
const CHARS_MAX: usize = 500;
/// Lists within lists.
const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_protocols_have_equal_texts() {
        for (resp2, resp3, text) in [
            (&b"+OK\r\n"[..], &b"$2\r\nOK\r\n"[..], "OK"),
            (b"$-1\r\n", b"_\r\n", "nil"),
            (b"*-1\r\n", b"_\r\n", "nil"),
            (b":1\r\n", b"#t\r\n", "1"),
            (b"$3\r\n1.5\r\n", b",1.5\r\n", "1.5"),
            (b"-ERR no\r\n", b"!6\r\nERR no\r\n", "-ERR no"),
            (b"*2\r\n$1\r\na\r\n:2\r\n", b"%1\r\n+a\r\n:2\r\n", "[a, 2]"),
            (b"$1\r\nx\r\n", b"=5\r\ntxt:x\r\n", "x"),
        ] {
            assert_eq!([reply_text(resp2), reply_text(resp3)], [text, text]);
        }
        assert_eq!(reply_text(b">2\r\n+message\r\n+x\r\n:7\r\n"), "7", "a push is no reply");
    }

    #[test]
    fn a_text_is_bounded_whatever_the_reply_is() {
        assert_eq!(reply_text(b""), "");
        assert_eq!(reply_text(b"$10\r\nabc"), "");
        assert_eq!(reply_text(&b"*1\r\n".repeat(100_000)).len(), DEPTH_MAX + 1);
        let long = [b"$9000\r\n", &[b'x'; 9000][..], b"\r\n"].concat();
        assert_eq!(reply_text(&long).len(), CHARS_MAX + 3);
    }
}
