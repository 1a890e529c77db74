//! Unix sockets: streams, listeners, and the file of a listener.
//!
//! Owns    the file of a socket, from its start to its end.
//! Rule    the file has its permissions before the socket listens. So no client can connect before they are set,
//!         which was the race of CVE-2023-45145. Only a socket without a listener is replaced, and only the file of
//!         this server is removed.

#[cfg(not(unix))]
pub use absent::{SocketFile, UnixListener, UnixStream, bind, blocking};
#[cfg(all(unix, feature = "server"))]
pub use file::{SocketFile, bind};
#[cfg(unix)]
pub use tokio::net::{UnixListener, UnixStream};

/// The sockets of the standard library.
#[cfg(unix)]
pub mod blocking {
    pub use std::os::unix::net::{UnixListener, UnixStream};
}

#[cfg(all(unix, feature = "server"))]
mod file {
    use std::fs::Permissions;
    use std::io;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::os::unix::net::UnixListener;
    use std::path::{Path, PathBuf};

    use socket2::{Domain, SockAddr, Socket, Type};

    /// The file of a Unix socket. Dropping it removes the file of a socket that [`bind`] has bound.
    #[derive(Debug)]
    pub struct SocketFile {
        path: PathBuf,
        /// Device and inode of the file. A later file at this path may belong to another server. `None`: the file belongs
        /// to the program that opened the socket.
        identity: Option<(u64, u64)>,
    }

    /// Listens at `path` without blocking, replacing a socket without a listener. Without `permissions`, the umask of the
    /// process decides.
    ///
    /// # Errors
    /// The path cannot be bound, is not a socket, or has another listener.
    pub fn bind(
        path: &Path,
        permissions: Option<u32>,
        backlog: i32,
    ) -> io::Result<(UnixListener, SocketFile)> {
        remove_dead_socket(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        let file = SocketFile { path: path.to_owned(), identity: Some(identity(path)?) };
        if let Some(mode) = permissions {
            std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        }
        socket.listen(backlog)?;
        socket.set_nonblocking(true)?;
        Ok((socket.into(), file))
    }

    impl SocketFile {
        /// The file of a socket that another program has opened. It stays.
        pub fn of_another(listener: &UnixListener) -> Self {
            let address = listener.local_addr().ok();
            let path = address.and_then(|address| address.as_pathname().map(Path::to_owned));
            Self { path: path.unwrap_or_default(), identity: None }
        }

        /// Where the file is; empty for a socket without one.
        pub fn path(&self) -> &Path {
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
            bind(path, None, 16).unwrap_err().kind()
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
                let bound = bind(&path, Some(wanted), 16).unwrap();
                assert_eq!(client.join().unwrap(), wanted);
                drop(bound);
            }
        }

        #[test]
        fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
            let path = free_path();
            drop(UnixListener::bind(&path).unwrap());
            assert!(path.exists(), "a closed socket leaves its file");
            let bound = bind(&path, None, 16).unwrap();
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
            let first = bind(&path, None, 16).unwrap();
            std::fs::remove_file(&path).unwrap();
            let second = bind(&path, None, 16).unwrap();
            drop(first);
            UnixStream::connect(&path).unwrap();
            drop(second);
            assert!(!path.exists());
        }
    }
}

/// Systems without Unix sockets: no value of these types exists.
#[cfg(not(unix))]
mod absent {
    use std::convert::Infallible;
    use std::io::{self, Write};
    use std::path::Path;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    use crate::unsupported;

    pub mod blocking {
        pub use super::{UnixListener, UnixStream};
    }

    /// A connection.
    #[derive(Debug)]
    pub enum UnixStream {}

    /// A socket that accepts connections.
    #[derive(Debug)]
    pub enum UnixListener {}

    /// The file of a socket.
    #[derive(Debug)]
    pub enum SocketFile {}

    /// Listens at a path.
    ///
    /// # Errors
    /// Always: the system has no Unix sockets.
    pub fn bind(_: &Path, _: Option<u32>, _: i32) -> io::Result<(UnixListener, SocketFile)> {
        Err(unsupported("Unix sockets"))
    }

    impl SocketFile {
        pub fn of_another(listener: &UnixListener) -> Self {
            match *listener {}
        }

        pub fn path(&self) -> &Path {
            match *self {}
        }
    }

    impl UnixListener {
        pub fn from_std(listener: Self) -> io::Result<Self> {
            match listener {}
        }

        pub fn try_clone(&self) -> io::Result<Self> {
            match *self {}
        }

        pub async fn accept(&self) -> io::Result<(UnixStream, Infallible)> {
            match *self {}
        }
    }

    impl UnixStream {
        /// Connects to a path.
        ///
        /// # Errors
        /// Always: the system has no Unix sockets.
        pub async fn connect(_: impl AsRef<Path>) -> io::Result<Self> {
            Err(unsupported("Unix sockets"))
        }

        pub fn from_std(stream: Self) -> io::Result<Self> {
            match stream {}
        }

        pub fn into_std(self) -> io::Result<Self> {
            match self {}
        }
    }

    impl Write for UnixStream {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            match *self {}
        }

        fn flush(&mut self) -> io::Result<()> {
            match *self {}
        }
    }

    impl AsyncRead for UnixStream {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }

    impl AsyncWrite for UnixStream {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            match *self {}
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            match *self {}
        }
    }
}
