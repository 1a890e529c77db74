//! The sockets of a node while it does not lead: clients are spliced to the leader.
//!
//! Rule    no client is accepted while this node leads: its server does that, on the same sockets.

use std::net::TcpListener;
use std::sync::Arc;

use redlatch_platform::unix_socket::{UnixListener, UnixStream};
use socket2::SockRef;
use tokio::net::TcpListener as AsyncTcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::reach::Reach;
use super::sockets::Sockets;
use super::splice::{Door, Splices};
use super::standby_http;
use crate::StartError;
use crate::http::standby::Standby;
use crate::listener::{Accepted, FULL, Listener, PROTECTED, set_options};
use crate::spare_descriptor::{SpareDescriptor, is_peer_error};
use crate::unix::Bound;

/// What accepts the clients of a node that does not lead.
#[derive(Clone, Debug)]
pub(super) struct Acceptor {
    pub(super) splices: Splices,
    pub(super) leads: watch::Receiver<bool>,
    pub(super) stop: watch::Receiver<bool>,
    /// One for each client: `maxclients`.
    pub(super) places: Arc<Semaphore>,
    pub(super) keepalive_seconds: u64,
    /// Whether clients of other machines are denied.
    pub(super) is_protected: bool,
    pub(super) http: Arc<Standby>,
    pub(super) reach: Arc<Reach>,
}

/// What is behind a socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Service {
    Clients(Door),
    Http,
}

impl Acceptor {
    /// Accepts on all sockets, in tasks of the runtime that is entered.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn serve(&self, sockets: &Sockets) -> Result<(), StartError> {
        let all = [
            (&sockets.tcp, Service::Clients(Door::Plain)),
            (&sockets.tls, Service::Clients(Door::Tls)),
            (&sockets.http, Service::Http),
        ];
        for (listeners, service) in all {
            for listener in listeners.iter().map(TcpListener::try_clone) {
                let socket = AsyncTcpListener::from_std(listener?)?;
                let listener = Listener::Tcp { socket, tls: None, is_inherited: true };
                tokio::spawn(self.clone().run(listener, service));
            }
        }
        for bound in &sockets.unix {
            let Bound { listener, file } = Bound::inherited(bound.listener.try_clone()?);
            let listener = Listener::Unix(UnixListener::from_std(listener)?, file);
            tokio::spawn(self.clone().run(listener, Service::Clients(Door::Plain)));
        }
        Ok(())
    }

    async fn run(mut self, listener: Listener, service: Service) {
        let mut spare = SpareDescriptor::new();
        loop {
            if self.leads.wait_for(|leads| !leads).await.is_err() {
                return;
            }
            let accepted = tokio::select! {
                biased;
                _ = self.stop.wait_for(|stop| *stop) => return,
                _ = self.leads.wait_for(|leads| *leads) => continue,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok(accepted) => {
                    spare.accept_succeeded();
                    self.admit(accepted, service);
                }
                Err(error) if is_peer_error(&error) => tokio::task::yield_now().await,
                Err(error) => {
                    tracing::debug!(%error, "accept failed");
                    spare.recover(false).await;
                }
            }
        }
    }

    fn admit(&self, accepted: Accepted, service: Service) {
        let is_plain = service == Service::Clients(Door::Plain);
        let has_token = service == Service::Http && self.http.has_token();
        if self.is_protected && !accepted.is_local() && !has_token {
            if is_plain {
                accepted.refuse(PROTECTED);
            }
            return;
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            if is_plain {
                accepted.refuse(FULL);
            }
            return;
        };
        match service {
            // A socket that cannot be registered is closed.
            Service::Clients(door) => {
                self.reach.note_client();
                drop(self.splice(accepted, door, place));
            }
            Service::Http => {
                let leader = self.splices.leader.borrow().clone();
                standby_http::answer(accepted, Arc::clone(&self.http), leader, place);
            }
        }
    }

    fn splice(&self, accepted: Accepted, door: Door, place: OwnedSemaphorePermit) -> std::io::Result<()> {
        let splices = self.splices.clone();
        match accepted {
            Accepted::Tcp(stream, peer) => {
                set_options(&SockRef::from(&stream), self.keepalive_seconds);
                let stream = tokio::net::TcpStream::from_std(stream)?;
                tokio::spawn(splices.serve((stream, Some(peer)), door, place));
            }
            Accepted::Unix(stream) => {
                let stream = UnixStream::from_std(stream)?;
                tokio::spawn(splices.serve((stream, None), door, place));
            }
        }
        Ok(())
    }
}
