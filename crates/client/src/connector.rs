//! How connections are opened: to the server of a URL, or over streams that the caller makes.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redlatch_platform::unix_socket::UnixStream;
use redlatch_proto::lock::ANSWER_MAX;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::cluster::{self, Master};
use super::connection::{Connection, Stream};
use super::error::Error;
use super::target::{Target, Transport, Trust};
use super::tls;
use crate::received::Reply;

/// Opens connections, one for each lock.
#[derive(Clone)]
pub(crate) enum Connector {
    /// To the server of a URL, or to the nodes of its cluster.
    Url(Arc<Seeds>),
    /// Over streams that the caller makes, with a login.
    Made(Arc<Made>),
}

/// A server, and the nodes of its cluster: any of them tells who serves which slots.
#[derive(Debug)]
pub(crate) struct Seeds {
    pub(crate) target: Target,
    pub(crate) trust: Trust,
    /// The nodes that were named last, or the Sentinels. The next one to ask is the first.
    nodes: Mutex<VecDeque<Target>>,
}

/// Streams that the caller makes.
pub(crate) struct Made {
    open: Box<dyn Fn() -> Opened + Send + Sync>,
    login: Target,
}

type Opened = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(seeds) => f.debug_tuple("Url").field(&seeds.target.address).finish(),
            Self::Made(..) => f.debug_tuple("Made").finish(),
        }
    }
}

impl Connector {
    pub(crate) fn to(target: Target, trust: Trust) -> Self {
        let nodes = Mutex::new(asked_first(&target));
        Self::Url(Arc::new(Seeds { target, trust, nodes }))
    }

    pub(crate) fn over<F, O, S>(open: F, login: Target) -> Self
    where
        F: Fn() -> O + Send + Sync + 'static,
        O: Future<Output = io::Result<S>> + Send + 'static,
        S: Stream + 'static,
    {
        let open = move || -> Opened {
            let opening = open();
            Box::pin(async move { opening.await.map(|stream| Box::new(stream) as Box<dyn Stream>) })
        };
        Self::Made(Arc::new(Made { open: Box::new(open), login }))
    }

    /// Opens a connection and logs in: to any node of a cluster.
    ///
    /// # Errors
    /// The server cannot be reached or trusted, or refuses the login.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        match self {
            Self::Url(seeds) => seeds.connect().await.map(|(connection, _)| connection),
            Self::Made(made) => made.connect().await,
        }
    }

    /// Like [`Self::connect`], to the node of a cluster that serves a key.
    ///
    /// # Errors
    /// As [`Self::connect`]; or no node serves the key, or the nodes do not say which.
    pub(crate) async fn connect_for(&self, key: &[u8]) -> Result<Connection, Error> {
        let Self::Url(seeds) = self else { return self.connect().await };
        let (masters, mut connection, asked) = seeds.masters().await?;
        match cluster::owner(&mut connection, &masters, key).await? {
            Some(owner) if owner != asked => connect(&owner, &seeds.trust).await,
            _ => Ok(connection),
        }
    }

    /// The nodes of a cluster that serve slots, each with a connector of its own, and with a connection if there is one.
    /// Streams that the caller makes lead to one server.
    ///
    /// # Errors
    /// As [`Self::connect`]; or the nodes do not say who serves which slots.
    pub(crate) async fn masters(&self) -> Result<Vec<(Master, Self, Option<Connection>)>, Error> {
        let Self::Url(seeds) = self else {
            return Ok(vec![(Master::alone(&Target::default()), self.clone(), None)]);
        };
        let (masters, connection, asked) = seeds.masters().await?;
        let mut connection = Some(connection);
        let each = |master: Master| {
            let connector = Self::to(master.target.clone(), seeds.trust.clone());
            let open = connection.take_if(|_| master.target == asked);
            (master, connector, open)
        };
        Ok(masters.into_iter().map(each).collect())
    }
}

impl Made {
    async fn connect(&self) -> Result<Connection, Error> {
        let opened = timeout(ANSWER_MAX, (self.open)()).await;
        let opened = opened.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let mut connection = Connection::over(opened?, ANSWER_MAX);
        connection.enter(&self.login).await?;
        Ok(connection)
    }
}

