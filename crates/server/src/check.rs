//! The check of a configuration: what a start would refuse, without a socket or a directory being opened.

use std::net::IpAddr;
use std::sync::Arc;

use redlatch_core::commands::Shared;
use redlatch_core::state::settings::{self, Handle, Settings};

use super::blueprint::Blueprint;
use super::clock::SystemClock;
use super::http::Http;
use super::testing::{self, commands};
use super::tls::Tls;
use super::{Builder, StartError, cluster, journal, listener, stored_files, unix};

impl Builder {
    /// Every fault that the start of this server would meet first, as far as it does not depend on who uses an address or a
    /// directory. Reads the certificates and the ACL file.
    pub fn faults(self) -> Vec<StartError> {
        let blueprint = self.blueprint();
        let settings = match blueprint.settings() {
            Ok(settings) => settings,
            Err(fault) => return vec![fault],
        };
        let mut faults: Vec<_> = network(&settings).into_iter().map(StartError::Unusable).collect();
        faults.extend(Http::check(&settings).err());
        if !settings.get(settings::CLUSTER_ETCD).is_empty() {
            faults.extend(cluster::check(&settings).err().map(StartError::Unusable));
        }
        faults.extend(cluster_mode(&settings).err());
        faults.extend(doubles(&settings).err());
        faults.extend(testing::check(&settings).err());
        // It resolves `appendonly`, which the check of the cluster reads as it was set.
        faults.extend(tests_and_journal(&settings).err());
        faults.extend(users(&blueprint, settings));
        faults
    }
}

/// Faults of addresses, permissions and certificates.
fn network(settings: &Settings) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(listener::addresses(&settings.get(settings::BIND)).err());
    if !settings.get(settings::UNIXSOCKET).is_empty() {
        faults.extend(unix::permissions(&settings.get(settings::UNIXSOCKETPERM)).err());
    }
    if settings.get(settings::TLS_PORT) != "0" {
        faults.extend(Tls::open(&|setting| settings.get(setting)).err());
    }
    faults
}

/// What a cluster of several nodes excludes: TLS, which the first node alone would have; ports that there are not; replicas
/// of fewer masters than a failover takes; groups of slots without a log in etcd.
pub(super) fn cluster_mode(settings: &Settings) -> Result<(), StartError> {
    let (nodes, announced) = (settings.get(settings::NODES), settings.get(settings::CLUSTER_ANNOUNCE_PORT));
    let groups = settings.get(settings::CLUSTER_GROUPS);
    if groups > 1 && settings.get(settings::CLUSTER_ETCD).is_empty() {
        let text = format!("cluster-groups '{groups}': takes cluster-etcd");
        return Err(StartError::Unusable(text));
    }
    let replicas = usize::from(settings.get(settings::CLUSTER_REPLICAS));
    let least = (replicas + 1) * 3;
    if replicas > 0 && (!settings.get(settings::CLUSTER_ENABLED) || nodes < least) {
        let text =
            format!("cluster-replicas '{replicas}': takes cluster-enabled yes and nodes {least} or more");
        return Err(StartError::Unusable(text));
    }
    if !settings.get(settings::CLUSTER_ENABLED) || nodes == 1 {
        return Ok(());
    }
    let tls = settings.get(settings::TLS_PORT);
    if tls != "0" {
        let text = format!("tls-port '{tls}': a cluster of several nodes is without TLS");
        return Err(StartError::Unusable(text));
    }
    if usize::from(announced) + nodes - 1 > usize::from(u16::MAX) {
        let text = format!("cluster-announce-port '{announced}': must leave a port to each of {nodes} nodes");
        return Err(StartError::Unusable(text));
    }
    Ok(())
}

/// What two settings cannot share: a port of one address, and a file or a socket.
pub(super) fn doubles(settings: &Settings) -> Result<(), StartError> {
    let [bind, http] = [listener::addresses(&settings.get(settings::BIND)), Ok(Http::addresses(settings))]
        .map(Result::unwrap_or_default);
    let (tcp, tls) = (settings::PORT, settings::TLS_PORT);
    for (one, other, is_met) in [
        (tls, tcp, true),
        (settings::HTTP_PORT, tcp, meet(&bind, &http)),
        (settings::HTTP_PORT, tls, meet(&bind, &http)),
    ] {
        let is_number = !matches!(&*settings.get(one), "0" | "auto");
        differ(settings, one, other, is_number && is_met)?;
    }
    let files = [
        (settings::UNIXSOCKET, settings::HTTP_UNIXSOCKET),
        (settings::PORT_FILE, settings::TLS_PORT_FILE),
        (settings::PORT_FILE, settings::HTTP_PORT_FILE),
        (settings::TLS_PORT_FILE, settings::HTTP_PORT_FILE),
        (settings::PIDFILE, settings::PORT_FILE),
        (settings::PIDFILE, settings::LOGFILE),
    ];
    files.into_iter().try_for_each(|(one, other)| {
        let path = settings.get(one);
        differ(settings, other, one, !path.is_empty() && !path.starts_with("/dev/"))
    })
}

/// Whether two sockets with one port would meet.
fn meet(these: &[(IpAddr, bool)], those: &[(IpAddr, bool)]) -> bool {
    let is_met =
        |one: &IpAddr, other: &IpAddr| one == other || one.is_unspecified() || other.is_unspecified();
    these.iter().any(|(one, _)| those.iter().any(|(other, _)| is_met(one, other)))
}

/// Refuses one value of two settings, if they `must` differ.
fn differ(
    settings: &Settings,
    one: Handle<String>,
    other: Handle<String>,
    must: bool,
) -> Result<(), StartError> {
    let value = settings.get(one);
    if !must || value != settings.get(other) {
        return Ok(());
    }
    Err(StartError::Unusable(format!("{} '{value}': must differ from {}", one.name(), other.name())))
}

/// Test commands exclude a journal.
fn tests_and_journal(settings: &Settings) -> Result<(), StartError> {
    match journal::wanted(settings)? {
        Some(_) if testing::is_wanted(settings) => {
            Err(StartError::Unusable(super::NO_JOURNAL_IN_TESTS.into()))
        }
        _ => Ok(()),
    }
}

/// Faults of the users in the configuration and in the ACL file.
fn users(blueprint: &Blueprint, settings: Settings) -> Vec<StartError> {
    let keyspace = blueprint.empty_keyspace(&settings);
    let shared = Shared::new(keyspace, settings, Arc::new(SystemClock::new()), blueprint.seed)
        .with_commands(commands());
    stored_files::user_faults(&blueprint.with_files(shared), &blueprint.users)
}
