//! The command of `redlatch run`: its process group, its terminal, its signals, its end.
//!
//! Owns    the process group, which ends with the command: what the command leaves running gets SIGTERM.
//! Rule    a terminal belongs to one process group at a time. It is the command's while the command runs, so that its
//!         keys send their signals to the command alone.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, killpg, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};

/// A command that runs, in a process group of its own.
#[derive(Debug)]
pub(super) struct Child {
    group: Pid,
    /// Whether the terminal was handed to the command.
    has_terminal: bool,
}

/// What has happened to a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Change {
    /// It has ended, with this status as shells give it.
    Ended(u8),
    /// It has been stopped, as by control-Z.
    Stopped,
}

impl Child {
    /// Starts a command, with these variables added to its environment.
    ///
    /// # Errors
    /// The command cannot be run.
    pub(super) fn start(command: &[OsString], variables: &[(&str, Option<OsString>)]) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let id = command.spawn()?.id();
        let group = Pid::from_raw(i32::try_from(id).map_err(io::Error::other)?);
        let mut child = Self { group, has_terminal: false };
        child.hand_over_terminal();
        Ok(child)
    }

    /// Sends a signal to every process of the group, also to one that is stopped.
    pub(super) fn signal(&self, signal: Signal) {
        // The group may have ended.
        let _ = killpg(self.group, signal);
        if signal == Signal::SIGTERM {
            let _ = killpg(self.group, Signal::SIGCONT);
        }
    }

    /// What has happened since the last call, after SIGCHLD.
    ///
    /// # Errors
    /// The system does not tell.
    pub(super) fn change(&mut self) -> io::Result<Option<Change>> {
        let status = match waitpid(self.group, Some(WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED)) {
            Err(Errno::EINTR) => return Ok(None),
            status => status?,
        };
        let code = match status {
            WaitStatus::Exited(_, code) => u8::try_from(code).unwrap_or(u8::MAX),
            WaitStatus::Signaled(_, signal, _) => 128 + signal as u8,
            WaitStatus::Stopped(..) => return Ok(Some(Change::Stopped)),
            _ => return Ok(None),
        };
        self.signal(Signal::SIGTERM);
        self.take_terminal_back();
        Ok(Some(Change::Ended(code)))
    }

    /// Stops this process as well, so that the shell that started it notices. Returns when it is continued. Without a
    /// terminal there is nobody to continue it, and it does not stop.
    pub(super) fn stop_with_it(&mut self) {
        if self.has_terminal {
            self.take_terminal_back();
            let _ = raise(Signal::SIGSTOP);
        }
    }

    /// Continues the command after a stop.
    pub(super) fn go_on(&mut self) {
        self.hand_over_terminal();
        self.signal(Signal::SIGCONT);
    }

    /// Gives the terminal to the command, if this process has it.
    fn hand_over_terminal(&mut self) {
        let stdin = io::stdin();
        self.has_terminal = tcgetpgrp(&stdin) == Ok(getpgrp()) && tcsetpgrp(&stdin, self.group).is_ok();
        if self.has_terminal {
            // It may have asked for the terminal before it had it, which stops a process.
            self.signal(Signal::SIGCONT);
        }
    }

    fn take_terminal_back(&mut self) {
        if !self.has_terminal {
            return;
        }
        self.has_terminal = false;
        // A process without the terminal that takes it is stopped by SIGTTOU, unless it blocks that signal.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        if blocked.thread_block().is_ok() {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
            let _ = blocked.thread_unblock();
        }
    }
}
