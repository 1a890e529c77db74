//! The Unix socket: binding it, its permissions, and its file.
//!
//! Owns    the socket's file, from the start of the server to its end.
//! Rule    the file has its permissions before the socket listens. So no client can connect before they are set,
//!         which was the race of CVE-2023-45145. Only a socket without a listener is replaced, and only the file of
//!         this server is removed.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use redlatch_core::state::settings::Settings;
use socket2::{Domain, SockAddr, Socket, Type};

use super::StartError;
use super::listener::BACKLOG;

#[derive(Debug)]
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    pub(super) file: SocketFile,
}

/// The file of a Unix socket. Dropping it removes the file of a socket that this server has bound.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file. A later file at this path may belong to another server. `None`: the file belongs to the
    /// program that opened the socket.
    identity: Option<(u64, u64)>,
}

impl Bound {
    /// Listens at the path that the setting `name` has, with the permissions of `unixsocketperm`; `None` without a path.
    ///
    /// # Errors
    /// The path cannot be listened at, or the permissions are none.
    pub(super) fn open(settings: &Settings, name: &'static str) -> Result<Option<Self>, StartError> {
        let path = settings.text(name);
        if path.is_empty() {
            return Ok(None);
        }
        let mode = permissions(&settings.text("unixsocketperm")).map_err(StartError::Unusable)?;
        let bound = Self::new(path.as_ref(), mode);
        bound.map(Some).map_err(|error| StartError::Listen { address: path, error })
    }

    /// Listens at `path`, replacing a socket without a listener. Without `permissions`, the umask of the process
    /// decides.
    ///
    /// # Errors
    /// When the path cannot be bound, is not a socket, or has another listener.
    fn new(path: &Path, permissions: Option<u32>) -> io::Result<Self> {
        remove_dead_socket(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile { path: path.to_owned(), identity: Some(identity(path)?) };
        if let Some(mode) = permissions {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { listener: socket.into(), file })
    }

    /// A socket that another program has opened. Its file stays.
    pub(super) fn inherited(listener: UnixListener) -> Self {
        let address = listener.local_addr().ok();
        let path = address.and_then(|address| address.as_pathname().map(Path::to_owned)).unwrap_or_default();
        Self { listener, file: SocketFile { path, identity: None } }
    }
}

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path).ok() == self.identity {
            // The file may be gone by now.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Parses the setting `unixsocketperm`; `None` leaves the permissions to the umask.
///
/// # Errors
/// The text is not an octal number up to 777.
pub(super) fn permissions(octal: &str) -> Result<Option<u32>, String> {
    // As in Redis, 0 means no permissions are set.
    let mode = if octal.is_empty() { Ok(0) } else { u32::from_str_radix(octal, 8) };
    match mode {
        Ok(mode) if mode <= 0o777 && !octal.starts_with('+') => Ok((mode != 0).then_some(mode)),
        _ => Err(format!("unixsocketperm '{octal}': must be octal, between 0 and 777")),
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Removes a socket without a listener.
fn remove_dead_socket(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is not a socket"));
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Connecting to a server with a full backlog would block.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    /// A path without a file.
    fn free_path() -> PathBuf {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), MADE.fetch_add(1, Relaxed));
        std::env::temp_dir().join(format!("redlatch-unix-{process}-{number}"))
    }

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    fn refusal(path: &Path) -> io::ErrorKind {
        Bound::new(path, None).unwrap_err().kind()
    }

    #[test]
    fn no_client_can_connect_before_the_permissions_are_set() {
        for wanted in [0o700, 0o660, 0o777].repeat(30) {
            let path = free_path();
            let client = std::thread::spawn({
                let path = path.clone();
                move || {
                    while UnixStream::connect(&path).is_err() {
                        std::thread::yield_now();
                    }
                    mode(&path)
                }
            });
            let bound = Bound::new(&path, Some(wanted)).unwrap();
            assert_eq!(client.join().unwrap(), wanted);
            drop(bound);
        }
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let path = free_path();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "a closed socket leaves its file");
        let bound = Bound::new(&path, None).unwrap();
        assert_eq!(refusal(&path), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).unwrap();
        drop(bound);
        assert!(!path.exists());
    }

    #[test]
    fn a_server_with_a_full_backlog_is_alive() {
        let path = free_path();
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(&path).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
            client.set_nonblocking(true).unwrap();
            match client.connect(&SockAddr::unix(&path).unwrap()) {
                Ok(()) => waiting.push(client),
                Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(refusal(&path), io::ErrorKind::AddrInUse);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_left_alone() {
        let path = free_path();
        std::fs::write(&path, "data").unwrap();
        assert_eq!(refusal(&path), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere/at/all", &path).unwrap();
        assert_eq!(refusal(&path), io::ErrorKind::AlreadyExists);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn the_file_of_another_server_outlives_this_one() {
        let path = free_path();
        let first = Bound::new(&path, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Bound::new(&path, None).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn permissions_are_octal() {
        for (octal, mode) in [("", None), ("0", None), ("700", Some(0o700)), ("0770", Some(0o770))] {
            assert_eq!(permissions(octal), Ok(mode), "{octal}");
        }
        for octal in ["8", "79", "rwx", "0x1f", "1000", "-1", "+7", " 700", "77777777777"] {
            assert!(permissions(octal).unwrap_err().contains("must be octal"), "{octal}");
        }
    }
}
