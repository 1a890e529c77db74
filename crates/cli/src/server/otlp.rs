//! Spans for an OpenTelemetry collector: `otlp-endpoint`. docs/logging.md names them and their attributes.
//!
//! Owns    the layer that makes spans of OpenTelemetry of those of `tracing`, and the two threads that send them.
//! Rule    a span that is over enters a queue of bounded length. If that is full, because the collector is slow or away, the
//!         span is dropped: no request waits for a collector.
//! Rule    the field `traceparent` is the parent of a span, and `links` are its links. Its own parent becomes a link, too.
//! Bounds  texts are cut. A request to the collector, and the end of the process, wait for seconds at most.

use std::fmt;
use std::time::{Duration, Instant};

use opentelemetry::trace::{
    Link, SpanBuilder, SpanContext, SpanKind, TraceContextExt, TraceState, Tracer, TracerProvider,
};
use opentelemetry::{Context, KeyValue, SpanId, TraceFlags, TraceId, Value};
use opentelemetry_otlp::tonic_types::transport::ClientTlsConfig;
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanData, SpanExporter as Export,
};
use redlatch_core::state::log_limiter::LogLimiter;
use redlatch_core::state::trace::SPANS;
use redlatch_proto::clock::LockTime;
use tokio::runtime::Runtime;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::FilterFn;
use tracing_subscriber::layer;
use tracing_subscriber::registry::LookupSpan;

use super::log::Spans;
use crate::common::Fault;

/// Spans that wait to be sent: about a megabyte.
const QUEUE_SPANS_MAX: usize = 4_096;
/// Spans in one request to the collector.
const BATCH_SPANS_MAX: usize = 512;
/// How long a span waits for others, which are sent in the same request.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long a request to the collector may take.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(3);
/// How long the end of the process waits for the last spans.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(3);
/// Characters of a text in an attribute. Names are shorter: see `state::log_name`.
const TEXT_CHARS_MAX: usize = 256;
/// What the exporter says where the system has no certificate authorities, as in an image without a distribution.
const NO_AUTHORITIES: &str = "no native certs found";
/// What to do then.
const MOUNT_AUTHORITIES: &str = "https takes certificate authorities, and this system has none: mount \
    a file with them, and name it in SSL_CERT_FILE";

/// Sends spans until [`Exporter::end`].
#[derive(Debug)]
pub(super) struct Exporter {
    provider: SdkTracerProvider,
    runtime: Runtime,
}

impl Exporter {
    /// Sends the last spans, but not for long. Returns true if `hurry` comes before they are sent: then they are lost.
    pub(super) fn end(self, hurry: impl Future<Output = ()>) -> bool {
        let Self { provider, runtime } = self;
        // An error means that the collector is away, which the log says already. It ends on a thread of its own, because it
        // blocks, also when it is dropped.
        let ended = runtime.spawn_blocking(move || drop(provider.shutdown_with_timeout(FLUSH_TIME_MAX)));
        let is_hurried = runtime.block_on(async {
            tokio::select! {
                biased;
                () = hurry => true,
                _ = ended => false,
            }
        });
        runtime.shutdown_background();
        is_hurried
    }
}

/// The layer that takes the spans, and what sends them to `endpoint`; `None` if that is empty. The collector need not be
/// there.
///
/// # Errors
/// The endpoint is no address of a collector, or there are no threads left.
pub(super) fn open(endpoint: &str) -> Result<Option<(Spans, Exporter)>, Fault> {
    if endpoint.is_empty() {
        return Ok(None);
    }
    let refuse = |why: &dyn fmt::Display| {
        format!("otlp-endpoint '{endpoint}': must be like http://127.0.0.1:4317: {why}")
    };
    let is_tls = endpoint.starts_with("https://");
    if !is_tls && !endpoint.starts_with("http://") {
        return Err(refuse(&"it begins with neither http:// nor https://"));
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).thread_name("otlp").enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    // The connection belongs to the runtime in which it is made.
    let entered = runtime.enter();
    let mut exporter =
        SpanExporter::builder().with_tonic().with_endpoint(endpoint).with_timeout(REQUEST_TIME_MAX);
    if is_tls {
        exporter = exporter.with_tls_config(ClientTlsConfig::new().with_native_roots());
    }
    let exporter = exporter.build().map_err(|error| match error.to_string() {
        why if why.contains(NO_AUTHORITIES) => format!("otlp-endpoint '{endpoint}': {MOUNT_AUTHORITIES}"),
        why => refuse(&why),
    })?;
    drop(entered);
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_SPANS_MAX)
        .with_max_export_batch_size(BATCH_SPANS_MAX)
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let exporter = Reporting { exporter, failures: LogLimiter::default(), started: Instant::now() };
    let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
    let provider =
        SdkTracerProvider::builder().with_span_processor(processor).with_resource(resource()).build();
    let layer = SpanLayer { tracer: provider.tracer("redlatch") };
    let filter = FilterFn::new(|metadata| metadata.is_span() && metadata.target() == SPANS);
    let layer = layer.with_filter(filter.with_max_level_hint(LevelFilter::TRACE));
    Ok(Some((layer.boxed(), Exporter { provider, runtime })))
}

