//! The boot of the machine: lock time goes on with its clock over a restart of the server.
//!
//! Source  `/proc/sys/kernel/random/boot_id` and CLOCK_BOOTTIME of Linux, which counts on while the machine is suspended.
//!         Other systems do not tell one boot from another. `RUNTIME_DIRECTORY`: systemd.exec(5).

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What tells this boot from all others; `None`: the system does not say.
#[cfg(target_os = "linux")]
pub fn id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u8> = text.chars().filter_map(|char| Some(char.to_digit(16)? as u8)).collect();
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    bytes.try_into().ok()
}

/// What tells this boot from all others: the system does not say.
#[cfg(not(target_os = "linux"))]
pub fn id() -> Option<[u8; 16]> {
    None
}

/// The clock of the boot, in milliseconds. Where the system has none it is a monotonic clock: no boot is known by that, but
/// what it counts within a process is right.
pub fn millis() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let time = since_boot().unwrap_or_else(|| ORIGIN.elapsed());
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Directories in memory whose files outlive a process, but not the boot: that of the service, or else that of the system
/// and that of the user. They need not exist. Where no boot is told from another, nobody needs them.
pub fn runtime_directories() -> Vec<PathBuf> {
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let of_service = std::env::var_os("RUNTIME_DIRECTORY");
    // A unit may have several, with colons between them.
    if let Some(first) = of_service.and_then(|all| std::env::split_paths(&all).next()) {
        return vec![first];
    }
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(|user| PathBuf::from(user).join("redlatch"));
    [Some(PathBuf::from("/run/redlatch")), of_user].into_iter().flatten().collect()
}

#[cfg(target_os = "linux")]
fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Into::into)
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Option<Duration> {
    None
}
