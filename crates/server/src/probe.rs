//! Facts about this process from the system, for INFO and MEMORY STATS.
//!
//! Source  `proc(5)`. Where /proc cannot be read, a fact is zero or empty.

// Statistics saturate: an overflow would end the request of everybody who asks for them.
#![deny(clippy::arithmetic_side_effects)]

use std::fs;
use std::io::Read;

use redlatch_proto::clock::{Probe, Process};

/// Reads /proc on each call. Holds the name of the program's allocator.
#[derive(Debug)]
pub(super) struct SystemProbe(pub(super) &'static str);

/// Clock ticks per second in /proc/self/stat: a constant of Linux' user interface.
const TICKS_PER_SEC: u64 = 100;

impl Probe for SystemProbe {
    fn look(&self) -> Process {
        let status = read("/proc/self/status");
        let (user_micros, kernel_micros) = processor_micros(&read("/proc/self/stat"));
        let executable = std::env::current_exe();
        Process {
            id: std::process::id(),
            system: system(),
            executable: executable.map(|path| path.display().to_string()).unwrap_or_default(),
            allocator: self.0,
            resident_bytes: kibibytes(&status, "VmRSS:"),
            resident_peak_bytes: kibibytes(&status, "VmHWM:"),
            machine_bytes: kibibytes(&read("/proc/meminfo"), "MemTotal:"),
            user_micros,
            kernel_micros,
        }
    }

    fn draw_secret(&self, bytes: &mut [u8]) -> bool {
        fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(bytes)).is_ok()
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn system() -> String {
    let (name, release) = (read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease"));
    let name = if name.is_empty() { std::env::consts::OS } else { name.trim() };
    [name, release.trim(), std::env::consts::ARCH].join(" ")
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

    #[test]
    fn a_process_knows_its_id() {
        assert_eq!(SystemProbe("libc").look().id, std::process::id());
    }
}
