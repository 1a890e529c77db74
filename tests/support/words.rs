//! Words of a request, and the quoted strings that requests and patterns share.
//!
//! Knows    `"..."` with `\n \r \t \0 \" \\ \xNN`, `'...'` with `\'`, and `"..."*N` for N repetitions.

/// A request as clients write it.
pub(crate) fn request<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words.iter().map(AsRef::as_ref) {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The words of a request line: quoted, or bare up to the next space.
pub(crate) fn words(text: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut rest = text.trim_start();
    let mut words = Vec::new();
    while !rest.is_empty() {
        let word;
        (word, rest) = if rest.starts_with(['"', '\'']) {
            quoted(rest)?
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            (rest.as_bytes()[..end].to_vec(), &rest[end..])
        };
        if !rest.is_empty() && !rest.starts_with(char::is_whitespace) {
            return Err(format!("a space is missing before {rest:?}"));
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

/// Reads the quoted string at the start of `text`, repeated as its `*N` says; returns it and the rest.
pub(crate) fn quoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''));
    let Some(quote) = quote else { return Err(format!("a quoted string is missing before {text:?}")) };
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return Err(format!("this string does not end: {text}")),
            Some(b'\\') if quote == '"' => at += escape(&bytes[at + 1..], &mut out)?,
            Some(b'\\') if bytes.get(at + 1) == Some(&b'\'') => {
                out.push(b'\'');
                at += 1;
            }
            Some(byte) if *byte == quote as u8 => break,
            Some(byte) => out.push(*byte),
        }
        at += 1;
    }
    let rest = &text[at + 1..];
    let Some(count) = rest.strip_prefix('*') else { return Ok((out, rest)) };
    let end = count.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(count.len());
    let times: usize = count[..end].parse().map_err(|_| format!("how often? {rest:?}"))?;
    Ok((out.repeat(times), &count[end..]))
}

/// The text in double quotes, printable ASCII as it is, everything else escaped.
pub(crate) fn quote(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for byte in text {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x20..0x7f => out.push(*byte as char),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

/// Appends the escaped byte; returns the number of bytes read after the backslash.
fn escape(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, String> {
    let plain = match bytes.first() {
        Some(b'n') => b'\n',
        Some(b'r') => b'\r',
        Some(b't') => b'\t',
        Some(b'0') => 0,
        Some(byte @ (b'"' | b'\\')) => *byte,
        Some(b'x') => {
            let digits = bytes.get(1..3).and_then(|digits| str::from_utf8(digits).ok()).unwrap_or_default();
            out.push(u8::from_str_radix(digits, 16).map_err(|_| format!("\\x{digits} is no byte"))?);
            return Ok(3);
        }
        other => return Err(format!("unknown escape {:?}", other.map(|byte| *byte as char))),
    };
    out.push(plain);
    Ok(1)
}

/// The number in a field of INFO.
pub(crate) fn info_field(text: &str, field: &str) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {field} in {text}"))
}

/// Resident memory of a process, in KiB.
pub(crate) fn resident_kib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("Linux has /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("the resident set");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[cfg(test)]
mod reading {
    #[test]
    fn words_are_bare_or_quoted_and_may_be_repeated() {
        let words = super::words(r#"SET "a b" 'it\'s' "x\x00\r\n" "ab"*3"#).unwrap();
        let expected: [&[u8]; 5] = [b"SET", b"a b", b"it's", b"x\0\r\n", b"ababab"];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_quoted_word_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(super::quoted(&super::quote(&all)).unwrap(), (all, ""));
    }

    #[test]
    fn an_open_quote_and_an_unknown_escape_are_refused() {
        for text in ["\"abc", "\"\\q\"", "\"\\xg0\"", "\"a\"b"] {
            assert!(super::words(text).is_err(), "{text}");
        }
    }
}
