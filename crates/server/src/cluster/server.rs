//! What a node asks of its server and of the builder, beyond what other programs do.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use redlatch_core::journal::recovery::Promised;
use redlatch_core::state::cluster::ClusterFacts;

use crate::inherited::Inherited;
use crate::journal::Place;
use crate::{Builder, Server};

impl Builder {
    /// The same configuration, for another server. Sockets stay here.
    pub(super) fn again(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            users: self.users.clone(),
            manual_start: self.manual_start,
            journal: self.journal.clone(),
            replicated: None,
            seed: self.seed,
            config_file: self.config_file.clone(),
            allocator: self.allocator,
            inherited: Inherited::default(),
            beside: self.beside.clone(),
        }
    }

    /// The server goes on from the journal of a cluster, and keeps it there. Default: `dir`.
    pub(super) fn replicated(self, place: Box<dyn Place>, facts: Arc<ClusterFacts>) -> Self {
        Self { replicated: Some((place, facts)), ..self }
    }
}

impl Server {
    /// What this server has promised, if it keeps a journal.
    pub(super) fn promised(&self) -> Promised {
        let context = self.context();
        let log = context.keeper().map(|keeper| &keeper.log);
        log.map_or_else(Promised::default, |log| log.promised(context.clock().now().lock))
    }

    /// Ends the server, without waiting for clients: as SHUTDOWN NOW.
    pub(super) fn stop_now(&self) {
        self.context().engine.shared().stop.is_immediate.store(true, Relaxed);
        self.stop();
    }

    /// Ends the connections that are left at its end.
    pub(super) fn cut_all(&self, reason: &'static str) {
        let clients = self.context().engine.shared().registries.clients.all();
        clients.iter().for_each(|client| client.cut(reason));
    }

    /// How many bytes clients have sent.
    pub(super) fn received_bytes(&self) -> u64 {
        self.context().engine.shared().stats.metrics.input_bytes.get()
    }

    /// Sends a message to the subscribers of a channel, as PUBLISH does.
    pub(super) fn publish(&self, channel: &str, message: &str) {
        let channels = &self.context().engine.shared().registries.channels;
        channels.publish(channel.as_bytes(), message.as_bytes());
    }
}
