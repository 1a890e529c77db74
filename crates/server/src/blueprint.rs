//! How an engine is made.
//!
//! Owns    [`Blueprint`], from which the engines of a server are made.

use std::sync::Arc;

use redlatch_core::commands::{Extension, Peers, Shared};
use redlatch_core::engine::Engine;
use redlatch_core::journal::{Journal, Mode};
use redlatch_core::keyspace::{Keyspace, Layout};
use redlatch_core::scripts::interpreter::NewInterpreter;
use redlatch_core::state::beside::Beside;
use redlatch_core::state::cluster::ClusterFacts;
use redlatch_core::state::settings::{self, Settings};
use redlatch_proto::clock::Clock;
use tokio::sync::Notify;

use super::clock::SystemClock;
use super::context::{Process, ServerContext};
use super::journal::{self, Recovered};
use super::keeper::Keeper;
use super::testing::{Membership, commands};
use super::{StartError, probe, stored_files};

/// What the engines of a server are made from.
#[derive(Debug)]
pub(super) struct Blueprint {
    pub(super) settings: Vec<(String, String)>,
    pub(super) users: Vec<stored_files::UserLine>,
    pub(super) seed: u64,
    pub(super) journal: Option<Arc<dyn Journal>>,
    /// Where the journal of a cluster is, and what is known of that, if the server leads one.
    pub(super) replicated: Option<(Box<dyn journal::Place>, Arc<ClusterFacts>)>,
    pub(super) config_file: Option<String>,
    pub(super) allocator: &'static str,
    pub(super) process: Arc<Process>,
    /// The server whose locks are shown, if this one has none of its own.
    pub(super) beside: Option<Arc<Beside>>,
}

/// What runs the scripts that are not native.
#[cfg(feature = "lua")]
const INTERPRETER: Option<NewInterpreter> = Some(redlatch_lua::interpreter);
#[cfg(not(feature = "lua"))]
const INTERPRETER: Option<NewInterpreter> = None;

/// What the engine of a test's node has in addition to others. That of a server by itself has none of it.
#[derive(Default)]
pub(super) struct Addition {
    /// The node of a namespace that it is.
    pub(super) membership: Option<Membership>,
    /// Whether that is another namespace than the default one: it reads no files.
    pub(super) is_named: bool,
    /// What is added to the random seed.
    pub(super) seed: u64,
    pub(super) extension: Option<Arc<dyn Extension>>,
    /// The other nodes of its cluster, if it is in cluster mode.
    pub(super) peers: Option<Peers>,
}

/// The clock of an engine, which may be that of the system.
pub(super) struct EngineClock {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) system: Option<Arc<SystemClock>>,
}

impl EngineClock {
    fn system(clock: Arc<SystemClock>) -> Self {
        Self { clock: Arc::clone(&clock) as Arc<dyn Clock>, system: Some(clock) }
    }
}

impl Blueprint {
    /// The only engine of a server that no test drives. With a `dir`, it goes on from the journal there.
    ///
    /// # Errors
    /// A setting or a user is not as it must be, or the journal cannot be used.
    pub(super) fn server(&mut self, settings: Settings) -> Result<ServerContext, StartError> {
        let ticker = Arc::new(Notify::new());
        let mut keyspace = self.keyspace(&settings, self.journal.clone(), (false, &ticker));
        let wanted = journal::wanted(&settings)?;
        let (place, cluster) = match (self.replicated.take(), wanted) {
            (Some((place, facts)), _) => (Some((place, Mode::Always)), Some(facts)),
            (None, Some((dir, mode))) => (Some((journal::directory(&dir)?, mode)), None),
            (None, None) => (None, None),
        };
        let Some(place) = place else {
            let clock = EngineClock::system(Arc::new(SystemClock::new()));
            return self.assemble(settings, (keyspace, clock, ticker), Addition::default(), None);
        };
        if self.journal.is_some() {
            let text = "dir: the program that embeds the server has a journal of its own";
            return Err(StartError::Unusable(text.into()));
        }
        let recovered = journal::recover(&mut keyspace, place, &settings)?;
        if settings.get(settings::CLUSTER_ENABLED)
            && (1..keyspace.databases()).any(|other| keyspace.size(other).0 > 0)
        {
            let text =
                "cluster-enabled: the journal has keys in other databases than 0, which cluster mode lacks";
            return Err(StartError::Unusable(text.into()));
        }
        let clock = EngineClock::system(Arc::clone(&recovered.clock));
        let recovered = recovered.of_cluster(cluster);
        self.assemble(settings, (keyspace, clock, ticker), Addition::default(), Some(recovered))
    }

