//! What listening on a port takes besides the address.

use std::io;

use socket2::Socket;

/// Has a port belong to one server, and yet be free as soon as its server has ended: with old connections in TIME_WAIT. On
/// Windows that is so without an option, and the option of this name would let two servers share the port.
///
/// # Errors
/// The system refuses.
pub fn allow_restart(socket: &Socket) -> io::Result<()> {
    if cfg!(windows) { Ok(()) } else { socket.set_reuse_address(true) }
}

/// Whether an error says that the process, or the whole system, has no free descriptor. The numbers are equal on every Unix;
/// Windows has no such limit.
pub fn is_out_of_descriptors(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    cfg!(unix) && matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// The system's call that waits for many sockets at once, as `multiplexing_api` of INFO says it.
pub const POLLER: &str = if cfg!(any(target_os = "linux", target_os = "android")) {
    "epoll"
} else if cfg!(windows) {
    "iocp"
} else {
    "kqueue"
};
