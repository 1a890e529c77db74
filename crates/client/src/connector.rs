//! How connections are opened: to the server of a URL, or over streams that the caller makes.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::connection::{Connection, Stream};
use super::error::Error;
use super::target::{Target, Transport, Trust};
use super::tls;

/// Opens connections, one for each lock.
#[derive(Clone)]
pub(crate) enum Connector {
    /// To the server of a URL.
    Url(Arc<(Target, Trust)>),
    /// Over streams that the caller makes, with a login.
    Made(Arc<dyn Fn() -> Opened + Send + Sync>, Arc<Target>),
}

type Opened = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(both) => f.debug_tuple("Url").field(&both.0.address).finish(),
            Self::Made(..) => f.debug_tuple("Made").finish(),
        }
    }
}

impl Connector {
    pub(crate) fn to(target: Target, trust: Trust) -> Self {
        Self::Url(Arc::new((target, trust)))
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
        Self::Made(Arc::new(open), Arc::new(login))
    }

    /// Opens a connection and logs in.
    ///
    /// # Errors
    /// The server cannot be reached or trusted, or refuses the login.
    pub(crate) async fn connect(&self) -> Result<Connection, Error> {
        match self {
            Self::Url(both) => {
                let (target, trust) = &**both;
                connect(target, trust).await
            }
            Self::Made(open, login) => {
                let mut connection = Connection::over(open().await?, STEP_MAX);
                connection.enter(login).await?;
                Ok(connection)
            }
        }
    }
}

/// Opens a connection and logs in.
///
/// # Errors
/// The server cannot be reached or trusted, or refuses the login.
pub async fn connect(target: &Target, trust: &Trust) -> Result<Connection, Error> {
    let mut connection = open(target, trust, STEP_MAX).await?;
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
        Error::Unreachable(reason) => Error::Unreachable(format!("{}: {reason}", target.address)),
        Error::Broken(reason) => Error::Broken(format!("{}: {reason}", target.address)),
        error => error,
    }
}

/// How long a connection and each request that does not wait may take.
const STEP_MAX: Duration = Duration::from_secs(5);
/// After how much silence, and how often, the system asks whether the server's machine is there.
const KEEPALIVE: Duration = Duration::from_secs(15);
