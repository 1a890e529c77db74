//! The Unix socket: the file through which clients of this machine come in.
//!
//! Owns    the file, from the start of the server to its end.
//! Rule    the file has its permissions before anybody can connect, for the socket does not listen sooner: the race of
//!         CVE-2023-45145. Only a socket that nobody listens on is replaced, and only our own file is removed.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use socket2::{Domain, SockAddr, Socket, Type};

use super::listen::BACKLOG;

/// A socket that listens.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    pub(super) file: SocketFile,
}

/// The file of a Unix socket, removed when nobody listens there any more: also when the runtime of the listener ends
/// before its task does.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and number of the file: what stands at the path later may be another server's.
    identity: (u64, u64),
}

impl Bound {
    /// Listens at `path`, replacing a dead socket that was left there. Without `permissions`, the file has what the umask
    /// of the process leaves.
    ///
    /// # Errors
    /// When the path cannot be bound, is no socket, or another server listens there.
    pub(super) fn new(path: &Path, permissions: Option<u32>) -> io::Result<Self> {
        make_way(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile { path: path.to_owned(), identity: identity(path)? };
        if let Some(mode) = permissions {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { listener: socket.into(), file })
    }
}

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // Nobody is harmed when it is gone by now.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What the setting `unixsocketperm` says; `None` leaves it to the umask.
///
/// # Errors
/// When it is no octal number, or one above 777.
pub(super) fn permissions(octal: &str) -> Result<Option<u32>, String> {
    // As in Redis, 0 stands for none: a socket that nobody may use would be no use.
    let mode = if octal.is_empty() { Ok(0) } else { u32::from_str_radix(octal, 8) };
    match mode {
        Ok(mode) if mode <= 0o777 && !octal.starts_with('+') => Ok((mode != 0).then_some(mode)),
        _ => Err(format!("unixsocketperm '{octal}': must be octal, between 0 and 777")),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Removes a socket that nobody listens on.
fn make_way(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A server that is too busy to accept would otherwise have us wait.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}
