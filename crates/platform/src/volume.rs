//! The storage under a directory: what tells whether it was attached or mounted again while the machine ran.
//!
//! Source  Linux: `diskseq` of a block device in sysfs (since 5.15); the directory that ext4, XFS and F2FS make in `/sys/fs`
//!         for each mount of a device, whose inode number is not used twice on one boot; the unique id of a mount by statx(2)
//!         (since 6.8). An overlay, a tmpfs and a network file system have no block device. Other systems say nothing.
//! Rule    a number that cannot be read is unknown, and that is no error.

/// What identifies a storage within one boot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Volume {
    /// The number of the block device.
    pub device: Option<u64>,
    /// The sequence number of the disk.
    pub disk: Option<u64>,
    /// The inode number of the directory in `/sys/fs` for this mounted file system. Every mount namespace has the same.
    pub file_system: Option<u64>,
    /// The unique id of the root mount, which tells one mount namespace from another.
    pub root_mount: Option<u64>,
    /// The unique id of the mount.
    pub mount: Option<u64>,
}

/// What the system says of the storage under a directory.
#[cfg(not(target_os = "linux"))]
pub fn of(_: &std::path::Path) -> Volume {
    Volume::default()
}

#[cfg(target_os = "linux")]
pub use linux::of;

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::os::unix::fs::MetadataExt;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, statx};

    use super::Volume;

    /// `STATX_MNT_ID_UNIQUE` of Linux, for which rustix has no name yet.
    const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

    /// What the system says of the storage under a directory.
    pub fn of(directory: &Path) -> Volume {
        let Some(found) = look(directory) else { return Volume::default() };
        let mount = |found: &Statx| {
            StatxFlags::from_bits_retain(found.stx_mask).contains(UNIQUE_MOUNT).then_some(found.stx_mnt_id)
        };
        let mounted = Volume {
            root_mount: look(Path::new("/")).and_then(|root| mount(&root)),
            mount: mount(&found),
            ..Volume::default()
        };
        let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
        if major == 0 {
            // No block device: the number only tells file systems apart that are mounted now.
            return mounted;
        }
        let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        Volume {
            device: Some(u64::from(major) << 32 | u64::from(minor)),
            disk: sequence_number(&device),
            file_system: mounted_file_system(&device),
            ..mounted
        }
    }

    fn look(path: &Path) -> Option<Statx> {
        statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS | UNIQUE_MOUNT).ok()
    }

    /// The sequence number of a disk, or of the disk of a partition.
    fn sequence_number(device: &Path) -> Option<u64> {
        let read = |name| fs::read_to_string(device.join(name)).ok()?.trim().parse().ok();
        read("diskseq").or_else(|| read("../diskseq"))
    }

    /// The inode number of `/sys/fs/TYPE/NAME`, where NAME is that of the device.
    fn mounted_file_system(device: &Path) -> Option<u64> {
        let link = fs::read_link(device).ok()?;
        let (name, types) = (link.file_name()?, Path::new("/sys/fs"));
        let sysfs = types.metadata().ok()?.dev();
        let mut found =
            fs::read_dir(types).ok()?.flatten().filter_map(|each| each.path().join(name).metadata().ok());
        // Of other file systems that are mounted below `/sys/fs`, the names are no devices.
        found.find(|directory| directory.dev() == sysfs).map(|directory| directory.ino())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_volume_is_the_same_as_long_as_it_is_mounted() {
            let directory = std::env::temp_dir();
            assert_eq!(of(&directory), of(&directory));
            assert_eq!(of(Path::new("/no/such/directory")), Volume::default());
        }

        #[test]
        fn what_has_no_block_device_has_at_most_a_mount() {
            let volume = of(Path::new("/proc"));
            assert_eq!(Volume { root_mount: None, mount: None, ..volume }, Volume::default());
        }
    }
}