/// What all spans have in common. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` change it, as everywhere.
fn resource() -> Resource {
    let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let name = name.unwrap_or_else(|| "redlatch".to_owned());
    Resource::builder().with_service_name(name).with_attribute(version).build()
}

/// An exporter whose failures are logged, at a limited rate.
struct Reporting<E> {
    exporter: E,
    failures: LogLimiter,
    started: Instant,
}

impl<E: fmt::Debug> fmt::Debug for Reporting<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.exporter.fmt(f)
    }
}

impl<E: Export> Export for Reporting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        if let Err(error) = &sent {
            let elapsed_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            if let Some(times) = self.failures.happened(LockTime::from_millis(elapsed_ms)) {
                tracing::warn!(%error, spans, times, "Spans cannot be sent to the collector: they are lost");
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Makes a span of OpenTelemetry of each span of `tracing`.
#[derive(Debug)]
struct SpanLayer {
    tracer: SdkTracer,
}

/// The span of OpenTelemetry that belongs to one of `tracing`.
struct Started(Context);

impl<S: tracing::Subscriber + for<'s> LookupSpan<'s>> Layer<S> for SpanLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: layer::Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let parent = span
            .parent()
            .and_then(|parent| parent.extensions().get::<Started>().map(|Started(context)| context.clone()));
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut links: Vec<_> = fields.links.split(' ').filter_map(remote).collect();
        let parent = match remote(&fields.traceparent) {
            Some(remote) => {
                links.extend(parent.map(|parent| parent.span().span_context().clone()));
                Context::new().with_remote_span_context(remote)
            }
            None => parent.unwrap_or_default(),
        };
        let builder = SpanBuilder::from_name(span.name())
            .with_kind(if span.name() == "command" { SpanKind::Server } else { SpanKind::Internal })
            .with_attributes(fields.attributes)
            .with_links(links.into_iter().map(Link::with_context).collect());
        let started = self.tracer.build_with_context(builder, &parent);
        span.extensions_mut().insert(Started(Context::new().with_span(started)));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: layer::Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(Started(context)) = span.extensions().get::<Started>() {
            context.span().set_attributes(fields.attributes);
        }
    }

    fn on_close(&self, id: Id, context: layer::Context<'_, S>) {
        let started = context.span(&id).and_then(|span| span.extensions_mut().remove::<Started>());
        if let Some(Started(context)) = started {
            context.span().end();
        }
    }
}

/// The fields of a span.
#[derive(Debug, Default)]
struct Fields {
    attributes: Vec<KeyValue>,
    traceparent: String,
    links: String,
}

impl Fields {
    fn push(&mut self, field: &Field, value: impl Into<Value>) {
        self.attributes.push(KeyValue::new(field.name(), value));
    }

    fn push_text(&mut self, field: &Field, mut text: String) {
        match field.name() {
            "traceparent" => self.traceparent = text,
            "links" => self.links = text,
            _ => {
                if let Some((end, _)) = text.char_indices().nth(TEXT_CHARS_MAX) {
                    text.truncate(end);
                }
                self.push(field, text);
            }
        }
    }
}

impl Visit for Fields {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_text(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push_text(field, format!("{value:?}"));
    }
}

/// The span of another process that a `traceparent` names. Those of requests have been checked.
fn remote(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    Some(SpanContext::new(trace, span, flags, true, TraceState::default()))
}
