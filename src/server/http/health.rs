//! `/healthz` and `/readyz`, for probes.
//!
//! Rule    a server in quarantine is alive and not ready, and so is one whose disk refuses writes, or on which a script runs
//!         for too long: a restart would help none.

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};

use super::HttpContext;
use super::responses::{Body, text};
use crate::clock::LockTime;
use crate::commands::Shared;

/// Whether the process serves: always, since this is an answer.
pub(super) fn alive(_: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    text(StatusCode::OK, "ok")
}

/// Whether locks are granted; the reason if they are not.
pub(super) fn ready(context: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    match reason_not_ready(context) {
        None => text(StatusCode::OK, "ready"),
        Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

fn reason_not_ready(context: &HttpContext) -> Option<String> {
    let shared = context.server.engine.shared();
    let now = context.server.clock().now().lock;
    if context.server.has_stopped() {
        return Some("stopping".into());
    }
    if let Some(error) = shared.quarantine.disk_error() {
        return Some(format!("the journal cannot be written: {error}"));
    }
    if let Some(reason) = slow_script(shared, now) {
        return Some(reason);
    }
    let until = shared.quarantine.until(now)?;
    let (left_ms, reason) = (until.millis_since(now), shared.quarantine.reason());
    Some(format!("quarantine: no lock is granted or extended for another {left_ms} ms ({reason})"))
}

/// What is said of a script that has run for longer than `busy-reply-threshold`.
fn slow_script(shared: &Shared, now: LockTime) -> Option<String> {
    let (script, age_ms) = shared.running.script_and_age(now)?;
    shared.settings.busy_millis().filter(|limit| age_ms >= *limit)?;
    let (client, kill) = (script.client.id, if script.is_function() { "FUNCTION" } else { "SCRIPT" });
    Some(format!(
        "a script ({}) of client {client} has run for {age_ms} ms: locks in its shards cannot be had ({kill} KILL ends it)",
        script.name
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;
    use crate::clock::WallTime;
    use crate::server::Server;

    /// The status and the text of `/readyz`.
    fn probe(context: &HttpContext) -> (u16, String) {
        let (head, body) = ready(context, &Request::default()).into_parts();
        let body = at_once(body.collect()).unwrap().to_bytes();
        (head.status.as_u16(), String::from_utf8_lossy(&body).trim_end().to_owned())
    }

    /// The result of a future that does not wait.
    fn at_once<F: Future>(future: F) -> F::Output {
        crate::server::runtime().unwrap().block_on(future)
    }

    #[test]
    fn a_server_is_not_ready_in_quarantine_while_the_disk_refuses_writes_and_when_it_stops() {
        let builder = Server::builder().manual_clock(WallTime::from_millis(1_700_000_000_000));
        let server = builder.start_blocking().unwrap();
        let context = HttpContext::new(server.context().clone(), Arc::clone(&server.workers), Vec::new());
        let shared = context.server.engine.shared();
        assert_eq!(probe(&context), (200, "ready".to_owned()));

        let now = context.server.clock().now().lock;
        shared.begin_quarantine(now + 5_000, "another boot");
        let text = "quarantine: no lock is granted or extended for another 5000 ms (another boot)";
        assert_eq!(probe(&context), (503, text.to_owned()));
        server.clock().advance_blocking(std::time::Duration::from_millis(5_001));
        assert_eq!(probe(&context).0, 200);

        shared.quarantine.set_disk_error("No space left on device");
        let text = "the journal cannot be written: No space left on device";
        assert_eq!(probe(&context), (503, text.to_owned()));
        shared.quarantine.clear_disk_error();
        assert_eq!(probe(&context).0, 200);

        server.stop();
        assert_eq!(probe(&context), (503, "stopping".to_owned()));
        assert_eq!(alive(&context, &Request::default()).status(), 200);
    }
}
