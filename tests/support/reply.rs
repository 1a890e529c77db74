//! A reply as it came over the wire, RESP2 or RESP3, and its spelling in a transcript.
//!
//! Knows    every type byte of RESP3 that a command's reply can begin with.
//! Owns     its own reader: transcripts must distinguish `$-1`, `*-1` and `_`, which codecs merge.

use super::words::quote;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Simple(Vec<u8>),
    Error(Vec<u8>),
    Int(i64),
    Bulk(Vec<u8>),
    /// `$-1`, RESP2's null bulk string.
    NilBulk,
    /// `*-1`, RESP2's null array.
    NilArray,
    /// `_`, RESP3's only null.
    Null,
    /// A list and the byte it was announced with: `*`, `~` or `>`.
    List(u8, Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Double(Vec<u8>),
    Bool(bool),
    /// The three letters of the format, and the text.
    Verbatim(Vec<u8>, Vec<u8>),
    BigNumber(Vec<u8>),
}

impl Reply {
    /// Reads the first reply in `bytes`; returns it and its length, or `None` while it is incomplete.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let mut reader = Reader { bytes, at: 0 };
        Ok(reader.reply()?.map(|reply| (reply, reader.at)))
    }

    /// The spelling that a transcript uses for exactly this reply.
    pub(crate) fn spell(&self) -> String {
        match self {
            Self::Simple(text) => format!("+{}", quote(text)),
            Self::Error(text) => format!("-{}", quote(text)),
            Self::Int(value) => format!(":{value}"),
            Self::Bulk(text) => quote(text),
            Self::NilBulk | Self::Null => "nil".to_owned(),
            Self::NilArray => "nil-array".to_owned(),
            Self::List(kind, items) => {
                let open = if *kind == b'*' { String::new() } else { (*kind as char).to_string() };
                let items: Vec<String> = items.iter().map(Self::spell).collect();
                format!("{open}{}", enclose('[', &items, ']'))
            }
            Self::Map(pairs) => {
                let pairs: Vec<String> = pairs
                    .iter()
                    .map(|(key, value)| format!("{} => {}", key.spell(), value.spell()))
                    .collect();
                enclose('{', &pairs, '}')
            }
            Self::Double(text) => format!(",{}", String::from_utf8_lossy(text)),
            Self::Bool(value) => if *value { "#t" } else { "#f" }.to_owned(),
            Self::Verbatim(kind, text) => format!("={}:{}", String::from_utf8_lossy(kind), quote(text)),
            Self::BigNumber(text) => format!("({}", String::from_utf8_lossy(text)),
        }
    }

    /// As [`Reply::spell`], with an error or a simple string as plain text to the end of the line where that
    /// is unambiguous.
    pub(crate) fn spell_line(&self) -> String {
        let (sign, text) = match self {
            Self::Simple(text) => ('+', text),
            Self::Error(text) => ('-', text),
            _ => return self.spell(),
        };
        let is_plain = text.iter().all(|byte| (0x20..0x7f).contains(byte))
            && !text.starts_with(b"\"")
            && !text.ends_with(b" ")
            && !text.windows(2).any(|pair| pair == b"${");
        if is_plain { format!("{sign}{}", String::from_utf8_lossy(text)) } else { self.spell() }
    }
}

/// Items between brackets: on one line where they fit, one a line otherwise.
fn enclose(open: char, items: &[String], close: char) -> String {
    let line = format!("{open}{}{close}", items.join(", "));
    if line.len() <= 96 && !line.contains('\n') {
        return line;
    }
    let body: String = items.iter().map(|item| format!("  {},\n", item.replace('\n', "\n  "))).collect();
    format!("{open}\n{body}{close}")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn reply(&mut self) -> Result<Option<Reply>, String> {
        let Some(line) = self.line() else { return Ok(None) };
        let Some((kind, rest)) = line.split_first() else {
            return Err("an empty line is no reply".to_owned());
        };
        let (kind, rest) = (*kind, rest.to_vec());
        Ok(match kind {
            b'+' => Some(Reply::Simple(rest)),
            b'-' => Some(Reply::Error(rest)),
            b':' => Some(Reply::Int(number(&rest)?)),
            b'_' => Some(Reply::Null),
            b',' => Some(Reply::Double(rest)),
            b'#' => Some(Reply::Bool(rest == b"t")),
            b'(' => Some(Reply::BigNumber(rest)),
            b'$' if rest == b"-1" => Some(Reply::NilBulk),
            b'*' if rest == b"-1" => Some(Reply::NilArray),
            b'$' => self.blob(number(&rest)?)?.map(Reply::Bulk),
            b'=' => self.blob(number(&rest)?)?.map(|text| {
                let (kind, text) = text.split_at(text.len().min(4));
                Reply::Verbatim(kind.get(..3).unwrap_or_default().to_vec(), text.to_vec())
            }),
            b'*' | b'~' | b'>' => self.items(number(&rest)?)?.map(|items| Reply::List(kind, items)),
            b'%' => self.items(number(&rest)? * 2)?.map(|items| {
                Reply::Map(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }),
            _ => return Err(format!("no reply begins with {:?}", kind as char)),
        })
    }

    fn line(&mut self) -> Option<&[u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
        self.at += end + 2;
        Some(&rest[..end])
    }

    fn blob(&mut self, len: i64) -> Result<Option<Vec<u8>>, String> {
        let len = usize::try_from(len).map_err(|_| format!("a blob of {len} bytes"))?;
        let Some(blob) = self.bytes.get(self.at..self.at + len + 2) else { return Ok(None) };
        self.at += len + 2;
        if !blob.ends_with(b"\r\n") {
            return Err("a blob that does not end where it said".to_owned());
        }
        Ok(Some(blob[..len].to_vec()))
    }

    fn items(&mut self, count: i64) -> Result<Option<Vec<Reply>>, String> {
        let mut items = Vec::new();
        for _ in 0..count {
            match self.reply()? {
                Some(item) => items.push(item),
                None => return Ok(None),
            }
        }
        Ok(Some(items))
    }
}

fn number(text: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(text);
    text.parse().map_err(|_| format!("{text:?} where a number must be"))
}
