//! What a node that does not lead does with clients: each one is spliced to the leader, or waits for one.
//!
//! Rule    a client has one connection to the leader, and its bytes pass as they are, so that everything that belongs to a
//!         connection (login, transactions, subscriptions, waits, TLS) is the leader's.
//! Rule    the leader is told the address of the client first, with a proof that this is a node, if it takes that.
//! Rule    the splice to a leader ends when there is another one: the old one may be stopped, and close nothing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use redlatch_core::state::cluster::ClusterFacts;
use redlatch_core::state::node_key::NodeKey;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::leader::Leader;
use crate::introduced::{CHALLENGE_BYTES, HELLO};
use crate::listener::set_options;

/// How long one try to connect to the leader takes at most.
const CONNECT_MAX: Duration = Duration::from_millis(500);
/// The time between two such tries.
const CONNECT_AGAIN: Duration = Duration::from_millis(20);
/// How long a client that is turned away may take to read why.
const GOODBYE_MAX: Duration = Duration::from_secs(1);
/// Bytes of a client that is turned away that are read and dropped, so that a reset does not overtake the reason.
const GOODBYE_BYTES_MAX: u64 = 64 * 1024;

/// What a client is told that has waited for a leader in vain: Redis' reply of a replica without its master.
const NO_LEADER: &str =
    "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n";

/// What a client wants to speak to at the leader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Door {
    /// The port without TLS.
    Plain,
    /// The port with TLS.
    Tls,
}

/// What all splices of a node share.
#[derive(Clone, Debug)]
pub(super) struct Splices {
    /// Who leads, as far as is known.
    pub(super) leader: watch::Receiver<Leader>,
    /// How long a client waits for a leader.
    pub(super) hold: Duration,
    /// After so many idle seconds the leader is asked whether it is there, as clients are; 0: never.
    pub(super) keepalive_seconds: u64,
    /// They have the key of the cluster.
    pub(super) facts: Arc<ClusterFacts>,
}

impl Splices {
    /// Splices a client to the leader until one of both closes, or another node leads.
    pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        (mut client, address): (S, Option<SocketAddr>),
        door: Door,
        _permit: OwnedSemaphorePermit,
    ) {
        let Some((mut stream, address)) = self.connect(door, address).await else {
            if door == Door::Plain {
                let trouble = self.leader.borrow().trouble.clone();
                let reason =
                    trouble.map_or(NO_LEADER.to_owned(), |trouble| format!("-MASTERDOWN {trouble}\r\n"));
                turn_away(client, &reason).await;
            }
            return;
        };
        let changed = self.changed(door, &address);
        tokio::select! {
            ended = copy_bidirectional(&mut client, &mut stream) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, address = address.1, "a splice has ended");
                }
            }
            () = changed => {}
        }
    }

    /// A connection to the leader for a client with this address, and where it leads. `None`: there was no leader in time.
    async fn connect(
        &mut self,
        door: Door,
        client: Option<SocketAddr>,
    ) -> Option<(TcpStream, (i64, String))> {
        let until = Instant::now() + self.hold;
        loop {
            let known = self.leader.wait_for(|leader| leader.address(door).is_some());
            let (address, takes_clients) = {
                let leader = timeout_at(until, known).await.ok()?.ok()?;
                (leader.address(door)?, leader.takes_clients())
            };
            let introduction = client.zip(self.facts.node_key()).filter(|_| takes_clients);
            let connected = tokio::select! {
                // A connection that is there is that of its leader, and ends with its term.
                biased;
                connected = timeout(CONNECT_MAX, open(&address.1, introduction)) => connected,
                () = self.changed(door, &address) => continue,
            };
            if let Ok(Ok(stream)) = connected {
                set_options(&SockRef::from(&stream), self.keepalive_seconds);
                return Some((stream, address));
            }
            // It may have ended a moment ago.
            if Instant::now() >= until {
                tracing::debug!(address = address.1, "the leader is not reached");
                return None;
            }
            sleep(CONNECT_AGAIN).await;
        }
    }

    /// Resolves when another node leads than the one at this address, or none.
    async fn changed(&mut self, door: Door, address: &(i64, String)) {
        // The sender ends with the node.
        let _ = self.leader.wait_for(|leader| leader.address(door).as_ref() != Some(address)).await;
    }
}

/// A connection to a leader, which knows the address of the client from now on, if there is one.
async fn open(leader: &str, introduction: Option<(SocketAddr, NodeKey)>) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(leader).await?;
    let Some((client, key)) = introduction else { return Ok(stream) };
    stream.write_all(HELLO).await?;
    let mut challenge = [0; CHALLENGE_BYTES];
    stream.read_exact(&mut challenge).await?;
    if challenge[0] != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.write_all(&key.introduction(&challenge, client)).await?;
    Ok(stream)
}

