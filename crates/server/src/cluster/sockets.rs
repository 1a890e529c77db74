//! The sockets of a node, which it keeps while it leads and while it does not.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use redlatch_core::state::settings::{self, Settings};

use super::leader;
use crate::inherited::Inherited;
use crate::{Port, StartError, http, unix, write_ports};

/// The sockets of a node.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) tcp: Vec<TcpListener>,
    pub(super) tls: Vec<TcpListener>,
    pub(super) http: Vec<TcpListener>,
    pub(super) unix: Vec<unix::Bound>,
}

impl Sockets {
    /// Binds what the settings ask for, unless another program has: for each of so many groups of slots, those of its number.
    /// Writes the files of ports.
    ///
    /// # Errors
    /// An address cannot be listened on, or a file cannot be written; or other sockets than ports are asked for by several
    /// groups.
    pub(super) fn open_all(
        settings: &Settings,
        inherited: Inherited,
        groups: u16,
    ) -> Result<Vec<Self>, StartError> {
        let has_others = [settings::UNIXSOCKET, settings::HTTP_UNIXSOCKET]
            .into_iter()
            .any(|path| !settings.get(path).is_empty());
        if groups > 1 && (inherited.is_any() || !inherited.http.is_empty() || has_others) {
            let reason = "each group needs a port: no Unix socket, and none that another program has opened";
            return Err(StartError::Unusable(format!("cluster-groups '{groups}': {reason}")));
        }
        let mut inherited = Some(inherited);
        let open = |group| Self::open(settings, inherited.take().unwrap_or_default(), usize::from(group));
        let all: Vec<Self> = (0..groups).map(open).collect::<Result<_, _>>()?;
        let ports = |of: fn(&Self) -> &[TcpListener]| -> Vec<_> {
            all.iter().map(|sockets| addresses(of(sockets))).collect()
        };
        write_ports(&settings.get(settings::PORT_FILE), &ports(|sockets| &sockets.tcp))?;
        write_ports(&settings.get(settings::TLS_PORT_FILE), &ports(|sockets| &sockets.tls))?;
        write_ports(&settings.get(settings::HTTP_PORT_FILE), &ports(|sockets| &sockets.http))?;
        Ok(all)
    }

    fn open(settings: &Settings, inherited: Inherited, group: usize) -> Result<Self, StartError> {
        let has_main = inherited.replaces_port();
        let or_bound = |given: Vec<TcpListener>, port| match given.is_empty() {
            true => Port::open(settings, port, group).map(|port| port.listeners),
            false => Ok(given),
        };
        let tcp = if has_main { inherited.tcp } else { or_bound(Vec::new(), settings::PORT)? };
        let tls = or_bound(inherited.tls, settings::TLS_PORT)?;
        let unix = match has_main {
            true => inherited.unix.into_iter().map(unix::Bound::inherited).collect(),
            false => unix::Bound::open(settings, settings::UNIXSOCKET)?.into_iter().collect(),
        };
        let http = http::listeners(settings, inherited.http, group)?;
        Ok(Self { tcp, tls, http, unix })
    }

    /// Where this process itself reaches the sockets: clients that have waited for it to lead are spliced there.
    pub(super) fn local_addresses(&self) -> Vec<String> {
        let local = |listeners: &[TcpListener]| {
            let mut address = *addresses(listeners).first()?;
            match address.ip() {
                IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
                IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
                _ => {}
            }
            Some(address.to_string())
        };
        leader::own_addresses(local(&self.tcp).as_deref(), local(&self.tls).as_deref())
    }

    /// The same sockets, for a server.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn shared(&self) -> io::Result<Inherited> {
        let shared = |listeners: &[TcpListener]| -> io::Result<Vec<_>> {
            listeners.iter().map(TcpListener::try_clone).collect()
        };
        let unix = self.unix.iter().map(|bound| bound.listener.try_clone()).collect::<io::Result<_>>()?;
        Ok(Inherited { tcp: shared(&self.tcp)?, tls: shared(&self.tls)?, http: shared(&self.http)?, unix })
    }
}

pub(super) fn addresses(listeners: &[TcpListener]) -> Vec<SocketAddr> {
    listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
}
