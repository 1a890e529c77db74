//! Stands in for `tls` in a build without the feature: a TLS port is refused at the start.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tokio::io::DuplexStream;

use super::ReadSetting;

/// A value that cannot exist.
#[derive(Debug)]
pub(super) struct Tls(Infallible);

impl Tls {
    /// # Errors
    /// Always.
    pub(super) fn open(_: ReadSetting<'_>) -> Result<Self, String> {
        Err("tls-port: must be 0 in this build, which lacks the feature tls".to_owned())
    }

    pub(super) fn renew(&self, _: ReadSetting<'_>) -> Result<(), String> {
        match self.0 {}
    }

    pub(super) fn ends(&self) -> Arc<AtomicU64> {
        match self.0 {}
    }

    pub(super) fn accept<S>(&self, _: S) -> DuplexStream {
        match self.0 {}
    }
}
