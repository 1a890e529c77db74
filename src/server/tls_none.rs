//! The twin of `tls` in a build without the feature: a TLS port is refused, and nothing else knows.

use std::convert::Infallible;

use tokio::io::DuplexStream;

/// What such a build never has.
#[derive(Debug)]
pub(super) struct Tls(Infallible);

impl Tls {
    /// # Errors
    /// Always: this build cannot.
    pub(super) fn open(_: &dyn Fn(&'static str) -> String) -> Result<Self, String> {
        Err("tls-port: must be 0 in this build, which lacks the feature tls".to_owned())
    }

    pub(super) fn renew(&self, _: &dyn Fn(&'static str) -> String) -> Result<(), String> {
        match self.0 {}
    }

    pub(super) fn seal<S>(&self, _: S) -> DuplexStream {
        match self.0 {}
    }
}
