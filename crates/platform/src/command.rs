//! A command that runs under this process: what belongs to it, its terminal, its signals, its end.
//!
//! Owns    the process group of the command, or its job on Windows, which ends with the command: what the command leaves
//!         running is asked to end.
//! Rule    a terminal belongs to one process group at a time. It is the command's while the command runs, so that its
//!         keys send their signals to the command alone. On Windows the keys reach both.
//! Rule    on Windows nobody can be asked to end: what is terminated, is killed.

#[cfg(unix)]
pub use unix::{Changes, Child, CommandSignals, Group, Passed, PassedSignal};
#[cfg(windows)]
pub use windows::{Changes, Child, CommandSignals, Group, Passed, PassedSignal};

/// Has a command run in the background, where the keys of the terminal do not reach it, and under the name `program`, on
/// systems where another name than that of its file can be given.
pub fn put_in_background(command: &mut std::process::Command, program: &str) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.arg0(program).process_group(0);
    }
    #[cfg(not(unix))]
    let _ = (command, program);
}

/// Ends each process that was started with this variable, as what a command has started may be that has left its process
/// group, until there is none. Gives up after a hundred looks. Only Linux tells the variables of processes.
pub fn kill_all_with(name: &str, value: &str) {
    #[cfg(target_os = "linux")]
    linux::kill_all_with(&format!("{name}={value}"));
    #[cfg(not(target_os = "linux"))]
    let _ = (name, value);
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::io::ErrorKind::PermissionDenied;
    use std::thread::sleep;
    use std::time::Duration;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    pub(super) fn kill_all_with(variable: &str) {
        // One that is killed may have started another since the others were looked at.
        for _ in 0..LOOKS_MAX {
            if !kill_those_with(variable) {
                return;
            }
            sleep(PAUSE);
        }
    }

    /// Whether there may be more of them.
    fn kill_those_with(variable: &str) -> bool {
        let Ok(processes) = fs::read_dir("/proc") else { return false };
        let ids = processes.flatten().filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
        let mut may_be_more = false;
        for id in ids {
            let variables = fs::read(format!("/proc/{id}/environ"));
            if variables.as_ref().is_err_and(|error| error.kind() == PermissionDenied) {
                continue;
            }
            let variables = variables.unwrap_or_default();
            if variables.split(|byte| *byte == 0).any(|word| word == variable.as_bytes()) {
                // It may have ended.
                let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
                may_be_more = true;
            }
            may_be_more |= !are_all(&variables, id);
        }
        may_be_more
    }

    /// Whether these are all variables of a process: one that has gone to another program meanwhile has told a part of
    /// them, or none.
    fn are_all(variables: &[u8], id: i32) -> bool {
        let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The second field is the name, which may have any byte but ends with the last parenthesis.
        let fields: Vec<&str> = status.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).map_or(0, |field| field.parse().unwrap_or(0));
        let [memory, code, begin, end]: [usize; 4] = [23, 26, 50, 51].map(field);
        // One that has ended has no memory, nor has one of the kernel. Its code is told once its variables are.
        memory == 0 || (code > 0 && end.saturating_sub(begin) == variables.len())
    }

    const LOOKS_MAX: usize = 100;
    const PAUSE: Duration = Duration::from_millis(1);
}

