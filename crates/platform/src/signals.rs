//! The signals that end a process in good order, or have it read its files again.
//!
//! Rule    a signal that is caught waits until somebody asks for it. It is registered with the runtime in which it is caught,
//!         and may be waited for in any that can wait for signals.

use std::io;

#[cfg(unix)]
use unix::Sources;
#[cfg(windows)]
use windows::Sources;

/// The signals of a process.
#[derive(Debug)]
pub struct Signals {
    sources: Sources,
    /// Whether the process was started to ignore SIGHUP, as by nohup.
    ignores_hangup: bool,
}

/// A signal that has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Caught {
    End(Ending),
    /// SIGHUP.
    Hangup,
}

/// A signal that ends a process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Ending {
    pub name: &'static str,
    /// What shells add to 128 for the exit code.
    pub number: u8,
}

impl Signals {
    /// Catches them from now on. Needs a runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { sources: Sources::catch()?, ignores_hangup: ignored() & (1 << (HANGUP - 1)) != 0 })
    }

    /// Waits for the next one. No signal is lost if the wait is given up.
    pub async fn next(&mut self) -> Caught {
        self.sources.next().await
    }

    /// Waits for one that ends a program at a terminal: also SIGHUP, unless it was ignored from the start.
    pub async fn leave(&mut self) -> Ending {
        loop {
            match self.next().await {
                Caught::End(ending) => return ending,
                Caught::Hangup if self.ignores_hangup => {}
                Caught::Hangup => return Ending { name: "SIGHUP", number: HANGUP },
            }
        }
    }

    /// Waits for one that ends the process.
    pub async fn end(&mut self) {
        while self.next().await == Caught::Hangup {}
    }
}

const HANGUP: u8 = 1;
const INTERRUPT: u8 = 2;
const TERMINATE: u8 = 15;

/// The signals that this process was started to ignore, as by nohup, one bit for each, the first for signal 1. Caught signals
/// are not among them. Linux tells; on other systems it is none.
pub fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(unix)]
mod unix {
    use std::io;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::{Caught, Ending, INTERRUPT, TERMINATE};

    #[derive(Debug)]
    pub(super) struct Sources {
        terminate: Signal,
        interrupt: Signal,
        hangup: Signal,
    }

    impl Sources {
        pub(super) fn catch() -> io::Result<Self> {
            Ok(Self {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
                hangup: signal(SignalKind::hangup())?,
            })
        }

        pub(super) async fn next(&mut self) -> Caught {
            tokio::select! {
                _ = self.terminate.recv() => Caught::End(Ending { name: "SIGTERM", number: TERMINATE }),
                _ = self.interrupt.recv() => Caught::End(Ending { name: "SIGINT", number: INTERRUPT }),
                _ = self.hangup.recv() => Caught::Hangup,
            }
        }
    }
}

/// The events of a console, and of a session that ends.
#[cfg(windows)]
mod windows {
    use std::io;

    use tokio::signal::windows::{CtrlBreak, CtrlC, CtrlClose, CtrlShutdown};
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_shutdown};

    use super::{Caught, Ending, INTERRUPT, TERMINATE};

    #[derive(Debug)]
    pub(super) struct Sources {
        c: CtrlC,
        pause: CtrlBreak,
        close: CtrlClose,
        shutdown: CtrlShutdown,
    }

    impl Sources {
        pub(super) fn catch() -> io::Result<Self> {
            Ok(Self { c: ctrl_c()?, pause: ctrl_break()?, close: ctrl_close()?, shutdown: ctrl_shutdown()? })
        }

        pub(super) async fn next(&mut self) -> Caught {
            Caught::End(tokio::select! {
                _ = self.c.recv() => Ending { name: "CTRL-C", number: INTERRUPT },
                _ = self.pause.recv() => Ending { name: "CTRL-BREAK", number: TERMINATE },
                _ = self.close.recv() => Ending { name: "the end of the console", number: TERMINATE },
                _ = self.shutdown.recv() => Ending { name: "the end of the system", number: TERMINATE },
            })
        }
    }
}
