//! The requests of a server with the test backend: past its faults, into its history.
//!
//! Rule    a server without the test backend never comes here.

use crate::engine::{Batch, Engine, Flow};
use crate::resp::Request;
use crate::state::session::Session;
use crate::testing::Testing;

/// Executes one request, as [`Engine::execute`] does.
pub(super) fn execute(
    (engine, _testing): (&Engine, &Testing),
    session: &mut Session,
    request: Request<'_>,
    batch: &mut Batch,
    out: &mut Vec<u8>,
) -> Flow {
    engine.execute(session, request, batch, out)
}
