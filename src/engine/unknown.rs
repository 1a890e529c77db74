//! What is said to a name that no row has.
//!
//! Source  Redis 7.0 `rejectUnknownCommand`; texts are excerpts, so that an error stays short whatever was sent.

use crate::error::Refusal;
use crate::resp::Request;

/// Bytes of a name or of all arguments that an error quotes.
const EXCERPT_BYTES_MAX: usize = 128;

/// No command has that name.
pub(super) fn command(request: Request<'_>) -> Refusal {
    let mut args = Vec::new();
    for word in request.words().skip(1) {
        if args.len() >= EXCERPT_BYTES_MAX {
            break;
        }
        args.extend([b"'", excerpt(word, EXCERPT_BYTES_MAX - args.len()), b"' "].concat());
    }
    let name = excerpt(request.word(0), EXCERPT_BYTES_MAX);
    Refusal::Quoted([b"ERR unknown command '", name, b"', with args beginning with: ", &args].concat())
}

/// The command has no such subcommand.
pub(super) fn subcommand(command: &str, name: &[u8]) -> Refusal {
    let (name, command) = (excerpt(name, EXCERPT_BYTES_MAX), command.to_ascii_uppercase());
    Refusal::Quoted([b"ERR unknown subcommand '", name, b"'. Try ", command.as_bytes(), b" HELP."].concat())
}

/// A RESP2 client that is subscribed may say little.
pub(super) fn while_subscribed(name: &str) -> Refusal {
    Refusal::said(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    ))
}

/// Its first bytes, up to a NUL, as C prints them.
fn excerpt(bytes: &[u8], max: usize) -> &[u8] {
    let bytes = &bytes[..bytes.len().min(max)];
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}
