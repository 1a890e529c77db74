//! Figures of this process, and of the machine.
//!
//! Source  `proc(5)` on Linux. Where /proc cannot be read, a figure is zero or empty.

// Figures saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

/// The process as it is now.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Its resident memory, in bytes.
    pub resident_bytes: u64,
    /// Its highest resident memory so far, in bytes; 0: the system does not say.
    pub resident_peak_bytes: u64,
    /// RAM of the machine, in bytes.
    pub machine_bytes: u64,
    /// Time its threads ran in its own code, in microseconds; all time, where the system does not tell them apart.
    pub user_micros: u64,
    /// Time its threads ran in the kernel, in microseconds.
    pub kernel_micros: u64,
}

#[cfg(target_os = "linux")]
pub use linux::{look, system, threads};
#[cfg(not(target_os = "linux"))]
pub use others::{look, system, threads};

/// The name of the machine in its network; `None`: the system does not say.
#[cfg(all(unix, feature = "program"))]
pub fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok().map(|host| host.to_string_lossy().into_owned())
}

/// The name of the machine in its network; `None`: the system does not say.
#[cfg(not(unix))]
pub fn host_name() -> Option<String> {
    sysinfo::System::host_name()
}

/// Fills `bytes` with unpredictable random bytes; false if the system has none.
pub fn draw_secret(bytes: &mut [u8]) -> bool {
    getrandom::fill(bytes).is_ok()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;

    use super::Figures;

    /// Clock ticks per second in /proc/self/stat: a constant of Linux' user interface.
    const TICKS_PER_SEC: u64 = 100;

    /// Reads the figures.
    pub fn look() -> Figures {
        let status = read("/proc/self/status");
        let (user_micros, kernel_micros) = processor_micros(&read("/proc/self/stat"));
        Figures {
            resident_bytes: kibibytes(&status, "VmRSS:"),
            resident_peak_bytes: kibibytes(&status, "VmHWM:"),
            machine_bytes: kibibytes(&read("/proc/meminfo"), "MemTotal:"),
            user_micros,
            kernel_micros,
        }
    }

    /// The operating system, as `uname -srm` prints it.
    pub fn system() -> String {
        let (name, release) = (read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease"));
        let name = if name.is_empty() { std::env::consts::OS } else { name.trim() };
        [name, release.trim(), std::env::consts::ARCH].join(" ")
    }

    /// The threads of the process; `None` where /proc cannot be read.
    pub fn threads() -> Option<u64> {
        let status = read("/proc/self/status");
        let line = status.lines().find_map(|line| line.strip_prefix("Threads:"))?;
        line.trim().parse().ok()
    }

    fn read(path: &str) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    /// The value of a line such as `VmRSS:  5120 kB`, in bytes.
    fn kibibytes(text: &str, label: &str) -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(label));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.unwrap_or(0).saturating_mul(1024)
    }

    /// Time in user mode and in the kernel, in microseconds: fields 14 and 15 of /proc/self/stat.
    fn processor_micros(stat: &str) -> (u64, u64) {
        // Field 2 is the program's name in parentheses, which may contain spaces and parentheses.
        let behind_name = stat.rsplit(')').next().unwrap_or_default();
        let mut fields = behind_name.split_whitespace().skip(11);
        let mut next = || fields.next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
        let (user, kernel) = (next(), next());
        let micros = |ticks: u64| ticks.saturating_mul(1_000_000) / TICKS_PER_SEC;
        (micros(user), micros(kernel))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_lines_of_proc_are_parsed() {
            let stat = "7 (a) b (x) S 1 2 3 4 5 6 7 8 9 10 250 31 12 13";
            assert_eq!(processor_micros(stat), (2_500_000, 310_000));
            assert_eq!(processor_micros(""), (0, 0));
            assert_eq!(kibibytes("VmPeak: 9 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), 12 * 1024);
            assert_eq!(kibibytes("", "VmRSS:"), 0);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod others {
    use sysinfo::{MemoryRefreshKind, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

    use super::Figures;

    /// Reads the figures.
    pub fn look() -> Figures {
        let (mut system, id) = (System::new(), Pid::from_u32(std::process::id()));
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let wanted = ProcessRefreshKind::nothing().with_memory().with_cpu();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[id]), false, wanted);
        let process = system.process(id);
        Figures {
            resident_bytes: process.map_or(0, |process| process.memory()),
            resident_peak_bytes: 0,
            machine_bytes: system.total_memory(),
            user_micros: process.map_or(0, |process| process.accumulated_cpu_time().saturating_mul(1_000)),
            kernel_micros: 0,
        }
    }

    /// The operating system: its name, its version, the processor.
    pub fn system() -> String {
        let name = System::name().unwrap_or_else(|| std::env::consts::OS.to_owned());
        let version = System::kernel_version().unwrap_or_default();
        [&name, &version, std::env::consts::ARCH].join(" ")
    }

    /// The threads of the process: the system is not asked.
    pub fn threads() -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_memory_and_secrets() {
        assert!(super::look().resident_bytes > 0);
        let mut drawn = [[0; 16]; 2];
        assert!(drawn.iter_mut().all(|bytes| super::draw_secret(bytes)));
        assert_ne!(drawn[0], drawn[1]);
    }
}
