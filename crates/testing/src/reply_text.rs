//! Replies as text: `OK`, `1`, `nil`, `-ERR no`, `[a, 2]`.
//!
//! Rule    the text says what a client library would return. So RESP2 and RESP3 have equal texts.

use redlatch_proto::resp::Element;

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
    shortened(frames.text)
}

/// The text with at most 500 characters.
fn shortened(mut text: String) -> String {
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

impl Frames<'_> {
    /// Appends the next frame. `None` if it is not whole.
    fn next(&mut self, depth: usize) -> Option<()> {
        match Element::take(&mut self.bytes)? {
            Element::Line(b'#', line) => self.push(if line == b"t" { b"1" } else { b"0" }),
            Element::Line(b'-', text) | Element::Bulk(b'!', text) => {
                self.text.push('-');
                self.push(text);
            }
            Element::Bulk(b'=', text) => self.push(text.get(4..).unwrap_or(text)),
            Element::Line(_, text) | Element::Bulk(_, text) => self.push(text),
            Element::Null(_) => self.push(b"nil"),
            Element::Aggregate(_, len) => self.list(len, depth)?,
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
