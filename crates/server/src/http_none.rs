//! Stands in for `http` in a build without the feature: an HTTP port is refused at the start.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use redlatch_core::state::settings::{self, Settings};

use super::StartError;
use super::context::ServerContext;
use super::listener::Open;
use super::worker::{Threads, Workers};

/// No sockets.
pub(super) struct Http;

impl Http {
    /// # Errors
    /// The settings ask for HTTP.
    pub(super) fn check(settings: &Settings) -> Result<(), StartError> {
        let is_wanted =
            settings.get(settings::HTTP_PORT) != "0" || !settings.get(settings::HTTP_UNIXSOCKET).is_empty();
        match is_wanted {
            true => Err(StartError::Unusable(
                "http-port, http-unixsocket: must not be set in this build, which lacks the feature http"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    pub(super) fn addresses(_: &Settings) -> Vec<(IpAddr, bool)> {
        Vec::new()
    }

    /// # Errors
    /// The settings or an inherited socket ask for HTTP.
    pub(super) fn open(
        settings: &Settings,
        inherited: Vec<std::net::TcpListener>,
    ) -> Result<Self, StartError> {
        Self::check(settings)?;
        match inherited.is_empty() {
            true => Ok(Self),
            false => Err(StartError::Unusable("LISTEN_FDS: this build lacks the feature http".into())),
        }
    }

    pub(super) fn serve(
        self,
        _: &ServerContext,
        _: &Arc<Workers>,
        _: &Threads,
        _: &Open,
    ) -> Result<Vec<SocketAddr>, StartError> {
        Ok(Vec::new())
    }
}
