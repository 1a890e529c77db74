//! Spans on the wire: the binary sends them to a collector, which decodes them with the official crate.
//!
//! Time     a test waits for an answer, a line of the log or the end of the process. The last spans are sent at the end.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, mpsc};

use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use redis_protocol::resp2::types::{OwnedFrame, Resp2Frame};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tonic::codegen::Service;
use tonic::{Request, Response, Status};

use crate::support::binary::{Directory, Running, redlatch};
use crate::support::certificates::Authority;
use crate::support::wire::Link;

/// A collector that hands on what it gets.
#[derive(Clone, Debug)]
struct Collector(mpsc::Sender<ExportTraceServiceRequest>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.0.send(request.into_inner()).map_err(|_| Status::cancelled("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts one on a free port. It ends with the process of the tests.
    fn start() -> (SocketAddr, mpsc::Receiver<ExportTraceServiceRequest>) {
        Self::start_with(None)
    }

    /// Like [`Self::start`]; over TLS if there is a configuration for it.
    fn start_with(tls: Option<ServerConfig>) -> (SocketAddr, mpsc::Receiver<ExportTraceServiceRequest>) {
        let tls = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        listener.set_nonblocking(true).unwrap();
        let (sender, received) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((stream, _)) = listener.accept().await {
                    let service = TraceServiceServer::new(Self(sender.clone()));
                    let answer = service_fn(move |request: hyper::Request<Incoming>| {
                        let mut service = service.clone();
                        async move { Ok::<_, Infallible>(service.call(request).await.unwrap()) }
                    });
                    let connection = http2::Builder::new(TokioExecutor::new());
                    match &tls {
                        None => {
                            tokio::spawn(connection.serve_connection(TokioIo::new(stream), answer));
                        }
                        Some(tls) => {
                            let opening = tls.accept(stream);
                            tokio::spawn(async move {
                                let stream = TokioIo::new(opening.await.unwrap());
                                connection.serve_connection(stream, answer).await
                            });
                        }
                    }
                }
            });
        });
        (address, received)
    }
}

/// A connection to a server.
fn client(server: &Running) -> Link {
    Link::to(server.address().parse().unwrap()).unwrap()
}

/// What was received, once the server has ended.
struct Spans(Vec<Span>);

impl Spans {
    /// The only span of that name with this attribute.
    fn only(&self, name: &str, attribute: (&str, &str)) -> &Span {
        let mut found =
            self.0.iter().filter(|span| span.name == name && text(span, attribute.0) == attribute.1);
        let first = found.next().unwrap_or_else(|| panic!("no {name} with {attribute:?}: {:#?}", self.0));
        assert!(found.next().is_none(), "two of {name} with {attribute:?}");
        first
    }
}

/// An attribute as text; empty if there is none.
fn text(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::BoolValue(flag)) => flag.to_string(),
        _ => String::new(),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The trace and the parent of a span.
fn place(span: &Span) -> (String, String) {
    (hex(&span.trace_id), hex(&span.parent_span_id))
}

fn links(span: &Span) -> Vec<(String, String)> {
    span.links.iter().map(|link| (hex(&link.trace_id), hex(&link.span_id))).collect()
}

const TRACE_A: (&str, &str) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
const TRACE_B: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");

fn meta((trace, span): (&str, &str)) -> String {
    format!("META host somewhere traceparent 00-{trace}-{span}-01")
}

fn owned((trace, span): (&str, &str)) -> (String, String) {
    (trace.to_owned(), span.to_owned())
}

/// A server whose client B waits for the lock of A and gets it; then the server ends.
fn hand_over(after: impl FnOnce(&mut Link)) -> (Spans, Vec<ExportTraceServiceRequest>) {
    let (collector, received) = Collector::start();
    hand_over_on(start(&format!("http://{collector}"), &[]), received, after)
}

fn start(endpoint: &str, environment: &[(&str, &str)]) -> Running {
    let mut command = redlatch();
    command.args(["--port", "auto", "--otlp-endpoint", endpoint]).envs(environment.iter().copied());
    Running::start(&mut command)
}