    /// A keyspace that nothing is attached to.
    pub(super) fn empty_keyspace(&self, settings: &Settings) -> Keyspace {
        self.keyspace(settings, None, (true, &Arc::default()))
    }

    pub(super) fn keyspace(
        &self,
        settings: &Settings,
        journal: Option<Arc<dyn Journal>>,
        (is_named, ticker): (bool, &Arc<Notify>),
    ) -> Keyspace {
        let layout = Layout {
            shards: if is_named { 1 } else { super::shards(settings) },
            databases: settings.get(settings::DATABASES),
            seed: self.seed,
            journal,
        };
        let earlier = Arc::clone(ticker);
        Keyspace::new(layout, move || earlier.notify_one())
    }

    pub(super) fn assemble(
        &self,
        settings: Settings,
        (keyspace, clock, ticker): (Keyspace, EngineClock, Arc<Notify>),
        addition: Addition,
        recovered: Option<Recovered>,
    ) -> Result<ServerContext, StartError> {
        let seed = self.seed.wrapping_add(addition.seed);
        let mut shared = Shared::new(keyspace, settings, clock.clock, seed)
            .with_commands(commands())
            .with_interpreter(INTERPRETER)
            .with_probe(Arc::new(probe::SystemProbe(self.allocator)));
        let Addition { membership, is_named, extension, peers, .. } = addition;
        if !is_named {
            shared = self.with_files(shared);
        }
        if let Some(extension) = extension {
            shared = shared.with_extension(extension);
        }
        if let Some(peers) = peers {
            shared = shared.with_peers(peers);
        }
        if let Some(beside) = &self.beside {
            shared = shared.with_beside(Arc::clone(beside));
        }
        let keeper = recovered.as_ref().map(|recovered| Arc::new(Keeper::new(Arc::clone(&recovered.log))));
        match recovered {
            Some(recovered) => shared = recovered.go_on(shared),
            None if !is_named => {
                warn_of_no_journal(&shared.settings);
                begin_startup_guard(&shared);
            }
            None => {}
        }
        stored_files::install_users(&shared, &self.users)?;
        let stopping = Arc::clone(&ticker);
        shared.on_stop(move || stopping.notify_one());
        let process = Arc::clone(&self.process);
        let engine = Engine::new(Arc::new(shared));
        Ok(ServerContext::new(engine, clock.system, ticker, process, membership, keeper))
    }

    /// Gives the state the files of users and settings that the settings name.
    pub(super) fn with_files(&self, shared: Shared) -> Shared {
        let shared = match shared.settings.get(settings::ACLFILE) {
            name if name.is_empty() => shared,
            name => shared.with_acl_file(Arc::new(stored_files::AclFile::new(name))),
        };
        match &self.config_file {
            Some(name) => {
                let file = stored_files::AclFile::new(name.clone());
                shared.with_config_file(Arc::new(stored_files::ConfigFile(file)))
            }
            None => shared,
        }
    }

    /// Settings with the values that the server was started with.
    pub(super) fn settings(&self) -> Result<Settings, StartError> {
        let settings = Settings::default();
        for (name, value) in &self.settings {
            settings.set(name, value)?;
        }
        Ok(settings)
    }
}

/// Says so where `appendfsync` asks for a journal that there is not, as in Redis without `appendonly`.
fn warn_of_no_journal(settings: &Settings) {
    if settings.get(settings::APPENDFSYNC) == "always" && settings.get(settings::CLUSTER_ETCD).is_empty() {
        tracing::warn!("appendfsync always has no effect without a dir: nothing outlives the server");
    }
}

/// Begins the quarantine of a server that keeps no journal, if `startup-guard` asks for one.
fn begin_startup_guard(shared: &Shared) {
    let guard_ms = shared.settings.get(settings::STARTUP_GUARD);
    if guard_ms > 0 {
        shared.begin_quarantine(
            shared.instance.started + guard_ms,
            "no journal tells of locks before this start",
        );
    }
}
