//! What is said to a name that no row has.
//!
//! Source  Redis 7.0 `rejectUnknownCommand`; texts are excerpts, so that an error stays short whatever was sent.

use crate::error::Refusal;
use crate::resp::Request;

/// Bytes of a name or of all arguments that an error quotes.
const EXCERPT_BYTES_MAX: usize = 128;

/// No command has that name.
pub(super) fn command(request: Request<'_>) -> Refusal {
    let mut args = String::new();
    for word in request.words().skip(1) {
        if args.len() >= EXCERPT_BYTES_MAX {
            break;
        }
        args.push_str(&format!("'{}' ", excerpt(word, EXCERPT_BYTES_MAX - args.len())));
    }
    let name = excerpt(request.word(0), EXCERPT_BYTES_MAX);
    Refusal::said(format!("ERR unknown command '{name}', with args beginning with: {args}"))
}

/// The command has no such subcommand.
pub(super) fn subcommand(command: &str, name: &[u8]) -> Refusal {
    let name = excerpt(name, EXCERPT_BYTES_MAX);
    Refusal::said(format!("ERR unknown subcommand '{name}'. Try {} HELP.", command.to_ascii_uppercase()))
}

/// A RESP2 client that is subscribed may say little.
pub(super) fn while_subscribed(name: &str) -> Refusal {
    Refusal::said(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    ))
}

fn excerpt(bytes: &[u8], max: usize) -> String {
    // Like C's %.*s: up to the first NUL.
    let bytes = &bytes[..bytes.len().min(max)];
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
