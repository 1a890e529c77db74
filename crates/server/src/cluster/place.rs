//! The files of a journal in etcd, for the server that leads.

use std::io::{self, Read};

use redlatch_core::journal::item::Volume;
use redlatch_core::journal::log::Storage;
use redlatch_core::journal::recovery::{Lacks, Machine};
use redlatch_core::replication::term::Term;

use crate::journal::Place;

/// The journal of a cluster, in a term of this node.
#[derive(Debug)]
pub(super) struct EtcdPlace {
    pub(super) term: Term,
}

impl Place for EtcdPlace {
    fn server(&self) -> [u8; 20] {
        self.term.cluster_id()
    }

    fn name(&self, number: u64) -> String {
        format!("file {number} of the journal in etcd")
    }

    fn files(&self) -> io::Result<Vec<(u64, Box<dyn Read>)>> {
        let files = self.term.load()?;
        Ok(files.into_iter().map(|(number, file)| (number, Box::new(file) as Box<dyn Read>)).collect())
    }

    fn into_storage(self: Box<Self>) -> io::Result<Box<dyn Storage>> {
        Ok(Box::new(self.term))
    }

    /// No machine: lock time goes on where the last commit has left it.
    fn machine(&self) -> Machine {
        Machine { boot: None, boot_ms: 0, volume: Volume::default() }
    }

    /// The leader before closes the connections of sessions before this node takes over. If it is late with that, or a client
    /// takes its time to come back, the locks last so much longer.
    fn session_grace_ms(&self) -> u64 {
        self.term.takeover_ms()
    }

    fn lacks(&self) -> Option<Lacks> {
        self.term.lacks()
    }

    /// Any number: nothing is committed during that copy, and another node would take over. Live keys are copied while the
    /// server serves.
    fn files_max(&self) -> usize {
        usize::MAX
    }
}
