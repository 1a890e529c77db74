//! Disks that are full, and disks that fail.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use super::*;
use crate::support::waits::wait_until;

/// A small file system of its own, in a mount namespace that a waiting process holds.
struct SmallDisk {
    holder: Child,
    directory: Directory,
}

impl SmallDisk {
    /// `None`: this user may not mount.
    fn new(bytes: usize) -> Option<Self> {
        let directory = Directory::new();
        let mount = format!("mount -t tmpfs -o size={bytes} tmpfs \"$0\" && echo mounted && exec cat");
        let holder = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", &mount])
            .arg(directory.root())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut disk = Self { holder: holder.ok()?, directory };
        let mut said = [0; 8];
        disk.holder.stdout.as_mut()?.read_exact(&mut said).ok()?;
        Some(disk)
    }

    /// The path of a file on it, from outside.
    fn path(&self, name: &str) -> String {
        format!("/proc/{}/root{}", self.holder.id(), self.directory.path(name))
    }

    fn start(&self, more: &[&str]) -> Running {
        let mut server = command(&self.directory);
        server.args(more);
        let id = self.holder.id().to_string();
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &id, "--mount", "--user", "--preserve-credentials", "--"]);
        inside.arg(server.get_program()).args(server.get_args()).stdin(Stdio::null());
        Running::start(&mut inside)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

const FULL: &str = "-MISCONF Errors writing to the AOF file: No space left on device\r\n";

/// Fills the disk with locks until a write is refused. Returns how many of them were granted.
fn fill(server: &Running) -> usize {
    let mut writer = peer(server);
    let value = "x".repeat(20_000);
    for kept in 0.. {
        writer.send(format!("SET lock:{kept} {value} PX 600000\r\n").as_bytes());
        match writer.line().as_str() {
            "+OK" => {}
            line => {
                assert_eq!(line, FULL.trim_end());
                return kept;
            }
        }
    }
    unreachable!("a disk is full at some time")
}

