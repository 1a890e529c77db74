//! Unknown commands and subcommands: the texts of errors, and what looks like HTTP.
//!
//! Source  Redis 7.0 `rejectUnknownCommand`; texts are excerpts, so that an error is short for every request.

use redlatch_proto::error::{Refusal, until_nul};
use redlatch_proto::resp::Request;

use super::Engine;
use crate::state::session::Session;

/// Bytes of a name or of all arguments that an error quotes.
const EXCERPT_BYTES_MAX: usize = 128;

impl Engine {
    /// Logs HTTP requests, which a web page can make a browser send.
    #[cold]
    pub(super) fn warn_of_http(&self, session: &Session) {
        if let Some(times) = self.shared.log_limits.http.happened(self.shared.clock.now().lock) {
            let peer = &session.client.address.peer;
            tracing::warn!(
                times,
                peer,
                "HTTP instead of requests: the connection is closed without an answer"
            );
        }
    }
}

/// The error for an unknown command.
pub(super) fn command(request: Request<'_>) -> Refusal {
    let mut args = Vec::new();
    for word in request.words().skip(1) {
        if args.len() >= EXCERPT_BYTES_MAX {
            break;
        }
        args.push(b'\'');
        // Redis does not count the opening quote.
        args.extend_from_slice(excerpt(word, EXCERPT_BYTES_MAX + 1 - args.len()));
        args.extend_from_slice(b"' ");
    }
    let name = excerpt(request.word(0), EXCERPT_BYTES_MAX);
    Refusal::Quoted([b"ERR unknown command '", name, b"', with args beginning with: ", &args].concat())
}

/// The error for an unknown subcommand.
pub(super) fn subcommand(command: &str, name: &[u8]) -> Refusal {
    let after = format!("'. Try {} HELP.", command.to_ascii_uppercase());
    Refusal::quoting("ERR unknown subcommand '", excerpt(name, EXCERPT_BYTES_MAX), &after)
}

/// The error for a command that a RESP2 subscriber may not send.
pub(super) fn while_subscribed(name: &str) -> Refusal {
    Refusal::said(format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
this context"
    ))
}

/// Whether the name begins an HTTP request, which a web page can make a browser send.
pub(super) fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

fn excerpt(bytes: &[u8], max: usize) -> &[u8] {
    until_nul(&bytes[..bytes.len().min(max)])
}
