//! The race's calls to the operating system: cores, processor time, memory, files.
//!
//! Owns    every call that only Linux has; elsewhere it says so and the race does not run.
//! Rule    processor time is the kernel's account of the whole process, including ended threads.

use std::io;
use std::time::Duration;

/// Where a thread, and every process that it starts, may run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Cores {
    /// All that the process was given at its start.
    All,
    /// The one of the load generator: the last.
    Generator,
    /// The one of the servers: the first.
    Server,
}

/// The facts about the machine, stored with the results.
pub(crate) fn description() -> Vec<(String, String)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = [
        ("processor", field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".into())),
        ("cores", cores.to_string()),
        ("system", read_line("/proc/sys/kernel/osrelease").unwrap_or_else(|| std::env::consts::OS.into())),
        ("compiler", said_by("rustc", &["--version"]).unwrap_or_else(|| "unknown".into())),
        (
            "revision",
            said_by("git", &["describe", "--always", "--dirty"]).unwrap_or_else(|| "unknown".into()),
        ),
    ];
    facts.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Gives this process, and those that it starts from now on, a real-time priority. Returns false if it has no right to.
pub(crate) fn take_priority() -> bool {
    said_by("chrt", &["--fifo", "--pid", "10", &std::process::id().to_string()]).is_some()
}

/// Bytes that the process has in memory: pages of files that it shares count as well.
pub(crate) fn resident_bytes(pid: u32) -> io::Result<u64> {
    bytes_of(pid, "Rss")
}

/// Bytes of memory that the process takes from the machine: it alone has them, and has written into them.
pub(crate) fn private_bytes(pid: u32) -> io::Result<u64> {
    bytes_of(pid, "Private_Dirty")
}

/// The sum over the mappings is exact; what `status` says lags behind by some pages per core.
fn bytes_of(pid: u32, what: &str) -> io::Result<u64> {
    let found = field(&format!("/proc/{pid}/smaps_rollup"), what);
    let kib = found.and_then(|text| text.trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other(format!("process {pid} has no memory to read")))
}

/// The first line that a program prints; `None` if it cannot be run.
pub(crate) fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Waits without using the processor.
pub(crate) fn rest(time: Duration) {
    let end = std::time::Instant::now() + time;
    while let Some(left) =
        end.checked_duration_since(std::time::Instant::now()).filter(|left| !left.is_zero())
    {
        std::thread::park_timeout(left);
    }
}

/// The value behind `name:` in a file of `/proc`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let value = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name);
    value.map(|(_, value)| value.trim().to_owned())
}

fn read_line(file: &str) -> Option<String> {
    std::fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(target_os = "linux")]
pub(crate) use linux::{cpu_time, keep_to, raise_file_limit};

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::sync::OnceLock;
    use std::time::Duration;

    use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    use nix::time::ClockId;
    use nix::unistd::Pid;

    use super::Cores;

    /// Processor time that the process has used, in the kernel and outside it.
    pub(crate) fn cpu_time(pid: u32) -> io::Result<Duration> {
        let pid = Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?);
        Ok(ClockId::pid_cpu_clock_id(pid)?.now()?.into())
    }

    /// Keeps the calling thread, and the processes it starts from now on, to these cores.
    pub(crate) fn keep_to(cores: Cores) -> io::Result<()> {
        static GIVEN: OnceLock<CpuSet> = OnceLock::new();
        let this = Pid::from_raw(0);
        let given = match GIVEN.get() {
            Some(given) => *given,
            None => *GIVEN.get_or_init(|| sched_getaffinity(this).unwrap_or_default()),
        };
        let mut ours = (0..CpuSet::count()).filter(|core| given.is_set(*core).unwrap_or(false));
        let chosen = match cores {
            Cores::All => return Ok(sched_setaffinity(this, &given)?),
            Cores::Generator => ours.next_back(),
            Cores::Server => ours.next(),
        };
        let mut only = CpuSet::new();
        only.set(chosen.unwrap_or(0))?;
        Ok(sched_setaffinity(this, &only)?)
    }

    /// Lets this process open as many files as the system permits; returns how many that are.
    pub(crate) fn raise_file_limit() -> io::Result<u64> {
        let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
        setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
        Ok(most)
    }
}

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::io;
    use std::time::Duration;

    use super::Cores;

    /// Never available here.
    pub(crate) fn cpu_time(_pid: u32) -> io::Result<Duration> {
        Err(io::Error::other("the race reads the kernel's accounts, and only knows where Linux keeps them"))
    }

    /// Does not pin threads on this system.
    pub(crate) fn keep_to(_cores: Cores) -> io::Result<()> {
        Ok(())
    }

    /// Does not change the limit on this system.
    pub(crate) fn raise_file_limit() -> io::Result<u64> {
        Ok(256)
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::{cpu_time, keep_to, raise_file_limit};