/// Tells a client why it is not served, and closes its connection.
pub(super) async fn turn_away<S: AsyncRead + AsyncWrite + Unpin>(mut client: S, reason: &str) {
    let goodbye = async {
        client.write_all(reason.as_bytes()).await?;
        client.shutdown().await?;
        let mut rest = client.take(GOODBYE_BYTES_MAX);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    };
    // The client may be gone.
    let _: Result<io::Result<u64>, _> = timeout(GOODBYE_MAX, goodbye).await;
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::DuplexStream;
    use tokio::net::TcpListener;
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::cluster::leader::{addresses, via_address};
    use crate::introduced::INTRODUCTION_BYTES;

    const KEY: NodeKey = NodeKey::new([7; 20]);
    const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)), 4_711);

    /// A listening leader, what tells who leads, and the end of a client that is spliced.
    async fn spliced(hold: Duration) -> (TcpListener, watch::Sender<Leader>, DuplexStream, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let leads = watch::Sender::new(Leader::default());
        let facts = Arc::new(ClusterFacts::default());
        facts.set_node_key(KEY);
        let splices = Splices { leader: leads.subscribe(), hold, keepalive_seconds: 0, facts };
        let (ours, theirs) = tokio::io::duplex(64);
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let task = tokio::spawn(splices.serve((ours, Some(CLIENT)), Door::Plain, place));
        (listener, leads, theirs, task)
    }

    fn leader(epoch: i64, listener: &TcpListener) -> Leader {
        let address = listener.local_addr().unwrap().to_string();
        Leader { epoch, addresses: addresses(Some(&address), None), trouble: None }
    }

    #[tokio::test]
    async fn each_side_may_end_before_the_other() {
        let (listener, leads, mut client, task) = spliced(Duration::from_secs(60)).await;
        // It has waited until now.
        client.write_all(b"last request").await.unwrap();
        client.shutdown().await.unwrap();
        leads.send_replace(leader(1, &listener));
        let (mut server, _) = listener.accept().await.unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "last request");
        server.write_all(&[b'x'; 1000]).await.unwrap();
        server.shutdown().await.unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert_eq!(received.len(), 1000);
        task.await.unwrap();
    }

    #[tokio::test]
    async fn a_leader_is_told_the_address_of_a_client_if_it_takes_that() {
        for takes_clients in [false, true] {
            let (listener, leads, mut client, _task) = spliced(Duration::from_secs(60)).await;
            let mut leader = leader(1, &listener);
            leader.addresses.extend(takes_clients.then(|| via_address("127.0.0.1:1")));
            leads.send_replace(leader);
            let (mut server, _) = listener.accept().await.unwrap();
            if takes_clients {
                let (mut hello, mut introduction) = ([1; HELLO.len()], [1; INTRODUCTION_BYTES]);
                server.read_exact(&mut hello).await.unwrap();
                server.write_all(&[0; CHALLENGE_BYTES]).await.unwrap();
                server.read_exact(&mut introduction).await.unwrap();
                assert_eq!(hello, *HELLO);
                assert_eq!(KEY.client(&[0; CHALLENGE_BYTES], &introduction), Some(CLIENT));
            }
            client.write_all(b"PING").await.unwrap();
            let mut request = [0; 4];
            server.read_exact(&mut request).await.unwrap();
            assert_eq!(request, *b"PING");
        }
    }

    #[tokio::test]
    async fn a_splice_ends_when_another_node_leads_or_none() {
        let other = Leader { epoch: 2, addresses: addresses(Some("127.0.0.1:1"), None), trouble: None };
        for next in [Leader::default(), other] {
            let (listener, leads, mut client, task) = spliced(Duration::from_secs(60)).await;
            leads.send_replace(leader(1, &listener));
            // The old leader does nothing: it may be stopped.
            let (_server, _) = listener.accept().await.unwrap();
            leads.send_replace(next);
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
            task.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_client_that_waits_in_vain_is_told_why() {
        for (trouble, expected) in [(None, NO_LEADER), (Some("no etcd"), "-MASTERDOWN no etcd\r\n")] {
            let (_listener, leads, mut client, task) = spliced(Duration::from_millis(1)).await;
            leads.send_modify(|leader| leader.trouble = trouble.map(str::to_owned));
            let mut told = String::new();
            client.read_to_string(&mut told).await.unwrap();
            assert_eq!(told, expected);
            drop(client);
            task.await.unwrap();
        }
    }
}
