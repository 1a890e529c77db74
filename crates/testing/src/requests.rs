//! The requests of an engine whose clock is a test's: into another namespace, past faults, into the history.
//!
//! Rule    a server with the system's clock never comes here.

use std::sync::Arc;

use redlatch_core::commands::Extension;
use redlatch_core::engine::{Batch, Engine, Flow};
use redlatch_core::state::session::Session;
use redlatch_proto::resp::{Reply, Request};

use crate::connection_faults::{ConnectionFaults, Progress};
use crate::namespace::{Membership, Reach};
use crate::namespaces::Shell;
use crate::{Testing, namespace_of, recording};

/// What a request has led to.
pub enum Step {
    /// It has been executed, refused, or held up by a fault.
    Done(Progress),
    /// It comes again in this engine, which is that of another namespace.
    Move(Arc<dyn Shell>),
    /// It is not read, because the node does not answer this client.
    Unreachable,
}

/// Executes one request, as [`Engine::execute`] does.
pub fn execute(
    (engine, membership, faults): (&Engine, &Membership, &mut ConnectionFaults),
    session: &mut Session,
    request: Request<'_>,
    batch: &mut Batch,
    out: &mut Vec<u8>,
) -> Step {
    membership.touch();
    // No slot moves between the check of a request and its end.
    let _slots = engine.shared().peers.as_ref().map(|peers| peers.hold());
    let Some(testing) = Testing::of(engine.shared()) else {
        return Step::Done(Progress::Done(engine.execute(session, request, batch, out)));
    };
    if let Some(name) = namespace_of(request)
        && name != testing.namespace.as_bytes()
        && testing.is_open_to(&session.client)
    {
        return match membership.enter(name) {
            Ok(shell) => Step::Move(shell),
            Err(text) => {
                Reply::new(out, session.protocol).error(&text);
                Step::Done(Progress::Done(Flow::Next))
            }
        };
    }
    if membership.reach(&session.client) != Reach::Open {
        return Step::Unreachable;
    }
    if faults.is_new() {
        recording::request(engine.shared(), testing, session, request);
    }
    let mark = out.len();
    let progress = faults.execute(engine, session, request, batch, out);
    recording::progressed(engine.shared(), testing, session, progress, &out[mark..]);
    Step::Done(progress)
}
