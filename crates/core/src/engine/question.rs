//! Questions of the server itself: commands that run outside of any connection, as those of HTTP do.
//!
//! Rule    a question is no client: it takes no place among `maxclients`, and nothing of it is counted, timed, traced or
//!         shown to monitors. It has all permissions, and passes the checks of any other request.

use std::sync::Arc;

use bytes::Bytes;
use redlatch_proto::error::Refusal;
use redlatch_proto::limits::REPLY_BYTES_MAX;
use redlatch_proto::resp::{Protocol, Reply, Request};
use smallvec::SmallVec;

use super::{Admitted, Engine};
use crate::commands::row::Flags;
use crate::commands::{self, Args, Call, Caller, Outcome};
use crate::keyspace::View;
use crate::state::clients::{Client, ClientId};
use crate::state::session::Session;

/// The client that a question names as its own: none has this number.
const NOBODY: ClientId = 0;

/// In whose name a question is asked. Default: the server's own.
#[derive(Clone, Debug, Default)]
pub struct Requester {
    /// The user; empty: the server itself.
    pub user: Bytes,
    /// Where it connected from.
    pub peer: String,
}

/// What a question comes to.
#[derive(Debug)]
pub enum Asked {
    /// The reply, in RESP3.
    Answered(Vec<u8>),
    /// A long call or a pause holds it up: ask again.
    Later,
    /// It takes long: ask again on a thread that may be held up.
    Offload,
}

impl Engine {
    /// Asks for the reply to a command that answers at once. `may_take_long`: the thread may be held up.
    ///
    /// # Errors
    /// The command is refused.
    pub fn ask(&self, requester: &Requester, words: &[&[u8]], may_take_long: bool) -> Result<Asked, Refusal> {
        let (shared, now, request) = (&*self.shared, self.shared.clock.now(), Request::listed(words));
        let client = Client::new(NOBODY, requester.peer.clone(), String::new(), false, now.lock);
        let account = shared.access.acl.trusted_account_of(&requester.user);
        let mut session = Session::new(Arc::new(client), account, true);
        (session.protocol, session.may_block) = (Protocol::Resp3, may_take_long);
        let command = match self.admit(&mut session, request, now) {
            Ok(Admitted::Run(command)) => command,
            Ok(Admitted::Hold(_)) => return Ok(Asked::Later),
            Err((refusal, _)) => return Err(refusal),
        };

        let mut keys = SmallVec::new();
        let reach = command.reach(request, &mut keys);
        let view = View::try_lock(&shared.keyspace, reach, session.database, now, shared.events());
        let later = || commands::busy_now(shared, shared.clock.now().lock).map_or(Ok(Asked::Later), Err);
        let Some(mut view) = view else { return later() };
        if command.row.flags.has(Flags::OFFLOAD) || self.is_large(command, request, &mut view) {
            if !may_take_long {
                return Ok(Asked::Offload);
            }
            view.announce_long_call();
        }
        let mut out = Vec::new();
        let mut call = Call {
            now: view.now(),
            view: &mut view,
            args: Args::new(request, command.name_words),
            reply: Reply::new(&mut out, session.protocol),
            session: &mut session,
            shared,
            command,
            caller: Caller::Server,
        };
        let result = call.run();
        view.finish(&shared.registries);

        match result {
            Ok(Outcome::Replied) if out.len() < REPLY_BYTES_MAX => Ok(Asked::Answered(out)),
            Err(Refusal::Occupied) => later(),
            Err(refusal) => Err(refusal),
            Ok(_) => Err(Refusal::said("ERR the command has no reply at once, or one that is too long")),
        }
    }
}
