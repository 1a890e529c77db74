//! A reply as it came over the wire, RESP2 or RESP3, and its spelling in a transcript.
//!
//! Rule     `$-1`, `*-1` and `_`, which codecs merge, are three replies.

use redlatch_proto::resp::Element;

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
        let mut rest = bytes;
        match (Self::take(&mut rest), bytes.first()) {
            (Some(reply), _) => Ok(Some((reply, bytes.len() - rest.len()))),
            (None, Some(kind)) if !b"+-:,#(_$=*~>%".contains(kind) => {
                Err(format!("no reply begins with {:?}", *kind as char))
            }
            (None, _) => Ok(None),
        }
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(match Element::take(bytes)? {
            Element::Aggregate(b'%', len) => {
                let pairs = (0..len / 2).map(|_| Some((Self::take(bytes)?, Self::take(bytes)?)));
                Self::Map(pairs.collect::<Option<_>>()?)
            }
            Element::Aggregate(kind, len) => {
                Self::List(kind, (0..len).map(|_| Self::take(bytes)).collect::<Option<_>>()?)
            }
            Element::Bulk(b'=', text) => Self::Verbatim(text.get(..3)?.to_vec(), text.get(4..)?.to_vec()),
            Element::Bulk(_, text) => Self::Bulk(text.to_vec()),
            Element::Line(b'+', text) => Self::Simple(text.to_vec()),
            Element::Line(b'-', text) => Self::Error(text.to_vec()),
            Element::Line(b':', text) => Self::Int(std::str::from_utf8(text).ok()?.parse().ok()?),
            Element::Line(b',', text) => Self::Double(text.to_vec()),
            Element::Line(b'#', text) => Self::Bool(text == b"t"),
            Element::Line(_, text) => Self::BigNumber(text.to_vec()),
            Element::Null(b'$') => Self::NilBulk,
            Element::Null(b'*') => Self::NilArray,
            Element::Null(_) => Self::Null,
        })
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
