//! The process that started this one, and whether it has ended.
//!
//! Rule  the parent is asked for again and again. The signal that Linux sends when a parent ends comes when the parent's
//!       thread ends, and other systems have none.

/// The process that started this one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Parent(u32);

impl Parent {
    /// The parent; `None`: the system does not say.
    #[cfg(unix)]
    pub fn find() -> Option<Self> {
        Some(Self(std::os::unix::process::parent_id()))
    }

    /// The parent; `None`: the system does not say.
    #[cfg(not(unix))]
    pub fn find() -> Option<Self> {
        look(std::process::id(), |process| process.parent()).flatten().map(|id| Self(id.as_u32()))
    }

    /// The process of this number, which must be the parent.
    pub fn numbered(id: u32) -> Self {
        Self(id)
    }

    /// Whether this process has been handed to another one.
    #[cfg(unix)]
    pub fn has_ended(self) -> bool {
        std::os::unix::process::parent_id() != self.0
    }

    /// Whether no process has the parent's number, or a younger one has.
    #[cfg(not(unix))]
    pub fn has_ended(self) -> bool {
        let start = |id| look(id, |process| process.start_time());
        match (start(self.0), start(std::process::id())) {
            (Some(parent), Some(own)) => parent > own || Self::find() != Some(self),
            (None, _) => true,
            (Some(_), None) => false,
        }
    }

    /// Whether the parent has ended before this process could ask for its number: orphans are handed to process 1. In a
    /// container, process 1 may as well be the harness; then both are of one session.
    #[cfg(unix)]
    pub fn ended_before(self) -> bool {
        use nix::unistd::{Pid, getsid};
        self.0 == 1 && getsid(None) != getsid(Some(Pid::from_raw(1)))
    }

    /// Whether the parent has ended before this process could ask for its number: the number stays, and nobody has it.
    #[cfg(not(unix))]
    pub fn ended_before(self) -> bool {
        self.has_ended()
    }
}

/// What `of` says of the process of this number; `None`: there is none.
#[cfg(not(unix))]
fn look<T>(id: u32, of: impl FnOnce(&sysinfo::Process) -> T) -> Option<T> {
    use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};
    let (mut system, id) = (System::new(), Pid::from_u32(id));
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[id]), false, ProcessRefreshKind::nothing());
    system.process(id).map(of)
}
