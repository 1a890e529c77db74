//! File systems that die under a server, disks that are attached again, and mount namespaces that are new with each start.
//!
//! Belongs here  what takes a file system on a loop device. A machine that gives none skips the test, and says why.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::*;

/// An ext4 file system on a loop device. It is mounted in a mount namespace that a waiting process holds, so that nothing is
/// left of it when that ends.
struct LoopDisk {
    holder: Child,
    image: Directory,
    directory: Directory,
}

impl LoopDisk {
    /// `None`: this user may not mount, which the test says.
    fn new() -> Option<Self> {
        let (image, directory) = (Directory::new(), Directory::new());
        fs::File::create(image.path("image")).unwrap().set_len(32 << 20).unwrap();
        let make = format!(
            "mkfs.ext4 -q '{}' && {} && echo mounted && exec cat",
            image.path("image"),
            mount(&image, &directory)
        );
        let holder = Command::new("unshare")
            .args(["--mount", "sh", "-c", &make])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut disk = Self { holder: holder.ok()?, image, directory };
        let mut said = [0; 8];
        let output = disk.holder.stdout.as_mut()?;
        if output.read_exact(&mut said).is_err() {
            println!("skipped: this machine mounts no ext4 on a loop device for this user");
            return None;
        }
        Some(disk)
    }

    /// A command of the shell in the namespace of the file system.
    fn shell(&self, script: &str) {
        let status = self.inside().args(["sh", "-c", script]).status().unwrap();
        assert!(status.success(), "{script}");
    }

