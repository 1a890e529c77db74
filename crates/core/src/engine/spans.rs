//! The spans of connections and commands.
//!
//! Rule    where nobody wants spans of commands, a request costs one comparison.

use redlatch_proto::log_name::LogName;
use redlatch_proto::resp::Request;
use smallvec::SmallVec;
use tracing::field::Empty;
use tracing::{Level, Span};

use super::{Batch, Engine, Flow};
use crate::commands::table::Table;
use crate::keyspace::ShardSet;
use crate::state::clients::Client;
use crate::state::session::Session;
use crate::state::trace::SPANS;

/// The span of a connection, which ends with it.
pub(super) fn connection(client: &Client) -> Span {
    tracing::debug_span!(target: SPANS, parent: None, "connection", client = client.id, peer = client.address.peer)
}

/// Whether somebody may want spans of commands.
#[inline]
pub(super) fn are_wanted() -> bool {
    tracing::level_enabled!(Level::TRACE)
}

impl Engine {
    /// Like [`Engine::execute`], in a span.
    #[cold]
    #[inline(never)]
    pub(super) fn execute_in_span(
        &self,
        session: &mut Session,
        request: Request<'_>,
        batch: &mut Batch,
        out: &mut Vec<u8>,
    ) -> Flow {
        if !tracing::span_enabled!(target: SPANS, Level::TRACE) {
            return self.execute_request(session, request, batch, out);
        }
        let entered = command(self.shared.commands, session, request).entered();
        let mark = out.len();
        let flow = self.execute_request(session, request, batch, out);
        if matches!(flow, Flow::Again(_) | Flow::Offload) {
            entered.record("is_repeated", true);
        } else if let Some(error) = out.get(mark..).and_then(|reply| reply.strip_prefix(b"-")) {
            let code = error.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
            entered.record("error", tracing::field::display(LogName(code)));
        }
        flow
    }
}

/// The span of a request. It names its first key, and no other argument.
fn command(commands: &Table, session: &Session, request: Request<'_>) -> Span {
    let make = |name: &str, key: Option<&[u8]>| {
        tracing::trace_span!(
            target: SPANS,
            parent: &session.span,
            "command",
            command = name,
            key = key.map(|key| tracing::field::display(LogName(key))),
            client = session.client.id,
            error = Empty,
            is_repeated = Empty,
        )
    };
    let found = (!request.is_empty()).then(|| commands.find(request.word(0))).flatten();
    let Some(command) = found else { return make("(unknown)", None) };
    let command = request.get(1).and_then(|name| command.subcommand(name)).unwrap_or(command);
    let mut keys = SmallVec::new();
    let key = match command.fits(request.len()).then(|| command.reach(request, &mut keys)) {
        Some(ShardSet::One(key)) => Some(key),
        Some(ShardSet::Keys(keys)) => keys.first().copied(),
        _ => None,
    };
    make(&command.name, key)
}
