//! What is said to a name that no row has.
//!
//! Source  Redis 7.0 `rejectUnknownCommand`; texts are excerpts, so that an error stays short whatever was sent.

use crate::error::{Refusal, until_nul};
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
        args.push(b'\'');
        // The quote that opens it is not counted.
        args.extend_from_slice(excerpt(word, EXCERPT_BYTES_MAX + 1 - args.len()));
        args.extend_from_slice(b"' ");
    }
    let name = excerpt(request.word(0), EXCERPT_BYTES_MAX);
    Refusal::Quoted([b"ERR unknown command '", name, b"', with args beginning with: ", &args].concat())
}

/// The command has no such subcommand.
pub(super) fn subcommand(command: &str, name: &[u8]) -> Refusal {
    let after = format!("'. Try {} HELP.", command.to_ascii_uppercase());
    Refusal::quoting("ERR unknown subcommand '", excerpt(name, EXCERPT_BYTES_MAX), &after)
}

/// A RESP2 client that is subscribed may say little.
pub(super) fn while_subscribed(name: &str) -> Refusal {
    Refusal::said(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
this context"
    ))
}

/// A web browser was talked into sending this.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn excerpt(bytes: &[u8], max: usize) -> &[u8] {
    until_nul(&bytes[..bytes.len().min(max)])
}