    fn inside(&self) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.id().to_string(), "--mount", "--"]);
        command
    }

    /// The file system throws away what is not on the disk, and takes no more writes.
    fn abort(&self) {
        self.shell(&format!("mount -o remount,abort '{}'", self.directory.root().display()));
    }

    fn attach_again(&self) {
        let umount = format!("umount '{}'", self.directory.root().display());
        self.shell(&format!("{umount} && {}", mount(&self.image, &self.directory)));
    }

    /// Starts a server, in a mount namespace of its own if `is_sandboxed`.
    fn start(&self, is_sandboxed: bool) -> Running {
        let server = command(&self.directory);
        let mut inside = self.inside();
        if is_sandboxed {
            inside.args(["unshare", "--mount"]);
        }
        inside.arg(server.get_program()).args(server.get_args()).stdin(Stdio::null());
        // No directory takes the mark of a failed sync, so that the disk itself must be the witness.
        let nowhere = self.image.path("image/none");
        Running::start(inside.env("RUNTIME_DIRECTORY", nowhere))
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn mount(image: &Directory, directory: &Directory) -> String {
    format!("mount -o loop '{}' '{}'", image.path("image"), directory.root().display())
}

/// Takes this many locks for 30 seconds each.
fn take(server: &Running, locks: std::ops::Range<usize>) {
    let mut peer = peer(server);
    for lock in locks {
        assert_eq!(peer.ask(format!("SET lock:{lock} me NX PX 30000\r\n").as_bytes()), "+OK");
    }
}

/// How many of these locks the server does not know. None of them is granted again.
fn count_forgotten(server: &Running, locks: usize) -> usize {
    let mut peer = peer(server);
    let mut forgotten = 0;
    for lock in 0..locks {
        let value = peer.ask(format!("GET lock:{lock}\r\n").as_bytes());
        match value.as_str() {
            "$-1" => forgotten += 1,
            _ => assert_eq!(peer.line(), "me"),
        }
        let again = peer.ask(format!("SET lock:{lock} you NX PX 30000\r\n").as_bytes());
        assert_eq!(again, "$-1", "lock {lock} is granted twice");
    }
    forgotten
}

/// Locks are taken, the file system dies under the server, and another server starts when it is mounted again.
fn dies_and_is_mounted_again(is_sandboxed: bool, is_killed: bool) {
    const LOCKS: usize = 600;
    let Some(disk) = LoopDisk::new() else { return };
    let mut server = disk.start(is_sandboxed);
    take(&server, 0..LOCKS);
    disk.abort();
    if is_killed {
        server.kill();
    } else {
        let mut peer = peer(&server);
        let _ = peer.0.get_mut().write_all(b"INCR n\r\n");
        server.wait_for("the server ends");
        assert_eq!(server.end(), Some(74));
    }
    disk.attach_again();
    let server = disk.start(is_sandboxed);
    let forgotten = count_forgotten(&server, LOCKS);
    println!("{forgotten} of {LOCKS} locks were forgotten");
    let left = info(&server, "quarantine_left_ms");
    assert!((20_000..=36_000).contains(&left), "{left}");
    assert!(server.said.contains("was attached or mounted again"), "{}", server.said);
}

#[test]
#[ignore = "mounts a file system on a loop device"]
fn locks_that_a_dead_file_system_has_forgotten_are_not_granted_again() {
    dies_and_is_mounted_again(false, false);
    dies_and_is_mounted_again(false, true);
}

#[test]
#[ignore = "mounts a file system on a loop device"]
fn under_the_sandbox_of_a_unit_locks_that_a_dead_file_system_has_forgotten_are_not_granted_again() {
    dies_and_is_mounted_again(true, false);
    dies_and_is_mounted_again(true, true);
}

#[test]
#[ignore = "mounts a file system on a loop device"]
fn a_disk_that_is_attached_again_is_as_a_loss_of_power() {
    for is_sandboxed in [false, true] {
        let Some(disk) = LoopDisk::new() else { return };
        let server = disk.start(is_sandboxed);
        take(&server, 0..3);
        server.kill();
        // As it is while the disk stays where it is.
        let server = disk.start(is_sandboxed);
        assert_eq!(info(&server, "quarantine_active"), 0);
        server.kill();
        disk.attach_again();
        // A torn end: without the other disk this would be damage, because no power was lost on this boot.
        disk.shell(&format!(
            "printf 'torn end of a journal' >> '{}/data/journal-2'",
            disk.directory.root().display()
        ));
        let server = disk.start(is_sandboxed);
        assert_eq!(count_forgotten(&server, 3), 0);
        assert_eq!(info(&server, "quarantine_active"), 1);
        // After an end in good order nothing can be missing.
        let Some(disk) = LoopDisk::new() else { return };
        let server = disk.start(is_sandboxed);
        take(&server, 0..3);
        server.signal("TERM");
        assert_eq!(server.end(), Some(0));
        disk.attach_again();
        assert_eq!(info(&disk.start(is_sandboxed), "quarantine_active"), 0);
    }
}

#[test]
#[ignore = "mounts a file system on a loop device"]
fn a_disk_that_goes_back_to_a_young_snapshot_grants_nothing_twice() {
    let Some(disk) = LoopDisk::new() else { return };
    let server = disk.start(true);
    take(&server, 0..1);
    // WAITAOF is answered after the next sync.
    assert_eq!(server.ask("WAITAOF 1 0 0"), "*2\r\n:1\r\n:0\r\n");
    let image = disk.image.path("image");
    disk.shell(&format!("cp '{image}' '{image}.snapshot'"));
    take(&server, 1..200);
    server.kill();
    let root = disk.directory.root().display().to_string();
    disk.shell(&format!("umount '{root}' && mv '{image}.snapshot' '{image}'"));
    disk.shell(&mount(&disk.image, &disk.directory));
    let server = disk.start(true);
    assert!(count_forgotten(&server, 200) > 0);
    assert_eq!(info(&server, "quarantine_active"), 1);
}

// Shows P-always-keeps-all.
#[test]
#[ignore = "mounts a file system on a loop device"]
fn with_always_a_file_system_that_dies_loses_nothing_and_nobody_waits() {
    let Some(disk) = LoopDisk::new() else { return };
    let always = |disk: &LoopDisk| {
        let mut inside = disk.inside();
        let mut server = command(&disk.directory);
        server.args(["--appendfsync", "always"]);
        inside.arg(server.get_program()).args(server.get_args()).stdin(Stdio::null());
        Running::start(&mut inside)
    };
    let server = always(&disk);
    take(&server, 0..20);
    disk.abort();
    server.kill();
    disk.attach_again();
    let server = always(&disk);
    assert_eq!(count_forgotten(&server, 20), 0);
    assert_eq!(info(&server, "quarantine_active"), 0);
}

/// As the unit and containers do it: each start has a mount namespace of its own, with the directory bound into it.
#[test]
#[ignore = "makes mount namespaces"]
fn kills_under_the_sandbox_of_a_unit_need_no_quarantine() {
    let directory = Directory::new();
    let disk = LoopDisk::new();
    let sandbox = "mount --bind \"$0\" \"$0\" && mount -t tmpfs tmpfs /mnt && mount -o remount,ro,bind /mnt && exec \"$@\"";
    for disk in [None, disk.as_ref()] {
        let directory = disk.map_or(&directory, |disk| &disk.directory);
        let start = || {
            let server = command(directory);
            let mut command = disk.map_or_else(|| Command::new("env"), LoopDisk::inside);
            command
                .args(["unshare", "--mount", "--map-root-user", "sh", "-c", sandbox])
                .arg(directory.root());
            command.arg(server.get_program()).args(server.get_args()).stdin(Stdio::null());
            Running::start(&mut command)
        };
        let server = start();
        take(&server, 0..3);
        server.kill();
        for kill in 1..=3 {
            let server = start();
            assert_eq!(info(&server, "quarantine_active"), 0, "after kill {kill}: {}", server.said);
            assert_eq!(count_forgotten(&server, 3), 0);
            assert!(!server.said.contains("mounted again"), "{}", server.said);
            server.kill();
        }
    }
}
