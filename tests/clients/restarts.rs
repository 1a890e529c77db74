//! Two servers that are started again, on their ports and in their directories, whenever they end.
//!
//! Owns    the processes and their directories. The first server keeps a journal: a lock outlives a kill. The second keeps
//!         the horizon alone: after a kill it is in quarantine until the locks that it has forgotten have ended.
//! Knows   how to start a server. The client kills it, by the process id that the environment tells.
//! Time    is the system's: it looks for servers that have ended every few milliseconds.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::binary::Directory;
use crate::support::ports::free_port;
use crate::support::server::Server;

pub(crate) struct Pair {
    directories: [Directory; 2],
    servers: Vec<Server>,
}

impl Pair {
    pub(crate) fn start() -> Result<Self, String> {
        let directories = [Directory::new(), Directory::new()];
        let start = |at: usize| start(at, free_port(), &directories[at]);
        let servers = vec![start(0)?, start(1)?];
        Ok(Self { directories, servers })
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Until `run` returns, starts each server again that ends. Returns the result of `run`, and the servers.
    pub(crate) fn kept_up<T>(self, run: impl FnOnce() -> T) -> (T, Vec<Server>) {
        let Self { directories, mut servers } = self;
        let is_done = AtomicBool::new(false);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    if let Err(why) = start_what_ended(&mut servers, &directories) {
                        // The client waits in vain, and fails.
                        return println!("{why}");
                    }
                    thread::sleep(LOOK_EVERY);
                }
            });
            let result = run();
            is_done.store(true, Ordering::Relaxed);
            result
        });
        (result, servers)
    }
}

fn start_what_ended(servers: &mut [Server], directories: &[Directory]) -> Result<(), String> {
    for (at, server) in servers.iter_mut().enumerate() {
        if server.has_ended() {
            *server = start(at, server.port(), &directories[at])?;
        }
    }
    Ok(())
}

fn start(at: usize, port: u16, directory: &Directory) -> Result<Server, String> {
    let appendonly = ["yes", "no"][at];
    let program = Path::new(env!("CARGO_BIN_EXE_redlatch"));
    Server::start_on(port, program, directory.root(), &["--appendonly", appendonly].map(str::to_owned))
}

const LOOK_EVERY: Duration = Duration::from_millis(10);