/// What has happened to a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// It has ended, with this status as shells give it; `None`: somebody else has waited for it, and knows.
    Ended(Option<u8>),
    /// It has been stopped, as by control-Z.
    Stopped,
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsString;
    use std::future::poll_fn;
    use std::io;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, ExitStatus};
    use std::task::Poll;

    use nix::errno::Errno;
    use nix::sys::signal::{SigSet, Signal, killpg, raise};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    use nix::unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp};
    use tokio::process::{
        Child as TokioChild, ChildStderr, ChildStdin, ChildStdout, Command as TokioCommand,
    };
    use tokio::signal::unix::{Signal as Signals, SignalKind, signal};

    use super::Change;
    use crate::signals::ignored;

    /// A command that runs, in a process group of its own.
    #[derive(Debug)]
    pub struct Child {
        group: Pid,
        /// Whether the terminal was handed to the command.
        has_terminal: bool,
    }

    impl Child {
        /// Starts a command, with these variables added to its environment; `None` takes one away.
        ///
        /// # Errors
        /// The command cannot be run.
        pub fn start(command: &[OsString], variables: &[(&str, Option<OsString>)]) -> io::Result<Self> {
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

        /// Passes a signal on to every process of the group.
        pub fn pass(&self, signal: PassedSignal) {
            self.signal(signal.0);
        }

        /// Asks every process of the group to end, also one that is stopped.
        pub fn terminate(&mut self) {
            self.signal(Signal::SIGTERM);
        }

        /// Ends every process of the group.
        pub fn kill(&mut self) {
            self.signal(Signal::SIGKILL);
        }

        fn signal(&self, signal: Signal) {
            // The group may have ended.
            let _ = killpg(self.group, signal);
            if signal == Signal::SIGTERM {
                let _ = killpg(self.group, Signal::SIGCONT);
            }
        }

        /// What happens to the command next. `changes` were caught before it started.
        pub async fn change(&mut self, changes: &mut Changes) -> Change {
            loop {
                match self.look() {
                    Ok(Some(change)) => return change,
                    Ok(None) => {}
                    Err(_) => return Change::Ended(None),
                }
                changes.0.recv().await;
            }
        }

        fn look(&mut self) -> io::Result<Option<Change>> {
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
            self.terminate();
            self.take_terminal_back();
            Ok(Some(Change::Ended(Some(code))))
        }

        /// Stops this process as well, so that the shell that started it notices. Returns when it is continued. Without a
        /// terminal there is nobody to continue it, and it does not stop.
        pub fn stop_with_it(&mut self) {
            if self.has_terminal {
                self.take_terminal_back();
                let _ = raise(Signal::SIGSTOP);
            }
        }

        /// Continues the command after a stop.
        pub fn go_on(&mut self) {
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

    /// The signals that concern a command, caught before it starts.
    #[derive(Debug)]
    pub struct CommandSignals {
        pub changes: Changes,
        pub passed: Passed,
    }

    /// The system's word that something has happened to a command.
    #[derive(Debug)]
    pub struct Changes(Signals);

    /// The signals that the command gets in place of this process.
    #[derive(Debug)]
    pub struct Passed(Vec<(Signal, Signals)>);

    /// A signal that is passed on to the command.
    #[derive(Clone, Copy, Debug)]
    pub struct PassedSignal(Signal);

    impl CommandSignals {
        /// Catches them from now on. Needs a runtime.
        ///
        /// # Errors
        /// The system refuses.
        pub fn catch() -> io::Result<Self> {
            let caught = |number: &Signal| {
                let signals = signal(SignalKind::from_raw(*number as i32))?;
                Ok((*number, signals))
            };
            // The command ignores them, too: a caught signal would reach it with its default action.
            let ignored = ignored();
            let passed = PASSED.iter().filter(|number| ignored & (1 << (**number as i32 - 1)) == 0);
            let passed = passed.map(caught).collect::<io::Result<_>>()?;
            Ok(Self { changes: Changes(signal(SignalKind::child())?), passed: Passed(passed) })
        }
    }

    impl Passed {
        /// The next one.
        pub async fn next(&mut self) -> PassedSignal {
            poll_fn(|cx| {
                let ready = self
                    .0
                    .iter_mut()
                    .find_map(|(signal, caught)| caught.poll_recv(cx).is_ready().then_some(*signal));
                ready.map_or(Poll::Pending, |signal| Poll::Ready(PassedSignal(signal)))
            })
            .await
        }
    }

    impl PassedSignal {
        /// The exit code of a process that the signal ends; `None`: it asks nobody to end.
        pub fn exit_code(self) -> Option<u8> {
            ENDING.contains(&self.0).then_some(128 + self.0 as u8)
        }
    }

    const PASSED: &[Signal] = &[
        Signal::SIGALRM,
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
    ];
    const ENDING: &[Signal] =
        &[Signal::SIGALRM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

    /// A command that nobody passes signals to, and what it starts. Dropping it ends what is left of them.
    #[derive(Debug)]
    pub struct Group {
        child: TokioChild,
        id: Option<i32>,
    }

    impl Group {
        /// Starts a command in a process group of its own.
        ///
        /// # Errors
        /// The command cannot be run.
        pub fn start(mut command: TokioCommand) -> io::Result<Self> {
            let child = command.process_group(0).kill_on_drop(true).spawn()?;
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            Ok(Self { child, id })
        }

        /// What the command reads: its standard input, once, if it is a pipe.
        pub fn take_input(&mut self) -> Option<ChildStdin> {
            self.child.stdin.take()
        }

        /// What the command prints: its standard output and its standard error, once, if they are pipes.
        pub fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
            (self.child.stdout.take(), self.child.stderr.take())
        }

        /// Waits until the command has ended; what it has started may run on.
        ///
        /// # Errors
        /// The system does not tell.
        pub async fn wait(&mut self) -> io::Result<ExitStatus> {
            self.child.wait().await
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            if let Some(id) = self.id {
                // The group may have ended.
                let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
            }
        }
    }
}

#[cfg(windows)]
mod windows {
    use std::ffi::OsString;
    use std::io;
    use std::process::ExitStatus;

    use process_wrap::tokio::{ChildWrapper, CommandWrap, JobObject, KillOnDrop};
    use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

    use super::Change;
    use crate::signals::{Ending, Signals};

    /// A command that runs, in a job of its own: the job ends with this process at the latest.
    #[derive(Debug)]
    pub struct Child(Box<dyn ChildWrapper>);

    impl Child {
        /// Starts a command, with these variables added to its environment; `None` takes one away.
        ///
        /// # Errors
        /// The command cannot be run.
        pub fn start(command: &[OsString], variables: &[(&str, Option<OsString>)]) -> io::Result<Self> {
            let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
            let mut command = Command::new(program);
            command.args(arguments);
            for (name, value) in variables {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            in_job(command).map(Self)
        }

        /// The console has passed the key on to the command itself.
        pub fn pass(&self, _: PassedSignal) {}

        /// Ends every process of the job.
        pub fn terminate(&mut self) {
            self.kill();
        }

        /// Ends every process of the job.
        pub fn kill(&mut self) {
            // The job may have ended.
            let _ = self.0.start_kill();
        }

        /// What happens to the command next.
        pub async fn change(&mut self, _: &mut Changes) -> Change {
            // The job would wait for all of its processes.
            let status = self.0.inner_mut().wait().await;
            self.kill();
            let code = status.ok().and_then(|status| status.code());
            Change::Ended(code.map(|code| u8::try_from(code).unwrap_or(u8::MAX)))
        }

        /// Nobody stops a command here.
        pub fn stop_with_it(&mut self) {}

        /// Nobody stops a command here.
        pub fn go_on(&mut self) {}
    }

    fn in_job(command: Command) -> io::Result<Box<dyn ChildWrapper>> {
        CommandWrap::from(command).wrap(KillOnDrop).wrap(JobObject).spawn()
    }

    /// The signals that concern a command, caught before it starts.
    #[derive(Debug)]
    pub struct CommandSignals {
        pub changes: Changes,
        pub passed: Passed,
    }

    /// The system tells who waits for a command itself.
    #[derive(Debug)]
    pub struct Changes;

    /// The keys of the console, and its end.
    #[derive(Debug)]
    pub struct Passed(Signals);

    /// One of them.
    #[derive(Clone, Copy, Debug)]
    pub struct PassedSignal(Ending);

    impl CommandSignals {
        /// Catches them from now on. Needs a runtime.
        ///
        /// # Errors
        /// The system refuses.
        pub fn catch() -> io::Result<Self> {
            Ok(Self { changes: Changes, passed: Passed(Signals::catch()?) })
        }
    }

    impl Passed {
        /// The next one.
        pub async fn next(&mut self) -> PassedSignal {
            PassedSignal(self.0.leave().await)
        }
    }

    impl PassedSignal {
        /// The exit code of a process that it ends.
        pub fn exit_code(self) -> Option<u8> {
            Some(128 + self.0.number)
        }
    }

    /// A command, and what it starts. Dropping it ends what is left of them.
    #[derive(Debug)]
    pub struct Group(Box<dyn ChildWrapper>);

    impl Group {
        /// Starts a command in a job of its own.
        ///
        /// # Errors
        /// The command cannot be run.
        pub fn start(command: Command) -> io::Result<Self> {
            in_job(command).map(Self)
        }

        /// What the command reads: its standard input, once, if it is a pipe.
        pub fn take_input(&mut self) -> Option<ChildStdin> {
            self.0.stdin().take()
        }

        /// What the command prints: its standard output and its standard error, once, if they are pipes.
        pub fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
            (self.0.stdout().take(), self.0.stderr().take())
        }

        /// Waits until the command has ended; what it has started may run on.
        ///
        /// # Errors
        /// The system does not tell.
        pub async fn wait(&mut self) -> io::Result<ExitStatus> {
            self.0.inner_mut().wait().await
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            // The job may have ended.
            let _ = self.0.start_kill();
        }
    }
}
