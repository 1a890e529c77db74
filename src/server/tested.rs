//! The requests of a server with the test backend: past its faults, into its history.
//!
//! Rule    a server without the test backend never comes here.

use super::recording;
use crate::engine::{Batch, Engine, Flow};
use crate::resp::Request;
use crate::state::session::Session;
use crate::testing::Testing;

/// Executes one request, as [`Engine::execute`] does.
pub(super) fn execute(
    (engine, testing): (&Engine, &Testing),
    session: &mut Session,
    request: Request<'_>,
    batch: &mut Batch,
    out: &mut Vec<u8>,
) -> Flow {
    recording::request(engine, testing, session, request);
    let mark = out.len();
    let flow = engine.execute(session, request, batch, out);
    recording::replied(engine, testing, session, flow, &out[mark..]);
    flow
}