impl Seeds {
    /// Opens a connection to the first node that is reached, each time beginning with another one. Returns its target, too.
    async fn connect(&self) -> Result<(Connection, Target), Error> {
        let count = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).len();
        // A node that does not answer leaves time for the others.
        let limit = ANSWER_MAX / u32::try_from(count.max(1)).unwrap_or(u32::MAX);
        let mut tried = 1;
        loop {
            let target = self.next();
            let opened = timeout(limit, self.connect_by(&target)).await;
            match opened.unwrap_or_else(|_| Err(at(&target, io::Error::from(io::ErrorKind::TimedOut).into())))
            {
                Err(Error::Unreachable { .. }) if tried < count => tried += 1,
                opened => return opened,
            }
        }
    }

    /// Opens a connection to this node, or to the server that this Sentinel names. Returns its target, too.
    async fn connect_by(&self, node: &Target) -> Result<(Connection, Target), Error> {
        let server = match &self.target.sentinels {
            Some(sentinels) => {
                let mut connection = connect(node, &self.trust).await?;
                let server =
                    master(&mut connection, &sentinels.master).await.map_err(|error| at(node, error))?;
                Target { address: server, sentinels: None, ..self.target.clone() }
            }
            None => node.clone(),
        };
        connect(&server, &self.trust).await.map(|connection| (connection, server))
    }

    /// The node to ask now. It is the last one to be asked again, also if the caller gives up before it has answered.
    fn next(&self) -> Target {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.rotate_left(1);
        nodes.back().cloned().unwrap_or_else(|| self.target.clone())
    }

    /// The nodes that serve slots, and a connection to one that says so, with its target.
    async fn masters(&self) -> Result<(Vec<Master>, Connection, Target), Error> {
        let (mut connection, asked) = self.connect().await?;
        let masters = cluster::masters(&mut connection, &asked).await.map_err(|error| at(&asked, error))?;
        let mut nodes = asked_first(&self.target);
        if self.target.sentinels.is_none() {
            nodes.extend(masters.iter().map(|node| node.target.clone()).filter(|node| *node != self.target));
            *self.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        }
        Ok((masters, connection, asked))
    }
}

/// The nodes, or the Sentinels, that a URL names.
fn asked_first(target: &Target) -> VecDeque<Target> {
    let Some(sentinels) = &target.sentinels else { return [target.clone()].into() };
    let sentinel = |address: &String| Target {
        address: address.clone(),
        database: 0,
        sentinels: None,
        ..target.clone()
    };
    sentinels.addresses.iter().map(sentinel).collect()
}

/// The address of a master, as a Sentinel says.
async fn master(sentinel: &mut Connection, name: &str) -> Result<String, Error> {
    let reply = sentinel.call(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name.as_bytes()]).await?;
    let texts: Vec<_> = reply.items().iter().filter_map(Reply::text).map(String::from_utf8_lossy).collect();
    match &texts[..] {
        [host, port] if host.contains(':') => Ok(format!("[{host}]:{port}")),
        [host, port] => Ok(format!("{host}:{port}")),
        _ => Err(Error::unreachable(format!("this Sentinel knows no master '{name}'"))),
    }
}

/// Opens a connection and logs in.
///
/// # Errors
/// The server cannot be reached or trusted, or refuses the login.
pub async fn connect(target: &Target, trust: &Trust) -> Result<Connection, Error> {
    let mut connection = open(target, trust, ANSWER_MAX).await?;
    connection.enter(target).await.map_err(|error| at(target, error))?;
    Ok(connection)
}

/// Opens a connection, on which nothing has been said yet. `step_max` is how long it and each request may take.
///
/// # Errors
/// The server cannot be reached or trusted.
pub async fn open(target: &Target, trust: &Trust, step_max: Duration) -> Result<Connection, Error> {
    let opened = timeout(step_max, stream(target, trust)).await;
    let opened = opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    opened.map(|stream| Connection::over(stream, step_max)).map_err(|error| at(target, error))
}

async fn stream(target: &Target, trust: &Trust) -> Result<Box<dyn Stream>, Error> {
    let address = &target.address;
    if target.transport == Transport::Unix {
        return Ok(Box::new(UnixStream::connect(address).await?));
    }
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // A wait may take hours, in which nothing else would notice that the server's machine is gone.
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    if target.transport == Transport::Tcp {
        return Ok(Box::new(stream));
    }
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    tls::handshake(stream, host.trim_matches(['[', ']']), trust, &[]).await
}

/// The error with the address of the server.
pub fn at(target: &Target, error: Error) -> Error {
    match error {
        Error::Unreachable { reason, source } => {
            Error::Unreachable { reason: format!("{}: {reason}", target.address), source }
        }
        Error::Broken(reason) => Error::Broken(format!("{}: {reason}", target.address)),
        error => error,
    }
}

/// After how much silence, and how often, the system asks whether the server's machine is there.
const KEEPALIVE: Duration = Duration::from_secs(15);
