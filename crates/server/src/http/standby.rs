//! What the HTTP port of a node answers while the node does not lead.
//!
//! Rule    a standby is alive, and not ready. Its metrics are those of its process: locks are the leader's.
//! Rule    the metrics are shown to who may read those of a leader with the same settings.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use redlatch_core::commands::{Sample, Shared, Value, families};
use redlatch_core::state::settings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::access::{check_host, check_reader};
use super::connection::bounded;
use super::refusal::Refusal;
use super::responses::{Body, finished, text, whole};
use super::{addresses_and_names, metrics, runtime};

/// How long a connection may take. It has one request.
const CONNECTION_MAX: Duration = Duration::from_secs(2);
/// Families that are true of a process without locks and clients of its own.
const OF_PROCESS: &[&str] = &[
    "build_info", "cluster_restored", LEADS, "uptime_in_seconds", "used_cpu_sys", "used_cpu_user",
    "used_memory_rss",
];
const LEADS: &str = "leads";

/// The HTTP of a node that does not lead.
#[derive(Debug)]
pub(crate) struct Standby {
    /// The settings, the users and the clock of the node, and no locks.
    shared: Shared,
    /// Host names that requests may be for.
    names: Vec<String>,
}

impl Standby {
    pub(crate) fn new(shared: Shared) -> Self {
        let (_, names) = addresses_and_names(&shared.settings.get(settings::HTTP_BIND));
        Self { shared, names }
    }

    /// Whether protected mode lets clients of other machines connect, because a token is set.
    pub(crate) fn has_token(&self) -> bool {
        !self.shared.settings.get(settings::HTTP_TOKEN).is_empty()
    }

    /// Answers one request, and closes the connection. `leads` says who leads, in one line.
    pub(crate) async fn serve<S>(&self, stream: S, leads: &str)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let service = service_fn(|request: Request<Incoming>| async move {
            Ok::<_, Infallible>(finished(self.response(&request, leads)))
        });
        let mut http = bounded(CONNECTION_MAX);
        let served = http.keep_alive(false).serve_connection(TokioIo::new(stream), service);
        // The peer may be gone.
        let _ = timeout(CONNECTION_MAX, served).await;
    }

    fn response<B>(&self, request: &Request<B>, leads: &str) -> Response<Body> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match request.uri().path() {
            "/healthz" => text(StatusCode::OK, leads),
            "/metrics" if is_read => {
                let allowed =
                    check_host(request, &self.names).and_then(|()| check_reader(&self.shared, request));
                match allowed {
                    Ok(_) => whole(StatusCode::OK, metrics::CONTENT_TYPE, self.metrics()),
                    Err(refusal) => refusal.response(),
                }
            }
            "/metrics" => Refusal::Method("GET").response(),
            _ => text(StatusCode::SERVICE_UNAVAILABLE, leads),
        }
    }

    /// The metric families of this process. It does not lead.
    fn metrics(&self) -> String {
        let mut all = families(&self.shared);
        all.retain(|family| OF_PROCESS.contains(&family.name));
        for family in all.iter_mut().filter(|family| family.name == LEADS) {
            family.samples = vec![Sample { label: None, value: Value::Integer(0) }];
        }
        all.extend(runtime::threads_family());
        metrics::text_of(all, None).expect("writing to a String cannot fail")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::Server;
    use crate::clock::SystemClock;

    fn standby(settings: &[(&str, &str)]) -> Standby {
        let builder =
            settings.iter().fold(Server::builder(), |builder, (name, value)| builder.set(*name, *value));
        let blueprint = builder.blueprint();
        let settings = blueprint.settings().unwrap();
        let keyspace = blueprint.empty_keyspace(&settings);
        Standby::new(Shared::new(keyspace, settings, Arc::new(SystemClock::new()), blueprint.seed))
    }

    async fn answer(standby: &Standby, request: &str) -> String {
        let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
        ours.write_all(request.as_bytes()).await.unwrap();
        standby.serve(theirs, "standby: a:1 leads").await;
        let mut answer = String::new();
        ours.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn get(path: &str, more: &str) -> String {
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
    }

    #[tokio::test]
    async fn a_standby_is_alive_and_not_ready() {
        let standby = standby(&[]);
        let health = answer(&standby, &get("/healthz", "")).await;
        assert!(
            health.starts_with("HTTP/1.1 200 ") && health.ends_with("\r\nstandby: a:1 leads\n"),
            "{health}"
        );
        for path in ["/readyz", "/", "/api/locks", "/nothing"] {
            let refused = answer(&standby, &get(path, "")).await;
            assert!(refused.starts_with("HTTP/1.1 503 ") && refused.ends_with("a:1 leads\n"), "{refused}");
        }
        let take = "POST /api/locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}";
        let refused = answer(&standby, take).await;
        assert!(refused.starts_with("HTTP/1.1 503 ") && refused.ends_with("a:1 leads\n"), "{refused}");
    }

    #[tokio::test]
    async fn its_metrics_are_those_of_its_process() {
        let metrics = answer(&standby(&[]), &get("/metrics", "")).await;
        assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.ends_with("# EOF\n"), "{metrics}");
        let lines = || metrics.lines().filter(|line| line.starts_with("redlatch_"));
        let has = |start: &str| lines().any(|line| line.starts_with(start));
        assert!(has("redlatch_leads 0"), "{metrics}");
        for name in
            ["build_info{version=\"", "uptime_in_seconds ", "used_cpu_user_total ", "process_threads "]
        {
            assert!(has(&format!("redlatch_{name}")), "{name}: {metrics}");
        }
        assert!(!metrics.contains("lock") && !metrics.contains("clients"), "{metrics}");
    }

    #[tokio::test]
    async fn its_metrics_are_for_those_who_may_read_them_at_a_leader() {
        let standby = standby(&[("http-token", "t"), ("http-bind", "127.0.0.1 locks.example.com")]);
        let host = "GET /metrics HTTP/1.1\r\nHost: locks.example.com\r\nAuthorization: Bearer t\r\n\r\n";
        for (request, status) in [
            (get("/metrics", ""), 401),
            (get("/metrics", "Authorization: Bearer x\r\n"), 401),
            (get("/metrics", "Authorization: Bearer t\r\n"), 200),
            (get("/metrics", "Authorization: Bearer t\r\nOrigin: http://other\r\n"), 403),
            (host.to_owned(), 200),
            (host.replace("locks.", "other."), 421),
            (host.replace("GET", "POST"), 405),
            (get("/healthz", ""), 200),
            ("\u{1}\r\n\r\n".to_owned(), 400),
            (get("/metrics", &"x: y\r\n".repeat(super::super::limits::HEADERS_MAX + 1)), 431),
        ] {
            let said = answer(&standby, &request).await;
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {said}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_arrive_ends_the_connection() {
        let (mut ours, theirs) = tokio::io::duplex(4096);
        ours.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
        standby(&[]).serve(theirs, "standby").await;
        let mut rest = Vec::new();
        assert!(ours.read_to_end(&mut rest).await.is_ok());
    }
}
