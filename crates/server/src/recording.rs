//! What a server with the test backend notes in the history of its namespace.
//!
//! Rule    the time of the system is read here, and only here, for a history.

use redlatch_core::engine::{Engine, Flow};
use redlatch_core::state::session::Session;
use redlatch_proto::resp::Request;
use redlatch_testing::commands::{moment, note_request};
use redlatch_testing::{Hit, Moment, Testing};

use super::clock::wall_micros;
use super::faults::Progress;

/// Notes that a client has gone.
pub(super) fn disconnected(engine: &Engine, session: &Session) {
    if let Some(testing) = Testing::of(engine.shared()) {
        testing.holds.set(session.client.id, None);
        testing.recorder.disconnected(now(engine, testing), session.client.id);
    }
}

/// Notes that the node has crashed: its clients have gone.
pub(super) fn crashed(engine: &Engine) {
    if let Some(testing) = Testing::of(engine.shared()) {
        testing.recorder.crashed(now(engine, testing));
    }
}

/// Notes a request, before it is carried out.
pub(super) fn request(engine: &Engine, testing: &Testing, session: &Session, request: Request<'_>) {
    note_request(testing, &session.client, (engine.shared().clock.now(), wall_micros()), request);
}

/// Notes the reply to the request of a session, if there is one now.
pub(super) fn progressed(
    engine: &Engine,
    testing: &Testing,
    session: &Session,
    progress: Progress,
    reply: &[u8],
) {
    match progress {
        Progress::Done(Flow::Next | Flow::Close) if reply.is_empty() => {
            testing.recorder.unanswered(now(engine, testing), &session.client);
        }
        Progress::Done(Flow::Next | Flow::Close) | Progress::Held { is_done: true, .. } => {
            resumed(engine, session, reply);
        }
        // The request waits, or is tried again.
        Progress::Done(Flow::Wait | Flow::Again(_) | Flow::Offload)
        | Progress::WaitAndRepeat
        | Progress::Held { is_done: false, .. } => {}
    }
}

/// Notes the reply to a request of a session, if the server has a test backend and no fault has taken the reply.
pub(super) fn resumed(engine: &Engine, session: &Session, reply: &[u8]) {
    if let Some(testing) = Testing::of(engine.shared())
        && !reply.is_empty()
    {
        testing.recorder.reply(now(engine, testing), &session.client, reply);
    }
}

/// Notes that a fault acts at the request of a session.
pub(super) fn fault(engine: &Engine, session: &Session, hit: &Hit) {
    if let Some(testing) = Testing::of(engine.shared()) {
        let text = hit.action.to_string();
        testing.recorder.fault(now(engine, testing), &session.client, hit.id, text);
    }
}

/// The moment on the node of this engine.
pub(super) fn now(engine: &Engine, testing: &Testing) -> Moment {
    moment(testing, engine.shared().clock.now(), wall_micros())
}
