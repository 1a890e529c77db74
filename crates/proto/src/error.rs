//! Why a command was refused, and the error line for it.
//!
//! Owns    the error texts of more than one command. A text of one command is in the file of that command.
//! Rule    a refusal has no effect on the keyspace, and no byte of a request reaches a line unescaped.
//! Source  texts as Redis 7.0 gives them; client libraries branch on the first word.

use std::borrow::Cow;
use std::ffi::CStr;

/// Why a command was refused. Client libraries branch on the first word of its text.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Refusal {
    /// The argument count does not fit the row's grammar. Carries the full name, `client|kill` for a subcommand.
    Arity(Cow<'static, str>),
    /// A key that must exist does not.
    NoSuchKey,
    /// EVALSHA of a script that is not in the cache.
    NoScript,
    /// The client has not authenticated.
    NoAuth,
    /// An argument that must be an integer of 64 bits is not.
    NotAnInteger,
    /// An argument that must be a number is not.
    NotAFloat,
    /// A counter would leave the range of 64 bits.
    Overflow,
    /// In cluster mode, the keys of a request hash to several slots.
    CrossSlot,
    /// In a cluster of several nodes, this node does not serve the keys of a request: `MOVED`, `ASK` and the like.
    Rerouted(String),
    /// A database number beyond the `databases` setting.
    DatabaseRange,
    /// A lease that is zero, negative, or ends beyond the end of time. Carries the command's name.
    ExpireTime(&'static str),
    /// More memory is in use than `maxmemory` allows, and the command could need some.
    OutOfMemory,
    /// A string would grow beyond `proto-max-bulk-len`.
    StringTooLong,
    /// A long script holds shards that the call needs: the engine retries the call later, and the client never sees this.
    Occupied,
    /// A script asks for keys in shards that are not locked, and has only read: the engine runs it again, with all shards.
    StartAgain,
    /// The options do not make sense.
    Syntax,
    /// The key holds a value of another type.
    WrongType,
    /// A text of a single command, beginning with its code.
    Said(Cow<'static, str>),
    /// A text that quotes bytes of the request, beginning with its code.
    Quoted(Vec<u8>),
}

impl Refusal {
    /// A text of a single command, beginning with its code: `ERR bit is not ...`.
    pub fn said(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Said(text.into())
    }

    /// A text that quotes a word of the request, up to its first NUL, as C does.
    pub fn quoting(before: &str, word: &[u8], after: &str) -> Self {
        Self::Quoted([before.as_bytes(), until_nul(word), after.as_bytes()].concat())
    }

    /// A subcommand of `container` was given too many words, or too few.
    pub fn subcommand_syntax(container: &str, name: &[u8]) -> Self {
        const BEFORE: &str = "ERR unknown subcommand or wrong number of arguments for '";
        let name = &name[..name.len().min(128)];
        Self::quoting(BEFORE, name, &format!("'. Try {container} HELP."))
    }

    /// The error line without its leading `-`. Bytes of the request are quoted unchanged.
    pub fn line(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Quoted(line) => Cow::Borrowed(line),
            _ => match self.text() {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
        }
    }

    /// The whole error line without its leading `-`, for people.
    pub fn text(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Arity(name) => {
                return format!("ERR wrong number of arguments for '{name}' command").into();
            }
            Self::ExpireTime(name) => return format!("ERR invalid expire time in '{name}' command").into(),
            Self::Said(text) => return Cow::Borrowed(text),
            Self::Rerouted(text) => return Cow::Borrowed(text),
            Self::Quoted(line) => return String::from_utf8_lossy(line),
            Self::NoSuchKey => "ERR no such key",
            Self::NoScript => "NOSCRIPT No matching script. Please use EVAL.",
            Self::NoAuth => "NOAUTH Authentication required.",
            Self::NotAnInteger => "ERR value is not an integer or out of range",
            Self::NotAFloat => "ERR value is not a valid float",
            Self::Overflow => "ERR increment or decrement would overflow",
            Self::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot",
            Self::DatabaseRange => "ERR DB index is out of range",
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Self::Occupied | Self::StartAgain => "BUSY Redis is busy running a script.",
            Self::Syntax => "ERR syntax error",
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
        })
    }
}

/// The bytes of `word` before its first NUL, which is where C strings end.
pub fn until_nul(word: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(word).map_or(word, CStr::to_bytes)
}

/// A malformed request. The client is sent an error and disconnected.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProtocolError {
    /// A bulk string was expected and something else was received.
    #[error("expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    /// The length of an argument is no number, negative or too large.
    #[error("invalid bulk length")]
    BulkLength,
    /// The number of arguments is no number or too large.
    #[error("invalid multibulk length")]
    ArgumentCount,
    /// The line of a bulk length is too long.
    #[error("too big bulk count string")]
    BulkLine,
    /// The line of the number of arguments is too long.
    #[error("too big mbulk count string")]
    CountLine,
    /// An inline request is too long.
    #[error("too big inline request")]
    InlineLine,
    /// An inline request opens a quote and does not close it.
    #[error("unbalanced quotes in request")]
    Quotes,
    /// A TLS handshake on a port without TLS.
    #[error("TLS on a port without it")]
    Tls,
    /// Too many arguments before authentication.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedCount,
    /// Too long an argument before authentication.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulk,
    /// A request larger than `client-query-buffer-limit`. The connection is closed without a reply, as in Redis.
    #[error("request too large")]
    RequestTooLarge,
}

impl ProtocolError {
    /// The whole error line without its leading `-`, for the wire: a byte that it quotes is that byte.
    pub fn line(self) -> Vec<u8> {
        match self {
            Self::ExpectedBulk(byte) => {
                [&b"ERR Protocol error: expected '$', got '"[..], &[byte], b"'"].concat()
            }
            _ => format!("ERR Protocol error: {self}").into_bytes(),
        }
    }
}