/// What a client says and is told while the disk is full, and after it has room again.
fn fills_and_goes_on(policy: &str) {
    let disk = SmallDisk::new(4 << 20).expect("user namespaces, or root");
    fs::write(disk.path("ballast"), vec![1; 2 << 20]).unwrap();
    let mut server = disk.start(&["--appendfsync", policy]);
    let take = "SET held me NX PX 600000\r\nSET forever me\r\nRPUSH permits 1\r\nHSET rl me 2\r\n\
                SET awaited me\r\nSET broken me NX PX 600000\r\nLOCK.ACQUIRE mine me LEASE 600000";
    assert!(server.ask(take).starts_with("+OK\r\n+OK\r\n:1\r\n:1\r\n+OK\r\n+OK\r\n*6\r\n"));
    let mut waiter = peer(&server);
    waiter.send(b"LOCK.ACQUIRE awaited other WAIT 600000 JUSTTOKEN\r\n");
    wait_until("it waits", || server.ask("LOCK.WAITERS awaited").starts_with("*1"));
    let kept = fill(&server);
    assert!(kept >= 10, "{kept}");
    for write in [
        "SET new me NX PX 1000", "INCR n", "LPOP permits", "LOCK.EXTEND mine me LEASE 5", "SAVE",
        "WAITAOF 1 0 0", "PING",
    ] {
        assert_eq!(server.ask(write), FULL, "{write}");
    }
    for other in ["CONFIG SET loglevel notice", "PUBLISH a b"] {
        assert!(!server.ask(other).starts_with('-'), "{other}");
    }
    assert_eq!(server.ask("GET held\r\nEXISTS forever rl"), "$2\r\nme\r\n:2\r\n");
    let info = server.ask("INFO persistence");
    assert!(info.contains("aof_last_write_status:err"), "{info}");
    let released = "DEL lock:0\r\nDEL forever\r\nHINCRBY rl me -1\r\nLOCK.RELEASE mine me\r\nDEL awaited";
    assert_eq!(server.ask(released), ":1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    let token = server.ask("LOCK.TOKEN broken me").trim_start_matches(':').trim_end().to_owned();
    assert_eq!(server.ask(&format!("LOCK.BREAK broken TOKEN {token}")), ":1\r\n");
    assert_eq!(server.ask("EXISTS awaited"), ":0\r\n", "nothing is granted");
    for number in 1..kept {
        assert_eq!(server.ask(&format!("DEL lock:{number}")), ":1\r\n");
    }
    fs::remove_file(disk.path("ballast")).unwrap();
    server.wait_for("The journal can be written again");
    assert!(waiter.line().starts_with(':'), "the waiter is granted the lock");
    assert_eq!(server.ask("SET new me NX PX 60000"), "+OK\r\n");
    server.process.kill().unwrap();
    server.end();
    let server = disk.start(&["--appendfsync", policy]);
    let state = "GET new\r\nEXISTS forever lock:0 mine held\r\nHGET rl me\r\nLPOP permits";
    assert_eq!(server.ask(state), "$2\r\nme\r\n:1\r\n$1\r\n1\r\n$1\r\n1\r\n");
    assert_eq!(super::info(&server, "quarantine_active"), 0);
}

#[test]
#[ignore = "mounts a small file system"]
fn a_full_disk_refuses_grants_and_goes_on_when_it_has_room() {
    fills_and_goes_on("everysec");
}

#[test]
#[ignore = "mounts a small file system"]
fn with_always_a_full_disk_refuses_grants_and_goes_on_when_it_has_room() {
    fills_and_goes_on("always");
}

#[test]
#[ignore = "mounts a small file system"]
fn releases_are_answered_when_the_reserve_is_full_too() {
    for policy in ["everysec", "always"] {
        let disk = SmallDisk::new(4 << 20).expect("user namespaces, or root");
        fs::write(disk.path("ballast"), vec![1; 2 << 20]).unwrap();
        let server = disk.start(&["--appendfsync", policy]);
        assert_eq!(server.ask("SET held me NX PX 600000\r\nSET other me NX PX 600000"), "+OK\r\n+OK\r\n");
        fill(&server);
        // Another program takes the rest.
        let _ = fs::write(disk.path("more"), vec![1; 4 << 20]);
        for round in 0..2 {
            assert_eq!(server.ask("DEL held\r\nGET other"), format!(":{}\r\n$2\r\nme\r\n", 1 - round));
            assert_eq!(server.ask("SET held me NX"), FULL);
        }
    }
}

/// A server on a disk with 1 MiB of room and its reserve, and a write that fits in neither.
fn meets_a_write_that_fits_nowhere(policy: &str) -> (SmallDisk, Running, Peer) {
    let disk = SmallDisk::new(4 << 20).expect("user namespaces, or root");
    fs::write(disk.path("ballast"), vec![1; 2 << 20]).unwrap();
    let server = disk.start(&["--appendfsync", policy]);
    assert_eq!(server.ask("SET held me NX PX 600000"), "+OK\r\n");
    let writer = peer(&server);
    let words = ["SET", "large", &"x".repeat(3 << 20), "NX", "PX", "600000"];
    writer.send(format!("*{}\r\n", words.len()).as_bytes());
    words.iter().for_each(|word| writer.send(format!("${}\r\n{word}\r\n", word.len()).as_bytes()));
    (disk, server, writer)
}

#[test]
#[ignore = "mounts a small file system"]
fn a_write_that_fits_nowhere_is_answered_when_there_is_room() {
    let (disk, mut server, mut writer) = meets_a_write_that_fits_nowhere("everysec");
    // Before that, a write could join the one that fails, and wait with it.
    server.wait_for("The journal cannot be written");
    assert_eq!(server.ask("SET new me NX PX 1000"), FULL);
    assert_eq!(server.ask("GET held\r\nDEL held"), "$2\r\nme\r\n:1\r\n");
    // What it takes is more than there is with the ballast.
    fs::remove_file(disk.path("ballast")).unwrap();
    assert_eq!(writer.line(), "+OK");
    assert_eq!(server.ask("EXISTS large held"), ":1\r\n");
}

#[test]
#[ignore = "mounts a small file system"]
fn with_always_a_write_that_fits_nowhere_ends_the_process_and_was_answered_to_nobody() {
    let (disk, mut server, mut writer) = meets_a_write_that_fits_nowhere("always");
    server.wait_for("nothing is answered that cannot be written: the server ends");
    assert_eq!(server.end(), Some(74));
    assert_eq!(String::from_utf8_lossy(&writer.rest()), "");
    fs::remove_file(disk.path("ballast")).unwrap();
    let server = disk.start(&["--appendfsync", "always"]);
    assert_eq!(server.ask("EXISTS held\r\nEXISTS large"), ":1\r\n:0\r\n");
    assert_eq!(info(&server, "quarantine_active"), 0);
}

/// A library whose `fdatasync` fails once the file that `FAIL_SYNC` names exists. If `FAIL_WRITE` is set, writes to files
/// fail then, too.
const SHIM: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int fails(void) {
    if (access(getenv("FAIL_SYNC"), F_OK) != 0)
        return 0;
    errno = EIO;
    return 1;
}

int fdatasync(int fd) {
    return fails() ? -1 : (int) syscall(SYS_fdatasync, fd);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    struct stat file;
    if (getenv("FAIL_WRITE") && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && fails())
        return -1;
    return syscall(SYS_write, fd, bytes, count);
}
"#;

/// Starts a server, and lets its syncs fail. Returns once it has ended; false: this machine cannot do that.
#[cfg(all(target_os = "linux", not(target_env = "musl")))]
fn fails_to_sync(directory: &Directory, more: &[(&str, &str)]) -> bool {
    let Some(library) = build(directory, SHIM) else { return false };
    let fails = directory.path("fails");
    let mut command = command(directory);
    command.env("LD_PRELOAD", &library).env("FAIL_SYNC", &fails).envs(more.iter().copied());
    let mut server = Running::start(&mut command);
    assert_eq!(server.ask("SET held me NX PX 30000\r\nINCR n"), "+OK\r\n:1\r\n");
    fs::write(&fails, "").unwrap();
    let mut peer = peer(&server);
    peer.send(b"INCR n\r\n");
    assert_eq!(String::from_utf8_lossy(&peer.rest()), "", "no reply");
    server.wait_for("the server ends");
    assert_eq!(server.end(), Some(74));
    true
}

#[test]
#[cfg(all(target_os = "linux", not(target_env = "musl")))]
fn a_sync_that_fails_ends_the_process_and_the_next_start_waits() {
    let directory = Directory::new();
    // A file is no directory: only the journal takes the mark.
    let nowhere = directory.write("file", "");
    if !fails_to_sync(&directory, &[("RUNTIME_DIRECTORY", &nowhere)]) {
        return;
    }
    let server = start(&directory);
    assert!(info(&server, "quarantine_left_ms") > 0);
    assert_eq!(server.ask("GET held\r\nSET other me NX PX 1000"), "$2\r\nme\r\n$-1\r\n");
}

#[test]
#[cfg(all(target_os = "linux", not(target_env = "musl")))]
fn a_sync_that_fails_on_a_disk_that_takes_no_mark_is_known_to_the_next_start() {
    let (directory, runtime) = (Directory::new(), Directory::new());
    let path = runtime.path("redlatch");
    if !fails_to_sync(&directory, &[("RUNTIME_DIRECTORY", &path), ("FAIL_WRITE", "yes")]) {
        return;
    }
    let marks = || fs::read_dir(&path).unwrap().count();
    assert_eq!(marks(), 1);
    let start = || Running::start(command(&directory).env("RUNTIME_DIRECTORY", &path));
    let server = start();
    assert!(info(&server, "quarantine_left_ms") > 0);
    assert_eq!(server.ask("GET held\r\nSET other me NX PX 1000"), "$2\r\nme\r\n$-1\r\n");
    assert_eq!(marks(), 0, "the journal says it now");
    server.kill();
    assert_eq!(info(&start(), "quarantine_active"), 1);
}
