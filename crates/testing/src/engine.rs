//! What a server with the test backend is asked: which fault a request meets, which keys it has, when the next wait ends.
//!
//! Rule    a request is met when it is executed: what is queued after MULTI is met together with its EXEC.

use bytes::Bytes;
use redlatch_core::commands::row::Flags;
use redlatch_core::commands::{EXEC, Shared};
use redlatch_core::keyspace::{Entry, ShardSet, View};
use redlatch_core::state::clients::Client;
use redlatch_core::state::session::Session;
use redlatch_proto::clock::{Deadline, LockTime};
use redlatch_proto::resp::Request;
use smallvec::SmallVec;

use crate::{Asked, AskedScript, Hit, Testing, namespace_of};

/// A request with its command and its keys.
struct Seen<'a> {
    command: &'static str,
    keys: SmallVec<[&'a [u8]; 4]>,
    script: Option<AskedScript<'a>>,
}

/// The fault that acts at this request, if one does.
pub(crate) fn meet_fault(shared: &Shared, session: &Session, request: Request<'_>) -> Option<Hit> {
    let testing = Testing::of(shared)?;
    if testing.faults.is_empty() || is_never_met(shared, session, request) {
        return None;
    }
    let seen: Vec<_> = executed(session, request).map(|request| see(shared, request)).collect();
    let asked: Vec<_> = seen
        .iter()
        .map(|seen| Asked { command: seen.command, keys: &seen.keys, script: seen.script })
        .collect();
    testing.faults.meet(&session.client, testing.node, &asked)
}

/// The keys of the request, and of what EXEC executes for it.
pub(crate) fn keys_of(shared: &Shared, session: &Session, request: Request<'_>) -> Vec<Bytes> {
    executed(session, request)
        .flat_map(|request| see(shared, request).keys)
        .map(Bytes::copy_from_slice)
        .collect()
}

/// What faults see of a request. A script that is not loaded does not run: it is answered with NOSCRIPT, and its client
/// sends it again.
fn see<'a>(shared: &Shared, request: Request<'a>) -> Seen<'a> {
    let Some(command) = shared.commands.of_request(request) else {
        return Seen { command: "", keys: SmallVec::new(), script: None };
    };
    let keys = command.positions(request).map(|at| request.word(at)).collect();
    let script = request.get(1).and_then(|word| match command.name.as_str() {
        "eval" | "eval_ro" => Some(AskedScript::Text(word)),
        "evalsha" | "evalsha_ro" if shared.scripts.cache.has(word) => Some(AskedScript::Sha(word)),
        _ => None,
    });
    Seen { command: &command.name, keys, script }
}

/// Ends these keys as if their deadlines had passed: with the `expired` event, and a lock goes to the next in its
/// queue.
/// The thread waits for a long call that holds one of them.
pub(crate) fn expire_keys(shared: &Shared, database: u16, keys: &[Bytes]) {
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

/// When the waiting command of a client times out, or a fault holds it up no longer; `None` if neither has a limit.
pub(crate) fn waits_until(shared: &Shared, client: &Client) -> Option<LockTime> {
    let held = Testing::of(shared).and_then(|testing| testing.holds.until(client.id));
    held.or_else(|| client.waits_until())
}

/// The next time at which a waiting command, a hold or a pause ends. A manual clock stops at these times.
pub(crate) fn next_wait(shared: &Shared) -> Option<LockTime> {
    let now = shared.clock.now().lock;
    let clients = shared.registries.clients.all().into_iter();
    let calls = clients.filter_map(|client| waits_until(shared, &client));
    calls.chain(shared.pause.holds(|| true, now)).filter(|until| *until > now).min()
}

/// TEST commands, what enters a namespace, and requests that are queued for a later EXEC.
fn is_never_met(shared: &Shared, session: &Session, request: Request<'_>) -> bool {
    let Some(name) = request.get(0) else { return true };
    let is_queued = session.transaction.is_some()
        && shared.commands.find(name).is_some_and(|command| !command.row.flags.has(Flags::UNQUEUED));
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
