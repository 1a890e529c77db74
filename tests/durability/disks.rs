//! Disks that are full, and disks that fail.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use super::*;

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

    fn start(&self) -> Running {
        let server = command(&self.directory);
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

#[test]
#[ignore = "mounts a small file system"]
fn a_full_disk_refuses_grants_and_goes_on_when_it_has_room() {
    let disk = SmallDisk::new(2 << 20).expect("user namespaces, or root");
    fs::write(disk.path("ballast"), vec![1; 1 << 20]).unwrap();
    let mut server = disk.start();
    assert_eq!(server.ask("SET held me NX PX 60000"), "+OK\r\n");
    let (mut writer, is_over) = (peer(&server), Arc::new(AtomicBool::new(false)));
    let has_ended = Arc::clone(&is_over);
    let writes = std::thread::spawn(move || {
        let mut kept = 0;
        // The reply of the write that does not fit is held.
        while !has_ended.load(SeqCst) {
            writer.send(format!("SET lock:{kept} {} PX 60000\r\n", "x".repeat(20_000)).as_bytes());
            assert_eq!(writer.line(), "+OK");
            kept += 1;
        }
        kept
    });
    while !server.ask("INFO persistence").contains("aof_last_write_status:err") {}
    is_over.store(true, SeqCst);
    let text = "-MISCONF Errors writing to the AOF file: No space left on device\r\n";
    assert_eq!(server.ask("SET new me NX PX 1000"), text);
    assert_eq!(server.ask("GET held\r\nDEL lock:0\r\nPING"), format!("$2\r\nme\r\n:1\r\n{text}"));
    fs::remove_file(disk.path("ballast")).unwrap();
    let kept: usize = writes.join().unwrap();
    assert!((10..100).contains(&kept), "{kept} writes, the last of them held");
    server.wait_for("The journal can be written again");
    assert_eq!(server.ask("SET new me NX PX 60000"), "+OK\r\n");
    server.process.kill().unwrap();
    server.end();
    let server = disk.start();
    assert_eq!(server.ask(&format!("GET new\r\nEXISTS lock:0 lock:{}", kept - 1)), "$2\r\nme\r\n:1\r\n");
    assert_eq!(info(&server, "quarantine_active"), 0);
}

/// A library whose `fdatasync` fails once the file that `FAIL_SYNC` names exists.
const SHIM: &str = r#"
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

int fdatasync(int fd) {
    if (access(getenv("FAIL_SYNC"), F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return (int) syscall(SYS_fdatasync, fd);
}
"#;

#[test]
#[cfg(all(target_os = "linux", not(target_env = "musl")))]
fn a_sync_that_fails_ends_the_process_and_the_next_start_waits() {
    let directory = Directory::new();
    let source = directory.write("shim.c", SHIM);
    let (library, fails) = (directory.path("shim.so"), directory.path("fails"));
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o", &library, &source]).status().unwrap();
    assert!(built.success());
    let mut server = Running::start(command(&directory).env("LD_PRELOAD", &library).env("FAIL_SYNC", &fails));
    assert_eq!(server.ask("SET held me NX PX 30000\r\nINCR n"), "+OK\r\n:1\r\n");
    fs::write(&fails, "").unwrap();
    let mut peer = peer(&server);
    peer.send(b"INCR n\r\n");
    assert_eq!(String::from_utf8_lossy(&peer.rest()), "", "no reply");
    server.wait_for("the server ends");
    assert_eq!(server.end(), Some(74));
    let server = start(&directory);
    assert!(info(&server, "quarantine_left_ms") > 0);
    assert_eq!(server.ask("GET held\r\nSET other me NX PX 1000"), "$2\r\nme\r\n$-1\r\n");
}
