//! `/metrics`: the metric families of the server in the text format of OpenMetrics.
//!
//! Owns    the way from a family to the text, by prometheus-client, and the families of this process' runtime.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::fmt;

use bytes::Bytes;
use hyper::{Request, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use redlatch_core::commands::{Family, FamilyKind, Value, families};

use super::responses::{Body, whole};
use super::{HttpContext, runtime};
use crate::Server;
use crate::context::ServerContext;
use crate::worker::Workers;

/// The name before that of every family.
const PREFIX: &str = "redlatch";
/// The version of the format is that of the OpenMetrics standard.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const MILLIS_PER_SEC: f64 = 1000.0;

/// The metrics of the server.
pub(super) fn show(context: &HttpContext, _: &Request<Bytes>) -> Response<Body> {
    match written(&context.server, &context.workers) {
        Ok(text) => whole(StatusCode::OK, CONTENT_TYPE, text),
        Err(fmt::Error) => {
            whole(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "cannot write the metrics\n")
        }
    }
}

impl Server {
    /// The metrics of the server in the text format of OpenMetrics, as `/metrics` of its HTTP port has them.
    pub fn metrics(&self) -> String {
        written(self.context(), &self.workers).expect("writing to a String cannot fail")
    }
}

fn written(server: &ServerContext, workers: &Workers) -> Result<String, fmt::Error> {
    let mut all = families(server.engine.shared());
    all.extend(runtime::families(workers));
    let is_beside = server.engine.shared().beside.is_some();
    text_of(all, is_beside.then_some("beside"))
}

/// The text of these families. `source`: where their numbers come from, if not from this server.
pub(super) fn text_of(all: Vec<Family>, source: Option<&'static str>) -> Result<String, fmt::Error> {
    let labels = source.map(|source| ("source".into(), source.into()));
    let mut registry = Registry::with_prefix_and_labels(PREFIX, labels.into_iter());
    registry.register_collector(Box::new(Families(all)));
    let mut written = String::new();
    text::encode(&mut written, &registry)?;
    Ok(written)
}

/// Families that were read already.
#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.0 {
            let kind = match family.kind {
                FamilyKind::Counter => MetricType::Counter,
                FamilyKind::Gauge => MetricType::Gauge,
                FamilyKind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for sample in &family.samples {
                match &sample.label {
                    None => encode(&mut metric, family.kind, sample.value)?,
                    Some((label, value)) => {
                        let labels = [(*label, value.as_str())];
                        encode(&mut metric.encode_family(&labels)?, family.kind, sample.value)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn encode(metric: &mut MetricEncoder<'_>, kind: FamilyKind, value: Value) -> fmt::Result {
    match (kind, value) {
        (FamilyKind::Counter, Value::Integer(value)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (FamilyKind::Counter, Value::Number(value)) => {
            metric.encode_counter::<NoLabelSet, _, f64>(&value, None)
        }
        (_, Value::Integer(value)) => metric.encode_gauge(&value),
        (_, Value::Number(value)) => metric.encode_gauge(&value),
        (_, Value::Durations(durations)) => {
            let buckets: Vec<(f64, u64)> = durations
                .buckets()
                .map(|(bound, count)| {
                    (bound.map_or(f64::INFINITY, |millis| millis as f64 / MILLIS_PER_SEC), count)
                })
                .collect();
            let total = durations.total_ms() as f64 / MILLIS_PER_SEC;
            metric.encode_histogram::<NoLabelSet>(total, durations.count(), &buckets, None)
        }
    }
}
