//! `/healthz` and `/readyz`, for probes.
//!
//! Rule    a server that grants no locks is alive and not ready: a restart would not help it. The reasons that the
//!         server knows come first; then a write is tried, with a deadline.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use redlatch_core::state::slot_groups::SlotGroup;
use redlatch_core::types::slot::slot;
use tokio::time::Instant;

use super::HttpContext;
use super::questions::{ask, recorded};
use super::responses::{Body, text};

/// Whether the process serves: always, since this is an answer.
pub(super) fn alive(_: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    text(StatusCode::OK, "ok")
}

/// Whether locks are granted; the reason if they are not.
pub(super) async fn ready(context: Arc<HttpContext>) -> Response<Body> {
    match reason_not_ready(&context).await {
        None => text(StatusCode::OK, "ready"),
        Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

async fn reason_not_ready(context: &HttpContext) -> Option<String> {
    if context.server.has_stopped() {
        return Some("stopping".into());
    }
    let now = context.server.clock().now().lock;
    match context.server.engine.shared().reason_not_ready(now) {
        Some(reason) => Some(reason),
        None => probe(context).await,
    }
}

/// Tries a write that changes nothing, on the way of the requests of clients, and waits until the journal has what came
/// before it. Returns why it is not answered. Everybody may ask, so a result holds for [`PROBE_EVERY`].
async fn probe(context: &HttpContext) -> Option<String> {
    let mut probed = context.probed.lock().await;
    if let Some((at, result)) = &*probed
        && at.elapsed() < PROBE_EVERY
    {
        return result.clone();
    }
    let key = probe_key(context.server.engine.shared().group());
    let write: [&[u8]; 4] = [b"SETRANGE", key.as_bytes(), b"0", b""];
    let answered = async { ask(context, &write).await.map(drop).and(recorded(context).await) };
    let result = answered.await.err().map(|error| format!("a write is not answered: {}", error.text()));
    *probed = Some((Instant::now(), result.clone()));
    result
}

/// The key of the write that changes nothing. It is of the group that is served here: another group would be asked for it.
fn probe_key(group: Option<&SlotGroup>) -> String {
    let is_here = |key: &String| group.is_none_or(|group| group.has(slot(key.as_bytes())));
    (0_u64..).map(|number| format!("\0redlatch /readyz {number}")).find(is_here).unwrap_or_default()
}

/// The least time between two such writes.
const PROBE_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;
    use crate::Server;
    use redlatch_proto::clock::WallTime;

    /// The status and the text of `/readyz`.
    fn probe(context: &Arc<HttpContext>) -> (u16, String) {
        let (head, body) = at_once(ready(Arc::clone(context))).into_parts();
        let body = at_once(body.collect()).unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8_lossy(&body).trim_end().to_owned())
    }

    /// The result of a future.
    fn at_once<F: Future>(future: F) -> F::Output {
        crate::runtime().unwrap().block_on(future)
    }

    #[test]
    fn the_leader_of_each_group_is_asked_for_a_key_of_its_own() {
        for group in SlotGroup::all(64) {
            assert!(group.has(slot(probe_key(Some(&group)).as_bytes())), "{group:?}");
        }
    }

    #[test]
    fn a_server_says_why_it_is_not_ready() {
        let builder = Server::builder().manual_clock(WallTime::from_millis(1_700_000_000_000));
        let server = builder.start_blocking().unwrap();
        let context = HttpContext::new(server.context().clone(), Arc::clone(&server.workers), Vec::new());
        let context = Arc::new(context);
        let shared = context.server.engine.shared();
        assert_eq!(probe(&context), (200, "ready".to_owned()));
        assert_eq!(server.keys().len(), 0, "the write has changed nothing");

        let now = context.server.clock().now().lock;
        shared.begin_quarantine(now + 5_000, "another boot");
        let text = "quarantine: no lock is granted or extended for another 5000 ms (another boot)";
        assert_eq!(probe(&context), (503, text.to_owned()));
        server.clock().advance_blocking(std::time::Duration::from_millis(5_001));
        assert_eq!(probe(&context).0, 200);

        shared.locks.quarantine.set_disk_error("No space left on device");
        let text = "the journal cannot be written: No space left on device";
        assert_eq!(probe(&context), (503, text.to_owned()));
        shared.locks.quarantine.clear_disk_error();
        assert_eq!(probe(&context).0, 200);

        let now = context.server.clock().now().lock;
        shared.pause.begin(now + 700, true, now);
        assert_eq!(probe(&context), (503, "a pause holds requests up for another 700 ms".to_owned()));
        shared.pause.end();
        server.keys().set("k", "x".repeat(100_000), None);
        shared.settings.set("maxmemory", "50000").unwrap();
        let text = "maxmemory: requests that could need memory get -OOM";
        assert_eq!(probe(&context), (503, text.to_owned()));
        shared.settings.set("maxmemory", "0").unwrap();
        assert_eq!(probe(&context).0, 200);

        server.stop();
        assert_eq!(probe(&context), (503, "stopping".to_owned()));
        assert_eq!(alive(&context, &Request::default()).status(), 200);
    }

    #[test]
    fn a_server_whose_workers_do_not_answer_is_not_ready() {
        let server = Server::builder().start_blocking().unwrap();
        let context = HttpContext::new(server.context().clone(), Arc::clone(&server.workers), Vec::new());
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let held_up = context.workers.next().spawn(async move { held.recv().is_err() });
        // Time passes while everybody waits.
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let reason = reason_not_ready(&context).await;
            assert_eq!(reason.as_deref(), Some("a write is not answered: no answer within 2s"));
            drop(let_go);
            assert!(held_up.await.unwrap(), "it was let go");
            assert_eq!(reason_not_ready(&context).await, reason, "tried a moment ago");
            tokio::time::advance(PROBE_EVERY).await;
            // From here on the worker has all the time it needs.
            tokio::time::resume();
            assert_eq!(reason_not_ready(&context).await, None);
        });
    }
}
