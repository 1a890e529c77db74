//! Stands in for `otlp` in a build without the feature: an endpoint is refused at the start.

use std::convert::Infallible;

use super::log::Spans;
use crate::common::Fault;

/// A value that cannot exist.
#[derive(Debug)]
pub(super) struct Exporter(Infallible);

impl Exporter {
    pub(super) fn end(self, _hurry: impl Future<Output = ()>) -> bool {
        match self.0 {}
    }
}

/// # Errors
/// There is an `endpoint`.
pub(super) fn open(endpoint: &str) -> Result<Option<(Spans, Exporter)>, Fault> {
    match endpoint {
        "" => Ok(None),
        _ => Err(format!(
            "otlp-endpoint '{endpoint}': must be empty in this build, which lacks the feature otlp"
        )),
    }
}
