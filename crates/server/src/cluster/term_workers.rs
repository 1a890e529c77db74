//! The workers of a node: threads that the servers of its terms share, whichever group they are of.
//!
//! Why     a thread for each group would wake for the clients of one group at a time. One that serves several does more each
//!         time that it wakes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::worker::{Threads, runtime};
use crate::{Builder, Server, StartError};

/// The workers of a node. Their threads end when it is dropped.
pub(super) struct TermWorkers {
    all: Mutex<Vec<Worker>>,
    /// How many of them serve one term.
    each: usize,
    _end: watch::Sender<()>,
}

/// A worker, as a term has it.
#[derive(Clone)]
pub(super) struct Worker {
    runtime: Handle,
    /// A clone for each term that has it.
    terms: Arc<()>,
}

impl TermWorkers {
    /// Starts workers for so many groups: one for each core that they can use, and `each` at least, which serve one term.
    ///
    /// # Errors
    /// The system has no thread or no descriptor left.
    pub(super) fn start(each: usize, groups: usize) -> Result<Self, StartError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (end, ended) = watch::channel(());
        let threads = Threads::default();
        let worker = || {
            let (runtime, mut ended) = (runtime()?, ended.clone());
            let handle = runtime.handle().clone();
            threads.start(runtime, async move { while ended.changed().await.is_ok() {} })?;
            Ok(Worker { runtime: handle, terms: Arc::default() })
        };
        let all: Result<_, StartError> = (0..each.max(groups.min(cores))).map(|_| worker()).collect();
        Ok(Self { all: Mutex::new(all?), each, _end: end })
    }

    /// The workers for another term: those that have the fewest.
    pub(super) fn of_a_term(&self) -> Vec<Worker> {
        let mut all = self.all.lock();
        all.sort_by_key(|worker| Arc::strong_count(&worker.terms));
        all[..self.each].to_vec()
    }
}

/// Starts the server of a term on its workers.
///
/// # Errors
/// As [`Builder::start`].
pub(super) fn start_on(workers: &[Worker], builder: Builder) -> Result<Server, StartError> {
    let runtimes: Vec<_> = workers.iter().map(|worker| worker.runtime.clone()).collect();
    let _entered = runtimes[0].enter();
    builder.start_on(&runtimes, None)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::thread::ThreadId;

    use super::*;

    /// The threads of a term's workers.
    fn threads(workers: &[Worker]) -> Vec<ThreadId> {
        let asked = workers.iter().map(|worker| {
            let (tell, told) = std::sync::mpsc::channel();
            worker.runtime.spawn(async move { tell.send(std::thread::current().id()) });
            told.recv().expect("a worker that runs tasks")
        });
        asked.collect()
    }

    #[test]
    fn terms_are_shared_out_among_the_workers() {
        let workers = TermWorkers::start(1, 16).expect("threads");
        let count = workers.all.lock().len();
        let mut terms: Vec<_> = (0..4 * count).map(|_| workers.of_a_term()).collect();
        let mut loads = HashMap::new();
        terms.iter().flat_map(|term| threads(term)).for_each(|thread| *loads.entry(thread).or_insert(0) += 1);
        assert!(loads.len() == count && loads.values().all(|terms| *terms == 4), "{loads:?}");
        // The next term goes where one has ended.
        let ended = threads(&terms.swap_remove(1));
        assert_eq!(threads(&workers.of_a_term()), ended);
    }

    #[test]
    fn a_term_has_as_many_threads_as_the_settings_say() {
        let workers = TermWorkers::start(3, 1).expect("threads");
        let distinct: HashSet<_> = threads(&workers.of_a_term()).into_iter().collect();
        assert_eq!(distinct.len(), 3);
    }

    #[test]
    fn threads_end_with_the_node() {
        let workers = TermWorkers::start(2, 2).expect("threads");
        let term = workers.of_a_term();
        let (held, ends) = std::sync::mpsc::channel::<()>();
        term.iter().for_each(|worker| {
            let held = held.clone();
            worker.runtime.spawn(async move {
                std::future::pending::<()>().await;
                drop(held)
            });
        });
        drop(held);
        drop(workers);
        // Tasks end with the runtime of their thread.
        assert!(ends.recv().is_err());
    }
}
