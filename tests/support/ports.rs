//! Ports for servers that cannot pick one themselves.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Socket, Type};

/// Linux gives 32768 and higher ones to who asks for any, others 49152 and higher ones.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A currently free port. No other call in this process gets it, and no connection: it is below those that systems pick by
/// themselves.
pub(crate) fn free_port() -> u16 {
    free_ports(1)
}

/// The first of so many successive ports, each like that of [`free_port`].
pub(crate) fn free_ports(count: u16) -> u16 {
    static TRIED: AtomicU16 = AtomicU16::new(0);
    // Programs that run at the same time begin at different ports.
    let start = process::id() * 61;
    let mut firsts = (0..COUNT).map(|_| {
        let number = start + u32::from(TRIED.fetch_add(count, Ordering::Relaxed));
        FIRST + (number % u32::from(COUNT)) as u16
    });
    let found = firsts.find(|first| (*first..*first + count).all(is_free));
    found.expect("a free port")
}

/// Whether nobody listens on a port. The socket that asks does not listen itself: a process that another test starts has a
/// copy of it until its own program runs, and beside one that listens a server could not.
fn is_free(port: u16) -> bool {
    let bound = || -> io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_address(cfg!(unix))?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())
    };
    bound().is_ok()
}
