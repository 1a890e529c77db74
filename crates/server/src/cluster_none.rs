//! Stands in for `cluster` in a build without the feature: `cluster-etcd` is refused at the start.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::state::settings::{self, Settings};

use super::{Builder, Server, StartError};

/// Called with the server of each term.
pub type OnLead = Box<dyn Fn(&Server) + Send + Sync>;

/// There is none.
pub struct Node(Infallible);

/// # Errors
/// The settings ask for a cluster.
pub(super) fn check(settings: &Settings) -> Result<(), String> {
    match settings.get(settings::CLUSTER_ETCD).is_empty() {
        true => Ok(()),
        false => Err("cluster-etcd: must not be set in this build, which lacks the feature etcd".to_owned()),
    }
}

impl Node {
    /// # Errors
    /// Always.
    pub async fn start(builder: Builder, _: usize, _: OnLead) -> Result<Self, StartError> {
        let settings = builder.blueprint().settings()?;
        check(&settings).map_err(StartError::Unusable)?;
        Err(StartError::Unusable("cluster-etcd: names no endpoint".to_owned()))
    }

    pub fn addresses(&self) -> [Vec<SocketAddr>; 3] {
        match self.0 {}
    }

    pub fn servers(&self) -> Vec<Arc<Server>> {
        match self.0 {}
    }

    /// # Errors
    /// Never.
    pub fn set_endpoints(&self, _: &str) -> Result<(), String> {
        match self.0 {}
    }

    pub fn stop(&self) {
        match self.0 {}
    }

    pub async fn stopped(&self) {
        match self.0 {}
    }

    pub async fn finished(&self) {
        match self.0 {}
    }

    pub fn has_failed(&self) -> bool {
        match self.0 {}
    }
}

/// # Errors
/// Always.
pub async fn accept_restored(settings: &Settings, _: Option<Duration>) -> Result<bool, String> {
    check(settings)?;
    Err("cluster-etcd: names no endpoint".to_owned())
}

/// What was moved.
pub struct Moved {
    pub keys: usize,
    pub quarantine: Option<(Duration, &'static str)>,
}

/// # Errors
/// Always.
pub async fn import(_: Builder, settings: Settings) -> Result<Option<Moved>, String> {
    check(&settings)?;
    Err("cluster-etcd: names no endpoint".to_owned())
}

/// # Errors
/// Always.
pub async fn export(builder: Builder, settings: Settings) -> Result<Option<Moved>, String> {
    import(builder, settings).await
}
