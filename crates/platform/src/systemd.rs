//! systemd: the socket that it is told things through, and the sockets that it hands over.
//!
//! Source  the manual pages sd_notify(3) and sd_listen_fds(3). The crate `sd-notify` has the words; it does not reach a
//!         socket without a file, whose address begins with `@`.

use std::net::TcpListener;

use crate::unix_socket::blocking::UnixListener;

#[cfg(not(unix))]
pub use absent::{HandedOver, Notifier};
#[cfg(unix)]
pub use unix::{HandedOver, Notifier};

/// A socket that was handed over: it listens, and does not block.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[cfg(unix)]
mod unix {
    use std::ffi::OsStr;
    use std::fmt::Write;
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;
    use std::time::Duration;

    use listenfd::ListenFd;
    use sd_notify::NotifyState;
    use socket2::SockRef;

    use super::Socket;

    /// The way to tell systemd how this process is.
    #[derive(Debug)]
    pub struct Notifier(UnixDatagram);

    /// How long a message may wait until systemd takes it. It is sent by the thread that serves connections.
    const SEND_MAX: Duration = Duration::from_millis(100);

    impl Notifier {
        /// A socket whose messages go to `address`: a path, or a name behind `@` that has no file.
        ///
        /// # Errors
        /// There is no socket.
        pub fn to(address: &OsStr) -> io::Result<Self> {
            let socket = UnixDatagram::unbound()?;
            connect(&socket, address)?;
            socket.set_write_timeout(Some(SEND_MAX))?;
            Ok(Self(socket))
        }

        /// Says that this process is ready, and how it is.
        ///
        /// # Errors
        /// systemd does not take the message.
        pub fn ready(&self, status: Option<&str>) -> io::Result<()> {
            self.tell(NotifyState::Ready, status.map(NotifyState::Status))
        }

        /// Says that this process ends, and what it does until then.
        ///
        /// # Errors
        /// systemd does not take the message.
        pub fn stopping(&self, status: &str) -> io::Result<()> {
            self.tell(NotifyState::Stopping, Some(NotifyState::Status(status)))
        }

        /// Says that the configuration is being read again, and since when.
        ///
        /// # Errors
        /// systemd does not take the message.
        pub fn reloading(&self) -> io::Result<()> {
            let now = NotifyState::monotonic_usec_now()?;
            self.tell(NotifyState::Reloading, Some(now))
        }

        /// Says that this process lives.
        ///
        /// # Errors
        /// systemd does not take the message.
        pub fn alive(&self) -> io::Result<()> {
            self.tell(NotifyState::Watchdog, None)
        }

        /// How often systemd wants to hear that this process lives; `None`: not at all.
        pub fn period(&self) -> Option<Duration> {
            sd_notify::watchdog_enabled().filter(|period| !period.is_zero())
        }

        /// Sends both as one message.
        fn tell(&self, state: NotifyState<'_>, more: Option<NotifyState<'_>>) -> io::Result<()> {
            let mut text = String::new();
            for state in [Some(state), more].into_iter().flatten() {
                // Writing to a string does not fail.
                let _ = writeln!(text, "{state}");
            }
            self.0.send(text.as_bytes()).map(drop)
        }
    }

    #[cfg(target_os = "linux")]
    fn connect(socket: &UnixDatagram, address: &OsStr) -> io::Result<()> {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;
        use std::os::unix::net::SocketAddr;
        match address.as_bytes().split_first() {
            Some((b'@', name)) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?),
            _ => socket.connect(address),
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn connect(socket: &UnixDatagram, address: &OsStr) -> io::Result<()> {
        socket.connect(address)
    }

    /// The descriptors that the environment hands to this process: the numbers from 3 on.
    pub struct HandedOver(ListenFd);

    impl HandedOver {
        /// Finds them. It is called before anything else is opened.
        pub fn find() -> Self {
            Self(ListenFd::from_env())
        }

        /// Takes one of them; `None`: it is not there.
        ///
        /// # Errors
        /// It is no socket that listens.
        pub fn take(&mut self, index: usize) -> io::Result<Option<Socket>> {
            if let Ok(Some(listener)) = self.0.take_tcp_listener(index) {
                prepare(&listener)?;
                return Ok(Some(Socket::Tcp(listener)));
            }
            let no_socket =
                |error| io::Error::other(format!("{error}: must be a listening socket, TCP or Unix"));
            let Some(listener) = self.0.take_unix_listener(index).map_err(no_socket)? else {
                return Ok(None);
            };
            prepare(&listener)?;
            Ok(Some(Socket::Unix(listener)))
        }
    }

    /// Checks that connections can be accepted, and makes accepting not block.
    fn prepare(socket: &impl AsFd) -> io::Result<()> {
        let socket = SockRef::from(socket);
        match is_listener(&socket)? {
            true => socket.set_nonblocking(true),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen")),
        }
    }

    #[cfg(target_os = "linux")]
    fn is_listener(socket: &SockRef<'_>) -> io::Result<bool> {
        socket.is_listener()
    }

    /// Other systems have no systemd, and macOS does not tell.
    #[cfg(not(target_os = "linux"))]
    fn is_listener(_: &SockRef<'_>) -> io::Result<bool> {
        Ok(true)
    }
}

/// Systems without systemd: no value of these types exists.
#[cfg(not(unix))]
mod absent {
    use std::ffi::OsStr;
    use std::io;
    use std::time::Duration;

    use super::Socket;
    use crate::unsupported;

    /// The way to tell systemd how this process is.
    #[derive(Debug)]
    pub enum Notifier {}

    impl Notifier {
        /// A socket whose messages go to an address.
        ///
        /// # Errors
        /// Always: the system has no Unix sockets.
        pub fn to(_: &OsStr) -> io::Result<Self> {
            Err(unsupported("Unix sockets"))
        }

        pub fn ready(&self, _: Option<&str>) -> io::Result<()> {
            match *self {}
        }

        pub fn stopping(&self, _: &str) -> io::Result<()> {
            match *self {}
        }

        pub fn reloading(&self) -> io::Result<()> {
            match *self {}
        }

        pub fn alive(&self) -> io::Result<()> {
            match *self {}
        }

        pub fn period(&self) -> Option<Duration> {
            match *self {}
        }
    }

    /// The descriptors that the environment hands to this process.
    pub struct HandedOver;

    impl HandedOver {
        pub fn find() -> Self {
            Self
        }

        /// Takes one of them.
        ///
        /// # Errors
        /// Always: the system hands over no sockets.
        pub fn take(&mut self, _: usize) -> io::Result<Option<Socket>> {
            Err(unsupported("sockets that another program hands over"))
        }
    }
}
