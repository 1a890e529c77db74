//! What a server with the test backend notes in the history of its namespace.
//!
//! Rule    the time of the system is read here, and only here, for a history.

use redlatch_core::commands::Shared;
use redlatch_core::engine::Flow;
use redlatch_core::state::session::Session;
use redlatch_proto::resp::Request;

use crate::clock::wall_micros;
use crate::commands::{moment, note_request};
use crate::connection_faults::Progress;
use crate::{Hit, Moment, Testing};

/// Notes that a client has gone.
pub fn disconnected(shared: &Shared, session: &Session) {
    if let Some(testing) = Testing::of(shared) {
        testing.holds.set(session.client.id, None);
        testing.recorder.disconnected(now(shared, testing), session.client.id);
    }
}

/// Notes that the node has crashed: its clients have gone.
pub(crate) fn crashed(shared: &Shared) {
    if let Some(testing) = Testing::of(shared) {
        testing.recorder.crashed(now(shared, testing));
    }
}

/// Notes a request, before it is carried out.
pub(crate) fn request(shared: &Shared, testing: &Testing, session: &Session, request: Request<'_>) {
    testing.recorder.set_full(shared.is_short_of_memory());
    note_request(testing, &session.client, (shared.clock.now(), wall_micros()), request);
}

/// Notes the reply to the request of a session, if there is one now.
pub(crate) fn progressed(
    shared: &Shared,
    testing: &Testing,
    session: &Session,
    progress: Progress,
    reply: &[u8],
) {
    match progress {
        Progress::Done(Flow::Next | Flow::Close) if reply.is_empty() => {
            testing.recorder.unanswered(now(shared, testing), &session.client);
        }
        Progress::Done(Flow::Next | Flow::Close) | Progress::Held { is_done: true, .. } => {
            resumed(shared, session, reply);
        }
        // The request waits, or is tried again.
        Progress::Done(Flow::Wait | Flow::Again(_) | Flow::Offload)
        | Progress::WaitAndRepeat
        | Progress::Held { is_done: false, .. } => {}
    }
}

/// Notes the reply to a request of a session, if the server has a test backend and no fault has taken the reply.
pub(crate) fn resumed(shared: &Shared, session: &Session, reply: &[u8]) {
    if let Some(testing) = Testing::of(shared)
        && !reply.is_empty()
    {
        testing.recorder.reply(now(shared, testing), &session.client, reply);
    }
}

/// Notes that a fault acts at the request of a session.
pub(crate) fn fault(shared: &Shared, session: &Session, hit: &Hit) {
    if let Some(testing) = Testing::of(shared) {
        let text = hit.action.to_string();
        testing.recorder.fault(now(shared, testing), &session.client, hit.id, text);
    }
}

/// The moment on the node of this engine.
pub(crate) fn now(shared: &Shared, testing: &Testing) -> Moment {
    moment(testing, shared.clock.now(), wall_micros())
}