/// Like [`hand_over`], on a server that sends its spans there.
fn hand_over_on(
    server: Running,
    received: mpsc::Receiver<ExportTraceServiceRequest>,
    after: impl FnOnce(&mut Link),
) -> (Spans, Vec<ExportTraceServiceRequest>) {
    let [mut holder, mut waiter] = [(); 2].map(|()| client(&server));
    holder.ask_line(&format!("LOCK.ACQUIRE job A {}", meta(TRACE_A))).unwrap();
    let wait = format!("LOCK.ACQUIRE job B WAIT 60000 {}", meta(TRACE_B));
    waiter.send(&wait.split(' ').collect::<Vec<_>>()).unwrap();
    while holder.ask_line("LOCK.WAITERS job").unwrap() == OwnedFrame::Array(Vec::new()) {}
    assert_eq!(holder.ask_line("LOCK.RELEASE job A").unwrap(), OwnedFrame::Integer(1));
    assert!(matches!(waiter.next().unwrap(), OwnedFrame::Array(_)), "it is granted");
    after(&mut holder);
    drop((holder, waiter));
    server.signal("TERM");
    assert_eq!(server.end(), Some(0));
    // The server has waited for the answers of the collector.
    let requests: Vec<_> = received.try_iter().collect();
    let all = requests.iter().flat_map(|request| &request.resource_spans);
    let all = all.flat_map(|resource| &resource.scope_spans).flat_map(|scope| scope.spans.clone());
    (Spans(all.collect()), requests)
}

#[test]
fn the_wait_of_a_client_is_part_of_its_trace_and_links_to_that_of_the_holder() {
    let (spans, requests) = hand_over(|_| {});
    let resource = requests[0].resource_spans[0].resource.clone().unwrap();
    let name = resource.attributes.iter().find(|attribute| attribute.key == "service.name").unwrap();
    assert_eq!(name.value.clone().unwrap().value, Some(Value::StringValue("redlatch".to_owned())));

    let wait = spans.only("wait", ("owner", "B"));
    assert_eq!(place(wait), owned(TRACE_B));
    assert!(links(wait).contains(&owned(TRACE_A)), "{wait:#?}");
    let facts =
        ["key", "holder", "holder_token", "position", "kind", "outcome", "token"].map(|key| text(wait, key));
    assert_eq!(facts, ["job", "A", "1", "1", "exclusive", "granted", "2"]);
    assert!(wait.end_time_unix_nano >= wait.start_time_unix_nano);

    let grant = spans.only("grant", ("owner", "B"));
    assert_eq!(place(grant), (TRACE_B.0.to_owned(), hex(&wait.span_id)));
    assert_eq!(text(grant, "token"), "2");
    assert_eq!(place(spans.only("grant", ("owner", "A"))), owned(TRACE_A));
}

#[test]
fn a_command_is_a_child_of_its_connection_and_the_clients_spans_link_to_it() {
    let (spans, _) = hand_over(|_| {});
    let release = spans.only("command", ("command", "lock.release"));
    let connection = spans.only("connection", ("client", &text(release, "client")));
    assert_eq!(place(release), (hex(&connection.trace_id), hex(&connection.span_id)));
    assert_eq!(hex(&connection.parent_span_id), "");
    assert_eq!(text(release, "key"), "job");
    assert!(text(connection, "peer").starts_with("127.0.0.1:"));

    let grant = spans.only("grant", ("owner", "A"));
    let commands = spans.0.iter().filter(|span| span.name == "command");
    let acquired = commands.filter(|span| text(span, "command") == "lock.acquire");
    let mut acquired = acquired.map(|span| (hex(&span.trace_id), hex(&span.span_id)));
    assert!(acquired.any(|command| links(grant) == [command]), "{grant:#?}");
}

