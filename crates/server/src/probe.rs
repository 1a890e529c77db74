//! Facts about this process from the system, for INFO and MEMORY STATS.

use redlatch_platform::{figures, ports};
use redlatch_proto::clock::{Probe, Process};

/// Asks the system on each call. Holds the name of the program's allocator.
#[derive(Debug)]
pub(super) struct SystemProbe(pub(super) &'static str);

impl Probe for SystemProbe {
    fn look(&self) -> Process {
        let (figures, executable) = (figures::look(), std::env::current_exe());
        Process {
            id: std::process::id(),
            system: figures::system(),
            poller: ports::POLLER,
            executable: executable.map(|path| path.display().to_string()).unwrap_or_default(),
            allocator: self.0,
            resident_bytes: figures.resident_bytes,
            resident_peak_bytes: figures.resident_peak_bytes,
            machine_bytes: figures.machine_bytes,
            user_micros: figures.user_micros,
            kernel_micros: figures.kernel_micros,
        }
    }

    fn draw_secret(&self, bytes: &mut [u8]) -> bool {
        figures::draw_secret(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_its_id() {
        assert_eq!(SystemProbe("libc").look().id, std::process::id());
    }
}
