//! What faults of the test backend ask of the engine: which one a request meets, an error in its place, the end of keys.
//!
//! Rule    a request is met when it is executed: what is queued after MULTI is met together with its EXEC.

use bytes::Bytes;
use redlatch_proto::clock::{Deadline, LockTime};
use redlatch_proto::error::Refusal;
use redlatch_proto::resp::Request;
use smallvec::SmallVec;

use super::{Engine, mute};
use crate::commands::row::Flags;
use crate::commands::{EXEC, discard_all, table};
use crate::keyspace::{Entry, ShardSet, View};
use crate::state::session::{Replies, Session};
use crate::testing::{Asked, AskedScript, Hit, namespace_of};

/// A request with its command and its keys.
struct Seen<'a> {
    command: &'static str,
    keys: SmallVec<[&'a [u8]; 4]>,
    script: Option<AskedScript<'a>>,
}

impl Engine {
    /// The fault that acts at this request, if one does.
    pub fn meet_fault(&self, session: &Session, request: Request<'_>) -> Option<Hit> {
        let testing = self.shared.testing.as_ref()?;
        if testing.faults.is_empty() || is_never_met(session, request) {
            return None;
        }
        let seen: Vec<_> = executed(session, request).map(|request| self.see(request)).collect();
        let asked: Vec<_> = seen
            .iter()
            .map(|seen| Asked { command: seen.command, keys: &seen.keys, script: seen.script })
            .collect();
        testing.faults.meet(&session.client, testing.node, &asked)
    }

    /// The keys of the request, and of what EXEC executes for it.
    pub fn keys_of(&self, session: &Session, request: Request<'_>) -> Vec<Bytes> {
        executed(session, request)
            .flat_map(|request| self.see(request).keys)
            .map(Bytes::copy_from_slice)
            .collect()
    }

    /// What faults see of a request. A script that is not loaded does not run: it is answered with NOSCRIPT, and its client
    /// sends it again.
    fn see<'a>(&self, request: Request<'a>) -> Seen<'a> {
        let Some(command) = table().of_request(request) else {
            return Seen { command: "", keys: SmallVec::new(), script: None };
        };
        let keys = command.positions(request).map(|at| request.word(at)).collect();
        let script = request.get(1).and_then(|word| match command.name.as_str() {
            "eval" | "eval_ro" => Some(AskedScript::Text(word)),
            "evalsha" | "evalsha_ro" if self.shared.scripts.cache.has(word) => Some(AskedScript::Sha(word)),
            _ => None,
        });
        Seen { command: &command.name, keys, script }
    }

    /// Answers a request with an error in place of executing it. A refused EXEC discards its transaction.
    pub fn refuse_request(
        &self,
        session: &mut Session,
        request: Request<'_>,
        text: &[u8],
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        if is_exec(request) {
            discard_all(session, &self.shared);
        }
        self.refuse(session, &Refusal::Quoted(text.to_vec()), out);
        if session.replies != Replies::On {
            mute(session, out, start);
        }
    }

    /// Ends these keys as if their deadlines had passed: with the `expired` event, and a lock goes to the next in its
    /// queue.
    /// The thread waits for a long call that holds one of them.
    pub fn expire_keys(&self, database: u16, keys: &[Bytes]) {
        let shared = &*self.shared;
        let named: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        if named.is_empty() {
            return;
        }
        let (set, now) = (ShardSet::Keys(&named), shared.clock.now());
        let mut view = View::lock(&shared.keyspace, set, database, now, shared.events());
        let before = LockTime::from_millis(view.now().lock.as_millis().saturating_sub(1));
        for key in named {
            if let Entry::Occupied(mut found) = view.entry(key) {
                found.set_deadline(Some(Deadline::at(before)));
                // A lookup removes an entry that has expired.
                view.entry(key);
            }
        }
        view.finish(&shared.registries);
    }
}

/// TEST commands, what enters a namespace, and requests that are queued for a later EXEC.
fn is_never_met(session: &Session, request: Request<'_>) -> bool {
    let Some(name) = request.get(0) else { return true };
    let is_queued = session.transaction.is_some()
        && table().find(name).is_some_and(|command| !command.row.flags.has(Flags::UNQUEUED));
    let is_test = name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case(b"TEST."));
    is_queued || is_test || namespace_of(request).is_some()
}

/// The request, and if it is EXEC, the requests that were queued for it.
fn executed<'a>(session: &'a Session, request: Request<'a>) -> impl Iterator<Item = Request<'a>> {
    let transaction = session.transaction.as_ref().filter(|_| is_exec(request));
    let queued = transaction.into_iter().flat_map(|transaction| &transaction.queued);
    std::iter::once(request).chain(queued.map(|queued| queued.request()))
}

fn is_exec(request: Request<'_>) -> bool {
    request.get(0).is_some_and(|name| name.eq_ignore_ascii_case(EXEC.as_bytes()))
}