#[test]
fn a_bad_traceparent_is_ignored_and_long_names_are_cut() {
    let (long, bad) = ("k".repeat(500), format!("00-{}-{}-01", "0".repeat(32), TRACE_A.1));
    let (spans, _) = hand_over(|client| {
        let granted = client.ask_line(&format!("LOCK.ACQUIRE {long} C META traceparent {bad}")).unwrap();
        assert!(matches!(granted, OwnedFrame::Array(_)), "{granted:?}");
    });
    let grant = spans.only("grant", ("owner", "C"));
    let cut = format!("{}...", "k".repeat(64));
    assert_eq!(text(grant, "key"), cut);
    let command = spans.only("command", ("key", &cut));
    assert_eq!(place(grant), (hex(&command.trace_id), hex(&command.span_id)));
    assert_eq!(links(grant), []);
}

#[test]
fn a_collector_that_is_away_is_a_line_of_the_log_and_no_reply_waits_for_it() {
    // A port on which nobody listens: its listener is closed before the server starts.
    let away = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{away}");
    let mut server = start(&endpoint, &[]);
    let mut pinging = client(&server);
    // More spans than the queue has room for.
    for _ in 0..5_000 {
        assert_eq!(pinging.ask_line("PING").unwrap().as_str(), Some("PONG"));
    }
    server.wait_for("Spans cannot be sent to the collector");
    server.signal("TERM");
    let (code, said) = server.end_with_log();
    assert_eq!(code, Some(0));
    assert_eq!(said.matches("Spans cannot be sent").count(), 1, "{said}");
}

#[test]
fn a_collector_is_reached_over_tls_if_the_system_trusts_it() {
    let (directory, authority) = (Directory::new(), Authority::new("collectors"));
    let (certificate, key) = authority.vouch("collector");
    let certificates = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(certificates, key).unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let (collector, received) = Collector::start_with(Some(tls));
    let trusted = directory.write("authorities.pem", &authority.pem);
    let server = start(&format!("https://{collector}"), &[("SSL_CERT_FILE", &trusted)]);
    let (spans, _) = hand_over_on(server, received, |_| {});
    assert_eq!(place(spans.only("wait", ("owner", "B"))), owned(TRACE_B));
}

#[test]
fn a_sampler_chooses_traces_and_that_of_a_client_is_as_the_client_says() {
    let (collector, received) = Collector::start();
    let sampler = [("OTEL_TRACES_SAMPLER", "parentbased_always_off")];
    let (spans, _) = hand_over_on(start(&format!("http://{collector}"), &sampler), received, |_| {});
    let mut names: Vec<_> = spans.0.iter().map(|span| &*span.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["grant", "grant", "wait"], "those of the traces of A and B");
}

#[test]
fn a_second_signal_ends_the_process_before_a_collector_has_answered() {
    // Connections are accepted, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut server = start(&format!("http://{}", silent.local_addr().unwrap()), &[]);
    assert_eq!(client(&server).ask_line("PING").unwrap().as_str(), Some("PONG"));
    server.signal("TERM");
    server.wait_for("The last spans are sent");
    server.signal("TERM");
    let (code, said) = server.end_with_log();
    assert!(code == Some(1) && said.contains("A second signal ends the process at once"), "{code:?}: {said}");
}

#[test]
fn an_endpoint_that_is_none_is_refused_at_the_start() {
    for endpoint in ["127.0.0.1:4317", "ftp://127.0.0.1:4317", "http://", "https://"] {
        let refused = redlatch().args(["--port", "auto", "--otlp-endpoint", endpoint]).output().unwrap();
        let said = crate::support::binary::refusal(&refused);
        assert!(said.contains(&format!("otlp-endpoint '{endpoint}'")), "{said}");
    }
}

#[test]
fn a_system_without_certificate_authorities_is_named_as_the_cause() {
    let mut command = redlatch();
    command.args(["--port", "auto", "--otlp-endpoint", "https://127.0.0.1:4317"]);
    let refused = command.env("SSL_CERT_FILE", "/dev/null").env_remove("SSL_CERT_DIR").output().unwrap();
    let said = crate::support::binary::refusal(&refused);
    let expected = "redlatch: otlp-endpoint 'https://127.0.0.1:4317': https takes certificate authorities, and this \
                    system has none: mount a file with them, and name it in SSL_CERT_FILE";
    assert!(said.contains(expected) && !said.contains("must be"), "{said}");
}
